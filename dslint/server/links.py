"""Ways between the files of a setup: from a training to its config, and from a config to the trainings that use it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from lsprotocol import types

from dslint.config.detect import FileKind
from dslint.job.arguments import SourcedValue
from dslint.server.checking import Checked
from dslint.server.files import uri_of
from dslint.server.inside import Training
from dslint.server.positions import Positions
from dslint.server.workspace import Workspace
from dslint.source.read import ReadError, read


def definition(checked: Checked, trainings: Iterable[Training], workspace: Workspace, position: types.Position) -> list[types.Location]:
    """Where a place leads: from the name of a config to the config, and from a config to the places that name it."""
    for place, target in _links(checked, trainings):
        if place.start <= position <= place.end:
            start = types.Position(0, 0)
            return [types.Location(target, types.Range(start, start))]
    return uses(checked, workspace)


def uses(checked: Checked, workspace: Workspace) -> list[types.Location]:
    """The places in the files around a config that name it."""
    result = checked.result
    if result is None or result.kind != FileKind.DS_CONFIG:
        return []
    with workspace.inside(checked.file) as path:
        contexts = workspace.evidence(checked.file, path, workspace.finder(checked.folder).for_file(path).context)
        links = (context.setup.link for context in contexts if context.setup is not None)
        found = {(link.path, link.range): link for link in links if link is not None and link.range is not None}
        return [_location(link, checked) for link in found.values()]


def document_links(checked: Checked, trainings: Iterable[Training]) -> list[types.DocumentLink]:
    """The names of configs in a file, each with the file that it leads to."""
    return [types.DocumentLink(place, target=target, tooltip="DeepSpeed config") for place, target in _links(checked, trainings)]


def _links(checked: Checked, trainings: Iterable[Training]) -> Iterator[tuple[types.Range, str]]:
    seen: set[tuple[int, int, int]] = set()
    for training in trainings:
        link = training.link
        if link is None or link.range is None or training.target is None or _absolute(link.path, checked) != checked.file.path:
            continue
        place = checked.file.positions.placed(link.range)
        key = (place.start.line, place.start.character, place.end.character)
        if key not in seen:
            seen.add(key)
            yield place, uri_of(_absolute(training.target, checked))


def _location(link: SourcedValue, checked: Checked) -> types.Location:
    path = _absolute(link.path, checked)
    try:
        text = read(path)
    except ReadError:
        text = ""
    return types.Location(uri_of(path), Positions(text, checked.file.encoding).placed(link.range))


def _absolute(path: str, checked: Checked) -> str:
    return os.path.normpath(os.path.join(checked.folder, path))
