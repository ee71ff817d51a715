"""What a shell offers for the value of an option. Imported only when a shell asks."""

from __future__ import annotations

from click.shell_completion import CompletionItem

from dslint.registry.rules import all_rules
from dslint.rule import RuleInfo
from dslint.settings.kinds import Choice, FileName, FolderName, RuleWords, SettingKind, Table


def complete_value(kind: SettingKind, incomplete: str) -> list[CompletionItem]:
    """Shell completion of the value of a setting."""
    if isinstance(kind, FileName):
        return [CompletionItem(incomplete, type="dir" if isinstance(kind, FolderName) else "file")]
    if isinstance(kind, Choice):
        return [CompletionItem(word) for word in kind.words if word.startswith(incomplete)]
    return complete_rules(incomplete) if isinstance(kind, RuleWords) or (isinstance(kind, Table) and kind.of_rules) else []


def complete_rules(incomplete: str) -> list[CompletionItem]:
    """Shell completion of rules by code and name, each explained by the other."""
    before, comma, word = incomplete.rpartition(",")
    offered = [(name, other) for rule in all_rules() for name, other in _both_names(rule) if name.lower().startswith(word.lower())]
    return [CompletionItem(before + comma + name, help=other) for name, other in offered]


def _both_names(rule: RuleInfo) -> tuple[tuple[str, str], tuple[str, str]]:
    return (rule.code, rule.name), (rule.name, rule.code)
