"""The server of pygls, with two things done differently: dslint keeps the texts itself, and one failure is one line in the log.

pygls counts the lines of a text by `str.splitlines`, which knows more line ends than the protocol; so its store of texts is not used.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Generator
from typing import Any

from cattrs import Converter
from lsprotocol import converters, types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidRequest, JsonRpcParseError
from pygls.lsp.server import LanguageServer
from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, LanguageServerProtocol, lsp_method

from dslint import __version__
from dslint.source.read import SCRIPTS


class Protocol(LanguageServerProtocol):
    """Hands what an editor says of its texts on to the handlers, and answers every request, also those that cannot be read.

    pygls only logs these, and the editor waits for an answer.
    """

    def structure_message(self, data: dict[str, Any]) -> Any:
        """The message that an object is; an error is answered if the object is a request."""
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and not data.keys() & {"result", "error"}:  # a response has no answer
                self._send_response(data["id"], None, error.to_response_error())
            raise

    def handle_message(self, message: Any) -> None:
        """Hand on a message. What is not one, and a request after the shutdown, is answered with an error."""
        if isinstance(message, dict) or not hasattr(message, "jsonrpc"):
            self.refuse(message.get("id") if isinstance(message, dict) else None, 'a message has "jsonrpc": "2.0" and a method')
        elif message.jsonrpc != self.VERSION:
            self.refuse(getattr(message, "id", None), f"version {message.jsonrpc} of JSON-RPC is not supported; 2.0 is")
        elif self._shutdown and getattr(message, "id", None) is not None and hasattr(message, "method"):
            self.refuse(message.id, "the server is shutting down")
        else:
            super().handle_message(message)

    def refuse(self, number: Any, reason: str, code: int = JsonRpcInvalidRequest.CODE) -> None:
        """Answer what is not a valid request, with null in place of an id that cannot be read."""
        known = number if isinstance(number, int | str) else None
        self._send_data({"jsonrpc": self.VERSION, "id": known, "error": {"code": code, "message": reason}})

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> Generator[Any, Any, None]:
        """Hand on that a file was opened."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_OPEN], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> Generator[Any, Any, None]:
        """Hand on that a text was edited."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CHANGE], (params,), None

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> Generator[Any, Any, None]:
        """Hand on that a file was closed."""
        yield self.fm.features[types.TEXT_DOCUMENT_DID_CLOSE], (params,), None


class Server(LanguageServer):
    """A language server that logs its errors where the editor keeps its log, and never opens a window for them."""

    def __init__(self) -> None:
        super().__init__("dslint", __version__, protocol_cls=Protocol, converter_factory=_converter)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Log an error of the connection or of a handler. A text that is not JSON is answered, too, as JSON-RPC says: without an id."""
        if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) and isinstance(self.protocol, Protocol):
            self.protocol.refuse(None, str(error), JsonRpcParseError.CODE)
        self.log(f"{source.__name__}: {error}", types.MessageType.Error)

    def capability(self, path: str) -> Any:
        """What the editor says that it can do, by the dotted path of its capabilities; None if it says nothing."""
        found: Any = self.client_capabilities
        for name in path.split("."):
            found = getattr(found, name, None)
        return found

    def log(self, message: str, kind: types.MessageType = types.MessageType.Info) -> None:
        """Write one line to the log of the editor."""
        self.window_log_message(types.LogMessageParams(type=kind, message=" ".join(message.split())[:500]))


_CONFIGS = "*.json,*.jsonc,*.hjson,*.yaml,*.yml"
_PROGRAMS = ",".join(f"*{ending}" for ending in (".py", ".ipynb", *SCRIPTS, ".mk")) + ",Makefile"
_RELEASES = "requirements*.txt,*.lock,pylock.*.toml,Dockerfile,*.dockerfile,*.Dockerfile"

WATCHED = f"**/{{dslint.toml,pyproject.toml,{_CONFIGS},{_PROGRAMS},{_RELEASES}}}"
"""The files a change of which may change what is found in others."""


def register_changes(server: Server) -> None:
    """Ask an editor that can to tell of changed files and settings."""
    registrations = []
    if server.capability("workspace.did_change_watched_files.dynamic_registration"):
        watchers = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(WATCHED)])
        registrations.append(types.Registration("dslint-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, watchers))
    if server.capability("workspace.did_change_configuration.dynamic_registration"):
        section = types.DidChangeConfigurationRegistrationOptions(section="dslint")
        registrations.append(types.Registration("dslint-settings", types.WORKSPACE_DID_CHANGE_CONFIGURATION, section))
    if registrations:
        server.client_register_capability(types.RegistrationParams(registrations))


def _converter() -> Converter:
    """The converter of messages. The parameters of dslint's own requests stay plain data."""
    converter: Converter = converters.get_converter()
    for kind in (JsonRPCRequestMessage, JsonRPCNotification):
        names = [name for name in inspect.signature(kind).parameters if name != "params"]
        converter.register_structure_hook(
            kind, lambda data, of, names=names: of(params=data.get("params"), **{name: data[name] for name in names})
        )
    return converter
