"""What kind of file a document is, from its keys alone. What is not a training config is never judged as one."""

from __future__ import annotations

import re
from enum import StrEnum

from dslint.judge import children
from dslint.schemas.recognition import INFERENCE_KEYS, TELLING_KEYS
from dslint.source.tree import Document, Mapping


class Kind(StrEnum):
    """The kinds of file. Only a `DS_CONFIG` is judged by the rules."""

    DS_CONFIG = "ds_config"
    INFERENCE = "inference"
    TEMPLATE = "template"
    UNRELATED = "unrelated"
    UNREADABLE = "unreadable"


_PLACEHOLDER = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\$\{[^}\n]*\}|<<[A-Z_]+>>|\bCONFIG_[A-Z_]+\b|\$[A-Z][A-Z_]{2,}\b")
"""Jinja, shell, Hydra and Megatron's ways to leave a hole in a file."""


def recognise(document: Document, *, named: bool) -> tuple[Kind, str | None]:
    """The kind of a document, and a sentence for people where it is not simply a config.

    A file that a person named is taken for a config unless it plainly is something else; one that was found in a directory has to look
    like one: two keys of DeepSpeed's at the top, or one that nobody else uses.
    """
    root = document.root
    names = {member.key.value for member in root.members} if isinstance(root, Mapping) else set()
    known = names & children()[""].keys()
    telling = names & TELLING_KEYS
    hole = _PLACEHOLDER.search(document.text)
    if hole and (document.problems or known):
        return Kind.TEMPLATE, f"a template: {hole.group()} stands where a value goes. Lint the file that comes of it."
    if len(names & INFERENCE_KEYS) >= 2 and not telling:
        return Kind.INFERENCE, "a config for deepspeed.init_inference, which has keys of its own; dslint judges training configs."
    if telling or len(known) >= 2:
        return Kind.DS_CONFIG, None
    if not named:
        return Kind.UNRELATED, None
    if document.problems or known or not names:
        return Kind.DS_CONFIG, None
    if not names & {"zero", "zero_optimisation", "lr_scheduler"} and _is_foreign(names):
        return Kind.UNRELATED, "none of its keys is one of a DeepSpeed config; it was not judged."
    return Kind.DS_CONFIG, None


def _is_foreign(names: set[str]) -> bool:
    """Whether not even a misspelt key of DeepSpeed's is among the names."""
    from difflib import get_close_matches

    top = list(children()[""])
    return not any(get_close_matches(name.lower().replace("-", "_"), top, n=1, cutoff=0.8) for name in names)
