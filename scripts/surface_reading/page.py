"""Writes surfaces and their differences as Markdown and as plain data, and new keys as fields of the models."""

from __future__ import annotations

from typing import Any

from surface_reading.compare import Difference, not_read
from surface_reading.fields import ANY_KIND
from surface_reading.surface import Key, Surface
from surface_reading.values import HIDDEN

BOUNDS = {"ge": "Ge", "gt": "Gt", "le": "Le", "lt": "Lt"}
TYPES = {"bool": "bool", "int": "int", "float": "float", "str": "str", "list": "list[Any]", "dict": "dict[str, Any]", "null": "None"}


def field_text(key: Key, release: str) -> str:
    """A key as it would be written in the models."""
    name = key.also[0] if key.also else key.path[-1]
    marks = [_type(key), f'Since("{release}")', *(f"{BOUNDS[bound]}({limit})" for bound, limit in key.shape.bounds.items())]
    if key.deprecated:
        use = f', use="{".".join(key.deprecated.use)}"' if key.deprecated.use else ""
        marks.append(f'Deprecated("{release}"{use}{"" if key.deprecated.mapped else ", mapped=False"})')
    default = next((repr(default) for default in key.defaults if default is not HIDDEN), None)
    value = f" = {default}" if default is not None else ""
    if key.also:
        words = [*([f"default={default}"] if default is not None else []), f'alias="{key.path[-1]}"']
        value = f" = Field({', '.join(words)})"
    checks = f"; see also {', '.join(check.place for check in key.checks)}" if key.checks else ""
    return f"{name}: Annotated[{', '.join(marks)}]{value}  # {key.place}{checks}"


def _type(key: Key) -> str:
    kinds = key.shape.kinds
    if key.shape.section:
        return key.shape.section.node.name + (" | None" if kinds and "null" in kinds else "")
    if key.shape.choices:
        return f"Literal[{', '.join(map(repr, key.shape.choices))}]" + (" | None" if kinds and "null" in kinds else "")
    if kinds is None:
        given = [default for default in key.defaults if default is not None and default is not HIDDEN]
        return " | ".join(dict.fromkeys(type(default).__name__ for default in given)) or "Any"
    if kinds >= ANY_KIND:
        return "Any"
    return " | ".join(TYPES.get(kind, "Any") for kind in sorted(kinds, key=lambda kind: (kind == "null", kind)))


def differences_page(title: str, differences: list[Difference], unread: list[str], *, since: str, last: str | None) -> str:
    """The differences as Markdown. `since` is the release of what is new, `last` the one before it."""
    lines = [f"# {title}", ""]
    if not differences:
        lines += ["Nothing differs.", ""]
    lines += _new([each for each in differences if each.kind == "new"], since)
    lines += _gone([each for each in differences if each.kind == "gone"], last)
    lines += _changed([each for each in differences if each.kind == "changed"])
    lines += _unread(unread)
    return "\n".join(lines).rstrip() + "\n"


def _new(differences: list[Difference], since: str) -> list[str]:
    if not differences:
        return []
    lines = [f"## New ({len(differences)})"]
    if names := [each.aspect for each in differences if each.key is None]:
        lines += ["", *(f"- {name}" for name in names)]
    sections: dict[str, list[Key]] = {}
    for each in differences:
        if each.key is not None:
            sections.setdefault(".".join(each.path[:-1]), []).append(each.key)
    for section, keys in sections.items():
        lines += ["", f"In {f'`{section}`' if section else 'the config itself'}:", "", "```python"]
        lines += [field_text(key, since) for key in keys]
        lines.append("```")
    return [*lines, ""]


def _gone(differences: list[Difference], last: str | None) -> list[str]:
    if not differences:
        return []
    lines = [f"## Gone ({len(differences)})", ""]
    for each in differences:
        until = f'Until("{last}", then="{each.after}")' if last else f'Until(the last release that reads it, then="{each.after}")'
        what = f"`{until}`" if each.aspect == "key" else each.aspect
        where = f" ({each.place})" if each.place else ""
        lines.append(f"- `{'.'.join(each.path)}`: {what}{where}")
    return [*lines, ""]


def _changed(differences: list[Difference]) -> list[str]:
    if not differences:
        return []
    lines = [f"## Changed ({len(differences)})", "", "| key | what | before | now | where |", "|---|---|---|---|---|"]
    for each in differences:
        cells = (f"`{'.'.join(each.path)}`", each.aspect, each.before, each.after, each.place)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return [*lines, ""]


def _unread(unread: list[str]) -> list[str]:
    return ["## Not readable without running it", "", *(f"- {each}" for each in unread), ""] if unread else []


def surface_page(surface: Surface) -> str:
    """A whole surface as Markdown."""
    lines = [f"# What DeepSpeed {surface.release or '(release unknown)'} accepts", "", f"## Keys ({len(surface.keys)})", ""]
    lines += ["| key | type | default | range | where |", "|---|---|---|---|---|"]
    for path, key in sorted(surface.keys.items()):
        default = " or ".join(map(repr, key.defaults)) or ("required" if key.required else "")
        bounds = ", ".join(f"{bound} {limit}" for bound, limit in key.shape.bounds.items())
        notes = [*(f"or `{name}`" for name in key.also), *(["deprecated"] if key.deprecated else [])]
        cells = (", ".join([f"`{'.'.join(path)}`", *notes]), _type(key) if key.by_model else "", default, bounds, key.place)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    forbidding = [".".join(path) for path, forbids in sorted(surface.forbids.items()) if forbids]
    checked = {check.place: check.name for key in surface.keys.values() for check in key.checks}
    if checked:
        lines += ["", "## Validators, which may narrow their keys further", ""]
        lines += [f"- {name} ({place})" for place, name in sorted(checked.items())]
    lines += ["", "## Sections that refuse unknown keys", "", *(f"- `{section}`" for section in forbidding), ""]
    if surface.refused:
        lines += [
            "## Keys that are refused",
            "",
            *(f"- `{'.'.join(path)}` ({place})" for path, place in sorted(surface.refused.items())),
            "",
        ]
    lines += ["## Optimizers", "", *(f"- {name}" for name in surface.optimizers), "", "## Schedules", ""]
    for name, parameters in surface.schedules.items():
        words = [f"{each}{f' = {key.defaults[0]!r}' if key.defaults else ''}" for each, key in parameters.items()]
        lines.append(f"- {name}: {', '.join(words)}")
    return "\n".join([*lines, "", *_unread(not_read(surface))]).rstrip() + "\n"


def surface_data(surface: Surface) -> dict[str, Any]:
    """A whole surface as plain data."""
    return {
        "release": surface.release,
        "keys": {".".join(path): _key_data(key) for path, key in sorted(surface.keys.items())},
        "forbids_unknown": sorted(".".join(path) for path, forbids in surface.forbids.items() if forbids),
        "refused": {".".join(path): place for path, place in sorted(surface.refused.items())},
        "optimizers": surface.optimizers,
        "schedules": {name: {each: _key_data(key) for each, key in parameters.items()} for name, parameters in surface.schedules.items()},
        "not_readable": not_read(surface),
    }


def _key_data(key: Key) -> dict[str, Any]:
    data: dict[str, Any] = {"where": key.place, "read": "model" if key.by_model else "hand"}
    if key.shape.kinds is not None:
        data["types"] = sorted(key.shape.kinds)
    if key.shape.choices:
        data["choices"] = list(key.shape.choices)
    data |= key.shape.bounds
    if readable := [default for default in key.defaults if default is not HIDDEN]:
        data["defaults"] = readable
    if key.required:
        data["required"] = True
    if key.also:
        data["also"] = list(key.also)
    if key.deprecated:
        data["deprecated"] = {"use": ".".join(key.deprecated.use) if key.deprecated.use else None, "mapped": key.deprecated.mapped}
    if key.checks:
        data["validators"] = [check.place for check in key.checks]
    return data
