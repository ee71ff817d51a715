"""DS8: what a program of several ranks saves itself, with torch.save, in place of the checkpoint of its engine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.job.events import HOOK, RETURNED_OPTIMIZER, TRAINERS, Event
from dslint.job.model import Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.ds9_integrations.program_weights import saved_without_gathering
from dslint.rules.helpers.examples import ADAMW
from dslint.rules.helpers.models import ENGINES, managed_models, model_of
from dslint.rules.helpers.ranks_of_writes import Site, Writes
from dslint.rules.helpers.zero import STAGE
from dslint.setups.project import project_of
from dslint.source.searched import has

_STAGE_2 = f'{{{ADAMW}, "zero_optimization": {{"stage": 2}}}}'
_STAGE_0 = _STAGE_2.replace('"stage": 2', '"stage": 0')
_HEAD = (
    "import os\nimport deepspeed\nimport torch\nimport torch.distributed as dist\n"
    'engine, optimizer, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_PREPARED = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
_ACCELERATE = (
    "import torch\nfrom accelerate import Accelerator\nfrom transformers import AutoModel\naccelerator = Accelerator()\n"
    "model = AutoModel.from_pretrained('m')\noptimizer = torch.optim.AdamW(model.parameters())\n"
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
)
_SAVE = "torch.save(engine.module.state_dict(), 'model.pt')\n"
_IN_FUNCTION = (
    _HEAD + "def save(path):\n    %storch.save(engine.module.state_dict(), path)\n"
    "for epoch in range(3):\n    engine.step()\n    save(f'out/{epoch}.pt')\n"
)
_FILLED = (
    _HEAD
    + "def save(folder):\n    weights = {}\n    for name, weight in engine.module.named_parameters():\n        if weight.requires_grad:\n"
    "            weights[name] = weight\n    torch.save(weights, os.path.join(folder, 'trained.pt'))\nsave('out')\n"
)
_REMOVED = (
    _HEAD
    + "path = 'out/last.pt'\nif os.path.exists(path):\n    os.remove(path)\ntorch.save({'epoch': 3, 'model': engine.state_dict()}, path)\n"
)

_SAVES = {r"torch\.save": (("obj", 0), ("f", 1)), r"safetensors\.torch\.save_file": (("tensors", 0), ("filename", 1))}
"""What writes a file on the rank that calls it, with its arguments for the content and the file."""


@rule(
    "DS895",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("torch/serialization.py, save", "https://www.deepspeed.ai/getting-started/#model-checkpointing"),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_HEAD + _SAVE,
    integration="deepspeed",
    message="train.py:6 saves the weights with torch.save on every rank, and all of them write to one file at the same time: it may be damaged.",
)
@bad(
    _STAGE_2,
    at="",
    program=_IN_FUNCTION % "",
    integration="deepspeed",
    message="train.py:7 saves the weights with torch.save on every rank, and all of them write to one file at the same time: it may be damaged.",
)
@bad(
    _STAGE_2,
    at="",
    program=_FILLED,
    integration="deepspeed",
    message="train.py:11 saves the weights with torch.save on every rank, and all of them write to one file at the same time: it may be damaged.",
)
@bad(
    _STAGE_2,
    at="",
    program=_REMOVED,
    integration="deepspeed",
    message="train.py:9 saves the weights with torch.save on every rank, and all of them write to one file at the same time: it may be damaged. The ranks remove it before (train.py:8): all but the first may raise FileNotFoundError.",
)
@good(_STAGE_2, program=_HEAD + "if dist.get_rank() == 0:\n    " + _SAVE, integration="deepspeed")
@good(_STAGE_2, program=_HEAD + "if dist.get_rank() != 0:\n    exit()\n" + _SAVE, integration="deepspeed")
@good(_STAGE_2, program=_HEAD + _SAVE.replace("'model.pt'", "f'model_{dist.get_rank()}.pt'"), integration="deepspeed")
@good(
    _STAGE_2,
    program=_HEAD + "rank = dist.get_rank()\nname = 'model_%d.pt' % rank\n" + _SAVE.replace("'model.pt'", "name"),
    integration="deepspeed",
)
@good(_STAGE_2, program=_IN_FUNCTION % "if dist.get_rank() != 0:\n        return\n    ", integration="deepspeed")
@good(_STAGE_2, program=(_IN_FUNCTION % "").replace("    save(", "    if is_main_process():\n        save("), integration="deepspeed")
@good(_STAGE_2, program=(_IN_FUNCTION % "").replace("def save", "@rank_zero_only\ndef save"), integration="deepspeed")
@good(_STAGE_2, program=(_IN_FUNCTION % "").replace("{epoch}", "{epoch}_{dist.get_rank()}"), integration="deepspeed")
@good(_STAGE_2, program=(_IN_FUNCTION % "").replace("    save(", "    if keep:\n        save("), integration="deepspeed")
@good(_STAGE_2, program=_HEAD + "import io\nfile = io.BytesIO()\n" + _SAVE.replace("'model.pt'", "file"), integration="deepspeed")
@good(_STAGE_2, program=_HEAD + _SAVE, integration="deepspeed", world_size=1)
@good(
    _STAGE_2.replace("{", '{"train_batch_size": 4, "gradient_accumulation_steps": 1, ', 1), program=_HEAD + _SAVE, integration="deepspeed"
)
@good(_STAGE_2, program=_HEAD + _SAVE.replace("engine.module", "teacher"), integration="deepspeed")
@good(_STAGE_2, program=_HEAD + "engine.save_checkpoint('out')\n", integration="deepspeed")
def saved_by_all_ranks(config: Config) -> Iterator[Finding]:
    """The program saves the weights of its engine with `torch.save` on every rank, to one file.

    Every rank runs the whole program. `engine.save_checkpoint` has to be called on all of them; `torch.save` writes the file on each rank
    that calls it. All ranks then open and write one file at the same time, and what is left may be damaged: loading it raises
    "PytorchStreamReader failed". If the program removes the file before, another rank may have removed it already: FileNotFoundError.

    dslint reports it where nothing in the function, or around its calls, asks for a rank, and nothing puts the rank into the path.

    Save on one rank: `if torch.distributed.get_rank() == 0:`; at ZeRO stage 3 call `engine.save_16bit_model` on all ranks.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.facts.world_size == 1 or _is_for_one_rank(config):
        return
    reported = {one.range for finding in saved_without_gathering(config) if (one := finding.elsewhere) is not None}
    writes = Writes(config)
    for event in _saves_of_weights(program, writes):
        site = writes.site(event)
        file = _file_of(site, event) if site is not None else None
        if site is None or file is None or event.at.range in reported or any(one.ranks for one in event.conditions):
            continue
        if not writes.on_all_ranks(site) or not writes.is_one_file(site, file):
            continue
        removes = _removes(site, file)
        and_removes = (
            f" The ranks remove it before ({event.at.path}:{removes}): all but the first may raise FileNotFoundError." if removes else ""
        )
        has_part = "" if config.document.root is not None else " At ZeRO stage 3 each rank also has only a part of the weights."
        yield Finding(
            "",
            f"{event.at.where} saves the weights with {event.name} on every rank, and all of them write to one file at the same time: it may be "
            f"damaged.{and_removes}{has_part}",
            help="Save on one rank: if torch.distributed.get_rank() == 0; at ZeRO stage 3 call engine.save_16bit_model on every rank.",
            elsewhere=event.at.related(""),
            certain=False,
        )
        return


def _is_for_one_rank(config: Config) -> bool:
    """Whether the batch of the config leaves room for one rank only, as where a program just converts a checkpoint."""
    batch, micro, steps = (
        config.value(key) for key in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    return isinstance(micro, int) and isinstance(steps, int) and batch == micro * steps


_OF_ENGINE = re.compile(rf"deepspeed\.initialize(\.state_dict)?|{TRAINERS}\.model\.state_dict")


def _saves_of_weights(program: Program, writes: Writes) -> Iterator[Event]:
    """The calls that write weights which DeepSpeed trains: a state dict, the engine itself, or a dict that a loop over them fills."""
    managed = managed_models(program.events, *ENGINES, TRAINERS)
    for event in program.events.of(*_SAVES):
        given = event.argument(*next(content for name, (content, _) in _SAVES.items() if re.fullmatch(name, event.name)))
        if given is None:
            continue
        is_state = given.made.endswith(".state_dict") and not given.made.startswith(HOOK)
        of_engine = any(map(_OF_ENGINE.fullmatch, given.made_by_one_of if given.made != ".state_dict" else given.makers))
        is_trained = of_engine or (is_state and model_of(program.events, given.made, given.origin) in managed)
        site = writes.site(event) if not given.made else None
        if is_trained or (site is not None and _is_filled(program, event, site, managed)):
            yield event


def _is_filled(program: Program, save: Event, site: Site, managed: dict[int, int]) -> bool:
    """Whether a loop over the weights of a trained model, in the function of a call, fills the dict that it saves."""
    saved = site.call.args[0] if site.call.args else None
    if not isinstance(saved, ast.Name):
        return False
    here = (save.function, save.at.path, save.flow)
    lines = {
        one.at.range.start.line
        for one in program.events.all
        if (one.function, one.at.path, one.flow) == here
        and one.at.range is not None
        and re.search(r"\.(named_parameters|state_dict\.items)$", one.name)
        if one.name.startswith("deepspeed.") or one.origin in managed
    }
    loops = (one for one in ast.walk(site.function) if isinstance(one, ast.For) and one.iter.lineno in lines) if lines else ()
    return any(
        isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store) and isinstance(one.value, ast.Name) and one.value.id == saved.id
        for loop in loops
        for one in ast.walk(loop)
    )


def _file_of(site: Site, event: Event) -> ast.expr | None:
    """The file that a call writes."""
    name, number = next(file for pattern, (_, file) in _SAVES.items() if re.fullmatch(pattern, event.name))
    by_name = next((one.value for one in site.call.keywords if one.arg == name), None)
    return by_name if by_name is not None else site.call.args[number] if number < len(site.call.args) else None


def _removes(site: Site, file: ast.expr) -> int | None:
    """The line before a call on which its function removes the file."""
    removing = (
        one for one in ast.walk(site.function) if isinstance(one, ast.Call) and re.fullmatch(r"os\.(remove|unlink)", ast.unparse(one.func))
    )
    return next(
        (one.lineno for one in removing if one.lineno < site.call.lineno and one.args and ast.unparse(one.args[0]) == ast.unparse(file)),
        None,
    )


_OPTIMIZERS = rf"{RETURNED_OPTIMIZER}\.state_dict"


@rule(
    "DS896",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, state_dict and load_state_dict",
        "deepspeed/runtime/zero/stage3.py, state_dict",
        "deepspeed/runtime/bf16_optimizer.py, state_dict",
    ),
    setup=True,
)
@bad(
    _STAGE_2,
    at="",
    program=_HEAD + "torch.save(optimizer.state_dict(), 'optimizer.pt')\n",
    integration="deepspeed",
    message="train.py:6 saves optimizer.state_dict() with torch.save: ZeRO divides the state of the optimizer among the ranks, and the file has the part of one rank. It cannot be resumed from.",
)
@bad(
    _STAGE_2,
    at="",
    program=_HEAD
    + "state = {'optimizer': optimizer.state_dict(), 'epoch': 3}\nif dist.get_rank() == 0:\n    torch.save(state, 'last.pt')\n",
    integration="deepspeed",
    message="train.py:8 saves optimizer.state_dict() with torch.save: ZeRO divides the state of the optimizer among the ranks, and the file has the part of one rank. It cannot be resumed from.",
)
@bad(
    _PREPARED,
    at="",
    program=_ACCELERATE
    + "accelerator.save({'model': accelerator.get_state_dict(model), 'optimizer': optimizer.state_dict()}, 'last.pt')\n",
    integration="accelerate",
    message="train.py:8 saves optimizer.state_dict() with accelerator.save: ZeRO divides the state of the optimizer among the ranks, and the file has the part of one rank. It cannot be resumed from.",
)
@good(_STAGE_0, program=_HEAD + "torch.save(optimizer.state_dict(), 'optimizer.pt')\n", integration="deepspeed")
@good(_STAGE_2, program=_HEAD + "torch.save(optimizer.state_dict(), f'optimizer_{dist.get_rank()}.pt')\n", integration="deepspeed")
@good(_STAGE_2, program=_HEAD + "torch.save(optimizer.state_dict(), 'optimizer.pt')\n", integration="deepspeed", world_size=1)
@good(_STAGE_2, program=_HEAD + "engine.save_checkpoint('out', client_state={'epoch': 3})\n", integration="deepspeed")
@good(_STAGE_2, program=_HEAD + "torch.save(scheduler.state_dict(), 'schedule.pt')\n", integration="deepspeed")
@good(_PREPARED, program=_ACCELERATE + "accelerator.save_state('out')\n", integration="accelerate")
def optimizer_of_one_rank_saved(config: Config) -> Iterator[Finding]:
    """With ZeRO the program saves the state of the optimizer with `torch.save`, as if a rank had all of it.

    ZeRO divides the state of the optimizer among the ranks, from stage 1 on: `optimizer.state_dict()` has the part of the rank that calls it. The
    file has the part of one rank, of whichever writes last. `optimizer.load_state_dict` of ZeRO expects a list of the parts of all ranks, and
    raises for such a file.

    Call `engine.save_checkpoint` on every rank, or `accelerator.save_state` with Accelerate: they save the parts of all ranks.
    """
    program = config.setup.program if config.setup else None
    is_known = config.document.root is not None
    if program is None or config.facts.world_size == 1 or (not config.value(STAGE) >= 1 if is_known else _has_no_zero(config)):
        return
    writes = Writes(config)
    for event in program.events.of(*_SAVES, r"accelerate\.(\w+\.)?Accelerator\.save"):
        taken, site = _optimizer_in(program, event), writes.site(event)
        file = site.call.args[1] if site is not None and len(site.call.args) > 1 else None
        if taken is None or event.tells_setups_apart or taken.tells_setups_apart:
            continue
        if site is None or file is None or not writes.is_one_file(site, file):
            continue
        divides = "ZeRO divides" if is_known else "with ZeRO stage 1, 2 or 3 DeepSpeed divides"
        yield Finding(
            "",
            f"{event.at.where} saves {taken.at.raw} with {event.called}: {divides} the state of the optimizer among the ranks, and the file has the part "
            "of one rank. It cannot be resumed from.",
            help="Call engine.save_checkpoint on every rank."
            if taken.name.startswith("deepspeed.")
            else "Call accelerator.save_state on every rank.",
            elsewhere=event.at.related(""),
            certain=is_known and config.facts.world_size is not None and event.certain and taken.certain,
        )
        return


def _has_no_zero(config: Config) -> bool:
    """Whether the configs of the project have no section for ZeRO, and nothing in its programs and scripts names one."""
    own = next((path for path in (config.setup.documents if config.setup is not None else ()) if Path(path).is_file()), None)
    if own is None:
        return False
    project = project_of(own)
    configs = [text for text in map(project.text, project.json_files) if _BATCH in text]
    files = (text for paths in (project.programs, project.scripts, project.yaml_files) for text in map(project.text, paths))
    return bool(configs) and not any(has(_OF_ZERO, text) for text in (*configs, *files))


_BATCH = '"train_'
"""The beginning of the keys of the batch, one of which a config has to have."""

_OF_ZERO = re.compile(r"zero[_-]?(?:optimization|stage)|zero[123]\b", re.IGNORECASE)


def _optimizer_in(program: Program, save: Event) -> Event | None:
    """The state of an optimizer of DeepSpeed that a call saves: alone, in a dict, or by the variable that holds one of these."""
    given = save.argument("obj", 0)
    prepared = {one.origin for event in program.events.of(ENGINES[1]) for one in event.arguments.values()} - {None}
    for event in program.events.of(r".*\.state_dict"):
        is_one = re.fullmatch(_OPTIMIZERS, event.name) is not None
        is_prepared = (
            re.match(r"torch\.optim\.|transformers\.(\w+\.)*Adafactor|bitsandbytes\.", event.name) is not None and event.origin in prepared
        )
        if given is None or not (is_one or is_prepared) or event.at.path != save.at.path:
            continue
        inside = save.start < event.start < save.start + _length_of(save)
        by_name = event.bound == given.raw and (event.function, event.flow) == (save.function, save.flow) and event.start < save.start
        if inside or by_name:
            return event
    return None


def _length_of(event: Event) -> int:
    return event.at.range.end.offset - event.at.range.start.offset if event.at.range is not None else 0
