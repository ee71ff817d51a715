"""Programs as people post them: indented as the body of a function, with the prompts of an interpreter, in a block of Markdown, as a diff,
with dots or comments for what is left out, or breaking off in the middle.

Nothing moves: each node of the tree has its place in the text as it was posted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import accumulate

from dslint.record import Record
from dslint.source.python import parse_python
from dslint.source.store import store

_MOST_BROKEN_LINES = 3
"""How many lines that are not Python are left out of a file, each at the cost of another parse. Of 237 files of 12 public repositories,
axolotl, LLaMA-Factory and TRL one has 2 such lines, and 4 have more."""

_MOST_EMPTY_BLOCKS = 20
"""How many blocks without a statement get one, each at the cost of another parse."""

_LONGEST_POST = 65_536
"""Characters. GitHub takes no longer text; only lines that are not Python are left out of longer files, which nobody posts."""

_MOST_CUT_LINES = 3
"""How many lines at the end of a text that breaks off are left out."""


class Posted(Record):
    """The tree of a program; the first line that is left out because it is not Python; whether the text breaks off."""

    tree: ast.Module
    broken: int | None
    breaks_off: bool


def read_program(text: str) -> Posted | None:
    """Read a program, or what people post of one; None if it is not Python."""
    try:
        try:
            return Posted(parse_python(text), None, breaks_off=False)
        except SyntaxError:
            return parse_posted(text)
    except (ValueError, RecursionError, MemoryError):
        return None


def parse_posted(text: str) -> Posted | None:
    """Read a text that is not Python as a posted program, without a few lines that are not Python; None if that is too little.

    Raises:
        ValueError, RecursionError, MemoryError: as `parse_python` does.
    """
    lines, above, is_post = text.split("\n"), list[str](), len(text) <= _LONGEST_POST
    moved = [0] * len(lines)
    if is_post:
        lines, moved = _with_first_indent(*_without_marks(lines))
        above = _blocks_around(lines)
    broken, breaks_off, empty = set[int](), False, 0
    while True:
        try:
            tree = parse_python("\n".join([*above, *lines]))
        except SyntaxError as error:
            number = (error.lineno or 0) - len(above)
            repaired = _with_statement(lines, error, len(above)) if is_post and empty < _MOST_EMPTY_BLOCKS else None
            empty += repaired is not None
            if repaired is None and is_post and not (broken or breaks_off):
                repaired = _with_words_left_out(lines, above)
            if repaired is None and is_post and not breaks_off and _is_open(error):
                repaired = _closed(lines, above)
                breaks_off = repaired is not None
            if repaired is not None:
                lines = repaired
            elif 0 < number <= len(lines) and number not in broken and len(broken) < _MOST_BROKEN_LINES:
                broken.add(number)
                lines = [*lines[: number - 1], without_effect(lines[number - 1]), *lines[number:]]
            else:
                return None
        else:
            return Posted(_placed(tree, text, moved, above), min(broken, default=None), breaks_off)


def tree_of_text(text: str) -> ast.Module | None:
    """The syntax tree of a program, made once a run; nobody may change it. None if it is not Python, as in the cell of a notebook."""
    return store().parsed(("tree", text), lambda: _tree(text))


def keep_tree(text: str, read: Posted) -> None:
    """Keep the tree of a program that was read for `tree_of_text`: to parse it again took up to 2 of 5 parses of a project."""
    if read.broken is None and not text.startswith("\ufeff"):
        store().parsed(("tree", text), lambda: read.tree)


def _tree(text: str) -> ast.Module | None:
    found = read_program(text)
    return found.tree if found is not None and found.broken is None else None


def without_effect(line: str) -> str:
    """A statement without effect in the place of a line: a block can have no other one."""
    indent = len(line) - len(line.lstrip())
    length = len(line) - indent
    return line[:indent] + ("pass" if length >= 4 else "0" if length else "").ljust(length)


# ---------------------------------------------------------------------- what stands around the program

_FENCE = re.compile(r"[ \t]*(?:```|~~~)[\w{}. -]*$")
"""The first or the last line of a block of Markdown."""

_PROMPT = re.compile(r"[ \t]*(?:>>>|In \[\d*\]:)(?: |$)")
_FURTHER = re.compile(r"[ \t]*(?:\.\.\.:?)(?: |$)")
"""The prompts of Python and of IPython, before the first line of a statement and before the others."""


def _without_marks(lines: list[str]) -> tuple[list[str], list[int]]:
    """The lines without the fences of Markdown around them and without prompts, or those after a change that is shown as a diff, and how
    many characters each has lost at its start.
    """
    lines = [line.rstrip("\r") for line in lines]
    written = [number for number, line in enumerate(lines) if line.strip()]
    for number in {*written[:1], *written[-1:]}:
        lines[number] = "" if _FENCE.match(lines[number]) else lines[number]
    moved = [0] * len(lines)
    first = next((line for line in lines if line.strip()), "")
    if _is_diff(lines):
        after = [line.startswith((" ", "+")) and not line.startswith("+++ ") for line in lines]
        return [line[1:] if kept else "" for line, kept in zip(lines, after, strict=True)], [int(kept) for kept in after]
    if not _PROMPT.match(first):
        return lines, moved
    for number, line in enumerate(lines):
        prompt = _PROMPT.match(line) or _FURTHER.match(line)
        moved[number] = prompt.end() if prompt is not None else 0
        lines[number] = line[prompt.end() :] if prompt is not None else ""  # what the interpreter printed
    return lines, moved


def _is_diff(lines: list[str]) -> bool:
    """Whether each line has the mark of a diff, and one is added."""
    return any(line.startswith("+") for line in lines) and all(_OF_DIFF.match(line) for line in lines if line.strip())


_OF_DIFF = re.compile(r"[ +-]|@@|\\ |diff |index ")


def _with_first_indent(lines: list[str], moved: list[int]) -> tuple[list[str], list[int]]:
    """The lines where the first has the indent of the others: who copies from the first letter on loses that of the first line."""
    starts = [number for number, _ in _statements(lines)]
    if len(starts) < 2 or _indent(lines[starts[0]]) or not (indent := min(_indent(lines[number]) for number in starts[1:])):
        return lines, moved
    first, *_ = starts
    if "\n".join(lines[first : starts[1]]).partition("#")[0].rstrip().endswith(":"):
        return lines, moved  # the others are its body
    return [*lines[:first], " " * indent + lines[first], *lines[first + 1 :]], [*moved[:first], -indent, *moved[first + 1 :]]


def _blocks_around(lines: list[str]) -> list[str]:
    """The lines that begin the blocks in which the program stands: a text may leave the block in which it begins."""
    falling = accumulate((_indent(lines[number]) for number, _ in _statements(lines)), min)
    indents = sorted(set(falling), reverse=True)
    return [f"{' ' * outer}if 1:" for outer in [*indents[1:], *([0] if indents and indents[-1] else [])][::-1]]


def _placed(tree: ast.Module, text: str, moved: list[int], above: list[str]) -> ast.Module:
    """The tree with the places of its nodes in the text, and without the blocks around it."""
    body = tree.body
    for _ in above:
        first, *others = body
        assert isinstance(first, ast.If)
        body = [*first.body, *others]
    tree.body = body
    sizes = [len(line.encode("utf-8", "surrogatepass")) for line in text.split("\n")]
    for node in ast.walk(tree):
        if isinstance(node, _PLACED):
            node.lineno, node.col_offset = _place(node.lineno, node.col_offset, moved, sizes, len(above))
            end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
            node.end_lineno, node.end_col_offset = _place(*end, moved, sizes, len(above))
    return tree


_PLACED = (ast.stmt, ast.expr, ast.arg, ast.keyword, ast.alias, ast.ExceptHandler, ast.pattern)


def _place(line: int, column: int, moved: list[int], sizes: list[int], above: int) -> tuple[int, int]:
    number = min(max(line - above, 1), len(sizes))
    return number, min(max(column + moved[number - 1], 0), sizes[number - 1])


# ---------------------------------------------------------------------- what is left out of the program

_TOKEN = re.compile(
    r"(?P<text>\"\"\"(?:[^\\]|\\.)*?(?:\"\"\"|\Z)|'''(?:[^\\]|\\.)*?(?:'''|\Z)|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?)"
    r"|(?P<comment>\#[^\n]*)|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<continued>\\\n)|(?P<end>\n)|(?P<other>[^\s\"'#()\[\]{}\\]+|\\)",
    re.DOTALL,
)


def _statements(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The lines on which statements begin, with their numbers from 0."""
    text = "\n".join(lines)
    depth, begun, number, at = 0, False, 0, 0
    for token in _TOKEN.finditer(text):
        number += text.count("\n", at, token.start())
        at = token.start()
        if not begun and token.lastgroup not in ("comment", "end", "continued"):
            begun = True
            yield number, lines[number]
        depth = max(0, depth + bool(token["open"]) - bool(token["close"]))
        if token["end"] and not depth:
            begun = False


def _indent(line: str) -> int:
    return len(line.expandtabs()) - len(line.expandtabs().lstrip())


_EMPTY_BLOCK = re.compile(r"expected an indented block after .* on line (\d+)")


def _with_statement(lines: list[str], error: SyntaxError, above: int) -> list[str] | None:
    """The lines where a block that has only a comment, or nothing, has a statement."""
    found = _EMPTY_BLOCK.match(error.msg)
    if found is None:
        return None
    head = int(found[1]) - above - 1
    if not 0 <= head < len(lines):
        return None
    last = next((number for number in range(head, len(lines)) if lines[number].partition("#")[0].rstrip().endswith(":")), None)
    if last is None:
        return None
    after = next((number for number in range(last + 1, len(lines)) if lines[number].strip()), None)
    if after is not None and lines[after].lstrip().startswith("#") and _indent(lines[after]) > _indent(lines[head]):
        return [*lines[:after], without_effect(lines[after]), *lines[after + 1 :]]
    code = lines[last].partition("#")[0].rstrip()
    return [*lines[:last], f"{code} pass", *lines[last + 1 :]]


_DOTS = re.compile(r"(?<=[,({\n])([ \t\n]*)\.{3,6}(?=[ \t\n]*(?:#[^\n]*)?[ \t\n]*[,)}])")
"""Dots in the place of an argument or of an entry of a dict."""


def _with_words_left_out(lines: list[str], above: list[str]) -> list[str] | None:
    """The lines where dots among arguments, which stand behind keywords, are words that only the run knows; None if that does not help."""
    text = "\n".join(lines)
    filled = _DOTS.sub(lambda dots: dots[1] + "**_".ljust(len(dots[0]) - len(dots[1])), text)
    return filled.split("\n") if filled != text and _is_python([*above, *filled.split("\n")]) else None


def _is_open(error: SyntaxError) -> bool:
    """Whether a text is not Python because it ends inside a bracket or a string."""
    return "was never closed" in error.msg or "unterminated" in error.msg or "unexpected EOF" in error.msg


def _closed(lines: list[str], above: list[str]) -> list[str] | None:
    """The lines of a text that breaks off inside a bracket, with the end of the bracket; None if that does not help."""
    last = next((number for number in reversed(range(len(lines))) if lines[number].strip()), 0)
    for cut in range(last + 1, max(0, last + 1 - _MOST_CUT_LINES), -1):
        kept = "\n".join(lines[:cut])
        brackets: list[str] = []
        end = 0
        for token in _TOKEN.finditer(kept):
            brackets += [token["open"]] if token["open"] else []
            brackets = brackets[:-1] if token["close"] else brackets
            end = token.end() if token.lastgroup not in ("comment", "end", "continued") else end
        for rest in ({"(": "**_", "{": "**_"}, {"(": "**_"}, {}):
            text = kept[:end]
            for bracket in reversed(brackets):
                more = rest.get(bracket, "")
                text += (", " if more and text[-1] not in "([{," else "") + more + {"(": ")", "[": "]", "{": "}"}[bracket]
            closed = [*text.split("\n"), *([""] * (len(lines) - text.count("\n") - 1))]
            if brackets and _is_python([*above, *closed]):
                return closed
    return None


def _is_python(lines: list[str]) -> bool:
    try:
        parse_python("\n".join(lines))
    except SyntaxError:
        return False
    return True
