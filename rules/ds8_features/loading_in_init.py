"""DS8: pretrained weights that a program loads inside of `deepspeed.zero.Init`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.events import Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
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
@good(_STAGE_3, program=_OWN % _HF, integration="deepspeed")
@good(_STAGE_2, program=_OWN % "", integration="deepspeed")
@good(_LIGHTNING_STAGE_3, program=_MODULE % "from_config(config)", integration="lightning")
@good(_LIGHTNING_STAGE_3, program=_MODULE.replace("configure_model", "__init__") % "from_pretrained('m')", integration="lightning")
def pretrained_in_zero_init(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 `from_pretrained` runs inside of `deepspeed.zero.Init`, and transformers does not know the config.

    `deepspeed.zero.Init` divides each weight as it is made, and leaves it with the shape [0]. transformers gathers the weights to load a
    checkpoint only if an `HfDeepSpeedConfig` of stage 3 exists. Without it the sizes do not match, and `from_pretrained` raises
    RuntimeError: "the shape in current model is torch.Size([0])", or since transformers 5 "You set `ignore_mismatched_sizes` to `False`".

    Lightning enters `deepspeed.zero.Init` around `configure_model` and in `fabric.init_module()`.

    Create `HfDeepSpeedConfig(config)` before, and keep it as long as the model is loaded.
    """
    setup = config.setup
    program = setup.program if setup is not None else None
    if setup is None or program is None or not config.value(STAGE) >= 3:
        return
    if config.facts.integration not in (Integration.DEEPSPEED, Integration.LIGHTNING):
        return  # the others tell transformers of the config
    if any(_TELLS.search(document.text) for document in setup.documents.values()):
        return
    for event in program.events.of(r"transformers\.(\w+\.)*\w*(Model|For[A-Z]\w*)\w*\.from_pretrained"):
        where = _init_around(config, event)
        if where and not event.unlikely and not event.tells_setups_apart:
            yield Finding(
                "",
                f"{event.at.where} calls from_pretrained {where}, which divides the weights as they are made, and nothing tells transformers "
                "of ZeRO stage 3: the sizes do not match those of the checkpoint, and from_pretrained raises RuntimeError.",
                help="Create an HfDeepSpeedConfig of transformers before, and keep it.",
                elsewhere=event.at.related(""),
                certain=False,
            )
            return


_TELLS = re.compile(r"HfDeepSpeedConfig|set_hf_deepspeed_config|TrainingArguments")


def _init_around(config: Config, event: Event) -> str:
    """What enters `deepspeed.zero.Init` around a call; "" if nothing does for certain."""
    program = config.setup.program if config.setup else None
    if config.facts.integration is Integration.DEEPSPEED:
        inits = list(program.events.of(r"deepspeed\.(\w+\.)*Init")) if program is not None else []
        always = all(one.complete and ((given := one.argument("enabled")) is None or given.value is True) for one in inits)
        return "in deepspeed.zero.Init" if always and any(re.fullmatch(_INIT, one) for one in event.within) else ""
    if any(re.search(r"Fabric\.init_module$", one) for one in event.within):
        return "in fabric.init_module()"
    name = event.function.rpartition(".")[2]
    is_lightning = program is not None and program.lightning_trainer
    return f"in {name}" if is_lightning and name in ("configure_model", "configure_sharded_model") else ""


_INIT = r"deepspeed\.(\w+\.)*Init"
