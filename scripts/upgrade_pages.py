#!/usr/bin/env python3
"""Write the pages on upgrading, one for each minor release of DeepSpeed: docs/upgrading/.

    python scripts/upgrade_pages.py [--check]

With --check nothing is written; the exit code is 1 if a page is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dslint.facts import LAST_PATCH, NEWEST, RELEASES, Release
from dslint.report.changes_page import markdown
from dslint.schemas.changes import changes

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "upgrading"


def pages() -> dict[str, str]:
    """The pages by name."""
    minors = [minor for minor in LAST_PATCH if Release(*minor, 0) > RELEASES[0]]
    found = {f"{major}.{minor}.md": _page(major, minor) for major, minor in minors}
    links = [f"- [DeepSpeed {major}.{minor}]({major}.{minor}.md)" for major, minor in reversed(minors)]
    found["README.md"] = "\n".join(
        [
            "# Upgrading DeepSpeed",
            "",
            "The changes of the config in each release: new and removed keys, defaults, ranges, and stricter validation. Generated from",
            f"the models. `dslint check --deepspeed 0.14.5..{NEWEST} ds_config.json` reports what an upgrade changes for a file,",
            f"and `--fix` migrates it; `dslint schema --diff 0.14.5 {NEWEST}` lists the changes between two releases.",
            "",
            *links,
            "",
        ]
    )
    return found


def _page(major: int, minor: int) -> str:
    first = Release(major, minor, 0)
    before = RELEASES[RELEASES.index(first) - 1]
    found = changes(before, Release(major, minor, LAST_PATCH[major, minor]))
    body = markdown(found) if found else "The config did not change.\n"
    return f"# DeepSpeed {major}.{minor}\n\nChanges of the config since {before}.\n\n{body}"


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them with those on disk."""
    wrong = 0
    for name, text in pages().items():
        path = FOLDER / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        wrong = 1
        if "--check" in arguments:
            print(f"stale: {path.name}")
        else:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote: {path.name}")
    return wrong if "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
