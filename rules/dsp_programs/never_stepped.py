"""DSP: an engine for training whose `step` nothing calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.job.events import ENGINE, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.data_flow import names_set
from dslint.rules.helpers.examples import ZERO_2, trained
from dslint.rules.helpers.syntax import tree_of

_CONFIG = trained(ZERO_2)
_MADE = "%s, *_ = deepspeed.initialize(model=%s, model_parameters=%s.parameters(), config='ds_config.json')\n"
_TWO = (
    "import deepspeed\nimport torch\n"
    + _MADE % ("actor", "net", "net")
    + "critic, *_ = deepspeed.initialize(model=judge, optimizer=torch.optim.AdamW(judge.parameters()), config='ds_config.json')\n"
    + "for batch in loader:\n    loss = actor(batch) + critic(batch)\n    actor.backward(loss)\n%s    actor.step()\n"
)
_BACKWARD = (
    _TWO.replace("optimizer=torch.optim.AdamW(judge.parameters())", "model_parameters=judge.parameters()")
    .replace("+ critic(batch)", "+ critic(batch).detach()")
    .replace("%s", "    critic.backward(critic(batch))\n%s")
)


@rule(
    "DSP21",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("deepspeed/runtime/engine.py, DeepSpeedEngine.step",),
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_TWO % "",
    integration="deepspeed",
    message="train.py:4 makes an engine to train, and the program never calls critic.step: its weights stay as they are.",
)
@bad(
    _CONFIG,
    at="",
    program=_BACKWARD % "",
    integration="deepspeed",
    message="train.py:4 makes an engine to train, and the program never calls critic.step: its weights stay as they are.",
)
@good(_CONFIG, program=_TWO % "    critic.step()\n", integration="deepspeed")
@good(_CONFIG, program=_BACKWARD % "    critic.step()\n", integration="deepspeed")
@good(_CONFIG, program=_BACKWARD % "    advance(critic)\n", integration="deepspeed")
@good(_CONFIG, program=_BACKWARD % "    trainer.step()\n", integration="deepspeed")
@good(_CONFIG, program=(_TWO % "").replace("for batch", "critic.eval()\nfor batch"), integration="deepspeed")
@good(
    _CONFIG,
    program=(_TWO % "").replace("optimizer=torch.optim.AdamW(judge.parameters())", "model_parameters=judge.parameters()"),
    integration="deepspeed",
)
@good(_CONFIG, program=(_TWO % "").replace("import torch\n", "import torch\njudge.requires_grad_(False)\n"), integration="deepspeed")
@good(_CONFIG, program=_BACKWARD % "    critic.optimizer.step()\n", integration="deepspeed")
@bad(
    _CONFIG,
    at="",
    program=(_BACKWARD % "").replace("critic", "judge"),
    integration="deepspeed",
    message="train.py:4 makes an engine to train, and the program never calls judge.step: its weights stay as they are.",
)
@good(_CONFIG, program=(_BACKWARD % "").replace("    actor.step()\n", ""), integration="deepspeed")
def never_stepped(config: Config) -> Iterator[Finding]:
    """A program steps one of its engines, and never another one that has an optimizer, or whose `backward` it calls.

    Each engine updates its own weights, in its own `step`. Gradients that a loss gives to the model of another engine change nothing there.

    Call `backward` and `step` of each engine. An engine that is only evaluated needs no optimizer.
    """
    program = config.setup.program if config.setup else None
    if program is None:
        return
    engines = list(program.events.of(re.escape(ENGINE)))
    stepped = {one.origin for one in program.events.of(rf"{re.escape(ENGINE)}\.(step|train_batch)")}
    trained = {one.origin for one in program.events.of(rf"{re.escape(ENGINE)}\.backward")}
    for engine in engines:
        is_left_out = engine.start not in stepped and any(one.start in stepped for one in engines)  # a fragment may step none
        if not is_left_out or engine.unlikely or not (_has_optimizer(engine) or engine.start in trained):
            continue
        name = _only_used_here(config, engine, engines)
        if name:
            yield Finding(
                "",
                f"{engine.at.where} makes an engine to train, and the program never calls {name}.step: its weights stay as they are.",
                help=f"Call {name}.backward with its loss, and {name}.step after it.",
                elsewhere=engine.at.related(""),
                certain=False,
            )


def _has_optimizer(engine: Event) -> bool:
    """Whether an engine gets an optimizer. `model_parameters` also stand at engines that are only evaluated, such as a reference model."""
    given = engine.argument("optimizer", 2)
    return given is not None and given.raw != "None"


def _only_used_here(config: Config, engine: Event, engines: Sequence[Event]) -> str:
    """The name of an engine that the program neither steps by another name, nor gives to anything else, nor only evaluates; "" if it does."""
    tree = tree_of(config, engine.at.path)
    if tree is None or engine.at.range is None or config.setup is None:
        return ""
    name, *results = names_set(tree, engine.at.range.start.line) or [""]
    if not results or not name.isidentifier():
        return ""  # such as the tuple of all results
    model = engine.argument("model", 1)
    first, last = engine.at.range.start.line - 1, engine.at.range.end.line  # the call may get the model by the same name
    lines = config.setup.documents[engine.at.path].text.split("\n")
    files = {path: one.text for path, one in config.setup.documents.items() if one.language == "python"}
    text = "\n".join([*lines[:first], *lines[last:], *(one for path, one in files.items() if path != engine.at.path)])
    of_model = re.escape(model.raw) if model is not None else "(?!)"
    given = rf"(?:[(\[{{,=:]|\b(?:return|yield|in|await))[ \t]*(?:\w+\.)*{name}[ \t]*(?:[,)\]}}\n]|$)"
    used = re.compile(rf"\b{name}\.eval\(|\b{of_model}\.(?:eval|requires_grad_)\(|{given}")
    others = {one for each in engines if each is not engine and each.at.range for one in names_set(tree, each.at.range.start.line)[:1]}
    steps = {one[1] for one in _STEPS.finditer(text)} - others
    return name if not used.search(text) and all(map(_SCHEDULE.search, steps)) else ""


_STEPS = re.compile(r"([\w.]+)\.(?:step|train_batch)\(")
_SCHEDULE = re.compile(r"sched|prof|lr|bar", re.IGNORECASE)
"""In the name of what a step of an engine is not: a schedule, a profiler, a progress bar."""
