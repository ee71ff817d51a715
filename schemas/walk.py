"""Walks the models and describes each key of the config, as input for the key table and the JSON Schema."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dslint.schemas import marks
from dslint.schemas.base import HandReadSection, Parameters, PydanticSection, Section

KINDS = {bool: "bool", int: "int", float: "float", str: "str", type(None): "null"}
ANY_KIND = ("bool", "int", "float", "str", "list", "dict", "null")
NO_DEFAULT: Any = PydanticUndefined

M = TypeVar("M")


@dataclass
class Shape:
    """The values of a key: kinds, choices, bounds and items."""

    kinds: list[str] = field(default_factory=list)
    choices: list[Any] = field(default_factory=list)
    """The values of a Literal."""
    bounds: dict[str, float] = field(default_factory=dict)
    finite: bool = False
    items: Shape | None = None
    """The items of a list."""
    length: int | None = None
    """How many items the list must have."""
    section: type[Section] | None = None
    values: Shape | None = None
    """The values of a dict with custom keys."""
    marks: list[Any] = field(default_factory=list)

    def binding(self) -> bool:
        """Whether only the choices (and null) are valid, rather than also numbers or lists."""
        return bool(self.choices) and set(self.kinds) - {"null"} == {KINDS[type(choice)] for choice in self.choices}


@dataclass(frozen=True)
class Key:
    """A key of the config: a field of a model, at its place."""

    path: tuple[str, ...]
    """With "*" for custom keys, and "[]" appended to the name of a list of sections."""
    also: tuple[str, ...]
    """Other spellings that DeepSpeed accepts."""
    shape: Shape
    default: Any
    """`NO_DEFAULT` if the key is required, or a section that exists by default."""
    required: bool
    description: str
    by_hand: bool
    """Whether its section is read without a model."""
    was_by_hand: bool
    """Whether some release reads its section without a model."""

    @property
    def name(self) -> str:
        """The documented spelling."""
        return self.path[-1]

    def mark(self, kind: type[M]) -> M | None:
        """The key's mark of this kind, if it has one."""
        return next((mark for mark in self.shape.marks if isinstance(mark, kind)), None)

    def marked(self, kind: type[M]) -> list[M]:
        """All marks of this kind, in the order they are written."""
        return [mark for mark in self.shape.marks if isinstance(mark, kind)]


def keys_of(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[Key]:
    """The keys of a model, without those of nested sections."""
    by_hand = issubclass(model, HandReadSection | Parameters)
    was_by_hand = by_hand or (issubclass(model, PydanticSection) and model.forbids_since != PydanticSection.forbids_since)
    for name, info in model.model_fields.items():
        spelling = info.alias or name
        shape = shape_of(info.annotation, [*info.metadata])
        yield Key(
            path=(*above, spelling),
            also=(name,) if spelling != name else (),
            shape=shape,
            default=_default(info),
            required=info.is_required(),
            description=" ".join((info.description or "").split()),
            by_hand=by_hand,
            was_by_hand=was_by_hand,
        )


def all_keys(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[Key]:
    """The keys of a model and of every section below it, depth first."""
    for key in keys_of(model, above):
        yield key
        yield from _below(key, key.shape, key.path)


def _below(key: Key, shape: Shape, path: tuple[str, ...]) -> Iterator[Key]:
    if shape.section is not None:
        yield from all_keys(shape.section, path)
    elif shape.values is not None:
        each = (*path, "*")
        yield Key(each, (), shape.values, NO_DEFAULT, required=False, description="", by_hand=key.by_hand, was_by_hand=key.was_by_hand)
        yield from _below(key, shape.values, each)
    elif shape.items is not None and shape.items.section is not None:
        each = (*path[:-1], path[-1] + "[]")
        yield Key(each, (), shape.items, NO_DEFAULT, required=False, description="", by_hand=key.by_hand, was_by_hand=key.was_by_hand)
        yield from all_keys(shape.items.section, each)


def _default(info: FieldInfo) -> Any:
    default = info.get_default(call_default_factory=True, validated_data={})
    return NO_DEFAULT if isinstance(default, BaseModel) else default


def shape_of(annotation: Any, metadata: list[Any]) -> Shape:
    """Read a type with its marks and constraints."""
    shape = Shape()
    _add(shape, annotation, metadata)
    if any(isinstance(mark, marks.StrStandsFor) for mark in shape.marks):
        shape.kinds.append("str")
    if any(isinstance(mark, marks.NullRaises) and mark.until is None for mark in shape.marks) and "null" in shape.kinds:
        shape.kinds.remove("null")  # None only stands for an absent key
    return shape


def _add(shape: Shape, annotation: Any, metadata: list[Any]) -> None:
    _constrain(shape, metadata)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        _add(shape, arguments[0], list(arguments[1:]))
    elif origin in (Union, types.UnionType):
        for argument in arguments:
            _add(shape, argument, [])
    elif origin is Literal:
        shape.choices.extend(arguments)
        _kind(shape, *(KINDS[type(argument)] for argument in arguments))
    elif origin in (list, tuple) or annotation is list:
        _kind(shape, "list")
        shape.items = shape_of(arguments[0], []) if arguments else None
        shape.length = len(arguments) if origin is tuple and arguments[-1] is not Ellipsis else None
    elif origin is dict and arguments[1] is not Any:
        _kind(shape, "section")
        shape.values = shape_of(arguments[1], [])
    elif origin is dict or annotation is dict:
        _kind(shape, "dict")
    elif annotation is Any:
        _kind(shape, *ANY_KIND)
    elif annotation in KINDS:
        _kind(shape, KINDS[annotation])
    elif isinstance(annotation, type) and issubclass(annotation, Section):
        _kind(shape, "section")
        shape.section = annotation
    else:
        raise TypeError(f"no kind for {annotation!r}")


def _kind(shape: Shape, *kinds: str) -> None:
    shape.kinds.extend(kind for kind in dict.fromkeys(kinds) if kind not in shape.kinds)


def _constrain(shape: Shape, metadata: list[Any]) -> None:
    for entry in metadata:
        if isinstance(entry, annotated_types.Ge):
            shape.bounds["ge"] = _number(entry.ge)
        elif isinstance(entry, annotated_types.Gt):
            shape.bounds["gt"] = _number(entry.gt)
        elif isinstance(entry, annotated_types.Le):
            shape.bounds["le"] = _number(entry.le)
        elif isinstance(entry, annotated_types.Lt):
            shape.bounds["lt"] = _number(entry.lt)
        elif isinstance(entry, FieldInfo):
            _constrain(shape, entry.metadata)
        elif getattr(entry, "allow_inf_nan", None) is False:
            shape.finite = True
        elif type(entry).__module__ == marks.__name__:
            shape.marks.append(entry)


def _number(value: Any) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"not a number: {value!r}")
    return value
