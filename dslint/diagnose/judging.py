"""Which rules have judged the files of a job: one that could not look finds nothing, too."""

from __future__ import annotations

from dslint.config import UNKNOWN, Config, resolve
from dslint.config.context import Context
from dslint.config.load import Loaded
from dslint.job.events import MODELS
from dslint.lint.run import by_needs
from dslint.registry.rules import default_rules
from dslint.registry.watches import Signals, can_run, signals_of, watched_keys
from dslint.rule import RuleInfo
from dslint.schemas.key_table import KEYS
from dslint.setups.gather import reasons_of
from dslint.setups.open import Subject
from dslint.source.config_text import unread_parts
from dslint.source.tree import Mapping, dotted

OF_LOADED_MODELS = frozenset({"DS442", "DS946", "DS947"})
"""The rules about how a program loads its model: in one that leaves this to a module which is not here they have seen nothing."""


def judged_by(loaded: Loaded) -> frozenset[str]:
    """The rules that can judge a config: it was read whole, and the values and files that they look at are known."""
    if loaded.unusable or loaded.document.problems or not isinstance(loaded.document.root, Mapping) or _is_assumed(loaded.context):
        return frozenset()
    config = resolve(loaded.document, loaded.context)
    signals, (able, _) = signals_of(config), by_needs(default_rules(), loaded.context)
    has_facts = frozenset(rule.code for rule in able)
    return frozenset(rule.code for rule in default_rules() if _can_judge(rule, config, signals, has_facts=rule.code in has_facts))


def _is_assumed(context: Context) -> bool:
    """Whether the config is only taken for that of the program: the job may have had another one."""
    taken = context.setup.program.assumed if context.setup is not None and context.setup.program is not None else None
    return taken is not None and not taken.together


def judged_in(subject: Subject) -> frozenset[str]:
    """The rules that can judge a file which a person named, with what it leads to."""
    found = frozenset[str]().union(*(judged_by(one.loaded) for one in subject.configs))
    read = subject.trainings
    if read is None:
        return found
    of_setups = {rule.code: rule.setup for rule in default_rules() if "setup" in rule.watches}
    if reasons_of(read):  # such as a program that is not valid Python, or one that is not here
        return found.difference(of_setups)
    with_program = any(one.setup.program is not None and one.config is None for one in read.setups)
    return found | {code for code, needs_no_config in of_setups.items() if needs_no_config and with_program}


def _can_judge(rule: RuleInfo, config: Config, signals: Signals, *, has_facts: bool) -> bool:
    if "setup" in rule.watches:  # most of them look at the program, and at the stage
        program = config.setup.program if config.setup is not None else None
        if program is None or (rule.code in OF_LOADED_MODELS and not any(program.events.of(MODELS))):
            return False
        return has_facts and config.value("zero_optimization.stage") is not UNKNOWN
    keys = watched_keys(rule)
    unread = [dotted(part) for part in unread_parts(config.document.root)] if config.document.root is not None else []
    if any(not keys or any(f"{key}.".startswith(f"{part}." if part else "") for key in keys) for part in unread):
        return False  # a program computes the value, or can write the key
    if can_run(rule.watches, signals):
        return has_facts and not any(config.value(key) is UNKNOWN for key in keys if key in KEYS and config.has(key))
    return not all(watch.startswith("fact:") for watch in rule.watches)  # the config holds nothing that it is about
