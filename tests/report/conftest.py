"""Reports are written as on a machine that builds nothing: where GitLab builds, some name files from another root."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def no_gitlab() -> Iterator[None]:
    """For the whole session, because Hypothesis does not want fixtures that are made anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CI_PROJECT_DIR", raising=False)
        yield
