"""DeepSpeed releases: the supported ones, comparison, and upgrades `A..B`."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


class Release(NamedTuple):
    """A DeepSpeed release, comparable: `Release(0, 16, 9) < Release(0, 19, 8)`."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}" if self.patch == ANY_PATCH else f"{self.major}.{self.minor}.{self.patch}"

    @property
    def is_outside(self) -> bool:
        """Whether it is older or newer than every known release."""
        return not OLDEST <= self <= NEWEST

    @property
    def may_exist(self) -> bool:
        """Whether it is a known release, or a later one than all that are known, of the same major version."""
        return self in RELEASES or (self > NEWEST and self.major == NEWEST.major)

    @property
    def nearest(self) -> Release:
        """The last known release that is not later; for one older than all, the oldest."""
        return max((release for release in RELEASES if release <= self), default=OLDEST)

    @classmethod
    @lru_cache(maxsize=256)  # the key table names few releases, and every config is compared with them
    def parse(cls, text: str) -> Release:
        """Read `0.16.9`, `v0.16.9`, `0.16` (its last patch) or a development build such as `0.19.2+abc`.

        Raises:
            ValueError: the text is not a release number.
        """
        words = text.strip().removeprefix("v").partition("+")[0].split(".")
        if not 2 <= len(words) <= 4 or not all(word.isascii() and word.isdecimal() and len(word) < 6 for word in words[:3]):
            raise ValueError(text)
        numbers = [int(word) for word in words[:3]]
        return cls(numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else LAST_PATCH.get((numbers[0], numbers[1]), ANY_PATCH))


KNOWN_PACKAGES = (
    "accelerate",
    "axolotl",
    "bitsandbytes",
    "deepspeed",
    "deepspeed-chat",
    "dschat",
    "lightning",
    "llamafactory",
    "llmtuner",
    "mmengine",
    "ms-swift",
    "numpy",
    "openrlhf",
    "peft",
    "pytorch-lightning",
    "swift",
    "torch",
    "transformers",
    "trl",
    "wandb",
    "xtuner",
)
"""The packages whose releases rules and frameworks ask for, and others that stand beside DeepSpeed. A name that is nearly one of them is
misspelt.
"""


def final_release(version: str) -> Release | None:
    """The release of a package that an exact pin names (`2.10` is 2.10.0, as for pip); None for a pre-release or another word."""
    match = re.fullmatch(r"(\d+\.\d+)(\.\d+)?(?:\.0)*(?:\.?post\d+)?(?:\+\S+)?", version)
    if match is None:
        return None
    try:
        return Release.parse(match[1] + (match[2] or ".0"))
    except ValueError:  # a number that no release has
        return None


ANY_PATCH = 99
"""The patch of a minor release that is not known: `0.25` means its last one. No release has had that many."""

LAST_PATCH = {
    (0, 9): 5,
    (0, 10): 3,
    (0, 11): 2,
    (0, 12): 6,
    (0, 13): 5,
    (0, 14): 5,
    (0, 15): 4,
    (0, 16): 9,
    (0, 17): 6,
    (0, 18): 9,
    (0, 19): 8,
}
"""The last patch release of each supported minor release."""

RELEASES = tuple(Release(*minor, patch) for minor, last in LAST_PATCH.items() for patch in range(last + 1))
"""Every supported release, the oldest first."""

OLDEST, NEWEST = RELEASES[0], RELEASES[-1]


class Upgrade(NamedTuple):
    """An upgrade from one release to another, such as `0.14.5..0.19.8`; without an end, to the newest."""

    start: Release
    to: Release

    def __str__(self) -> str:
        return f"{self.start}..{self.to}"

    @classmethod
    def parse(cls, text: str) -> Upgrade:
        """Read `0.14.5..0.19.8` or `0.14.5..`.

        Raises:
            ValueError: the text has another form, or does not lead to a newer release.
        """
        start, dots, to = text.partition("..")
        upgrade = cls(Release.parse(start), Release.parse(to) if to.strip() else NEWEST)
        if not dots or upgrade.start >= upgrade.to:
            raise ValueError(text)
        return upgrade
