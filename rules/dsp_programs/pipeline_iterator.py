"""DSP: an iterator over the data of a pipeline that has fewer batches than the loops take."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.events import DATA_LOADER, ENGINE, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.syntax import statements_around, tree_of
from dslint.schemas.derive import ACCUMULATION

_CONFIG = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}'
_ACCUMULATES = _CONFIG.replace('steps": 1', 'steps": 8')
_HEAD = (
    "import deepspeed\nfrom deepspeed.pipe import PipelineModule\nfrom torch.utils.data import DataLoader\n"
    "net = PipelineModule(layers=layers, num_stages=2, loss_fn=loss_fn)\n"
    "engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config='ds_config.json')\nloader = DataLoader(data)\n"
)
_ONCE = (
    _HEAD
    + "batches = iter(loader)\nfor epoch in range(3):\n    for step in range(len(loader)):\n        engine.train_batch(data_iter=batches)\n"
)
_EACH = (
    _HEAD + "for epoch in range(3):\n    batches = iter(loader)\n    for step in range(len(loader)):\n        engine.train_batch(batches)\n"
)


@rule(
    "DSP08",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "deepspeed/runtime/pipe/engine.py, PipelineEngine._next_batch",
        "https://www.deepspeed.ai/tutorials/pipeline/#training-loops",
    ),
    untried="a pipeline requires several GPUs; tried with one stage",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_ONCE,
    integration="deepspeed",
    message="train.py:10 takes batches of iter(loader), which train.py:7 makes once: the first turn of the loop of train.py:8 uses them up, and the next train_batch raises StopIteration.",
)
@bad(
    _ACCUMULATES,
    at="",
    program=_EACH,
    integration="deepspeed",
    message="train.py:10 calls train_batch len(loader) times, and each call takes 8 batches of iter(loader) (gradient_accumulation_steps): they are used up after an eighth of the calls, and the next one raises StopIteration.",
)
@good(_CONFIG, program=_EACH, integration="deepspeed")
@good(_ACCUMULATES, program=_EACH.replace("len(loader))", "len(loader) // 8)"), integration="deepspeed")
@good(_CONFIG, program=_ONCE.replace("iter(loader)", "iter(deepspeed.utils.RepeatingLoader(loader))"), integration="deepspeed")
@good(_CONFIG, program=_ONCE.replace("range(len(loader))", "range(steps)"), integration="deepspeed")
@good(_CONFIG, program=_ONCE.replace("range(3)", "range(1)"), integration="deepspeed")
@good(_CONFIG, program=_ONCE + "    batches = iter(loader)\n", integration="deepspeed")
@good(
    _CONFIG,
    program=_ONCE.replace(
        "        engine.train_batch(data_iter=batches)\n",
        "        try:\n            engine.train_batch(batches)\n        except StopIteration:\n            break\n",
    ),
    integration="deepspeed",
)
@good(
    _ACCUMULATES.replace('"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8', '"train_batch_size": 32'),
    program=_EACH,
    integration="deepspeed",
)
def pipeline_iterator_used_up(config: Config) -> Iterator[Finding]:
    """The engine of a pipeline gets an iterator of a data loader, and the loops take more batches from it than it has.

    `train_batch` takes `gradient_accumulation_steps` batches with `next()`, and goes on after the end of an epoch only with a loader that
    starts again. An iterator that is made once ends with the first epoch; one of `len(loader)` batches is enough for
    `len(loader) // gradient_accumulation_steps` calls. The next call raises `StopIteration`.

    Pass `iter(deepspeed.utils.RepeatingLoader(loader))`, made once, or make an iterator for each epoch and call `train_batch`
    `len(loader) // engine.gradient_accumulation_steps()` times.
    """
    program = config.setup.program if config.setup else None
    if program is None or program.pipeline is None:
        return
    loaders = {one.start: one for one in program.events.of(DATA_LOADER)}
    for call in program.events.of(rf"{re.escape(ENGINE)}\.train_batch"):
        given = call.argument("data_iter", 0)
        loader = loaders.get(given.origin) if given is not None and given.origin is not None else None
        if given is None or loader is None or given.made != f"{loader.name}.iter" or call.handled or call.unlikely:
            continue
        text = _shortage(config, call, given.raw)
        if text:
            yield Finding(
                "",
                text,
                help="Pass iter(deepspeed.utils.RepeatingLoader(loader)), made once before the loops.",
                elsewhere=call.at.related(""),
                certain=call.certain and not call.conditions and call.flow == 0,
            )
            return


def _shortage(config: Config, call: Event, name: str) -> str:
    """What is said of an iterator that ends too early; "" if nothing shows that it does."""
    tree = tree_of(config, call.at.path)
    makes = [
        one
        for one in ast.walk(tree or ast.Module([], []))
        if isinstance(one, ast.Assign) and any(ast.unparse(to) == name for to in one.targets)
    ]
    made = makes[0].value if len(makes) == 1 else None
    if not isinstance(made, ast.Call) or ast.unparse(made.func) != "iter" or len(made.args) != 1:
        return ""
    batches, source = ast.unparse(made), ast.unparse(made.args[0])
    around = statements_around(tree, call)
    loops = [one for one in around if isinstance(one, ast.For) and not one.lineno <= makes[0].lineno <= (one.end_lineno or one.lineno)]
    whole = bool(loops) and ast.unparse(loops[-1].iter) in (f"range(len({source}))", f"range(0, len({source}))")
    if not whole or any(isinstance(one, ast.Break | ast.Continue | ast.Return) for loop in loops for one in ast.walk(loop)):
        return ""
    place, each = call.at.where, config.value(ACCUMULATION)
    if isinstance(each, int) and each >= 2:
        return (
            f"{place} calls train_batch len({source}) times, and each call takes {each} batches of {batches} (gradient_accumulation_steps): they are "
            f"used up after {_PARTS.get(each, f'1/{each}')} of the calls, and the next one raises StopIteration."
        )
    if len(loops) < 2 or ast.unparse(loops[-2].iter) in ("range(1)", "range(0, 1)"):
        return ""
    return (
        f"{place} takes batches of {batches}, which {call.at.path}:{makes[0].lineno} makes once: the first turn of the loop of "
        f"{call.at.path}:{loops[-2].lineno} uses them up, and the next train_batch raises StopIteration."
    )


_PARTS = {2: "half", 4: "a quarter", 8: "an eighth"}
