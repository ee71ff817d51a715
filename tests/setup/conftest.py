"""Every test of this folder names files that are nowhere, and stands in a folder of its own."""

import pytest


@pytest.fixture(autouse=True)
def _apart(own_folder: None) -> None: ...
