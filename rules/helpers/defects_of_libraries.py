"""Releases of one library with a defect that some trainings run into."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Place, Range
from dslint.facts import Integration, Release
from dslint.job.arguments import SourcedValue
from dslint.job.events import ENGINE, MODELS, TRAINERS, Event, GivenArgument, is_true
from dslint.rules.helpers.checkpoint import resumed_from
from dslint.rules.helpers.loaders import (
    HUGGING_FACE,
    WITH_HOSTFILE,
    accelerate_file,
    names_its_release,
    starts_deepspeed,
    trainer_arguments,
)
from dslint.rules.helpers.model import trains_adapter
from dslint.rules.helpers.models import ENGINES, divides_at_load, managed_models
from dslint.rules.helpers.prepare import PREPARE
from dslint.rules.helpers.project import blocks_around, programs_of, project_around
from dslint.rules.helpers.releases import ReleaseDefect
from dslint.rules.helpers.zero import STAGE
from dslint.source.unknown import UNKNOWN

if TYPE_CHECKING:
    from dslint.setups.project import Project

_ACCUMULATION = "gradient_accumulation_steps"
_CREATES_AGAIN = Release(5, 0, 0)
"""The first transformers whose Trainer calls its own `create_optimizer` after it has made the stand-in for an optimizer section."""
_FREEZES_UP_TO = Release(0, 16, 7)
"""The newest DeepSpeed that is known to refuse a frozen model in bf16 without an optimizer; 0.19.8 takes it."""
_NAMES_REMOVED = Release(2, 4, 0)
"""The first torch without two private names of torch.distributed.elastic that older releases of DeepSpeed import."""


def _events(config: Config, *patterns: str) -> Iterator[Event]:
    """The events of the program, without those that a flag has to select."""
    program = config.setup.program if config.setup else None
    return (one for one in program.events.of(*patterns) if not one.unlikely) if program is not None else iter(())


def _several_ranks(config: Config) -> bool:
    return config.facts.world_size != 1


def _steps_a_schedule(config: Config) -> Event | None:
    if config.facts.integration is not Integration.ACCELERATE or not _several_ranks(config):
        return None
    schedules = ("torch.optim.lr_scheduler.", "transformers.get_", "transformers.optimization.get_")
    calls = _events(config, PREPARE)
    return next((call for call in calls if any(one.made.startswith(schedules) for one in call.arguments.values())), None)


def _saves_model(config: Config) -> Event | None:
    at_stage_3 = config.facts.integration is Integration.ACCELERATE and config.value(STAGE) >= 3 and _several_ranks(config)
    return next(_events(config, r"accelerate\.(\w+\.)*Accelerator\.save_model"), None) if at_stage_3 else None


def _accumulates(config: Config) -> str | None:
    """The key with the accumulation of the Trainer, unless a program replaces the method that divides the loss: in a class, or for all Trainers."""
    if config.facts.integration is not Integration.TRANSFORMERS or not config.value(_ACCUMULATION) > 1:
        return None
    return None if any("training_step" in text for text in programs_of(config)) else _ACCUMULATION


def _adapter_with(argument: str) -> Callable[[Config], Event | None]:
    def shows(config: Config) -> Event | None:
        if not config.value(STAGE) >= 3 or not divides_at_load(config):
            return None
        arguments = config.arguments.values if config.arguments is not None else {}
        by_arguments = not arguments.keys().isdisjoint((argument, f"lora_{argument}"))
        made = [one for one in _events(config, r"peft\.(\w+\.)*\w+Config") if one.argument(argument) is not None]
        return next((one for one in made if by_arguments or _names_some(one.argument(argument))), None)

    return shows


_WITH_HEAD = re.compile(r"(SEQ|TOKEN)_CLS")
"""The task types for which PEFT adds the head of the model to `modules_to_save`. Source: peft/peft_model.py, PeftModelForSequenceClassification."""


def _wraps_modules(config: Config) -> Event | None:
    """An adapter at stage 3 that wraps modules which are trained whole: those that it names, or the head that its task has."""
    named = _adapter_with("modules_to_save")(config)
    if named is not None or not config.value(STAGE) >= 3 or not divides_at_load(config):
        return named
    made = _events(config, r"peft\.(\w+\.)*\w+Config")
    tasks = ((one, one.argument("task_type")) for one in made)
    return next((one for one, task in tasks if task is not None and _WITH_HEAD.search(f"{task.raw} {task.value}")), None)


def _on_divided(pattern: str, argument: str = "") -> Callable[[Config], Event | None]:
    """A call for a model whose weights ZeRO stage 3 divides while it is loaded, with an argument that is certainly true if one is named."""

    def shows(config: Config) -> Event | None:
        if not config.value(STAGE) >= 3 or not divides_at_load(config):
            return None
        return next((one for one in _events(config, pattern) if not argument or is_true(one.argument(argument))), None)

    return shows


_AUTOCAST = r"torch(\.cuda)?(\.amp)?(\.autocast_mode)?\.autocast"
_CALLS = ("__call__", "forward", "train_batch", "eval_batch")


def _in_autocast(config: Config) -> Event | None:
    """A call of an engine inside a torch.autocast for the GPU that nothing switches off."""
    program = config.setup.program if config.setup else None
    if program is None or config.document.root is None or config.enabled("torch_autocast") is True:
        return None
    contexts = list(program.events.of(_AUTOCAST))
    if not contexts or any(_is_off(one) for one in contexts):
        return None
    managed = managed_models(program.events, *ENGINES)
    for number, one in enumerate(program.events.all):
        of_engine = one.name.startswith(f"{ENGINE}.") or managed.get(one.origin or 0, number) < number
        if of_engine and one.name.endswith(_CALLS) and not one.unlikely and any(re.fullmatch(_AUTOCAST, context) for context in one.within):
            return one
    return None


def _is_off(autocast: Event) -> bool:
    """Whether a torch.autocast is for the CPU, or switched off, or only the value of a flag decides that."""
    device, enabled = autocast.argument("device_type", 0), autocast.argument("enabled")
    is_for_cpu = device is not None and device.value == "cpu"
    return is_for_cpu or (enabled is not None and (enabled.value is False or bool(enabled.depends_on)))


def _torch_without_names(config: Config) -> str | None:
    torch = config.context.at_least("torch")
    return "" if torch is not None and torch >= _NAMES_REMOVED else None


_OF_BITSANDBYTES = ("adamw_bnb_8bit", "adamw_8bit", "paged_adamw", "paged_adamw_32bit", "paged_adamw_8bit")
"""The values of `optim` for which the Trainer makes an AdamW of bitsandbytes."""


def _maps_optimizer(config: Config) -> SourcedValue | None:
    """The AdamW of bitsandbytes that Accelerate replaces because the optimizer is offloaded."""
    device = config.value("zero_optimization.offload_optimizer.device")
    is_mapped = device in ("cpu", "nvme") and config.value("zero_force_ds_cpu_optimizer") is True and not config.has("optimizer")
    given = config.arguments.get("optim") if config.arguments is not None else None
    return given if is_mapped and given is not None and given.value in _OF_BITSANDBYTES else None


def _loads_in_little_memory(config: Config) -> Event | None:
    if config.facts.integration in HUGGING_FACE:
        return None  # DS946
    return _on_divided(r"transformers\.(\w+\.)*\w+\.from_pretrained", "low_cpu_mem_usage")(config)


_STATE = r"accelerate\.(\w+\.)*PartialState"
_ACCELERATOR = r"accelerate\.(\w+\.)*Accelerator"
_TRAINS_BY_ACCELERATOR = r"trl\.(\w+\.)*(PPOTrainer|PPOv2Trainer|RLOOTrainer)"
_MODELS_OF_PPO = ("policy", "value_model")
"""Arguments of the TRL trainers that make an `Accelerator` themselves and take training arguments; older and newer ones of these names have neither."""


def _makes_accelerator_late(config: Config) -> Event | None:
    """The first `Accelerator` of a program, if it has no plugin and comes behind training arguments or a `PartialState`.

    A Trainer makes an `Accelerator` with the plugin of its arguments: one that is made after it finds the state of that.
    """
    if config.facts.integration not in HUGGING_FACE:
        return None
    from dslint.evaluate.python.libraries.dataclasses import TRAINERS_PARSED, is_trainers  # a config without a program needs none

    state: Event | None = None
    for one in _events(config, ".*"):
        if one.name == TRAINERS_PARSED or is_trainers(one.name) or re.fullmatch(_STATE, one.name):
            state = one
        elif re.fullmatch(f"{_ACCELERATOR}|{TRAINERS}", one.name) is not None:
            is_own = re.fullmatch(_ACCELERATOR, one.name) is not None
            is_of_trainer = re.fullmatch(_TRAINS_BY_ACCELERATOR, one.name) is not None and any(
                name in one.arguments for name in _MODELS_OF_PPO
            )
            has_plugin = any(name.startswith("deepspeed_plugin") for name in one.arguments)
            is_behind = state is not None and state.certain and one.certain and {state.flow, one.flow} <= {0, one.flow}
            return one if (is_own or is_of_trainer) and one.complete and not has_plugin and is_behind else None
    return None


def _saves_checkpoints(config: Config) -> str | None:
    """The Trainer of several ranks saves checkpoints as it trains."""
    arguments = trainer_arguments(config)
    given = arguments.get("save_strategy") if arguments is not None else None
    is_off = given is not None and given.value == "no"
    return "" if arguments is not None and not is_off and _several_ranks(config) else None


def _loads_adapter(config: Config) -> SourcedValue | None:
    """What loads a checkpoint of an adapter: to resume from it, or as the best one."""
    arguments = trainer_arguments(config)
    if arguments is None or not trains_adapter(config):
        return None
    best = arguments.get("load_best_model_at_end")
    return best if best is not None and best.value is True else resumed_from(config)


_resizes = _on_divided(f"({MODELS})\\.resize_token_embeddings")


def _keeps_reference(config: Config) -> Event | None:
    is_bf16 = config.value("bf16.enabled") is True and config.value(STAGE) < 3
    if not is_bf16 or not names_its_release(config) or config.facts.deepspeed > _FREEZES_UP_TO:
        return None
    trainers = _events(config, r"trl\.(\w+\.)*GRPOTrainer")
    return next((one for one in trainers if one.complete and "peft_config" not in one.arguments), None)


def _rewards_by_model(config: Config) -> Event | None:
    """A trainer of GRPO whose reward is a model, given by its name or loaded before."""
    if not config.value(STAGE) >= 3 or not divides_at_load(config):
        return None
    for one in _events(config, r"trl\.(\w+\.)*GRPOTrainer"):
        given = one.argument("reward_funcs", 1)
        if given is not None and (isinstance(given.value, str) or re.fullmatch(MODELS, given.made)):
            return one
    return None


def _saves_modules(config: Config) -> Event | SourcedValue | None:
    """The adapter at stage 3 that wraps modules which are also trained whole."""
    if not config.value(STAGE) >= 3:
        return None
    made = _events(config, r"peft\.(\w+\.)*\w+Config")
    in_program = next((one for one in made if _names_some(one.argument("modules_to_save"))), None)
    if in_program is not None or config.arguments is None:
        return in_program
    from dslint.frameworks.workload import SAVED_WHOLE, told_by  # most configs have no such arguments

    if "lora_saves" not in told_by(config.arguments).options:
        return None
    return next((one for name in SAVED_WHOLE if (one := config.arguments.get(name)) is not None), None)


def _names_some(given: GivenArgument | None) -> bool:
    """Whether an argument names modules. An attribute whose value is not known, as of arguments, may be None, which most are."""
    if given is None or not given.value:
        return False
    return given.value is not UNKNOWN or re.fullmatch(r"\w+(\.\w+)+", given.raw) is None


def _engine_of_quantized(config: Config) -> Event | None:
    program = config.setup.program if config.setup else None
    if program is None or program.quantized is None or not config.value(STAGE) < 3:  # zero.Init has placed a divided model
        return None
    return next(program.events.of(ENGINE), None)


def _writes_optimizer(config: Config) -> str | None:
    from dslint.frameworks.registry import of_arguments  # few releases come here

    framework = of_arguments(config.arguments)
    is_swift = framework is not None and "ms-swift" in framework.packages
    before = config.context.pinned("transformers")
    is_old = before is not None and before < _CREATES_AGAIN
    return "optimizer" if is_swift and config.has("optimizer") and not is_old else None


def _takes_free_port(config: Config) -> SourcedValue | None:
    """The port 0, with which newer releases take a free one."""
    setup = config.setup
    flag = setup.launch.flags.get("main_process_port") if setup is not None and setup.launch is not None else None
    in_file = setup.accelerate.top.get("main_process_port") if setup is not None and setup.accelerate is not None else None
    given = flag or in_file
    return given if given is not None and given.value in (0, "0") and given.value is not False and _several_ranks(config) else None


def _over_hostfile(config: Config) -> dict[str, SourcedValue] | None:
    """What an Accelerate file and its command say, if `accelerate launch` starts several machines with a hostfile; None otherwise."""
    setup, file = config.setup, accelerate_file(config)
    launch = setup.launch if setup is not None else None
    if file is None or file.is_for_sagemaker or not file.is_for_deepspeed or not starts_deepspeed(config):
        return None
    if launch is not None and (launch.launcher != "accelerate" or launch.may_hold_more):
        return None
    given = {**file.top, **file.block, **(launch.flags if launch is not None else {})}
    machines = launch.nodes if launch is not None and "num_machines" in launch.flags else file.number("num_machines")
    launcher, hostfile = given.get("deepspeed_multinode_launcher"), given.get("deepspeed_hostfile")
    is_known = launcher is None or launcher.value in (*WITH_HOSTFILE, None)
    return given if machines is not None and machines > 1 and is_known and hostfile is not None and hostfile.value is not None else None


def _gives_address(config: Config) -> SourcedValue | None:
    given = (_over_hostfile(config) or {}).get("main_process_ip")
    return given if given is not None and isinstance(given.value, str) else None


def _gives_no_port(config: Config) -> SourcedValue | None:
    """The hostfile of a launch without a port for the ranks."""
    given = _over_hostfile(config)
    port = given.get("main_process_port") if given is not None else None
    is_launched = config.setup is not None and config.setup.launch is not None
    return given["deepspeed_hostfile"] if given is not None and is_launched and (port is None or port.value is None) else None


_IMPORTS_INIT = re.compile(r"from\s+transformers\.[\w.]+\s+import\s+\(?[\w\s,]{0,400}\bdeepspeed_init\b")
_CALLS_INIT = re.compile(r"(?<!def )\bdeepspeed_init\((?:[^()]|\([^()]{0,200}\)){0,400}?resume_from_checkpoint\s*=")


def _copy_of_old_trainer(config: Config) -> SourcedValue | None:
    """The call in a copy of the Trainer of transformers up to 4.29, in the program or in a module that it imports."""
    project = project_around(config) if config.facts.integration is Integration.TRANSFORMERS else None
    if project is None or config.setup is None:
        return None
    own = {Path(path).resolve() for path, one in config.setup.documents.items() if one.language == "python"}
    for path in project.programs:
        text = project.text(path)
        found = _CALLS_INIT.search(text) if "deepspeed_init(" in text and _IMPORTS_INIT.search(text) else None
        if found is not None and not _is_for_older(text[: found.start()]) and not own.isdisjoint(_with_importers(project, path)):
            line = text.count("\n", 0, found.start()) + 1
            column = found.start() - text.rfind("\n", 0, found.start())
            end = found.start() + len("deepspeed_init")
            place = Range(Place(line, column, found.start()), Place(line, column + len("deepspeed_init"), end))
            return SourcedValue(None, "deepspeed_init", "", os.path.relpath(path).replace(os.sep, "/"), place)
    return None


_FUNCTION = re.compile(r"(?:async )?def |class ")
_BY_RELEASE = re.compile(r"(?i).*(?:version|signature)|else|try|except|if (?:False|0)\b")


def _is_for_older(before: str) -> bool:
    """Whether the call behind a text is a comment, or stands in a branch of its function that asks for the release or for the arguments of
    the call, or in the other one of it, or in one that nothing enters.
    """
    around = takewhile(lambda one: not _FUNCTION.match(one), blocks_around(before))
    return "#" in before.rpartition("\n")[2] or any(map(_BY_RELEASE.match, around))


def _with_importers(project: Project, path: str) -> set[Path]:
    """The paths of a module, of those that import it, and of those that import them: from its folder, or by the name of its folder, because
    other folders have modules of the same name.
    """

    def importers(one: str) -> list[str]:
        module = Path(one).resolve()
        named = re.compile(rf"\b{re.escape(module.parent.name)}(?:\.{module.stem}\b|[ \t]+import\b[^\n#]*\b{module.stem}\b)")
        return [
            other
            for other in project.importers_of(one)
            if Path(other).resolve().parent == module.parent or named.search(project.text(other)) is not None
        ]

    direct = importers(path)
    return {Path(one).resolve() for one in (path, *direct, *(two for one in direct[:20] for two in importers(one)))}


LIBRARY_DEFECTS = (
    ReleaseDefect(
        "transformers",
        Release(4, 30, 0),
        Release(4, 99, 0),
        _copy_of_old_trainer,
        "its deepspeed_init has no argument resume_from_checkpoint, and a copy of an older Trainer in the project passes it: the call raises "
        "TypeError \"deepspeed_init() got an unexpected keyword argument 'resume_from_checkpoint'\"",
        "Derive from the Trainer of transformers instead of a copy, or use transformers 4.29.2.",
        "transformers/deepspeed.py, deepspeed_init of 4.29.2 and 4.30.0",
        Effect.CRASH,
        Phase.LOAD,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 9, 0),
        Release(0, 14, 3),
        _torch_without_names,
        'it imports private names that torch 2.4 and later do not have, so `import deepspeed` raises ImportError "cannot import name ... from '
        "'torch.distributed.elastic.agent.server.api'\"",
        "Use DeepSpeed 0.14.4 or later, or a torch before 2.4.",
        "https://github.com/deepspeedai/DeepSpeed/pull/5654",
        Effect.CRASH,
        Phase.LOAD,
        certain_with="torch",
    ),
    ReleaseDefect(
        "accelerate",
        Release(0, 23, 0),
        Release(0, 25, 0),
        _steps_a_schedule,
        "a schedule of torch advances once per step, where other releases advance it once for each rank, so a learning rate that is planned for "
        "the batches of all ranks changes too slowly",
        "Use Accelerate 0.26.0 or later.",
        "https://github.com/huggingface/accelerate/pull/2304",
    ),
    ReleaseDefect(
        "accelerate",
        Release(1, 2, 0),
        Release(1, 2, 1),
        _maps_optimizer,
        "with an offloaded optimizer it replaces the AdamW of bitsandbytes, and raises AttributeError \"'AdamW' object has no attribute "
        "'optim_bits'\" before that",
        "Use Accelerate 1.3.0 or later, or optim adamw_torch.",
        "https://github.com/axolotl-ai-cloud/axolotl/issues/2191",
        Effect.CRASH,
        Phase.INITIALIZE,
    ),
    ReleaseDefect(
        "accelerate",
        Release(1, 0, 0),
        Release(1, 8, 1),
        _makes_accelerator_late,
        'an Accelerator that is made after TrainingArguments or PartialState expects one before it, and raises ValueError "Please make sure to '
        'properly initialize your accelerator via `accelerator = Accelerator()`"',
        "Use Accelerate 1.9.0 or later, or 0.34.2.",
        "https://github.com/huggingface/trl/issues/2555",
        Effect.CRASH,
        Phase.LOAD,
    ),
    ReleaseDefect(
        "accelerate",
        Release(0, 20, 0),
        Release(1, 6, 0),
        _takes_free_port,
        "it passes the port 0 on instead of a free one, so the ranks wait for each other at port 0 until they time out",
        "Use Accelerate 1.7.0 or later, or write a port such as 29511.",
        "accelerate/utils/launch.py, prepare_deepspeed_cmd_env of 1.6.0 and 1.7.0; https://github.com/huggingface/accelerate/issues/3091",
        Effect.CRASH,
        Phase.LOAD,
    ),
    ReleaseDefect(
        "accelerate",
        Release(0, 20, 0),
        Release(0, 28, 0),
        _gives_address,
        "it does not pass main_process_ip on to the launcher of DeepSpeed, which takes the first address of the first machine in the hostfile: where the "
        "other machines cannot reach that one, the ranks wait for each other until they time out",
        "Use Accelerate 0.29.0 or later, or let the first machine list that address first (hostname -I).",
        "https://github.com/huggingface/accelerate/pull/2495",
        Effect.IGNORED,
    ),
    ReleaseDefect(
        "accelerate",
        Release(0, 20, 0),
        Release(1, 6, 0),
        _gives_no_port,
        'without main_process_port it starts the launcher of DeepSpeed with --master_port None, which ends with "argument --master_port: invalid int '
        "value: 'None'\"",
        "Write a port such as main_process_port: 29500, or use Accelerate 1.7.0 or later.",
        "accelerate/utils/launch.py, prepare_deepspeed_cmd_env of 1.6.0 and 1.7.0",
        Effect.CRASH,
        Phase.LOAD,
    ),
    ReleaseDefect(
        "accelerate",
        Release(0, 22, 0),
        Release(1, 0, 1),
        _saves_model,
        "save_model at ZeRO stage 3 raises AttributeError \"'NoneType' object has no attribute 'items'\" on every rank but the first, which alone "
        "gets the weights",
        "Use Accelerate 1.1.0 or later, or save_pretrained(..., state_dict=accelerator.get_state_dict(model)).",
        "https://github.com/huggingface/accelerate/pull/3146",
        Effect.CRASH,
        Phase.SAVE,
    ),
    ReleaseDefect(
        "transformers",
        Release(4, 36, 0),
        Release(4, 36, 0),
        _saves_checkpoints,
        "each rank renames the folder tmp-checkpoint-... of a checkpoint, and all but the first one raises FileNotFoundError",
        "Use transformers 4.36.2 or later.",
        "transformers/trainer.py, Trainer._save_checkpoint of 4.36.0 and 4.36.1",
        Effect.CRASH,
        Phase.SAVE,
    ),
    ReleaseDefect(
        "transformers",
        Release(4, 37, 0),
        Release(4, 37, 2),
        _loads_adapter,
        "the Trainer saves the checkpoints of an adapter without the frozen weights, and requires all weights when it loads one: it raises "
        'RuntimeError "Missing key(s) in state_dict"',
        "Use transformers 4.38.0 or later.",
        "https://github.com/huggingface/peft/issues/1395",
        Effect.CRASH,
        Phase.RESUME,
    ),
    ReleaseDefect(
        "transformers",
        Release(4, 46, 2),
        Release(4, 48, 3),
        _accumulates,
        "where the Trainer averages the loss over the accumulation itself, DeepSpeed divides it by gradient_accumulation_steps again, and "
        "gradients, their norm and what clipping sees are too small",
        "Use transformers 4.49.0 or later.",
        "https://github.com/huggingface/transformers/pull/35808",
    ),
    ReleaseDefect(
        "transformers",
        Release(4, 46, 0),
        Release(4, 46, 1),
        _accumulates,
        "the Trainer multiplies the loss by gradient_accumulation_steps, so the gradients of a model whose loss does not count the tokens of the "
        "whole batch are too large",
        "Use transformers 4.49.0 or later.",
        "transformers/trainer.py, Trainer.training_step of 4.46.1 and 4.46.2",
    ),
    ReleaseDefect(
        "transformers",
        Release(4, 32, 0),
        Release(4, 33, 2),
        _resizes,
        "at ZeRO stage 3 resize_token_embeddings reads the size of an embedding that is divided, and makes the output layer (up to 4.33.1) or "
        "vocab_size (4.33.2) 0, so the forward pass may raise",
        "Use transformers 4.33.3 or later.",
        "https://github.com/huggingface/transformers/pull/26024",
        Effect.CRASH,
        Phase.STEP,
    ),
    ReleaseDefect(
        "transformers",
        Release(4, 43, 0),
        Release(4, 43, 1),
        _resizes,
        "at ZeRO stage 3 resize_token_embeddings replaces the embedding without gathering it, and the training may raise about its shape",
        "Use transformers 4.43.2 or later.",
        "https://github.com/huggingface/transformers/issues/32196",
        Effect.CRASH,
        Phase.STEP,
    ),
    ReleaseDefect(
        "transformers",
        Release(4, 20, 0),
        Release(4, 50, 3),
        _loads_in_little_memory,
        'from_pretrained raises "DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a `device_map`" at ZeRO stage 3',
        "Remove low_cpu_mem_usage=True: at stage 3 each rank loads only its part.",
        "transformers/modeling_utils.py, from_pretrained of 4.20.1, 4.50.3 and 4.51.3",
        Effect.CRASH,
        Phase.LOAD,
    ),
    ReleaseDefect(
        "transformers",
        Release(4, 31, 0),
        Release(4, 43, 4),
        _on_divided(r"transformers\.(\w+\.)*\w+\.from_pretrained", "ignore_mismatched_sizes"),
        "with ignore_mismatched_sizes=True, from_pretrained compares the checkpoint with weights that ZeRO stage 3 has divided, which have the "
        "size 0, and drops every weight of the checkpoint: the training starts from random weights",
        "Load without ignore_mismatched_sizes, and replace the layer of another size afterwards.",
        "https://github.com/huggingface/transformers/issues/17336",
    ),
    ReleaseDefect(
        "transformers",
        Release(4, 30, 0),
        Release(4, 44, 2),
        _engine_of_quantized,
        "deepspeed.initialize moves the model to the GPU of the rank, and this release refuses that for a model in 4 or 8 bits: it raises "
        'ValueError "`.to` is not supported for `4-bit` or `8-bit` models"',
        "Do not quantize, or train with the Trainer or Accelerate and a newer transformers.",
        "transformers/modeling_utils.py, PreTrainedModel.to of 4.30.0 and 4.44.2",
        Effect.CRASH,
        Phase.INITIALIZE,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 16, 5),
        Release(0, 19, 2),
        _saves_modules,
        "ZeRO stage 3 takes a hook of the module inside PEFT's wrapper of modules_to_save for one of the wrapper, and the forward pass may "
        "raise AttributeError \"'Linear' object has no attribute 'ds_grads_remaining'\"",
        "Use DeepSpeed 0.19.3 or later, or 0.16.4, or train no module whole besides the adapter.",
        "https://github.com/deepspeedai/DeepSpeed/issues/7615",
        Effect.CRASH,
        Phase.STEP,
    ),
    ReleaseDefect(
        "deepspeed",
        Release(0, 17, 2),
        Release(0, 17, 5),
        _in_autocast,
        'the engine is called inside torch.autocast, and this release may raise AssertionError "torch.autocast is enabled outside DeepSpeed, but not in '
        'the DeepSpeed config"',
        'Use DeepSpeed 0.17.6 or later, call the engine outside of torch.autocast, or write "torch_autocast": {"enabled": true} in place of bf16 or fp16.',
        "deepspeed/runtime/torch_autocast.py, validate_nested_autocast of 0.17.2 and 0.17.5",
        Effect.CRASH,
        Phase.STEP,
    ),
    ReleaseDefect(
        "peft",
        Release(0, 15, 0),
        Release(0, 15, 0),
        _wraps_modules,
        "PEFT saves the modules of modules_to_save by themselves, without the gathered weights of ZeRO stage 3: they are empty in the adapter",
        "Use PEFT 0.15.1 or later.",
        "https://github.com/huggingface/peft/issues/2450",
    ),
    ReleaseDefect(
        "peft",
        Release(0, 3, 0),
        Release(0, 8, 2),
        _wraps_modules,
        "PEFT copies the modules of modules_to_save (for the tasks SEQ_CLS and TOKEN_CLS the head, too) while ZeRO stage 3 keeps their weights divided: the copies are empty, and the forward pass "
        "may raise AssertionError about ZeroParamStatus.AVAILABLE",
        "Use PEFT 0.9.0 or later, or name the modules in target_modules.",
        "peft/utils/other.py, ModulesToSaveWrapper.update of 0.8.2 and 0.9.0",
        Effect.CRASH,
        Phase.STEP,
    ),
    ReleaseDefect(
        "peft",
        Release(0, 15, 0),
        Release(0, 15, 2),
        _adapter_with("trainable_token_indices"),
        "PEFT reads the rows of trainable_token_indices while ZeRO stage 3 keeps the embedding divided, and raises IndexError",
        "Use PEFT 0.16.0 or later.",
        "https://github.com/huggingface/peft/issues/2603",
        Effect.CRASH,
        Phase.LOAD,
    ),
    ReleaseDefect(
        "peft",
        Release(0, 17, 0),
        Release(0, 20, 0),
        _adapter_with("target_parameters"),
        'PEFT reads the shape of target_parameters while ZeRO stage 3 keeps them divided, and raises IndexError "tuple index out of range"',
        "Use PEFT 0.21.0 or later.",
        "https://github.com/huggingface/peft/pull/3576",
        Effect.CRASH,
        Phase.LOAD,
    ),
    ReleaseDefect(
        "ms-swift",
        Release(4, 5, 0),
        Release(4, 6, 0),
        _writes_optimizer,
        "with an optimizer section, and transformers 5, its create_optimizer raises AttributeError \"'DummyOptim' object has no attribute 'param_groups'\"",
        "Remove the section: ms-swift makes the optimizer from --optim, --learning_rate and --weight_decay.",
        "swift/trainers/mixin.py, create_optimizer of 4.5.0 and 4.6.0",
        Effect.CRASH,
        Phase.LOAD,
        certain_with="transformers",
    ),
    ReleaseDefect(
        "trl",
        Release(0, 14, 0),
        Release(0, 16, 1),
        _rewards_by_model,
        "at ZeRO stage 3 GRPOTrainer gives a reward model no engine, which gathers its weights: its forward pass raises RuntimeError about "
        "weights of the shape [0]",
        "Use TRL 0.17.0 or later.",
        "https://github.com/huggingface/trl/pull/3326",
        Effect.CRASH,
        Phase.STEP,
    ),
    ReleaseDefect(
        "trl",
        Release(0, 14, 0),
        Release(0, 18, 2),
        _keeps_reference,
        "GRPOTrainer freezes its reference model and gives it to deepspeed.initialize, which fails in bf16 without a parameter to train",
        "Use TRL 0.19.0 or later, or beta=0.0, which needs no reference model.",
        "https://github.com/huggingface/trl/pull/3575",
        Effect.CRASH,
        Phase.INITIALIZE,
    ),
)
"""Defects whose fix was read, in the releases before and after it."""
