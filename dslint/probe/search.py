"""The largest micro batch that fits: doubled until it does not, then halved into."""

from __future__ import annotations

from collections.abc import Callable

MOST = 1 << 16


def largest(fits: Callable[[int], bool]) -> int | None:
    """The largest size up to `MOST` that fits; None where 1 does not. What does not fit is taken to fit at no larger size either."""
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
