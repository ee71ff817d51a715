"""Training files: the arguments in them, by the names of the Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dslint.facts import Facts
from dslint.frameworks.accelerate import BLOCK_KEYS, LAUNCH_FLAGS, TOP_KEYS
from dslint.frameworks.base import Framework
from dslint.frameworks.refusals import names_in
from dslint.frameworks.registry import named
from dslint.frameworks.tables import table
from dslint.job.arguments import LISTS, Arguments, SourcedValue, given_at
from dslint.job.training import ARGUMENTS, WORKLOAD
from dslint.source.tree import Document, Node, Scalar, Sequence, plain
from dslint.source.tree import Mapping as Section
from dslint.source.unknown import UNKNOWN


def read_training(document: Document, shown: str, framework: Framework) -> Arguments:
    """The arguments of a training file."""
    values: dict[str, SourcedValue] = {}
    unknown: list[SourcedValue] = []
    root = document.root
    for member in root.members if isinstance(root, Section) else ():
        written = member.key.value
        name = framework.names.get(written, written)
        if name not in ARGUMENTS | WORKLOAD and name not in names_in(framework.refusals):
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
    """Whether a framework that refuses unknown arguments has none of this name in any release that is known, nor has the Trainer."""
    own = framework.table if framework.refuses_unknown else None
    if own is None or not name.isidentifier() or name in _OF_LAUNCHERS:
        return False
    trainers = table(TRAINER)
    return not any(name in names for names in (own.accepted, own.older, trainers.accepted, trainers.older))


TRAINER = "huggingface"
"""The table of the arguments that the Trainer has, and the frameworks that train with it."""

_OF_LAUNCHERS = LAUNCH_FLAGS | TOP_KEYS | BLOCK_KEYS.keys() | {"config", "config_file", "accelerate_config", "env", "deepspeed_config_file"}
"""Names that a training file of TRL holds for Accelerate's launcher."""


def unknown_flags(framework: Framework, flags: Mapping[str, SourcedValue]) -> list[SourcedValue]:
    """The flags that a framework refuses. Beginnings of names and `--no_name` are names, too."""
    own = framework.table
    known = own.accepted | own.older | table(TRAINER).accepted if own is not None else frozenset()
    return [
        given
        for name, given in flags.items()
        if given.name.startswith("--")
        and framework.refuses_flag
        and is_unknown(framework, name)
        and not any(one.startswith(name) or f"no_{one}" == name for one in known)
    ]


def refused(arguments: Arguments, facts: Facts) -> tuple[SourcedValue, ...]:
    """The arguments that transformers had in other releases, and not in the one that is pinned or given."""
    framework, release = named(arguments.framework), facts.loader_release
    if framework is None or framework.table is None or not framework.refuses_unknown or release is None:
        return ()
    names = {name: given for name, given in arguments.values.items() if name not in framework.table.accepted}
    return tuple(given for name, given in names.items() if table(TRAINER).refuses(name, release))


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
