"""LLaMA-Factory: a YAML file with `stage` and `finetuning_type`, started with `llamafactory-cli train`."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

from dslint.diagnostics import LoadStep, Phase
from dslint.facts import Integration, Release
from dslint.frameworks import huggingface
from dslint.frameworks.base import Framework, FrameworkWorkload, Uses
from dslint.frameworks.refusals import SET, SEVERAL, Refusal, muon_with_zero
from dslint.frameworks.training import bare
from dslint.job.arguments import Arguments, SourcedValue
from dslint.job.attention import EAGER, FLASH_2, FLASH_3, SDPA
from dslint.schemas.recognition import TRAINER_KEYS
from dslint.source.parse import parse
from dslint.source.tree import Document, Member, plain


def _data(document: Document) -> tuple[str, list[tuple[str, str]]] | None:
    """The data that `dataset` names in the list of data beside them."""
    values: dict[str, Any] = {
        name: plain(member.value) for name in ("dataset", "dataset_dir", "stage") if isinstance(member := document.lookup((name,)), Member)
    }
    names, folder = values.get("dataset"), values.get("dataset_dir", "data")
    if not isinstance(names, str) or not isinstance(folder, str) or values.get("stage") not in _ONE_SAMPLE:
        return None
    return "dataset", [(f"{folder}/dataset_info.json", name.strip()) for name in names.split(",")]


_ONE_SAMPLE = ("sft", "dpo", "kto", "rm")
"""Stages in which a row is at most one sample; `pt` makes several of a long one."""

_CHANGE_ROWS = frozenset(
    """
    packing neat_packing val_size max_samples streaming mix_strategy interleave_probs auto_find_batch_size accelerator_config
    tokenized_path
    """.split()
)
"""Arguments with which the number of samples or of batches is another one than that of the rows."""


def _trains_rows(arguments: Arguments) -> bool:
    stage, names = arguments.get("stage"), {*arguments.values, *(bare(given) for given in arguments.others)}
    return stage is not None and stage.value == "sft" and arguments.complete and names.isdisjoint(_CHANGE_ROWS)


def _freezes_reference(arguments: Arguments) -> SourcedValue | None:
    """Sources: llamafactory/train/dpo/trainer.py, CustomDPOTrainer.__init__; llamafactory/train/trainer_utils.py, create_ref_model."""
    stage, tuning, loss = arguments.get("stage"), arguments.get("finetuning_type"), arguments.get("pref_loss")
    loads = "ref_model" in arguments or (tuning is not None and tuning.value in ("full", "freeze"))
    without = loss is not None and loss.value not in ("sigmoid", "hinge", "ipo", "kto_pair")
    quantized = "ref_model_quantization_bit" in arguments or "quantization_bit" in arguments  # DeepSpeed does not get such a model
    refers = stage is not None and stage.value in ("dpo", "kto") and loads and not without and not quantized
    return stage if refers else None


def _recognises(names: frozenset[str], uses: Uses) -> bool:  # noqa: ARG001 - other frameworks ask for packages
    own = names & {"stage", "finetuning_type"} and names & {"model_name_or_path", "dataset", "template"}
    return bool(own) and len(names & TRAINER_KEYS) >= 2


_SHIPPED = re.compile(
    r"(?:\./)?(?:LLaMA-?Factory/)?(?:examples/deepspeed|cache)/ds_z(?P<stage>[023])(?P<offload>_offload)?_config\.json", re.IGNORECASE
)
_AUTO = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
_FP16 = {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1}
_TO_CPU = {"device": "cpu", "pin_memory": True}
_STAGE_2 = {
    "allgather_partitions": True,
    "allgather_bucket_size": 5e8,
    "overlap_comm": False,
    "reduce_scatter": True,
    "reduce_bucket_size": 5e8,
    "contiguous_gradients": True,
    "round_robin_gradients": True,
}
_STAGE_3 = {
    "overlap_comm": False,
    "contiguous_gradients": True,
    "sub_group_size": 1e9,
    "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto",
    "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9,
    "stage3_gather_16bit_weights_on_model_save": True,
}


def _config_by_name(name: str) -> Document | None:
    """The config of its repository at a path such as `examples/deepspeed/ds_z3_config.json`, or that its web page writes into
    `cache`, as in 0.9.5; None for any other path.

    Older ones have `overlap_comm: true`: the web page writes that before 0.9.4.
    """
    match = _SHIPPED.fullmatch(name)
    if match is None or (match["stage"] == "0" and (match["offload"] or "cache/" in name)):
        return None
    stage = int(match["stage"])
    offloads = ("offload_optimizer", "offload_param")[: stage - 1] if match["offload"] else ()
    zero = {"stage": stage, **dict.fromkeys(offloads, _TO_CPU), **(_STAGE_3 if stage == 3 else _STAGE_2)}
    either = {"zero_allow_untested_optimizer": True, "fp16": _FP16, "bf16": {"enabled": "auto"}}
    return parse(json.dumps({**dict.fromkeys(_AUTO, "auto"), **either, "zero_optimization": zero}, indent=2))


_WITHOUT_ADAPTERS = ("full", "freeze")
_OPTIMIZERS = ("use_galore", "use_apollo", "use_badam")
_OWN_CLASS = LoadStep.REST
"""Its classes of arguments are made after that of the Trainer, and before the parser refuses what is left."""

_ONLY_LORA = ("loraplus_lr_ratio", "use_rslora", "use_dora", "pissa_init")

_ANY = (0, 1, 2, 3)
_WITHOUT_IT = "Remove {} or deepspeed."
_STAGE_2_INSTEAD = "Remove it, or use ZeRO stage 2."

_REFUSALS = (
    Refusal(
        "Cannot specify `val_size` if `eval_dataset` is not None.",
        {"eval_dataset": SET, "val_size": SET},
        "Remove val_size or eval_dataset.",
        step=LoadStep.PARSER,
        since="0.8.3",
    ),
    Refusal(
        "`max_samples` is incompatible with `streaming`.",
        {"max_samples": SET, "streaming": True},
        "Remove max_samples.",
        step=LoadStep.PARSER,
    ),
    *huggingface.REFUSALS,
    Refusal(
        "`reward_model` is necessary for PPO training.",
        {"stage": "ppo"},
        "Name the reward model in reward_model.",
        absent=("reward_model",),
        step=_OWN_CLASS,
    ),
    *(
        Refusal(
            "`reward_model_type` cannot be lora for Freeze/Full PPO training.",
            {"stage": "ppo", "finetuning_type": _WITHOUT_ADAPTERS, **kind},
            "Write reward_model_type: full, or finetuning_type: lora.",
            absent=absent,
            step=_OWN_CLASS,
        )
        for kind, absent in (({"reward_model_type": "lora"}, ()), ({}, ("reward_model_type",)))
    ),
    Refusal(
        "`dpo_label_smoothing` is only valid for sigmoid loss function.",
        {"dpo_label_smoothing": SET, "stage": "dpo", "pref_loss": ("hinge", "ipo", "kto_pair", "orpo", "simpo")},
        "Remove dpo_label_smoothing.",
        step=_OWN_CLASS,
    ),
    *(
        Refusal(
            "Cannot use PiSSA for current training stage.",
            {"pissa_init": True, "stage": stage},
            "Remove pissa_init.",
            absent=absent,
            step=_OWN_CLASS,
            since="0.8.3",
        )
        for stage, absent in ((("ppo", "kto"), ()), ("dpo", ("pref_loss",)))
    ),
    *(
        Refusal(
            "`interleave_probs` is only valid for interleaved mixing.",
            {"interleave_probs": SET, **mixing},
            "Write mix_strategy: interleave_under, or remove interleave_probs.",
            absent=absent,
            step=_OWN_CLASS,
            since="0.8.3",
        )
        for mixing, absent in (({"mix_strategy": "concat"}, ()), ({}, ("mix_strategy",)))
    ),
    *(
        Refusal(
            "Cannot use LoRA with GaLore, APOLLO or BAdam together.",
            {"finetuning_type": "lora", name: True},
            f"Remove {name}.",
            step=_OWN_CLASS,
        )
        for name in _OPTIMIZERS
    ),
    *(
        Refusal(
            "Cannot use GaLore, APOLLO or BAdam together.",
            {one: True, other: True},
            f"Remove {other}.",
            step=_OWN_CLASS,
            since="" if "use_apollo" in (one, other) else "0.9.2",
        )
        for one, other in combinations(_OPTIMIZERS, 2)
    ),
    Refusal(
        "`use_llama_pro` is only valid for Freeze or LoRA training.",
        {"use_llama_pro": True, "finetuning_type": "full"},
        "Write finetuning_type: freeze, or remove use_llama_pro.",
        step=_OWN_CLASS,
    ),
    *(
        Refusal(
            f"`{name}` is only valid for LoRA training.",
            {name: SET, "finetuning_type": _WITHOUT_ADAPTERS},
            f"Remove {name}.",
            step=_OWN_CLASS,
            since="" if name == "loraplus_lr_ratio" else "0.8.3",
        )
        for name in _ONLY_LORA
    ),
    *(
        Refusal(f"`{name}` cannot be set as True except SFT.", {name: True, "stage": ("pt", "rm", "ppo", "dpo", "kto")}, f"Remove {name}.")
        for name in ("predict_with_generate", "neat_packing")
    ),
    *(
        Refusal(
            "`train_on_prompt` or `mask_history` cannot be set as True except SFT.",
            {name: True, "stage": ("pt", "rm", "ppo", "dpo", "kto")},
            f"Remove {name}.",
            since="0.9.0",
        )
        for name in ("train_on_prompt", "mask_history")
    ),
    Refusal(
        "Please enable `predict_with_generate` to save model predictions.",
        {"stage": "sft", "do_predict": True},
        "Write predict_with_generate: true, and predict without DeepSpeed.",
        absent=("predict_with_generate",),
    ),
    Refusal(
        "RM and PPO stages can only be performed with the LoRA method.",
        {"stage": ("rm", "ppo"), "finetuning_type": _WITHOUT_ADAPTERS},
        "Write finetuning_type: lora, or use LLaMA-Factory 0.3.0 or later.",
        since="0.1.6",
        until="0.3.0",
    ),
    Refusal(
        "RM and PPO stages do not support `load_best_model_at_end`.",
        {"stage": ("rm", "ppo"), "load_best_model_at_end": True},
        "Remove load_best_model_at_end.",
    ),
    Refusal("PPO training is incompatible with S^2-Attn.", {"stage": "ppo", "shift_attn": True}, "Remove shift_attn."),
    Refusal(
        "PPO only accepts wandb",  # "or tensorboard logger.", and since 0.9.5 trackio, too
        {"stage": "ppo", "report_to": ("swanlab", "mlflow", "comet_ml", "clearml", "neptune")},
        "Write report_to: wandb, tensorboard or none.",
    ),
    Refusal("Please specify `max_steps` in streaming mode.", {"streaming": True}, "Write max_steps.", absent=("max_steps",)),
    Refusal(
        "Please specify dataset for training.",
        {"do_train": True, "stage": SET},
        "Name the data in dataset.",
        absent=("dataset", "eval_dataset"),
        since="0.8.3",
    ),
    Refusal(
        "Please specify which `template` to use.",
        {"do_train": True, "stage": ("sft", "rm", "ppo", "dpo", "kto", "orpo")},
        "Name the template of the model in template.",
        absent=("template",),
        since="0.1.8",
        until="0.9.2",
    ),
    Refusal(
        "`predict_with_generate` cannot be set as True while training.",
        {"do_train": True, "predict_with_generate": True},
        "Remove predict_with_generate.",
        since="0.1.6",
        until="0.8.3",
    ),
    Refusal(
        "Please specify `lora_target` in LoRA training.",
        {"do_train": True, "finetuning_type": "lora"},
        "Name the modules for the adapter in lora_target.",
        absent=("lora_target",),
        since="0.1.7",
        until="0.6.0",
    ),
    *(
        Refusal(
            "Please make sure eval_dataset be provided or val_size >1e-6",
            when,
            "Name the data in eval_dataset, or write val_size: 0.1.",
            absent=("eval_dataset", "val_size"),
            since="0.9.4",
        )
        for when in (
            {"do_eval": True},
            {"do_predict": True},
            {"eval_strategy": ("steps", "epoch")},
            {"evaluation_strategy": ("steps", "epoch")},
            {"predict_with_generate": True},
        )
    ),
    Refusal(
        "`predict_with_generate` is incompatible with DeepSpeed ZeRO-3.",
        {"predict_with_generate": True},
        "Use ZeRO stage 2, or remove predict_with_generate and evaluate by the loss.",
        stages=(3,),
        since="0.9.0",
    ),
    Refusal(
        "Radio-based BAdam does not yet support distributed training, use layer-wise BAdam.",
        {"use_badam": True, "badam_mode": "ratio"},
        "Write badam_mode: layer, with ZeRO stage 3.",
        stages=(0, 1, 2, 3),
        since="0.8.3",
    ),
    *(
        Refusal(
            "Layer-wise BAdam only supports DeepSpeed ZeRO-3 training.",
            when,
            "Use ZeRO stage 3.",
            stages=(0, 1, 2),
            absent=absent,
            since="0.8.3",
        )
        for when, absent in (({"use_badam": True, "badam_mode": "layer"}, ()), ({"use_badam": True}, ("badam_mode",)))
    ),
    Refusal(
        "Cannot use `predict_with_generate` and `compute_accuracy` together.",
        {"predict_with_generate": True, "compute_accuracy": True},
        "Remove one of the two.",
        since="0.8.3",
    ),
    *(
        Refusal(
            "Turn off mixed precision training when using `pure_bf16`.",
            {"pure_bf16": True, name: True},
            f"Remove {name}.",
            since="0.6.0",
            until="0.8.3",
        )
        for name in ("bf16", "fp16")
    ),
    *(
        Refusal(f"{error} incompatible with DeepSpeed yet.", {name: True}, _WITHOUT_IT.format(name), stages=_ANY, since=since, until=until)
        for error, name, since, until in (
            ("GaLore and BAdam are", "use_galore", "0.6.3", "0.8.3"),
            ("GaLore and BAdam are", "use_badam", "0.6.3", "0.8.3"),
            ("GaLore is", "use_galore", "0.8.3", "0.9.2"),
        )
    ),
    Refusal("GaLore is incompatible with DeepSpeed.", {"use_galore": True}, _WITHOUT_IT.format("use_galore"), stages=_ANY, until="0.6.3"),
    *(
        Refusal("GaLore and APOLLO are incompatible with DeepSpeed yet.", {name: True}, _WITHOUT_IT.format(name), stages=_ANY)
        for name in ("use_galore", "use_apollo")
    ),
    Refusal(
        "FP8 training is not compatible with quantization. Please disable one of them.",
        {"fp8": True, "quantization_bit": SET},
        "Remove fp8 or quantization_bit.",
        since="0.9.4",
    ),
    Refusal(
        "backend is only available for API, CLI and Web.",
        {"infer_backend": ("vllm", "sglang"), "stage": SET},
        "Remove infer_backend.",
    ),
    Refusal("KTransformers is incompatible with DeepSpeed ZeRO-3.", {"use_kt": True}, "Use ZeRO stage 2.", stages=(3,)),
    Refusal(
        "Adapter is only valid for the LoRA method.",
        {"adapter_name_or_path": SET, "finetuning_type": _WITHOUT_ADAPTERS},
        "Write finetuning_type: lora, or merge the adapter into the model before.",
    ),
    *(
        Refusal(
            f"{name.upper()} quantization is incompatible with DeepSpeed ZeRO-3 or FSDP.",
            {"quantization_method": name, "quantization_bit": SET},
            "Use ZeRO stage 2.",
            stages=(3,),
            since="0.8.3",
        )
        for name in ("hqq", "eetq")
    ),
    Refusal(
        "Cannot use multiple adapters in DeepSpeed ZeRO-3.",
        {"adapter_name_or_path": SEVERAL},
        "Merge all adapters but the last into the model before, or use ZeRO stage 2.",
        stages=(3,),
    ),
    Refusal(
        "'weight' must be 2-D",  # it generates with weights that are divided: train/ppo/trainer.py of 0.7.1 and 0.8.0
        {"stage": "ppo"},
        "Use ZeRO stage 2, or LLaMA-Factory 0.8.0 or later.",
        stages=(3,),
        until="0.8.0",
        phase=Phase.STEP,
        own=False,
    ),
    Refusal(
        "incompatible with DeepSpeed",  # the rest differs between 0.1.8 and 0.2.0
        {"stage": "ppo"},
        "Use LLaMA-Factory 0.2.1 or later, or train without DeepSpeed.",
        stages=(1, 2),
        since="0.1.8",
        until="0.2.1",
    ),
    Refusal(
        "zero stage 2 requires an optimizer",  # train/dpo/trainer.py gives the reference model the config of the training
        {"stage": "dpo", "finetuning_type": "full"},
        "Use LLaMA-Factory 0.2.1 or later, which gives the reference model ZeRO stage 0.",
        stages=(2,),
        since="0.1.8",
        until="0.2.1",
        step=LoadStep.TRAINER,
        phase=Phase.INITIALIZE,
        own_optimizer=True,
        own=False,
    ),
    Refusal(
        "Only 4-bit quantized model can use ...",  # the rest differs by release; before 0.6.2 the load of such a model fails
        {"quantization_bit": 8},
        "Use ZeRO stage 2, or load the model without quantization.",
        stages=(3,),
    ),
    Refusal(
        "DeepSpeed ZeRO-3 is incompatible with quantization.",
        {"quantization_bit": 4},
        "Use ZeRO stage 2, or load the model without quantization.",
        stages=(3,),
        until="0.6.0",
    ),
    Refusal(
        "Quantization is only compatible with the LoRA or OFT method.",
        {"quantization_bit": SET, "finetuning_type": _WITHOUT_ADAPTERS},
        "Write finetuning_type: lora, or remove quantization_bit.",
    ),
    Refusal(
        "Please use scripts/pissa_init.py to initialize PiSSA for a quantized model.",
        {"pissa_init": True, "quantization_bit": SET},
        "Remove quantization_bit, or initialize PiSSA with the script first.",
        since="0.8.3",
    ),
    Refusal(
        "Cannot create new adapter upon a quantized model.",
        {"quantization_bit": SET, "adapter_name_or_path": SET, "create_new_adapter": True},
        "Remove create_new_adapter, or quantization_bit.",
    ),
    Refusal(
        "Quantized model only accepts a single adapter. Merge them first.",
        {"quantization_bit": SET, "adapter_name_or_path": SEVERAL},
        "Merge all adapters but the last into the model before.",
    ),
    Refusal(
        "Cannot resize embedding layers of a quantized model.", {"quantization_bit": SET, "resize_vocab": True}, "Remove resize_vocab."
    ),
    muon_with_zero("use_muon", value=True),
)
"""Sources: llamafactory/hparams/parser.py, get_train_args and _verify_model_args; finetuning_args.py and data_args.py, __post_init__;
model/adapter.py and quantization.py. The releases 0.7.1 to 0.9.5 have those without `since`, or have them since they have the argument;
the tags of its repository show it. Older releases are started by scripts that later ones do not have (`former_scripts`)."""

OF_WHOLE_WEIGHTS = (
    Refusal("Unsloth is incompatible with DeepSpeed ZeRO-3", {"use_unsloth": True}, _STAGE_2_INSTEAD, stages=(3,), since="0.8.0"),
    Refusal("`pure_bf16` is incompatible with DeepSpeed ZeRO-3", {"pure_bf16": True}, _STAGE_2_INSTEAD, stages=(3,), since="0.8.3"),
    Refusal(
        "Please use scripts/pissa_init.py to initialize PiSSA in DeepSpeed ZeRO-3",
        {"pissa_init": True},
        _STAGE_2_INSTEAD,
        stages=(3,),
        since="0.8.3",
    ),
)
"""Arguments that change whole weights, which it refuses at stage 3 since 0.8.0 (Unsloth) and 0.8.3: DS948."""

_GENERATES = (
    'LLaMA-Factory does not support it. Releases from 0.8.3 on may raise "`predict_with_generate` is incompatible with DeepSpeed ZeRO-3.", '
    "and older ones may fail where they merge an adapter into weights that are divided among the ranks."
)

FRAMEWORK = Framework(
    "LLaMA-Factory",
    Integration.TRANSFORMERS,
    sets_leaf_modules=Release(0, 5, 2),
    sets_quant_storage=True,  # llamafactory/model/model_utils/quantization.py
    loads_quantized={"quantization_bit": (4, 8)},
    refuses_quantized="DeepSpeed ZeRO-3 or FSDP is incompatible with PTQ-quantized models.",
    takes_quantized={"mxfp4": Release(0, 9, 4), "fp8": Release(0, 9, 4)},
    trains_when_told=True,
    file_comes_first=True,
    fails_at_stage_3={"predict_with_generate": (_GENERATES, "Predict on one GPU without DeepSpeed, or with vLLM.")},
    freezes_reference=_freezes_reference,
    passes_choices=True,
    packages=("llamafactory", "llmtuner"),
    target_length=512,  # up to 0.1.8; later releases have cutoff_len alone
    commands=("llamafactory-cli", "lmf"),
    mentions=("llamafactory-cli",),
    scripts=("src/train.py", "src/train_bash.py", "src/train_sft.py"),
    former_scripts={"src/train_bash.py": Release(0, 7, 1), "src/train_sft.py": Release(0, 1, 0)},
    recognises=_recognises,
    config_by_name=_config_by_name,
    generated="llama_factory",
    refuses_unknown="Some keys are not used by the HfArgumentParser: ['{name}']",
    refuses_flag="Some specified arguments are not used by the HfArgumentParser: ['--{name}'",
    infers=frozenset({"api", "chat", "eval", "export", "webchat"}),
    inference_scripts=tuple(f"src/{name}.py" for name in ("api_demo", "cli_demo", "evaluate", "export_model", "web_demo")),
    own_packages=("llamafactory", "llmtuner", "glmtuner"),
    trains_by=("run_exp", "run_sft"),
    ignoring="ALLOW_EXTRA_ARGS",
    refusals=_REFUSALS,
    data=_data,
    trains_rows=_trains_rows,
    steps=(
        *(LoadStep.LAUNCHER, LoadStep.PARSER, LoadStep.CHOICES, LoadStep.ARGUMENTS, LoadStep.PLUGIN, LoadStep.REST, LoadStep.REFUSALS),
        *(LoadStep.DATA, LoadStep.MODEL, LoadStep.TRAINER, LoadStep.COMPARISON, LoadStep.END, LoadStep.RANKS),
    ),
    is_sure=True,
    starts_ranks=True,
    former_node_rank=("RANK", Release(0, 9, 1)),  # llamafactory/cli.py, main of 0.9.0 and 0.9.1
    starts_all=True,
    whole_on_each=True,
    takes_file=True,
    takes_words=True,  # since 0.9.3; before that it refuses them. Source: llamafactory/hparams/parser.py, read_args
    workload=FrameworkWorkload(
        checkpoints="LLaMA-Factory",
        trains_adapters=True,
        lora_rank=8,
        lora_dropout=0.0,
        freezes="freeze_vision_tower",
        zero_init=True,
        rewards_with_logits=True,
        attention={"flash_attn": {"disabled": EAGER, "sdpa": SDPA, "fa2": FLASH_2, "fa3": FLASH_3}},
    ),
)
