"""What a log shows besides the cause: skipped steps, losses that are NaN, memory at its limit, ranks that do not train together."""

from __future__ import annotations

import math
import re
from itertools import takewhile
from statistics import median

from dslint.diagnose.causes.state import state_mismatch
from dslint.diagnose.diagnosis import Evidence, LikelyCause, evidence
from dslint.diagnose.job import LoggedJob, first_not_finite, losses
from dslint.diagnose.phases import slow_phase, stragglers
from dslint.diagnose.restarts import MOST as MOST_JOBS

HIGH_START = 2.0**24
"""Loss scales above this at the start cost many skipped steps."""

AT_THE_START = (
    "Skipped steps at the start are normal: the first scale is only too high. They advance the scheduler of the program, not the weights."
)
LOWER = 'Start lower: write "initial_scale_power": 16 in the section fp16 of the DeepSpeed config. Releases 0.9.2 to 0.17.0 start at 2**32 without it.'

MANY = 0.05
"""The share of skipped steps above which a job loses much training."""

FEW = 3
"""The number of emptied caches that says something, if the number of steps is unknown."""

ENOUGH_LOSSES = 30
"""The number of losses from which their trend is judged."""

LEAST_LOSS = 0.05
"""The least loss whose trend is judged: that of a policy (GRPO) begins at 0 and rises while the training goes well."""

_OF_REWARDS = re.compile(r"\breward|['\"]kl['\"]|advantage|completion_length|completions/")
"""What a line of reinforcement learning holds, whose loss says little."""


def find_notices(job: LoggedJob) -> list[LikelyCause]:
    """What else is worth knowing, most important first."""
    found = (
        _left_out(job),
        state_mismatch(job),
        _not_a_number(job) or _gradients_not_a_number(job),
        _rising(job),
        _overflows(job),
        _flushes(job),
        _schedule(job),
        _accumulation(job),
        _replaced_accumulation(job),
        _fallback(job),
        slow_phase(job),
        stragglers(job),
    )
    return [notice for notice in found if notice is not None]


def _left_out(job: LoggedJob) -> LikelyCause | None:
    """Jobs of a log that were not read."""
    number, place = job.get("left_out"), job.first
    if not number:
        return None
    return LikelyCause(
        "left-out",
        f"{number:,} earlier job{'s' if number != 1 else ''} of this log {'were' if number != 1 else 'was'} not read",
        (f"Of a log with many starts dslint reads the first {MOST_JOBS} jobs, long ones, and the last one.",),
        ("To read the others, divide the log.",),
        (Evidence(place, "the next job that was read"),) if place else (),
    )


def _not_a_number(job: LoggedJob) -> LikelyCause | None:
    """The first loss that is no number."""
    event = first_not_finite(job)
    if event is None:
        return None
    loss = event.real("loss")
    word = "infinite" if loss is not None and math.isinf(loss) else "NaN"
    half = job.get("dtype") == "float16" or job.setting("fp16", "enabled") is True
    why = (
        ["fp16 holds numbers up to 65,504 only: activations or gradients of a model that was trained in bf16 can overflow."] if half else []
    )
    advice = ["Use bf16 (bf16.enabled) where the GPU has it."] if half else []
    advice += [
        "Lower the learning rate, or warm it up for longer; clip gradients (gradient_clipping: 1.0).",
        "Check the batch of this step for empty labels: a mean over no tokens is NaN.",
    ]
    step = event.values.get("step")
    title = f"The loss is {word}" + (f" from step {step} on" if step else "")
    return LikelyCause("nan", title, tuple(why), tuple(advice), (evidence(event),), event.rank, event.host, event.when)


def _gradients_not_a_number(job: LoggedJob) -> LikelyCause | None:
    """Gradients that are not finite until the log ends, with a loss that does not say so. A few may belong to skipped steps of fp16."""
    norms = [(event, norm) for event in job.steps if (norm := event.real("norm")) is not None]
    bad = list(takewhile(lambda pair: not math.isfinite(pair[1]), reversed(norms)))
    if len(bad) < FEW:
        return None
    event = bad[-1][0]
    is_zero = any(one.real("loss") == 0 and "'loss': " in one.text for one, _ in bad)
    why = ["The Trainer prints a loss of 0.0 for steps whose loss is NaN (logging_nan_inf_filter)."] if is_zero else []
    advice = (
        'Write "overlap_comm": false in zero_optimization first, where it is on at ZeRO stage 1 or 2: users of several releases report NaN with it.',
        "Use bf16 in the place of fp16 where the GPU has it; lower the learning rate, or warm it up for longer.",
        "Check the batch of this step for empty labels: a mean over no tokens is NaN.",
    )
    title = f"The gradients are not finite from here on{', and the loss is printed as 0.0' if is_zero else ''}"
    return LikelyCause("nan", title, tuple(why), advice, (evidence(event),), event.rank, event.host, event.when)


def _rising(job: LoggedJob) -> LikelyCause | None:
    """A loss that ends far above its best."""
    series = [(event, loss) for event, loss in losses(job) if math.isfinite(loss)]
    if len(series) < ENOUGH_LOSSES:
        return None
    tenth = len(series) // 10
    parts = [median(loss for _, loss in series[i : i + tenth]) for i in range(0, tenth * 10, tenth)]
    if (
        parts[-1] <= 1.3 * min(parts)
        or parts[-1] <= parts[0]
        or min(parts) < LEAST_LOSS
        or any(_OF_REWARDS.search(one.text) for one, _ in series[:2])
    ):
        return None
    at = series[-tenth][0]
    why = (f"The loss was {parts[0]:.4g} at the start, {min(parts):.4g} at its best, and {parts[-1]:.4g} at the end.",)
    advice = ("Lower the learning rate or lengthen the warm-up; clip gradients (gradient_clipping: 1.0).",)
    return LikelyCause("diverging", "The loss rises: the training may diverge", why, advice, (evidence(at),), when=at.when, certain=False)


def _overflows(job: LoggedJob) -> LikelyCause | None:
    """Steps that fp16 skipped."""
    skipped = job.of("overflow")
    if not skipped:
        return None
    scales = [scale for event in skipped if (scale := event.real("scale"))]
    count = job.counts["overflow"]
    first, last = (scales[0], scales[-1]) if scales else (0.0, 0.0)
    total = max((event.number("step") or 0 for event in job.steps), default=0)
    if count == 1 and first >= HIGH_START:
        return LikelyCause(
            "overflow", f"A step was skipped at the loss scale {first:,.0f}", (AT_THE_START,), (LOWER,), (evidence(skipped[0]),)
        )
    falling = scales == sorted(scales, reverse=True)
    line = (evidence(skipped[0]), evidence(skipped[-1])) if count > 1 else (evidence(skipped[0]),)
    if falling and first >= HIGH_START and last > 1:
        return LikelyCause(
            "overflow",
            f"{count} steps were skipped while the loss scale came down from {first:,.0f} to {last:,.0f}",
            (AT_THE_START,),
            (LOWER,),
            line,
        )
    if total and count / total < MANY and last >= 128:
        return None
    return LikelyCause(
        "overflow",
        f"{count} steps were skipped because gradients overflow in fp16",
        (
            f"The loss scale was {first:,.0f} at first and {last:,.0f} at last. When it keeps falling, the gradients grow: the training may diverge, or the model does not fit into fp16.",
        ),
        ("Use bf16 where the GPU has it, above all for models that were trained in bf16; lower the learning rate and clip gradients.",),
        line,
        certain=False,
    )


def _flushes(job: LoggedJob) -> LikelyCause | None:
    """An allocator at its limit."""
    events = job.of("flushes")
    if not events:
        return None
    count = job.counts["flushes"]
    total = max((event.number("step") or 0 for event in job.steps), default=0)
    if count < MANY * total or (count < FEW and not total):
        return None
    times = "a step" if count == 1 else f"{count:,} steps"
    return LikelyCause(
        "memory-limit",
        f"GPU memory is at its limit: PyTorch emptied its cache before {times}",
        ("Each time it waits for the GPU and requests memory again, which makes the step slower.",),
        (
            "Lower the micro batch size; turn on activation checkpointing; raise the ZeRO stage; set PYTORCH_ALLOC_CONF=expandable_segments:True.",
        ),
        (evidence(events[0]),),
    )


def _schedule(job: LoggedJob) -> LikelyCause | None:
    """A warm-up that is longer than the run."""
    warmup = job.setting("scheduler", "params", "warmup_num_steps")
    steps = job.get("steps")
    if not isinstance(warmup, int) or not steps or warmup <= steps:
        return None
    place = job.facts["config"].place
    return LikelyCause(
        "schedule",
        f"The warm-up of {warmup:,} steps is longer than the run of {steps:,}: the learning rate never reaches its value",
        (),
        ("Set scheduler.params.warmup_num_steps to a few percent of the steps.",),
        (Evidence(place, f"warmup_num_steps: {warmup}"),) if place else (),
    )


def _accumulation(job: LoggedJob) -> LikelyCause | None:
    """Accelerate and DeepSpeed with different accumulation. The Trainer always gives Accelerate 1, and accumulates itself."""
    event = job.first_of("accumulation_differs")
    if event is None:
        return None
    plugin, config = event.values["plugin"], event.values["config"]
    if plugin == "1" and job.get("integration") == "transformers":
        return None
    return LikelyCause(
        "batch",
        f"Accelerate accumulates {plugin} micro batches, the DeepSpeed config {config}",
        ("Accelerate takes the number of the DeepSpeed config: the optimizer steps after as many micro batches.",),
        ('Set gradient_accumulation_steps to "auto" in the DeepSpeed config, or both to the same number.',),
        (evidence(event),),
    )


def _replaced_accumulation(job: LoggedJob) -> LikelyCause | None:
    """An accumulation of the config that Accelerate replaced by its own.

    The number of the launch comes before that of the program. It is advised as a flag: Accelerate refuses the key in a file that names
    `deepspeed_config_file`, and takes the flag beside it (`_deepspeed_config_checks` in accelerate/utils/dataclasses.py of 0.22).
    """
    event = job.first_of("accumulation_replaced")
    if event is None or event.values["used"] == event.values["config"] or job.get("integration") == "transformers":
        return None
    used, config = event.values["used"], event.values["config"]
    return LikelyCause(
        "batch",
        f"gradient_accumulation_steps {config} of the DeepSpeed config is replaced by {used}, which Accelerate has",
        ("Accelerate before 0.23 takes its own number, 1 by default: the optimizer steps after as many micro batches.",),
        (
            f"Give Accelerate the same number: Accelerator(gradient_accumulation_steps={config}). If the launch gives it another one, which comes before that of the program, pass `--gradient_accumulation_steps {config}` to `accelerate launch`.",
        ),
        (evidence(event),),
    )


def _fallback(job: LoggedJob) -> LikelyCause | None:
    event = job.first_of("fallback")
    if event is None:
        return None
    return LikelyCause(
        "build",
        f"The {event.values['operation']} extension could not be built: PyTorch's own optimizer runs instead",
        ("It is slower, and needs temporary copies of all states in the step.",),
        ("Install a CUDA toolkit of PyTorch's version (nvcc) and ninja, and look at the output of `ds_report`.",),
        (evidence(event),),
    )
