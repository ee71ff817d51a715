"""The release of a package that a project uses, and defects of a range of releases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.record import Record
from dslint.rules.helpers.loaders import names_its_release

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from dslint.job.arguments import SourcedValue
    from dslint.job.events import Event


def release_of(config: Config, package: str) -> Release | None:
    """The release of a package that the project pins, or that is given."""
    if package != "deepspeed":
        return config.context.pinned(package)
    return config.facts.deepspeed if names_its_release(config) else None


def allowed_ends(config: Config, package: str, releases: Sequence[Release]) -> tuple[Release, Release] | None:
    """The oldest and the newest of some releases of a package that the project requires; None if it requires none of them, or nothing."""
    wanted = _required(config, package)
    allowed = [release for release in releases if wanted is not None and wanted.contains(str(release))]
    return (min(allowed), max(allowed)) if allowed else None


def requires_at_most(config: Config, package: str, last: Release) -> bool:
    """Whether the project requires a package, and no release of it after `last`: `transformers<4.45`."""
    wanted = _required(config, package)
    if wanted is None or wanted.contains(str(_NEVER)):
        return False
    later = (f"{last.major}.{minor}.{patch}" for minor in range(last.minor + 1, _MOST) for patch in range(_PATCHES))
    far = (f"{major}.{minor}.0" for major in (last.major + 1, last.major + 2) for minor in range(_MOST))
    earlier = (f"{last.major}.{minor}.{patch}" for minor in range(last.minor + 1) for patch in range(_PATCHES))
    return not any(map(wanted.contains, chain(later, far))) and any(map(wanted.contains, earlier))


def allows(config: Config, package: str, release: Release) -> bool:
    """Whether the project requires a package, and this release will do."""
    wanted = _required(config, package)
    return wanted is not None and wanted.contains(str(release))


def allows_newest(config: Config, package: str) -> bool:
    """Whether the project requires a package, and sets no upper limit: pip installs the newest release."""
    wanted = _required(config, package)
    return wanted is not None and wanted.contains(str(_NEVER))


def newest_transformers(config: Config) -> tuple[str, Release] | None:
    """The newest transformers that the project allows, which is the one that pip installs, with the file that says so; None if nothing does."""
    required, wanted = config.context.requirement("transformers"), _required(config, "transformers")
    if required is None or wanted is None:
        return None
    minors = [(major, minor) for major, newest in _NEWEST_MINORS.items() for minor in range(newest + 1)]
    found = (
        Release(*one, 0) for one in reversed(minors) if any(wanted.contains(f"{one[0]}.{one[1]}.{patch}") for patch in range(_PATCHES))
    )
    newest = next(found, None)
    return None if newest is None else (required[0], newest)


_NEWEST_MINORS = {4: 57, 5: 24}
"""The minor releases of transformers that a range is compared with, up to these."""
_MOST, _PATCHES = 80, 6
"""More minor releases, and more patches of one, than the packages have."""
_NEVER = Release(99, 0, 0)
"""A release that only a requirement without an upper limit allows."""


def _required(config: Config, package: str) -> SpecifierSet | None:
    """What the project requires of a package; None if that is nothing, or cannot be read."""
    required = config.context.requirement(package)
    if required is None:
        return None
    from packaging.specifiers import InvalidSpecifier, SpecifierSet  # slow to import, and few projects require the packages

    try:
        return SpecifierSet(required[1].partition(";")[0].strip())
    except InvalidSpecifier:
        return None


TRANSFORMERS_5 = Release(5, 0, 0)
_LONG_BEFORE_5 = {
    "deepspeed": Release(0, 18, 0),
    "accelerate": Release(1, 10, 0),
    "peft": Release(0, 17, 0),
    "trl": Release(0, 22, 0),
}
"""Releases that were out for months when transformers 5 came: a project that pins older ones hardly runs with it."""


def before_transformers_5(config: Config) -> bool:
    """Whether the project runs a transformers before 5, or probably does: it pins none, and other libraries to releases of that time."""
    pinned = config.context.pinned("transformers")
    if pinned is not None:
        return pinned < TRANSFORMERS_5
    wanted = _required(config, "transformers")
    if wanted is not None:
        allows_5 = any(wanted.contains(one) for one in (str(_NEVER), *(f"5.{minor}.0" for minor in range(_NEWEST_MINORS[5] + 1))))
        allows_4 = any(wanted.contains(f"4.{minor}.{patch}") for minor in range(_NEWEST_MINORS[4] + 1) for patch in range(_PATCHES))
        if not allows_5 or not allows_4:
            return allows_4
    others = ((release_of(config, package), newest) for package, newest in _LONG_BEFORE_5.items())
    return any(release is not None and release < newest for release, newest in others)


def is_between(release: Release, first: Release | None, last: Release | None) -> bool:
    """Whether a release is one from `first` to `last`. None means no limit."""
    return (first or release) <= release <= (last or release)


class ReleaseDefect(Record):
    """A defect of a package from the release `first` to `last`, and what it does.

    `shows` says whether a training runs into it: with the call or the argument that does, or with a key of the config. `source` is the change that fixed
    it, which was read in the releases before and after it.
    """

    package: str
    first: Release
    last: Release
    shows: Callable[[Config], Event | SourcedValue | str | None]
    outcome: str
    advice: str
    source: str
    effect: Effect = Effect.SILENT
    phase: Phase | None = None
    certain_with: str = ""
    """The package whose release must be pinned, too, for a certain outcome; "" for one that is not certain."""
    depends: bool = False
    """Whether the outcome depends on more than the config, such as frozen parameters; it then says "may"."""

    of_one_rank: bool = False
    """Whether one rank alone runs into it, too; else the outcome is certain only where the number of ranks is known."""

    def release(self, config: Config) -> Release | None:
        """The release of the package, if it is known and has the defect."""
        release = release_of(config, self.package)
        return release if release is not None and is_between(release, self.first, self.last) else None
