"""Reads the fields of pydantic models, as versions 1 and 2 write them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from surface_reading.follow import Follower
from surface_reading.names import Frame
from surface_reading.source import Definition, Module
from surface_reading.values import HIDDEN, UNKNOWN, Class, Foreign, Mapping, Values, plain

ANY_KIND = frozenset({"bool", "int", "float", "str", "list", "dict", "null"})
KINDS: dict[str, frozenset[str]] = {
    **{kind: frozenset({kind}) for kind in ("bool", "int", "float", "str", "list", "dict")},
    **dict.fromkeys(("tuple", "set", "typing.List", "typing.Tuple", "typing.Sequence", "typing.Set"), frozenset({"list"})),
    **dict.fromkeys(("typing.Dict", "typing.Mapping"), frozenset({"dict"})),
    **dict.fromkeys(("typing.Any", "object"), ANY_KIND),
    "pathlib.Path": frozenset({"str"}),
}
VALIDATORS = {"validator", "root_validator", "field_validator", "model_validator"}
BOUNDS = ("ge", "gt", "le", "lt")


@dataclass(frozen=True)
class Check:
    """A validator: its name, where it stands, and its code, which is compared but not understood."""

    name: str
    place: str
    code: str


@dataclass
class Shape:
    """What values a key takes."""

    kinds: frozenset[str] | None = None
    """None: not known."""
    choices: tuple[Any, ...] = ()
    bounds: dict[str, float] = field(default_factory=dict)
    section: Class | None = None
    unread: str = ""
    """The annotation, where it cannot be read."""


@dataclass
class Field:
    """A field of a model."""

    name: str
    key: str
    """How it is spelt in a config: the alias, where it has one."""
    shape: Shape
    default: Any
    required: bool
    place: str
    deprecated: bool = False
    use: str | None = None
    mapped: bool = True
    checks: tuple[Check, ...] = ()


class Fields:
    """Reads models with the help of what the follower knows about names."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower

    def of(self, cls: Class) -> list[Field]:
        """The fields of a model and of those it is made from."""
        found: dict[str, Field] = {}
        for each in reversed(self.follower.lineage(cls)):
            if not isinstance(each, Class):
                continue
            for node in each.node.body:
                match node:
                    case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if _is_field(name, annotation):
                        found[name] = self._field(name, node, each.module)
                    case ast.Assign(targets=[ast.Name(id=name)]) if _is_field(name) and self._is_version_1(cls):
                        found[name] = self._unannotated(name, node, each.module)
        for each_field in found.values():
            if each_field.default is None and each_field.shape.kinds and self._is_version_1(cls):
                each_field.shape.kinds |= {"null"}  # pydantic 1 reads `x: str = None` as an optional
        checks = list(self._checks(cls))
        for each_field in found.values():
            each_field.checks = tuple(check for check, mentioned in checks if each_field.name in mentioned)
        return list(found.values())

    def _field(self, name: str, node: ast.AnnAssign, module: Module) -> Field:
        shape = self.shape(node.annotation, module)
        frame = Frame(module, {})
        words: dict[str, Values] = {}
        if (call := self._field_call(node.value, module)) is not None:
            words = {word.arg: self.follower.evaluate(word.value, frame) for word in call.keywords if word.arg}
            factory = next((word.value for word in call.keywords if word.arg == "default_factory"), None)
            default = self.follower.evaluate(call.args[0], frame) if call.args else words.get("default")
            if factory is not None:
                default = self._made(factory, frame)
        else:
            default = self.follower.evaluate(node.value, frame) if node.value else None
        for bound in BOUNDS:
            if bound in words and isinstance(limit := plain(words[bound]), int | float):
                shape.bounds[bound] = limit
        extra = _plain_words(words) | _plain_entries(words.get("json_schema_extra", UNKNOWN))
        value = HIDDEN if default is None else plain(default)
        alias = extra.get("alias") or extra.get("validation_alias")
        return Field(
            name,
            alias if isinstance(alias, str) else name,
            shape,
            value,
            required=default is None or value is ...,
            place=module.where(node),
            deprecated=extra.get("deprecated") not in (None, False),
            use=extra.get("new_param") or None,
            mapped=extra.get("set_new_param", True) is not False,
        )

    def _unannotated(self, name: str, node: ast.Assign, module: Module) -> Field:
        """`x = 8`, which is a field in pydantic 1, of the type of its default."""
        default = plain(self.follower.evaluate(node.value, Frame(module, {})))
        kind = type(default).__name__
        shape = Shape(KINDS[kind]) if kind in KINDS else Shape(None, unread=f"that of {ast.unparse(node.value)}")
        return Field(name, name, shape, default, required=False, place=module.where(node))

    def _field_call(self, node: ast.expr | None, module: Module) -> ast.Call | None:
        """The call of pydantic's `Field`, where it is one."""
        if not isinstance(node, ast.Call):
            return None
        named = self.follower.evaluate(node.func, Frame(module, {}))
        is_field = any(isinstance(value, Foreign) and value.external.name in ("pydantic.Field", "pydantic.v1.Field") for value in named)
        return node if is_field else None

    def _made(self, factory: ast.expr, frame: Frame) -> Values:
        if isinstance(factory, ast.Lambda):
            return self.follower.evaluate(factory.body, frame)
        made = self.follower.evaluate(ast.Call(func=factory, args=[], keywords=[]), frame)
        return made or self.follower.empty(factory, frame)

    # ------------------------------------------------------------------ the model as a whole

    def _settings(self, cls: Class) -> dict[str, Any]:
        """`model_config` and `class Config`, nearest first."""
        found: dict[str, Any] = {}
        for each in reversed(self.follower.lineage(cls)):
            if not isinstance(each, Class):
                continue
            frame = Frame(each.module, {})
            for node in each.node.body:
                match node:
                    case ast.Assign(targets=[ast.Name(id="model_config")], value=ast.Call(keywords=words)):
                        found |= {word.arg: plain(self.follower.evaluate(word.value, frame)) for word in words if word.arg}
                    case ast.Assign(targets=[ast.Name(id="model_config")], value=ast.Dict() as value):
                        found |= _plain_entries(self.follower.evaluate(value, frame))
                    case ast.ClassDef(name="Config", body=body):
                        for line in body:
                            if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
                                value = plain(self.follower.evaluate(line.value, frame))
                                found[line.targets[0].id] = ast.unparse(line.value).rpartition(".")[2] if value is HIDDEN else value
        return found

    def _is_version_1(self, cls: Class) -> bool:
        """Whether the model is one of pydantic 1, which has its settings in a class."""
        lineage = [each for each in self.follower.lineage(cls) if isinstance(each, Class)]
        return any(isinstance(node, ast.ClassDef) and node.name == "Config" for each in lineage for node in each.node.body)

    def forbids(self, cls: Class) -> bool:
        """Whether an unknown key raises."""
        return self._settings(cls).get("extra") == "forbid"

    def takes_names(self, cls: Class) -> bool:
        """Whether the name of a field is accepted in addition to its alias."""
        settings = self._settings(cls)
        return any(settings.get(word) is True for word in ("populate_by_name", "allow_population_by_field_name", "validate_by_name"))

    def _checks(self, cls: Class) -> Iterator[tuple[Check, set[str]]]:
        """The validators of a model, each with the names it mentions."""
        for each in self.follower.lineage(cls):
            if not isinstance(each, Class):
                continue
            for node in each.node.body:
                if isinstance(node, ast.FunctionDef) and any(_called(mark) in VALIDATORS for mark in node.decorator_list):
                    inside = [*ast.walk(node)]
                    mentioned = {part.attr for part in inside if isinstance(part, ast.Attribute)}
                    mentioned |= {part.value for part in inside if isinstance(part, ast.Constant) and isinstance(part.value, str)}
                    yield Check(node.name, each.module.where(node), ast.unparse(node)), mentioned

    # ------------------------------------------------------------------ types

    def shape(self, annotation: ast.expr, module: Module) -> Shape:
        """Read a type."""
        shape = Shape(frozenset())
        self._add(shape, annotation, module)
        if shape.kinds is None or shape.unread:
            return Shape(None, unread=ast.unparse(annotation), bounds=shape.bounds)
        return shape

    def _add(self, shape: Shape, annotation: ast.expr, module: Module) -> None:
        match annotation:
            case ast.Constant(value=None):
                self._kinds(shape, "null")
            case ast.Constant(value=str() as text):
                self._add(shape, ast.parse(text, mode="eval").body, module)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                self._add(shape, left, module)
                self._add(shape, right, module)
            case ast.Subscript(value=outer, slice=inner):
                self._generic(shape, self._names(outer, module), inner, annotation, module)
            case ast.Name(id=name) if isinstance(found := module.lookup(name), Definition) and isinstance(found.node, ast.Subscript):
                self._add(shape, found.node, found.module)  # an alias
            case _:
                self._named(shape, annotation, module)

    def _names(self, node: ast.expr, module: Module) -> list[str]:
        values = self.follower.evaluate(node, Frame(module, {}))
        return [value.external.name.replace("typing_extensions.", "typing.") for value in values if isinstance(value, Foreign)]

    def _generic(self, shape: Shape, names: list[str], inner: ast.expr, whole: ast.expr, module: Module) -> None:
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        name = names[0] if names else ""
        if name in ("typing.Optional", "typing.Union"):
            for part in parts:
                self._add(shape, part, module)
            if name == "typing.Optional":
                self._kinds(shape, "null")
        elif name == "typing.Literal":
            values = [plain(self.follower.evaluate(part, Frame(module, {}))) for part in parts]
            self._choose(shape, values)
        elif name == "typing.Annotated":
            self._add(shape, parts[0], module)
            for part in parts[1:]:
                self._constrain(shape, part, module)
        elif name in KINDS:
            self._kinds(shape, *KINDS[name])
        else:
            shape.unread = ast.unparse(whole)

    def _constrain(self, shape: Shape, part: ast.expr, module: Module) -> None:
        if isinstance(part, ast.Call):
            frame = Frame(module, {})
            for word in part.keywords:
                if word.arg in BOUNDS and isinstance(limit := plain(self.follower.evaluate(word.value, frame)), int | float):
                    shape.bounds[word.arg] = limit

    def _named(self, shape: Shape, annotation: ast.expr, module: Module) -> None:
        for value in self.follower.evaluate(annotation, Frame(module, {})):
            if isinstance(value, Foreign) and value.external.name in KINDS:
                self._kinds(shape, *KINDS[value.external.name])
                return
            if isinstance(value, Class) and self.follower.is_model(value):
                self._kinds(shape, "section")
                shape.section = value
                return
            if isinstance(value, Class) and self.follower.is_made_from(value, "enum.Enum", "enum.IntEnum", "enum.StrEnum"):
                members = self.follower.members(value)
                self._choose(shape, [plain(member) for member in members])
                return
        shape.unread = ast.unparse(annotation)

    def _choose(self, shape: Shape, values: list[Any]) -> None:
        if any(value is HIDDEN for value in values):
            shape.unread = "choices"
            return
        shape.choices += tuple(value for value in dict.fromkeys(values) if value not in shape.choices)
        self._kinds(shape, *("null" if value is None else type(value).__name__ for value in values))

    @staticmethod
    def _kinds(shape: Shape, *kinds: str) -> None:
        if shape.kinds is not None:
            shape.kinds |= {*kinds}


def _is_field(name: str, annotation: ast.expr | None = None) -> bool:
    return not name.startswith("_") and name != "model_config" and not (annotation and "ClassVar" in ast.unparse(annotation))


def _called(mark: ast.expr) -> str:
    name = mark.func if isinstance(mark, ast.Call) else mark
    return name.id if isinstance(name, ast.Name) else name.attr if isinstance(name, ast.Attribute) else ""


def _plain_words(words: dict[str, Values]) -> dict[str, Any]:
    """The words of a call that are plain values."""
    found = {name: plain(values) for name, values in words.items()}
    return {name: value for name, value in found.items() if value is not HIDDEN}


def _plain_entries(values: Values) -> dict[str, Any]:
    """The plain entries of a dict."""
    return {name: value for each in values if isinstance(each, Mapping) for name, value in _plain_words(each.entries).items()}
