"""The output of `dslint rule --error`: each error that was found in the text, and the rules that may explain it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dslint.diagnose.parse_log import LoggedError
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
"""When DeepSpeed raises an error."""

MOST = 6
"""The most rules shown for an error, and keys shown for a rule."""


def render(found: Sequence[tuple[LoggedError, Sequence[Match]]], rules: Mapping[str, RuleInfo], *, color: bool, width: int) -> str:
    """The page for the errors of a text, the last first, each with the rules that may explain it (perhaps none)."""
    style = Style(color=color, width=width)
    known = [(raised, matches) for raised, matches in found if matches]
    if not known:
        return "\n".join(_nothing(found, style))
    blocks = ["\n".join(_error(raised, matches, rules, style)) for raised, matches in known]
    end = f"To find the mistake in a config: dslint check FILE. To explain a rule: dslint rule {known[0][1][0].code}"
    blocks.append("\n".join(wrap(end, width)))
    return "\n\n".join(blocks)


def _error(raised: LoggedError, matches: Sequence[Match], rules: Mapping[str, RuleInfo], style: Style) -> Iterator[str]:
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
        return f"{by}. Possible causes:"
    if match.fit == PART:
        return f'It contains a known message: "{clipped(record.message, 200)}". {by}. Possible causes:'
    if match.fit == SIMILAR:
        return f'Not a known message. The most similar one is "{clipped(record.message, 200)}". {by}. Possible causes:'
    return "Not a known message. Possible causes, judging by where it was raised:"


def _rule(match: Match, rule: Rule, style: Style) -> Iterator[str]:
    yield f"  {style.paint(rule.code, COLORS[rule.severity], 'bold')} {style.paint(rule.name, 'bold')}"
    yield from ("    " + line for line in wrap(rule.summary, style.width - 4))
    if match.keys:
        others = len(match.keys) - MOST
        at = f"at {', '.join(match.keys[:MOST])}" + (f" and {count(others, 'other key')}" if others > 0 else "")
        yield from ("    " + line for line in wrap(at, style.width - 4))


def _nothing(found: Sequence[tuple[LoggedError, Sequence[Match]]], style: Style) -> Iterator[str]:
    """What to do about an error that matches no record."""
    for raised, _ in found[:MOST]:
        yield from wrap(clipped(visible(str(raised)), 400), style.width)
    yield ""
    text = " ".join(str(raised) for raised, _ in found).lower()
    if "out of memory" in text or "outofmemory" in text:
        advice = "The GPU ran out of memory. dslint estimate FILE shows what uses it; dslint fit FILE shows what to change."
    else:
        advice = (
            "No rule explains this error: no mistake that dslint finds is known to raise it. Run dslint check FILE to check the config, or"
            " dslint probe FILE to run it in the real DeepSpeed."
        )
    yield from wrap(advice, style.width)
