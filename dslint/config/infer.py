"""Facts that plainly follow from the file itself."""

from __future__ import annotations

from dslint.config.context import ONLY_REPLACED_BY, Context
from dslint.facts import Facts, Integration
from dslint.schemas.auto import FILLED
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Document, Member, Scalar


def infer(document: Document, given: Facts | Context) -> Context:
    """What is known, with what the document gives away.

    A key that reads "auto", that DeepSpeed would not survive, and that the Hugging Face Trainer fills, was written for the Trainer (or for
    Accelerate, which fills fewer). The release that the project pins counts only if the Trainer must be meant.
    """
    context = Context.of(given)
    if context.facts.integration is not None:
        return context
    for key in FILLED["transformers"]:
        parent = key.rpartition(".")[0]
        if KEYS.get(parent, {}).get("unknown") == "raise":
            continue  # DeepSpeed itself drops "auto" there, so it does not show a loader
        if _is_auto(document, key):
            evidence = f'"{key}" is "auto", {ONLY_REPLACED_BY}'
            found = context.with_evidence(evidence, integration=Integration.TRANSFORMERS)
            return found.with_loader_release() if any(_is_auto(document, key) for key in _ONLY_TRAINER) else found
    return context


_ONLY_TRAINER = tuple(key for key in FILLED["transformers"] if key not in FILLED["accelerate"])


def _is_auto(document: Document, key: str) -> bool:
    found = document.lookup(tuple(key.split(".")))
    return isinstance(found, Member) and isinstance(found.value, Scalar) and found.value.value == "auto"
