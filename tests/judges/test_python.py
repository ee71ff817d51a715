"""What is evaluated of generated programs agrees with what Python did with them; `python -m tests.judges` asks it with a fresh seed."""

from __future__ import annotations

import json

import pytest

from tests.judges import programs, python
from tests.judges.fence import missing

KNOWN = 0.85
"""The least part of the values that is known."""

PLACED = 0.95
"""The least part of the values that are not known whose place is."""


@pytest.mark.parametrize("step", [pytest.param(4, id="every fourth"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_recorded_answers(step: int) -> None:
    """`python -m tests.judges python --record` asks Python again, after a change of the generator."""
    recorded = dict([*json.loads(python.RECORDED.read_text(encoding="utf-8")).items()][::step])
    verdicts = {seed: python.compare(programs.program(int(seed)), answer) for seed, answer in recorded.items()}
    assert {seed: verdict.wrong for seed, verdict in verdicts.items() if verdict.wrong} == {}
    values, known = (sum(getattr(one, name) for one in verdicts.values()) for name in ("values", "known"))
    placed = sum(one.placed for one in verdicts.values())
    assert values > 500 / step
    assert known > KNOWN * values
    assert placed > PLACED * (values - known)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
def test_each_form_of_statements() -> None:
    made = programs.forms()
    verdicts = [python.compare(program, answer) for program, answer in zip(made, python.answers(made), strict=True)]
    assert [made[number].files["train.py"] for number, one in enumerate(verdicts) if one.wrong] == []
    assert sum(one.placed for one in verdicts) == sum(one.values - one.known for one in verdicts)


CALL = "import deepspeed\ndeepspeed.initialize(model=None, config={config})\n"

PROGRAMS = {
    "a decorator that adds a key": (
        "def wrap(f):\n    def inner(*given):\n        made = f(*given)\n        made['b'] = 2\n        return made\n    return inner\n\n@wrap\ndef make(a):\n    return {'a': a}\n\nc = make(1)",
        {"a": 1, "b": 2},
    ),
    "a decorator with an argument": (
        "def times(n):\n    def outer(f):\n        def inner():\n            return {**f(), 'n': n}\n        return inner\n    return outer\n\n@times(3)\ndef make():\n    return {'a': 1}\n\nc = make()",
        {"a": 1, "n": 3},
    ),
    "a decorator of a library": (
        "import functools\n\n@functools.lru_cache(maxsize=None)\ndef make():\n    return {'a': 1}\n\nc = make()",
        {"a": 1},
    ),
    "a setter below another decorator": (
        "def same(f):\n    return f\n\nclass S:\n    a = 1\n\n    @property\n    def b(self):\n        return self.a\n\n    @same\n    @b.setter\n    def b(self, value):\n        self.a = value\n\ns = S()\ns.b = 2\nc = {'n': 3}",
        {"n": 3},
    ),
    "a key that is not there": ("c = {'a': 1}\ntry:\n    c['a'] = c['b']\nexcept KeyError:\n    c['a'] = 2", {"a": 2}),
    "the fields of a dataclass": (
        "from dataclasses import dataclass, asdict\n\n@dataclass\nclass S:\n    a: int = 1\n\n    def __post_init__(self):\n        self.more = 2\n\nc = asdict(S())",
        {"a": 1},
    ),
    "a flat copy": (
        "import copy\nb = {'a': {'x': 1}, 'n': 1}\nc, d, e = b.copy(), copy.deepcopy(b), copy.copy(b)\nb['a']['x'] = 2\nb['n'] = 3\nc['d'], c['e'] = d['a']['x'], e['a']['x']\nc['x'] = c.pop('a')['x']",
        {"n": 1, "d": 1, "e": 2, "x": 2},
    ),
    "any and all": ("c = {'a': any([False, True]), 'b': all([True, False]), 'c': all([])}", {"a": True, "b": False, "c": True}),
    "parts of texts and lists": (
        "t = 'abcd'\nc = {'a': t[1:3], 'b': t[-1], 'c': [1, 2, 3][1:], 'd': len(t), 'e': t * 2}",
        {"a": "bc", "b": "d", "c": [2, 3], "d": 4, "e": "abcdabcd"},
    ),
    "a default of a flag that ends a turn": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=1)\nc = {}\nargs = p.parse_args()\nfor n in [2, args.n]:\n    if n % 2:\n        continue\n    c['a'] = n",
        {"a": 2},
    ),
    "a variable that is set already": (
        "import os\nos.environ.setdefault('A', 'x')\nos.environ.setdefault('A', 'y')\nc = {'a': os.environ['A'], 'b': os.environ.setdefault('A', 'z')}",
        {"a": "x", "b": "x"},
    ),
    "comparisons in a row": ("c = {'a': 1 < 2 < 3, 'b': 1 < 3 < 2, 'c': sorted([3, 1])[0]}", {"a": True, "b": False, "c": 1}),
}
"""Statements that make the config `c`, and what is evaluated of it; None stands for a value that is not known."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_python_runs_it(name: str) -> None:
    text, expected = PROGRAMS[name]
    files = programs.Made({"train.py": text + "\n" + CALL.format(config="c")})
    (claim,) = python.claims(files)
    found = {path[1:]: leaf.value for path, leaf in claim.leaves.items() if path[0] == "config"}
    assert found == {path: value for key, given in expected.items() for path, value in _paths((key,), given)}
    if not missing():
        (answer,) = python.answers([files])
        verdict = python.compare(files, answer)
        assert (answer["error"], verdict.wrong) == ("", [])
        assert verdict.values > 0


def _paths(path: tuple[str | int, ...], given: object) -> list[tuple[tuple[str | int, ...], object]]:
    return [((*path, index), one) for index, one in enumerate(given)] if isinstance(given, list) else [(path, given)]


@pytest.mark.parametrize(
    ("start", "counts"),
    [
        ("n = [0]", "n[0] += 1\n    return n[0]"),
        ("n = {'a': 0}", "n['a'] += 1\n    return n['a']"),
        ("n = 0", "global n\n    n += 1\n    return n"),
        ("class C:\n    n = 0", "C.n += 1\n    return C.n"),
    ],
)
def test_a_function_counts_the_turns_of_a_loop(start: str, counts: str) -> None:
    """The first turn of a loop of unknown length does not decide for the others."""
    text = f"import time\n{start}\ndef count():\n    {counts}\nc = {{'a': [1]}}\nfor _ in range(int(time.time()) % 2 + 2):\n"
    files = programs.Made({"train.py": f"{text}    if count() == 2:\n        c['a'] = True\n{CALL.format(config='c')}"})
    (claim,) = python.claims(files)
    assert not claim.leaves["config", "a"].is_known
    if not missing():
        (answer,) = python.answers([files])
        assert python.compare(files, answer).wrong == []


def test_an_unknown_value_names_its_place() -> None:
    (claim,) = python.claims(programs.Made({"train.py": "import random\nn = random.random()\n" + CALL.format(config="{'a': n}")}))
    leaf = claim.leaves["config", "a"]
    assert not leaf.is_known
    assert leaf.is_placed


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_call_that_is_never_reached_is_no_claim() -> None:
    files = programs.Made({"train.py": "import sys\nif True:\n    sys.exit()\n" + CALL.format(config="{'a': 1}")})
    (answer,) = python.answers([files])
    assert answer == {"calls": [], "error": ""}
