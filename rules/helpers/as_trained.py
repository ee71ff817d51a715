"""What a job needs with the samples that it trains on, as `dslint estimate` says it. The memory estimate is imported only when a rule runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dslint.config import Config, resolve
from dslint.frameworks.trained import OFF
from dslint.record import Record
from dslint.rules.helpers.least_plan import as_optimized, gib
from dslint.rules.helpers.model import may_be_smaller
from dslint.rules.helpers.project import programs_of

if TYPE_CHECKING:
    from dslint.job.arguments import Arguments
    from dslint.memory.estimate import Estimate
    from dslint.memory.plan import Plan


class AsTrained(Record):
    """The estimate of a job whose samples are known.

    `adapters`: only LoRA adapters are trained. `checkpoints`: activations are checkpointed, or may be, and then count as if they were.
    """

    result: Estimate
    adapters: bool
    checkpoints: bool
    one_length: bool
    """Whether all samples certainly have one length."""

    @property
    def samples(self) -> str:
        """The samples of the estimate, in words: "4 samples of 256 to 2,048 tokens"."""
        plan = self.result.plan
        count = "a sample" if plan.micro_batch == 1 else f"{plan.micro_batch} samples"
        return f"{count} of {f'{plan.shortest:,} to ' if plan.mixes_lengths else ''}{plan.workload.length:,} tokens"


def as_trained(config: Config) -> AsTrained | None:
    """The estimate of a job with the least that it may need; None if nothing says how long samples are, or not all weights have 16 bits."""
    from dslint.errors import UserError
    from dslint.memory.completed import completed
    from dslint.memory.estimate import estimate
    from dslint.memory.requests import DEFAULTS, described_model, planned

    setup = config.setup
    arguments = (setup.arguments or setup.of_framework) if setup is not None else None
    done = completed(DEFAULTS, arguments, config.context)
    adapters = done.said["lora_rank"] is not None
    if done.context.facts.model is None or (adapters and done.said["base_bits"] is None and may_be_smaller(config)):
        return None
    if arguments is not None and any(_SAVES.search(name) and given.value not in OFF for name, given in arguments.values.items()):
        return None
    if any(map(_DIVIDES.search, programs_of(config))):
        return None
    checkpoints = bool(done.said["checkpoint_every"]) or _may_checkpoint(config, arguments)
    said = {**done.said, "checkpoint_every": done.said["checkpoint_every"] or int(checkpoints)}
    try:
        model = described_model(said, done.context.facts).model
        if "length" not in done.of_options and not model.tokens:
            return None
        told = config if done.context is config.context else resolve(config.document, done.context)
        plan = planned(told, model, said)
        if plan.sequence > 1:
            return None  # its memory was measured in few jobs
        if plan.workload.assumed_zero_init:
            plan = plan.but(zero_init=True)
        return AsTrained(estimate(model, as_optimized(config, plan)[0]), adapters, checkpoints, "varying" not in done.of_options)
    except (UserError, ValueError, TypeError):
        return None


def _may_checkpoint(config: Config, arguments: Arguments | None) -> bool:
    """Whether activations may be checkpointed although no argument and no call that is certain says it."""
    program = config.setup.program if config.setup is not None else None
    if config.facts.model is not None and config.facts.model.data.get("gradient_checkpointing"):
        return True  # an attribute of models before transformers 4.13
    if program is not None:
        return program.checkpoints is not None
    return arguments is None or not arguments.sure or not arguments.complete


_DIVIDES = re.compile(
    r"ring_(?:flash_)?attn|zigzag|[Uu]lysses|(?:sequence|context)_parallel|apply_liger_kernel|AutoLigerKernel|linear_cross_entropy"
)
"""What a program contains that may divide samples among ranks, or compute the loss in parts: EasyContext trains Llama 2 7B with samples of
256,000 tokens on eight A100."""

_SAVES = re.compile(r"tiled_|activation_offload|offload_activations|unsloth|use_cce|layer_offload")
"""What arguments are called with which a framework needs less than the estimate counts."""


def what_fits(found: AsTrained, memory: int) -> str:
    """The smallest change of activations with which a job likely fits, as a sentence; "" if there is none."""
    from dslint.memory.estimate import Verdict, estimate

    model, plan = found.result.model, found.result.plan

    def needs(changed: Plan) -> float | None:
        result = estimate(model, changed)
        return result.full if result.verdict(memory) in (Verdict.FITS, Verdict.LIKELY) else None

    checkpointed = plan.but(checkpoint_every=1)
    if not found.checkpoints and (size := needs(checkpointed)) is not None:
        return f"Enable gradient checkpointing: the job then needs about {gib(size)}."
    for every, when in ((plan, ""), *(() if found.checkpoints else ((checkpointed, " with gradient checkpointing"),))):
        least, most, size = 0, plan.micro_batch, 0.0
        while most - least > 1:
            middle = (least + most) // 2
            fits = needs(every.but(micro_batch=middle))
            if fits is None:
                most = middle
            else:
                least, size = middle, fits
        if least:
            return f"The largest micro batch size that likely fits{when} is {least}, which needs about {gib(size)}."
    return ""
