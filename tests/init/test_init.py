"""`dslint init` writes configs in which `check` finds nothing, that their loader reads and DeepSpeed runs."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from dslint.config import resolve
from dslint.diagnostics import Severity
from dslint.facts import NEWEST, Facts, Integration, Release
from dslint.facts.gpus import GIB, gpu_named
from dslint.lint.document import lint_text
from dslint.memory.estimate import Verdict, estimate
from dslint.memory.given import ModelRequest, model_of
from dslint.memory.plan import Workload
from dslint.memory.planning import make_plan
from dslint.registry.rules import default_rules, loaded_rules
from dslint.source.parse import parse
from dslint.starter.choice import Wanted
from dslint.starter.contents import start
from dslint.starter.text import as_hjson, as_json
from tests.command import ROOT, dslint
from tests.engine.harness import Case, Engine, Upto

FP32 = {"DS331"}
"""What is found in a config for a GPU on which DeepSpeed trains in fp32 alone: that it is fp32."""

RULES = tuple(rule for rule in loaded_rules() if not rule.pedantic)
RELEASES = [Release.parse(text) for text in ("0.9.5", "0.12.6", "0.14.5", "0.16.9", "0.18.9", "0.19.8")]
MODELS = [None, "gpt2", "llama-3-8b", "mixtral-8x7b", "llama-3-70b"]
MACHINES = [(None, None), (1, None), (1, "v100"), (1, "rtx4090"), (8, "a10g"), (8, "a100"), (64, "h100"), (4, "p100")]


SOME = 11
"""Of the cases that take long, every so many-th is fast: it shares no factor with the numbers of models, machines and releases."""


def grid() -> list[Any]:
    """Every integration on every machine with every model; the releases take turns."""
    cases = enumerate(product(Integration, MODELS, MACHINES))
    return [
        pytest.param(
            *(i, RELEASES[n % len(RELEASES)], m, w, g),
            id=f"{i.value}-{RELEASES[n % len(RELEASES)]}-{m}-{w}-{g}",
            marks=() if n % SOME == 0 else pytest.mark.slow,
        )
        for n, (i, m, (w, g)) in cases
    ]


def facts(integration: Integration, release: Release, world_size: int | None, gpu: str | None) -> Facts:
    known = gpu_named(gpu) if gpu else None
    return Facts(world_size, integration, release, gpu=known, gpu_memory=known.memory if known else None)


@pytest.mark.parametrize(("integration", "release", "model", "world_size", "gpu"), grid())
def test_check_finds_nothing(
    integration: Integration, release: Release, model: str | None, world_size: int | None, gpu: str | None
) -> None:
    given = facts(integration, release, world_size, gpu)
    found = model_of(ModelRequest(model)) if model else None
    starter = start(given, found.model if found else None)
    texts = [as_json(starter)] + ([as_hjson(starter)] if integration is Integration.DEEPSPEED else [])
    for text in texts:
        result = lint_text(text, "ds_config.json", given, RULES)
        assert result is not None
        assert [(d.code, d.message) for d in result.diagnostics if gpu != "p100" or d.code not in FP32] == [], text
        document = parse(text)
        assert not document.problems
    assert json.loads(texts[0]) == starter.config


@pytest.mark.parametrize("step", [SOME, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("stage", range(4))
@pytest.mark.parametrize("integration", Integration)
def test_a_given_stage_is_kept(integration: Integration, stage: int, step: int) -> None:
    for model, (world_size, gpu) in [*product(MODELS, MACHINES)][stage % step :: step]:
        given = facts(integration, NEWEST, world_size, gpu)
        config = start(given, model_of(ModelRequest(model)).model if model else None, Wanted(stage)).config
        assert config["zero_optimization"]["stage"] == stage
        result = lint_text(json.dumps(config), "ds_config.json", given, RULES)
        assert result is not None
        assert {d.code for d in result.diagnostics} <= {"DS409", *FP32}, result.diagnostics


@pytest.mark.parametrize(
    ("world_size", "gpu"),
    [(8, "a100"), *(pytest.param(*one, marks=pytest.mark.slow) for one in [(8, "a10g"), (64, "h100"), (1, "h100")])],
)
@pytest.mark.parametrize("model", [name for name in MODELS if name])
def test_what_is_said_to_fit_fits_and_nothing_faster_does(model: str, world_size: int, gpu: str) -> None:
    given = facts(Integration.TRANSFORMERS, NEWEST, world_size, gpu)
    shape = model_of(ModelRequest(model)).model
    assert given.gpu_memory is not None

    def fits(stage: int | None) -> tuple[int, bool]:
        starter = start(given, shape, Wanted(stage))
        config = resolve(parse(as_json(starter)), given)
        checkpointed = any("checkpoint" in note for note in starter.notes)
        expandable = any("expandable" in note for note in starter.notes)
        length = min(2048, shape.positions or 2048)
        workload = Workload(length, checkpoint_every=int(checkpointed), zero_init=True, expandable=expandable)
        needs = estimate(shape, make_plan(config, workload, shape.hidden, micro_batch=1, accumulation=1))
        assert given.gpu_memory is not None
        return config.value("zero_optimization.stage"), needs.verdict(given.gpu_memory) is Verdict.FITS

    chosen, chosen_fits = fits(None)
    if chosen_fits:
        assert "offload_optimizer" in start(given, shape).config["zero_optimization"] or not any(
            fits(stage)[1] and "offload_optimizer" not in start(given, shape, Wanted(stage)).config["zero_optimization"]
            for stage in range(1, chosen)
        )


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        (("--base-bits=4",), ("gradient_checkpointing=True", "load_in_4bit=True")),
        ((), ("gradient_checkpointing=True", "expandable_segments:True")),
    ],
)
def test_adapters_that_fit_are_not_offloaded(own_folder: None, options: tuple[str, ...], needs: tuple[str, ...]) -> None:
    """What costs nothing or little of the speed comes first: checkpointing, then expandable segments, then offloads."""
    known = ("--integration=transformers", "--model=Qwen/Qwen2.5-7B", "--gpu=rtx4090", "--world-size=1", "--lora-rank=16")
    done = dslint("init", "-", *known, *options)
    assert json.loads(done.stdout)["zero_optimization"] == {"stage": 0}
    said = " ".join(done.stderr.split())
    for one in ("gradient_checkpointing=True", "load_in_4bit=True", "expandable_segments:True"):
        assert (one in said) == (one in needs), done.stderr


@pytest.mark.slow
def test_experts_are_quantized_as_the_release_of_transformers_keeps_them(own_folder: None) -> None:
    """Its 4-bit experts fit on one GPU where each is a module of its own; transformers 5 stacks them, and they stay in 16 bits."""
    known = ("--model=mixtral-8x7b", "--gpu=a100-40gb", "--world-size=1", "--lora-rank=16", "--base-bits=4", "--sequence-length=2048")
    listed = dslint("init", "-", "--integration=transformers==4.57.0", *known)
    assert json.loads(listed.stdout)["zero_optimization"] == {"stage": 0}
    stacked = dslint("init", "-", "--integration=transformers==5.2.0", *known)
    assert json.loads(stacked.stdout)["zero_optimization"]["stage"] == 3


def test_a_long_sample_is_divided_before_anything_is_offloaded(own_folder: None) -> None:
    known = ("--integration=transformers", "--model=llama-3-8b", "--gpu=h100", "--world-size=8", "--sequence-length=131072")
    done = dslint("init", "-", *known)
    section = json.loads(done.stdout)["zero_optimization"]
    assert section["stage"] == 3
    assert not any("offload" in name for name in section)
    said = " ".join(done.stderr.split())
    assert 'ParallelismConfig(sp_backend="deepspeed", sp_size=8)' in said
    estimate_options = ("--model=llama-3-8b", "--gpu=h100", "--world-size=8", "--sequence-length=131072", "--sequence-parallel=8")
    Path("ds.json").write_text(done.stdout, encoding="utf-8")
    program = ("--activation-checkpointing", "--expandable-segments", "--micro-batch=1")
    assert dslint("estimate", "ds.json", *estimate_options, *program).stdout.startswith("Fits: ")


def test_bits_of_the_base_need_adapters(own_folder: None) -> None:
    done = dslint("init", "-", "--integration=transformers", "--base-bits=4")
    assert done.returncode == 2
    assert "--base-bits requires --lora-rank" in done.stderr


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--gpu=a100", "--world-size=8"), 0),
        (("--gpu=t4", "--world-size=1", "--host-memory=16GiB"), 4),
        (("--gpu=rtx4090", "--world-size=1", "--host-memory=16GiB"), 4),
        (("--gpu=rtx4090", "--world-size=1", "--host-memory=64GiB"), 0),
        (("--gpu=rtx4090", "--world-size=1", "--lora-rank=16", "--host-memory=64GiB"), 0),
        (("--gpu=a100", "--world-size=8", "--sequence-length=131072", "--micro-batch=64"), 4),
    ],
)
def test_what_does_not_fit_is_said_first_and_by_the_exit_code(tmp_path: Path, options: tuple[str, ...], code: int) -> None:
    done = dslint("init", tmp_path / "ds.json", "--isolated", "--integration=transformers", "--model=llama-3-8b", *options)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("This config does not fit") is (code == 4)


def test_the_samples_that_are_given_are_estimated(tmp_path: Path) -> None:
    options = ("--integration=deepspeed", "--model=gpt2", "--gpu=a100", "--world-size=8", "--sequence-length=512", "--micro-batch=3")
    done = dslint("init", tmp_path / "ds.json", "--isolated", *options)
    assert done.returncode == 0
    assert json.loads((tmp_path / "ds.json").read_text(encoding="utf-8"))["train_micro_batch_size_per_gpu"] == 3
    assert "3 samples of 512 tokens" in " ".join(done.stderr.split())


@pytest.mark.slow
def test_host_memory_bounds_the_offload() -> None:
    shape = model_of(ModelRequest("llama-2-13b")).model
    little = Facts(4, Integration.TRANSFORMERS, gpu_memory=40 * GIB, host_memory=32 * GIB)
    much = Facts(4, Integration.TRANSFORMERS, gpu_memory=40 * GIB, host_memory=512 * GIB)
    assert "offload_optimizer" in start(much, shape).config["zero_optimization"]
    assert "does not fit" in start(little, shape).reasons["zero_optimization.stage"]


def test_the_optimizer_is_on_nvme_where_the_host_is_too_small() -> None:
    shape = model_of(ModelRequest("llama-2-7b")).model
    given = Facts(1, Integration.TRANSFORMERS, gpu_memory=24 * GIB)
    on_host = start(given._replace(host_memory=512 * GIB), shape).config["zero_optimization"]
    assert on_host["offload_optimizer"]["device"] == "cpu"
    starter = start(given._replace(host_memory=64 * GIB), shape)
    on_disk = starter.config["zero_optimization"]
    assert starter.fits
    assert on_disk["offload_optimizer"]["device"] == "nvme"
    assert on_disk["stage"] == 3
    assert "of host memory" in starter.reasons["zero_optimization.stage"].rpartition(";")[2]
    assert any("libaio" in note for note in starter.notes)
    result = lint_text(json.dumps(starter.config), "ds_config.json", given, list(default_rules()))
    assert result is not None
    assert [str(one) for one in result.diagnostics if one.severity is Severity.ERROR] == []


@pytest.mark.slow
def test_adapters_are_not_warned_about_a_whole_optimizer(tmp_path: Path) -> None:
    options = ("--gpu=h100", "--world-size=8", "--nodes=1", "--host-memory=512GiB", "--lora-rank=16", "--micro-batch=4")
    done = dslint("init", tmp_path / "ds.json", "--isolated", "--integration=transformers", "--model=llama-3-70b", *options)
    assert done.returncode == 0
    assert "DS523" not in done.stderr


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_every_value_has_its_reason(step: int) -> None:
    for integration, model in [*product(Integration, MODELS)][::step]:
        given = facts(integration, NEWEST, 8, "a100")
        starter = start(given, model_of(ModelRequest(model)).model if model else None)
        leaves = set(_leaves(starter.config, ""))
        assert leaves == set(starter.reasons)
        assert all(starter.reasons.values())


def _leaves(section: dict[str, object], above: str) -> list[str]:
    return [
        leaf
        for name, value in section.items()
        for leaf in (_leaves(value, f"{above}{name}.") if isinstance(value, dict) else [above + name])
    ]


# ---------------------------------------------------------------------- the command


def init(*arguments: str | os.PathLike[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return dslint("init", *arguments, **options)


def test_the_file_is_written_and_checks_clean(tmp_path: Path) -> None:
    arguments = ("--integration", "transformers", "--model", "llama-3-8b", "--world-size", "8", "--gpu", "a100")
    done = init(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "zero_optimization.stage" in done.stderr
    assert "79.1 GiB" in done.stderr
    json.loads((tmp_path / "ds_config.json").read_text(encoding="utf-8"))
    checked = dslint("check", "--integration", "transformers", "--world-size", "8", "--gpu", "a100", "ds_config.json", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert "No problems found" in checked.stdout


def test_deepspeeds_own_file_has_the_reasons_as_comments(tmp_path: Path) -> None:
    done = init("--integration", "deepspeed", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "ds_config.hjson").read_text(encoding="utf-8")
    assert "# " in text
    assert not parse(text).problems
    assert init("--integration", "deepspeed", "plain.json", cwd=tmp_path).returncode == 0
    json.loads((tmp_path / "plain.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("word", ["8", "llama-3.1-8b", "7B"])
def test_a_word_that_is_not_a_file_name_is_not_written(tmp_path: Path, word: str) -> None:
    done = init(word, "--integration", "transformers", cwd=tmp_path)
    assert done.returncode == 2
    assert f'"{word}" has no suffix' in done.stderr
    assert "--model" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_standard_output_has_the_config_alone(tmp_path: Path) -> None:
    done = init("--integration", "accelerate", "-", cwd=tmp_path)
    assert json.loads(done.stdout)["zero_optimization"]["stage"] == 2
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text("mine", encoding="utf-8")
    done = init("--integration", "transformers", file)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert file.read_text(encoding="utf-8") == "mine"
    assert init("--integration", "transformers", "--force", file).returncode == 0
    assert json.loads(file.read_text(encoding="utf-8"))


def test_a_forced_stage_that_does_not_pay_is_spoken_of() -> None:
    done = init("--integration", "transformers", "--world-size", "1", "--stage", "3", "-")
    assert done.returncode == 0
    assert "DS409" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing --integration"),
        (("--integration", "keras"), "keras"),
        (("--integration", "transformers", "--params", "many"), "many"),
        (("--integration", "transformers", "--params", "-7"), "-7"),
        (("--integration", "transformers", "--model", "lama-3-8b"), "Did you mean"),
        (("--integration", "transformers", "--model", "gpt2", "--params", "7B"), "cannot be combined"),
        (("--integration", "transformers", "--gpu", "abacus"), "abacus"),
        (("--integration", "transformers", "--world-size", "0"), "0"),
        (("--integration", "transformers", "--stage", "4"), "4"),
        (("--integration", "transformers", "--output-format", "hjson"), "strict JSON"),
        (("--integration", "transformers", "--model", "."), "config.json"),
        (("--integration", "transformers", "--world-size", "10", "--nodes", "3", "--params", "7B", "--gpu", "a100"), "nodes"),
        (("--integration", "transformers", "no/such/folder/ds.json"), "cannot write"),
        (("--integration", "transformers", "."), "directory"),
    ],
)
def test_bad_input_is_normal_input(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = init(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- a person


END = "\x04"
"""What Ctrl-D sends."""


def talk(arguments: list[str], answers: list[str], folder: Path) -> tuple[int, str]:
    """Run `dslint init` on a terminal, and answer its questions; the exit code and all that the terminal shows."""
    mine, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "100"}
    command = [sys.executable, "-m", "dslint", "init", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment, close_fds=True)
    os.close(theirs)
    said = ""
    left = list(answers)
    answered = 0
    while select.select([mine], [], [], 60)[0]:
        try:
            chunk = os.read(mine, 4096).decode()
        except OSError:  # Linux says so where the other end is closed
            break
        if not chunk:
            break
        said += chunk
        if left and said.endswith(": ") and len(said) > answered:
            answered = len(said)
            answer = left.pop(0)
            os.write(mine, answer.encode() + (b"" if answer == END else b"\n"))
    os.close(mine)
    return process.wait(timeout=60), said


@pytest.mark.slow
def test_what_is_not_given_is_asked_for(tmp_path: Path) -> None:
    code, said = talk([], ["accelerate", "llama-3-8b", "8", "a100"], tmp_path)
    assert code == 0, said
    said = " ".join(said.split())
    for words in ("Library that loads the config", "Model", "Number of GPUs", "GPU (", "each a100 needs"):
        assert words in said
    config = json.loads((tmp_path / "ds_config.json").read_text(encoding="utf-8"))
    assert config["bf16"] == {"enabled": "auto"}


def test_empty_answers_are_what_is_not_known(tmp_path: Path) -> None:
    code, said = talk([], ["", "", "", ""], tmp_path)
    assert code == 0, said
    assert "a common default" in said
    assert "auto" in (tmp_path / "ds_config.json").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_wrong_answer_is_asked_for_again(tmp_path: Path) -> None:
    answers = ["keras", "deepspeed", "lama-3-8b", "7B", "none", "4", "abacus", "24GiB"]
    code, said = talk([], answers, tmp_path)
    assert code == 0, said
    assert "Did you mean llama-3-8b?" in " ".join(said.split())
    assert "Traceback" not in said
    assert (tmp_path / "ds_config.hjson").exists()


@pytest.mark.slow
def test_what_is_given_is_not_asked_for(tmp_path: Path) -> None:
    arguments = ["--integration", "transformers", "--params", "7B", "--world-size", "8", "--gpu-memory", "40GiB"]
    code, said = talk(arguments, [], tmp_path)
    assert code == 0, said
    assert "Library that loads" not in said
    assert "Number of" not in said


@pytest.mark.slow
def test_one_who_leaves_writes_nothing(tmp_path: Path) -> None:
    code, said = talk([], ["transformers", END], tmp_path)
    assert code == 130, said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------- DeepSpeed


@pytest.mark.deepspeed
def test_deepspeed_runs_what_init_writes(engine: Engine) -> None:
    cases = []
    for model, (world_size, gpu) in product(MODELS, MACHINES):
        given = facts(Integration.DEEPSPEED, NEWEST, world_size, gpu)
        starter = start(given, model_of(ModelRequest(model)).model if model else None)
        # offload takes DeepSpeed's optimizer for the CPU, which has to be compiled: parsed, it is as good
        upto: Upto = "parse" if "offload_optimizer" in starter.config["zero_optimization"] or world_size == 64 else "step"
        cases.append(Case(f"{model}-{world_size}-{gpu}", text=as_hjson(starter), world_size=world_size or 1, upto=upto))
    outcomes = engine.ask(cases)
    assert [(outcome.id, outcome.phase, outcome.error) for outcome in outcomes if outcome.raised] == []


@pytest.mark.deepspeed
def test_the_loaders_take_what_init_writes() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    cases: list[Any] = []
    for model, (world_size, gpu) in product(MODELS, MACHINES[:6]):
        shape = model_of(ModelRequest(model)).model if model else None
        for integration, kind, rest in (
            (Integration.TRANSFORMERS, "trainer", "arguments"),
            (Integration.ACCELERATE, "plugin", "environment"),
        ):
            config = start(facts(integration, NEWEST, world_size, gpu), shape).config
            cases.append([kind, {"config": config, rest: {}}])
    done = subprocess.run(
        [sys.executable, "-m", "tests.setup.real"], cwd=ROOT, input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    assert set(json.loads(done.stdout)) == {None}
