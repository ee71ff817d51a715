"""Notebooks: the configs in their Python, and the launches in their shell lines and cells."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.evaluate.python.cells import Cell, cells_of, shell_of
from dslint.evaluate.shell.interpreter import Interpreter
from dslint.evaluate.shell.pieces import ShellSource, Text, TextPiece
from dslint.evaluate.shell.script import Script, run_parts
from dslint.evaluate.shell.syntax import NoParser
from dslint.evaluate.shell.written import written_config
from dslint.frameworks.programs import read_python
from dslint.setups.gather import LoadedSetup, Read
from dslint.setups.program import read_program, with_assumed_names
from dslint.setups.script import joined_notes, read_launches
from dslint.source.tree import Document, Span

_PYTHON = re.compile(r"(?<![${])\{([^{}\n]*)\}")
"""What IPython replaces by the value of a Python expression."""


def read_notebook(text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read a notebook. None for a discovered one that has nothing to do with DeepSpeed."""
    found = read_program(text, path, shown, given, named=named)
    cells = cells_of(text)
    if cells is None:
        return found
    sources = [ShellSource(f"{shown}:{cell.name}", Document(cell.text, None, language="text")) for cell in cells]
    try:
        program = read_python(text, shown, path)
        parts = _parts(cells, sources, program.variables if program is not None else {})
        runner = run_parts(parts, path, given.environment)
    except NoParser:
        return found
    if found is not None and program is not None:
        found = with_assumed_names(found, program)
    launches = [read for source in sources if (read := _launches(source, runner, path, given)) is not None]
    if found is not None:
        found = found._replace(setups=[_with_written(gathered, runner) for gathered in found.setups])
    if not launches:
        return found
    whole = found or Read(FileKind.PYTHON, Document(text, None, language="text"))
    notes = [read.note for read in ([whole] if whole.setups else []) + launches if read.note]
    return whole._replace(
        kind=FileKind.PYTHON,
        only_findings=False,
        setups=[*whole.setups, *(setup for read in launches for setup in read.setups)],
        note=joined_notes(notes) or whole.note,
        not_judged=[*whole.not_judged, *(one for read in launches for one in read.not_judged)],
    )


def _parts(cells: list[Cell], sources: list[ShellSource], variables: Mapping[str, str]) -> list[tuple[Text, str | None]]:
    """The texts that a shell runs, in order, and those that cells write to files. `variables` are those of the notebook's Python."""
    found: list[tuple[Text, str | None]] = []
    for cell, source in zip(cells, sources, strict=True):
        for start, end, name in shell_of(cell.text, is_code=cell.is_code):
            if start < end:
                found.append((_text(source, start, end, variables), name))
    return found


def _text(source: ShellSource, start: int, end: int, variables: Mapping[str, str]) -> Text:
    pieces: list[TextPiece] = []
    text = source.document.text
    for match in _PYTHON.finditer(text, start, end) if text[start - 1 : start] == "!" else ():
        pieces += [
            TextPiece(text[start : match.start()], source, Span(start, match.start())),
            TextPiece(variables.get(match[1].strip()), source, Span(*match.span()), exact=False),
        ]
        start = match.end()
    return tuple(piece for piece in [*pieces, TextPiece(text[start:end], source, Span(start, end))] if piece.text != "")


def _launches(source: ShellSource, runner: Interpreter, path: str, given: Context) -> Read | None:
    """The launches that one cell runs."""
    launched = [one for one in runner.launched if one.words[0] and one.words[0][0].source is source]
    return read_launches(Script(source, launched), path, given, named=False) if launched else None


def _with_written(gathered: LoadedSetup, runner: Interpreter) -> LoadedSetup:
    """A setup of the program, with the config that a cell of the notebook writes."""
    link = gathered.setup.link
    if gathered.config is not None or link is None or not isinstance(link.value, str):
        return gathered
    found = written_config(runner.files.get(os.path.normpath(link.value), ()))
    if found is None:
        return gathered
    source, config = found
    return gathered.with_file(source.shown, source.document)._replace(config=config).but(config=source.shown, missing=())
