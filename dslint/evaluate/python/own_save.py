"""A Trainer's own `_save` that leaves the state dict which the Trainer has gathered for it, by the text of a program's files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dslint.evaluate.python.sources import SourceFile
from dslint.source.tree import Span

_BODY = r"(?:\n\1[ \t]+.*|\n[ \t]*(?=\n))+"
_SAVE = re.compile(rf"(?m)^([ \t]+)def _save\(self,[^)]*\bstate_dict\b[^)]*\)[^:\n]*:(?P<body>{_BODY})")
_CALL = re.compile(r"(?m)^[ \t]+(self\.model\.save)\(\w+\)[ \t]*$")
_OF_MODEL = re.compile(rf"(?m)^([ \t]+)def save\(self\b[^)]*\)[^:\n]*:(?P<body>{_BODY})")
_OWNER = re.compile(r"(?m)^class (\w+)\([^)\n]*Trainer\):")
_READS = re.compile(r"\bself\.(\w+\.)?state_dict\(\)")
_GATHERS = re.compile(r"gather|deepspeed|zero3|zero\.|zero_|accelerator|16bit|full_tensor", re.IGNORECASE)


def own_save(files: Sequence[SourceFile]) -> tuple[str, Span] | None:
    """The call `self.model.save(folder)` in such a method, and its place, if each method `save` of the program reads the weights of its
    own object, and nothing in them gathers.
    """
    owners = [one for one in files if "def _save(" in one.text]
    models = [match["body"] for one in files if owners and "def save(" in one.text for match in _OF_MODEL.finditer(one.text)]
    if not models or any(_GATHERS.search(one) or not _READS.search(one) for one in models):
        return None
    for source in owners:
        for match in _SAVE.finditer(source.text):
            call = _CALL.search(match["body"])
            above = source.text.rfind("\nclass ", 0, match.start()) + 1
            owner = _OWNER.match(source.text, above)
            if call is None or owner is None or "state_dict" in match["body"] or _GATHERS.search(match["body"]):
                continue
            if any(re.search(rf"(?<!class )\b{owner[1]}\(", one.text) for one in files):
                start = source.base + match.start("body")
                return call[1], Span(start + call.start(1), start + call.end(1))
    return None
