"""Which rules are meant by the words that people write: codes, names, and chapters (`DS5`, `ALL`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dslint.rule import RuleInfo

ALL = "ALL"
"""The word for every rule."""


class NoSuchRule(ValueError):
    """A word that means no rule; the text is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What one source of settings says about rules. None is "nothing said".

    `select` and `ignore` replace what sources before said; the `extend` forms add to it. A source with `select` starts afresh: what sources
    before ignored or added no longer counts, so that `--select DS501` asks that rule whatever a settings file says.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    extend_ignore: tuple[str, ...] = ()


def choose(rules: Iterable[RuleInfo], selections: Iterable[Selection]) -> tuple[RuleInfo, ...]:
    """The rules that are left when every selection has had its say, the last one weighing most.

    Where a rule is both selected and ignored the more precise word wins (`DS501` over `DS5`), and of equals the ignoring one.
    """
    selected: tuple[str, ...] = (ALL,)
    ignored: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    fewer: tuple[str, ...] = ()
    for selection in selections:
        if selection.select is not None:
            selected, ignored, more, fewer = selection.select, (), (), ()
        ignored = ignored if selection.ignore is None else selection.ignore
        more += selection.extend_select
        fewer += selection.extend_ignore
    return tuple(rule for rule in rules if _precision(selected + more, rule) > _precision(ignored + fewer, rule))


def _precision(words: Iterable[str], rule: RuleInfo) -> int:
    """How precisely the words mean a rule: 0 if they do not; more, the longer the part of the code that was written."""
    return max((1 if word.upper() == ALL else min(len(word), len(rule.code)) for word in words if means(word, rule)), default=0)


def means(word: str, rule: RuleInfo) -> bool:
    """Whether a word means a rule, among others."""
    code = word.upper()
    return code == ALL or is_name_of(word, rule) or (code.startswith("DS") and code[2:].isdecimal() and rule.code.startswith(code))


def is_name_of(word: str, rule: RuleInfo) -> bool:
    """Whether a word is the code or the name of a rule."""
    return word.upper() == rule.code.upper() or word.lower() == rule.name


def check_words(words: Iterable[str], rules: Iterable[RuleInfo]) -> None:
    """Make sure that every word means a rule.

    Raises:
        NoSuchRule: one does not; the text says which one may be meant.
    """
    known = tuple(rules)
    for word in words:
        if not any(means(word, rule) for rule in known):
            raise NoSuchRule(no_such_rule(word, known))


def no_such_rule(word: str, rules: Iterable[RuleInfo]) -> str:
    """A sentence that says that there is no such rule, and which one may be meant."""
    from difflib import get_close_matches

    if word.upper().startswith("DS") and word[2:].isdecimal():
        return f'there is no rule "{word}". `dslint rule` lists them all.'
    names = [name for rule in rules for name in (rule.code, rule.name)]
    close = get_close_matches(word, names, n=1, cutoff=0.6) or get_close_matches(word.upper(), names, n=1, cutoff=0.6)
    return f'there is no rule "{word}".' + (f' Did you mean "{close[0]}"?' if close else "") + " `dslint rule` lists them all."
