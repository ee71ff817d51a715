"""Configs like those that people write, for classes of findings that were once false, misleading or twice the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dslint import api
from dslint.config.context import Context
from dslint.diagnostics import Applicability, Diagnostic, Effect, Phase, Severity
from dslint.facts import NEWEST, Facts, Integration, Release
from dslint.facts.model_config import describe
from dslint.fixes.apply import fix
from dslint.lint.document import lint_text
from dslint.lint.group import for_report
from dslint.lint.results import FileResult
from dslint.registry.rules import all_rules, default_rules
from dslint.settings import Finder, from_options
from tests.setup.folder import Folder

BATCH = {"train_micro_batch_size_per_gpu": 4}
ADAMW = {"type": "AdamW", "params": {"lr": 1e-4}}


def lint(config: dict[str, Any] | str, integration: Integration | None = None, deepspeed: Release = NEWEST) -> FileResult:
    text = config if isinstance(config, str) else json.dumps(config, indent=2)
    result = lint_text(text, "ds.json", Facts(None, integration, deepspeed), default_rules())
    assert result is not None
    return result


def of_rule(code: str, config: dict[str, Any], integration: Integration | None = None) -> list[Diagnostic]:
    return [d for d in for_report(lint(BATCH | config, integration)).diagnostics if d.code == code]


def fixed(config: dict[str, Any], *kinds: Applicability) -> dict[str, Any]:
    text = fix(json.dumps(BATCH | config, indent=2), lint, set(kinds)).text
    return json.loads(text)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("fp16", "renamed"), [(True, False), (False, True)])
def test_no_fix_enables_a_second_precision(fp16: bool, renamed: bool) -> None:
    config = {"fp16": {"enabled": fp16}, "bf16": {"enable": True}}
    (found,) = (d for d in lint(BATCH | config).diagnostics if d.pointer == "/bf16/enable")
    assert (found.fix is not None) is renamed
    assert ("enabled" in fixed(config, Applicability.SAFE, Applicability.UNSAFE)["bf16"]) is renamed


def test_a_key_is_not_moved_into_a_feature_that_is_off() -> None:
    profiler = {"enabled": True, "profile_step": 5, "end_profile_step": 6}
    assert of_rule("DS102", {"flops_profiler": profiler}) == []
    (found,) = of_rule("DS103", {"flops_profiler": profiler})
    assert found.severity is Severity.WARNING
    (found,) = of_rule("DS103", {"flops_profiler": profiler | {"enabled": False}})
    assert found.severity is Severity.INFO
    (found,) = of_rule("DS102", {"flops_profiler": profiler, "autotuning": {"enabled": True}})
    assert "autotuning" in (found.help or "")


@pytest.mark.parametrize(
    ("section", "meant"),
    [
        ({"checkpointing": {"every": 500, "keep": 3}}, None),
        ({"checkpointing": {"partition_activations": True}}, "activation_checkpointing"),
        ({"checkpointing": {"tag_validation": "Fail"}}, "checkpoint"),
        ({"lr_scheduler": {"type": "WarmupLR", "params": {}}}, "scheduler"),
    ],
)
def test_a_similar_section_is_suggested_if_it_has_the_keys(section: dict[str, Any], meant: str | None) -> None:
    found = of_rule("DS102", section)
    assert [f'"{meant}"' in (d.help or "") for d in found] == ([True] if meant else [])


@pytest.mark.parametrize(
    ("written", "codes"),
    [
        ({"batch_size": 8}, []),  # the micro batch size is written, too
        ({"steps_per_epoch": 100, "offload": True, "profile": True}, []),
        ({"gradient_accumulation": 4}, []),
        ({"stage": 3}, ["DS102"]),
    ],
)
def test_words_of_a_program_are_no_misspelt_keys(written: dict[str, Any], codes: list[str]) -> None:
    rest = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}
    assert [one.code for one in of_rule("DS102", rest | written)] == codes


@pytest.mark.parametrize(
    ("loader", "help_"),
    [
        (Integration.TRANSFORMERS, "Move it to the training arguments (TrainingArguments)."),
        (Integration.DEEPSPEED, 'Remove it, or begin its name with "_" if it is a note.'),
    ],
)
def test_only_the_trainer_has_training_arguments(loader: Integration, help_: str) -> None:
    (found,) = of_rule("DS103", {"train_batch_size": 8, "seed": 3}, loader)
    assert found.help == help_


def test_a_parameter_beside_its_type_is_moved_and_its_default_loses_nothing() -> None:
    for value, severity in ((True, Severity.INFO), (False, Severity.WARNING)):
        (found,) = of_rule("DS103", {"optimizer": {"type": "Adam", "adam_w_mode": value, "params": {"lr": 1e-4}}})
        assert found.severity is severity
        assert found.help == "Move it into `optimizer.params`."
        assert found.fix is not None


def test_the_norm_of_clipping_is_written_once() -> None:
    twice = {"gradient_clipping": 1.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "max_grad_norm": 1.0}}}
    (found,) = of_rule("DS601", twice)
    assert (found.help or "").startswith("Remove it")
    assert fixed(twice, Applicability.SAFE) == BATCH | {"gradient_clipping": 1.0, "optimizer": ADAMW}


def test_rates_of_a_cosine_schedule_become_shares_of_the_optimizers_rate() -> None:
    def schedule(**params: float) -> dict[str, Any]:
        return {"optimizer": ADAMW, "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 9000, **params}}}

    shares = BATCH | schedule(warmup_min_ratio=0.1)
    assert fixed(schedule(warmup_min_lr=1e-5, warmup_max_lr=1e-4), Applicability.SAFE) == shares
    other = schedule(warmup_max_lr=3e-4)
    assert fixed(other, Applicability.SAFE, Applicability.UNSAFE) == BATCH | other  # which of the two rates is meant?


def test_a_type_that_the_release_lacks_is_one_finding_whatever_its_parameters() -> None:
    gone = {"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4, "freeze_steps": 100}}}
    assert [d.code for d in lint(BATCH | gone).diagnostics] == ["DS611"]
    assert "DS609" in {d.code for d in lint(BATCH | gone, deepspeed=Release(0, 18, 9)).diagnostics}


def test_a_file_named_hjson_may_have_comments_until_a_loader_of_strict_json_reads_it() -> None:
    text = '{\n  # a comment\n  "train_micro_batch_size_per_gpu": 4\n}\n'

    def codes(name: str, integration: Integration | None = None) -> list[str]:
        result = lint_text(text, name, Facts(None, integration, NEWEST), default_rules())
        assert result is not None
        return [d.code for d in result.diagnostics]

    assert codes("ds.json") == ["DS002"]
    assert codes("ds.hjson") == []
    assert "DS002" in codes("ds.hjson", Integration.TRANSFORMERS)


def test_a_file_named_hjson_may_have_comments_where_an_unknown_program_gets_it(folder: Folder) -> None:
    text = '{\n  # a comment\n  "train_micro_batch_size_per_gpu": 4,\n  "zero_optimization": {"stage": 1}\n}\n'
    launches = {f"{ending}.sh": f"python elsewhere.py --ds_config ds.{ending}\n" for ending in ("json", "hjson")}
    folder.write({"ds.json": text, "ds.hjson": text} | launches)
    assert "DS002" in {code for code, _, _ in folder.found("json.sh")}
    assert "DS002" not in {code for code, _, _ in folder.found("hjson.sh")}


def test_one_disk_device_for_both_sections_is_one_finding() -> None:
    disk = {"device": "nvme", "nvme_path": "/dev/nvme1n1"}
    (found,) = of_rule("DS506", {"optimizer": ADAMW, "zero_optimization": {"stage": 3, "offload_optimizer": disk, "offload_param": disk}})
    assert len(found.related) == 1


@pytest.mark.parametrize(
    ("config", "applicability"),
    [
        ({"curriculum_learning": {"enabled": True, "curriculum_type": "seqlen"}}, None),
        ({"curriculum_learning": {"enabled": False, "curriculum_type": "seqlen"}}, Applicability.UNSAFE),  # other releases read it
        ({"amp": {"enabled": True, "opt_level": "O1"}}, None),
        ({"amp": {"opt_level": "O1"}}, Applicability.SAFE),
        ({"compression_training": {"weight_quantization": {"shared_parameters": {"enabled": True}}}}, Applicability.UNSAFE),
        ({"sparse_gradients": False}, Applicability.SAFE),
        ({"sparse_gradients": True}, Applicability.UNSAFE),
    ],
)
def test_a_feature_that_is_on_is_not_removed_in_passing(config: dict[str, Any], applicability: Applicability | None) -> None:
    (found,) = of_rule("DS109", config)
    assert (found.fix.applicability if found.fix else None) is applicability


@pytest.mark.parametrize(
    ("threads", "device", "severity"),
    [(4, "nvme", Severity.WARNING), (1, "nvme", Severity.INFO), (4, "cpu", Severity.INFO)],
)
def test_a_dead_key_is_a_warning_where_it_would_change_something(threads: int, device: str, severity: Severity) -> None:
    offload = {"device": device, "nvme_path": "/local_nvme"}
    (found,) = of_rule("DS110", {"aio": {"thread_count": threads}, "zero_optimization": {"stage": 3, "offload_param": offload}})
    assert found.severity is severity


def test_a_config_that_gathers_one_layer_at_a_time_saves_no_model() -> None:
    inference = {"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_max_live_parameters": 0}}
    for more, severity in (({}, Severity.INFO), ({"optimizer": ADAMW}, Severity.WARNING)):
        (found,) = (d for d in lint(inference | more, Integration.TRANSFORMERS).diagnostics if d.code == "DS819")
        assert found.severity is severity


def test_a_template_of_the_autotuner_is_completed_by_it() -> None:
    for name, kind in (("config_templates/template_zero2.json", "template"), ("zero2.json", "ds_config")):
        result = lint_text('{"zero_optimization": {"stage": 2}}', name, Facts(), default_rules())
        assert result is not None
        assert (result.kind, [d.code for d in result.diagnostics]) == (kind, [] if kind == "template" else ["DS204"])


def test_a_fraction_where_an_integer_is_expected() -> None:
    (found,) = of_rule("DS104", {"fp16": {"enabled": True, "min_loss_scale": 0.25}})
    assert found.help == "Write an integer; the default is 1."


def test_a_list_of_results_is_not_a_config() -> None:
    results = {f"measured_{number}": number for number in range(12)} | {
        "optimizer": "AdamW",
        "micro_batch_size": 4,
        "gradient_clipping": 1.0,
    }
    assert lint(results).kind == "unrelated"
    assert lint(results | {"train_micro_batch_size_per_gpu": 4}).kind == "unrelated"  # the arguments of a program, saved
    assert lint(results | {"optimizer": ADAMW}).kind == "ds_config"
    misspelt = {"train_micro_batch_size_per_gpu": 4, "zero_optimisation": {"stage": 3}, "fp_16": {}, "optimiser": ADAMW, "sheduler": {}}
    assert lint(misspelt).kind == "ds_config"


def test_settings_of_the_program_beside_the_config_are_left_to_it() -> None:
    own = {f"own_{number}": number for number in range(10)} | {"seed": 42, "num_epochs": 3, "output_dir": "out", "bf16": {"enabled": True}}
    assert of_rule("DS102", own) == []
    (found,) = of_rule("DS103", own)  # one cause
    assert (found.severity, found.fix, len(found.related)) == (Severity.INFO, None, 12)
    assert [d.code for d in lint(BATCH | {"seed": 42}).diagnostics if d.severity is Severity.ERROR] == []


@pytest.mark.parametrize(
    ("key", "value", "severity"),
    [
        ("monitoring", {"enabled": True, "tag": "a"}, Severity.WARNING),  # written like a section of DeepSpeed
        ("monitoring", {"enabled": False, "tag": "a"}, Severity.INFO),
        ("monitoring", {"tag": "a"}, Severity.INFO),
        ("zero_optimization.stage", 3, Severity.WARNING),
        ("my_settings.stage", 3, Severity.INFO),
        ("context_parallel_size", 2, Severity.WARNING),
    ],
)
def test_an_unknown_key_is_a_warning_where_it_was_meant_for_deepspeed(key: str, value: object, severity: Severity) -> None:
    (found,) = of_rule("DS103", {key: value})
    assert found.severity is severity


def test_a_path_that_is_written_as_a_key_is_nested() -> None:
    paths = {"zero_optimization.stage": 3, "bf16.enabled": True}
    (found,) = of_rule("DS103", paths)
    assert found.fix is not None
    nested = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
    assert fixed(paths, Applicability.SAFE, Applicability.UNSAFE) == BATCH | nested


@pytest.mark.parametrize("name", ["tp_size", "size", "degree", "tensor_parallel_size", "tensor_parallel_degree"])
def test_the_size_of_tensor_parallelism_is_autotp_size(name: str) -> None:
    written = {"tensor_parallel": {"enabled": True, name: 2}}
    assert fixed(written, Applicability.SAFE) == BATCH | {"tensor_parallel": {"autotp_size": 2}}
    off = {"tensor_parallel": {"enabled": False, name: 2}}
    assert fixed(off, Applicability.SAFE, Applicability.UNSAFE) == BATCH | off  # what is off is not switched on in passing


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_mixed_precision_becomes_its_section(precision: str) -> None:
    (found,) = of_rule("DS103", {"mixed_precision": precision})
    assert found.severity is Severity.WARNING
    assert fixed({"mixed_precision": precision}, Applicability.UNSAFE) == BATCH | {precision: {"enabled": True}}


def test_habits_that_a_section_refuses_are_removed() -> None:
    assert fixed({"fp16": {"enabled": True, "opt_level": "O2"}}, Applicability.SAFE) == BATCH | {"fp16": {"enabled": True}}
    assert fixed({"compile": {"disable": False, "deepcompile": True}}, Applicability.SAFE) == BATCH | {"compile": {"deepcompile": True}}
    stage = {"zero_optimization": {"enabled": False, "stage": 2}}
    assert fixed(stage, Applicability.SAFE) == BATCH | stage  # off, or stage 2?


def test_no_warmup_is_the_shortest_warmup() -> None:
    schedule = {"optimizer": ADAMW, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}}
    written = fixed(schedule, Applicability.SAFE, Applicability.UNSAFE)
    assert written["scheduler"]["params"]["warmup_num_steps"] == 2
    sizes = {"zero_optimization": {"stage": 2, "reduce_bucket_size": -1}}
    assert fixed(sizes, Applicability.UNSAFE)["zero_optimization"]["reduce_bucket_size"] == 5e8


def test_a_fraction_of_the_smallest_loss_scale_becomes_the_smallest_integer() -> None:
    scale = {"fp16": {"enabled": True, "min_loss_scale": 0.5}}
    assert fixed(scale, Applicability.SAFE) == BATCH | scale
    assert fixed(scale, Applicability.SAFE, Applicability.UNSAFE) == BATCH | {"fp16": {"enabled": True, "min_loss_scale": 1}}


def test_releases_without_a_model_use_a_fraction_of_the_smallest_loss_scale() -> None:
    scale = {"fp16": {"enabled": True, "min_loss_scale": 0.5}}
    assert not any(found.code == "DS105" for found in lint(BATCH | scale, deepspeed=Release(0, 17, 0)).diagnostics)


def test_every_wrong_type_that_is_misread_has_a_help() -> None:
    for config in ({"gradient_clipping": True}, {"optimizer": {"type": "Adam", "params": {"lr": 1e-4, "torch_adam": "torch_impl"}}}):
        (found,) = of_rule("DS105", config)
        assert (found.help or "").startswith("Write ")


def test_a_class_of_a_package_is_left_to_the_framework_that_imports_it() -> None:
    for name, severity in (("my_package.optim.MyAdam", Severity.INFO), ("torch.optim.AdamW", Severity.ERROR), ("MyAdam", Severity.ERROR)):
        (found,) = of_rule("DS602", {"optimizer": {"type": name, "params": {"lr": 1e-4}}})
        assert found.severity is severity


def test_settings_that_look_like_a_pipeline_are_one_finding() -> None:
    config = BATCH | {"pipeline": {"enabled": True, "stages": 4, "partition": "uniform"}}
    found = [d for d in for_report(lint(config)).diagnostics if (d.pointer or "").startswith("/pipeline")]
    assert [(d.code, len(d.related)) for d in found] == [("DS103", 2)]


def test_one_rank_divides_nothing() -> None:
    zero = {"stage": 3, "zero_hpz_partition_size": 8, "zero_quantized_weights": True}
    for ranks, codes in ((1, []), (4, ["DS421"])):
        result = lint_text(json.dumps(BATCH | {"zero_optimization": zero}), "ds.json", Facts(ranks), default_rules())
        assert result is not None
        assert [d.code for d in result.diagnostics if d.code == "DS421"] == codes


OFFLOADED = {"device": "cpu"}


@pytest.mark.parametrize(
    "config",
    [
        {"zero_optimization": {"stage": 2, "offload_param": OFFLOADED}},  # stage 3, or offload_optimizer?
        {"zero_optimization": {"stage": 0, "offload_optimizer": OFFLOADED}},
        {"zero_optimization": {"stage": 2, "zero_quantized_weights": True}},
        {"pipeline": {"stages": 4}},
        {"compile": {"deepcompile": True}, "zero_optimization": {"stage": 0}},
        {"data_efficiency": {"enabled": True}},
        {"checkpoint": {"save_interval": 100}},
        {"autotuning": {"enabled": True, "end_profile_step": 5}},
        {"activation_checkpointing": {"partition_activations": True, "contiguous_memory_optimization": True}},
    ],
)
def test_what_was_meant_is_not_deleted_where_only_the_writer_knows_the_repair(config: dict[str, Any]) -> None:
    assert lint(BATCH | config).diagnostics
    assert fixed(config, Applicability.SAFE, Applicability.UNSAFE) == BATCH | config


def test_parameter_offload_beside_optimizer_offload_is_a_leftover() -> None:
    both = {"zero_optimization": {"stage": 2, "offload_optimizer": OFFLOADED, "offload_param": OFFLOADED}}
    assert fixed(both, Applicability.SAFE)["zero_optimization"] == {"stage": 2, "offload_optimizer": OFFLOADED}


def test_the_autotuner_writes_the_zero_section_itself() -> None:
    for tuning, codes in (({"enabled": True}, []), ({"enabled": False}, ["DS910"])):
        assert [d.code for d in of_rule("DS910", {"autotuning": tuning}, Integration.TRANSFORMERS)] == codes


def test_a_warmup_that_the_trainer_fills_is_not_judged() -> None:
    for steps, codes in (("auto", []), (1, ["DS638"]), (2, [])):
        schedule = {"optimizer": ADAMW, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": steps}}}
        found = lint_text(json.dumps(BATCH | schedule), "ds.json", Facts(integration=Integration.TRANSFORMERS), all_rules())
        assert found is not None
        assert [d.code for d in found.diagnostics if d.code == "DS638"] == codes


@pytest.mark.parametrize(
    ("integration", "section", "effects"),
    [
        (Integration.DEEPSPEED, {}, [Effect.SLOW]),  # torch's Adam runs on the CPU; one for the GPU would raise
        (Integration.DEEPSPEED, {"optimizer": ADAMW}, [Effect.ADVICE]),  # DeepSpeed does not read the key
        (Integration.ACCELERATE, {}, []),  # replaces torch's Adam by DeepSpeed's
    ],
)
def test_an_unforced_cpu_optimizer_is_slow_where_the_program_passes_one(
    integration: Integration, section: dict[str, Any], effects: list[Effect]
) -> None:
    config = {"zero_force_ds_cpu_optimizer": False, "zero_optimization": {"stage": 2, "offload_optimizer": OFFLOADED}}
    assert [d.effect for d in of_rule("DS526", config | section, integration)] == effects


@pytest.mark.parametrize(("integration", "codes"), [(Integration.TRANSFORMERS, []), (Integration.ACCELERATE, ["DS928"])])
def test_the_trainer_finds_the_hidden_size_of_a_nested_model(integration: Integration, codes: list[str]) -> None:
    model = describe({"model_type": "llava", "text_config": {"hidden_size": 4096}, "vision_config": {"image_size": 336}})
    zero = {"stage": 3, "reduce_bucket_size": "auto"}
    result = lint_text(json.dumps(BATCH | {"zero_optimization": zero}), "ds.json", Facts(None, integration, model=model), default_rules())
    assert result is not None
    assert [d.code for d in result.diagnostics if d.code == "DS928"] == codes


# ---------------------------------------------------------------------- setups

TRAINER_YAML = "output_dir: out\nlearning_rate: 1.0e-4\nper_device_train_batch_size: 16\nnum_train_epochs: 1\ndeepspeed: ds.json\n"
STAGE_3 = {"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}}


def test_arguments_of_a_program_with_its_own_loop_are_not_compared(folder: Folder) -> None:
    folder.write({"train.yaml": TRAINER_YAML, "ds.json": json.dumps(BATCH | STAGE_3)})
    (found,) = (d for d in folder.diagnostics("train.yaml") if d.code == "DS904")
    assert (found.severity, found.certain) == (Severity.WARNING, False)  # the program that reads the file is not known
    launch = "deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 16 --output_dir out\n"
    for program, codes in (
        ("import deepspeed\nengine = deepspeed.initialize(config=arguments.deepspeed)\n", []),
        ("from transformers import Trainer\nTrainer(args=arguments).train()\n", ["DS904"]),
    ):
        folder.write({"run.sh": launch, "train.py": program})
        assert [d.code for d in folder.diagnostics("run.sh") if d.code == "DS904"] == codes


@pytest.mark.parametrize("parallel", ["--pipeline-model-parallel-size 8", "--tensor-model-parallel-size=8"])
def test_ranks_of_megatrons_groups_share_a_batch(folder: Folder, parallel: str) -> None:
    launch = "deepspeed --num_gpus 8 pretrain.py --deepspeed_config ds.json"
    folder.write({"ds.json": json.dumps({"train_batch_size": 1, "train_micro_batch_size_per_gpu": 1}), "run.sh": f"{launch} {parallel}\n"})
    assert [d.code for d in folder.diagnostics("run.sh") if d.code == "DS201"] == []
    folder.write({"run.sh": launch + "\n"})
    assert [d.code for d in folder.diagnostics("run.sh") if d.code == "DS201"] == ["DS201"]


@pytest.mark.parametrize(
    ("others", "certain"), [("", False), ("--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024", True)]
)
def test_only_megatrons_own_program_certainly_divides_the_ranks_by_a_flag(folder: Folder, others: str, *, certain: bool) -> None:
    launch = f"deepspeed --num_gpus 6 train.py --tensor-model-parallel-size 4 {others} --deepspeed_config ds.json\n"
    folder.write({"ds.json": json.dumps({"train_micro_batch_size_per_gpu": 1}), "run.sh": launch})
    (found,) = (d for d in folder.diagnostics("run.sh") if d.code == "DS869")
    assert found.certain is certain


BRANCH = """\
import sys
from transformers import AutoModelForCausalLM, TrainingArguments
arguments = TrainingArguments(output_dir="out", deepspeed="ds.json")
if read(sys.argv):
    model = AutoModelForCausalLM.from_pretrained("m", device_map="auto")
else:
    model = AutoModelForCausalLM.from_pretrained("m"{other})
"""


def test_a_device_map_in_one_of_two_branches_is_not_the_one_that_runs(folder: Folder) -> None:
    for other, codes in (("", []), (', device_map="auto"', ["DS946"])):
        folder.write({"ds.json": json.dumps(BATCH | STAGE_3), "train.py": BRANCH.replace("{other}", other)})
        assert [d.code for d in folder.diagnostics("train.py") if d.code == "DS946"] == codes


ACCELERATE = """\
distributed_type: DEEPSPEED
mixed_precision: ${PRECISION}
num_processes: ${RANKS}
deepspeed_config:
  zero_stage: ${STAGE}
  offload_optimizer_device: ${DEVICE}
  gradient_accumulation_steps: ${STEPS}
  gradient_clipping: {{ clipping }}
"""
AXOLOTL = """\
base_model: m
micro_batch_size: ${MICRO}
learning_rate: ${RATE}
bf16: ${BF16}
datasets: []
deepspeed:
  train_micro_batch_size_per_gpu: ${MICRO}
  zero_optimization: {stage: "${STAGE}"}
  optimizer: {type: "${TYPE}"}
"""


@pytest.mark.parametrize("text", [ACCELERATE.replace("{{ clipping }}", "${CLIPPING}"), AXOLOTL], ids=["accelerate", "axolotl"])
def test_placeholders_are_unknown_and_not_judged(folder: Folder, text: str) -> None:
    folder.write({"train.yaml": text})
    result = folder.results("train.yaml")["train.yaml"]
    assert [d.code for d in result.diagnostics] == []
    (reason,) = result.not_judged
    assert "6 values are placeholders" in reason.reason
    assert reason.range is not None
    assert reason.range.start.line == 2


def test_a_placeholder_for_the_config_itself(folder: Folder) -> None:
    folder.write({"train.yaml": "base_model: m\nmicro_batch_size: 2\ndatasets: []\ndeepspeed: ${DS}\n"})
    result = folder.results("train.yaml")["train.yaml"]
    assert not result.is_judged
    assert "${DS}" in result.not_judged[0].reason


OWN_LOOP = "import deepspeed\n\nclass MyTrainer:\n    def __init__(self, arguments):\n        self.engine = deepspeed.initialize(config=arguments.deepspeed)\n"


@pytest.mark.parametrize(
    ("trains", "codes"),
    [
        ("from loop import MyTrainer\nMyTrainer(arguments)\n", []),
        ("from transformers import Trainer\nTrainer(args=arguments).train()\n", ["DS904"]),
        ("from transformers import Trainer\nclass Theirs(Trainer):\n    pass\n", ["DS904"]),
    ],
)
def test_arguments_are_not_compared_if_no_program_of_the_project_has_a_trainer(folder: Folder, trains: str, codes: list[str]) -> None:
    folder.write({"train.yaml": TRAINER_YAML, "ds.json": json.dumps(BATCH | STAGE_3), "loop.py": OWN_LOOP, "train.py": trains})
    assert [d.code for d in folder.diagnostics("train.yaml") if d.code == "DS904"] == codes


OWN_ARGUMENTS = "from somewhere import MyTrainer, {name}\narguments = {name}(output_dir='out', deepspeed='ds.json')\nMyTrainer(args=arguments).train()\n"


@pytest.mark.parametrize(("name", "severity"), [("TrainingArguments", Severity.ERROR), ("MyTrainingArguments", Severity.INFO)])
def test_a_default_of_the_programs_own_arguments_may_be_another_one(folder: Folder, name: str, severity: Severity) -> None:
    folder.write({"train.py": OWN_ARGUMENTS.replace("{name}", name), "ds.json": json.dumps(BATCH | STAGE_3 | {"bf16": {"enabled": True}})})
    found = [d for d in folder.diagnostics("train.py") if d.code == "DS904" and "bf16" in (d.pointer or "")]
    assert [d.severity for d in found] == [severity]


FACTORY = """\
import deepspeed
from arguments import parse

def make(stage=0):
    return {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": %s, "zero_quantized_weights": True}}

deepspeed.initialize(model=model, config=make())
"""


@pytest.mark.parametrize(("stage", "codes"), [("stage", []), ("0", ["DS445"])])
def test_a_config_for_several_stages_keeps_the_keys_of_each(folder: Folder, stage: str, codes: list[str]) -> None:
    folder.write({"train.py": FACTORY % stage})
    assert [d.code for d in folder.diagnostics("train.py") if d.code == "DS445"] == codes


def test_a_missing_file_that_is_named_twice_is_one_finding(folder: Folder) -> None:
    names = "{model}:\n  deepspeed_config: configs/zero.json\n  learning_rate: 1e-4\n"
    folder.write({"train.yaml": "".join(names.replace("{model}", model) for model in ("small", "large"))})
    (found,) = (d for d in for_report(folder.results("train.yaml")["train.yaml"]).diagnostics if d.code == "DS919")
    assert [related.range.start.line for related in found.related if related.range] == [5]


@pytest.mark.parametrize(("choice", "codes"), [("${FSDP}", []), ('"{{ fsdp }}"', []), ('"full_shard"', ["DS920"])])
def test_fsdp_behind_a_placeholder_is_not_known_to_be_on(folder: Folder, choice: str, codes: list[str]) -> None:
    folder.write({"train.yaml": TRAINER_YAML + f"fsdp: {choice}\n", "ds.json": json.dumps(BATCH | STAGE_3)})
    assert [d.code for d in folder.diagnostics("train.yaml") if d.code == "DS920"] == codes


ACCUMULATING = (
    "output_dir: out\nlearning_rate: 1.0e-4\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 8\ndeepspeed: ds.json\n"
)


@pytest.mark.parametrize(
    ("batch", "effect"),
    [
        ({"train_batch_size": 64}, Effect.ADVICE),  # the Trainer says when DeepSpeed updates the parameters
        ({"train_micro_batch_size_per_gpu": 4}, Effect.ADVICE),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}, Effect.CRASH),
    ],
)
def test_accumulation_that_is_not_taken_over_raises_only_for_both_batch_sizes(
    folder: Folder, batch: dict[str, int], effect: Effect
) -> None:
    folder.write({"train.yaml": ACCUMULATING, "ds.json": json.dumps(batch | STAGE_3)})
    assert [d.effect for d in folder.diagnostics("train.yaml") if d.code == "DS906"] == [effect]


@pytest.mark.parametrize(
    ("required", "since", "certain"),
    [
        ("transformers>=4.21.2\n", True, False),
        ("transformers>=4.29,<5\n", True, False),
        ("transformers>=4.30\n", False, True),
        ("transformers==4.44.0\n", False, True),
        ("", False, True),
    ],
)
def test_accelerate_adds_a_step_only_since_it_is_part_of_the_trainer(folder: Folder, required: str, *, since: bool, certain: bool) -> None:
    batch = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}
    folder.write({"train.yaml": ACCUMULATING, "ds.json": json.dumps(batch | STAGE_3), "requirements.txt": required})
    (one,) = (one for one in api.check(folder.path / "train.yaml") if one.code == "DS906")
    assert ("since transformers 4.30 Accelerate adds it with the value 1" in one.message, one.certain) == (since, certain)


@pytest.mark.parametrize(
    ("text", "help_"),
    [
        ('{"train_batch_size": 8, "zero_optimization": {"stage": 2, "reduce_bucket_size": "500M"}}', "Write 500000000."),
        ('{"train_batch_size": 8, "zero_optimization": {"stage": 3, "stage3_max_live_parameters": "1B"}}', "Write 1000000000."),
        (
            '{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": "0.9,0.999"}}}',
            "Write [0.9, 0.999].",
        ),
    ],
)
def test_a_number_in_words_is_answered_in_digits(text: str, help_: str) -> None:
    result = lint_text(text, "ds.json", Facts(), default_rules())
    assert result is not None
    assert help_ in [found.help for found in result.diagnostics]


@pytest.mark.parametrize("key", ["pipeline_model_parallel_size", "num_stages", "pipe_schedule"])
def test_an_unknown_key_of_a_section_that_makes_no_pipeline_names_no_other_key_of_it(key: str) -> None:
    result = lint_text(f'{{"train_batch_size": 8, "pipeline": {{"{key}": 8}}}}', "ds.json", Facts(), default_rules())
    assert result is not None
    (found,) = result.diagnostics
    assert "PipelineModule" in (found.help or "")


@pytest.mark.parametrize(
    ("integration", "stage", "pins", "error"),
    [
        (Integration.TRANSFORMERS, 2, {}, "Accelerate raises TypeError \"unsupported operand type(s) for //: 'str' and 'int'\""),
        (Integration.ACCELERATE, 1, {}, "Accelerate raises TypeError \"unsupported operand type(s) for //: 'str' and 'int'\""),
        (Integration.ACCELERATE, 1, {"accelerate": Release(1, 11, 0)}, "DeepSpeed raises TypeError \"'>' not supported"),
        (Integration.TRANSFORMERS, 2, {"accelerate": Release(1, 11, 0)}, 'The Trainer raises "Please correct'),
        (Integration.TRANSFORMERS, 3, {}, "DeepSpeed raises TypeError \"'>' not supported"),  # when the model is loaded
        (Integration.DEEPSPEED, 2, {}, "DeepSpeed raises TypeError \"'>' not supported"),
    ],
)
def test_the_first_to_compute_with_a_micro_batch_size_that_is_text(
    integration: Integration, stage: int, pins: dict[str, Release], error: str
) -> None:
    text = json.dumps({"train_micro_batch_size_per_gpu": "4", "zero_optimization": {"stage": stage}})
    result = lint_text(text, "ds.json", Context(Facts(None, integration), pins=pins), default_rules())
    assert result is not None
    (found,) = [one for one in result.diagnostics if one.code == "DS104"]
    assert error in found.message
    assert found.phase is (Phase.PARSE if error.startswith("DeepSpeed") else Phase.LOAD)


def test_the_steps_that_accelerate_adds_are_a_part_of_the_product(folder: Folder) -> None:
    program = "from accelerate import Accelerator, DeepSpeedPlugin\n"
    program += 'accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds.json"))\nmodel = accelerator.prepare(m)\n'
    folder.write({"train.py": program, "ds.json": '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2}'})
    (found,) = [one for one in folder.diagnostics("train.py", facts=Facts(world_size=1)) if one.code == "DS201"]
    assert found.help is not None
    assert found.help.startswith('To keep the train batch size, write "gradient_accumulation_steps": 8. Write 2')


@pytest.mark.parametrize(
    ("requirements", "release", "found"),
    [
        ("deepspeed>=0.8.3,<0.9\ntransformers[torch]>=4.28.1,<5\n", None, "0.8.3"),
        ("deepspeed==0.9.2\ntransformers\n", None, "0.9.2"),
        ("deepspeed==0.9.2\ntransformers<4.31\n", None, ""),
        ("deepspeed>=0.8.3\ntransformers>=4.28.1\n", None, ""),
        ("deepspeed==0.9.2\ntransformers>=4.28.1\ntransformers<4.31\n", None, ""),
        ("deepspeed==0.9.2\ntransformers @ git+https://example.org/transformers\n", None, ""),
        ("deepspeed==0.9.2\n", None, ""),
        ("transformers==4.14.1\n", "0.5.3", "0.5.3"),
        ("transformers==4.14.1\n", "0.5.7", ""),
    ],
)
def test_requirements_that_exclude_each_other(tmp_path: Path, requirements: str, release: str | None, found: str) -> None:
    (tmp_path / "requirements.txt").write_text(requirements)
    config = tmp_path / "ds.json"
    config.write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2}}')
    told = {"integration": Integration.TRANSFORMERS} | ({"deepspeed": Release.parse(release)} if release else {})
    context = Finder([from_options(told)]).for_file(str(config)).context
    messages = [
        one.message for one in lint_text(config.read_text(), "ds.json", context, default_rules()).diagnostics if one.code == "DS952"
    ]
    assert [message.split()[1] for message in messages] == ([found] if found else [])


@pytest.mark.parametrize(("fp16", "trains"), [(True, "trains in fp16"), (False, "does not enable bf16")])
def test_what_is_ignored_leaves_the_other_precision(fp16: bool, trains: str) -> None:
    found = of_rule("DS102", {"fp16": {"enabled": fp16}, "bf_16": {"enabled": False}}, Integration.DEEPSPEED)
    assert [trains in one.message for one in found] == [True]


def test_a_section_of_the_top_level_inside_another_one_is_to_be_moved() -> None:
    (found,) = of_rule("DS101", {"zero_optimization": {"stage": 3, "aio": {"block_size": 1048576}}})
    assert found.help == "Move it to the top level."
