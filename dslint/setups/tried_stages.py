"""A program whose config is not known: the configs that are tried in its place, of which nothing but a ZeRO stage is known."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from dslint.job.model import ANY_STAGE, STAGE, Assumed
from dslint.not_judged import AnsweredBy, Why
from dslint.setups.gather import LoadedSetup, settle
from dslint.setups.possible_stages import with_stage
from dslint.setups.project import project_of
from dslint.source.parse import parse
from dslint.source.store import store
from dslint.source.tree import Document, Mapping, Member, Scalar
from dslint.source.unknown import UNKNOWN

_CONFIGS = {
    ANY_STAGE: "{}",
    "ZeRO stage 2": '{"zero_optimization": {"stage": 2}}',
    "ZeRO stage 3": '{"zero_optimization": {"stage": 3}}',
}
"""What is tried. What is found with the first does not rest on the stage; from 2 on gradients are divided, at 3 weights."""

_NO_TRAINING = frozenset({Why.INFERENCE, Why.NO_STRATEGY, Why.OF_NAMED_STRATEGY, Why.WITHOUT_DEEPSPEED})
"""Why there is no config where there is none, or where a name says its stage."""


def tried(gathered: LoadedSetup) -> list[LoadedSetup]:
    """A program whose config, or its stage, is not known, with the configs that are tried; none for any other setup."""
    program, reason = gathered.setup.program, gathered.not_judged
    if gathered.config is not None:
        return _at_unknown_stage(gathered)
    if program is None or reason is None or reason.why in _NO_TRAINING:
        return []
    if reason.answer is AnsweredBy.CALLER and any(True for _ in project_of(program.path).importers_of(os.path.abspath(program.path))):
        return []  # a part of the programs that import it, which may tell transformers of the config, or gather weights
    before = program.assumed
    if before is not None and not before.tried:
        return []
    named = gathered.setup.link or next(iter(gathered.setup.missing), None)
    names = _of_name(named.raw) if named is not None else ()
    names = names or _in_project(program.path)
    return [_with(gathered, name, names, by_launch=before is not None) for name in names]


def _at_unknown_stage(gathered: LoadedSetup) -> list[LoadedSetup]:
    """A program with a config of which everything but the ZeRO stage may be known, at each stage."""
    program, config = gathered.setup.program, gathered.config
    member = config.lookup(STAGE) if config is not None else None
    if program is None or program.assumed is not None or gathered.is_definition or not isinstance(member, Member):
        return []
    if config is None or config.root is None or not isinstance(member.value, Scalar) or member.value.value is not UNKNOWN:
        return []
    compared = _compares(re.findall(r"[A-Za-z_]\w*", member.value.raw))
    if any(one.language == "python" and compared.search(one.text) for one in gathered.documents.values()):
        return []  # it does something else at each stage, or replaces some
    names = [name for name in _in_project(program.path) if name != ANY_STAGE]
    found = []
    for name in names:
        others = tuple(one for one in names if one != name)
        taken = Assumed(name, program.path, others, flag=member.value.raw, tried=True)
        at_stage = gathered._replace(config=config.with_root(with_stage(config.root, STAGE, int(name[-1]))))
        found.append(settle(at_stage.but(program=replace(program, assumed=taken))))
    return found


def _compares(names: Sequence[str]) -> re.Pattern[str]:
    """Matches where a program compares one of the names that say a stage, or any other with this word in it."""
    said = "|".join([*names, r"\w*stage\w*"])
    return re.compile(rf"\b(?:{said})\b\)?\s*(?:[=!]=|[<>]|in\b|not in\b)")


def _of_name(name: str) -> tuple[str, ...]:
    """What is tried for a config whose name says its stage, `zero2.json`; () for any other name."""
    found = set(_STAGE_OF_NAME.findall(name))
    return tuple(one for one in _CONFIGS if one == ANY_STAGE or one[-1] in found) if len(found) == 1 else ()


_STAGE_OF_NAME = re.compile(r"(?:zero|stage|z)[-_]?([0-3])(?!\d)", re.IGNORECASE)


def _in_project(path: str) -> tuple[str, ...]:
    """What is tried for a program of a project: no stage that none of its configs has, if it has some, and no script or program names."""
    project = project_of(path)

    def find() -> tuple[str, ...]:
        configs = [text for text in map(project.text, project.json_files) if any(key in text for key in _OF_CONFIG)]
        configs += map(project.text, project.accelerate_files)
        if not configs:
            return tuple(_CONFIGS)
        texts = [*configs, *(text for one in (*project.scripts, *project.programs) if "zero" in (text := project.text(one)).lower())]
        return tuple(name for name in _CONFIGS if name == ANY_STAGE or any(_names_stage(name[-1]).search(text) for text in texts))

    return store().found(("tried", project.top), find)


_OF_CONFIG = ('"zero_optimization"', '"train_micro_batch_size_per_gpu"', '"train_batch_size"')


@cache
def _names_stage(stage: str) -> re.Pattern[str]:
    """A text with a ZeRO stage in it: `"stage": 3`, `zero_stage: 3`, `--zero_stage 3`, `zero3`, or one that a variable gives."""
    return re.compile(rf"""stage["']?\]?[ \t]*[:=, ][ \t]*["']?(?:{stage}|[^\d\s"'])|zero[-_ ]?(?:stage[-_ ]?)?{stage}""", re.IGNORECASE)


def by_launch(gathered: LoadedSetup) -> LoadedSetup:
    """The setup of a program that only its launch may train with DeepSpeed: nothing is said of it but with the configs that are tried."""
    return _with(gathered, ANY_STAGE, tuple(_CONFIGS), by_launch=True)._replace(config=None)


def _with(gathered: LoadedSetup, name: str, names: Sequence[str], *, by_launch: bool) -> LoadedSetup:
    """A setup with one of the tried configs. Its setup has none: no file is named in findings, and no rule compares one with others."""
    program = gathered.setup.program
    assert program is not None
    others = tuple(one for one in names if one != name)
    taken = Assumed(name, program.path, others, by_launch=by_launch, tried=True)
    return settle(gathered.but(program=replace(program, assumed=taken))._replace(config=_config(_CONFIGS[name])))


def _config(text: str) -> Document:
    """A config of which nothing else is known."""

    def make() -> Document:
        document = parse(text)
        waiting = [document.root]
        for node in waiting:
            if isinstance(node, Mapping):
                node.may_have_more = True
                waiting += [one.value for one in node.members]
        return document

    return store().found(("tried config", text), make)
