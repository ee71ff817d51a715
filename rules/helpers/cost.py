"""What a mistake costs in this setup, by the step-time model. Its modules are imported only when a rule of effect `slow` finds something."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dslint.config import UNKNOWN, Config
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.rule import CannotJudge
from dslint.rules.helpers.model import counted, may_train_part, told_options, trains_part
from dslint.rules.helpers.offload import OFFLOAD_SECTIONS
from dslint.rules.helpers.zero import STAGE

if TYPE_CHECKING:
    from dslint.speed.job import Job

LEAST = 0.005
"""The share of a step below which a cost is said to be small."""

ASSUMED_LENGTH = 2048
"""Tokens of a sample where nothing says how long they are; less where the model takes less."""

TORCH_ADAM = 6.0
"""How many times as long torch's Adam takes on the CPU as DeepSpeed's CPU Adam: 5.1 to 6.5 times (Ren et al. 2021, ZeRO-Offload, table 4)."""

LATENCY = 30e-6
"""Seconds of a small collective operation (nccl-tests: 10 to 50 microseconds)."""

WEIGHTS = 9
"""Weights of a layer: those of four products of attention, of three of the MLP, and of two norms."""

SMALL = " By prediction this costs less than 1 % of a step here."


def slower(config: Config, without: Callable[[Job], Job], having: Callable[[Job], Job] = lambda job: job) -> str:
    """How many times as long a step takes, as a sentence behind another; empty where model, GPU, ranks or micro batch are unknown.

    Args:
        config: the config.
        without: makes the job of the setup one without the mistake.
        having: makes it one with the mistake, where the config does not say it.
    """
    from dslint.speed.compare import compare
    from dslint.speed.step import step

    found = job_of_setup(config)
    if found is None:
        return ""
    gain = compare(step(without(found)), step(having(found)))
    if gain.gain < LEAST:
        return SMALL
    expected, low, high = (1 + max(0.0, share) for share in (gain.gain, gain.low, gain.high))
    shown = f"{low:.3g} to {high:.3g}; {_setup(found)}"
    return f" By prediction a step takes {expected:.3g} times as long as without it ({shown})."


def adds(config: Config, seconds: Callable[[Job], float]) -> str:
    """How much time is added to a step, as a sentence behind another; empty where model, GPU, ranks or micro batch are unknown."""
    from dslint.speed.step import step

    found = job_of_setup(config)
    if found is None:
        return ""
    whole, more = step(found).seconds, seconds(found)
    if more < LEAST * whole:
        return SMALL
    return f" By prediction this adds about {_shown(more)} to a step of {_shown(whole)} ({_setup(found)})."


def torch_adam_on_cpu(config: Config) -> str:
    """What torch's Adam on the CPU costs, instead of DeepSpeed's."""
    from dslint.speed.optimizer import adam_rate

    return slower(
        config, lambda job: job.but(host_rate=None), lambda job: job.but(host_rate=adam_rate(job.but(host_rate=None)) / TORCH_ADAM)
    )


def small_collectives(config: Config) -> str:
    """What it costs to reduce every weight by itself."""
    return adds(config, lambda job: LATENCY * WEIGHTS * job.layers_here * (job.accumulation if job.stage >= 2 else 1))


def single_updates(config: Config) -> str:
    """What it costs that the optimizer updates every weight of a rank by itself: the host launches each update."""
    from dslint.speed.constants import FITTED

    return adds(config, lambda job: FITTED.launch * job.modules_here)


def misaligned_lengths(config: Config) -> str:
    """What it costs that the number of tokens is not a multiple of 8: matrix products take as long as those of other misaligned sizes."""
    from dslint.speed.compute import compute
    from dslint.speed.constants import FITTED

    return adds(config, lambda job: (1 / FITTED.misaligned - 1) * compute(job, FITTED).device * job.accumulation)


def lost_overlap(config: Config) -> str:
    """What it costs if collectives hide behind no compute."""
    from dslint.speed.step import step

    return adds(config, lambda job: step(job).hidden)


def late_gathers(config: Config) -> str:
    """What it costs if stage 3 gathers weights only when they are needed."""
    from dslint.speed.collectives import gathered
    from dslint.speed.constants import FITTED
    from dslint.speed.step import step

    return adds(config, lambda job: min(step(job).hidden, sum(gathered(job, FITTED)) * job.accumulation))


def waits(config: Config, every: Callable[[Job], float]) -> str:
    """What it costs to wait for the GPU so often in a micro batch: each time it idles until the host has launched the next layer."""
    from dslint.speed.constants import FITTED

    return adds(config, lambda job: FITTED.launch * every(job) * job.accumulation)


def gathers_for_a_token(config: Config) -> str:
    """How long stage 3 gathers all weights for one generated token."""
    from dslint.speed.collectives import gathered
    from dslint.speed.constants import FITTED

    found = job_of_setup(config)
    if found is None:
        return ""
    return f" By prediction this takes about {_shown(gathered(found, FITTED)[0])} for each token ({_setup(found)})."


def idle_in_attention(config: Config, heads: int) -> str:
    """What it costs that only so many ranks of tensor parallelism compute attention: each of them has a larger part of it."""
    from dslint.memory.shapes import BlockStep
    from dslint.speed.compute import compute
    from dslint.speed.constants import FITTED

    if config.facts.model is None or job_of_setup(config) is None:
        return ""
    weights = [weight for weight in counted(config.facts.model).blocks[0].weights if weight.is_matrix]
    attention = sum(weight.size for weight in weights if weight.step in (BlockStep.INTO_ATTENTION, BlockStep.OUT_OF_ATTENTION))
    share = attention / sum(weight.size for weight in weights)
    return adds(config, lambda job: share * (job.tensor / heads - 1) * compute(job, FITTED).device * job.accumulation)


def optimizer_on_host(config: Config) -> str:
    """Which share of a step the CPU optimizer and its copies take."""
    from dslint.speed.step import COPIES, HOST, step

    found = job_of_setup(config)
    if found is None:
        return ""
    done = step(found)
    share = 100 * (done.of(HOST) + done.of(COPIES)) / done.seconds
    return f" By prediction it takes {share:.0f} % of a step here ({_setup(found)})."


def job_of_setup(config: Config) -> Job | None:
    """The training step of this setup, all weights trained; None if model, GPU, ranks or micro batch are unknown."""
    from dslint.memory.plan import PlanError, Workload
    from dslint.memory.planning import make_plan
    from dslint.speed.planned import job_of, precision_of

    facts, micro_batch = config.facts, config.value("train_micro_batch_size_per_gpu")
    decisive = (STAGE, "bf16.enabled", "fp16.enabled", *(f"{section}.device" for section in OFFLOAD_SECTIONS))
    if facts.model is None or facts.model.quantization is not None or facts.gpu is None or facts.world_size is None:
        return None
    if config.document.problems or not isinstance(micro_batch, int) or any(config.value(key) is UNKNOWN for key in decisive):
        return None
    if trains_part(config) or runs_without_optimizer(config) or may_train_part(config):
        return None
    told = told_options(config)
    accumulation = config.value("gradient_accumulation_steps")
    try:
        model = counted(facts.model)
        length = model.tokens or told.get("length") or min(model.positions or ASSUMED_LENGTH, ASSUMED_LENGTH)
        workload = Workload(length, checkpoint_every=told.get("checkpoint_every", 0))
        steps = accumulation if isinstance(accumulation, int) else 1
        plan = make_plan(config, workload, model.hidden, micro_batch=micro_batch, accumulation=steps)
    except (CannotJudge, PlanError, ValueError, TypeError):
        return None
    return job_of(model, plan, precision_of(config, plan)) if model.blocks else None


def _setup(job: Job) -> str:
    return f"{job.gpus:,} x {job.hardware.name}, micro batch {job.micro_batch}, {job.length:,} tokens a sample"


def _shown(seconds: float) -> str:
    """Seconds to two digits."""
    number, unit = (seconds, "s") if seconds >= 1 else (1000 * seconds, "ms")
    return f"{number:.2g} {unit}" if number < 10 else f"{number:,.0f} {unit}"
