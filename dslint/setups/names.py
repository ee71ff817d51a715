"""What the name of a file says: whether it is that of a DeepSpeed config."""

from __future__ import annotations

import fnmatch
import os
import re
from enum import IntEnum
from functools import cache

from dslint.schemas.catalog import FILE_NAMES


class Says(IntEnum):
    """How surely a name is that of a config."""

    NOTHING = 0
    MAYBE = 1
    """a name that the pre-commit hook accepts: `ds_new.json`, `stage2.json`"""
    CONFIG = 2
    """a name of the schema catalog, which in public repositories no other file has: `ds_config.json`"""


MAYBE = r"""
    (^|/)
    ( [^/]*deepspeed[^/]*
    | ([^/]*[-_.])?ds([-_][^/]*)?
    | ([^/]*[-_])?(z|zero|stage|zero[-_]?stage)[-_]?[0-3]([-_.p][^/]*)?
    | zero[-_]config[^/]*
    )$
    | (^|/)(deepspeed|ds)[-_]?(config|zero)?s?(/[^/]+)+$
"""
"""Names without their ending: those that the hook accepts, and `ds.json`."""

ENDINGS = (".json", ".jsonc", ".json5", ".hjson")


def says(path: str) -> Says:
    """What the name of a file says. Only the last three folders count: the name of a project may be DeepSpeed, too."""
    near = "/".join(path.replace(os.sep, "/").lower().split("/")[-3:])
    stem, ending = os.path.splitext(near)
    if ending not in ENDINGS:
        return Says.NOTHING
    sure, maybe = _patterns()
    return Says.CONFIG if sure.search(f"{stem}.json") else Says.MAYBE if maybe.search(stem) else Says.NOTHING


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    names = (name.removeprefix("**/") for name in FILE_NAMES)
    whole = (re.sub(r"\\[zZ]$", "", fnmatch.translate(name)).replace(".*", "[^/]*") for name in names)
    return re.compile("(?:^|/)(?:" + "|".join(whole) + ")$"), re.compile(MAYBE, re.VERBOSE)
