"""What a shell offers for the value of an option. Imported only when a shell asks."""

from __future__ import annotations

from click.shell_completion import CompletionItem

from dslint.facts.gpus import GPUS
from dslint.registry.rules import all_rules
from dslint.rule import RuleInfo
from dslint.settings.kinds import Choice, FileName, FolderName, GpuName, RuleWords, SettingKind, Table


def complete_value(kind: SettingKind, incomplete: str) -> list[CompletionItem]:
    """Shell completion of the value of a setting."""
    if isinstance(kind, GpuName):
        return [CompletionItem(name, help=f"{gpu.sold} GB") for name, gpu in GPUS.items() if name.startswith(incomplete.lower())]
    if isinstance(kind, FileName):
        return [CompletionItem(incomplete, type="dir" if isinstance(kind, FolderName) else "file")]
    if isinstance(kind, Choice):
        return [CompletionItem(word) for word in kind.words if word.startswith(incomplete)]
    return complete_rules(incomplete) if isinstance(kind, RuleWords) or (isinstance(kind, Table) and kind.of_rules) else []


def complete_models(incomplete: str) -> list[CompletionItem]:
    """Shell completion of a model: the known names, or files where no name matches: bash drops names that come with files."""
    from dslint.facts.known_models import PRESETS

    names = [CompletionItem(name) for name in PRESETS if name.startswith(incomplete.lower())]
    return names or [CompletionItem(incomplete, type="file")]


def complete_keys(incomplete: str) -> list[CompletionItem]:
    """Shell completion of a config key, with or without its sections."""
    from dslint.schemas.key_table import KEYS

    return [CompletionItem(path) for path in KEYS if path.startswith(incomplete)]


def complete_rules(incomplete: str) -> list[CompletionItem]:
    """Shell completion of rules by code and name, each explained by the other."""
    before, comma, word = incomplete.rpartition(",")
    offered = [(name, other) for rule in all_rules() for name, other in _both_names(rule) if name.lower().startswith(word.lower())]
    return [CompletionItem(before + comma + name, help=other) for name, other in offered]


def _both_names(rule: RuleInfo) -> tuple[tuple[str, str], tuple[str, str]]:
    return (rule.code, rule.name), (rule.name, rule.code)
