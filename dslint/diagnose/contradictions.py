"""What is given for a log, and does not fit it or is not used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from dslint.diagnose.context import NOTHING, LogContext, config_file, config_of, context_of, is_of_another, model_in
from dslint.diagnose.diagnosis import Diagnosis
from dslint.errors import UserError
from dslint.facts.gpus import GIB
from dslint.job.arguments import in_short
from dslint.source.tree import Path, dotted, plain

MOST_KEYS = 3
"""The most keys that are named."""

PADDED = 0.02
"""The part by which the parameters of one model may differ. A vocabulary that is padded to a multiple of 128, as by Megatron, is less than
1 % of a model of 100 million parameters.
"""


def contradictions(found: list[Diagnosis], given: LogContext, options: list[str], path: str | None) -> list[str]:
    """Sentences on given facts (`options`), the given file (`path`) and the given model that a log contradicts, or that nothing uses."""
    of_facts = list(_of_facts(found, given, options))
    contradicted = {option for option, _ in of_facts}
    told = [sentence for _, sentence in of_facts]
    for one in found:
        told += [*_of_config(one, given, path), *_of_model(one, given)]
    return list(dict.fromkeys([*told, *_unused(found, given, [option for option in options if option not in contradicted])]))


def _of_facts(found: list[Diagnosis], given: LogContext, options: list[str]) -> Iterator[tuple[str, str]]:
    """The options that a log contradicts, each with a sentence."""
    for option in options:
        name = option.replace("-", "_")
        value = getattr(given.facts, name)
        facts = [context_of(one.job).facts for one in found]
        logged = {getattr(one, name) for one in facts} - {None, value}
        if logged:
            yield option, f"--{option} {value} is not used: the log says {' and '.join(sorted(map(str, logged)))}."
        elif option == "gpu":
            for size in sorted({one.gpu_memory for one in facts if one.gpu_memory and is_of_another(value, one.gpu_memory)}):
                yield option, f"--gpu {value} is not used: it has {value.memory / GIB:.1f} GiB, and the log says {size / GIB:.1f} GiB."


def _of_config(one: Diagnosis, given: LogContext, path: str | None) -> Iterator[str]:
    """What the log says of the config in other words than the given file."""
    loaded = config_of(one.job, context_of(one.job, given), given) if given.config is not None else None
    if loaded is None or loaded.document.root is None or path is None:
        return
    own = dict(_settings(plain(loaded.document.root)))
    printed = one.job.facts.get("config")
    if printed is not None:
        logged = dict(_settings(printed.value))
        differing = [key for key in own if key in logged and own[key] != logged[key] and "auto" not in (own[key], logged[key])]
        if differing:
            keys = ", ".join(
                f"{dotted(key)} is {in_short(str(own[key]))} ({in_short(str(logged[key]))} in the log)" for key in differing[:MOST_KEYS]
            )
            more = f" and {len(differing) - MOST_KEYS} more differ" if len(differing) > MOST_KEYS else ""
            yield f"{path} is used, and not the config in the log ({one.at(printed.place)}): {keys}{more}."
        return
    named = config_file(one.job)
    if named is not None and path.endswith((".json", ".hjson")) and os.path.realpath(named) != os.path.realpath(path):
        yield f"{path} is used, and not {named}, which the log names."
    stage, written = one.job.facts.get("stage"), own.get(("zero_optimization", "stage"))
    if stage is not None and isinstance(written, int) and isinstance(stage.value, int) and stage.value != written:
        yield f"{path} has ZeRO stage {written}, but the log says stage {stage.value} ({one.at(stage.place)})."


def _settings(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The values of a config, each with its path."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _settings(value, (*path, str(key)))
    elif isinstance(data, bool | int | float | str):
        yield path, data


def _of_model(one: Diagnosis, given: LogContext) -> Iterator[str]:
    if given.model is None:
        return
    try:
        own, logged = model_in(one.job, given), model_in(one.job, NOTHING)
    except UserError:
        return
    if own is not None and logged is not None and abs(own.size - logged.size) > PADDED * logged.size:
        name, place = one.job.get("model_name") or "another model", one.job.facts.get("model_name") or one.job.facts.get("params")
        at = f" ({one.at(place.place)})" if place is not None and place.place is not None else ""
        yield f"--model {given.model} is used, but the log says {name}{at}: {own.size:,} and {logged.size:,} parameters."


def _unused(found: list[Diagnosis], given: LogContext, options: list[str]) -> Iterator[str]:
    if given.model is not None and found and all(one.without_estimate for one in found):
        yield f"--model {given.model} is not used: {found[0].without_estimate}."
    if given.program is None and found and all(config_of(one.job, context_of(one.job, given), given) is None for one in found):
        for option in options:
            value = getattr(given.facts, option.replace("-", "_"))
            yield f"--{option} {value} is not used: the log does not print the config; pass --config FILE."
