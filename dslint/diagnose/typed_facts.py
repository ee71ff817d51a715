"""What ran, as typed values: for the JSON of `dslint diagnose`."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from dslint.diagnose.job import Known, LoggedJob, losses, step_times
from dslint.diagnose.phases import phases_of
from dslint.diagnose.prefixes import LogPlace
from dslint.diagnose.summary import token_rates
from dslint.record import Record

GIB = 2**30

TEXTS = {
    "deepspeed": "release", "torch": "torch", "loader": "integration", "optimizer": "optimizer",
    "gpu": "gpu", "model": "model_name",
}  # fmt: skip
NUMBERS = {
    "ranks": "ranks", "ranks_at_least": "ranks_at_least", "machines": "nodes", "data_parallel": "data_parallel",
    "tensor_parallel": "tensor", "pipeline_parallel": "pipeline", "sequence_parallel": "sequence", "parameters": "params",
    "parameters_of_rank": "params_of_rank", "trained_parameters": "trained", "layers": "layers", "hidden_size": "hidden",
    "vocabulary": "vocabulary", "micro_batch_size": "micro_batch", "gradient_accumulation_steps": "accumulation",
    "train_batch_size": "total_batch", "sequence_length_tokens": "length", "steps": "steps",
}  # fmt: skip
WRITTEN = {
    "micro_batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "train_batch_size": "train_batch_size",
}
"""Numbers that the config tells if no line of the log does."""

NAMES = (
    *TEXTS, *NUMBERS, "gpu_memory_bytes", "zero_stage", "offload_optimizer", "offload_param", "precision", "activation_checkpointing",
    "last_step", "step_time_s", "samples_per_second", "tokens_per_second", "tokens_per_second_of_gpu",
    "tflops", "forward_ms", "backward_ms", "optimizer_step_ms", "last_loss", "skipped_steps",
)  # fmt: skip
"""The names of all facts."""


class Fact(Record):
    """A fact: its name, its value (a text, a number or a truth value), and the line that tells it."""

    name: str
    value: Any
    place: LogPlace | None


def typed(job: LoggedJob) -> list[Fact]:
    """The facts that the log tells."""
    return [*settled(job), *(fact for fact in _progress(job) if fact.value is not None)]


def settled(job: LoggedJob) -> list[Fact]:
    """The facts that do not change with every step."""
    return [fact for part in (_known(job), _state(job)) for fact in part if fact.value is not None]


def _known(job: LoggedJob) -> Iterator[Fact]:
    for name, source in (*TEXTS.items(), *NUMBERS.items()):
        known = job.facts.get(source)
        if name == "ranks_at_least" and job.sure_ranks() is not None:
            continue  # a lower bound says nothing beside the number
        if known is not None:
            yield Fact(name, known.value, known.place)
        elif name in WRITTEN and isinstance(value := job.setting(WRITTEN[name]), int) and not isinstance(value, bool):
            yield Fact(name, value, job.facts["config"].place)
    memory = job.facts.get("gpu_memory")
    capacity = job.facts.get("gpu_capacity")
    if capacity is not None:
        yield Fact("gpu_memory_bytes", int(capacity.value * GIB), capacity.place)
    elif memory is not None:
        yield Fact("gpu_memory_bytes", memory.value, memory.place)


def _state(job: LoggedJob) -> Iterator[Fact]:
    stage = job.stage()
    if stage is not None:
        yield Fact("zero_stage", stage.value, stage.place)
    place = job.facts["config"].place if "config" in job.facts else None
    for what in ("optimizer", "param"):
        device = job.setting("zero_optimization", f"offload_{what}", "device")
        yield Fact(f"offload_{what}", device if isinstance(device, str) else None, place)
    dtype = job.facts.get("dtype")
    if dtype is None and place is not None:
        on = [name for name in ("bfloat16", "float16") if job.setting({"bfloat16": "bf16", "float16": "fp16"}[name], "enabled") is True]
        dtype = Known(on[0] if on else "float32", place)
    if dtype is not None:
        yield Fact("precision", dtype.value, dtype.place)
    if "checkpointing" in job.facts:
        yield Fact("activation_checkpointing", bool(job.get("checkpointing")), job.facts["checkpointing"].place)


def _progress(job: LoggedJob) -> Iterator[Fact]:
    numbered = [(event, step) for event in job.steps if event.kind == "step" and (step := event.number("step")) is not None]
    if numbered:
        yield Fact("last_step", max(step for _, step in numbered), numbered[-1][0].place)
    timed = step_times(job)
    if timed:
        yield Fact("step_time_s", median(seconds for _, seconds in timed), timed[0][0].place)
    rates = [(event, rate) for event in job.steps if (rate := event.real("rate_per_second"))]
    if rates:
        yield Fact("samples_per_second", median(rate for _, rate in rates), rates[-1][0].place)
    for name, is_each in (("tokens_per_second", False), ("tokens_per_second_of_gpu", True)):
        tokens = token_rates(job, of_each=is_each)
        if tokens:
            yield Fact(name, median(rate for _, rate in tokens), tokens[-1][0].place)
    flops = [(event, rate) for event in job.steps if (rate := event.real("tflops"))]
    if flops:
        yield Fact("tflops", median(rate for _, rate in flops), flops[-1][0].place)
    told = list(losses(job))
    if told and told[-1][1] - told[-1][1] == 0:  # a finite number: JSON has no others
        yield Fact("last_loss", told[-1][1], told[-1][0].place)
    if "overflow" in job.counts:
        yield Fact("skipped_steps", job.counts["overflow"], job.of("overflow")[0].place if job.of("overflow") else None)
    phases = phases_of(job)
    if phases is not None:
        for name, phase in (("forward_ms", "forward"), ("backward_ms", "backward"), ("optimizer_step_ms", "step")):
            yield Fact(name, phases.ms.get(phase), phases.event.place)
