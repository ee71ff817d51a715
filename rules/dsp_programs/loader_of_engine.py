"""DSP: what a program reads of the data loader that `deepspeed.initialize` returns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.job.events import ENGINE
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.data_flow import names_set
from dslint.rules.helpers.examples import ZERO_2, trained
from dslint.rules.helpers.syntax import related_to, tree_of

_CONFIG = trained(ZERO_2)
_LOADED = (
    "import deepspeed\n"
    "engine, _, loader, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), training_data=data, config='ds_config.json')\n"
    "for epoch in range(3):\n%s    for batch in loader:\n        engine.backward(engine(batch))\n        engine.step()\n"
)
_SETS_EPOCH = "    loader.sampler.set_epoch(epoch)\n"


@rule(
    "DSP13",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=("deepspeed/runtime/dataloader.py, DeepSpeedDataLoader", "https://github.com/h2oai/h2o-llmstudio/issues/529"),
    untried="depends on the program",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_LOADED % _SETS_EPOCH,
    integration="deepspeed",
    message="train.py:4 reads loader.sampler, and loader is the DeepSpeedDataLoader of deepspeed.initialize (train.py:2): Python may raise AttributeError \"'DeepSpeedDataLoader' object has no attribute 'sampler'\".",
)
@good(_CONFIG, program=_LOADED % _SETS_EPOCH.replace("sampler", "data_sampler"), integration="deepspeed")
@good(_CONFIG, program=_LOADED % "    print(loader.batch_size, len(loader))\n", integration="deepspeed")
@good(_CONFIG, program=_LOADED % f"    if hasattr(loader, 'sampler'):\n    {_SETS_EPOCH}", integration="deepspeed")
@good(
    _CONFIG,
    program=(_LOADED % _SETS_EPOCH).replace("for epoch", "loader = own_loader(data)\nfor epoch", 1),
    integration="deepspeed",
)
def attribute_of_engines_loader(config: Config) -> Iterator[Finding]:
    """The program reads an attribute that the data loader of `deepspeed.initialize` does not have.

    `deepspeed.initialize(training_data=...)` returns a DeepSpeedDataLoader as its third result. It has the dataset, the batch size and a
    `data_sampler`, and keeps the loader of PyTorch within: `sampler`, `batch_sampler`, `num_workers` and others are not there, and Python raises
    AttributeError. Without `training_data` the result is None.

    Write `loader.data_sampler`, or create a DataLoader yourself and pass no `training_data`.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.integration is not Integration.DEEPSPEED:
        return
    for made in program.events.of(re.escape(ENGINE)):
        tree, given = tree_of(config, made.at.path), made.argument("training_data", 4)
        if tree is None or made.at.range is None or given is None or made.function or made.unlikely:
            continue
        names = names_set(tree, made.at.range.start.line)
        name = names[2] if len(names) == 4 else ""
        read = _read_of(tree, name, made.at.range.start.line) if name.isidentifier() and name != "_" else None
        if read is None:
            continue
        yield Finding(
            "",
            f"{made.at.path}:{read.lineno} reads {name}.{read.attr}, and {name} is the DeepSpeedDataLoader of deepspeed.initialize ({made.at.where}): "
            f"Python raises AttributeError \"'DeepSpeedDataLoader' object has no attribute '{read.attr}'\".",
            help=f"Write {name}.data_sampler." if read.attr == "sampler" else "Create a DataLoader yourself, and pass no training_data.",
            elsewhere=related_to(config, made.at.path, read),
            related=(made.at.related("the loader is made here"),),
            certain=False,
        )
        return


_MISSING = frozenset({"sampler", "batch_sampler", "num_workers", "drop_last", "prefetch_factor", "persistent_workers", "set_epoch"})
"""What loaders of PyTorch or Accelerate have and a DeepSpeedDataLoader of 0.19.8 has not. A release before has no more of them."""


def _read_of(tree: ast.Module, name: str, line: int) -> ast.Attribute | None:
    """The first read of such an attribute at the top of a file, if the name is set once and nothing asks whether it has the attribute."""
    stored = [one for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)]
    nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try, ast.Lambda)
    top = [inner for one in tree.body if not isinstance(one, nested) for inner in ast.walk(one)]
    asked = any(isinstance(one, ast.Call) and ast.unparse(one.func) in ("hasattr", "getattr") and name in ast.unparse(one) for one in top)
    reads = [
        one
        for one in top
        if isinstance(one, ast.Attribute) and one.attr in _MISSING and isinstance(one.value, ast.Name) and one.value.id == name
    ]
    found = min((one for one in reads if one.lineno > line), key=lambda one: one.lineno, default=None)
    return found if len(stored) == 1 and (not asked or _asks_of_part(top, name)) else None


def _asks_of_part(nodes: list[ast.AST], name: str) -> bool:
    """Whether the questions are about the attribute itself, as in `hasattr(loader.sampler, "set_epoch")`, which reads it."""
    asked = [one for one in nodes if isinstance(one, ast.Call) and ast.unparse(one.func) in ("hasattr", "getattr") and one.args]
    return all(ast.unparse(one.args[0]) != name for one in asked)
