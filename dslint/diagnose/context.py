"""What a job's log says, as the facts, the config and the model that the rest of dslint works with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping

from dslint.config.context import Context, OwnLoader
from dslint.config.load import Loaded, load_text, take
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.situation import Situation
from dslint.errors import UserError
from dslint.facts import OLDEST, RELEASES, Facts, Integration, Release
from dslint.facts.find_release import ReleaseSource
from dslint.facts.gpus import GIB, Gpu, gpu_named
from dslint.facts.model_config import describe
from dslint.frameworks.loader import LOADERS
from dslint.job.arguments import Arguments
from dslint.memory.families import read_shape
from dslint.memory.given import ModelRequest, model_of
from dslint.memory.numbers import of_numbers
from dslint.memory.shapes import Model
from dslint.record import Record
from dslint.source.read import ReadError, read
from dslint.source.tree import Document

PAGE = 4096
"""What capacities are rounded to: messages print two digits."""


class LogContext(Record):
    """What a person adds to the log: the config, the name or the path of the model, and facts of the program.

    The config is a text, or the tree of one of which a program computes a part.
    `oldest` is the oldest release of DeepSpeed that the facts leave open; None if they name one.
    `outside` is the release that runs it where dslint does not know that one, as in `Context`. `checkpointing` says that activation
    checkpointing is on, `loads_partitioned` that the program divides the model at ZeRO stage 3 while it loads it. `program` is the path of
    the program, launch script or training file that led to the config. `without_deepspeed` says that the launch starts a program of the
    Trainer and names no config. `situation` is what the given files tell, as far as advice depends on it.
    `release_source` says what names the release; that of an environment is not certainly the one of a log. `pins` are the
    releases of other packages that are given. `arguments` are those of the training, as the given files set them. `config_path` is the
    file of the config, where that was given, and `project` the folder of the given file. `config_found` names the config that the given
    program leads to.
    """

    config: str | Document | None = None
    model: str | None = None
    facts: Facts | None = None
    oldest: Release | None = OLDEST
    outside: Release | None = None
    checkpointing: bool = False
    loads_partitioned: bool = False
    program: str | None = None
    without_deepspeed: bool = False
    situation: Situation = Situation()
    release_source: ReleaseSource = ReleaseSource.ASSUMED
    pins: Mapping[str, Release] = {}
    arguments: Arguments | None = None
    config_path: str | None = None
    project: str | None = None
    config_found: str = ""

    @property
    def checked(self) -> str | None:
        """The given file, which is checked as `dslint check` does: with the program that uses it, or with the config that it leads to."""
        return self.program or self.config_path


NOTHING = LogContext()


class _EveryKey(dict[str, str]):
    """What a program that is not known may write into any key."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        return "what the program writes"


PROGRAM = OwnLoader("the program", _EveryKey())
"""A program that calls DeepSpeed itself, as its log shows: where its config has an "auto", it replaces that, or the job fails at once."""


def context_of(job: LoggedJob, given: LogContext = NOTHING) -> Context:
    """The facts of a job. What its log says counts more than what its program suggests."""
    ranks, gpu = job.sure_ranks(), _gpu(job)
    told = {
        "deepspeed": _release(job),
        "world_size": ranks,
        "nodes": job.get("nodes"),
        "tensor_parallel": job.get("tensor"),
        "pipeline_parallel": job.get("pipeline"),
        "sequence_parallel": job.get("sequence"),
        "integration": Integration(job.get("integration")) if job.get("integration") else None,
        "gpu": gpu,
        "gpu_memory": _capacity(job) or (gpu.memory if gpu else None),
        "model": describe(job.get("model_config")) if job.get("model_config") else None,
    }
    if is_only_printed(job, given) or _calls_accelerate(job, given):
        told["integration"] = None
    facts = (given.facts or Facts())._replace(**{name: value for name, value in told.items() if value is not None})
    if given.facts is not None and facts.integration is not given.facts.integration:
        facts = facts._replace(loader_release=None)
    through = PROGRAM if told["integration"] is Integration.DEEPSPEED else None
    if gpu is None and facts.gpu is not None and facts.gpu_memory is not None and is_of_another(facts.gpu, facts.gpu_memory):
        facts = facts._replace(gpu=None)
    if told["deepspeed"]:
        known = Context(facts, pins=given.pins, outside=_outside(job), filler=LOADERS, through=through, project=given.project)
        return known.with_loader_release()
    is_stated = given.release_source is ReleaseSource.STATED
    source = ReleaseSource.STATED if is_stated else ReleaseSource.ASSUMED
    context = Context(
        facts,
        pins=given.pins,
        release_source=source,
        oldest=given.oldest,
        outside=given.outside,
        filler=LOADERS,
        through=through,
        project=given.project,
    )
    return context.with_loader_release()


def _calls_accelerate(job: LoggedJob, given: LogContext) -> bool:
    """Whether a log shows Accelerate, and the given program is one of the Trainer, which calls it: a traceback may be cut above that."""
    is_trainer = given.program is not None and given.facts is not None and given.facts.integration is Integration.TRANSFORMERS
    return is_trainer and job.get("integration") == "accelerate"


def is_only_printed(job: LoggedJob, given: LogContext) -> bool:
    """Whether a log has lines of the Trainer, but no frames, and the given program calls DeepSpeed itself: it prints the same."""
    calls_itself = given.program is not None and given.facts is not None and given.facts.integration is Integration.DEEPSPEED
    by_lines = job.get("integration") == "transformers" and job.get("loader_by_format") is True
    return calls_itself and by_lines and job.get("loader_in_frames") is None


def checked_as(context: Context) -> str:
    """The release whose rules are run in place of the one that the log or the files name, "" if it is that one, or if nothing names one."""
    return str(context.facts.deepspeed) if context.outside is not None else ""


def _outside(job: LoggedJob) -> Release | None:
    """The release that the log names, if rules are run for another one in its place."""
    used = _release(job)
    named = Release.parse(str(job.get("release"))) if used is not None else None
    return named if named != used else None


def _release(job: LoggedJob) -> Release | None:
    """The release of a job, or the last one before it that dslint knows; the oldest for one before all."""
    try:
        release = Release.parse(str(job.get("release")))
    except ValueError:
        return None
    if release in RELEASES:
        return release
    return release.nearest if release.major == 0 and release.minor else None


def _gpu(job: LoggedJob) -> Gpu | None:
    try:
        return gpu_named(job.get("gpu")) if job.get("gpu") else None
    except ValueError:
        return None


RESERVED = 0.1
"""The part of a GPU's memory by which figures of one GPU may differ: PyTorch says 79.1 GiB of a GPU with 80, and a log 15.9 of one with 16.
GPUs of one family differ by more: 40 and 80, 16 and 24.
"""


def is_of_another(gpu: Gpu, memory: int) -> bool:
    """Whether the bytes of memory that a log states are those of another GPU."""
    return abs(memory - gpu.memory) > RESERVED * gpu.memory


def _capacity(job: LoggedJob) -> int | None:
    """The memory of a GPU in bytes, as PyTorch or nvidia-smi print it."""
    if job.get("gpu_capacity"):
        return int(job.get("gpu_capacity") * GIB) // PAGE * PAGE
    memory = job.get("gpu_memory")
    return memory if isinstance(memory, int) else None


def config_of(job: LoggedJob, context: Context, given: LogContext = NOTHING) -> Loaded | None:
    """The config of a job: the given one, the one that its log prints, or the file that its log names; None without one."""
    if isinstance(given.config, Document):
        return take(given.config, context)
    if given.config is not None:
        return load_text(given.config, context)
    data = job.get("config")
    if isinstance(data, dict):
        return load_text(json.dumps(data, indent=4), context)
    path = config_file(job)
    try:
        return load_text(read(path), context) if path else None
    except ReadError:
        return None


def config_file(job: LoggedJob) -> str | None:
    """The config that a command of the log names, if it lies there: seen from here, or from the folder of the log."""
    name = job.get("config_path")
    if not name or "config" in job.facts:
        return None
    folders = ("", *sorted({os.path.dirname(file) for file in job.files}))
    return next((path for folder in folders if os.path.isfile(path := os.path.join(folder, name))), None)


def model_in(job: LoggedJob, given: LogContext = NOTHING) -> Model | None:
    """The model of a job, if its shape is known: as given, as transformers printed it, by its name, or by its dimensions.

    Raises:
        UserError: the given model does not exist, or is not supported.
    """
    if given.model is not None:
        return model_of(ModelRequest(name=given.model)).model
    for attempt in (_printed, _named, _measured):
        try:
            found = attempt(job)
        except UserError:
            continue
        if found is not None:
            return found
    return None


def _printed(job: LoggedJob) -> Model | None:
    data = job.get("model_config")
    return read_shape(data, str(job.get("model_name") or "of the log")) if data else None


def _named(job: LoggedJob) -> Model | None:
    name = job.get("model_name")
    if not name:
        return None
    return model_of(ModelRequest(name=re.split(r"[/\\]", str(name).rstrip("/\\"))[-1].lower())).model


def _measured(job: LoggedJob) -> Model | None:
    """A model of the dimensions that the log names. Only with its number of parameters they say enough."""
    params = job.get("params")
    if not params or not job.get("hidden") or not job.get("layers"):
        return None
    return of_numbers(
        params,
        hidden=job.get("hidden"),
        layers=job.get("layers"),
        heads=job.get("heads"),
        kv_heads=job.get("kv_heads"),
        vocabulary=job.get("vocabulary"),
    )
