"""The files that the words of a launch select for Hydra: `experiment=large`, whose file may select Lightning's strategy for DeepSpeed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from dslint.evaluate.python.files import text_of
from dslint.not_judged import NotJudged, Why
from dslint.setups.launches import ReadLaunch

_MAIN = re.compile(r"@(?:\w+\.)*hydra\.main\(([^)]*)\)|@main\(([^)]*)\)")
_PATH = re.compile(r"config_path\s*=\s*[\"']([^\"']+)[\"']")
_NAME = re.compile(r"config_name\s*=\s*[\"']([^\"']+?)(?:\.ya?ml)?[\"']")
_OPTION = re.compile(r"\+{0,2}([A-Za-z][\w/]*)(?:@[\w.]+)?=([\w.-]+)")
_SELECTS = re.compile(r"(?m)^[ \t-]*(?:override[ \t]+)?/?[\w/]*(?:strategy|trainer)(?:@[\w.]+)?[ \t]*:[ \t]*[\"']?deepspeed")
"""What selects the strategy in a file: `- override /strategy: deepspeed`, `strategy: deepspeed_stage_2`."""


def options_of_hydra(launch: ReadLaunch) -> list[NotJudged]:
    """Why a launch is not judged whose words select a file with a strategy for DeepSpeed, or whose own file selects one."""
    command, program = launch.command, launch.program
    main = _MAIN.search(program.document.text) if program is not None else None
    if program is None or main is None or command.program is None:
        return []
    arguments = main[1] or main[2] or ""
    folder = _PATH.search(arguments)
    start = os.path.join(os.path.dirname(program.path), folder[1] if folder is not None else "")
    words = [(word, option) for word in command.words if (option := _OPTION.fullmatch(str(word.value))) is not None]
    chosen = {option[1] for _, option in words}
    found = [(word.raw, word.range) for word, option in words if any(map(_selects, _paths(start, option[1], option[2])))]
    name = _NAME.search(arguments)
    if not found and name is not None and not chosen & {"strategy", "trainer"} and any(map(_selects, _paths(start, "", name[1]))):
        found = [(f"{name[1]}.yaml", command.place)]
    return [NotJudged(Why.OF_HYDRA, (raw,), place, launch=f"the launch of {command.program.raw}") for raw, place in found[:1]]


def _paths(start: str, group: str, option: str) -> Iterator[str]:
    yield from (os.path.normpath(os.path.join(start, group, option.removesuffix(ending) + ending)) for ending in (".yaml", ".yml"))


def _selects(path: str) -> bool:
    text = text_of(path) if os.path.isfile(path) else None
    return text is not None and _SELECTS.search(text) is not None
