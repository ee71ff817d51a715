"""Findings about a program that may run with several configs: what is true with each of them, and what one of them makes certain."""

from __future__ import annotations

from collections.abc import Sequence

from dslint.diagnostics import Diagnostic, Effect, Severity
from dslint.job.model import Assumed
from dslint.lint.results import FileResult


def of_each_config(judged: Sequence[tuple[Assumed, FileResult]], others: Sequence[FileResult]) -> list[FileResult]:
    """The results for a program with each of several configs, where a finding in the program is said once.

    What rests on a config stays if it is found with all of them, or if it matters with that one; and if it is not in the `others`, which
    are the results without assumptions.
    """
    known = {_place(d) for result in others for d in result.diagnostics}
    found: dict[object, list[tuple[Assumed, Diagnostic]]] = {}
    for taken, result in judged:
        for d in result.diagnostics:
            if d.rests_on_config and d.path != taken.config:
                found.setdefault(_place(d), []).append((taken, d))
    said = {place: _said(here) for place, here in found.items() if place not in known}
    _leave_out_said(said, found, others)
    results = []
    for taken, result in judged:
        kept = []
        for d in result.diagnostics:
            if not d.rests_on_config or d.path == taken.config:
                kept.append(d)
            elif (one := said.pop(_place(d), None)) is not None:
                kept.append(one)
        results.append(result._replace(diagnostics=tuple(kept)))
    return results


def _leave_out_said(
    said: dict[object, Diagnostic | None], found: dict[object, list[tuple[Assumed, Diagnostic]]], others: Sequence[FileResult]
) -> None:
    """Leave out what is found at one tried stage, where something is found at the same place whatever the stage is."""
    sure = [d for result in others for d in result.diagnostics]
    sure += [d for place, d in said.items() if d is not None and len({taken.config for taken, _ in found[place]}) > 1]
    places = {(d.path, d.range) for d in sure if d.range is not None}
    for place, here in found.items():
        taken, d = here[0]
        if taken.tried and len(here) == 1 and (d.path, d.range) in places and place in said:
            said[place] = None


def _place(d: Diagnostic) -> object:
    return d.code, d.path, d.range or d.pointer


def _said(here: Sequence[tuple[Assumed, Diagnostic]]) -> Diagnostic | None:
    """One finding for those at one place; None if it is not found with every config, and does no harm."""
    configs = {taken.config for taken, _ in here}
    taken, first = here[0]
    if taken.tried:
        return _if_tried(here)
    if len(configs) == len(taken.others) + 1:
        return _ending(first, taken, taken.of_all) if len({_apart(*one) for one in here}) == 1 else first
    harmful = [one for one in here if one[1].harms_with_config]
    if not harmful:
        return None
    taken, first = harmful[0]
    same = [one.config for one, d in harmful if _apart(one, d) == _apart(taken, first)]
    return _ending(first, taken, taken.with_some(list(dict.fromkeys(same))))


_COSTS = frozenset({Effect.CRASH, Effect.SILENT, Effect.MEMORY})
"""The effects of what is said although it rests on a config that is only tried."""


def _if_tried(here: Sequence[tuple[Assumed, Diagnostic]]) -> Diagnostic | None:
    """One finding for those at one place, of configs that are tried; none for what costs nothing. What rests on them is an info."""
    taken, first = max(here, key=lambda one: one[1].severity.rank)
    if first.effect not in _COSTS:
        return None
    same = [one.config for one, d in here if _apart(one, d) == _apart(taken, first)]
    end = taken.with_some(list(dict.fromkeys(same)))
    said = _ending(first, taken, end)
    return said._replace(message=said.message.rstrip()) if not end else said._replace(severity=Severity.INFO)


def _apart(taken: Assumed, d: Diagnostic) -> str:
    """What a message says apart from the config that it rests on."""
    return d.message.replace(taken.sentence, "")


def _ending(d: Diagnostic, taken: Assumed, end: str) -> Diagnostic:
    cause = d.cause._replace(message=d.cause.message.replace(taken.sentence, end)) if d.cause is not None else None
    return d._replace(message=d.message.replace(taken.sentence, end), cause=cause)
