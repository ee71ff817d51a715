"""DSP: backward passes that a rank leaves out because of its own loss."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ZERO_2, trained
from dslint.rules.helpers.syntax import first_in_ranks, related_to

_CONFIG = trained(ZERO_2)
_LOOP = (
    "import deepspeed\nimport torch\nnet = torch.nn.Linear(8, 8)\n"
    "engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config='ds_config.json')\n"
    "for batch in loader:\n    loss = engine(batch).mean()\n%s    engine.backward(loss)\n    engine.step()\n"
)
_SKIPS = "    if torch.isnan(loss):\n        continue\n"
_GUARDS = _LOOP.replace(
    "    engine.backward(loss)\n    engine.step()",
    "    if torch.isfinite(loss).all():\n        engine.backward(loss)\n        engine.step()",
)


@rule(
    "DSP17",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine.backward: the ranks reduce gradients together",),
    untried="the run hangs instead of raising, and only with several ranks",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_LOOP % _SKIPS,
    integration="deepspeed",
    world_size=8,
    message="train.py:7 makes the backward pass depend on torch.isnan(loss), which each rank answers for its own loss: a rank that leaves it out is a pass behind, its gradients are averaged with those of other batches, and the run hangs when the first rank ends.",
)
@bad(
    _CONFIG,
    at="",
    program=_GUARDS % "",
    integration="deepspeed",
    message="train.py:7 makes the backward pass depend on torch.isfinite(loss).all(), which each rank answers for its own loss: a rank that leaves it out is a pass behind, its gradients are averaged with those of other batches, and the run hangs when the first rank ends.",
)
@good(_CONFIG, program=_LOOP % _SKIPS, integration="deepspeed", world_size=1)
@good(_CONFIG, program=_LOOP % _SKIPS.replace("continue", "raise SystemExit"), integration="deepspeed", world_size=8)
@good(_CONFIG, program=_LOOP % _SKIPS.replace("continue", "loss = 0 * loss"), integration="deepspeed", world_size=8)
@good(
    _CONFIG,
    program=_LOOP
    % ("    bad = torch.isnan(loss).float()\n    torch.distributed.all_reduce(bad)\n" + _SKIPS.replace("torch.isnan(loss)", "bad > 0")),
    integration="deepspeed",
    world_size=8,
)
@good(_CONFIG, program=_LOOP % "" + _SKIPS.replace("continue", "print(loss)"), integration="deepspeed", world_size=8)
@good(
    _CONFIG,
    program=_LOOP % ""
    + "for batch in loader:\n    loss = engine(batch).mean()\n    if torch.isnan(loss):\n        print('before loss.backward()')\n",
    integration="deepspeed",
    world_size=8,
)
def backward_skipped_by_loss(config: Config) -> Iterator[Finding]:
    """A rank whose loss is not a number leaves out the backward pass that the other ranks make.

    Each rank has data of its own, so one may have a loss of NaN and the others not. In the backward pass, or in the step, the ranks average
    their gradients together: the rank that goes on with its next batch is a pass behind, and the others wait for it. Its next gradients are
    averaged with those of another batch, and at the end the run hangs until the timeout of the process group.

    With fp16 DeepSpeed leaves out a step with an overflow on all ranks by itself.

    Let all ranks decide together: reduce a flag with `torch.distributed.all_reduce(flag, MAX)` before the condition, or replace such a loss
    by `torch.nan_to_num(loss)`, whose backward pass all ranks make.
    """
    at = first_in_ranks(config, _first_skip)
    if at is None:
        return
    path, found = at
    yield Finding(
        "",
        f"{path}:{found.lineno} makes the backward pass depend on {ast.unparse(found.test)}, which each rank answers for its own loss: a rank that "
        "leaves it out is a pass behind, its gradients are averaged with those of other batches, and the run hangs when the first rank ends.",
        help="Reduce the condition over all ranks first, with torch.distributed.all_reduce.",
        elsewhere=related_to(config, path, found.test),
        certain=False,
    )


_NO_NUMBER = re.compile(r"\b(isnan|isinf|isfinite)\(")
_TRAINS = re.compile(r"\.backward\(")
_TOGETHER = re.compile(r"reduce|gather|broadcast|barrier")


def _first_skip(tree: ast.Module) -> ast.If | None:
    return next(_skips(tree), None)


def _skips(tree: ast.Module) -> Iterator[ast.If]:
    """The conditions on a loss that keep a rank from the backward pass of a loop in which nothing is decided together."""
    for loop in (one for one in ast.walk(tree) if isinstance(one, ast.For | ast.While)):
        text = ast.unparse(loop)
        if not _TRAINS.search(text) or _TOGETHER.search(text):
            continue
        calls = (one.lineno for one in ast.walk(loop) if isinstance(one, ast.Call) and _TRAINS.search(f"{ast.unparse(one.func)}("))
        backward = next(calls, None)
        if backward is None:  # only a text speaks of it
            continue
        for one in ast.walk(loop):
            if not isinstance(one, ast.If) or not _NO_NUMBER.search(ast.unparse(one.test)) or "loss" not in ast.unparse(one.test).lower():
                continue
            leaves = isinstance(one.body[-1], ast.Continue) and one.lineno < backward
            guards = one.lineno < backward <= (one.body[-1].end_lineno or 0) and not any(
                _TRAINS.search(ast.unparse(it)) for it in one.orelse
            )
            if leaves or guards:
                yield one
