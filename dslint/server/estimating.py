"""The memory estimate of an open config: the code lens above it, and the page that the lens opens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lsprotocol import types

from dslint.config import Config
from dslint.errors import UserError
from dslint.facts.gpus import in_words
from dslint.memory.estimate import Estimate, estimate
from dslint.memory.usual import usual_job
from dslint.report import estimate_page
from dslint.report.estimate_plot import picture
from dslint.report.speed_words import spread
from dslint.report.style import Style
from dslint.server.checking import Checked
from dslint.server.inside import Training
from dslint.server.names import SHOW
from dslint.source.tree import Mapping
from dslint.speed.planned import step_of

WIDTH = 100
"""The columns of the text of an estimate."""


def lenses(checked: Checked, trainings: Iterable[Training]) -> list[types.CodeLens]:
    """A lens above each config in a file, and above the name of one, if its model and its GPU are known."""
    found: dict[int, types.CodeLens] = {}
    for training in trainings:
        config, line = training.config, _line(training, checked)
        if config is None or line is None or line in found:
            continue
        if config.facts.model is None or config.facts.gpu_memory is None or config.document.problems:
            continue
        try:
            title = peak(estimated(training), config)
        except (UserError, ValueError, TypeError, ArithmeticError):
            continue  # `dslint/estimate` says why
        place = types.Range(types.Position(line, 0), types.Position(line, 0))
        found[line] = types.CodeLens(place, types.Command(title, SHOW, arguments=[checked.file.uri]))
    return list(found.values())


def _line(training: Training, checked: Checked) -> int | None:
    """The line of a config in the file, or that of its name."""
    root = training.config.document.root if training.config is not None else None
    if training.is_here and isinstance(root, Mapping):
        return checked.file.positions.position(root.span.start).line
    link = training.link
    if link is None or link.range is None or checked.result is None or link.path != checked.result.path:
        return None
    return link.range.start.line - 1


def the_training(trainings: Iterable[Training]) -> Training:
    """The first training of a file that has a config.

    Raises:
        UserError: there is none.
    """
    found = next((training for training in trainings if training.config is not None), None)
    if found is None:
        raise UserError("no DeepSpeed config was found in this file.")
    return found


def estimated(training: Training) -> Estimate:
    """The estimate for a config; what the training says of model and program counts.

    Raises:
        UserError: the model or the world size is not known, or a setting cannot be estimated.
    """
    config = training.config
    assert config is not None
    if config.document.problems:
        raise UserError(f"the config has a syntax error: {config.document.problems[0].message}")
    return estimate(*usual_job(config, training.arguments))


def peak(found: Estimate, config: Config) -> str:
    """The peak on a GPU in one line: `peak 62 to 71 of 80 GiB on h100: fits; step 2.1 to 4.5 s`."""
    low, high = found.device.low / 2**30, found.device.high / 2**30
    digits = 0 if low >= 10 else 1
    span = f"peak {low:.{digits}f} to {high:.{digits}f}"
    memory = config.facts.gpu_memory
    time = step_of(config, found)
    lasts = f"; step {spread(time)}" if time is not None else ""
    if memory is None:
        return f"{span} GiB{lasts}"
    on = f" on {config.facts.gpu}" if config.facts.gpu is not None else ""
    return f"{span} of {in_words(memory)}{on}: {found.verdict(memory)}{lasts}"


def page(training: Training) -> dict[str, Any]:
    """The answer to `dslint/estimate`."""
    found = estimated(training)
    config = training.config
    assert config is not None
    limit = config.facts.gpu_memory
    return {
        "summary": peak(found, config),
        "text": estimate_page.page(found, config.facts, limit, Style(color=False, width=WIDTH), step_of(config, found)),
        "svg": picture(found, limit, html=False),
        "html": picture(found, limit, html=True),
    }
