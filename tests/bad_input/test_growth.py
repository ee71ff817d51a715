"""The work on hostile input grows as the input does: no regular expression and no loop takes quadratic time."""

from __future__ import annotations

import re

import pytest

from dslint.evaluate.python import read
from tests.bad_input.inputs import GROWING
from tests.growth import assert_linear


@pytest.mark.slow
@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("name", GROWING)
def test_work_is_linear(name: str) -> None:
    size, work = GROWING[name]
    assert_linear(lambda n: lambda: work(n), size)


SEARCHED = {name: value for name, value in vars(read).items() if isinstance(value, re.Pattern)}
"""What is searched in the text of a program."""


@pytest.mark.parametrize("word", ["param_groups\n", '["lr"] = 1\n', "a._attn_implementation\n", "a.", "torch.no_grad ", "train_", "save "])
@pytest.mark.parametrize("name", SEARCHED)
def test_a_text_is_searched_in_linear_time(name: str, word: str) -> None:
    assert_linear(lambda n: lambda: SEARCHED[name].search(word * n), 2_000)
