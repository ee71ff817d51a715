"""Models, key table and exported schema say the same of every key."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ValidationError

from dslint.schemas import marks
from dslint.schemas.base import HandReadSection
from dslint.schemas.export import json_schema
from dslint.schemas.key_table import KEYS as TABLE
from dslint.schemas.optimizers import OPTIMIZERS, TypeSpec
from dslint.schemas.root import DeepSpeedConfig
from dslint.schemas.schedulers import SCHEDULERS
from dslint.schemas.walk import Key, keys_of
from tests.cases import table

from .samples import KEYS, document, dotted, fits, place, values_for

LIVE = [key for key in KEYS if not any("until" in TABLE.get(".".join(key.path[:length]), {}) for length in range(1, len(key.path) + 1))]
FIELDS = [key for key in LIVE if key.path[-1] not in ("*", "type") and not key.path[-1].endswith("[]")]
"""Without the two `type` keys, whose names the registries know: they have tests of their own."""


@cache
def validator(integration: str | None) -> Draft202012Validator:
    return Draft202012Validator(json_schema(integration))


def schema_takes(config: dict[str, Any], path: list[str | int], integration: str | None = "deepspeed") -> bool:
    """Whether the schema finds nothing wrong with the value at the path, whatever it says of its surroundings and of what is inside."""
    return not any(_about(error, path) for error in validator(integration).iter_errors(config))


def _about(error: Any, path: list[str | int]) -> bool:
    here = list(error.absolute_path)
    if error.validator != "anyOf":
        at_an_item = len(here) == len(path) + 1 and here[:-1] == path and isinstance(here[-1], int)
        return (here == path or at_an_item) and error.validator not in ("required", "additionalProperties")
    branches: dict[int, list[Any]] = {}
    for inner in error.context:
        branches.setdefault(inner.schema_path[0], []).append(inner)
    meant = [
        found
        for found in branches.values()
        if not any(inner.validator in ("type", "const", "enum") and _above(inner, path) for inner in found)
    ]
    return bool(meant) and all(any(_about(inner, path) for inner in found) for found in meant)


def _above(error: Any, path: list[str | int]) -> bool:
    here = list(error.absolute_path)
    return len(here) < len(path) and here == path[: len(here)]


def owner(key: Key) -> type[BaseModel]:
    """The model that has the field."""
    model: type[BaseModel] = DeepSpeedConfig
    for name in key.path[:-1]:
        if name == "*":
            continue
        shape = next(each for each in keys_of(model) if each.name == name.removesuffix("[]")).shape
        while shape.section is None:
            inner = shape.values or shape.items
            assert inner is not None
            shape = inner
        model = shape.section
    return model


def model_takes(model: type[BaseModel], key: Key, value: Any) -> bool:
    """Whether the model takes the value, typed strictly; what it says of the keys of a section does not count."""
    name = key.name.removesuffix("[]")
    if isinstance(value, dict) and (key.shape.section is not None or key.shape.values is not None):
        return True
    try:
        model.model_validate_json(json.dumps({name: value}), strict=True)
    except ValidationError as found:
        return not any(error["loc"][0] == name for error in found.errors())
    return True


@pytest.mark.slow
@table("key", FIELDS, ids=dotted)
def test_all_three_agree(key: Key) -> None:
    spec = TABLE[dotted(key)]
    model = owner(key)
    for value in values_for(key):
        by_table = fits(value, spec)
        where = (dotted(key), value)
        assert schema_takes(document(key.path, value), place(key.path)) == by_table, ("schema", *where)
        if unresolved(key, value, spec):
            continue
        assert model_takes(model, key, value) == by_table, ("model", *where)


def unresolved(key: Key, value: Any, spec: dict[str, Any]) -> bool:
    """Whether a value is one that does not occur after a config is resolved, which is what the models are for."""
    return (
        "folded" in spec
        or any(value == banned for banned, *_ in spec.get("forbids", ()))
        or (value is None and "null" in spec)
        or (isinstance(value, bool) and ("bool_for" in spec or "int" in spec["types"]))
        or (isinstance(value, str) and any(isinstance(mark, marks.StrStandsFor) for mark in key.shape.marks))
    )


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(-1e9, 1e9).filter(lambda number: number != int(number))
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.parametrize("count", [25, pytest.param(400, marks=pytest.mark.slow)])
def test_schema_and_table_agree_on_anything(count: int) -> None:
    @settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(key=st.sampled_from(FIELDS), value=ANYTHING)
    def agree(key: Key, value: Any) -> None:
        assert schema_takes(document(key.path, value), place(key.path)) == fits(value, TABLE[dotted(key)])

    agree()


SECTIONS = [key for key in LIVE if key.shape.section is not None]


@table("key", SECTIONS, ids=dotted)
def test_unknown_keys(key: Key) -> None:
    section = key.shape.section
    assert section is not None
    spec = TABLE[dotted(key)]
    config = document(key.path, {"xyzzy": 1})
    unknown = [
        error
        for error in validator("deepspeed").iter_errors(config)
        if "xyzzy" in str(error.message) or any("xyzzy" in e.message for e in error.context or ())
    ]
    assert bool(unknown) == (spec["unknown"] != "open")
    note = document(key.path, {"_comment": "a note"})
    left_alone = spec["unknown"] != "raise"
    found = [
        error
        for error in validator("deepspeed").iter_errors(note)
        if "_comment" in str(error.message) or any("_comment" in e.message for e in error.context or ())
    ]
    assert bool(found) == (not left_alone)
    assert issubclass(section, HandReadSection) == (spec["unknown"] != "raise")


@pytest.mark.parametrize("name", ["$schema", "_comment", "//", "// note", "comment", "Comments", "#"])
def test_notes_to_people_may_stand_at_the_top(name: str) -> None:
    assert validator(None).is_valid({name: "a note", "train_batch_size": 8})


@pytest.mark.parametrize("key", [key for key in FIELDS if key.also], ids=dotted)
def test_other_spellings(key: Key) -> None:
    for other in key.also:
        value = {} if key.shape.section else key.default
        assert validator("deepspeed").is_valid(document((*key.path[:-1], other), value))
        both = document(key.path[:-1], {key.name: value, other: value})
        assert not validator("deepspeed").is_valid(both)


@pytest.mark.parametrize("key", [key for key in KEYS if "until" in TABLE[dotted(key)] and len(key.path) == 1], ids=dotted)
def test_removed_keys_are_not_in_the_schema(key: Key) -> None:
    assert key.name not in json_schema()["properties"]


def test_defaults_are_valid() -> None:
    for key in FIELDS:
        spec = TABLE[dotted(key)]
        if "default" in spec and spec["default"] is not None:
            assert fits(spec["default"], spec), dotted(key)


def test_auto_is_where_the_integration_fills_it() -> None:
    def taken(path: str, integration: str | None) -> bool:
        keys = tuple(path.split("."))
        return schema_takes(document(keys, "auto"), place(keys), integration)

    for path, answers in {
        "train_batch_size": {"transformers": True, "accelerate": True, "lightning": False, "deepspeed": False, None: True},
        "zero_optimization.stage3_prefetch_bucket_size": {
            "transformers": True,
            "accelerate": True,
            "lightning": False,
            "deepspeed": False,
            None: True,
        },
        "zero_optimization.prefetch_bucket_size": {"transformers": False, "accelerate": False, "deepspeed": False, None: False},
        "zero_optimization.overlap_comm": {"transformers": False, "deepspeed": False, None: False},
        "zero_optimization.zenflow.select_interval": {
            "transformers": False,
            "accelerate": False,
            "lightning": True,
            "deepspeed": True,
            None: True,
        },
        "data_types.keep_in_fp32_modules": {"transformers": False, "accelerate": False, "lightning": True, "deepspeed": True, None: True},
    }.items():
        for integration, answer in answers.items():
            assert taken(path, integration) is answer, (path, integration)


@pytest.mark.parametrize("integration", [None, "transformers", "accelerate", "lightning", "deepspeed"])
def test_betas_of_the_optimizer(integration: str | None) -> None:
    config = {"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": "auto"}}}
    assert validator(integration).is_valid(config) == (integration in (None, "transformers"))


def test_the_schema_of_an_older_release() -> None:
    from dslint.facts import Release

    old = Draft202012Validator(json_schema(release=Release(0, 16, 9)))
    assert old.is_valid({"elasticity": {"enabled": False}, "train_batch_size": 8})
    assert not old.is_valid({"expert_parallel": {}, "train_batch_size": 8})
    assert old.is_valid({"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 400}}})
    assert not validator(None).is_valid({"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 400}}})
    assert old.schema["properties"]["gradient_clipping"]["default"] == 0.0
    assert old.is_valid({"zero_optimization": {"reduce_bucket_size": 0}})
    assert not validator(None).is_valid({"zero_optimization": {"reduce_bucket_size": 0}})
    older = Draft202012Validator(json_schema(release=Release(0, 12, 6)))
    assert older.is_valid({"communication_data_type": "bfp16"})
    assert not older.is_valid({"communication_data_type": "bf16"})


REGISTRY: list[tuple[str, str, TypeSpec]] = [
    (section, name, kind)
    for section, registry in (("optimizer", OPTIMIZERS), ("scheduler", SCHEDULERS))
    for name, kind in registry.items()
    if kind.until is None
]


@pytest.mark.parametrize(("section", "name", "kind"), REGISTRY, ids=[name for _, name, _ in REGISTRY])
def test_parameters_agree(section: str, name: str, kind: TypeSpec) -> None:
    from dslint.schemas import key_table

    specs = {"optimizer": key_table.OPTIMIZERS, "scheduler": key_table.SCHEDULERS}[section][name]["params"]
    keys = {key.name: key for key in keys_of(kind.params)}
    assert list(specs) == list(keys)
    needed: dict[str, Any] = {key.name: [3] if key.shape.kinds == ["list"] else 3 for key in keys.values() if key.required}
    takes = validator("deepspeed").is_valid
    spellings = {name, name.lower(), name.upper()} if kind.any_case else {name}
    for spelling in spellings:
        assert takes({section: {"type": spelling, "params": needed}}), spelling
    if not kind.any_case:
        assert not takes({section: {"type": name.upper() + "x", "params": needed}})
    assert takes({section: {"type": name, "params": {**needed, "xyzzy": 1}}}) is kind.open
    for missing in needed:
        assert not takes({section: {"type": name, "params": {other: value for other, value in needed.items() if other != missing}}})
    for key in keys.values():
        spec = specs[key.name]
        if "until" in spec:
            assert takes({section: {"type": name, "params": {**needed, key.name: 1.0}}}) is kind.open
            continue
        for value in values_for(key):
            where = (name, key.name, value)
            by_table = fits(value, spec)
            assert takes({section: {"type": name, "params": {**needed, key.name: value}}}) == by_table, ("schema", *where)
            if unresolved(key, value, spec):
                continue
            assert model_takes(kind.params, key, value) == by_table, ("model", *where)
