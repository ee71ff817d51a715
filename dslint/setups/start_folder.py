"""The folder in which a launch starts, and a config that is not where a path leads from there."""

from __future__ import annotations

import os
import re

from dslint.evaluate.files import find_all, is_elsewhere
from dslint.job.model import Setup
from dslint.record import Record

_WRITES = re.compile(r"\bdump\(|\bopen\([^\n]*[\"'](?:w|x|a)b?t?[\"']|write_text\(|shutil\.copy\w*\(|chdir")
"""What a program writes files with, or leaves the folder with."""

_BRINGS_FILES = re.compile(
    r"(?<![\w-])(?:cp|mv|ln|wget|curl|git|tar|unzip|rsync|scp|aws|gsutil|gcloud|docker|singularity|apptainer|kubectl|tee|cat|envsubst|sed|jq)"
    r"(?=[ \t])|--chdir|--workdir|--container|>[ \t]*\S+\.json"
)
"""What brings files into a folder, or starts the job elsewhere."""

_CHANGES_FOLDER = re.compile(r"(?<![\w-])(?:cd|pushd)[ \t]+([^\n;&|]*)")
_RELATIVE = re.compile(r"(?!/)[\w./-]+|\$\(dirname .*|.*%/\*.*")
_COMMAND = re.compile(r"(?m)(?<![\w./-])(?:deepspeed|torchrun|accelerate|python[\d.]*|bash|sh|make|sbatch)(?=[ \t]+\S)")


class FoundElsewhere(Record):
    """A config that a launch does not find: the folder in which it starts, and the path from there to the file that dslint checks.

    `alone` says whether the launch is the only command of its script, so that no other one can write the file.
    """

    start: str
    right: str
    alone: bool


def found_elsewhere(setup: Setup) -> FoundElsewhere | None:
    """Where a launch starts that does not find the config which dslint has found in another folder of the project.

    A path is relative to the folder in which the launch starts. That is known where the launch names its program: it is the folder from
    which this path leads to the program.
    """
    launch, link = setup.launch, setup.link
    if setup.config is None or setup.program is None or link is None or launch is None or launch.passed is None:
        return None
    program, named = launch.passed.program, str(link.value)
    start = _folder_of_start(str(program.value), setup.program.path)
    script = setup.documents.get(program.path)
    if start is None or script is None or named not in link.raw or is_elsewhere(named) or not _keeps_folder(script.text):
        return None
    if os.path.exists(os.path.join(start, named)) or not os.path.isfile(setup.config):
        return None
    if len({os.path.realpath(one.path) for one in find_all(str(program.value), program.path)}) > 1:
        return None
    if any(_WRITES.search(one.text) for one in setup.documents.values() if one.language == "python"):
        return None
    where, right = os.path.relpath(start).replace(os.sep, "/"), os.path.relpath(setup.config, start).replace(os.sep, "/")
    return FoundElsewhere(where, right, alone=len(_COMMAND.findall(script.text)) == 1)


def starts_without(setup: Setup, path: str) -> bool:
    """Whether a launch starts in a folder that holds its program and a part of a relative path, but no file of that path.

    That the first folder of the path is there shows that the path is meant from there: `configs/ds.json` beside `configs/train.yaml`.
    """
    launch = setup.launch
    if setup.program is None or launch is None or launch.passed is None or is_elsewhere(path) or os.path.isabs(path):
        return False
    start, (first, *rest) = _folder_of_start(str(launch.passed.program.value), setup.program.path), os.path.normpath(path).split(os.sep)
    if start is None or first == os.pardir or not rest or os.path.lexists(os.path.join(start, path)):
        return False
    return os.path.isdir(os.path.join(start, first))


def _folder_of_start(program: str, path: str) -> str | None:
    name, file = os.path.normpath(program), os.path.abspath(path)
    if os.path.isabs(name) or name.startswith(os.pardir) or is_elsewhere(program) or not file.endswith(os.sep + name):
        return None
    return file[: -len(name) - 1]


def _keeps_folder(script: str) -> bool:
    """Whether a script starts its commands in the project: it changes only to folders of known names, and brings no files there."""
    moves = [one.strip().strip("\"'") for one in _CHANGES_FOLDER.findall(script)]
    return _BRINGS_FILES.search(script) is None and all(_RELATIVE.fullmatch(one) is not None for one in moves)
