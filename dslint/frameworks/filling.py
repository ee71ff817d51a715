"""The values that integrations fill in for "auto", if the arguments or the model are known."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dslint.config.context import Context
from dslint.config.values import Origin, Value
from dslint.facts import Facts, Integration, Release
from dslint.facts.model_config import trained_part
from dslint.frameworks.own_loading import fill_own, own_arguments_that_fill
from dslint.job.arguments import Arguments, Said, SourcedValue, as_read
from dslint.job.events import Event
from dslint.job.model import Program, Setup
from dslint.schemas.derive import ACCUMULATION, MICRO
from dslint.schemas.trainer import FILLINGS, FROM_HIDDEN_SIZE, MIXED_PRECISION, ZEROS, Way
from dslint.source.unknown import UNKNOWN

AT_LEAST_ONE = Release(5, 17, 0)
"""The first release of transformers (between 5.16.1 and 5.19) in which a warm-up has at least one step."""

_TEXT_CONFIG = Release(4, 45, 99)
"""The last release of transformers (between 4.45 and 4.46.3) that does not look for the hidden size in `text_config`."""


TOTAL_STEPS = "scheduler.params.total_num_steps"

FILLED_AT_START = (TOTAL_STEPS, "scheduler.params.warmup_num_steps")
"""Keys that the Trainer fills and compares when it starts, with its arguments as they are then: `trainer_config_finalize`."""


class Filled:
    """The value that one or several arguments give a key. `sure` is False if one of them has a default that the program may change."""

    __slots__ = ("givens", "sure", "value")

    def __init__(self, value: Any, givens: tuple[SourcedValue, ...], *, sure: bool) -> None:
        self.value = value
        self.givens = givens
        self.sure = sure


def from_arguments(key: str, arguments: Arguments, facts: Facts) -> Filled:
    """The value that the Trainer computes for a key."""
    filling = FILLINGS[key]
    said = {name: arguments.said(name) for name in filling.arguments}
    value = _computed(filling.way, [one.value for one in said.values()], facts)
    if filling.way is Way.WARMUP and not 0 < _share(said) < 1:
        said.pop("max_steps")  # counts only where the warm-up is a share of all steps
        steps = said["warmup_steps"].value
        if steps is not UNKNOWN and steps >= 1:
            said.pop("warmup_ratio")
    decided = filling.way is Way.ANY and any(one.sure and one.value is True for one in said.values())  # one true value decides
    givens = tuple(one.given for one in said.values() if one.given is not None and (not decided or one.value is True))
    return Filled(value, givens, sure=decided or all(one.sure for one in said.values()))


def as_read_by_trainer(key: str, arguments: Arguments, program: Program | None) -> Arguments:
    """The arguments with the values that the Trainer fills in a key or compares with it.

    It reads most of them while their object is made (`trainer_config_process`): what a program sets in the object afterwards has no effect
    on the config. With `auto_find_batch_size` it reads them again when it starts.
    """
    if not arguments.before or key in FILLED_AT_START or arguments.said("auto_find_batch_size").value is True:
        return arguments
    made = arguments.when_made()
    if program is None or not program.makes_again:
        return made
    unknown = {name: replace(given, value=UNKNOWN) for name, given in arguments.values.items() if name in arguments.before}
    return replace(made, values={**made.values, **unknown})


def _share(said: Mapping[str, Said]) -> Any:
    """The share of all steps that the warm-up takes; 0 if it is a number of steps, or unknown."""
    steps, ratio = (said[name].value for name in ("warmup_steps", "warmup_ratio"))
    share = steps if steps is UNKNOWN or 0 < steps < 1 else ratio if steps == 0 else 0
    return 0 if share is UNKNOWN else share


def _computed(way: Way, values: list[Any], facts: Facts) -> Any:
    if way is Way.ANY:
        # One true value decides; otherwise both must be known.
        return any(value is True for value in values) or (UNKNOWN if any(value is UNKNOWN for value in values) else False)
    if way is Way.WARMUP:
        old = facts.loader_release is not None and facts.loader_release < AT_LEAST_ONE
        return _warmup(*values, least=0 if old else 1)
    if any(value is UNKNOWN for value in values):
        return UNKNOWN
    if way is Way.BATCH:
        return UNKNOWN if facts.world_size is None else math.prod(values) * facts.world_size
    if way is Way.PAIR:
        return values
    if way is Way.STEPS:
        return values[0] if values[0] > 0 else UNKNOWN
    return values[0]


def _warmup(steps: Any, ratio: Any, total: Any, *, least: int) -> Any:
    """`TrainingArguments.get_warmup_steps`: a whole number counts steps, a number below 1 is a fraction of all steps. At least `least`."""
    if steps is UNKNOWN or (steps == 0 and ratio is UNKNOWN):
        return UNKNOWN
    share = steps if 0 < steps < 1 else ratio if steps == 0 else 0
    if share:
        return max(least, math.ceil(total * share)) if isinstance(total, int) and total > 0 else UNKNOWN
    return max(least, int(steps))


_OF_THE_PLUGIN: dict[str, tuple[str, str, Any]] = {
    "zero_optimization.stage": ("zero_stage", "DEEPSPEED_ZERO_STAGE", 2),
    "zero_optimization.offload_optimizer.device": ("offload_optimizer_device", "DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "none"),
    "zero_optimization.offload_optimizer.nvme_path": ("offload_optimizer_nvme_path", "DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH", "none"),
    "zero_optimization.offload_param.device": ("offload_param_device", "DEEPSPEED_OFFLOAD_PARAM_DEVICE", "none"),
    "zero_optimization.offload_param.nvme_path": ("offload_param_nvme_path", "DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", "none"),
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": (
        "zero3_save_16bit_model",
        "DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
        False,
    ),
    "gradient_clipping": ("gradient_clipping", "GRADIENT_CLIPPING", 1.0),
}
"""What Accelerate puts in the place of "auto": from the flag of its launcher or the variable ACCELERATE_..., otherwise its default.

Source: accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__; accelerate/accelerator.py, _prepare_deepspeed.
"""


_PLUGIN = r"accelerate\.(\w+\.)*DeepSpeedPlugin"


def _from_calls(calls: list[Event], name: str) -> Value | None:
    """What a program's own plug-ins fill in, if they all name one value."""
    first = calls[0].argument(name)
    same = first is not None and type(first.value) in (str, int, float, bool)
    if first is None or not same or any(one is None or one.value != first.value for one in (call.argument(name) for call in calls)):
        return None
    return Value(first.value, Origin.FILLED, f"{name} in {calls[0].at.where}")


def _from_plugin(setup: Setup, key: str) -> Value | None:
    name, variable, default = _OF_THE_PLUGIN[key]
    launch, file = setup.launch, setup.accelerate
    calls = list(setup.program.events.of(_PLUGIN)) if setup.program is not None else []
    if any(name in call.arguments or not call.complete or "1" in call.arguments for call in calls):
        return _from_calls(calls, name)  # they count more than the variables
    given = file.flags.get(name) if file is not None else None
    if given is None and launch is not None:
        flag = launch.flags.get(name) if launch.launcher == "accelerate" else None
        given = flag or launch.variables.get(f"ACCELERATE_{variable}")
    if given is None:
        return Value(default, Origin.FILLED, "the default of Accelerate")
    if not isinstance(given.value, str):
        return None
    read = as_read("max_grad_norm", given.value) if isinstance(default, int | float) and not isinstance(default, bool) else given.value
    value = given.value.lower() == "true" if isinstance(default, bool) else read
    return None if value is UNKNOWN else Value(value, Origin.FILLED, f"{given.name} in {given.where}")


def fill(context: Context, key: str, source: str | None) -> Value | None:
    """The value that replaces "auto" in a key that the integration fills, None if it is not known.

    Args:
        context: names the integration, and holds the arguments.
        key: the dotted key.
        source: what it is filled from, for messages.
    """
    facts, setup = context.facts, context.setup
    if context.own_loader is not None:
        return fill_own(context, key)
    if key in FROM_HIDDEN_SIZE:
        return _from_model(facts, key)
    of_trainer = facts.integration is Integration.TRANSFORMERS and key not in FILLINGS
    if setup is not None and key in _OF_THE_PLUGIN and (of_trainer or facts.integration is Integration.ACCELERATE):
        return _from_plugin(setup, key)
    if facts.integration is Integration.TRANSFORMERS and setup is not None and setup.arguments is not None and key in FILLINGS:
        filled = from_arguments(key, as_read_by_trainer(key, setup.arguments, setup.program), facts)
        if filled.value is UNKNOWN or not filled.sure:
            return None
        where = ", ".join(dict.fromkeys(f"{given.name.lstrip('-')} in {given.where}" for given in filled.givens))
        return Value(filled.value, Origin.FILLED, where or f"the default of {' and '.join(FILLINGS[key].arguments)}")
    if facts.integration is Integration.ACCELERATE:
        return _from_accelerate(setup, key)
    return Value(0, Origin.FILLED, source) if key in ZEROS else None


def arguments_that_fill(context: Context, key: str) -> tuple[SourcedValue, ...]:
    """The arguments, with their places, from which the Trainer or a framework computes the value that replaces "auto" in a key."""
    setup = context.setup
    if context.own_loader is not None:
        return own_arguments_that_fill(context, key)
    if context.facts.integration is not Integration.TRANSFORMERS or setup is None or setup.arguments is None or key not in FILLINGS:
        return ()
    return from_arguments(key, as_read_by_trainer(key, setup.arguments, setup.program), context.facts).givens


def _from_model(facts: Facts, key: str) -> Value | None:
    model = facts.model
    size = hidden_size(facts)
    if model is None or size is None:
        return None
    value, power = FROM_HIDDEN_SIZE[key]
    for _ in range(power):  # in the order of the loaders: 0.9 * size * size is not always 0.9 * size**2
        value *= size
    return Value(int(value), Origin.FILLED, f"from hidden_size {size:,} in {model.path}")


def hidden_size(facts: Facts) -> int | None:
    """The hidden size that the integration finds in the model's config.json; None if it finds none, or the model is not known."""
    model = facts.model
    if model is None:
        return None
    data = trained_part(model.data)
    found = _size(data)
    release = facts.loader_release
    looks = facts.integration is Integration.TRANSFORMERS and (release is None or release > _TEXT_CONFIG)
    if found is None and looks and isinstance(data.get("text_config"), dict):
        found = _size(data["text_config"])
    return found


_ALIASES = {"gpt2": "n_embd", "gpt_bigcode": "n_embd", "gptj": "n_embd", "codegen": "n_embd", "openai-gpt": "n_embd", "ctrl": "n_embd"}
_ALIASES |= {"t5": "d_model", "mt5": "d_model", "bart": "d_model", "opt": "hidden_size", "whisper": "d_model", "mbart": "d_model"}
_ALIASES |= {"mpt": "d_model", "bloom": "n_embed", "distilbert": "dim", "pegasus": "d_model", "longt5": "d_model", "marian": "d_model"}
"""Model types that store the hidden size under another name in config.json; their classes map `hidden_size` to it."""


def _size(data: dict[str, Any]) -> int | None:
    family = data.get("model_type")
    alias = _ALIASES.get(family) if isinstance(family, str) else None
    for name in ("hidden_size", *([alias] if alias else [])):
        if isinstance(data.get(name), int) and data[name] > 0:
            return int(data[name])
    sizes = data.get("hidden_sizes")
    if isinstance(sizes, list) and sizes and all(isinstance(size, int) for size in sizes):
        return int(max(sizes))
    return None


def _from_accelerate(setup: Setup | None, key: str) -> Value | None:
    """What Accelerate fills without the Trainer: from its file, and from what the program gives it."""
    if setup is None:
        return None
    program, file = setup.program, setup.accelerate
    if key in MIXED_PRECISION:
        if program is not None and program.mixed_precision is not None:
            given = program.mixed_precision
            known = isinstance(given.value, str)
            return Value(given.value in MIXED_PRECISION[key], Origin.FILLED, f"mixed_precision in {given.where}") if known else None
        if file is None or not file.precision:
            return None
        given_in = file.get("mixed_precision")
        where = f"mixed_precision in {given_in.where}" if given_in else f"no mixed_precision in {file.path}"
        return Value(file.precision in MIXED_PRECISION[key], Origin.FILLED, where)
    if program is not None and key in _FROM_STAND_INS:
        return _from_stand_in(setup, program, key)
    if program is None or key not in (MICRO, ACCUMULATION):
        return None
    if key == MICRO:
        micro = program.loader_batch
        return Value(micro.value, Origin.FILLED, f"the data loader in {micro.where}") if micro and isinstance(micro.value, int) else None
    steps = accumulation(setup)
    return Value(steps, Origin.FILLED, "the accumulation steps of Accelerator") if key == ACCUMULATION and isinstance(steps, int) else None


_FROM_STAND_INS: dict[str, tuple[str, str, int, Any]] = {
    "optimizer.params.lr": ("DummyOptim", "lr", 1, 0.001),
    "optimizer.params.weight_decay": ("DummyOptim", "weight_decay", 2, 0),
    "scheduler.params.warmup_max_lr": ("DummyOptim", "lr", 1, 0.001),
    "scheduler.params.warmup_min_lr": ("DummyScheduler", "", 0, 0),
    "scheduler.params.warmup_num_steps": ("DummyScheduler", "warmup_num_steps", 2, 0),
    "scheduler.params.total_num_steps": ("DummyScheduler", "total_num_steps", 1, None),
}
"""Keys that Accelerate fills from a `DummyOptim` or a `DummyScheduler`: the argument, its place and its default.

Source: accelerate/utils/deepspeed.py; accelerate/accelerator.py, Accelerator._prepare_deepspeed.
"""


def _from_stand_in(setup: Setup, program: Program, key: str) -> Value | None:
    """What the only stand-in of a program gives a key."""
    kind, name, index, default = _FROM_STAND_INS[key]
    made = [one for one in program.events.all if one.name.startswith("accelerate.") and one.name.endswith(f".{kind}")]
    if not made and key == "scheduler.params.warmup_max_lr":
        made = [one for one in program.events.all if re.fullmatch(r"torch\.optim\.[A-Z]\w+", one.name)]
    if len(made) != 1 or not made[0].complete or not made[0].certain or made[0].flow:
        return None
    given = made[0].argument(name, index) if name else None
    value = given.value if given is not None else default
    if value is UNKNOWN or value is None or isinstance(value, str | bool):
        return None
    where = f"{name} of {made[0].name.rpartition('.')[2]} in {made[0].at.where}" if name else f"{kind} in {made[0].at.where}"
    if name == "warmup_num_steps" and value < 1:
        return None  # releases of Accelerate differ
    if name == "total_num_steps":
        ranks = setup.launch.world_size if setup.launch is not None else None
        ranks = ranks or (setup.accelerate.number("num_processes") if setup.accelerate is not None else None)
        splits = any(
            one.argument("split_batches") or one.argument("dataloader_config") or not one.complete
            for one in program.events.of(r"accelerate\.(.*\.)?Accelerator")
        )
        if not ranks or splits:
            return None
        value = math.ceil(value / ranks)
    return Value(value, Origin.FILLED, where)


def exported_accumulation(setup: Setup) -> SourcedValue | None:
    """The accumulation steps that an `Accelerator` reads from its environment: a flag of the launcher, the block of the Accelerate file, or
    the variable.
    """
    file, launch = setup.accelerate, setup.launch
    given = file.flags.get(ACCUMULATION) if file is not None else None
    if given is None and file is not None and file.config_file is None:
        given = file.block.get(ACCUMULATION)
    if given is None and launch is not None:
        given = launch.variables.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
    return given


def accumulation(setup: Setup) -> Any:
    """The accumulation steps of a program's `Accelerator`: what the launch exports counts more than its argument. `UNKNOWN` if they are not
    certain.
    """
    given = exported_accumulation(setup)
    if given is not None:
        return as_read("max_steps", given.value)
    if setup.program is None:
        return UNKNOWN
    asked = setup.program.accumulation
    return asked.value if asked is not None else 1 if setup.program.makes_accelerator else UNKNOWN
