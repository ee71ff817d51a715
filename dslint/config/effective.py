"""The effective config as a list: every key with the value that DeepSpeed uses, its origin, and the reason."""

from __future__ import annotations

from typing import Any

from dslint.config import UNKNOWN, Config, Origin
from dslint.config.sections import forbids_unknown
from dslint.config.violations import ViolationKind
from dslint.diagnostics import Place
from dslint.record import Record
from dslint.schemas.derive import ALWAYS_SHOWN
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Mapping, Member, Path, dotted, plain

LOST = (Origin.DROPPED, Origin.REFUSED)
"""Origins of written values that have no effect."""


class EffectiveEntry(Record):
    """One key. `value` may be `UNKNOWN`; `note` then says what it depends on.

    `written` is the literal in the file, None if the key is absent. `lost`: DeepSpeed ignores the
    written value or raises.
    """

    path: Path
    value: Any
    origin: Origin
    note: str | None
    written: str | None
    place: Place | None

    @property
    def known(self) -> bool:
        """Whether the value is known."""
        return self.value is not UNKNOWN

    @property
    def lost(self) -> bool:
        """Whether the written value has no effect."""
        return self.origin in LOST

    @property
    def key(self) -> str:
        """The path in dots."""
        return dotted(self.path)


def effective(config: Config, *, everything: bool = False) -> list[EffectiveEntry]:
    """The keys of the effective config, grouped as the key table is: top level first, then section by section.

    Without `everything`: written keys, the other keys of their sections, and the keys that every training uses (batch, precision, ZeRO
    stage, clipping).
    """
    sections = {dotted(path[:-1]) for path in config.written if len(path) > 1}
    replaced = _replaced(config)
    entries: dict[Path, EffectiveEntry] = {}
    for key, spec in KEYS.items():
        if "*" in key or "[]" in key or "until" in spec or "deprecated" in spec or "section" in spec["types"]:
            continue
        parent = key.rpartition(".")[0]
        if key.partition(".")[0] in replaced and not everything:
            continue
        path: Path = tuple(key.split("."))
        mapped = any(path[: len(to)] == to for to in config.mapped)
        if everything or key in ALWAYS_SHOWN or config.has(key) or (parent and parent in sections) or mapped:
            entries[path] = _entry(config, path)
    for path in config.added:
        entries.setdefault(path, _entry(config, path))
    for written, value in config.written.items():
        if written not in entries and not (isinstance(config.node(written), Mapping) and value.origin is Origin.WRITTEN):
            entries[written] = _entry(config, written)
    order = {section: number for number, section in enumerate(dict.fromkeys(key.partition(".")[0] for key in KEYS if "." in key))}
    return sorted(
        entries.values(), key=lambda entry: (-1 if len(entry.path) == 1 else order.get(str(entry.path[0]), len(order)), len(entry.path))
    )


def _replaced(config: Config) -> set[str]:
    """Sections that an old name stands for: DeepSpeed reads `bfloat16` where `bf16` is not written."""
    olds = ((key, spec["shadowed_by"]) for key, spec in KEYS.items() if "shadowed_by" in spec)
    return {new for old, new in olds if config.has(old) and (not config.has(new) or config.is_null(new))}


def _entry(config: Config, path: Path) -> EffectiveEntry:
    found = config.document.lookup(path)
    value = config.resolved(path)
    member = found if isinstance(found, Member) else None
    place = Place(*config.document.position(member.key.span.start)) if member else None
    note = value.note or _why(config, path, value.origin) or _becomes(config, path)
    return EffectiveEntry(path, value.value, value.origin, note, config.quote(path) if found is not None else None, place)


def _why(config: Config, path: Path, origin: Origin) -> str | None:
    """Why the written value has no effect, in a few words."""
    for violation in config.violations:
        if violation.path == path and origin in LOST:
            if violation.kind is ViolationKind.AUTO_DROPPED:
                return '"auto" that no loader fills'
            if violation.raises and violation.consequence is not None:
                return f"DeepSpeed raises {violation.consequence[2].partition(':')[0]}"
            return {
                ViolationKind.DEAD: "no longer read",
                ViolationKind.TOO_NEW: "not read yet",
                ViolationKind.SHADOWED: f"{violation.meant[-1] if violation.meant else ''} is read",
            }.get(violation.kind, "unknown key")
    return None


def _becomes(config: Config, path: Path) -> str | None:
    """The replacement of a deprecated key."""
    for violation in config.violations:
        if violation.path == path and violation.kind is ViolationKind.DEPRECATED and violation.meant in config.mapped:
            return f"read as {dotted(violation.meant or ())}"
    return None


def as_deepspeed_sees_it(config: Config) -> tuple[dict[str, Any], list[str]]:
    """The config as plain data: without ineffective keys, with deprecated keys replaced and the batch sizes completed.

    The second part lists the keys that are omitted because their value is unknown.
    """
    seen: dict[str, Any] = {}
    unknown: list[str] = []
    root = config.document.root
    if isinstance(root, Mapping):
        _copy(config, root, (), seen, unknown)
    for path, value in config.added.items():
        if value.value is not UNKNOWN:
            _put(seen, path, value.value)
    for key in ALWAYS_SHOWN:
        value = config.resolved(key)
        if value.value is not UNKNOWN and value.origin in (Origin.DERIVED, Origin.MAPPED) and "." not in key:
            seen[key] = value.value
    return seen, unknown


def _put(into: dict[str, Any], path: Path, value: Any) -> None:
    for step in path[:-1]:
        inner = into.setdefault(str(step), {})
        if not isinstance(inner, dict):
            return
        into = inner
    into[str(path[-1])] = value


def _copy(config: Config, node: Mapping, path: Path, into: dict[str, Any], unknown: list[str]) -> None:
    for member in node.members:
        here = (*path, member.key.value)
        value = config.written.get(here)
        if value is not None and value.origin is Origin.FILLED:
            value = config.resolved(here)
        if value is not None and value.origin in LOST:
            continue
        if any(
            violation.path == here and violation.kind is ViolationKind.DEPRECATED and violation.meant for violation in config.violations
        ):
            continue  # replaced by its new key
        if value is None and not forbids_unknown(dotted(path), config.release) and path == ():
            continue  # a comment key
        if isinstance(member.value, Mapping) and (value is None or value.value is UNKNOWN):
            _copy(config, member.value, here, into.setdefault(member.key.value, {}), unknown)
        elif value is not None and value.value is UNKNOWN:
            unknown.append(dotted(here))
        else:
            into[member.key.value] = plain(member.value) if value is None else value.value
    for mapped, value in config.mapped.items():
        if mapped[:-1] == path and not isinstance(value.value, dict):
            into[str(mapped[-1])] = value.value
        elif mapped[:-1] == path:
            into[str(mapped[-1])] = dict(value.value)
