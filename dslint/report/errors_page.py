"""The output of `dslint rule --error`: the causes of the errors in a text, what to do, and the rules behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dslint.diagnose import texts
from dslint.diagnose.explain import Explained, Explanation, codes
from dslint.diagnose.search import EXACT, PART, SIMILAR, RuleMatch
from dslint.diagnostics import Phase
from dslint.report.style import Style, clipped, visible, wrap
from dslint.report.words import COLORS, count
from dslint.rule import Rule, RuleInfo

WHEN = {
    Phase.LOAD: "before DeepSpeed sees the config",
    Phase.PARSE: "while parsing the config",
    Phase.INITIALIZE: "in deepspeed.initialize",
    Phase.STEP: "at the first step",
    Phase.LATER: "at a later call of the program",
    Phase.SAVE: "when a checkpoint is saved",
    Phase.RESUME: "when a checkpoint is loaded",
}
"""When DeepSpeed raises an error."""

MOST = 6
"""The most rules shown for an error, and keys shown for a rule."""


def render(explanation: Explanation, rules: Mapping[str, RuleInfo], *, color: bool, width: int) -> str:
    """The page for the errors of a text: the causes with their rules, then what follows from them."""
    style = Style(color=color, width=width)
    if not explanation.causes:
        return "\n".join(_nothing(explanation, style))
    blocks = ["\n".join(_cause(explained, rules, style)) for explained in explanation.causes[:MOST]]
    if explanation.others:
        blocks.append("\n".join(_others("Also in this text:", explanation.others, style)))
    named = [code for explained in explanation.causes for code in codes(explained)]
    if named:
        end = f"To find the mistake in a config: dslint check FILE. To explain a rule: dslint rule {named[0]}"
        blocks.append("\n".join(wrap(end, width)))
    return "\n\n".join(blocks)


def _cause(explained: Explained, rules: Mapping[str, RuleInfo], style: Style) -> Iterator[str]:
    yield from (style.paint(line, "bold") for line in wrap(clipped(visible(explained.printed), 400), style.width))
    if explained.known:
        yield from wrap(f"Cause: {visible(explained.known.cause)}", style.width)
        yield from wrap(f"What to do: {visible(explained.known.advice)}", style.width)
        if explained.place:
            yield from wrap(f"Where it was raised: {explained.place.cause} {explained.place.advice}".rstrip(), style.width)
    elif explained.place:
        yield from wrap(f"Not a known message. Where it was raised: {explained.place.cause}", style.width)
        if explained.place.advice:
            yield from wrap(f"What to check: {explained.place.advice}", style.width)
    else:
        yield from wrap(_how_sure(explained.rules[0]), style.width)
    keys = {match.code: match.keys for match in explained.rules}
    shown = codes(explained)
    for code in shown[:MOST]:
        yield ""
        yield from _rule(rules[code].load(), keys.get(code, ()), style)
    if len(shown) > MOST:
        yield ""
        yield f"  and {len(shown) - MOST} more: {', '.join(shown[MOST:])}"


def _others(title: str, matches: Sequence[texts.TextMatch], style: Style) -> Iterator[str]:
    """The known texts that are not causes, one sentence each."""
    yield title
    for match in matches[:MOST]:
        first, *more = wrap(f"line {match.line_number}: {visible(match.cause)}", style.width - 4)
        yield f"  - {first}"
        yield from (f"    {line}" for line in more)


def _how_sure(match: RuleMatch) -> str:
    record = match.records[0]
    by = f"{f'{record.by} raises it' if record.by else 'It is raised'} {WHEN[Phase(record.phase)]}"
    if match.fit == EXACT:
        return f"{by}. Possible causes:"
    if match.fit == PART:
        return f'It shares its text with a known message: "{clipped(record.message, 200)}". {by}. Possible causes:'
    if match.fit == SIMILAR:
        return f'Not a known message. The most similar one is "{clipped(record.message, 200)}". {by}. Possible causes:'
    return "Not a known message. Possible causes, judging by where it was raised:"


def _rule(rule: Rule, keys: Sequence[str], style: Style) -> Iterator[str]:
    yield f"  {style.paint(rule.code, COLORS[rule.severity], 'bold')} {style.paint(rule.name, 'bold')}"
    yield from ("    " + line for line in wrap(rule.summary, style.width - 4))
    if keys:
        others = len(keys) - MOST
        at = f"at {', '.join(keys[:MOST])}" + (f" and {count(others, 'other key')}" if others > 0 else "")
        yield from ("    " + line for line in wrap(at, style.width - 4))


def _nothing(explanation: Explanation, style: Style) -> Iterator[str]:
    """What to do about a text without a known cause."""
    if explanation.others:
        yield from _others("The error itself is not in this text, only what follows from it:", explanation.others, style)
        yield ""
        yield from wrap(explanation.others[0].advice, style.width)
        return
    for raised in explanation.read[:MOST]:
        yield from wrap(clipped(visible(str(raised)), 400), style.width)
    yield ""
    advice = (
        "No rule explains this error: no mistake that dslint finds is known to raise it. Run dslint check FILE to check the config, or"
        " dslint probe FILE to run it in the real DeepSpeed."
    )
    yield from wrap(advice, style.width)
