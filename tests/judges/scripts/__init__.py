"""Generated shell scripts and Makefiles, with what real ones hold."""

from __future__ import annotations

from random import Random

from tests.judges.scripts.blocks import Script
from tests.judges.scripts.makefiles import Makefile

_MAKEFILES = 8
"""Of so many seeds, one is that of a Makefile."""


def script(seed: int) -> dict[str, str]:
    """The files of the script of a seed; the first is `run.sh` or `Makefile`."""
    return Makefile(Random(seed)).write() if seed % _MAKEFILES == 0 else Script(Random(seed)).write()
