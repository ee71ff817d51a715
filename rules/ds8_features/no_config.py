"""DS8: `deepspeed.initialize` without a config."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.events import ENGINE, Event
from dslint.rule import Finding, bad, good, rule

_MODEL = "import deepspeed\nimport torch\nmodel = torch.nn.Linear(4, 4)\n"
_CALL = "engine, *_ = deepspeed.initialize(%smodel=model, model_parameters=model.parameters()%s)\n"
_SMALL = '{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}'


@rule(
    "DS899",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=("deepspeed/__init__.py, initialize",),
    untried="there is no config that the tests could run",
    setup=True,
)
@bad(
    _SMALL,
    at="",
    program=_MODEL + _CALL % ("", ""),
    integration="deepspeed",
    message='train.py:4 calls deepspeed.initialize without config and without args, so DeepSpeed has no config: it raises AssertionError "DeepSpeed requires --deepspeed_config to specify configuration file".',
)
@bad(
    _SMALL,
    at="",
    program=_MODEL + _CALL % ("", ", dist_init_required=True"),
    integration="deepspeed",
    message='train.py:4 calls deepspeed.initialize without config and without args, so DeepSpeed has no config: it raises AssertionError "DeepSpeed requires --deepspeed_config to specify configuration file".',
)
@good(_SMALL, program=_MODEL + _CALL % ("", ", config='ds_config.json'"), integration="deepspeed")
@good(_SMALL, program=_MODEL + _CALL % ("", ", config_params={'train_batch_size': 8}"), integration="deepspeed")
@good(_SMALL, program=_MODEL + _CALL % ("args=args, ", ""), integration="deepspeed")
@good(_SMALL, program=_MODEL + "deepspeed.initialize(args, model)\n", integration="deepspeed")
@good(_SMALL, program=_MODEL + _CALL % ("", ", **options"), integration="deepspeed")
@good(_SMALL, program=_MODEL + _CALL % ("", ", config=None if plain else settings"), integration="deepspeed")
@good(_SMALL, program=_MODEL + "def engine_of(m, **more):\n    return deepspeed.initialize(model=m, **more)\n", integration="deepspeed")
@good(_SMALL, program=_MODEL + "engine = deepspeed.init_inference(model=model)\n", integration="deepspeed")
@good(
    _SMALL,
    program=_MODEL + "try:\n    " + _CALL % ("", "") + "except AssertionError:\n    engine = None\n",
    integration="deepspeed",
)
@good(
    _SMALL,
    program=_MODEL.replace("deepspeed", "deepspeed_of_mine as deepspeed") + _CALL % ("", ""),
    integration="deepspeed",
)
def initialized_without_config(config: Config) -> Iterator[Finding]:
    """A call of `deepspeed.initialize` has neither a config nor arguments that could name one.

    DeepSpeed takes the config from `config`, from `config_params`, or from the attribute `deepspeed_config` of `args`. Without any of them it
    raises AssertionError "DeepSpeed requires --deepspeed_config to specify configuration file". A flag of the command, and a file with the
    name ds_config.json, change nothing: the call does not read them.

    Pass `config="ds_config.json"`, or `args=args` with the arguments of a parser that has `--deepspeed_config`.
    """
    program = config.setup.program if config.setup else None
    for call in program.events.of(ENGINE) if program is not None else ():
        if call.complete and not call.handled and not call.unlikely and not _may_name_config(call):
            yield Finding(
                "",
                f"{call.at.where} calls deepspeed.initialize without config and without args, so DeepSpeed has no config: it raises AssertionError "
                '"DeepSpeed requires --deepspeed_config to specify configuration file".',
                help='Pass config="ds_config.json", or args=args if the parser has --deepspeed_config.',
                elsewhere=call.at.related(""),
                certain=call.certain,
            )


def _may_name_config(call: Event) -> bool:
    """Whether an argument may be the config, or hold its path. The first ones without a name are `args` and the model."""
    return any(name in ("args", "config", "config_params") or name.isdecimal() for name in call.arguments)
