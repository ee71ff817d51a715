"""What kind of file a document is, from its keys alone. What is not a training config is never judged as one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from dslint.config.validate import children
from dslint.schemas.recognition import INFERENCE_KEYS, TELLING_KEYS
from dslint.source.tree import Document, Mapping, Node, Scalar, Sequence


class FileKind(StrEnum):
    """The kinds of file. A `DS_CONFIG` is judged by the rules; so is what the next four hold, or lead to."""

    DS_CONFIG = "ds_config"
    ACCELERATE = "accelerate"
    TRAINING = "training"
    SCRIPT = "script"
    PYTHON = "python"
    INFERENCE = "inference"
    TEMPLATE = "template"
    UNRELATED = "unrelated"
    UNREADABLE = "unreadable"


_PLACEHOLDER = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\$\{[^}\n]*\}|<<[A-Z_]+>>|\$[A-Z][A-Z_]{2,}\b")
"""The ways of Jinja, the shell and Hydra to leave a hole in a file."""

_SHOUTED = re.compile(r"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+),?")
"""A word for `sed` to replace, without quotes, as Megatron's templates have them: `CONFIG_BATCH_SIZE`."""


def detect_kind(document: Document, *, named: bool) -> tuple[FileKind, str | None]:
    """The kind of a document, and a sentence for people where it is not simply a config.

    A file that a person named is taken for a config unless it plainly is something else; one that was found in a directory has to look
    like one: two keys of DeepSpeed's at the top, or one that nobody else uses.
    """
    root = document.root
    names = {member.key.value for member in root.members} if isinstance(root, Mapping) else set()
    known = names & children()[""].keys()
    telling = names & TELLING_KEYS
    hole = _hole(document)
    if hole and (document.problems or known):
        return FileKind.TEMPLATE, f"a template: {hole} stands where a value goes. Lint the file that comes of it."
    if len(names & INFERENCE_KEYS) >= 2 and not telling:
        return FileKind.INFERENCE, "a config for deepspeed.init_inference, which has keys of its own; dslint judges training configs."
    if telling or len(known) >= 2:
        return FileKind.DS_CONFIG, None
    if not named:
        return FileKind.UNRELATED, None
    if document.problems or known or not names:
        return FileKind.DS_CONFIG, None
    if not names & {"zero", "zero_optimisation", "lr_scheduler"} and _is_foreign(names):
        return FileKind.UNRELATED, "none of its keys is one of a DeepSpeed config; it was not judged."
    return FileKind.DS_CONFIG, None


def _hole(document: Document) -> str | None:
    placeholder = _PLACEHOLDER.search(document.text)
    if placeholder:
        return placeholder.group()
    if not any(departure.kind == "bare-string" for departure in document.departures):
        return None
    shouted = (_SHOUTED.fullmatch(word) for word in _bare_words(document.root))
    return next((match[1] for match in shouted if match), None)


def _bare_words(node: Node | None) -> Iterator[str]:
    if isinstance(node, Scalar):
        if node.style == "bare" and isinstance(node.value, str):
            yield node.value
    elif isinstance(node, Mapping):
        for member in node.members:
            yield from _bare_words(member.value)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _bare_words(item)


def _is_foreign(names: set[str]) -> bool:
    """Whether not even a misspelt key of DeepSpeed's is among the names."""
    from difflib import get_close_matches

    top = list(children()[""])
    return not any(get_close_matches(name.lower().replace("-", "_"), top, n=1, cutoff=0.8) for name in names)
