"""What the server knows: the folders, the open files, the settings given in the editor, and the last check of each file."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dslint.config.context import Context
from dslint.facts.find_release import forget_installed, names_release
from dslint.server.files import OpenFile
from dslint.settings import Finder, Layer, SettingsError, from_environment
from dslint.settings.kinds import Wrong
from dslint.settings.sources import FILES as SETTINGS_FILES
from dslint.settings.table import FACTS, SETTINGS
from dslint.setups.graph import contexts_of
from dslint.setups.names import leads
from dslint.source.store import Store, a_run

EDITOR = "the editor"
"""The name of the source of the settings that the editor gives."""


class Workspace:
    """The state of a server. All checks run in one thread, in the folder of the file, as `dslint check` would be run there."""

    def __init__(self, folders: tuple[str, ...] = (), encoding: str = "utf-16") -> None:
        self.folders = folders
        self.encoding = encoding
        self.files: dict[str, OpenFile] = {}
        self.generation = 0
        """Changes whenever what is outside the open files may have changed: settings, facts, other files."""
        self._settings: dict[str, Any] = {}
        self._of_folders: dict[str, dict[str, Any]] = {}
        self._facts: dict[str, Any] = {}
        self._evidence: dict[tuple[str, bool], tuple[Context, list[Context]]] = {}
        self._finders: dict[str, Finder] = {}
        self._store = Store()

    def configure(self, values: Mapping[str, Any]) -> list[str]:
        """Take the settings of the editor, by their names in `dslint.toml`; null is not set. Returns what is wrong with some of them."""
        self._settings, wrong = _checked(values)
        self.forget()
        return wrong

    def configure_folders(self, values: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Take the settings of the editor for folders, which then hold there instead of those for all. Returns what is wrong with some."""
        wrong: list[str] = []
        self._of_folders = {}
        for folder, of_folder in values.items():
            self._of_folders[folder], mistakes = _checked(of_folder)
            wrong += mistakes
        self.forget()
        return list(dict.fromkeys(wrong))

    def given_in(self, folder: str) -> dict[str, Any]:
        """The settings that the editor gives for a folder, with the facts that were set."""
        return self._of_folders.get(folder, self._settings) | self._facts

    def set_facts(self, values: Mapping[str, Any]) -> list[str]:
        """Change facts about the run; null takes one back. Returns what is wrong with some of them."""
        unknown = [f'"{name}" is not a fact; the facts are {", ".join(FACTS)}' for name in values if name not in FACTS]
        taken, wrong = _checked({name: value for name, value in values.items() if name in FACTS})
        left = {name: value for name, value in self._facts.items() if name not in values or values[name] is not None}
        self._facts = left | taken
        self.forget()
        return unknown + wrong

    def forget(self, changed: Iterable[str] | None = None) -> None:
        """Check again: files have changed, or (None) anything may have. Files that checks of others depend on are then read again."""
        self.generation += 1
        if changed is None or any(self._is_evidence(path) for path in changed):
            # New tables: a check that is running in the thread may still write to the old ones.
            self._finders, self._evidence, self._store = {}, {}, Store()
            forget_installed()

    def edited(self, path: str) -> bool:
        """Note that the text of an open file has changed. Returns whether checks of other open files depend on it."""
        if not leads(path):
            return False
        self.generation += 1
        self._evidence = {}
        return True

    def _is_evidence(self, path: str) -> bool:
        """Whether checks of other files depend on a file: a program, settings, a lock file, the policy, the model."""
        if leads(path) or os.path.basename(path) in SETTINGS_FILES or names_release(path):
            return True
        found = (settings for finder in tuple(self._finders.values()) for settings in tuple(finder.found))
        named = {file for settings in found for file in settings.named_files}
        return path in named or os.path.dirname(path) in named

    def evidence(self, file: OpenFile, path: str, given: Context) -> Sequence[Context]:
        """What the trainings near a config say, as of their last change: to read them takes longer than to check the config.

        Args:
            file: the open file. Nothing leads to a training, a script or a program.
            path: its path as the check names it.
            given: the context of its settings.
        """
        if leads(path):
            return ()
        known = self._evidence
        key = file.path, os.path.exists(file.path)  # no training leads to a file before it is saved
        by, contexts = known.get(key, (None, []))
        if by != given:  # not known yet, or found by a check that had read its settings before they changed
            contexts = contexts_of(path, given)
            known[key] = (given, contexts)
        return contexts

    def folder_of(self, path: str) -> str:
        """The folder of the workspace that a file is in, the innermost of several; without one, the file's own."""
        inside = [folder for folder in self.folders if path.startswith(os.path.join(folder, ""))]
        return max(inside, key=len) if inside else os.path.dirname(path)

    def finder(self, folder: str) -> Finder:
        """Where the settings for the files of a folder are.

        Raises:
            SettingsError: a `DSLINT_*` variable is wrong.
        """
        known = self._finders
        if folder not in known:
            known[folder] = Finder([from_environment(os.environ), Layer(EDITOR, folder, self.given_in(folder))])
        return known[folder]

    @contextlib.contextmanager
    def inside(self, file: OpenFile) -> Iterator[str]:
        """Work in the folder of a file, with the texts that are not saved. Gives the file's path as a person there would name it."""
        folder, before = self.folder_of(file.path), os.getcwd()
        unsaved = {one.path: one.text for one in tuple(self.files.values())} | {file.path: file.text}
        if self._store.unsaved != unsaved:
            self._store = self._store.edited(unsaved)
        with contextlib.suppress(OSError):
            os.chdir(folder)
        try:
            below = file.path.startswith(os.path.join(os.getcwd(), ""))
            with a_run(self._store):
                yield os.path.relpath(file.path) if below else file.path
        finally:
            os.chdir(before)


def _checked(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The settings as they are used, and what is wrong with the others."""
    used: dict[str, Any] = {}
    wrong: list[str] = []
    for written, value in sorted(values.items(), key=lambda item: item[0] != "plugins"):  # other settings may name their rules
        name = re.sub(r"[A-Z]", lambda letter: f"-{letter[0].lower()}", written)  # editors write worldSize
        if value is None or value == "":
            continue
        if name not in SETTINGS:
            wrong.append(f'unknown setting "{name}"')
            continue
        try:
            used[name] = SETTINGS[name].kind.from_file(value)
        except (Wrong, SettingsError) as error:
            wrong.append(f"{name}: {value!r} {error}")
    return used, wrong
