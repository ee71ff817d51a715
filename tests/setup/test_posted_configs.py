"""Configs in a text that people post: in a block of Markdown, between the lines of a question, with dots for what is left out."""

from __future__ import annotations

import pytest

from dslint.lint.results import FileResult
from tests.setup.folder import Folder

BLOCK = '{\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimisation": {"stage": 2}\n}\n'
QUESTION = "Hi, training fails with {} and this config:\n\n"


def checked(folder: Folder, text: str, name: str = "post.txt") -> FileResult:
    folder.write({name: text})
    return folder.results(name)[name]


@pytest.mark.parametrize("name", ["post.txt", "issue.md", "post"])
@pytest.mark.parametrize("before", ["```json\n", "", "~~~\n"])
def test_the_config_is_judged_at_its_place(folder: Folder, name: str, before: str) -> None:
    found = checked(folder, f"{QUESTION}{before}{BLOCK}{before and before[:3]}\nAny ideas?\n", name)
    (one,) = found.diagnostics
    line = 5 + bool(before)
    assert (one.code, one.range and one.range.start.line, one.fix) == ("DS102", line, None)  # a fix would have to keep the text
    assert found.note == f"a text with a config in the lines {line - 2} to {line + 1}; nothing else in it is read."
    assert found.not_judged == ()


def test_each_config_is_judged(folder: Folder) -> None:
    found = checked(folder, f"{QUESTION}{BLOCK}and then\n{BLOCK}")
    assert [one.range and one.range.start.line for one in found.diagnostics] == [5, 10]
    assert "2 configs in the lines 3 to 6 and 8 to 11" in (found.note or "")


def test_dots_leave_a_section_open(folder: Folder) -> None:
    text = QUESTION + '{\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimization": {\n    "stage": 7,\n    ...\n  },\n  ...\n}\n'
    found = checked(folder, text)
    assert [one.code for one in found.diagnostics] == ["DS107"]
    (reason,) = found.not_judged
    assert reason.reason == "dots stand for keys that are left out; only those that are written were checked."
    assert reason.range is not None
    assert reason.range.start.line == 7


def test_a_missing_brace_does_not_swallow_the_text(folder: Folder) -> None:
    text = QUESTION + '{\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimization": {\n    "stage": 2\n}\nand it says "KeyError".\n'
    assert [one.code for one in checked(folder, text).diagnostics] == ["DS001"]


def test_comments_above_a_config_are_no_post(folder: Folder) -> None:
    found = checked(folder, f"# ours\n// for 8 GPUs\n{BLOCK}")
    assert found.note is None
    assert any(one.code == "DS102" and one.fix is not None for one in found.diagnostics)


@pytest.mark.parametrize("text", ['The loss:\n{"loss": 2}\n', "Use {} here.\n", "def f():\n    {}\n"])
def test_a_text_without_a_config_is_none(folder: Folder, text: str) -> None:
    assert "a text with" not in (checked(folder, text).note or "")


def test_a_config_by_its_name_is_read_as_one(folder: Folder) -> None:
    assert "DS001" in [one.code for one in checked(folder, f"{QUESTION}{BLOCK}", "ds_config.json").diagnostics]
