"""What the name of a file says: a config, a file that leads to configs, or neither."""

from __future__ import annotations

import fnmatch
import os
import re
from enum import Enum
from functools import cache

from dslint.schemas.catalog import FILE_NAMES
from dslint.source.read import SCRIPTS


class Says(Enum):
    """What the name of a file says. The text in it decides only where the name leaves it open."""

    CONFIG = "config"
    """a name of the schema catalog, which in public repositories no other file has: `ds_config.json`"""
    MAYBE = "maybe a config"
    """a name that the pre-commit hook accepts: `ds_new.json`, `stage2.json`"""
    LEADS = "leads to configs"
    """a training file in YAML, a program, a notebook, a script, a makefile"""
    FOREIGN = "no config"
    """the ending of another format: such a file is not a config, even if it is named"""
    NOTHING = "nothing"


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

CONFIGS = (".json", ".jsonc", ".json5", ".hjson")
"""The endings of configs that are found in directories; a named file may have any name."""

DEBUGGER = "launch.json"
"""The file of VS Code that says how its debugger starts programs."""

_LEADING = (".yaml", ".yml", ".py", ".ipynb", *SCRIPTS, ".mk")
_FOREIGN = (".toml", ".ini", ".cfg", ".md", ".rst", ".xml", ".html", ".csv", ".lock")


def says(path: str) -> Says:
    """What the name of a file says."""
    name = os.path.basename(path).lower()
    if name.endswith(_LEADING) or name in ("makefile", "gnumakefile", DEBUGGER):
        return Says.LEADS
    if os.path.splitext(name)[1] in CONFIGS:
        return _says_of_config(path)
    return Says.FOREIGN if name.endswith(_FOREIGN) else Says.NOTHING


def is_makefile(path: str) -> bool:
    """Whether a file is for make."""
    name = os.path.basename(path).lower()
    return "makefile" in name or name.endswith(".mk")


def leads(path: str) -> bool:
    """Whether a file, by its name, leads to configs, and is none itself."""
    return says(path) is Says.LEADS


def _says_of_config(path: str) -> Says:
    """How surely a name is that of a config. Only the last three folders count: the name of a project may be DeepSpeed, too."""
    near = "/".join(path.replace(os.sep, "/").lower().split("/")[-3:])
    stem = os.path.splitext(near)[0]
    sure, maybe = _patterns()
    return Says.CONFIG if sure.search(f"{stem}.json") else Says.MAYBE if maybe.search(stem) else Says.NOTHING


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    names = (name.removeprefix("**/") for name in FILE_NAMES)
    whole = (re.sub(r"\\[zZ]$", "", fnmatch.translate(name)).replace(".*", "[^/]*") for name in names)
    return re.compile("(?:^|/)(?:" + "|".join(whole) + ")$"), re.compile(MAYBE, re.VERBOSE)


_OF_TESTS = re.compile(
    rb"^[ \t]*(?:(?:from|import)[ \t]+(?:pytest|unittest)\b|(?:async[ \t]+)?def[ \t]+test|class[ \t]+Test)", re.MULTILINE
)
"""What a test has in it, and a program that is only named like one has not."""


def is_named_like_test(name: str) -> bool:
    """Whether a program has the name of a test."""
    return name.startswith(("test_", "conftest.")) or name.endswith("_test.py")


def is_test(name: str, data: bytes) -> bool:
    """Whether a program is a test, by its name and what is in it. Tests contain wrong configs on purpose, and launch no training."""
    return is_named_like_test(name) and (name.lower().startswith("conftest.") or _OF_TESTS.search(data) is not None)
