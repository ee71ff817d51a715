"""Compiles the models into committed files: the key table for `check`, and the JSON Schema for editors.

    python -m dslint.schemas.compile [--check]

With `--check` nothing is written; the exit code is 1 if a file is stale.

`key_table.py` holds plain literals and imports nothing. `KEYS` maps the dotted path of a key ("*" stands for a custom key, "[]" after a
name for the items of a list of sections) to its entry:

    types        the allowed types: "bool", "int", "float" (integers too), "str", "list", "dict", "section", "null"
    items        the allowed types of list items; `item_choices` their choices; `length` the required number
    choices      the allowed values (and null), ignoring case if `folded`
    words        the allowed strings, if numbers or lists are allowed as well
    ge gt le lt  the range; `finite`: neither infinite nor NaN
    bounds       ((release, range), ...): the range up to that release
    old_choices  ((release, choices), ...): the choices up to that release
    path         True if a string is a file system path
    no_bool      the release from which true and false are not valid as numbers
    exact_int    the release from which a whole float (1000.0) is not valid as an integer
    default      in the newest release; `defaults`: ((release, value), ...), the oldest first, "0" for the oldest release
    fraction     True if a release that reads it without a model uses a fraction as written
    required     True
    hand         True if its section is read without a model. Only such keys, and those that some release reads so, have these:
    wrong        the consequence of another type or an invalid choice: ("truthy",) | ("raises", phase, error) | ("passes", note)
    wrong_kinds  {type: consequence}: the consequence for values of these types, if it differs
    lets         types that are accepted although `wrong` raises
    null         ("raises", phase, error): the consequence of null; `null_until`: the last release with it
    range        ("raises", phase, error): the consequence of a number outside the range
    needs        (key, ("raises", phase, error)): the consequence of a dict without that key
    read_with    the key that enables reading this one (unless false or empty)
    falsy        True if false, 0 and empty values are accepted whatever the type
    auto_dropped True if "auto" is dropped although the section is read without a model
    dict_only    the last release that reads the key only from a dict, not from a file
    shadowed_by  the key that overrides it
    checked_with the key together with which a rule checks it, if both are written
    forbids      ((value, phase, error), ...): values of the right type that raise
    unknown      for a section or dict, what happens to an unknown key: "raise" | "ignore" | "open" (all keys are valid)
    forbids_since  the first release that raises for an unknown key; before it, the section was read without a model
    drops_auto_since  the first release that drops every "auto" in it, earlier ones read it as a value
    also         other accepted spellings
    since        the first release that reads it; `absent`: ((first, last), ...) gaps of releases that do not
    until        {"release", "then", "use", "note", "raises_since", "values"}: see `marks.Until`
    deprecated   {"release", "use", "mapped", "values", "note"}: see `marks.Deprecated`
    auto         True if DeepSpeed itself resolves "auto"
    bool_for     for a section: the key that a bare true (1) or false (0) sets

`OPTIMIZERS` and `SCHEDULERS` map a type, in its documented spelling, to

    any_case     True if the name is matched ignoring case
    classes      {class: when the type becomes this class}
    since until  as above
    open         True if unknown parameters are silently ignored; otherwise they raise a TypeError in `initialize`
    step         the error that every step raises
    wrapped      for a schedule: the error in `initialize` if ZeRO, fp16 or bf16 wraps the optimizer
    note         an explanation for users
    params       {name: spec}, where a spec may also have `only`: the classes that accept the parameter
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dslint.schemas import marks
from dslint.schemas.base import PydanticSection
from dslint.schemas.export import json_schema
from dslint.schemas.optimizers import OPTIMIZERS, TypeSpec
from dslint.schemas.root import DeepSpeedConfig
from dslint.schemas.schedulers import SCHEDULERS
from dslint.schemas.walk import NO_DEFAULT, Key, Shape, all_keys, keys_of

HERE = Path(__file__).resolve().parent
HEADER = '''"""What DeepSpeed accepts, key by key. Compiled from the models by `python -m dslint.schemas.compile`, which documents the entries."""

# fmt: off

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

'''


def spec_of(key: Key) -> dict[str, Any]:
    """A key's entry in the table."""
    shape = key.shape
    spec: dict[str, Any] = {"types": tuple(shape.kinds)}
    spec |= _values(shape)
    if key.default is not NO_DEFAULT:
        spec["default"] = _as_list(key.default)
    if defaults := key.marked(marks.Default):
        spec["defaults"] = tuple((mark.release, _as_list(mark.value)) for mark in defaults)
    if key.required:
        spec["required"] = True
    if key.by_hand:
        spec["hand"] = True
    if key.was_by_hand:
        spec |= _consequences(key)
    spec |= _section(shape)
    if key.also:
        spec["also"] = key.also
    return spec | _history(key)


def _values(shape: Shape) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if shape.items is not None and shape.items.section is None:
        spec["items"] = tuple(shape.items.kinds)
        if shape.items.choices:
            spec["item_choices"] = tuple(shape.items.choices)
    if shape.length is not None:
        spec["length"] = shape.length
    if shape.choices:
        spec["choices" if shape.binding() else "words"] = tuple(shape.choices)
    spec |= shape.bounds
    if shape.finite:
        spec["finite"] = True
    if bounds := [mark for mark in shape.marks if isinstance(mark, marks.Bounds)]:
        spec["bounds"] = tuple((mark.until, _given(ge=mark.ge, gt=mark.gt, le=mark.le, lt=mark.lt)) for mark in bounds)
    if choices := [mark for mark in shape.marks if isinstance(mark, marks.Choices)]:
        spec["old_choices"] = tuple((mark.until, mark.values) for mark in choices)
    return spec | _said(shape)


FLAGS = {
    marks.Folded: "folded",
    marks.FalsyPasses: "falsy",
    marks.IsPath: "path",
    marks.AutoDropped: "auto_dropped",
    marks.AutoIsReal: "auto",
    marks.FractionByHand: "fraction",
}
"""Marks without a value, and their entries."""


def _said(shape: Shape) -> dict[str, Any]:
    """The entries that marks add."""
    spec: dict[str, Any] = {FLAGS[type(mark)]: True for mark in shape.marks if type(mark) in FLAGS}
    for mark in shape.marks:
        match mark:
            case marks.DictOnly(until):
                spec["dict_only"] = until
            case marks.ShadowedBy(other):
                spec["shadowed_by"] = other
            case marks.CheckedWith(other):
                spec["checked_with"] = other
            case marks.NoBool(release):
                spec["no_bool"] = release
            case marks.ExactInt(release):
                spec["exact_int"] = release
            case marks.BoolStandsFor(name):
                spec["bool_for"] = name
            case marks.OnlyFor(classes):
                spec["only"] = classes
    return spec


def _consequences(key: Key) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    for mark in key.shape.marks:
        match mark:
            case marks.Truthy():
                spec["wrong"] = ("truthy",)
            case marks.Passes(note):
                spec["wrong"] = ("passes", note)
            case marks.Raises(phase, error, lets, only):
                if only:
                    spec.setdefault("wrong_kinds", {}).update(dict.fromkeys(only, ("raises", phase, error)))
                else:
                    spec["wrong"] = ("raises", phase, error)
                    spec |= _given(lets=lets or None)
            case marks.NullRaises(phase, error, until):
                spec["null"] = ("raises", phase, error)
                spec |= _given(null_until=until)
            case marks.Needs(other, phase, error):
                spec["needs"] = (other, ("raises", phase, error))
            case marks.ReadWith(other):
                spec["read_with"] = other
            case marks.OutOfRange(phase, error):
                spec["range"] = ("raises", phase, error)
    if forbids := key.marked(marks.Forbids):
        spec["forbids"] = tuple((mark.value, mark.phase, mark.error) for mark in forbids)
    return spec


def _section(shape: Shape) -> dict[str, Any]:
    section = shape.section
    if section is None:
        return {"unknown": "open"} if "dict" in shape.kinds else {}
    if any(isinstance(mark, marks.Open) for mark in shape.marks):
        return {"unknown": "open"}
    drops_auto = getattr(section, "drops_auto_since", None)
    return {"unknown": section.unknown_keys} | _given(
        forbids_since=getattr(section, "forbids_since", None),
        drops_auto_since=drops_auto if drops_auto != PydanticSection.drops_auto_since else None,
    )


def _history(key: Key) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if since := key.mark(marks.Since):
        spec["since"] = since.release
    if gaps := key.marked(marks.Absent):
        spec["absent"] = tuple((gap.first, gap.last) for gap in gaps)
    if until := key.mark(marks.Until):
        spec["until"] = _until(until)
    if old := key.mark(marks.Deprecated):
        spec["deprecated"] = _given(release=old.release, use=old.use, mapped=old.mapped, values=old.values or None, note=old.note)
    return spec


def _until(mark: marks.Until) -> dict[str, Any]:
    values = mark.values or None
    return _given(release=mark.release, then=mark.then, use=mark.use, note=mark.note, raises_since=mark.raises_since, values=values)


def _given(**entries: Any) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if value is not None}


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def tables() -> dict[str, dict[str, Any]]:
    """The three tables, as plain data."""
    return {
        "KEYS": {".".join(key.path): spec_of(key) for key in all_keys(DeepSpeedConfig)},
        "OPTIMIZERS": {name: _kind(kind) for name, kind in OPTIMIZERS.items()},
        "SCHEDULERS": {name: _kind(kind) for name, kind in SCHEDULERS.items()},
    }


def _kind(kind: TypeSpec) -> dict[str, Any]:
    spec: dict[str, Any] = {"any_case": True} if kind.any_case else {}
    spec |= _given(classes=kind.classes or None, since=kind.since and kind.since.release)
    if kind.until:
        spec["until"] = _until(kind.until)
    spec |= {"open": True} if kind.open else {}
    spec |= _given(step=kind.step, wrapped=kind.wrapped, note=kind.note)
    return spec | {"params": {key.name: spec_of(key) for key in keys_of(kind.params)}}


def literal(value: Any) -> str:
    """A plain value as Python source, on one line."""
    if isinstance(value, str):
        return repr(value) if '"' in value and "'" not in value else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(name)}: {literal(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, list):
        return f"[{_sequence(value)}]"
    if isinstance(value, tuple):
        return f"({_sequence(value)}{',' if len(value) == 1 else ''})"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    raise TypeError(f"not plain: {value!r}")


def _sequence(values: Iterable[Any]) -> str:
    return ", ".join(map(literal, values))


def key_table() -> str:
    """The text of `key_table.py`."""
    lines = [HEADER.rstrip("\n"), ""]
    for name, table in tables().items():
        lines += [f"{name}: dict[str, dict[str, Any]] = {{"]
        lines += [f"    {literal(key)}: {literal(spec)}," for key, spec in table.items()]
        lines += ["}", ""]
    return "\n".join(lines)


def outputs() -> dict[Path, str]:
    """Every generated file with its text."""
    schema = json.dumps(json_schema(), ensure_ascii=False, indent=1) + "\n"
    return {HERE / "key_table.py": key_table(), HERE / "ds_config.schema.json": schema}


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or with `--check` list stale ones."""
    parser = argparse.ArgumentParser(prog="python -m dslint.schemas.compile", description="Write the key table and the JSON Schema.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    check = parser.parse_args(arguments).check
    stale = {path: text for path, text in outputs().items() if not path.exists() or path.read_text(encoding="utf-8") != text}
    for path, text in stale.items():
        if not check:
            path.write_text(text, encoding="utf-8", newline="\n")
        sys.stderr.write(f"{'stale' if check else 'wrote'}: {path.name}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
