"""The configs that a program may run with where neither the program nor a launch that dslint sees says which."""

from __future__ import annotations

import os
import re

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.load import load
from dslint.evaluate.files import concerns_deepspeed, makes_loader, uses_loader
from dslint.job.model import Seen
from dslint.record import Record
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


class Candidates(Record):
    """The absolute paths of the configs that a program may run with, and which ones these are, as `Assumed.seen` says it.

    `too_many` says that there are none because there are more than dslint tries.
    """

    paths: tuple[str, ...] = ()
    seen: Seen = Seen.ALL
    too_many: bool = False


def candidates(path: str, given: Context, *, json: bool, yaml: bool, beside: bool = False) -> Candidates:
    """The configs that a program may run with.

    Those that a person names together with the program; else those that its own text names; else those that lie nearest to it, and that
    no other file names.

    Args:
        path: the path of the program.
        given: what is given.
        json: whether the program may take a config of DeepSpeed.
        yaml: whether Accelerate may launch it with a file of its own.
        beside: whether only configs in the folder of the program, or below it, are looked for, unless the project has few programs.
    """
    own = os.path.abspath(path)
    together = [one for one in store().named if one != own]
    found = [one for one in together if _is_candidate(one, given, json=json, yaml=yaml)]
    if found:
        return Candidates(tuple(sorted(found)), Seen.NAMED_WITH_IT)
    project = project_of(path)
    folder = os.path.dirname(own)
    listed = [one for one in project.json_files if json and (_is_named_like_config(one) or os.path.dirname(one) == folder)]
    listed += [os.path.abspath(one) for one in project.accelerate_files if yaml]
    text = project.text(own)
    mentioned = [one for one in listed if os.path.basename(one) in text]
    found = [one for one in mentioned[: MOST_CANDIDATES + 1] if _is_candidate(one, given, json=json, yaml=yaml)]
    if found:
        return _at_most(found, Seen.NAMED_BY_IT)
    return _nearest(project, own, listed, given, json=json, yaml=yaml, beside=beside and not _has_few_programs(project))


def _at_most(found: list[str], seen: Seen) -> Candidates:
    """The configs that were found, unless there are too many."""
    return Candidates(tuple(sorted(found)), seen) if len(found) <= MOST_CANDIDATES else Candidates(too_many=True)


def candidates_meant(written: str, program: str, script: str, given: Context, *, yaml: bool) -> Candidates:
    """The configs that a launch may name with a word that has variables in it: `configs/zero${STAGE}.json`.

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
    return _at_most(found, Seen.NAMED_ALIKE)


_VARIABLE = re.compile(r"\$\{[^{}]*\}|\$\w+|\$\([^()]*\)|\{\w+\}")

_FEWEST_LETTERS = 6
"""How many letters of a path with variables are known at least where the files are searched that it can mean. `.json` has five."""


def may_have_candidates(path: str, text: str, given: Context) -> bool:
    """Whether a program makes a Trainer or an Accelerator, and a config lies beside it, or is one of those that a person names with it."""
    if not _may_be_launched(path, text):
        return False
    project, folder = project_of(path), os.path.dirname(os.path.abspath(path))
    below = os.path.join(folder, "")
    files = [*filter(_is_named_like_config, project.json_files), *map(os.path.abspath, project.accelerate_files)]
    if files and (_has_few_programs(project) or any(os.path.basename(one) in text for one in files)):
        return True
    if not any(one.startswith(below) for one in files) and not _has_config_by_content(project, folder, given):
        return False
    return len(_others_below(project, below)) <= _MOST_PROGRAMS


def may_use_config_beside(path: str, text: str, given: Context) -> bool:
    """Whether a program makes a Trainer or an Accelerator, and a config lies in its folder that no other file names.

    A script that launches it and concerns DeepSpeed says itself what is known of the launch.
    """
    if not _may_be_launched(path, text):
        return False
    project, own = project_of(path), os.path.abspath(path)
    if is_in_script(project, path):
        return False
    beside = [one for one in project.json_files if os.path.dirname(one) == os.path.dirname(own)]
    return len(beside) <= MOST_FILES and any(is_config(one, given) and not _is_named_by_others(project, own, one) for one in beside)


def is_in_script(project: Project, path: str) -> bool:
    """Whether a script that concerns DeepSpeed names a program."""
    named = re.compile(rf"(?<![\w-]){re.escape(os.path.basename(path))}(?!\w)")
    return any(concerns_deepspeed(text) and named.search(text) for text in map(project.text, project.scripts))


def may_be_posted(path: str, text: str) -> bool:
    """Whether a text is a part of a program that people post: it makes a Trainer or an Accelerator, or uses one, imports nothing, and no
    other program beside it may train.
    """
    if not path.endswith(".py") or not uses_loader(text) or _IMPORT.search(text) is not None:
        return False
    if is_for_others(text, path) or _is_part(path, text):
        return False
    project, own = project_of(path), os.path.abspath(path)
    return all(os.path.abspath(one) == own for one in _others_below(project, os.path.join(project.top, "")))


_IMPORT = re.compile(r"^[ \t]*(?:>>> |\+)?(?:from[ \t]+\S+[ \t]+)?import[ \t]", re.MULTILINE)


def _starts_unseen(project: Project, script: str) -> bool:
    """Whether a script names programs, and none of them is in the project."""
    named = {os.path.basename(one) for one in _PROGRAM.findall(script)}
    return bool(named) and named.isdisjoint(os.path.basename(one) for one in project.programs)


_PROGRAM = re.compile(r"[\w./-]+\.py\b")


def _may_be_launched(path: str, text: str) -> bool:
    """Whether a program makes a Trainer or an Accelerator, and may be launched with DeepSpeed by itself."""
    return path.endswith(".py") and makes_loader(text) and not is_for_others(text, path) and not _is_part(path, text)


def _is_part(path: str, text: str) -> bool:
    """Whether a file only defines what a program of the project that makes a loader imports: it is judged as a part of that."""
    if _RUNS.search(text):
        return False
    project = project_of(path)
    return any(makes_loader(project.text(one)) and not project.is_test(one) for one in project.importers_of(path))


_RUNS = re.compile(r"""(?m)^(?:if\s+__name__\s*==|(?!class\b|def\b|#)\S.*(?:Trainer|Accelerator)\()""")
"""What a program has that is run: the block of a main program, or a loader that is made where the file begins."""


def _has_few_programs(project: Project) -> bool:
    """Whether a project has no more programs that may train than share its configs, wherever these lie."""
    return len(_others_below(project, os.path.join(project.top, ""))) <= _MOST_PROGRAMS


def _has_config_by_content(project: Project, folder: str, given: Context) -> bool:
    """Whether a JSON file in a folder is a config by what is in it, whatever its name is: `config.json`, `stage3.json`."""

    def find() -> tuple[Context, bool]:
        files = [one for one in project.json_files if os.path.dirname(one) == folder]
        return given, len(files) <= MOST_FILES and any(is_config(one, given) for one in files)

    return store().found(("config by content", folder, id(given)), find)[1]


def is_for_others(text: str, path: str) -> bool:
    """Whether a program names another way to divide a model, and not DeepSpeed: it is launched with that one."""
    return bool(_FOR_OTHERS.search(text) or _FOR_OTHERS.search(os.path.basename(path))) and not concerns_deepspeed(text)


_FOR_OTHERS = re.compile(r"fsdp|fully_?shard|megatron|torch_xla", re.IGNORECASE)


def _nearest(project: Project, own: str, listed: list[str], given: Context, *, json: bool, yaml: bool, beside: bool) -> Candidates:
    """The configs below the nearest folder that has some, and that no file names which is not about the program."""
    level = os.path.dirname(own)
    while True:
        below = os.path.join(level, "")
        around = [one for one in listed if one.startswith(below) and not _lies_with_others(project, own, one, level)]
        if len(around) > MOST_FILES:
            return Candidates(too_many=sum(map(_is_named_like_config, around)) > MOST_CANDIDATES)
        configs = [one for one in around if _is_candidate(one, given, json=json, yaml=yaml)]
        found = [one for one in configs if not _is_named_by_others(project, own, one)]
        if configs:
            if len(configs) > 1 and len(_others_below(project, below)) > _MOST_PROGRAMS:
                return Candidates()
            if len(found) < len(configs):
                return _at_most(found, Seen.OF_NOBODY_ELSE)
            is_broken = any(_is_named_like_config(one) and _is_unreadable(one, given) for one in around if one not in configs)
            return _at_most(found, Seen.READ if is_broken else Seen.ALL)
        if beside or level == project.top or os.path.dirname(level) == level:
            return Candidates()
        level = os.path.dirname(level)


def _lies_with_others(project: Project, own: str, config: str, level: str) -> bool:
    """Whether a config is in a folder below a level, or below one there, that has programs of its own: it is theirs."""
    folders = store().found(
        ("folders of programs", project.top), lambda: {os.path.dirname(os.path.abspath(one)) for one in project.programs}
    )
    folder = os.path.dirname(config)
    while len(folder) > len(level):
        if folder in folders and folder != os.path.dirname(own):
            return True
        folder = os.path.dirname(folder)
    return False


def _others_below(project: Project, below: str) -> list[str]:
    """The programs below a folder that may train with DeepSpeed, or with what uses it."""

    def find() -> list[str]:
        texts = ((one, project.text(one)) for one in project.programs if os.path.abspath(one).startswith(below))
        return [one for one, text in texts if concerns_deepspeed(text) or makes_loader(text)]

    return store().found(("may train", below), find)


def _is_named_by_others(project: Project, own: str, config: str) -> bool:
    """Whether a file names a config, and is not about the program itself."""
    name = os.path.basename(config)
    is_only = sum(os.path.basename(one) == os.path.basename(own) for one in project.programs) == 1
    program = re.compile(rf"(?<![\w-]){re.escape(os.path.basename(own))}(?!\w)")
    is_posted = may_be_posted(own, project.text(own))
    for one in (*project.scripts, *project.programs, *project.yaml_files):
        text = project.text(one)
        if name not in text or os.path.abspath(one) in (own, config) or (is_only and program.search(text)):
            continue
        if not (is_posted and one in project.scripts and _starts_unseen(project, text)):
            return True
    return False


def _is_named_like_config(path: str) -> bool:
    return bool(_NAMED_LIKE_CONFIG.search(os.path.basename(path)))


def _is_unreadable(path: str, given: Context) -> bool:
    """Whether a JSON file cannot be read as what it may be."""
    try:
        return path.endswith(".json") and bool(load(path, given, named=False).document.problems)
    except ReadError:
        return True


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
