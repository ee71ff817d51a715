"""The configs that a program may run with where neither the program nor a launch that dslint sees says which."""

from __future__ import annotations

import os
import re

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.load import load
from dslint.evaluate.files import concerns_deepspeed
from dslint.setups.project import Project, project_of
from dslint.source.read import ReadError
from dslint.source.store import store

MOST_CANDIDATES = 8
"""How many configs a program is judged with. A folder with more has examples for other programs, too."""

MOST_FILES = 20
"""In a folder with more JSON files configs are not looked for: such folders hold data."""

_MOST_PROGRAMS = 4
"""Several configs above the folder of a program are taken for its own if there are no more programs: they may be those of the others."""

_LARGEST = 100_000
"""Bytes. The largest of 166 configs in 29 public repositories has 4,200."""

_NAMED_LIKE_CONFIG = re.compile(r"(^|[^a-z])(ds|zero)([^a-z]|$)|deepspeed", re.IGNORECASE)
"""What the names of configs contain; other JSON files of a project are not looked at, but for those in the folder of the program."""


def candidates(path: str, given: Context, *, json: bool, yaml: bool, beside: bool = False) -> tuple[str, ...]:
    """The absolute paths of the configs that a program may run with.

    Those that a person names together with the program; else those that its own text names; else those that lie nearest to it, and that
    no other file names.

    Args:
        path: the path of the program.
        given: what is given.
        json: whether the program may take a config of DeepSpeed.
        yaml: whether Accelerate may launch it with a file of its own.
        beside: whether only configs in the folder of the program, or below it, are looked for.
    """
    own = os.path.abspath(path)
    together = [one for one in store().named if one != own]
    found = [one for one in together if _is_candidate(one, given, json=json, yaml=yaml)]
    if found:
        return tuple(sorted(found))
    project = project_of(path)
    folder = os.path.dirname(own)
    listed = [one for one in project.json_files if json and (_is_named_like_config(one) or os.path.dirname(one) == folder)]
    listed += [os.path.abspath(one) for one in project.accelerate_files if yaml]
    text = project.text(own)
    mentioned = [one for one in listed if os.path.basename(one) in text]
    found = [one for one in mentioned[: MOST_CANDIDATES + 1] if _is_candidate(one, given, json=json, yaml=yaml)]
    if not found:
        found = _nearest(project, own, listed, given, json=json, yaml=yaml, beside=beside)
    return tuple(sorted(found)) if len(found) <= MOST_CANDIDATES else ()


def candidates_meant(written: str, program: str, script: str, given: Context, *, yaml: bool) -> tuple[str, ...]:
    """The absolute paths of the configs that a launch may name with a word that has variables in it: `configs/zero${STAGE}.json`.

    A word that is nothing but variables can mean whatever its program may run with.
    """
    parts = [re.escape(part) for part in _VARIABLE.split(written)]
    if sum(len(part) for part in parts) < _FEWEST_LETTERS:
        return candidates(program, given, json=not yaml, yaml=yaml)
    means = re.compile("(?:^|/)" + ".*".join(parts).removeprefix(".*").lstrip("./") + "$")
    project = project_of(script)
    files = [os.path.abspath(one) for one in project.yaml_files] if yaml else project.json_files
    found = [one for one in files if means.search(one.replace(os.sep, "/"))][: MOST_CANDIDATES + 1]
    found = [one for one in found if _is_candidate(one, given, json=not yaml, yaml=yaml)]
    return tuple(sorted(found)) if len(found) <= MOST_CANDIDATES else ()


_VARIABLE = re.compile(r"\$\{[^{}]*\}|\$\w+|\$\([^()]*\)|\{\w+\}")

_FEWEST_LETTERS = 6
"""How many letters of a path with variables are known at least where the files are searched that it can mean. `.json` has five."""


def may_have_candidates(path: str, text: str) -> bool:
    """Whether a program makes a Trainer or an Accelerator, and a config lies beside it, or is one of those that a person names with it."""
    if not path.endswith(".py") or ("Accelerator(" not in text and "Trainer(" not in text):
        return False
    if is_for_others(text, path):
        return False
    project, below = project_of(path), os.path.join(os.path.dirname(os.path.abspath(path)), "")
    files = [*filter(_is_named_like_config, project.json_files), *map(os.path.abspath, project.accelerate_files)]
    return any(one.startswith(below) for one in files) and len(_others_below(project, below)) <= _MOST_PROGRAMS


def is_for_others(text: str, path: str) -> bool:
    """Whether a program names another way to divide a model, and not DeepSpeed: it is launched with that one."""
    return bool(_FOR_OTHERS.search(text) or _FOR_OTHERS.search(os.path.basename(path))) and not concerns_deepspeed(text)


_FOR_OTHERS = re.compile(r"fsdp|fully_?shard|megatron|torch_xla", re.IGNORECASE)


def _nearest(project: Project, own: str, listed: list[str], given: Context, *, json: bool, yaml: bool, beside: bool) -> list[str]:
    """The configs below the nearest folder that has some, and that no file names which is not about the program."""
    level = os.path.dirname(own)
    while True:
        below = os.path.join(level, "")
        around = [one for one in listed if one.startswith(below)]
        if len(around) > MOST_FILES:
            return []
        configs = [one for one in around if _is_candidate(one, given, json=json, yaml=yaml)]
        found = [one for one in configs if not _is_named_by_others(project, own, one)]
        if configs:
            return found if len(configs) == 1 or len(_others_below(project, below)) <= _MOST_PROGRAMS else []
        if beside or level == project.top or os.path.dirname(level) == level:
            return []
        level = os.path.dirname(level)


def _others_below(project: Project, below: str) -> list[str]:
    """The programs below a folder that may train with DeepSpeed, or with what uses it."""

    def find() -> list[str]:
        texts = ((one, project.text(one)) for one in project.programs if os.path.abspath(one).startswith(below))
        return [one for one, text in texts if concerns_deepspeed(text) or "Accelerator(" in text or "Trainer(" in text]

    return store().found(("may train", below), find)


def _is_named_by_others(project: Project, own: str, config: str) -> bool:
    """Whether a file names a config, and is not about the program itself."""
    name = os.path.basename(config)
    is_only = sum(os.path.basename(one) == os.path.basename(own) for one in project.programs) == 1
    program = re.compile(rf"(?<![\w-]){re.escape(os.path.basename(own))}(?!\w)")
    for one in (*project.scripts, *project.programs, *project.yaml_files):
        text = project.text(one)
        if name in text and os.path.abspath(one) not in (own, config) and not (is_only and program.search(text)):
            return True
    return False


def _is_named_like_config(path: str) -> bool:
    return bool(_NAMED_LIKE_CONFIG.search(os.path.basename(path)))


def _is_candidate(path: str, given: Context, *, json: bool, yaml: bool) -> bool:
    if path.endswith((".yaml", ".yml")):
        return yaml and os.path.abspath(path) in {os.path.abspath(one) for one in project_of(path).accelerate_files}
    return json and is_config(path, given)


def is_config(path: str, given: Context) -> bool:
    """Whether a file is a config of DeepSpeed by what is in it."""
    try:
        return os.path.getsize(path) <= _LARGEST and load(path, given, named=False).kind is FileKind.DS_CONFIG
    except (ReadError, OSError):
        return False
