"""DS9: optimizers, schedules and configs that a program passes, and that do not fit the config."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase, SharedCause
from dslint.facts import Release
from dslint.job.arguments import SourcedValue
from dslint.job.events import ENGINE, FORMER_PPO, Event, GivenArgument
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.prepare import PREPARE, kind_of, selects_plugin, without_loader
from dslint.source.tree import Mapping, plain

_ADAMW = (
    '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, '
    '"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "zero_optimization": {"stage": 2}}'
)
_STAGE_2 = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
_SCHEDULED = _ADAMW.replace('"zero_', '"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}, "zero_')
_WITH_SCHEDULE = (
    "import deepspeed\nimport torch\n"
    "deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json', "
    "lr_scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, rate))\n"
)


_PREPARED = (
    "from accelerate import Accelerator\nfrom accelerate.utils import DummyOptim, DummyScheduler\naccelerator = Accelerator()\n"
    "opt = DummyOptim(model.parameters())\n"
)


_PPO = (
    "from trl import PPOConfig, PPOTrainer\nppo = PPOTrainer(PPOConfig(%s), model, None, tokenizer)\nppo.step(queries, answers, scores)\n"
)
_CHOSEN = (
    "import torch\nfrom accelerate import Accelerator\nfrom accelerate.utils import DummyOptim, DummyScheduler\nfrom transformers import get_scheduler\n"
    "accelerator = Accelerator()\nif stands_in:\n    opt = DummyOptim(model.parameters())\nelse:\n    opt = torch.optim.AdamW(model.parameters())\n"
)


@rule(
    "DS926",
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
    message='The config has an optimizer, and train.py:5 prepares another one (torch.optim.AdamW): Accelerate raises "You cannot specify an optimizer in the config file and in the code at the same time".',
)
@bad(
    _STAGE_2,
    at="",
    program=_PREPARED + "accelerator.prepare(model, opt)\n",
    integration="accelerate",
    message='train.py:5 prepares a DummyOptim, and the config has no optimizer: Accelerate raises "You cannot create a `DummyOptim` without specifying an optimizer in the config file".',
)
@bad(
    _ADAMW,
    at="",
    program=_PREPARED + "accelerator.prepare(model, opt, DummyScheduler(opt))\n",
    integration="accelerate",
    message='train.py:5 prepares a DummyScheduler, and the config has no scheduler: Accelerate raises "Either specify a scheduler in the config file or pass in the `lr_scheduler_callable` parameter when using `accelerate.utils.DummyScheduler`".',
)
@bad(
    _ADAMW,
    at="",
    program="from transformers import get_scheduler\n"
    + _PREPARED
    + "schedule = get_scheduler('linear', optimizer=opt)\naccelerator.prepare(model, opt, schedule)\n",
    integration="accelerate",
    message="The config has an optimizer and no scheduler, so train.py:6 gives a DummyOptim to get_scheduler, which raises AttributeError \"'DummyOptim' object has no attribute 'param_groups'\".",
)
@bad(
    _ADAMW,
    at="",
    program=_PREPARED + "accelerator.prepare(model, opt, DummyScheduler(opt))\n",
    integration="accelerate",
    pins={"accelerate": Release(0, 22, 0)},
    message='train.py:5 prepares a DummyScheduler, and the config has no scheduler: Accelerate raises "You cannot create a `DummyScheduler` without specifying a scheduler in the config file".',
)
@bad(
    _ADAMW,
    at="optimizer",
    program=_PPO % "model_name='gpt2', ppo_epochs=4",
    integration="accelerate",
    message='The config has an optimizer, and the PPOTrainer (train.py:2) prepares one of torch: Accelerate raises "You cannot specify an optimizer in the config file and in the code at the same time".',
)
@bad(
    _ADAMW,
    at="",
    program=_PREPARED.replace("opt =", "import torch\nopt =")
    + "schedule = torch.optim.lr_scheduler.StepLR(opt, 1)\nmodel, opt = accelerator.prepare(model, opt)\n",
    integration="accelerate",
    message='train.py:6 gives a DummyOptim to torch.optim.lr_scheduler.StepLR, which raises TypeError "DummyOptim is not an Optimizer".',
)
@bad(
    _SCHEDULED,
    at="",
    program=_CHOSEN + "schedule = get_scheduler('linear', optimizer=opt)\n",
    integration="accelerate",
    message="train.py:10 gives what may be a DummyOptim to get_scheduler, which raises AttributeError \"'DummyOptim' object has no attribute 'param_groups'\".",
)
@good(
    _SCHEDULED,
    program=_CHOSEN
    + "if with_deepspeed:\n    schedule = DummyScheduler(opt)\nelse:\n    schedule = get_scheduler('linear', optimizer=opt)\n",
    integration="accelerate",
)
@good(_STAGE_2, program=_CHOSEN + "schedule = get_scheduler('linear', optimizer=opt)\n", integration="accelerate")
@good(_ADAMW, program=_PPO % "'out', num_ppo_epochs=4", integration="accelerate")
@good(
    _ADAMW,
    program=_PREPARED + (_PPO % "model_name='gpt2', ppo_epochs=4").replace("tokenizer)", "tokenizer, optimizer=opt)"),
    integration="accelerate",
)
@good(_STAGE_2, program=_PPO % "model_name='gpt2', ppo_epochs=4", integration="accelerate")
@good(_ADAMW, program=_PREPARED + "accelerator.prepare(model, opt)\n", integration="accelerate")
@good(
    _ADAMW,
    program="import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
    "accelerator.state.deepspeed_plugin.deepspeed_config.pop('optimizer')\nopt = torch.optim.AdamW(model.parameters())\naccelerator.prepare(model, opt)\n",
    integration="accelerate",
)
@good(
    _SCHEDULED,
    program=_PREPARED.replace("opt =", "from schedules import get_scheduler\nopt =")
    + "accelerator.prepare(model, opt, get_scheduler(opt))\n",
    integration="accelerate",
)
@good(
    _ADAMW,
    program=_PREPARED + "accelerator.prepare(model, opt, DummyScheduler(opt, lr_scheduler_callable=schedule))\n",
    integration="accelerate",
)
def prepared_against_sections(config: Config) -> Iterator[Finding]:
    """The optimizer and the schedule that a program passes to `Accelerator.prepare` do not fit the sections of the config.

    With a section `optimizer` in the config Accelerate expects a `DummyOptim`, and a `DummyOptim` needs the section. The same holds for
    `scheduler` and `DummyScheduler`, unless that has an `lr_scheduler_callable`. Accelerate raises ValueError otherwise, and for a schedule
    of torch beside a `DummyOptim`. The PPOTrainer of TRL before 0.12 prepares an optimizer of torch.

    Remove the section from the config, or create the stand-in in the program; and the other way round.
    """
    program = config.setup.program if config.setup else None
    if program is None or program.loader != "accelerate" or not isinstance(config.document.root, Mapping):
        return
    if selects_plugin(config):
        return  # the call may be for another config
    if without_loader(config) is not None:
        return  # that call raises before
    trainer = _former_ppo(program)
    if trainer is not None and config.has("optimizer"):
        yield Finding(
            "optimizer",
            f"The config has an optimizer, and the PPOTrainer ({trainer.at.where}) prepares one of torch: Accelerate raises "
            '"You cannot specify an optimizer in the config file and in the code at the same time".',
            help="Remove the sections optimizer and scheduler from the config.",
            related=(trainer.at.related("prepared here"),),
            certain=trainer.certain and not trainer.tells_setups_apart,
        )
        return
    yield from _given_to_schedule(config, program) or _unfitting_objects(config, program)


def _unfitting_objects(config: Config, program: Program) -> Iterator[Finding]:
    """The finding for a call of `prepare` with an object that does not fit the sections."""
    for call in program.events.of(PREPARE):
        made = {kind: one for one in call.arguments.values() if (kind := kind_of(one.made)) is not None}
        for kind, given in made.items():
            message = _unfitting(config, program, kind, given, optimizer=made.get("optimizer"))
            if message is None or _is_removed(program, config, kind):
                continue
            wrong, help_ = message
            has = config.has(kind)
            yield Finding(
                kind if has else "",
                wrong.replace("{at}", call.at.where),
                help=help_,
                elsewhere=None if has else call.at.related(""),
                related=(call.at.related("prepared here"),) if has else (),
                certain=call.certain and call.flow == 0 and not call.tells_setups_apart,
            )
            return


_STAND_IN = re.compile(r"accelerate\.(\w+\.)*DummyOptim")
_ABOUT_STAND_INS = re.compile(r"deepspeed|dummy|plugin|(\b|_)ds(_|\b)|zero|optimizer|schedule", re.IGNORECASE)


def _given_to_schedule(config: Config, program: Program) -> list[Finding]:
    """The finding for a schedule of torch that gets a `DummyOptim`, which has no groups of parameters, and is not prepared with it.

    Where only the run knows whether it is one, the program has to make the schedule in any case.
    """
    has_section = config.has("optimizer") or any("optimizer" in path for path in program.sets)
    is_prepared = any(kind_of(one.made) == "scheduler" for call in program.events.of(PREPARE) for one in call.arguments.values())
    for event in program.events.all if has_section else ():
        if kind_of(event.name) != "scheduler" or event.name.endswith(".DummyScheduler") or event.unlikely or event.tells_setups_apart:
            continue
        makers = [one.made_by_one_of for one in event.arguments.values() if any(map(_STAND_IN.fullmatch, one.made_by_one_of))]
        if not makers:
            continue
        is_sure = len(makers[0]) == 1
        asks = any(_ABOUT_STAND_INS.search(one.text) and not _COMPARES_NAME.search(one.text) for one in event.conditions)
        if (is_sure and is_prepared and config.has("optimizer")) or (not is_sure and asks):
            continue  # the schedule is judged where it is prepared; or the condition tells the stand-in from an optimizer
        is_lambda = event.name.startswith(("transformers.", "diffusers.")) or event.name.endswith(".LambdaLR")
        error = _NO_GROUPS if is_lambda else _NOT_AN_OPTIMIZER
        gives = "gives a DummyOptim" if is_sure else "gives what may be a DummyOptim"
        return [
            Finding(
                "",
                f"{event.at.where} {gives} to {event.called}, which raises {error}.",
                help="Make the schedule only without a DummyOptim, and an accelerate.utils.DummyScheduler with it.",
                elsewhere=event.at.related(""),
                certain=is_sure and event.certain and event.flow == 0 and not event.conditions,
            )
        ]
    return []


_COMPARES_NAME = re.compile(r"==\s*[\"']")
_NO_GROUPS = "AttributeError \"'DummyOptim' object has no attribute 'param_groups'\""
_NOT_AN_OPTIMIZER = 'TypeError "DummyOptim is not an Optimizer"'


def _former_ppo(program: Program) -> Event | None:
    """The PPOTrainer of a TRL before 0.12, by the arguments of its config. It creates an Adam of torch unless it is given another optimizer."""
    configs = program.events.of(r"trl\.(\w+\.)*PPOConfig")
    if not any(not FORMER_PPO.isdisjoint(one.arguments) for one in configs):
        return None
    trainer = next(iter(program.events.of(r"trl\.(\w+\.)*PPOTrainer")), None)
    given = trainer.argument("optimizer", 5) if trainer is not None else None
    return None if given is not None and (given.raw != "None" and not given.made.startswith("torch.optim.")) else trainer


def _is_removed(program: Program, config: Config, section: str) -> bool:
    """Whether the program removes a section of the config that Accelerate read: `deepspeed_config.pop("optimizer")`."""
    removes = re.compile(rf"config(\.config)?\.pop\(\s*[\"']{section}[\"']|\bdel [^\n]*config(\.config)?\[[\"']{section}[\"']\]")
    documents = config.setup.documents if config.setup is not None else {}
    paths = {event.at.path for event in program.events.all}
    return any(path in documents and removes.search(documents[path].text) for path in paths)


def _takes_dummy(event: Event) -> bool:
    """Whether a schedule of torch gets a `DummyOptim`."""
    return any(one.made.endswith(".DummyOptim") for one in event.arguments.values())


def _unfitting(
    config: Config, program: Program, kind: str, given: GivenArgument, optimizer: GivenArgument | None
) -> tuple[str, str] | None:
    """Why an object does not fit a section, and what to do."""
    short = given.made.rpartition(".")[2]
    dummy = {"optimizer": "DummyOptim", "scheduler": "DummyScheduler"}[kind]
    noun = "an optimizer" if kind == "optimizer" else "a scheduler"
    if short != dummy:
        if config.has(kind):
            return (
                (
                    f"The config has {noun}, and {{at}} prepares another one ({given.made}): Accelerate raises "
                    f'"You cannot specify {noun} in the config file and in the code at the same time".'
                ),
                f"Remove the section from the config, or create an accelerate.utils.{dummy} in the program.",
            )
        if kind == "scheduler" and optimizer is not None and optimizer.made.endswith(".DummyOptim"):
            made = next((one for one in program.events.of(re.escape(given.made)) if _takes_dummy(one)), None)
            if made is not None:
                is_lambda = made.name.startswith("transformers.") or made.name.endswith(".LambdaLR")
                error = _NO_GROUPS if is_lambda else _NOT_AN_OPTIMIZER
                return (
                    f"The config has an optimizer and no scheduler, so {made.at.where} gives a DummyOptim to {made.called}, which raises {error}.",
                    "Write a section scheduler in the config, and create an accelerate.utils.DummyScheduler. Or remove the section optimizer.",
                )
            return (
                (
                    f"{{at}} prepares a DummyOptim with {given.made}: Accelerate raises "
                    '"You can only specify `accelerate.utils.DummyScheduler` in the code when using `accelerate.utils.DummyOptim`".'
                ),
                "Create an accelerate.utils.DummyScheduler, and write a section scheduler in the config.",
            )
        return None
    if config.has(kind):
        return None
    if kind == "optimizer":
        return (
            (
                "{at} prepares a DummyOptim, and the config has no optimizer: Accelerate raises "
                '"You cannot create a `DummyOptim` without specifying an optimizer in the config file".'
            ),
            "Write a section optimizer in the config, or create an optimizer of torch in the program.",
        )
    release = config.context.pinned("accelerate")
    if release is not None and release < Release(0, 23, 0):
        return (
            (
                "{at} prepares a DummyScheduler, and the config has no scheduler: Accelerate raises "
                '"You cannot create a `DummyScheduler` without specifying a scheduler in the config file".'
            ),
            "Write a section scheduler in the config, or create a schedule of torch in the program.",
        )
    makers = list(program.events.of(r"accelerate\.(.*\.)?DummyScheduler"))
    if any(not one.complete or one.argument("lr_scheduler_callable", 3) is not None for one in makers):
        return None
    return (
        (
            "{at} prepares a DummyScheduler, and the config has no scheduler: Accelerate raises "
            '"Either specify a scheduler in the config file or pass in the `lr_scheduler_callable` parameter when using '
            '`accelerate.utils.DummyScheduler`".'
        ),
        "Write a section scheduler in the config, or create a schedule of torch in the program.",
    )


@rule(
    "DS929",
    effect=Effect.ADVICE,
    watches=("setup",),
    references=("deepspeed/__init__.py, initialize",),
    pedantic=True,
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program="import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config_params=ds_config)\n",
    integration="deepspeed",
    message="config_params is the old name of the argument config of deepspeed.initialize, kept for backwards compatibility.",
)
@good(_STAGE_2, program="import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config=ds_config)\n", integration="deepspeed")
def config_params_keyword(config: Config) -> Iterator[Finding]:
    """A program passes the config to `deepspeed.initialize` under the old name `config_params`.

    It means the same as `config`, and exists for backwards compatibility. If both are given, DeepSpeed uses `config`.

    Write `config=`.
    """
    given = config.setup.program.legacy_keyword if config.setup and config.setup.program else None
    if given is not None and not config.release < Release(0, 3, 16):
        yield Finding(
            "",
            "config_params is the old name of the argument config of deepspeed.initialize, kept for backwards compatibility.",
            help="Write config=.",
            elsewhere=given.related(""),
        )


@rule(
    "DS945",
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
    message="train.py:4 passes AdamW as optimizer to deepspeed.initialize: DeepSpeed ignores this section.",
)
@bad(
    _ADAMW,
    at="optimizer",
    program="import deepspeed\nimport torch\noptimizer = torch.optim.AdamW(model.parameters())\n"
    'deepspeed.initialize(None, model, optimizer, config="ds_config.json")\n',
    integration="deepspeed",
    message="train.py:4 passes AdamW as optimizer to deepspeed.initialize: DeepSpeed ignores this section.",
)
@bad(
    _ADAMW,
    at="optimizer",
    launch="deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --deepspeed "
    "--deepspeed_config ds_config.json\n",
    integration="deepspeed",
    message="The program of run.sh:1 passes its own object as optimizer to deepspeed.initialize: DeepSpeed ignores this section.",
)
@bad(
    _SCHEDULED,
    at="scheduler",
    deepspeed="0.14.5",
    program=_WITH_SCHEDULE,
    integration="deepspeed",
    message="train.py:3 passes LambdaLR as lr_scheduler to deepspeed.initialize: DeepSpeed ignores this section.",
)
@bad(
    _SCHEDULED,
    at="scheduler",
    deepspeed="0.14.4",
    program=_WITH_SCHEDULE,
    integration="deepspeed",
    message="train.py:3 passes LambdaLR as lr_scheduler to deepspeed.initialize, but DeepSpeed 0.14.4 ignores it and uses this section.",
)
@good(
    _ADAMW,
    program='import deepspeed\ndeepspeed.initialize(model=model, model_parameters=model.parameters(), config="ds_config.json")\n',
    integration="deepspeed",
)
def section_replaced_by_program(config: Config) -> Iterator[Finding]:
    """The program passes an optimizer or a schedule to `deepspeed.initialize`, and the config has one, too.

    DeepSpeed uses the object that the program passes. It does not read the section of the config: its type, its learning rate and its
    other parameters have no effect, and are not checked. Before 0.14.5 it is the other way round for a schedule: DeepSpeed uses the section
    `scheduler`, and ignores the object. A section that says what the object is anyway loses nothing, and is reported only
    with `--pedantic`.

    Remove the section, or do not pass the object.
    """
    program = config.setup.program if config.setup else None
    argument = {"optimizer": "optimizer", "scheduler": "lr_scheduler"}
    for section, given in config.setup.replaced.items() if config.setup else ():
        if config.has(section) and not _is_for_another_call(program, argument[section]):
            name = str(given.value).rpartition(".")[2]
            by_program = program is not None and section in program.replaced
            passes = f"{given.where} passes {name}" if by_program else f"The program of {given.where} passes its own object"
            ignored = (
                ": DeepSpeed ignores this section."
                if section in config.replaced
                else f", but DeepSpeed {config.release} ignores it and uses this section."
            )
            message = f"{passes} as {argument[section]} to deepspeed.initialize{ignored}"
            yield Finding(
                section,
                message,
                help=f"Remove the section, or the argument {argument[section]}." if by_program else "Remove the section.",
                cause=SharedCause(f"programs replace {section}", message),  # one block for all programs that use the config
                on="key",
                related=(given.related("passed here"),),
                pedantic=_describes_object(config, program, section, given),
            )


_POSITIONS = {"optimizer": 2, "lr_scheduler": 5}
"""Where `deepspeed.initialize` takes an object without its name."""


def _is_for_another_call(program: Program | None, argument: str) -> bool:
    """Whether only a condition decides that a program passes the object, and it has a call of `deepspeed.initialize` without it: the
    section is for that call, as in `if args.own: initialize(optimizer=optimizer, config=config) else: initialize(config=config)`.
    """
    calls = [one for one in program.events.of(re.escape(ENGINE)) if one.complete] if program is not None else []
    passing = [one for one in calls if (given := one.argument(argument, _POSITIONS[argument])) is not None and given.value is not None]
    return len(passing) < len(calls) and not any(one.certain for one in passing)


def _describes_object(config: Config, program: Program | None, section: str, given: SourcedValue) -> bool:
    """Whether the object that a program passes is of the type of the section, with the same parameters, so that nothing is lost.

    A value that is not known here counts as the same only if that of the object is not known, either: both come from the command line then.
    """
    made = str(given.value)
    params = config.node(f"{section}.params")
    if (
        program is None
        or str(config.value(f"{section}.type")).lower() != made.rpartition(".")[2].lower()
        or not isinstance(params, Mapping)
    ):
        return False
    calls = list(program.events.of(re.escape(made)))
    names = [member.key.value for member in params.members]
    return bool(calls) and all(_agrees(config, f"{section}.params.{name}", call.argument(name)) for call in calls for name in names)


def _agrees(config: Config, key: str, given: GivenArgument | None) -> bool:
    if given is None:
        return False
    node = config.node(key)
    written = plain(node) if node is not None else UNKNOWN
    unknown = UNKNOWN in (written if isinstance(written, list) else [written])
    if unknown or given.value is UNKNOWN:
        return unknown and given.value is UNKNOWN
    return bool(written == (list(given.value) if isinstance(given.value, tuple) else given.value))


_PASSED_TWICE = (
    "import argparse, deepspeed\n"
    "parser = argparse.ArgumentParser()\n"
    'parser.add_argument("--deepspeed_config", default="ds_config.json")\n'
    "args = parser.parse_args()\n"
    "deepspeed.initialize(args=args, model=model, model_parameters=model.parameters(), config=args.deepspeed_config)\n"
)


@rule(
    "DS959",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=("deepspeed/__init__.py, initialize",),
    untried="raised for the arguments of the call, whatever the config; tests/setup runs it",
    setup=True,
)
@bad(
    _ADAMW,
    at="",
    program=_PASSED_TWICE,
    integration="deepspeed",
    message='deepspeed.initialize gets a config in its argument config, and ds_config.json as args.deepspeed_config: DeepSpeed raises "Not sure how to proceed, we were given deepspeed configs in the deepspeed arguments and deepspeed.initialize() function call".',
)
@good(_ADAMW, program=_PASSED_TWICE.replace(", config=args.deepspeed_config", ""), integration="deepspeed")
@good(_ADAMW, program=_PASSED_TWICE.replace("args=args, ", ""), integration="deepspeed")
@good(
    _ADAMW,
    program=_PASSED_TWICE.replace("parser.parse_args()", "vars(parser.parse_args())").replace(
        "args.deepspeed_config", "args['deepspeed_config']"
    ),
    integration="deepspeed",
)
def config_in_args_too(config: Config) -> Iterator[Finding]:
    """`deepspeed.initialize` gets a config twice: in its argument `config`, and as `args.deepspeed_config`.

    DeepSpeed raises AssertionError "Not sure how to proceed, we were given deepspeed configs in the deepspeed arguments and
    deepspeed.initialize() function call", also if both name the same file.

    Pass `args` or `config`, or leave `--deepspeed_config` out of the launch, if it stands there.
    """
    given = config.setup.program.config_in_args if config.setup and config.setup.program else None
    passed = config.setup.launch.passed if config.setup and config.setup.launch else None
    flag = passed.flags.get("deepspeed_config") if passed is not None else None
    if given is not None:
        yield Finding(
            "",
            f"deepspeed.initialize gets a config in its argument config, and {given.value} as args.deepspeed_config: DeepSpeed raises "
            '"Not sure how to proceed, we were given deepspeed configs in the deepspeed arguments and deepspeed.initialize() function call".',
            help="Pass only one of args and config" + (f", or remove {flag.name} from {flag.where}." if flag is not None else "."),
            elsewhere=given.related(""),
        )
