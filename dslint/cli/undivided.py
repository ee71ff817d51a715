"""What `dslint estimate` says of a script that trains without DeepSpeed."""

from __future__ import annotations

from typing import Any

from dslint.errors import UserError
from dslint.facts import Facts, Integration
from dslint.frameworks.registry import model_in_flags, named
from dslint.frameworks.trained import trains_all
from dslint.lint.discovery import shown
from dslint.memory.completed import completed
from dslint.memory.requests import described_model
from dslint.memory.shapes import Model
from dslint.memory.undivided import LeastBytes, least_undivided
from dslint.record import Record
from dslint.settings import Finder
from dslint.setups.names import Says, says
from dslint.setups.plain_launches import PlainTraining, plain_training
from dslint.source.read import ReadError, read


class UndividedAnswer(Record):
    """The model of a training without DeepSpeed, the least that each GPU needs, and the launch in words."""

    model: Model
    least: LeastBytes
    facts: Facts
    launch: str


def undivided_answer(path: str, finder: Finder, said: dict[str, Any]) -> UndividedAnswer | None:
    """What a script needs that launches a training without DeepSpeed; None for any other file, and if its model is not known."""
    if path == "-" or says(path) is not Says.LEADS or path.endswith((".py", ".ipynb", ".yaml", ".yml")):
        return None
    context = finder.for_file(path).context
    try:
        found = plain_training(read(path), path, shown(path), context)
    except ReadError:
        return None
    if found is None:
        return None
    whole = completed(said, found.arguments, context)
    options = dict(whole.said)
    if options["model"] is None and context.facts.model is None:
        options["model"] = model_in_flags(found.command.flags)
    try:
        model = described_model(options, context.facts).model
    except UserError:
        return None
    in_part = options["lora_rank"] is not None or not trains_all(found.arguments)
    bits = options["base_bits"] and int(options["base_bits"])
    least = least_undivided(model, _optimizer(found, said, whole.said), bits, in_part=in_part)
    return UndividedAnswer(model, least, context.facts, _in_words(found))


def _optimizer(found: PlainTraining, said: dict[str, Any], completed_options: dict[str, Any]) -> str | None:
    """The optimizer, as far as it is known: the Trainer has AdamW by default."""
    chosen = said["optimizer"] or completed_options["optimizer"]
    framework = named(found.arguments.framework)
    if chosen is not None or framework is None or framework.loader is not Integration.TRANSFORMERS or "optim" in found.arguments:
        return chosen  # type: ignore[no-any-return]
    return "adamw"


def _in_words(found: PlainTraining) -> str:
    ranks = found.launch.world_size
    command = found.command
    program = command.program.raw if command.program is not None else "a training"
    return f"{command.launcher} launches {program}{f' on {ranks:,} rank' + 's' * (ranks > 1) if ranks else ''}"
