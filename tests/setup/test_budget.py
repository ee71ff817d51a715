"""No file makes a run take more than its budget: what is left out is named, with its place. Work is counted, not timed."""

from __future__ import annotations

import json

import pytest

from dslint.config.context import Context
from dslint.evaluate.python import read, repetition
from dslint.evaluate.shell.interpreter import Interpreter
from dslint.setups import program
from dslint.setups.gather import reasons_of
from dslint.setups.read import read_setups
from dslint.source.store import a_run
from dslint.source.tree import Member, Scalar
from dslint.source.unknown import UNKNOWN
from tests.setup.folder import Folder

CALL = "deepspeed.initialize(model=m, config=ds)\n"


def _notebook(cells: int) -> str:
    source = "import deepspeed\nds = {'train_batch_size': 8}\n" + CALL
    cell = {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
    return json.dumps({"cells": [cell] * cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def _growing(calls: int) -> str:
    return "import deepspeed\nds = {'train_batch_size': 8}\n" + "".join(f"ds['k{n}'] = {{'a': {n}}}\n{CALL}" for n in range(calls))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), [("n.ipynb", _notebook(800)), ("train.py", _growing(240))])
def test_a_program_with_many_configs_is_judged_in_part(name: str, text: str, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = 0

    def gather(*given: object, **named: object) -> object:
        nonlocal gathered
        gathered += 1
        return original(*given, **named)  # type: ignore[arg-type]

    original = program.gather_call
    monkeypatch.setattr(program, "gather_call", gather)
    folder.write({name: text})
    found = read_setups(text, name, name, Context(), named=True)
    assert found is not None
    calls = text.count("deepspeed.initialize")
    assert 5 < gathered < 130
    (left_out,) = [one for one in found.not_judged if "more configs" in one.reason]
    said = f"the program passes more configs than dslint judges: {gathered} of {calls} calls are checked, those before line "
    assert left_out.reason.startswith(said)
    assert (f" of cell {gathered + 1}." in left_out.reason) is name.endswith(".ipynb")
    assert left_out.range is not None


def test_a_few_configs_are_all_judged(folder: Folder) -> None:
    found = read_setups(_notebook(20), "n.ipynb", "n.ipynb", Context(), named=True)
    assert found is not None
    assert len(found.setups) == 20
    assert not found.not_judged


LOOPS = "".join(f"{'    ' * depth}for n{depth} in [1, 2, 3, 4, 5, 6, 7, 8, 9]:\n" for depth in range(6)) + f"{'    ' * 6}SIZES['a'] = 1\n"
"""Statements that take more steps than a program has."""


def test_the_end_of_what_is_followed_is_named_in_its_own_file(folder: Folder) -> None:
    text = f"import deepspeed\nfrom helper import SIZES\n{CALL}"
    folder.write({"helper.py": f"SIZES = {{}}\n{LOOPS}", "train.py": text})
    found = read_setups(text, "train.py", "train.py", Context(), named=True)
    assert found is not None
    (left_out,) = found.not_judged
    assert "up to helper.py:" in left_out.reason
    assert left_out.range is None


WALKS = "SIZES = {'a': 2, 'b': 3}\nclass Sizes:\n    c = 4\ndef walk(depth, given):\n    for i in [1, 2, 3, 4, 5, 6, 7, 8, 9]:\n        if depth:\n            walk(depth - 1, given)\n"


@pytest.mark.parametrize(
    ("change", "size", "is_known"),
    [
        ("SIZES['a'] = 5", "SIZES['a']", False),
        ("given['a'] = 5", "mine['a']", False),
        ("given.d = 5", "sizes.d", False),
        ("SIZES['a'] = 5", "OTHERS['a']", True),
    ],
)
def test_a_function_of_a_module_does_not_use_up_the_steps(folder: Folder, change: str, size: str, *, is_known: bool) -> None:
    """What is not followed may change what it gets, and what it names."""
    helper = f"{WALKS}    if not depth:\n        {change}\nOTHERS = {{'a': 1}}\n"
    text = (
        "import deepspeed\nfrom helper import OTHERS, SIZES, Sizes, walk\nmine = {'a': 1}\nsizes = Sizes()\nsizes.d = 1\n"
        "walk(9, mine)\nwalk(9, sizes)\n"
        f"deepspeed.initialize(model=m, config={{'train_micro_batch_size_per_gpu': {size}, 'zero_optimization': {{'stage': 9}}}})\n"
    )
    folder.write({"helper.py": helper, "train.py": text})
    found = read_setups(text, "train.py", "train.py", Context(), named=True)
    assert found is not None
    assert not [one for one in found.not_judged if "larger" in one.reason]
    (setup,) = found.setups
    assert setup.config is not None
    given = setup.config.lookup(("train_micro_batch_size_per_gpu",))
    assert isinstance(given, Member)
    assert isinstance(given.value, Scalar)
    assert (given.value.value is not UNKNOWN) is is_known


@pytest.mark.slow
def test_a_program_that_is_too_large_is_read_so_only_once(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may have two hundred scripts that launch the same program with other flags."""
    tried: list[bool] = []

    def follow(*given: object, again: bool, **named: object) -> object:
        tried.append(again)
        return original(*given, again=again, **named)  # type: ignore[arg-type]

    original = read.follow
    monkeypatch.setattr(read, "follow", follow)
    own = "".join(f"{'    ' * depth}for n{depth} in [1, 2, 3, 4, 5, 6, 7, 8]:\n" for depth in range(4)) + f"{'    ' * 4}sizes['a'] = 1\n"
    text = (
        f"import argparse, deepspeed\nfrom helper import walk\nsizes = {{}}\nwalk(9, sizes)\n{own}"
        "p = argparse.ArgumentParser()\np.add_argument('--ds')\n"
        "p.add_argument('--n')\ndeepspeed.initialize(model=m, config=p.parse_args().ds)\n"
    )
    launches = "".join(f"deepspeed train.py --ds ds.json --n {n}\n" for n in range(6))
    folder.write({"helper.py": WALKS, "train.py": text, "run.sh": launches, "ds.json": '{"train_batch_size": 8, "stage": 1}'})
    with a_run():
        assert folder.found("run.sh") != []
    assert (tried.count(False), tried.count(True)) == (1, 6)


def test_a_file_of_a_package_above_is_named_from_the_working_directory(folder: Folder) -> None:
    inner = f"from ..helper import walk\nimport deepspeed\nwalk(ds)\n{CALL}"
    helper = "import deepspeed\ndef walk(ds):\n    deepspeed.initialize(model=m, config=ds)\n"
    folder.write({"p/__init__.py": "", "p/helper.py": helper, "p/q/__init__.py": "", "p/q/train.py": inner})
    found = read_setups(inner, "p/q/train.py", "p/q/train.py", Context(), named=True)
    assert found is not None
    assert any("(p/helper.py, line 3)" in one.reason for one in reasons_of(found))


SCRIPTS = {
    "variables that double": {
        "Makefile": "A0=x\n" + "".join(f"A{n + 1}=$(A{n})$(A{n})\n" for n in range(22)) + "train:\n\tdeepspeed train.py $(A22)\n"
    },
    "scripts that run each other": {"run.sh": "bash x.sh\n" * 300 + "deepspeed train.py\n", "x.sh": "source run.sh\n"},
}


@pytest.mark.slow
@pytest.mark.parametrize("how", SCRIPTS)
def test_scripts_that_multiply_end(how: str, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    follow = Interpreter.follow

    def counted(self: Interpreter, *given: object) -> object:
        nonlocal steps
        steps += 1
        return follow(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Interpreter, "follow", counted)
    folder.write(SCRIPTS[how])
    name = next(iter(SCRIPTS[how]))
    found = read_setups(SCRIPTS[how][name], name, name, Context(), named=True)
    assert found is not None
    assert steps < 30_000


def test_a_loop_around_a_call_of_its_own_function_ends(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn of the loop would follow the loop again, and what an attempt costs is given back."""
    turns = 0

    def known_turns(*given: object) -> str | None:
        nonlocal turns
        turns += 1
        assert turns < 5_000
        return original(*given)  # type: ignore[arg-type]

    original = repetition._known_turns
    monkeypatch.setattr(repetition, "_known_turns", known_turns)
    walk = "def walk(a):\n    while True:\n        try:\n            b = step(a)\n        except OSError:\n            break\n        walk(b)\n\n"
    text = f"import deepspeed\n{walk}walk(1)\nds = {{'train_batch_size': 8}}\n{CALL}"
    folder.write({"train.py": text})
    found = read_setups(text, "train.py", "train.py", Context(), named=True)
    assert found is not None
    assert [one.config is not None for one in found.setups] == [True]


def test_an_annotation_in_quotes_may_name_what_no_file_defines(folder: Folder) -> None:
    head = "from typing import TYPE_CHECKING\nimport deepspeed\nif TYPE_CHECKING:\n    from ...outputs import Output\n"
    text = f"{head}def train(x: 'Output'):\n    ds = {{'train_batch_size': 8}}\n    {CALL}"
    folder.write({"train.py": text})
    found = read_setups(text, "train.py", "train.py", Context(), named=True)
    assert found is not None
    assert len(found.setups) == 1
