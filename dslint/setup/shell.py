"""The words of a shell text, each with its place: enough of the grammar to find the commands in a script. Nothing is executed.

A variable is replaced if the text itself assigns its value; a word with any other variable is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dslint.source.integers import integer
from dslint.source.tree import Comment, Span

ASSIGNMENT = re.compile(r"(?:export\s+|local\s+)?([A-Za-z_]\w*)=")
_MAKE_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)\s*(?:[:?]|::)?=\s*([^\r\n#]*)")
_VARIABLE = re.compile(r"\$(?:\$?(\w+)|\$?\{(\w+)(?::?-([^}]*))?\}|\((\w+)\))")
_SBATCH = re.compile(r"^#SBATCH[ \t]+(\S+?)(?:[= \t][ \t]*(\S+))?[ \t]*\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Word:
    """A word: its text with quotes and variables resolved, None if a variable is unknown; and its place."""

    text: str | None
    raw: str
    span: Span


@dataclass(slots=True)
class Script:
    """The commands of a text, its comments, and its #SBATCH options."""

    commands: list[list[Word]]
    comments: list[Comment]
    slurm: dict[str, tuple[str, Span]]


def read_script(text: str, *, make: bool = False) -> Script:
    """The commands of a shell text, or of a Makefile's recipes; never raises."""
    slurm = {name.lstrip("-"): (value or "", Span(*span)) for name, value, span in _slurm(text)}
    variables = _from_slurm({name: value for name, (value, _) in slurm.items()})
    lexer = _Lexer(text, variables, make=make)
    return Script(list(lexer.commands()), lexer.comments, slurm)


_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus"}


def _slurm(text: str) -> Iterator[tuple[str, str | None, tuple[int, int]]]:
    for match in _SBATCH.finditer(text):
        name = match[1].lstrip("-")
        if match[1].startswith("-") and not match[1].startswith("--") and len(name) > 1 and match[2] is None:
            yield _SHORT.get(name[0], name[0]), name[1:], match.span()  # -N2
        else:
            yield _SHORT.get(name, name), match[2], match.span()


def _from_slurm(slurm: dict[str, str]) -> dict[str, str]:
    """The variables that Slurm sets, as far as the #SBATCH lines give their values."""
    numbers = {name: number for name, value in slurm.items() if (number := integer(value)) is not None}
    found: dict[str, int] = {}
    nodes = numbers.get("nodes")
    if nodes:
        found |= {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes}
    tasks = numbers.get("ntasks") or (nodes * numbers["ntasks-per-node"] if nodes and "ntasks-per-node" in numbers else None)
    if tasks:
        found |= {"SLURM_NTASKS": tasks, "SLURM_NPROCS": tasks}
    if "ntasks-per-node" in numbers:
        found["SLURM_NTASKS_PER_NODE"] = numbers["ntasks-per-node"]
    gpus = gpus_per_node(slurm)
    if gpus:
        found |= {"SLURM_GPUS_ON_NODE": gpus, "SLURM_GPUS_PER_NODE": gpus}
    return {name: str(value) for name, value in found.items()}


def gpus_per_node(slurm: dict[str, str]) -> int | None:
    """The number of GPUs per node that #SBATCH lines request."""
    for name in ("gpus-per-node", "gres"):
        match = re.fullmatch(r"(?:gpu:)?(?:[\w.-]+:)?(\d+)", slurm.get(name, ""))
        number = integer(match[1]) if match else None
        if number:
            return number
    return None


class _Lexer:
    def __init__(self, text: str, variables: dict[str, str], *, make: bool) -> None:
        self.text = text
        self.variables: dict[str, str | None] = dict(variables)
        self.make = make
        self.comments: list[Comment] = []

    def commands(self) -> Iterator[list[Word]]:
        """The commands in order, without the assignments before or between them, which set variables."""
        command: list[Word] = []
        position = 0
        while position < len(self.text):
            position, word, ends = self._next(position)
            if word is not None:
                match = ASSIGNMENT.match(word.raw) if not any(True for w in command if w.raw not in ("export", "local", "env")) else None
                if match and match.end() <= len(word.raw):
                    value = self._unquoted(word.raw[match.end() :])
                    self.variables[match[1]] = value
                    if match[1] in ("CUDA_VISIBLE_DEVICES", "FORCE_TORCHRUN", "NPROC_PER_NODE", "NNODES", "PL_DEEPSPEED_CONFIG_PATH"):
                        command.append(word)
                else:
                    command.append(word)
            if ends and command:
                if any("=" not in word.raw or word.raw.startswith("-") for word in command):
                    yield command
                command = []
        if any("=" not in word.raw or word.raw.startswith("-") for word in command):
            yield command

    def _next(self, position: int) -> tuple[int, Word | None, bool]:
        """The next word from a position on, and whether a command ends there."""
        text = self.text
        if self.make and (position == 0 or text[position - 1] == "\n"):
            match = _MAKE_ASSIGNMENT.match(text, position)
            if match:
                self.variables[match[1]] = self._unquoted(match[2].strip())
                return match.end(), None, True
        character = text[position]
        if text.startswith(("\\\n", "\\\r\n"), position):
            return position + (2 if text[position + 1] == "\n" else 3), None, False
        if character in " \t\r":
            return position + 1, None, False
        if character in "\n;|&(){}":
            return position + 1, None, True
        if character == "#":
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            self.comments.append(Comment(Span(position, end), text[position:end].rstrip()))
            return end, None, False
        return self._word(position)

    def _word(self, start: int) -> tuple[int, Word, bool]:
        text, position = self.text, start
        while position < len(text):
            character = text[position]
            if character == "\\":
                if text.startswith(("\\\n", "\\\r\n"), position):
                    break
                position += 2
            elif character in "'\"":
                close = position + 1
                while close < len(text) and text[close] != character:
                    close += 2 if text[close] == "\\" and character == '"' else 1
                position = close + 1
            elif character == "$" and text[position + 1 : position + 2] in ("(", "{"):
                close = text.find(")" if text[position + 1] == "(" else "}", position)
                position = len(text) if close < 0 else close + 1
            elif character in " \t\r\n;|&()":
                break
            else:
                position += 1
        position = min(position, len(text))
        raw = text[start:position]
        return position, Word(self._unquoted(raw), raw, Span(start, position)), False

    def _unquoted(self, raw: str) -> str | None:
        """A word without its quotes and with its variables replaced; None if a variable is unknown."""
        parts: list[str] = []
        for match in re.finditer(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)|([^'\"\\]+)", raw, re.DOTALL):
            if match[1] is not None:
                parts.append(match[1])
                continue
            if match[3] is not None:
                parts.append(match[3])
                continue
            plain = re.sub(r"\\([\"\\$`])", r"\1", match[2]) if match[2] is not None else match[4]
            replaced = self._replaced(plain)
            if replaced is None:
                return None
            parts.append(replaced)
        return "".join(parts)

    def _replaced(self, text: str) -> str | None:
        if "`" in text or "$((" in text:
            return None
        found: list[str] = []
        position = 0
        for match in _VARIABLE.finditer(text):
            name = match[1] or match[2] or match[4]
            value = self.variables.get(name) or match[3]
            if value is None or "$" in value:
                return None
            found += [text[position : match.start()], value]
            position = match.end()
        rest = text[position:]
        return None if "$" in rest else "".join([*found, rest])
