"""The number of a machine or a rank that the script of a Slurm job expands itself, where it is 0, before srun starts a task."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dslint.evaluate.shell.pieces import Text, TextPiece, known, place_of
from dslint.evaluate.shell.script import Script
from dslint.evaluate.shell.state import Launched
from dslint.evaluate.shell.syntax import Chunk
from dslint.job.arguments import SourcedValue
from dslint.setups.command_words import CommandWord
from dslint.setups.slurm_tasks import several_machines
from dslint.source.ranges import range_of

_NUMBER = r"\$\{?SLURM_(?:NODEID|PROCID|LOCALID)"
_EXPANDED = re.compile(_NUMBER + r"\}?")
_WITH_DEFAULT = re.compile(_NUMBER + r":?-\Z")
_FLAG = re.compile(r"--(?:node[-_]rank|machine[-_]rank)(=.*)?", re.DOTALL)
_ONE_TASK = re.compile(r"(?:^| )(?:-N ?|--nodes[= ]|-n ?|--ntasks[= ])1(?= |$)")
"""The flags of srun with which it starts one task only, as in a loop over the machines."""
_RUN_AGAIN = re.compile(r"\bexport +-f|\b(?:declare|typeset) +-\w*x|\$\{?(?:0|BASH_SOURCE)\b|SLURM_STEP")
"""What lets srun run a part of the script, or all of it, again: a function that is exported, or its own name."""


def machine_number(words: Sequence[CommandWord], launched: Launched, script: Script) -> SourcedValue | None:
    """The flag for the number of the machine with a number that the script expands, or that nothing expands.

    Its value is 0, or the text that the launcher gets. `words` stand before the program.
    """
    if not _starts_several(words, launched, script):
        return None
    for index, word in enumerate(words):
        match = _FLAG.fullmatch(word.text if word.text is not None else word.raw)
        if match is None or (match[1] is None and index + 1 == len(words)):
            continue
        value = word if match[1] is not None else words[index + 1]
        text = (value.text or "").rpartition("=")[2]
        literal = text if _EXPANDED.fullmatch(text) and not launched.shell_of else None
        if literal is not None or _written(value.parts, script):
            name = word.raw.partition("=")[0]
            raw = _written(value.parts, script) if literal is None else literal
            return SourcedValue(literal or 0, name, raw, value.path, value.range)
    return None


def rank_number(words: Sequence[CommandWord], launched: Launched, script: Script, names: Sequence[str]) -> SourcedValue | None:
    """The first of some variables of a task that has a number which the script expands. `words` stand before the program."""
    if not _starts_several(words, launched, script):
        return None
    for name in names:
        text = launched.environment.get(name)
        if text and _written(text, script):
            source, span = place_of(text)
            return SourcedValue(0, name, _written(text, script), source.shown, range_of(source.document, span))
    return None


def _starts_several(words: Sequence[CommandWord], launched: Launched, script: Script) -> bool:
    """Whether srun starts the launch on several machines, as #SBATCH lines say, or several tasks of it."""
    before = [known(word) or "" for word in launched.shell_of] + [word.text or "" for word in words]
    if several_machines(script) is None or "srun" not in before or _RUN_AGAIN.search(script.source.document.text):
        return False
    return _ONE_TASK.search(" ".join(before[before.index("srun") :])) is None


def _written(text: Text, script: Script) -> str:
    """The number in a text as it is written, if the shell of the script expands it, and not one that srun starts; "" without one."""
    numbers = ((piece, _number(piece, script)) for piece in text)
    return next((number for piece, number in numbers if number and not _is_quoted(piece, script)), "")


def _number(piece: TextPiece, script: Script) -> str:
    """The number that a piece is, as it is written; "" if it is none."""
    document, (start, end) = piece.source.document.text, piece.span
    if piece.source.shown != script.source.shown or piece.text not in (None, "0"):
        return ""
    if piece.text is None:
        return document[start:end] if _EXPANDED.fullmatch(document, start, end) else ""
    before = _WITH_DEFAULT.search(document[max(0, start - 20) : start])
    return f"{before[0]}{document[start:end]}}}" if before is not None else ""


def _is_quoted(piece: TextPiece, script: Script) -> bool:
    """Whether a backslash, single quotes or a here-document leave a number to another shell."""
    chunk = Chunk.of_file(script.source)
    place = chunk.place_of(piece.span)
    if chunk.text[place - 1 : place] == "\\":
        return True
    node = chunk.node_at(place)
    while node is not None:
        if node.type in ("raw_string", "ansi_c_string", "heredoc_body"):
            return True
        node = node.parent
    return False
