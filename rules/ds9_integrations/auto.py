"""DS9: "auto" in keys that no integration fills in."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import UNKNOWN, Config, Violation, ViolationKind
from dslint.config.sections import default_of, drops_auto, forbids_unknown
from dslint.diagnostics import Applicability, Effect, LoadStep, Phase, SharedCause
from dslint.facts import Integration, Release
from dslint.rule import Finding, FixPlan, bad, good, rule, safe
from dslint.rules.helpers.fixes import without, write
from dslint.rules.helpers.loaders import is_loader_certain, is_program_unseen
from dslint.rules.helpers.messages import raises, shown_value
from dslint.rules.helpers.precision import bf16_section, model_dtype
from dslint.rules.helpers.unfilled import auto_from_plugin, batch_without_micro_batch, refused_by_framework, schedule_without_values
from dslint.schemas.auto import FILLED
from dslint.schemas.derive import ACCUMULATION, MICRO, TRAIN
from dslint.schemas.framework_commands import FILLERS
from dslint.source.change import Rename

HF_DOCS = "https://huggingface.co/docs/transformers/deepspeed"
UNCAST = "trains in the model's own data type, such as fp32"
"""What DeepSpeed does without fp16 and bf16: it does not cast the model, which a program may load in bf16."""

CONSEQUENCES = {
    "fp16.enabled": UNCAST,
    "bf16.enabled": UNCAST,
    "bfloat16.enabled": UNCAST,
    "zero_optimization.stage": "trains without ZeRO",
    "zero_optimization.offload_optimizer": "offloads nothing",
    "zero_optimization.offload_param": "offloads nothing",
    "zero_optimization.offload_optimizer.device": "offloads nothing",
    "zero_optimization.offload_param.device": "offloads nothing",
}
"""Keys for which DeepSpeed's default changes the training or its memory, and what DeepSpeed does with that default."""

PRECISIONS = ("fp16.enabled", "bf16.enabled", "bfloat16.enabled")
"""Of them, the keys without which the other precision counts, if it is enabled."""

REQUIRED = ("type", "params")
"""Keys without which their section has no effect."""

ADDED_BY_LIGHTNING = (MICRO, ACCUMULATION, "gradient_clipping")
"""Keys that Lightning adds from its own arguments if they are missing."""

AS_STRINGS = "drops these keys or reads them as strings:"

NOT_REPLACED = SharedCause(
    "auto-not-replaced",
    'These {count} values are "auto", and no integration replaces them. DeepSpeed ' + AS_STRINGS + " {keys}.",
    "Write the values, or let the Hugging Face Trainer or Accelerate load the file.",
)
"""Why "auto" stands in a config of plain DeepSpeed or Lightning."""

PROGRAM_REPLACES = SharedCause(
    "auto-unless-the-program-replaces-it",
    'These {count} values are "auto", and no integration replaces them. Unless the program does, DeepSpeed ' + AS_STRINGS + " {keys}.",
    "Write the values, or set them in the program before deepspeed.initialize.",
)
"""Why "auto" stands in a config of which it is not known how the program passes it to DeepSpeed."""

_LOADERS = ("the Hugging Face Trainer", "Accelerate", *FILLERS)
_REPLACE = f"{', '.join(_LOADERS[:-1])} and {_LOADERS[-1]}"
"""Who replaces "auto"."""

PERHAPS_REPLACED = SharedCause(
    "auto-perhaps-replaced",
    f'These {{count}} values are "auto". Only {_REPLACE} replace them; without them DeepSpeed ' + AS_STRINGS + " {keys}.",
    "If the Trainer or Accelerate loads this file, pass --integration transformers or --integration accelerate. Otherwise write the values.",
)
"""Why "auto" stands in a config that some program loads."""

NAME_THE_LOADER = " If the Trainer or Accelerate loads this file, pass --integration transformers or --integration accelerate."


@rule(
    "DS901",
    effect=Effect.SILENT,
    watches=("violation:auto-dropped", "violation:auto-undecided"),
    references=(HF_DOCS, "deepspeed/runtime/config_utils.py, DeepSpeedConfigModel.__init__"),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": "auto"}}',
    at="bf16.enabled",
    integration="deepspeed",
    message='bf16.enabled is "auto", and no integration replaces it: DeepSpeed 0.19.8 drops the key and trains in the model\'s own data type, such as fp32 (default: false).',
    fixed='{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": false}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "bf16": {"enabled": "auto"}}',
    at="bf16.enabled",
    integration="deepspeed",
    message='bf16.enabled is "auto", and no integration replaces it: DeepSpeed 0.19.8 drops the key and trains in fp16 (default: false).',
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "bf16": {"enabled": false}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": "auto"}}',
    at="fp16.enabled",
    message='fp16.enabled is "auto". Only the Hugging Face Trainer and Accelerate replace it; without them DeepSpeed 0.19.8 drops the key and trains in the model\'s own data type, such as fp32 (default: false).',
)
@bad(
    '{"zero_optimization": {"stage": "auto"}}',
    at="zero_optimization.stage",
    integration="lightning",
    message='zero_optimization.stage is "auto", and no integration replaces it: DeepSpeed 0.19.8 drops the key and trains without ZeRO (default: 0).',
    fixed='{"zero_optimization": {"stage": 0}}',
)
@good('{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}', integration="transformers")
@good('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}}', integration="deepspeed")
def auto_dropped(config: Config) -> Iterator[Finding]:
    """DeepSpeed drops an "auto" that no integration replaces, and uses the default.

    "auto" is a feature of the Hugging Face integrations: the Trainer and Accelerate replace it before DeepSpeed reads the config. DeepSpeed
    itself removes every "auto" from `zero_optimization`, `fp16`, `bf16` and the other sections that it parses with pydantic, so
    `"bf16": {"enabled": "auto"}` silently casts nothing: the model trains in fp32, or in the type in which the program
    loads it. (Up to 0.17.0 the string counted as true for fp16 and bf16.) Lightning does not replace "auto" either.

    Write the value. If the Trainer or Accelerate loads the file, pass `--integration transformers` or `--integration accelerate`. As long as
    the integration is not known, the finding is a warning, and only keys are reported whose default changes the training.
    """
    for violation in _left(config, ViolationKind.AUTO_DROPPED, ViolationKind.AUTO_UNDECIDED):
        if violation.kind is ViolationKind.AUTO_UNDECIDED and not _drops(config, violation):
            continue
        key = violation.key
        changes_training = key in CONSEQUENCES
        known = violation.kind is ViolationKind.AUTO_DROPPED
        if not known and not changes_training:
            continue  # what is lost is a default that no training depends on
        drops = f"DeepSpeed {config.release} drops the key and {_consequence_of_default(config, violation)}"
        message = (
            f'{key} is "auto", and {_nobody(config)}: {"unless the program does, " if _may_be_set(config) else ""}{drops}.'
            if known
            else f'{key} is "auto". Only {_REPLACE} replace it; without them {drops}.'
        )
        yield Finding(
            violation.path,
            message,
            help=_advice(config, violation, known=known),
            fix=_write_default(config, violation, Applicability.UNSAFE if changes_training else Applicability.SAFE) if known else None,
            on="value",
            effect=Effect.SILENT if changes_training else Effect.ADVICE,
            pedantic=not changes_training,
            certain=known and not _may_be_set(config),
            cause=_cause(config, violation, known=known)._replace(at_key=_consequence(config, key) if changes_training else ""),
        )


def _left(config: Config, *kinds: ViolationKind) -> Iterator[Violation]:
    """The violations of some kinds at keys that the program does not set itself."""
    return (violation for violation in config.violations_of(*kinds) if not config.is_set_later(violation.path))


def _may_be_set(config: Config) -> bool:
    """Whether the program may set values before it calls deepspeed.initialize: it has code that replaces "auto", nobody has seen that call,
    only that there is one, or nobody has seen the program.
    """
    program = config.setup.program if config.setup is not None else None
    if config.facts.integration is Integration.DEEPSPEED and program is not None and program.fills_auto:
        return True
    if is_program_unseen(config):
        return True
    if config.facts.integration is not Integration.DEEPSPEED or "integration" not in config.evidence or config.facts.passed_as is not None:
        return False
    return config.setup is not None and config.setup.program is not None


def _nobody(config: Config) -> str:
    """That what loads the config does not replace an "auto"."""
    own = config.context.own_loader
    return "no integration replaces it" if own is None else f"{own.name} does not replace it"


def _consequence(config: Config, key: str) -> str:
    dtype = model_dtype(config)
    return f"trains in {dtype}" if key in PRECISIONS and dtype in ("fp16", "bf16") else CONSEQUENCES[key]


def _consequence_of_default(config: Config, violation: Violation) -> str:
    """What DeepSpeed does after it dropped an "auto": `trains without ZeRO (default: 0)`."""
    default = "" if violation.becomes is UNKNOWN or violation.becomes is None else shown_value(violation.becomes)
    if violation.key in CONSEQUENCES:
        return _consequence(config, violation.key) + (f" (default: {default})" if default else "")
    return f"uses its default, {default}" if default else "uses its default"


def _drops(config: Config, violation: Violation) -> bool:
    """Whether DeepSpeed itself drops an "auto" there, as it does in the sections that it parses with pydantic."""
    release, section = config.release, violation.section
    return "hand" not in violation.spec and forbids_unknown(section, release) and drops_auto(section, release)


def _advice(config: Config, violation: Violation, *, known: bool) -> str:
    other = {"fp16.enabled": bf16_section(config), "bf16.enabled": "fp16"}.get(violation.key)
    if known and other is not None and config.enabled(other) is True:
        return f"Write false: {other} is enabled."
    write = "Write true or false." if "bool" in violation.spec.get("types", ()) else "Write the value."
    return write if known else write + NAME_THE_LOADER


def _write_default(config: Config, violation: Violation, kind: Applicability) -> FixPlan | None:
    """Write DeepSpeed's default, or remove the key if the default cannot be written. None for a required key."""
    default = default_of(violation.spec, config.release)
    if default != "auto" and isinstance(default, bool | int | float | str | list | tuple):
        return write(config, violation.path, shown_value(default), kind)
    return without(config, violation.path, kind) if violation.path[-1] not in REQUIRED and default is not UNKNOWN else None


def _replace_kept(config: Config, violation: Violation, *, crash: bool) -> FixPlan | None:
    """Replace an "auto" that reaches DeepSpeed: remove the key if its value is then computed, otherwise write the default."""
    kind, key = Applicability.SAFE if crash else Applicability.UNSAFE, violation.key
    others = {TRAIN: MICRO, MICRO: TRAIN}
    computed = key == ACCUMULATION or (key in others and isinstance(config.value(others[key]), int))
    if computed or (config.facts.integration is Integration.LIGHTNING and key in ADDED_BY_LIGHTNING):
        return without(config, violation.path, kind)
    if key in others or (violation.section.endswith(".params") and key in FILLED[Integration.TRANSFORMERS]):
        return None  # only the author of the config knows the value
    return _write_default(config, violation, kind)


@rule(
    "DS902",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    watches=("violation:auto-kept", "violation:auto-undecided"),
    references=(HF_DOCS,),
)
@bad(
    '{"train_batch_size": "auto"}',
    at="train_batch_size",
    integration="deepspeed",
    message="train_batch_size is \"auto\", and no integration replaces it: DeepSpeed raises TypeError \"unsupported operand type(s) for //: 'str' and 'int'\" while parsing.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": "auto"}',
    at="gradient_clipping",
    integration="lightning",
    message="gradient_clipping is \"auto\", and no integration replaces it: DeepSpeed raises TypeError \"'>' not supported between instances of 'str' and 'float'\" at the first step.",
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@bad(
    '{"train_batch_size": "auto"}',
    at="train_batch_size",
    launch="deepspeed train.py --deepspeed ds_config.json\n",
    program="import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--deepspeed')\n"
    "args = parser.parse_args()\nprepare(args)\nconfig = args.filled.config\n"
    "if config.get('train_batch_size') == 'auto':\n    config['train_batch_size'] = args.size\n"
    "config['zero_allow_untested_optimizer'] = True\ndeepspeed.initialize(model=model, config_params=config)\n",
    message="train_batch_size is \"auto\", and no integration replaces it: unless the program does, DeepSpeed raises TypeError \"unsupported operand type(s) for //: 'str' and 'int'\" while parsing.",
)
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers")
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "gradient_predivide_factor": "auto"}',
    at="gradient_predivide_factor",
    integration="transformers",
    loader_release=Release(4, 27, 1),
    message="gradient_predivide_factor is \"auto\", and no integration replaces it: DeepSpeed raises TypeError \"unsupported operand type(s) for /: 'float' and 'str'\" at the first step.",
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 2}, "gradient_predivide_factor": 1.0}',
)
@good('{"train_batch_size": 8}', integration="deepspeed")
@good('{"train_batch_size": 8, "fp16": {"enabled": false, "loss_scale": "auto"}}', integration="deepspeed", deepspeed="0.15.4")
def auto_kept(config: Config) -> Iterator[Finding]:
    """DeepSpeed reads an "auto" that no integration replaces as a string.

    DeepSpeed reads top-level keys, `optimizer.params`, `scheduler.params` and some other sections without a type check. The string reaches
    code that expects a number and raises `TypeError: '>' not supported between instances of 'str' and 'int'`; where a boolean is expected
    it counts as true.

    Write the value. If the Trainer or Accelerate loads the file, pass `--integration transformers` or `--integration accelerate`.
    """
    for violation in _left(config, ViolationKind.AUTO_KEPT, ViolationKind.AUTO_UNDECIDED):
        if violation.kind is ViolationKind.AUTO_UNDECIDED and _drops(config, violation):
            continue
        if violation.path[0] == "fp16" and config.value("fp16.enabled") is False:
            continue  # DeepSpeed reads the rest of the section only with fp16
        known = violation.kind is ViolationKind.AUTO_KEPT
        outcome = _outcome_of_string(violation)
        message = (
            f'{violation.key} is "auto", and {_nobody(config)}: {"unless the program does, " if _may_be_set(config) else ""}DeepSpeed {outcome}.'
            if known
            else f'{violation.key} is "auto". Unless an integration replaces it, DeepSpeed {outcome}.'
        )
        raised = violation.consequence if violation.raises else None
        yield Finding(
            violation.path,
            message,
            help=_advice(config, violation, known=known),
            fix=_replace_kept(config, violation, crash=raised is not None) if known else None,
            on="value",
            effect=None if raised else Effect.SILENT,
            phase=Phase(raised[1]) if raised else None,
            certain=known and not _may_be_set(config),
            cause=_cause(config, violation, known=known),
        )


def _cause(config: Config, violation: Violation, *, known: bool) -> SharedCause:
    """What several values have in common. Where DeepSpeed raises for this one, that is what happens, whatever it does with the others."""
    own = config.context.own_loader
    cause = (PROGRAM_REPLACES if _may_be_set(config) else NOT_REPLACED) if known else PERHAPS_REPLACED
    if own is not None:
        message = f'These {{count}} values are "auto", and {own.name} does not replace them. DeepSpeed {AS_STRINGS} {{keys}}.'
        cause = SharedCause("auto-not-replaced", message, "Write the values.")
    if not violation.raises:
        return cause
    outcome = f"{_outcome_of_string(violation)} ({violation.key})"
    batch = {one.key for one in config.violations_of(violation.kind)} & {TRAIN, MICRO, ACCUMULATION}
    if violation.key in batch and len(batch) > 1:  # which of them raises, and with what message, depends on the others
        outcome = "raises TypeError while parsing"
    return cause._replace(message=cause.message.replace(AS_STRINGS, f"{outcome}. The keys:"))


def _outcome_of_string(violation: Violation) -> str:
    """What DeepSpeed does with the string "auto", from the key table."""
    consequence = violation.consequence or ("passes", "")
    if consequence[0] == "raises":
        return raises(consequence[2], consequence[1])
    if consequence[0] == "truthy":
        return "treats the string as true"
    return consequence[1] or "keeps the string"


_WITH_ADAMW = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, '
    '"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}'
)
_DUMMIES = (
    "from accelerate import Accelerator\nfrom accelerate.utils import DummyOptim, DummyScheduler\naccelerator = Accelerator()\n"
    "opt = DummyOptim(model.parameters())\n"
)
_PLUGIN = (
    "from accelerate import Accelerator, DeepSpeedPlugin\n"
    'Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds_config.json", zero_stage={}))\n'
)


@rule(
    "DS903",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.END,
    watches=("violation:auto-unfilled", "=auto"),
    references=(HF_DOCS,),
    untried="raised by Accelerate, not by DeepSpeed",
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "sub_group_size": "auto"}}',
    at="zero_optimization.sub_group_size",
    integration="transformers",
    message='zero_optimization.sub_group_size is "auto", but the Hugging Face Trainer has no value for it: it raises ValueError "not found in kwargs" after the model is loaded.',
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "sub_group_size": 1e9}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}, "zero_optimization": {"stage": 2}}',
    at="optimizer.params.betas",
    integration="accelerate",
    message='optimizer.params.betas is "auto", but Accelerate has no value for it: it raises ValueError "not found in kwargs" after the model is loaded.',
    fixed='{"train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.999]}}, "zero_optimization": {"stage": 2}}',
)
@bad(
    '{"train_batch_size": "auto", "zero_allow_untested_optimizer": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "zero_optimization": {"stage": 2}}',
    at="zero_allow_untested_optimizer",
    integration="transformers",
    message='zero_allow_untested_optimizer is "auto", but the Hugging Face Trainer has no value for it: it raises ValueError "not found in kwargs" after the model is loaded.',
    fixed='{"train_batch_size": "auto", "zero_allow_untested_optimizer": false, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "zero_optimization": {"stage": 2}}',
)
@bad(
    '{"train_batch_size": "auto", "tensor_parallel": {"autotp_size": 2, "dtype": "auto"}, "zero_optimization": {"stage": 1, "stage3_gather_16bit_weights_on_model_save": true}}',
    at="tensor_parallel.dtype",
    integration="transformers",
    message='tensor_parallel.dtype is "auto", but the Hugging Face Trainer has no value for it: it raises ValueError "not found in kwargs" after the model is loaded.',
    fixed='{"train_batch_size": "auto", "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 1, "stage3_gather_16bit_weights_on_model_save": true}}',
)
@bad(
    _WITH_ADAMW + ', "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10, "total_num_steps": "auto"}}}',
    at="scheduler.params.total_num_steps",
    program=_DUMMIES + "accelerator.prepare(model, opt, DummyScheduler(opt))\n",
    integration="accelerate",
    message='scheduler.params.total_num_steps is "auto", and the DummyScheduler of train.py:5 has no total_num_steps: Accelerate raises "`scheduler.params.total_num_steps` not found in kwargs".',
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}',
    at="train_batch_size",
    integration="accelerate",
    message='train_batch_size is "auto", and train_micro_batch_size_per_gpu is not written: Accelerate raises "`train_batch_size` not found in kwargs".',
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": "auto"}}',
    at="zero_optimization.stage",
    training="base_model: m\nmicro_batch_size: 2\n",
    message='zero_optimization.stage is "auto", and axolotl passes it to Accelerate as it is: Accelerate raises "invalid literal for int() with base 10: \'auto\'".',
)
@bad(
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": "auto"}}',
    at="zero_optimization.stage",
    program=_PLUGIN.format('"auto"'),
    integration="accelerate",
    message='zero_stage is "auto" in the DeepSpeedPlugin of train.py:2, which Accelerate does not replace: `prepare` raises ValueError "`zero_optimization.stage` not found in kwargs".',
)
@good(
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": "auto"}}',
    program=_PLUGIN.format("2"),
    integration="accelerate",
)
@good(
    '{"train_batch_size": "auto", "zero_allow_untested_optimizer": "auto", "zero_optimization": {"stage": 2}}', integration="transformers"
)
@good(
    '{"train_batch_size": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}, "zero_optimization": {"stage": 2}}',
    integration="transformers",
)
def auto_not_filled(config: Config) -> Iterator[Finding]:
    """A key is "auto", but the integration has no value for it.

    The Hugging Face Trainer and Accelerate replace "auto" in a fixed set of keys. For any other key they raise `ValueError: ... not found in
    kwargs. Please specify it without "auto"`, and only after the model is loaded. Accelerate has values of a schedule only from the
    `DummyScheduler` of the program, and one of `train_batch_size` only where the micro batch size is written.

    Write a value, or remove the key to use DeepSpeed's default.
    """
    for violation in _left(config, ViolationKind.AUTO_UNFILLED):
        integration = config.facts.integration
        assert isinstance(integration, Integration)
        inferred = not is_loader_certain(config)
        loader, own = config.context.loader_name, config.context.own_loader
        late = 'ValueError "not found in kwargs" after the model is loaded' if own is None else f'"{own.raises.format(key=violation.key)}"'
        raising = "if it loads this file, it raises" if inferred else "it raises"
        default = violation.spec.get("default")
        advice = "Write a value, or remove the key" + (f" (DeepSpeed then uses {shown_value(default)})." if default is not None else ".")
        if violation.path[-1] == "enabled":
            advice = "Write true or false."
        if default == "auto":
            advice = 'Remove the key: "auto" is DeepSpeed\'s default.'
        other_name = f"stage3_{violation.path[-1]}"
        if f"{violation.section}.{other_name}" in FILLED[integration]:
            advice = f'Write "{other_name}", the only name that the integrations fill in. {advice}'
            fix = _rename(config, violation, other_name)
        else:
            fix = _write_default(config, violation, Applicability.SAFE)
        yield Finding(
            violation.path,
            f'{violation.key} is "auto", but {loader} has no value for it: {raising} {late}.',
            help=advice,
            fix=fix,
            on="value",
            certain=not inferred,
            cause=SharedCause(
                "auto-not-filled",
                f'{{count}} values are "auto", but {loader} has no value for them: {{keys}}. {raising[0].upper()}{raising[1:]} {late}.',
                "Write values, or remove the keys to use the defaults of DeepSpeed.",
            ),
        )
    yield from schedule_without_values(config)
    yield from batch_without_micro_batch(config)
    yield from auto_from_plugin(config)
    yield from refused_by_framework(config)


def _rename(config: Config, violation: Violation, name: str) -> FixPlan | None:
    """Rename a key, unless the other name is used already."""
    return None if config.has((*violation.path[:-1], name)) else safe(f'rename to "{name}"', Rename(violation.path, name))
