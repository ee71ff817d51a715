"""What a report shows together: the findings of one cause, and the same finding in many files; and in which order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dslint.config.context import Context
from dslint.diagnostics import Applicability, Effect
from dslint.facts import Facts, Integration
from dslint.lint.document import lint_text
from dslint.lint.group import for_report
from dslint.lint.results import FileResult, Results
from dslint.registry.rules import default_rules
from tests.command import dslint

from .scenes import found, written

BATCH = '"train_micro_batch_size_per_gpu": 4'
ALL_AUTO = (
    '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", '
    '"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}'
)


def report(text: str, integration: Integration | None = None) -> FileResult:
    result = lint_text(text, "ds.json", Facts(None, integration), default_rules())
    assert result is not None
    return for_report(result)


def codes(text: str, integration: Integration | None = None) -> list[str]:
    return [d.code for d in report(text, integration).diagnostics]


def test_every_auto_that_no_integration_replaces_is_one_finding() -> None:
    (found,) = report(ALL_AUTO, Integration.DEEPSPEED).diagnostics
    assert found.code == "DS902"  # a crash comes before a dropped key
    assert {found.pointer, *(related.pointer for related in found.related)} == {
        "/train_batch_size",
        "/train_micro_batch_size_per_gpu",
        "/gradient_accumulation_steps",
        "/gradient_clipping",
        "/bf16/enabled",
        "/zero_optimization/reduce_bucket_size",
    }


@pytest.mark.parametrize("integration", [Integration.DEEPSPEED, Integration.LIGHTNING])
def test_of_one_cause_the_worst_consequence_is_kept(integration: Integration) -> None:
    """Wherever it stands: the first "auto" of this file is dropped, or silent, and the last one raises."""
    text = '{"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}, "bf16": {"enabled": "auto"}, "train_batch_size": "auto"}'
    alone = lint_text(text, "ds.json", Facts(None, integration), default_rules())
    assert alone is not None
    assert len({d.effect for d in alone.diagnostics if d.cause}) > 1
    (found,) = (d for d in report(text, integration).diagnostics if '"auto"' in d.message)
    assert (found.effect, found.pointer) == (Effect.CRASH, "/train_batch_size")


def test_keys_of_another_section_are_one_finding_with_one_fix() -> None:
    (found,) = report(f'{{{BATCH}, "bf16": {{"enabled": true, "loss_scale": 0, "hysteresis": 2, "min_loss_scale": 1}}}}').diagnostics
    assert (found.code, len(found.related)) == ("DS101", 2)
    assert found.fix is not None
    assert found.fix.applicability is Applicability.SAFE


def test_keys_of_another_tool_are_one_finding_and_unknown_keys_another() -> None:
    text = f'{{{BATCH}, "num_machines": 1, "mine": 1, "use_cpu": false, "yours": 2}}'
    found = report(text).diagnostics
    assert [(d.pointer, [r.pointer for r in d.related]) for d in found] == [
        ("/num_machines", ["/use_cpu"]),
        ("/mine", ["/yours"]),
    ]


def test_two_misspelt_keys_are_two_findings() -> None:
    assert codes(f'{{{BATCH}, "zero_optimisation": {{"stage": 2}}, "gradient_cliping": 1.0}}') == ["DS102", "DS102"]


def test_the_most_severe_finding_comes_first() -> None:
    text = f'{{{BATCH}, "mine": 1, "zero_optimization": {{"stage": 2, "reduce_bucket_sise": 5e8}}}}'
    assert codes(text) == ["DS101", "DS103"]


def test_the_same_finding_in_many_files_is_shown_once(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.json").write_text(f'{{{BATCH}, "mine": 1}}', encoding="utf-8")
    arguments = "check", ".", "--integration", "deepspeed"
    assert dslint(*arguments, cwd=tmp_path).stdout.count("[DS103]") == 1
    assert dslint(*arguments, "--no-group", cwd=tmp_path).stdout.count("[DS103]") == 4
    assert dslint(*arguments, "--output-format", "concise", cwd=tmp_path).stdout.count("DS103") == 4


def test_a_clean_run_is_one_line_and_a_quiet_one_nothing(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(f'{{{BATCH}, "zero_optimization": {{"stage": 2}}}}', encoding="utf-8")
    arguments = "check", "ds.json", "--integration", "deepspeed", "--deepspeed", "0.19.8"
    assert len(dslint(*arguments, cwd=tmp_path).stdout.splitlines()) == 1
    assert dslint(*arguments, "--quiet", cwd=tmp_path).stdout == ""


def test_a_line_per_finding_ends_with_what_was_checked(tmp_path: Path) -> None:
    """Without findings, too: "no problems" is not "not judged"."""
    (tmp_path / "ds.json").write_text(f'{{{BATCH}, "zero_optimization": {{"stage": 2}}}}', encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"name": "x", "version": "1"}', encoding="utf-8")
    arguments = "check", "--integration", "deepspeed", "--output-format", "concise"
    assert dslint(*arguments, "ds.json", cwd=tmp_path).stdout == "No problems found in 1 file.\n"
    assert dslint(*arguments, "ds.json", "--quiet", cwd=tmp_path).stdout == ""
    first, reason = dslint(*arguments, ".", cwd=tmp_path).stdout.splitlines()
    assert first == "No problems found in 1 file. 1 file was not checked."
    assert reason.startswith("Not checked: ds_config.json: ")
    (tmp_path / "ds.json").unlink()
    assert dslint(*arguments, ".", cwd=tmp_path).stdout.startswith("No config was checked.")


def test_what_is_the_same_of_many_files_is_said_once(tmp_path: Path) -> None:
    """Reasons and notes; and -v is recommended once."""
    for name in "abcdef":
        text = f"import deepspeed\nfrom settings import config_{name}\ndeepspeed.initialize(model=m, optimizer=o, config=config_{name})\n"
        (tmp_path / f"{name}.py").write_text(text.replace(f"config_{name}", "config") if name in "ab" else text, encoding="utf-8")
    (tmp_path / "ds.json").write_text(f'{{{BATCH}, "zero_optimization": {{"stage": 2}}}}', encoding="utf-8")
    printed = dslint("check", ".", "--isolated", cwd=tmp_path).stdout
    assert printed.count("-v") == 1, printed
    verbose = " ".join(dslint("check", ".", "--isolated", "-v", cwd=tmp_path).stdout.split())
    assert "Not checked: a.py:3, b.py:3: " in verbose
    assert "Not checked: c.py:3: " in verbose


@pytest.mark.parametrize("keys", ["'mine': 1", "'mine': 1, 'yours': 2"])
def test_a_key_that_two_branches_write_is_named_once(tmp_path: Path, keys: str) -> None:
    branch = f"    ds = {{'train_batch_size': 8, 'zero_optimization': {{'stage': 2, {keys}}}}}\n"
    program = f"import deepspeed\nif chosen():\n{branch}else:\n{branch}deepspeed.initialize(model=m, optimizer=o, config=ds)\n"
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    printed = dslint("check", "train.py", "--output-format", "concise", cwd=tmp_path).stdout
    assert printed.count("DS101") == 1
    assert printed.count("mine") == 1


def test_of_many_findings_with_one_cause_some_are_listed(tmp_path: Path) -> None:
    keys = ", ".join(f'"mine{n}": 1' for n in range(1_000))
    text = f'{{"zero_optimization": {{"stage": 2}}, {BATCH}, {keys}}}'
    (found,) = report(text).diagnostics
    assert found.message.startswith("1,000 top-level keys")
    assert "mine0, " in found.message
    assert found.message.endswith("and 980 more.")
    assert len(found.related) == 999
    (tmp_path / "ds.json").write_text(text.replace(", ", ",\n"), encoding="utf-8")
    printed = dslint("check", tmp_path / "ds.json", "--pedantic").stdout
    assert "979 more places" in printed
    assert len(printed.splitlines()) < 100


def test_a_key_with_an_answer_of_its_own_is_not_merged(tmp_path: Path) -> None:
    block = (
        "  zero_stage: 3\n  stage3_gather_16bit_weights_on_model_save: true\n  stage3_prefetch_bucket_size: 5e7\n  sub_group_size: 1e9\n"
    )
    file = tmp_path / "accelerate.yaml"
    file.write_text(f"distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n{block}", encoding="utf-8")
    printed = dslint("check", file, "--select", "DS915").stdout
    assert printed.count("[DS915]") == 2
    assert 'Write "zero3_save_16bit_model"' in printed
    assert "2 keys in deepspeed_config are not Accelerate's" in printed


@pytest.mark.parametrize("way", ["full", "concise"])
def test_no_line_about_the_state_of_a_run_has_the_form_of_a_finding(tmp_path: Path, way: str) -> None:
    launches = "".join(f"deepspeed train{number}.py --deepspeed_config ds_config.json\n" for number in range(25))
    (tmp_path / "run.sh").write_text(launches + "deepspeed other.py --deepspeed_config /mnt/ds.json\n", encoding="utf-8")
    (tmp_path / "ds_config.json").write_text(f'{{{BATCH}, "zero_optimization": {{"stage": 2}}}}', encoding="utf-8")
    for flags in ((), ("-v",)):
        said = dslint("check", ".", "--isolated", "--output-format", way, *flags, cwd=tmp_path).stdout
        assert [line for line in said.splitlines() if re.search(r"\b(error|warning|info)\b *(:|\[|DS)", line)] == []
        assert said.count(" launches ") <= 3
        assert flags or "rules skipped" not in said
    assert "No problems found in 2 files (1 config, 1 script). 1 file was checked only in part." in " ".join(said.split())


def test_a_file_with_a_finding_is_counted_though_its_config_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "acc.yaml").write_text(
        "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: gone.json\n", encoding="utf-8"
    )
    (tmp_path / "ds.json").write_text(f'{{{BATCH}, "zero_optimization": {{"stage": 2}}}}', encoding="utf-8")
    said = dslint("check", ".", "--isolated", cwd=tmp_path).stdout
    assert "Found 1 info in 2 files (1 config, 1 Accelerate config)." in " ".join(said.split())


def test_a_single_file_is_never_clean_and_unchecked(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text('{"name": "x"}', encoding="utf-8")
    said = dslint("check", "ds_config.json", "--isolated", "--strict", cwd=tmp_path)
    assert said.stdout.startswith("No config was checked.")
    assert said.returncode == 1


def test_the_release_is_named_however_much_is_inferred(tmp_path: Path) -> None:
    """A verdict rests on it, and often nobody has said it."""
    flags = "--model_name_or_path gpt2 --per_device_train_batch_size 4 --output_dir out"
    (tmp_path / "run.sh").write_text(f"deepspeed --num_gpus 8 train.py --deepspeed ds.json {flags}\n", encoding="utf-8")
    (tmp_path / "ds.json").write_text(f'{{{BATCH}, "zero_optimization": {{"stage": 2}}}}', encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("deepspeed==0.5.8\n", encoding="utf-8")
    said = " ".join(dslint("check", ".", cwd=tmp_path).stdout.split())
    assert re.search(r"Assuming DeepSpeed \S+ in place of 0\.5\.8 and \d more inferred facts\. Use -v for details\.", said)
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.9\n", encoding="utf-8")
    said = " ".join(dslint("check", ".", cwd=tmp_path).stdout.split())
    assert "Using DeepSpeed 0.16.9. Assuming 3 inferred facts. Use -v for details." in said


def test_keys_of_one_cause_have_their_whole_names_and_consequences() -> None:
    text = f'{{{BATCH}, "bf16": {{"enabled": "auto"}}, "zero_optimization": {{"stage": "auto"}}}}'
    (found,) = report(text, Integration.DEEPSPEED).diagnostics
    assert found.message.endswith(
        "bf16.enabled (trains in the model's own data type, such as fp32), zero_optimization.stage (trains without ZeRO)."
    )


def test_a_missing_config_of_two_files_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = "torchrun --nproc_per_node 2 train.py --output_dir o --learning_rate 1e-5 --do_train --deepspeed configs/%s.json\n"
    for name, config in (("a.sh", "one"), ("b.sh", "one"), ("c.sh", "two")):
        (tmp_path / name).write_text(launch % config)
    monkeypatch.chdir(tmp_path)
    result = dslint("check", ".")
    assert [result.stdout.count(f"configs/{name}.json does not exist") for name in ("one", "two")] == [1, 1]
    assert "also: DS919 in 2 files: b.sh:1" in result.stdout


@pytest.mark.parametrize("script", ["run.sh", "zz.sh"])
def test_a_missing_config_that_a_file_names_and_a_launch_uses_is_reported_once(tmp_path: Path, script: str) -> None:
    (tmp_path / "train.yaml").write_text("base_model: m\nmicro_batch_size: 1\nadapter: lora\nbf16: true\ndeepspeed: nowhere.json\n")
    (tmp_path / script).write_text("axolotl train train.yaml\n")
    found = dslint("check", ".", "--output-format", "concise", cwd=tmp_path).stdout
    assert found.count("DS919") == 1
    assert "train.yaml:5:1: error DS919" in found


def test_programs_that_replace_one_section_are_one_finding(tmp_path: Path) -> None:
    """Each program that uses the config passes its own optimizer: one block tells of all, and marks the section once."""
    program = (
        "import deepspeed\nimport torch\nmodel = make()\noptimizer = torch.optim.Adam(model.parameters())\n"
        "deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\n"
    )
    for name in ("one.py", "two.py", "three.py"):
        (tmp_path / name).write_text(program, encoding="utf-8")
    (tmp_path / "ds_config.json").write_text(
        '{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}}', encoding="utf-8"
    )
    shown = dslint("check", ".", cwd=tmp_path).stdout
    assert shown.count("[DS945]") == 1
    assert shown.count("passed here") == 3
    assert shown.count("^^^^^^^^^^^") == 1
    assert not any(re.fullmatch(r" *\| +-+", line) for line in shown.splitlines())  # a mark without words


def test_launches_that_differ_only_in_their_names_and_numbers_are_one_finding(tmp_path: Path) -> None:
    """Two scripts start the same training: what is said at one place of the config is said once, and --no-group says all."""
    launch = "torchrun --nproc_per_node {} train.py --output_dir o --learning_rate 1e-5 --do_train --deepspeed ds_config.json\n"
    (tmp_path / "few.sh").write_text(launch.format(2), encoding="utf-8")
    (tmp_path / "many.sh").write_text(launch.format(4), encoding="utf-8")
    scheduler = '"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}'
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": "auto", ' + scheduler + "}", encoding="utf-8")
    shown = " ".join(dslint("check", ".", "--isolated", "--select", "DS658", cwd=tmp_path).stdout.split())
    assert shown.count("[DS658]") == 1
    assert "few.sh have no warm-up" in shown
    assert "= also: 1 more finding here, with other numbers or names (--no-group shows all)" in shown
    assert "Found 2 info" in shown
    everything = dslint("check", ".", "--isolated", "--select", "DS658", "--no-group", cwd=tmp_path).stdout
    assert everything.count("[DS658]") == 2


def test_the_same_finding_is_grouped_though_its_message_names_the_file(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "train.py").write_text("import transformers\n", encoding="utf-8")
    for name in ("a", "b", "c"):
        script = 'cd "$(dirname "$0")"\ntorchrun --nproc_per_node 2 train.py --output_dir o --do_train --deepspeed ds_config.json\n'
        (jobs / f"{name}.sh").write_text(script, encoding="utf-8")
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": "auto"}', encoding="utf-8")
    shown = " ".join(dslint("check", ".", "--isolated", "--select", "DS919", cwd=tmp_path).stdout.split())
    assert shown.count("[DS919]") == 1, shown
    assert "also: DS919 in 3 files: jobs/b.sh:" in shown


def test_the_same_finding_at_three_places_of_a_file_is_said_once(tmp_path: Path) -> None:
    """Two places are shown one by one: each is read more easily than a list."""
    launch = "deepspeed --zero_stage {} train.py\n"
    for count in (2, 4):
        (tmp_path / "job.sh").write_text("".join(launch.format(1 + stage % 3) for stage in range(count)), encoding="utf-8")
        shown = " ".join(dslint("check", ".", "--isolated", "--select", "DS961", cwd=tmp_path).stdout.split())
        assert shown.count("[DS961]") == (2 if count == 2 else 1), shown
        assert f"Found {count} errors" in shown
    assert "also: DS961 at 4 places: job.sh:2:11, job.sh:3:11 and job.sh:4:11" in shown


def test_unknown_arguments_of_a_framework_are_one_finding(tmp_path: Path) -> None:
    flags = "--stage sft --do_train --model_name_or_path m --dataset a --template t --finetuning_type full --output_dir out"
    script = f"llamafactory-cli train --deepspeed ds.json {flags} --grow_wings true --sing_songs 3\n"
    (tmp_path / "run.sh").write_text(script, encoding="utf-8")
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}', encoding="utf-8")
    shown = " ".join(dslint("check", "run.sh", cwd=tmp_path).stdout.split())
    assert shown.count("[DS974]") == 1
    assert "Unknown arguments grow_wings, sing_songs: LLaMA-Factory may raise" in shown


def test_a_place_with_two_findings_is_named_once() -> None:
    messages = {"a.json": ["run.sh:1 sets 5"], "b.json": ["run.sh:2 sets 5", "run.sh:3 sets 5"], "c.json": ["run.sh:4 sets 5"]}
    files = tuple(
        FileResult(path, "ds_config", None, tuple(found(path, "DS907", "n", Effect.SLOW, one) for one in said))
        for path, said in messages.items()
    )
    shown = " ".join(written(Results(Context(), files), "full").split())
    assert "= also: DS907 in 3 files: b.json and c.json" in shown
