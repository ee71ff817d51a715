"""Commands of a script: pipelines, redirections, functions, other scripts, and the programs that it runs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dslint.evaluate.files import find, find_checkout
from dslint.evaluate.shell.interpreter import BUILTINS, Builtin, Interpreter, statement, substitution
from dslint.evaluate.shell.outcome import DONE, UNKNOWN_PROGRAM, CommandOutcome
from dslint.evaluate.shell.outputs import output_of, written_by
from dslint.evaluate.shell.pieces import ShellSource, Text, joined, known, names_arguments
from dslint.evaluate.shell.pieces import key as key_of
from dslint.evaluate.shell.state import ABSENT, DEPTH, Absence, Launched, ScriptState
from dslint.evaluate.shell.statements import assign
from dslint.evaluate.shell.syntax import Chunk
from dslint.schemas.framework_commands import COMMANDS
from dslint.source.read import ReadError, read
from dslint.source.tree import Document

if TYPE_CHECKING:
    from tree_sitter import Node

LAUNCHES = 64
"""How many launches of a script are kept."""

_WRAPPERS = frozenset({"srun", "ssh", "pdsh", "sbatch", "tmux", "screen", "docker", "singularity", "apptainer", "su", "nohup", "kubectl"})
"""Commands that can be given another one as text."""

_LAUNCH = re.compile(rf"(?<!-)(?:deepspeed|torchrun|accelerate|python[\d.]*|{'|'.join(COMMANDS)}|(?:ba)?sh)")
"""What launches something; `--deepspeed` is an argument."""

_LAUNCH_NOTHING = frozenset(
    """
    echo printf mkdir rm set sleep ls mv cp which pip pip3 pip-compile conda module wget curl git trap wait touch chmod chown ln ulimit date
    hostname grep egrep rg du tar zip unzip cat head tail less diff tree rsync scp ps pgrep pkill killall kill apt apt-get yum dnf brew
    """.split()
)
"""Commands that launch nothing."""

_PACKAGE_MANAGERS = frozenset("uv poetry pdm pixi rye hatch pipenv mamba micromamba docker podman".split())
"""Commands that launch something only with a word such as `run`; `uv add deepspeed torch` installs the launcher."""

_SIGN = re.compile(r"(?s)[\d&]*([<>]+[&|]?)?.*")
"""The sign of a redirection: `>>` of `2>> errors.log`."""

_NEW_LINE = re.compile(r"(?<!\\)\n")
_ESCAPED_BLANK = re.compile(r"[ \t]*\\([ \t](?:#[^\n]*)?)(?:[ \t]+#[^\n]*|[ \t]*\r?)(?:\n|$)")
"""A backslash before a blank that ends its line, or before a comment. A "#" next to the blank belongs to its word, and begins none."""

_LARGEST_SCRIPT = 200_000
"""The longest script, in code points, that another one runs and that is followed into."""


# ---------------------------------------------------------------------- pipelines and redirections


@statement("pipeline")
def _pipeline(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, given: Text | None) -> CommandOutcome:
    outcome = UNKNOWN_PROGRAM
    for child in node.named_children:
        inside = state.copy()
        outcome = shell.follow(chunk, child, inside, given)
        given = outcome.output
        state.files.update(inside.files)
    return outcome


@statement("redirected_statement")
def _redirected(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, given: Text | None) -> CommandOutcome:
    body = node.child_by_field_name("body")
    targets: list[tuple[str, Text]] = []
    after: list[Node] = []
    more: list[Node] = []  # the grammar takes the arguments behind a redirection for parts of it
    for redirect in [child for child in node.named_children if body is None or child != body]:
        for child in [redirect, *redirect.named_children]:
            if child.type == "file_redirect":
                sign = _SIGN.sub(r"\1", chunk.raw(child))
                to = child.children_by_field_name("destination")
                targets += [(sign, shell.expander.text(chunk, one, state)) for one in to[:1]]
                more += to[1:]
            elif child.type == "pipeline":
                after += child.named_children
        if redirect.type == "heredoc_redirect":
            given = _here_document(shell, chunk, redirect, state)
        elif redirect.type == "herestring_redirect" and redirect.named_children:
            given = shell.text(chunk, redirect.named_children[-1], state)
    missing = False
    for target in (target for sign, target in targets if sign == "<"):
        given = file_text(shell, target, state)
        missing = missing or (given is None and _is_missing(shell, target, state))
    shell.undecided += missing  # bash runs nothing if it cannot open the file
    outcome = _with_redirections(shell, chunk, node, state, given, more)
    shell.undecided -= missing
    outputs = [(sign, target) for sign, target in targets if sign[:1] == ">" and sign != ">&" and body is not None]
    for sign, target in outputs:
        write(state, target, outcome.output, adds=sign == ">>")
    if outputs:
        outcome = CommandOutcome(outcome.value, absent=outcome.absent, expected=outcome.expected)
    for child in after:
        outcome = shell.follow(chunk, child, state, outcome.output)
    return outcome


def _with_redirections(
    shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, given: Text | None, more: Sequence[Node]
) -> CommandOutcome:
    """Follow what is redirected, with the words that the grammar does not give to the command."""
    body = node.child_by_field_name("body")
    if body is None:
        return DONE
    if body.type != "command":
        return shell.follow(chunk, body, state, given)
    following = next((child for child in node.named_children if child.start_byte >= body.end_byte), None)
    begin, end = chunk.end(body), chunk.start(following) if following is not None else chunk.end(body)
    dashes = [
        chunk.slice(begin + match.start(), begin + match.end()) for match in re.finditer(r"(?<=[ \t])-(?=[ \t])", chunk.text[begin:end])
    ]
    return _run(shell, chunk, body, state, given, more, dashes)  # of `python - <<EOF` the grammar drops the dash


def _here_document(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState) -> Text | None:
    start = next((child for child in node.named_children if child.type == "heredoc_start"), None)
    body = next((child for child in node.named_children if child.type == "heredoc_body"), None)
    if start is None or body is None:
        return None
    if any(mark in chunk.raw(start) for mark in "'\"\\"):
        return chunk.slice(chunk.start(body), chunk.end(body))
    return shell.text(chunk, body, state)


# ---------------------------------------------------------------------- commands


@statement("command")
def _command(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, given: Text | None) -> CommandOutcome:
    return _run(shell, chunk, node, state, given)


def _run(
    shell: Interpreter,
    chunk: Chunk,
    node: Node,
    state: ScriptState,
    given: Text | None,
    more: Sequence[Node] = (),
    dashes: Sequence[Text] = (),
) -> CommandOutcome:
    """Follow a command with the assignments before it; `more` are words that the grammar takes for parts of a redirection."""
    words: list[Text] = []
    empty: list[tuple[int, Text]] = []
    local: dict[str, Text] = {}
    line_end = _last_line_end_before_name(chunk, node)
    for child in (*node.named_children, *more):
        if child.type == "variable_assignment" and chunk.end(child) <= line_end:
            assign(shell, chunk, child, state)  # the grammar joins `A=1 B=2` with the command on the next line
        elif child.type == "variable_assignment":
            inside = state.copy()
            assign(shell, chunk, child, inside)
            name = chunk.raw(child).partition("=")[0].rstrip("+")
            value = inside.variables.get(name)
            if isinstance(value, tuple):
                local[name] = value
        elif child.type == "herestring_redirect" and child.named_children:
            given = shell.text(chunk, child.named_children[-1], state)
        elif child.type != "file_redirect":
            found = shell.fields(chunk, child, state)
            if not found and (value := _value_left_open(shell, chunk, child, state, words)) is not None:
                empty.append((len(words), value))
            words += found
    for index, value in reversed(empty):
        if index == len(words) or (known(words[index]) or "").startswith("-"):
            words.insert(index, value)
    words += dashes
    if (blank := _ESCAPED_BLANK.match(chunk.text, chunk.end(node))) is not None and words and not more:
        words.append(chunk.slice(*blank.span(1)))  # a backslash before a blank does not join lines: the blank is an argument
    while words and "=" in (known(words[0]) or "") and (known(words[0]) or "").partition("=")[0].isidentifier():
        name = (known(words[0]) or "").partition("=")[0]  # a variable held the assignment, or `env` did
        local[name] = words.pop(0)
    return call(shell, words, local, state, given) if words else DONE


def _last_line_end_before_name(chunk: Chunk, node: Node) -> int:
    """Where the last line ends that stands before the name of a command; -1 if there is none, or no name."""
    named = node.child_by_field_name("name")
    if named is None:
        return -1
    start = chunk.start(node)
    return max((start + found.start() for found in _NEW_LINE.finditer(chunk.text[start : chunk.start(named)])), default=-1)


def _value_left_open(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState, words: list[Text]) -> Text | None:
    """The unknown value of an empty variable after a flag that the arguments of the script may set: `--output_dir $OUT`."""
    flag = known(words[-1]) if words else None
    if flag is None or not flag.startswith("--") or "=" in flag or names_arguments(chunk.raw(node)):
        return None
    text = shell.text(chunk, node, state)
    return (text[0]._replace(text=None, absent=False),) if text and all(piece.absent and piece.text == "" for piece in text) else None


def call(shell: Interpreter, words: list[Text], local: dict[str, Text], state: ScriptState, given: Text | None) -> CommandOutcome:
    """Follow a command that is given as words: a function, a builtin or a program."""
    name = known(words[0])
    if name in state.functions:
        return _function(shell, str(name), words[1:], state)
    known_builtin = BUILTINS.get(name) if name is not None else None
    if known_builtin is not None:
        return _with_variables(shell, known_builtin, words, local, state, given)
    inner = _behind_conda(words)
    return call(shell, inner, local, state, given) if inner else run_program(shell, words, local, state, given)


def _with_variables(
    shell: Interpreter, run: Builtin, words: list[Text], local: dict[str, Text], state: ScriptState, given: Text | None
) -> CommandOutcome:
    """Follow a builtin with variables that only it gets: `IFS=, read A B`, `NPROC=4 bash train.sh`."""
    before = {name: state.variables.get(name, ABSENT) for name in local}
    exported = local.keys() - state.exported
    state.variables |= local
    state.exported |= exported
    outcome = run(shell, words, state, given)
    for name, value in before.items():
        if isinstance(value, Absence):
            state.variables.pop(name, None)
        else:
            state.variables[name] = value
    state.exported -= exported
    return outcome


def run_program(shell: Interpreter, words: list[Text], local: dict[str, Text], state: ScriptState, given: Text | None) -> CommandOutcome:
    """A program: it can write files, print a text that is known, or be a launch."""
    name = known(words[0])
    if _wrapped(shell, words, state):
        return UNKNOWN_PROGRAM
    for target, content in written_by(words, given):
        write(state, target, content, adds=False)
    output = output_of(words, given, lambda target: file_text(shell, target, state), state.folder)
    if output is None and not _launches_nothing(words):
        if len(shell.launched) < LAUNCHES:
            shell.launched.append(Launched(words, local, state, perhaps=shell.undecided > 0))
        else:
            shell.cut_off_here()
    return CommandOutcome(value=True, expected=output is None or name not in ("echo", "printf"), output=output)


def _launches_nothing(words: list[Text]) -> bool:
    """Whether a command is one that launches nothing, whatever its arguments are named."""
    names = [os.path.basename(known(word) or "") for word in words]
    first = next((index for index, name in enumerate(names) if name != "sudo" and not name.startswith("-")), 0)
    if names[first] in _LAUNCH_NOTHING:
        return True
    return names[first] in _PACKAGE_MANAGERS and not {"run", "exec"} & set(names[first + 1 :])


def _behind_conda(words: list[Text]) -> list[Text]:
    """The command that `conda run` or `mamba run` runs in an environment, whose name may be that of a launcher; none of another command."""
    names = [os.path.basename(known(word) or "") for word in words]
    if names[0] not in ("conda", "mamba", "micromamba") or names[1:2] != ["run"]:
        return []
    index = 2
    while index < len(names) and names[index].startswith("-"):
        index += 2 if names[index] in ("-n", "--name", "-p", "--prefix", "--cwd") else 1
    return words[index:]


def _wrapped(shell: Interpreter, words: list[Text], state: ScriptState) -> bool:
    """Follow a command that another one is given as text: `srun bash -c "..."`, `ssh HOST "..."`, `sbatch --wrap="..."`."""
    name = os.path.basename(known(words[0]) or "")
    names = [os.path.basename(known(word) or "") for word in words]
    inner = next((index for index, one in enumerate(names) if one in ("bash", "sh") and index), None)
    if inner is not None and not _launches_nothing(words):
        first = len(shell.launched)
        run_script(shell, words[inner + 1 :], state)
        for launched in shell.launched[first:]:
            launched.shell_of = words[:inner]
        return True
    if name == "sbatch" and _submitted(shell, words[1:], state):
        return True
    if name not in _WRAPPERS:
        return False
    for word in words[1:]:
        text = "".join(piece.text or " " for piece in word)
        wrap = len("--wrap=") if text.startswith("--wrap=") else 0
        if " " in text.strip() and _LAUNCH.search(text) and (wrap or not text.startswith("-")):
            shell.run(Chunk(_without(word, wrap)), state.child())
            return True
    rest = [index for index, one in enumerate(names) if index and _LAUNCH.fullmatch(one)]
    if name in ("ssh", "pdsh") and rest:
        blank = words[0][0]._replace(text=" ", exact=False)
        shell.run(Chunk(joined(words[rest[0] :], blank)), state.child())
        return True
    return False


def _submitted(shell: Interpreter, words: list[Text], state: ScriptState) -> bool:
    """Follow the script that `sbatch` submits, if there is one."""
    for index, word in enumerate(words):
        if not (word and (word[0].text or "").startswith("-")) and file_text(shell, word, state) is not None:
            inside = state.child()
            inside.arguments = words[index + 1 :]
            inside.variables |= {"0": word, "BASH_SOURCE": word}
            follow_file(shell, word, inside)
            return True
    return False


def _function(shell: Interpreter, name: str, arguments: list[Text], state: ScriptState) -> CommandOutcome:
    """Follow a function. Its local variables get their values back."""
    if shell.depth >= DEPTH:
        shell.cut_off_here()
        return CommandOutcome(None, output=None)
    chunk, body = state.functions[name]
    before = state.arguments, state.locals, state.may_have_returned
    state.arguments, state.locals = arguments, {}
    shell.depth += 1
    outcome = DONE.then(shell.follow(chunk, body, state))  # a failure that is excused in the function is one of the call
    shell.depth -= 1
    for variable, value in (state.locals or {}).items():
        if isinstance(value, Absence):
            state.variables.pop(variable, None)
        else:
            state.variables[variable] = value
    state.arguments, state.locals, state.may_have_returned = before
    if state.left == "return":
        state.left, outcome = "", CommandOutcome(state.status.value, output=outcome.output)
    return outcome


def file_text(shell: Interpreter, target: Text, state: ScriptState) -> Text | None:
    """The text of a file that the script wrote, or of one in the project."""
    written = state.files.get(_normal(key_of(target)))
    if written is not None:
        return written
    name = known(target)
    place = (state.folder, name or "")
    if place not in shell.project:
        shell.project[place] = _project_text(shell, name, state)
    return shell.project[place]


def _is_missing(shell: Interpreter, target: Text, state: ScriptState) -> bool:
    """Whether a file that the script names by a relative path is nowhere in the project."""
    name = known(target)
    if not name or os.path.isabs(name):
        return False
    return find(os.path.join(state.folder, name), shell.path) is None


def _project_text(shell: Interpreter, name: str | None, state: ScriptState) -> Text | None:
    """The text of a file of the project."""
    linked = find(os.path.join(state.folder, name) if state.folder else name, shell.path) if name else None
    if linked is None and name is not None and name.startswith("/"):
        linked = find_checkout(name, shell.path)
    if linked is None:
        return None
    try:
        document = Document(read(linked.path), None, language="text")
    except ReadError:
        return None
    return Chunk.of_file(ShellSource(linked.shown, document)).pieces


@substitution
def _substitute(shell: Interpreter, chunk: Chunk, node: Node, state: ScriptState) -> Text | None:
    """The output of `$(...)`, if it is known."""
    if shell.depth >= DEPTH:
        return None
    shell.depth += 1
    inside, launched = state.copy(), len(shell.launched)
    output: Text | None = ()
    for child in node.named_children:
        outcome = shell.follow(chunk, child, inside)
        output = None if output is None or outcome.output is None else output + outcome.output
    del shell.launched[launched:]
    shell.depth -= 1
    return _without_last_newlines(output) if output is not None else None


def _without_last_newlines(text: Text) -> Text:
    """The output of a command as `$(...)` gives it."""
    while text and text[-1].text is not None and not text[-1].text.rstrip("\n"):
        text = text[:-1]
    if not text or text[-1].text is None:
        return text
    return (*text[:-1], text[-1].part(0, len(text[-1].text.rstrip("\n"))))


def write(state: ScriptState, target: Text, text: Text | None, *, adds: bool) -> None:
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


def follow_file(shell: Interpreter, target: Text, state: ScriptState) -> bool:
    """Follow a script that another one names. False if it is not in the project, or too large."""
    written = file_text(shell, target, state)
    if written is None or (written and len(written[0].source.document.text) >= _LARGEST_SCRIPT):
        return False
    if written:
        if written not in shell.chunks:
            shell.chunks[written] = Chunk(written)
        shell.run(shell.chunks[written], state)
    return True


def run_script(shell: Interpreter, words: list[Text], state: ScriptState) -> None:
    """`bash -c "..."`, `bash file.sh`. `bash -n file.sh` only reads the script."""
    index = 0
    while index < len(words):
        word, flag = words[index], known(words[index])
        option = flag if flag is not None and flag[:1] in ("-", "+") and flag[1:].isalpha() else ""
        named = known(words[index + 1]) if option[-1:] == "o" and index + 1 < len(words) else None
        if option.startswith("-") and ("n" in option or named == "noexec"):
            return
        if option.startswith("-") and "c" in option:
            if index + 1 < len(words):
                inside = state.child()
                inside.arguments = words[index + 3 :]
                if index + 2 < len(words):
                    inside.variables["0"] = words[index + 2]
                shell.run(Chunk(words[index + 1]), inside)
            return
        if flag is None or flag[:1] not in ("-", "+"):
            inside = state.child()
            inside.arguments = words[index + 1 :]
            inside.variables |= {"0": word, "BASH_SOURCE": word}
            follow_file(shell, word, inside)
            return
        index += 2 if option[-1:] in ("o", "O") or flag in ("--rcfile", "--init-file") else 1
