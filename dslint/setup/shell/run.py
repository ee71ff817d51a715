"""Follow the statements of a script to the commands that it runs. Nothing is executed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from dslint.setup.files import find
from dslint.setup.shell.builtins import output_of, written_by
from dslint.setup.shell.conditions import Tester
from dslint.setup.shell.pieces import Source, Text, joined, known
from dslint.setup.shell.pieces import key as key_of
from dslint.setup.shell.state import DEPTH, PIECES, STEPS, Launched, State
from dslint.setup.shell.syntax import Chunk
from dslint.setup.shell.words import Expander, bounded
from dslint.source.read import ReadError, read
from dslint.source.tree import Document

if TYPE_CHECKING:
    from tree_sitter import Node

ITERATIONS = 64
"""How many passes of a loop are followed."""

LAUNCHES = 64
"""How many launches of a script are kept."""

_WRAPPERS = frozenset({"srun", "ssh", "pdsh", "sbatch", "tmux", "screen", "docker", "singularity", "apptainer", "su", "nohup", "kubectl"})
"""Commands that can be given another one as text."""

_LAUNCH = re.compile(r"deepspeed|torchrun|accelerate|python[\d.]*|llamafactory-cli|axolotl|swift|trl")

_AFTER_FAILURE = frozenset({"exit", "return", "true", "break", "continue", ":"})
"""What scripts do if a command fails, which it is not expected to."""

_RESERVED = frozenset({"echo", "printf", "mkdir", "rm", "set", "sleep", "ls", "mv", "cp", "which", "pip", "conda", "module", "wget", "git"})
"""Commands that launch nothing."""


class Runner:
    """Follows a script. `launched` are the commands that it runs, in order; `files` those that earlier texts have written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.expander = Expander(self._substitute)
        self.tester = Tester(self.expander)
        self.launched: list[Launched] = []
        self.files: dict[str, Text] = {}
        self.cut_off = False
        self._steps = 0
        self._depth = 0
        self._stdout: list[Text | None] | None = None

    def run(self, chunk: Chunk, state: State) -> None:
        """Follow a text from its first statement on."""
        if self._depth >= DEPTH:
            self.cut_off = True
            return
        self._depth += 1
        self._block(chunk, chunk.root.children, state)
        self._depth -= 1

    def call(self, words: list[Text], state: State) -> None:
        """Follow one command."""
        self._called(Chunk(words[0]), words, {}, state, None)

    def _block(self, chunk: Chunk, nodes: Iterable[Node], state: State) -> None:
        for node in nodes:
            if state.ended:
                return
            if node.is_named:
                self._statement(chunk, node, state)

    def _statement(self, chunk: Chunk, node: Node, state: State) -> None:
        self._steps += 1
        if self._steps > STEPS:
            self.cut_off = True
            return
        follow = getattr(self, "_" + node.type, None) if node.type in _STATEMENTS else None
        if follow is not None:
            follow(chunk, node, state)
        elif node.type in ("do_group", "compound_statement", "ERROR", "program") and not chunk.raw(node).startswith("(("):
            self._block(chunk, node.children, state)

    def _text(self, chunk: Chunk, node: Node, state: State) -> Text:
        """A word as one text. Each piece of it is work, as a statement is: variables may double each other."""
        text = self.expander.text(chunk, node, state)
        self._steps += len(text) // PIECES
        return text

    def _fields(self, chunk: Chunk, node: Node, state: State) -> list[Text]:
        """The fields of a word, which are work as well."""
        found = self.expander.fields(chunk, node, state)
        self._steps += sum(map(len, found)) // PIECES
        return found

    # ------------------------------------------------------------------ variables

    def _variable_assignment(self, chunk: Chunk, node: Node, state: State) -> None:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return
        name = chunk.raw(target)
        adds = any(child.type == "+=" for child in node.children)
        if target.type == "subscript":
            state.variables[name.partition("[")[0]] = None
            return
        if value is not None and value.type == "array":
            items = [field for child in value.named_children for field in self._fields(chunk, child, state)]
            before = state.variables.get(name)
            if adds and name in state.variables:
                if before is None:
                    return
                items = [*(before if isinstance(before, list) else [before]), *items]
            state.variables[name] = items[:5_000]
            return
        written = self._text(chunk, value, state) if value is not None else ()
        text = tuple(piece._replace(splits=False) for piece in written)
        before = state.variables.get(name)
        if adds and isinstance(before, list):
            if before:
                state.variables[name] = [before[0] + text, *before[1:]]
            return
        if adds and name in state.variables:
            if not isinstance(before, tuple):
                return
            text = before + text
        state.variables[name] = bounded(text, chunk.piece(node))

    def _variable_assignments(self, chunk: Chunk, node: Node, state: State) -> None:
        self._block(chunk, node.named_children, state)

    def _declaration_command(self, chunk: Chunk, node: Node, state: State) -> None:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._variable_assignment(chunk, child, state)

    def _unset_command(self, chunk: Chunk, node: Node, state: State) -> None:
        for child in node.named_children:
            state.variables.pop(chunk.raw(child), None)
            state.functions.pop(chunk.raw(child), None)

    def _function_definition(self, chunk: Chunk, node: Node, state: State) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            state.functions[chunk.raw(name)] = (chunk, body)

    # ------------------------------------------------------------------ control flow

    def _if_statement(self, chunk: Chunk, node: Node, state: State) -> None:
        branches: list[tuple[list[Node], list[Node]]] = []
        parts: list[tuple[str, list[Node]]] = [("if", node.children)]
        parts += [(child.type, child.children) for child in node.named_children if child.type in ("elif_clause", "else_clause")]
        for kind, children in parts:
            named = [child for child in children if child.is_named and child.type not in ("elif_clause", "else_clause")]
            then = next((index for index, child in enumerate(children) if child.type == "then"), None)
            if kind == "else_clause" or then is None:
                branches.append(([], named))
                continue
            before = [child for child in children[:then] if child.is_named]
            branches.append((before, [child for child in named if child not in before]))
        self._choose(chunk, branches, state)

    def _choose(self, chunk: Chunk, branches: list[tuple[list[Node], list[Node]]], state: State) -> None:
        """Take the branch that conditions decide; every branch that may be taken where they do not."""
        ways: list[State] = []
        for conditions, body in branches:
            decision = self.tester.decide(chunk, conditions[-1], state) if conditions else None
            if decision is not None and decision.value is False:
                continue
            way = state.copy()
            self._block(chunk, body, way)
            if decision is not None and decision.absent and way.ended:
                continue  # a check of what the script needs: it ends only if that is missing
            ways.append(way)
            if decision is None or decision.value is True:
                state.merge(ways)
                return
        state.merge([*ways, state.copy()])

    def _list(self, chunk: Chunk, node: Node, state: State) -> None:
        sign = "&&" if any(child.type == "&&" for child in node.children) else "||"
        self._chain(chunk, _operands(node, sign), state, runs=sign == "&&")

    def _chain(self, chunk: Chunk, nodes: list[Node], state: State, *, runs: bool) -> None:
        """Follow `a && b && c` (`runs`) or `a || b || c`."""
        left, *rest = nodes
        if not rest:
            self._statement(chunk, left, state)
            return
        if left.type not in ("test_command", "negated_command", "compound_statement") or not chunk.raw(left).startswith(("[", "((", "!")):
            self._statement(chunk, left, state)
            if runs:
                self._chain(chunk, rest, state, runs=runs)
            elif rest[0].type != "command" or chunk.raw(rest[0]).partition(" ")[0] not in _AFTER_FAILURE:
                self._choose(chunk, [([left], rest)], state)
            return
        decision = self.tester.decide(chunk, left, state)
        if decision.value is not None and not decision.absent:
            if decision.value == runs:
                self._chain(chunk, rest, state, runs=runs)
            return
        ways = [state.copy()]
        self._chain(chunk, rest, ways[0], runs=runs)
        if not (decision.absent and decision.value == runs and not ways[0].ended):
            ways.append(state.copy())
        state.merge(ways)

    def _for_statement(self, chunk: Chunk, node: Node, state: State) -> None:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is None or body is None:
            return
        name = chunk.raw(variable)
        values = [field for child in node.children_by_field_name("value") for field in self._fields(chunk, child, state)]
        values = [text for text in values if text]
        if len(values) > ITERATIONS:
            self.cut_off = True
        for value in values[:ITERATIONS]:
            state.variables[name] = tuple(piece._replace(splits=False) for piece in value)
            self._statement(chunk, body, state)
            if state.ended:
                return

    def _c_style_for_statement(self, chunk: Chunk, node: Node, state: State) -> None:
        body = node.child_by_field_name("body")
        raw = chunk.raw(node)
        head = raw[raw.find("((") + 2 : raw.find("))")].split(";")
        if body is None or len(head) != 3:
            return
        name, _, first = (part.strip() for part in head[0].partition("="))
        value = self.expander.number(first, state)
        piece = chunk.piece(node)
        for _ in range(ITERATIONS):
            state.variables[name] = (piece._replace(text=str(value)),) if value is not None else None
            if self.expander.number(head[1], state) == 0:
                return
            self._statement(chunk, body, state)
            step = head[2].strip()
            changed = step.replace("++", "+1") if "++" in step else step.replace("--", "-1") if "--" in step else step.replace("+=", "+")
            value = self.expander.number(changed, state) if value is not None else None
            if state.ended or value is None:
                return
        self.cut_off = True

    def _while_statement(self, chunk: Chunk, node: Node, state: State) -> None:
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        if condition is None or body is None:
            return
        for _ in range(ITERATIONS):
            decision = self.tester.decide(chunk, condition, state)
            wanted = chunk.raw(node).startswith("while")
            if decision.value is not None and decision.value != wanted:
                return
            if decision.value is None:
                break
            self._statement(chunk, body, state)
            if state.ended:
                return
        # How often it runs is not known: what it assigns is unknown, inside and after it.
        for name in _assigned(chunk, body):
            state.variables[name] = None
        inside = state.copy()
        self._statement(chunk, body, inside)
        state.merge([state.copy(), inside])

    def _case_statement(self, chunk: Chunk, node: Node, state: State) -> None:
        subject = node.child_by_field_name("value")
        word = known(self.expander.text(chunk, subject, state)) if subject is not None else None
        ways: list[State] = []
        for item in node.named_children:
            if item.type != "case_item":
                continue
            values = item.children_by_field_name("value")
            patterns = [known(self.expander.text(chunk, one, state)) for one in values]
            fits = None if word is None or None in patterns else any(fnmatchcase(word, str(pattern)) for pattern in patterns)
            if fits is False:
                continue
            way = state.copy()
            self._block(chunk, [child for child in item.named_children if child not in values], way)
            ways.append(way)
            if fits or patterns == ["*"]:
                state.merge(ways)
                return
        state.merge([*ways, state.copy()])

    def _subshell(self, chunk: Chunk, node: Node, state: State) -> None:
        inside = state.copy()
        self._block(chunk, node.named_children, inside)
        state.files.update(inside.files)

    def _negated_command(self, chunk: Chunk, node: Node, state: State) -> None:
        self._block(chunk, node.named_children, state)

    # ------------------------------------------------------------------ commands

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
        for redirect in node.children_by_field_name("redirect"):
            for child in [redirect, *redirect.named_children]:
                if child.type == "file_redirect":
                    sign = chunk.raw(child).lstrip("012&")[:2].rstrip(" $\"'./")
                    to = child.child_by_field_name("destination")
                    if to is not None:
                        targets.append((sign, self.expander.text(chunk, to, state)))
                elif child.type == "pipeline":
                    after += child.named_children
            if redirect.type == "heredoc_redirect":
                text = self._here_document(chunk, redirect, state)
        for sign, target in targets:
            if sign == "<":
                text = self._file(target, state)
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

    def _run_command(self, chunk: Chunk, node: Node, state: State, text: Text | None) -> Text | None:
        words: list[Text] = []
        local: dict[str, Text] = {}
        for child in node.named_children:
            if child.type == "variable_assignment":
                inside = state.copy()
                self._variable_assignment(chunk, child, inside)
                name = chunk.raw(child).partition("=")[0].rstrip("+")
                value = inside.variables.get(name)
                if isinstance(value, tuple):
                    local[name] = value
            elif child.type not in ("file_redirect", "herestring_redirect"):
                words += self._fields(chunk, child, state)
        while words and "=" in (known(words[0]) or "") and (known(words[0]) or "").partition("=")[0].isidentifier():
            name = (known(words[0]) or "").partition("=")[0]  # a variable held the assignment, or `env` did
            local[name] = words.pop(0)
        return self._called(chunk, words, local, state, text) if words else None

    def _called(self, chunk: Chunk, words: list[Text], local: dict[str, Text], state: State, text: Text | None) -> Text | None:
        name = known(words[0])
        if name in state.functions:
            self._function(str(name), words[1:], state)
            return None
        if name in ("exit", "return", "exec") and (name != "exec" or len(words) == 1):
            state.ended = True
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
        if name in ("shift", "read", "let", "local", "readonly"):
            _change_variables(str(name), words, state)
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
            self.cut_off = True
        return output

    def _wrapped(self, words: list[Text], state: State) -> bool:
        """Follow a command that another one is given as text: `srun bash -c "..."`, `ssh HOST "..."`, `sbatch --wrap="..."`."""
        name = os.path.basename(known(words[0]) or "")
        names = [os.path.basename(known(word) or "") for word in words]
        shell = next((index for index, one in enumerate(names) if one in ("bash", "sh") and index), None)
        if shell is not None and name not in _RESERVED:
            self._shell(words[shell + 1 :], state)
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

    def _function(self, name: str, arguments: list[Text], state: State) -> None:
        if self._depth >= DEPTH:
            self.cut_off = True
            return
        chunk, body = state.functions[name]
        before, state.arguments = state.arguments, arguments
        self._depth += 1
        self._statement(chunk, body, state)
        self._depth -= 1
        state.arguments, state.ended = before, False

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


_STATEMENTS = frozenset(
    """
    variable_assignment variable_assignments declaration_command unset_command function_definition if_statement list for_statement
    c_style_for_statement while_statement case_statement subshell negated_command pipeline redirected_statement command
    """.split()
)
"""The kinds of statement; each has a method."""


def _operands(node: Node, sign: str) -> list[Node]:
    """The commands that one operator joins."""
    left, right = node.named_children[0], node.named_children[-1]
    inner = left.type == "list" and any(child.type == sign for child in left.children)
    return [*(_operands(left, sign) if inner else [left]), right]


def _change_variables(name: str, words: list[Text], state: State) -> None:
    if name == "shift" and state.arguments is not None:
        state.arguments = state.arguments[1:]
    for word in words[1:] if name in ("read", "let") else ():
        state.variables[(known(word) or "").partition("=")[0]] = None


def write(state: State, target: Text, text: Text | None, *, adds: bool) -> None:
    """Note what a file holds from now on; a file with an unknown text is forgotten."""
    path = _normal(key_of(target))
    before = state.files.get(path) if adds else ()
    if text is None or before is None:
        state.files.pop(path, None)
    else:
        state.files[path] = before + text


def _without(text: Text, characters: int) -> Text:
    """A text without its first characters."""
    return (text[0].part(characters, len(text[0].text or "")), *text[1:]) if characters else text


def _normal(path: str) -> str:
    return os.path.normpath(path)


def _changed(folder: str, target: str | None) -> str:
    """The working directory after `cd`; "" if it is not known."""
    return os.path.normpath(os.path.join(folder, target)) if target else ""


def _assigned(chunk: Chunk, node: Node) -> set[str]:
    """The variables that a loop assigns."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if here.type == "variable_assignment":
            found.add(chunk.raw(here).partition("=")[0].rstrip("+").partition("[")[0])
        waiting += here.named_children
    return found
