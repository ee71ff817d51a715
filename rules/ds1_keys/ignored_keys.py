"""DS1: unknown keys that DeepSpeed ignores and that resemble no other key."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from dslint.config import Config, Violation, ViolationKind
from dslint.config.sections import children
from dslint.diagnostics import Effect, Phase, SharedCause
from dslint.facts import Integration, Release
from dslint.rule import Finding, FixPlan, bad, good, rule, unsafe
from dslint.rules.helpers.activation import SECTION, saves_memory
from dslint.rules.helpers.examples import MINIMAL
from dslint.rules.helpers.foreign_keys import LAUNCHER, OF_ACCELERATE, TRAINING_ARGUMENTS, owner_of
from dslint.rules.helpers.messages import PIPELINE
from dslint.rules.helpers.project import is_taken_by_program
from dslint.rules.helpers.unknown import allowed_keys, shared_cause, subject_of, unfilled
from dslint.schemas.key_table import KEYS
from dslint.schemas.typed import params_of
from dslint.source.change import Move, Remove, Rename, Replace, Set
from dslint.source.tree import Mapping, Member, Path

DOCS = "https://www.deepspeed.ai/docs/config-json/"

MANY_OF_THE_PROGRAM = 10
"""From this many unknown top-level keys on, the file holds the program's own settings too."""

SOME_OF_THE_PROGRAM = 5
"""As many are enough if no library that passes a config to DeepSpeed has a name for any: what is misspelt or misplaced comes alone."""

_TENSOR = 'Write "tensor_parallel": {"autotp_size": ...} for DeepSpeed\'s tensor parallelism, and remove the key.'
_PIPELINE = "Remove it: the program makes a pipeline, with deepspeed.pipe.PipelineModule and its argument num_stages."
_SEQUENCE = "Remove it: the config alone does not make a model sequence parallel."
_MODEL = "Remove it: the program sets it, with the mpu that it passes to deepspeed.initialize."

PARALLEL_NAMES = {
    "tensor_parallel_size": _TENSOR,
    "tensor_parallelism": _TENSOR,
    "tensor_model_parallel_size": _TENSOR,
    "pipeline_parallel": _PIPELINE,
    "pipeline_parallel_size": _PIPELINE,
    "pipeline_parallelism": _PIPELINE,
    "pipeline_model_parallel_size": _PIPELINE,
    "context_parallel_size": _SEQUENCE,
    "expert_parallel_size": "Remove it: the layers of experts have the argument ep_size.",
    "data_parallel_size": "Remove it: DeepSpeed computes it from the number of ranks.",
    "model_parallel_size": _MODEL,
}
"""By names that other libraries give to the sizes of parallel training: what to write for DeepSpeed."""

_WITHOUT_TENSOR = "Remove it: before 0.16.4, DeepSpeed has no key for tensor parallelism in training."


NOT_THE_TRAINING = ("logging", "find_unused_parameters")
"""Names at the top level that change no training: a section about the log, and a flag of torch's DistributedDataParallel, which DeepSpeed
replaces."""


@rule("DS103", effect=Effect.IGNORED, references=(DOCS,), watches=("violation:unknown-key",))
@bad(
    f'{{{MINIMAL}, "my_own_switch": true}}',
    at="my_own_switch",
    message='Unknown top-level key "my_own_switch": DeepSpeed silently ignores it.',
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel_size": 2}}',
    at="tensor_parallel_size",
    message='Unknown top-level key "tensor_parallel_size": DeepSpeed silently ignores it.',
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel_size": 2}}',
    at="tensor_parallel_size",
    deepspeed="0.15.4",
    message='Unknown top-level key "tensor_parallel_size": DeepSpeed silently ignores it.',
)
@good(f'{{{MINIMAL}, "_my_own_note": true}}')
def unknown_key_ignored(config: Config) -> Iterator[Finding]:
    """An unknown key, which DeepSpeed silently ignores.

    At the top level and in the sections that it reads without a model, DeepSpeed looks up only the keys that it knows. If your program
    reads the key from the config itself, nothing is wrong; otherwise the setting does nothing.

    The finding is a warning where the setting was plainly meant for the training: in a section of DeepSpeed, or under a name that training
    arguments, Accelerate or parallelism use. An unknown name at the top level is an info: it may belong to the program. Settings that are
    off, about the log, or set by the training arguments, too, those that a program of the project takes out of a config, and those of a file
    with many other keys of the program, are reported only with `--pedantic`.

    Remove it, or begin its name with `_` to mark it as a note.
    """
    for violation in config.violations_of(ViolationKind.UNKNOWN_KEY):
        if not violation.raises and violation.meant is None:
            raising = unfilled(config, violation)
            if raising is not None:
                yield Finding(
                    violation.path,
                    f"{subject_of(config, violation)}{raising}.",
                    help=_advice(config, violation),
                    on="key",
                    fix=_correction(config, violation),
                    effect=Effect.CRASH,
                    phase=Phase.LOAD,
                )
                continue
            is_taken = len(violation.path) == 1 and is_taken_by_program(config, str(violation.path[0]))
            of_program = is_taken or (len(violation.path) == 1 and _has_keys_of_the_program(config))
            meant = not is_taken and _is_meant_for_training(config, violation)
            yield Finding(
                violation.path,
                f"{subject_of(config, violation)}DeepSpeed silently ignores it.",
                help=READ_BY_THE_PROGRAM if of_program else _advice(config, violation),
                on="key",
                fix=None if of_program else _correction(config, violation),
                effect=None if meant else Effect.ADVICE,
                pedantic=config.context.own_copy or (not meant and (of_program or _is_nothing(config, violation))),
                cause=_cause_of_program() if of_program else _cause_of_name(config, violation),
            )


READ_BY_THE_PROGRAM = "If the program reads them from this file, nothing is wrong. Otherwise remove them."


def _cause_of_program() -> SharedCause:
    """The cause that the keys of a file share which holds the program's own settings, too."""
    message = "{count} top-level keys are not DeepSpeed's, which silently ignores them: {keys}."
    return SharedCause("keys of the program", message, READ_BY_THE_PROGRAM)


def _cause_of_name(config: Config, violation: Violation) -> SharedCause | None:
    """The cause that keys share: all of another file or of a command line, all written as paths, all unknown. None for a name with its own advice."""
    owner = _owner(config, violation.path)
    if violation.section == "pipeline":
        return PIPELINE
    if violation.path[0] in (*PARALLEL_NAMES, "mixed_precision"):
        return None
    if _nested(violation) is not None:
        message = "{count} paths are written as one key each, which DeepSpeed silently ignores: {keys}."
        return SharedCause("paths as keys", message, 'Write them nested: "section": {"key": ...}.')
    if owner is None:
        return shared_cause(config, violation, "silently ignores them")
    message = f"{{count}} keys of {owner} are written in the DeepSpeed config: {{keys}}. DeepSpeed silently ignores them."
    other = _other_launcher(config) if owner == LAUNCHER else ""
    return SharedCause(f"keys of {owner}", message, _OF_OTHER_LAUNCHER % ("them", other) if other else f"Move them to {owner}.")


def _owner(config: Config, path: Path) -> str | None:
    """Where a key of another tool belongs; None where no Trainer has the arguments that it is one of."""
    owner = owner_of(path)
    trains = config.facts.integration in (None, Integration.TRANSFORMERS)
    return owner if owner != TRAINING_ARGUMENTS or trains else None


_OF_OTHER_LAUNCHER = "Remove %s: %s takes ranks and addresses from flags of its own."


def _other_launcher(config: Config) -> str:
    """The launcher of this setup, if it is not DeepSpeed's, whose flags have the names of these keys."""
    launch = config.setup.launch if config.setup is not None else None
    return launch.launcher if launch is not None and launch.launcher != "deepspeed" else ""


def _correction(config: Config, violation: Violation) -> FixPlan | None:
    if _nested(violation) is not None:
        return _as_nested(config, violation)
    if (precision := _precision(config, violation)) is not None and not config.has(precision):
        return unsafe(f"enable {precision}", Rename(violation.path, precision), Set(violation.path, '{"enabled": true}'))
    return _move_into_params(config, violation) or _unwrap(config, violation) or _remove(config, violation)


def _as_nested(config: Config, violation: Violation) -> FixPlan | None:
    """Move a value with a path as its key to that path, if nothing is written there."""
    to = tuple(str(violation.path[-1]).split("."))
    return None if config.has(to) else unsafe(f"move to {'.'.join(to[:-1])}", Move(violation.path, to))


def _has_keys_of_the_program(config: Config) -> bool:
    """Whether so many top-level keys are unknown that the file holds the program's own settings, too."""
    unknown = (one for one in config.violations if one.kind is ViolationKind.UNKNOWN_KEY and len(one.path) == 1)
    at_the_top = list(islice(unknown, MANY_OF_THE_PROGRAM))
    if len(at_the_top) == MANY_OF_THE_PROGRAM:
        return True
    return len(at_the_top) >= SOME_OF_THE_PROGRAM and not any(
        one.meant is not None or one.path[0] in PARALLEL_NAMES or _owner(config, one.path) is not None for one in at_the_top
    )


def _advice(config: Config, violation: Violation) -> str:
    if (nested := _nested(violation)) is not None:
        return f"Write it nested: {nested}."
    if (precision := _precision(config, violation)) is not None:
        return f'Write "{precision}": {{"enabled": true}}.'
    if violation.path[0] in PARALLEL_NAMES:
        advice = PARALLEL_NAMES[str(violation.path[0])]
        return _WITHOUT_TENSOR if advice is _TENSOR and config.release < Release(0, 16, 4) else advice
    if violation.section == "pipeline":
        return _PIPELINE
    if _move_into_params(config, violation):
        return f"Move it into `{violation.section}.params`."
    if _unwrap(config, violation):
        return "Move its keys to the top level."
    owner = _owner(config, violation.path)
    if owner in OF_ACCELERATE and config.facts.integration is Integration.DEEPSPEED:
        return f"Remove it: only Accelerate reads it, in {owner}."
    if owner == LAUNCHER and (other := _other_launcher(config)):
        return _OF_OTHER_LAUNCHER % ("it", other)
    if owner is not None:
        return f"Move it to {owner}."
    return allowed_keys(violation) or 'Remove it, or begin its name with "_" if it is a note.'


def _unwrap(config: Config, violation: Violation) -> FixPlan | None:
    """Put the members of an unknown section in its place, where all of them are keys of the section around it that are not written."""
    found = config.document.lookup(violation.path)
    node = config.node(violation.path)
    known = children().get(violation.section, {})
    if not isinstance(found, Member) or not isinstance(node, Mapping) or not node.members:
        return None
    names = [member.key.value for member in node.members]
    if any(name not in known or config.has((*violation.path[:-1], name)) for name in names):
        return None
    inner = config.document.text[node.members[0].span.start : node.members[-1].span.end]
    return unsafe(f'replace "{violation.path[-1]}" by its keys', Replace(found.span, inner))


def _is_meant_for_training(config: Config, violation: Violation) -> bool:
    """Whether ignoring the key loses a setting of the training, and not one that is off or that the program may read itself."""
    path = violation.path
    parameter = _parameter(config, violation)
    if parameter is not None:
        return not ("default" in parameter and config.literal(path) == parameter["default"])
    if _is_nothing(config, violation):
        return False
    if len(path) > 1 or _unwrap(config, violation) is not None:
        return True
    switched_on = config.literal((*path, "enabled")) is True  # written like a section of DeepSpeed
    meant = switched_on or path[0] in PARALLEL_NAMES or owner_of(path) is not None or _nested(violation) is not None
    meant = meant or _precision(config, violation) is not None
    return meant and not _has_keys_of_the_program(config)


def _is_nothing(config: Config, violation: Violation) -> bool:
    """Whether a key is written for what is off, or not set."""
    path = violation.path
    if path[0] == SECTION and saves_memory(config):
        return True  # DS701 says that the section has no effect
    if len(path) == 1 and (path[0] in NOT_THE_TRAINING or _is_argument(config, path)):
        return True
    nothing = config.is_null(path) or config.literal(path) is False or config.literal((*path, "enabled")) is False
    return nothing or _is_switched_off(config, path[:-1])


def _is_argument(config: Config, path: Path) -> bool:
    """Whether the training arguments set a key to the same value."""
    name, arguments = str(path[0]), config.arguments
    return arguments is not None and arguments.get(name) is not None and bool(arguments.value(name) == config.literal(path))


def _precision(config: Config, violation: Violation) -> str | None:
    """The section that a `mixed_precision` at the top level names, as Accelerate writes it."""
    value = config.literal(violation.path)
    return str(value) if violation.path == ("mixed_precision",) and value in ("bf16", "fp16") else None


def _nested(violation: Violation) -> str | None:
    """How to write a key that is a path of the config, as in `"zero_optimization.stage": 3`; None for another key."""
    name = str(violation.path[-1])
    if len(violation.path) > 1 or "." not in name or name not in KEYS:
        return None
    text = "..."
    for part in reversed(name.split(".")):
        text = f'{{"{part}": {text}}}'
    return text[1:-1]


def _is_switched_off(config: Config, section: Path) -> bool:
    """Whether a section, or one around it, is written with `enabled` false."""
    return any(config.literal((*section[:depth], "enabled")) is False for depth in range(1, len(section) + 1))


def _parameter(config: Config, violation: Violation) -> dict[str, Any] | None:
    """The parameter that the key is, if it is written next to the `type` it is for, where DeepSpeed does not read it."""
    section = violation.section
    if section not in ("optimizer", "scheduler"):
        return None
    return (params_of(section, config.value(f"{section}.type")) or {}).get(str(violation.path[-1]))


def _remove(config: Config, violation: Violation) -> FixPlan | None:
    """Remove a key that does nothing; None for a whole section, which the program may read, and for a key that was meant to do something."""
    if isinstance(config.node(violation.path), Mapping) or _is_meant_for_training(config, violation):
        return None
    return unsafe(f'remove "{violation.path[-1]}"', Remove(violation.path))


def _move_into_params(config: Config, violation: Violation) -> FixPlan | None:
    """Move a parameter that is written next to its `type` to the others."""
    to = (violation.section, "params", str(violation.path[-1]))
    if _parameter(config, violation) is None or config.has(to):
        return None
    return unsafe(f"move to {violation.section}.params", Move(violation.path, to))
