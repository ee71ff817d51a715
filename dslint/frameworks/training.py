"""Training files: the arguments in them, by the names of the Trainer."""

from __future__ import annotations

from dslint.frameworks.base import Framework
from dslint.job.arguments import LISTS, Arguments, SourcedValue, given_at
from dslint.job.training import ARGUMENTS, WORKLOAD
from dslint.source.tree import Document, Mapping, Node, Scalar, Sequence, plain
from dslint.source.unknown import UNKNOWN


def read_training(document: Document, shown: str, framework: Framework) -> Arguments:
    """The arguments of a training file."""
    values: dict[str, SourcedValue] = {}
    root = document.root
    for member in root.members if isinstance(root, Mapping) else ():
        written = member.key.value
        name = framework.names.get(written, written)
        if name not in ARGUMENTS | WORKLOAD:
            continue
        value = plain(member.value) if isinstance(member.value, Scalar) else _listed(member.value) if name in LISTS else UNKNOWN
        read = framework.reads(name, value) if framework.reads is not None else value
        given = given_at(document, shown, (written,), name, read)
        if given is not None and value is not None and given.value not in framework.unset.get(name, ()):
            values[name] = given
    return arguments_of(framework, shown, values)


def arguments_of(framework: Framework, shown: str, values: dict[str, SourcedValue], *, complete: bool = True) -> Arguments:
    """Arguments that a file or a command gives to a framework, with its defaults."""
    return Arguments(framework.name, shown, values, sure=framework.is_sure, complete=complete, defaults=framework.defaults)


def _listed(node: Node) -> object:
    """A list of names as one text."""
    words = plain(node) if isinstance(node, Sequence) else None
    return ",".join(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else UNKNOWN
