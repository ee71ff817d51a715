"""The one way to open a config: read, decode, parse, detect, infer. Every command and the API opens configs here."""

from __future__ import annotations

from collections.abc import Mapping as Table
from typing import Any

from dslint.config.context import Context
from dslint.config.detect import FileKind, detect_kind, wrapper_of
from dslint.config.infer import infer
from dslint.facts import Facts, PassedAs
from dslint.record import Record
from dslint.source.parse import parse
from dslint.source.read import decode_base64, read
from dslint.source.tree import Document, Mapping


class Loaded(Record):
    """A config that was opened: its tree, what kind of file it is, and its context.

    `note` is a sentence on a file that is not simply a config. `encoded` says that the file held the config in base64; `document` is then
    that of the decoded text.
    """

    document: Document
    kind: FileKind
    context: Context
    note: str | None = None
    encoded: bool = False

    @property
    def unusable(self) -> str | None:
        """Why no effective config can be made of it, besides syntax errors; None where nothing else is wrong."""
        if self.note is None and not self.document.problems and not isinstance(self.document.root, Mapping):
            return "it holds no object, and so no config."
        return self.note or (None if self.kind is FileKind.DS_CONFIG else "not a DeepSpeed config.")


def load(path: str, given: Facts | Context, *, named: bool = True) -> Loaded:
    """Open a file as a config; `load_text` explains the arguments.

    Raises:
        dslint.source.read.ReadError: the file cannot be read.
    """
    return load_text(read(path), given, named=named)


def load_text(text: str, given: Facts | Context, *, named: bool = True, hinted: bool = False) -> Loaded:
    """Open a text as a config. Never raises: what is wrong with the text is in the result.

    Args:
        text: JSON or HJSON, or either in base64.
        given: the context; facts that follow from the text are added.
        named: whether a person named the file. A file found in a directory must look like a config.
        hinted: whether its name says that a file found in a directory is a config; see `detect_kind`.
    """
    decoded = decode_base64(text)
    document = parse(decoded or text)
    kind, note = detect_kind(document, named=named, hinted=hinted)
    wrapper = wrapper_of(document) if kind is FileKind.UNRELATED else None
    if wrapper is not None:
        from dslint.source.yaml_tree import below  # for JSON, too; few files have a wrapped config

        document, kind, note = below(document, (wrapper.key.value,)) or document, FileKind.DS_CONFIG, None
    context = infer(document, given) if kind is FileKind.DS_CONFIG else Context.of(given)
    return Loaded(document, kind, context, note, encoded=decoded is not None)


def load_data(data: Table[str, Any], given: Facts | Context) -> Loaded:
    """Open a config that a program holds as data. Places are those in its text as `json.dumps(data, indent=2)` writes it.

    Raises:
        TypeError: the data holds something that JSON has no form for; the text names its path.
    """
    _check_data(data, ())
    import json  # slow to import, and a file needs none of it

    return take(parse(json.dumps(data, indent=2)), Context.of(given).but(passed_as=PassedAs.DICT))


def take(document: Document, given: Facts | Context) -> Loaded:
    """Take a parsed document for a config, whatever it looks like."""
    return Loaded(document, FileKind.DS_CONFIG, infer(document, given))


def _check_data(value: Any, path: tuple[str, ...]) -> None:
    """Refuse what `json.dumps` would refuse or write otherwise, with the path to it."""
    where = ".".join(path) or "the config"
    if isinstance(value, Table):
        for key, entry in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is not a string")
            _check_data(entry, (*path, key))
    elif isinstance(value, list | tuple):
        for index, entry in enumerate(value):
            _check_data(entry, (*path, str(index)))
    elif value is not None and not isinstance(value, str | int | float):
        raise TypeError(f"{where}: {type(value).__name__} has no form in JSON: {value!r}")
