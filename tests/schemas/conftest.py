"""DeepSpeed, where it is installed."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

import pytest


@pytest.fixture(scope="session")
def deepspeed() -> Any:
    """The real DeepSpeed, on the CPU and silent."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("deepspeed", exc_type=ImportError)
        import deepspeed.runtime.config  # noqa: F401  what the tests reach for
    logging.getLogger("DeepSpeed").setLevel(logging.CRITICAL)
    if module.__version__ != "0.19.8":
        pytest.skip(f"the newest release that dslint knows is 0.19.8, not {module.__version__}")
    return module
