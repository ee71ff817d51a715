"""The pull request to SchemaStore that `scripts/schemastore.py` writes keeps the rules that SchemaStore's own check enforces."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("schemastore", ROOT / "scripts/schemastore.py")
assert SPEC is not None
assert SPEC.loader is not None
schemastore = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(schemastore)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("schemastore")
    schemastore.write(folder)
    return folder


def test_the_schema_is_named_as_its_file(written: Path) -> None:
    """`cli.js` requires a known draft, an https address as `$id`, a file name in lower case and no byte order mark."""
    (file,) = (written / "src/schemas/json").iterdir()
    assert re.fullmatch(r"[a-z0-9.-]+\.json", file.name)
    assert not file.read_bytes().startswith(b"\xef\xbb\xbf")
    schema = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_without_repetition)
    Draft7Validator.check_schema(schema)
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert schema["$id"] == f"https://www.schemastore.org/{file.name}"
    assert schema["title"]
    assert schema["description"]


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    assert len({key for key, _ in pairs}) == len(pairs)
    return dict(pairs)


def test_documents_are_accepted_and_rejected_as_their_folders_say(written: Path) -> None:
    schema = json.loads((written / f"src/schemas/json/{schemastore.NAME}.json").read_text(encoding="utf-8"))
    judge = Draft7Validator(schema)
    for folder, accepted in (("test", True), ("negative_test", False)):
        files = sorted((written / f"src/{folder}/{schemastore.NAME}").iterdir())
        assert files
        assert {file.name: judge.is_valid(json.loads(file.read_text(encoding="utf-8"))) for file in files} == {
            file.name: accepted for file in files
        }


def test_the_entry_of_the_catalog() -> None:
    """`cli.js` refuses an entry that calls itself a schema, repeats a pattern, or has a pattern for every file of an ending."""
    entry = schemastore.catalog_entry()
    assert set(entry) == {"name", "description", "fileMatch", "url"}
    assert not re.search(r"schema", f"{entry['name']} {entry['description']}", re.IGNORECASE)
    assert len(set(entry["fileMatch"])) == len(entry["fileMatch"])
    assert not {"*.json", "**/*.json", "config.json", "**/config.json"} & set(entry["fileMatch"])
    assert entry["url"].startswith("https://")


def test_the_catalog_of_a_clone_gets_the_entry_once_in_its_order(tmp_path: Path) -> None:
    catalog = tmp_path / "src/api/json/catalog.json"
    catalog.parent.mkdir(parents=True)
    catalog.write_text(json.dumps({"version": 1, "schemas": [{"name": "Azure"}, {"name": "zuul"}]}), encoding="utf-8")
    for _ in range(2):
        schemastore.write(tmp_path)
        names = [one["name"] for one in json.loads(catalog.read_text(encoding="utf-8"))["schemas"]]
        assert names == ["Azure", "DeepSpeed config", "zuul"]
