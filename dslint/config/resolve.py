"""The effective config: the values that DeepSpeed will use, and their origins. Rules, `show` and the estimate read only this.

`resolve` builds it from a parsed document and facts. Unknown values are `UNKNOWN`, and every comparison with them is false:
a rule that asks `config.value("zero_optimization.stage") < 3` finds nothing if the stage is misspelt, has a wrong type, or is filled by
a loader, so that one cause gives one finding.
"""

from __future__ import annotations

from collections.abc import Mapping as Table
from copy import copy
from typing import TYPE_CHECKING, Any

from dslint.config.context import Context
from dslint.config.read_value import read_value
from dslint.config.sections import default_of, forbids_unknown
from dslint.config.validate import Validator
from dslint.config.values import UNKNOWN, Doubt, Origin, Value
from dslint.config.violations import Violation, ViolationKind
from dslint.facts import Facts, Release
from dslint.schemas.auto import ACCELERATE_FIELDS
from dslint.schemas.derive import DERIVED, OVERRULED, Derived
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Document, Mapping, Member, Node, Path, Scalar, Where, dotted, path_of

if TYPE_CHECKING:
    from dslint.config.policy import Policy
    from dslint.diagnostics import Diagnostic
    from dslint.facts.checkpoint import CheckpointFacts
    from dslint.job.arguments import Arguments, SourcedValue
    from dslint.job.model import Setup

__all__ = ["UNKNOWN", "Config", "Origin", "Value", "Violation", "resolve"]

_OBJECT_FIRST = Release(0, 14, 5)
"""The first release that prefers a schedule that it is passed to the section `scheduler`. Source: engine.py, _configure_lr_scheduler."""

OBJECTS = {"optimizer": ("optimizer", 2), "scheduler": ("lr_scheduler", 5)}
"""The arguments of `deepspeed.initialize` that take an object in the place of a section, with their positions."""


class Config:
    """A resolved config.

    `document` is its file, `context` what it was resolved with, `violations` are the errors by the key table.
    """

    def __init__(self, document: Document, context: Context, validator: Validator) -> None:
        self.document = document
        self.context = context
        self.facts = context.facts
        self.violations = validator.violations
        self._values = validator.values
        self._doubtful = validator.doubtful
        self._derived: dict[str, Value] = {}
        self._added: Table[Path, Value] | None = None
        self._set_later = context.setup.program.sets if context.setup is not None and context.setup.program is not None else frozenset()
        self.mapped = _mapped(validator)
        """The values of deprecated keys, under their new keys."""
        self.crashes: Table[Path, Diagnostic] = {}
        """By misspelt key: the crash that follows, because DeepSpeed does not read the key."""
        self._as_oldest: Config | None = None
        self._alone: Config | None = None
        self._unknown: Config | None = None

    @property
    def setup(self) -> Setup | None:
        """The files of the setup."""
        return self.context.setup

    @property
    def policy(self) -> Policy | None:
        """The policy of the settings."""
        return self.context.policy

    @property
    def checkpoint(self) -> CheckpointFacts | None:
        """The checkpoint that the run resumes from."""
        return self.context.checkpoint

    @property
    def evidence(self) -> dict[str, str]:
        """The evidence for each inferred fact, by its name."""
        return dict(self.context.evidence)

    @property
    def arguments(self) -> Arguments | None:
        """The training arguments of the setup."""
        return self.setup.arguments if self.setup else None

    @property
    def release(self) -> Release:
        """The DeepSpeed release that the config is checked for."""
        return self.facts.deepspeed

    @property
    def replaced(self) -> Table[str, SourcedValue]:
        """The sections that DeepSpeed does not read because it is passed an object instead, with that object."""
        replaced = self.setup.replaced if self.setup else {}
        return {section: given for section, given in replaced.items() if self._gives_way(section)}

    def may_be_replaced(self, section: str) -> bool:
        """Whether only the run knows if DeepSpeed reads a section, because it is passed something that may be an object instead."""
        program = self.setup.program if self.setup else None
        passed = program.passed if program else None
        argument = OBJECTS[section][0] if section in OBJECTS else None
        return section not in self.replaced and argument in (passed or ()) and self._gives_way(section)

    def _gives_way(self, section: str) -> bool:
        """Whether DeepSpeed prefers an object that it is passed to a section."""
        return section != "scheduler" or self.release >= _OBJECT_FIRST

    def value(self, where: Where) -> Any:
        """The value that DeepSpeed uses at a path: a plain value, or `UNKNOWN`.

        Raises:
            KeyError: the key is neither in the table nor written: a bug in the calling rule.
        """
        return self.resolved(where).value

    def origin(self, where: Where) -> Origin:
        """The origin of the value at a path."""
        return self.resolved(where).origin

    def resolved(self, where: Where) -> Value:
        """The value at a path with its origin and note."""
        path = path_of(where)
        if self._set_later and self.is_set_later(path):
            return Value(UNKNOWN, Origin.WRITTEN, Doubt.PROGRAM)
        added = self.added.get(path)
        if added is not None:
            return added
        written = self._values.get(path) or (self._mapped_to(path) if self.mapped else None)
        key = where if isinstance(where, str) else dotted(path)
        if key in OVERRULED and self.value(OVERRULED[key][0]) is True and (written is None or written.value is False):
            return Value(value=True, origin=Origin.DERIVED, note=OVERRULED[key][1])
        if written is not None and written.origin is Origin.FILLED and written.value is UNKNOWN:
            return self._filled(key, written)
        if written is not None and not (written.value is None and key in DERIVED):
            return written
        if key in DERIVED and key not in self._derived:
            self._derived[key] = Value(UNKNOWN, Origin.DERIVED)  # a derivation must not depend on itself
            self._derived[key] = self._absent(path) or _as_value(DERIVED[key](self), default_of(KEYS[key], self.release))
        found = self._derived.get(key) or written or self._absent(path)
        if found is None and key not in KEYS and self.has(path):
            return Value(UNKNOWN, Origin.WRITTEN)  # a parameter of a type that is not known
        return found or Value(default_of(KEYS[key], self.release), Origin.DEFAULT)

    def _filled(self, key: str, unknown: Value) -> Value:
        """The value that fills an "auto", if the training arguments or the model determine it."""
        filler = self.context.filler
        if filler is None or (self.setup is None and self.facts.model is None):
            return unknown
        filled = filler.fill(self.context, key, unknown.note)
        return unknown if filled is None else self._as_read(key, filled)

    def _as_read(self, key: str, filled: Value) -> Value:
        """A filled value as DeepSpeed reads it, unknown if it refuses it: a program may hand a loader anything, such as "auto" again."""
        spec = KEYS.get(key)
        if spec is None or filled.value is UNKNOWN:
            return filled  # a parameter of a type, whose arguments the fillers check
        by_hand = "hand" in spec or not forbids_unknown(key.rpartition(".")[0], self.release)
        if read_value(filled.value, spec, self.release, by_hand=by_hand).fault is None:
            return filled
        return Value(UNKNOWN, filled.origin, filled.note)

    @property
    def added(self) -> Table[Path, Value]:
        """The keys that the loader writes whatever the file says, with their values."""
        if self._added is None:
            self._added = {}  # what the loader adds must not depend on itself
            has_loader = self.setup is not None or self.facts.integration is not None
            if has_loader and self.context.filler is not None:
                self._added = self.context.filler.added(self)
        return self._added

    def is_added(self, where: Where) -> bool:
        """Whether the loader adds an absent key."""
        return path_of(where) in self.added and not self.has(where)

    def _mapped_to(self, path: Path) -> Value | None:
        """The value of a deprecated key for a path, or for a part of its section."""
        for length in range(len(path), 0, -1):
            value = self.mapped.get(path[:length])
            if value is not None:
                inner = value.value
                for step in path[length:]:
                    inner = inner.get(step, UNKNOWN) if isinstance(inner, dict) else UNKNOWN
                return Value(inner, value.origin, value.note) if inner is not UNKNOWN else None
        return None

    def _absent(self, path: Path) -> Value | None:
        """`UNKNOWN` for an absent key that may be intended: the file has syntax errors, or a misspelt key stands for it."""
        if self.document.problems:
            return Value(UNKNOWN, Origin.WRITTEN, Doubt.SYNTAX)
        if self.may_be_written(path) and not self.has(path):
            return Value(UNKNOWN, Origin.WRITTEN, Doubt.PROGRAM)
        for length in range(1, len(path) + 1):
            if path[:length] in self._doubtful:
                return Value(UNKNOWN, Origin.WRITTEN, Doubt.MISSPELT)
            above = self._values.get(path[:length])
            if above is not None and self._leaves_defaults(path[:length], above):
                return None
            if above is not None and above.origin is not Origin.WRITTEN:
                return Value(UNKNOWN, above.origin)
            if above is not None and length < len(path) and not isinstance(self.node(path[:length]), Mapping) and above.value is UNKNOWN:
                return Value(UNKNOWN, above.origin)
        return None

    def _leaves_defaults(self, path: Path, value: Value) -> bool:
        """Whether what is written for a section leaves the keys in it at their defaults: a bare boolean, or an "auto" that is dropped."""
        if value.origin is Origin.DROPPED:
            return self.is_auto(path)
        return "bool_for" in KEYS.get(dotted(path), {}) and isinstance(self.literal(path), bool)

    def is_set_later(self, where: Where) -> bool:
        """Whether the program sets a key, or a section with it, in the config that its launch gives."""
        path = path_of(where)
        return any(path[: len(key)] == key for key in self._set_later)

    @property
    def as_read(self) -> Config | None:
        """The config as DeepSpeed reads it, without the keys that misspelt ones were meant to be; None if no key is misspelt."""
        if not self._doubtful:
            return None
        read = copy(self)
        read._doubtful, read._derived, read._added = set(), {}, None  # noqa: SLF001 - the copy's own
        return read

    @property
    def as_oldest(self) -> Config | None:
        """The config as the oldest release reads it that may run it; None if the release is known."""
        oldest = self.context.oldest
        if oldest is None or oldest == self.release:
            return None
        if self._as_oldest is None:
            self._as_oldest = resolve(self.document, self.context.but(deepspeed=oldest)._replace(oldest=None))
        return self._as_oldest

    @property
    def alone(self) -> Config:
        """The config without the files of its setup, with the facts that these tell; with the Accelerate file that makes or names it."""
        if self._alone is None:
            own = self.setup.of_accelerate_file if self.setup is not None else None
            self._alone = resolve(self.document, self.context._replace(setup=own))
        return self._alone

    @property
    def unknown(self) -> Config:
        """An unknown config in the place of this one, with the same files around it."""
        if self._unknown is None:
            self._unknown = resolve(Document("", None, language="text"), self.context)
        return self._unknown

    def is_meant(self, where: Where) -> bool:
        """Whether a misspelt key was meant to be this one, and it is open whether that counts."""
        return path_of(where) in self._doubtful

    def is_misspelt(self, where: Where) -> bool:
        """Whether a misspelt key stands for a key that is not written."""
        return self.resolved(where).note is Doubt.MISSPELT

    def may_be_written(self, where: Where) -> bool:
        """Whether an absent key may be written all the same: the nearest dict around it has more keys than are known."""
        path = path_of(where)
        for length in range(len(path) - 1, -1, -1):
            node = self.node(path[:length])
            if node is not None:
                return isinstance(node, Mapping) and node.may_have_more
        return False

    def node(self, where: Where) -> Node | None:
        """The node at a path, valid or not; None if there is none."""
        found = self.document.lookup(path_of(where))
        return found.value if isinstance(found, Member) else found

    def has(self, where: Where) -> bool:
        """Whether the file has a value at a path, valid or not, null included."""
        return self.document.lookup(path_of(where)) is not None

    def lacks(self, where: Where) -> bool:
        """Whether a key is absent for certain: no dict around it has more keys than are known."""
        return not self.has(where) and not self.may_be_written(where)

    def quote(self, where: Where) -> str:
        """The literal at a path as written, for messages: `"auto"`, `5e8`. A section is `{...}`, a list `[...]`."""
        node = self.node(where)
        if isinstance(node, Scalar):
            return node.raw if len(node.raw) <= 60 else node.raw[:57] + "..."
        if node is None:
            return "nothing"
        text = self.document.text[node.span.start : node.span.end]
        is_literal = self.document.language != "text" or text.startswith(("{", "["))  # or it is the flag that a section was built from
        return text if is_literal and len(text) <= 40 and "\n" not in text else "{...}" if isinstance(node, Mapping) else "[...]"

    def name_of(self, where: Where) -> str:
        """A key as its writer knows it: the dotted path, or the field of Accelerate's block that sets it."""
        key = dotted(path_of(where))
        return ACCELERATE_FIELDS.get(key, key) if self._made_by_accelerate else key

    def assignment(self, where: Where, literal: str) -> str:
        """How its writer writes a value for a key, for messages: `"stage": 3`, or `zero_stage: 3` in Accelerate's block."""
        name = self.name_of(where)
        return f"{name}: {literal}" if self._made_by_accelerate else f'"{name.rpartition(".")[2]}": {literal}'

    @property
    def _made_by_accelerate(self) -> bool:
        return self.setup is not None and self.setup.made and self.setup.accelerate is not None

    def literal(self, where: Where) -> Any:
        """The scalar written at a path, valid or not; `UNKNOWN` if there is none."""
        node = self.node(where)
        return node.value if isinstance(node, Scalar) else UNKNOWN

    def is_auto(self, where: Where) -> bool:
        """Whether "auto" is written at a path."""
        return bool(self.literal(where) == "auto")

    def is_null(self, where: Where) -> bool:
        """Whether null is written at a path."""
        return self.literal(where) is None

    def enabled(self, section: str) -> Any:
        """Whether a section that has an `enabled` key is on: True, False or `UNKNOWN`."""
        return self.value(f"{section}.enabled")

    def violations_of(self, *kinds: ViolationKind) -> list[Violation]:
        """The violations of these kinds, in the order of the file."""
        return [violation for violation in self.violations if violation.kind in kinds]

    @property
    def written(self) -> dict[Path, Value]:
        """Every written key with its effective value, in the order of the file."""
        return self._values


def resolve(document: Document, given: Facts | Context) -> Config:
    """Validate a document with the key table and build its effective config. A document without a mapping at its root has no keys."""
    context = Context.of(given)
    validator = Validator(context.facts, context.outside or context.facts.deepspeed, context.own_loader)
    if isinstance(document.root, Mapping):
        validator.root(document.root)
    return Config(document, context, validator)


def _as_value(derived: Derived | None, default: Any) -> Value:
    return Value(default, Origin.DEFAULT) if derived is None else Value(derived[0], Origin.DERIVED, derived[1])


def _mapped(validator: Validator) -> dict[Path, Value]:
    """The values of deprecated keys under their new keys, as DeepSpeed maps them while parsing."""
    mapped: dict[Path, Value] = {}
    for violation in validator.violations:
        old = validator.values.get(violation.path)
        if (
            violation.kind is not ViolationKind.DEPRECATED
            or violation.meant is None
            or not violation.spec["deprecated"].get("mapped", True)
            or old is None
        ):
            continue
        value = dict(violation.spec["deprecated"].get("values", ())).get(old.value, old.value) if old.value is not UNKNOWN else UNKNOWN
        mapped[violation.meant] = Value(value, Origin.MAPPED, f"from {violation.key}")
    return mapped
