"""The machine around the rules: places, skipped rules, rules that fail, one finding per cause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dslint.config import Config
from dslint.config.context import Context
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import OLDEST, Facts, Integration, Release
from dslint.facts.find_release import ReleaseSource
from dslint.lint.document import lint_document, lint_text
from dslint.lint.guard import INTERNAL_ERROR
from dslint.registry.rules import default_rules, loaded_rules
from dslint.rule import Finding, Rule, rule
from dslint.source.parse import parse


def codes(text: str, facts: Facts | None = None) -> list[str]:
    result = lint_text(text, "c.json", facts or Facts(), default_rules())
    assert result is not None
    return [d.code for d in result.diagnostics]


def test_a_rule_that_needs_an_unknown_fact_is_skipped_and_counted() -> None:
    skipped = lint_document(parse('{"train_batch_size": 3}'), "c.json", Facts(), default_rules()).skipped
    assert ("DS201", "world_size") in {(skip.code, skip.needs) for skip in skipped}
    skipped = lint_document(parse('{"train_batch_size": 3}'), "c.json", Facts(world_size=3), default_rules()).skipped
    assert "DS201" not in {skip.code for skip in skipped}


def test_a_rule_that_raises_is_a_diagnostic_and_the_others_go_on() -> None:
    @rule("DS999", effect=Effect.ADVICE)
    def broken(config: Config) -> Iterator[Finding]:
        """Broken."""
        raise RuntimeError("no luck")

    found = lint_document(parse('{"zero_optimisation": {}}'), "c.json", Facts(), (broken, *default_rules())).diagnostics
    internal = [d for d in found if d.code == INTERNAL_ERROR]
    assert len(internal) == 1
    assert "DS999" in internal[0].message
    assert "no luck" in internal[0].message
    assert "DS102" in [d.code for d in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {"stage": 3, "offload_param": {"device": "cpu"}}}', ["DS102"]),
        ('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": "two", "offload_param": {"device": "cpu"}}}', ["DS104"]),
        ('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stge": 3, "offload_param": {"device": "cpu"}}}', ["DS101"]),
        ('{"train_micro_bach_size_per_gpu": 1}', ["DS102"]),
        ('{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1e400}', ["DS001"]),
    ],
)
def test_one_cause_gives_one_finding(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_auto_in_a_batch_key_gives_the_loader_away() -> None:
    result = lint_text(
        '{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1}}', "c.json", Facts(), default_rules()
    )
    assert result is not None
    assert result.facts.integration is Integration.TRANSFORMERS
    assert "train_batch_size" in dict(result.context.evidence)["integration"]
    assert [d.code for d in result.diagnostics] == []


def test_positions_are_those_of_the_text() -> None:
    text = '{\r\n  "train_micro_batch_size_per_gpu": 1,\r\n  "größe": 1, "zero_optimisation": {}\r\n}'
    result = lint_text(text, "c.json", Facts(), default_rules())
    assert result is not None
    place = next(d.range for d in result.diagnostics if d.code == "DS102")
    assert place is not None
    assert (place.start.line, place.start.column, place.end.column) == (3, 15, 34)
    assert text[place.start.offset : place.end.offset] == '"zero_optimisation"'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"train_micro_batch_size_per_gpu": 1}', "ds_config"),
        ('{"replace_with_kernel_inject": true, "dtype": "fp16", "tensor_parallel": {"tp_size": 2}}', "inference"),
        ('{"train_batch_size": {{ batch }}, "steps_per_print": 10}', "template"),
        ('{"train_batch_size": CONFIG_BATCH_SIZE, "steps_per_print": 10}', "template"),
        ('{"name": "left-pad", "version": "1.0.0", "dependencies": {}}', "unrelated"),
        ('{"zero_optimisation": {}}', "ds_config"),
        ("{}", "ds_config"),
    ],
)
def test_files_are_recognised(text: str, kind: str) -> None:
    result = lint_text(text, "c.json", Facts(), default_rules())
    assert result is not None
    assert result.kind == kind
    if kind != "ds_config":
        assert result.diagnostics == ()
        assert result.note


@pytest.mark.parametrize(
    ("effect", "certain", "costly", "severity"),
    [
        (Effect.SILENT, True, False, Severity.ERROR),
        (Effect.SILENT, False, False, Severity.WARNING),
        (Effect.MEMORY, False, False, Severity.WARNING),
        (Effect.SLOW, True, False, Severity.INFO),
        (Effect.SLOW, True, True, Severity.WARNING),
        (Effect.ADVICE, False, True, Severity.WARNING),
        (Effect.POLICY, True, False, Severity.ERROR),
    ],
)
def test_the_severity_follows_from_effect_certainty_and_cost(effect: Effect, certain: bool, costly: bool, severity: Severity) -> None:
    def check(_: object) -> list[Finding]:
        return [Finding("", "Found.", certain=certain, costly=costly)]

    made_up = Rule("DS999", "made-up", effect, None, check, "A rule.")
    (found,) = lint_document(parse("{}"), "c.json", Facts(), (made_up,)).diagnostics
    assert (found.severity, found.certain) == (severity, certain)


@pytest.mark.parametrize(
    ("section", "code", "severity"),
    [
        ('"zero_optimization": {"stage": 2, "zero_quantized_weights": true}', "DS445", Severity.WARNING),
        (
            '"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1000, "stage3_prefetch_bucket_size": 5e6}',
            "DS432",
            Severity.WARNING,
        ),
        (
            '"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e8, "stage3_prefetch_bucket_size": 5e8}',
            "DS432",
            Severity.INFO,
        ),
        ('"fp16": {"enabled": true, "initial_scale_power": 32}', "DS302", Severity.WARNING),
        ('"tensor_parallel_size": 2', "DS103", Severity.WARNING),
        ('"my_own_switch": 2', "DS103", Severity.INFO),
        ('"gradient_clipping": true', "DS105", Severity.INFO),
        ('"optimizer": {"type": "Adam", "params": {"lr": true}}', "DS105", Severity.WARNING),
        ('"zero_optimization": {"stage": 2}, "allgather_bucket_size": 1e6', "DS102", Severity.ERROR),
        ('"zero_optimization": {"stage": 2}, "allgather_bucket_size": 5e8', "DS102", Severity.INFO),
        ('"zero_optimization": {"stage": 3}, "allgather_bucket_size": 1e6', "DS102", Severity.INFO),
        ('"pipeline": {"activation_checkpointing": false}', "DS102", Severity.INFO),
        ('"pipeline": {"activation_checkpointing": true}', "DS102", Severity.ERROR),
        ('"zero_optimization": {"stage": 2}, "stage3_max_live_parameters": 1e6', "DS102", Severity.INFO),
        ('"zero_optimization": {"stage": 2}, "zero_quantized_weights": true', "DS102", Severity.WARNING),
        ('"optimizer": {"type": "Adam", "params": {"lr": 1e-4, "torch_adam": "torch_impl"}}', "DS105", Severity.INFO),
        ('"optimizer": {"type": "Adam", "params": {"lr": 1e-4, "torch_adam": "false"}}', "DS105", Severity.ERROR),
        ('"pipeline": {"stages": 2}', "DS855", Severity.WARNING),
        ('"vocabulary_size": 50257', "DS855", Severity.INFO),
    ],
)
def test_a_warning_means_that_something_is_lost(section: str, code: str, severity: Severity) -> None:
    result = lint_text(f'{{"train_micro_batch_size_per_gpu": 4, {section}}}', "c.json", Facts(), default_rules())
    assert result is not None
    assert {d.severity for d in result.diagnostics if d.code == code} == {severity}


@pytest.mark.parametrize(
    ("section", "code"),
    [
        ('"wall_clock_breakdown": true', "DS805"),
        ('"zero_optimization": {"stage": 3, "sub_group_size": 1e12}', "DS435"),
        ('"optimizer": {"type": "Adam", "params": {"lr": 1e-4, "weight_decay": 0.1}}', "DS607"),
        ('"train_batch_size": 16, "gradient_accumulation_steps": 4', "DS203"),
    ],
)
def test_what_many_configs_have_on_purpose_is_said_only_if_wanted(section: str, code: str) -> None:
    text = f'{{"train_micro_batch_size_per_gpu": 4, {section}}}'
    for rules, expected in ((default_rules(), False), (loaded_rules(), True)):
        result = lint_text(text, "c.json", Facts(), rules)
        assert result is not None
        assert (code in {found.code for found in result.diagnostics}) is expected


def test_a_config_for_the_autotuner_is_not_warned_of_it() -> None:
    def codes(inner: str) -> set[str]:
        result = lint_text(
            f'{{"train_micro_batch_size_per_gpu": 4, "autotuning": {{"enabled": true{inner}}}}}', "c.json", Facts(), default_rules()
        )
        assert result is not None
        return {found.code for found in result.diagnostics}

    assert "DS850" in codes("")
    assert "DS850" not in codes(', "metric": "throughput"')


@pytest.mark.parametrize(("section", "phase"), [('"end_profile_step": 0', Phase.STEP), ('"start_profile_step": 12', Phase.LATER)])
def test_only_an_end_after_the_first_step_crashes_in_it(section: str, phase: Phase) -> None:
    result = lint_text(
        f'{{"train_micro_batch_size_per_gpu": 4, "autotuning": {{"enabled": true, {section}}}}}', "c.json", Facts(), default_rules()
    )
    assert result is not None
    assert [found.phase for found in result.diagnostics if found.code == "DS851"] == [phase]


def test_a_pinned_loader_leaves_room_for_doubt_about_a_release_that_is_only_installed() -> None:
    text = '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "min_loss_scale": 0.5}}'
    stated, installed, loader = ReleaseSource.STATED, ReleaseSource.ENVIRONMENT, (("loader_release", "uv.lock locks transformers 4.40.0"),)
    for source, evidence, certain in ((installed, (), True), (installed, loader, False), (stated, loader, True)):
        found = lint_document(parse(text), "c.json", Context(evidence=evidence, release_source=source), loaded_rules()).diagnostics
        assert [d.certain for d in found if d.code == "DS104"] == [certain]


@pytest.mark.parametrize(
    ("stated", "here", "certain"),
    [
        ({}, {"torch": Release(2, 4, 0)}, True),
        ({"torch": Release(2, 4, 0)}, {"torch": Release(2, 4, 0)}, True),
        ({"torch": Release(1, 13, 1)}, {"torch": Release(2, 4, 0)}, False),
        ({"torch": Release(1, 13, 1)}, {}, True),
    ],
)
def test_an_environment_with_other_libraries_is_not_the_one_that_trains(
    monkeypatch: pytest.MonkeyPatch, stated: dict[str, Release], here: dict[str, Release], certain: bool
) -> None:
    """A job that has an old PyTorch does not run the newest DeepSpeed, which lies here."""
    monkeypatch.setattr("dslint.config.context.libraries_here", lambda: here)
    text = '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true, "min_loss_scale": 0.5}}'
    context = Context(release_source=ReleaseSource.ENVIRONMENT, oldest=OLDEST, pins=stated)
    found = lint_document(parse(text), "c.json", context, loaded_rules()).diagnostics
    assert [d.certain for d in found if d.code == "DS104"] == [certain]
