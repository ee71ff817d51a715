"""The program that a launch command starts, and the flags that it gets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from dslint.evaluate.files import Linked, concerns_deepspeed, find, find_all
from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.module_names import installed
from dslint.evaluate.python.reach import is_broken
from dslint.evaluate.python.read import PythonFile
from dslint.evaluate.python.words import ALL_FLAGS, LOCAL_RANK, REWRITTEN, SOME_WORDS, SPELLED, word_name
from dslint.frameworks.programs import read_python
from dslint.setups.command import Command
from dslint.setups.unknown_config import beside
from dslint.source.unknown import UNKNOWN


def flags_of(command: Command) -> dict[str, str | bool | None]:
    """The flags of the program as its parser gets them; None for a value that only the run knows. Words have the names `sys.argv[1]`.

    The rank of the deepspeed launcher is one of them: the default that a parser has for it does not count.
    """
    rank = {"local_rank": None} if _passes_rank(command) else {}
    spelled = " ".join(given.name for given in command.flags.values() if re.fullmatch(r"--?[\w-]+", given.name))
    rewritten = "\n".join(given.value for name in command.written if (given := command.flags.get(name)) and isinstance(given.value, str))
    return (
        _words_of(command)
        | ({SPELLED: spelled} if spelled else {})
        | ({REWRITTEN: rewritten} if rewritten else {})
        | rank
        | {
            name: None if given.value is UNKNOWN else given.raw if given.raw or given.value == "" else True  # `--name ""` has a value
            for name, given in command.flags.items()
        }
    )


def _words_of(command: Command) -> dict[str, str | bool | None]:
    """The words of a program that gets nothing else, by their places. The deepspeed launcher puts `--local_rank` before them."""
    if command.framework is not None:
        return {}
    glued = any(re.match(r"-[A-Za-z].", one.name) for one in command.flags.values())  # `-n4`, which is `-n 4` for most parsers
    all_flags: dict[str, str | bool | None] = {} if command.words or glued or not command.names_flags else {ALL_FLAGS: None}
    if command.flags or not command.complete:
        return ({SOME_WORDS: None} if command.words or not command.complete else {}) | all_flags
    words: list[str | None] = [LOCAL_RANK] if _passes_rank(command) else []
    words += [word.value if isinstance(word.value, str) else None for word in command.words]
    return {word_name(index): word for index, word in enumerate(words, 1)} | all_flags


def _passes_rank(command: Command) -> bool:
    return command.launcher == "deepspeed" and "no_local_rank" not in command.launcher_flags


def program_of(command: Command, path: str, sections: frozenset[str] | None = None) -> PythonFile | None:
    """The program that a command starts, by its path or as a module, if it is in the project, and Python.

    `sections` are those of its config.
    """
    linked = file_of_program(command, path)
    text = text_of(linked.path) if linked else None
    if linked is None or text is None or (not concerns_deepspeed(text) and is_broken(text, linked.path, linked.shown)):
        return None
    return read_python(text, linked.shown, linked.path, flags_of(command), sections, command.import_folders)


def file_of_program(command: Command, path: str) -> Linked | None:
    """The file of the program that a command starts."""
    given = command.program.value if command.program is not None else None
    if not isinstance(given, str):
        return None
    below = given.replace(".", "/")
    names = [f"{below}.py", f"{below}/__main__.py"] if command.is_module else [given] if given.endswith(".py") else []
    found = next((found for name in names if (found := _program_beside(command, name, path)) is not None), None)
    return found or (next(_modules_elsewhere(command, names, path), None) if command.is_module else None)


def _modules_elsewhere(command: Command, names: Sequence[str], path: str) -> Iterator[Linked]:
    """The files of a module in the folders of PYTHONPATH, or of a package that is installed from the folder `src`."""
    for name in names:
        places = [os.path.join(folder, name) for folder in command.import_folders]
        yield from (found for one in places if (found := find(one, path)) is not None)
        if (found := installed(name, path)) is not None:
            yield found


def _program_beside(command: Command, name: str, path: str) -> Linked | None:
    """The program of a command. Of several with the same name, the first that concerns DeepSpeed."""
    found = beside(command, name, path) or (find(os.path.basename(name), path) if name.startswith("/") else None)
    if found is None or concerns_deepspeed(text_of(found.path) or ""):
        return found
    return next((other for other in find_all(name, path) if concerns_deepspeed(text_of(other.path) or "")), found)
