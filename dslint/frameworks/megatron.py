"""What the arguments of Megatron's programs say about the model and the training, for an estimate.

Source: megatron/arguments.py of Megatron-DeepSpeed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dslint.facts import Integration
from dslint.frameworks.base import Framework, Told
from dslint.job.arguments import Arguments, SourcedValue
from dslint.job.attention import EAGER, FLASH_2

NAMES = frozenset(
    """
    num_layers hidden_size num_attention_heads ffn_hidden_size num_key_value_heads num_query_groups seq_length max_position_embeddings
    micro_batch_size vocab_size make_vocab_size_divisible_by tensor_model_parallel_size pipeline_model_parallel_size no_pipeline_parallel
    zero_stage ds_sequence_parallel_size swiglu untie_embeddings_and_output_weights
    hidden_dropout checkpoint_activations deepspeed_activation_checkpointing recompute_activations recompute_granularity use_flash_attn
    use_flash_attn_v1 use_flash_attn_v2 use_flash_attn_triton
    optimizer cpu_optimizer cpu_torch_adam inference kd mos compression_training
    """.split()
)
"""The arguments that are read."""

_USUAL = frozenset(
    """
    num_layers hidden_size num_attention_heads seq_length max_position_embeddings micro_batch_size global_batch_size train_iters
    train_samples lr_decay_style tokenizer_type vocab_file merge_file data_path
    """.split()
)
"""Flags of which each public script for its programs gives more than ten."""

_REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "seq_length")

_GPT2_WORDS = 50257
"""The words of GPT-2's vocabulary, the usual one of these programs."""


def _arguments(flags: Mapping[str, SourcedValue], shown: str, program: str) -> Arguments | None:
    """Megatron's arguments among the flags of a program, whose name is their task; None unless they describe a model."""
    values = {name: given for name, given in flags.items() if name in NAMES}
    found = Arguments(FRAMEWORK.name, shown, values, task=program.rpartition("/")[2])
    return found if all(_count(found, name) for name in _REQUIRED) else None


def _model(arguments: Arguments) -> dict[str, Any]:
    """The model as the data of a `config.json`: GPT-2 with a fused activation function, or Llama if it has gates."""
    hidden, layers, heads = (_count(arguments, name) or 0 for name in ("hidden_size", "num_layers", "num_attention_heads"))
    unit = (_count(arguments, "make_vocab_size_divisible_by") or 128) * (_count(arguments, "tensor_model_parallel_size") or 1)
    words = _count(arguments, "vocab_size") or _GPT2_WORDS
    tied = not _on(arguments, "untie_embeddings_and_output_weights")
    positions = _count(arguments, "max_position_embeddings") or _count(arguments, "seq_length") or 0
    common = {"vocab_size": -(-words // unit) * unit, "tie_word_embeddings": tied}
    if _on(arguments, "swiglu"):
        groups = _count(arguments, "num_key_value_heads") or _count(arguments, "num_query_groups") or heads
        inner = _count(arguments, "ffn_hidden_size") or hidden * 8 // 3 // 64 * 64
        sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": groups}
        return {"model_type": "llama", **sizes, "intermediate_size": inner, "max_position_embeddings": positions, **common}
    inner = _count(arguments, "ffn_hidden_size") or 4 * hidden
    sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_inner": inner, "n_positions": positions}
    given = arguments.get("hidden_dropout")
    dropout = 0.0 if given is not None and str(given.value) in ("0", "0.0") else 0.1
    return {"model_type": "gpt2", **sizes, "activation_function": "gelu", "resid_pdrop": dropout, **common}


def _options(arguments: Arguments) -> dict[str, tuple[Any, str]]:
    """Options of an estimate, with the place of each. The loss is computed before the program gets the logits."""
    place = {name: given.where for name in NAMES if (given := arguments.get(name)) is not None}
    options: dict[str, tuple[Any, str]] = {
        "length": (_count(arguments, "seq_length"), place["seq_length"]),
        "keeps_logits": (False, "Megatron, which returns only the loss"),
    }
    if _count(arguments, "micro_batch_size"):
        options["micro_batch"] = _count(arguments, "micro_batch_size"), place["micro_batch_size"]
    granularity = arguments.get("recompute_granularity")
    switches = ("checkpoint_activations", "deepspeed_activation_checkpointing")
    on = next((name for name in switches if _on(arguments, name)), None)
    if granularity is not None and granularity.value == "full":
        on = "recompute_granularity"
    if on is not None:
        options["checkpoint_every"] = 1, place[on]
    flash = next((name for name in sorted(NAMES) if name.startswith("use_flash_attn") and _on(arguments, name)), None)
    if flash is not None:
        options["attention"] = FLASH_2, place[flash]
    elif not (_on(arguments, "recompute_activations") or (granularity is not None and granularity.value == "selective")):
        options["attention"] = EAGER, "the default of Megatron"
    return options


_OF_CONFIG = ("inference", "kd", "mos", "compression_training")
"""Switches with which Megatron's programs call `deepspeed.initialize` without an optimizer, too."""


def _objects(arguments: Arguments) -> dict[str, SourcedValue]:
    """The optimizer and the schedule that `pretrain_*.py` builds from its flags, and passes to `deepspeed.initialize`.

    Source: megatron/training.py, setup_model_and_optimizer; megatron/optimizer/__init__.py, get_megatron_optimizer. Both forks agree.
    """
    if not arguments.task.startswith("pretrain_") or any(arguments.get(name) is not None for name in _OF_CONFIG):
        return {}
    place = arguments.values["num_layers"]
    for_cpu, named = arguments.get("cpu_optimizer"), arguments.get("optimizer")
    if for_cpu is not None:
        by_torch = arguments.get("cpu_torch_adam") is not None
        optimizer = replace(for_cpu, value="torch.optim.AdamW" if by_torch else "deepspeed.ops.adam.DeepSpeedCPUAdam")
    elif named is None or named.value == "adam":
        optimizer = replace(named or place, value="apex.optimizers.FusedAdam")
    else:
        optimizer = replace(named, value=f"apex.optimizers.{named.value}")
    return {"optimizer": optimizer, "scheduler": replace(place, value="megatron.optimizer_param_scheduler.OptimizerParamScheduler")}


def _on(arguments: Arguments, name: str) -> bool:
    given = arguments.get(name)
    return given is not None and given.value is True


def _count(arguments: Arguments, name: str) -> int | None:
    given = arguments.get(name)
    text = str(given.value).strip() if given is not None else ""
    return int(text) if text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text) else None


def _tells(arguments: Arguments) -> Told:
    said = f"the model is that of Megatron's arguments, from {arguments.values['num_layers'].where}"
    return Told(_options(arguments), (said,), model=_model(arguments))


FRAMEWORK = Framework(
    "Megatron",
    Integration.DEEPSPEED,
    parallel_flags={"tensor_parallel": "tensor_model_parallel_size", "pipeline_parallel": "pipeline_model_parallel_size"},
    usual_flags=_USUAL,
    lowers_parallel_sizes=True,
    in_flags=_arguments,
    objects=_objects,
    tells=_tells,
)
