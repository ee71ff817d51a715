"""What is at a place of a config, and what there is to say of a key. The playground uses it, too, without the protocol's packages."""

from __future__ import annotations

import json
from collections.abc import Iterator

from dslint.config import Config
from dslint.config.effective import effective
from dslint.facts.gpus import in_words
from dslint.record import Record
from dslint.report.show_page import WORDS, shown
from dslint.server.keys import known, status
from dslint.server.quantities import size_of
from dslint.source.tree import Mapping, Member, Path, Scalar, Sequence, Span, dotted


class Spot(Record):
    """A place in a config: the path of the member there, and the stretch of its key or value that holds the place."""

    path: Path
    span: Span


def spot_at(root: Mapping, offset: int) -> Spot | None:
    """The innermost member of a config that holds an offset in its key or its value."""
    found: Spot | None = None
    node: object = root
    path: Path = ()
    while isinstance(node, Mapping | Sequence):
        inner = _child_at(node, offset)
        if inner is None:
            return found
        step, node = inner
        path = (*path, step)
        if isinstance(node, Member):
            key = node.key.span
            if key.start <= offset <= key.end:
                return Spot(path, key)
            found = Spot(path, node.value.span if isinstance(node.value, Scalar) else key)
            node = node.value
    return found


def _child_at(node: Mapping | Sequence, offset: int) -> tuple[str | int, object] | None:
    if isinstance(node, Mapping):
        return next(((member.key.value, member) for member in node.members if member.span.start <= offset <= member.span.end), None)
    return next(((index, item) for index, item in enumerate(node.items) if item.span.start <= offset <= item.span.end), None)


def about_key(config: Config, path: Path) -> Iterator[str]:
    """What a key means, whether the release reads it, and the value that DeepSpeed uses: paragraphs in Markdown."""
    root = config.document.root
    about = known(path, root if isinstance(root, Mapping) else None)
    yield f"**`{dotted(path)}`**"
    if about is not None and about.meaning:
        yield about.meaning
    if gone := status(path, config.release, root if isinstance(root, Mapping) else None):
        yield f"**{gone}**"
    elif about is not None and about.deprecated and "Deprecated" not in (about.meaning or ""):
        yield f"**Deprecated.** {about.deprecated}"
    yield from _value(config, path)


def _value(config: Config, path: Path) -> Iterator[str]:
    """The value that DeepSpeed uses, as `dslint show` prints it."""
    entry = next((entry for entry in effective(config) if entry.path == path), None)
    if entry is None:
        return
    origin = WORDS[entry.origin] + (f": {entry.note}" if entry.note else "")
    yield f"Effective value for DeepSpeed {config.release}: `{shown(entry)}` ({origin})"
    size = size_of(config, dotted(path), entry.value)
    if size is not None:
        yield f"= {in_words(size)}"
    if entry.written is not None and not entry.known and entry.note is None:
        yield f"Written: `{json.dumps(entry.written)}`"
