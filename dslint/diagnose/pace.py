"""Whether the steps of a job take longer than the step-time model expects, and the likely reasons, the most costly mistakes first."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from dslint.config import Config
from dslint.diagnose.diagnosis import Cause, evidence
from dslint.diagnose.job import step_times
from dslint.diagnose.memory import Workshop
from dslint.memory.estimate import Estimate
from dslint.speed.compute import uses_tensor_cores
from dslint.speed.job import Job as Timed
from dslint.speed.planned import job_of, precision_of, step_of
from dslint.speed.step import FETCHED, HOST, NETWORK, Step, step

FEWEST = 3
"""The fewest steps after the first one that say how long a step usually takes."""

LARGE = 0.2
"""The share of the expected step from which a part is named as a likely reason."""

UNEXPLAINED = "Nothing in the config explains it: look at the data loader, logging and the machine."

SMALL_BATCH = 2048
"""Tokens of a micro batch below which GPUs of today wait for launches and small products."""


def slow_steps(shop: Workshop, found: Estimate) -> Cause | None:
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
    reasons = tuple(_reasons(config, found, expected)) or (UNEXPLAINED,)
    advice = ("Measure the parts of a step with wall_clock_breakdown: true, and compare configs with `dslint tune`.",)
    return Cause("slow", title, reasons, advice, (evidence(timed[0][0]),), certain=False)


def _reasons(config: Config, found: Estimate, expected: Step) -> Iterator[str]:
    """The likely reasons, as sentences."""
    plan, job = found.plan, expected.job
    if plan.half and not uses_tensor_cores(job):
        yield f"bf16 has no tensor cores on {plan.gpu}: fp16 would be {_times(expected, job.but(precision='fp16'))}."
    if expected.of(HOST) > LARGE * expected.seconds:
        yield "The CPU optimizer takes much of the step: give each rank cores of its own (deepspeed --bind_cores_to_rank)."
    if plan.stage == 3 and plan.world > plan.local and expected.of(NETWORK) > LARGE * expected.seconds:
        yield "Stage 3 gathers all weights over the network in every micro batch: try stage 1 or 2, or zero_hpz_partition_size."
    if expected.of(FETCHED) > LARGE * expected.seconds:
        yield "Parameters are fetched from the host in every micro batch."
    if plan.tokens < SMALL_BATCH:
        yield f"A micro batch has only {plan.tokens:,} tokens: a larger one, with fewer accumulation steps, uses the GPU better."
    if not job.flash:
        yield f"Attention keeps its scores: flash attention or SDPA would be {_times(expected, job.but(flash=True))}."
    if plan.workload.checkpoint_every and plan.gpu is not None:
        without = plan.but(checkpoint_every=0)
        faster = step(job_of(found.model, without, precision_of(config, without)))
        share = 100 * (expected.seconds / faster.seconds - 1)
        yield f"Activation checkpointing costs {share:.0f} % of the time without it; leave it out if memory suffices."


def _times(expected: Step, other: Timed) -> str:
    return f"{expected.seconds / step(other).seconds:.1f} times as fast"
