"""How `show`, `estimate`, `fit` and `probe` open the config that they are about. One that cannot be used ends the program with 2."""

from __future__ import annotations

import json
import sys

from dslint.cli.options import read_stdin, show_page, warn
from dslint.config.detect import FileKind
from dslint.config.load import Loaded, load_text
from dslint.errors import UserError
from dslint.evaluate.files import is_setup
from dslint.job.arguments import Arguments
from dslint.lint.discovery import shown
from dslint.report.style import visible
from dslint.settings import Finder
from dslint.setups.gather import reasons_of
from dslint.setups.read import read_setups
from dslint.source.read import ReadError, read
from dslint.source.tree import Document, Mapping, plain

UNUSABLE = 2


def open_config(path: str, finder: Finder) -> Loaded:
    """Open the config in a file ("-": standard input), or the first one that a training, a script or a program leads to.

    Exits with 2 where there is none, or it has syntax errors; standard error says why.
    """
    return open_training(path, finder)[0]


def open_training(path: str, finder: Finder) -> tuple[Loaded, Arguments | None]:
    """Open a config as `open_config` does, with its training arguments, if a training file or command was named."""
    arguments = None
    try:
        text = read_stdin() if path == "-" else read(path)
    except ReadError as error:
        raise UserError(f"{shown(path)}: {error}") from None
    if is_setup(path):
        loaded, arguments = _of_setup(text, path, finder)
    else:
        loaded = load_text(text, finder.for_file(path).context)
    for problem in loaded.document.problems:
        place = loaded.document.position(problem.span.start)
        show_page(visible(f"{shown(path)}:{place.line}:{place.column}: {problem.message}"), color=False, err=True)
    if loaded.unusable:
        warn(f"{shown(path)}: {loaded.unusable}")
    if loaded.unusable or loaded.document.problems:
        sys.exit(UNUSABLE)
    return loaded, arguments


def _of_setup(text: str, path: str, finder: Finder) -> tuple[Loaded, Arguments | None]:
    """The config of a training setup with its context, and its training arguments."""
    found = read_setups(text, path, shown(path), finder.for_file(path).context, named=True)
    assert found is not None, "what is named is always read"
    for gathered in found.setups:
        if gathered.config is not None and isinstance(gathered.config.root, Mapping):
            if found.note:
                warn(f"{shown(path)}: {found.note}")
            if len(found.setups) > 1:
                warn(f"{shown(path)}: {len(found.setups)} trainings are in it; this is the config of the first.")
            return Loaded(gathered.config, FileKind.DS_CONFIG, gathered.context), gathered.setup.arguments or gathered.setup.megatron
    if found.note:
        warn(f"{shown(path)}: {found.note}")
    for reason in reasons_of(found):
        if reason.reason != found.note:
            warn(f"{shown(path)}{f':{reason.range.start.line}' if reason.range else ''}: {reason.reason}")
    for gathered in found.setups:
        for linked, error in gathered.errors.items():
            warn(f"{linked}: {error}")
    sys.exit(UNUSABLE)


def text_of(document: Document) -> str:
    """The text of a config by itself: its own, or JSON where it is YAML or a part of another file.

    Raises:
        UserError: a program computes one of its values.
    """
    if document.language in ("json", "hjson") and document.places is None:
        return document.text
    assert document.root is not None
    try:
        return json.dumps(plain(document.root), indent=2) + "\n"
    except TypeError:
        raise UserError("the program computes some values of this config: write it to a file, and name that.") from None
