"""Validate a tree by the key table: what every written key becomes, and which ones DeepSpeed refuses, drops or reads differently.

Nothing here knows a key by name: the table says what a key is. What is found are `Violation`s, which the rules of the chapters DS1, DS6 and
DS9 put into words.
"""

from __future__ import annotations

from typing import Any

from dslint.config.context import OwnLoader
from dslint.config.read_value import PYDANTIC_2, REFUSED, Reading, of_release, read_value
from dslint.config.sections import children, default_of, drops_auto, forbids_unknown, is_habit
from dslint.config.values import UNKNOWN, Origin, UnknownInConfig, Value
from dslint.config.violations import Consequence, Spec, Violation, ViolationKind, is_raising
from dslint.facts import Facts, Integration, Release
from dslint.schemas.auto import FILLED, FILLED_WITHOUT
from dslint.schemas.key_table import KEYS
from dslint.schemas.typed import params_of
from dslint.source.tree import Mapping, Member, Node, Path, Scalar, Sequence, dotted, is_float_literal, plain

REMOVED: Consequence = ("raises", "parse", "an error")
"""What the presence of a removed key leads to: a DeepSpeedConfigError or a ValidationError, as the section has it."""


class Validator:
    """Walks a tree once. Afterwards `values` has the value of every written key by path, and `violations` the errors.

    `own_loader` is the framework that fills "auto" in the place of an integration.

    `release` is the one that will run the config. The table is read at that of the facts, which dslint knows, but a release that is older
    than all of these may have read a section without a model.
    `doubtful` are unwritten paths with unknown values: the keys that misspelt keys were meant to be. `top` are the top-level keys.
    """

    def __init__(self, facts: Facts, release: Release, own_loader: OwnLoader | None = None) -> None:
        self.facts = facts
        self.own_loader = own_loader
        self.release = release
        self.values: dict[Path, Value] = {}
        self.violations: list[Violation] = []
        self.doubtful: set[Path] = set()
        self.top: set[str] = set()

    def root(self, node: Mapping) -> None:
        """Validate a whole config."""
        self.top = {member.key.value for member in node.members}
        self._section(node, (), "")

    # ------------------------------------------------------------------ sections

    def _section(self, node: Mapping, path: Path, section: str) -> None:
        known = children().get(section, {})
        refuses = forbids_unknown(section, self.release)
        members = {member.key.value: member for member in node.members}
        names: dict[str, str] = {}
        for name, member in members.items():
            key = known.get(name) or known.get("*")
            here = (*path, name)
            if key is None:
                self._unknown(member, here, section, members, refuses=refuses)
            elif refuses and key in names and name != "*":
                self._violate(ViolationKind.GIVEN_TWICE, here, section, KEYS[key], consequence=REFUSED, meant=(*path, names[key]))
                self.values[here] = Value(UNKNOWN, Origin.REFUSED)
            elif self._shadowed(KEYS[key], members):
                self._violate(ViolationKind.SHADOWED, here, section, KEYS[key], meant=(*path, KEYS[key]["shadowed_by"]))
                self.values[here] = Value(UNKNOWN, Origin.DROPPED)
            elif self._unread(KEYS[key], members, refuses=refuses):
                self.values[here] = Value(UNKNOWN, Origin.DROPPED, note=f"not read unless {KEYS[key]['read_with']} is set")
            elif KEYS[key].get("checked_with") in members:
                self.values[here] = Value(plain(member.value, as_json=bool(self.facts.is_dict)), Origin.WRITTEN)
            else:
                names[key] = name
                self._key(member.value, here, key, section)
        self._typed(node, path, section)

    @staticmethod
    def _shadowed(spec: Spec, members: dict[str, Member]) -> bool:
        """Whether another key of the section overrides this one."""
        other = members.get(spec["shadowed_by"]) if "shadowed_by" in spec else None
        return other is not None and not (isinstance(other.value, Scalar) and other.value.value is None)

    @staticmethod
    def _unread(spec: Spec, members: dict[str, Member], *, refuses: bool) -> bool:
        """Whether the key that enables reading this one is missing, false or empty."""
        if "read_with" not in spec or refuses:
            return False
        other = members.get(spec["read_with"])
        return other is None or not plain(other.value)

    def _unknown(self, member: Member, here: Path, section: str, siblings: dict[str, Member], *, refuses: bool) -> None:
        name = member.key.value
        if KEYS.get(section, {}).get("unknown") == "open" or (not refuses and is_habit(name)):
            return
        if refuses and name == "strict" and drops_auto(section, self.facts.deepspeed):
            return  # an argument of DeepSpeed's model class, not a key
        from dslint.config.suggest import suggest  # imports difflib, which is needed only here

        meant = suggest(name, member.value, here[:-1], section, siblings.keys(), self.top)
        refused = refuses and not (_is_auto(member.value) and drops_auto(section, self.facts.deepspeed))
        kind = ViolationKind.UNKNOWN_KEY if meant is None or meant[:-1] == here[:-1] else ViolationKind.MISPLACED_KEY
        self._violate(kind, here, section, {}, consequence=REFUSED if refused else None, meant=meant)
        self.values[here] = Value(UNKNOWN, Origin.REFUSED if refused else Origin.DROPPED)
        if meant is not None:
            self.doubtful.add(meant)

    def _typed(self, node: Mapping, path: Path, section: str) -> None:
        """Validate the `params` of a section; its `type` determines the keys."""
        kind, params = node.get("type"), node.get("params")
        if not isinstance(kind.value if kind else None, Scalar) or not isinstance(params.value if params else None, Mapping):
            return
        assert kind is not None
        assert params is not None
        specs = params_of(section, plain(kind.value))
        if specs is None:
            return
        for member in params.value.members if isinstance(params.value, Mapping) else ():
            spec = specs.get(member.key.value)
            if spec is not None and "until" not in spec:
                self._value(member.value, (*path, "params", member.key.value), f"{section}.params", spec, by_hand=True)

    # ------------------------------------------------------------------ one key

    def _key(self, node: Node, path: Path, key: str, section: str) -> None:
        spec = KEYS[key]
        if self._in_release(node, path, section, spec):
            by_hand = "hand" in spec or not forbids_unknown(section, self.release)
            self._value(node, path, section, spec, by_hand=by_hand, key=key)

    def _value(self, node: Node, path: Path, section: str, spec: Spec, *, by_hand: bool, key: str = "") -> None:
        if _is_auto(node):
            self._auto(path, section, spec, by_hand=by_hand and "auto_dropped" not in spec)
            return
        if isinstance(node, Scalar) and isinstance(node.value, UnknownInConfig):
            self.values[path] = Value(UNKNOWN, Origin.WRITTEN, "computed by the program")
            return
        deprecated = spec.get("deprecated")
        if deprecated and Release.parse(deprecated["release"]) <= self.facts.deepspeed:
            self._violate(ViolationKind.DEPRECATED, path, section, spec, meant=_path(deprecated.get("use")))
        if isinstance(node, Mapping) and "section" in spec["types"]:
            self.values[path] = Value(UNKNOWN, Origin.WRITTEN)
            self._section(node, path, key)
        elif "bool_for" in spec and isinstance(value := plain(node), bool):
            self.values[path] = Value(UNKNOWN, Origin.WRITTEN)
            note = f"{section or 'a section'} given as {str(value).lower()}"
            self.values[(*path, spec["bool_for"])] = Value(int(value), Origin.MAPPED, note)
        else:
            self._read(node, path, section, spec, by_hand=by_hand)
            self._inside(node, path, key)

    def _read(self, node: Node, path: Path, section: str, spec: Spec, *, by_hand: bool) -> None:
        """Read a value as DeepSpeed does, and note what is wrong with it."""
        spec = of_release(spec, self.facts.deepspeed)
        by_hand = by_hand and not ("auto_dropped" in spec and self.facts.deepspeed < PYDANTIC_2)
        reading = self._by_form(plain(node, as_json=bool(self.facts.is_dict)), spec, by_hand=by_hand)
        if reading.fault is None and self.facts.is_dict is None and is_float_literal(node):
            reading = self._in_a_dict(node, spec, reading, by_hand=by_hand)
        if reading.fault:
            self._violate(reading.fault, path, section, spec, consequence=reading.consequence, becomes=reading.value)
        if isinstance(node, Scalar) and node.style == "default":
            self.values[path] = Value(reading.value, Origin.FILLED, "the default where no argument sets it")
            return
        self.values[path] = Value(reading.value, Origin.REFUSED if is_raising(reading.consequence) else Origin.WRITTEN)

    def _inside(self, node: Node, path: Path, key: str) -> None:
        """Validate the sections in a list, or in a dict with keys of the writer's own."""
        if isinstance(node, Sequence) and f"{key}[]" in KEYS:
            for index, item in enumerate(node.items):
                if isinstance(item, Mapping):
                    self._section(item, (*path, index), f"{key}[]")
        elif isinstance(node, Mapping) and f"{key}.*" in KEYS:
            self._section(node, path, key)

    def _by_form(self, value: Any, spec: Spec, *, by_hand: bool) -> Reading:
        """The reading of a value; a release may read the key only if the config is a dict."""
        reading = read_value(value, spec, self.facts.deepspeed, by_hand=by_hand)
        if not reading.fault or "dict_only" not in spec or self.facts.deepspeed > Release.parse(spec["dict_only"]) or self.facts.is_dict:
            return reading
        if self.facts.is_dict is None:
            return reading._replace(consequence=("depends", "DeepSpeed ignores it in a file, but raises if the program passes a dict"))
        return reading._replace(consequence=("passes", "DeepSpeed ignores it in a file"))

    def _in_a_dict(self, node: Node, spec: Spec, reading: Reading, *, by_hand: bool) -> Reading:
        """The reading of a number like `1e3`, where it is unknown whether DeepSpeed reads the file or gets a dict with a float."""
        other = read_value(plain(node, as_json=True), spec, self.facts.deepspeed, by_hand=by_hand)
        if not is_raising(other.consequence):
            return reading
        note = f"DeepSpeed reads {plain(node)} from a file, but raises if the program passes a dict, where it is a float"
        return reading._replace(fault=other.fault, consequence=("depends", note))

    def _in_release(self, node: Node, path: Path, section: str, spec: Spec) -> bool:
        """Whether the release has the key; if not, why is noted."""
        release = self.facts.deepspeed
        unknown_raises = forbids_unknown(section, self.release) and not (_is_auto(node) and drops_auto(section, release))
        until = spec.get("until")
        if until and Release.parse(until["release"]) < release:
            raises_since = until.get("raises_since")
            refused = unknown_raises if until["then"] == "unknown" else until["then"] == "raises"
            refused = refused and (raises_since is None or Release.parse(raises_since) <= release)
            kind, consequence = (ViolationKind.REMOVED, REMOVED) if refused else (ViolationKind.DEAD, None)
            self._violate(kind, path, section, spec, consequence=consequence, meant=_path(until.get("use")))
        elif _is_to_come(spec, release):
            refused = unknown_raises
            self._violate(ViolationKind.TOO_NEW, path, section, spec, consequence=REFUSED if refused else None)
        else:
            return True
        self.values[path] = Value(UNKNOWN, Origin.REFUSED if refused else Origin.DROPPED)
        return False

    # ------------------------------------------------------------------ "auto"

    def _auto(self, path: Path, section: str, spec: Spec, *, by_hand: bool) -> None:
        integration, own = self.facts.integration, self.own_loader
        if own is not None and dotted(path) in own.fills:
            self.values[path] = Value(UNKNOWN, Origin.FILLED, own.fills[dotted(path)])
            return
        if own is not None and own.raises:
            self._violate(ViolationKind.AUTO_UNFILLED, path, section, spec)
            self.values[path] = Value(UNKNOWN, Origin.REFUSED)
            return
        if integration in (Integration.TRANSFORMERS, Integration.ACCELERATE):
            source = FILLED[integration.value].get(dotted(path))
            if FILLED_WITHOUT.get(dotted(path)) in self.top:
                source = None
            if source is not None:
                self.values[path] = Value(UNKNOWN, Origin.FILLED, source)
                return
            if self.facts.passes_accelerate:  # which refuses what it cannot fill; DeepSpeed gets any other "auto"
                self._violate(ViolationKind.AUTO_UNFILLED, path, section, spec)
                self.values[path] = Value(UNKNOWN, Origin.REFUSED)
                return
        if "auto" in spec:
            self.values[path] = Value("auto", Origin.WRITTEN)
            return
        if by_hand or not drops_auto(section, self.facts.deepspeed):
            kind, reading = ViolationKind.AUTO_KEPT, self._by_form("auto", spec, by_hand=by_hand)
            origin = Origin.REFUSED if is_raising(reading.consequence) else Origin.WRITTEN
        else:
            kind, reading = ViolationKind.AUTO_DROPPED, Reading(default_of(spec, self.facts.deepspeed))
            origin = Origin.DROPPED
        if integration is None:
            kind = ViolationKind.AUTO_UNDECIDED
            self.values[path] = Value(UNKNOWN, Origin.FILLED, "if a Hugging Face loader reads the file")
        else:
            self.values[path] = Value(reading.value, origin)
        self._violate(kind, path, section, spec, consequence=reading.consequence, becomes=reading.value)

    def _violate(
        self,
        kind: ViolationKind,
        path: Path,
        section: str,
        spec: Spec,
        *,
        consequence: Consequence | None = None,
        meant: Path | None = None,
        becomes: Any = UNKNOWN,
    ) -> None:
        self.violations.append(Violation(kind, path, section, spec, consequence=consequence, meant=meant, becomes=becomes))


def _path(key: str | None) -> Path | None:
    return tuple(key.split(".")) if key else None


def _is_to_come(spec: Spec, release: Release) -> bool:
    """Whether a key comes with a later release, or was absent for a while."""
    if "since" in spec and Release.parse(spec["since"]) > release:
        return True
    return any(Release.parse(first) <= release <= Release.parse(last) for first, last in spec.get("absent", ()))


def _is_auto(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value == "auto"
