"""DS7: whether the memory of the GPU suffices, where it depends on what dslint has to assume. The estimate is imported only when the rule runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.rule import CannotJudge, Finding, bad, good, rule
from dslint.rules.ds7_activation.memory_fit import NEEDS, ZERO_DOCS, does_not_fit
from dslint.rules.helpers.least_plan import LLAMA_8B, gib
from dslint.rules.helpers.model import gpu_has
from dslint.rules.helpers.zero import stage_place

if TYPE_CHECKING:
    from dslint.memory.estimate import Estimate

_STAGE_2 = '{"train_micro_batch_size_per_gpu": %d, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}'
_OPT_1B = {
    "model_type": "opt",
    "hidden_size": 2048,
    "ffn_dim": 8192,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
    "word_embed_proj_dim": 2048,
}


@rule("DS712", effect=Effect.ADVICE, needs=NEEDS, watches=("fact:model",), references=(ZERO_DOCS,))
@bad(
    _STAGE_2 % 6,
    at="zero_optimization.stage",
    model=_OPT_1B,
    world_size=8,
    gpu="a100-40gb",
    message="With samples of 2,048 tokens and no activation checkpointing, as assumed, the training needs about 37 GiB on each GPU (8.2 GiB to 45 GiB), and may run out of memory. The a100-40gb has 39.4 GiB.",
)
@bad(
    _STAGE_2 % 4,
    at="zero_optimization.stage",
    model=LLAMA_8B,
    world_size=8,
    gpu="a100",
    message="With samples of 2,048 tokens and no activation checkpointing, as assumed, the training needs about 103 GiB on each GPU (36 GiB to 122 GiB), and may run out of memory. The a100 has 79.1 GiB.",
)
@good(_STAGE_2 % 1, model=_OPT_1B, world_size=8, gpu="a100-40gb")
@good(_STAGE_2 % 4, model=LLAMA_8B, world_size=8, gpu="h200")
def may_run_out(config: Config) -> Iterator[Finding]:
    """The training may need more memory than the GPU has; it depends on what dslint assumes, such as the length of samples.

    `does-not-fit` (DS706) reports what does not fit even with the least that the job may need. Here that fits, and the expected job does
    not, or hardly: the verdict of `dslint estimate` is "tight", "unlikely to fit" or "does not fit" with the samples that it assumes.

    A job that also needs what no figure includes, such as the other models of a reinforcement learning, is not judged, and this is said.

    Run `dslint estimate` with `--sequence-length` and what else the job does to get a verdict, and `dslint fit` to see what to change.
    """
    memory = config.facts.gpu_memory
    found = _usual(config) if memory is not None else None
    if memory is None or found is None or _is_said(config):
        return
    plan = found.plan
    if not _may_exceed(found, memory):
        if plan.uncounted and not found.fits(memory, None):
            missing = " and ".join(plan.uncounted)
            raise CannotJudge(f"whether the training fits in the GPU is not judged, because its figures do not include {missing}.")
        return
    assumed = f"With {' and '.join(plan.guessed)}, as assumed, " if plan.guessed else ""
    verb = "training all weights" if plan.may_train_less else "the training"
    needs = f"{assumed}{verb} needs about {gib(found.device.expected)} on each GPU ({gib(found.device.low)} to {gib(found.device.high)})"
    yield Finding(
        stage_place(config),
        f"{needs[0].upper()}{needs[1:]}, and may run out of memory. The {gpu_has(config, memory)}.",
        help="Run dslint estimate, with --sequence-length and what else you know of the job; dslint fit says what to change.",
    )


def _usual(config: Config) -> Estimate | None:
    """The estimate of `dslint estimate` without options; with zero.Init where nothing says whether the program has it."""
    from dslint.errors import UserError
    from dslint.memory.estimate import estimate
    from dslint.memory.usual import usual_job

    try:
        model, plan = usual_job(config, config.setup.workload if config.setup is not None else None)
        return estimate(model, plan.but(zero_init=True) if plan.workload.assumed_zero_init else plan)
    except (UserError, ValueError, TypeError, ArithmeticError):
        return None


def _may_exceed(found: Estimate, memory: int) -> bool:
    """Whether a job is not expected to fit, or its high figure is further beyond the GPU than the expected one is below."""
    from dslint.memory.estimate import Verdict

    verdict, device = found.verdict(memory), found.device
    if verdict is Verdict.OPEN:
        return found.length_decides(memory)
    is_tight = verdict is Verdict.LIKELY and device.high - memory > memory - device.expected
    return is_tight or verdict in (Verdict.NO, Verdict.UNLIKELY)


def _is_said(config: Config) -> bool:
    """Whether the rule about jobs that do not fit reports this one, or says why it is not judged."""
    try:
        return next(iter(does_not_fit.check(config)), None) is not None
    except CannotJudge:
        return True
