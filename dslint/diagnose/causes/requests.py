"""What a request for GPU memory was for: the traceback and its size give it away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from dslint.diagnose.events import LogEvent
from dslint.diagnose.frames import Frame
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.places import is_library

GIB = 2**30
CLOSE = 0.006
"""How much a size may differ: messages round to two digits, the allocator to 2 MiB."""

MESSAGES = (
    "Compute the loss in chunks (the fused linear cross entropy of Liger-Kernel), or lower the micro batch size or the sequence length."
)


class Purpose(NamedTuple):
    """What memory was requested for: the phase, what it was, further sentences, and what to change."""

    phase: str = ""
    what: str = ""
    why: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


class CodePlace(NamedTuple):
    """A place in the code of a library that requests much memory, as a pattern for `file:function: code`."""

    pattern: re.Pattern[str]
    phase: str
    what: str
    advice: str = ""


def _place(pattern: str, phase: str, what: str, advice: str = "") -> CodePlace:
    return CodePlace(re.compile(pattern), phase, what, advice)


INFERENCE = frozenset({"generate", "_sample", "greedy_search", "beam_search", "evaluate", "evaluation_loop", "prediction_step", "predict"})
"""Functions in which a model is run without training it."""

BUILDS_INFERENCE = re.compile(r"deepspeed/(?:inference|module_inject|model_implementations|ops/transformer/inference)/|:init_inference\b")
"""Where DeepSpeed builds or runs a model for inference."""

STARTS = re.compile(r"deepspeed/__init__\.py:initialize$|:_setup_for_real_optimizer$|deepspeed/runtime/engine\.py:__init__$")
"""Functions that run once, before the first step."""

OFFLOAD = "Offload the optimizer (zero_optimization.offload_optimizer.device: cpu), raise the ZeRO stage, or use more ranks."

PLACES = (
    _place(r"logits\.float\(\)|logits = .*\.float\(\)|loss_utils\.py:|:cross_entropy|CrossEntropyLoss|:nll_loss", "in the loss", "the logits", MESSAGES),
    _place(r"lm_head|embed_out|LMHead", "in the forward", "the logits", MESSAGES),
    _place(r"stage3\.py:_create_fp32_partitions", "in deepspeed.initialize", "the fp32 master weights", OFFLOAD),
    _place(r"stage3\.py:_create_fp16_partitions", "in deepspeed.initialize", "a flat copy of this rank's weights", OFFLOAD),
    _place(r"\binitialize_optimizer_states|:_optimizer_states_and_set_step|stage3\.py:_setup_for_real_optimizer", "in deepspeed.initialize", "the optimizer states", OFFLOAD),
    _place(r"bf16_optimizer\.py:_setup_for_real_optimizer", "in deepspeed.initialize", "the fp32 weights and gradients of BF16_Optimizer", OFFLOAD),
    _place(r"(?:stage_1_and_2|stage2|stage1)\.py:(?:__init__|flatten\w*)", "in deepspeed.initialize", "a flat copy of the weights", OFFLOAD),
    _place(r"fused_optimizer\.py:__init__", "in deepspeed.initialize", "fp32 copies of the weights", "Use ZeRO: without it every rank holds all master weights and optimizer states."),
    _place(r"engine\.py:_configure_distributed_model|:cuda: |\.to\(.*device", "while the model moves to the GPU", "the model's weights", "Build the model under zero.Init (ZeRO stage 3), so that each rank holds only its part."),
    _place(r"partition_parameters\.py:.*(?:all_gather|allgather)|partitioned_param_coordinator\.py:", "while gathering weights", "gathered weights", "Lower stage3_max_live_parameters, stage3_max_reuse_distance and stage3_prefetch_bucket_size."),
    _place(r"(?:cpu_adam|fused_adam|adamw?|adagrad|lion|lamb|sgd)\.py:|multi_tensor|exp_avg", "in the optimizer's step", "the optimizer", OFFLOAD),
    _place(r":(?:reduce_ipg_grads|average_tensor|allreduce_bucket|reduce_independent\w+|__avg_scatter\w+)", "in the backward", "a bucket of gradients", "Lower reduce_bucket_size, or set overlap_comm to false, which needs two buckets."),
    _place(r"log_softmax", "in log_softmax", "log probabilities", "Lower the batch size or the sequence length: log_softmax makes a second copy of the logits."),
    _place(r"scaled_dot_product|softmax|attention_scores|attn_weights|eager_attention", "in attention", "attention scores", "Use flash attention or SDPA (attn_implementation), or lower the sequence length."),
    _place(r"checkpoint\.py:.*(?:backward|recompute)|checkpointing\.py:backward", "in the backward", "activations that are computed again", "Lower the micro batch size and raise gradient_accumulation_steps by the same factor."),
)  # fmt: skip
"""In the order of preference: the innermost frames are compared first with each."""

PHASES = (
    (re.compile(r"deepspeed/__init__\.py:initialize$|runtime/engine\.py:__init__"), "in deepspeed.initialize"),
    (re.compile(r"deepspeed/__init__\.py:init_inference|inference/engine\.py:__init__|module_inject/"), "in deepspeed.init_inference"),
    (re.compile(r":(?:backward|_engine_run_backward|_exec_backward_pass)$"), "in the backward"),
    (
        re.compile(r"engine\.py:(?:step|_take_model_step)$|/torch/optim/|zero/(?:stage3|stage_1_and_2)\.py:(?:step|_optimizer_step)$"),
        "in the optimizer's step",
    ),
    (re.compile(r":from_pretrained|:load_state_dict|:load_checkpoint"), "while the model was loaded"),
    (re.compile(r":(?:forward|_call_impl|_exec_forward_pass)$"), "in the forward"),
)
"""Phases, by the function that a frame is in."""


def purpose_of(job: LoggedJob, raised: LogEvent, request: int) -> Purpose:
    """What a request was for."""
    frames = raised.frames
    place = _place_of(frames)
    phase = place.phase if place else _phase_of(frames)
    if any(STARTS.search(f"{frame.file}:{frame.function}") for frame in frames):
        phase = "in deepspeed.initialize"
    sized = next(_sizes(job, request), None)
    why = tuple(filter(None, (_at(frames), f"{request / GIB:.2f} GiB is the size of {sized}." if sized else "")))
    advice = [place.advice] if place and place.advice else []
    what = place.what if place else ""
    if not what and sized and "logits" in sized:
        what, advice = "the logits", [MESSAGES]
    if place.advice == OFFLOAD if place else "optimizer" in phase:
        advice = _of_states(job)
    advice += _usual(job, phase, _is_inference(frames))
    return Purpose(phase, what, why, tuple(dict.fromkeys(advice)))


def _place_of(frames: tuple[Frame, ...]) -> CodePlace | None:
    inner = [f"{frame.file}:{frame.function}: {frame.code}" for frame in reversed(frames[-8:])]
    backward = any(frame.function == "backward" for frame in frames)
    for text in inner:
        for place in PLACES:
            if place.pattern.search(text) and not (backward and place.phase in ("in the forward", "in the loss")):
                return place
    return None


def _phase_of(frames: tuple[Frame, ...]) -> str:
    for frame in reversed(frames):
        for pattern, phase in PHASES:
            if pattern.search(f"{frame.file}:{frame.function}"):
                return phase
    return ""


def _at(frames: tuple[Frame, ...]) -> str:
    """Where the program was: the innermost frame outside of libraries."""
    own = [frame for frame in frames if not is_library(frame)]
    if not own:
        return ""
    frame = own[-1]
    return f"The program was at {frame.file.rpartition('/')[2]}:{frame.line}, in {frame.function}{f': {frame.whole_code}' if frame.code else ''}."


def _sizes(job: LoggedJob, request: int) -> Iterator[str]:
    """What has the size of the request."""
    tokens = _tokens(job)
    words, hidden, params = job.get("vocabulary"), job.get("hidden"), job.get("params") or job.get("params_of_rank")
    parallel = job.get("data_parallel") or 1
    tensor = job.get("tensor") or 1
    if tokens and words:
        for each, name in ((4, "fp32"), (2, "16-bit")):
            yield from _close(
                request,
                tokens * words * each / tensor,
                f"the logits in {name}: {tokens:,} tokens x {words // tensor:,} words x {each} bytes",
            )
    if params:
        for each in (4, 2):
            yield from _close(request, params * each, f"all {params:,} parameters x {each} bytes")
            if parallel > 1:
                yield from _close(
                    request, params * each / parallel, f"the part of one of {parallel} ranks of {params:,} parameters x {each} bytes"
                )
    if words and hidden:
        for each in (4, 2):
            yield from _close(request, words * hidden * each / tensor, f"the embedding: {words // tensor:,} x {hidden:,} x {each} bytes")


def _close(request: int, expected: float, text: str) -> Iterator[str]:
    if expected > 2**20 and abs(request / expected - 1) < CLOSE:
        yield text


def _tokens(job: LoggedJob) -> int | None:
    """The tokens of a micro batch on one rank."""
    micro, length = job.get("micro_batch"), job.get("length")
    return micro * length // (job.get("sequence") or 1) if micro and length else None


def _of_states(job: LoggedJob) -> list[str]:
    """What divides or moves the states of the optimizer, as far as the job does not do it yet."""
    stage = job.stage()
    ways = []
    if not job.get("offloads_optimizer") and job.setting("zero_optimization", "offload_optimizer", "device") not in ("cpu", "nvme"):
        known = "config" in job.facts
        ways.append(
            f"Offload the optimizer (zero_optimization.offload_optimizer.device: cpu){'' if known else ' if it is not offloaded yet'}"
        )
    if stage.value == 0 if stage is not None else "partitions" not in job.facts:
        known = stage is not None
        ways.append(f"use ZeRO stage 1 or higher{'' if known else ' if it is off'}, which divides the states among the ranks")
    ways.append("use more ranks: each holds a smaller part")
    text = ", or ".join(ways)
    return [f"{text[0].upper()}{text[1:]}."]


def _is_inference(frames: tuple[Frame, ...]) -> bool:
    """Whether the program generates or evaluates."""
    if any(frame.function == "backward" for frame in frames):
        return False
    return any(frame.function in INFERENCE or BUILDS_INFERENCE.search(f"{frame.file}:{frame.function}") for frame in frames)


def _usual(job: LoggedJob, phase: str, is_inference: bool) -> Iterator[str]:  # noqa: FBT001 - the only flag
    """What helps in a phase in general, best first."""
    stage = job.stage()
    if is_inference and "init_inference" in phase:
        yield "Load the weights in 16 or 8 bits (dtype), or divide them among more GPUs (tensor_parallel.tp_size)."
        return
    if "initialize" in phase or "loaded" in phase or "moves" in phase:
        if stage is None or stage.value != 3:
            yield "Use ZeRO stage 3, which divides the weights among the ranks."
        return
    if is_inference:
        yield "Lower the batch size, the length of the prompts or max_new_tokens, or load the weights in 16 or 8 bits."
        return
    if "optimizer" in phase:
        return
    if not job.get("checkpointing") and not job.get("megatron"):
        yield "Turn on activation checkpointing (gradient_checkpointing): the log does not say that it is on."
    if (job.get("micro_batch") or 2) > 1:
        lower = "Lower the micro batch size" + ("" if job.get("micro_batch") else ", if it is above 1,")
        yield f"{lower} and raise gradient_accumulation_steps by the same factor: the training stays the same."
    yield "Run `dslint fit CONFIG --model MODEL --gpu-memory SIZE` for changes that fit, best first."
