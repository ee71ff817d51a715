"""Lint a folder of real configs, optionally in comparison with DeepSpeed's verdict on each.

    python scripts/corpus_check.py DIR [--integration transformers]
    python scripts/corpus_check.py DIR --manifest DIR/manifest.jsonl --verdicts DIR/verdicts.jsonl --verdict-field hf --world-size-field ws

The manifest has a line of JSON for each file with its `id` and `file` (relative to the manifest's folder). The verdicts have a line with
the same `id`, the exception that DeepSpeed raised while parsing (null: it accepted the file) and the world size.

Prints what crashed dslint, the number of findings per rule, rejected files without an error ("missed"), and accepted files with a parse
crash ("claimed wrongly"). The exit code is 1 if there are any. Templates and files that are not configs are skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dslint.config.context import Context
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import Facts, Integration
from dslint.lint.discovery import discover
from dslint.lint.files import lint_subject
from dslint.lint.guard import INTERNAL_ERROR
from dslint.lint.results import FileResult
from dslint.registry.rules import default_rules
from dslint.settings import Finder
from dslint.setups.open import open_text
from dslint.source.read import read


@dataclass
class Verdict:
    """DeepSpeed's verdict on a file."""

    error: str | None
    world_size: int | None


@dataclass
class Tally:
    """The results of a run."""

    judged: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    crashed: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, result: FileResult, verdict: Verdict | None) -> None:
        """Count a file."""
        if not result.is_judged:
            self.left_out[result.kind] += 1
            return
        self.judged += 1
        found = result.diagnostics
        self.rules.update((d.code, d.name) for d in found)
        self.crashed += [f"{result.path}: {d.message}" for d in found if d.code == INTERNAL_ERROR]
        claims = [d for d in found if d.effect is Effect.CRASH and d.phase is Phase.PARSE and d.severity is Severity.ERROR]
        if verdict is None:
            return
        if verdict.error is not None and not any(d.severity is Severity.ERROR for d in found):
            self.missed.append(f"{result.path}: {verdict.error.splitlines()[0]}")
        if verdict.error is None and claims:
            self.wrong.append(f"{result.path}: {', '.join(f'{d.code} {d.message}' for d in claims)}")


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file."""
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.strip())


def lint(path: str, facts: Facts) -> list[FileResult]:
    """The findings in a file, which may be a setup, and in the configs that it names."""
    subject = open_text(read(path), path, Context(facts), contexts=())
    return lint_subject(subject, Context(facts), default_rules()) if subject is not None else []


def verdicts(arguments: argparse.Namespace) -> dict[str, Verdict]:
    """DeepSpeed's verdicts by file."""
    if arguments.verdicts is None:
        return {}
    files = {row["id"]: str(arguments.manifest.parent / row["file"]) for row in lines(arguments.manifest)}
    return {
        files[row["id"]]: Verdict(row[arguments.verdict_field], row.get(arguments.world_size_field))
        for row in lines(arguments.verdicts)
        if row["id"] in files
    }


def show(title: str, entries: list[str]) -> None:
    """Print a list under its title, or nothing."""
    if entries:
        print(f"\n{title}: {len(entries)}")
        print("\n".join(f"  {entry}" for entry in entries))


def main() -> int:
    """Lint, count, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--integration", type=Integration)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--verdict-field", default="error")
    parser.add_argument("--world-size-field", default="world_size")
    arguments = parser.parse_args()
    if (arguments.manifest is None) != (arguments.verdicts is None):
        parser.error("--manifest and --verdicts must be used together")
    known = verdicts(arguments)
    tally = Tally()
    targets = discover([str(arguments.folder)], Finder(only="")).targets
    for target in targets:
        verdict = known.get(target.path)
        if known and verdict is None:
            continue
        facts = Facts(verdict.world_size if verdict else None, arguments.integration)
        for result in lint(target.path, facts):
            tally.add(result, verdict)
    print(f"checked {tally.judged} files; skipped: {', '.join(f'{count} {kind}' for kind, count in tally.left_out.items()) or 'none'}")
    for (code, name), count in sorted(tally.rules.items()):
        print(f"{count:6} {code} {name}")
    show("dslint failed", tally.crashed)
    show("missed (DeepSpeed rejects, no error)", tally.missed)
    show("claimed wrongly (DeepSpeed accepts)", tally.wrong)
    return 1 if tally.crashed or tally.missed or tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
