"""`dslint probe --calibrate`: runs small and middle models on a GPU, and measures what it needs besides tensors.

Each experiment is a run of the real engine in its own process. On a GPU, two of them run again with less and less memory, until their steps
no longer pass. Ranks are simulated, so that buffers of NCCL are not part of it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dslint.config import resolve
from dslint.facts import Facts, Integration
from dslint.facts.calibration import VERSION
from dslint.facts.gpus import in_words
from dslint.probe.answer import Answer
from dslint.probe.predict import replayed
from dslint.probe.question import DecoderSizes, Device, ProbedModel, Question
from dslint.probe.session import Progress
from dslint.record import Record
from dslint.source.parse import parse

Ask = Callable[[Question, Progress], Answer]
"""Runs a question."""

Keep = Callable[[dict[str, Any]], None]
"""Called with the content of the file after each experiment, so that a run that is interrupted loses only the current one."""

SMALL = DecoderSizes(layers=4, hidden=1024, heads=16, kv_heads=16, head_size=64, ffn=2816, vocab=32000)
MIDDLE = DecoderSizes(layers=16, hidden=2048, heads=16, kv_heads=8, head_size=128, ffn=5632, vocab=32000)
TINY = DecoderSizes()
"""Stands for every model on the CPU."""

RANKS = 4
"""The world size that is simulated, where ZeRO partitions something."""

PRECISION = 0.02
"""How exactly the smallest memory is searched, as a share of what tensors use."""

LEAST = 2**30
"""Runs with fewer bytes of tensors say nothing about the allocator: its blocks are too large for them."""


PRECISIONS = ("bf16", "fp16")
"""The first in which an experiment starts is used for all: older GPUs have no bf16."""

BUSY = 3 * 2**29
"""With more bytes in use before the model is built, other programs use the GPU: a context alone takes 0.3 to 0.7 GiB (H100, A100, V100)."""


class Experiment(Record):
    """A run: its name, the model, the ZeRO section of the config, and the workload. `searched`: also look for the smallest memory."""

    name: str
    shape: DecoderSizes
    zero: dict[str, Any]
    length: int = 1024
    micro_batch: int = 4
    checkpointing: bool = False
    searched: bool = False
    adapters: int = 0


def _offload(*what: str, pinned: bool = True) -> dict[str, Any]:
    return {f"offload_{name}": {"device": "cpu", "pin_memory": pinned} for name in what}


EXPERIMENTS = (
    *(Experiment(f"small, stage {stage}", SMALL, {"stage": stage}) for stage in range(4)),
    Experiment("small, stage 2, checkpointing", SMALL, {"stage": 2}, checkpointing=True),
    Experiment("small, stage 2, eager attention", replace(SMALL, eager=True), {"stage": 2}),
    Experiment("small, vocabulary of 151,936", replace(SMALL, vocab=151936), {"stage": 2}, searched=True),
    Experiment("middle, stage 2, checkpointing", MIDDLE, {"stage": 2}, 2048, 2, checkpointing=True, searched=True),
    Experiment("middle, stage 3, checkpointing", MIDDLE, {"stage": 3}, 2048, 2, checkpointing=True),
    Experiment("middle, LoRA", MIDDLE, {"stage": 2}, 2048, 2, checkpointing=True, adapters=16),
    Experiment("middle, optimizer offload", MIDDLE, {"stage": 2, **_offload("optimizer")}, 2048, 2, checkpointing=True),
    Experiment("middle, not page-locked", MIDDLE, {"stage": 2, **_offload("optimizer", pinned=False)}, 2048, 2, checkpointing=True),
    Experiment("middle, parameter offload", MIDDLE, {"stage": 3, **_offload("optimizer", "param")}, 2048, 2, checkpointing=True),
)


class ExperimentResult(Record):
    """What an experiment showed, in bytes and seconds. `estimated` is the estimate of `allocated`; `smallest` is the smallest memory with
    which its steps pass, `smallest_expandable` the same with expandable segments. `driver` is what the driver says is in use after the
    last step, and `context` the part of it that the allocator does not hold then. None: not measured, or no such thing on the device.
    """

    name: str
    parameters: int
    problem: str | None = None
    allocated: int | None = None
    estimated: int | None = None
    reserved: int | None = None
    reserved_expandable: int | None = None
    driver: int | None = None
    context: int | None = None
    smallest: int | None = None
    smallest_expandable: int | None = None
    step_seconds: float | None = None
    update_seconds: float | None = None
    copied_per_second: float | None = None


def question_of(experiment: Experiment, device: Device, precision: str = PRECISIONS[0]) -> Question:
    """The question of an experiment. On the CPU, a tiny model stands for every model."""
    config = {
        "train_micro_batch_size_per_gpu": 1 if device == "cpu" else experiment.micro_batch,
        precision: {"enabled": True, **({"initial_scale_power": 8} if precision == "fp16" else {})},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": experiment.zero,
    }
    shape, length = experiment.shape, experiment.length
    if device == "cpu":
        shape, length = replace(TINY, eager=shape.eager), 128
    return Question(
        json.dumps(config),
        device=device,
        world_size=1 if experiment.zero["stage"] == 0 else RANKS,
        model=ProbedModel(shape, adapters=experiment.adapters),
        sequence=length,
        checkpointing=experiment.checkpointing,
        speeds="offload_optimizer" in experiment.zero,
    )


def calibrate(
    experiments: tuple[Experiment, ...], device: Device, ask: Ask, progress: Progress, keep: Keep | None = None
) -> dict[str, Any]:
    """Run the experiments; the result is the content of the file.

    `unable` in it says why nothing could run. `measured` is what estimates use; it is missing unless a GPU ran them. `left` is the number
    of experiments that are still to run.
    """
    findings: list[ExperimentResult] = []
    first, precision = Answer(), PRECISIONS[0]
    data: dict[str, Any] = {}
    for number, experiment in enumerate(experiments):

        def say(doing: str, part: float | None, name: str = experiment.name, place: int = number) -> None:  # noqa: ARG001 - of one run
            progress(f"{name}: {doing}", place / len(experiments))

        if number == 0:
            precision, first = _first(experiment, device, ask, say)
        question = question_of(experiment, device, precision)
        answer = ask(question, say) if number else first
        if not findings and (unable := answer.unable or _busy(answer)) is not None:
            return {"calibration": VERSION, "device": device, "unable": unable}
        findings.append(_finding(experiment, question, answer, ask, say))
        data = {
            "calibration": VERSION,
            "device": first.device,
            "hardware": first.hardware,
            "capacity": first.capacity,
            "versions": first.versions,
            "precision": precision,
            "torch_adam": first.engine.get("optimizer") in ("Adam", "AdamW"),
            "left": len(experiments) - len(findings),
            "runs": [finding._asdict() for finding in findings],
            **({"measured": summary(findings)} if first.device == "cuda" and len(_told(findings)) > 1 else {}),
        }
        if keep is not None:
            keep(data)
    return data


def _first(experiment: Experiment, device: Device, ask: Ask, progress: Progress) -> tuple[str, Answer]:
    """The first precision with which an experiment starts, and its answer. If it starts with none, the usual one."""
    answers: list[Answer] = []
    for precision in PRECISIONS:
        answers.append(ask(question_of(experiment, device, precision), progress))
        if answers[-1].started:
            return precision, answers[-1]
        if answers[-1].unable is not None or answers[-1].out_of_memory:
            break
    return PRECISIONS[0], answers[0]


def _busy(answer: Answer) -> str | None:
    """A sentence about other programs on the GPU, which would be measured, too."""
    if answer.occupied is None or answer.occupied <= BUSY:
        return None
    return f"{in_words(answer.occupied)} of this GPU are in use, also by other programs; run it again when they have ended"


def _finding(experiment: Experiment, question: Question, answer: Answer, ask: Ask, progress: Progress) -> ExperimentResult:
    if answer.unable is not None or answer.raised is not None:
        raised = answer.raised
        text = answer.unable or (f"{raised.kind}: {raised.text.splitlines()[0][:200]}" if raised and raised.text else "an exception")
        return ExperimentResult(experiment.name, answer.parameters, "out of memory" if answer.out_of_memory else text)
    memory = answer.memory[answer.place]
    run = replayed(resolve(parse(question.text), _facts(question)), question, answer) if answer.place == "device" else None
    found = ExperimentResult(
        experiment.name,
        answer.parameters,
        allocated=memory.training_peak,
        estimated=max((moment.total for phase, moment in run.peaks.items() if phase != "init"), default=None) if run else None,
        reserved=memory.reserved,
        driver=memory.driver,
        context=memory.context,
        step_seconds=answer.step_seconds,
        update_seconds=answer.update_seconds,
        copied_per_second=answer.copied_per_second,
    )
    if not (experiment.searched and memory.reserved):
        return found
    free = ask(replace(question, expandable=True), progress)
    expandable = free.memory["device"].reserved if free.started else None

    def smallest_of(reserved: int | None, *, segments: bool) -> int | None:
        def passes(cap: int) -> bool:
            return ask(replace(question, cap=cap, expandable=segments), progress).started

        return smallest(passes, memory.training_peak, reserved) if reserved else None

    return found._replace(
        reserved_expandable=expandable,
        smallest=smallest_of(memory.reserved, segments=False),
        smallest_expandable=smallest_of(expandable, segments=True),
    )


def _facts(question: Question) -> Facts:
    return Facts(world_size=question.world_size, nodes=1, integration=Integration.DEEPSPEED)


def smallest(passes: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest memory in bytes with which a run passes, between one that is too small and one that is enough."""
    step = max(1, round(PRECISION * low))
    while high - low > step:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def summary(findings: list[ExperimentResult]) -> dict[str, Any]:
    """What estimates use of the findings: context, reserved memory as a multiple of tensors, speeds."""
    told = _told(findings)
    context = [float(found.context) for found in told if found.context is not None]
    shares = [found.reserved / found.allocated for found in told if found.reserved and found.allocated]
    expandable = [found.reserved_expandable / found.allocated for found in told if found.reserved_expandable and found.allocated]
    full = [found.smallest / found.allocated for found in told if found.smallest and found.allocated]
    tight = [found.smallest_expandable / found.allocated for found in told if found.smallest_expandable and found.allocated]
    updates = [rate for found in findings if (rate := _adam(found)) is not None]
    copies = [found.copied_per_second for found in findings if found.copied_per_second]
    return {
        "context": _range(context),
        "reserved": _range(shares),
        "expandable": _range(expandable) if expandable else None,
        "full": statistics.median(full) if full else None,
        "expandable_full": statistics.median(tight) if tight else None,
        "pcie": statistics.median(copies) if copies else None,
        "adam": statistics.median(updates) if updates else None,
    }


def _told(findings: list[ExperimentResult]) -> list[ExperimentResult]:
    """The runs that say something about the allocator."""
    return [found for found in findings if found.reserved and found.context is not None and found.allocated and found.allocated >= LEAST]


def _adam(found: ExperimentResult) -> float | None:
    """The bytes per second that Adam on the CPU reads and writes in a step of one of four ranks: 28 per parameter. The step also copies
    the new weights to the GPU, 2 bytes per parameter.
    """
    if not (found.update_seconds and found.copied_per_second):
        return None
    seconds = found.update_seconds - 2 * found.parameters / RANKS / found.copied_per_second
    return 28 * found.parameters / RANKS / seconds if seconds > 0 else None


def _range(values: list[float]) -> tuple[float, float, float]:
    return min(values), statistics.median(values), max(values)


def written_by(data: dict[str, Any]) -> list[ExperimentResult]:
    """The findings in the content of a file."""
    return [ExperimentResult(**run) for run in data.get("runs", ())]
