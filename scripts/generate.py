"""Write every committed file that is generated.

    python scripts/generate.py [--quick] [--check] [NAME ...]

Without names everything is written; --quick leaves out what runs DeepSpeed or every command of the documents. With --check nothing is
written, the stale files are listed, and the exit code is 1 if there are any. A test that finds a stale file prints this command.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Step(NamedTuple):
    """A generator: its name, its command, what it writes, and whether it takes seconds at most and can check without writing."""

    name: str
    command: tuple[str, ...]
    writes: str
    quick: bool = True
    checks: bool = True
    update: str | None = None
    """The variable of the environment that makes the tests of a folder write what they compare with."""


STEPS = (
    Step("schemas", ("-m", "dslint.schemas.compile"), "schemas/key_table.py, schemas/ds_config.schema.json"),
    Step("frameworks", ("scripts/framework_commands.py",), "schemas/framework_commands.py"),
    Step("rules", ("scripts/build_rule_index.py",), "rules/index.py"),
    Step("examples", ("scripts/pin_examples.py",), "the messages and fixed texts in rules/"),
    Step("rule-pages", ("scripts/docs_pages.py",), "docs/rules/README.md"),
    Step("settings", ("scripts/vscode_settings.py",), "editors/vscode/package.json, docs/settings.schema.json"),
    Step("memory", ("scripts/memory_table.py",), "the table in docs/memory.md", quick=False),
    Step("models", ("scripts/model_defaults.py",), "dslint/memory/_generated/, which needs transformers", quick=False, checks=False),
    Step("upgrades", ("scripts/upgrade_pages.py",), "docs/upgrading/", quick=False),
    Step(
        "words", ("scripts/harmless_words.py",), "dslint/report/harmless_words.json, which needs the libraries", quick=False, checks=False
    ),
    Step("errors", ("scripts/record_errors.py",), "rules/errors.json, which needs DeepSpeed", quick=False),
    Step(
        "documents", ("-m", "pytest", "-q", "tests/docs"), "the outputs in the documents", quick=False, checks=False, update="UPDATE_DOCS"
    ),
    Step("reports", ("-m", "pytest", "-q", "tests/report"), "tests/report/*.txt", quick=False, checks=False, update="UPDATE_GOLDEN"),
)


def run(step: Step, *, check: bool) -> int:
    """Run a generator; its exit code, 0 if all is up to date."""
    command = [sys.executable, *step.command, *(["--check"] if check and step.checks else [])]
    environment = dict(os.environ)
    if step.update and not check:
        environment[step.update] = "1"
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def formatter() -> list[str] | None:
    """The command of ruff: that of this Python, which need not be on PATH, or any other; None if there is none."""
    if importlib.util.find_spec("ruff") is not None:
        return [sys.executable, "-m", "ruff"]
    found = shutil.which("ruff")
    return [found] if found else None


def main(arguments: list[str] | None = None) -> int:
    """Run the generators in their order: later ones read what earlier ones write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(f"{step.name}: {step.writes}" for step in STEPS))
    parser.add_argument("--quick", action="store_true", help="only what takes seconds and needs no DeepSpeed")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    given = parser.parse_args(arguments)
    unknown = set(given.names) - {step.name for step in STEPS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; one of {', '.join(step.name for step in STEPS)}")
    chosen = [step for step in STEPS if (step.name in given.names if given.names else step.quick or not given.quick)]
    formats = formatter()
    if formats is None and not given.check:
        print("requires ruff, which formats what is generated: pip install -e '.[dev]'", file=sys.stderr)
        return 1
    failed = [step.name for step in chosen if run(step, check=given.check)]
    if formats is not None and not given.check:
        subprocess.run([*formats, "format", "--quiet", "rules", "schemas"], cwd=ROOT, check=False)
    if failed:
        print(
            f"{'stale' if given.check else 'failed'}: {', '.join(failed)}; run python scripts/generate.py {' '.join(failed)}",
            file=sys.stderr,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
