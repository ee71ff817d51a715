"""GitLab Code Quality."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.config.context import Context
from dslint.diagnostics import Effect, Phase, Severity
from dslint.lint.results import FileResult, Results
from dslint.suppress.fingerprints import fingerprints

from . import readers
from .scenes import SCENES, files, found, suppressed, written


@pytest.mark.parametrize("scene", SCENES)
def test_every_finding_has_what_gitlab_requires(scene: str) -> None:
    results = SCENES[scene]()
    report = readers.gitlab(written(results, "gitlab"))
    assert [one["fingerprint"] for one in report][: len(results.diagnostics)] == fingerprints(results.diagnostics)


@pytest.mark.parametrize(
    ("effect", "severity", "expected"),
    [
        (Effect.CRASH, None, "blocker"),
        (Effect.SILENT, None, "critical"),
        (Effect.IGNORED, None, "major"),
        (Effect.CRASH, Severity.WARNING, "major"),
        (Effect.SLOW, None, "minor"),
        (Effect.ADVICE, None, "info"),
    ],
)
def test_severities(effect: Effect, severity: Severity | None, expected: str) -> None:
    phase = Phase.PARSE if effect is Effect.CRASH else None
    one = found("a.json", "DS103", "n", effect, "m", phase=phase, severity=severity or effect.severity)
    (finding,) = readers.gitlab(written(Results(Context(), (FileResult("a.json", "ds_config", None, (one,)),)), "gitlab"))
    assert finding["severity"] == expected


def test_an_unreadable_file_is_a_finding_and_a_suppressed_finding_is_none() -> None:
    finding = readers.gitlab(written(files(), "gitlab"))[-1]
    assert (finding["check_name"], finding["location"]["path"]) == ("unreadable", "x.json")
    assert finding["description"] == "unreadable: cannot be opened: Permission denied"
    assert len(readers.gitlab(written(suppressed(), "gitlab"))) == 1


def test_nothing_found_is_an_empty_array() -> None:
    assert written(SCENES["clean"](), "gitlab") == "[]\n"


@pytest.mark.parametrize(("path", "expected"), [("ds.json", "work/ds.json"), ("../ds.json", "ds.json"), ("../../ds.json", "../../ds.json")])
def test_paths_start_at_the_root_of_the_project(path: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project" / "work").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "work")
    monkeypatch.setenv("CI_PROJECT_DIR", str(tmp_path / "project"))
    results = Results(Context(), (FileResult(path, "ds_config", None, (found(path, "DS103", "n", Effect.SLOW, "m"),)),))
    assert [finding["location"]["path"] for finding in readers.gitlab(written(results, "gitlab"))] == [expected]
