"""Settings: where they come from, which of them counts, and what is refused."""

from __future__ import annotations

import builtins
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dslint.facts import NEWEST, Integration, Release
from dslint.facts.find_release import installed
from dslint.lint.discovery import Target
from dslint.lint.files import lint_all
from dslint.registry.rules import default_rules
from dslint.registry.selection import is_code_or_part
from dslint.settings import Finder, InForce, SettingsError, from_environment, from_options
from dslint.settings.sources import read_file
from dslint.settings.table import SETTINGS, json_schema
from tests.command import dslint

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}'


def finder(environment: dict[str, str] | None = None, **options: object) -> Finder:
    return Finder([from_environment(environment or {}), from_options({name.replace("_", "-"): value for name, value in options.items()})])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with settings at its top and others in a folder, and a config in each."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.dslint]\nworld-size = 8\ndeepspeed = "0.16"\n', encoding="utf-8")
    (tmp_path / "inner" / "deep").mkdir(parents=True)
    (tmp_path / "inner" / "dslint.toml").write_text('integration = "transformers"\nselect = ["DS5"]\n', encoding="utf-8")
    (tmp_path / "inner" / "pyproject.toml").write_text("[tool.dslint]\nworld-size = 3\n", encoding="utf-8")
    for folder in (tmp_path, tmp_path / "inner", tmp_path / "inner" / "deep"):
        (folder / "ds_config.json").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def test_the_nearest_file_counts_and_no_other(project: Path) -> None:
    top = finder().for_file(str(project / "ds_config.json"))
    assert (top.facts.world_size, top.facts.deepspeed) == (8, Release(0, 16, 9))
    for folder in ("inner", "inner/deep"):
        inner = finder().for_file(str(project / folder / "ds_config.json"))
        assert (inner.facts.world_size, inner.facts.deepspeed, inner.facts.integration) == (None, NEWEST, Integration.TRANSFORMERS)
        assert {rule.code[:3] for rule in inner.rules} == {"DS5"}


def test_a_pyproject_that_does_not_speak_of_dslint_is_passed_over(project: Path) -> None:
    (project / "inner" / "dslint.toml").unlink()
    (project / "inner" / "pyproject.toml").write_text('[project]\nname = "not TOML', encoding="utf-8")
    assert finder().for_file(str(project / "inner" / "x.json")).facts.world_size == 8


def test_environment_and_options_count_more(project: Path) -> None:
    settings = finder({"DSLINT_WORLD_SIZE": "16", "DSLINT_FAIL_ON": "error"}, fail_on="info").for_file(str(project / "x.json"))
    assert settings.in_force("world-size") == InForce(16, ("DSLINT_WORLD_SIZE",))
    assert settings.in_force("fail-on") == InForce("info", ("--fail-on",))
    assert settings.in_force("deepspeed").origins == (str(project / "pyproject.toml").replace(os.sep, "/"),)
    assert settings.in_force("select") == InForce(("ALL",), ())


def test_selecting_starts_afresh_and_extending_adds(tmp_path: Path) -> None:
    file = tmp_path / "dslint.toml"
    file.write_text('select = ["DS5", "DS6"]\nignore = ["DS501"]\nextend-ignore = ["DS502"]\n', encoding="utf-8")

    def codes(**options: object) -> set[str]:
        return {rule.code for rule in finder(**options).for_file(str(tmp_path / "x.json")).rules}  # type: ignore[arg-type]

    fives = {rule.code for rule in default_rules() if rule.code.startswith("DS5")}
    sixes = {rule.code for rule in default_rules() if rule.code.startswith("DS6")}
    assert codes() == (fives | sixes) - {"DS501", "DS502"}
    assert codes(select=("DS501",)) == {"DS501"}
    assert codes(ignore=("DS6",)) == fives - {"DS502"}
    assert codes(extend_ignore=("DS6",)) == fives - {"DS501", "DS502"}
    assert codes(extend_select=("DS001",)) == codes() | {"DS001"}


def test_the_more_precise_word_counts() -> None:
    chosen = finder(select=("offload-param-below-stage-3",), ignore=("DS5",)).for_directory("/").rules
    assert [rule.code for rule in chosen] == ["DS501"]
    assert "DS501" not in {rule.code for rule in finder(select=("DS5",), ignore=("DS501",)).for_directory("/").rules}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("world-siz = 8", 'unknown setting "world-siz". Did you mean "world-size"?'),
        ("world_size = 8", 'Did you mean "world-size"?'),
        ('world-size = "8"', '"8" must be a positive integer'),
        ("world-size = true", "true must be a positive integer"),
        ("world-size = 0", "0 must be a positive integer"),
        ("deepspeed = 0.16", 'write "0.16"'),
        ('deepspeed = "0.8..0.16.0"', "starts before DeepSpeed 0.9.0"),
        ('deepspeed = "new"', "is not a DeepSpeed release"),
        ('integration = "transformer"', 'Did you mean "transformers"?'),
        ('select = "DS5"', "must be a list of strings"),
        ('select = ["offload-parm-below-stage-3"]', 'Did you mean "offload-param-below-stage-3"?'),
        ('severity = {DS501 = "eror"}', 'Did you mean "error"?'),
        ('severity = {DS9999 = "error"}', 'unknown rule "DS9999"'),
        ('per-file-ignores = ["a"]', "must be a table"),
        ('force-exclude = "yes"', "must be true or false"),
        ("ignores = {}", "[[tool.dslint.ignores]]"),
        ('[[ignores]]\nfile = "a.json"\nrules = ["DS501"]', "missing reason"),
        ('[[ignores]]\nfile = "a.json"\nreason = "x"', "missing rules"),
        ('[[ignores]]\nfile = "a.json"\nrules = ["DS5"]\nreason = "x"', "DS5"),
        ('[[ignores]]\nfile = "a.json"\nrules = ["DS501"]\nreason = " "', "reason must be a string"),
        ('[[ignores]]\nfile = "a.json"\nrules = ["DS501"]\nreason = "x"\nline = 3', "unknown key 'line'"),
        ("world-size = ", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_and_ends_the_run(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "dslint.toml").write_text(text, encoding="utf-8")
    (tmp_path / "ds_config.json").write_text(CONFIG, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        finder().for_file(str(tmp_path / "ds_config.json"))
    assert words in str(caught.value)
    assert "dslint.toml" in str(caught.value)


def test_the_command_line_says_so_too(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "dslint.toml").write_text("world-siz = 8", encoding="utf-8")
    done = dslint("check", "ds_config.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == 'dslint: dslint.toml: unknown setting "world-siz". Did you mean "world-size"? `dslint config` lists all settings.\n'
    )
    assert dslint("check", "ds_config.json", "--isolated", cwd=tmp_path).returncode == 1
    done = dslint("check", "ds_config.json", "--isolated", cwd=tmp_path, env={"DSLINT_WORLDSIZE": "8"})
    assert done.returncode == 2
    assert 'Did you mean "DSLINT_WORLD_SIZE"?' in done.stderr


@pytest.mark.parametrize("name", ["missing.toml", "folder.toml", "binary.toml"])
def test_a_settings_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "ds_config.json").write_text(CONFIG, encoding="utf-8")
    done = dslint("check", "ds_config.json", "--config", name, cwd=tmp_path)
    assert done.returncode == 2
    assert name in done.stderr
    deep = tmp_path / "deep.toml"
    deep.write_text("ignore = " + "[" * 5000, encoding="utf-8")
    with pytest.raises(SettingsError):
        read_file(str(deep))


def test_severities_and_fail_on_are_those_of_each_file(project: Path) -> None:
    (project / "inner" / "dslint.toml").write_text('severity = {DS5 = "info", DS501 = "error"}\nfail-on = "error"\n', encoding="utf-8")
    done = dslint("check", "inner/ds_config.json", "--output-format", "json", cwd=project)
    found = json.loads(done.stdout)["diagnostics"]
    assert [(d["code"], d["severity"], d["effect"]) for d in found if d["code"] == "DS501"] == [("DS501", "error", "ignored")]
    assert done.returncode == 1
    assert "may ignore" not in dslint("check", "inner/ds_config.json", "--severity", "DS501=info", cwd=project).stdout
    assert dslint("check", "inner/ds_config.json", "--severity", "DS501=warning", cwd=project).returncode == 0
    assert dslint("check", "inner", "ds_config.json", "--severity", "DS501=warning", cwd=project).returncode == 1


def test_per_file_ignores_and_patterns_start_from_their_file(project: Path) -> None:
    (project / "pyproject.toml").write_text(
        '[tool.dslint]\nper-file-ignores = {"inner/**" = ["DS501"], "/ds_config.json" = ["DS5"]}\nexclude = ["deep/"]\n', encoding="utf-8"
    )
    for name in ("dslint.toml", "pyproject.toml"):
        (project / "inner" / name).unlink()
    done = dslint("check", "--output-format", "json", cwd=project / "inner")
    data = json.loads(done.stdout)
    assert [file["path"] for file in data["files"]] == ["ds_config.json"]
    assert "DS501" not in {d["code"] for d in data["diagnostics"]}
    named = dslint("check", "inner/deep/ds_config.json", "--output-format", "json", cwd=project)
    assert len(json.loads(named.stdout)["files"]) == 1
    forced = dslint("check", "inner/deep/ds_config.json", "--force-exclude", cwd=project)
    assert (forced.returncode, forced.stdout, forced.stderr) == (0, "", "")


def test_include_replaces_the_usual_names(project: Path) -> None:
    (project / "inner" / "deep" / "ds.conf").write_text(CONFIG, encoding="utf-8")
    done = dslint("check", ".", "--include", "*.conf", "--output-format", "json", cwd=project)
    assert [file["path"] for file in json.loads(done.stdout)["files"]] == ["inner/deep/ds.conf"]


def test_config_prints_what_is_in_force_and_whence(project: Path) -> None:
    done = dslint("config", "inner/ds_config.json", "--world-size", "4", cwd=project, env={"DSLINT_FAIL_ON": "error"})
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["world-size"] == ["4", "--world-size"]
    assert rows["fail-on"] == ['"error"', "DSLINT_FAIL_ON"]
    assert rows["integration"] == ['"transformers"', "inner/dslint.toml"]
    assert rows["deepspeed"] == [
        f'"{NEWEST}"',
        *(["default"] if installed() is None else ["this", "environment", "has", "deepspeed", str(NEWEST)]),
    ]
    assert list(rows) == list(SETTINGS)
    data = json.loads(dslint("config", "--output-format", "json", cwd=project).stdout)
    assert data["deepspeed"] == {"value": "0.16.9", "origins": ["pyproject.toml"]}


def test_the_schema_takes_what_dslint_takes(tmp_path: Path) -> None:
    schema = json_schema()
    validator = jsonschema.Draft7Validator(schema)
    validator.check_schema(schema)
    text = """
    world-size = 8
    integration = "accelerate"
    deepspeed = "0.16"
    select = ["ALL"]
    ignore = ["DS5", "ds501", "syntax-error"]
    severity = {DS501 = "error"}
    per-file-ignores = {"a/*" = ["DS5"]}
    exclude = ["old/"]
    force-exclude = true
    output-format = "sarif"
    baseline = "known.json"
    [[ignores]]
    file = ["a.json"]
    rules = ["DS501"]
    pointer = "zero_optimization"
    reason = "because"
    """
    (tmp_path / "dslint.toml").write_text(text, encoding="utf-8")
    assert read_file(str(tmp_path / "dslint.toml")) is not None
    validator.validate(tomllib.loads(text))
    for wrong in ({"world_size": 8}, {"world-size": 0}, {"select": "DS5"}, {"integration": "x"}, {"ignores": [{"file": "a", "rules": []}]}):
        assert not validator.is_valid(wrong), wrong


def test_the_committed_schema_is_fresh() -> None:
    committed = Path(__file__).resolve().parents[2] / "docs" / "settings.schema.json"
    assert json.loads(committed.read_text(encoding="utf-8")) == json_schema()


def test_a_file_that_settings_name_is_read_once_for_all_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dslint.toml").write_text('policy = "team.json"\nmodel = "config.json"\n', encoding="utf-8")
    (tmp_path / "team.json").write_text("{}", encoding="utf-8")
    (tmp_path / "config.json").write_text('{"hidden_size": 64}', encoding="utf-8")
    targets = [Target(str(tmp_path / f"run{number}" / "ds.json"), named=True) for number in range(30)]
    for target in targets:
        Path(target.path).parent.mkdir()
        Path(target.path).write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    opened: list[str] = []

    def counting(through: Any) -> Any:
        def count(path: object, *arguments: object, **more: object) -> Any:
            opened.append(Path(path).name if isinstance(path, str | Path) else "")
            return through(path, *arguments, **more)

        return count

    monkeypatch.setattr(builtins, "open", counting(open))
    monkeypatch.setattr(os, "open", counting(os.open))
    assert len(lint_all(targets, Finder(), jobs=1)) == 30
    assert {name: opened.count(name) for name in ("dslint.toml", "team.json", "config.json", "ds.json")} == {
        "dslint.toml": 1,
        "team.json": 1,
        "config.json": 1,
        "ds.json": 30,
    }


def test_per_file_ignores_count_as_suppressed(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.dslint]\nper-file-ignores = {"/ds_config.json" = ["DS5"]}\n', encoding="utf-8")
    data = json.loads(dslint("check", "ds_config.json", "--output-format", "json", cwd=project).stdout)
    assert [(d["code"], d["suppression"]["by"]) for d in data["suppressed"]] == [("DS501", "settings")]
    assert data["summary"]["suppressed"] == 1
    assert "suppressed" in dslint("check", "ds_config.json", cwd=project).stdout


@pytest.mark.parametrize(
    ("word", "is_one"),
    [
        ("DS5", True),
        ("ds501", True),
        ("DSP", True),
        ("dsp01", True),
        ("DS", False),
        ("DS5011", False),
        ("DS5x1", False),
        ("dead-key", False),
    ],
)
def test_what_has_the_form_of_a_code_or_its_first_part(word: str, is_one: bool) -> None:
    assert is_code_or_part(word) is is_one
