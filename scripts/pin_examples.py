"""Write the message and the fixed text of each bad example into its decorator, as dslint finds and fixes it now.

    python scripts/pin_examples.py [--check]

Run it after changing a message or a fix, and read the difference: it is what users will see. With `--check` nothing is written; the exit
code is 1 if a decorator says something else.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from itertools import groupby
from pathlib import Path

from dslint.registry.rules import loaded_rules
from dslint.rule import Rule

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.setup.beside import finding_of, fixed_text

RULES = loaded_rules()


def pinned(module: str, rules: list[Rule]) -> str:
    """The source of a module of rules, with the message and the fixed text of each bad example."""
    lines = [line.encode() for line in module.split("\n")]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    functions = {node.name: node for node in ast.parse(module).body if isinstance(node, ast.FunctionDef)}
    changes: list[tuple[int, int, str]] = []
    for rule in rules:
        calls = [one for one in functions[rule.name.replace("-", "_")].decorator_list if isinstance(one, ast.Call)]
        examples = [one for one in calls if isinstance(one.func, ast.Name) and one.func.id == "bad"]
        for call, example in zip(examples, rule.bad, strict=True):
            found = finding_of(rule, example)
            for name, value, before in (("message", found.message, example.message), ("fixed", fixed_text(found, example), example.fixed)):
                if value == before:
                    continue
                written = next((one for one in call.keywords if one.arg == name), None)
                if written is not None:
                    start = starts[written.lineno - 1] + written.col_offset
                    end = starts[(written.end_lineno or 0) - 1] + (written.end_col_offset or 0)
                    changes.append((start, end, f"{name}={value!r}"))
                else:
                    last = max([*call.args, *(one.value for one in call.keywords)], key=lambda one: (one.end_lineno, one.end_col_offset))
                    end = starts[(last.end_lineno or 0) - 1] + (last.end_col_offset or 0)
                    changes.append((end, end, f", {name}={value!r}"))
    whole = module.encode()
    ordered = sorted(enumerate(changes), key=lambda one: (one[1][0], one[0]), reverse=True)
    for _, (start, end, text) in ordered:
        whole = whole[:start] + text.encode() + whole[end:]
    return whole.decode()


def main(arguments: list[str] | None = None) -> int:
    """Write the modules, or with `--check` list those that would change."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a decorator says something else")
    check = parser.parse_args(arguments).check
    stale = 0
    for _, group in groupby(sorted(RULES, key=lambda rule: rule.module), key=lambda rule: rule.module):
        rules = list(group)
        file = Path(inspect.getfile(rules[0].check)).resolve()
        before = file.read_text(encoding="utf-8")
        after = pinned(before, rules)
        if after != before:
            stale += 1
            print(f"{'stale' if check else 'wrote'}: {file.name}", file=sys.stderr)
            if not check:
                file.write_text(after, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
