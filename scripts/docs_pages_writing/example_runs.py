"""Runs dslint on the examples of rules, in this process: the report, and the text after the fix."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import NamedTuple

from docs_pages_writing.own_rules import own_rules
from dslint.config.context import Context
from dslint.config.load import take
from dslint.diagnostics import Applicability, Diagnostic
from dslint.facts import LAST_PATCH, RELEASES, Facts, Release
from dslint.lint.document import lint_document, lint_loaded
from dslint.lint.results import FileResult, Results
from dslint.lint.run import IGNORES
from dslint.report import full
from dslint.report.rule_page import laid_out
from dslint.report.style import Style
from dslint.report.words import option
from dslint.rule import Example, Rule
from dslint.source.edit import apply
from dslint.source.parse import parse
from dslint.suppress.comments import apply_comments
from tests.setup.beside import context_of

CONFIG = "ds_config.json"
WIDTH = 80
"""Columns of examples and outputs: what the site shows without scrolling."""


class Run(NamedTuple):
    """A rule's example as a page shows it.

    `text` is the config in lines that fit; `output` the report without the summary ("" for a good example); `fixed` the text
    after the first fix.
    """

    text: str
    output: str
    found: Diagnostic | None
    fixed: str | None


def run(rule: Rule, example: Example) -> Run:
    """Lint an example, and fix it if the rule can."""
    if example.at is None:
        return Run("\n".join(laid_out(example.text, WIDTH)), "", None, None)
    for text in ("\n".join(laid_out(example.text, WIDTH)), example.text):  # a few rules are about the layout of the text
        result = _lint(text, example._replace(text=text), rule)
        found = next((d for d in result.diagnostics if d.code == rule.code), None)
        if found:
            edits = [(edit.start, edit.end, edit.content) for edit in found.fix.edits] if found.fix else []
            return Run(text, _printed(result), found, apply(text, set(edits)) if edits else None)
    return Run(example.text, "", None, None)


def _lint(text: str, example: Example, rule: Rule) -> FileResult:
    document = parse(text)
    context = context_of(example)
    rules = own_rules() if IGNORES in rule.watches else (rule,)
    return apply_comments(lint_loaded(take(document, context), CONFIG, rules))


def _printed(result: FileResult) -> str:
    out = io.StringIO()
    full.write(Results(result.context, (result,)), out, Style(color=False, width=WIDTH))
    return out.getvalue().rpartition("\n\n")[0]  # the summary is the last block


def fix_options(found: Diagnostic) -> str | None:
    """The option that applies a finding's fix; None if there is none."""
    if found.fix is None or found.fix.applicability is Applicability.DISPLAY:
        return None
    return "--fix" if found.fix.applicability is Applicability.SAFE else "--unsafe-fixes"


def options(context: Context) -> list[str]:
    """The options that give the facts of an example, without defaults."""
    facts, usual = context.facts, Context()
    names = (*(name for name in Facts._fields if name != "loader_release"), "checkpoint")
    given = {name: context.get(name) for name in names if context.get(name) != usual.get(name)}
    if facts.gpu and facts.gpu_memory == facts.gpu.memory:
        del given["gpu_memory"]
    if facts.upgrade_from:
        given |= {"deepspeed": f"{given.pop('upgrade_from')}..{facts.deepspeed}"}
    if facts.model:
        given["model"] = "config.json"
    return [f"{option(name)} {value}" for name, value in given.items()]


def beside(example: Example) -> Iterator[tuple[str, str, str]]:
    """The files that an example needs: name, language, text."""
    for name, text in example.files:
        yield name, {"yaml": "yaml", "py": "py", "sh": "sh"}.get(name.rpartition(".")[2], "text"), text.strip("\n")
    if example.facts.model and example.facts.model.data:
        yield "config.json", "json", json.dumps(example.facts.model.data)
    policy = example.context.policy
    if policy:
        yield policy.path, "json", json.dumps(policy.schema)


def releases(rule: Rule) -> str | None:
    """The releases for which the rule finds its first example, as text; None if that does not apply.

    It checks the last patch of each minor release first, and other patches only if the result differs between two minor releases.
    """
    if not rule.bad or IGNORES in rule.watches or rule.bad[0].facts.upgrade_from:
        return None
    example = rule.bad[0]
    document = parse(example.text)
    context = context_of(example)

    def is_found(release: Release) -> bool:
        asked = context.but(deepspeed=release)
        return any(d.code == rule.code for d in lint_document(document, CONFIG, asked, (rule,)).diagnostics)

    last = [Release(*minor, patch) for minor, patch in LAST_PATCH.items()]
    answers = {release: is_found(release) for release in (RELEASES[0], *last)}
    held = [(RELEASES[0], answers[RELEASES[0]])]
    for release in RELEASES[1:]:
        minor_last = Release(release.major, release.minor, LAST_PATCH[release.major, release.minor])
        now = answers[release] if release in answers else held[-1][1] if answers[minor_last] == held[-1][1] else is_found(release)
        if now != held[-1][1]:
            held.append((release, now))
    return _in_words(held)


def _in_words(held: list[tuple[Release, bool]]) -> str | None:
    if not any(found for _, found in held):
        return None
    stretches = []
    for number, (start, found) in enumerate(held):
        if not found:
            continue
        end = held[number + 1][0] if number + 1 < len(held) else None
        before = RELEASES[RELEASES.index(end) - 1] if end else None
        if number == 0:
            stretches.append("in every supported release" if before is None else f"up to {before}")
        else:
            stretches.append(f"from {start} on" if before is None else f"in {start}" if before == start else f"from {start} to {before}")
    return " and ".join(stretches)
