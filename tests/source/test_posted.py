"""Programs as people post them: what is read of them, and at which places."""

from __future__ import annotations

import ast
import textwrap

import pytest

from dslint.source.posted import Posted, parse_posted

PROGRAM = """\
model = load("m")
for batch in loader:
    loss = model(
        batch,
    )
    loss.backward()
save(model)
"""

CALLS = ["load", "model", "backward", "save"]


def read(text: str) -> Posted:
    found = parse_posted(text)
    assert found is not None
    return found


def calls(found: Posted, text: str) -> list[str]:
    """The names of what is called, each read from its place in the text."""
    nodes = [node.func for node in ast.walk(found.tree) if isinstance(node, ast.Call)]
    at = sorted(nodes, key=lambda one: (one.lineno, one.col_offset))
    lines = [line.encode() for line in text.split("\n")]
    written = [lines[one.lineno - 1][one.col_offset : one.end_col_offset].decode() for one in at]
    assert [ast.unparse(one) for one in at] == written
    return [one.rpartition(".")[2] for one in written]


def prompted(text: str, first: str, further: str) -> str:
    """A text as an interpreter shows it; a line that begins a statement has its first prompt."""
    return "\n".join((first if line[:1].strip() and line[0] != ")" else further) + line for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        textwrap.indent(PROGRAM, "    "),
        textwrap.indent(PROGRAM, "\t"),
        textwrap.indent(PROGRAM, " " * 8).lstrip(),
        textwrap.indent(PROGRAM, " " * 8).replace("        save", "    save"),
        textwrap.indent(PROGRAM, " " * 8)
        .replace("        for", "    for", 1)
        .replace(" " * 12 + "loss", " " * 8 + "loss")
        .replace("        save", "save"),
        prompted(PROGRAM, ">>> ", "... "),
        prompted(PROGRAM, "In [3]: ", "   ...: "),
        prompted(PROGRAM, "In [3]: ", "   ...: ").replace("In [3]: save", "In [12]: save"),
        prompted(PROGRAM, ">>> ", "... ").replace(">>> for", "<Model 'm'>\n>>> for"),
        f"```python\n{PROGRAM}```\n",
        f"```\n{textwrap.indent(PROGRAM, '  ')}```",
        PROGRAM.replace("\n", "\r\n").replace("model", "  model", 1).replace("\nfor", "\n  for"),
        textwrap.indent(PROGRAM.replace('"m"', '"größe 模型"'), "  "),
        PROGRAM + "if done:\n    # and so on\n",
        PROGRAM + "def evaluate():\n    # left out\n\n\nclass Rest:\n    # left out\n",
        PROGRAM + "while more:",
    ],
)
def test_all_of_a_posted_program_is_read_at_its_places(text: str) -> None:
    with pytest.raises(SyntaxError):
        ast.parse(text)
    found = read(text)
    assert calls(found, text) == CALLS
    assert (found.broken, found.breaks_off) == (None, False)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("train(model=model, ...)\n", [None]),
        ("train(\n    model=model,\n    ...\n)\n", [None]),
        ("train(\n    model=model,\n    ....,\n    lr=1,\n)\n", [None, "lr"]),
    ],
)
def test_dots_behind_keywords_are_arguments_that_nobody_knows(text: str, names: list[str | None]) -> None:
    found = read(text)
    call = next(node for node in ast.walk(found.tree) if isinstance(node, ast.Call))
    assert [one.arg for one in call.keywords] == ["model", *names]
    assert found.broken is None


def test_dots_in_a_dict_are_entries_that_nobody_knows() -> None:
    found = read('config = {"stage": 3, ...}\nrun(config)\n')
    table = next(node for node in ast.walk(found.tree) if isinstance(node, ast.Dict))
    assert [None if key is None else ast.unparse(key) for key in table.keys] == ["'stage'", None]


@pytest.mark.parametrize(
    "text",
    [
        'first()\nrun(a=1, config={"stage": 3,\n    "b": [1,\n',
        'first()\nrun(a=1, config={"stage": 3,\n    "b": {"c',
        "first()\nrun(a=1, config=dict(stage=3, # three\n    b=\n",
    ],
)
def test_what_stands_before_the_end_of_a_text_that_breaks_off_is_read(text: str) -> None:
    found = read(text)
    assert found.breaks_off
    assert [ast.unparse(one.func) for one in ast.walk(found.tree) if isinstance(one, ast.Call)][:2] == ["first", "run"]
    run = next(one for one in ast.walk(found.tree) if isinstance(one, ast.Call) and ast.unparse(one.func) == "run")
    assert [one.arg for one in run.keywords] == ["a", "config", None]


@pytest.mark.parametrize(("text", "more"), [("run(a={1, 2", [None]), ("run(a=(1, 2", [])])
def test_a_set_and_a_tuple_that_break_off_are_closed(text: str, more: list[None]) -> None:
    """Neither can hold entries that nobody knows."""
    found = read(f"first()\n{text}")
    run = next(one for one in ast.walk(found.tree) if isinstance(one, ast.Call) and ast.unparse(one.func) == "run")
    assert (found.broken, found.breaks_off, [one.arg for one in run.keywords]) == (None, True, ["a", *more])


@pytest.mark.parametrize(
    "text", ["def f(:\n" * 9, "print 'a'\n" * 9, "{" * 50, ")\n" * 30, '"""' + "x\n" * 9, "if 1:\n  x\n y\nz(\n\n\n\n\nq w\n" * 4]
)
def test_a_text_that_is_no_program_is_not_read(text: str) -> None:
    found = parse_posted(text)
    assert found is None or found.broken or found.breaks_off


def test_a_line_of_prose_is_left_out() -> None:
    text = "This is what I run:\n" + PROGRAM
    found = read(text)
    assert (found.broken, calls(found, text)) == (1, CALLS)


def test_a_long_file_is_not_read_as_a_post() -> None:
    assert parse_posted(textwrap.indent(PROGRAM, "    ") + "\n" * 70_000) is None
