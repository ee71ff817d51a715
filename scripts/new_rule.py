"""Begin a rule: write its skeleton into the module of its chapter.

    python scripts/new_rule.py DS5 nvme-without-path --effect crash --phase initialize --module nvme

takes the next free code of the chapter. Where a chapter has several modules and none is named, they are listed.
The skeleton fails the suite until it is filled in, so that it cannot be forgotten.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from types import ModuleType

from dslint.diagnostics import Effect, Phase
from dslint.registry.rules import CHAPTERS, all_rules

SKELETON = '''

@rule("{code}", "{name}", effect=Effect.{effect}{phase}, references=())
@bad('{{"train_micro_batch_size_per_gpu": 4}}', at="")
@good('{{"train_micro_batch_size_per_gpu": 4}}')
def {function}(config: Config) -> Iterator[Finding]:
    """What is wrong, in one sentence.

    What DeepSpeed does, and why it matters.

    What to write instead.
    """
    raise NotImplementedError("{code}: fill in the rule, its documentation and its examples")
    yield
'''


class Unfit(Exception):
    """The arguments do not make a rule. The text says why."""


def skeleton(chapter: str, name: str, effect: Effect, phase: Phase | None, wanted: str | None) -> tuple[Path, str, str]:
    """The module to write to, the code of the new rule, and its text.

    Raises:
        Unfit: no such chapter or module, a name that is taken or no name, a phase missing or too many.
    """
    digit = chapter.upper().removeprefix("DS")
    modules = [module for module in CHAPTERS if any(rule.module == module.__name__ and rule.code[2] == digit for rule in all_rules())]
    if not modules:
        raise Unfit(f"no module has rules of chapter {chapter}: begin one in rules/, and name it in CHAPTERS of rules/__init__.py")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise Unfit(f'{name!r} is no name: write words in small letters, with hyphens, that read as "allow {name}"')
    if any(rule.name == name for rule in all_rules()):
        raise Unfit(f"there is a rule {name} already")
    if (effect is Effect.CRASH) != (phase is not None):
        raise Unfit("a crash has a --phase, and nothing else has one")
    code = f"DS{1 + max(int(rule.code[2:]) for rule in all_rules() if rule.code[2] == digit)}"
    text = SKELETON.format(
        code=code,
        name=name,
        effect=effect.name,
        phase=f", phase=Phase.{phase.name}" if phase else "",
        function=name.replace("-", "_"),
    )
    return _module(chapter, modules, wanted), code, text


def _module(chapter: str, modules: list[ModuleType], wanted: str | None) -> Path:
    """The file of the module that the rule goes to."""
    short = {module.__name__.rpartition(".")[2]: module for module in modules}
    if (wanted is None and len(short) > 1) or (wanted is not None and wanted not in short):
        lines = (f"  {name:<20} {(module.__doc__ or '').partition(chr(10))[0]}" for name, module in short.items())
        raise Unfit(f"{chapter} has these modules; name the one that fits with --module:\n" + "\n".join(lines))
    file = short[wanted or next(iter(short))].__file__
    assert file is not None
    return Path(file).resolve()


def _with_phase(module: str) -> str:
    """The module's text, with `Phase` among its imports."""
    line = re.search(r"^from dslint.diagnostics import (.*)$", module, re.MULTILINE)
    if line is None or "Phase" in line[1]:
        return module
    return module.replace(line[0], f"from dslint.diagnostics import {', '.join(sorted([*line[1].split(', '), 'Phase']))}")


def main() -> int:
    """Write the skeleton and say where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chapter", help="DS0 to DS9; `dslint rule` says what they are about")
    parser.add_argument("name")
    parser.add_argument("--effect", type=Effect, required=True, choices=list(Effect))
    parser.add_argument("--phase", type=Phase, choices=list(Phase))
    parser.add_argument("--module", help="the module in rules/ it goes to")
    arguments = parser.parse_args()
    try:
        module, code, text = skeleton(arguments.chapter, arguments.name, arguments.effect, arguments.phase, arguments.module)
    except Unfit as error:
        print(f"new_rule: {error}", file=sys.stderr)
        return 2
    whole = _with_phase(module.read_text(encoding="utf-8")) + text
    module.write_text(whole, encoding="utf-8")
    line = whole.count("\n") - text.count("\n") + 3
    print(f"{code} {arguments.name}: {module}:{line}. The suite fails until it is filled in.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
