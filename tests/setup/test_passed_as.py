"""How the program passes the config decides how its numbers are read: DeepSpeed reads `1e3` in a file as an integer, and gets a float in a dict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import dslint
from dslint.facts import Facts, Integration, PassedAs, Release
from dslint.lint.document import lint_document
from dslint.registry.rules import default_rules
from dslint.source.parse import parse
from tests.engine.harness import Case, Engine
from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1e3}}}'
INTEGER = CONFIG.replace("1e3", "1000")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path)


PROGRAM = "import json, hjson, deepspeed\n"
BY_PATH = {
    "the path": PROGRAM + "deepspeed.initialize(model=m, config='ds.json')\n",
    "read with hjson": PROGRAM + "deepspeed.initialize(model=m, config=hjson.load(open('ds.json')))\n",
    "changed after hjson": PROGRAM
    + "ds = hjson.load(open('ds.json'))\nds['steps_per_print'] = 5\ndeepspeed.initialize(model=m, config=ds)\n",
}
AS_DICT = {
    "read with json": PROGRAM + "deepspeed.initialize(model=m, config=json.load(open('ds.json')))\n",
    "changed after json": PROGRAM
    + "ds = json.load(open('ds.json'))\nds['steps_per_print'] = 5\ndeepspeed.initialize(model=m, config=ds)\n",
    "written in the program": PROGRAM + f"deepspeed.initialize(model=m, config={CONFIG})\n",
    "given to the Trainer": "from transformers import TrainingArguments\nTrainingArguments(output_dir='o', deepspeed='ds.json')\n",
}


def step_counts(folder: Folder, files: Mapping[str, str], **asked: str) -> set[tuple[str, str]]:
    """Codes and severities of what is found at the step count."""
    folder.write(files)
    found = folder.diagnostics(*([] if asked else [next(iter(files))]), **asked)  # type: ignore[arg-type]
    return {(d.code, d.severity) for d in found if d.code in ("DS104", "DS105")}


@pytest.mark.parametrize("way", BY_PATH)
def test_a_float_step_count_in_a_file_is_an_integer(folder: Folder, way: str) -> None:
    assert step_counts(folder, {"train.py": BY_PATH[way], "ds.json": CONFIG}) == set()


@pytest.mark.parametrize(
    ("way", "said", "severity"),
    [
        (BY_PATH["the path"], 'DeepSpeed raises "Duplicate keys in DeepSpeed config".', "error"),
        (AS_DICT["read with json"], "which keeps the last value and silently drops the other.", "error"),
        (None, 'DeepSpeed may raise "Duplicate keys in DeepSpeed config".', "warning"),
    ],
)
def test_only_deepspeeds_own_reader_refuses_a_duplicate_key(folder: Folder, way: str | None, said: str, severity: str) -> None:
    folder.write({"ds.json": CONFIG.replace('"stage": 1', '"stage": 1, "stage": 2')} | ({"train.py": way} if way else {}))
    (found,) = [d for d in folder.diagnostics("train.py" if way else "ds.json") if d.code == "DS003"]
    assert found.message.endswith(said)
    assert found.severity == severity


@pytest.mark.parametrize("way", AS_DICT)
def test_a_float_step_count_in_a_dict_raises(folder: Folder, way: str) -> None:
    assert step_counts(folder, {"train.py": AS_DICT[way], "ds.json": CONFIG}) == {("DS104", "error")}
    assert step_counts(folder, {"train.py": AS_DICT[way].replace("1e3", "1000"), "ds.json": INTEGER}) == set()


def test_the_launchers_flag_names_a_path(folder: Folder) -> None:
    folder.write({"ds.json": CONFIG})
    assert step_counts(folder, {"ds.json": CONFIG}, command="deepspeed train.py --deepspeed_config ds.json") == set()


def test_the_program_behind_the_flag_may_read_it_itself(folder: Folder) -> None:
    program = PROGRAM + "import argparse\np = argparse.ArgumentParser()\np.add_argument('--deepspeed_config')\nargs = p.parse_args()\n"
    program += "deepspeed.initialize(model=m, config=json.load(open(args.deepspeed_config)))\n"
    found = step_counts(folder, {"train.py": program, "ds.json": CONFIG}, command="deepspeed train.py --deepspeed_config ds.json")
    assert found == {("DS104", "error")}


def test_a_file_that_nothing_names_is_said_to_depend(folder: Folder) -> None:
    assert step_counts(folder, {"ds.json": CONFIG}) == {("DS105", "info")}
    assert step_counts(folder, {"ds.json": INTEGER}) == set()


def test_the_api_takes_a_dict() -> None:
    assert {d.code for d in dslint.check(json.loads(CONFIG)) if "warmup_num_steps" in d.message} == {"DS104"}
    assert {d.code for d in dslint.check(json.loads(INTEGER)) if "warmup_num_steps" in d.message} == set()


SEQUENCE = '{"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": "2"}'


@pytest.mark.parametrize(
    ("release", "passed_as", "expected"),
    [
        ("0.19.8", PassedAs.PATH, ["crash"]),  # since 0.18.6 DeepSpeed reads a file into a dict first
        ("0.19.8", PassedAs.DICT, ["crash"]),
        ("0.18.5", PassedAs.PATH, ["silent"]),
        ("0.18.5", PassedAs.DICT, []),  # before 0.19.3 it suppresses the error
        ("0.18.5", None, []),
    ],
)
def test_the_sequence_parallel_size_of_a_file_is_read_since_0_18_6(release: str, passed_as: PassedAs | None, expected: list[str]) -> None:
    facts = Facts(4, Integration.DEEPSPEED, Release.parse(release), passed_as=passed_as)
    found = lint_document(parse(SEQUENCE), "ds.json", facts, default_rules()).diagnostics
    assert [d.effect for d in found if d.code in ("DS104", "DS105")] == expected


@pytest.mark.deepspeed
def test_deepspeed_reads_the_two_ways_so(engine: Engine) -> None:
    config = json.loads(CONFIG)
    by_path, as_dict = engine.ask(
        [
            Case("path", text=CONFIG, upto="initialize", optimizer=True),
            Case("dict", config=config, upto="initialize", optimizer=True),
        ]
    )
    assert by_path.error is None
    assert as_dict.phase == "initialize"
    assert "positive integer" in str(as_dict.error)


@pytest.mark.deepspeed
def test_a_sequence_parallel_size_divides_the_ranks_in_a_file_too(engine: Engine) -> None:
    text = '{"train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "sequence_parallel_size": 2}'
    assert [outcome.error for outcome in engine.ask([Case("path", text=text, world_size=4)])] == [None]
    facts = Facts(4, Integration.DEEPSPEED)
    assert not [d for d in lint_document(parse(text), "ds.json", facts, default_rules()).diagnostics if d.code == "DS201"]
    without = text.replace(', "sequence_parallel_size": 2', "")
    assert [d for d in lint_document(parse(without), "ds.json", facts, default_rules()).diagnostics if d.code == "DS201"]


def test_hjson_keeps_the_last_of_two_values(folder: Folder) -> None:
    """DeepSpeed refuses a duplicate key with a hook that a program does not pass."""
    twice = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "stage": 1}}'
    hook = BY_PATH["read with hjson"].replace("open('ds.json')", "open('ds.json'), object_pairs_hook=refuse")
    for program, said in (
        (BY_PATH["the path"], "raises"),
        (BY_PATH["read with hjson"], "with hjson, which keeps the last value"),
        (hook, "raises"),
    ):
        folder.write({"train.py": program, "ds.json": twice})
        (found,) = (one for one in folder.diagnostics("train.py") if one.code == "DS003")
        assert said in found.message
