"""What a config cannot say about itself: who loads it, on how many ranks, with which release, on which GPU, for which model."""

from dslint.facts.facts import NOT_NEEDED, Facts, Integration, PassedAs
from dslint.facts.release import LAST_PATCH, NEWEST, OLDEST, RELEASES, Release, Upgrade

__all__ = ["LAST_PATCH", "NEWEST", "NOT_NEEDED", "OLDEST", "RELEASES", "Facts", "Integration", "PassedAs", "Release", "Upgrade"]
