"""What is read of notebooks agrees with nbconvert; `python -m tests.judges notebooks` asks it with a fresh seed."""

from __future__ import annotations

import json

import pytest

from dslint.evaluate.python.cells import as_python, shell_of
from tests.judges import notebooks
from tests.judges.notebooks import case


def test_recorded_answers() -> None:
    """`python -m tests.judges notebooks --record` asks nbconvert again, after a change of the generator."""
    recorded = json.loads(notebooks.RECORDED.read_text(encoding="utf-8"))
    verdicts = {seed: notebooks.compare(case(int(seed)), answer) for seed, answer in recorded.items()}
    assert {seed: wrong for seed, (_, _, wrong) in verdicts.items() if wrong} == {}
    cells, read = (sum(one[index] for one in verdicts.values()) for index in (0, 1))
    assert read == cells > 300


@pytest.mark.parametrize(
    "cell",
    [
        "!deepspeed a.py \\\n  --x 1\nx = 1",
        "files = !ls \\\n  *.json\ny = 2",
        "%%time\n!ls\nx = 1",
        "json?\nx = 1",
        "  !ls",
        "!",
        "x = !",
        "",
    ],
)
def test_every_character_of_a_cell_keeps_its_place(cell: str) -> None:
    text = as_python(cell)
    assert len(text) == len(cell)
    assert [place for place, one in enumerate(text) if one == "\n"] == [place for place, one in enumerate(cell) if one == "\n"]


@pytest.mark.parametrize(
    ("cell", "commands"),
    [
        ("!!ls", ["ls"]),
        ("files = !ls *.json", ["ls *.json"]),
        ('text = """\n!ls\n"""\n!pwd', ["pwd"]),
        ("x = (1\n    % 2)\n!pwd", ["pwd"]),
        ("x = 'it''s'  # don't\n!pwd", ["pwd"]),
        ('x = "!ls"', []),
        ("if x:\n    !ls -l", ["ls -l"]),
    ],
)
def test_which_lines_a_shell_runs(cell: str, commands: list[str]) -> None:
    assert [cell[one.start : one.end] for one in shell_of(cell)] == commands
