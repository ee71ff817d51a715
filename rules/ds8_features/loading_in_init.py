"""DS8: weights that a program loads or makes inside of `deepspeed.zero.Init`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.events import Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.syntax import is_in_a_file
from dslint.rules.helpers.zero import STAGE

_STAGE_3 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}'
_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
_OWN = (
    "import deepspeed\nfrom transformers import AutoModelForCausalLM\n%swith deepspeed.zero.Init(config_dict_or_path='ds_config.json'):\n"
    "    model = AutoModelForCausalLM.from_pretrained('m')\n"
    "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\n"
)
_HF = "from transformers.integrations import HfDeepSpeedConfig\nkept = HfDeepSpeedConfig('ds_config.json')\n"
_MODULE = (
    "import lightning as L\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\nfrom transformers import AutoModelForCausalLM\n"
    "class Module(L.LightningModule):\n    def configure_model(self):\n        self.model = AutoModelForCausalLM.%s\n"
    "trainer = L.Trainer(strategy=DeepSpeedStrategy(config='ds_config.json'), devices=8)\ntrainer.fit(Module())\n"
)
_LIGHTNING_STAGE_3 = '{"zero_optimization": {"stage": 3}}'


@rule(
    "DS873",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "transformers/modeling_utils.py, PreTrainedModel.from_pretrained: is_deepspeed_zero3_enabled",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/19259",
    ),
    untried=RAISED_BY_LOADER,
)
@bad(
    _LIGHTNING_STAGE_3,
    at="",
    program=_MODULE % "from_pretrained('m')",
    integration="lightning",
    message="train.py:6 calls from_pretrained in configure_model, which divides the weights as they are made, and nothing tells transformers of ZeRO stage 3: the sizes do not match those of the checkpoint, and from_pretrained may raise RuntimeError.",
)
@bad(
    _STAGE_3,
    at="",
    program=_OWN % "",
    integration="deepspeed",
    message="train.py:4 calls from_pretrained in deepspeed.zero.Init, which divides the weights as they are made, and nothing tells transformers of ZeRO stage 3: the sizes do not match those of the checkpoint, and from_pretrained may raise RuntimeError.",
)
@bad(
    _STAGE_3,
    at="",
    program=(_OWN % "").replace("('m')", "('m', ignore_mismatched_sizes=True)"),
    integration="deepspeed",
    message="train.py:4 calls from_pretrained in deepspeed.zero.Init, which divides the weights as they are made, and nothing tells transformers of ZeRO stage 3: the sizes do not match those of the checkpoint, and ignore_mismatched_sizes drops the weights of the checkpoint.",
)
@good(_STAGE_3, program=_OWN % _HF, integration="deepspeed")
@good(_STAGE_2, program=_OWN % "", integration="deepspeed")
@good(_LIGHTNING_STAGE_3, program=_MODULE % "from_config(config)", integration="lightning")
@good(_LIGHTNING_STAGE_3, program=_MODULE.replace("configure_model", "__init__") % "from_pretrained('m')", integration="lightning")
def pretrained_in_zero_init(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 `from_pretrained` runs inside of `deepspeed.zero.Init`, and transformers does not know the config.

    `deepspeed.zero.Init` divides each weight as it is made, and leaves it with the shape [0]. transformers gathers the weights to load a
    checkpoint only if an `HfDeepSpeedConfig` of stage 3 exists. Without it the sizes do not match, and `from_pretrained` raises
    RuntimeError: "the shape in current model is torch.Size([0])", or since transformers 5 "You set `ignore_mismatched_sizes` to `False`".
    With `ignore_mismatched_sizes=True` it only warns, and the model is left without the weights of the checkpoint.

    Lightning enters `deepspeed.zero.Init` around `configure_model` and in `fabric.init_module()`.

    Create `HfDeepSpeedConfig(config)` before, and keep it as long as the model is loaded.
    """
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None or not config.value(STAGE) >= 3:
        return
    if config.facts.integration not in (Integration.DEEPSPEED, Integration.LIGHTNING):
        return  # the others tell transformers of the config
    if is_in_a_file(_TELLS, config):
        return
    for event in program.events.of(r"transformers\.(\w+\.)*\w*(Model|For[A-Z]\w*)\w*\.from_pretrained"):
        where = _init_around(config, event)
        if where and not event.unlikely and not event.tells_setups_apart:
            ignored = event.argument("ignore_mismatched_sizes")
            raises = ignored is None or ignored.value is False
            outcome = "from_pretrained raises RuntimeError" if raises else "ignore_mismatched_sizes drops the weights of the checkpoint"
            yield Finding(
                "",
                f"{event.at.where} calls from_pretrained {where}, which divides the weights as they are made, and nothing tells transformers "
                f"of ZeRO stage 3: the sizes do not match those of the checkpoint, and {outcome}.",
                help="Create an HfDeepSpeedConfig of transformers before, and keep it.",
                elsewhere=event.at.related(""),
                effect=None if raises else Effect.SILENT,
                certain=False,
            )
            return


_TELLS = re.compile(r"HfDeepSpeedConfig|set_hf_deepspeed_config|TrainingArguments")


def _init_around(config: Config, event: Event) -> str:
    """What enters `deepspeed.zero.Init` around a call; "" if nothing does for certain."""
    program = config.setup.program if config.setup else None
    if config.facts.integration is not Integration.LIGHTNING:
        inits = list(program.events.of(r"deepspeed\.(\w+\.)*Init")) if program is not None else []
        always = all(one.complete and ((given := one.argument("enabled")) is None or given.value is True) for one in inits)
        return "in deepspeed.zero.Init" if always and any(re.fullmatch(_INIT, one) for one in event.within) else ""
    if any(re.search(r"Fabric\.init_module$", one) for one in event.within):
        return "in fabric.init_module()"
    name = event.function.rpartition(".")[2]
    is_lightning = program is not None and program.lightning_trainer
    return f"in {name}" if is_lightning and name in ("configure_model", "configure_sharded_model") else ""


_INIT = r"deepspeed\.(\w+\.)*Init"


_ADAPTER = (
    "import deepspeed\nfrom peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
    "with deepspeed.zero.Init(config_dict_or_path='ds_config.json'):\n    model = AutoModelForCausalLM.from_config(config)\n%s"
    "engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\n"
)
_WRAPS = "model = get_peft_model(model, LoraConfig(r=8%s))\n"
_ADAPTED_MODULE = _MODULE.replace("import lightning", "from peft import LoraConfig, get_peft_model\nimport lightning").replace(
    ".%s\n", ".from_config(config)\n        self.model = get_peft_model(self.model, LoraConfig(r=8))\n"
)


_SETS_ADAPTER = re.compile(r"shutdown_init_context|lora_B\b")
"""Code that leaves zero.Init for a while, or that sets the weights of an adapter itself."""


@rule(
    "DS882",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "peft/tuners/lora/layer.py, LoraLayer.reset_lora_parameters of 0.21.2",
        "torch/nn/init.py: a tensor without elements is left as it is",
        "https://github.com/huggingface/peft/issues/803",
    ),
)
@bad(
    _STAGE_3,
    at="",
    program=_ADAPTER % f"    {_WRAPS % ''}",
    integration="deepspeed",
    message="train.py:6 calls get_peft_model in deepspeed.zero.Init, which divides the weights of the adapter as they are made: PEFT can no longer set lora_B to zero, and the training starts with a random change of the model.",
)
@bad(
    _LIGHTNING_STAGE_3,
    at="",
    program=_ADAPTED_MODULE,
    integration="lightning",
    message="train.py:8 calls get_peft_model in configure_model, which divides the weights of the adapter as they are made: PEFT can no longer set lora_B to zero, and the training starts with a random change of the model.",
)
@good(_STAGE_3, program=_ADAPTER % (_WRAPS % ""), integration="deepspeed")
@good(_STAGE_3, program=_ADAPTER % f"    {_WRAPS % ', init_lora_weights=False'}", integration="deepspeed")
@good(
    _STAGE_3,
    program=_ADAPTER % f"    deepspeed.zero.partition_parameters.shutdown_init_context()\n    {_WRAPS % ''}",
    integration="deepspeed",
)
def adapter_in_zero_init(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 `get_peft_model` makes the weights of LoRA inside of `deepspeed.zero.Init`, and cannot set them to zero.

    LoRA begins as no change of the model, because PEFT sets the matrix `lora_B` to zero. `deepspeed.zero.Init` divides a weight as soon as its
    layer is made. Then it has the shape [0], for which `torch.nn.init.zeros_` does nothing, and `lora_B` keeps the random values of a new
    layer: the first loss is that of a damaged model.

    Lightning enters `deepspeed.zero.Init` around `configure_model` and in `fabric.init_module()`.

    Call `get_peft_model` behind the `with` block: the weights of an adapter are small. In Lightning call it in `__init__` or `setup`.
    """
    program = config.setup.program if config.setup is not None else None
    if config.setup is None or program is None or not config.value(STAGE) >= 3:
        return
    configs = list(program.events.of(r"peft\.(\w+\.)*\w+Config"))
    if any(not one.name.endswith(".LoraConfig") or one.argument("init_lora_weights") is not None for one in configs):
        return
    if is_in_a_file(_SETS_ADAPTER, config):
        return
    for event in program.events.of(r"peft\.(\w+\.)*get_peft_model"):
        where = _init_around(config, event)
        if where and not event.unlikely and not event.tells_setups_apart:
            yield Finding(
                "",
                f"{event.at.where} calls get_peft_model {where}, which divides the weights of the adapter as they are made: PEFT can no longer "
                "set lora_B to zero, and the training starts with a random change of the model.",
                help="Call get_peft_model after deepspeed.zero.Init.",
                elsewhere=event.at.related(""),
                certain=bool(configs) and event.certain,
            )
            return
