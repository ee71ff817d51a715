"""DSP: a model that a program prepares in each turn of a loop, with one `Accelerator`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.evaluate.python.nodes import own_nodes
from dslint.facts import Integration, Release
from dslint.job.events import PARSED_VALUES, Event, Events
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.loaders import RAISED_BY_LOADER
from dslint.rules.helpers.prepare import BACKWARD, PREPARE, is_model, is_named_model
from dslint.rules.helpers.syntax import statements_around, tree_of
from dslint.source.unknown import UNKNOWN

_CONFIG = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_FOLDS = (
    "from accelerate import Accelerator\nfrom transformers import AutoModelForCausalLM\naccelerator = Accelerator()\n"
    "for fold in folds:\n    model = AutoModelForCausalLM.from_pretrained('m')\n    optimizer = make_optimizer(model)\n"
    "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader_of(fold))\n"
    "    for batch in loader:\n        accelerator.backward(model(**batch).loss)\n        optimizer.step()\n        optimizer.zero_grad()\n"
)
_REPEATS = (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--repeats', type=int, default=1)\nargs = parser.parse_args()\n"
    + _FOLDS.replace("in folds", "in range(args.repeats)").replace("(fold)", "(0)")
)


@rule(
    "DSP07",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "accelerate/accelerator.py, Accelerator._prepare_deepspeed: deepspeed_engine_wrapped; and Accelerator.free_memory",
        "https://github.com/KimMeen/Time-LLM/issues/87",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_FOLDS,
    integration="accelerate",
    message="train.py:7 prepares model in each turn of the loop of train.py:4 with one Accelerator, whose backward stays with the first engine: from the second turn on it may raise an error, or no weight changes.",
)
@bad(
    _CONFIG,
    at="",
    program=_FOLDS,
    integration="accelerate",
    loader_release=Release(0, 28, 0),
    message='train.py:7 prepares model in each turn of the loop of train.py:4 with one Accelerator: in the second turn Accelerate 0.28.0 may raise "You can\'t use same `Accelerator()` instance with multiple models when using DeepSpeed".',
)
@bad(
    _CONFIG,
    at="",
    program=_FOLDS.replace("AutoModelForCausalLM.from_pretrained('m')", "build(fold)").replace(
        "import AutoModelForCausalLM", "import set_seed"
    ),
    integration="accelerate",
    message="train.py:7 prepares model in each turn of the loop of train.py:4 with one Accelerator, whose backward stays with the first engine: from the second turn on it may raise an error, or no weight changes.",
)
@good(_CONFIG, program=_FOLDS + "    accelerator.free_memory()\n", integration="accelerate")
@good(_CONFIG, program=_FOLDS.replace("    model = A", "    accelerator = Accelerator()\n    model = A"), integration="accelerate")
@good(
    _CONFIG,
    program=_FOLDS.replace("for fold in folds:", "if True:").replace("loader_of(fold)", "loader"),
    integration="accelerate",
)
@good(_CONFIG, program=_FOLDS.replace("    model = A", "    if fold != chosen:\n        continue\n    model = A"), integration="accelerate")
@bad(
    _CONFIG,
    at="",
    program=_FOLDS + "        if stopper.stops:\n            break\n",
    integration="accelerate",
    message="train.py:7 prepares model in each turn of the loop of train.py:4 with one Accelerator, whose backward stays with the first engine: from the second turn on it may raise an error, or no weight changes.",
)
@good(_CONFIG, program=_FOLDS + "    break\n", integration="accelerate")
@good(_CONFIG, program=_FOLDS.replace("in folds", "in [0]"), integration="accelerate")
@good(_CONFIG, program=_FOLDS.replace("in folds", "in range(1)"), integration="accelerate")
@good(_CONFIG, program=_REPEATS, integration="accelerate")
@good(_CONFIG, program=_REPEATS, launch="accelerate launch train.py --repeats 1", integration="accelerate")
@bad(
    _CONFIG,
    at="",
    program=_REPEATS,
    launch="accelerate launch train.py --repeats 2",
    integration="accelerate",
    message="train.py:11 prepares model in each turn of the loop of train.py:8 with one Accelerator, whose backward stays with the first engine: from the second turn on it may raise an error, or no weight changes.",
)
@good(_CONFIG, program=_FOLDS.replace("accelerator.backward(model(**batch).loss)", "print(model(**batch))"), integration="accelerate")
@good(
    _CONFIG,
    program=_FOLDS.replace("model, optimizer, loader = accelerator.prepare(model, optimizer, ", "loader = accelerator.prepare("),
    integration="accelerate",
)
def prepared_in_loop(config: Config) -> Iterator[Finding]:
    """The program prepares a new model in each turn of a loop, as for the folds of a cross-validation, with one `Accelerator`.

    An `Accelerator` keeps the engine of the first model that it prepares, and `accelerator.backward` goes to that engine. For a second model
    Accelerate before 1.0.0 raises "You can't use same `Accelerator()` instance with multiple models when using DeepSpeed". Since then it only warns:
    with ZeRO stages 0 to 2 the backward pass of the second model raises, and at stage 3 its weights stay as they are. `accelerator.free_memory()`
    forgets the engine.

    Call `accelerator.free_memory()` at the end of each turn, or start a run of its own for each model.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.ACCELERATE:
        return
    release = config.context.pinned("accelerate")
    for event in program.events.of(PREPARE):
        found = _loop_of(config, program.events, event)
        if found is None or event.unlikely or event.tells_setups_apart:
            continue
        loop, name = found
        what = f"{event.at.where} prepares {name} in each turn of the loop of {event.at.path}:{loop.lineno} with one Accelerator"
        yield Finding(
            "",
            f"{what}: in the second turn Accelerate {release} raises \"You can't use same `Accelerator()` instance with multiple models when using "
            'DeepSpeed".'
            if release is not None and release < _KEEPS_SEVERAL
            else f"{what}, whose backward stays with the first engine: from the second turn on it raises an error, or no weight changes.",
            help="Call accelerator.free_memory() at the end of each turn, or start a run of its own for each model.",
            elsewhere=event.at.related(""),
            certain=False,  # the loop may have one turn
        )
        return


_KEEPS_SEVERAL = Release(1, 0, 0)
"""The first release of Accelerate that prepares several models."""


def _loop_of(config: Config, events: Events, event: Event) -> tuple[ast.For | ast.While, str] | None:
    """The loop that makes and prepares a model in each turn, behind the `Accelerator` of the call; and the name of the model."""
    trains = any(one.origin == event.origin and one.at.path == event.at.path for one in events.of(BACKWARD))
    maker = next((one for one in events.of(r"accelerate\.(\w+\.)*Accelerator") if one.start == event.origin), None)
    document = config.setup.documents.get(event.at.path) if config.setup is not None else None
    if not trains or maker is None or not event.loops or document is None:
        return None
    tree = tree_of(config, event.at.path)
    around, lines = statements_around(tree, event), document.text.split("\n")
    outside = [id(one) for one in statements_around(tree, maker)] if maker.at.path == event.at.path else []
    functions = [one.lineno for one in around if isinstance(one, ast.FunctionDef)]
    models = {one.raw for one in event.arguments.values() if is_model(one) or is_named_model(one)}
    for loop in around:
        if not isinstance(loop, ast.For | ast.While) or id(loop) in outside or loop.lineno < max(functions, default=0):
            continue
        text = "\n".join(lines[loop.lineno - 1 : loop.end_lineno])
        made = [target for one in loop.body for target in _made_by_calls(one, event)]
        name = next((one for one in made if one in models), None)
        if name is not None and _may_repeat(config, events, loop) and not _FORGETS.search(text):
            return loop, name
    return None


_FORGETS = re.compile(r"free_memory\(|\.clear\(|Accelerator\(|_reset_state|deepspeed_engine_wrapped")
"""What forgets the engine, or makes another `Accelerator`."""


def _may_repeat(config: Config, events: Events, loop: ast.For | ast.While) -> bool:
    """Whether a loop may have several turns, and each of them is a whole one."""
    if any(_leaves(one) for one in loop.body):
        return False
    if isinstance(loop, ast.While):
        return True
    turns = _RANGE.fullmatch(ast.unparse(loop.iter))
    if turns is None:
        return not (isinstance(loop.iter, ast.List | ast.Tuple) and len(loop.iter.elts) < 2)
    launch, name = config.setup.launch if config.setup is not None else None, turns[1].rpartition(".")[2]
    given = launch.passed.flags.get(name) if launch is not None and launch.passed is not None else None
    defaults = [one.argument(name) for one in events.of(re.escape(PARSED_VALUES))]
    known = [given.value] if given is not None else [one.value for one in defaults if one is not None]
    is_known = bool(known) and known[-1] is not UNKNOWN
    return str(known[-1]) != "1" if is_known else "." not in turns[1] and turns[1] != "1"  # most flags of this kind are 1 unless given


_RANGE = re.compile(r"range\(([\w.]+)\)")


def _leaves(node: ast.AST) -> bool:
    """Whether a statement may leave the loop around it, or a turn of it: not what leaves a loop or a function in it."""
    if isinstance(node, ast.For | ast.While | ast.FunctionDef | ast.ClassDef):
        return any(isinstance(one, ast.Return) for one in ast.walk(node)) and isinstance(node, ast.For | ast.While)
    return isinstance(node, ast.Break | ast.Continue | ast.Return) or any(map(_leaves, ast.iter_child_nodes(node)))


def _made_by_calls(statement: ast.stmt, event: Event) -> Iterator[str]:
    """The names that a statement before a call sets to what a call returns."""
    for one in own_nodes([statement]):
        is_before = isinstance(one, ast.Assign) and event.at.range is not None and one.lineno < event.at.range.start.line
        if isinstance(one, ast.Assign) and is_before and isinstance(one.value, ast.Call):
            for target in one.targets:
                yield from (ast.unparse(each) for each in (target.elts if isinstance(target, ast.Tuple) else [target]))
