"""What dslint's models say of a release, as a surface."""

from __future__ import annotations

from typing import Any

from dslint.facts import Release
from dslint.schemas.key_table import KEYS, OPTIMIZERS, SCHEDULERS
from surface_reading.fields import Shape
from surface_reading.source import Unreadable
from surface_reading.surface import JUDGED, Deprecation, Key, Surface
from surface_reading.values import Path

Spec = dict[str, Any]


def judged(release: str) -> Surface:
    """The models' surface at a release.

    Raises:
        Unreadable: it is not a release.
    """
    try:
        at = Release.parse(release)
    except ValueError as error:
        raise Unreadable(f"{release!r} is not a DeepSpeed release") from error
    surface = Surface(release)
    for dotted, spec in KEYS.items():
        path = tuple(dotted.split("."))
        above = [KEYS[".".join(path[:end])] for end in range(1, len(path))]
        if all(is_read(each, at) for each in [*above, spec]):
            if path[-1] == "*":
                surface.named_freely.add(path[:-1])
            elif not path[-1].endswith("[]"):
                surface.keys[path] = _key(path, spec, at)
            _section(surface, path, spec, at)
        elif _is_refused(spec, at) and all(is_read(each, at) for each in above) and not forbids(KEYS.get(".".join(path[:-1]), {}), at):
            surface.refused[path] = JUDGED
    surface.forbids[()] = False
    surface.optimizers = sorted(name.lower() for name, spec in OPTIMIZERS.items() if spec.get("any_case") and is_read(spec, at))
    surface.schedules = {
        name: {parameter: _key((parameter,), each, at) for parameter, each in spec["params"].items() if is_read(each, at)}
        for name, spec in SCHEDULERS.items()
        if is_read(spec, at) and "wrapped" not in spec  # those are PyTorch's
    }
    return surface


def is_read(spec: Spec, at: Release) -> bool:
    """Whether the release reads a key."""
    if "since" in spec and at < Release.parse(spec["since"]):
        return False
    if "until" in spec and Release.parse(spec["until"]["release"]) < at:
        return False
    return not any(Release.parse(first) <= at <= Release.parse(last) for first, last in spec.get("absent", ()))


def _is_refused(spec: Spec, at: Release) -> bool:
    until = spec.get("until")
    if not until or until["then"] != "raises" or at <= Release.parse(until["release"]):
        return False
    return "raises_since" not in until or Release.parse(until["raises_since"]) <= at


def forbids(spec: Spec, at: Release) -> bool:
    """Whether a section raises for a key it does not know."""
    return spec.get("unknown") == "raise" and ("forbids_since" not in spec or Release.parse(spec["forbids_since"]) <= at)


def _section(surface: Surface, path: Path, spec: Spec, at: Release) -> None:
    if spec.get("unknown") == "open":
        surface.open.add(path)
    elif "unknown" in spec:
        surface.forbids[path] = forbids(spec, at)


def _key(path: Path, spec: Spec, at: Release) -> Key:
    return Key(
        path,
        Shape(frozenset(spec["types"]), _choices(spec, at), _bounds(spec, at)),
        _defaults(spec, at),
        required=bool(spec.get("required")),
        also=spec.get("also", ()),
        deprecated=_deprecation(spec.get("deprecated"), at),
        place=JUDGED,
        by_model=not spec.get("hand"),
    )


def _deprecation(spec: Spec | None, at: Release) -> Deprecation | None:
    if spec is None or at < Release.parse(spec["release"]):
        return None
    return Deprecation(tuple(spec["use"].split(".")) if "use" in spec else None, spec["mapped"])


def _choices(spec: Spec, at: Release) -> tuple[Any, ...]:
    for until, choices in spec.get("old_choices", ()):
        if at <= Release.parse(until):
            return tuple(choices)
    return tuple(spec.get("choices", ()))


def _bounds(spec: Spec, at: Release) -> dict[str, float]:
    for until, bounds in spec.get("bounds", ()):
        if at <= Release.parse(until):
            return dict(bounds)
    return {bound: spec[bound] for bound in ("ge", "gt", "le", "lt") if bound in spec}


def _defaults(spec: Spec, at: Release) -> list[Any]:
    if "section" in spec["types"]:
        return []
    held = [value for since, value in spec.get("defaults", ()) if since == "0" or Release.parse(since) <= at]
    return [held[-1]] if held else [spec["default"]] if "default" in spec else []
