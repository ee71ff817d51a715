"""Import paths and names of earlier versions lead to their new places, with a warning."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from dslint.moved import MODULES, NAMES

PLUGIN = """
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Applicability, Effect
from dslint.facts import Facts, Integration
from dslint.linter import lint_document
from dslint.registry.rules import default_rules
from dslint.rule import Finding, Repair, bad, good, path_of, rule, safe, unsafe
from dslint.source.change import Remove, Set
from dslint.source.parse import parse
from dslint.values import UNKNOWN


@rule("ACME001", "no-bf16", effect=Effect.ADVICE)
@bad('{"bf16": {"enabled": true}}', at="bf16")
@good("{}")
def no_bf16(config: Config) -> Iterator[Finding]:
    "Our GPUs have no bf16."
    if config.value("bf16.enabled") is not UNKNOWN and config.value("bf16.enabled"):
        yield Finding("bf16", "bf16 is on.", fix=Repair("remove it", (Remove(path_of("bf16")),), Applicability.SAFE))


found = lint_document(parse('{"bf16": {"enabled": true}}'), "c.json", Facts(1, Integration.DEEPSPEED), (no_bf16,))
print([(d.code, d.pointer, d.fix.title) for d in found.diagnostics])
"""


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_moved_warns_and_has_its_names(name: str) -> None:
    sys.modules.pop(name, None)
    with pytest.warns(DeprecationWarning, match=MODULES[name][0]):
        old = import_module(name)
    for new in MODULES[name]:
        module = import_module(new)
        public = [word for word in vars(module) if not word.startswith("_") and getattr(vars(module)[word], "__module__", new) == new]
        assert public
        assert all(hasattr(old, word) for word in public)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = old.no_such_name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_changed_leads_to_the_new_one(name: str) -> None:
    module, _, word = name.rpartition(".")
    home, _, new = NAMES[name].rpartition(".")
    assert getattr(import_module(module), word) is getattr(import_module(home), new)


def test_a_plug_in_of_an_earlier_version_runs() -> None:
    done = subprocess.run([sys.executable, "-W", "always", "-c", PLUGIN], capture_output=True, text=True, check=True)
    assert done.stdout == "[('ACME001', '/bf16', 'remove it')]\n"
    assert "dslint.linter moved" in done.stderr
    assert "dslint.rule.Repair is dslint.rule.FixPlan now" in done.stderr


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("dslint.no_such_module")
