"""Ask the package index for releases that are newer than those that dslint was compared with, and GitHub for newer actions.

    python scripts/newest.py

It prints Markdown: a table of DeepSpeed and the libraries around it, the release that dslint knows (dslint/project.py), and the newest one;
and the same for the actions that action.yml, docs/ci.md and the workflows pin.
The exit code is 0 if nothing is newer, 1 if something is, and 2 if the index does not answer.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from dslint.facts import NEWEST  # noqa: E402 - of this checkout
from dslint.project import COMPARED, COMPARED_WITH  # noqa: E402


class Unanswered(Exception):
    """The index does not answer. The text says what pip says."""


def ask(package: str) -> Version:
    """The newest final release of a package that this Python can install, by pip.

    Raises:
        Unanswered: the index does not know the package, or cannot be reached.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    first = done.stdout.partition("\n")[0]  # "torch (2.13.0)"
    try:
        return Version(first.rpartition("(")[2].rstrip(") "))
    except InvalidVersion:
        raise Unanswered(f"{package}: {done.stderr.strip() or 'pip prints no release'}") from None


def ask_for_action(action: str) -> Version:
    """The newest release of an action, by its tags.

    Raises:
        Unanswered: the repository has no releases, or cannot be reached.
    """
    command = ["git", "ls-remote", "--tags", "--refs", f"https://github.com/{action}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    tags = [Version(tag) for tag in re.findall(r"refs/tags/v(\d+\.\d+\.\d+)$", done.stdout, re.MULTILINE)]
    if not tags:
        raise Unanswered(f"{action}: {done.stderr.strip() or 'there are no tags'}")
    return max(tags)


def pinned() -> dict[str, Version]:
    """The release of each action that action.yml, docs/ci.md and the workflows use; of several the oldest."""
    found: dict[str, Version] = {}
    for file in (ROOT / "action.yml", ROOT / "docs" / "ci.md", *sorted((ROOT / ".github" / "workflows").glob("*.yml"))):
        for action, release in re.findall(r"uses: ([\w-]+/[\w-]+)@[0-9a-f]{40} # v([\d.]+)", file.read_text(encoding="utf-8")):
            found[action] = min(found.get(action, Version(release)), Version(release))
    return found


def known() -> dict[str, Version]:
    """The newest release of each library that dslint was compared with."""
    return {"DeepSpeed": Version(str(NEWEST)), **{name: Version(release) for name, release in COMPARED_WITH.items()}}


def is_newer(found: Version, compared: Version) -> bool:
    """Whether a release came after the compared one; of a line of releases such as 2.13, all patches count as compared."""
    return found.release[: len(compared.release)] > compared.release


def page(compared: Mapping[str, Version], newest: Mapping[str, Version]) -> str:
    """The releases as a Markdown table."""
    rows = [
        f"| {name} | {release} | {newest[name]} | {'newer' if is_newer(newest[name], release) else ''} |"
        for name, release in compared.items()
    ]
    head = f"## Releases\n\ndslint's data were compared on {COMPARED}.\n\n| library | compared | newest | |\n|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def main(ask: Callable[[str], Version] = ask, ask_for_action: Callable[[str], Version] = ask_for_action) -> int:
    """Ask and print."""
    actions = pinned()
    compared = {**known(), **actions}
    try:
        newest = {name: ask_for_action(name) if name in actions else ask(name.lower()) for name in compared}
    except Unanswered as error:
        print(f"newest: {error}", file=sys.stderr)
        return 2
    print(page(compared, newest), end="")
    return int(any(is_newer(newest[name], release) for name, release in compared.items()))


if __name__ == "__main__":
    sys.exit(main())
