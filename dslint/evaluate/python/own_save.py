"""A Trainer's own method that saves weights which nothing has gathered, by the text of a program's files."""

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
_GATHERS = re.compile(
    r"gather|deepspeed|zero3|zero\.|zero_|accelerator|16bit|full_tensor|^[ \t]+with\s+(?!open\b|torch\.(?:no_grad|inference_mode)\b)",
    re.IGNORECASE | re.MULTILINE,
)
"""What gathers, or may do so: a `with` of a function of the project, for example."""

_SAVE_MODEL = re.compile(rf"(?m)^([ \t]+)def save_model\(self\b[^)]*\)[^:\n]*:(?P<body>{_BODY})")
"""`save_model` of a Trainer that saves only the adapter, as in ChatGLM-Tuning, Firefly and the trainers that copied theirs."""
_ARGUMENTS = r"(?:[^()\n]|\([^()\n]*\))*"
_UNGATHERED = re.compile(
    rf"(?<!, _ in )self\.model\.(?:save_pretrained\((?!{_ARGUMENTS}state_dict){_ARGUMENTS}\)|state_dict\(\)|named_parameters\(\))"
)
_IN_CALLBACK = re.compile(
    rf"kwargs(?:\[[\"']model[\"']\]|\.get\([\"']model[\"']\))\.save_pretrained\((?!{_ARGUMENTS}state_dict){_ARGUMENTS}\)"
)
_CALLBACK = re.compile(r"class (\w+)\((?:\w+\.)*TrainerCallback\):")
"""`SavePeftModelCallback`, which many trainers of adapters have had since Chinese-LLaMA-Alpaca."""
_ENDS = re.compile(r"(?m)^[^\s#)]")
_CALLS_OTHER_SAVE = re.compile(r"super\(|\.\w*save_model\(|\b\w*_save\w*\(")
_WRITES = re.compile(r"save_pretrained\(|torch\.save\(|save_file\(")


def own_save(files: Sequence[SourceFile]) -> tuple[str, Span] | None:
    """The name of a method `_save` or `save_model`, or "callback", and the place in it that takes weights which are not gathered."""
    return _leaves_gathered(files) or _replaces_save_model(files) or _saves_in_callback(files)


def _saves_in_callback(files: Sequence[SourceFile]) -> tuple[str, Span] | None:
    """A callback of the Trainer that saves its model, if nothing in the class gathers."""
    for source in files:
        for match in _IN_CALLBACK.finditer(source.text) if "TrainerCallback)" in source.text else ():
            above = source.text.rfind("\nclass ", 0, match.start()) + 1
            owner, below = _CALLBACK.match(source.text, above), _ENDS.search(source.text, match.end())
            body = source.text[above : below.start() if below is not None else len(source.text)]
            is_comment = "#" in source.text[source.text.rfind("\n", 0, match.start()) + 1 : match.start()]
            if owner is None or is_comment or _GATHERS.search(body):
                continue
            if any(re.search(rf"(?<!class )\b{owner[1]}\b(?!\(\w*\.?TrainerCallback)", one.text) for one in files):
                return "callback", Span(source.base + match.start(), source.base + match.end())
    return None


def _replaces_save_model(files: Sequence[SourceFile]) -> tuple[str, Span] | None:
    """A `save_model` that saves `self.model` itself, and calls neither that of the Trainer nor what gathers."""
    for source in files if any("def save_model(" in one.text for one in files) else ():
        for match in _SAVE_MODEL.finditer(source.text):
            taken = _UNGATHERED.search(match["body"])
            is_own = _WRITES.search(match["body"]) is not None and _CALLS_OTHER_SAVE.search(match["body"]) is None
            if taken is not None and is_own and not _GATHERS.search(match["body"]) and _is_made(files, source, match.start()):
                start = source.base + match.start("body")
                return "save_model", Span(start + taken.start(), start + taken.end())
    return None


def _is_made(files: Sequence[SourceFile], source: SourceFile, at: int) -> bool:
    """Whether the class around a place is a Trainer, and the program makes one of it."""
    above = source.text.rfind("\nclass ", 0, at) + 1
    owner = _OWNER.match(source.text, above)
    return owner is not None and any(re.search(rf"(?<!class )\b{owner[1]}\(", one.text) for one in files)


def _leaves_gathered(files: Sequence[SourceFile]) -> tuple[str, Span] | None:
    """A `_save` that calls `self.model.save(folder)` and leaves the state dict which the Trainer has gathered for it, if each method `save`
    of the program reads the weights of its own object, and nothing in them gathers.
    """
    owners = [one for one in files if "def _save(" in one.text]
    models = [match["body"] for one in files if owners and "def save(" in one.text for match in _OF_MODEL.finditer(one.text)]
    if not models or any(_GATHERS.search(one) or not _READS.search(one) for one in models):
        return None
    for source in owners:
        for match in _SAVE.finditer(source.text):
            call = _CALL.search(match["body"])
            if (
                call is None
                or "state_dict" in match["body"]
                or _GATHERS.search(match["body"])
                or not _is_made(files, source, match.start())
            ):
                continue
            start = source.base + match.start("body")
            return "_save", Span(start + call.start(1), start + call.end(1))
    return None
