"""The work on hostile input grows as the input does: no regular expression and no loop takes quadratic time."""

from __future__ import annotations

import pytest

from tests.bad_input.inputs import GROWING
from tests.growth import assert_linear


@pytest.mark.slow
@pytest.mark.parametrize("name", GROWING)
def test_work_is_linear(name: str) -> None:
    size, work = GROWING[name]
    assert_linear(lambda n: lambda: work(n), size)
