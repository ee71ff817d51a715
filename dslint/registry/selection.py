"""Which rules a word selects: a code, a name, or a chapter (`DS5`, `ALL`)."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.diagnostics import Diagnostic
from dslint.record import Record
from dslint.rule import RuleInfo

ALL = "ALL"
"""The word for every rule."""


class NoSuchRule(ValueError):
    """A word that selects no rule; the text is a sentence for the user."""


class Selection(Record):
    """What one source of settings says about rules. None means that it says nothing.

    `select` and `ignore` replace the values of earlier sources; the `extend` forms add to them. A source with `select` also resets what
    earlier sources ignored or added, so that `--select DS501` runs that rule whatever a settings file says.
    """

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    extend_ignore: tuple[str, ...] = ()


def choose(rules: Iterable[RuleInfo], selections: Iterable[Selection]) -> tuple[RuleInfo, ...]:
    """The rules that remain after applying the selections in order.

    If a rule is both selected and ignored, the more specific word wins (`DS501` over `DS5`); in a tie the rule is ignored.
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
    if selected + more == (ALL,) and not ignored + fewer:
        return tuple(rules)
    return tuple(rule for rule in rules if _precision(selected + more, rule) > _precision(ignored + fewer, rule))


def _precision(words: Iterable[str], rule: RuleInfo) -> int:
    """How specifically the words select a rule: 0 if they do not; otherwise the length of the matching part of the code."""
    return max((1 if word.upper() == ALL else min(len(word), len(rule.code)) for word in words if means(word, rule)), default=0)


def means(word: str, rule: RuleInfo) -> bool:
    """Whether a word selects a rule."""
    code = word.upper()
    return code == ALL or is_name_of(word, rule) or (is_code_or_part(word) and rule.code.startswith(code))


def is_code_or_part(word: str) -> bool:
    """Whether a word has the form of a code (`DS501`) or of the first part of one, such as a chapter (`DS5`, `DSP`)."""
    part = word.upper().removeprefix("DS")
    return word.upper() != part and part[:1].isalnum() and (part[1:].isdecimal() or len(part) == 1) and len(part) <= 3


def is_name_of(word: str, rule: RuleInfo | Diagnostic) -> bool:
    """Whether a word is the code or the name of a rule, or of the rule of a diagnostic."""
    return word.lower() == rule.name or word.upper() == rule.code.upper()


def check_words(words: Iterable[str], rules: Iterable[RuleInfo]) -> None:
    """Check that every word selects a rule.

    Raises:
        NoSuchRule: a word selects none; the text suggests a similar one.
    """
    known = tuple(rules)
    for word in words:
        if not any(means(word, rule) for rule in known):
            raise NoSuchRule(no_such_rule(word, known))


def no_such_rule(word: str, rules: Iterable[RuleInfo]) -> str:
    """The error message for an unknown rule, with a suggestion."""
    from difflib import get_close_matches

    if is_code_or_part(word):
        return f'unknown rule "{word}". `dslint rule` lists all rules, `dslint rule --key KEY` those about a key.'
    names = [name for rule in rules for name in (rule.code, rule.name)]
    close = get_close_matches(word, names, n=1, cutoff=0.6) or get_close_matches(word.upper(), names, n=1, cutoff=0.6)
    return (
        f'unknown rule "{word}".'
        + (f' Did you mean "{close[0]}"?' if close else "")
        + " `dslint rule` lists all rules, `dslint rule --key KEY` those about a key."
    )
