"""The builtins of the shell: the end of scripts and functions, other scripts, and what sets variables."""

from __future__ import annotations

import os
import re

from dslint.evaluate.shell.commands import call, follow_file, run_program, run_script
from dslint.evaluate.shell.interpreter import Interpreter, builtin
from dslint.evaluate.shell.outcome import DONE, UNKNOWN_PROGRAM, CommandOutcome
from dslint.evaluate.shell.pieces import Text, cut, fields, joined, known, may_be_several
from dslint.evaluate.shell.state import ScriptState
from dslint.evaluate.shell.syntax import Chunk
from dslint.source.integers import integer

_VARIABLE = re.compile(r"([A-Za-z_]\w*)=")


@builtin("true", ":")
def _true(_: Interpreter, __: list[Text], ___: ScriptState, ____: Text | None) -> CommandOutcome:
    return DONE


@builtin("false")
def _false(_: Interpreter, __: list[Text], ___: ScriptState, ____: Text | None) -> CommandOutcome:
    return CommandOutcome(value=False)


@builtin("test", "[")
def _test(shell: Interpreter, words: list[Text], _: ScriptState, __: Text | None) -> CommandOutcome:
    return shell.tester.test([word for word in words[1:] if known(word) != "]"])


@builtin("exit")
def _exit(_: Interpreter, words: list[Text], state: ScriptState, __: Text | None) -> CommandOutcome:
    state.ended = True
    status = integer(known(words[1]) or "") if len(words) > 1 else 0
    return CommandOutcome(status == 0 if status is not None else None)


@builtin("return")
def _return(_: Interpreter, words: list[Text], state: ScriptState, __: Text | None) -> CommandOutcome:
    """The end of a function, or of a file that is sourced."""
    status = integer(known(words[1]) or "") if len(words) > 1 else 0
    state.status = CommandOutcome(status == 0 if status is not None else None)
    if state.locals is None:
        state.ended = True
    else:
        state.left = "return"
    return state.status


@builtin("exec")
def _exec(shell: Interpreter, words: list[Text], state: ScriptState, given: Text | None) -> CommandOutcome:
    """A program in place of the shell. Without one it only redirects."""
    if len(words) > 1:
        call(shell, words[1:], {}, state, given)
        state.ended = True
    return DONE


@builtin("command", "builtin")
def _builtin(shell: Interpreter, words: list[Text], state: ScriptState, given: Text | None) -> CommandOutcome:
    if len(words) > 1 and not (known(words[1]) or "-").startswith("-"):
        return call(shell, words[1:], {}, state, given)
    return run_program(shell, words, {}, state, given)


@builtin("env")
def _env(shell: Interpreter, words: list[Text], state: ScriptState, given: Text | None) -> CommandOutcome:
    """`env A=b command`."""
    local: dict[str, Text] = {}
    rest = words[1:]
    while rest and (match := _VARIABLE.match(known(rest[0][:1]) or "")) is not None:
        word = rest.pop(0)
        local[match[1]] = (word[0].part(match.end(), len(word[0].text or "")), *word[1:])
    if not rest or (known(rest[0]) or "").startswith("-"):
        return run_program(shell, words, {}, state, given)
    return call(shell, rest, local, state, given)


@builtin("break", "continue")
def _leave(_: Interpreter, words: list[Text], state: ScriptState, __: Text | None) -> CommandOutcome:
    state.left = str(known(words[0]))
    return DONE


@builtin("source", ".")
def _source(shell: Interpreter, words: list[Text], state: ScriptState, _: Text | None) -> CommandOutcome:
    before = state.arguments
    state.arguments = words[2:] if len(words) > 2 else before
    if not follow_file(shell, words[1] if len(words) > 1 else (), state):
        for name in [*state.variables]:
            state.leave_open(name)
    state.arguments = before
    return UNKNOWN_PROGRAM


@builtin("eval")
def _eval(shell: Interpreter, words: list[Text], state: ScriptState, _: Text | None) -> CommandOutcome:
    return shell.run(Chunk(joined(words[1:], words[0][0]._replace(text=" ", exact=False))), state)


@builtin("bash", "sh", "/bin/bash", "/bin/sh")
def _shell(shell: Interpreter, words: list[Text], state: ScriptState, _: Text | None) -> CommandOutcome:
    run_script(shell, words[1:], state)
    return UNKNOWN_PROGRAM


@builtin("cd")
def _cd(_: Interpreter, words: list[Text], state: ScriptState, __: Text | None) -> CommandOutcome:
    operands = [word for word in words[1:] if known(word) not in ("--", "-P", "-L")]
    target = known(operands[0]) if operands else None
    state.folder = os.path.normpath(os.path.join(state.folder, target)) if target else ""
    return CommandOutcome(value=True, expected=True)


@builtin("let")
def _let(shell: Interpreter, words: list[Text], state: ScriptState, _: Text | None) -> CommandOutcome:
    value: int | None = None
    for word in words[1:]:
        expression = known(word)
        value = shell.expander.number(expression, state, word[0]) if expression is not None else None
        if value is None:
            state.variables[(expression or "").partition("=")[0].rstrip("+-*/%")] = None
    return CommandOutcome(bool(value) if value is not None else None)


@builtin("shift")
def _shift(_: Interpreter, words: list[Text], state: ScriptState, __: Text | None) -> CommandOutcome:
    if state.arguments is None:
        return DONE
    count = integer(known(words[1]) or "") if len(words) > 1 else 1
    if count is None or may_be_several(state.arguments[:count]):
        state.arguments = [(words[0][0]._replace(text=None, exact=False, splits=True),)]
        return CommandOutcome(None)
    fits = count <= len(state.arguments)
    state.arguments = state.arguments[count:] if fits else state.arguments
    return CommandOutcome(fits)


@builtin("set")
def _set(_: Interpreter, words: list[Text], state: ScriptState, __: Text | None) -> CommandOutcome:
    """`set -- a b` sets the arguments, `set -e` ends the script where a command fails, `set -a` exports what is set from here on."""
    for flag, name in zip(words[1:], [*words[2:], ()], strict=True):
        text = known(flag) or ""
        if text[:1] in "+-" and text[1:].isalpha():
            option = known(name) if text[1:] == "o" else None
            is_on = text[0] == "-"
            state.errexit = is_on if "e" in text or option == "errexit" else state.errexit
            state.exports_all = is_on if "a" in text or option == "allexport" else state.exports_all
    if len(words) > 1 and known(words[1]) == "--":
        state.arguments = words[2:]
    return DONE


@builtin("getopts")
def _getopts(_: Interpreter, words: list[Text], state: ScriptState, __: Text | None) -> CommandOutcome:
    """`getopts n:v NAME`: the next flag of the arguments."""
    pattern, name = known(words[1]) if len(words) > 1 else None, known(words[2]) if len(words) > 2 else None
    index = state.variables.get("OPTIND", ())
    number = integer(known(index) or "1") if isinstance(index, tuple) else None
    arguments = state.arguments if len(words) < 4 else words[3:]
    if arguments is None or number is None or pattern is None or name is None:
        state.variables |= {name or "": None, "OPTARG": None, "OPTIND": None}
        return CommandOutcome(None)
    character = state.option[1] if state.option[0] == number else 1
    word = known(arguments[number - 1]) if 0 < number <= len(arguments) else ""
    if word is None:
        state.variables |= {name: None, "OPTARG": None, "OPTIND": None}
        return CommandOutcome(None)
    blank = words[0][0]._replace(exact=False)
    if word == "--" or not word.startswith("-") or word == "-":
        state.variables |= {name: (blank._replace(text="?"),), "OPTIND": (blank._replace(text=str(number + (word == "--"))),)}
        return CommandOutcome(value=False)
    flag, rest = word[character], word[character + 1 :]
    found, value = flag, None
    if flag not in pattern.removeprefix(":") or flag == ":":
        found = "?"
    elif pattern[pattern.index(flag, pattern.startswith(":")) + 1 :][:1] == ":":
        if not rest and number < len(arguments):
            value, number = arguments[number], number + 1
        elif rest:
            value, rest = (blank._replace(text=rest),), ""
        else:
            found = ":" if pattern.startswith(":") else "?"
    number, character = (number, character + 1) if rest else (number + 1, 1)
    state.option = (number, character)
    state.variables |= {name: (blank._replace(text=found),), "OPTARG": value or (), "OPTIND": (blank._replace(text=str(number)),)}
    return DONE


@builtin("read", "mapfile", "readarray", "local", "readonly")
def _reads(_: Interpreter, words: list[Text], state: ScriptState, given: Text | None) -> CommandOutcome:
    """Builtins that set the variables they name."""
    name = known(words[0])
    if name in ("local", "readonly"):
        return DONE
    for word in words[1:]:
        state.variables[(known(word) or "").partition("=")[0]] = None
    if name == "read" and given is not None:
        _read(words, state, given)
    return CommandOutcome(None)


def _separated(given: Text, state: ScriptState) -> list[Text] | None:
    """The fields of a line, by the separators that the script sets."""
    if "IFS" not in state.variables:
        return list(fields(tuple(piece._replace(splits=True) for piece in given)))
    separators, text = state.variables["IFS"], known(given)
    mark = known(separators) if isinstance(separators, tuple) else None
    if text is None or mark is None or len(mark) > 1 or mark.isspace():
        return None
    if not mark:
        return [given]
    found, start = [], 0
    for part in text.removesuffix("\n").split(mark):
        found.append(cut(given, start, start + len(part)))
        start += len(part) + 1
    return found


def _read(words: list[Text], state: ScriptState, given: Text) -> None:
    """`read -r -d "" NAME <<EOF`, `read -ra NAME <<< "$TEXT"`, `read A B <<< "1 2"`."""
    options = [known(word) or "" for word in words[1:] if (known(word) or "").startswith("-") or known(word) == ""]
    names = [known(word) or "" for word in words[1 + len(options) :]]
    if not any("r" in option for option in options):
        joined_lines = _without_escapes(given)
        if joined_lines is None:
            return
        given = joined_lines
    if options and "-d" in options and options[options.index("-d") + 1 :][:1] == [""] and len(names) == 1:
        state.variables[names[0]] = given
        return
    if any(option.startswith("-") and option.strip("-ra") for option in options):
        return
    found = _separated(given, state)
    if found is None:
        return
    if any("a" in option for option in options):
        if len(names) == 1:
            state.variables[names[0]] = found
    elif names and (line := known(given)) is not None and not (len(found) > len(names) and ("IFS" in state.variables or "\\" in line)):
        if len(found) > len(names):
            found = [*found[: len(names) - 1], _rest(given, line.rstrip(), len(names) - 1)]
        state.variables.update({name: found[index] if index < len(found) else () for index, name in enumerate(names)})


def _without_escapes(given: Text) -> Text | None:
    """What `read` without -r takes: a backslash joins two lines. None for a text with another escape."""
    text, start = known(given), 0
    found: Text = ()
    for match in re.finditer(r"\\\n", text or ""):
        found = (*found, *cut(given, start, match.start()))
        start = match.end()
    left = (*found, *cut(given, start, len(text or ""))) if start else given
    return None if "\\" in (known(left) or "") else left


def _rest(given: Text, line: str, count: int) -> Text:
    """What stands behind the first words of a line, which the last name gets."""
    before = re.match(rf"\s*(?:\S+\s+){{{count}}}", line)
    return cut(given, before.end() if before is not None else 0, len(line))
