"""Whether the steps of a job take longer than the step-time model expects, and the likely reasons, the one that costs most first."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from dslint.config import Config
from dslint.diagnose.diagnosis import LikelyCause, evidence
from dslint.diagnose.job import step_times
from dslint.diagnose.memory import Workshop
from dslint.facts.gpus import in_words
from dslint.memory.estimate import Estimate, estimate
from dslint.record import Record
from dslint.speed.compute import uses_tensor_cores
from dslint.speed.job import Job as Timed
from dslint.speed.planned import job_of, precision_of, step_of
from dslint.speed.step import FETCHED, HOST, NETWORK, StepTime, step

FEWEST = 3
"""The fewest steps after the first one that say how long a step usually takes."""

LARGE = 0.2
"""The share of the expected step from which a part is named as a likely reason."""

UNEXPLAINED = "What no config shows: the data loader, logging, other jobs on the machine."

SMALL_BATCH = 2048
"""Tokens of a micro batch below which GPUs of today wait for launches and small products."""


def slow_steps(shop: Workshop, found: Estimate) -> LikelyCause | None:
    """A notice if the steps of a job take longer than they should at most; None where the log does not tell enough to say so."""
    timed = step_times(shop.job)[1:]
    if len(timed) < FEWEST or not shop.job.get("length"):
        return None
    config, _ = shop.plan(shop.loaded.document.text, {})
    expected = step_of(config, found)
    seconds = median(time for _, time in timed)
    if expected is None or seconds <= expected.high:
        return None
    gpu = found.plan.gpu
    title = f"A step takes {seconds:.3g} s; {expected.low:.2g} to {expected.high:.2g} s are expected on {found.plan.world} {gpu}"
    reasons = (*ordered(config, found, expected), UNEXPLAINED)
    advice = ("Measure the parts of a step with wall_clock_breakdown: true, and compare configs with `dslint tune`.",)
    return LikelyCause("slow", title, reasons, advice, (evidence(timed[0][0]),), certain=False)


class SlowReason(Record):
    """A likely reason: the seconds of the expected step that it costs, and a sentence."""

    seconds: float
    sentence: str


def ordered(config: Config, found: Estimate, expected: StepTime) -> tuple[str, ...]:
    """The likely reasons as sentences, the one that costs most first."""
    return tuple(reason.sentence for reason in sorted(_reasons(config, found, expected), key=lambda reason: -reason.seconds))


def _reasons(config: Config, found: Estimate, expected: StepTime) -> Iterator[SlowReason]:
    plan, job, large = found.plan, expected.job, LARGE * expected.seconds
    host, network, fetched = (expected.of(kind) for kind in (HOST, NETWORK, FETCHED))
    if plan.half and not uses_tensor_cores(job):
        saved, times = _saved(expected, job.but(precision="fp16"))
        yield SlowReason(saved, f"bf16 has no tensor cores on {plan.gpu}: fp16 would be {times}.")
    if host > large:
        cores = "give each rank cores of its own (deepspeed --bind_cores_to_rank)"
        yield SlowReason(host, f"The CPU optimizer takes much of the step: {cores}.")
    if plan.stage == 3 and plan.world > plan.local and network > large:
        instead = "try stage 1 or 2, or zero_hpz_partition_size"
        yield SlowReason(network, f"Stage 3 gathers all weights over the network in every micro batch: {instead}.")
    if fetched > large:
        yield SlowReason(fetched, "Parameters are fetched from the host in every micro batch.")
    if plan.tokens < SMALL_BATCH:
        larger = job.but(micro_batch=4 * job.micro_batch, accumulation=max(1, job.accumulation // 4))
        saved = expected.seconds - step(larger).seconds * job.samples / larger.samples
        better = "a larger one, with fewer accumulation steps, uses the GPU better"
        yield SlowReason(saved, f"A micro batch has only {plan.tokens:,} tokens: {better}.")
    if not job.flash:
        saved, times = _saved(expected, job.but(flash=True))
        yield SlowReason(saved, f"Attention keeps its scores: flash attention or SDPA would be {times}.")
    if plan.workload.checkpoint_every and plan.gpu is not None:
        without = plan.but(checkpoint_every=0)
        saved, _ = _saved(expected, job_of(found.model, without, precision_of(config, without)))
        cost = f"Activation checkpointing costs {100 * saved / (expected.seconds - saved):.0f} % of the time without it"
        high = estimate(found.model, without).device.high
        if high <= plan.gpu.memory:
            yield SlowReason(saved, f"{cost}, and is not needed: the peak is at most {in_words(high)} then.")


def _saved(expected: StepTime, other: Timed) -> tuple[float, str]:
    """The seconds that another job saves, and how many times as fast it is."""
    seconds = step(other).seconds
    return expected.seconds - seconds, f"{expected.seconds / seconds:.1f} times as fast"
