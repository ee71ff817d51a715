"""Why a job ended as it did, and what else its log shows, by topic."""

from __future__ import annotations

from dslint.diagnose.causes.notices import find_notices
from dslint.diagnose.causes.rank import find_causes, follows

__all__ = ["find_causes", "find_notices", "follows"]
