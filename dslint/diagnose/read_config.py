"""Reads the config that DeepSpeed prints: JSON, except for numbers such as `inf` and for what other processes printed in between."""

from __future__ import annotations

import json
import re
from typing import Any

_NOT_JSON = re.compile(r"(?<=[:\[,\s])(-?)(inf|nan|Infinity|NaN|None|True|False)(?=\s*[,\]}\n]|\s*$)")
_WORDS = {"inf": "1e999", "nan": "null", "Infinity": "1e999", "NaN": "null", "None": "null", "True": "true", "False": "false"}
_ENTRY = re.compile(r'\s*(?:"[^"]*"\s*:|[\]}\[{"]|-?\d|true|false|null|-?inf|$)')


def read_config(text: str) -> dict[str, Any] | None:
    """The config as data; None if the text is too damaged to be read. Lines that cannot belong to a config are left out."""
    for attempt in (text, "\n".join(line for line in text.split("\n") if _ENTRY.match(line))):
        try:
            data = json.loads(_NOT_JSON.sub(lambda match: match[1] + _WORDS[match[2]], attempt))
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            return _tidy(data)  # type: ignore[no-any-return]
    return None


def _tidy(value: Any) -> Any:
    """Numbers as a person writes them: DeepSpeed prints large integers in exponents."""
    if isinstance(value, dict):
        return {key: _tidy(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_tidy(entry) for entry in value]
    if isinstance(value, float) and value.is_integer() and 1e3 <= abs(value) < 2**63:
        return int(value)
    return value
