"""DS8: a program that loads from the folder of a tag."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.job.events import ENGINE, GivenArgument
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.checkpoint import loading_calls
from dslint.rules.helpers.examples import ADAMW

_ZERO_2 = f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}'
_PROGRAM = (
    "import deepspeed\nimport os\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "engine.load_checkpoint(%s)\nfor batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n"
)
_OUTCOME = "without a tag load_checkpoint reads the file latest, which stands in the folder above. It only logs a warning, and the run starts from step 0."


@rule(
    "DS881",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.load_checkpoint and save_checkpoint",
        "https://deepspeed.readthedocs.io/en/latest/model-checkpointing.html",
    ),
    setup=True,
)
@bad(
    _ZERO_2,
    at="",
    program=_PROGRAM % "'out/global_step500'",
    integration="deepspeed",
    message=f"train.py:4 loads from 'out/global_step500': {_OUTCOME}",
)
@bad(
    _ZERO_2,
    at="",
    program=_PROGRAM % "os.path.join(args.resume, f'global_step{step}')",
    integration="deepspeed",
    message=f"train.py:4 loads from os.path.join(args.resume, f'global_step{{step}}'): {_OUTCOME}",
)
@good(_ZERO_2, program=_PROGRAM % "'out'", integration="deepspeed")
@good(_ZERO_2, program=_PROGRAM % "'out', tag='global_step500'", integration="deepspeed")
@good(
    _ZERO_2,
    program=_PROGRAM % "'out/global_step500'" + "engine.save_checkpoint(f'out/global_step{engine.global_steps}')\n",
    integration="deepspeed",
)
@good(
    f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}, "checkpoint": {{"load_universal": true}}}}',
    program=_PROGRAM % "'out/global_step500'",
    integration="deepspeed",
)
def folder_of_tag(config: Config) -> Iterator[Finding]:
    """A program loads a checkpoint from the folder of its tag.

    `save_checkpoint("out")` writes a folder for each tag, `out/global_step500`, and the newest tag into `out/latest`. `load_checkpoint` takes
    the same `"out"`, and the tag as an argument of its own. With the folder of the tag as the first argument it does not find `latest`: it logs
    "Unable to find latest file", returns (None, None), and the run starts with fresh weights.

    Write `engine.load_checkpoint("out", tag="global_step500")`.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.document.root is None or config.value("checkpoint.load_universal") is True:
        return  # a config that is not known may load universal checkpoints, from such folders
    saves = program.events.of(rf"{re.escape(ENGINE)}\.save_checkpoint")
    if any(_is_of_tag(one.argument("save_dir", 0)) for one in saves):
        return
    for event in loading_calls(config):
        given = event.argument("load_dir", 0)
        if not event.complete or event.argument("tag", 1) is not None or event.unlikely or given is None or not _is_of_tag(given):
            continue
        yield Finding(
            "",
            f"{event.at.where} loads from {_shown(given)}: {_OUTCOME}",
            help="Pass the folder above as the first argument, and the name of this folder as tag.",
            elsewhere=event.at.related(""),
        )
        return


_OF_TAG = re.compile(r"global_step(\d+|\{[^{}/]*\})[\s\"')/]*$")
"""The end of a path, or of the expression for it: the tag that `save_checkpoint` gives a checkpoint by itself."""


def _is_of_tag(given: GivenArgument | None) -> bool:
    return given is not None and (
        _OF_TAG.search(given.raw) is not None or (isinstance(given.value, str) and _OF_TAG.search(given.value) is not None)
    )


def _shown(given: GivenArgument) -> str:
    return repr(given.value) if isinstance(given.value, str) else given.raw
