"""Lint a program whose config is not known with the ones that are tried in its place: only what they make of the program counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dslint.config.detect import FileKind
from dslint.config.infer import infer
from dslint.diagnostics import Diagnostic
from dslint.job.model import STAGE, Assumed
from dslint.lint.document import lint_document
from dslint.lint.results import FileResult
from dslint.rule import RuleInfo
from dslint.setups.gather import LoadedSetup

_TRIED = "<tried config>"
"""The name of a tried config. No report shows it."""

_PLACES = (f"/{'/'.join(STAGE)}", f"/{STAGE[0]}", "", None)
"""Where a finding stands that is about nothing in a config but the stage: there, or at what is around it."""


def lint_tried(setups: Iterable[LoadedSetup], shown: str, rules: Sequence[RuleInfo]) -> Iterator[tuple[Assumed, FileResult]]:
    """The results for the files of a program with each of the configs that are tried. `shown` is the file that leads to them."""
    for gathered in setups:
        taken = gathered.setup.one_of_several
        assert taken is not None
        assert gathered.config is not None
        linted = lint_document(gathered.config, _TRIED, infer(gathered.config, gathered.context), rules)
        found = [one for d in linted.diagnostics if (one := _in_program(d, is_written=bool(taken.flag))) is not None]
        for path in dict.fromkeys([shown, *(d.path for d in found)]):
            of_file = tuple(d for d in found if d.path == path)
            kind = gathered.kinds.get(path, FileKind.PYTHON)
            yield taken, FileResult(path, kind, gathered.documents.get(path), of_file, context=gathered.context)


def _in_program(d: Diagnostic, *, is_written: bool) -> Diagnostic | None:
    """A finding in a file; None for one in the tried config, unless that is not written by the program, and it names a place in one that
    someone has to change.
    """
    others = tuple(one for one in d.related if one.path != _TRIED)
    if d.path != _TRIED and d.pointer is None:
        return d._replace(related=others)
    place = next((one for one in others if one.range is not None), None) if _is_of_program(d) and not is_written else None
    if place is None:
        return None
    return d._replace(path=place.path, pointer=None, range=place.range, related=tuple(one for one in others if one is not place))


def _is_of_program(d: Diagnostic) -> bool:
    """Whether a finding is placed at nothing in the config but the stage, or its section."""
    return d.pointer in _PLACES
