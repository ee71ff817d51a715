"""Training files: the arguments in them, by the names of the Trainer."""

from __future__ import annotations

from dataclasses import replace

from dslint.facts import Facts
from dslint.frameworks.base import Framework
from dslint.frameworks.registry import named
from dslint.job.arguments import LISTS, Arguments, SourcedValue, given_at
from dslint.job.training import ARGUMENTS, WORKLOAD
from dslint.source.tree import Document, Mapping, Node, Scalar, Sequence, plain
from dslint.source.unknown import UNKNOWN


def read_training(document: Document, shown: str, framework: Framework) -> Arguments:
    """The arguments of a training file."""
    values: dict[str, SourcedValue] = {}
    unknown: list[SourcedValue] = []
    root = document.root
    for member in root.members if isinstance(root, Mapping) else ():
        written = member.key.value
        name = framework.names.get(written, written)
        if name not in ARGUMENTS | WORKLOAD:
            given = given_at(document, shown, (written,), name, None) if is_unknown(framework, written) else None
            unknown += [given] if given is not None else []
            continue
        value = plain(member.value) if isinstance(member.value, Scalar) else _listed(member.value) if name in LISTS else UNKNOWN
        read = framework.reads(name, value) if framework.reads is not None else value
        given = given_at(document, shown, (written,), name, read)
        if given is not None and value is not None and given.value not in framework.unset.get(name, ()):
            values[name] = given
    found = arguments_of(framework, shown, values)
    return replace(found, unknown=tuple(unknown))


def arguments_of(framework: Framework, shown: str, values: dict[str, SourcedValue], task: str = "") -> Arguments:
    """Arguments that a file or a command gives to a framework, with the defaults for a task of its command."""
    return Arguments(framework.name, shown, values, sure=framework.is_sure, defaults=framework.defaults(task))


def is_unknown(framework: Framework, name: str) -> bool:
    """Whether a framework that refuses unknown arguments knows no argument of this name in any release."""
    table = framework.table if framework.refuses_unknown else None
    return table is not None and name not in table.accepted and name not in table.older and name.isidentifier()


def completed(arguments: Arguments, facts: Facts) -> Arguments:
    """Arguments with the values that their framework computes."""
    framework = named(arguments.framework)
    if framework is None or framework.completes is None:
        return arguments
    values, defaults = dict(arguments.values), dict(arguments.defaults)
    for name, value in framework.completes(arguments, facts).items():
        if name in values:
            values[name] = replace(values[name], value=value)
        else:
            defaults[name] = value
    return replace(arguments, values=values, defaults=defaults)


def _listed(node: Node) -> object:
    """A list of names as one text."""
    words = plain(node) if isinstance(node, Sequence) else None
    return ",".join(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else UNKNOWN
