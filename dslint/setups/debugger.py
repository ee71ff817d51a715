"""Launches of the debugger of VS Code: the configurations in `.vscode/launch.json`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from dslint.config.context import Context
from dslint.evaluate.files import is_elsewhere
from dslint.evaluate.shell.pieces import ShellSource, Text, TextPiece
from dslint.evaluate.shell.script import Script, run_words
from dslint.evaluate.shell.syntax import NoParser
from dslint.setups.gather import Read
from dslint.setups.script import not_read, read_launches
from dslint.source.parse import parse
from dslint.source.tree import Document, Mapping, Node, Scalar, Sequence, Span

_WORKSPACE = re.compile(r"\$\{workspace(?:Folder|Root)\}(?:/|\\\\?|$)")
"""The folder that is open in the editor, in which the debugger starts unless `cwd` says otherwise."""

_DEBUGGERS = ("python", "debugpy")
"""The types of Python's debuggers; `python` is the older one."""


def read_debugger(text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read the configurations with which VS Code starts a program. None for a file that was only found and launches nothing with DeepSpeed.

    A configuration that attaches to a running program starts none. Source: the settings of the extension Python Debugger.
    """
    source = ShellSource(shown, Document(text, None, language="text"))
    script = Script(source)
    for one in _configurations(parse(text).root):
        words = _words(one, source)
        if not words:
            continue
        try:
            runner = run_words(words, path, {**_environment(one), **given.environment}, folder=_folder(one))
        except NoParser:
            return not_read(source.document)
        script.launched += runner.launched
        script.cut_off = script.cut_off or runner.cut_off
    return read_launches(script, path, given, named=named)


def _configurations(root: Node | None) -> Iterator[Mapping]:
    """The configurations that start a Python program."""
    member = root.get("configurations") if isinstance(root, Mapping) else None
    for one in member.value.items if member is not None and isinstance(member.value, Sequence) else ():
        if isinstance(one, Mapping) and _value(one, "type") in _DEBUGGERS and _value(one, "request") == "launch":
            yield one


def _words(node: Mapping, source: ShellSource) -> list[Text]:
    """The words of the command: the program or module, with its arguments; none without one."""
    program, module, arguments = (node.get(name) for name in ("program", "module", "args"))
    started = module if module is not None else program
    if started is None or not isinstance(started.value, Scalar):
        return []
    python = TextPiece("python", source, Span(started.value.span.start, started.value.span.start), exact=False)
    words: list[Text] = [(_piece(started.value, source),)]
    if module is not None:
        words = [(python,), (python._replace(text="-m"),), *words]
    elif not _is_command(str(started.value.value)):
        words = [(python,), *words]
    given = arguments.value if arguments is not None else None
    if isinstance(given, Sequence):
        words += [(_piece(one, source),) for one in given.items if isinstance(one, Scalar)]
    elif isinstance(given, Scalar) and isinstance(given.value, str):  # the debugger passes a text to a shell
        blank = python._replace(text=" ")
        line = tuple(piece for word in words for piece in (*word, blank))
        return [(python._replace(text="bash"),), (python._replace(text="-c"),), (*line, _piece(given, source))]
    return words


def _is_command(program: str) -> bool:
    """Whether a program is the command of a package: Python runs the file `.../bin/deepspeed` as it runs a module."""
    return re.search(r"(?:^|[/\\])bin[/\\][\w-]+$", program) is not None


def _piece(node: Scalar, source: ShellSource) -> TextPiece:
    """A value with its place. What only the editor knows, `${file}` or `${input:gpus}`, is unknown."""
    text = _within(str(node.value))
    written = source.document.text[node.span.start + 1 : node.span.end - 1]
    if "${" in text:
        return TextPiece(None, source, node.span, exact=False)
    if text == written:
        return TextPiece(text, source, Span(node.span.start + 1, node.span.end - 1))
    return TextPiece(text, source, node.span, exact=False)


def _within(text: str) -> str:
    """A path without the folder that is open in the editor."""
    return _WORKSPACE.sub("", text, count=1) or "."


def _environment(node: Mapping) -> dict[str, str]:
    member = node.get("env")
    members = member.value.members if member is not None and isinstance(member.value, Mapping) else ()
    values = ((one.key.value, one.value.value) for one in members if isinstance(one.value, Scalar) and isinstance(one.value.value, str))
    return {name: value for name, value in values if "${" not in value}


def _folder(node: Mapping) -> str:
    """The folder in which the program starts, below the one that is open; "" for that one, and for a folder of another machine."""
    given = _value(node, "cwd")
    folder = os.path.normpath(_within(given)) if isinstance(given, str) else "."
    return "" if folder == "." or "${" in folder or is_elsewhere(folder) else folder


def _value(node: Mapping, name: str) -> object:
    member = node.get(name)
    return member.value.value if member is not None and isinstance(member.value, Scalar) else None
