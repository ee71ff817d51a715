"""A Trainer's own `_save` that leaves the state dict which the Trainer has gathered for it, by the text of a program's files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


_BODY = r"(?:\n\1[ \t]+.*|\n[ \t]*(?=\n))+"
_SAVE = re.compile(rf"(?m)^([ \t]+)def _save\(self,[^)]*\bstate_dict\b[^)]*\)[^:\n]*:(?P<body>{_BODY})")
_CALL = re.compile(r"(?m)^[ \t]+(self\.model\.save)\(\w+\)[ \t]*$")
_OF_MODEL = re.compile(rf"(?m)^([ \t]+)def save\(self\b[^)]*\)[^:\n]*:(?P<body>{_BODY})")
_OWNER = re.compile(r"(?m)^class (\w+)\([^)\n]*Trainer\):")
_READS = re.compile(r"\bself\.(\w+\.)?state_dict\(\)")
_GATHERS = re.compile(r"gather|deepspeed|zero3|zero\.|zero_|accelerator|16bit|full_tensor", re.IGNORECASE)


def own_save(texts: Sequence[str]) -> tuple[int, str, int, int] | None:
    """The call `self.model.save(folder)` in such a method, if each method `save` of the program reads the weights of its own object, and
    nothing in them gathers: the number of its file, its text, and its start and end in the file.
    """
    if not any("def _save(" in one for one in texts):
        return None
    models = [match["body"] for one in texts if "def save(" in one for match in _OF_MODEL.finditer(one)]
    if not models or any(_GATHERS.search(one) or not _READS.search(one) for one in models):
        return None
    for number, text in enumerate(texts):
        for match in _SAVE.finditer(text) if "def _save(" in text else ():
            call = _CALL.search(match["body"])
            above = text.rfind("\nclass ", 0, match.start()) + 1
            owner = _OWNER.match(text, above)
            if call is None or owner is None or "state_dict" in match["body"] or _GATHERS.search(match["body"]):
                continue
            if any(re.search(rf"(?<!class )\b{owner[1]}\(", one) for one in texts):
                return number, call[1], match.start("body") + call.start(1), match.start("body") + call.end(1)
    return None
