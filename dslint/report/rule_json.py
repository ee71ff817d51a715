"""The JSON format of `dslint rule`: one object, as docs/rule.schema.json describes it.

`rules` are those that were asked for, briefly; `rule` is all that there is to say of a single one; `error` is the explanation of an error,
whose rules are `rules`. Later releases may add keys; `version` changes when a key changes its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dslint import __version__
from dslint.diagnose.explain import Explained, Explanation, codes
from dslint.project import rule_url
from dslint.report.json_format import portable
from dslint.report.rule_page import files_of, flags, source_of
from dslint.rule import Example, Rule, RuleInfo
from dslint.source.tree import dotted, path_of

VERSION = 1


def of_list(rules: Iterable[RuleInfo]) -> str:
    """Several rules, by code."""
    return _output(sorted(rules, key=lambda rule: rule.code))


def of_rule(rule: Rule) -> str:
    """One rule with its documentation."""
    return _output([rule], rule=_whole(rule))


def of_error(explanation: Explanation, rules: Mapping[str, RuleInfo]) -> str:
    """The causes of an error, and the rules behind them."""
    behind = dict.fromkeys(code for explained in explanation.causes for code in codes(explained))
    error = {
        "causes": [_cause(explained) for explained in explanation.causes],
        "others": [{"line": match.line_number, "cause": match.cause, "advice": match.advice} for match in explanation.others],
    }
    return _output([rules[code] for code in behind], error=error)


def _output(rules: Iterable[RuleInfo], *, rule: dict[str, Any] | None = None, error: dict[str, Any] | None = None) -> str:
    brief = [_brief(one) for one in rules]
    return json.dumps(portable({"version": VERSION, "dslint": __version__, "rules": brief, "rule": rule, "error": error}), indent=2)


def _brief(rule: RuleInfo) -> dict[str, Any]:
    return {
        "code": rule.code,
        "name": rule.name,
        "severity": rule.severity.value,
        "effect": rule.effect.value,
        "phase": rule.phase.value if rule.phase else None,
        "needs": list(rule.needs),
        "url": rule_url(rule.code) if rule.is_builtin else None,
    }


def _whole(rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code,
        "documentation": rule.documentation,
        "bad": [_example(example) for example in rule.bad],
        "good": [_example(example) for example in rule.good],
        "references": list(rule.references),
        "source": source_of(rule),
    }


def _example(example: Example) -> dict[str, Any]:
    return {
        "text": example.text,
        "at": None if example.at is None else dotted(path_of(example.at)),
        "options": flags(example.context),
        "files": dict(files_of(example)),
    }


def _cause(explained: Explained) -> dict[str, Any]:
    known = explained.known or explained.place
    keys = {match.code: match.keys for match in explained.rules}
    return {
        "printed": explained.printed,
        "cause": known.cause if known else None,
        "advice": known.advice or None if known else None,
        "rules": [{"code": code, "keys": list(keys.get(code, ()))} for code in codes(explained)],
    }
