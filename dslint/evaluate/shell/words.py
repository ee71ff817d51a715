"""The expansion of words: quotes, variables, substitutions, arithmetic. Unknown parts stay unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from dslint.evaluate.shell.arithmetic import calculate
from dslint.evaluate.shell.pieces import LONGEST, Text, TextPiece, cut, fields, is_absent, joined, known, may_be_several
from dslint.evaluate.shell.state import ScriptState, Value
from dslint.evaluate.shell.syntax import Chunk
from dslint.source.integers import integer

if TYPE_CHECKING:
    from tree_sitter import Node

_PARAMETER = re.compile(r"\$\{([!#]?)([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[([^\]]*)\])?(.*)\}", re.DOTALL)

_OPERATORS = (":-", ":=", ":+", ":?", "-", "=", "+", "?", "##", "#", "%%", "%", "//", "/", "^^", ",,", "^", ",", ":")

_EXPANSIONS = frozenset({"simple_expansion", "expansion", "command_substitution", "arithmetic_expansion"})

_NESTED = _EXPANSIONS | {"string", "raw_string", "concatenation"}

_BRACES = re.compile(r"\{(?:(-?\d{1,4})\.\.(-?\d{1,4})(?:\.\.(\d{1,3}))?|([^{}\s]*,[^{}\s]*))\}")
"""A range or a list in braces, without others in it."""

_MOST_ALTERNATIVES = 100
"""The most words that a range in braces stands for, such as `{1..8}`. Braces beside each other multiply."""

_ALL = re.compile(r"\$(?:\{(?:([A-Za-z_]\w*)\[([@*])\]|([@*]))(?::([^{}]*))?\}|([@*]))")
"""All items of an array, or all arguments, or some of them."""

_IN_ARITHMETIC = re.compile(r"\$(?:\{(\w+|#)\}|(\w+|#)|\{#(\w+)\[[@*]\]\})")
"""What an arithmetic expression can name with `$`."""

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}

LONGEST_CUT = 4_096
"""The longest text, in code points, of which a pattern cuts a part: each of its beginnings or ends is compared."""

Substitute = Callable[[Chunk, "Node", ScriptState], "Text | None"]
"""The output of a command substitution, None if it is unknown."""


class Expander:
    """Expands the words of a script in a state."""

    def __init__(self, substitute: Substitute) -> None:
        self.substitute = substitute

    def fields(self, chunk: Chunk, node: Node, state: ScriptState) -> list[Text]:
        """The fields that a word becomes: none, one or several."""
        array = self._array(chunk, node, state)
        if array is not None:
            return array
        if node.type in ("concatenation", "word", "brace_expression") and (alternatives := self._braces(chunk, node)) is not None:
            return [field for text in alternatives for field in fields(text)]
        text = self.text(chunk, node, state)
        if "IFS" in state.variables and any(piece.splits for piece in text):
            return [self._unknown(chunk, node)]  # the script splits at other characters than blanks
        if not text and self._may_be_words(chunk, node, state):
            return [self._absent(chunk, node)]
        quoted = node.type in ("string", "raw_string", "ansi_c_string")
        if not text and quoted:
            return [(chunk.piece(node),)]
        return list(fields(text))

    def _may_be_words(self, chunk: Chunk, node: Node, state: ScriptState) -> bool:
        """Whether an empty word is `${N:+--flag}` or `${N:-}`, which has words if the environment of the script sets the variable."""
        match = _PARAMETER.fullmatch(chunk.raw(node)) if node.type == "expansion" else None
        if match is None or match[1] or match[3] or not match[4].startswith((":+", "+", ":-", "-")):
            return False
        return is_absent(self._variable(chunk, node, match[2], state))

    def _braces(self, chunk: Chunk, node: Node) -> list[Text] | None:
        """The words that `a{b,c}` and `{1..3}` become; None for a word without braces."""
        raw = chunk.raw(node)
        match = _BRACES.search(raw)
        if match is None or any(mark in raw for mark in "'\"\\") or raw[max(match.start() - 1, 0)] == "$":
            return None
        start = chunk.start(node)
        inner = chunk.slice(start + match.start(), start + match.end())
        before, after = self._unescaped(chunk, start, start + match.start()), self._unescaped(chunk, start + match.end(), chunk.end(node))
        if "$" in raw or not inner:
            return None if "$" not in raw else [self._unknown(chunk, node)]
        return [(*before, inner[0]._replace(text=one, exact=False), *after) for one in _alternatives(match)]

    def _array(self, chunk: Chunk, node: Node, state: ScriptState) -> list[Text] | None:
        """The fields of `"${A[@]}"`, `${A[*]}`, `"$@"`; None for any other word."""
        if node.type == "command_name" and len(node.named_children) == 1:
            node = node.named_children[0]
        inner = node
        if node.type == "string" and len(node.named_children) == 1 and chunk.raw(node)[1:-1] == chunk.raw(node.named_children[0]):
            inner = node.named_children[0]
        match = _ALL.fullmatch(chunk.raw(inner))
        if match is None or inner.type not in _EXPANSIONS:
            return None
        name = match[1]
        value: Value = state.arguments if name is None else state.variables.get(name)
        if (name is None and value is None) or (name is not None and name not in state.variables):
            return [self._absent(chunk, inner)]
        if value is None:
            return [self._unknown(chunk, inner)]
        texts = value if isinstance(value, list) else [value]
        if match[4] is not None:
            part = self._slice(chunk, inner, texts, match[4], state, counts_from=1 if name is None else 0)
            if part is None:
                return [self._unknown(chunk, inner)]
            texts = part
        if node.type == "string" and "*" in (match[2], match[3], match[5]):
            return [joined(texts, chunk.piece(inner)._replace(text=" ")) or (chunk.piece(inner),)]
        if node.type == "string":
            return [text or (chunk.piece(inner),) for text in texts]
        return [field for text in texts for field in fields(_split(text))]

    def _slice(
        self, chunk: Chunk, node: Node, texts: list[Text], bounds: str, state: ScriptState, *, counts_from: int
    ) -> list[Text] | None:
        """The items of `${A[@]:1:2}`; of `${@:2}` the first item is number 1."""
        first, _, count = bounds.partition(":")
        start, length = self.number(first, state, chunk.piece(node)), self.number(count, state, chunk.piece(node)) if count else len(texts)
        if start is None or length is None or length < 0 or start < counts_from or may_be_several(texts):
            return None
        return texts[start - counts_from :][:length]

    # ------------------------------------------------------------------ texts

    def text(self, chunk: Chunk, node: Node, state: ScriptState) -> Text:
        """A word as one text; unquoted values in it can still be split."""
        kind = node.type
        if kind == "concatenation":
            return self._concatenated(chunk, node, state)
        if kind in ("string", "heredoc_body", "translated_string"):
            start, end = chunk.start(node), chunk.end(node)
            quotes = 1 if kind == "string" else 0
            return self.quoted(chunk, node, state, start + quotes, end - quotes, heredoc=kind == "heredoc_body")
        if kind == "raw_string":
            return chunk.slice(chunk.start(node) + 1, chunk.end(node) - 1)
        if kind == "ansi_c_string":
            raw = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), chunk.raw(node)[2:-1])
            return (chunk.piece(node)._replace(text=raw),)
        if kind in _EXPANSIONS:
            return _split(self._expansion(chunk, node, state))
        if kind in ("word", "number", "variable_name", "extglob_pattern", "regex", "file_descriptor", "command_name", "test_operator"):
            if kind == "command_name" and node.named_children:
                return self.text(chunk, node.named_children[0], state)
            return self._unescaped(chunk, chunk.start(node), chunk.end(node))
        return self._unknown(chunk, node)

    def _concatenated(self, chunk: Chunk, node: Node, state: ScriptState) -> Text:
        found: Text = ()
        position = chunk.start(node)
        for child in node.children:
            found += self._unescaped(chunk, position, chunk.start(child))
            found += self.text(chunk, child, state)
            position = chunk.end(child)
        return _attached(found)

    def _unescaped(self, chunk: Chunk, start: int, end: int) -> Text:
        """Unquoted characters: a backslash keeps the next character, and joins lines."""
        if start >= end:  # as between most parts of a word
            return ()
        raw = chunk.text[start:end]
        found: Text = ()
        position = 0
        for match in re.finditer(r"\\(\r?\n|.)", raw, re.DOTALL):
            found += chunk.slice(start + position, start + match.start())
            position = match.end() if match[1].strip("\r") == "\n" else match.start() + 1
        found += chunk.slice(start + position, end)
        if raw.startswith("~") and found:  # the home directory is not known
            home = found[0].part(0, 1)._replace(text=None, exact=False)
            return (home, *cut(found, 1, sum(len(piece.text or "") for piece in found)))
        return found

    def quoted(self, chunk: Chunk, node: Node, state: ScriptState, start: int, end: int, *, heredoc: bool = False) -> Text:
        """Characters in double quotes, or in a here-document."""
        found: Text = ()
        position = start
        escapes = r"\\(\r?\n|[$`\\])" if heredoc else r"\\(\r?\n|[$`\"\\])"
        for child in [*node.named_children, None]:
            if child is not None and child.type not in _EXPANSIONS:
                continue
            stop = chunk.start(child) if child is not None else end
            raw = chunk.text[position:stop]
            done = 0
            for match in re.finditer(escapes, raw):
                found += chunk.slice(position + done, position + match.start())
                done = match.end() if match[1].strip("\r") == "\n" else match.start() + 1
            found += chunk.slice(position + done, stop)
            if child is not None:
                found += tuple(piece._replace(splits=False) if piece.splits else piece for piece in self._expansion(chunk, child, state))
                position = chunk.end(child)
        return _attached(found)

    # ------------------------------------------------------------------ expansions

    def _expansion(self, chunk: Chunk, node: Node, state: ScriptState) -> Text:
        raw = chunk.raw(node)
        if node.type == "arithmetic_expansion":
            expression = self._with_outputs(chunk, node, state)
            number = self.number(expression[3:-2] if raw.startswith("$((") else expression[2:-1], state, chunk.piece(node))
            return (chunk.piece(node)._replace(text=str(number)),) if number is not None else self._unknown(chunk, node)
        if node.type == "command_substitution":
            output = self.substitute(chunk, node, state)
            return output if output is not None else self._unknown(chunk, node)
        if node.type == "simple_expansion":
            return self._variable(chunk, node, raw[1:], state)
        match = _PARAMETER.fullmatch(raw)
        if match is None:
            return self._unknown(chunk, node)
        prefix, name, index, rest = match[1], match[2], match[3], match[4]
        if prefix == "!":
            target = known(self._variable(chunk, node, name, state))
            return self._variable(chunk, node, target, state) if target and not rest else self._unknown(chunk, node)
        if index is not None and index not in ("@", "*"):
            value = self._element(chunk, node, name, index, state)
        elif index is not None and isinstance(array := state.variables.get(name), list):
            value = joined(array, chunk.piece(node)._replace(text=" "))
        else:
            value = self._variable(chunk, node, name, state)
        if prefix == "#":
            return self._length(chunk, node, name, index, value, state)
        if not rest:
            return value
        sign = next((one for one in _OPERATORS if rest.startswith(one)), None)
        if sign is None:
            return self._unknown(chunk, node)
        begin = chunk.end(node) - 1 - len(rest) + len(sign)
        return self._operated(chunk, node, name, value, sign, begin, state)

    def _with_outputs(self, chunk: Chunk, node: Node, state: ScriptState) -> str:
        """The text of an arithmetic expansion with the outputs and operations in it, such as `${#LIST}`; "?" is one that is not known."""
        found, position = "", chunk.start(node)
        for inner in _substitutions(node):
            if _IN_ARITHMETIC.fullmatch(chunk.raw(inner)):
                continue
            number = _integer(self._expansion(chunk, inner, state))
            found += chunk.text[position : chunk.start(inner)] + ("?" if number is None else str(number))
            position = chunk.end(inner)
        return found + chunk.text[position : chunk.end(node)]

    def _operated(self, chunk: Chunk, node: Node, name: str, value: Text, sign: str, begin: int, state: ScriptState) -> Text:
        unset = is_absent(value) or (sign[0] == ":" and known(value) == "")
        if sign in (":-", "-", ":=", "="):
            if unset:
                value = self.operand(chunk, node, begin, chunk.end(node) - 1, state)
                if "=" in sign:
                    state.variables[name] = value
            return value
        if sign in (":+", "+"):
            if unset:
                return ()
            return self.operand(chunk, node, begin, chunk.end(node) - 1, state) if known(value) is not None else self._unknown(chunk, node)
        if sign in (":?", "?"):
            return value
        if sign in ("/", "//"):
            return self._replaced(chunk, node, value, sign, begin, state)
        text = known(value)
        operand = known(self.operand(chunk, node, begin, chunk.end(node) - 1, state))
        if text is None or operand is None:
            return self._unknown(chunk, node)
        return self._cut(chunk, node, value, text, sign, operand, state)

    def _cut(self, chunk: Chunk, node: Node, value: Text, text: str, sign: str, operand: str, state: ScriptState) -> Text:
        lengths = range(len(text) + 1)
        if sign[0] in "#%" and len(text) > LONGEST_CUT:
            return self._unknown(chunk, node)
        if sign in ("#", "##"):
            fitting = [length for length in lengths if fnmatchcase(text[:length], operand)]
            return cut(value, (max if sign == "##" else min)(fitting, default=0), len(text))
        if sign in ("%", "%%"):
            fitting = [length for length in lengths if fnmatchcase(text[len(text) - length :], operand)]
            return cut(value, 0, len(text) - (max if sign == "%%" else min)(fitting, default=0))
        if sign == ":":
            first, _, length = operand.partition(":")
            start, count = (
                self.number(first, state, chunk.piece(node)),
                self.number(length, state, chunk.piece(node)) if length else len(text),
            )
            if start is None or count is None or count < 0:
                return self._unknown(chunk, node)
            start = start if start >= 0 else max(len(text) + start, 0)
            return cut(value, start, min(start + count, len(text)))
        changed = {"^^": text.upper(), ",,": text.lower(), "^": text[:1].upper() + text[1:], ",": text[:1].lower() + text[1:]}[sign]
        return (chunk.piece(node)._replace(text=changed),)

    def _replaced(self, chunk: Chunk, node: Node, value: Text, sign: str, begin: int, state: ScriptState) -> Text:
        """`${NAME/OLD/NEW}`; a `/` in OLD has a backslash before it."""
        end = chunk.end(node) - 1
        middle = next((one.start() for one in _SLASH.finditer(chunk.text, begin, end) if one[0] == "/"), end)
        text, old = known(value), known(self.operand(chunk, node, begin, middle, state))
        new = known(self.operand(chunk, node, min(middle + 1, end), end, state))
        pattern = _pattern(old, anchored=sign == "/") if old is not None and "$" not in chunk.text[begin:middle] else None
        if text is None or new is None or pattern is None or "&" in new:  # bash 5.2 puts the match for a `&`, older ones do not
            return self._unknown(chunk, node)
        return (chunk.piece(node)._replace(text=re.sub(pattern, lambda _: new, text, count=int(sign == "/"))),)

    def operand(self, chunk: Chunk, node: Node, start: int, end: int, state: ScriptState) -> Text:
        """The word behind an operator of `${...}`."""
        found: Text = ()
        position = start
        for child in node.named_children:
            if chunk.start(child) < position or chunk.end(child) > end or child.type not in _NESTED:
                continue
            text = self.text(chunk, child, state)
            if child.type in ("string", "raw_string"):
                text = tuple(piece._replace(quoted=True) for piece in text)
            found += self._unescaped(chunk, position, chunk.start(child)) + text
            position = chunk.end(child)
        return found + self._unescaped(chunk, position, end)

    def _length(self, chunk: Chunk, node: Node, name: str, index: str | None, value: Text, state: ScriptState) -> Text:
        array = state.variables.get(name)
        if index in ("@", "*") and isinstance(array, list):
            return self._unknown(chunk, node) if may_be_several(array) else (chunk.piece(node)._replace(text=str(len(array))),)
        text = known(value)
        return (chunk.piece(node)._replace(text=str(len(text))),) if text is not None else self._unknown(chunk, node)

    def _element(self, chunk: Chunk, node: Node, name: str, index: str, state: ScriptState) -> Text:
        array = state.variables.get(name)
        number = self.number(index, state, chunk.piece(node))
        if isinstance(array, list) and number is not None and -len(array) <= number < len(array):
            return array[number]
        return self._unknown(chunk, node)

    def _variable(self, chunk: Chunk, node: Node, name: str, state: ScriptState) -> Text:
        if name == "#":
            if may_be_several(state.arguments or ()):
                return self._unknown(chunk, node)
            count = str(len(state.arguments or ()))
            return (chunk.piece(node)._replace(text=count, absent=state.arguments is None),)
        if name.isdecimal() and name != "0":
            arguments = state.arguments
            if arguments is None:
                given = state.variables.get(name)
                return given if isinstance(given, tuple) else self._absent(chunk, node)
            number = integer(name)
            if may_be_several(arguments[:number]):
                return self._unknown(chunk, node)
            return arguments[number - 1] if number is not None and number <= len(arguments) else ()
        if name in ("@", "*"):
            return (
                joined(state.arguments, chunk.piece(node)._replace(text=" ")) if state.arguments is not None else self._absent(chunk, node)
            )
        if name == "PWD":
            return (chunk.piece(node)._replace(text=state.folder or "."),)
        if name not in state.variables:
            return self._absent(chunk, node) if name[:1].isalpha() or name[:1] == "_" else self._unknown(chunk, node)
        value = state.variables[name]
        if value is None:
            return self._unknown(chunk, node)
        if not value and name in state.optional:
            return (chunk.piece(node)._replace(text="", absent=True),)
        return value if isinstance(value, tuple) else value[0] if value else ()

    def number(self, expression: str, state: ScriptState, at: TextPiece) -> int | None:
        """The value of an arithmetic expression that stands at a place; the variables that it assigns are changed."""

        def lookup(name: str, *indices: int | None) -> int | None:
            value = state.variables.get(name)
            if indices:
                index = indices[0]
                fits = isinstance(value, list) and index is not None and -len(value) <= index < len(value)
                return _integer(value[index]) if fits and isinstance(value, list) and index is not None else None
            return _integer(value[0] if isinstance(value, list) and value else value)

        def store(name: str, value: int | None) -> None:
            state.variables[name] = (at._replace(text=str(value), exact=False, splits=False),) if value is not None else None

        return calculate(self._named(expression, state), lookup, store)

    @staticmethod
    def _named(expression: str, state: ScriptState) -> str:
        """An expression in which variables have no `$`, and arguments and lengths are numbers."""

        def replaced(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if match[3]:
                array = state.variables.get(match[3])
                return str(len(array)) if isinstance(array, list) and not may_be_several(array) else "?"
            if name == "#":
                return "?" if may_be_several(state.arguments or ()) else str(len(state.arguments or ()))
            if name.isdecimal():
                number = integer(name) or 0
                if may_be_several((state.arguments or ())[:number]):
                    return "?"
                value = known(state.arguments[number - 1]) if state.arguments is not None and 0 < number <= len(state.arguments) else None
                return value if value is not None and re.fullmatch(r"-?\d{1,18}", value) else "?"
            return name

        return _IN_ARITHMETIC.sub(replaced, expression)

    @staticmethod
    def _unknown(chunk: Chunk, node: Node) -> Text:
        return (chunk.piece(node)._replace(text=None),)

    @staticmethod
    def _absent(chunk: Chunk, node: Node) -> Text:
        return (chunk.piece(node)._replace(text=None, absent=True),)


_SLASH = re.compile(r"\\.|/", re.DOTALL)
"""A `/`, or a character with a backslash before it."""

_SET = re.compile(r"\[([!^]?)([\w,:; ./-]+)\]")
"""A set of plain characters in a pattern, as in `${GPUS//[^,]/}`, by which scripts count the commas."""


def _pattern(old: str, *, anchored: bool) -> str | None:
    """The regular expression for what `${NAME/OLD/NEW}` replaces, of plain text or one set of characters; None for any other.

    With `anchored`, a `#` before it stands for the start of the text, and a `%` for its end.
    """
    start, end = ("^" if anchored and old[:1] == "#" else ""), (r"\Z" if anchored and old[:1] == "%" else "")
    old = old[1:] if start or end else old
    if match := _SET.fullmatch(old):
        between = "-" in match[2][1:-1]
        return None if between else f"{start}[{'^' if match[1] else ''}{re.escape(match[2])}]{end}"
    return None if not old or any(mark in old for mark in "*?[\\") else start + re.escape(old) + end


def _substitutions(node: Node) -> Iterator[Node]:
    """The command substitutions and `${...}` in a node, the outermost ones."""
    for child in node.named_children:
        if child.type in ("command_substitution", "expansion"):
            yield child
        else:
            yield from _substitutions(child)


def _alternatives(match: re.Match[str]) -> list[str]:
    """What a range or a list in braces stands for."""
    if match[4] is not None:
        return match[4].split(",")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1) or 1
    width = max((len(one.lstrip("-")) for one in (match[1], match[2]) if one.lstrip("-")[:1] == "0"), default=0)
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [str(number).zfill(width) for number in numbers[:_MOST_ALTERNATIVES]]


def _attached(text: Text) -> Text:
    """A word in which an argument that is not given is unknown where other characters stand next to it: `configs/$NAME.yaml`."""
    if not any(piece.absent and piece.text == "" for piece in text):
        return text
    found: list[TextPiece] = []
    for index, piece in enumerate(text):
        before, after = text[index - 1 : index], text[index + 1 : index + 2]
        neighbours = [one[0].text or "$" for one in (before, after) if one]
        is_attached = (before and not neighbours[0][-1:].isspace()) or (after and not neighbours[-1][:1].isspace())
        found.append(piece._replace(text=None) if piece.absent and piece.text == "" and is_attached else piece)
    return tuple(found)


def _split(text: Text) -> Text:
    return tuple(piece._replace(splits=not piece.quoted) for piece in text)


def _integer(value: Value) -> int | None:
    text = known(value) if isinstance(value, tuple) else None
    return int(text) if text and re.fullmatch(r"-?\d{1,18}", text.strip()) else None


MOST_PIECES = 1_000
"""The most pieces that the text of a variable can have; with more of them it is unknown."""


def bounded(text: Text, at: TextPiece) -> Text:
    """The text, or an unknown one if it is too long: variables that double each other stop here."""
    if len(text) > MOST_PIECES or sum(len(piece.text or "") for piece in text) > LONGEST:
        return (at._replace(text=None, exact=False),)
    return text
