"""DS8: checkpoints in a folder whose name each rank computes by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.job.events import ENGINE, TRAINER_ARGUMENTS, Event, GivenArgument
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ADAMW
from dslint.rules.helpers.project import programs_of
from dslint.rules.helpers.zero import STAGE

_ZERO_2 = f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}'
_AUTO = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
_PROGRAM = (
    "import deepspeed\nimport os\nimport time\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
    "%sfor batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\nengine.save_checkpoint(%s)\n"
)
_STAMPED = _PROGRAM % ("folder = os.path.join('out', time.strftime('%m%d-%H%M%S'))\n", "folder")
_PARSED = (
    "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--out')\nargs = parser.parse_args()\n"
    "folder = args.out or time.strftime('%m%d-%H%M%S')\n"
)
_TRAINER = (
    "from datetime import datetime\nfrom transformers import Trainer, TrainingArguments\n"
    "stamp = datetime.now().strftime('%%Y-%%m-%%d_%%H-%%M-%%S')\n"
    "arguments = TrainingArguments(output_dir=f'out/{stamp}', %sdeepspeed='ds_config.json')\n"
    "Trainer(model, arguments, train_dataset=data).train()\n"
)
_CLOCK = re.compile(r"time\.(time|time_ns|strftime|ctime|asctime|localtime|gmtime)|datetime\.(datetime\.|date\.)?(now|utcnow|today)")
_OF_PROCESS = re.compile(r"uuid\.uuid[14]|os\.getpid|tempfile\.mkdtemp|secrets\.token_\w+")
_OF_RANK = re.compile(r"(torch\.distributed|deepspeed\.comm)\.get_rank|--local[-_]rank|--rank|LOCAL_RANK|RANK")
_SHARED = re.compile(r"broadcast|all_gather_object|gather_object")
"""What a program gives all ranks the same name with."""

_PARSES = r"(argparse\.ArgumentParser|transformers\.HfArgumentParser|click|hydra)\.\w+"

_FORMAT = re.compile(r"%-?[a-zA-Z]")
_COARSE = frozenset("YymdbBjaAUWGVuw")
"""The codes of `strftime` for days and longer."""

_SAVES = (
    (rf"{re.escape(ENGINE)}\.save_checkpoint", (("save_dir", 0), ("tag", 1))),
    (r"accelerate\.(\w+\.)*Accelerator\.save_state", (("output_dir", 0),)),
    (TRAINER_ARGUMENTS, (("output_dir", 0),)),
)


@rule(
    "DS883",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.save_checkpoint: the tag name must be the same across all ranks",
        "https://github.com/TensorAuto/OpenTau/pull/396",
        "https://github.com/deepspeedai/DeepSpeed/pull/667",
    ),
    setup=True,
)
@bad(
    _ZERO_2,
    at="",
    program=_STAMPED,
    integration="deepspeed",
    message="train.py:9 saves checkpoints in folder, which each rank names after its own clock (time.strftime): a rank that reads another second writes its part of the optimizer states elsewhere, and nothing says that the checkpoint is incomplete.",
)
@bad(
    _ZERO_2,
    at="",
    program=_PROGRAM.replace("import time", "import torch.distributed") % ("", "'out', tag=f'rank{torch.distributed.get_rank()}'"),
    integration="deepspeed",
    message="train.py:8 saves checkpoints in f'rank{torch.distributed.get_rank()}', which differs on each rank (torch.distributed.get_rank): each writes only its own part of the optimizer states there, and load_checkpoint requires all of them in one folder.",
)
@bad(
    _AUTO,
    at="",
    program=_TRAINER % "",
    integration="transformers",
    message="train.py:4 saves checkpoints in f'out/{stamp}', which each rank names after its own clock (datetime.datetime.now): a rank that reads another second writes its part of the optimizer states elsewhere, and nothing says that the checkpoint is incomplete.",
)
@good(_AUTO, program=_TRAINER % "save_strategy='no', ", integration="transformers")
@good(_AUTO, program=(_TRAINER % "").replace("_%H-%M-%S", ""), integration="transformers")
@good(_AUTO, program=_TRAINER % "", integration="transformers", world_size=1)
@good(f'{{{ADAMW}, "zero_optimization": {{"stage": 0}}}}', program=_STAMPED, integration="deepspeed")
@good(_ZERO_2, program=_PROGRAM % ("", "'out', tag=f'step{engine.global_steps}'"), integration="deepspeed")
@good(
    _ZERO_2,
    program=_PROGRAM
    % (
        _PARSED,
        "folder",
    ),
    integration="deepspeed",
)
@good(
    _ZERO_2,
    program=_STAMPED.replace(
        "for batch", "shared = [folder]\ntorch.distributed.broadcast_object_list(shared)\nfolder = shared[0]\nfor batch", 1
    ),
    integration="deepspeed",
)
def folder_per_rank(config: Config) -> Iterator[Finding]:
    """The folder of the checkpoints is named after something that each rank computes by itself.

    Every rank runs the program, and at ZeRO stage 1 and above each writes its part of the optimizer states, at stage 3 also of the weights. A
    name with the time of the day, a random number or the rank in it is not the same everywhere: `time.strftime` gives another name to a rank
    that starts a moment later. The parts are then scattered over several folders. Saving succeeds; `load_checkpoint` and `zero_to_fp32.py`
    find files missing when the checkpoint is needed. DeepSpeed compares the tags of the ranks and logs a warning; it does not compare the
    folders.

    Compute the name on rank 0 and broadcast it, pass it from the script that launches the job, or name the folder after the step.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.world_size == 1 or not config.value(STAGE) >= 1:
        return
    texts = programs_of(config)
    launched = config.setup is not None and config.setup.launch is not None
    if any(_SHARED.search(text) for text in texts) or (not launched and any(program.events.of(_PARSES))):
        return  # a flag may give the name: `args.output or f"out/{time.time()}"`
    for names, places in _SAVES:
        for event in program.events.of(names):
            if not event.certain and not event.likely:
                continue
            given = next((one for one in (event.argument(*place) for place in places) if one is not None and _differs(one)), None)
            if given is None or not _saves_states(event) or (_CLOCK.fullmatch(given.depends_on) and _names_days(texts)):
                continue
            yield Finding(
                "",
                f"{event.at.where} saves checkpoints in {given.raw}, {_outcome(given.depends_on)}.",
                help="Compute the name on rank 0 and broadcast it with torch.distributed.broadcast_object_list, or name the folder after the step.",
                elsewhere=event.at.related(""),
                certain=False,
            )
            return


def _differs(given: GivenArgument) -> bool:
    source = given.depends_on
    return any(one.fullmatch(source) is not None for one in (_CLOCK, _OF_PROCESS, _OF_RANK))


def _saves_states(event: Event) -> bool:
    """Whether the ranks write their parts: a Trainer can be told to save no checkpoints, or only the weights."""
    strategy, weights = event.argument("save_strategy"), event.argument("save_only_model")
    return not (strategy is not None and strategy.value == "no") and not (weights is not None and weights.value is True)


def _names_days(texts: list[str]) -> bool:
    """Whether all formats of times in the program end with the day: the ranks differ only at midnight."""
    formats = [
        code[-1]
        for text in texts
        for found in re.findall(r"strftime\(([^()]*)\)|\{\w+(?:\.now\(\))?:(%[^{}]*)\}", text)
        for code in _FORMAT.findall("".join(found))
    ]
    return bool(formats) and all(code in _COARSE for code in formats)


def _outcome(source: str) -> str:
    """What comes of a name with this in it."""
    if _CLOCK.fullmatch(source):
        return (
            f"which each rank names after its own clock ({source}): a rank that reads another second writes its part of the optimizer states "
            "elsewhere, and nothing says that the checkpoint is incomplete"
        )
    return (
        f"which differs on each rank ({source}): each writes only its own part of the optimizer states there, and load_checkpoint requires all "
        "of them in one folder"
    )
