"""What training arguments say about memory: the model, the length of samples, adapters, checkpointing, the optimizer."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any

from dslint.frameworks import trl
from dslint.frameworks.base import UNKNOWN_SHARE, FrameworkWorkload, Told
from dslint.frameworks.deepspeed_chat import container_without
from dslint.frameworks.own_loading import tells_own
from dslint.frameworks.registry import named
from dslint.job.arguments import Arguments
from dslint.job.attention import kernel_named
from dslint.job.training import MODEL_ARGUMENTS, OWN_LENGTHS, OWN_MODEL_ARGUMENTS, PROMPT_AND_ANSWER
from dslint.source.unknown import UNKNOWN

LENGTHS = (
    *("cutoff_len", "sequence_len", "max_seq_length", "max_length", "model_max_length", "block_size", "max_source_length"),
    "max_seq_len",  # DeepSpeed-Chat
)
"""Arguments for the tokens per sample."""

_OPTIMIZERS = {
    "adamw_hf": "torch_adamw",
    "adamw_torch": "torch_adamw",
    "adamw_torch_fused": "adamw",
    "adamw_apex_fused": "adamw",
    "adafactor": "adafactor",
    "adamw_8bit": "adam8bit",
    "adamw_bnb_8bit": "adam8bit",
    "paged_adamw_8bit": "adam8bit",
    "lion_32bit": "lion",
    "lion_8bit": "lion8bit",
    "paged_lion_8bit": "lion8bit",
    "sgd": "sgd",
    "adagrad": "adagrad",
    "muon": "muon",
}
"""Values of `optim` by the optimizer of the estimate."""

_CHUNK = 1024
"""The tokens per chunk that stand for a fused loss, such as Liger's."""


_FUSED = ("enable_liger_kernel", "use_liger_kernel", "use_liger")
"""Arguments for all kernels of Liger, with its loss; after them in `told_by` those for a loss alone, the last two of axolotl."""


def told_by(arguments: Arguments) -> Told:
    """The options that training arguments imply. Values that cannot be read imply nothing."""
    framework = named(arguments.framework)
    tells = (framework.tells or (tells_own if framework.own is not None else None)) if framework is not None else None
    if tells is not None:
        return tells(arguments)
    reading = _OptionReading(arguments)
    for name in (*MODEL_ARGUMENTS, *OWN_MODEL_ARGUMENTS):
        reading.take("model", name, str)
    _prompt_and_answer(reading)
    for name in (*LENGTHS, *OWN_LENGTHS):
        reading.take("length", name, _positive)
    own = workload_of(arguments)
    is_other = any(name in arguments for name in own.not_with_length)
    if own.length is not None and arguments.complete and not is_other:
        reading.options.setdefault("length", (own.length, f"the default of {arguments.framework}"))
    reading.take("micro_batch", "per_device_train_batch_size", _positive)
    reading.take("accumulation", "gradient_accumulation_steps", _positive)
    reading.take("checkpoint_every", "gradient_checkpointing", lambda value: 1 if value is True else None)
    checkpoints = trl.FRAMEWORK.workload.checkpoints if _by_trl(arguments) else own.checkpoints
    if (
        checkpoints is not None
        and not is_other
        and "gradient_checkpointing" not in arguments
        and not _on(arguments, "disable_gradient_checkpointing")
    ):
        reading.options["checkpoint_every"] = 1, f"the default of {checkpoints}"
    reading.take("optimizer", "optim", lambda value: _OPTIMIZERS.get(str(value)))
    for name in (*_FUSED, "liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy"):
        reading.take("loss_chunk", name, lambda value: _CHUNK if value is True else None)
    for name in _FUSED:
        reading.take("fused_kernels", name, lambda value: value is True or None)
    for name, kernels in own.attention.items():
        reading.take("attention", name, partial(kernel_named, kernels))
    sequence = _sequence(arguments)
    if own.shares_loss and sequence is not None:
        reading.options["half_loss"] = True, f"{arguments.framework}, with {sequence[1]}"
    _evaluation(arguments, reading)
    if own.zero_init:
        reading.options["zero_init"] = True, f"{arguments.framework}, which builds models under zero.Init"
    if _trains_adapters(arguments):
        _adapters(arguments, reading)
    _preferences(reading)
    if _freezes_towers(arguments):
        reading.options["frozen_towers"] = True, f"the default of {arguments.framework}"
    _beside(arguments, reading)
    return Told(reading.options, tuple(_notes(arguments)), sequence, tuple(_unmodelled(arguments)))


def _prompt_and_answer(reading: _OptionReading) -> None:
    """The length of samples that are a prompt with an answer, where arguments limit each of them."""
    for names in PROMPT_AND_ANSWER:
        limits = [reading.arguments.get(name) for name in names]
        sizes = [_positive(one.value) for one in limits if one is not None]
        if len(sizes) == len(names) and None not in sizes:
            places = " and ".join(dict.fromkeys(one.where for one in limits if one is not None))
            reading.options["length"] = sum(size or 0 for size in sizes), places
            return


def workload_of(arguments: Arguments) -> FrameworkWorkload:
    """What the framework of arguments makes of those that are not set."""
    framework = named(arguments.framework)
    return framework.workload if framework is not None else FrameworkWorkload()


def _by_trl(arguments: Arguments) -> bool:
    """Whether a class of TRL's has the arguments, which has other defaults than the Trainer's."""
    return arguments.kind.startswith("trl.")


def _sequence(arguments: Arguments) -> tuple[int, str] | None:
    """The size of sequence parallelism above 1, and its place."""
    for name in ("sequence_parallel_size", "context_parallel_size", "sequence_parallel_degree"):
        given = arguments.get(name)
        if given is not None and (_positive(given.value) or 1) > 1:
            return int(given.value), given.where
    return None


def _evaluation(arguments: Arguments, reading: _OptionReading) -> None:
    """The micro batch size of evaluations, 0 without any."""
    given = next((found for name in _STRATEGIES if (found := arguments.get(name)) is not None and found.value is not UNKNOWN), None)
    share = arguments.get("val_set_size") if workload_of(arguments).evaluates_a_share else None
    if given is not None and given.value in ("no", False):
        reading.options["eval_batch"] = 0, given.where
    elif (given is not None and given.value in ("steps", "epoch")) or (share is not None and share.value is not UNKNOWN and share.value):
        reading.take("eval_batch", "per_device_eval_batch_size", _positive)
        reading.take("eval_batch", "eval_batch_size", _positive)
        if workload_of(arguments).evaluates_a_share:
            reading.take("eval_batch", "per_device_train_batch_size", _positive)
        reading.options.setdefault("eval_batch", (_EVALUATED, "the default of TrainingArguments"))


_STRATEGIES = ("eval_strategy", "evaluation_strategy")
_EVALUATED = 8
"""The default of `per_device_eval_batch_size`."""


class _OptionReading:
    """Collects options; the first argument that implies one wins."""

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments
        self.options: dict[str, tuple[Any, str]] = {}

    def take(self, option: str, name: str, read: Callable[[Any], Any]) -> None:
        given = self.arguments.get(name)
        if given is None or given.value is UNKNOWN or given.value is None or option in self.options:
            return
        value = read(given.value) if isinstance(given.value, Hashable) else None
        if value is not None:
            self.options[option] = value, given.where


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _on(arguments: Arguments, name: str) -> bool:
    given = arguments.get(name)
    return given is not None and given.value is True


def _trains_adapters(arguments: Arguments) -> bool:
    """Whether only LoRA adapters are trained."""
    if any(_on(arguments, name) for name in ("use_peft", "use_lora", "use_peft_lora", "lora_enable")):
        return True
    for name in ("finetuning_type", "adapter", "train_type", "tuner_type", "sft_type"):
        given = arguments.get(name)
        if given is not None:
            return str(given.value) in ("lora", "qlora", "dora", "lora_llm")
    if "lora_dim" in arguments:  # DeepSpeed-Chat, where it is the switch
        return _rank_of_chat(arguments) is not None and not _adapts_nothing(arguments)
    return workload_of(arguments).trains_adapters


def _rank_of_chat(arguments: Arguments) -> int | None:
    """The rank of LoRA in DeepSpeed-Chat; None if its switch is off or not there."""
    given = arguments.get("lora_dim")
    return _positive(given.value) if given is not None else None


def _adapts_nothing(arguments: Arguments) -> bool:
    """Whether no layer of the model has a name with `--lora_module_name` of DeepSpeed-Chat, so that none gets LoRA."""
    model, part = (arguments.get(name) for name in ("model_name_or_path", "lora_module_name"))
    return model is not None and part is not None and container_without(model.value, part.value) is not None


GUESSED = "a guess: no argument says it"
"""The place of an option that training arguments imply without its value; the program may have one."""

_USUAL_RANK = 16

SAVED_WHOLE = ("additional_target", "lora_modules_to_save", "modules_to_save")
"""The arguments that name modules which are trained whole besides an adapter: of LLaMA-Factory, of axolotl and TRL, of ms-swift."""


def _adapters(arguments: Arguments, reading: _OptionReading) -> None:
    own = workload_of(arguments)
    for name in ("lora_rank", "lora_r", "lora_dim"):
        reading.take("lora_rank", name, _positive)
    if "lora_rank" not in reading.options:
        known = own.lora_rank
        reading.options["lora_rank"] = (known, f"the default of {arguments.framework}") if known is not None else (_USUAL_RANK, GUESSED)
    for name in ("lora_target", "target_modules", "lora_target_modules"):
        reading.take("lora_targets", name, lambda value: value if isinstance(value, str) and value not in ("all", "all-linear") else None)
    for name in SAVED_WHOLE:
        reading.take("lora_saves", name, lambda value: value if isinstance(value, str) else None)
    reading.take("lora_dropout", "lora_dropout", lambda value: value if isinstance(value, int | float) and 0 <= value <= 1 else None)
    if own.lora_dropout is not None:
        reading.options.setdefault("lora_dropout", (own.lora_dropout, f"the default of {arguments.framework}"))
    for name in ("quantization_bit", "quant_bits"):
        reading.take("base_bits", name, lambda value: str(value) if value in (4, 8) else None)
    for bits in ("4", "8"):
        for name in (f"load_in_{bits}bit", f"use_{bits}bit_quantization"):
            reading.take("base_bits", name, {True: bits}.get)


def _freezes_towers(arguments: Arguments) -> bool:
    """Whether the encoders of images are frozen, as some frameworks do by default."""
    name = workload_of(arguments).freezes
    given = arguments.get(name) if name is not None else None
    return name is not None and (given is None or given.value is True)


_METHODS = ("stage", "rl", "rlhf_type")
"""Arguments for the method of training."""

_PAIRED = frozenset({"dpo", "ipo", "orpo", "simpo", "cpo", "rm", "reward"})
_REFERRING = {"dpo": 1, "ipo": 1, "kto": 1, "ppo": 2, "grpo": 1, "rloo": 1}
"""Methods with frozen copies of the model: its reference, and the reward model of PPO."""

_RLOO = 0.05
"""The default of `beta` of RLOO in TRL."""

_REWARDING = frozenset({"rm", "reward"})
"""Methods that train a reward model, which in most frameworks has no logits of words.

Sources: trl, trainer/reward_trainer.py; ms-swift, swift/arguments/rlhf_args.py, `_init_rm`; LLaMA-Factory, train/rm/trainer.py.
"""

_REFERRING_ADAPTERS = {"ppo": 1}
"""The same where adapters are trained: without them, the model is its own reference."""

_GENERATING = frozenset({"ppo", "grpo", "rloo", "gkd"})
"""Methods that generate answers with the model while it is trained. Source: trl, PPOTrainer, GRPOTrainer, RLOOTrainer, GKDTrainer."""

_WITHOUT_LOGITS = frozenset({"embedding", "seq_cls", "reranker", "generative_reranker"})
"""Tasks of ms-swift whose models return an embedding or a few scores."""

_TEACHERS = ("teacher_model", "teacher_model_name_or_path")

_MORE_MODELS = {
    "ppo": (("the KV cache of generation", 0.1),),
    "gkd": (("the logits of the teacher", 0.2), ("the KV cache of generation", 0.1)),
    "grpo": (("the logits of reference and old policy, and the KV cache of generation", 0.15),),
    "rloo": (("the logits of reference and old policy, and the KV cache of generation", 0.15),),
}
"""By method: what the estimate leaves out, with the share by which the peak may be higher: guesses."""


_PIXELS = ("image_max_pixels", "max_pixels")
"""Arguments for the most pixels of an image: of LLaMA-Factory, of ms-swift and the programs of Qwen-VL."""

_LARGE_IMAGES = 5_000_000
"""The pixels from which an encoder that is trained may keep more than the range of an estimate includes: 25,000 patches."""


def _unmodelled(arguments: Arguments) -> Iterator[tuple[str, float]]:
    if _on(arguments, "predict_with_generate"):
        yield "the KV cache of evaluations that generate", 0.1
    for name in _PIXELS:
        pixels = _positive(given.value) if (given := arguments.get(name)) is not None else None
        if pixels is not None and pixels >= _LARGE_IMAGES and not _freezes_towers(arguments):
            yield f"images of up to {pixels / 1e6:.0f} million pixels in their encoder (--{name})", UNKNOWN_SHARE
            break
    method, _ = _method(arguments)
    yield from _MORE_MODELS.get(method, ())
    if method == "gkd" and not any(name in arguments for name in _TEACHERS):
        yield "the teacher model", UNKNOWN_SHARE
    if _rank_of_chat(arguments) and not _on(arguments, "only_optimize_lora") and not _adapts_nothing(arguments):
        yield "embeddings and norms, which are trained whole without --only_optimize_lora", 0.25
    kind = arguments.get("tuner_type")
    if kind is not None and kind.value == "lora_llm":
        yield "the towers, which lora_llm trains whole", 0.25


def _preferences(reading: _OptionReading) -> None:
    """Pairs of answers, and reference models."""
    method, place = _method(reading.arguments)
    implied = {
        # a packed row holds both answers
        "pairs": method in _PAIRED and not any(_on(reading.arguments, packing) for packing in _PACKING),
        "frozen_copies": _references(method, reading),
        "value_model": method == "ppo",
        "generates": method in _GENERATING and not _on(reading.arguments, "use_vllm"),
        "no_logits": method in _REWARDING and not workload_of(reading.arguments).rewards_with_logits,
    }
    for option, value in implied.items():
        if value:
            reading.options.setdefault(option, (value, place))
    reading.take("no_logits", "task_type", lambda value: True if value in _WITHOUT_LOGITS else None)
    for name in _TEACHERS:
        reading.take("teacher", name, lambda value: value if isinstance(value, str) else None)
    if "length" in reading.options and _vary(reading.arguments):
        reading.options["varying"] = True, "a limit of the length of samples, which are not packed"


def _method(arguments: Arguments) -> tuple[str, str]:
    """The method of training and its place: an argument, else the command or the class of TRL. Empty strings if there is none."""
    for name in _METHODS:
        given = arguments.get(name)
        if given is not None and isinstance(given.value, str):
            return given.value, given.where
    if arguments.task in _PAIRED | _REFERRING.keys() | _GENERATING:
        return arguments.task, f"the method {arguments.task}"
    found = re.fullmatch(r"trl\.(?:\w+\.)*(\w+)Config", arguments.kind)
    return (found[1].lower(), arguments.kind) if found is not None else ("", "")


def _references(method: str, reading: _OptionReading) -> int:
    """The number of frozen copies of the model that a method holds."""
    arguments = reading.arguments
    if method in ("grpo", "rloo"):
        given = arguments.get("beta")
        own = trl.FRAMEWORK.workload if _by_trl(arguments) else workload_of(arguments)
        default = own.beta if method == "grpo" else _RLOO
        if (given.value if given is not None else default) == 0:
            return 0
    if _on(arguments, "precompute_ref_log_probs"):
        return 0
    return (_REFERRING_ADAPTERS if "lora_rank" in reading.options else _REFERRING).get(method, 0)


def _vary(arguments: Arguments) -> bool:
    """Whether the length of samples is only limited. A `block_size` is the length itself: texts are joined and cut into blocks of this
    size (transformers' run_clm.py, LMFlow).
    """
    names = (*LENGTHS, *OWN_LENGTHS, *(name for names in PROMPT_AND_ANSWER for name in names))
    limits = any(name in arguments for name in names if name != "block_size")
    return limits and not any(_on(arguments, name) for name in _PACKING)


_USUAL_VLLM = trl.FRAMEWORK
"""Its default of `vllm_gpu_memory_utilization` counts for frameworks without one, which take TRL's trainers."""


def _beside(arguments: Arguments, reading: _OptionReading) -> None:
    """The share of a vLLM that runs on the GPUs of the training, and whether it sleeps while the model is trained."""
    mode = arguments.get("vllm_mode")
    if not _on(arguments, "use_vllm") or mode is None or mode.value != "colocate":
        return
    reading.take("vllm_share", "vllm_gpu_memory_utilization", lambda value: value if isinstance(value, float) and 0 < value < 1 else None)
    own = named(arguments.framework)
    framework = own if own is not None and own.workload.vllm_share is not None else _USUAL_VLLM
    reading.options.setdefault("vllm_share", (framework.workload.vllm_share, f"the default of {framework.name}"))
    reading.take("vllm_sleeps", "vllm_enable_sleep_mode", lambda value: value or None)
    reading.take("vllm_sleeps", "sleep_level", lambda value: True if _positive(value) else None)


IS_LIMIT = "--sequence-length is a limit: the estimate is for samples of this length, and shorter ones need less"

_PACKING = ("sample_packing", "packing", "neat_packing")
"""Arguments that fill samples up."""


def _notes(arguments: Arguments) -> list[str]:
    """What changes memory, and no option expresses."""
    notes = []
    if any(_on(arguments, name) for name in _PACKING):
        notes.append("samples are packed: every sample has the full length")
    elif _vary(arguments):
        notes.append(IS_LIMIT)
    if _rank_of_chat(arguments) and _adapts_nothing(arguments):
        notes.append("all weights are trained, without LoRA: --lora_module_name is in no name of the model's layers")
    elif _rank_of_chat(arguments):  # it raises no error
        notes.append(
            "LoRA counts as if --lora_module_name were in names of the model's layers: if it is in none, all weights may be trained"
        )
    return notes
