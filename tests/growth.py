"""How the work grows with the input. A ratio of CPU times says it on any machine, however busy; a time does not."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

TRIES = 4
"""A ratio may be spoilt by what else the machine does; a quadratic algorithm spoils all of them."""

Work = Callable[[], object]


def cpu_seconds(work: Work) -> float:
    """The CPU seconds that the work takes in this process, without the collector of garbage: it goes through all that other tests left."""
    gc.disable()
    try:
        begun = time.process_time()
        work()
        return time.process_time() - begun
    finally:
        gc.enable()


def ratio(small: Work, large: Work) -> float:
    """How many times the CPU time of the small work the large one takes; the least of some tries."""
    return min(cpu_seconds(large) / max(cpu_seconds(small), 1e-3) for _ in range(TRIES))


def assert_linear(make: Callable[[int], Work], size: int, factor: int = 8) -> None:
    """Work on input that is `factor` times larger takes about as many times longer: quadratic work would take its square."""
    small, large = make(size), make(size * factor)
    small()  # what is made once is not counted
    least = 0.0
    for _ in range(TRIES):
        least = cpu_seconds(large) / max(cpu_seconds(small), 1e-3)
        if least < factor * 2.5:
            return
    raise AssertionError(f"{factor} times the input takes {least:.0f} times the CPU time")
