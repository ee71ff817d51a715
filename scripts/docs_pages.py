#!/usr/bin/env python3
"""Write docs/rules/README.md, the committed index of rules.

    python scripts/docs_pages.py [--check]

With --check nothing is written; the exit code is 1 if the index is not up to date. The pages of rules and keys and the coverage page are
not committed: scripts/build_site.py builds them with the site.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]  # the test suite's helpers for examples, and this script's package

from docs_pages_writing.command_pages import commands_page  # noqa: E402
from docs_pages_writing.coverage_page import coverage_page, read_entries  # noqa: E402
from docs_pages_writing.key_pages import key_pages  # noqa: E402
from docs_pages_writing.rule_pages import repository_index, rule_pages  # noqa: E402
from docs_pages_writing.tested_page import tested_page  # noqa: E402
from docs_pages_writing.watched import watched  # noqa: E402

INDEX = ROOT / "docs" / "rules" / "README.md"
COVERAGE = ROOT / "docs" / "coverage.tsv"


@cache
def site_pages(*, playground: bool = False) -> dict[str, str]:
    """The generated pages of the site by their path in it. With `playground`, examples have links that open them there.

    Raises:
        CoverageError: docs/coverage.tsv is malformed.
    """
    keys = watched()
    pages = {f"rules/{name}": text for name, text in rule_pages(keys, playground=playground).items()}
    pages |= {f"keys/{name}": text for name, text in key_pages(keys).items()}
    return pages | {"commands.md": commands_page(), "coverage.md": coverage_page(read_entries(COVERAGE)), "tested.md": tested_page()}


def main(arguments: list[str]) -> int:
    """Write the index, or compare it with the one on disk."""
    text = repository_index()
    fresh = INDEX.exists() and INDEX.read_text(encoding="utf-8") == text
    if "--check" in arguments:
        if not fresh:
            print("docs/rules/README.md is stale; run python scripts/generate.py rule-pages")
        return 0 if fresh else 1
    INDEX.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
