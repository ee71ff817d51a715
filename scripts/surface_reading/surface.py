"""The surface of a release: every key of its config, in one form for what is read from a source and for what the models say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from surface_reading.fields import Check, Field, Fields, Shape
from surface_reading.follow import Follower, follow
from surface_reading.source import Source
from surface_reading.trace import Read, Trace
from surface_reading.values import HIDDEN, Class, Function, Path, plains

CONFIG_MODULE, OPTIMIZER_LIST = "deepspeed.runtime.config", "DEEPSPEED_OPTIMIZERS"
SCHEDULE_MODULE, SCHEDULE_LIST = "deepspeed.runtime.lr_schedules", "VALID_LR_SCHEDULES"
JUDGED = "schemas/"
"""The place of a key that the models say, rather than a source."""


@dataclass(frozen=True)
class Deprecation:
    """A key on its way out: the path of its successor, and whether the value is copied there."""

    use: Path | None = None
    mapped: bool = False


@dataclass
class Key:
    """A key of the config."""

    path: Path
    shape: Shape = field(default_factory=Shape)
    defaults: list[Any] = field(default_factory=list)
    """Those that are seen; several where several places look it up."""
    required: bool = False
    also: tuple[str, ...] = ()
    deprecated: Deprecation | None = None
    checks: tuple[Check, ...] = ()
    """The validators that look at it, which may narrow it further."""
    place: str = ""
    by_model: bool = False


@dataclass
class Surface:
    """What a release accepts."""

    release: str | None
    keys: dict[Path, Key] = field(default_factory=dict)
    forbids: dict[Path, bool] = field(default_factory=dict)
    """For each section, whether a key that it does not know raises."""
    refused: dict[Path, str] = field(default_factory=dict)
    """Keys that raise by their presence although their section ignores what it does not know, and where."""
    optimizers: list[str] = field(default_factory=list)
    schedules: dict[str, dict[str, Key]] = field(default_factory=dict)
    unread: list[tuple[str, str]] = field(default_factory=list)
    """What cannot be read statically, and where."""
    dynamic: list[tuple[Path, str]] = field(default_factory=list)
    """Parts of the config in which a name is looked up that is not known, and where."""
    open: set[Path] = field(default_factory=set)
    """Dicts with custom keys. Only the models know."""
    named_freely: set[Path] = field(default_factory=set)
    """Sections in which each name is the writer's own and stands for the same keys. Only the models know."""


def read_surface(source: Source) -> Surface:
    """Read a release's surface from its source."""
    follower = Follower(source)
    trace = follow(follower)
    surface = Surface(source.release, refused=trace.refused)
    _by_models(surface, trace, Fields(follower))
    _by_hand(surface, trace)
    _optimizers(surface, follower)
    _schedules(surface, follower)
    surface.unread += [("where the config goes: nothing of this name is there", name) for name in trace.missing]
    surface.dynamic = [*trace.dynamic]
    for key in surface.keys.values():
        if HIDDEN in key.defaults:
            surface.unread.append((f"the default of `{'.'.join(key.path)}`", key.place))
        if key.shape.unread:
            surface.unread.append((f"the type of `{'.'.join(key.path)}`, `{key.shape.unread}`", key.place))
    return surface


def _by_models(surface: Surface, trace: Trace, fields: Fields) -> None:
    """The keys of sections that are handed to a pydantic model, and of the models below it."""
    waiting: list[tuple[Path, Class]] = [(path, cls) for path, (cls, _) in trace.models.items()]
    while waiting:
        path, cls = waiting.pop()
        surface.forbids[path] = fields.forbids(cls)
        found = fields.of(cls)
        spelling = {each.name: each.key for each in found}
        for each in found:
            here = (*path, each.key)
            surface.keys[here] = Key(
                here,
                each.shape,
                [] if each.required or each.shape.section else [each.default],
                each.required,
                (each.name,) if each.key != each.name and fields.takes_names(cls) else (),
                _deprecation(each, path, spelling) if each.deprecated else None,
                each.checks,
                each.place,
                by_model=True,
            )
            if each.shape.section and len(here) < 12:
                waiting.append((here, each.shape.section))


def _deprecation(old: Field, path: Path, spelling: dict[str, str]) -> Deprecation:
    """What becomes of a deprecated field. Its successor is named by Python's names, from the section it stands in."""
    if not old.use or not all(part.isidentifier() for part in old.use.split(".")):
        return Deprecation()
    first, *rest = old.use.split(".")
    return Deprecation((*path, spelling.get(first, first), *rest), old.mapped)


def _by_hand(surface: Surface, trace: Trace) -> None:
    """The keys that are looked up one by one. Where a model forbids others, what else the code looks for is never there."""
    parents = {path[:-1] for path in trace.reads}
    for path, read in trace.reads.items():
        if path in surface.keys or path in surface.refused or any(path[:end] in surface.forbids for end in range(1, len(path))):
            continue
        surface.keys[path] = _hand_read(read, is_section=path in parents or path in surface.forbids)
    for path in parents:
        if not any(path[:end] in surface.forbids for end in range(1, len(path) + 1)):
            surface.forbids[path] = False


def _hand_read(read: Read, *, is_section: bool) -> Key:
    defaults: list[Any] = []
    for values in read.defaults.values():
        defaults += [default for default in plains(values) if default not in defaults or default is HIDDEN]
    if is_section:
        defaults = []
    return Key(read.path, Shape(frozenset({"section"}) if is_section else None), defaults, place=read.places[0])


def _optimizers(surface: Surface, follower: Follower) -> None:
    module = follower.source.modules.get(CONFIG_MODULE)
    names = follower.listed(module, OPTIMIZER_LIST) if module else None
    if names is None:
        surface.unread.append((f"the optimizers: {OPTIMIZER_LIST} is not a list of names", CONFIG_MODULE))
    surface.optimizers = sorted(names or [])


def _schedules(surface: Surface, follower: Follower) -> None:
    module = follower.source.modules.get(SCHEDULE_MODULE)
    names = follower.listed(module, SCHEDULE_LIST) if module else None
    if module is None or names is None:
        surface.unread.append((f"the schedules: {SCHEDULE_LIST} is not a list of names", SCHEDULE_MODULE))
        return
    for name in names:
        constructors = [
            function
            for cls in follower.name(module, name)
            if isinstance(cls, Class)
            for function in follower.constructor(cls)
            if isinstance(function, Function)
        ]
        if not constructors:
            surface.unread.append((f"the parameters of the schedule {name}", module.path))
            continue
        surface.schedules[name] = {}
        for parameter, annotation, default in follower.parameters(constructors[0])[2:]:
            shape = Fields(follower).shape(annotation, module) if annotation else Shape()
            place = module.where(annotation or constructors[0].node)
            defaults = [] if default is None else [*plains(default)] or [HIDDEN]
            surface.schedules[name][parameter] = Key((parameter,), shape, defaults, default is None, place=place)
