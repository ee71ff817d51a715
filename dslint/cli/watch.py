"""`--watch`: check again whenever a file changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

import click

from dslint.cli.options import show_page, warn
from dslint.errors import UserError
from dslint.facts.find_release import forget_installed
from dslint.lint.discovery import discover
from dslint.report.style import visible
from dslint.settings import Finder
from dslint.settings.sources import FILES

EVERY = 0.3
"""Seconds between two looks at the files."""

Seen = dict[str, tuple[int, int]]
"""Modification time (ns) and size (bytes) of each file."""


def watch(paths: Iterable[str], check: Callable[[Finder], int], finder: Finder) -> None:
    """Check, and check again after each change of a config or a settings file, until interrupted.

    Args:
        paths: files and directories to watch; new files in the directories count as changes.
        check: checks with fresh settings.
        finder: where the settings are.
    """
    paths = tuple(paths)
    try:
        while True:
            fresh = finder.again()
            forget_installed()
            seen = look(paths, fresh)
            try:
                check(fresh)
            except UserError as error:
                warn(str(error))
            click.echo(f"\nWatching {len(seen):,} files. Press Ctrl-C to stop.", err=True)
            changed = _wait(paths, finder, seen)
            names = ", ".join(sorted(changed)[:3]) + (" and others" if len(changed) > 3 else "")
            show_page(f"\n{time.strftime('%H:%M:%S')} changed: {visible(names)}", color=False, err=True)
    except KeyboardInterrupt:
        click.echo(err=True)


def _wait(paths: Iterable[str], finder: Finder, seen: Seen) -> set[str]:
    """Wait for a change, and return the changed files."""
    while True:
        time.sleep(EVERY)
        now = look(paths, finder.again())
        changed = {path for path in seen.keys() | now.keys() if seen.get(path) != now.get(path)}
        if changed:
            return changed


def look(paths: Iterable[str], finder: Finder) -> Seen:
    """The files that a check of these paths reads, the settings files that may apply to them, and the files that those name."""
    try:
        files = {target.path for target in discover(paths, finder).targets}
    except UserError:
        files = {path for path in paths if os.path.isfile(path)}
    folders = {os.path.dirname(os.path.abspath(path)) for path in files} | {os.getcwd()}
    for folder in list(folders):
        while (folder := os.path.dirname(folder)) not in folders:
            folders.add(folder)
    seen: Seen = {}
    named = {path for settings in finder.found for path in settings.named_files}
    for path in (*files, *named, *(os.path.join(folder, name) for folder in folders for name in FILES)):
        try:
            status = os.stat(path)
        except OSError:
            continue
        seen[path] = (status.st_mtime_ns, status.st_size)
    return seen
