"""Frameworks that do not train with the Trainer: their arguments in files and launches, and the config that they fill or build."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from collections.abc import Mapping as Table
from dataclasses import replace
from typing import Any

from dslint.config.context import Context, OwnLoader
from dslint.config.values import Origin, Value
from dslint.facts import Facts, Release
from dslint.frameworks.base import Framework, Told
from dslint.frameworks.own_arguments import Fill, OwnArguments
from dslint.frameworks.registry import named
from dslint.job.arguments import Arguments, SourcedValue, given_at
from dslint.source.similar import similar
from dslint.source.tree import Document, Key, Mapping, Member, Node, Path, Scalar, Sequence, Span, TextPart, plain
from dslint.source.unknown import UNKNOWN


def read_own(document: Document, shown: str, framework: Framework, own: OwnArguments, release: Release | None) -> Arguments:
    """The arguments of a training file, by their own names."""
    values: dict[str, SourcedValue] = {}
    for name, argument in own.arguments.items():
        path = _path_in(document, name)
        found = document.lookup(path) if path is not None else None
        if isinstance(found, Member) and path is not None:
            value = plain(found.value) if isinstance(found.value, Scalar) else UNKNOWN
            given = given_at(document, shown, path, "", argument.read(value))
            values |= {name: replace(given, name=".".join(map(str, path)))} if given is not None else {}
    unread = tuple(_unknown(document, shown, framework, own, release))
    return replace(without_values(framework, own, shown, release), values=values, others=unread)


def without_values(framework: Framework, own: OwnArguments, shown: str, release: Release | None) -> Arguments:
    """The arguments of a training that sets none."""
    return Arguments(framework.name, shown, sure=framework.is_sure, defaults=own.defaults(release))


def _path_in(document: Document, name: str) -> Path | None:
    """The path of an argument in a file, which may have hyphens for underscores."""
    paths = (tuple(name.split(".")), tuple(name.replace("_", "-").split(".")))
    return next((path for path in paths if isinstance(document.lookup(path), Member)), None)


def _unknown(document: Document, shown: str, framework: Framework, own: OwnArguments, release: Release | None) -> list[SourcedValue]:
    """The keys of a file that the framework refuses, because it has no argument of the name."""
    if not framework.refuses_unknown or not isinstance(document.root, Mapping):
        return []
    arguments = [name for name, argument in own.arguments.items() if argument.is_in(release)]
    known = frozenset((*arguments, *framework.config_keys))
    found = ((".".join(at), given_at(document, shown, at, "", None)) for at in _unknown_below(document.root, (), known))
    return [replace(given, name=name) for name, given in found if given is not None]


def _unknown_below(section: Mapping, at: tuple[str, ...], known: Collection[str]) -> Iterator[tuple[str, ...]]:
    """The paths of keys that are not arguments and hold none. What the value of an argument holds is left out."""
    for member in section.members:
        path = (*at, member.key.value)
        name = ".".join(path).replace("-", "_")
        if name in known:
            continue
        if not any(one.startswith(f"{name}.") for one in known):
            yield path
        elif isinstance(member.value, Mapping):
            yield from _unknown_below(member.value, path, known)


def meant(framework: Framework, name: str) -> str | None:
    """The argument of a framework that an unknown one nearly is."""
    if framework.own_files is not None:
        return framework.own_files.meant(name)
    names = framework.own.arguments if framework.own is not None else ()
    return next(iter(similar(name.replace("-", "_"), names, cutoff=_CLOSE)), None)


_CLOSE = 0.8
"""How near two names are of which one is a slip of the pen: `batch_sise`, and not `batch_seed`."""


def own_of(arguments: Arguments | None) -> OwnArguments | None:
    """The arguments that the framework of a training has of its own."""
    framework = named(arguments.framework) if arguments is not None else None
    return framework.own if framework is not None else None


def loader_of(framework: Framework) -> OwnLoader | None:
    """What the context of a config has to know of a framework that loads it; None where the framework leaves it as it is."""
    own = framework.own
    if own is None:
        return None
    return OwnLoader(framework.name, {key: " and ".join(fill.arguments) for key, fill in own.fills.items()}, own.raises)


def fill_own(context: Context, key: str) -> Value | None:
    """The value that the framework of a setup puts in the place of "auto" in a key; None if it is not known."""
    arguments = context.setup.of_framework if context.setup is not None else None
    own = own_of(arguments)
    fill = own.fills.get(key) if own is not None else None
    if arguments is None or fill is None:
        return None
    value = _computed(fill, arguments, context.facts)
    if value is UNKNOWN or value is None:
        return None
    where = ", ".join(f"{given.name.lstrip('-')} in {given.where}" for given in _givens(fill, arguments))
    return Value(value, Origin.FILLED, where or f"the default of {' and '.join(fill.arguments)}")


def own_arguments_that_fill(context: Context, key: str) -> tuple[SourcedValue, ...]:
    """The arguments, with their places, from which the framework of a setup computes the value that replaces "auto" in a key."""
    arguments = context.setup.of_framework if context.setup is not None else None
    own = own_of(arguments)
    fill = own.fills.get(key) if own is not None else None
    return _givens(fill, arguments) if fill is not None and arguments is not None else ()


def _givens(fill: Fill, arguments: Arguments) -> tuple[SourcedValue, ...]:
    return tuple(dict.fromkeys(given for name in fill.arguments if (given := arguments.get(name)) is not None))


def _computed(fill: Fill, arguments: Arguments, facts: Facts) -> Any:
    values = [arguments.value(name) for name in fill.arguments]
    if any(value is UNKNOWN or (value is None and fill.computes is not None) for value in values):
        return UNKNOWN
    return fill.computes(facts, *values) if fill.computes is not None else values[0]


def tells_own(arguments: Arguments) -> Told:
    """What the arguments of a framework say about memory."""
    options, own = {}, own_of(arguments)
    for option, name in own.estimates.items() if own is not None else ():
        value, given = arguments.value(name), arguments.get(name)
        if value is not UNKNOWN and value is not None:
            options[option] = value, given.where if given is not None else f"the default of {arguments.framework}"
    return Told(options, ())


# ---------------------------------------------------------------------- the config that it builds


def built_by(own: OwnArguments, arguments: Arguments, facts: Facts, documents: Table[str, Document]) -> Document:
    """The config that a framework builds from its arguments. Each value has the place of its argument; a default that of the first one."""
    shown = [arguments.path, *(given.path for given in arguments.values.values())]
    files = {name: documents[name] for name in dict.fromkeys(shown) if name in documents}
    places = _JoinedText(files)
    first = next((places.span(given) for given in arguments.values.values()), Span(0, 0))
    root = Mapping(first, [], may_have_more=own.builds_more)
    for key, fill in own.builds.items():
        value = _computed(fill, arguments, facts)
        if value is None:
            continue
        givens = _givens(fill, arguments)
        span = places.span(givens[0]) if givens else first
        here = root
        *sections, last = key.split(".")
        for name in sections:
            inner = here.get(name)
            if inner is None:
                inner = Member(Key(span, name, name), Mapping(span, [], may_have_more=own.builds_more))
                here.members.append(inner)
            assert isinstance(inner.value, Mapping)
            here = inner.value
        here.members.append(Member(Key(span, last, last), _node(value, span)))
    return places.document(root)


class _JoinedText:
    """Where arguments stand in the joined text of several files."""

    def __init__(self, files: Table[str, Document]) -> None:
        self._files = files
        self._starts: dict[str, int] = {}
        length = 0
        for shown, document in files.items():
            self._starts[shown] = length
            length += len(document.text) + 1

    def span(self, given: SourcedValue) -> Span:
        start = self._starts.get(given.path)
        if start is None or given.range is None:
            return Span(0, 0)
        return Span(start + given.range.start.offset, start + given.range.end.offset)

    def document(self, root: Mapping) -> Document:
        """The config. It has no fixes: what stands at a place is an argument."""
        if len(self._files) == 1:
            (whole,) = self._files.values()
            return Document(whole.text, root, comments=whole.comments, language="text", places={}, whole=whole, sources={})
        text = "".join(f"{document.text}\n" for document in self._files.values())
        return Document(text, root, language="text", parts=tuple(TextPart(start, shown) for shown, start in self._starts.items()))


def _node(value: Any, span: Span) -> Node:
    if isinstance(value, dict):
        return Mapping(span, [Member(Key(span, name, name), _node(inner, span)) for name, inner in value.items()])
    if isinstance(value, list | tuple):
        return Sequence(span, [_node(item, span) for item in value])
    return Scalar(span, value, "..." if value is UNKNOWN else json.dumps(value), "computed")
