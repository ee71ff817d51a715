"""Axolotl: a YAML file with `base_model` and `datasets`, started with `axolotl train`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from dslint.facts import Facts, Integration
from dslint.frameworks.base import Framework, FrameworkWorkload, Uses
from dslint.frameworks.refusals import SET, Refusal
from dslint.job.arguments import Arguments, as_read
from dslint.job.attention import EAGER, FLEX, NAMED, ON, SDPA
from dslint.source.parse import parse
from dslint.source.tree import Document, Member, Path, plain
from dslint.source.unknown import UNKNOWN

_FILLED = {
    **dict.fromkeys(("gradient_accumulation_steps", "gradient_clipping", "train_batch_size", "train_micro_batch_size_per_gpu"), "auto"),
    "wall_clock_breakdown": False,
}
_EITHER = {
    "bf16": {"enabled": "auto"},
    "fp16": {
        "enabled": "auto",
        "auto_cast": False,
        "loss_scale": 0,
        "initial_scale_power": 32,
        "loss_scale_window": 1000,
        "hysteresis": 2,
        "min_loss_scale": 1,
    },
}
_OPTIMIZER = {"optimizer": {"type": "AdamW", "params": dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")}}
"""In its releases of 2023, whose folder is deepspeed."""
_CPU = {"device": "cpu"}
_PINNED = {"device": "cpu", "pin_memory": True}
_OF_STAGE_3 = {
    "stage": 3,
    "overlap_comm": True,
    "contiguous_gradients": True,
    "sub_group_size": 0,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
    "max_live_parameters": 0,
    "max_reuse_distance": 0,
    "gather_16bit_weights_on_model_save": True,
}
_CONFIGS: dict[str, dict[str, Any]] = {
    "zero1": {"zero_optimization": {"stage": 1, "overlap_comm": True}, **_EITHER},
    "zero2": {"zero_optimization": {"stage": 2, "offload_optimizer": _CPU, "contiguous_gradients": True, "overlap_comm": True}, **_EITHER},
    "zero3": {"zero_optimization": _OF_STAGE_3, **_EITHER},
    "zero3_bf16": {"zero_optimization": _OF_STAGE_3, "bf16": {"enabled": True}},
    "zero3_bf16_cpuoffload_params": {
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": True},
        "zero_optimization": {**_OF_STAGE_3, "offload_param": _PINNED},
    },
    "zero3_bf16_cpuoffload_all": {
        "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": True},
        "zero_optimization": {**_OF_STAGE_3, "offload_optimizer": _PINNED, "offload_param": _PINNED},
    },
}
"""The configs of its repository, which `axolotl fetch deepspeed_configs` brings, as they are since March 2024."""


def config_by_name(name: str) -> Document | None:
    """The config of axolotl's repository at a path such as `deepspeed_configs/zero2.json`; None for any other path."""
    folder, _, file = name.removeprefix("./").rpartition("/")
    config = _CONFIGS.get(file.removesuffix(".json"))
    if config is None or folder not in ("deepspeed_configs", "deepspeed") or not file.endswith(".json"):
        return None
    return parse(json.dumps({**config, **_FILLED, **(_OPTIMIZER if folder == "deepspeed" else {})}, indent=2))


def _recognises(names: frozenset[str], uses: Uses) -> bool:  # noqa: ARG001 - other frameworks ask for packages
    return "base_model" in names and bool(names & {"micro_batch_size", "datasets", "sequence_len", "adapter"})


def _reads(name: str, value: Any) -> Any:
    """Words for a precision are completed later: `bf16: auto` depends on the GPU; `full` means bf16 weights without mixed precision."""
    return UNKNOWN if name in ("bf16", "fp16") and not isinstance(value, bool) else value


def _completes(arguments: Arguments, facts: Facts) -> dict[str, Any]:
    """The precision and the warm-up that it gives to the Trainer.

    It takes bf16 where the GPU has it, unless the file says otherwise, and bf16 wins over fp16. One warm-up step becomes two, and
    without an argument the warm-up is 3 % of the steps, rounded down.
    Source: axolotl/utils/config/__init__.py, resolve_dtype; axolotl/core/builders/base.py.
    """
    found: dict[str, Any] = {}
    given = {name: arguments.get(name) for name in ("bf16", "bfloat16", "fp16", "warmup_steps", "warmup_ratio", "max_steps")}
    values = {name: one.value if one is not None else None for name, one in given.items()}
    on_gpu = facts.gpu is None or facts.gpu.has_bf16
    automatic = given["bf16"] is None or given["bf16"].raw.strip("'\"") == "auto"
    full = given["bf16"] is not None and given["bf16"].raw.strip("'\"") == "full"
    bf16 = True if values["bfloat16"] is True else (values["fp16"] is not True and on_gpu) if automatic else full or values["bf16"]
    if bf16 is not UNKNOWN:
        found |= {"bf16": bool(bf16) and not full, "fp16": values["fp16"] is True and not bf16}
        if automatic and not on_gpu:
            found["fp16"] = values["fp16"] is not False
        if full:
            found["bf16_full_eval"] = True
    most = _most_steps(arguments, facts)
    share = _WARMUP if given["warmup_ratio"] is None else as_read("warmup_ratio", values["warmup_ratio"])
    if values["warmup_steps"] == 1:
        found["warmup_steps"] = 2
    elif values["warmup_steps"] == 0:
        found["warmup_ratio"] = 0  # a share does not count beside a number
    elif given["warmup_steps"] is None and most is not None and share is not UNKNOWN and int(share * most) == 0:
        found |= {"warmup_steps": 0, "warmup_ratio": 0}
    return found


def _most_steps(arguments: Arguments, facts: Facts) -> int | None:
    """The most steps that the training may have: `max_steps`, or what the rows of its data make if none of them is too long.

    Packed, each row may fill a batch by itself, and an epoch has at least one step. With a written efficiency the steps follow from the
    tokens.
    Source: axolotl/utils/trainer.py, calculate_total_num_steps.
    """
    written, epochs = arguments.get("max_steps"), arguments.get("num_train_epochs")
    counts = [as_read("max_steps", written.value)] if written is not None else []
    packing = arguments.get("sample_packing")
    packs = packing.value if packing is not None else False
    micro, steps = (arguments.said(name).value for name in ("per_device_train_batch_size", "gradient_accumulation_steps"))
    rounds = epochs.value if epochs is not None else 1
    numbers = (arguments.rows, rounds, micro, steps)
    counted = packs is False or (packs is True and "sample_packing_eff_est" not in arguments)
    if counted and all(isinstance(one, int | float) and one > 0 for one in numbers):
        assert arguments.rows is not None
        batches = max(1, arguments.rows) if packs else arguments.rows / micro
        counts.append(math.ceil(max(batches / (steps * (facts.world_size or 1)), 1 if packs else 0) * rounds))
    known = [one for one in counts if isinstance(one, int) and one > 0]
    return min(known) if known else None


def _data(document: Document) -> tuple[str, list[str]] | None:
    """The files of `datasets`, if each of them is one of JSON of which every row is at most one sample."""
    member = document.lookup((_DATA,))
    parts = plain(member.value) if isinstance(member, Member) else None
    if not isinstance(parts, list) or not all(isinstance(one, dict) and isinstance(one.get("path"), str) for one in parts):
        return None
    whole = all(one["path"].endswith((".json", ".jsonl")) and str(one.get("type")).startswith(_ONE_SAMPLE) for one in parts)
    return (_DATA, [one["path"] for one in parts]) if whole and not any("data_files" in one for one in parts) else None


_DATA = "datasets"

_ONE_SAMPLE = ("chat_template", "alpaca", "input_output")
"""Types of data that make one sample of a row; `completion` makes several of a long one."""


def _adds(arguments: Arguments) -> Mapping[Path, Any]:
    """`deepcompile: true` switches DeepCompile on in the config."""
    given = arguments.get("deepcompile")
    return {("compile", "deepcompile"): True} if given is not None and given.value is True else {}


def _exclusive(error: str, first: str, second: str) -> Refusal:
    return Refusal(error, {first: SET, second: SET}, f"Remove {first} or {second}.")


_FLASH = tuple(f"flash_{name}" for name in ("adamw", "adam", "sgd", "sgdw", "lion"))

_OTHER_THAN_4_BITS = ("load_in_8bit", "gptq", "merge_lora")

_WARMUP = 0.03
"""The default share of the warm-up in all steps, rounded down."""

_REFUSALS = (
    Refusal(
        "torch_compile should be set within your deepspeed config file",
        {"torch_compile": SET, "deepspeed": SET},
        'Remove torch_compile, and write "compile": {"deepcompile": true} into the DeepSpeed config; axolotl 0.13.0 takes both.',
        since="0.5.0",
        until="0.13.0",
    ),
    Refusal(
        "ple_cpu_offload is not compatible with DeepSpeed",
        {"ple_cpu_offload": True, "deepspeed": SET},
        "Remove ple_cpu_offload or deepspeed.",
    ),
    Refusal(
        "eval_strategy and eval_steps mismatch. Please set eval_strategy to 'steps' or remove eval_steps.",
        {"eval_strategy": ("epoch", "no"), "eval_steps": SET},
        "Write eval_strategy: steps, or remove eval_steps.",
    ),
    *(
        Refusal(
            "eval_steps and eval_strategy are not supported with val_set_size == 0",
            {"val_set_size": 0, **when},
            "Write a val_set_size above 0, or switch evaluation off.",
            absent=("test_datasets", "eval_strategy") if "eval_steps" in when else ("test_datasets",),
            since="0.5.1" if "eval_steps" in when else "",
        )
        for when in ({"eval_steps": SET}, {"eval_strategy": ("steps", "epoch")})
    ),
    _exclusive("eval_steps and evals_per_epoch are mutually exclusive and cannot be used together.", "evals_per_epoch", "eval_steps"),
    Refusal(
        "save_strategy and save_steps mismatch. Please set save_strategy to 'steps' or remove save_steps.",
        {"save_strategy": ("epoch", "no", "best"), "save_steps": SET},
        "Write save_strategy: steps, or remove save_steps.",
        since="0.4.0",
    ),
    _exclusive("save_steps and saves_per_epoch are mutually exclusive and cannot be used together.", "saves_per_epoch", "save_steps"),
    _exclusive("warmup_steps and warmup_ratio are mutually exclusive", "warmup_steps", "warmup_ratio"),
    _exclusive("please set only one of gradient_accumulation_steps or batch_size", "batch_size", "gradient_accumulation_steps"),
    Refusal("`sample_packing: true` does not work with RLHF training", {"sample_packing": True, "rl": SET}, "Remove sample_packing."),
    Refusal(
        "Muon optimizer is currently incompatible with DeepSpeed",
        {"optim": "muon", "deepspeed": SET},
        "Choose another optimizer, or let DeepSpeed make a Muon by a section optimizer of the config.",
    ),
    *(
        Refusal(f"{name} optimizer is incompatible with DeepSpeed.", {"optim": name, "deepspeed": SET}, "Choose another optimizer.")
        for name in _FLASH
    ),
    *(
        Refusal(error, {"optim": name, "deepspeed": SET}, "Choose another optimizer.")
        for name, error in (
            ("polora", "polora is not compatible with DeepSpeed or tensor parallelism."),
            ("q_galore_adamw8bit", "q_galore_adamw8bit is not yet validated with DeepSpeed."),
        )
    ),
    *(
        Refusal("Require cfg.load_in_4bit to be True for qlora", {"adapter": "qlora", **off}, "Write load_in_4bit: true.", absent=absent)
        for off, absent in (({}, ("load_in_4bit", *_OTHER_THAN_4_BITS)), ({"load_in_4bit": False}, _OTHER_THAN_4_BITS))
    ),
    Refusal(
        "jagged_restart_steps must be set to use ReLoRA",
        {"relora": True},
        "Remove relora: it does not go together with deepspeed.",
        absent=("jagged_restart_steps",),
        since="0.12.0",
    ),
    Refusal(
        "cfg.adapter must support ReLoRA to use ReLoRA restart semantics",
        {"relora": True},
        "Remove relora: it does not go together with deepspeed.",
        absent=("adapter",),
        since="0.17.0",
    ),
    Refusal("deepspeed not supported with ReLoRA", {"relora": True, "deepspeed": SET}, "Remove relora or deepspeed."),
    Refusal(
        "bf16.literal['auto'] Input should be 'auto'",
        {"bf16": "full"},
        "Write bf16: true.",
        since="0.19.0",
        own=False,
    ),
)
"""Source: axolotl/utils/schemas/validation.py and config.py. The order is what axolotl 0.19 says of two at a time."""

FRAMEWORK = Framework(
    "axolotl",
    Integration.TRANSFORMERS,
    packages=("axolotl",),
    commands=("axolotl",),
    mentions=("axolotl train",),
    modules=("axolotl",),
    files=("axolotl/cli/train.py",),
    recognises=_recognises,
    sets_quant_storage=True,  # axolotl/loaders/model.py
    names={
        "micro_batch_size": "per_device_train_batch_size",
        "optimizer": "optim",
        "lr_scheduler": "lr_scheduler_type",
        "num_epochs": "num_train_epochs",
    },
    reads=_reads,
    unset={"gradient_accumulation_steps": (0,)},
    generated="axolotl",
    computes=frozenset({"bf16", "fp16", "warmup_steps", "warmup_ratio"}),
    completes=_completes,
    adds=_adds,
    data=_data,
    refusals=_REFUSALS,
    is_sure=True,
    loads_by_itself=True,
    config_by_name=config_by_name,
    errors={"fsdp": "deepspeed and fsdp cannot be used together"},
    not_auto={"zero_optimization.stage": "invalid literal for int() with base 10: 'auto'"},
    workload=FrameworkWorkload(
        length=512,
        lora_dropout=0.0,
        zero_init=True,
        evaluates_a_share=True,
        attention={
            "attn_implementation": NAMED,
            "flash_attention": ON,
            "sdp_attention": {True: SDPA},
            "flex_attention": {True: FLEX},
            "eager_attention": {True: EAGER},
        },
    ),
)
