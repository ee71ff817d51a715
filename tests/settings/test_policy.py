"""A team's own policy: a JSON Schema, each breach at its key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import dslint

CONFIG = """\
{
  "train_micro_batch_size_per_gpu": 4,
  "gradient_clipping": 5.0,
  "zero_optimization": {
    "stage": 3
  }
}
"""
STRICT = {
    "required": ["gradient_clipping", "steps_per_print"],
    "properties": {
        "zero_optimization": {"properties": {"stage": {"const": 2, "description": "The cluster's network is too slow for stage 3."}}},
        "gradient_clipping": {"maximum": 1},
        "steps_per_print": {"description": "The dashboards read the log."},
        "wandb": False,
    },
}


def check(folder: Path, policy: Any, config: str = CONFIG, *options: str) -> list[tuple[str, int, str, str | None]]:
    (folder / "team.schema.json").write_text(policy if isinstance(policy, str) else json.dumps(policy), encoding="utf-8")
    (folder / "dslint.toml").write_text('policy = "team.schema.json"\nselect = ["policy-broken"]\n', encoding="utf-8")
    (folder / "ds.json").write_text(config, encoding="utf-8")
    done = dslint("check", "ds.json", "--output-format", "json", *options, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)["diagnostics"]
    assert {(d["code"], d["severity"]) for d in found} <= {("DS118", "error")}
    return [(d["pointer"], d["range"]["start"]["line"], d["message"], d["help"]) for d in found]


def test_each_breach_stands_at_its_key(tmp_path: Path) -> None:
    config = CONFIG.replace('"stage": 3\n  }', '"stage": 3\n  },\n  "wandb": {"enabled": true}')
    assert check(tmp_path, STRICT, config) == [
        (
            "/steps_per_print",
            1,
            "Policy team.schema.json requires steps_per_print.",
            "The dashboards read the log.",
        ),
        (
            "/gradient_clipping",
            3,
            "Policy team.schema.json rejects gradient_clipping: 5 is greater than the maximum of 1.",
            None,
        ),
        (
            "/zero_optimization/stage",
            5,
            "Policy team.schema.json requires zero_optimization.stage to be 2.",
            "The cluster's network is too slow for stage 3.",
        ),
        ("/wandb", 7, "Policy team.schema.json forbids wandb.", None),
    ]


def test_what_keeps_the_policy_is_quiet(tmp_path: Path) -> None:
    assert check(tmp_path, {"properties": {"zero_optimization": {"properties": {"stage": {"enum": [2, 3]}}}}}) == []


def test_only_named_keys(tmp_path: Path) -> None:
    policy = {"properties": {"gradient_clipping": True}, "patternProperties": {"^train_": True}, "additionalProperties": False}
    assert [pointer for pointer, *_ in check(tmp_path, policy)] == ["/zero_optimization"]


def test_a_reference_is_followed_within_the_policy_and_nowhere_else(tmp_path: Path) -> None:
    policy = {"$defs": {"low": {"maximum": 1}}, "properties": {"gradient_clipping": {"$ref": "#/$defs/low"}}}
    assert [pointer for pointer, *_ in check(tmp_path, policy)] == ["/gradient_clipping"]
    policy["properties"] = {"gradient_clipping": {"$ref": "https://policies.invalid/low.json"}}
    ((_, _, message, _),) = check(tmp_path, policy)
    assert "outside of itself" in message


def test_references_that_step_into_the_value_end(tmp_path: Path) -> None:
    small = {
        "properties": {"gradient_clipping": {"$ref": "#/$defs/small"}, "zero_optimization": {"$ref": "#"}},
        "$defs": {"small": {"maximum": 1}},
    }
    assert [pointer for pointer, *_ in check(tmp_path, small)] == ["/gradient_clipping"]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "contains no object"),
        ('{"type": "objct"}', "at type, 'objct' is not valid"),
        ("[" * 100_000, "is not JSON"),
        ("\udcff", "UTF-8"),
    ],
)
def test_a_policy_that_is_none(tmp_path: Path, policy: str, said: str) -> None:
    (tmp_path / "team.schema.json").write_bytes(policy.encode("utf-8", "surrogateescape"))
    (tmp_path / "ds.json").write_text(CONFIG, encoding="utf-8")
    done = dslint("check", "ds.json", "--policy", "team.schema.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "the policy team.schema.json" in done.stderr
    assert said in done.stderr


def test_a_policy_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(CONFIG, encoding="utf-8")
    done = dslint("check", "ds.json", "--policy", "team.schema.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "team.schema.json" in done.stderr
