"""The estimate as people and scripts get it: parts that add up, what follows from what, the command with its exit codes and pictures."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from dslint.config import resolve
from dslint.facts import Facts, Integration, Release
from dslint.facts.gpus import GIB, GPUS
from dslint.facts.known_models import preset
from dslint.memory.engine import run as step
from dslint.memory.estimate import Estimate, Verdict, estimate
from dslint.memory.families import read_shape
from dslint.memory.given import ModelRequest, model_of
from dslint.memory.numbers import of_numbers, with_adapters
from dslint.memory.plan import Plan, Workload
from dslint.memory.planning import make_plan
from dslint.memory.reader import ShapeError
from dslint.memory.shapes import Model
from dslint.memory.sweep import read_sweep, sweep
from dslint.memory.tiles import tiled
from dslint.report import estimate_page
from dslint.report.png import NoRenderer, png
from dslint.source.parse import parse
from tests.command import dslint
from tests.growth import ratio

CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
}


def model(name: str) -> Model:
    data = preset(name)
    assert data is not None
    return read_shape(data, name)


def found(name: str = "llama-3-8b", world: int = 8, zero: dict[str, Any] | None = None, length: int = 2048, **more: Any) -> Estimate:
    shape = model(name)
    config = {**CONFIG, "zero_optimization": zero or {"stage": 2}, **more}
    plan = make_plan(resolve(parse(json.dumps(config)), Facts(world_size=world, nodes=max(1, world // 8))), Workload(length), shape.hidden)
    return estimate(shape, plan)


@pytest.mark.parametrize("stage", range(4))
def test_parts_add_up(stage: int) -> None:
    of = found(zero={"stage": stage})
    for moment in (of.steady, *of.peaks.values()):
        assert moment.total == sum(moment.parts.values())
        assert min(moment.parts.values()) >= 0
    assert of.device.expected == of.peak.total + of.allowance.expected
    assert of.device.low < of.device.expected < of.device.high


def test_a_higher_stage_and_more_ranks_keep_less() -> None:
    steady = [found(zero={"stage": stage}, world=16).steady.total for stage in range(4)]
    assert steady == sorted(steady, reverse=True)
    for stage in (1, 2, 3):
        falling = [found(zero={"stage": stage}, world=world).steady.total for world in (2, 4, 8, 64)]
        assert falling == sorted(falling, reverse=True)


def test_longer_samples_and_larger_batches_need_more() -> None:
    peaks = [found(length=length).device.expected for length in (128, 512, 2048, 8192)]
    assert peaks == sorted(peaks)
    assert found(train_micro_batch_size_per_gpu=8).device.expected > found().device.expected


def test_offload_moves_what_it_says() -> None:
    here = found()
    there = found(zero={"stage": 2, "offload_optimizer": {"device": "cpu"}})
    assert there.steady.total < here.steady.total
    assert there.host.total > here.steady.parts["master weights"] + here.steady.parts["optimizer states"]
    disk = found(zero={"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/local"}})
    assert disk.host.disk > 0


def test_less_is_kept_by_optimizers_with_fewer_states() -> None:
    sizes = {name: found(optimizer={"type": name, "params": {"lr": 1e-5}}).steady.total for name in ("AdamW", "Lion", "SGD")}
    assert sizes["SGD"] < sizes["Lion"] < sizes["AdamW"]


def test_releases_before_0_17_6_run_bf16_without_zero_otherwise() -> None:
    shape = model("llama-3.2-1b")
    steady = {}
    for release in (Release(0, 17, 5), Release(0, 17, 6)):
        config = parse(json.dumps({**CONFIG, "zero_optimization": {"stage": 0}}))
        plan = make_plan(resolve(config, Facts(world_size=8, deepspeed=release)), Workload(512), shape.hidden)
        steady[release] = estimate(shape, plan).steady.total / shape.size
    assert steady[Release(0, 17, 5)] == pytest.approx(2 + 4 + 12 / 8, rel=0.01)
    assert steady[Release(0, 17, 6)] == pytest.approx(14, rel=0.01)


def test_a_verdict_is_only_fits_if_the_top_of_the_range_fits() -> None:
    of = found()
    assert of.device.low < of.full < of.device.high
    for memory, verdict in (
        (of.device.high, Verdict.FITS),
        (of.device.high - 1, Verdict.LIKELY),
        (of.full - 1, Verdict.UNLIKELY),
        (of.device.low - 1, Verdict.NO),
    ):
        assert of.verdict(memory) is verdict
        assert of.fits(memory, None) is (verdict is Verdict.FITS)


def test_what_may_as_well_run_out_of_memory_is_called_tight() -> None:
    of = found()
    middle = (of.device.expected + of.device.high) // 2
    texts = [estimate_page.verdict(of, Facts(), limit) for limit in (middle - 2, middle + 2)]
    assert texts[0].startswith("Tight, and may run out of memory")
    assert texts[1].startswith("Likely fits")


def test_a_config_does_not_fit_if_the_host_is_too_small() -> None:
    of = found(zero={"stage": 2, "offload_optimizer": {"device": "cpu"}})
    assert of.fits(of.device.high, of.host_range.high)
    assert not of.fits(of.device.high, of.host_range.high - 1)
    assert of.host_range.low > of.host_of_node


def test_page_locked_buffers_are_rounded_up_to_powers_of_two() -> None:
    pinned, plain = (found(zero={"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": pin}}) for pin in (True, False))
    assert pinned.host.total == plain.host.total
    assert plain.host.rounding == 0
    assert pinned.host.rounding == sum(2 ** (size - 1).bit_length() - size for size in pinned.host.pinned) > 0


def test_older_releases_keep_and_lock_fewer_buffers_of_an_offloaded_optimizer() -> None:
    """Before 0.14.1 only the gradients and a buffer for a parameter are page-locked; before 0.17.0 no updated weights in 16 bits stay."""
    shape = model("llama-3-8b")
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}}
    host = {}
    for release in (Release(0, 14, 0), Release(0, 14, 1), Release(0, 16, 9), Release(0, 17, 0)):
        facts = Facts(world_size=8, nodes=1, deepspeed=release)
        plan = make_plan(resolve(parse(json.dumps({**CONFIG, "zero_optimization": zero})), facts), Workload(2048), shape.hidden)
        host[str(release)] = estimate(shape, plan).host
    assert [len(one.pinned) for one in host.values()] == [2, 3, 3, 4]
    buffers = [one.parts["buffers"] for one in host.values()]
    assert buffers[0] == buffers[1] == buffers[2]
    assert buffers[3] - buffers[2] == host["0.17.0"].parts["master weights"] / 2


def test_a_program_that_keeps_its_logits_needs_one_more_copy() -> None:
    shape = model("llama-3-8b")
    config = resolve(parse(json.dumps(CONFIG)), Facts(world_size=8))
    kept, freed = (estimate(shape, make_plan(config, Workload(2048, keeps_logits=keeps), shape.hidden)) for keeps in (True, False))
    assert kept.tensors.expected - freed.tensors.expected == 2 * 2 * 2048 * shape.vocabulary
    assert kept.tensors.high >= freed.tensors.high
    assert kept.tensors.low < kept.tensors.expected - 2 * 2 * 2048 * shape.vocabulary


def test_expandable_segments_waste_less() -> None:
    shape = model("llama-3-8b")
    config = resolve(parse(json.dumps(CONFIG)), Facts(world_size=8))
    usual, expandable = (estimate(shape, make_plan(config, Workload(2048, expandable=on), shape.hidden)) for on in (False, True))
    assert usual.tensors == expandable.tensors
    assert expandable.device.high < usual.device.high


def test_what_is_not_modelled_is_said_and_widens_the_range() -> None:
    plain, wide = found(zero={"stage": 3}), found(zero={"stage": 3}, torch_autocast={"enabled": True})
    assert any(reason.startswith("not modelled") for reason in wide.reasons)
    assert wide.tensors.high / wide.tensors.expected > plain.tensors.high / plain.tensors.expected + 0.2


@pytest.mark.parametrize(
    ("family", "bits", "checkpoint", "slopes"),
    [("llama", 2, 0, (12, 18)), ("llama", 2, 1, (10, 12)), ("llama", 4, 0, (8, 16)), ("gpt2", 2, 0, (10, 12))],
)
def test_eager_attention_keeps_bytes_per_score(family: str, bits: int, checkpoint: int, slopes: tuple[int, int]) -> None:
    """Measured in two layers of transformers' models on a device that counts bytes: after the forward (at its peak, if checkpointed), and
    at the peak of the backward. GPT-2 keeps a byte less on a GPU than on the CPU, where a dropout mask has the precision of the model.
    """
    data = {"model_type": family, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8}
    data |= {"n_embd": 128, "n_layer": 2, "n_head": 8, "n_positions": 4096, "vocab_size": 64}
    shape = read_shape(data, family)
    peaks = {}
    for length in (512, 1024):
        plan = Plan(Workload(length, checkpoint_every=checkpoint, eager=True), 1, 1, 1, model_bytes=bits)
        peaks[length] = [step(shape, plan).peaks[phase].parts["activations"] for phase in ("forward", "backward")]
    found = [(peaks[1024][i] - 2 * peaks[512][i]) / (8 * (1024**2 - 2 * 512**2)) for i in (0, 1)]
    assert found[1] == pytest.approx(slopes[1], abs=0.1)
    if not checkpoint:
        assert found[0] == pytest.approx(slopes[0], abs=0.1)


def test_adapters_train_little() -> None:
    whole, small = model("llama-3-8b"), with_adapters(model("llama-3-8b"), 16, ("q_proj", "v_proj"))
    assert small.size - whole.size == small.trained == 32 * 16 * ((4096 + 4096) + (4096 + 1024))
    assert with_adapters(model("llama-3-8b"), 16, ("self_attn.q_proj", "v_proj")).trained == small.trained  # peft compares whole parts
    with pytest.raises(ShapeError, match="no layer is named"):
        with_adapters(model("llama-3-8b"), 16, ("proj",))


def test_tiles_are_the_same_weights() -> None:
    assert tiled(model("llama-3-8b"), 4).size == model("llama-3-8b").size
    assert tiled(model("llama-3-8b"), 4).largest.size <= model("llama-3-8b").largest.size


def test_numbers_make_a_model_of_their_size() -> None:
    assert of_numbers(7e9, hidden=4096).size == pytest.approx(7e9, rel=0.01)
    assert of_numbers(1.3e9).size == pytest.approx(1.3e9, rel=0.05)


def test_sizes_that_contradict_the_stated_parameters_are_refused(config: Path) -> None:
    sizes = ("--params", "7B", "--hidden-size", "4096", "--layers", "40", "--ffn-size", "11008")
    done = dslint("estimate", config, "--isolated", "--world-size", "8", *sizes)
    assert done.returncode == 2
    assert "give 8,357,482,496 parameters, and --params says 7,000,000,000: correct the sizes" in " ".join(done.stderr.split())


def test_sizes_without_a_gate_have_the_stated_parameters() -> None:
    """GPT-like models have two matrices in a feed-forward layer, and not the three of Llama."""
    sizes = {"hidden": 5120, "layers": 32, "inner": 20480, "vocabulary": 50432}
    assert of_numbers(10.3e9, **sizes).size == pytest.approx(10.3e9, rel=0.01)
    assert of_numbers(None, **sizes).size > 13e9


def test_a_thousand_ranks_take_no_longer_than_eight() -> None:
    assert ratio(lambda: found("llama-3-70b", world=8), lambda: found("llama-3-70b", world=1024)) < 3


def test_a_sweep_takes_as_long_as_its_points() -> None:
    of = found("llama-3-8b", world=1024)

    def swept(number: int) -> int:
        return len(sweep(of, *read_sweep("world-size=" + ",".join(str(8 * (one + 1)) for one in range(number)))).points)

    assert swept(20) == 20
    assert ratio(lambda: swept(2), lambda: swept(20)) < 30


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(CONFIG, indent=2), encoding="utf-8")
    return path


def run(config: Path, *arguments: str, **env: str) -> Any:
    return dslint("estimate", config, "--isolated", "--model", "llama-3-8b", "--world-size", "8", *arguments, env=env)


def test_the_page_fits_into_eighty_columns_and_marks_the_limit(config: Path) -> None:
    done = run(config, "--gpu", "h100", "--sequence-length", "4096", COLUMNS="80")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    bars = [line for line in done.stdout.splitlines() if line.startswith(("  init", "  forward", "  backward", "  step"))]
    assert len(bars) == 4
    assert len({line.index("|") for line in bars}) == 1
    assert "79.1 GiB" in done.stdout


def test_colour_changes_nothing_but_colour(config: Path) -> None:
    import re

    plain, painted = (run(config, "--gpu", "h100", "--color", choice).stdout for choice in ("never", "always"))
    assert plain != painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(("--gpu", "h100"), 0), (("--gpu", "l4", "--limit"), 4), (("--limit", "500GiB"), 0), (("--limit", "10GiB"), 4)],
)
def test_exit_codes(config: Path, arguments: tuple[str, ...], code: int) -> None:
    assert run(config, *arguments).returncode == code


def test_json_holds_what_the_page_says(config: Path) -> None:
    data = json.loads(run(config, "--gpu", "h100", "--limit", "--output-format", "json").stdout)
    assert data["limit"] == data["gpu_memory"] == GPUS["h100"].memory
    assert data["fits"] is (data["verdict"] == "fits") is (data["device"]["high"] <= data["limit"])
    for name in ("low", "expected", "high"):
        assert data["tensors"][name] <= data["reserved"][name] < data["device"][name]
    assert data["phases"][data["phase"]]["total"] + data["allowance"]["expected"] == data["device"]["expected"]
    assert sum(data["steady"]["parts"].values()) == data["steady"]["total"]
    swept = json.loads(run(config, "--sweep", "stage=0..3", "--output-format", "json").stdout)
    assert [point["value"] for point in swept["points"]] == [0, 1, 2, 3]


@pytest.mark.parametrize("arguments", [(), ("--sweep", "world-size=1..64")])
def test_pictures(config: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    for name in ("out.svg", "out.html"):
        assert run(config, "--gpu", "h100", "--plot", str(tmp_path / name), *arguments).returncode == 0
    root = ET.parse(tmp_path / "out.svg").getroot()
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "limit 79.1 GiB" in texts
    assert ("backward" in texts) is not bool(arguments)
    assert "<table>" in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_a_png(config: Path, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    done = run(config, "--gpu", "h100", "--plot", str(tmp_path / "out.png"))
    if done.returncode == 3:  # a machine without fonts
        assert "no font" in done.stderr
        return
    data = (tmp_path / "out.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(data[16:20]) == 1760  # twice the width of the SVG


def test_a_png_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(NoRenderer, match=r"deepspeed-lint\[plot\]"):
        png("<svg/>")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "llama-9"), "is neither a file nor a known name"),
        (("--world-size", "0"), "positive integer"),
        (("--world-size", "6", "--tensor-parallel", "4"), "6 is not divisible"),
        (("--nodes", "3"), "8 is not divisible"),
        (("--sequence-length", "0"), "--sequence-length"),
        (("--sequence-parallel", "8", "--sequence-length", "1001"), "1001 is not divisible"),
        (("--pipeline-parallel", "2"), "--pipeline-parallel"),
        (("--sweep", "colour=1"), '--sweep "colour=1" must be one of'),
        (("--sweep", "world-size=0..8"), "needs values"),
        (("--limit",), "--gpu"),
        (("--plot", "x.gif"), ".svg, .png and .html"),
        (("--params", "1e30"), "less than 1e15"),
        (("--lora-rank", "8", "--lora-targets", "nose"), "no layer is named nose"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(config: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(config, *arguments)
    assert done.returncode == 2
    assert words in done.stderr


TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 100,
}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "no model_type"),
        ("{", "is not JSON"),
        ('{"a": 1}', "no model_type"),
        ('{"model_type": "mamba"}', "mamba"),
        ('{"model_type": "llama", "hidden_size": 0}', "hidden_size is 0"),
        ('{"model_type": "llama", "hidden_size": -64}', "hidden_size is -64"),
        ('{"model_type": ["llama"]}', "has no hidden_size"),
        (json.dumps({**TINY, "num_key_value_heads": -2}), "num_key_value_heads is -2"),
        (json.dumps({**TINY, "head_dim": "wide"}), "head_dim is 'wide'"),
        (json.dumps({**TINY, "num_hidden_layers": 10**8}), "num_hidden_layers is 100000000"),
    ],
)
def test_model_files_that_are_none(config: Path, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    done = dslint("estimate", config, "--isolated", "--world-size", "8", "--model", tmp_path)
    assert done.returncode == 2
    assert words in done.stderr


def test_numbers_stand_in_for_an_unknown_family(config: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba", "hidden_size": 2560}', encoding="utf-8")
    done = dslint("estimate", config, "--isolated", "--world-size", "8", "--model", tmp_path, "--params", "3B", "--hidden-size", "2560")
    assert done.returncode == 0
    assert "using the numbers given" in " ".join(done.stdout.split())


def test_offloaded_parameters_are_not_on_the_device_when_they_are_made(tmp_path: Path) -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    options = ("--world-size", "1", "--model", "llama-3-70b", "--gpu", "h100", "--activation-checkpointing", "--limit", "gpu")
    assert dslint("estimate", tmp_path / "ds.json", *options, "--zero-init").returncode == 0
    unsure, whole = dslint("estimate", tmp_path / "ds.json", *options), dslint("estimate", tmp_path / "ds.json", *options, "--no-zero-init")
    assert unsure.returncode == whole.returncode == 4
    assert "if the model is partitioned while it is built" in " ".join(unsure.stdout.split())
    assert "Does not fit" in whole.stdout


def test_what_only_an_assumption_lets_not_fit_is_said_with_it(tmp_path: Path) -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}}
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    options = ("--world-size", "8", "--model", "llama-3-70b", "--gpu", "h100", "--activation-checkpointing", "--integration", "deepspeed")
    said, known = (" ".join(dslint("estimate", tmp_path / "ds.json", *options, *more).stdout.split()) for more in ((), ("--no-zero-init",)))
    assert said.startswith("Does not fit if each rank holds the whole model first, as assumed of a program without zero.Init: at least ")
    assert "Fits if the model is partitioned while it is built: " in said
    assert known.startswith("Does not fit: at least ")


def _estimated(tmp_path: Path, zero: dict[str, object], *options: str) -> dict[str, Any]:
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    done = dslint("estimate", tmp_path / "ds.json", *options, "--output-format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


EVALUATED = (
    "--world-size",
    "4",
    "--model",
    "qwen2.5-7b",
    "--sequence-length",
    "8192",
    "--activation-checkpointing",
    "--loss-chunk",
    "1024",
)


def test_an_evaluation_computes_all_logits(tmp_path: Path) -> None:
    without = _estimated(tmp_path, {"stage": 3}, *EVALUATED, "--eval-batch", "0")
    unknown = _estimated(tmp_path, {"stage": 3}, *EVALUATED)
    once, twice = (_estimated(tmp_path, {"stage": 3}, *EVALUATED, "--eval-batch", count) for count in ("1", "2"))
    logits = 10 * 152064 * 8192  # in 16 and 32 bits, and their log-softmax
    peaks = [found["phases"]["evaluate"]["total"] for found in (once, twice)]
    assert peaks[1] - peaks[0] == logits
    assert peaks[0] == without["steady"]["total"] + logits + without["phases"]["forward"]["parts"]["gathered parameters"]
    assert "evaluate" not in without["phases"]
    assert unknown["tensors"]["expected"] == without["tensors"]["expected"]
    assert unknown["tensors"] == without["tensors"] == once["tensors"]
    assert unknown["evaluation"] is None
    assert twice["evaluation"]["device"] > once["evaluation"]["device"] > twice["phases"]["evaluate"]["total"] - logits


def test_an_evaluation_that_does_not_fit_is_said_apart(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}), encoding="utf-8")
    done = dslint("estimate", tmp_path / "c.json", *EVALUATED, "--gpu", "a100", "--expandable-segments", "--eval-batch", "8")
    first, *_ = done.stdout.splitlines()
    assert first.startswith("Likely fits")
    text = " ".join(done.stdout.split())
    assert "An evaluation of 8 samples" in text
    assert "more than 79.1 GiB" in text
    found = _estimated(tmp_path, {"stage": 3}, *EVALUATED, "--gpu", "a100", "--expandable-segments", "--eval-batch", "8")
    assert found["verdict"] == "likely fits"
    assert found["evaluation"]["fits"] is False


def test_old_releases_of_transformers_copy_logits_to_shift_them(tmp_path: Path) -> None:
    options = ("--world-size", "4", "--model", "llama-2-7b", "--sequence-length", "4096", "--activation-checkpointing", "--integration")
    old, new = (_estimated(tmp_path, {"stage": 2}, *options, f"transformers=={release}") for release in ("4.48.3", "4.49.0"))
    assert old["phases"]["forward"]["total"] - new["phases"]["forward"]["total"] == 4 * 32000 * 4096
    assert old["phases"]["backward"] == new["phases"]["backward"]


def test_what_tensor_parallelism_allocates_in_a_step_is_uncertain(tmp_path: Path) -> None:
    whole, divided = (
        _estimated(tmp_path, {"stage": 1}, "--world-size", "8", "--model", "llama-3-8b", "--tensor-parallel", degree)
        for degree in ("1", "4")
    )
    for found, least in ((whole, 0.0), (divided, 0.24)):
        step = found["tensors"]["expected"] - found["steady"]["total"]
        assert found["tensors"]["high"] - found["tensors"]["expected"] >= least * step


def test_one_rank_copies_offloaded_weights_as_several_gather_them() -> None:
    """Figures of the real DeepSpeed on the fake device: `dslint probe --device fake`, 1 rank, samples of 512 tokens, checkpointing."""
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "optimizer": {"type": "AdamW"}, "zero_optimization": zero}
    resolved = resolve(parse(json.dumps(config)), Facts(world_size=1, nodes=1, integration=Integration.DEEPSPEED))
    model = model_of(ModelRequest("gpt2-xl")).model
    found = estimate(model, make_plan(resolved, Workload(512, checkpoint_every=1), model.hidden))
    assert found.steady.total == pytest.approx(956 * 2**20, rel=0.01)
    assert found.peaks["forward"].total == pytest.approx(3.12 * GIB, rel=0.01)
    assert found.peaks["backward"].total == pytest.approx(4.19 * GIB, rel=0.01)


def test_the_host_memory_that_a_machine_uses_already_counts(tmp_path: Path) -> None:
    options = ("--world-size", "8", "--model", "llama-3-8b", "--host-memory", "1TiB")
    idle, busy = (_estimated(tmp_path, {"stage": 3}, *options, "--host-used", used)["host"]["machine"] for used in ("1GiB", "101GiB"))
    assert {name: busy[name] - idle[name] for name in busy} == dict.fromkeys(busy, 100 * 2**30)
    small, large = (
        _estimated(tmp_path, {"stage": 3}, "--world-size", "8", "--model", "llama-3-8b", "--host-memory", size)["host"]["machine"]
        for size in ("128GiB", "2TiB")
    )
    assert small["low"] == large["low"]
    assert small["high"] < large["high"]


def test_host_memory_that_only_loading_needs_is_said(tmp_path: Path) -> None:
    """Between steps a machine uses far less than while its ranks hold the whole model in fp32."""
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}', encoding="utf-8")
    options = ("--world-size", "4", "--model", "llama-3-8b", "--host-memory", "140GiB")
    said = " ".join(dslint("estimate", "ds.json", "--isolated", *options, cwd=tmp_path).stdout.split())
    assert re.search(
        r"this may not be enough while the ranks load the model: [\d.]+ GiB if each holds it in 16 bits, [\d.]+ GiB in fp32: the kernel",
        said,
    )


def test_letters_that_only_the_bars_have_are_explained(tmp_path: Path) -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}}
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    said = dslint("estimate", "ds.json", "--isolated", "--world-size", "4", "--model", "llama-3-8b", cwd=tmp_path).stdout
    table, bars = said[: said.index("Peak of each phase")], said[said.index("Peak of each phase") :].partition("Peak memory of a GPU")[0]
    in_table = set(re.findall(r"(?m)^  ([A-Za-z])  ", table))
    drawn = {letter for line in bars.splitlines() if line.startswith(("  init ", "  step ")) for letter in line[12:] if letter.isalpha()}
    assert drawn - in_table
    assert drawn - in_table == set(re.findall(r"(?m)(?:^  |, )([A-Za-z]) [a-z]", bars))


def test_what_nvidia_smi_shows_is_not_called_a_limit(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}', encoding="utf-8")
    options = ("--world-size", "4", "--model", "gpt2", "--gpu", "h100")
    said = " ".join(dslint("estimate", "ds.json", "--isolated", *options, cwd=tmp_path).stdout.split())
    assert said.startswith("Fits: needs ")
    assert "nvidia-smi may show more than the high figure where there is room" in said


def test_the_words_about_the_host_follow_the_range(tmp_path: Path) -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    (tmp_path / "ds.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero})
    )
    options = ("estimate", tmp_path / "ds.json", "--world-size", "1", "--params", "32.8e9", "--gpu-memory", "94GiB", "--host-memory")
    said = " ".join(dslint(*options, "750GiB").stdout.split())  # between the expected value and the high end
    assert "A machine has 750 GiB; this may not be enough, because the job can use 760.2 GiB: the kernel may then kill it." in said
    assert "likely enough" not in said
    enough = " ".join(dslint(*options, "4TiB").stdout.split())
    assert "A machine has 4 TiB; this is enough." in enough


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2}, "the batch sizes do not match"),
        ({"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 5}}, "zero_optimization.stage is 5"),
    ],
)
def test_a_config_that_deepspeed_refuses_is_not_estimated(config: dict[str, object], said: str, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    for command in ("estimate", "fit"):
        done = dslint(command, tmp_path / "ds.json", "--world-size", "8", "--model", "gpt2", "--gpu", "t4")
        assert done.returncode == 2
        assert said in done.stderr


@pytest.mark.slow
def test_fit_finds_the_way_to_the_host_on_one_gpu(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW"}}', encoding="utf-8"
    )
    done = dslint("fit", tmp_path / "ds.json", "--world-size", "1", "--model", "llama-2-7b", "--gpu", "rtx4090")
    assert "optimizer offload to CPU" in done.stdout


QWEN = ("--world-size", "4", "--model", "qwen2.5-7b", "--gpu", "a100", "--activation-checkpointing")


def _steady(tmp_path: Path, stage: int, *options: str) -> dict[str, int]:
    parts = _estimated(tmp_path, {"stage": stage}, *QWEN, *options)["steady"]["parts"]
    assert isinstance(parts, dict)
    return parts


@pytest.mark.slow
def test_a_quantized_base_takes_less_and_is_unpacked_while_it_is_used(tmp_path: Path) -> None:
    lora = ("--lora-rank", "16")
    whole, four, eight = (_steady(tmp_path, 2, *lora, "--base-bits", bits)["parameters"] for bits in ("16", "4", "8"))
    linear = 28 * (2 * 3584**2 + 2 * 512 * 3584 + 3 * 18944 * 3584)  # embedding, norms and head stay as they are
    assert whole - four == pytest.approx(linear * (2 - 0.5625), abs=1000)
    assert whole - eight == pytest.approx(linear * (2 - 1), abs=1000)
    assert _steady(tmp_path, 2, "--base-bits", "4") == _steady(tmp_path, 2)  # full training has no quantized base
    by_name = _estimated(tmp_path, {"stage": 2}, *QWEN[:2], "--model", "Qwen/Qwen2.5-7B-Instruct-bnb-4bit", "--lora-rank", "16")
    assert by_name["steady"]["parts"]["parameters"] == four


def test_the_quantization_of_a_config_json_counts(tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}
    found = {}
    for name, section in (("none", None), ("four", {"load_in_4bit": True}), ("fp8", {"quant_method": "fp8"}), ("gptq", {"bits": 4})):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"model_type": "llama", **sizes, "quantization_config": section}), encoding="utf-8")
        options = ("--world-size", "4", "--model", str(path), "--lora-rank", "8")
        found[name] = _estimated(tmp_path, {"stage": 2}, *options)["steady"]["parts"]["parameters"]
    assert found["four"] == found["gptq"] < found["fp8"] < found["none"]


def test_saved_modules_are_trained_whole(tmp_path: Path) -> None:
    lora, saved = (_steady(tmp_path, 2, "--lora-rank", "16", *more) for more in ((), ("--lora-saves", "embed_tokens,lm_head")))
    copies = 2 * 152064 * 3584
    assert saved["parameters"] - lora["parameters"] == 2 * copies
    assert saved["optimizer states"] - lora["optimizer states"] == 8 * copies // 4


@pytest.mark.slow
def test_reference_models_pairs_and_vllm_need_memory(tmp_path: Path) -> None:
    for stage, share in ((2, 1), (3, 4)):
        one, two = (_steady(tmp_path, stage, "--frozen-copies", count)["parameters"] for count in ("1", "2"))
        assert two - one == pytest.approx(2 * 7615616512 / share, abs=10)
    single, pair = (_estimated(tmp_path, {"stage": 2}, *QWEN, *more) for more in ((), ("--pairs",)))
    parts = [found["phases"]["forward"]["parts"]["logits and loss"] for found in (single, pair)]
    assert parts[1] == 2 * parts[0]
    shared = _estimated(tmp_path, {"stage": 2}, *QWEN, "--vllm-share", "0.3")
    assert shared["device"]["expected"] - single["device"]["expected"] == round(0.3 * shared["gpu_memory"])
    assert shared["tensors"] == single["tensors"]


def test_a_value_model_and_a_teacher_are_on_the_gpu(tmp_path: Path) -> None:
    alone = _steady(tmp_path, 2)
    with_value, with_teacher = _steady(tmp_path, 2, "--value-model"), _steady(tmp_path, 2, "--teacher", "qwen2.5-14b")
    assert with_value["optimizer states"] > 1.8 * alone["optimizer states"]
    assert with_teacher["parameters"] - alone["parameters"] == 2 * 14770033664


def test_stage_3_gathers_the_model_to_generate(tmp_path: Path) -> None:
    found = _estimated(tmp_path, {"stage": 3}, *QWEN, "--generates")
    whole = 2 * 7615616512
    assert found["phases"]["generate"]["parts"]["gathered parameters"] == whole
    assert "gathered parameters" not in _estimated(tmp_path, {"stage": 2}, *QWEN, "--generates")["phases"]["generate"]["parts"]
    assert "generate" not in _estimated(tmp_path, {"stage": 3}, *QWEN)["phases"]


def test_an_embedding_model_has_no_logits(tmp_path: Path) -> None:
    found = _estimated(tmp_path, {"stage": 2}, *QWEN, "--no-logits")
    assert "logits and loss" not in found["phases"]["forward"]["parts"]
    assert found["model"]["parameters"] == 7615616512 - 152064 * 3584


def test_the_low_figure_of_varying_lengths_has_short_samples(tmp_path: Path) -> None:
    long = ("--sequence-length", "8192", "--activation-checkpointing")
    low = {
        (pairs, varying): _estimated(tmp_path, {"stage": 2}, *QWEN, *long, *pairs, *varying)["tensors"]["low"]
        for pairs in ((), ("--pairs",))
        for varying in ((), ("--varying-lengths",))
    }
    assert low[("--pairs",), ("--varying-lengths",)] < 0.8 * low[("--pairs",), ()]
    assert low[(), ("--varying-lengths",)] < low[(), ()]
    short = ("--sequence-length", "256", "--activation-checkpointing")
    assert low[(), ("--varying-lengths",)] == _estimated(tmp_path, {"stage": 2}, *QWEN, *short)["tensors"]["low"]


def test_the_expected_figure_of_varying_lengths_has_one_long_sample(tmp_path: Path) -> None:
    options = ("--sequence-length", "8192", "--activation-checkpointing", "--micro-batch", "8")
    limit, varying = (_estimated(tmp_path, {"stage": 2}, *QWEN, *options, *more)["tensors"] for more in ((), ("--varying-lengths",)))
    mean = _estimated(tmp_path, {"stage": 2}, *QWEN, *options, "--sequence-length", str((8192 + 7 * 1024) // 8))["tensors"]
    assert varying["expected"] == mean["expected"] < limit["expected"]
    assert varying["high"] == limit["high"]
    assert varying["low"] < mean["low"]


def test_experts_are_quantized_if_they_are_linear_layers(tmp_path: Path) -> None:
    """Published: QLoRA of Mixtral on one A100 with transformers 4 has 45 to 56 GiB of tensors at its peak."""
    mixtral = ("--world-size", "1", "--model", "mixtral-8x7b", "--gpu", "a100", "--lora-rank", "16", "--lora-targets", "q_proj,v_proj")

    def estimated(*options: str) -> tuple[int, str]:
        done = _estimated(tmp_path, {"stage": 0}, *mixtral, *options)
        return done["steady"]["parts"]["parameters"], " ".join(done["assumed"])

    experts = 32 * 8 * 3 * 14336 * 4096
    old, said = estimated("--base-bits", "4", "--integration", "transformers==4.48.0")
    whole, _ = estimated("--integration", "transformers==4.48.0")
    new, _ = estimated("--base-bits", "4", "--integration", "transformers==5.0.0")
    assert whole - old == pytest.approx((experts + 32 * 2 * (4096**2 + 1024 * 4096)) * (2 - 0.5625), rel=1e-3)
    assert new - old == pytest.approx(experts * (2 - 0.5625), rel=1e-6)
    assert "experts" not in said
    unknown, said = estimated("--base-bits", "4", "--integration", "transformers")
    assert unknown == new
    assert "the experts are not quantized, because transformers 5" in said


def test_experts_that_transformers_4_stacks_are_not_quantized(tmp_path: Path) -> None:
    options = ("--world-size", "1", "--gpu", "a100", "--lora-rank", "16", "--base-bits", "4", "--integration", "transformers==4.57.6")
    whole, small = (
        _estimated(tmp_path, {"stage": 0}, "--model", name, *options)["steady"]["parts"]["parameters"]
        for name in ("qwen3-vl-30b-a3b", "qwen3-30b-a3b")
    )
    assert whole > 2.5 * small


def test_sizes_beside_a_config_of_a_model_are_said_to_do_nothing(tmp_path: Path) -> None:
    said = " ".join(
        _estimated(tmp_path, {"stage": 2}, "--world-size", "8", "--model", "llama-2-7b", "--layers", "4", "--heads", "2")["assumed"]
    )
    assert "--layers, --heads have no effect: the sizes are those of llama-2-7b" in said


@pytest.mark.parametrize(
    ("gpu", "kernel", "runs"), [("v100", "flash_attention_2", False), ("a100", "flash_attention_2", True), ("v100", "sdpa", True)]
)
def test_a_kernel_that_does_not_run_on_the_gpu_is_said(tmp_path: Path, gpu: str, kernel: str, runs: bool) -> None:
    options = ("--world-size", "8", "--model", "llama-2-7b", "--gpu", gpu, "--attention", kernel)
    said = " ".join(_estimated(tmp_path, {"stage": 2}, *options)["assumed"])
    assert (f"--attention {kernel} does not run on {gpu}" not in said) is runs
