"""What a request for GPU memory was for: the traceback and its size give it away."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from enum import StrEnum

from dslint.diagnose.events import LogEvent
from dslint.diagnose.frames import Frame
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.places import is_library
from dslint.record import Record

GIB = 2**30
CLOSE = 0.006
"""How much a size may differ: messages round to two digits, the allocator to 2 MiB."""

MESSAGES = (
    "Compute the loss in chunks (the fused linear cross entropy of Liger-Kernel), or lower the micro batch size or the sequence length."
)


class RequestPhase(StrEnum):
    """What the program did when it requested memory, as a part of a sentence."""

    INITIALIZE = "in deepspeed.initialize"
    INIT_INFERENCE = "in deepspeed.init_inference"
    BACKWARD = "in the backward"
    STEP = "in the optimizer's step"
    LOADING = "while the model was loaded"
    FORWARD = "in the forward"
    LOSS = "in the loss"
    MOVING = "while the model moves to the GPU"
    TRAINER = "while the Trainer was made"
    GATHERING = "while gathering weights"
    LOG_SOFTMAX = "in log_softmax"
    ATTENTION = "in attention"
    UNKNOWN = ""


class Purpose(Record):
    """What memory was requested for: the phase, what it was, further sentences, and what to change.

    `general` is the part of the advice that holds for most jobs. `is_inference`: the program generates or evaluates.
    """

    phase: RequestPhase = RequestPhase.UNKNOWN
    what: str = ""
    why: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    general: tuple[str, ...] = ()
    is_inference: bool = False


class CodePlace(Record):
    """A place in the code of a library that requests much memory, as a pattern for `file:function: code`.

    `holds_states` says that the memory is for optimizer states or master weights: the advice depends on where the job has them.
    """

    pattern: re.Pattern[str]
    phase: RequestPhase
    what: str
    advice: str = ""
    holds_states: bool = False


def _place(pattern: str, phase: RequestPhase, what: str, advice: str = "", *, holds_states: bool = False) -> CodePlace:
    return CodePlace(re.compile(pattern), phase, what, advice, holds_states)


GENERATES = frozenset({"generate", "_sample", "greedy_search", "beam_search"})
"""Functions that generate text."""

INFERENCE = GENERATES | {"evaluate", "evaluation_loop", "prediction_step", "predict"}
"""Functions in which a model is run without training it."""

TRAINS = frozenset({"train", "_inner_training_loop", "inner_training_loop", "training_step", "train_batch", "learn", "fit"})
"""Functions that train, also where they generate or evaluate between two steps."""

KEEPS_LOGITS = re.compile(r"transformers/(?:trainer|trainer_seq2seq)\.py:")
"""Where the Trainer of transformers evaluates."""

GATHERS_WHOLE = re.compile(r"partition_parameters\.py:__enter__$")
"""Where deepspeed.zero.GatheredParameters gathers all weights that it got."""

ENGINE = re.compile(r"(?:^|/)(?P<name>vllm|sglang)/")
"""An engine for generation, which has settings of its own."""

OF_ENGINE = {
    "vllm": "vLLM requested it: lower its max_num_batched_tokens, max_num_seqs or max_model_len, or divide its model among more GPUs (tensor_parallel_size).",
    "sglang": "SGLang requested it: lower its max_running_requests, or divide its model among more GPUs (tp_size).",
}

GATHER_LESS = "Gather fewer weights at once with GatheredParameters (for generation with TRL: ds3_gather_for_generation=False)."

BUILDS_INFERENCE = re.compile(r"deepspeed/(?:inference|module_inject|model_implementations|ops/transformer/inference)/|:init_inference\b")
"""Where DeepSpeed builds or runs a model for inference."""

STARTS = re.compile(r"deepspeed/__init__\.py:initialize$|:_setup_for_real_optimizer$|deepspeed/runtime/engine\.py:__init__$")
"""Functions that run once, before the first step."""

SAME_BATCH = "Lower the micro batch size and raise gradient_accumulation_steps by the same factor."

PLACES = (
    _place(r"logits\.float\(\)|logits = .*\.float\(\)|loss_utils\.py:|:cross_entropy|CrossEntropyLoss|:nll_loss", RequestPhase.LOSS, "the logits", MESSAGES),
    _place(r"\b(?:lm_head|embed_out)\(|:parallel_lm_logits: ", RequestPhase.FORWARD, "the logits", MESSAGES),
    _place(r"stage3\.py:_create_fp32_partitions", RequestPhase.INITIALIZE, "the fp32 master weights", holds_states=True),
    _place(r"stage3\.py:_create_fp16_partitions", RequestPhase.INITIALIZE, "a flat copy of this rank's weights", holds_states=True),
    _place(r"\binitialize_optimizer_states|:_optimizer_states_and_set_step|stage3\.py:_setup_for_real_optimizer", RequestPhase.INITIALIZE, "the optimizer states", holds_states=True),
    _place(r"bf16_optimizer\.py:_setup_for_real_optimizer", RequestPhase.INITIALIZE, "the fp32 weights and gradients of BF16_Optimizer", holds_states=True),
    _place(r"(?:stage_1_and_2|stage2|stage1)\.py:(?:__init__|flatten\w*)", RequestPhase.INITIALIZE, "a flat copy of the weights", holds_states=True),
    _place(r"fused_optimizer\.py:__init__", RequestPhase.INITIALIZE, "fp32 copies of the weights", "Use ZeRO: without it every rank holds all master weights and optimizer states."),
    _place(r"engine\.py:_configure_distributed_model|torch/nn/modules/module\.py:(?:to|cuda|convert): ", RequestPhase.MOVING, "the model's weights", "Build the model under zero.Init (ZeRO stage 3), so that each rank holds only its part."),
    _place(r"partition_parameters\.py:.*(?:all_gather|allgather)|partitioned_param_coordinator\.py:", RequestPhase.GATHERING, "gathered weights", "Lower stage3_max_live_parameters, stage3_max_reuse_distance and stage3_prefetch_bucket_size."),
    _place(r"(?:^|[/_])(?:cpu_adam|fused_adam|adamw?|adagrad|lion|lamb|sgd)\.py:|multi_tensor|exp_avg", RequestPhase.STEP, "the optimizer", holds_states=True),
    _place(r":(?:reduce_ipg_grads|average_tensor|allreduce_bucket|reduce_independent\w+|__avg_scatter\w+)", RequestPhase.BACKWARD, "a bucket of gradients", "Lower reduce_bucket_size, or set overlap_comm to false, which needs two buckets."),
    _place(r"log_softmax", RequestPhase.LOG_SOFTMAX, "log probabilities", "Lower the batch size or the sequence length: log_softmax makes a second copy of the logits."),
    _place(r"scaled_dot_product|attn\w*\W.*softmax|attention_scores|attn_weights|eager_attention", RequestPhase.ATTENTION, "attention scores", "Use flash attention or SDPA (attn_implementation), or lower the sequence length."),
    _place(r"checkpoint\.py:.*(?:backward|recompute)|checkpointing\.py:backward", RequestPhase.BACKWARD, "activations that are computed again", SAME_BATCH),
)  # fmt: skip
"""In the order of preference: the innermost frames are compared first with each."""

PHASES = (
    (re.compile(r"deepspeed/__init__\.py:initialize$|runtime/engine\.py:__init__"), RequestPhase.INITIALIZE),
    (re.compile(r"deepspeed/__init__\.py:init_inference|inference/engine\.py:__init__|module_inject/"), RequestPhase.INIT_INFERENCE),
    (re.compile(r":(?:backward|_engine_run_backward|_exec_backward_pass)$"), RequestPhase.BACKWARD),
    (
        re.compile(r"engine\.py:(?:step|_take_model_step)$|/torch/optim/|zero/(?:stage3|stage_1_and_2)\.py:(?:step|_optimizer_step)$"),
        RequestPhase.STEP,
    ),
    (re.compile(r":from_pretrained|:load_state_dict|:load_checkpoint"), RequestPhase.LOADING),
    (re.compile(r":(?:forward|_call_impl|_exec_forward_pass)$"), RequestPhase.FORWARD),
    (re.compile(r"(?i:trainer)\w*\.py:__init__$"), RequestPhase.TRAINER),
)
"""Phases, by the function that a frame is in."""


BEFORE_TRAINING = (RequestPhase.INITIALIZE, RequestPhase.LOADING, RequestPhase.MOVING, RequestPhase.TRAINER)
"""Phases in which the memory is for weights and states, before anything is computed: no batch and no activations take any."""


NO_CONFIG = (
    "The command passes no --deepspeed: unless the program or Accelerate sets a config, each rank holds the whole model, without ZeRO."
)


def _passes_no_config(job: LoggedJob) -> bool:
    """Whether the program takes a config from its command, which names none, and no line shows another one."""
    return bool(job.get("no_config_passed")) and job.stage() is None and "config" not in job.facts and "partitions" not in job.facts


def purpose_of(job: LoggedJob, raised: LogEvent, request: int) -> Purpose:
    """What a request was for."""
    frames = raised.frames
    place = _place_of(frames)
    phase = place.phase if place else _phase_of(frames)
    if any(STARTS.search(frame.place) for frame in frames):
        phase = RequestPhase.INITIALIZE
    sized = next(_sizes(job, request), None)
    why = tuple(filter(None, (_at(frames), f"{request / GIB:.2f} GiB is the size of {sized}." if sized else "")))
    if phase in BEFORE_TRAINING and _passes_no_config(job):
        why = (*why, NO_CONFIG)
    advice = [place.advice] if place and place.advice else []
    what = place.what if place else ""
    if not what and sized and "logits" in sized:
        what, advice = "the logits", [MESSAGES]
    if place.holds_states if place else phase is RequestPhase.STEP:
        advice = _of_states(job)
    if phase is RequestPhase.GATHERING and any(GATHERS_WHOLE.search(frame.place) for frame in frames):
        return Purpose(phase, what, why, (GATHER_LESS,))
    engine = next((found["name"] for frame in frames[-6:] if (found := ENGINE.search(frame.file))), None)
    if engine is not None:
        return Purpose(phase, what, why, (OF_ENGINE[engine],), (), is_inference=True)
    own, general = _usual(job, phase, frames)
    return Purpose(phase, what, why, tuple(dict.fromkeys([*advice, *own, *general])), (*general, SAME_BATCH), _is_inference(frames))


def _place_of(frames: tuple[Frame, ...]) -> CodePlace | None:
    inner = [f"{frame.place}: {frame.code}" for frame in reversed(frames[-8:])]
    backward = any(frame.function == "backward" for frame in frames)
    for text in inner:
        for place in PLACES:
            if place.pattern.search(text) and not (backward and place.phase in (RequestPhase.FORWARD, RequestPhase.LOSS)):
                return place
    return None


def _phase_of(frames: tuple[Frame, ...]) -> RequestPhase:
    for frame in reversed(frames):
        for pattern, phase in PHASES:
            if pattern.search(frame.place):
                return phase
    return RequestPhase.UNKNOWN


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
    tensor = job.get("tensor") or 1
    is_divided = any((job.get(name) or 1) > 1 for name in ("tensor", "pipeline", "sequence"))
    parallel = job.get("data_parallel") or (None if is_divided else job.sure_ranks()) or 1
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


STATES_OF_ADAM = "the states of Adam"
"""How a cause says that these states alone do not fit, which an estimate need not repeat."""


class States(Record):
    """What weights, gradients and states of Adam need on a rank, in bytes, and in words; what to do if that is too much."""

    bytes: int
    sentence: str
    advice: tuple[str, ...]


def states_of(job: LoggedJob) -> States | None:
    """What a job that trains all its parameters with Adam keeps on each GPU; None if the log does not tell enough, or shows steps."""
    stage, trained, ranks = job.stage(), job.get("trained"), job.get("data_parallel") or job.sure_ranks()
    params = job.get("params") or trained
    divided = any((job.get(name) or 1) > 1 for name in ("tensor", "pipeline", "sequence"))
    if stage is None or not trained or not ranks or trained != params or divided or job.get("megatron") or _offloads(job) or job.steps:
        return None
    if _has_other_states(job):
        return None
    whole, parts = {0: (16, 0), 1: (4, 12), 2: (2, 14), 3: (0, 16)}[stage.value]
    needed = trained * (whole * ranks + parts) // ranks
    on = f"{ranks} ranks" if ranks > 1 else "1 rank"
    without = "" if "config" in job.facts else "Without offload, "
    who = f"{without}{trained:,} trained parameters at ZeRO stage {stage.value} on {on}"
    sentence = f"{who} need {needed / GIB:.0f} GiB on each GPU for weights, gradients and {STATES_OF_ADAM}"
    higher = ["Use ZeRO stage 3, which divides the weights among the ranks."] if stage.value in (1, 2) and ranks > 1 else []
    return States(needed, sentence, (*_of_states(job), *higher))


def _has_other_states(job: LoggedJob) -> bool:
    """Whether the log, its config or the command names an optimizer that keeps other states than the two of Adam in fp32."""
    named = (job.get("optimizer"), job.setting("optimizer", "type"), job.get("optim"))
    return any(isinstance(name, str) and name.lower() not in ADAM for name in named)


ADAM = frozenset({"adam", "adamw", "fusedadam", "deepspeedcpuadam", "adamw_torch", "adamw_torch_fused", "adamw_hf"})
"""The names of Adam: types of the config, classes of torch and DeepSpeed, and values of the Trainer's optim. Of its adamw_bnb_8bit the log
names only the class, which is AdamW, too.
"""


def _offloads(job: LoggedJob) -> bool:
    return bool(job.get("offloads_optimizer")) or any(
        job.setting("zero_optimization", section, "device") in ("cpu", "nvme") for section in ("offload_optimizer", "offload_param")
    )


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
    return _is_in(frames, INFERENCE)


def _is_in(frames: tuple[Frame, ...], functions: Collection[str]) -> bool:
    """Whether the program is in one of these functions, or in DeepSpeed's code for inference."""
    return any(frame.function in functions or BUILDS_INFERENCE.search(frame.place) for frame in frames)


def _of_inference(job: LoggedJob, frames: tuple[Frame, ...]) -> str:
    """What helps where the program generates or evaluates."""
    if not _is_in(frames, GENERATES):
        if any(KEEPS_LOGITS.search(frame.place) for frame in frames):
            return (
                "Lower per_device_eval_batch_size, and keep less of each batch on the GPU: eval_accumulation_steps moves the outputs to the CPU, "
                "prediction_loss_only or preprocess_logits_for_metrics makes them small."
            )
        return "Lower the batch size of the evaluation, run it under torch.no_grad(), and keep no outputs of earlier batches on the GPU."
    lower = "Lower the batch size, the length of the prompts or max_new_tokens"
    if job.steps or any(frame.function in TRAINS for frame in frames):
        return f"{lower}."
    return f"{lower}, or load the weights in 16 or 8 bits."


def _usual(job: LoggedJob, phase: RequestPhase, frames: tuple[Frame, ...]) -> tuple[list[str], list[str]]:
    """What helps in a phase, best first: what the log speaks for, and what holds for most jobs."""
    stage, is_inference = job.stage(), _is_inference(frames)
    if is_inference and phase is RequestPhase.INIT_INFERENCE:
        return ["Load the weights in 16 or 8 bits (dtype), or divide them among more GPUs (tensor_parallel.tp_size)."], []
    if phase in BEFORE_TRAINING:
        divided = stage is not None and stage.value == 3
        maps = any("device_map" in frame.whole_code for frame in frames if frame.code)
        without = ", without device_map, which transformers refuses there" if maps else ""
        use = "Pass --deepspeed with a config of ZeRO stage 3" if _passes_no_config(job) else "Use ZeRO stage 3"
        return [] if divided else [f"{use}, which divides the weights among the ranks{without}."], []
    if is_inference:
        return [_of_inference(job, frames)], []
    if phase is RequestPhase.STEP:
        return [], []
    own, general = [], []
    if not job.get("checkpointing") and not job.get("megatron"):
        own.append("Turn on activation checkpointing (gradient_checkpointing): the log does not say that it is on.")
    if (job.get("micro_batch") or 2) > 1:
        lower = "Lower the micro batch size" + ("" if job.get("micro_batch") else ", if it is above 1,")
        general.append(f"{lower} and raise gradient_accumulation_steps by the same factor: the training stays the same.")
    return own, [*general, "Run `dslint fit CONFIG --model MODEL --gpu-memory SIZE` for changes that fit, best first."]
