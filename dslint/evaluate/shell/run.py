"""Follow a script to the commands that it runs. Nothing is executed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslint.evaluate.files import find, find_checkout
from dslint.evaluate.shell.builtins import output_of, written_by
from dslint.evaluate.shell.flow import Flow
from dslint.evaluate.shell.pieces import Source, Text, fields, joined, known
from dslint.evaluate.shell.pieces import key as key_of
from dslint.evaluate.shell.state import DEPTH, Launched, State
from dslint.evaluate.shell.syntax import Chunk
from dslint.source.read import ReadError, read
from dslint.source.tree import Document

if TYPE_CHECKING:
    from tree_sitter import Node

LAUNCHES = 64
"""How many launches of a script are kept."""

_WRAPPERS = frozenset({"srun", "ssh", "pdsh", "sbatch", "tmux", "screen", "docker", "singularity", "apptainer", "su", "nohup", "kubectl"})
"""Commands that can be given another one as text."""

_LAUNCH = re.compile(r"deepspeed|torchrun|accelerate|python[\d.]*|llamafactory-cli|axolotl|swift|trl|(?:ba)?sh")

_RESERVED = frozenset({"echo", "printf", "mkdir", "rm", "set", "sleep", "ls", "mv", "cp", "which", "pip", "conda", "module", "wget", "git"})
"""Commands that launch nothing."""


class Runner(Flow):
    """Follows a script. `launched` are the commands that it runs, in order; `files` those that earlier texts have written."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.launched: list[Launched] = []
        self.files: dict[str, Text] = {}

    def call(self, words: list[Text], state: State) -> None:
        """Follow one command."""
        self._called(Chunk(words[0]), words, {}, state, None)

    def _pipeline(self, chunk: Chunk, node: Node, state: State) -> None:
        self._piped(chunk, node, state, None)

    def _piped(self, chunk: Chunk, node: Node, state: State, text: Text | None) -> Text | None:
        """Follow a statement with a text on its standard input; its output, if that is known."""
        if node.type == "pipeline":
            for child in node.named_children:
                inside = state.copy()
                text = self._piped(chunk, child, inside, text)
                state.files.update(inside.files)
            return text
        if node.type == "redirected_statement":
            return self._redirected(chunk, node, state, text)
        if node.type == "command":
            return self._run_command(chunk, node, state, text)
        self._statement(chunk, node, state)
        return None

    def _redirected_statement(self, chunk: Chunk, node: Node, state: State) -> None:
        self._redirected(chunk, node, state, None)

    def _redirected(self, chunk: Chunk, node: Node, state: State, text: Text | None) -> Text | None:
        body = node.child_by_field_name("body")
        targets: list[tuple[str, Text]] = []
        after: list[Node] = []
        more: list[Node] = []  # the grammar takes the arguments behind a redirection for parts of it
        for redirect in node.children_by_field_name("redirect"):
            for child in [redirect, *redirect.named_children]:
                if child.type == "file_redirect":
                    sign = chunk.raw(child).lstrip("012&")[:2].rstrip(" $\"'./")
                    to = child.children_by_field_name("destination")
                    targets += [(sign, self.expander.text(chunk, one, state)) for one in to[:1]]
                    more += to[1:]
                elif child.type == "pipeline":
                    after += child.named_children
            if redirect.type == "heredoc_redirect":
                text = self._here_document(chunk, redirect, state)
        for sign, target in targets:
            if sign == "<":
                text = self._file(target, state)
        if more and body is not None and body.type == "command":
            text = self._run_command(chunk, body, state, text, more)
        else:
            text = self._piped(chunk, body, state, text) if body is not None else text
        for sign, target in targets:
            if sign[:1] == ">" and body is not None:
                write(state, target, text, adds=sign == ">>")
        for child in after:
            text = self._piped(chunk, child, state, text)
        return text

    def _here_document(self, chunk: Chunk, node: Node, state: State) -> Text | None:
        start = next((child for child in node.named_children if child.type == "heredoc_start"), None)
        body = next((child for child in node.named_children if child.type == "heredoc_body"), None)
        if start is None or body is None:
            return None
        if any(mark in chunk.raw(start) for mark in "'\"\\"):
            return chunk.slice(chunk.start(body), chunk.end(body))
        return self._text(chunk, body, state)

    def _command(self, chunk: Chunk, node: Node, state: State) -> None:
        self._run_command(chunk, node, state, None)

    def _run_command(self, chunk: Chunk, node: Node, state: State, text: Text | None, more: Sequence[Node] = ()) -> Text | None:
        words: list[Text] = []
        local: dict[str, Text] = {}
        for child in (*node.named_children, *more):
            if child.type == "variable_assignment":
                inside = state.copy()
                self._variable_assignment(chunk, child, inside)
                name = chunk.raw(child).partition("=")[0].rstrip("+")
                value = inside.variables.get(name)
                if isinstance(value, tuple):
                    local[name] = value
            elif child.type == "herestring_redirect" and child.named_children:
                text = self._text(chunk, child.named_children[-1], state)
            elif child.type != "file_redirect":
                words += self._fields(chunk, child, state)
        while words and "=" in (known(words[0]) or "") and (known(words[0]) or "").partition("=")[0].isidentifier():
            name = (known(words[0]) or "").partition("=")[0]  # a variable held the assignment, or `env` did
            local[name] = words.pop(0)
        return self._called(chunk, words, local, state, text) if words else None

    def _called(self, chunk: Chunk, words: list[Text], local: dict[str, Text], state: State, text: Text | None) -> Text | None:
        name = known(words[0])
        if name in state.functions:
            return self._function(str(name), words[1:], state)
        if name in ("exit", "return", "exec") and (name != "exec" or len(words) == 1):
            state.ended = True
            return None
        if name in ("break", "continue"):
            state.left = str(name)
            return None
        if name in ("source", "."):
            self._source(words[1] if len(words) > 1 else (), state)
            return None
        if name == "eval":
            self.run(Chunk(joined(words[1:], chunk.pieces[0]._replace(text=" ", exact=False))), state)
            return None
        if name in ("bash", "sh", "/bin/bash", "/bin/sh"):
            self._shell(words[1:], state)
            return None
        if name == "cd":
            state.folder = _changed(state.folder, known(words[1]) if len(words) > 1 else None)
            return ()
        if name in ("shift", "read", "mapfile", "readarray", "getopts", "let", "local", "readonly"):
            _change_variables(str(name), words, state, text)
            return None
        return self._other(words, local, state, text)

    def _other(self, words: list[Text], local: dict[str, Text], state: State, text: Text | None) -> Text | None:
        """A program: it can write files, print a text that is known, or be a launch."""
        name = known(words[0])
        if self._wrapped(words, state):
            return None
        for target, content in written_by(words, text):
            write(state, target, content, adds=False)
        output = output_of(words, text, lambda target: self._file(target, state), state.folder)
        if output is None and name not in _RESERVED and len(self.launched) < LAUNCHES:
            self.launched.append(Launched(words, local, state))
        elif output is None and name not in _RESERVED:
            self._cut_off_here()
        return output

    def _wrapped(self, words: list[Text], state: State) -> bool:
        """Follow a command that another one is given as text: `srun bash -c "..."`, `ssh HOST "..."`, `sbatch --wrap="..."`."""
        name = os.path.basename(known(words[0]) or "")
        names = [os.path.basename(known(word) or "") for word in words]
        shell = next((index for index, one in enumerate(names) if one in ("bash", "sh") and index), None)
        if shell is not None and name not in _RESERVED:
            self._shell(words[shell + 1 :], state)
            return True
        if name == "sbatch" and self._submitted(words[1:], state):
            return True
        if name not in _WRAPPERS:
            return False
        for word in words[1:]:
            text = "".join(piece.text or " " for piece in word)
            wrap = len("--wrap=") if text.startswith("--wrap=") else 0
            if " " in text.strip() and _LAUNCH.search(text):
                self.run(Chunk(_without(word, wrap)), state.copy())
                return True
        rest = [index for index, one in enumerate(names) if index and _LAUNCH.fullmatch(one)]
        if name in ("ssh", "pdsh") and rest:
            blank = words[0][0]._replace(text=" ", exact=False)
            self.run(Chunk(joined(words[rest[0] :], blank)), state.copy())
            return True
        return False

    def _submitted(self, words: list[Text], state: State) -> bool:
        """Follow the script that `sbatch` submits, if there is one."""
        for index, word in enumerate(words):
            if not (word and (word[0].text or "").startswith("-")) and self._file(word, state) is not None:
                inside = state.copy()
                inside.arguments = words[index + 1 :]
                self._source(word, inside)
                return True
        return False

    def _function(self, name: str, arguments: list[Text], state: State) -> Text | None:
        """Follow a function; its output, if it is a single command."""
        if self._depth >= DEPTH:
            self._cut_off_here()
            return None
        chunk, body = state.functions[name]
        before, state.arguments = state.arguments, arguments
        self._depth += 1
        text: Text | None = None
        if len(body.named_children) == 1 and body.named_children[0].type == "command":
            text = self._piped(chunk, body.named_children[0], state, None)
        else:
            self._statement(chunk, body, state)
        self._depth -= 1
        state.arguments, state.ended = before, False
        return text

    def _shell(self, words: list[Text], state: State) -> None:
        """`bash -c "..."`, `bash file.sh`."""
        for index, word in enumerate(words):
            flag = known(word)
            if flag is not None and flag.startswith("-") and "c" in flag.lstrip("-") and not flag.startswith("--"):
                if index + 1 < len(words):
                    self.run(Chunk(words[index + 1]), state.copy())
                return
            if flag is None or not flag.startswith("-"):
                inside = state.copy()
                inside.arguments = words[index + 1 :]
                self._source(word, inside)
                return

    def _source(self, target: Text, state: State) -> None:
        written = self._file(target, state)
        if written is not None and written and len(written[0].source.document.text) < 200_000:
            self.run(Chunk(written), state)
            return

    def _file(self, target: Text, state: State) -> Text | None:
        """The text of a file that the script wrote, or of one in the project."""
        written = state.files.get(_normal(key_of(target)))
        if written is not None:
            return written
        name = known(target)
        linked = find(os.path.join(state.folder, name) if state.folder else name, self.path) if name else None
        if linked is None and name is not None and name.startswith("/"):
            linked = find_checkout(name, self.path)
        if linked is None:
            return None
        try:
            document = Document(read(linked.path), None, language="text")
        except ReadError:
            return None
        return Chunk.of_file(Source(linked.shown, document)).pieces

    def _substitute(self, chunk: Chunk, node: Node, state: State) -> Text | None:
        """The output of `$(...)`, if it is known."""
        if self._depth >= DEPTH:
            return None
        self._depth += 1
        inside, launched = state.copy(), len(self.launched)
        output: Text | None = ()
        for child in node.named_children:
            parts = child.named_children if child.type == "list" else [child]
            for part in parts:
                text = self._piped(chunk, part, inside, None)
                output = None if output is None or text is None else output + text
        del self.launched[launched:]
        self._depth -= 1
        return output


def _change_variables(name: str, words: list[Text], state: State, text: Text | None) -> None:
    """Follow `shift` and the commands that set the variables they name. `text` is their standard input."""
    if name == "shift" and state.arguments is not None:
        state.arguments = state.arguments[1:]
    if name in ("shift", "local", "readonly"):
        return
    for word in words[1:]:
        state.variables[(known(word) or "").partition("=")[0]] = None
    options = [known(word) or "" for word in words[1:-1]]
    target = known(words[-1])
    if name != "read" or text is None or target is None:
        return
    whole = "-d" in options and options[options.index("-d") + 1 :][:1] == [""]  # read -r -d "" NAME <<EOF
    if whole and len(options) - options.index("-d") == 2:
        state.variables[target] = text
    elif options and all(option.startswith("-") for option in options) and "a" in options[-1]:  # read -ra NAME <<< "$TEXT"
        state.variables[target] = list(fields(tuple(piece._replace(splits=True) for piece in text)))


def write(state: State, target: Text, text: Text | None, *, adds: bool) -> None:
    """Note what a file holds from now on. What only the run knows is an unknown part of it."""
    path = _normal(key_of(target))
    unknown = tuple(piece._replace(text=None) for piece in target[:1])
    before = state.files.get(path, unknown) if adds else ()
    state.files[path] = before + (unknown if text is None else text)


def _without(text: Text, characters: int) -> Text:
    """A text without its first characters."""
    return (text[0].part(characters, len(text[0].text or "")), *text[1:]) if characters else text


def _normal(path: str) -> str:
    return os.path.normpath(path)


def _changed(folder: str, target: str | None) -> str:
    """The working directory after `cd`; "" if it is not known."""
    return os.path.normpath(os.path.join(folder, target)) if target else ""
