"""DS9: several optimizers that a program gives to Accelerate's `prepare`."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.prepare import PREPARE, kind_of, may_have_model, models_with_optimizers, without_loader

_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_TWO = (
    "import torch\nfrom accelerate import Accelerator\nfrom models import build\naccelerator = Accelerator()\nmodel = build()\n"
    "opt_ae = torch.optim.AdamW(model.encoder.parameters())\nopt_disc = torch.optim.AdamW(model.critic.parameters())\n"
)


@rule(
    "DS941",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("accelerate/accelerator.py, Accelerator._prepare_deepspeed", "https://github.com/GuHuangAI/ADM-Public/issues/5"),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=f"{_TWO}model, opt_ae, opt_disc = accelerator.prepare(model, opt_ae, opt_disc)\n",
    integration="accelerate",
    message="train.py:8 prepares opt_ae and opt_disc in one call: under DeepSpeed Accelerate gives the engine opt_disc only, and returns it for each of them. The parameters of the others are not trained.",
)
@good(_STAGE_2, program=f"{_TWO}model, opt_ae = accelerator.prepare(model, opt_ae)\n", integration="accelerate")
@good(
    _STAGE_2,
    program=f"{_TWO}model = accelerator.prepare(model)\nopt_ae, opt_disc, loader = accelerator.prepare(opt_ae, opt_disc, loader)\n",
    integration="accelerate",
)
@good(
    _STAGE_2,
    program=f"{_TWO}if accelerator.distributed_type != 'DEEPSPEED':\n    model, opt_ae, opt_disc = accelerator.prepare(model, opt_ae, opt_disc)\n",
    integration="accelerate",
)
def two_optimizers_prepared(config: Config) -> Iterator[Finding]:
    """The program prepares several optimizers in one call of `prepare`, under DeepSpeed.

    An engine has one optimizer. Accelerate passes the last one of the call to `deepspeed.initialize`, and returns what it gets from there in the
    place of each of them. A GAN whose generator and critic are parts of one model so trains the critic only, without an error.

    Make one optimizer with a group of parameters for each part. Prepare models that are trained in turn in calls of their own.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.ACCELERATE or without_loader(config) is not None:
        return
    for event in program.events.of(PREPARE):
        optimizers = {
            one.origin: one.raw for one in event.arguments.values() if one.origin is not None and kind_of(one.made) == "optimizer"
        }
        if len(optimizers) < 2 or event.tells_setups_apart or event.unlikely or not may_have_model(event):
            continue
        if len(models_with_optimizers(config, event, program.events)) > 1:
            continue  # two models raise (DS965)
        *others, last = optimizers.values()
        yield Finding(
            "",
            f"{event.at.where} prepares {', '.join(others)} and {last} in one call: under DeepSpeed Accelerate gives the engine {last} only, and returns it "
            "for each of them. The parameters of the others are not trained.",
            help="Make one optimizer with a group of parameters for each part of the model.",
            elsewhere=event.at.related(""),
            certain=event.certain,
        )
        return
