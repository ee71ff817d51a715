"""Tracebacks whose lines were copied into one."""

from __future__ import annotations

import pytest

from dslint.diagnose.diagnosis import End
from dslint.diagnose.flattened import lines_in
from tests.diagnose.logs import RETURNED, STARTED, diagnosed, traceback
from tests.growth import assert_linear

FRAMES = (("run.py", 3, "<module>", "main()"), ("me/data.py", 9, "load", "return table[key]"))


@pytest.mark.parametrize("blanks", [" ", "          ", "          [10/1911]  "])
@pytest.mark.parametrize("error", ["KeyError: 'labels'", "torch.cuda.OutOfMemoryError: CUDA out of memory.", "KeyboardInterrupt"])
def test_a_traceback_in_one_line_is_read_as_its_lines(blanks: str, error: str) -> None:
    """A terminal that shows its place in a long output writes it behind the first line."""
    whole = traceback(error, *FRAMES)
    head, _, rest = whole.partition("\n")
    flat = f"{head}{blanks}{' '.join(line.strip() + ' ' * 20 for line in rest.splitlines())}"
    assert [line.strip() for line in lines_in(flat) if not line.strip().startswith("[10/")] == [line.strip() for line in whole.splitlines()]
    found, plain = (diagnosed(STARTED, text, RETURNED.format(code=1)) for text in (flat, whole))
    assert [(cause.title, cause.why, cause.advice) for cause in found.causes] == [
        (cause.title, cause.why, cause.advice) for cause in plain.causes
    ]


def test_a_chain_in_one_line_is_a_chain() -> None:
    first, second = traceback("KeyError: 'a'", *FRAMES), traceback("ValueError: no column a", *FRAMES)
    chain = f"{first}\n\nThe above exception was the direct cause of the following exception:\n\n{second}"
    flat = " ".join(chain.split())
    assert [line.strip() for line in lines_in(flat) if line.strip()] == [line.strip() for line in chain.splitlines() if line.strip()]
    assert [cause.title for cause in diagnosed(STARTED, flat).causes] == [cause.title for cause in diagnosed(STARTED, chain).causes]


def test_a_traceback_in_one_line_may_be_cut() -> None:
    found = diagnosed(" ".join(traceback("", *FRAMES).split()))
    assert found.outcome.end is End.FAILED
    assert "the traceback ends before its error" in found.causes[0].title


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        "[rank0]: Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        'UserWarning: deprecated (see File "a.py", line 3, in f) twice File "b.py", line 4, in g',
        "print('Traceback (most recent call last):')",
    ],
)
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert lines_in(line) == [line]


def test_the_time_is_linear_in_the_line() -> None:
    assert_linear(lambda size: lambda: lines_in("Traceback (most recent call last):" + ' File "a.py", line 3, in f A' * size), 500)
