"""DS9: a reference model, which gets the config of the model that is trained."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Integration, Release
from dslint.frameworks.base import Framework
from dslint.frameworks.registry import of_arguments
from dslint.job.arguments import SourcedValue
from dslint.job.events import Event
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.models import loads_reference
from dslint.rules.helpers.offload import OFFLOAD_OPTIMIZER
from dslint.rules.helpers.precision import cpu_adam, model_dtype
from dslint.rules.helpers.project import programs_of
from dslint.rules.helpers.zero import STAGE

_OPTIMIZER = '"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}'
_SCHEDULER = '"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto", "total_num_steps": "auto"}}'
_STAGE_3 = '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}'
_WITH_OPTIMIZER = f"{{{_OPTIMIZER}, {_STAGE_3}}}"
_WITH_BOTH = f"{{{_OPTIMIZER}, {_SCHEDULER}, {_STAGE_3}}}"
_WITHOUT = f'{{"train_batch_size": "auto", {_STAGE_3}}}'
_OFFLOADS = f'{{{_OPTIMIZER}, "bf16": {{"enabled": true}}, "zero_optimization": {{"stage": 2, "offload_optimizer": {{"device": "cpu"}}}}}}'
_PREFERENCES = (
    "stage: dpo\nmodel_name_or_path: m\ndataset: d\nfinetuning_type: full\nper_device_train_batch_size: 1\nlearning_rate: 1e-6\n"
    "do_train: true\ndeepspeed: ds_config.json\n"
)
_DPO = (
    "from transformers import AutoModelForCausalLM\nfrom trl import DPOConfig, DPOTrainer\n"
    'arguments = DPOConfig("out", deepspeed="ds_config.json")\n'
    'model, reference = AutoModelForCausalLM.from_pretrained("m"), AutoModelForCausalLM.from_pretrained("m")\n'
    "trainer = DPOTrainer(model, reference, args=arguments)\n"
)
_GRPO = (
    "from trl import GRPOConfig, GRPOTrainer\n"
    'arguments = GRPOConfig("out", beta=0.04, deepspeed="ds_config.json")\n'
    'trainer = GRPOTrainer("m", reward_funcs=r, args=arguments)\n'
)
_GIVES = Release(0, 7, 2)
"""The first TRL that gives a reference model to `deepspeed.initialize`."""

_REMOVES = Release(1, 9, 1)
"""The first TRL that takes the sections optimizer and scheduler out of the config of a reference model; 1.9.0 keeps them."""

_PARTS = "zero_optimization.zero_hpz_partition_size"
_STEPS = ("scheduler.params.total_num_steps", "scheduler.params.warmup_num_steps")
"""The keys that the Trainer fills when it begins to train, after the reference model has got the config."""


@rule(
    "DS991",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(
        "trl/models/utils.py, prepare_deepspeed of 1.9.0 and 1.9.1",
        "llamafactory/train/dpo/trainer.py, CustomDPOTrainer.__init__; llamafactory/train/trainer_utils.py, create_ref_model",
        "https://github.com/huggingface/trl/issues/2154",
        "https://github.com/huggingface/trl/pull/5916",
        "deepspeed/utils/groups.py, _create_zero_param_parallel_group; trl/trainer/dpo_trainer.py, DPOTrainer.__init__",
    ),
    untried=RAISED_BY_LOADER,
)
@bad(
    _WITH_OPTIMIZER,
    at="optimizer",
    training=_PREFERENCES,
    message='LLaMA-Factory freezes its reference model and gives it this config: at ZeRO stage 3 an optimizer without parameters raises AssertionError or ValueError "max() arg is an empty sequence".',
)
@bad(
    _WITH_BOTH,
    at="scheduler.params.total_num_steps",
    program=_DPO,
    integration="transformers",
    pins={"trl": Release(0, 11, 0)},
    message='DPOTrainer gives its reference model this config before the Trainer fills scheduler.params.total_num_steps: DeepSpeed raises an error for the word "auto".',
)
@bad(
    _OFFLOADS,
    at="zero_optimization.offload_optimizer",
    training=_PREFERENCES + "bf16: true\n",
    message="LLaMA-Factory gives its reference model this config with ZeRO stage 0, where offload_optimizer still selects DeepSpeedCPUAdam: with the parameters on the GPU its first step, in deepspeed.initialize, raises AssertionError \"CPUAdam param is on cuda:0 and must be 'cpu'\".",
)
@bad(
    _OFFLOADS,
    at="zero_optimization.offload_optimizer",
    program=_DPO,
    integration="transformers",
    pins={"trl": Release(0, 11, 0)},
    message="DPOTrainer gives its reference model this config with ZeRO stage 0, where offload_optimizer still selects DeepSpeedCPUAdam: with the parameters on the GPU its first step, in deepspeed.initialize, raises AssertionError \"CPUAdam param is on cuda:0 and must be 'cpu'\".",
)
@bad(
    _OFFLOADS,
    at="zero_optimization.offload_optimizer",
    program=_GRPO,
    integration="transformers",
    pins={"trl": Release(0, 21, 0)},
    message="GRPOTrainer gives its reference model this config with ZeRO stage 0, where offload_optimizer still selects DeepSpeedCPUAdam: with the parameters on the GPU its first step, in deepspeed.initialize, raises AssertionError \"CPUAdam param is on cuda:0 and must be 'cpu'\".",
)
@good(_OFFLOADS, program=_GRPO.replace("beta=0.04", "beta=0.0"), integration="transformers", pins={"trl": Release(0, 21, 0)})
@good(_OFFLOADS, program=_GRPO.replace("beta=0.04, ", ""), integration="transformers", pins={"trl": Release(0, 21, 0)})
@good(_OFFLOADS, program=_GRPO.replace("r, args", "r, peft_config=p, args"), integration="transformers", pins={"trl": Release(0, 21, 0)})
@good(_OFFLOADS, program=_GRPO, integration="transformers", pins={"trl": Release(1, 16, 0)})
@good(
    _OFFLOADS,
    program=_DPO.replace(
        "arguments =",
        "class OwnTrainer(DPOTrainer):\n    def _prepare_deepspeed(self, model):\n        return prepared(model)\narguments =",
        1,
    ).replace("= DPOTrainer", "= OwnTrainer"),
    integration="transformers",
    pins={"trl": Release(0, 9, 6)},
)
@good(_OFFLOADS.replace('"optimizer"', '"_optimizer"'), training=_PREFERENCES + "bf16: true\n")
@good(_OFFLOADS.replace('"lr"', '"torch_adam": true, "lr"'), training=_PREFERENCES + "bf16: true\n")
@good(_OFFLOADS.replace('"bf16": {"enabled": true}, ', ""), training=_PREFERENCES)
@good(_OFFLOADS, training=_PREFERENCES.replace("full", "lora") + "bf16: true\n")
@good(_OFFLOADS, program=_DPO, integration="transformers", pins={"trl": Release(0, 7, 1)})
@good(_WITHOUT, training=_PREFERENCES)
@good(_WITH_OPTIMIZER, training=_PREFERENCES.replace("full", "lora"))
@good(_WITH_OPTIMIZER, training=_PREFERENCES + "pref_loss: simpo\n")
@good(
    _WITH_BOTH,
    program=_DPO,
    integration="transformers",
    pins={"trl": Release(1, 16, 0)},
)
@good(_WITH_OPTIMIZER, program=_DPO, integration="transformers", pins={"trl": Release(0, 11, 0)})
def reference_model_with_optimizer(config: Config) -> Iterator[Finding]:
    """A reference model gets the config of the training, with its sections `optimizer` and `scheduler`.

    Trainers that compare with a reference model pass it to `deepspeed.initialize` with a copy of the config. TRL before 1.9.1 leaves the
    sections for training in it. A scheduler whose steps are "auto" is filled only when the training begins, so DeepSpeed gets the word
    "auto" for a number there and raises. LLaMA-Factory, which uses the same function, freezes the reference model: at ZeRO stage 3 an
    optimizer without parameters raises "max() arg is an empty sequence", or AssertionError in newer releases of DeepSpeed.

    Below stage 3 they set the stage of the copy to 0, so that each GPU holds the whole reference model. `offload_optimizer` stays, and DeepSpeed
    builds its CPU Adam for parameters on the GPU, which raises AssertionError as soon as fp16 or bf16 takes its first step.

    `trl dpo` without an adapter loads its reference model at ZeRO stage 3 with this config, too, inside a second `deepspeed.zero.Init`. With
    `zero_hpz_partition_size` DeepSpeed makes its groups of ranks for the first one, and raises for the second.

    Remove the two sections: the Trainer makes both from its arguments. Remove `zero_hpz_partition_size`.
    """
    if config.value(_PARTS) > 1 and loads_reference(config):
        yield Finding(
            _PARTS,
            f"{_PARTS} is {config.quote(_PARTS)}, and trl dpo loads a reference model after the model: DeepSpeed raises AssertionError "
            '"ZeRO parameter intra parallel group is already initialized".',
            help="Remove the key, train an adapter, or set precompute_ref_log_probs: true.",
            phase=Phase.LOAD,
            step=LoadStep.TRAINER,
        )
    framework = of_arguments(config.arguments)
    keeps, holder, certain = _holder(config, framework)
    if not keeps or not config.has("optimizer"):
        return
    related = () if holder is None else (holder.related("set here"),)
    steps = next((key for key in _STEPS if config.is_auto(key)), None)
    if framework is not None and framework.freezes_reference is not None and config.value(STAGE) == 3:
        yield Finding(
            "optimizer",
            f"{keeps} freezes its reference model and gives it this config: at ZeRO stage 3 an optimizer without parameters "
            f'{"raises" if certain else "may raise"} AssertionError or ValueError "max() arg is an empty sequence".',
            help="Remove the section optimizer: the Trainer makes it from its arguments.",
            related=related,
            certain=certain,
        )
    elif config.value(STAGE) in (1, 2) and cpu_adam(config) and model_dtype(config) in ("fp16", "bf16"):
        yield Finding(
            OFFLOAD_OPTIMIZER,
            f"{keeps} gives its reference model this config with ZeRO stage 0, where offload_optimizer still selects DeepSpeedCPUAdam: with the "
            f"parameters on the GPU its first step, in deepspeed.initialize, {'raises' if certain else 'may raise'} AssertionError "
            "\"CPUAdam param is on cuda:0 and must be 'cpu'\".",
            help="Remove the section optimizer: the Trainer makes it from its arguments.",
            related=related,
            certain=certain,
        )
    elif steps is not None:
        yield Finding(
            steps,
            f"{keeps} gives its reference model this config before the Trainer fills {steps}: DeepSpeed {'raises' if certain else 'may raise'} "
            'an error for the word "auto".',
            help="Remove the sections optimizer and scheduler: the Trainer makes both from its arguments.",
            related=related,
            certain=certain,
        )


def _holder(config: Config, framework: Framework | None) -> tuple[str, SourcedValue | None, bool]:
    """What keeps a reference model and gives it the whole config, the argument that says so, and whether that is certain."""
    arguments, program = config.arguments, config.setup.program if config.setup else None
    if arguments is not None and framework is not None and framework.freezes_reference is not None:
        decides = framework.freezes_reference(arguments)
        return (framework.name, decides, arguments.complete and not arguments.former) if decides is not None else ("", None, False)
    release = config.context.pinned("trl")
    if (
        program is None
        or config.facts.integration is not Integration.TRANSFORMERS
        or (release is not None and release < _GIVES)
        or ((oldest := config.context.at_least("trl")) is not None and oldest >= _REMOVES)
        or any("def _prepare_deepspeed" in text for text in programs_of(config))  # a class of the project, which removes sections itself
    ):
        return "", None, False
    for event in program.events.of(r"trl\.(\w+\.)*(DPO|KTO|BCO)Trainer"):
        reference = event.argument("ref_model", 1)
        if event.complete and reference is not None and reference.value is not None and not _computes_before(config):
            return event.name.rpartition(".")[2], _as_place(event), release is not None
    for event in program.events.of(r"trl\.(\w+\.)*GRPOTrainer"):
        if event.complete and "peft_config" not in event.arguments and _has_penalty(program):
            return "GRPOTrainer", _as_place(event), release is not None
    return "", None, False


def _as_place(event: Event) -> SourcedValue:
    return SourcedValue(event.name, event.name, event.at.raw, event.at.path, event.at.range)


def _has_penalty(program: Program) -> bool:
    """Whether GRPOTrainer loads a reference model: `beta` is above 0, which is the default of older releases only."""
    made = list(program.events.of(r"trl\.(\w+\.)*GRPOConfig"))
    beta = made[0].argument("beta") if len(made) == 1 and made[0].complete else None
    return beta is not None and isinstance(beta.value, int | float) and beta.value > 0


def _computes_before(config: Config) -> bool:
    """Whether the log-probabilities of the reference model are computed before the training, or that is not known."""
    program = config.setup.program if config.setup else None
    made = program.events.of(r"trl\.(\w+\.)*(DPO|KTO|BCO)Config") if program is not None else ()
    return any(not one.complete or "precompute_ref_log_probs" in one.arguments for one in made)
