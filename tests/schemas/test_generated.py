"""The committed files are what the models give, and stay cheap to import."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dslint.schemas import compile as compiler
from dslint.schemas import key_table
from dslint.schemas.derive import DERIVED

from .samples import KEYS, dotted


def test_the_committed_files_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert compiler.main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_file_is_named_and_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(compiler, "HERE", tmp_path)
    assert compiler.main(["--check"]) == 1
    assert "stale: key_table.py" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert compiler.main([]) == 0
    assert compiler.main(["--check"]) == 0


def test_the_key_table_imports_nothing_and_computes_nothing() -> None:
    tree = ast.parse(Path(key_table.__file__).read_text(encoding="utf-8"))
    tables = [node for node in tree.body if isinstance(node, ast.AnnAssign)]
    assert [table.target.id for table in tables if isinstance(table.target, ast.Name)] == ["KEYS", "OPTIMIZERS", "SCHEDULERS"]
    for table in tables:
        assert table.value is not None
        ast.literal_eval(table.value)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [node.module for node in imports if isinstance(node, ast.ImportFrom)] == ["__future__"]
    assert len(imports) == 1


def test_every_key_of_the_models_is_in_the_table_once() -> None:
    assert [dotted(key) for key in KEYS] == list(key_table.KEYS)


@pytest.mark.parametrize("path", DERIVED)
def test_derived_keys_exist(path: str) -> None:
    assert path in key_table.KEYS


def _path_exists(path: str) -> bool:
    head, _, name = path.rpartition(".")
    if head.endswith(".params"):
        registry = key_table.OPTIMIZERS if path.startswith("optimizer") else key_table.SCHEDULERS
        return any(name in entry["params"] for entry in registry.values())
    return path in key_table.KEYS


def test_replacements_exist_and_are_alive() -> None:
    for path, spec in key_table.KEYS.items():
        for history in (spec.get("until"), spec.get("deprecated")):
            if history and "use" in history:
                assert history["use"] in key_table.KEYS, path
                assert "until" not in key_table.KEYS[history["use"]], path


def test_keys_that_are_filled_exist() -> None:
    from dslint.schemas.auto import FILLED, MISMATCH_CHECKED

    for table in (*FILLED.values(), *MISMATCH_CHECKED.values()):
        assert [path for path in table if not _path_exists(path)] == []


def test_releases_are_releases_and_in_order() -> None:
    def number(release: str) -> tuple[int, ...]:
        assert re.fullmatch(r"\d+\.\d+\.\d+", release), release
        return tuple(map(int, release.split(".")))

    for path, spec in key_table.KEYS.items():
        if "since" in spec:
            assert (0, 9, 0) < number(spec["since"]) <= (0, 19, 8), path
        if "defaults" in spec:
            assert spec["defaults"][0][0] == "0", path
            assert spec["defaults"][-1][1] == spec["default"], path
            releases = [number(release) for release, _ in spec["defaults"][1:]]
            assert releases == sorted(releases), path
        if "until" in spec:
            assert number(spec["until"]["release"]) < (0, 19, 8), path
            assert number(spec.get("since", "0.0.0")) <= number(spec["until"]["release"]) or spec["until"]["release"] == "0.0.0", path


def test_hand_read_keys_say_what_a_wrong_value_does() -> None:
    """Without exception: a wrong type raises somewhere, counts as true or false, or passes with a note on where it leads."""
    silent = [
        path
        for path, spec in key_table.KEYS.items()
        if "hand" in spec and "wrong" not in spec and "until" not in spec and not path.endswith(("*", "[]"))
    ]
    assert silent == []


def test_documentation_is_there_and_fits_the_style() -> None:
    for key in KEYS:
        if key.path[-1] == "*" or key.path[-1].endswith("[]"):
            continue
        assert key.description, dotted(key)
        assert key.description.rstrip("`").endswith((".", "?", ":")), (dotted(key), key.description)
        assert len(key.description) < 420, dotted(key)
