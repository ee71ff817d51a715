"""Registers the handlers of a server. They fetch what is known of a file and hand it to the modules of this package."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from lsprotocol import types
from pygls.uris import to_fs_path

from dslint.errors import UserError
from dslint.server.checking import Checked, check
from dslint.server.diagnostics import diagnostics_of
from dslint.server.files import OpenFile, path_of, uri_of
from dslint.server.inside import Training, trainings_in
from dslint.server.protocol import Server, register_changes
from dslint.server.workspace import Workspace

DEBOUNCE = 0.15
"""Seconds without an edit after which an edited file is checked."""

PAUSES = 2
"""How many times longer than the last check of a file a pause must be before the next one, if that is longer than `DEBOUNCE`."""

LONGEST_PAUSE = 3.0
"""The longest pause in seconds."""

T = TypeVar("T")


class App:
    """A server with its state. Whatever reads files or takes time runs in one thread, in the order of the requests.

    A second thread answers what needs only the last check of a file, so that the check of a large file holds nobody up.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.workspace = Workspace()
        self.debounce = DEBOUNCE
        self.own_commands: tuple[str, ...] = ()
        """The commands of dslint that the editor executes itself."""
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dslint")
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dslint-reader")
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._checked: dict[str, tuple[int, Checked]] = {}
        self._took: dict[str, float] = {}
        self._trainings: dict[str, tuple[Checked, tuple[Training, ...]]] = {}

    async def work(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in the thread. Where the request is cancelled before the function starts, it never does."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, *arguments)

    async def checked(self, uri: str) -> Checked | None:
        """The check of a file as it is now; None if it is not open."""
        file = self.workspace.files.get(uri)
        return None if file is None else await self.work(self._check, file)

    def _check(self, file: OpenFile) -> Checked:
        generation, known = self._checked.get(file.uri, (-1, None))
        if known is not None and known.file is file and generation == self.workspace.generation:
            return known
        generation, began = self.workspace.generation, time.monotonic()
        checked = check(file, self.workspace)
        self._took[file.uri] = time.monotonic() - began
        if self.workspace.files.get(file.uri) is file:
            self._checked[file.uri] = (generation, checked)
        return checked

    async def answer(self, uri: str, function: Callable[[Checked, tuple[Training, ...]], T], default: T) -> T:
        """What a function says of a file as it is now; the default if the file is not open, or the function fails."""
        file = self.workspace.files.get(uri)
        if file is None:
            return default
        try:
            return await self.work(self._answer, file, function)
        except Exception as error:  # noqa: BLE001 - whatever fails, the server goes on
            self.server.log(f"a request about {uri} failed: {type(error).__name__}: {error}", types.MessageType.Error)
            return default

    async def answer_at_once(self, uri: str, function: Callable[[Checked, tuple[Training, ...]], T], default: T) -> T:
        """As `answer`, for a function that reads no files. A file that is checked already is not checked again."""
        file = self.workspace.files.get(uri)
        _, known = self._checked.get(uri, (-1, None))
        by, trainings = self._trainings.get(uri, (None, ()))
        if known is None or known.file is not file or by is not known:
            return await self.answer(uri, function, default)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, function, known, trainings)
        except Exception as error:  # noqa: BLE001 - whatever fails, the server goes on
            self.server.log(f"a request about {uri} failed: {type(error).__name__}: {error}", types.MessageType.Error)
            return default

    def _answer(self, file: OpenFile, function: Callable[[Checked, tuple[Training, ...]], T]) -> T:
        checked = self._check(file)
        return function(checked, self._trainings_in(checked))

    def _trainings_in(self, checked: Checked) -> tuple[Training, ...]:
        known, trainings = self._trainings.get(checked.file.uri, (None, ()))
        if known is not checked:
            trainings = trainings_in(checked, self.workspace)
            self._trainings[checked.file.uri] = (checked, trainings)
        return trainings

    async def of_file(self, params: Any, function: Callable[[Checked, tuple[Training, ...]], dict[str, Any]]) -> dict[str, Any]:
        """The answer to a request of dslint about the open file that its parameters name; an `error` where there is none."""
        uri = uri_in(params)
        if uri not in self.workspace.files:
            return {"error": "the file is not open."}

        def said(checked: Checked, trainings: tuple[Training, ...]) -> dict[str, Any]:
            try:
                return function(checked, trainings)
            except UserError as error:
                return {"error": str(error)}

        return await self.answer(str(uri), said, {"error": "dslint failed on this file."})

    def show(self, answer: dict[str, Any], member: str) -> dict[str, Any]:
        """Show a member of an answer to the person, or its error."""
        failed = "error" in answer
        kind = types.MessageType.Error if failed else types.MessageType.Info
        self.server.window_show_message(types.ShowMessageParams(kind, answer["error" if failed else member]))
        return answer

    def schedule(self, uri: str, delay: float) -> None:
        """Check a file after a delay, and publish what is found. An earlier plan for the file is dropped."""
        if earlier := self._waiting.pop(uri, None):
            earlier.cancel()
        task = asyncio.get_running_loop().create_task(self._publish(uri, delay))
        self._waiting[uri] = task
        task.add_done_callback(lambda done: self._waiting.pop(uri) if self._waiting.get(uri) is done else None)

    async def _publish(self, uri: str, delay: float) -> None:
        await asyncio.sleep(delay)
        try:
            checked = await self.checked(uri)
            if checked is None or self.workspace.files.get(uri) is not checked.file:
                return  # closed or edited meanwhile: another check is on its way
            found = await self.work(diagnostics_of, checked)
        except Exception as error:  # noqa: BLE001 - whatever fails, the server goes on
            self.server.log(f"the check of {uri} failed: {type(error).__name__}: {error}", types.MessageType.Error)
            return
        self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version=checked.file.version))
        with contextlib.suppress(Exception):  # the next request for them reports it
            await self.work(self._trainings_in, checked)  # before anyone asks: then a hover need not wait

    def edited(self, uri: str) -> None:
        """Check a file, and those that depend on it, when no edit follows. A file that takes long is checked after longer pauses."""
        leads = self.workspace.edited(self.workspace.files[uri].path)
        for one in tuple(self.workspace.files) if leads else (uri,):
            self.schedule(one, max(self.debounce, min(self._took.get(one, 0) * PAUSES, LONGEST_PAUSE)))

    def deleted(self, paths: set[str]) -> None:
        """Withdraw what was said of files that were deleted. One that stays open in the editor is checked again when it is edited."""
        for uri in [uri for uri, file in self.workspace.files.items() if file.path in paths]:
            if waiting := self._waiting.pop(uri, None):
                waiting.cancel()
            self.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def check_all(self, changed: list[str] | None = None) -> None:
        """Check all open files again, because files around them have changed, or (None) settings or anything else."""
        self.workspace.forget(changed)
        for uri in self.workspace.files:
            self.schedule(uri, 0)
        if self.server.capability("workspace.inlay_hint.refresh_support"):
            self.server.workspace_inlay_hint_refresh(None)
        if self.server.capability("workspace.code_lens.refresh_support"):
            self.server.workspace_code_lens_refresh(None)

    def forget(self, uri: str) -> None:
        """Forget a file that is closed."""
        self.workspace.files.pop(uri, None)
        self._checked.pop(uri, None)
        self._trainings.pop(uri, None)
        self._took.pop(uri, None)
        if waiting := self._waiting.pop(uri, None):
            waiting.cancel()

    def close(self) -> None:
        """End the thread."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._reader.shutdown(wait=False, cancel_futures=True)


def uri_in(params: Any) -> str | None:
    """The URI that the parameters of a request of dslint name."""
    document = params.get("textDocument") if isinstance(params, dict) else None
    uri = document.get("uri") if isinstance(document, dict) else params
    return uri if isinstance(uri, str) else None


def lifecycle(app: App, commands: Callable[[App], None]) -> None:
    """Register the begin and the end of a session, and what changes around the files. `commands` registers commands."""
    feature = app.server.feature

    @feature(types.INITIALIZE)
    def _(params: types.InitializeParams) -> None:
        folders = [folder.uri for folder in params.workspace_folders or ()] or [uri for uri in (params.root_uri,) if uri]
        paths = (to_fs_path(uri) for uri in folders)
        encoding = app.server.workspace.position_encoding
        app.workspace = Workspace(tuple(os.path.normpath(path) for path in paths if path), str(getattr(encoding, "value", encoding)))
        options = params.initialization_options
        options = options if isinstance(options, dict) else {}
        _configure(app, options)
        own = options.get("commands")
        app.own_commands = tuple(name for name in own if isinstance(name, str)) if isinstance(own, list) else ()
        commands(app)

    @feature(types.INITIALIZED)
    async def _(_params: types.InitializedParams) -> None:
        register_changes(app.server)
        await pull_settings(app)

    @feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def _(params: types.DidChangeConfigurationParams) -> None:
        settings = params.settings
        of_dslint = settings.get("dslint", settings) if isinstance(settings, dict) else None
        if isinstance(of_dslint, dict) and of_dslint:
            _configure(app, {"settings": of_dslint})
            app.check_all()
        await pull_settings(app)

    @feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def _(params: types.DidChangeWorkspaceFoldersParams) -> None:
        gone = {to_fs_path(folder.uri) for folder in params.event.removed}
        new = (to_fs_path(folder.uri) for folder in params.event.added)
        kept = [folder for folder in app.workspace.folders if folder not in gone]
        app.workspace.folders = (*kept, *(os.path.normpath(path) for path in new if path))
        app.check_all()
        await pull_settings(app)

    @feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def _(params: types.DidChangeWatchedFilesParams) -> None:
        app.check_all([to_fs_path(one.uri) or "" for one in params.changes])
        app.deleted({os.path.normpath(to_fs_path(one.uri) or "") for one in params.changes if one.type == types.FileChangeType.Deleted})

    @feature(types.SHUTDOWN)
    def _(*_params: object) -> None:
        app.close()


async def pull_settings(app: App) -> None:
    """Ask the editor for the settings of each folder, if it can say them. A folder of which it says nothing keeps those for all."""
    if not app.server.capability("workspace.configuration"):
        return
    folders = app.workspace.folders or ("",)
    items = [types.ConfigurationItem(scope_uri=uri_of(folder) if folder else None, section="dslint") for folder in folders]
    try:
        answer = await app.server.workspace_configuration_async(types.ConfigurationParams(items))
    except Exception as error:  # noqa: BLE001 - an editor may refuse
        app.server.log(f"the editor does not say its settings: {error}", types.MessageType.Warning)
        return
    said = {folder: dict(values) for folder, values in zip(folders, answer or (), strict=False) if isinstance(values, Mapping)}
    if said:
        for sentence in app.workspace.configure_folders(said):
            app.server.log(f"settings of the editor: {sentence}", types.MessageType.Warning)
        app.check_all()


def _configure(app: App, options: dict[str, Any]) -> None:
    """Take the options of the editor: `settings` as in `dslint.toml`, `debounce` in milliseconds."""
    settings = options.get("settings")
    wrong = app.workspace.configure(settings) if isinstance(settings, dict) else []
    if isinstance(milliseconds := options.get("debounce"), int | float):
        app.debounce = max(0.0, milliseconds / 1000)
    for sentence in wrong:
        app.server.log(f"settings of the editor: {sentence}", types.MessageType.Warning)


def files(app: App) -> None:
    """Register what an editor says of its files: opened, edited, saved, closed."""
    feature = app.server.feature

    @feature(types.TEXT_DOCUMENT_DID_OPEN)
    def _(params: types.DidOpenTextDocumentParams) -> None:
        document, workspace = params.text_document, app.workspace
        path = path_of(document.uri, str(document.language_id), workspace.folders[0] if workspace.folders else os.getcwd())
        workspace.files[document.uri] = OpenFile(document.uri, path, document.text, document.version, workspace.encoding)
        app.schedule(document.uri, 0)

    @feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def _(params: types.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        if (file := app.workspace.files.get(uri)) is not None:
            app.workspace.files[uri] = file.edited(params.content_changes, params.text_document.version)
            app.edited(uri)

    @feature(types.TEXT_DOCUMENT_DID_SAVE)
    def _(params: types.DidSaveTextDocumentParams) -> None:
        file = app.workspace.files.get(params.text_document.uri)
        app.check_all([file.path] if file is not None else None)

    @feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def _(params: types.DidCloseTextDocumentParams) -> None:
        app.forget(params.text_document.uri)
        app.server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(params.text_document.uri, []))
