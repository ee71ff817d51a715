"""The fixture through which tests ask DeepSpeed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import pytest

from tests.engine.harness import Engine


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Workers that hold the real DeepSpeed. Without it the test is skipped, or fails where REQUIRE_DEEPSPEED is set, as in CI."""
    if importlib.util.find_spec("deepspeed") is None:
        if os.environ.get("REQUIRE_DEEPSPEED"):
            pytest.fail("REQUIRE_DEEPSPEED is set, and deepspeed is not installed")
        pytest.skip("deepspeed is not installed")
    # With pytest-xdist every one of its workers has an Engine; one process each is then enough.
    with Engine(jobs=1 if os.environ.get("PYTEST_XDIST_WORKER") else 2) as session:
        yield session
