"""Comments that ignore: which findings they cover, and what is said of those that cover none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dslint.config.load import take
from dslint.facts import Facts, Integration, Release
from dslint.lint.document import lint_loaded
from dslint.lint.results import FileResult
from dslint.registry.rules import default_rules
from dslint.rule import RuleInfo
from dslint.source.parse import parse
from dslint.suppress.comments import apply_comments
from tests.command import dslint

ALONE = Facts(integration=Integration.DEEPSPEED)


def lint(text: str, rules: Sequence[RuleInfo] = default_rules()) -> FileResult:
    return apply_comments(lint_loaded(take(parse(text), ALONE), "c.hjson", rules))


def codes(text: str) -> tuple[list[str], list[tuple[str, str | None]]]:
    linted = lint(text)
    return [d.code for d in linted.diagnostics], [(s.diagnostic.code, s.reason) for s in linted.suppressed]


STAGE = '{"train_micro_batch_size_per_gpu": 4,\n "zero_optimization": {\n  "stage": 2,\n%s  "offload_param": {"device": "cpu", "nvme_pth": "/x"}%s\n}}'


def test_a_config_without_comments_has_both_findings() -> None:
    assert codes(STAGE % ("", "")) == (["DS501", "DS101"], [])


def test_a_line_of_its_own_is_for_the_member_below_and_all_in_it() -> None:
    assert codes(STAGE % ("// dslint: ignore[DS501, unknown-key-refused] known\n", "")) == ([], [("DS501", "known"), ("DS101", "known")])
    assert codes(STAGE % ("# dslint: ignore[DS501] known\n/* dslint: ignore[DS101] also known */\n", "")) == (
        [],
        [("DS501", "known"), ("DS101", "also known")],
    )


def test_at_the_end_of_a_line_it_is_for_the_line() -> None:
    assert codes(STAGE % ("", " // dslint: ignore[offload-param-below-stage-3] for now")) == (["DS101"], [("DS501", "for now")])
    found, suppressed = codes(STAGE.replace('"stage": 2,', '"stage": 2, // dslint: ignore[DS501] not here') % ("", ""))
    assert (found, suppressed) == (["DS007", "DS501", "DS101"], [])


def test_for_the_whole_file() -> None:
    text = STAGE % ("", "")
    for place in (f"// dslint: ignore-file[DS501,DS101] old\n{text}", f"{text}\n// dslint: ignore-file[DS501,DS101] old"):
        assert codes(place) == ([], [("DS501", "old"), ("DS101", "old")])
    assert codes(f"// dslint: ignore[DS501,DS101] above the root, so all of it\n{text}")[0] == []


def test_above_the_first_key_of_a_file_without_braces() -> None:
    text = "// dslint: ignore[DS102] {}\n{}: 1\ntrain_micro_batch_size_per_gpu: 4\n"
    assert "DS102" not in codes(text.format("mine", "zero_optimisation"))[0]
    assert "DS102" in codes(text.format("mine", "x") + "zero_optimisation: {}\n")[0]


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("// dslint: ignore", "no rules in brackets"),
        ("// dslint: ignore all of it", "no rules in brackets"),
        ("// dslint: ignore[]", "names no rule"),
        ("// dslint: disable[DS501] x", 'nknown dslint directive "disable[DS501]"'),
        ("// dslint: ignore[DS5] x", 'nknown rule "DS5"'),
        ("// dslint: ignore[ALL] x", 'nknown rule "ALL"'),
        ("// dslint: ignore[offload-parm-below-stage-3] x", 'Did you mean "offload-param-below-stage-3"?'),
    ],
)
def test_a_malformed_comment_is_a_finding_and_ignores_nothing(comment: str, words: str) -> None:
    linted = lint(STAGE % (comment + "\n", ""))
    assert [d.code for d in linted.diagnostics] == ["DS006", "DS501", "DS101"]
    assert words in linted.diagnostics[0].message


def test_a_comment_without_a_reason_works_and_is_a_finding() -> None:
    found, suppressed = codes(STAGE % ("// dslint: ignore[DS501]\n", ""))
    assert (found, suppressed) == (["DS006", "DS101"], [("DS501", None)])


def test_other_comments_are_left_alone() -> None:
    assert codes(STAGE % ("// see the docs of dslint: ignore[DS501] is how to ignore\n", ""))[0] == ["DS501", "DS101"]


def test_unused_is_only_said_of_rules_that_were_asked() -> None:
    text = '// dslint: ignore-file[DS201, DS501] x\n{"train_micro_batch_size_per_gpu": 4}'
    said = [d.message for d in lint(text).diagnostics if d.code == "DS007"]
    assert said == ["This comment ignores DS501, but DS501 finds nothing in this file."]
    without = lint(text, [rule for rule in default_rules() if rule.code != "DS501"])
    assert [d.code for d in without.diagnostics] == []


def test_a_comment_with_nothing_below_it() -> None:
    text = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2\n // dslint: ignore[DS501] x\n}, "steps_per_print": 10}'
    assert [d.message for d in lint(text).diagnostics] == ["This comment ignores DS501, but no key follows it."]


def test_no_ignores_reports_everything(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "ds.hjson"
    file.write_text(STAGE % ("// dslint: ignore[DS501,DS101] known\n", ""), encoding="utf-8")
    quiet = dslint("check", file, "--integration", "deepspeed")
    assert quiet.returncode == 0
    assert "2 findings suppressed" in quiet.stdout
    loud = dslint("check", file, "--integration", "deepspeed", "--no-ignores")
    assert loud.returncode == 1
    assert "DS501" in loud.stdout


def test_one_comment_may_be_for_the_findings_about_comments() -> None:
    text = '// dslint: ignore-file[DS006, DS007] ours\n// dslint: ignore[DS501]\n{"train_micro_batch_size_per_gpu": 4}'
    assert codes(text) == ([], [("DS006", "ours"), ("DS007", "ours")])


def test_an_upgrade_reports_no_comments() -> None:
    text = '// dslint: ignore-file[DS501] x\n{"train_micro_batch_size_per_gpu": 4}'
    between = Facts(integration=Integration.DEEPSPEED, upgrade_from=Release(0, 14, 5))
    assert [d.code for d in lint(text).diagnostics] == ["DS007"]
    changes = apply_comments(lint_loaded(take(parse(text), between), "c.hjson", default_rules()))
    assert not [d for d in changes.diagnostics if d.code == "DS007"]


def test_a_comment_that_one_training_needs_is_used(tmp_path: Path) -> None:
    text = '{"gradient_accumulation_steps": 1 // dslint: ignore[DS904] the second training\n, "zero_optimization": {"stage": 2}}'
    (tmp_path / "ds.hjson").write_text(text, encoding="utf-8")
    for name, steps in (("a", 1), ("b", 2)):
        training = f"deepspeed: ds.hjson\noutput_dir: x\nper_device_train_batch_size: 4\ngradient_accumulation_steps: {steps}\n"
        (tmp_path / f"{name}.yaml").write_text(training, encoding="utf-8")
    arguments = ("check", "--integration", "transformers", "--output-format", "concise")
    assert "DS904" in dslint(*arguments, "--no-ignores", cwd=tmp_path).stdout
    done = dslint(*arguments, cwd=tmp_path)
    assert "DS904" not in done.stdout
    assert "DS007" not in done.stdout
