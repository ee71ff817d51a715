"""What dslint finds in the program of an example it finds in the same program as others write it: some examples here, all of them when slow.

Each example is rewritten in some of the ways; `python -m tests.judges reach --whole` rewrites every one in all of them.
"""

from __future__ import annotations

import ast
from zlib import crc32

import pytest

from tests.judges import reach
from tests.judges.reach import cases, known, rewritten
from tests.judges.rewrites import CONFIG, PROGRAM, REWRITES, parts_of

SHARES = 5
"""One in so many rewrites of an example is tried: all of them take six minutes of a processor."""

FEW = 61
"""One in so many examples is rewritten where all would take too long."""

TRAINING = f"""\
import torch
import deepspeed
class Net(torch.nn.Module):
    pass
net = Net()
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="{CONFIG}")
for batch in loader:
    engine.backward(engine(batch))
    engine.step()
"""


@pytest.mark.parametrize("rewrite", REWRITES, ids=lambda one: one.__name__)
def test_a_rewritten_program_is_python_and_does_the_same_calls(rewrite: object) -> None:
    parts = parts_of(TRAINING)
    assert parts is not None
    assert callable(rewrite)
    files = rewrite(parts)
    if files is None:
        pytest.skip("the program has no place for it")
    programs = [text for name, text in files.items() if name.endswith(".py")]
    calls = [ast.unparse(node.func) for text in programs for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    together = " ".join(calls) if programs else files["train.ipynb"]
    for name in ("initialize", "backward", "step"):
        assert name in together


@pytest.mark.parametrize("text", ["def f(:", "x = 1\ndef f():\n    return x\n", "if __name__ == '__main__':\n    pass\n", "import os\n"])
def test_a_program_that_cannot_be_rewritten_is_left(text: str) -> None:
    assert parts_of(text) is None


def test_what_is_lost_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(one for one in cases() if one.is_bad and any(True for _ in rewritten(one)))

    def empty(_parts: object) -> dict[str, str]:
        return {PROGRAM: "print()\n"}

    monkeypatch.setattr(reach, "REWRITES", (empty,))
    assert [one.lost for one in rewritten(case)] == [True]


def test_the_known_losses_have_reasons() -> None:
    assert [name for name, why in known().items() if not why] == []


@pytest.mark.slow
def test_nothing_is_lost_in_another_form() -> None:
    assert lost_or_added(0, FEW) == []


@pytest.mark.slow
@pytest.mark.parametrize("start", range(4))
def test_nothing_is_lost_in_another_form_of_any_example(start: int) -> None:
    assert lost_or_added(start, 4) == []


def lost_or_added(start: int, step: int) -> list[str]:
    """What is not known of these examples, each rewritten in some of the ways.

    Its name decides in which: counted by its place, a new example had all behind it rewritten in other ways.
    """
    chosen = [case for number, case in enumerate(cases()) if number % step == start]
    done = [one for case in chosen for one in rewritten(case, crc32(case.name.encode()), SHARES)]
    return [str(one) for one in done if (one.lost or one.added) and str(one) not in known()]
