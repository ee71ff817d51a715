"""Whether gradient checkpointing is reentrant: that it runs parts of the backward pass by itself."""

from __future__ import annotations

import re
from collections.abc import Callable

from dslint.config import Config
from dslint.job.arguments import SourcedValue
from dslint.job.events import TRAINERS, Events, GivenArgument, is_true


def is_reentrant(given: GivenArgument | None) -> bool:
    """Whether checkpointing with these arguments is reentrant; without any it is, before transformers 5."""
    return given is None or given.value is None or re.search(r"use_reentrant[\"']?\s*[:=]\s*True", given.raw) is not None


def reentrant_by_trainer(config: Config, events: Events) -> SourcedValue | None:
    """The argument that makes a Trainer of transformers turn on reentrant checkpointing, before transformers 5."""
    return _by_trainer(config, events, is_reentrant)


def checkpointed_by_default(config: Config, events: Events) -> SourcedValue | None:
    """The argument that makes a Trainer of transformers turn on checkpointing in the way that is its default."""
    return _by_trainer(config, events, lambda options: options is None or options.value is None)


def _by_trainer(config: Config, events: Events, allows: Callable[[GivenArgument | None], bool]) -> SourcedValue | None:
    """The argument that makes a Trainer of transformers turn on checkpointing, if its options are as asked for."""
    trainers = list(events.of(TRAINERS))
    if not trainers or any(one.name.startswith("trl.") or one.tells_setups_apart for one in trainers):
        return None
    name, options = "gradient_checkpointing", "gradient_checkpointing_kwargs"
    if config.arguments is not None and (given := config.arguments.get(name)) is not None:
        has_options = options in config.arguments or config.arguments.may_be_redefined(options) or _sets_options(config)
        return given if given.value is True and not has_options else None
    for made in events.of(r"transformers\.(\w+\.)*\w*TrainingArguments"):
        if is_true(made.argument(name)):
            return made.at if allows(made.argument(options)) and not _sets_options(config) else None
    return None


def _sets_options(config: Config) -> bool:
    """Whether a file of the project sets the options of checkpointing to something else."""
    documents = config.setup.documents.values() if config.setup is not None else ()
    found = re.compile(r"gradient_checkpointing_kwargs\W[^\n]*|use_reentrant[^\n]*")
    return any(not re.search(r"True", one.group()) for doc in documents for one in found.finditer(doc.text))
