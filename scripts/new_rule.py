"""Start a rule: write its skeleton into the module of its topic.

    python scripts/new_rule.py DS5 nvme-on-a-network-disk --effect crash --phase initialize --module nvme

takes the next free code of the chapter. Without --module, or with only a chapter, it lists the modules of the chapter; a new name creates
a module. The skeleton fails the tests until it is complete.

Chapters: DS0 the file itself; DS1 keys and their values; DS2 batch size and world size; DS3 precision and loss scale; DS4 ZeRO and
communication; DS5 offload; DS6 optimizer and scheduler; DS7 activation checkpointing and memory; DS8 other sections; DS9 integrations;
DSP programs.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from dslint.diagnostics import Effect, Phase
from dslint.registry.rules import all_rules
from dslint.report.rule_page import CHAPTER_TITLES

RULES = Path(__file__).resolve().parent.parent / "rules"

LAST = 99
"""The last number of a chapter: a code has two digits behind it."""

SKELETON = '''

@rule("{code}", effect=Effect.{effect}{phase}, watches=("FILL.IN",), references=())
@bad(\'{{"train_micro_batch_size_per_gpu": 4}}\', at="")
@good(\'{{"train_micro_batch_size_per_gpu": 4}}\')
def {function}(config: Config) -> Iterator[Finding]:
    """What is wrong, in one sentence.

    What DeepSpeed does, and why it matters.

    What to write instead.
    """
    raise NotImplementedError("{code}: fill in the rule, its watches, references, documentation and examples")
    yield
'''

MODULE = '''"""{chapter}: say in one line what the rules of this module are about."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.rule import Finding, bad, good, rule
'''

NEXT = """Next:
  1. complete the rule: watches, references, documentation, examples
  2. python scripts/generate.py --quick    # the index, without which the tests do not see the rule; message and fix of the examples
  3. pytest tests/rules tests/registry -k {code}
  4. pytest tests/engine/test_rules.py -k {code}  # for a crash: run the examples on the real DeepSpeed
  5. python scripts/generate.py errors     # for a crash: record what DeepSpeed raises, for `dslint rule --error` (needs DeepSpeed)
  6. ruff format .
If docs/coverage.tsv lists the mistake, write {code} into its line."""


class Unfit(Exception):
    """The arguments are invalid. The text says why."""


def next_code(chapter: str, name: str, effect: Effect, phase: Phase | None) -> str:
    """The code of a new rule.

    Raises:
        Unfit: an unknown chapter, one without a free code, a name that is malformed or taken, or a phase that is missing or superfluous.
    """
    if chapter not in CHAPTER_TITLES:
        raise Unfit(f"unknown chapter {chapter}; --help lists them")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise Unfit(f'malformed name {name!r}: write lower-case words with hyphens that read as "allow {name}"')
    if any(rule.name == name for rule in all_rules()):
        raise Unfit(f"the rule {name} exists already")
    if (effect is Effect.CRASH) != (phase is not None):
        raise Unfit("--phase goes with --effect crash, and only with it")
    following = 1 + max((int(rule.code[3:]) for rule in all_rules() if rule.code.startswith(chapter)), default=0)
    if following > LAST:
        raise Unfit(f"all codes of {chapter} are used: file the rule in the chapter of the keys or the part of DeepSpeed that it is about")
    return f"{chapter}{following:02}"


def module_of(chapter: str, wanted: str | None) -> Path:
    """The file that the rule goes to.

    Raises:
        Unfit: no module is named, or its name is not one; the text lists those of the chapter.
    """
    folders = list(RULES.glob(f"{chapter.lower()}_*"))
    if len(folders) != 1:
        raise Unfit(f"unknown chapter {chapter}; --help lists them")
    (folder,) = folders
    if wanted is not None and re.fullmatch(r"[a-z][a-z0-9_]*", wanted):
        return folder / f"{wanted}.py"
    files = (file for file in sorted(folder.glob("*.py")) if file.stem != "__init__")
    lines = (f"  {file.stem:<24} {file.read_text(encoding='utf-8').partition(chr(10))[0].strip(chr(34))}" for file in files)
    raise Unfit("give NAME, --effect and --module, one of these topics or a new one:\n" + "\n".join(lines))


def with_imports(module: str, phase: Phase | None) -> str:
    """The text of a module, with what the skeleton needs among its imports."""
    needed = {"collections.abc": {"Iterator"}, "dslint.config": {"Config"}, "dslint.rule": {"Finding", "bad", "good", "rule"}}
    needed["dslint.diagnostics"] = {"Effect", "Phase"} if phase else {"Effect"}
    for source, names in needed.items():
        line = re.search(rf"^from {re.escape(source)} import (.*)$", module, re.MULTILINE)
        if line is None:
            after = re.search(r"^from __future__ import annotations\n", module, re.MULTILINE)
            at = after.end() if after else 0
            module = f"{module[:at]}\nfrom {source} import {', '.join(sorted(names))}{module[at:]}"
        elif not names <= set(line[1].split(", ")):
            every = sorted({*line[1].split(", "), *names}, key=lambda name: (name.islower(), name))
            module = module.replace(line[0], f"from {source} import {', '.join(every)}")
    return module


def main() -> int:
    """Write the skeleton."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chapter", help="DS0 to DS9, or DSP")
    parser.add_argument("name", nargs="?", help='lower-case words with hyphens that read as "allow NAME"')
    parser.add_argument("--effect", type=Effect, choices=list(Effect))
    parser.add_argument("--phase", type=Phase, choices=list(Phase))
    parser.add_argument("--module", help="the file in the chapter's folder it goes to")
    given = parser.parse_args()
    chapter = "DS" + given.chapter.upper().removeprefix("DS")
    try:
        if given.name is None or given.effect is None:
            module_of(chapter, None)
        code = next_code(chapter, given.name, given.effect, given.phase)
        file = module_of(chapter, given.module)
    except Unfit as error:
        print(f"new_rule: {error}", file=sys.stderr)
        return 2
    text = SKELETON.format(
        code=code,
        effect=given.effect.name,
        phase=f", phase=Phase.{given.phase.name}" if given.phase else "",
        function=given.name.replace("-", "_"),
    )
    module = file.read_text(encoding="utf-8") if file.exists() else MODULE.format(chapter=chapter)
    whole = with_imports(module, given.phase) + text
    file.write_text(whole, encoding="utf-8")
    line = whole.count("\n") - text.count("\n") + 3
    print(f"{code} {given.name}: {file}:{line}")
    print(NEXT.format(code=code))
    return 0


if __name__ == "__main__":
    sys.exit(main())
