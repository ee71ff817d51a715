"""ms-swift: flags or a YAML file with `model` and `tuner_type`, started with `swift sft`, and the DeepSpeed configs that ship with it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from dslint.diagnostics import LoadStep
from dslint.facts import Facts, Integration, Release
from dslint.frameworks import tables
from dslint.frameworks.base import Framework, FrameworkWorkload, Uses
from dslint.frameworks.huggingface import BEST
from dslint.frameworks.refusals import GIVEN, Refusal, muon_with_zero
from dslint.job.arguments import Arguments, SourcedValue
from dslint.job.attention import FLASH_2, NAMED, ON
from dslint.schemas.recognition import TRAINER_KEYS
from dslint.source.parse import parse
from dslint.source.tree import Document, Path

_NAMES = {f"default-zero{stage}": f"zero{stage}" for stage in (2, 3)} | {f"zero{stage}-offload": f"zero{stage}_offload" for stage in (2, 3)}
"""Other names of the configs that ship with it, of older releases."""


def config_by_name(name: str) -> Document | None:
    """The config that ships with ms-swift under a name; None for any other name."""
    text = tables.table("ms_swift").presets.get(_NAMES.get(name, name))
    return parse(text) if text is not None else None


def _type_of_model(flags: Mapping[str, SourcedValue]) -> str | None:
    """The type of the model that commands of ms-swift 2 give: `qwen_72b_chat`."""
    given = flags.get("model_type") if "sft_type" in flags else None
    return given.value if given is not None and isinstance(given.value, str) else None


def _completes(arguments: Arguments, facts: Facts) -> dict[str, Any]:
    """The accumulation steps, the learning rate and the precision that it computes where they are not set.

    Sources: swift/trainers/arguments.py, TrainArgumentsMixin.__post_init__; swift/arguments/sft_args.py, _init_override;
    swift/arguments/base_args/model_args.py, _init_mixed_precision.
    """
    found: dict[str, Any] = {}
    micro = arguments.value("per_device_train_batch_size")
    if "gradient_accumulation_steps" not in arguments and facts.world_size is not None and isinstance(micro, int) and micro > 0:
        found["gradient_accumulation_steps"] = max(1, math.ceil(16 / micro / facts.world_size))
    if "learning_rate" not in arguments:
        kind = next((one.value for name in ("tuner_type", "train_type") if (one := arguments.get(name)) is not None), "lora")
        found["learning_rate"] = 1e-5 if kind == "full" else 1e-4
    dtype = arguments.get("torch_dtype")
    data = facts.model.data if facts.model is not None else {}
    kind = dtype.value if dtype is not None else data.get("dtype") or data.get("torch_dtype")
    if kind in ("float16", "float32", "bfloat16"):
        found |= {name: on for name, on in (("fp16", kind != "bfloat16"), ("bf16", kind == "bfloat16")) if name not in arguments}
    return found


def _adds(arguments: Arguments) -> Mapping[Path, Any]:
    """Two arguments that it writes into the config. Source: swift/arguments/sft_args.py, _init_deepspeed."""
    found: dict[Path, Any] = {}
    parts, tensor = arguments.get("zero_hpz_partition_size"), arguments.get("deepspeed_autotp_size")
    if parts is not None:
        found["zero_optimization", "zero_hpz_partition_size"] = parts.value
    if tensor is not None:
        found["tensor_parallel", "autotp_size"] = tensor.value
        for name in ("gather_16bit_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save"):  # the other name of the key
            found["zero_optimization", name] = True
    return found


def _recognises(names: frozenset[str], uses: Uses) -> bool:  # noqa: ARG001 - other frameworks ask for packages
    if "sft_type" in names:  # releases before 3.0 have only flags, and a run writes all its arguments into a file
        return bool(names & {"model_type", "model_id_or_path"}) and len(names) < _OF_A_RUN
    own = names & {"train_type", "tuner_type", "swift_version", "target_modules"}
    return "model" in names and bool(own) and len(names & TRAINER_KEYS) >= 2


_OF_A_RUN = 80
"""The fewest keys of a file that a run of a release before 3.0 has written: it holds all arguments. What people write has a dozen
or two."""


def _refuses_rank(arguments: Arguments, release: Release | None) -> bool:
    """Releases before 3.0, whose arguments are not those of the Trainer. `sft_type` is `train_type` since then.

    Source: swift/utils/run_utils.py, get_main, and swift/llm/utils/argument.py of 2.0.3 and 2.6.1.
    """
    names = {*arguments.values, *(given.name.lstrip("-").replace("-", "_") for given in arguments.others)}
    is_old = release < Release(3, 0, 0) if release is not None else "sft_type" in names
    return is_old and "ignore_args_error" not in names


_DATA_TO_EVALUATE = ("val_dataset", "eval_dataset", "cached_val_dataset")

_REFUSALS = (
    *(
        Refusal(
            BEST,
            {"load_best_model_at_end": True, **save, **share},
            "Write split_dataset_ratio: 0.01 or a val_dataset: without data to evaluate, ms-swift sets eval_strategy to no.",
            absent=(*_DATA_TO_EVALUATE, *({"save_strategy", "split_dataset_ratio"} - {*save, *share})),
            step=LoadStep.CHOICES,
            own=False,
        )
        for save in ({}, {"save_strategy": ("steps", "epoch")})
        for share in ({}, {"split_dataset_ratio": 0})
    ),
    *(
        Refusal(
            f'The "{name}" feature requires a flash attention implementation.',
            {name: True, **when},
            "Write attn_impl: flash_attn.",
            absent=absent,
            since="3.7.0",
        )
        for name in ("packing", "padding_free")
        for when, absent in (({}, ("attn_impl",)), ({"attn_impl": ("sdpa", "eager", "flex_attention")}, ()))
    ),
    *(
        Refusal(
            "DeepSpeed ZeRO3 not supported for LLaMAPro&GRPO currently.",
            {name: "llamapro", "rlhf_type": "grpo", "use_vllm": True, "vllm_mode": "colocate"},
            "Use ZeRO stage 2, or another tuner.",
            stages=(3,),
        )
        for name in ("tuner_type", "train_type")
    ),
    Refusal(
        "gather_16bit_weights_on_model_save Extra inputs are not permitted",
        {"deepspeed_autotp_size": GIVEN, "deepspeed": ("zero3", "zero3_offload")},
        "Remove deepspeed_autotp_size, or choose zero2: ms-swift adds a key under its other name, and the preset has it, too.",
        since="4.6.0",
        step=LoadStep.MODEL,
        own=False,
    ),
    *(
        Refusal(
            "DeepSpeed ZeRO-3 is enabled and is not compatible with `create_reference_model()`.",
            {"sft_type": "full", **method},
            "Name the model again in ref_model_type and ref_model_id_or_path, or use ms-swift 2.4.2 or later, which loads it twice itself.",
            stages=(3,),
            absent=("ref_model_type", "ref_model_free", *(() if method else ("rlhf_type",))),
            until="2.4.2",
            step=LoadStep.TRAINER,
            own=False,
            tasks=("rlhf", "dpo"),
        )
        for method in ({"rlhf_type": ("dpo", "kto")}, {})
    ),
    muon_with_zero("optimizer", value="muon"),
)
"""Sources: swift/arguments/sft_args.py, __post_init__ and, from 3.9 on,
_check_padding_free (3.4 only warns of packing); swift/tuners/base.py, grpo_context; of 1.6 to 2.4.1 swift/llm/dpo.py
and rlhf.py, which leave the reference model to TRL, or copy the model that is divided."""

_FORMER_SCRIPTS = ("llm_sft.py", "llm_dpo.py", "llm_rlhf.py")
"""Its programs before release 3.0, in examples/pytorch/llm."""

FRAMEWORK = Framework(
    "ms-swift",
    Integration.TRANSFORMERS,
    sets_leaf_modules=Release(3, 9, 0),  # swift/llm/model/register.py
    passes_choices=True,
    packages=("ms-swift", "swift"),
    commands=("swift",),
    files=tuple(f"swift/cli/{task}.py" for task in ("sft", "pt", "rlhf")),
    scripts=_FORMER_SCRIPTS,
    former_scripts=dict.fromkeys(_FORMER_SCRIPTS, Release(3, 0, 0)),
    former_arguments={"sft_type": Release(3, 0, 0)},
    task_of_script=re.compile(r"(?:.*/)?(?:llm_|swift[/.]cli[/.])(dpo|rlhf|sft)(?:\.py)?"),
    recognises=_recognises,
    config_keys=("deepspeed_config_path", "deepspeed"),  # releases before 3.0 have both, and take the first one
    names={"batch_size": "per_device_train_batch_size", "eval_batch_size": "per_device_eval_batch_size"},
    config_by_name=config_by_name,
    generated="ms_swift",
    computes=frozenset({"bf16", "fp16", "learning_rate", "gradient_accumulation_steps"}),
    completes=_completes,
    adds=_adds,
    loads_quantized={"quant_bits": (4, 8)},
    loads_quantized_with={"quant_method": "bnb"},
    refusals=_REFUSALS,
    steps=(
        *(LoadStep.LAUNCHER, LoadStep.PARSER, LoadStep.REFUSALS, LoadStep.CHOICES, LoadStep.ARGUMENTS, LoadStep.PLUGIN, LoadStep.REST),
        *(LoadStep.DATA, LoadStep.MODEL, LoadStep.TRAINER, LoadStep.COMPARISON, LoadStep.END, LoadStep.RANKS),
    ),
    refuses_unknown="remaining_argv: ['--{name}'",
    refuses_flag="remaining_argv: ['--{name}'",
    infers=frozenset({"app", "app-ui", "deploy", "eval", "export", "infer", "rollout", "sample"}),
    ignoring="ignore_args_error",
    refuses_rank=_refuses_rank,
    turns_into_flags=True,
    is_sure=True,
    starts_ranks=True,
    model_in_flags=_type_of_model,
    spread_error="DeepSpeed is not compatible with",  # up to 3.0 with "MP", later with "`device_map`"
    errors={"fsdp": "FSDP2 is not compatible with DeepSpeed.", "deepspeed": "Expecting value: line 1 column 1 (char 0)"},
    workload=FrameworkWorkload(
        checkpoints="ms-swift",
        trains_adapters=True,
        lora_rank=8,
        lora_dropout=0.05,
        freezes="freeze_vit",
        zero_init=True,
        vllm_share=0.9,
        shares_loss=True,
        attention={"attn_impl": {**NAMED, "flash_attn": FLASH_2}, "use_flash_attn": ON},
    ),
)
