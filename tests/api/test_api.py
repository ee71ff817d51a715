"""`dslint.check` and `dslint.load`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dslint
from dslint.errors import UserError
from dslint.source.read import ReadError

TYPO: dict[str, Any] = {"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}}


def test_a_dict_and_a_file_give_the_same(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}}', encoding="utf-8")
    of_dict, of_file = dslint.check(TYPO), dslint.check(file)
    assert [d.code for d in of_dict] == [d.code for d in of_file] == ["DS102"]
    assert of_dict[0].path == "<dict>"
    assert of_dict[0].range is not None
    assert of_dict[0].range.start.line == 3


def test_facts_and_rules_are_heeded() -> None:
    config = {"train_batch_size": 12}
    assert dslint.check(config) == []
    assert [d.code for d in dslint.check(config, world_size=8)] == ["DS201"]
    assert dslint.check(TYPO, ignore=["DS102"]) == []
    assert dslint.check(TYPO, select=["offload-param-below-stage-3"]) == []
    assert [d.code for d in dslint.check({**config, "bf16": {"enabled": "auto"}}, integration="lightning")] == ["DS901"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"integration": "megatron"}, ValueError),
        ({"deepspeed": "latest"}, ValueError),
        ({"world_size": 0}, ValueError),
        ({"select": ["no-such-rule"]}, ValueError),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        dslint.check(TYPO, **arguments)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"fp16": {"enabled": object}}, "fp16.enabled"),
        ({"optimizer": {"params": {"betas": [0.9, {1, 2}]}}}, "optimizer.params.betas.1"),
        ({1: 2}, "not a string"),
    ],
)
def test_what_json_has_no_form_for(config: dict[Any, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        dslint.check(config)


def test_load_gives_what_deepspeed_uses(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(
        """{"train_batch_size": 64, "gradient_accumulation_steps": 2, // hjson
        "zero_optimization": {"stage": "2", "cpu_offload": true, "reduce_bucket_size": 5e8}, "bf16": {"enabled": "auto"}, "no_such_key": 1}""",
        encoding="utf-8",
    )
    config = dslint.load(file, world_size=8, integration="deepspeed")
    assert config.train_micro_batch_size_per_gpu == 4
    assert config.zero_optimization.stage == 2
    assert config.zero_optimization.reduce_bucket_size == 500_000_000
    assert config.zero_optimization.offload_optimizer is not None
    assert config.zero_optimization.offload_optimizer.device == "cpu"
    assert config.bf16 is None or config.bf16.enabled is False
    assert config.gradient_clipping == 1.0


def test_load_refuses_what_deepspeed_refuses() -> None:
    with pytest.raises(dslint.ConfigError) as refused:
        dslint.load({"train_micro_batch_size_per_gpu": 4, "amp": None})
    assert [d.code for d in refused.value.diagnostics] == ["DS109"]
    assert "amp" in str(refused.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ReadError):
        dslint.check("no/such/file.json")


def test_a_file_is_checked_with_what_its_settings_suppress(tmp_path: Path) -> None:
    text = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}, "bf61": {}}'
    (tmp_path / "ds.json").write_text(text, encoding="utf-8")
    (tmp_path / "dslint.toml").write_text(
        'per-file-ignores = {"*.json" = ["DS102"]}\n[[ignores]]\nfile = "ds.json"\nrules = ["DS501"]\nreason = "known"\n', encoding="utf-8"
    )
    assert dslint.check(tmp_path / "ds.json", integration="deepspeed") == []
    (tmp_path / "dslint.toml").unlink()
    assert [d.code for d in dslint.check(tmp_path / "ds.json", integration="deepspeed")] == ["DS501", "DS102"]


BROKEN = {"train_micro_batch_size_per_gpu": "4", "zero_optimisation": {"stage": 2}}


def test_fix_gives_the_fixed_config_and_changes_nothing_that_it_is_given() -> None:
    given = {**BROKEN, "zero_optimisation": {"stage": 2}}
    safe = dslint.fix(given, integration="deepspeed")
    assert safe.config == {"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 2}}
    assert ([d.code for d in safe.fixed], [d.code for d in safe.left]) == (["DS104"], ["DS102"])
    both = dslint.fix(given, integration="deepspeed", unsafe=True)
    assert both.config == {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}
    assert both.left == ()
    assert given == BROKEN


def test_fix_takes_a_text_and_keeps_its_comments() -> None:
    text = "{ // ours\n  train_micro_batch_size_per_gpu: 4\n  zero_optimization: {stage: '2'}\n}\n"
    assert dslint.fix(text, integration="deepspeed").text == text
    assert dslint.fix('{"fp16": {"enabled": "maybe"}', integration="deepspeed").fixed == ()
    with pytest.raises(ValueError, match="syntax errors"):
        _ = dslint.fix('{"fp16": {', integration="deepspeed").config


def test_fix_writes_a_file_only_where_it_is_told_to(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    before = '{"train_micro_batch_size_per_gpu": "4", "gradient_clipping": "1.0"}'
    file.write_text(before, encoding="utf-8")
    (tmp_path / "dslint.toml").write_text(
        '[[ignores]]\nfile = "ds.json"\npointer = "gradient_clipping"\nrules = ["DS104"]\nreason = "x"\n', encoding="utf-8"
    )
    fixed = dslint.fix(file, integration="deepspeed")
    assert fixed.config == {"train_micro_batch_size_per_gpu": 4, "gradient_clipping": "1.0"}
    assert file.read_text(encoding="utf-8") == before
    assert dslint.fix(file, integration="deepspeed", write=True).text == file.read_text(encoding="utf-8") == fixed.text
    with pytest.raises(ValueError, match="path"):
        dslint.fix(before, write=True)


def test_a_file_and_a_dict_are_checked_with_the_settings_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"train_batch_size": 12, "zero_optimisation": {}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "dslint.toml").write_text('world-size = 8\nignore = ["DS102"]\n[severity]\nDS201 = "info"\n', encoding="utf-8")
    for source in (config, "ds.json"):
        assert [(d.code, d.severity.value) for d in dslint.check(source)] == [("DS201", "info")]
    monkeypatch.setenv("DSLINT_WORLD_SIZE", "4")
    assert dslint.check(config) == []
    assert [d.code for d in dslint.check(config, world_size=5)] == ["DS201"]


def test_a_training_is_checked_with_the_config_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 9}}', encoding="utf-8")
    (tmp_path / "run.sh").write_text("deepspeed train.py --deepspeed_config ds.json\n", encoding="utf-8")
    assert ("DS107", "ds.json") in [(d.code, d.path) for d in dslint.check("run.sh")]


def test_a_model_is_given_as_a_path_or_as_data(tmp_path: Path) -> None:
    model = {"model_type": "llama", "hidden_size": 4096, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(model), encoding="utf-8")
    config = {"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": True}}
    for given in (model, tmp_path, str(tmp_path / "config.json")):
        assert "DS325" in [d.code for d in dslint.check(config, model=given)]


def test_what_is_returned_is_short_and_has_a_table() -> None:
    found = dslint.check({"train_micro_batch_size_per_gpu": 4, "<b>": 1})
    assert [line.partition(" ")[0] for line in repr(found).splitlines()] == ["1", "<dict>:3:3:"]
    assert "<b>" not in found._repr_html_()
    assert "&lt;b&gt;" in found._repr_html_()
    assert repr(dslint.fix(BROKEN, integration="deepspeed")).splitlines()[0] == "1 fixed, 1 left"
    assert repr(dslint.check({"train_micro_batch_size_per_gpu": 4})) == "no findings"


def test_names_complete() -> None:
    assert {"check", "estimate", "fix", "guard", "load"} <= set(dir(dslint))


def test_an_estimate() -> None:
    numbers = {"params": 7e9, "hidden": 4096, "layers": 32, "vocabulary": 32000}
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
    found = dslint.estimate(config, world_size=8, workload=numbers)
    low, high = found.gpu
    assert 2**30 < low <= high
    assert dslint.estimate(config, world_size=64, workload=numbers).gpu[1] < high
    assert "GiB" in repr(found)
    with pytest.raises(TypeError, match="parms"):
        dslint.estimate(config, world_size=8, workload={"parms": 7e9})


def test_a_loaded_config_prints_what_differs_from_the_defaults() -> None:
    config = dslint.load({"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}, world_size=8)
    assert repr(config.zero_optimization) == "ZeroOptimization(stage=3)"
    assert "train_batch_size=32" in repr(config)
    assert len(repr(config)) < 200
    assert "<td>zero_optimization.stage</td><td>3</td>" in config._repr_html_()


class Arguments:
    """The attributes of a `TrainingArguments`, as far as dslint reads them."""

    def __init__(self, deepspeed: object) -> None:
        self.deepspeed = deepspeed
        self.world_size = 8
        self.per_device_train_batch_size = 4
        self.gradient_accumulation_steps = 2
        self.gradient_checkpointing = True


AUTO = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "zero_optimization": {"stage": 2, "cpu_offload": True},
}
MODEL = {"params": 7e9, "hidden": 4096, "layers": 32, "vocabulary": 32000}


def test_every_function_takes_training_arguments(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(AUTO), encoding="utf-8")
    for args in (Arguments(AUTO), Arguments(str(tmp_path / "ds.json"))):
        named = {"extend_select": ["DS111"]}
        assert {d.code for d in dslint.check(args, **named)} == {d.code for d in dslint.guard(args, **named)} == {"DS111"}
        loaded = dslint.load(args)
        assert (loaded.train_batch_size, loaded.train_micro_batch_size_per_gpu) == (64, 4)
        assert any("--activation-checkpointing is 1" in note for note in dslint.estimate(args, workload=MODEL).assumptions)
        assert [d.code for d in dslint.fix(args, unsafe=True, **named).fixed] == ["DS111"]
    for function in (dslint.load, dslint.fix):
        with pytest.raises(TypeError, match="no DeepSpeed config"):
            function(Arguments(None))


@pytest.mark.slow
def test_the_fastest_configs(tmp_path: Path) -> None:
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 8,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
    }
    found = dslint.fastest(config, model="llama-3-8b", world_size=8, gpu="h100", workload={"length": 2048})
    best = found.best[0]
    assert best.gain > 0
    assert best.seconds[0] < best.seconds[1]
    assert best.gpu[1] <= 80 * 2**30
    changed = tmp_path / "ds.json"
    changed.write_text(best.text, encoding="utf-8")
    again = dslint.fastest(changed, model="llama-3-8b", world_size=8, gpu="h100", workload={"length": 2048})
    assert repr(found).startswith("1. ")
    assert not dslint.check(changed, world_size=8).errors
    assert again.details.now.choice.stage == best.details.candidate.choice.stage
    with pytest.raises(UserError, match="No memory limit"):
        dslint.fastest(config, world_size=8, workload=MODEL)


def test_load_and_estimate_take_a_training_as_the_commands_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(json.dumps(AUTO), encoding="utf-8")
    (tmp_path / "train.yaml").write_text("base_model: m\nmicro_batch_size: 2\ndeepspeed: ds.json\n", encoding="utf-8")
    assert dslint.load("train.yaml", world_size=8).train_batch_size == 16
    assert dslint.estimate("train.yaml", world_size=8, workload=MODEL).gpu[0] > 2**30
    (tmp_path / "plain.py").write_text("print(1)\n", encoding="utf-8")
    for function in (dslint.load, dslint.estimate):
        with pytest.raises(UserError, match=r"plain\.py"):
            function("plain.py", workload=MODEL) if function is dslint.estimate else function("plain.py")


def test_a_program_is_fixed_where_it_writes_the_config(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(f"import deepspeed\nds = {AUTO | {'train_batch_size': 8}!r}\ndeepspeed.initialize(model=m, config=ds)\n")
    assert "DS111" in [d.code for d in dslint.fix(program, unsafe=True, write=True, extend_select=["DS111"]).fixed]
    assert "cpu_offload" not in program.read_text()
    plain = tmp_path / "plain.py"
    plain.write_text("print(1)\n")
    assert dslint.fix(plain, unsafe=True, write=True).text == plain.read_text() == "print(1)\n"


@pytest.mark.parametrize("function", [dslint.check, dslint.fix, dslint.load, dslint.estimate])
def test_errors_name_what_is_wrong(function: Callable[..., object]) -> None:
    with pytest.raises(ReadError, match=r"nowhere\.json: no such file"):
        function("nowhere.json")
    with pytest.raises(TypeError, match="a config is a dict, a path or a TrainingArguments, not int"):
        function(5)
    with pytest.raises(TypeError, match='Did you mean "world_size"'):
        function(AUTO, worldsize=8)
