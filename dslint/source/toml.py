"""TOML, read within limits: Python's reader takes quadratic time for a key of many parts."""

from __future__ import annotations

import re
from typing import Any

_PART = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+"
_LONG_KEY = rf"(?<![\w-])(?:{_PART}){{100}}"


def loads(text: str) -> dict[str, Any]:
    """The data of a TOML text.

    Raises:
        ValueError: it is not TOML, is nested too deeply, or has a key of more than 100 parts.
    """
    import tomllib  # slow to import

    if re.search(_LONG_KEY, text):
        raise ValueError("a key has more than 100 parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
