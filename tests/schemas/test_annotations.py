"""What the schema tells an editor: texts, the meaning of values, snippets; and the same schema in an older draft."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

import dslint
from dslint.facts import Release
from dslint.schemas import catalog, key_table
from dslint.schemas.drafts import Draft
from dslint.schemas.export import json_schema
from dslint.schemas.snippets import SNIPPETS, Snippet
from dslint.schemas.value_words import VALUE_WORDS

from .samples import KEYS, document, dotted, values_for

INTEGRATIONS = [None, "transformers", "accelerate", "lightning", "deepspeed"]


@cache
def validator(draft: Draft, integration: str | None = None) -> Any:
    return VALIDATORS[draft](json_schema(integration, draft=draft))


VALIDATORS: dict[Draft, Any] = {"07": Draft7Validator, "2020-12": Draft202012Validator}


FEW = (None, "transformers")
"""Those whose schemas differ most: to hold one to its draft takes half a second, and the others differ in where "auto" may stand."""


@pytest.mark.parametrize("integration", [pytest.param(one, marks=() if one in FEW else pytest.mark.slow) for one in INTEGRATIONS])
@pytest.mark.parametrize("draft", VALIDATORS)
def test_a_schema_is_one(draft: Draft, integration: str | None) -> None:
    VALIDATORS[draft].check_schema(json_schema(integration, draft=draft))


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema inside of a schema, itself included."""
    if isinstance(schema, list):
        for inner in schema:
            yield from parts(inner)
    elif isinstance(schema, dict):
        yield schema
        for key, inner in schema.items():
            if key not in ("default", "enum", "const", "defaultSnippets"):
                yield from parts(list(inner.values()) if key in ("properties", "patternProperties") else inner)


def test_every_description_is_there_as_plain_text_and_in_markdown() -> None:
    described = [part for part in parts(json_schema()) if "description" in part]
    assert len(described) > 300
    for part in described:
        assert "`" not in part["description"]
        assert part["markdownDescription"].replace("`", "").startswith(part["description"])
        assert part["description"].count("  ") == 0


def test_markdown_names_the_default_and_what_fills_auto() -> None:
    keys = at(json_schema(), "zero_optimization")["properties"]
    assert "\n\nDefault: `0`" in keys["stage"]["markdownDescription"]
    filled = keys["reduce_bucket_size"]["markdownDescription"]
    assert '- `"auto"` is filled by transformers: ' in filled
    assert '- `"auto"` is filled by accelerate: ' in filled
    assert "accelerate" not in json_schema("transformers")["properties"]["train_batch_size"]["markdownDescription"]
    assert "filled" not in json_schema("deepspeed")["properties"]["train_batch_size"]["markdownDescription"]


def test_every_value_of_a_fixed_set_is_explained() -> None:
    sets = [part for part in parts(json_schema()) if len(part.get("enum", ())) > 1 and "not" not in part]
    assert len(sets) > 20
    unexplained = [part["enum"] for part in sets if not all(part.get("enumDescriptions", [""]))]
    assert unexplained == []
    for part in sets:
        assert len(part["enumDescriptions"]) == len(part["markdownEnumDescriptions"]) == len(part["enum"])


def values_by_path() -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {path: {*spec.get("choices", ()), *spec.get("words", ())} for path, spec in key_table.KEYS.items()}
    found |= {f"{path}[]": set(spec["item_choices"]) for path, spec in key_table.KEYS.items() if "item_choices" in spec}
    for section, registry in (("optimizer", key_table.OPTIMIZERS), ("scheduler", key_table.SCHEDULERS)):
        for kind in registry.values():
            for name, spec in kind["params"].items():
                found.setdefault(f"{section}.params.{name}", set()).update(spec.get("choices") or ())
    return found


def test_exactly_the_values_of_a_key_are_explained() -> None:
    values = values_by_path()
    assert {path: set(words) for path, words in VALUE_WORDS.items()} == {path: values[path] for path in VALUE_WORDS}


EVERY = [pytest.param(path, snippet, id=f"{path or 'config'}: {snippet.label}") for path, of in SNIPPETS.items() for snippet in of]
BATCH = {"train_micro_batch_size_per_gpu": 4}


def completed(path: str, snippet: Snippet) -> dict[str, Any]:
    """A config with the snippet in its place."""
    inserted: dict[str, Any] = document(tuple(filter(None, path.split("."))), snippet.inserted())
    if path.startswith("zero_optimization."):
        inserted["zero_optimization"]["stage"] = 3
    if path == "scheduler":
        inserted["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-5}}
    return inserted if path == "" else BATCH | inserted


@pytest.mark.parametrize(("path", "snippet"), EVERY)
@pytest.mark.parametrize("draft", ["2020-12", "07"])
def test_a_snippet_is_valid(path: str, snippet: Snippet, draft: Draft) -> None:
    assert list(validator(draft, "deepspeed").iter_errors(completed(path, snippet))) == []


@pytest.mark.parametrize(("path", "snippet"), EVERY)
def test_check_finds_nothing_wrong_with_a_snippet(path: str, snippet: Snippet) -> None:
    found = dslint.check(completed(path, snippet), world_size=8, deepspeed="0.19.8")
    worse = [(one.code, one.message) for one in found if one.severity.value != "info"]
    expected = {"activation_checkpointing": {"DS701"}, "aio": {"DS507"}}.get(path, set())
    assert [one for one in worse if one[0] not in expected] == []


@pytest.mark.parametrize("release", ["0.9.0", "0.12.6", "0.16.3", "0.19.8"])
def test_snippets_of_a_release_are_valid_in_it(release: str) -> None:
    schema = json_schema("deepspeed", Release.parse(release))
    offered = [path for path in SNIPPETS if "defaultSnippets" in at(schema, path)]
    assert {"", "optimizer", "zero_optimization", "zero_optimization.offload_param"} <= set(offered)
    for path in offered:
        labels = {written["label"] for written in at(schema, path)["defaultSnippets"]}
        for snippet in SNIPPETS[path]:
            if snippet.label in labels:
                assert list(Draft202012Validator(schema).iter_errors(completed(path, snippet))) == [], (path, snippet.label)


def test_the_newest_release_has_every_snippet() -> None:
    schema = json_schema()
    for path, snippets in SNIPPETS.items():
        assert [written["label"] for written in at(schema, path)["defaultSnippets"]] == [snippet.label for snippet in snippets]


def at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The schema of a section."""
    for name in filter(None, path.split(".")):
        schema = schema["properties"].get(name, {"properties": {}})
        schema = next((branch for branch in schema.get("anyOf", ()) if "properties" in branch), schema)
    return schema


@pytest.mark.slow
def test_both_drafts_accept_the_same() -> None:
    for key in KEYS:
        if key.path[-1] == "type" or key.path[-1].endswith("[]"):
            continue
        for value in values_for(key)[::3]:
            config = document(key.path, value)
            assert validator("07", "deepspeed").is_valid(config) == validator("2020-12", "deepspeed").is_valid(config), (dotted(key), value)


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_draft_07_uses_no_newer_keyword(integration: str | None) -> None:
    schema = json_schema(integration, draft="07")
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    newer = {"dependentSchemas", "dependentRequired", "prefixItems", "unevaluatedProperties", "unevaluatedItems", "$defs", "minContains"}
    assert not [part for part in parts(schema) if newer & part.keys()]
    assert schema["$id"] != json_schema(integration)["$id"]
    one = {"zero_optimization": {"stage": 3, "max_live_parameters": 5}}
    both = {"zero_optimization": one["zero_optimization"] | {"stage3_max_live_parameters": 5}}
    assert validator("07", integration).is_valid(one)
    assert not validator("07", integration).is_valid(both)


def test_the_catalog_entry_has_an_address_only_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dslint.project.SITE", "")
    assert "url" not in catalog.entry()
    monkeypatch.setattr("dslint.project.SITE", "https://example.org/dslint")
    assert catalog.entry()["url"] == "https://example.org/dslint/schemas/ds_config.draft-07.schema.json"
