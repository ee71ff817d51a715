"""Finds the files of a command line: files, directories and globs, in order, without duplicates."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from dslint.evaluate.files import EDITOR, is_searched, may_concern_deepspeed
from dslint.lint.patterns import matches
from dslint.record import Record
from dslint.settings import Finder, Settings
from dslint.setups.names import CONFIGS, DEBUGGER, is_named_like_test, is_test, leads
from dslint.setups.project import leads_out
from dslint.source.read import ReadError, read_bytes


class Target(Record):
    """A file to lint: its path, and whether it was named itself rather than found in a directory.

    `outside` is where a file that was found leads if links lead it out of the project. It is not opened. `mentioned` says whether a program
    or script of the same run mentions a file that was found, on a line about DeepSpeed.
    """

    path: str
    named: bool
    outside: str | None = None
    mentioned: bool = False

    @property
    def leads(self) -> bool:
        """Whether the file, by its name, leads to configs, and is none itself."""
        return leads(self.path)


class NothingFound(Exception):
    """A path or pattern without a file. The text is a sentence for the user."""


class Discovered(Record):
    """The files of the arguments, arguments without files, and named files that `force-exclude` skips."""

    targets: list[Target]
    nothing: list[NothingFound]
    excluded: list[str]


def discover(arguments: Iterable[str], settings: Finder) -> Discovered:
    """The files of the arguments, without duplicates; raises `dslint.settings.SettingsError`."""
    targets: dict[str, Target] = {}
    found = Discovered([], [], [])
    for argument in arguments:
        try:
            for target in _expand(argument, settings):
                if target.named and _force_excluded(target.path, settings):
                    found.excluded.append(target.path)
                    continue
                key = os.path.normpath(target.path)
                known = targets.get(key, target)
                targets[key] = target if target.named and not known.named else known
        except NothingFound as error:
            found.nothing.append(error)
    found.targets.extend(targets.values())
    return found


def listed(text: str, settings: Finder) -> list[Target]:
    """The files of a list, with NUL characters or line ends after names. They count as found, not named: a file that is excluded, not
    included or missing is skipped.
    """
    names = dict.fromkeys(name for name in (text.split("\0") if "\0" in text else text.splitlines()) if name)
    wanted: list[Target] = []
    for name in names:
        of_file = settings.for_file(name)
        if os.path.isfile(name) and _is_included(name, of_file) and not is_excluded(name, of_file):
            wanted.append(_found(name))
    return wanted


def _found(path: str, *allowed: str) -> Target:
    """A file that was found. A link in a stranger's checkout could lead to any file of this machine."""
    return Target(path, named=False, outside=leads_out(path, *allowed))


_HERE = re.compile(rf"^(?:\.[/{re.escape(os.sep)}]+)+")


def _expand(argument: str, settings: Finder) -> Iterator[Target]:
    argument = _HERE.sub("", argument) or (argument and os.curdir)  # a program names the same file without "./"
    if os.path.isdir(argument):
        # os.walk follows no link to a folder, so only a file that is a link can lead out.
        for path in _walk(argument, settings, _is_included):
            yield _found(path, argument) if os.path.islink(path) else Target(path, named=False)
    elif os.path.lexists(argument) or not any(mark in argument for mark in "*?["):
        yield Target(argument, named=True)
    else:
        found = [path for path in sorted({*_matching(argument)}) if not os.path.isdir(path)]
        if not found:
            raise NothingFound(f"{argument}: no file matches this pattern")
        yield from map(_found, found)


def _matching(pattern: str) -> Iterator[str]:
    """The paths that a pattern matches. `**` follows no links: a few that lead to each other's folders have too many paths to list."""
    import glob  # needed only for patterns that the shell did not expand

    above, *below = _ANY_FOLDER.split(pattern, maxsplit=1)
    if not below:
        yield from glob.iglob(pattern)
        return
    for top in glob.iglob(above) if above else ("",):
        for folder, folders, _ in os.walk(top or os.curdir):
            folders[:] = [name for name in folders if not name.startswith(".")]
            inside = folder if top else folder.removeprefix(os.curdir).lstrip(os.sep)
            yield from _matching(os.path.join(glob.escape(inside), below[0] or "*"))


_ANY_FOLDER = re.compile(rf"(?:^|(?<=[/{re.escape(os.sep)}]))\*\*(?:[/{re.escape(os.sep)}]+|$)")


def _walk(top: str, finder: Finder, is_wanted: Callable[[str, Settings], bool]) -> Iterator[str]:
    for folder, folders, files in os.walk(top):
        settings = finder.for_directory(os.path.abspath(folder))
        folders[:] = sorted(
            name for name in folders if is_searched(name) and not is_excluded(os.path.join(folder, name), settings, folder=True)
        )
        for name in sorted(files):
            path = os.path.join(folder, name)
            if is_wanted(path, settings) and not is_excluded(path, settings):
                yield path.removeprefix("." + os.sep if top == "." else "")


def _is_included(path: str, settings: Settings) -> bool:
    wanted = settings.based("include")
    if wanted:
        return any(matches(path, base, patterns) for base, patterns in wanted)
    name = os.path.basename(path).lower()
    if os.path.basename(os.path.dirname(path)) == EDITOR:
        return name == DEBUGGER
    if name.endswith(".py"):
        return not is_named_like_test(name) or _is_program(path)
    return name.endswith(CONFIGS) or leads(name)


def _is_program(path: str) -> bool:
    """Whether a file that is named like a test is a program for DeepSpeed."""
    data = _data_about_deepspeed(path)
    return data is not None and not is_test(os.path.basename(path), data)


def _data_about_deepspeed(path: str) -> bytes | None:
    """What is in a file that may have to do with DeepSpeed; None for any other, and for one that cannot be read or leads elsewhere."""
    if os.path.islink(path):
        return None
    try:
        data = read_bytes(path)
    except ReadError:
        return None
    return data if may_concern_deepspeed(data) else None


def tests_below(arguments: Iterable[str], settings: Finder) -> list[str]:
    """The files below directories that are skipped as tests, and that may have to do with DeepSpeed."""
    return [path for top in filter(os.path.isdir, arguments) for path in _walk(top, settings, _is_skipped_test)]


def _is_skipped_test(path: str, settings: Settings) -> bool:
    name = os.path.basename(path).lower()
    is_test = name.endswith(".py") and is_named_like_test(name) and not settings.based("include")
    return is_test and _data_about_deepspeed(path) is not None


def with_mentions(targets: Sequence[Target]) -> Sequence[Target]:
    """The targets, with those marked that a program or script among them mentions."""
    found = {target.path for target in targets if not target.named and target.path.lower().endswith(CONFIGS)}
    if not found:
        return targets
    names: set[str] = set()
    for target in targets:
        if target.leads and target.outside is None:
            with contextlib.suppress(ReadError):
                data = read_bytes(target.path)
                if may_concern_deepspeed(data):
                    names |= {name.decode("utf-8", "replace") for line in _ABOUT.findall(data) for name in _NAMES.findall(line)}
    return [one._replace(mentioned=True) if one.path in found and os.path.basename(one.path) in names else one for one in targets]


_ABOUT = re.compile(rb"(?i)^.{0,2000}?(?:deepspeed|ds_config|dsconfig|zero).*$", re.MULTILINE)
_NAMES = re.compile(rb"(?<![\w.-])[\w.-]+\.h?json[c5]?\b")


def is_excluded(path: str, settings: Settings, *, folder: bool = False) -> bool:
    """Whether the settings exclude a file or directory."""
    unwanted = [*settings.based("exclude"), *settings.based("extend-exclude")]
    return any(matches(path, base, patterns, folder=folder) for base, patterns in unwanted)


def _force_excluded(path: str, finder: Finder) -> bool:
    settings = finder.for_file(path)
    return settings["force-exclude"] and is_excluded(path, settings)


def shown(path: str) -> str:
    """A path as diagnostics name it: as it was given or found, with forward slashes."""
    return path.replace(os.sep, "/")
