"""DS4: ZeRO with models that are divided or stored in other ways: pipelines, mixtures of experts, quantized weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration, Release
from dslint.facts.experts import EXPERT_BLOCKS, family_by_name
from dslint.facts.find_release import ReleaseSource
from dslint.frameworks.base import Framework
from dslint.frameworks.registry import of_arguments
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.fixes import json_text, write
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.model import named_model
from dslint.rules.helpers.zero import STAGE, ZERO

_LEAVES = (
    "import deepspeed\nfrom deepspeed.utils import set_z3_leaf_modules\nset_z3_leaf_modules(model, [MixtralSparseMoeBlock])\n"
    "engine, *_ = deepspeed.initialize(model=model, config='ds_config.json', optimizer=optimizer)\n"
)
_PIPELINE = (
    "import deepspeed\nfrom deepspeed.pipe import PipelineModule\nmodel = PipelineModule(layers=layers, num_stages=stages())\n"
    "engine, *_ = deepspeed.initialize(model=model, config='ds_config.json')\n"
)


@rule(
    "DS410",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup", "fact:pipeline_parallel"),
    untried="it requires a model of pipeline stages",
    references=("deepspeed/runtime/pipe/engine.py, PipelineEngine.__init__",),
)
@bad(
    trained('"zero_optimization": {"stage": 2}'),
    at="zero_optimization.stage",
    pipeline_parallel=2,
    message='ZeRO stage 2 conflicts with 2 pipeline stages: DeepSpeed raises AssertionError "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}}',
)
@bad(
    trained('"zero_optimization": {"stage": 2}'),
    at="zero_optimization.stage",
    program=_PIPELINE,
    integration="deepspeed",
    message='ZeRO stage 2 conflicts with the PipelineModule of train.py:3: DeepSpeed raises AssertionError "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 1}}',
)
@good(trained('"zero_optimization": {"stage": 1}'), program=_PIPELINE, integration="deepspeed")
@good(trained('"zero_optimization": {"stage": 1}'), pipeline_parallel=2)
@good(trained('"zero_optimization": {"stage": 2}'), pipeline_parallel=1)
def pipeline_with_zero_2(config: Config) -> Iterator[Finding]:
    """Pipeline parallelism works only with ZeRO stages 0 and 1.

    A pipeline accumulates gradients over its micro batches, and stages 2 and 3 partition them after each one. DeepSpeed raises `AssertionError: ZeRO-2 and
    ZeRO-3 are incompatible with pipeline parallelism`.

    Set the stage to 1.
    """
    stage, stages = config.value(STAGE), config.facts.pipeline_parallel or 1
    given = config.setup.program.pipeline if config.setup and config.setup.program else None
    if stage in (2, 3) and (stages > 1 or given is not None):
        what = f"{stages} pipeline stages" if stages > 1 or given is None else f"the PipelineModule of {given.where}"
        yield Finding(
            STAGE,
            f'ZeRO stage {stage} conflicts with {what}: DeepSpeed raises AssertionError "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism".',
            help='Set "stage": 1.',
            fix=write(config, STAGE, "1"),
            related=(given.related("the pipeline"),) if given is not None else (),
        )


def _expert_block(config: Config) -> tuple[str, str | None]:
    """The model, and its block with the experts; of a model in several parts, that of the language model. One that is not known goes by
    its name.
    """
    model = config.facts.model
    if model is not None:
        return str(model), EXPERT_BLOCKS.get(model.family or "") or EXPERT_BLOCKS.get(model.inner_family or "")
    given = named_model(config)
    family = family_by_name(given.value) if given is not None and isinstance(given.value, str) else None
    return f"By its name, {given.value}" if given is not None else "", EXPERT_BLOCKS.get(family or "")


def _sets_leaf_modules(config: Config) -> bool:
    """Whether the program, or the framework that reads the arguments, calls `set_z3_leaf_modules`. Its newest release counts, unless the
    project pins one, or starts what only older ones have.

    Source: llamafactory/model/model_utils/moe.py, add_z3_leaf_module; swift/model/register.py, deepspeed_set_z3_leaf_modules.
    """
    program = config.setup.program if config.setup is not None else None
    called = program is not None and any(program.events.of(r"deepspeed\.utils\.(\w+\.)*set_z3_leaf_modules\w*"))
    framework = of_arguments(config.arguments)
    since = framework.sets_leaf_modules if framework is not None else None
    if called or framework is None or since is None:
        return called
    release = config.context.pinned(framework.packages[0])
    return release >= since if release is not None else config.arguments is not None and config.arguments.former is None


def _quantized_model(method: str) -> Any:
    return {"model_type": "llama", "hidden_size": 4096, "quantization_config": {"quant_method": method}}


def _expert_model(family: str) -> Any:
    return {"model_type": family, "hidden_size": 2048, "num_local_experts": 8}


@rule(
    "DS414",
    effect=Effect.ADVICE,
    watches=("setup", "fact:model"),
    references=("https://deepspeed.readthedocs.io/en/latest/zero3.html", "https://github.com/deepspeedai/DeepSpeed/issues/4808"),
)
@bad(
    trained('"zero_optimization": {"stage": 3}'),
    at="zero_optimization.stage",
    model=_expert_model("deepseek_v3"),
    message="config.json is a mixture of experts, and no leaf module covers its DeepseekV3MoE: at stage 3 the job may hang when ranks send tokens to different experts.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "leaf_module": {"classes": ["DeepseekV3MoE"]}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "leaf_module": {"classes": ["OlmoeSparseMoeBlock"]}}'),
    at="zero_optimization.leaf_module.classes",
    model=_expert_model("mixtral"),
    message="config.json is a mixture of experts, and leaf_module.classes replaces the built-in list and does not name its MixtralSparseMoeBlock: at stage 3 the job may hang when ranks send tokens to different experts.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "leaf_module": {"classes": ["OlmoeSparseMoeBlock", "MixtralSparseMoeBlock"]}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3}'),
    at="zero_optimization.stage",
    model={"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": {"num_experts": 128, "hidden_size": 2048}}},
    message="config.json is a mixture of experts, and no leaf module covers its Qwen3OmniMoeThinkerTextSparseMoeBlock: at stage 3 the job may hang when ranks send tokens to different experts.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "leaf_module": {"classes": ["Qwen3OmniMoeThinkerTextSparseMoeBlock"]}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3, "leaf_module": {"classes": ["OlmoeSparseMoeBlock"]}}'),
    at="zero_optimization.leaf_module.classes",
    model={"model_type": "internvl", "text_config": {"model_type": "qwen3_moe", "num_experts": 128, "hidden_size": 2048}},
    message="config.json is a mixture of experts, and leaf_module.classes replaces the built-in list and does not name its Qwen3MoeSparseMoeBlock: at stage 3 the job may hang when ranks send tokens to different experts.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "zero_optimization": {"stage": 3, "leaf_module": {"classes": ["OlmoeSparseMoeBlock", "Qwen3MoeSparseMoeBlock"]}}}',
)
@bad(
    trained('"zero_optimization": {"stage": 3}'),
    at="zero_optimization.stage",
    model=_expert_model("mixtral"),
    deepspeed="0.12.6",
    message="config.json is a mixture of experts, and no leaf module covers its MixtralSparseMoeBlock: at stage 3 the job may hang when ranks send tokens to different experts.",
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    at="zero_optimization.stage",
    deepspeed="0.16.0",
    training="model_name_or_path: /data/my_mixtral_sft\noutput_dir: o\nlearning_rate: 1e-4\nper_device_train_batch_size: 1\n",
    integration="transformers",
    message="By its name, /data/my_mixtral_sft is a mixture of experts, and no leaf module covers its MixtralSparseMoeBlock: at stage 3 the job may hang when ranks send tokens to different experts.",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    deepspeed="0.16.0",
    training="model_name_or_path: /data/DeepSeek-R1-Distill-Qwen-32B\noutput_dir: o\nlearning_rate: 1e-4\nper_device_train_batch_size: 1\n",
    integration="transformers",
)
@good(trained('"zero_optimization": {"stage": 3}'), model=_expert_model("mixtral"))
@good(
    trained('"zero_optimization": {"stage": 3}'),
    model=_expert_model("mixtral"),
    deepspeed="0.16.0",
    program=_LEAVES,
    integration="deepspeed",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    model=_expert_model("mixtral"),
    deepspeed="0.16.0",
    training="stage: sft\nmodel_name_or_path: m\nfinetuning_type: lora\noutput_dir: o\nlearning_rate: 1e-4\n",
)
@good(trained('"zero_optimization": {"stage": 3, "leaf_module": {"classes": ["DeepseekV3MoE"]}}'), model=_expert_model("deepseek_v3"))
@good(trained('"zero_optimization": {"stage": 2}'), model=_expert_model("deepseek_v3"))
@good(
    trained('"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}'), model=_expert_model("deepseek_v3"), world_size=1
)
@good(
    trained('"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}'),
    model=_expert_model("deepseek_v3"),
    integration="transformers",
    loader_release=Release(5, 0, 0),
)
def experts_without_leaf_modules(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 a mixture of experts may hang if no leaf module covers its expert blocks.

    Stage 3 gathers the parameters of a module when it runs. If each expert is a module, ranks with tokens for different experts gather different modules. The
    collectives then do not match, and the job hangs without a message. DeepSpeed gathers a leaf module as a whole on every rank. DeepSpeed 0.18.0 and newer
    have a built-in list (Mixtral, Qwen2-MoE, Qwen3-MoE), which `leaf_module.classes` replaces. If transformers keeps all experts of a layer in one tensor, as
    its release 5 does for most models, leaf modules make no difference.

    LLaMA-Factory sets the leaf modules itself since its release 0.5.2, and ms-swift since 3.9.0. Where nothing says which DeepSpeed runs the
    job, a model of the built-in list gets a note for older releases.

    Add the class of the block to `leaf_module.classes`, or call `deepspeed.utils.set_z3_leaf_modules` in the program, which DeepSpeed has
    since 0.13.0.
    """
    if not config.value(STAGE) >= 3 or config.facts.world_size == 1 or _sets_leaf_modules(config):
        return
    model, block = _expert_block(config)
    if block is None:
        return
    in_config = config.release >= (0, 18, 0)
    section = f"{ZERO}.leaf_module"
    classes = config.value(f"{section}.classes") if in_config else []
    if not isinstance(classes, list) or config.has(f"{section}.names") or config.has(f"{section}.name_suffixes"):
        return
    transformers = config.context.at_least("transformers")
    if transformers is not None and transformers >= Release(5, 0, 0):
        return  # which keeps the experts of a layer in one tensor for most models
    replaced = config.has(f"{section}.classes")
    if any(isinstance(name, str) and name.rpartition(".")[2] == block for name in classes):
        if not replaced and in_config and config.context.release_source is not ReleaseSource.STATED:
            yield Finding(
                STAGE,
                f"{model} is a mixture of experts. DeepSpeed before 0.18.0 has no built-in leaf module for its {block}: at stage 3 the job may "
                "hang when ranks send tokens to different experts.",
                help="If the job runs an older release, install 0.18.0 or newer, or call "
                f"deepspeed.utils.set_z3_leaf_modules(model, [{block}]) in the program.",
                certain=False,
            )
        return
    gap = "leaf_module.classes replaces the built-in list and does not name" if replaced else "no leaf module covers"
    yield Finding(
        f"{section}.classes" if replaced else STAGE,
        f"{model} is a mixture of experts, and {gap} its {block}: at stage 3 the job may hang when ranks send tokens to different experts.",
        help=f'Write "leaf_module": {{"classes": ["{block}"]}} in zero_optimization.'
        if in_config
        else f"{'' if config.release >= (0, 13, 0) else 'Install DeepSpeed 0.13.0 or newer. '}"
        f"Call deepspeed.utils.set_z3_leaf_modules(model, [{block}]) in the program.",
        fix=write(config, f"{section}.classes", json_text([*classes, block] if replaced else [block])) if in_config else None,
        on="key" if replaced else "member",
        certain=False,
        costly=True,
    )


@rule(
    "DS442",
    effect=Effect.MEMORY,
    watches=("setup", "fact:model"),
    references=("transformers/modeling_utils.py, PreTrainedModel.get_init_context",),
    untried=RAISED_BY_LOADER,
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}',
    at=STAGE,
    integration="transformers",
    model=_quantized_model("gptq"),
    message="config.json is quantized (gptq), and transformers does not use zero.Init for a quantized model: every rank loads the whole model.",
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    at=STAGE,
    training="model_name_or_path: deepseek-ai/DeepSeek-V3-0324\nstage: sft\nfinetuning_type: lora\noutput_dir: o\n",
    message="deepseek-ai/DeepSeek-V3-0324 is, by its name, quantized (fp8), and transformers does not use zero.Init for a quantized model: every rank loads the whole model.",
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    at=STAGE,
    training="model_name_or_path: deepseek-ai/DeepSeek-R1\nstage: sft\nfinetuning_type: lora\ntemplate: deepseek3\noutput_dir: o\nlearning_rate: 1e-4\n",
    pins={"llamafactory": Release(0, 9, 2)},
    message='deepseek-ai/DeepSeek-R1 is, by its name, quantized (fp8): at stage 3 LLaMA-Factory may raise "DeepSpeed ZeRO-3 or FSDP is incompatible with PTQ-quantized models.".',
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    at=STAGE,
    training="model_name_or_path: org/Coder-480B-FP8\nstage: sft\nfinetuning_type: lora\noutput_dir: o\n",
    message="org/Coder-480B-FP8 is, by its name, quantized (fp8), and transformers does not use zero.Init for a quantized model: every rank loads the whole model.",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    training="model_name_or_path: deepseek-ai/DeepSeek-R1-Distill-Qwen-7B\nstage: sft\nfinetuning_type: lora\noutput_dir: o\n",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    training="model_name_or_path: org/coder-480b-bnb-4bit-merged-16bit\nstage: sft\nfinetuning_type: lora\noutput_dir: o\n",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    training="model_name_or_path: ./out/coder-480b-fp8\nstage: sft\nfinetuning_type: lora\noutput_dir: o\n",
)
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    training="model_name_or_path: unsloth/DeepSeek-V3-bf16\nstage: sft\nfinetuning_type: lora\noutput_dir: o\n",
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    at="zero_optimization.stage",
    training="model_name_or_path: m\nstage: sft\nfinetuning_type: lora\noutput_dir: o\nlearning_rate: 1e-4\n",
    model=_quantized_model("awq"),
    message='config.json is quantized (awq): at stage 3 LLaMA-Factory raises "DeepSpeed ZeRO-3 or FSDP is incompatible with PTQ-quantized models.".',
)
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers", model=_quantized_model("gptq"))
@good(trained('"zero_optimization": {"stage": 3}'), integration="deepspeed", model=_quantized_model("gptq"))
@good(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    integration="transformers",
    loader_release=Release(4, 36, 2),
    model=_quantized_model("gptq"),
)
def quantized_model_at_stage_3(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 every rank loads the whole of a quantized model.

    transformers uses `zero.Init`, which gives each rank its part of the model, only for models that are not quantized (since its release 4.39). Stage 3 also cannot divide many kinds
    of quantized weights afterwards. It can divide 4-bit weights of bitsandbytes if `bnb_4bit_quant_storage` is the type of the other parameters.

    LLaMA-Factory refuses such a model at stage 3, unless it is quantized with FP8 or MXFP4, which it takes since 0.9.4.

    Use ZeRO stage 2 for adapters on a quantized model, or use a model that is not quantized.
    """
    model = config.facts.model
    if not config.value(STAGE) >= 3 or config.facts.integration not in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        return
    transformers = config.context.pinned("transformers")
    if transformers is not None and transformers < _LOADS_WHOLE:
        return
    name, method = (str(model), model.quantization) if model is not None else _quantized_by_name(config)
    says = "is" if model is not None else "is, by its name,"
    framework = _refuses_quantized(config, method) if method is not None else None
    if framework is not None:
        certain = model is not None and config.arguments is not None and config.arguments.sure and config.arguments.former is None
        yield Finding(
            STAGE,
            f"{name} {says} quantized ({method}): at stage 3 {framework.name} {'raises' if certain else 'may raise'} "
            f'"{framework.refuses_quantized}".',
            help="Use ZeRO stage 2, or a model that is not quantized.",
            effect=Effect.CRASH,
            phase=Phase.LOAD,
            certain=certain,
        )
    elif method is not None:
        yield Finding(
            STAGE,
            f"{name} {says} quantized ({method}), and transformers does not use zero.Init for a quantized model: every rank loads the whole model."
            f"{_refused_before(config, method)}",
            help="Use ZeRO stage 2, or a model that is not quantized.",
            costly=True,
        )


def _refuses_quantized(config: Config, method: str) -> Framework | None:
    """The framework of the training if it refuses a model that is quantized in this way."""
    framework = of_arguments(config.arguments)
    if framework is None or not framework.refuses_quantized:
        return None
    release, since = config.context.pinned(framework.packages[0]), framework.takes_quantized.get(method)
    return framework if since is None or (release is not None and release < since) else None


def _refused_before(config: Config, method: str) -> str:
    """The sentence about older releases of the framework, which refuse a model that is quantized so; "" if its release is known."""
    framework = of_arguments(config.arguments)
    since = framework.takes_quantized.get(method) if framework is not None and framework.refuses_quantized else None
    if framework is None or since is None or config.context.pinned(framework.packages[0]) is not None:
        return ""
    return f' {framework.name} before {since} raises "{framework.refuses_quantized}".'


_LOADS_WHOLE = Release(4, 39, 0)
"""The release of transformers that first loads a quantized model without `zero.Init`."""

_OWN_QUANTIZATION = r"transformers\.(\w+\.)*(FineGrainedFP8|FbgemmFp8|BitsAndBytes|GPTQ|Awq)Config"
"""What a program loads a model with if it does not load it as it is stored."""


def _quantized_by_name(config: Config) -> tuple[str, str | None]:
    """The model of the setup, and how it is quantized if its name says so: one with a config.json says it there."""
    if config.arguments is None and (config.setup is None or config.setup.program is None):
        return "", None
    from dslint.job.training import MODEL_ARGUMENTS  # a plain check does not import what arguments need

    arguments, program = config.arguments, config.setup.program if config.setup is not None else None
    given = next((found for name in MODEL_ARGUMENTS if (found := arguments.get(name)) is not None), None) if arguments is not None else None
    given = given or (program.model if program is not None else None)
    name = given.value if given is not None else None
    if not isinstance(name, str) or (program is not None and (program.quantized is not None or any(program.events.of(_OWN_QUANTIZATION)))):
        return "", None
    from dslint.facts.known_models import quantized_by_name  # a plain check does not import the known models

    return name, quantized_by_name(name)
