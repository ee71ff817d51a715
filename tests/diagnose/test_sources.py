"""The files that entries name as their sources exist in the installed libraries."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dslint.diagnose.texts import entries

LIBRARIES = ("deepspeed", "accelerate", "transformers", "lightning")


@pytest.mark.deepspeed
@pytest.mark.integrations
@pytest.mark.parametrize("library", LIBRARIES)
def test_source_files_exist(library: str) -> None:
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None:
        pytest.skip(f"{library} is not installed")
    named = {source for entry in entries() for source in entry.sources if source.startswith(f"{library}/") and source.endswith(".py")}
    assert named
    assert not [source for source in sorted(named) if not (Path(found.origin).parents[1] / source).is_file()]
