"""A page for each rule, and the index of all rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from docs_pages_writing.example_runs import CONFIG, Run, beside, fix_options, options, releases, run
from docs_pages_writing.markdown import blocks, code, escape, fence, prose, table
from docs_pages_writing.open_in_playground import link_to
from docs_pages_writing.own_rules import own_rules
from docs_pages_writing.watched import Watched
from dslint.diagnostics import Effect
from dslint.lint.run import IGNORES
from dslint.report.rule_page import CHAPTER_TITLES, other_severities
from dslint.report.words import consequence, flag, listed
from dslint.rule import Example, Rule

FIXES = {"--fix": "safe", "--unsafe-fixes": "changes training"}


def rule_pages(watched: Watched, *, playground: bool) -> dict[str, str]:
    """The pages by name. With `playground`, examples have links that open them there."""
    rules = own_rules()
    runs = {rule.code: [run(rule, example) for example in rule.bad] for rule in rules}
    pages = {f"{rule.code}.md": _page(rule, runs[rule.code], watched, playground=playground) for rule in rules}
    return pages | {"README.md": _index(rules, runs, lambda rule: f"{rule.code}.md", watched)}


def repository_index() -> str:
    """The index that is committed: each code leads to the module of its rule."""
    runs = {rule.code: [run(rule, example) for example in rule.bad if example.fixed is not None] for rule in own_rules()}
    return _index(own_rules(), runs, _module)


def _module(rule: Rule) -> str:
    """The module of a rule, relative to docs/rules/."""
    return f"../../{rule.check.__module__.removeprefix('dslint.').replace('.', '/')}.py"


def _page(rule: Rule, runs: list[Run], watched: Watched, *, playground: bool) -> str:
    happens = consequence(rule.effect, rule.phase, code=rule.code) or "DeepSpeed runs the config as written; this is advice"
    summary, _, more = rule.documentation.partition("\n")
    fixes = _fixes(runs)
    head = [
        f"**{rule.severity.value}**: {happens}{other_severities(rule)}.",
        "It runs only with `--pedantic` or when selected by its code: experts disagree about it." if rule.pedantic else "",
        f"dslint can fix it: {listed(f'`{word}` ({FIXES[word]})' for word in fixes)}." if fixes else "",
    ]
    return blocks(
        f"# {rule.code} {rule.name}",
        escape(summary),
        " ".join(filter(None, head)),
        escape(prose(more.strip())),
        "## What it finds",
        *(
            part
            for number, shown in enumerate(runs)
            for part in _bad(rule, rule.bad[number], shown, line_above=number > 0, playground=playground)
        ),
        "## What is correct" if rule.good else None,
        *(part for example in rule.good for part in _good(rule, example)),
        *_more(rule, watched),
        *_ignoring(rule, runs),
    )


def _fixes(runs: Iterable[Run]) -> list[str]:
    """The options that fix something in the examples."""
    found = {fix_options(shown.found) for shown in runs if shown.found and shown.fixed}
    return [word for word in FIXES if word in found]


# ------------------------------------------------------------------ examples


def _bad(rule: Rule, example: Example, shown: Run, *, line_above: bool, playground: bool) -> Iterator[str]:
    if line_above:
        yield "---"
    yield _config(shown.text)
    yield from _beside(example)
    if playground and (link := link_to(rule, example, shown)):
        yield f"[Open in the playground]({link})"
    given = options(example.context)
    said = f"With {listed(map(code, given))}, dslint reports:" if given else "dslint reports:"
    if shown.output:
        yield said
        yield fence(shown.output, "text")
    if shown.found and shown.fixed is not None and (word := fix_options(shown.found)):
        yield f"`dslint check {word}` changes it to:"
        yield _config(shown.fixed)


def _good(rule: Rule, example: Example) -> Iterator[str]:
    given = options(example.context)
    if given:
        yield f"With {listed(map(code, given))}:"
    yield _config(run(rule, example).text)
    yield from _beside(example)


def _config(text: str) -> str:
    if not text.strip():
        return "An empty file."
    strict = "//" not in text and "#" not in text and text.lstrip().startswith("{")
    return fence(text, "json" if strict else "hjson" if text.isprintable() or "\n" in text else "text")


def _beside(example: Example) -> Iterator[str]:
    for name, language, text in beside(example):
        yield f"With {code(name)}:"
        yield fence(text, language)


# ------------------------------------------------------------------ details


def _more(rule: Rule, watched: Watched) -> Iterator[str]:
    facts = []
    if rule.needs:
        facts.append(f"- Requires {listed(code(flag(fact)) for fact in rule.needs)}; otherwise the rule is skipped and counted.")
    if found := releases(rule):
        facts.append(f"- DeepSpeed releases: dslint finds the first example {found}.")
    if keys := [f"[{code(key)}]({watched.link(key, '../keys/')})" for key in watched.keys[rule.code]]:
        facts.append(f"- Keys it looks at: {', '.join(keys)}.")
    if rule.untried:
        facts.append(f"- The test suite does not verify that DeepSpeed raises: {escape(rule.untried)}.")
    elif rule.effect is Effect.CRASH:
        facts.append("- Verified: the real DeepSpeed raises on the bad examples and runs the good ones.")
    if facts:
        yield "## Details"
        yield "\n".join(facts)
    if rule.references:
        yield "## References"
        yield "\n".join(f"- <{one}>" if one.startswith("https://") else f"- {escape(one)}" for one in rule.references)


def _ignoring(rule: Rule, runs: list[Run]) -> Iterator[str]:
    found = next((shown.found for shown in runs if shown.found), None)
    yield "## Suppressing it"
    if IGNORES in rule.watches or found is None:
        yield f'For all files, in the settings: `extend-ignore = ["{rule.name}"]`. See [suppressing findings](../suppressing.md).'
        return
    if found.path == CONFIG:
        yield "In a comment on the line above the member, or at the end of its line, with a reason:"
        yield fence(f"// dslint: ignore[{rule.name}] why it stays", "hjson")
        yield "Strict JSON has no comments; there, in the settings:"
    else:
        yield "In the settings, with a reason:"
    lines = ["[[tool.dslint.ignores]]", f'file = "{found.path}"']
    lines += [f'pointer = "{found.pointer}"'] if found.pointer else []
    lines += [f'rules = ["{rule.name}"]', 'reason = "why it stays"']
    yield fence("\n".join(lines), "toml")
    yield f'For all files: `extend-ignore = ["{rule.name}"]`. See [suppressing findings](../suppressing.md).'


# ------------------------------------------------------------------ the index


def _index(rules: tuple[Rule, ...], runs: dict[str, list[Run]], link: Callable[[Rule], str], watched: Watched | None = None) -> str:
    """The rules by chapter. With `watched`, for the site: with a filter, which also searches the keys that a rule looks at."""
    parts = [
        "# Rules",
        "The rules by chapter. `dslint rule CODE` explains one in the terminal: what DeepSpeed does, why it matters, and examples.",
        '<div id="rule-filter" role="search" hidden></div>' if watched else None,
        "*fix*: \u2713 with `--fix`, which does not change training; (\u2713) with `--unsafe-fixes`.",
    ]
    for chapter, of_chapter in groupby(rules, key=lambda rule: rule.code[:3]):
        parts.append(f"## {CHAPTER_TITLES.get(chapter, chapter)}")
        rows = (_row(rule, runs[rule.code], link(rule), watched.keys[rule.code] if watched else ()) for rule in of_chapter)
        parts.append(table(("rule", "what it finds", "effect", "fix"), rows))
    effects = ((effect.value, _effect(effect), effect.severity.value) for effect in Effect)
    return blocks(*parts, table(("effect", "what DeepSpeed does", "severity"), effects))


def _effect(effect: Effect) -> str:
    said = consequence(effect, None)
    others = {Effect.CRASH: "raises an error", Effect.POLICY: "nothing: the config breaks a policy of your team"}
    return said or others.get(effect, "nothing now: deprecated, unclear or not portable")


def _row(rule: Rule, runs: list[Run], link: str, keys: Iterable[str]) -> tuple[str, ...]:
    fixes = _fixes(runs)
    mark = "\u2713" if "--fix" in fixes else "(\u2713)" if fixes else ""
    pedantic = " *(with `--pedantic`)*" if rule.pedantic else ""
    found_by = f"<span hidden>{escape(' '.join(keys))}</span>" if keys else ""
    return f"[{rule.code}]({link})", f"`{rule.name}`<br>{escape(rule.summary)}{pedantic}{found_by}", rule.effect.value, mark
