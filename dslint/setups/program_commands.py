"""The launches in the commands that a program runs: `subprocess.run(["torchrun", "train.py"])`."""

from __future__ import annotations

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.evaluate.python.read import PythonFile
from dslint.evaluate.shell.pieces import ShellSource, Text, TextPiece
from dslint.evaluate.shell.script import Script, run_parts
from dslint.evaluate.shell.syntax import NoParser
from dslint.evaluate.values import HOLE
from dslint.setups.gather import Read
from dslint.setups.script import joined_notes, read_launches


def with_commands(found: Read | None, program: PythonFile, path: str, given: Context) -> Read | None:
    """A program with the launches in the commands that it runs."""
    parts: list[tuple[Text, str | None]] = []
    for command in program.commands:
        source = ShellSource(command.shown, program.documents[command.shown])
        pieces = [TextPiece(text, source, command.span, exact=False) for text in command.text.split(HOLE)]
        holes = [TextPiece(None, source, command.span, exact=False)] * (len(pieces) - 1)
        joined = [pieces[0], *(one for pair in zip(holes, pieces[1:], strict=True) for one in pair)]
        parts.append((tuple(piece for piece in joined if piece.text != ""), None))
    try:
        runner = run_parts([part for part in parts if part[0]], path, given.environment)
    except NoParser:
        return found
    source = ShellSource(program.path, program.document)
    launches = read_launches(Script(source, runner.launched), path, given, named=False)
    if launches is None:
        return found
    whole = found or Read(FileKind.UNRELATED, program.document)
    notes = [read.note for read in (whole if whole.setups else None, launches) if read is not None and read.note]
    return whole._replace(
        kind=FileKind.PYTHON if launches.setups else whole.kind,
        setups=[*whole.setups, *launches.setups],
        note=joined_notes(notes) or whole.note,
        not_judged=[*whole.not_judged, *launches.not_judged],
    )
