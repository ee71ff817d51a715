"""The question whether newer releases exist."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from packaging.version import Version

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import newest

COMPARED = {name: str(release) for name, release in newest.known().items()}


def answered(**newer: str) -> dict[str, Version]:
    return {name.lower(): Version(newer.get(name.lower(), release)) for name, release in COMPARED.items()}


ACTIONS = newest.pinned()


def test_nothing_is_newer(capsys: pytest.CaptureFixture[str]) -> None:
    assert newest.main(answered().__getitem__, ACTIONS.__getitem__) == 0
    assert capsys.readouterr().out.count("newer") == 0


def test_a_newer_release_is_named_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert newest.main(answered(torch="99.0").__getitem__, ACTIONS.__getitem__) == 1
    row = next(line for line in capsys.readouterr().out.splitlines() if "newer" in line)
    assert row.startswith("| torch |")
    assert "99.0" in row


def test_a_patch_of_a_compared_line_of_releases_is_not_newer() -> None:
    assert not newest.is_newer(Version("2.13.7"), Version("2.13"))
    assert newest.is_newer(Version("2.14.0"), Version("2.13"))
    assert not newest.is_newer(Version("2.9.1"), Version("2.13"))
    assert newest.is_newer(Version("0.19.9"), Version("0.19.8"))


def test_an_index_that_does_not_answer_is_not_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    def silent(package: str) -> Version:
        raise newest.Unanswered(f"{package}: no answer")

    assert newest.main(silent, ACTIONS.__getitem__) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no answer" in printed.err


def test_a_newer_action_is_named_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"actions/cache", "actions/checkout", "actions/setup-python"} <= ACTIONS.keys()
    assert newest.main(answered().__getitem__, {**ACTIONS, "actions/cache": Version("99.0.0")}.__getitem__) == 1
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "newer" in line)
    assert row.startswith("| actions/cache |")


def test_every_action_is_pinned_to_a_runtime_that_runs() -> None:
    """GitHub has withdrawn Node 20, on which these ran before the releases named here."""
    needed = {
        "actions/cache": "5.0.0",
        "actions/checkout": "5.0.0",
        "actions/setup-python": "6.0.0",
        "actions/upload-artifact": "6.0.0",
        "actions/download-artifact": "7.0.0",
        "actions/deploy-pages": "5.0.0",
    }
    assert {action: str(ACTIONS[action]) for action, release in needed.items() if ACTIONS[action] < Version(release)} == {}
