"""Searches the largest micro batch that fits: by doubling, then by bisection."""

from __future__ import annotations

from collections.abc import Callable

MOST = 1 << 16
"""The largest micro batch that is tried: a model for which it fits is too small for a limit to matter."""


def largest(fits: Callable[[int], bool]) -> int | None:
    """The largest size up to `MOST` that fits; None if 1 does not fit. If a size does not fit, no larger size fits."""
    if not fits(1):
        return None
    good, bad = 1, None
    while good < MOST and bad is None:
        if fits(2 * good):
            good *= 2
        else:
            bad = 2 * good
    while bad is not None and bad - good > 1:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good
