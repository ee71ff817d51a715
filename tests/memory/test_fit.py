"""`dslint fit`: ways that do what they say, advice of every kind, and what is not needed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dslint.config import Config, resolve
from dslint.diagnostics import Severity
from dslint.facts import Facts
from dslint.facts.gpus import GIB, GPUS
from dslint.facts.known_models import preset
from dslint.lint.document import lint_text
from dslint.memory.estimate import estimate
from dslint.memory.families import read_shape
from dslint.memory.fit import Fit, FitSearch, written
from dslint.memory.plan import STATES, Plan, Workload
from dslint.memory.planning import make_plan
from dslint.memory.ways import ENOUGH_ROOM, Goal
from dslint.registry.rules import default_rules
from dslint.report.fit_page import change_of_step, diff
from dslint.source.parse import parse
from dslint.speed.planned import seconds_of
from tests.command import dslint

BASE: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}


def search(config: dict[str, Any], name: str = "llama-3-8b", world: int = 8, **given: Any) -> FitSearch:
    data = preset(name)
    assert data is not None
    model = read_shape(data, name)
    facts = Facts(world_size=world, nodes=max(1, world // 8), gpu=GPUS["h100"], gpu_memory=80 * GIB)

    def plan(text: str, said: dict[str, Any]) -> tuple[Config, Plan]:
        said = {**given, **said}
        read = resolve(parse(text), facts._replace(sequence_parallel=said.get("sequence_parallel")))
        workload = Workload(
            said.get("length", 4096),
            checkpoint_every=said.get("checkpoint_every", 0),
            loss_chunk=said.get("loss_chunk", 0),
            expandable=said.get("expandable", False),
        )
        made = make_plan(read, workload, model.hidden, micro_batch=said.get("micro_batch"), accumulation=said.get("accumulation"))
        return read, made.but(optimizer_bytes=STATES[said["optimizer"]], optimizer=said["optimizer"]) if "optimizer" in said else made

    return FitSearch(json.dumps(config, indent=4), model, plan, seconds_of)


def fit(config: dict[str, Any], goal: int = 80, host: int | None = None, **more: Any) -> Fit:
    return search(config, **more).run(Goal(goal * GIB, host))


@cache
def of_base() -> Fit:
    return fit(BASE)


@pytest.mark.slow
def test_ways_fit_and_keep_the_samples() -> None:
    found = of_base()
    assert not found.fits
    assert found.ways
    for way in found.ways:
        assert way.found.verdict(80 * GIB) in ENOUGH_ROOM
        assert way.found.plan.samples == found.base.found.plan.samples
        assert not parse(way.text).problems


@pytest.mark.slow
def test_a_way_s_numbers_are_those_of_its_text() -> None:
    looked = search(BASE)
    for way in looked.run(Goal(80 * GIB)).singles:
        if way.changes[0].tiles == 1:
            config, plan = looked.planner(way.text, way.said)
            assert estimate(looked.model, plan).device == way.found.device
            assert config.document.text == way.text


@pytest.mark.slow
def test_combinations_where_one_change_is_not_enough() -> None:
    found = fit(BASE, name="llama-3-70b")
    assert found.ways
    assert all(len(way.changes) > 1 for way in found.ways)
    for way in found.ways:
        for change in way.changes:
            rest = tuple(other for other in way.changes if other is not change)
            shorter = search(BASE, name="llama-3-70b").make(rest)
            surer = found.goal.sure(way.found) and shorter is not None and not found.goal.sure(shorter.found)
            assert shorter is None or surer or not found.goal.met(shorter.found)


@pytest.mark.slow
def test_if_no_way_fits_for_certain_a_further_change_does() -> None:
    offloaded = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8, "bf16": {"enabled": True}}
    offloaded |= {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
    found = search(offloaded, name="qwen2.5-7b", world=1).run(Goal(24 * GIB, 140 * GIB))
    assert found.goal.certain(found.ways[0].found)
    assert any("checkpointing" in change.name for change in found.ways[0].changes)
    assert not any(found.goal.certain(single.found) for single in found.singles)


@pytest.mark.slow
def test_free_memory_is_room_for_more() -> None:
    looked = search(BASE, name="llama-3.2-1b", checkpoint_every=1, loss_chunk=1024)
    goal = Goal(80 * GIB)
    room = looked.run(goal).room
    assert room is not None
    plan = looked.base.found.plan
    assert room.micro_batch > plan.micro_batch
    assert room.faster >= 0
    for name, value in (("micro_batch", room.micro_batch), ("length", room.length)):
        assert goal.certain(estimate(looked.model, plan.but(**{name: value})))
        more = estimate(looked.model, plan.but(**{name: 2 * value}))
        assert not goal.certain(more) or 2 * value > (looked.model.positions or 0)
    assert of_base().room is None


@pytest.mark.slow
def test_one_gpu_is_no_dead_end(tmp_path: Path) -> None:
    """At stage 2 with the optimizer offloaded, only stage 3 frees more; NVMe holds what the host cannot."""
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    (tmp_path / "ds.json").write_text(
        json.dumps({**BASE, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_optimization": zero}),
        encoding="utf-8",
    )
    options = ("--world-size=1", "--gpu=rtx4090", "--host-memory=128GiB", "--sequence-length=2048", "--output-format=json")
    done = dslint("fit", tmp_path / "ds.json", "--isolated", "--model=qwen2.5-7b", *options)
    assert done.returncode == 0
    best = json.loads(done.stdout)["ways"][0]
    assert "ZeRO stage 3 with parameter offload to CPU" in best["changes"]
    assert "optimizer offload to NVMe" in best["changes"]
    assert best["host_node"] < 128 * GIB


def test_stages_below_3_offload_to_the_host_even_if_nvme_is_written() -> None:
    def planned(device: str) -> Plan:
        zero = {"stage": 2, "offload_optimizer": {"device": device, "nvme_path": "/local"}}
        return search({**BASE, "zero_optimization": zero}).base.found.plan

    assert planned("nvme").optimizer_device == planned("cpu").optimizer_device == "cpu"


def test_changes_that_rebuild_the_model_come_last() -> None:
    ways = of_base().ways
    order = [(way.changes_training, any(change.rebuilds for change in way.changes)) for way in ways]
    assert order == sorted(order)


def test_ways_that_keep_training_and_model_come_alone_where_they_are_fast() -> None:
    ways = of_base().ways
    assert ways
    assert not any(way.changes_training or way.rebuilds for way in ways)


@cache
def tight(host: str) -> Fit:
    """A search in which most kinds of changes are combined."""
    if host == "any":
        return search(BASE, name="llama-3.1-8b", world=2, length=32768, micro_batch=1).run(Goal(24 * GIB))
    if host == "enough":
        return search(BASE, name="qwen2.5-7b", world=4).run(Goal(24 * GIB, 128 * GIB))
    return search(BASE, name="qwen2.5-7b", world=1).run(Goal(24 * GIB, 64 * GIB))


TIGHT = pytest.mark.parametrize("host", ["short", *(pytest.param(name, marks=pytest.mark.slow) for name in ("enough", "any"))])


@pytest.mark.slow
@TIGHT
def test_no_change_of_a_way_overwrites_another(host: str) -> None:
    for way in tight(host).ways:
        names = [name for change in way.changes for name in (*(name for name, _ in change.said), *(path for path, _ in change.values))]
        assert len(names) == len(set(names))
        assert not any(one != other and other.startswith(f"{one}.") for one in names for other in names)


@pytest.mark.slow
@TIGHT
def test_dslint_finds_no_mistake_in_a_way(host: str) -> None:
    assert tight(host).ways
    for way in tight(host).ways:
        linted = lint_text(way.text, "ds_config.json", way.config.facts, list(default_rules()))
        assert linted is not None
        assert [str(one) for one in linted.diagnostics if one.severity is Severity.ERROR] == []


@pytest.mark.slow
def test_nvme_is_advised_only_where_host_memory_is_short() -> None:
    short, enough = tight("short"), search(BASE, name="qwen2.5-7b", world=1).run(Goal(24 * GIB, 512 * GIB))
    assert any(way.uses_nvme for way in short.ways)
    assert any(enough.goal.sure(way.found) for way in enough.ways)
    assert not any(way.uses_nvme for way in enough.ways)


@pytest.mark.slow  # a search of its own
def test_smaller_buffers_where_the_host_cannot_hold_those_of_nvme() -> None:
    both = {"offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    found = search({**BASE, "zero_optimization": {"stage": 3, **both}}, name="llama-2-13b", world=2, checkpoint_every=1, micro_batch=1)
    result = found.run(Goal(24 * GIB, 64 * GIB))
    assert not result.goal.host_met(result.base.found)
    assert "smaller swap buffers" in [change.name for change in result.ways[0].changes]
    assert all(result.goal.host_met(way.found) for way in result.ways)


def test_long_samples_are_divided_among_ranks_that_share_the_heads() -> None:
    one = {**BASE, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
    looked = search(one, length=32768)
    found = {one.changes[0].name: one for one in looked._next(looked.base, lambda _: True)}
    assert found["sequence parallel 4"].peak < found["sequence parallel 2"].peak < looked.base.peak
    assert found["sequence parallel 4"].found.plan.samples == looked.base.found.plan.samples
    odd = search(one, name="qwen2.5-7b", length=32768)  # 28 heads, 4 of them with keys
    names = [variant.changes[0].name for variant in odd._next(odd.base, lambda _: True)]
    assert "sequence parallel 4" in names
    assert "sequence parallel 8" not in names


def test_a_config_that_likely_fits_is_made_sure() -> None:
    base = search(BASE).base.found
    found = search(BASE).run(Goal((base.full + base.device.high) // 2))
    assert found.fits
    assert found.ways
    assert all(found.goal.sure(way.found) for way in found.ways)


def test_what_is_not_needed() -> None:
    found = fit(
        {**BASE, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}, name="llama-3.2-1b", checkpoint_every=1
    )
    assert found.fits
    assert {way.changes[0].name for way in found.lesser} >= {"stage 2", "no optimizer offload"}


@pytest.mark.slow
def test_nothing_fits() -> None:
    found = fit(BASE, goal=1)
    assert not found.ways
    assert found.least.peak < found.base.peak


@pytest.mark.slow
def test_host_memory_is_kept_to() -> None:
    enough, little = fit(BASE, name="llama-3-70b", host=4096 * GIB), fit(BASE, name="llama-3-70b", host=200 * GIB)
    assert any("offload to CPU" in change.name for way in enough.ways for change in way.changes)
    assert all(way.found.host_of_node <= 200 * GIB for way in little.ways)


STAGE_3 = {**BASE, "zero_optimization": {"stage": 3}}
OFFLOADED = {**BASE, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
ON_DISK = {**BASE, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}}}
FP32 = {key: value for key, value in BASE.items() if key != "bf16"}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (BASE, "micro batch size 1"),
        (BASE, "activation checkpointing"),
        (BASE, "activation checkpointing of every 2nd block"),
        (BASE, "loss in chunks of 1,024 tokens"),
        (BASE, "ZeRO stage 3"),
        (BASE, "optimizer offload to CPU"),
        (BASE, "8-bit Adam"),
        (BASE, "master weights and optimizer states in bf16"),
        (BASE, "tensor parallel 2"),
        ({**BASE, "zero_optimization": {"stage": 0}}, "ZeRO stage 1"),
        ({**BASE, "zero_optimization": {"stage": 0}}, "ZeRO stage 2"),
        (OFFLOADED, "parameter offload to CPU"),
        (OFFLOADED, "parameter offload to NVMe"),
        (ON_DISK, "smaller swap buffers"),
        ({**BASE, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}}}, "no page-locked memory"),
        (BASE, "expandable segments"),
        (STAGE_3, "optimizer offload to NVMe"),
        (STAGE_3, "gathered parameters released after each use"),
        (STAGE_3, "memory-centric tiling, 4 pieces"),
        (STAGE_3, "smaller buckets"),
        (FP32, "bf16"),
        (FP32, "fp16"),
    ],
)
def test_every_kind_of_advice_is_given(config: dict[str, Any], words: str) -> None:
    assert words in advice(json.dumps(config))


@cache
def advice(config: str) -> list[str]:
    """The names of the first changes that are tried."""
    looked = search(json.loads(config))
    return [variant.changes[0].name for variant in looked._next(looked.base, lambda _: True)]


def test_activations_go_to_the_host_where_they_are_checkpointed() -> None:
    looked = search(BASE, checkpoint_every=1)
    found = [
        variant for variant in looked._next(looked.base, lambda _: True) if variant.changes[0].name == "checkpointed activations on the CPU"
    ]
    assert found[0].peak < looked.base.peak
    assert found[0].found.host_of_node > looked.base.found.host_of_node


@pytest.mark.slow
def test_a_micro_batch_that_the_program_sets_is_changed_there() -> None:
    found = fit({**BASE, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}, micro_batch=4, accumulation=2)
    way = next(way for way in found.singles if way.changes[0].name == "micro batch size 1")
    assert diff(found, way, "config") == []
    assert [change.program for change in (*way.changes, *way.also)] == [
        "per_device_train_batch_size=1 in the training arguments",
        "gradient_accumulation_steps=8 in the training arguments",
    ]


def test_changes_leave_the_rest_of_a_file_alone() -> None:
    text = '{\n  // ours\n  "train_batch_size": 8, # all\n  "zero_optimization": {"stage": 1},\n}\n'
    after = written(text, (("zero_optimization.stage", 2), ("bf16", {"enabled": True})))
    assert "// ours" in after
    assert "# all" in after
    assert not parse(after).problems
    assert written(after, ()) == after


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(BASE, indent=4), encoding="utf-8")
    return path


def run(path: Path, *arguments: str, model: str = "llama-3-8b", **env: str) -> Any:
    return dslint("fit", path, "--isolated", "--model", model, "--world-size", "8", "--sequence-length", "4096", *arguments, env=env)


@pytest.mark.slow
def test_the_page(config: Path) -> None:
    before = config.read_text(encoding="utf-8")
    done = run(config, "--gpu", "h100", COLUMNS="80")
    assert done.returncode == 0
    assert "1. micro batch size 1" in done.stdout
    assert '+    "train_micro_batch_size_per_gpu": 1,' in done.stdout
    assert '+    "gradient_accumulation_steps": 8,' in done.stdout
    assert config.read_text(encoding="utf-8") == before
    assert max(len(line) for line in done.stdout.splitlines() if "   +" not in line and "   -" not in line) <= 80


@pytest.mark.slow
def test_the_figures_of_the_table_stand_below_each_other(config: Path) -> None:
    lines = run(config, "--gpu", "h100", COLUMNS="60").stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("Each change on its own"))
    table = lines[head : lines.index("", head)]
    assert {len(line) for line in table if line.endswith(("step", "%", "="))} == {59}
    assert "activation checkpointing of every 2nd block" in table


@pytest.mark.slow
def test_exit_code_and_words_where_nothing_helps(config: Path) -> None:
    done = run(config, "--limit", "2GiB")
    assert done.returncode == 4
    assert "No change that dslint tried makes it fit" in done.stdout


@pytest.mark.slow
def test_json(config: Path) -> None:
    data = json.loads(run(config, "--gpu", "h100", "--pcie", "12GB/s", "--output-format", "json").stdout)
    assert data["fits"] is False
    assert all(way["verdict"] in ENOUGH_ROOM for way in data["ways"])


@pytest.mark.slow
def test_yaml_is_shown_as_json(tmp_path: Path) -> None:
    path = tmp_path / "ds_config.yaml"
    path.write_text(
        "train_micro_batch_size_per_gpu: 4\ngradient_accumulation_steps: 2\nbf16: {enabled: true}\nzero_optimization: {stage: 2}\n"
    )
    done = run(path, "--gpu", "h100")
    assert done.returncode == 0
    assert "1. " in done.stdout


def test_a_gpu_is_wanted(config: Path) -> None:
    done = run(config)
    assert done.returncode == 2
    assert "--gpu" in done.stderr


def test_bandwidths_are_rates(config: Path) -> None:
    done = run(config, "--gpu", "h100", "--pcie", "fast")
    assert done.returncode == 2
    assert "is not a rate such as 25GB/s" in done.stderr


@pytest.mark.slow
def test_a_way_that_may_not_fit_never_outranks_a_sure_one(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}), encoding="utf-8")
    done = dslint("fit", tmp_path / "c.json", "--model", "llama-3-8b", "--world-size", "8", "--gpu", "a100-40gb", "--output-format", "json")
    found = json.loads(done.stdout)
    sure = [way["sure_if_partitioned"] for way in found["ways"]]
    assert sure == sorted(sure, reverse=True)
    assert any(sure)
    lora, qlora = found["adapters"]
    assert qlora["device"]["expected"] < lora["device"]["expected"] < found["now"]["device"]["expected"]
    assert lora["verdict"] == "fits"


@pytest.mark.slow  # a search of its own
def test_half_of_the_optimizer_goes_to_the_host_where_that_is_enough() -> None:
    looked = search({**BASE, "zero_optimization": {"stage": 3}}, world=2, checkpoint_every=1, loss_chunk=1024)
    found = {single.changes[0].name: single for single in looked.run(Goal(40 * GIB)).singles}
    half, whole = found["half of the optimizer on the CPU (Twin-Flow)"], found["optimizer offload to CPU"]
    assert whole.peak < half.peak < looked.base.peak
    assert half.lasts.total < whole.lasts.total
    assert not any("SuperOffload" in name for name in found)


@pytest.mark.slow
def test_superchips_have_superoffload(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({**BASE, "zero_optimization": {"stage": 3}}), encoding="utf-8")
    options = ("--world-size", "1", "--gpu", "gh200", "--activation-checkpointing", "--micro-batch", "1", "--output-format", "json")
    done = dslint("fit", tmp_path / "ds.json", "--model", "qwen3-8b", *options)
    assert "optimizer offload to CPU with SuperOffload" in done.stdout
    assert '"super_offload": true' in done.stdout.replace("\\", "")


@pytest.mark.slow
def test_very_long_samples_are_first_divided_among_the_ranks() -> None:
    config = {**BASE, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
    found = fit(config, length=131072, checkpoint_every=1)
    assert any("sequence parallel" in change.name for change in found.ways[0].changes)


@pytest.mark.slow
def test_the_number_of_gpus_on_which_it_fits_is_said(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(BASE | {"train_micro_batch_size_per_gpu": 1}), encoding="utf-8")
    known = ("--model=llama-3-8b", "--gpu=a100", "--sequence-length=2048")
    found = json.loads(dslint("fit", tmp_path / "ds.json", *known, "--world-size=4", "--output-format=json").stdout)
    gpus = found["more_gpus"]["world_size"]
    assert gpus > 4
    said = " ".join(dslint("fit", tmp_path / "ds.json", *known, "--world-size=4").stdout.split())
    assert f"With more GPUs: on {gpus} it fits as it is" in said
    text = dslint("estimate", tmp_path / "ds.json", *known, f"--world-size={gpus}").stdout
    assert text.startswith("Fits: ")
    assert not dslint("estimate", tmp_path / "ds.json", *known, f"--world-size={gpus // 2}").stdout.startswith("Fits: ")


@pytest.mark.slow
def test_without_zero_more_gpus_do_not_help(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(BASE | {"zero_optimization": {"stage": 0}}), encoding="utf-8")
    done = dslint("fit", tmp_path / "ds.json", "--model=llama-3-8b", "--gpu=a100", "--world-size=4", "--output-format=json")
    assert json.loads(done.stdout)["more_gpus"] is None


@pytest.mark.slow
def test_experts_of_their_own_are_in_a_leaf_module_at_stage_3(tmp_path: Path) -> None:
    """DeepSeek's are not in DeepSpeed's own list; transformers 5 keeps all of a layer in one weight."""
    (tmp_path / "ds.json").write_text(json.dumps(BASE), encoding="utf-8")
    known = ("--model=deepseek-v2-lite", "--gpu=a100", "--world-size=8", "--activation-checkpointing", "--output-format=json")
    for release, named in (("4.57.0", True), ("5.2.0", False)):
        found = json.loads(dslint("fit", tmp_path / "ds.json", *known, f"--integration=transformers=={release}").stdout)
        to_stage_3 = [way["diff"] for way in found["singles"] if way["changes"] == ["ZeRO stage 3"]]
        assert len(to_stage_3) == 1
        assert ("DeepseekV2MoE" in to_stage_3[0]) == named


def test_a_step_that_is_much_slower_is_given_as_a_multiple() -> None:
    said = [change_of_step(ratio) for ratio in (0.9, 1.005, 2.5, 3.0, 41.71)]
    assert said == ["about 10 % faster", "about as fast", "about 150 % slower", "about 200 % slower", "about 42 times as slow"]


@pytest.mark.slow
def test_a_way_names_the_file_that_it_changes(tmp_path: Path) -> None:
    """A launch or a training file leads to the config; the changes are in the config's own file, or in JSON that stands for it."""
    (tmp_path / "ds.json").write_text(json.dumps(BASE, indent=2), encoding="utf-8")
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed_config ds.json\n", encoding="utf-8")
    options = ("--isolated", "--model", "llama-3-8b", "--gpu", "h100", "--sequence-length", "4096")
    done = dslint("fit", "run.sh", *options, cwd=tmp_path)
    assert "--- ds.json" in done.stdout, done.stdout + done.stderr
    section = {"zero_stage": 2, "gradient_accumulation_steps": 2}
    yaml = {"distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "num_processes": 8, "deepspeed_config": section}
    (tmp_path / "accelerate.yaml").write_text(json.dumps(yaml), encoding="utf-8")
    done = dslint("fit", "accelerate.yaml", *options, "--micro-batch", "4", cwd=tmp_path)
    assert "--- config of accelerate.yaml, as JSON" in done.stdout, done.stdout + done.stderr


def test_a_config_that_a_program_computes_in_part_has_no_ways(tmp_path: Path) -> None:
    """Its text would lose what only the program knows: the precision, for one, so that `fit` had other figures than `estimate`."""
    flags = "--zero_stage 0 --per_device_train_batch_size 8 --model_name_or_path facebook/opt-1.3b --max_seq_len 512"
    (tmp_path / "run.sh").write_text(f"deepspeed --num_gpus 8 main.py {flags} --deepspeed\n", encoding="utf-8")
    done = dslint("fit", "run.sh", "--isolated", "--gpu", "v100-16gb", cwd=tmp_path)
    assert done.returncode == 2
    assert "the program computes some values of this config" in done.stderr


@pytest.mark.slow  # a search of its own
def test_a_single_sub_group_is_not_divided() -> None:
    """Twin-Flow moves whole sub groups: of one group, half of the optimizer is all of it."""
    looked = search({**BASE, "zero_optimization": {"stage": 3}}, world=8, checkpoint_every=1, loss_chunk=1024)
    names = {single.changes[0].name for single in looked.run(Goal(16 * GIB)).singles}
    assert "optimizer offload to CPU" in names
    assert not any("Twin-Flow" in name for name in names)
    halved = {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}
    one, two = (search({**BASE, "zero_optimization": halved}, world=world, checkpoint_every=1).base for world in (8, 2))
    assert one.work.adam == pytest.approx(28 * one.found.run.layout.flat / 8, rel=0.01)
    assert two.work.adam < 0.8 * 28 * two.found.run.layout.flat / 2


@pytest.mark.slow
def test_a_step_that_takes_much_longer_keeps_its_column(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({**BASE, "zero_optimization": {"stage": 3}}), encoding="utf-8")
    options = ("--isolated", "--model", "llama-3-70b", "--world-size", "8", "--gpu", "h200", "--sequence-length", "1024")
    done = dslint("fit", path, *options, "--activation-checkpointing", "--nvme", "0.5GB/s")
    slow = [line for line in done.stdout.splitlines() if line.startswith("optimizer offload to NVMe")]
    assert slow, done.stdout
    assert slow[0].endswith((" x", " times"))
    assert slow[0].split()[-2].isdecimal()


def test_the_trainer_s_optimizer_is_named_by_its_argument(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps({**BASE, "zero_optimization": {"stage": 3}}), encoding="utf-8")
    options = (
        "--isolated",
        "--model",
        "gpt2",
        "--limit",
        "80GiB",
        "--world-size",
        "8",
        "--sequence-length",
        "1024",
        "--output-format",
        "json",
    )
    for integration, words in (("transformers", 'optim="adamw_bnb_8bit"'), ("deepspeed", "bitsandbytes.optim.AdamW8bit")):
        done = dslint("fit", "ds.json", *options, "--integration", integration, cwd=tmp_path)
        programs = [one["program"] for one in json.loads(done.stdout)["singles"] if one["changes"] == ["8-bit Adam"]]
        assert programs, done.stdout
        assert words in programs[0][0]
