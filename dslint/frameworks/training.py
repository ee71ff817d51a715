"""Training files: the arguments in them, by the names of the Trainer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from dslint.facts import Facts, Integration, Release
from dslint.frameworks.accelerate import BLOCK_KEYS, LAUNCH_FLAGS, TOP_KEYS
from dslint.frameworks.base import Framework
from dslint.frameworks.refusals import names_in
from dslint.frameworks.registry import frameworks, named
from dslint.frameworks.tables import table
from dslint.job.arguments import DEFAULTS, LISTS, Arguments, SourcedValue, given_at
from dslint.job.training import ARGUMENTS, WORKLOAD
from dslint.source.tree import Document, Node, Scalar, Sequence, plain
from dslint.source.tree import Mapping as Section
from dslint.source.unknown import UNKNOWN


def read_training(document: Document, shown: str, framework: Framework) -> Arguments:
    """The arguments of a training file."""
    values: dict[str, SourcedValue] = {}
    others: list[SourcedValue] = []
    root = document.root
    for member in root.members if isinstance(root, Section) else ():
        written = member.key.value
        name = framework.names.get(written, written)
        if framework.turns_into_flags:
            name = _completed(name, framework)
        if name not in ARGUMENTS | WORKLOAD | framework.workload.attention.keys() and name not in names_in(framework.refusals):
            given = given_at(document, shown, (written,), name, None) if framework.refuses_unknown else None
            others += [given] if given is not None else []
            continue
        value = plain(member.value) if isinstance(member.value, Scalar) else _listed(member.value) if name in LISTS else UNKNOWN
        read = framework.reads(name, value) if framework.reads is not None else value
        given = given_at(document, shown, (written,), name, read)
        if given is not None and value is not None and given.value not in framework.unset.get(name, ()):
            values[name] = given
    key, files = (framework.data(document) if framework.data is not None else None) or ("", ())
    data = given_at(document, shown, (key,), "", tuple(files)) if files else None
    return replace(arguments_of(framework, shown, values), others=tuple(others), data=data)


def _completed(name: str, framework: Framework) -> str:
    """The argument that a key which becomes a flag is the beginning of, where argparse takes it for that one: no other begins so. What is
    missing holds no underscore, or the form of the flag with dashes begins so, too.
    """
    own = framework.table.accepted if framework.table is not None else frozenset()
    begun = [one for one in own if one.startswith(name)] if name not in own else []
    return begun[0] if len(begun) == 1 and "_" not in begun[0].removeprefix(name) else name


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


def unread_flags(framework: Framework, flags: Mapping[str, SourcedValue], own: frozenset[str] = frozenset()) -> list[SourcedValue]:
    """The flags that dslint does not read, of a framework that refuses those that it does not know. `own` are those of the program."""
    if not framework.refuses_flag:
        return []
    unread = [given for name, given in flags.items() if given.name.startswith("--") and name not in ARGUMENTS | WORKLOAD]
    return [given for given in unread if not any(one.startswith(bare(given)) or f"no_{one}" == bare(given) for one in own)]


def unknown(arguments: Arguments) -> list[SourcedValue]:
    """The arguments that a framework has in no release, and refuses. Beginnings of flags and `--no_name` are names, too."""
    framework = named(arguments.framework)
    own = framework.table if framework is not None else None
    if framework is None or own is None:
        return []
    known = own.accepted | own.older | table(TRAINER).accepted
    return [
        given
        for given in arguments.others
        if is_unknown(framework, name := bare(given))
        and not (given.name.startswith("--") and any(one.startswith(name) or f"no_{one}" == name for one in known))
    ]


_OF_A_FORK = 3
"""Fewer unknown arguments are taken for slips: a person rarely makes three in one file, and a fork adds several."""


def may_be_of_a_fork(arguments: Arguments) -> bool:
    """Whether a file has so many arguments that its framework has in no release that a program with more arguments may read it."""
    return len(unknown(arguments)) >= _OF_A_FORK


def has_foreign_section(framework: Framework, document: Document) -> bool:
    """Whether a file has a section that its framework has in no release: a slip misspells a name, and another program reads the file."""
    root = document.root
    members = root.members if isinstance(root, Section) else ()
    return any(
        isinstance(one.value, Section) and is_unknown(framework, framework.names.get(one.key.value, one.key.value)) for one in members
    )


def without_value(arguments: Arguments) -> list[SourcedValue]:
    """The flags without a value, of switches that need one."""
    framework = named(arguments.framework)
    own = framework.table if framework is not None else None
    given = [*arguments.values.values(), *arguments.others]
    return [one for one in given if own is not None and one.name.startswith("--") and not one.raw and bare(one) in own.valued]


def bare(given: SourcedValue) -> str:
    """The name of an argument without the dashes of a flag."""
    return given.name.lstrip("-").replace("-", "_")


def refusal_of(framework: Framework, arguments: Arguments, given: SourcedValue) -> str:
    """The error with which an argument is refused where it stands: among flags, in a file, or in a call of the program."""
    is_flag = given.name.startswith("--")
    refusal = framework.refuses_flag if is_flag else arguments.refusal or framework.refuses_unknown
    return refusal.format(name=bare(given))


def is_parsed(arguments: Arguments, given: SourcedValue) -> bool:
    """Whether a parser refuses an argument, after it has made its classes; otherwise the call of a class does, before anything else."""
    parsers = [one for one in (named(Integration.TRANSFORMERS.label), named(arguments.framework)) if one is not None]
    by_parser = [refusal for one in parsers for refusal in (one.refuses_unknown, one.refuses_in_program)]
    return given.name.startswith("--") or not arguments.refusal or arguments.refusal in by_parser


def refused(arguments: Arguments, facts: Facts) -> tuple[SourcedValue, ...]:
    """The arguments that transformers had in other releases, and not in the one that is pinned or given."""
    framework, release = named(arguments.framework), facts.loader_release
    if framework is None or framework.table is None or not framework.refuses_unknown or release is None:
        return ()
    names = {**arguments.values, **{bare(given): given for given in arguments.others}}
    found = {name: given for name, given in names.items() if name not in framework.table.accepted}
    return tuple(given for name, given in found.items() if table(TRAINER).refuses(name, release))


def of_class(arguments: Arguments, release: Callable[[str], Release | None], facts: Facts) -> Arguments:
    """Arguments of a program with the defaults of a framework's class of them. `release` gives the release of a package that is pinned.

    Where the release is not the one of the table, only the defaults count that the class has from the Trainer, and the values
    that it computes in this release.
    """
    framework = next((one for one in frameworks() if arguments.kind in one.classes), None)
    own = framework.table if framework is not None else None
    if framework is None or own is None:
        return arguments
    defaults, pinned = framework.defaults(framework.classes[arguments.kind]), release(framework.packages[0])
    if pinned is not None and pinned >= Release.parse(own.release):
        refusal = arguments.refusal or framework.refuses_in_program  # a file is read by the framework's parser
        task = framework.classes[arguments.kind]
        return replace(arguments, framework=framework.name, sure=True, defaults=defaults, refusal=refusal, task=task)
    shared = {name: value for name, value in defaults.items() if value == DEFAULTS[name]}
    given = replace(arguments, framework=Integration.TRANSFORMERS.label, sure=True, defaults=shared, others=())
    since = framework.completes_since
    if framework.completes is None or since is None or pinned is None or pinned < since:
        return given
    return replace(given, defaults={**shared, **framework.completes(given, facts)})


def completed(arguments: Arguments, facts: Facts) -> Arguments:
    """Arguments with the values that their framework computes."""
    framework = named(arguments.framework)
    if framework is None:
        return arguments
    values, defaults = dict(arguments.values), dict(arguments.defaults)
    computed = framework.completes(arguments, facts) if framework.completes is not None else {}
    for name, value in computed.items():
        if name in values:
            values[name] = replace(values[name], value=value)
        else:
            defaults[name] = value
    whole = replace(arguments, values=values, defaults=defaults)
    trains_rows = framework.trains_rows is not None and framework.trains_rows(arguments)
    if framework.one_sample is None or framework.one_sample(arguments):
        whole = replace(whole, most_steps=_most_steps(whole), most_batches=_batches_of_rows(whole, facts))
    return replace(whole, steps=_steps_of_rows(whole, facts)) if trains_rows else whole


def _most_steps(arguments: Arguments) -> int | None:
    """The most steps that the rows can make: each epoch has at least one, and no more than rows. None if it is not known."""
    epochs = arguments.values["num_train_epochs"].value if "num_train_epochs" in arguments else 3
    if not arguments.rows or not isinstance(epochs, int | float):
        return None
    return arguments.rows * max(1, math.ceil(epochs))


def _steps_of_rows(arguments: Arguments, facts: Facts) -> SourcedValue | None:
    """The number of steps that the Trainer computes from the rows of its data, with the place of the data; None if it is not known.

    Source: transformers/trainer.py, Trainer.set_initial_training_values.
    """
    batches, steps = _batches_of_rows(arguments, facts), arguments.value("gradient_accumulation_steps")
    epochs = arguments.values["num_train_epochs"].value if "num_train_epochs" in arguments else 3
    if arguments.data is None or not batches or not all(isinstance(one, int | float) and one > 0 for one in (steps, epochs)):
        return None
    return replace(arguments.data, value=math.ceil(epochs * math.ceil(batches / steps)), pointer=None)


def _batches_of_rows(arguments: Arguments, facts: Facts) -> int | None:
    """The batches that each rank gets of the rows of its data; None if it is not known.

    Source: accelerate/data_loader.py, BatchSamplerShard.
    """
    micro, given = arguments.value("per_device_train_batch_size"), arguments.get("dataloader_drop_last")
    drops = given is not None and given.value
    rows, ranks = arguments.rows, facts.world_size
    if not rows or not ranks or not isinstance(micro, int) or micro < 1 or not isinstance(drops, bool):
        return None
    whole = math.floor if drops else math.ceil
    return whole(whole(rows / micro) / ranks)


def _listed(node: Node) -> object:
    """A list of names as one text."""
    words = plain(node) if isinstance(node, Sequence) else None
    return ",".join(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else UNKNOWN
