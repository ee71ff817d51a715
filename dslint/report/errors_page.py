"""What `dslint rule --error` prints: an error as it was understood, and the rules that may be behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dslint.diagnose.parse_log import Raised
from dslint.diagnose.search import EXACT, PART, SIMILAR, Match
from dslint.diagnostics import Phase
from dslint.report.style import Style, clipped, visible, wrap
from dslint.report.words import COLORS, count
from dslint.rule import Rule, RuleInfo

WHEN = {
    Phase.LOAD: "before DeepSpeed sees the config",
    Phase.PARSE: "while parsing the config",
    Phase.INITIALIZE: "in deepspeed.initialize",
    Phase.STEP: "at the first step",
    Phase.SAVE: "when a checkpoint is saved",
    Phase.RESUME: "when a checkpoint is loaded",
}
"""When an error comes."""

MOST = 6
"""Rules that are shown for an error, and keys that are shown for a rule."""


def render(found: Sequence[tuple[Raised, Sequence[Match]]], rules: Mapping[str, RuleInfo], *, color: bool, width: int) -> str:
    """The page for the errors of a text, the last first, each with the rules that may be behind it (perhaps none)."""
    style = Style(color=color, width=width)
    known = [(raised, matches) for raised, matches in found if matches]
    if not known:
        return "\n".join(_nothing(found, style))
    blocks = ["\n".join(_error(raised, matches, rules, style)) for raised, matches in known]
    end = f"dslint check FILE says whether a config has the mistake, and where. dslint rule {known[0][1][0].code} says more about a rule."
    blocks.append("\n".join(wrap(end, width)))
    return "\n\n".join(blocks)


def _error(raised: Raised, matches: Sequence[Match], rules: Mapping[str, RuleInfo], style: Style) -> Iterator[str]:
    first, *more = wrap(clipped(visible(str(raised)), 400), style.width)
    yield style.paint(first, "bold")
    yield from (style.paint(line, "bold") for line in more)
    yield from wrap(_how_sure(matches[0]), style.width)
    for match in matches[:MOST]:
        yield ""
        yield from _rule(match, rules[match.code].load(), style)
    if len(matches) > MOST:
        yield ""
        yield f"  and {len(matches) - MOST} more: {', '.join(match.code for match in matches[MOST:])}"


def _how_sure(match: Match) -> str:
    record = match.records[0]
    by = f"{f'{record.by} raises it' if record.by else 'It is raised'} {WHEN[Phase(record.phase)]}"
    if match.fit == EXACT:
        return f"{by}. What may be behind it:"
    if match.fit == PART:
        return f'A part of it is on record: "{clipped(record.message, 200)}". {by}. What may be behind it:'
    if match.fit == SIMILAR:
        return f'Not on record word for word. Most like it is "{clipped(record.message, 200)}". {by}. What may be behind that:'
    return "Not on record with these words. Going by where it was raised, this may be behind it:"


def _rule(match: Match, rule: Rule, style: Style) -> Iterator[str]:
    yield f"  {style.paint(rule.code, COLORS[rule.severity], 'bold')} {style.paint(rule.name, 'bold')}"
    yield from ("    " + line for line in wrap(rule.summary, style.width - 4))
    if match.keys:
        others = len(match.keys) - MOST
        at = f"at {', '.join(match.keys[:MOST])}" + (f" and {count(others, 'other key')}" if others > 0 else "")
        yield from ("    " + line for line in wrap(at, style.width - 4))


def _nothing(found: Sequence[tuple[Raised, Sequence[Match]]], style: Style) -> Iterator[str]:
    """What to do about an error that no record fits."""
    for raised, _ in found[:MOST]:
        yield from wrap(clipped(visible(str(raised)), 400), style.width)
    yield ""
    told = " ".join(str(raised) for raised, _ in found).lower()
    if "out of memory" in told or "outofmemory" in told:
        advice = "The GPU's memory was not enough: dslint estimate FILE says what needs how much, and dslint fit FILE what to change."
    else:
        advice = (
            "No rule is known to be behind this: none of the mistakes that dslint finds was seen to raise it. dslint check FILE says what"
            " is wrong with a config anyway; dslint probe FILE has the real DeepSpeed run it, and narrows an error down to the setting."
        )
    yield from wrap(advice, style.width)
