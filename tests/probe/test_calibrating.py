"""`dslint probe --calibrate`: what a GPU needs besides tensors, how it is found, and what estimates take from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from dslint.errors import UserError
from dslint.facts.calibration import find_calibration, load_calibration, shipped_calibration
from dslint.facts.gpus import GPUS
from dslint.memory.surroundings import COMMUNICATOR
from dslint.probe import calibrating
from dslint.probe.answer import Answer, Memory, RaisedError
from dslint.probe.calibrating import EXPERIMENTS, Experiment, calibrate, question_of, smallest
from dslint.probe.question import Question
from dslint.probe.session import Progress, ask
from dslint.report.calibration_page import page
from dslint.report.style import Style
from dslint.settings import Settings, from_options
from tests.command import ROOT, dslint

GIB = 2**30
CONTEXT, RESERVED, TIGHT, TIGHT_EXPANDABLE = GIB // 2, 1.2, 1.06, 1.02


def gpu(question: Question, progress: Progress) -> Answer:
    """A GPU that reserves a fifth more than the 10 GiB of its tensors, and runs out of memory below 1.06 times."""
    tensors = 10 * GIB
    if question.cap is not None and question.cap < tensors * (TIGHT_EXPANDABLE if question.expandable else TIGHT):
        return Answer("cuda", raised=RaisedError("backward", "OutOfMemoryError", "CUDA out of memory"), out_of_memory=True)
    reserved = round(tensors * (1.1 if question.expandable else RESERVED))
    memory = Memory(GIB, 2 * GIB, {"forward": tensors, "step": GIB}, reserved=reserved, driver=GIB + CONTEXT, context=CONTEXT)
    engine = {"stage": 2, "optimizer": "FusedAdam", "micro_batch": 4, "accumulation": 1}
    copied = 20e9 if question.speeds else None
    return Answer(
        "cuda",
        hardware="a GPU",
        versions={"torch": "2"},
        parameters=4 * 10**9,
        engine=engine,
        memory={"device": memory},
        update_seconds=0.5,
        copied_per_second=copied,
    )


def quiet(doing: str, part: float | None) -> None:
    """No progress."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "h100.json"
    path.write_text(json.dumps(calibrate(EXPERIMENTS, "cuda", gpu, quiet)), encoding="utf-8")
    return path


def test_what_a_gpu_needs_besides_tensors(file: Path) -> None:
    found = load_calibration(str(file))
    assert found.context == (CONTEXT, CONTEXT, CONTEXT)
    measured = json.loads(file.read_text(encoding="utf-8"))["measured"]
    assert measured["reserved"] == pytest.approx((RESERVED,) * 3)
    assert measured["expandable"] == pytest.approx((1.1,) * 3)
    assert measured["full"] == pytest.approx(TIGHT, abs=0.02)
    assert measured["expandable_full"] == pytest.approx(TIGHT_EXPANDABLE, abs=0.02)
    assert found.pcie == 20e9
    assert found.adam == pytest.approx(28e9 / (0.5 - 2e9 / 20e9))  # without the copy of the new weights


@pytest.mark.parametrize("enough", [101, 150, 199, 200])
def test_the_smallest_memory_is_searched(enough: int) -> None:
    found = smallest(lambda cap: cap >= enough, 100, 200)
    assert enough <= found <= enough + 2


def test_a_gpu_without_bf16_is_calibrated_in_fp16() -> None:
    def old(question: Question, progress: Progress) -> Answer:
        if '"bf16"' in question.text:
            return Answer("cuda", raised=RaisedError("initialize", "ValueError", "Type bf16 is not supported on your device"))
        return gpu(question, progress)

    data = calibrate(EXPERIMENTS[:2], "cuda", old, quiet)
    assert (data["precision"], data["torch_adam"]) == ("fp16", False)
    assert [run["problem"] for run in data["runs"]] == [None, None]


def test_a_machine_without_a_compiler_is_calibrated_with_the_adam_of_torch() -> None:
    def plain(question: Question, progress: Progress) -> Answer:
        answer = gpu(question, progress)
        return replace(answer, engine={**answer.engine, "optimizer": "AdamW"})

    data = calibrate(EXPERIMENTS, "cuda", plain, quiet)
    assert (data["precision"], data["torch_adam"]) == ("bf16", True)
    assert {run["problem"] for run in data["runs"]} == {None}
    assert "torch's Adam ran" in " ".join(page(data, "gpu.json", Style(color=False, width=80)).split())


def test_a_gpu_that_other_programs_use_is_not_calibrated() -> None:
    def used(question: Question, progress: Progress) -> Answer:
        return replace(gpu(question, progress), occupied=3 * GIB)

    data = calibrate(EXPERIMENTS, "cuda", used, quiet)
    assert data["unable"] == "3 GiB of this GPU are in use, also by other programs; run it again when they have ended"


def test_what_was_measured_is_kept_after_each_experiment(tmp_path: Path) -> None:
    kept: list[dict[str, Any]] = []
    data = calibrate(EXPERIMENTS[:3], "cuda", gpu, quiet, kept.append)
    assert [(len(one["runs"]), one["left"]) for one in kept] == [(1, 2), (2, 1), (3, 0)]
    assert kept[-1] == data
    path = tmp_path / "part.json"
    path.write_text(json.dumps(kept[0]), encoding="utf-8")
    with pytest.raises(UserError, match="too few runs"):
        load_calibration(str(path))
    path.write_text(json.dumps(kept[1]), encoding="utf-8")
    assert load_calibration(str(path)).context == (CONTEXT, CONTEXT, CONTEXT)


def test_an_experiment_that_fails_is_said_and_the_others_go_on() -> None:
    def small(question: Question, progress: Progress) -> Answer:
        if question.sequence > 1024:
            return Answer("cuda", raised=RaisedError("forward", "OutOfMemoryError", "out of memory"), out_of_memory=True)
        return gpu(question, progress)

    data = calibrate(EXPERIMENTS, "cuda", small, quiet)
    assert {run["problem"] for run in data["runs"]} == {None, "out of memory"}
    assert data["measured"]["reserved"][1] == pytest.approx(RESERVED)
    assert "out of memory" in page(data, "gpu.json", Style(color=False, width=80))


def test_estimates_print_both_sides(file: Path, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        json.dumps({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}), encoding="utf-8"
    )

    def estimated(*options: str) -> dict[str, Any]:
        command = ("estimate", "ds.json", "--model", "gpt2", "--world-size", "1", "--gpu", "h100", *options, "--output-format", "json")
        found = json.loads(dslint(*command, cwd=tmp_path).stdout)
        assert isinstance(found, dict)
        return found

    logs, own = estimated("--gpu", "h200"), estimated("--calibration", "h100.json")
    assert own["tensors"] == logs["tensors"]
    assert own["reserved"] == logs["reserved"]  # the share of small trainings says little about others
    assert own["device"]["expected"] - own["reserved"]["expected"] == CONTEXT + round(COMMUNICATOR)
    said = dslint("estimate", "ds.json", "--model", "gpt2", "--world-size", "1", "--calibration", "h100.json", cwd=tmp_path).stdout
    assert "measured on a GPU (h100.json); job logs: 1.0 GiB" in " ".join(said.split())
    (tmp_path / "dslint.toml").write_text('calibration = "."\n', encoding="utf-8")  # a folder with a file for each GPU
    assert estimated()["device"] == own["device"]
    assert estimated("--gpu", "a100")["device"] != own["device"]


SHIPPED = resources.files("dslint.facts") / "calibrations"


def test_a_calibration_that_comes_with_dslint_is_used_for_its_gpu(file: Path) -> None:
    def found(**given: Any) -> str | None:
        calibration = Settings([from_options(given)]).context.calibration
        return calibration and calibration.path

    h100, a100 = GPUS["h100"], GPUS["a100"]
    assert found(gpu=h100) == "h100.json of dslint"
    assert found(gpu=a100) is None
    assert found() is None
    own = found(gpu=h100, calibration=str(file))
    assert own is not None
    assert own.endswith(str(file))


@pytest.mark.parametrize("shipped", [file.name for file in SHIPPED.iterdir()])
def test_the_speeds_of_the_machine_that_was_measured_are_not_those_of_others(shipped: str) -> None:
    own, used = load_calibration(str(SHIPPED / shipped)), shipped_calibration(shipped.removesuffix(".json"))
    assert shipped.removesuffix(".json") in GPUS
    assert own.pcie is not None
    assert own.adam is not None
    assert used == own._replace(path=f"{shipped} of dslint", pcie=None, adam=None)


def test_dslint_in_an_archive_has_them_too(tmp_path: Path) -> None:
    archive = tmp_path / "dslint.zip"
    with zipfile.ZipFile(archive, "w") as writing:
        for name in ("__init__.py", "errors.py", "facts"):
            source = ROOT / "dslint" / name
            for path in [source] if source.is_file() else source.rglob("*"):
                if path.is_file() and path.suffix in (".py", ".json"):
                    writing.write(path, path.relative_to(ROOT))
    code = "from dslint.facts import calibration; print(calibration.__file__, calibration.shipped_calibration('h100').context, calibration.shipped_calibration('t4'))"
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    assert str(archive) in done.stdout
    assert done.stdout.endswith(f"{shipped_calibration('h100').context} None\n")  # type: ignore[union-attr] # there is one


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("{}", "is not a calibration"),
        ('{"calibration": 1, "device": "fake"}', "was made on the device fake"),
        ('{"calibration": 1, "measured": {"context": [1, 2]}}', "is incomplete"),
        ('{"calibration": 1, "hardware": "x", "measured": {"context": [3, 2, 1]}}', "has wrong values"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=words):
        load_calibration(str(path))
    with pytest.raises(UserError, match="cannot be read"):
        load_calibration(str(tmp_path / "missing.json"))
    assert find_calibration(str(tmp_path), "h100") is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ds.json",), "leave out CONFIG"),
        (("--steps", "5", "--gpu", "h100", "--isolated"), "leave out --gpu, --isolated, --steps"),
        (("--set", "gradient_clipping=1"), "leave out --set"),
    ],
)
def test_calibrate_refuses_what_it_would_ignore(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text("{}", encoding="utf-8")
    done = dslint("probe", *arguments, "--calibrate", "out.json", cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "CONFIG" in dslint("probe", cwd=tmp_path).stderr


@pytest.mark.parametrize("path", ["missing/out.json", "."])
def test_a_file_that_cannot_be_written_is_refused_before_the_run(path: str, tmp_path: Path) -> None:
    done = dslint("probe", "--calibrate", path, "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_run_that_is_ended_keeps_what_it_measured(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    command = [sys.executable, "-m", "dslint", "probe", "--calibrate", "out.json", "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        end = time.monotonic() + 280
        while not (tmp_path / "out.json").exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        process.terminate()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "stopped: out.json has" in said
    data = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert len(data["runs"]) + data["left"] == len(EXPERIMENTS)
    assert data["left"]


def real(question: Question, progress: Progress) -> Answer:
    return ask(question, timeout=280, progress=progress)


def tiny(question: Question) -> Question:
    shape = question.model.shape
    small = replace(shape, layers=2, hidden=128, heads=2, kv_heads=2, head_size=64, ffn=256, vocab=1000)
    return replace(question, model=replace(question.model, shape=small), sequence=64)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["middle, LoRA", "small, stage 2, eager attention"])
def test_experiments_run_on_the_fake_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("deepspeed")
    made = question_of
    monkeypatch.setattr(calibrating, "question_of", lambda *given, **more: tiny(made(*given, **more)))
    data = calibrate(_named(name), "fake", real, quiet)
    (run,) = data["runs"]
    assert run["problem"] is None
    assert run["allocated"] > 0
    assert run["estimated"] == pytest.approx(run["allocated"], rel=0.15)
    assert "measured" not in data
    assert "estimates do not use this file" in " ".join(page(data, "out.json", Style(color=False, width=80)).split())


@pytest.mark.slow
def test_experiments_run_on_the_cpu() -> None:
    pytest.importorskip("deepspeed")
    (run,) = calibrate(_named("middle, LoRA"), "cpu", real, quiet)["runs"]
    assert run["problem"] is None
    assert run["allocated"] > 0


def _named(name: str) -> tuple[Experiment, ...]:
    return tuple(experiment for experiment in EXPERIMENTS if experiment.name == name)


def test_the_experiments_differ() -> None:
    questions = [question_of(experiment, "cuda") for experiment in EXPERIMENTS]
    assert len({(question.text, question.model, question.checkpointing) for question in questions}) == len(EXPERIMENTS)
    passes: Callable[[int], bool] = lambda cap: cap > 0  # noqa: E731 - a name for its type
    assert smallest(passes, 1, 2) == 2
