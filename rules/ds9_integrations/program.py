"""DS9: calls in a program that do not fit the config."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Severity
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import HUGGING_FACE, RAISED_BY_LOADER

_ADAMW = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, '
    '"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}'
)
_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'


@rule(
    "DS926",
    "optimizer-in-config-and-program",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("accelerate/accelerator.py, Accelerator._prepare_deepspeed",),
    untried=RAISED_BY_LOADER,
)
@bad(
    _ADAMW,
    at="optimizer",
    program="import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
    "opt = torch.optim.AdamW(model.parameters())\naccelerator.prepare(model, opt)\n",
    integration="accelerate",
)
@good(
    _ADAMW,
    program="from accelerate import Accelerator\nfrom accelerate.utils import DummyOptim\naccelerator = Accelerator()\n"
    "opt = DummyOptim(model.parameters())\n",
    integration="accelerate",
)
def optimizer_in_config_and_program(config: Config) -> Iterator[Finding]:
    """The config has an optimizer, and the program passes a torch optimizer to Accelerate.

    Accelerate raises "You cannot specify an optimizer in the config file and in the code at the same time. Please remove the optimizer from
    the config file or create `accelerate.utils.DummyOptim` in the code."

    Remove the section `optimizer` from the config, or create a `DummyOptim` in the program.
    """
    program = config.setup.program if config.setup else None
    if program is None or program.loader != "accelerate" or not config.has("optimizer"):
        return
    created = program.torch_optimizer
    if created is None or program.dummy_optimizer:
        return
    yield Finding(
        "optimizer",
        f"The config has an optimizer, and {created.where} creates another one ({created.raw}). If the program passes it to Accelerate, "
        'Accelerate raises "You cannot specify an optimizer in the config file and in the code at the same time".',
        help="Remove the section from the config, or create an accelerate.utils.DummyOptim in the program.",
        related=(created.related("created here"),),
        severity=Severity.WARNING,
        certain=False,
    )


@rule(
    "DS929",
    "config-params-keyword",
    effect=Effect.ADVICE,
    watches=("setup",),
    references=("deepspeed/__init__.py, initialize",),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program="import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config_params=ds_config)\n",
    integration="deepspeed",
)
@good(_STAGE_2, program="import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config=ds_config)\n", integration="deepspeed")
def config_params_keyword(config: Config) -> Iterator[Finding]:
    """A program passes the config to `deepspeed.initialize` under the old name `config_params`.

    It means the same as `config`, and exists for backwards compatibility. If both are given, DeepSpeed uses `config`.

    Write `config=`.
    """
    given = config.setup.program.legacy_keyword if config.setup and config.setup.program else None
    if given is not None:
        yield Finding(
            "",
            "config_params is the old name of the argument config of deepspeed.initialize, kept for backwards compatibility.",
            help="Write config=.",
            elsewhere=given.related(""),
        )


@rule(
    "DS945",
    "section-replaced-by-program",
    effect=Effect.IGNORED,
    watches=("setup",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine._configure_optimizer and _configure_lr_scheduler",),
)
@bad(
    _ADAMW,
    at="optimizer",
    program="import deepspeed\nimport torch\noptimizer = torch.optim.AdamW(model.parameters())\n"
    'deepspeed.initialize(model=model, optimizer=optimizer, config="ds_config.json")\n',
    integration="deepspeed",
)
@good(
    _ADAMW,
    program='import deepspeed\ndeepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n',
    integration="deepspeed",
)
def section_replaced_by_program(config: Config) -> Iterator[Finding]:
    """The program passes an optimizer or a schedule to `deepspeed.initialize`, and the config has one, too.

    DeepSpeed uses the object that the program passes. It does not read the section of the config: its type, its learning rate and its
    other parameters have no effect, and are not checked.

    Remove the section, or do not pass the object.
    """
    program = config.setup.program if config.setup else None
    argument = {"optimizer": "optimizer", "scheduler": "lr_scheduler"}
    for section, given in program.replaced.items() if program else ():
        if config.has(section):
            name = str(given.value).rpartition(".")[2]
            yield Finding(
                section,
                f"{given.where} passes {name} as {argument[section]} to deepspeed.initialize: DeepSpeed ignores this section.",
                help=f"Remove the section, or the argument {argument[section]}.",
                on="key",
                related=(given.related("passed here"),),
            )


_LOADING = (
    "from transformers import AutoModelForCausalLM, TrainingArguments\n"
    'arguments = TrainingArguments(output_dir="out", deepspeed="ds_config.json")\n'
    'model = AutoModelForCausalLM.from_pretrained("model"%s)\n'
)


@rule(
    "DS946",
    "device-map-with-zero-3",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("transformers/integrations/accelerate.py, check_and_set_device_map",),
    untried=RAISED_BY_LOADER,
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    at="zero_optimization.stage",
    program=_LOADING % ', device_map="auto"',
    integration="transformers",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}',
    program=_LOADING % "",
    integration="transformers",
)
@good(_STAGE_2, program=_LOADING % ', device_map="auto"', integration="transformers")
def device_map_with_zero_3(config: Config) -> Iterator[Finding]:
    """The program loads a model with `device_map`, and the config is for ZeRO stage 3.

    ZeRO stage 3 partitions the parameters over the ranks itself. Once the config is known to transformers, `from_pretrained` raises
    "DeepSpeed Zero-3 is not compatible with passing a `device_map`."

    Remove `device_map`. At stage 3 each rank needs only its part of the model.
    """
    given = config.setup.program.device_map if config.setup and config.setup.program else None
    if given is None or config.facts.integration not in HUGGING_FACE or not config.value("zero_optimization.stage") >= 3:
        return
    yield Finding(
        "zero_optimization.stage",
        f"{given.where} loads a model with {given.shown}: at ZeRO stage 3 transformers raises "
        '"DeepSpeed Zero-3 is not compatible with passing a `device_map`".',
        help="Remove device_map from the program.",
        related=(given.related("passed here"),),
        severity=Severity.WARNING,
        certain=False,
    )
