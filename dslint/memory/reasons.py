"""The reasons for the width of an estimate's range, as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.facts.gpus import GIB
from dslint.memory.plan import SHORT, Plan
from dslint.memory.shapes import Model
from dslint.memory.surroundings import Bounds, context, context_in_logs, reserve

ROOM = (
    "nvidia-smi may show more than the high figure where there is room: in 14 of 26 trainings on an H100 PyTorch reserved 26 to 80 % more "
    "than tensors used{on_host}. It returns that before memory runs out, so that the verdict does not count it"
)
"""The reserved memory of tests/probe/h100.jsonl."""

ON_HOST = ", and with parameters on the host, as here, two public jobs show 2.4 and 3.5 times the expected figure"
"""hiyouga/LLaMA-Factory, issues 5977 (13 GiB on an RTX 3090, 8 billion parameters) and 7282 (27 GiB on an H200, 70 billion)."""


def reasons(model: Model, plan: Plan) -> list[str]:
    """The reasons for the width of the range."""
    around, more = context(plan), reserve(plan)
    unused = (
        f"{_percent(more.expected)} of the peak ({_percent(more.low)} to {_percent(more.high)}), {_percent(more.full)} on a nearly full GPU"
    )
    if not plan.workload.expandable:
        unused += "; expandable_segments:True in PYTORCH_ALLOC_CONF keeps it low (--expandable-segments)"
    found = [
        f"CUDA context, libraries and NCCL: {_gib(around.expected)} GiB ({_gib(around.low)} to {_gib(around.high)}), "
        + _source(plan, around),
        f"reserved by PyTorch but unused: {unused}",
        ROOM.format(on_host=ON_HOST if plan.parameter_device else ""),
        "empty_cache() does not lower the peak: it returns memory that is already free, for other programs on the GPU",
    ]
    if model.exact:
        found.append("activations: 12 % either way; kernels and transformers versions differ in what they keep")
    else:
        found.append("activations: 25 % either way; the layers of this model are unknown")
    if model.generic:
        found.append("weights: 5 % either way; they are guessed from the model's sizes")
    found += [f"not counted, also not in the high figure: {what}" for what in plan.uncounted]
    estimated = [(what, share) for what, share in plan.unmodelled if what not in plan.uncounted]
    found += [f"not modelled: {what}; the high figure includes {100 * share:.0f} % for it" for what, share in estimated]
    found += _lengths(plan)
    found += _doubts(model, plan)
    if plan.stage == 3:
        found.append("gathered parameters: 15 % either way; prefetching depends on the order in which modules run")
    if plan.workload.padded:
        found.append(
            "padding: the high figure includes a 16-bit mask per layer, which PyTorch's attention may keep (flash attention does not)"
        )
    if plan.tensor > 1:
        found.append("tensor parallelism: 25 % of what a step allocates, either way; nothing was measured with it")
    if plan.keeps_linear_weights and plan.workload.checkpoint_every != 1:
        why = "memory_efficient_linear is off" if plan.plain_linear else f"DeepSpeed {plan.release} replaces them only under zero.Init"
        found.append(f"linear layers: they keep their gathered weights until the backward, because {why}")
    if plan.assumes_zero_init:
        size = plan.model_bytes * model.size / plan.tensor
        found.append(
            f"zero.Init: assumed. Without it, each rank loads the whole model ({_gib(size)} GiB) into host memory and moves it to its GPU; "
            "--zero-init or --no-zero-init says which"
        )
    if any(block.keeps_scores for block in model.blocks) and not plan.workload.eager:
        found.append(f"attention: {model.family} keeps attention scores by default in transformers; flash attention does not")
    if model.vocabulary and model.returns_logits and not plan.workload.loss_chunk:
        found.append(
            "logits: includes the model's output, which a program holds until the next step (`outputs = model(...)`)"
            if plan.workload.keeps_logits
            else "logits: the high figure includes the model's output, in case the program keeps it until the end of the backward"
        )
    return found


def _lengths(plan: Plan) -> Iterator[str]:
    """The samples of the three figures, where only a limit of their lengths is known, or nothing."""
    length = plan.workload.length
    if plan.mixes_lengths:
        others = f" and the others {SHORT:,}" if plan.samples_at_once > 1 and length > SHORT else ""
        yield (
            f"lengths: in the expected figure one sample of a micro batch has {length:,} tokens{others}; in the low figure all have "
            f"{plan.shortest}, in the high figure all have {length:,}"
        )
    elif plan.workload.guessed_length:
        yield (
            f"lengths: nothing says how long samples are; in the low figure all have {plan.shortest} tokens, in the others {length:,}, and "
            "longer ones need more (--sequence-length)"
        )


def _doubts(model: Model, plan: Plan) -> Iterator[str]:
    """What the program decides: what is included, and what only the high figure includes."""
    if plan.elsewhere:
        when = "only while it generates" if plan.sleeps else "which the context includes (--vllm-sleeps: only while it generates)"
        yield f"vLLM: reserves {_gib(plan.elsewhere)} GiB of this GPU, {when}"
    if plan.doubtful_step_bytes and plan.optimizer_device is None:
        yield (
            f"optimizer: the high figure includes {plan.doubtful_step_bytes} bytes per element in its step, which torch's AdamW allocates "
            "unless it is fused (--optimizer adamw or torch_adamw says which)"
        )
    if plan.workload.adapter_dropout is None and model.adapted:
        yield "adapters: the high figure includes dropout, with which each adapter keeps a copy of its input (--lora-dropout sets it)"


def _source(plan: Plan, around: Bounds) -> str:
    """Where the size of the context is from; with a calibration, also what job logs say."""
    if plan.calibration is None:
        return "from job logs"
    logs = Bounds(*(size + plan.always_elsewhere for size in context_in_logs(plan)))
    difference = f"job logs: {_gib(logs.expected)} GiB" if logs != around else "as in job logs"
    own = _gib(plan.calibration.context[1])
    return f"of which {own} GiB measured on {plan.calibration.hardware} ({plan.calibration.path}); {difference}"


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}"


def _percent(share: float) -> str:
    return f"{100 * (share - 1):.0f} %"
