"""The near side of the probe: what is asked, what is put in, what is drawn and explained. Needs neither torch nor DeepSpeed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from dslint.config import resolve
from dslint.diagnostics import Diagnostic, Effect, Phase, Severity
from dslint.facts import Facts, Integration
from dslint.facts.gpus import GPUS
from dslint.facts.model_config import describe
from dslint.probe import depth, session
from dslint.probe.answer import Answer, Memory, RaisedError
from dslint.probe.explain import explain
from dslint.probe.filling import assignment, fill, micro_batch, ranks_of
from dslint.probe.launcher import launched
from dslint.probe.question import ProbedModel, Question
from dslint.probe.result import ComparedVariants, MemoryLimit, ProbeResult, SearchResult
from dslint.probe.safety import environment, override, redirect
from dslint.probe.search import MOST, largest
from dslint.probe.sizing import small, with_layers
from dslint.probe.trial import ProbeOptions, prepare
from dslint.probe.variants import variants
from dslint.report import probe_json, probe_page, timeline
from dslint.source.parse import parse
from tests.command import dslint
from tests.report.outputs import assert_valid

QUESTION = Question('{"train_micro_batch_size_per_gpu": 1}', world_size=8)
ENGINE = {"stage": 2, "dtype": "bfloat16", "optimizer": "FusedAdam", "wrapper": "W", "micro_batch": 1, "accumulation": 1}


def memory(peak: int, steady: int = 10) -> Memory:
    return Memory(steady, steady, {"initialize": steady, "forward": peak - 1, "backward": peak, "step": steady})


def ran(peak: int = 100, **more: Any) -> Answer:
    device = {"device": memory(peak), "host": memory(20)}
    given = {
        "device": "fake",
        "memory": device,
        "engine": ENGINE,
        "steps": 3,
        "states": 5,
        "model": "m",
        "versions": {"deepspeed": "0.19.8"},
    }
    return Answer(**{**given, **more})


def result(answer: Answer, limit: int | None = None) -> ProbeResult:
    return ProbeResult("c.json", QUESTION, answer, MemoryLimit(limit, "--limit") if limit else None)


def test_questions_and_answers_survive_the_pipe() -> None:
    asked = Question("{}", ((("a", "b"), [1]),), "fake", 4, 2, model=ProbedModel(function="m:f", paths=("p",)))
    assert Question.from_json(asked.to_json()) == asked
    from dataclasses import asdict

    answer = ran(redirected=(("k", "v"),), timeline=((1, 2, 3, "step"),), raised=RaisedError("step", "E", "t"))
    assert Answer.from_data(json.loads(json.dumps(asdict(answer)))) == answer


@pytest.mark.parametrize(
    ("answer", "limit", "code"),
    [
        (ran(), None, 0),
        (ran(), 100, 0),
        (ran(), 99, 4),
        (ran(raised=RaisedError("step", "E", "t")), None, 1),
        (ran(raised=RaisedError("step", "OutOfMemoryError", "t"), out_of_memory=True), None, 4),
        (Answer(unable="no torch"), None, 3),
    ],
)
def test_exit_codes(answer: Answer, limit: int | None, code: int) -> None:
    assert result(answer, limit).exit_code == code


def test_every_result_has_a_page_and_json() -> None:
    bad = ran(raised=RaisedError("initialize", "ValueError", "what\x1b[2J it said", "deepspeed/x.py:1 in f"))
    results = [result(ran(), 99), result(bad), result(Answer(unable="why")), result(ran(skipped=3, states=0))]
    found: list[ProbeResult | ComparedVariants | SearchResult] = [
        *results,
        SearchResult("c.json", 2, results[0], ((1, results[0]), (2, results[1]))),
    ]
    found.append(ComparedVariants("c.json", tuple(zip(variants(QUESTION, "stage=0,1,2,3"), results, strict=True))))
    for one in found:
        text = probe_page.page(one, color=False, width=80)
        assert "\x1b" not in text
        printed = probe_json.as_json(one)
        assert_valid(["probe", "--output-format=json"], printed)
        data = json.loads(printed)
        assert data["version"] == 1
        assert data["exit_code"] == one.exit_code
    assert "DeepSpeed raises in deepspeed.initialize" in probe_page.page(results[1], color=False, width=80)
    assert "no optimizer state was created" in " ".join(probe_page.page(results[3], color=False, width=80).split())


def test_the_picture_is_well_formed() -> None:
    points = ((1, 5, 9, "build"), (7, 60, 9, "forward"), (9, 100, 0, "backward"))
    picture = ET.fromstring(timeline.svg(ProbeResult("<&>.json", QUESTION, ran(timeline=points), MemoryLimit(120, "--limit"))))
    assert picture.tag.endswith("svg")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("zero_optimization", "offload_optimizer", "nvme_path"), "/data/nvme"),
        (("tensorboard", "output_path"), "logs"),
        (("csv_monitor", "output_path"), None),
        (("csv_monitor", "job_name"), "../../x"),
        (("flops_profiler", "output_file"), "/data/f.txt"),
    ],
)
def test_places_to_write_are_redirected(path: tuple[str, ...], value: Any) -> None:
    config: dict[str, Any] = {}
    override(config, path[:-1], {path[-1]: value})
    assert dict(redirect(config, "scratch")).keys() == {".".join(path)}
    section: Any = config
    for step in path:
        section = section[step]
    assert section == "job" or section.startswith("scratch")


def test_values_of_wrong_types_are_left_to_deepspeed() -> None:
    config: dict[str, Any] = {"tensorboard": [], "zero_optimization": {"offload_optimizer": {"nvme_path": 5}}, "csv_monitor": "x"}
    before = json.dumps(config)
    assert redirect(config, "scratch") == []
    assert json.dumps(config) == before


def test_libraries_keep_to_themselves() -> None:
    variables = environment("scratch")
    assert variables["WANDB_MODE"] == "offline"
    assert variables["TMPDIR"] == "scratch"


def test_overrides() -> None:
    assert assignment("fp16.enabled=true") == (("fp16", "enabled"), True)
    assert assignment("optimizer.type=Lion") == (("optimizer", "type"), "Lion")
    for wrong in ("fp16", "=1", "a..b=1"):
        with pytest.raises(ValueError, match=wrong):
            assignment(wrong)
    config: dict[str, Any] = {"train_batch_size": 8}
    for path, value in micro_batch(4):
        override(config, path, value)
    assert config == {"train_micro_batch_size_per_gpu": 4}


def test_autos_are_filled_as_the_integrations_do() -> None:
    text = '{"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}}'
    config = resolve(parse(text), Facts(integration=Integration.TRANSFORMERS))
    assert dict(fill(config, 64)) == {
        ("fp16", "enabled"): False,
        ("bf16", "enabled"): True,
        ("zero_optimization", "reduce_bucket_size"): 4096,
    }
    assert fill(resolve(parse(text), Facts(integration=Integration.DEEPSPEED)), 64) == []


def test_ranks_that_the_batch_sizes_say() -> None:
    text = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}'
    found = ranks_of(resolve(parse(text), Facts()))
    assert found is not None
    assert found[0] == 8
    assert ranks_of(resolve(parse('{"train_batch_size": 64}'), Facts())) is None


def test_launchers() -> None:
    place = launched({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"})
    assert place is not None
    assert (place.rank, place.world_size, place.variables["LOCAL_RANK"]) == (3, 8, "1")
    slurm = launched({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "7"})
    assert slurm is not None
    assert (slurm.rank, slurm.world_size) == (1, 2)
    for alone in ({}, {"RANK": "0", "WORLD_SIZE": "1"}, {"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}, {"RANK": "x", "WORLD_SIZE": "2"}):
        assert launched(alone) is None


@pytest.mark.parametrize("true", [1, 2, 3, 7, 8, 9, 1000])
def test_the_largest_that_fits(true: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= true

    assert largest(fits) == true
    assert len(tried) == len(set(tried))


def test_the_search_has_ends() -> None:
    assert largest(lambda _: False) is None
    assert largest(lambda _: True) == MOST


def test_depths_on_a_line_hold_and_others_do_not() -> None:
    def at(peak: int) -> Answer:
        return Answer(memory={"device": memory(peak)}, parameters=peak)

    straight = depth.line({n: at(1000 + 50 * n) for n in (2, 4, 8)}, 32)
    assert straight.answer.memory["device"].peak == 1000 + 50 * 32
    assert straight.holds is True
    assert straight.answer.parameters == 2600
    assert depth.line({n: at(1000 + n * n) for n in (2, 4, 8)}, 32).holds is False
    assert depth.line({n: at(n) for n in (2, 4)}, 32).holds is None


def test_models_are_cut_and_scaled() -> None:
    data = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 128256, "layer_types": ["full"] * 32}
    cut = with_layers(data, 3)
    assert (cut["num_hidden_layers"], len(cut["layer_types"])) == (3, 3)
    assert with_layers({"text_config": data}, 3)["text_config"]["num_hidden_layers"] == 3
    scaled, said = small(data)
    assert scaled["hidden_size"] // scaled["num_attention_heads"] == 128
    assert "2 of 32 layers" in said
    assert data["num_hidden_layers"] == 32


def test_comparisons() -> None:
    assert [one.name for one in variants(QUESTION, "micro-batch=1,2")] == ["micro batch 1", "micro batch 2"]
    assert [one.question.checkpointing for one in variants(QUESTION, "activation-checkpointing")] == [False, True]
    assert len(variants(QUESTION, "offload")) == 3
    assert variants(QUESTION, "zero_optimization.reduce_bucket_size=5,6")[1].question.overrides == (
        (("zero_optimization", "reduce_bucket_size"), 6),
    )
    for wrong in ("stage=4,5", "stage=1", "stage", "colour", "micro-batch=0,1", "a.b=1", "offload=1"):
        with pytest.raises(ValueError, match=r"requires at least two|unknown comparison"):
            variants(QUESTION, wrong)


def test_the_rule_that_quotes_the_exception_explains_it() -> None:
    def crash(code: str, message: str, phase: Phase, pointer: str = "") -> Diagnostic:
        return Diagnostic("c", code, code, Severity.ERROR, Effect.CRASH, phase, message, pointer=pointer)

    quoting = crash("A", 'DeepSpeed raises "modes cannot both be on".', Phase.PARSE)
    other = crash("B", "something else", Phase.PARSE)
    later = crash("C", 'DeepSpeed raises "modes cannot both be on".', Phase.STEP)
    assert explain(RaisedError("parse", "AssertionError", "Modes cannot  both be on"), [quoting, other, later]) == (quoting,)
    assert explain(RaisedError("parse", "ValueError", "no such thing"), [quoting, other, later]) == (quoting, other)
    named = crash("D", "is wrong", Phase.STEP, "/gradient_clipping")
    assert explain(RaisedError("step", "TypeError", "gradient_clipping is a str"), [later, named]) == (named,)


def test_without_torch_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    answer = session.ask(QUESTION, timeout=1, progress=lambda *_: None)
    assert answer.unable is not None
    assert "torch and deepspeed are not installed" in answer.unable
    assert 'pip install "deepspeed-lint[probe]"' in answer.unable
    assert result(answer).exit_code == 3


def test_without_transformers_a_model_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "transformers" else True)
    question = replace(QUESTION, model=ProbedModel(data={"model_type": "llama"}))
    assert session.missing(question) == "--model requires transformers: pip install transformers"
    assert session.missing(QUESTION) is None


def test_the_built_in_model_is_not_compared_with_a_gpu() -> None:
    no = dict.fromkeys(
        (
            "model_fn",
            "layers",
            "sequence_length",
            "micro_batch",
            "limit",
            "comparison",
            "searched",
            "snapshot",
            "place",
            "lora_rank",
            "lora_targets",
        )
    )
    given = {"device": "fake", "rank": 0, "activation_checkpointing": False, "zero_init": True, "assignments": (), "steps": 2}
    options = ProbeOptions(**no, **given, timeout=1, timeline=False)
    own = describe({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2})
    for model, limited in ((None, False), (own, True)):
        config = resolve(parse(QUESTION.text), Facts(gpu=GPUS["h100"], gpu_memory=GPUS["h100"].memory, model=model))
        setup = prepare("c.json", QUESTION.text, config, options)
        assert (setup.limit is not None) == limited
        assert any("does not show whether yours fits" in note for note in setup.notes) != limited


def test_the_program_without_torch(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    without = "import sys; sys.modules.update(torch=None, deepspeed=None); from dslint.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", without, "probe", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert done.returncode == 3
    assert "torch and deepspeed are not installed" in done.stdout
    assert 'pip install "deepspeed-lint[probe]"' in " ".join(done.stdout.split())
    assert not done.stderr


def test_no_place_for_a_scratch_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdtemp(**_: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(session, "missing", lambda _: None)
    monkeypatch.setattr("tempfile.mkdtemp", mkdtemp)
    answer = session.ask(QUESTION, timeout=1, progress=lambda *_: None)
    assert answer.unable is not None
    assert "Permission denied" in answer.unable
    assert "TMPDIR" in answer.unable


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--compare", "stage=1,2", "--search", "micro-batch"], "cannot be combined"),
        (["--plot", "a.gif"], "--plot writes .svg or .png"),
        (["--model-fn", "nowhere"], "package.module:function"),
        (["--model-fn", "nowhere:"], "package.module:function"),
        (["--world-size", "0"], "positive integer"),
        (["--limit", "lots"], "amount of memory"),
        (["--model", "none.json"], "no such file"),
        (["--layers", "4"], "--layers requires --model"),
        (["--rank", "3", "--world-size", "2"], "--rank 3 is out of range"),
        (["--set", "fp16"], "KEY=VALUE"),
        (["--search", "micro-batch", "--device", "fake"], "--limit"),
        (["--compare", "colour"], "unknown comparison"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, options: list[str], words: str) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    done = dslint("probe", path, *options)
    assert done.returncode == 2, done.stdout
    assert words in " ".join(done.stderr.split())


def test_what_is_no_config(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"model_type": "llama", "hidden_size": 1}', encoding="utf-8")
    assert dslint("probe", path).returncode == 2
    assert dslint("probe", tmp_path / "none.json").returncode == 2
    folder = dslint("probe", tmp_path)
    assert folder.returncode == 2
    assert "this is a directory" in folder.stderr


def test_real_ranks_make_one_run(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"train_micro_batch_size_per_gpu": 1}', encoding="utf-8")
    done = dslint("probe", path, "--compare", "stage=1,2", env={"RANK": "0", "WORLD_SIZE": "2"})
    assert done.returncode == 2
    assert "several runs" in " ".join(done.stderr.split())
