"""DSP: a model that a program prepares with Accelerate, and gives to the Trainer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.events import TRAINERS, Event, GivenArgument
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ZERO_2, trained
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.prepare import PREPARE
from dslint.rules.helpers.syntax import statements_around, tree_of

_CONFIG = trained(ZERO_2)
_TUNED = (
    "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
    "args = TrainingArguments('out', deepspeed='ds_config.json')\naccelerator = Accelerator()\n"
    "model = AutoModelForCausalLM.from_pretrained('m')\n%strainer = Trainer(model=%s, args=args, train_dataset=data)\ntrainer.train()\n"
)


@rule(
    "DSP20",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "transformers/trainer.py, Trainer.__init__ and _prepare_for_training",
        "accelerate/accelerator.py, Accelerator._prepare_deepspeed",
        "deepspeed/runtime/engine.py, DeepSpeedEngine.__init__: self.config",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_TUNED % ("model = accelerator.prepare(model)\n", "model"),
    integration="transformers",
    message="train.py:7 gives the Trainer the model that accelerator.prepare returns in train.py:6. With DeepSpeed that is an engine, and the Trainer prepares its model itself: it may raise AttributeError \"'dict' object has no attribute 'use_cache'\".",
)
@bad(
    _CONFIG,
    at="",
    program=_TUNED % ("model, optimizer = accelerator.prepare(model, make_optimizer(model))\n", "model"),
    integration="transformers",
    message="train.py:7 gives the Trainer the model that accelerator.prepare returns in train.py:6. With DeepSpeed that is an engine, and the Trainer prepares its model itself: it may raise AttributeError \"'dict' object has no attribute 'use_cache'\".",
)
@good(_CONFIG, program=_TUNED % ("engine = accelerator.prepare(model)\n", "model"), integration="transformers")
@good(_CONFIG, program=_TUNED % ("data = accelerator.prepare(data)\n", "model"), integration="transformers")
@good(_CONFIG, program=_TUNED % ("model = accelerator.prepare(model)\n", "accelerator.unwrap_model(model)"), integration="transformers")
@good(
    _CONFIG,
    program=_TUNED % ("model = accelerator.prepare(model)\nmodel = accelerator.unwrap_model(model)\n", "model"),
    integration="transformers",
)
@good(
    _CONFIG,
    program=_TUNED % ("if not args.deepspeed:\n    model = accelerator.prepare(model)\n", "model"),
    integration="transformers",
)
def prepared_for_trainer(config: Config) -> Iterator[Finding]:
    """The program gives a model to `Accelerator.prepare`, and what that returns to the Trainer.

    With DeepSpeed `prepare` returns an engine. The Trainer prepares its model itself, and would make an engine of the engine. The `config` of an
    engine is the DeepSpeed config, a dict: the Trainer of transformers 5 sets `model.config.use_cache` and raises AttributeError "'dict' object has
    no attribute 'use_cache'", at any ZeRO stage. Already `prepare` with nothing but a model raises where the config names no optimizer (at stages 1 and 2)
    or has "auto" for the micro batch size.

    Give the Trainer the model itself.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    trainers = [(one, given) for one in program.events.of(TRAINERS) if (given := one.argument("model", 0)) is not None]
    for prepare in program.events.of(PREPARE) if trainers else ():
        for trainer, given in trainers:
            if (
                prepare.unlikely
                or prepare.tells_setups_apart
                or trainer.excludes(prepare)
                or not _is_returned(config, prepare, trainer, given)
            ):
                continue
            yield Finding(
                "",
                f"{trainer.at.where} gives the Trainer the model that {prepare.called} returns in {prepare.at.where}. With DeepSpeed that is an engine, "
                "and the Trainer prepares its model itself: it raises AttributeError \"'dict' object has no attribute 'use_cache'\".",
                help="Give the Trainer the model itself, without accelerator.prepare.",
                elsewhere=trainer.at.related(""),
                related=(prepare.at.related("prepared here"),),
                certain=False,  # transformers before 5 comes further, and an Accelerator may be made before DeepSpeed is selected
            )
            return


def _is_returned(config: Config, prepare: Event, trainer: Event, given: GivenArgument) -> bool:
    """Whether a Trainer is given what a call of `prepare` returns for a model, by the name that it is set to in the same function."""
    if (prepare.at.path, prepare.function) != (trainer.at.path, trainer.function) or prepare.at.range is None or trainer.at.range is None:
        return False
    place = next((name for name, one in prepare.arguments.items() if one.origin is not None and one.origin == given.origin), "")
    around = statements_around(tree_of(config, prepare.at.path), prepare)
    if not place.isdigit() or not around:
        return False
    target = _target(around[-1], int(place))
    first, last = prepare.at.range.end.line, trainer.at.range.start.line
    tree = tree_of(config, prepare.at.path)
    later = (one for one in ast.walk(tree) if isinstance(one, ast.Assign) and first < one.lineno < last) if tree is not None else ()
    return target == given.raw and first < last and not any(given.raw in map(ast.unparse, _names(one)) for one in later)


def _target(statement: ast.stmt, place: int) -> str:
    """The name that a statement sets to one of the values that a call returns, for an argument by its position; "" if it sets none."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    target = statement.targets[0]
    if isinstance(target, ast.Tuple):
        return ast.unparse(target.elts[place]) if place < len(target.elts) else ""
    return ast.unparse(target) if place == 0 else ""


def _names(statement: ast.Assign) -> Iterator[ast.expr]:
    for one in statement.targets:
        yield from one.elts if isinstance(one, ast.Tuple) else (one,)
