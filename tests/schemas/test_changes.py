"""What changed from release to release: the list, the pages, the command, and the schema of each release."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise

import jsonschema
import pytest

from dslint.facts import RELEASES, Release
from dslint.schemas.changes import after, changes
from dslint.schemas.export import json_schema
from dslint.schemas.key_table import KEYS
from tests.command import ROOT, dslint


def found(start: str, to: str) -> set[tuple[str, str, str]]:
    return {(str(c.release), c.key, c.kind) for c in changes(Release.parse(start), Release.parse(to))}


def test_the_well_known_ones_are_in_it() -> None:
    assert {
        ("0.19.3", "gradient_clipping", "default"),
        ("0.19.5", "zero_optimization.offload_optimizer.pin_memory", "default"),
        ("0.17.1", "fp16", "stricter"),
        ("0.17.6", 'optimizer.type: "Muon"', "new"),
        ("0.19.8", "elasticity", "gone"),
        ("0.19.7", 'optimizer.type: "OneBitAdam"', "gone"),
    } <= found("0.14.5", "0.19.8")


def test_each_change_comes_once_and_ranges_add_up() -> None:
    whole = found("0.9.0", "0.19.8")
    parts = [found(str(start), str(to)) for start, to in pairwise(RELEASES)]
    assert sum(map(len, parts)) == len(whole)
    assert set().union(*parts) == whole
    assert after(Release(0, 18, 9)) == Release(0, 19, 0)


def test_every_change_of_a_key_shows_in_the_schemas() -> None:
    def keys(release: Release) -> set[str]:
        properties: set[str] = set()

        def walk(node: object, path: str) -> None:
            if isinstance(node, dict):
                for name, inner in node.get("properties", {}).items():
                    properties.add(f"{path}{name}")
                    walk(inner, f"{path}{name}.")
                for word in ("anyOf", "items"):
                    for inner in node.get(word, []) if isinstance(node.get(word), list) else []:
                        walk(inner, path)

        walk(json_schema(None, release), "")
        return properties

    for release in (Release(0, 14, 5), Release(0, 16, 9), Release(0, 19, 8)):
        before, now = keys(Release(0, 9, 0)), keys(release)
        assert {c.key for c in changes(Release(0, 9, 0), release) if c.kind == "new" and ":" not in c.key} >= {
            key
            for key in now - before - {f"{name.rpartition('.')[0]}.{other}" for name in KEYS for other in KEYS[name].get("also", ())}
            if not any(key.startswith(f"{new}.") for new in now - before) and "bfloat16" not in key
        }


def test_the_command() -> None:
    done = dslint("schema", "--diff", "0.19.2", "0.19.3")
    assert "gradient_clipping: 1.0" in done.stdout
    assert dslint("schema", "--diff", "0.19.3", "0.19.2").returncode == 2
    old = json.loads(dslint("schema", "--deepspeed", "0.16.9").stdout)
    assert old["$id"] == "urn:dslint:deepspeed-config:0.16.9"
    assert "elasticity" in old["properties"]
    assert dslint("schema", "--deepspeed", "0.14..0.16").returncode == 2
    assert dslint("schema", "--output", "no/such/folder/x.json").returncode == 2


@pytest.mark.parametrize("release", [Release(0, 9, 0), pytest.param(Release(0, 12, 6), marks=pytest.mark.slow), Release(0, 17, 1)])
def test_each_schema_is_one(release: Release) -> None:
    """That of the newest release is held to both drafts beside its annotations."""
    jsonschema.Draft202012Validator.check_schema(json_schema(None, release))


def test_the_pages_are_fresh() -> None:
    done = subprocess.run([sys.executable, "scripts/upgrade_pages.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
