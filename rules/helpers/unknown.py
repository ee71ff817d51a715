"""What the rules about unknown keys share: the words of their messages, and the cause that several keys have in common."""

from __future__ import annotations

from dslint.config import Config, Violation, ViolationKind
from dslint.config.read_value import PYDANTIC_2
from dslint.config.sections import children
from dslint.diagnostics import SharedCause
from dslint.facts import NEWEST
from dslint.rules.helpers.keys import says_the_same
from dslint.rules.helpers.loaders import is_loader_certain
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Mapping, Node, Path, Scalar, dotted

_APEX = "Remove it: it was a setting of Apex amp, which DeepSpeed no longer has."

REFUSED_HABITS: dict[str, tuple[str, tuple[bool, ...]]] = {
    "fp16.opt_level": (_APEX, ()),
    "bf16.opt_level": (_APEX, ()),
    "tensor_parallel.enabled": ("Remove it: an autotp_size above 1 enables tensor parallelism.", (False,)),
    "zero_optimization.enabled": ('Remove it: "stage" enables ZeRO, and 0 disables it.', (False,)),
    "compile.disable": ("Remove it: the program compiles with engine.compile().", (True,)),
}
"""By keys that people write from habit into sections that refuse them: what to do, and the values that say more than a removal does."""


def section_of(violation: Violation) -> str:
    """The section of a key in words: its path, or the top level."""
    return f"`{dotted(violation.path[:-1])}`" if len(violation.path) > 1 else "the top level"


def subject_of(config: Config, violation: Violation) -> str:
    """The beginning of a message: `Unknown top-level key "x": `, `Unknown key "x" in `aio`: `, with the doubt of a newer release."""
    name = violation.path[-1]
    subject = f'Unknown key "{name}" in {section_of(violation)}' if len(violation.path) > 1 else f'Unknown top-level key "{name}"'
    if is_newer_release(config):
        return f"{subject} as of DeepSpeed {NEWEST}; if {config.context.outside} does not know it either, "
    if config.context.own_copy:
        return f"{subject} of DeepSpeed {config.facts.deepspeed}; if the project's copy does not know it either, "
    return f"{subject}: "


def unfilled(config: Config, violation: Violation) -> str | None:
    """What a loader that replaces "auto" does with the first one at or in an unknown key: it has a value only for keys that it knows.

    Source: accelerate/utils/dataclasses.py, DeepSpeedPlugin.deepspeed_config_process, which goes through all sections but no lists.
    """
    own = config.context.own_loader
    refuses = own.raises if own is not None else REFUSES_AUTO if config.facts.passes_accelerate else ""
    if not refuses or not is_loader_certain(config):
        return None
    path = _first_auto(config.node(violation.path), violation.path)
    if path is None or any("." in str(name) for name in path):
        return None
    return f'{config.context.loader_name} has no value for its "auto", and raises "{refuses.format(key=dotted(path))}"'


REFUSES_AUTO = "`{key}` not found in kwargs"
"""How Accelerate begins its error for an "auto" that it does not replace; the Trainer gives the config to Accelerate."""


def _first_auto(node: Node | None, path: Path) -> Path | None:
    if isinstance(node, Scalar):
        return path if node.value == "auto" else None
    members = node.members if isinstance(node, Mapping) else ()
    return next((found for one in members if (found := _first_auto(one.value, (*path, one.key.value))) is not None), None)


def is_newer_release(config: Config) -> bool:
    """Whether the target release is newer than all that dslint supports, and so may know the key."""
    return config.context.outside is not None and config.context.outside > NEWEST


def refusal(config: Config) -> str:
    """What the model of a section says of an unknown key."""
    return "Extra inputs are not permitted" if config.release >= PYDANTIC_2 else "extra fields not permitted"


def allowed_keys(violation: Violation) -> str:
    """The help that lists the keys of the section; empty where they are many."""
    names = [
        name
        for name, key in children().get(violation.section, {}).items()
        if "until" not in KEYS[key] and name == key.rpartition(".")[2] and name != "*"
    ]
    return f"Use one of the keys of {section_of(violation)}: {', '.join(sorted(names))}." if 0 < len(names) <= 12 else ""


def shared_cause(config: Config, violation: Violation, outcome: str) -> SharedCause | None:
    """The cause that an unknown key shares with others of its section; None for a misspelt key.

    Args:
        config: the config.
        violation: the unknown key.
        outcome: what DeepSpeed does with the keys, as the end of a sentence.
    """
    here = section_of(violation)
    at = f"in {here}" if len(violation.path) > 1 else "at the top level"
    if violation.meant is None:
        if dotted(violation.path) in REFUSED_HABITS:
            return None
        advice = "Remove them." if violation.raises else 'Remove them, or begin their names with "_" if they are notes.'
        return SharedCause(f"unknown in {here}", f"{{count}} unknown keys {at}: {{keys}}. DeepSpeed {outcome}.", advice)
    if violation.kind is not ViolationKind.MISPLACED_KEY or violation.meant[-1] != violation.path[-1]:
        return None
    there = f"`{dotted(violation.meant[:-1])}`" if len(violation.meant) > 1 else "the top level"
    advice = "Remove them: only `fp16` has them." if is_loss_scaling_of_bf16(violation) else f"Move them to {there}."
    standing = _standing(config, violation)
    verb = "stands" if standing == 1 else "stand"
    also = f" {standing} {'of them' if violation.raises else 'more'} {verb} in {there} already, with the same value." if standing else ""
    return SharedCause(
        f"{there} in {here}", f"{{count}} keys of {there} are written {at}, where DeepSpeed {outcome}: {{keys}}.{also}", advice
    )


def _standing(config: Config, violation: Violation) -> int:
    """How many of the keys that are misplaced like this one are also written where they belong, with the same value."""
    assert violation.meant is not None
    return sum(
        one.meant is not None
        and (one.path[:-1], one.meant[:-1]) == (violation.path[:-1], violation.meant[:-1])
        and says_the_same(config, one.path, one.meant)
        for one in config.violations_of(ViolationKind.MISPLACED_KEY)
    )


def is_loss_scaling_of_bf16(violation: Violation) -> bool:
    """Whether a key of `fp16` is written in `bf16`, which has no loss scale."""
    return violation.path[0] in ("bf16", "bfloat16") and violation.meant is not None and violation.meant[0] == "fp16"
