#!/usr/bin/env python3
"""Write the pages that the documents do not need a person for: a page for each rule, one for each section of the config, and the coverage.

    python scripts/docs_pages.py [--check]

The rules give docs/rules/, the models docs/keys/, docs/coverage.tsv (where it is there) docs/coverage.md. With --check nothing is written;
the exit code is 1 if a page on disk is not what the code gives, is missing, or is about something that is gone.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]  # the suite's reading of examples, and this script's parts

from docs_pages_writing.coverage_page import CoverageError, coverage_page, read_entries  # noqa: E402
from docs_pages_writing.key_pages import key_pages  # noqa: E402
from docs_pages_writing.rule_pages import rule_pages  # noqa: E402
from docs_pages_writing.watched import watched  # noqa: E402

DOCS = ROOT / "docs"
OWN = ("rules/*.md", "keys/*.md", "coverage.md")
"""What below docs/ is written here and by nobody else."""


def pages(docs: Path = DOCS) -> dict[str, str]:
    """The pages by their path below docs/.

    Raises:
        CoverageError: docs/coverage.tsv cannot be used.
    """
    looks = watched()
    made = {f"rules/{name}": text for name, text in rule_pages(looks).items()} | {
        f"keys/{name}": text for name, text in key_pages(looks).items()
    }
    data = docs / "coverage.tsv"
    return made | ({"coverage.md": coverage_page(read_entries(data))} if data.exists() else {})


def compare(docs: Path, made: dict[str, str]) -> tuple[list[str], list[str]]:
    """The pages on disk that are missing or not fresh, and those that are about something that is gone."""
    there = {path.relative_to(docs).as_posix() for pattern in OWN for path in docs.glob(pattern)}
    stale = sorted(name for name, text in made.items() if name not in there or (docs / name).read_text(encoding="utf-8") != text)
    return stale, sorted(there - set(made))


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them with those on disk."""
    try:
        made = pages()
    except CoverageError as error:
        print(error, file=sys.stderr)
        return 1
    stale, gone = compare(DOCS, made)
    if "--check" in arguments:
        for name in stale:
            print(f"not fresh: docs/{name}")
        for name in gone:
            print(f"about nothing: docs/{name}")
        return 1 if stale or gone else 0
    for name in stale:
        (DOCS / name).parent.mkdir(parents=True, exist_ok=True)
        (DOCS / name).write_text(made[name], encoding="utf-8")
    for name in gone:
        (DOCS / name).unlink()
    print(f"{len(stale)} of {len(made)} pages written, {len(gone)} removed.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
