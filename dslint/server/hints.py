"""Inlay hints: what a value comes to, behind the value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lsprotocol import types

from dslint.config import UNKNOWN, Config, Origin
from dslint.config.effective import EffectiveEntry
from dslint.config.sections import default_of
from dslint.facts.gpus import in_words
from dslint.report.show_page import shown
from dslint.schemas.key_table import KEYS
from dslint.schemas.quantities import BATCH
from dslint.server.checking import Checked
from dslint.server.inside import Training, members_of
from dslint.server.quantities import batch_product, size_of
from dslint.source.tree import Mapping, Path, Scalar, dotted

TIMES = "\N{MULTIPLICATION SIGN}"


def hints(checked: Checked, trainings: Iterable[Training], place: types.Range) -> list[types.InlayHint]:
    """The hints in a part of a file."""
    found: dict[int, types.InlayHint] = {}
    for training in trainings:
        config = training.config
        if config is None or not training.is_here or not isinstance(root := config.document.root, Mapping):
            continue
        for path, member in members_of(root):
            end = member.value.span.end
            position = checked.file.positions.position(end)
            if not isinstance(member.value, Scalar) or not place.start <= position <= place.end or end in found:
                continue
            words = next(_words(config, path, member.value), None)
            if words is not None:
                label, meaning = words
                found[end] = types.InlayHint(position, label, padding_left=True, tooltip=meaning)
    return list(found.values())


def _words(config: Config, path: Path, node: Scalar) -> Iterator[tuple[str, str]]:
    """What to say behind a value, the most useful first: the words, and what they mean."""
    key = dotted(path)
    if key not in KEYS:
        return
    value = config.resolved(path)
    product = batch_product(config) if key == BATCH[0] else None
    if product is not None:
        whole, micro, steps, ranks = product
        meaning = f"micro batch size {TIMES} gradient accumulation steps {TIMES} data-parallel ranks"
        equals = f"= {whole:,} = " if node.value != whole else "= "
        yield f"{equals}{micro:,} {TIMES} {steps:,} {TIMES} {ranks:,}", meaning
    if config.is_auto(path) and value.origin is Origin.FILLED:
        by = config.context.loader_name or "the loader"
        literal = "" if value.value is UNKNOWN else f"= {_literal(path, value.value)}, "
        yield f"{literal}filled by {by}", value.note or f"{by} fills this value"
    size = size_of(config, key, value.value)
    if size is not None and value.origin is Origin.WRITTEN:
        yield f"= {in_words(size)}", "elements times the bytes of their data type" if size != value.value else "bytes"
    default = default_of(KEYS[key], config.release)
    if value.origin is Origin.WRITTEN and type(default) is type(node.value) and default == node.value:
        yield "default", f"DeepSpeed {config.release} uses this value if the key is not written"


def _literal(path: Path, value: object) -> str:
    return shown(EffectiveEntry(path, value, Origin.FILLED, None, None, None))
