"""DS6: optimizers that a program gives to the Trainer."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule

_TRAINER = (
    "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    'model = AutoModelForCausalLM.from_pretrained("m")\nopt = torch.optim.AdamW(model.parameters(), lr=3e-4)\n'
    'trainer = Trainer(model, TrainingArguments("out", deepspeed="ds_config.json"), optimizers=%s)\n'
)
_AUTO = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'


@rule(
    "DS655",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("transformers/integrations/deepspeed.py, deepspeed_init and deepspeed_optim_sched of 4.43.4 and 5.23.0",),
    setup=True,
)
@bad(
    _AUTO,
    at="",
    program=_TRAINER % "(opt, None)",
    integration="transformers",
    message="train.py:5 gives the Trainer an optimizer: under DeepSpeed it silently drops it, with its learning rates and parameter groups, and trains with one that it makes from its own arguments.",
)
@good(_AUTO, program=_TRAINER % "(None, schedule)", integration="transformers")
@good(_AUTO, program=_TRAINER % "(None, None)", integration="transformers")
def optimizer_of_trainer_dropped(config: Config) -> Iterator[Finding]:
    """The program gives the Trainer an optimizer, which the Trainer drops under DeepSpeed.

    `deepspeed_init` sets the Trainer's optimizer to None when the training starts, and what `Trainer(optimizers=...)` got is lost silently.
    The training uses the config's section `optimizer`, or without one the optimizer that `create_optimizer` makes from the training arguments.

    Override `create_optimizer` in a subclass of the Trainer, and write no section `optimizer`, or set the optimizer in the training arguments.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.TRANSFORMERS:
        return
    for event in program.events.of(r"(transformers|trl)\.(\w+\.)*\w*Trainer"):
        given = event.arguments.get("optimizers")
        none = given is None or given.value is None or (isinstance(given.value, tuple) and not any(given.value))
        if given is None or none or given.raw.replace(" ", "").startswith("(None,") or event.tells_setups_apart:
            continue
        by = (
            "the config's section describes"
            if config.document.root is not None and config.has("optimizer")
            else "it makes from its own arguments"
        )
        yield Finding(
            "",
            f"{event.at.where} gives the Trainer an optimizer: under DeepSpeed it silently drops it, with its learning rates and parameter groups, "
            f"and trains with one that {by}.",
            help="Override create_optimizer in a subclass of the Trainer, and write no section optimizer.",
            elsewhere=event.at.related(""),
            certain=False,
        )
        return
