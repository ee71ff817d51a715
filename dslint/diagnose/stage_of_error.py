"""A program without a config, judged with the ZeRO stage that the error of its job proves."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator

from dslint.config.context import Context
from dslint.diagnose.judging import judged_in
from dslint.diagnose.rules import kept
from dslint.diagnostics import Diagnostic
from dslint.frameworks.loader import with_loaders
from dslint.lint.setups import COMMAND, lint_read
from dslint.registry.rules import default_rules
from dslint.setups.open import Subject
from dslint.setups.script import read_shell

_OF_STAGE_3 = re.compile(r"(?i)\bDeepSpeed Zero-?3 is not compatible with\b")
"""The error of transformers that is raised only where the config it knows is for stage 3 (integrations/deepspeed.py,
is_deepspeed_zero3_enabled).
"""

_LAUNCH = "accelerate launch --use_deepspeed --zero_stage 3 --zero3_init_flag true"
"""A launch under which transformers knows of stage 3, as it did in the job."""

_ABOUT_MODELS = frozenset({"DS946", "DS947"})
"""The rules about how a program loads its model, whatever else the config has."""


def proves_stage_3(title: str) -> bool:
    """Whether an error is raised only at ZeRO stage 3, by how the program loads its model."""
    return _OF_STAGE_3.search(title) is not None


def loads_at_stage_3(program: str, context: Context) -> tuple[list[Diagnostic], frozenset[str]]:
    """What rules find in how a program loads its model at ZeRO stage 3, and those of them that could judge it."""
    folder, name = os.path.split(program)
    context = with_loaders(context.but(integration=None))
    rules = [rule for rule in default_rules() if rule.code in _ABOUT_MODELS]
    read = read_shell(f"{_LAUNCH} {shlex.quote(name)}", os.path.join(folder, "command"), COMMAND, context, named=True)
    if read is None:
        return [], frozenset()
    told = [one for result in lint_read(read, COMMAND, context, rules) for finding in result.diagnostics for one in _in_program(finding)]
    return kept(told, frozenset(), tuple(_ABOUT_MODELS)), judged_in(Subject(COMMAND, trainings=read)) & _ABOUT_MODELS


def _in_program(finding: Diagnostic) -> Iterator[Diagnostic]:
    """The finding at its place in the program: nobody has written the launch."""
    places = [one for one in finding.related if one.path != COMMAND]
    if finding.path != COMMAND:
        yield finding._replace(related=tuple(places))
    elif places:
        yield finding._replace(path=places[0].path, pointer=None, range=places[0].range, related=tuple(places[1:]))
