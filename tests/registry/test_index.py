"""The index of the rules is fresh, and enough for selecting and listing them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.registry.rules import all_rules, own_rules
from dslint.rule import RuleInfo
from dslint.rules import index

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import build_rule_index

PLAIN = [name for name in RuleInfo.__slots__ if name != "module"]


def test_the_index_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_rule_index.main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_index_is_reported_and_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_rule_index, "INDEX", tmp_path / "index.py")
    assert build_rule_index.main(["--check"]) == 1
    assert "stale: rules/index.py" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert build_rule_index.main([]) == 0
    assert build_rule_index.main(["--check"]) == 0


def test_the_index_imports_nothing_and_computes_nothing() -> None:
    tree = ast.parse(Path(index.__file__).read_text(encoding="utf-8"))
    (table,) = (node for node in tree.body if isinstance(node, ast.AnnAssign))
    assert table.value is not None
    assert ast.literal_eval(table.value) == index.RULES
    assert [node.module for node in tree.body if isinstance(node, ast.ImportFrom)] == ["__future__"]
    assert not [node for node in tree.body if isinstance(node, ast.Import)]


def test_the_index_agrees_with_the_rules() -> None:
    names = (*PLAIN, "module")
    for rule in own_rules():
        whole = rule.load()
        assert {name: getattr(rule, name) for name in names} == {name: getattr(whole, name) for name in names}


def test_every_rule_is_indexed_in_order() -> None:
    codes = [rule.code for rule in own_rules()]
    assert codes == sorted(codes)
    assert codes == [rule.code for _, rule in build_rule_index.written_rules()]


def test_selecting_and_listing_import_no_rule(root: Path) -> None:
    program = (
        "import sys\nfrom dslint.registry.rules import all_rules\nfrom dslint.registry.selection import Selection, choose\n"
        "from dslint.report import rule_page\n"
        "print(rule_page.index(choose(all_rules(), [Selection(('DS5',))]), color=False, width=80))\n"
        "print(*[name for name in sys.modules if name.startswith('dslint.rules.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.count("DS5") == 1 + len([rule for rule in all_rules() if rule.code.startswith("DS5")])
    assert done.stderr.split() == ["dslint.rules.index"]
