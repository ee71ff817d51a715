"""The list of refusals, and the table of them."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import contracts
from docs_pages_writing.coverage_page import REASONS, read_entries

ROOT = Path(__file__).resolve().parents[2]

SOURCE = '''"""A module."""

class Plugin:
    def check(self, args):
        """Raises if DeepSpeed is off; a docstring is no condition."""
        if args.size > 1:
            raise ValueError("size")
        if args.deepspeed and args.fsdp:
            raise ValueError(
                f"{args.fsdp} is not "
                "possible with this"
            )
        elif args.other:
            raise TypeError("reached without both")
        assert args.zero_stage == 3, "needs %s" % 3
        assert isinstance(args.deepspeed, str)

    def early(self, args):
        is_zero3 = is_deepspeed_zero3_enabled()
        if not is_zero3:
            return
        logger.warning_once("is lost")
        raise Unsupported

    def text(self):
        warnings.warn("DeepSpeed drops it")
        print("DeepSpeed runs")


def deepspeed_launcher():
    sys.exit("no port")
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    (folder / "tests").mkdir(parents=True)
    (folder / "state.py").write_text(SOURCE, encoding="utf-8")
    (folder / "tests" / "test_deepspeed.py").write_text("assert deepspeed == 1, 'left out'\n", encoding="utf-8")
    return folder


def test_refusals_under_conditions_about_deepspeed_are_listed(package: Path) -> None:
    assert contracts.refusals(package) == [
        "library.state.Plugin.check AssertionError: needs %s",
        "library.state.Plugin.check TypeError: reached without both",
        "library.state.Plugin.check ValueError: {} is not possible with this",
        "library.state.Plugin.early Unsupported",
        "library.state.Plugin.early warning: is lost",
        "library.state.Plugin.text warning: DeepSpeed drops it",
        "library.state.deepspeed_launcher SystemExit: no port",
    ]


def test_a_release_is_compared_with_the_table(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "coverage.tsv"
    rows = [f"contracts\t{line}\tfine" for line in contracts.refusals(package)]
    monkeypatch.setattr(contracts, "COVERAGE", table)
    table.write_text("\n".join(rows), encoding="utf-8")
    assert contracts.main(["compare", str(package)]) == 0
    table.write_text(
        "\n".join([*rows[1:], "contracts\tlibrary.old ValueError: gone\tfine", "contracts\tlibrary2.x ValueError: y\tfine"]),
        encoding="utf-8",
    )
    assert contracts.main(["compare", str(package)]) == 1
    printed = capsys.readouterr().out
    assert printed == (
        "## Added: library\n\n- library.state.Plugin.check AssertionError: needs %s\n\n## Removed: library\n\n- library.old ValueError: gone\n\n"
    )


def test_each_refusal_of_the_table_has_one_line_and_a_rule_or_a_reason() -> None:
    entries = [entry for entry in read_entries(ROOT / "docs" / "coverage.tsv") if entry.source == contracts.SOURCE]
    assert [line for line, count in Counter(entry.line for entry in entries).items() if count > 1] == []
    assert [entry for entry in entries if not entry.found and entry.answer.partition(":")[0] not in REASONS] == []
    assert {entry.line.partition(".")[0] for entry in entries} == {
        "accelerate",
        "axolotl",
        "gpt_neox",
        "lightning",
        "llamafactory",
        "megatron_ds",
        "openrlhf",
        "peft",
        "swift",
        "transformers",
        "trl",
    }
