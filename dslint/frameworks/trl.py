"""The keys of TRL's training files that TRL hands on to Accelerate's launcher."""

from __future__ import annotations

from dslint.evaluate.files import Linked
from dslint.frameworks.built_in import built_in_accelerate
from dslint.job.accelerate import AccelerateFile, is_accelerate, read_accelerate
from dslint.job.arguments import SourcedValue, given_at
from dslint.source.read import ReadError, read
from dslint.source.tree import Document, Member, Scalar, plain
from dslint.source.yaml_tree import parse_yaml

_KEYS = ("accelerate_config", "num_processes", "num_machines", "mixed_precision")


def keys_for_launcher(document: Document, shown: str) -> dict[str, SourcedValue]:
    """The keys of a training file that Accelerate's launcher gets as flags."""
    members = {name: document.lookup((name,)) for name in _KEYS}
    found = {
        name: given_at(document, shown, (name,), "", plain(member.value))
        for name, member in members.items()
        if isinstance(member, Member) and isinstance(member.value, Scalar)
    }
    return {name: given for name, given in found.items() if given is not None}


def accelerate_config(name: str, linked: Linked | None) -> tuple[Document, AccelerateFile] | None:
    """The Accelerate config for DeepSpeed that `accelerate_config` names: `linked`, otherwise one that ships with TRL.

    Source: trl/cli.py, main.
    """
    if linked is None:
        document, shown = built_in_accelerate(name), f"<{name} of TRL>"
    else:
        try:
            document, shown = parse_yaml(read(linked.path)), linked.shown
        except ReadError:
            return None
    return (document, read_accelerate(document, shown)) if document is not None and is_accelerate(document) else None
