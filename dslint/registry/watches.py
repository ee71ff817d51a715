"""Whether a rule can have anything to say about a config. The vocabulary of `watches` is in the docstring of `dslint.rule.rule`."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.config.context import NEEDS
from dslint.config.detect import wrapper_of
from dslint.config.sections import children
from dslint.record import Record
from dslint.rule import RuleInfo
from dslint.schemas.key_table import KEYS
from dslint.source.tree import Mapping, Node, Scalar, Sequence, Span

WORDS = ("=auto", "text", "setup", "ignores")
"""Watches that are not keys, besides those with a colon."""


class Signals(Record):
    """What a config and its facts hold, in the words of `watches`.

    `present` are keys by every name that a watch may give them, and the words for facts, violations, text and setup. `written` are keys as
    the file spells them, those with the value null left out. A watch that begins with one of `begins` holds, too: it says "always", or it
    names a key below a place where something other than an object is written, which may stand for anything.
    """

    present: frozenset[str]
    written: frozenset[str]
    begins: tuple[str, ...]
    may_have_more: bool = False
    """Whether a program can have written further keys, so that none is certainly absent."""


def can_run(watches: tuple[str, ...], signals: Signals) -> bool:
    """Whether one of a rule's watches holds. A rule without watches runs on every config."""
    if not watches or not signals.present.isdisjoint(watches):
        return True
    for watch in watches:
        if watch[0] == "!":
            if watch[1:] not in signals.written and not signals.may_have_more:
                return True
        elif watch.startswith(signals.begins):
            return True
    return False


def watched_keys(rule: RuleInfo) -> tuple[str, ...]:
    """The config keys among a rule's watches, dotted."""
    return tuple(watch.removeprefix("!") for watch in rule.watches if ":" not in watch and watch not in WORDS)


def signals_of(config: Config) -> Signals:
    """What there is for rules to watch in a config."""
    document, root = config.document, config.document.root
    found = _Keys(root if isinstance(root, Mapping) else Mapping(Span(0, 0), []))
    present = found.present
    present.update(f"fact:{name}" for name in NEEDS if config.context.get(name) is not None)
    present.update(f"violation:{violation.kind}" for violation in config.violations)
    if document.departures or document.comments or document.problems or found.twice or not isinstance(root, Mapping):
        present.add("text")
    if wrapper_of(document.whole or document) is not None:
        present.add("text")
    if config.setup is not None:
        present.add("setup")
    may_have_more = isinstance(root, Mapping) and root.may_have_more
    return Signals(frozenset(present), frozenset(found.written), ("always", *found.opaque), may_have_more)


class _Keys:
    """The keys of a tree."""

    def __init__(self, root: Mapping) -> None:
        self.present: set[str] = set()
        self.written: set[str] = set()
        self.opaque: list[str] = []
        self.twice = False
        pending: list[tuple[Node, str, str]] = [(root, "", "")]
        while pending:  # no recursion: a tree may be as deep as the parser allows
            node, key, path = pending.pop()
            if isinstance(node, Mapping):
                pending += self._members(node, key, path)
                continue
            if key in children() or "dict" in KEYS.get(key, {}).get("types", ()):
                self.opaque.append(f"{key}.")
            if isinstance(node, Sequence):
                pending += [(item, f"{key}[]", path) for item in node.items]
            elif node.value == "auto":
                self.present.add("=auto")

    def _members(self, node: Mapping, section: str, path: str) -> Iterator[tuple[Node, str, str]]:
        """Note the members of an object: `section` is its key in the table, `path` where it is in the file."""
        known = children().get(section, {})
        names = set()
        for member in node.members:
            name = member.key.value
            names.add(name)
            here = f"{path}.{name}" if path else name
            key = known.get(name) or known.get("*") or (f"{section}.{name}" if section else name)
            self.present.update((here, key))
            if not (isinstance(member.value, Scalar) and member.value.value is None):
                self.written.add(here)
            use = KEYS[key].get("deprecated", {}).get("use") if key in KEYS else None
            if use is not None:
                self.present.add(use)
                self.opaque.append(f"{use}.")
            yield member.value, key, here
        self.twice |= len(names) < len(node.members)
