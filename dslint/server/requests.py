"""The requests that dslint adds to the protocol. docs/server.md documents them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dslint.config.effective import as_deepspeed_sees_it, effective
from dslint.errors import UserError
from dslint.facts import Release
from dslint.facts.gpus import in_words
from dslint.lint.results import FileResult
from dslint.registry.rules import all_rules
from dslint.registry.selection import is_name_of, no_such_rule
from dslint.report import rule_page, show_page
from dslint.report.words import consequence, flag, listed
from dslint.rule import Rule
from dslint.server.checking import Checked
from dslint.server.inside import Training
from dslint.server.workspace import Workspace
from dslint.settings.table import FACTS, SETTINGS

WIDTH = 100
"""The columns of the table of an effective config."""

SIZES = ("gpu-memory", "host-memory")
"""The facts that are sizes in bytes."""


def effective_config(trainings: Sequence[Training], *, everything: bool) -> dict[str, Any]:
    """The answer to `dslint/effectiveConfig`: the first config that a file holds or leads to.

    Raises:
        UserError: there is none, or it has syntax errors.
    """
    config = next((training.config for training in trainings if training.config is not None), None)
    if config is None:
        raise UserError("no DeepSpeed config was found in this file.")
    if config.document.problems:
        raise UserError(f"the config has a syntax error: {config.document.problems[0].message}")
    entries = effective(config, everything=everything)
    seen, unknown = as_deepspeed_sees_it(config)
    return {
        "release": str(config.release),
        "text": json.dumps(seen, indent=2, default=str),
        "unknown": unknown,
        "table": show_page.table(entries, color=False, width=WIDTH),
        "keys": json.loads(show_page.as_json(entries))["keys"],
    }


def facts(workspace: Workspace, checked: Checked | None) -> list[dict[str, Any]]:
    """The facts in force for a file, or those given in the editor if no file is named."""
    result = checked.result if checked is not None else None
    return [_fact(name, workspace, checked, result) for name in FACTS]


def _fact(name: str, workspace: Workspace, checked: Checked | None, result: FileResult | None) -> dict[str, Any]:
    field = name.replace("-", "_")
    folder = checked.folder if checked is not None else next(iter(workspace.folders), "")
    given = workspace.given_in(folder)
    value, origin = None, None
    if result is not None and checked is not None:
        value = _packages(result.context.pins) if name == "package" else getattr(result.facts, field)
        evidence = dict(result.context.evidence).get(field)
        origin = evidence or _source(name, workspace, checked)
    elif name in given:
        value = _packages(given[name]) if name == "package" else given[name]
    if name == "model" and value is not None and not isinstance(value, str):
        value = value.path
    return {
        "name": name,
        "value": value if value is None or (isinstance(value, int | str) and not isinstance(value, bool)) else str(value),
        "shown": "" if value is None else in_words(value) if name in SIZES and isinstance(value, int) else str(value),
        "origin": origin,
        "given": name in given,
        "meaning": SETTINGS[name].meaning,
        "choices": list(getattr(SETTINGS[name].kind, "words", ())),
    }


def _packages(releases: Mapping[str, Release]) -> str | None:
    return ", ".join(f"{name}=={release}" for name, release in releases.items()) or None


def _source(name: str, workspace: Workspace, checked: Checked) -> str | None:
    with workspace.inside(checked.file) as path:
        origins = workspace.finder(checked.folder).for_file(path).in_force(name).origins
    return ", ".join(origins) or None


def explanation(word: str) -> dict[str, Any]:
    """The answer to `dslint/rule`.

    Raises:
        UserError: no rule has this code or name.
    """
    rule = next((rule.load() for rule in all_rules() if is_name_of(word, rule)), None)
    if rule is None:
        raise UserError(no_such_rule(word, all_rules()))
    from dslint.project import rule_url

    return {"code": rule.code, "name": rule.name, "url": rule_url(rule.code), "markdown": _markdown(rule)}


def _markdown(rule: Rule) -> str:
    happens = consequence(rule.effect, rule.phase, code=rule.code) or "DeepSpeed runs the config as written; this is advice"
    blocks = [f"# {rule.code} {rule.name}", f"**{rule.severity.value}**: {happens}.", rule.documentation]
    for title, examples in (("Found", rule.bad), ("No finding", rule.good)):
        if examples:
            text = "\n".join(rule_page.laid_out(examples[0].text, WIDTH))
            blocks.append(f"{title}:\n\n```json\n{text}\n```")
    if rule.needs:
        blocks.append(f"Requires {listed(f'`{flag(fact)}`' for fact in rule.needs)}; otherwise the rule is skipped.")
    if rule.references:
        blocks.append("References:\n\n" + "\n".join(f"- {reference}" for reference in rule.references))
    return "\n\n".join(blocks)
