"""The generated pages: the committed index is up to date, rules and keys have their pages, and links lead somewhere."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click
import pytest

from dslint.cli import COMMANDS, cli
from dslint.registry.rules import all_rules
from dslint.schemas.auto import FILLED, MISMATCH_CHECKED

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.append(str(ROOT / "scripts"))

import docs_pages  # noqa: E402 - a script, found by the line above
from docs_pages_writing import coverage_page, markdown, places  # noqa: E402
from docs_pages_writing.own_rules import own_rules  # noqa: E402

LINK = re.compile(r"\]\(([^)\s#:]*)(?:#([^)\s]+))?(?: \"[^\"]*\")?\)")
FENCE = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)


OF_PAGES = pytest.mark.slow
"""To write all pages takes six seconds of each worker."""


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return docs_pages.site_pages(playground=False)


def test_the_committed_index_is_up_to_date() -> None:
    """`python scripts/docs_pages.py` writes it."""
    assert docs_pages.main(["--check"]) == 0


@OF_PAGES
def test_every_rule_has_a_page_with_its_examples(pages: dict[str, str]) -> None:
    for rule in own_rules():
        page = pages[f"rules/{rule.code}.md"]
        assert page.startswith(f"# {rule.code} {rule.name}\n\n")
        assert page.count(f"[{rule.code}] {rule.name}\n") >= len(rule.bad), f"{rule.code}: an example is not found"
        assert f"]({rule.code}.md)" in pages["rules/README.md"]


@OF_PAGES
def test_every_key_is_in_the_reference(pages: dict[str, str]) -> None:
    for dotted in [*places.keys()]:
        place = places.place(dotted)
        assert place is not None
        page, _, anchor = place.partition("#")
        assert anchor in anchors(pages[f"keys/{page}"]), dotted


@OF_PAGES
def test_every_command_and_option_is_in_the_reference(pages: dict[str, str]) -> None:
    page = pages["commands.md"]
    for name in COMMANDS:
        section = page.split(f"## dslint {name}\n")[1].partition("\n## dslint ")[0]
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
        assert [option.opts for option in options if max(option.opts, key=len) not in section] == [], name


@OF_PAGES
def test_links_between_the_pages_lead_somewhere(pages: dict[str, str]) -> None:
    broken = []
    for name, text in pages.items():
        for target, anchor in LINK.findall(FENCE.sub("", text)):
            path = (DOCS / name).parent / target if target else DOCS / name
            found = os.path.relpath(path, DOCS).replace(os.sep, "/")
            there = pages.get(found) or (path.read_text(encoding="utf-8") if path.is_file() else None)
            if there is None or (anchor and anchor not in anchors(there)):
                broken.append(f"{name}: {target}#{anchor}")
    assert broken == []


def anchors(text: str) -> list[str]:
    """The anchors of a page; each must be unique, or the site numbers them."""
    found = [places.anchor(heading) for heading in re.findall(r"^#+ (.+?)(?: \{:.*)?$", FENCE.sub("", text), re.MULTILINE)]
    assert len(found) == len(set(found)), sorted(found)
    return found


@OF_PAGES
def test_nothing_in_the_pages_runs_as_a_command(pages: dict[str, str]) -> None:
    assert [name for name, text in pages.items() if re.search(r"^```(console|python)$", text, re.MULTILINE)] == []


def test_the_page_on_auto_says_who_fills_what() -> None:
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| (.+?) \|$", (DOCS / "auto.md").read_text(encoding="utf-8"), re.MULTILINE)
    trainer, accelerate = FILLED["transformers"], FILLED["accelerate"]
    checked = MISMATCH_CHECKED["transformers"]
    expected = [
        (
            key,
            markdown.escape(trainer.get(key, "not replaced")) + " =" * (key in checked),
            markdown.escape(accelerate.get(key, "not replaced")),
        )
        for key in dict.fromkeys([*trainer, *accelerate])
    ]
    assert rows == expected


def test_the_tutorial_begins_with_the_example() -> None:
    block = re.search(r"^```json\n(.*?)^```$", (DOCS / "tutorial.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert block is not None
    assert block[1] == (ROOT / "examples/ds_config.json").read_text(encoding="utf-8")


# ------------------------------------------------------------------ coverage


def coverage(folder: Path, text: str) -> str:
    data = folder / "coverage.tsv"
    data.write_text(text, encoding="utf-8")
    return coverage_page.coverage_page(coverage_page.read_entries(data))


def test_the_coverage_counts_and_links(tmp_path: Path) -> None:
    page = coverage(
        tmp_path,
        "source\tline\trules or reason\nmistakes\tM1 offload <below> stage 3\tDS501, DS201\nmistakes\tM2 a | bar\tonly the program knows\nobserved\tO1\tDS104\n",
    )
    assert "| Public threads | 2 | 1 | 1 |" in page
    assert "| **all** | 3 | 2 | 1 |" in page
    assert '[DS501](rules/DS501.md "offload-param-below-stage-3"), [DS201](rules/DS201.md "batch-size-product")' in page
    assert "| M2 a \\| bar | only the program knows |" in page
    assert page.index("## Public threads") < page.index("## Observed behaviour")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mistakes\tM1\n", "line 2: it must have a source, a description, and rules or a reason"),
        ("mistakes\tM1\tDS000\n", "line 2: unknown rule DS000"),
        ("blogs\tM1\tDS501\n", 'line 2: unknown source "blogs"'),
    ],
)
def test_a_coverage_file_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(coverage_page.CoverageError, match=said):
        coverage(tmp_path, f"source\tline\trules\n{line}")


# ------------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a * b and [c] <d>", r"a \* b and \[c\] &lt;d>"),
        ("code `a_b * <c>` stays", "code `a_b * <c>` stays"),
        ("snake_case stays, _emphasis_ does not", r"snake_case stays, \_emphasis\_ does not"),
    ],
)
def test_text_is_escaped_outside_of_code(text: str, escaped: str) -> None:
    assert markdown.escape(text) == escaped


@pytest.mark.parametrize(
    ("value", "written"), [(500_000_000, "5e8"), (None, "null"), (True, "true"), ((0.9, 0.95), "[0.9, 0.95]"), (1000, "1000")]
)
def test_values_are_written_as_in_a_config(value: object, written: str) -> None:
    assert markdown.literal(value) == written


def test_the_page_on_setups_lists_each_rule_about_them() -> None:
    table = (DOCS / "setups.md").read_text(encoding="utf-8").partition("## The checks")[2]
    listed = set(re.findall(r"DS9\d\d", table))
    for first, last in re.findall(r"DS(9\d\d) to DS(9\d\d)", table):
        listed |= {f"DS{number}" for number in range(int(first), int(last) + 1)}
    assert listed == {rule.code for rule in all_rules() if rule.code.startswith("DS9")}
