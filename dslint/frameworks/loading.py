"""What the Hugging Face loaders write into a config besides the values of "auto".

Sources: accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__ and set_mixed_precision; accelerate/accelerator.py,
_prepare_deepspeed; transformers/integrations/deepspeed.py, deepspeed_optim_sched; lightning/pytorch/strategies/deepspeed.py,
_format_batch_size_and_grad_accum_config.
"""

from __future__ import annotations

import math
from typing import Any

from dslint.config import Config
from dslint.config.values import Origin, Value
from dslint.facts import Integration
from dslint.frameworks import lightning
from dslint.frameworks.accelerate import set_by_flags, set_by_variables
from dslint.frameworks.registry import named
from dslint.job.arguments import SourcedValue
from dslint.job.model import Setup
from dslint.schemas.derive import ACCUMULATION, MICRO, TRAIN
from dslint.source.tree import Mapping, Member, Path
from dslint.source.unknown import UNKNOWN


def added(config: Config) -> dict[Path, Value]:
    """The keys that Accelerate, alone or for the Trainer, or Lightning writes into a config with a setup."""
    setup, loader = config.setup, config.facts.integration
    if setup is not None and loader is Integration.LIGHTNING:
        return lightning.added(config, setup)
    if loader not in (Integration.TRANSFORMERS, Integration.ACCELERATE) or not isinstance(config.document.root, Mapping):
        return {}
    if not config.facts.passes_accelerate:
        note = _untested(config, setup) if setup is not None and setup.arguments is not None else ""
        return {_UNTESTED: _written(value=True, note=note)} if note else {}
    found: dict[Path, Value] = {("steps_per_print",): _written(math.inf, "Accelerate switches the log of DeepSpeed off")}
    if setup is None or (loader is Integration.TRANSFORMERS and setup.arguments is None):
        return found if config.has("steps_per_print") else {}
    if not config.has("gradient_accumulation_steps"):
        found["gradient_accumulation_steps",] = _written(1, "Accelerate's value for a config without the key")
    if setup.made and setup.accelerate is not None:
        found |= {path: _written(value, _where(given)) for path, (value, given) in set_by_flags(setup.accelerate).items()}
    elif setup.link is not None and setup.link.name == "DeepSpeedPlugin":
        found |= {path: _written(value, _where(given)) for path, (value, given) in set_by_variables(setup.launch, setup.program).items()}
    found |= _precision(config, setup)
    framework = named(setup.arguments.framework) if setup.arguments is not None else None
    if framework is not None and framework.adds is not None and setup.arguments is not None:
        note = f"{framework.name} writes it"
        found |= {path: _written(value, note) for path, value in framework.adds(setup.arguments).items()}
    if loader is Integration.ACCELERATE and config.is_auto(TRAIN):
        factors = config.value(MICRO), config.value(ACCUMULATION), config.facts.world_size
        if all(isinstance(one, int) for one in factors):
            found[TRAIN,] = _written(math.prod(factors), "the micro batch size, the accumulation steps and the ranks")
    note = _untested(config, setup)
    if note:
        found[_UNTESTED] = _written(value=True, note=note)
    return found


_UNTESTED = ("zero_allow_untested_optimizer",)


def _written(value: Any, note: str) -> Value:
    return Value(value, Origin.FILLED, note)


def _where(given: SourcedValue) -> str:
    return f"{given.name} in {given.where}"


def _precision(config: Config, setup: Setup) -> dict[Path, Value]:
    """The sections for fp16 and bf16 that the config does not have."""
    is_made = setup.made and setup.accelerate is not None  # its sections are those of the precision
    if not is_made and all(_has_section(config, kind) for kind in ("fp16", "bf16")):
        return {}
    selected, note = mixed_precision(config, setup)
    others = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}
    if not is_made and selected in others and config.literal((others[selected], "enabled")) is True:
        return {}  # Accelerate raises
    found: dict[Path, Value] = {}
    for kind, modes in (("fp16", ("fp16",)), ("bf16", ("bf16", "fp8"))):
        if not is_made and _has_section(config, kind):
            continue
        enabled = UNKNOWN if selected is UNKNOWN else selected in modes
        found[kind, "enabled"] = _written(enabled, note)
        if kind == "fp16" and enabled is True:
            found["fp16", "auto_cast"] = _written(value=True, note=note)
    return found


def _has_section(config: Config, kind: str) -> bool:
    found = config.document.lookup((kind,))
    return isinstance(found, Member)


def mixed_precision(config: Config, setup: Setup) -> tuple[Any, str]:
    """The mixed precision that Accelerate gets: "no", "fp16", "bf16" or "fp8", `UNKNOWN` if it is not certain; and what says so."""
    if config.facts.integration is Integration.TRANSFORMERS and setup.arguments is not None:
        for kind in ("fp16", "bf16"):
            said = setup.arguments.said(kind)
            if said.value is True and (said.sure or said.given is not None):
                where = f"{said.given.name.lstrip('-')} in {said.given.where}" if said.given else f"{kind} is the default"
                return kind, where
            if said.value is UNKNOWN or not said.sure:
                return UNKNOWN, "it depends on the training arguments"
    elif setup.program is not None and setup.program.mixed_precision is not None:
        given = setup.program.mixed_precision
        return (given.value if isinstance(given.value, str) else UNKNOWN), f"mixed_precision in {given.where}"
    file = setup.accelerate
    if file is not None:
        selected = file.precision_flag or file.top.get("mixed_precision")
        return file.precision or UNKNOWN, f"mixed_precision in {selected.where}" if selected else f"no mixed_precision in {file.path}"
    launch = setup.launch
    if launch is None or launch.launcher == "accelerate":  # its file may be in the user's home
        return UNKNOWN, "it depends on the launch"
    variable = launch.variables.get("ACCELERATE_MIXED_PRECISION")
    if variable is not None:
        return variable.value, _where(variable)
    return "no", "no mixed precision is selected"


def _untested(config: Config, setup: Setup) -> str:
    """Why Accelerate allows an optimizer that DeepSpeed has not tested; "" if it does not, or that is not known."""
    if config.has("optimizer"):
        return ""
    if config.facts.integration is Integration.TRANSFORMERS:
        return "the Trainer passes an optimizer of its own"
    program = setup.program
    if program is not None and program.torch_optimizer is not None and not program.dummy_optimizer:
        return f"the program passes {program.torch_optimizer.name} ({program.torch_optimizer.where})"
    return ""
