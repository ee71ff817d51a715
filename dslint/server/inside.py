"""The configs that an open file holds, and the trainings in it that name others."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config, resolve
from dslint.config.detect import FileKind
from dslint.config.infer import infer
from dslint.job.arguments import Arguments, SourcedValue
from dslint.lint.results import FileResult
from dslint.record import Record
from dslint.server.checking import Checked
from dslint.server.workspace import Workspace
from dslint.setups.gather import Read
from dslint.setups.read import read_setups
from dslint.setups.yaml import read_tree
from dslint.source.tree import Mapping, Member, Path


class Training(Record):
    """A config, or a place that names one.

    `config` is None if none was found. `is_here` says that the config is written in the file itself: its spans are places in the text.
    `link` is what names it, `target` the path of the file that it is in, relative to the folder of the check.
    """

    config: Config | None
    is_here: bool
    link: SourcedValue | None = None
    target: str | None = None
    arguments: Arguments | None = None


def trainings_in(checked: Checked, workspace: Workspace) -> tuple[Training, ...]:
    """The trainings in a file; a config by itself is one."""
    result = checked.result
    if result is None or result.error is not None or result.document is None:
        return ()
    if result.kind == FileKind.DS_CONFIG:
        document = result.document
        is_here = (document.whole or document).text == checked.file.text
        return (Training(resolve(document, result.context), is_here),) if isinstance(document.root, Mapping) else ()
    if result.kind not in (FileKind.TRAINING, FileKind.ACCELERATE, FileKind.SCRIPT, FileKind.PYTHON):
        return ()
    with workspace.inside(checked.file) as path:
        found = _read(checked, path, result)
        return tuple(_trainings(found, checked, result.path)) if found is not None else ()


def _read(checked: Checked, path: str, result: FileResult) -> Read | None:
    if result.document is not None and result.document.language in ("json", "hjson"):
        return read_tree(result.document, path, result.path, result.context, named=True)
    return read_setups(checked.file.text, path, result.path, result.context, named=True)


def _trainings(found: Read, checked: Checked, shown: str) -> Iterator[Training]:
    for gathered in found.setups:
        if gathered.setup.one_of_several:
            continue
        setup, document = gathered.setup, gathered.config
        usable = document is not None and isinstance(document.root, Mapping)
        config = resolve(document, infer(document, gathered.context)) if document is not None and usable else None
        own = setup.config in (None, shown) and document is not None
        is_here = own and document is not None and (document.whole or document).text == checked.file.text and not setup.made
        yield Training(config, is_here, setup.link or setup.passed_over, None if own else setup.config, setup.workload)


def members_of(root: Mapping, path: Path = ()) -> Iterator[tuple[Path, Member]]:
    """All members of a config with their paths, in the order of the file."""
    for member in root.members:
        here = (*path, member.key.value)
        yield here, member
        if isinstance(member.value, Mapping):
            yield from members_of(member.value, here)
