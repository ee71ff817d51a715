"""What ran, in rows: each with the line of the log that tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dslint.diagnose.events import LogEvent
from dslint.diagnose.job import Known, LoggedJob, step_times
from dslint.diagnose.phases import phases_of
from dslint.diagnose.prefixes import LogPlace
from dslint.record import Record

GIB = 2**30


class Row(Record):
    """A fact about a job: its name, its value as text, and the line that tells it."""

    name: str
    value: str
    place: LogPlace | None


def rows(job: LoggedJob) -> list[Row]:
    """What is known about a job. What the log does not tell is left out."""
    parts = (
        _libraries(job),
        _ranks(job),
        _parallel(job),
        _gpu(job),
        _model(job),
        _zero(job),
        _precision(job),
        _batch(job),
        _sequence(job),
        _speed(job),
        _phases(job),
    )
    return [row for part in parts for row in part]


def _libraries(job: LoggedJob) -> Iterator[Row]:
    for name, fact in (("DeepSpeed", "release"), ("PyTorch", "torch"), ("loader", "integration"), ("optimizer", "optimizer")):
        known = job.facts.get(fact)
        if known and (fact, known.value) != ("integration", "deepspeed"):  # no library stands between the program and DeepSpeed
            yield Row(name, str(known.value), known.place)


def _ranks(job: LoggedJob) -> Iterator[Row]:
    known = job.ranks()
    if known is None:
        return
    nodes = job.get("nodes")
    sure = "ranks" in job.facts or "data_parallel" in job.facts
    if not sure and known.value == 1:  # DeepSpeed prints most lines on rank 0 only
        return
    on = f" on {nodes} machine{'s' if nodes != 1 else ''}" if nodes else ""
    yield Row("ranks", f"{known.value}{on}" if sure else f"at least {known.value}", known.place)


def _parallel(job: LoggedJob) -> Iterator[Row]:
    sizes = [(name, job.facts[name]) for name in ("tensor", "pipeline", "sequence") if name in job.facts and job.get(name) > 1]
    if sizes:
        yield Row("parallel", ", ".join(f"{name} {known.value}" for name, known in sizes), sizes[0][1].place)


def _gpu(job: LoggedJob) -> Iterator[Row]:
    name, capacity, memory = (job.facts.get(fact) for fact in ("gpu", "gpu_capacity", "gpu_memory"))
    size = f"{capacity.value:g} GiB" if capacity else f"{memory.value / GIB:.4g} GiB" if memory else ""
    told = capacity or memory
    if name or told:
        first = name or told
        assert first is not None
        yield Row("GPU", ", ".join(filter(None, (str(name.value) if name else "", size))), first.place)


def _model(job: LoggedJob) -> Iterator[Row]:
    name = job.facts.get("model_name")
    params = job.facts.get("params") or job.facts.get("params_of_rank")
    trained = job.facts.get("trained")
    hidden, layers = job.facts.get("hidden"), job.facts.get("layers")
    parts = [str(name.value)] if name else []
    if params:
        parts.append(f"{params.value:,} parameters" + (" per rank" if "params" not in job.facts else ""))
    if trained and (params is None or trained.value < params.value):
        parts.append(f"{trained.value:,} trained")
    if hidden and layers:
        parts.append(f"{layers.value} layers of {hidden.value}")
    known = next((fact for fact in (name, params, trained, hidden) if fact), None)
    if parts and known:
        yield Row("model", ", ".join(parts), known.place)


_WITHOUT_OFFLOAD: dict[str, tuple[object, ...]] = {"optimizer": (0,), "param": (0, 1, 2, "1 or 2")}
"""The ZeRO stages that do not read a section for offload."""


def _zero(job: LoggedJob) -> Iterator[Row]:
    stage = job.stage()
    if stage is None and "partitions" in job.facts:
        stage = Known("1 or 2", job.facts["partitions"].place)
    if stage is None:
        return
    devices = [(what, job.setting("zero_optimization", f"offload_{what}", "device")) for what in ("optimizer", "param")]
    offload = [
        f"{what} offloaded to {device}" if stage.value not in _WITHOUT_OFFLOAD[what] else f"offload_{what} ignored"
        for what, device in devices
        if device in ("cpu", "nvme")
    ]
    if not offload and job.get("offloads_optimizer"):
        offload = ["optimizer offloaded to cpu"]
    yield Row("ZeRO", ", ".join((f"stage {stage.value}", *offload)), stage.place)


def _precision(job: LoggedJob) -> Iterator[Row]:
    known = job.facts.get("dtype")
    if known is None and "config" in job.facts:
        on = [name for name in ("bf16", "fp16", "bfloat16") if job.setting(name, "enabled") is True]
        known = Known(on[0] if on else "fp32", job.facts["config"].place)
    if known:
        yield Row("precision", str(known.value), known.place)


def _batch(job: LoggedJob) -> Iterator[Row]:
    micro = job.facts.get("micro_batch") or _written(job, "train_micro_batch_size_per_gpu")
    total = job.facts.get("total_batch") or _written(job, "train_batch_size")
    steps = job.facts.get("accumulation") or _written(job, "gradient_accumulation_steps") or _accumulated(job, micro, total)
    parts = [f"micro batch {micro.value}"] if micro else []
    parts += [f"{steps.value} accumulation steps"] if steps and steps.value != 1 else []
    parts += [f"{total.value:,} per step"] if total else []
    known = micro or total
    if parts and known:
        yield Row("batch", ", ".join(parts), known.place)


def _accumulated(job: LoggedJob, micro: Known | None, total: Known | None) -> Known | None:
    """The accumulation steps that follow from the other two sizes and the number of data-parallel ranks."""
    data = job.get("data_parallel")
    if not (micro and total and data) or not all(isinstance(size, int) and size > 0 for size in (micro.value, total.value, data)):
        return None
    steps, rest = divmod(total.value, micro.value * data)
    return Known(steps, total.place) if steps and not rest else None


def _written(job: LoggedJob, key: str) -> Known | None:
    value = job.setting(key)
    return Known(value, job.facts["config"].place) if isinstance(value, int) and not isinstance(value, bool) else None


def _sequence(job: LoggedJob) -> Iterator[Row]:
    length, checkpointing = job.facts.get("length"), job.facts.get("checkpointing")
    if length:
        yield Row("sequence", f"{length.value:,} tokens", length.place)
    if checkpointing:
        yield Row("checkpointing", "on", checkpointing.place)


def _speed(job: LoggedJob) -> Iterator[Row]:
    timed = step_times(job)
    if timed:
        shown, usual = _middle(timed)
        slow = sum(seconds > 3 * usual for _, seconds in timed)
        yield Row(
            "step time",
            f"{usual:.3g} s" + (f"; {slow} of {len(timed)} steps took more than three times as long" if slow else ""),
            shown.place,
        )
    rates = [(event, rate) for event in job.steps if (rate := event.real("rate_per_second"))]
    if rates:
        event, rate = _middle(rates)
        yield Row("throughput", f"{rate:.4g} samples/s", event.place)
    for is_each, of in ((False, ""), (True, " per GPU")):
        tokens = token_rates(job, of_each=is_each)
        if tokens:
            event, rate = _middle(tokens)
            yield Row("tokens", f"{rate:,.5g} tokens/s{of}", event.place)
    flops = [(event, rate) for event in job.steps if (rate := event.real("tflops"))]
    if flops:
        event, rate = _middle(flops)
        yield Row("compute", f"{rate:.4g} TFLOPS", event.place)


def _middle(figures: Sequence[tuple[LogEvent, float]]) -> tuple[LogEvent, float]:
    """The figure in the middle, the lower one of two, with the line that states it."""
    return sorted(figures, key=lambda told: told[1])[(len(figures) - 1) // 2]


def token_rates(job: LoggedJob, *, of_each: bool) -> list[tuple[LogEvent, float]]:
    """The tokens per second that the job prints: of one GPU, as "tgs" (tokens per GPU per second) always are, or of all."""
    told = ((event, rate) for event in job.steps if (rate := event.real("tokens_per_second")))
    return [(event, rate) for event, rate in told if any(name in event.values for name in ("each_gpu", "of_gpu", "tgs")) is of_each]


def _phases(job: LoggedJob) -> Iterator[Row]:
    found = phases_of(job)
    if found:
        parts = [f"{name} {found.ms[name]:,.3g} ms" for name in ("forward", "backward", "step") if name in found.ms]
        reduction = f" ({found.ms['reduction']:,.3g} ms to reduce gradients)" if "reduction" in found.ms else ""
        yield Row("phases", ", ".join(part + (reduction if part.startswith("backward") else "") for part in parts), found.event.place)
