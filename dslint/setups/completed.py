"""Config files that a program reads and completes: which keys it sets itself."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config.context import Context
from dslint.facts import Integration
from dslint.job.model import Program, Setup
from dslint.setups.gather import LoadedSetup
from dslint.source.tree import Document, Mapping, Scalar, Span
from dslint.source.unknown import UNKNOWN


def completed_files(gathered: LoadedSetup, given: Context) -> Iterator[tuple[str, Context]]:
    """The config files from which a program builds its config: their shown paths, each with the keys that the program sets.

    A file is judged as it is, and not every key of it has to reach DeepSpeed. Where the program itself gives the config to DeepSpeed,
    that is the loader of the file, too: "auto" in it does not show the Trainer.
    """
    config, program = gathered.config, gathered.setup.program
    if config is None or program is None or not isinstance(config.root, Mapping):
        return
    if given.facts.integration is None and gathered.context.facts.integration is Integration.DEEPSPEED:
        given = given.inferring(dict(gathered.context.evidence)["integration"], integration=Integration.DEEPSPEED)
    for name, place in _files(config):
        sets = frozenset(_set_outside(config.root, place, ()))
        if sets:
            yield name, given._replace(setup=Setup(program=Program(program.path, sets=sets), config=name))


def _files(config: Document) -> Iterator[tuple[str, Span]]:
    """The JSON files among the parts of a config, each with its place in the joined text."""
    ends = [*(part.start for part in config.parts[1:]), len(config.text) + 1]
    for part, end in zip(config.parts, ends, strict=True):
        if part.shown.endswith(".json"):
            yield part.shown, Span(part.start, end)


def _set_outside(section: Mapping, place: Span, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The keys of a section that are not written in the file, or have a value from elsewhere."""
    for member in section.members:
        path = (*above, member.key.value)
        is_changed = not _contains(place, member.key.span) or not _contains(place, member.value.span)
        if is_changed or (isinstance(member.value, Scalar) and member.value.value is UNKNOWN):
            yield path
        elif isinstance(member.value, Mapping):
            yield from _set_outside(member.value, place, path)


def _contains(place: Span, span: Span) -> bool:
    return place.start <= span.start < place.end
