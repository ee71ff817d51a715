"""Of several errors a job meets one first: the reports order them as its framework comes to them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from tests.setup.folder import Folder

_LLAMA_FACTORY = "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset: d\ntemplate: default\n"
_MS_SWIFT = "model: m\ntuner_type: full\ndataset: d\n"
_SHARED = "output_dir: out\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-4\ndeepspeed: ds.json\n"
_CALL = (
    "from transformers import Trainer, TrainingArguments\nTrainer(model=model, args=TrainingArguments({}, deepspeed='ds.json')).train()\n"
)
_PARSED = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_yaml_file('train.yaml')\nTrainer(model=model, args=args).train()\n"
)
_COMMANDS = {
    "llama": "FORCE_TORCHRUN=1 NPROC_PER_NODE=2 llamafactory-cli train train.yaml\n",
    "swift": "NPROC_PER_NODE=2 swift sft train.yaml\n",
    "program": "torchrun --nproc_per_node 2 train.py\n",
}
_CONFIG = (
    '{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'
)
_BOTH = "fp16: true\nbf16: true\n"
_PINS = {"requirements.txt": "llamafactory==0.9.5\nms-swift==4.6.0\ntransformers==5.19.0\n"}
"""Releases that have the refusals: without one an older release may lack them."""


@pytest.mark.parametrize(
    ("start", "files", "codes"),
    [
        ("llama", {"train.yaml": _LLAMA_FACTORY + _SHARED + _BOTH + "learning_rat: 1.0e-4\n"}, ["DS960", "DS974"]),
        ("llama", {"train.yaml": _LLAMA_FACTORY + _SHARED + _BOTH + "quantization_bit: 4\n"}, ["DS960", "DS975"]),
        ("llama", {"train.yaml": _LLAMA_FACTORY + _SHARED + "quantization_bit: 4\nlearning_rat: 1.0e-4\n"}, ["DS974", "DS975"]),
        ("llama", {"train.yaml": _LLAMA_FACTORY + _SHARED + "use_galore: true\nuse_badam: true\npure_bf16: true\n"} | _PINS, ["DS975"]),
        ("swift", {"train.yaml": _MS_SWIFT + _SHARED + "packing: true\nsave_strategy: stepss\n"} | _PINS, ["DS975", "DS980", "DS906"]),
        ("program", {"train.py": _CALL.format("'out', fp16=True, bf16=True, no_cuda=True")}, ["DS974", "DS960"]),
        ("program", {"train.py": _PARSED, "train.yaml": _SHARED + _BOTH + "learning_rat: 1.0e-4\n"}, ["DS960", "DS974"]),
    ],
)
def test_frameworks_have_an_order_of_their_own(folder: Folder, start: str, files: dict[str, str], codes: list[str]) -> None:
    assert errors(folder, {"run.sh": _COMMANDS[start], "ds.json": _CONFIG, **files}) == codes


def test_llama_factory_makes_its_arguments_before_it_reads_the_config(folder: Folder) -> None:
    folder.write({"run.sh": _COMMANDS["llama"], "train.yaml": _LLAMA_FACTORY + _SHARED + _BOTH})
    found = sorted(folder.diagnostics("run.sh"), key=lambda one: one.order or 0)
    assert [one.code for one in found if one.severity == "error"] == ["DS960", "DS919"]


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ("", ["DS975"]),
        ("split_dataset_ratio: 0\n", ["DS975"]),
        ("save_strategy: epoch\neval_strategy: epoch\n", ["DS975"]),
        ("split_dataset_ratio: 0.1\n", []),
        ("val_dataset: d\n", []),
        ('save_strategy: "no"\n', []),
    ],
)
def test_ms_swift_evaluates_nothing_without_data(folder: Folder, more: str, codes: list[str]) -> None:
    train = _MS_SWIFT + _SHARED + f"bf16: true\nfp16: false\ngradient_accumulation_steps: 1\nload_best_model_at_end: true\n{more}"
    assert errors(folder, {"run.sh": _COMMANDS["swift"], "ds.json": _CONFIG, "train.yaml": train}) == codes


@pytest.mark.parametrize(("stage", "codes"), [(2, ["DS904", "DS104"]), (3, ["DS104", "DS904"])])
def test_a_config_is_parsed_while_zero_3_loads_the_model(folder: Folder, stage: int, codes: list[str]) -> None:
    config = {"train_batch_size": "auto", "gradient_clipping": 0.5, "zero_optimization": {"stage": stage, "sub_group_size": "1e9"}}
    files = {"run.sh": _COMMANDS["llama"], "ds.json": json.dumps(config), "train.yaml": _LLAMA_FACTORY + _SHARED + "bf16: true\n"}
    assert errors(folder, files) == codes


_TRL = "model_name_or_path: m\noutput_dir: out\ndatasets: [{path: json, data_files: rows.jsonl}]\nper_device_train_batch_size: 1\n"


def test_trl_reads_its_data_before_it_loads_the_model(folder: Folder) -> None:
    config = '{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}'
    train = _TRL + "learning_rate: 1.0e-4\neval_strategy: steps\ndeepspeed: ds.json\nnum_processes: 1\n"
    files = {"run.sh": "trl sft --config train.yaml\n", "ds.json": config, "train.yaml": train}
    assert errors(folder, files) == ["DS975", "DS962"]


def test_a_program_with_a_parser_of_trl_refuses_keys_of_its_file(folder: Folder) -> None:
    program = (
        "from trl import SFTConfig, SFTTrainer, TrlParser\n(args,) = TrlParser((SFTConfig,)).parse_args_and_config()\n"
        "SFTTrainer(model='m', args=args, train_dataset=data).train()\n"
    )
    train = "output_dir: out\nlearning_rate: 1.0e-4\nnum_train_epochs: 1\ndeepspeed: ds.json\nlogging_dir: logs\n"
    config = '{"train_batch_size": "auto", "bf16": {"enabled": false}, "zero_optimization": {"stage": 2}}'
    files = {
        "run.sh": "torchrun --nproc_per_node 2 train.py --config train.yaml\n",
        "train.py": program,
        "train.yaml": train,
        "ds.json": config,
    }
    pins = "trl==1.16.0\ntransformers==5.23.0\naccelerate==1.15.0\ndeepspeed==0.19.8\n"
    assert errors(folder, {**files, "requirements.txt": pins}) == ["DS974", "DS904"]
    mine = "import dataclasses\n@dataclasses.dataclass\nclass Mine:\n    logging_dir: str = ''\n" + program.replace("(args,)", "mine, args")
    assert errors(folder, {**files, "train.py": mine.replace("(SFTConfig,)", "(Mine, SFTConfig)"), "requirements.txt": pins}) == ["DS904"]


@pytest.mark.parametrize("stage", [2, 3])
def test_a_config_reads_its_keys_before_it_checks_the_batch(folder: Folder, stage: int) -> None:
    config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": stage}}
    train = _LLAMA_FACTORY + _SHARED + "bf16: true\ngradient_accumulation_steps: 4\n"
    files = {"run.sh": _COMMANDS["llama"], "ds.json": json.dumps({**config, "communication_data_type": "float8"}), "train.yaml": train}
    assert errors(folder, files) == ["DS107", "DS906"]


@pytest.mark.parametrize("stage", [2, 3])
def test_axolotl_loads_its_model_before_accelerate_adds_a_step(folder: Folder, stage: int) -> None:
    """It reads and fills the config by itself for that."""
    config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_clipping": 0.5}
    train = "base_model: m\ndatasets: [{path: d}]\nmicro_batch_size: 1\ngradient_accumulation_steps: 4\nbf16: true\ndeepspeed: ds.json\n"
    files = {"run.sh": "axolotl train train.yaml\n", "train.yaml": train}
    assert errors(folder, {**files, "ds.json": json.dumps({**config, "zero_optimization": {"stage": stage}})}) == ["DS904", "DS906"]


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ("", "jagged_restart_steps must be set to use ReLoRA"),
        ("jagged_restart_steps: 10\n", "cfg.adapter must support ReLoRA to use ReLoRA restart semantics"),
        ("jagged_restart_steps: 10\nadapter: lora\n", "deepspeed not supported with ReLoRA"),
    ],
)
def test_axolotl_checks_relora_before_deepspeed(folder: Folder, more: str, error: str) -> None:
    train = f"base_model: m\ndatasets: [{{path: d}}]\nmicro_batch_size: 1\nrelora: true\ndeepspeed: ds.json\n{more}"
    folder.write({"run.sh": "axolotl train train.yaml\n", "train.yaml": train, "ds.json": _CONFIG})
    (found,) = [one for one in folder.diagnostics("run.sh") if one.code == "DS975"]
    assert error in found.message


@pytest.mark.parametrize(("number", "codes"), [("", ["DS976"]), ("num_processes: 2\n", [])])
def test_trl_names_its_launcher_a_file_without_processes(folder: Folder, number: str, codes: list[str]) -> None:
    train = _TRL + f"learning_rate: 1.0e-4\nbf16: true\naccelerate_config: accelerate.yaml\n{number}"
    files = {"run.sh": "trl sft --config train.yaml\n", "ds.json": _CONFIG, "train.yaml": train}
    config = _CONFIG[:-1] + ', "gradient_accumulation_steps": "auto"}'
    launcher = _OF_LAUNCHER.replace("num_processes: 2\n", "")
    assert errors(folder, {**files, "ds.json": config, "accelerate.yaml": launcher}) == codes


_BLOCK_3 = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  gradient_accumulation_steps: 1\n  zero_stage: 3\n"


@pytest.mark.parametrize(
    ("command", "more", "error"),
    [
        ("dpo", "", "While the reference model is loaded, DeepSpeed raises AssertionError"),
        ("dpo", "use_peft: true\n", "After the model is loaded"),
        ("dpo", "precompute_ref_log_probs: true\n", "After the model is loaded"),
        ("sft", "", "After the model is loaded"),
    ],
)
def test_a_reference_model_is_loaded_before_the_trainer_compares(folder: Folder, command: str, more: str, error: str) -> None:
    train = _TRL + f"learning_rate: 1.0e-4\nbf16: true\ngradient_accumulation_steps: 4\naccelerate_config: accelerate.yaml\n{more}"
    folder.write({"run.sh": f"trl {command} --config train.yaml\n", "train.yaml": train, "accelerate.yaml": _BLOCK_3})
    (found,) = [one for one in folder.diagnostics("run.sh") if one.code == "DS904"]
    assert error in found.message
    assert ("8 != 1 * 1 * 2" in found.message) is ("reference" in error)  # what the Trainer has filled in


@pytest.mark.parametrize(("micro", "codes"), [(', "train_micro_batch_size_per_gpu": "auto"', []), ("", ["DS904"])])
def test_a_reference_model_is_loaded_with_a_micro_batch_of_one(folder: Folder, micro: str, codes: list[str]) -> None:
    config = f'{{"train_batch_size": "auto"{micro}, "gradient_accumulation_steps": "auto", "bf16": {{"enabled": "auto"}}, "zero_optimization": {{"stage": 3}}}}'
    train = _TRL.replace("size: 1", "size: 4") + "learning_rate: 1.0e-4\nbf16: true\ndeepspeed: ds.json\nnum_processes: 2\n"
    files = {"run.sh": "trl dpo --config train.yaml\n", "ds.json": config, "train.yaml": train}
    assert errors(folder, files) == codes


@pytest.mark.parametrize(
    ("parts", "more", "codes"), [(2, "", ["DS991"]), (1, "", []), (2, "use_peft: true\n", []), (2, "precompute_ref_log_probs: true\n", [])]
)
def test_groups_of_ranks_are_made_for_one_model(folder: Folder, parts: int, more: str, codes: list[str]) -> None:
    zero = {"stage": 3, "zero_hpz_partition_size": parts}
    config = json.dumps({**json.loads(_CONFIG), "gradient_accumulation_steps": "auto", "zero_optimization": zero})
    train = _TRL + f"learning_rate: 1.0e-4\nbf16: true\ndeepspeed: ds.json\nnum_processes: 2\n{more}"
    assert errors(folder, {"run.sh": "trl dpo --config train.yaml\n", "ds.json": config, "train.yaml": train}) == codes


def test_a_config_is_read_before_it_is_compared(folder: Folder) -> None:
    config = '{"train_batch_size": "auto", "gradient_clipping": 0.5, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2},}'
    train = _MS_SWIFT + _SHARED + "bf16: true\nfp16: false\ngradient_accumulation_steps: 1\n"
    assert errors(folder, {"run.sh": _COMMANDS["swift"], "ds.json": config, "train.yaml": train}) == ["DS002", "DS904"]


def test_ms_swift_checks_attention_before_it_loads_the_model(folder: Folder) -> None:
    train = _MS_SWIFT + _SHARED.replace("ds.json", "zero3") + "bf16: true\nfp16: false\npadding_free: true\ndeepspeed_autotp_size: 2\n"
    folder.write({"run.sh": _COMMANDS["swift"], "train.yaml": train})
    (found,) = [one for one in folder.diagnostics("run.sh") if one.code == "DS975"]
    assert "feature requires a flash attention implementation" in found.message


def test_ms_swift_computes_steps_that_the_config_does_not_have(folder: Folder) -> None:
    train = _MS_SWIFT + _SHARED + "bf16: true\nfp16: false\n"
    folder.write({"run.sh": _COMMANDS["swift"], "ds.json": _CONFIG, "train.yaml": train})
    (found,) = [one for one in folder.diagnostics("run.sh") if one.code == "DS906"]
    assert "ms-swift computes 8 gradient accumulation steps, but the config has no gradient_accumulation_steps" in found.message


_OF_LAUNCHER = """distributed_type: DEEPSPEED
num_machines: 1
num_processes: 2
deepspeed_config:
  deepspeed_config_file: ds.json
  zero3_init_flag: true
"""


@pytest.mark.parametrize(("steps", "codes"), [(8, ["DS904"]), (1, [])])
def test_accelerate_adds_a_step_before_the_trainer_compares(folder: Folder, steps: int, codes: list[str]) -> None:
    config = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'
    train = _TRL + f"learning_rate: 1.0e-4\ngradient_accumulation_steps: {steps}\naccelerate_config: accelerate.yaml\nnum_processes: 2\n"
    files = {"run.sh": "trl sft --config train.yaml\n", "ds.json": config, "train.yaml": train, "accelerate.yaml": _OF_LAUNCHER}
    assert errors(folder, files) == codes


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ("fp16: true\nbf16: false\nbf16_full_eval: true\n", "- ds bf16.enabled=False vs hf bf16|bf16_full_eval=True"),
        ("fp16: false\nbf16: false\nmixed_precision: bf16\n", "- ds bf16.enabled=True vs hf bf16|bf16_full_eval=False"),
        ("fp16: false\nbf16: true\nmixed_precision: bf16\n", ""),
        ("fp16: false\nbf16: true\nmixed_precision: fp16\n", ""),
        ("fp16: false\nbf16: false\n", ""),
    ],
)
@pytest.mark.parametrize("section", ['"bf16": {"enabled": "auto"}, ', ""])
def test_accelerate_switches_the_precision_before_the_trainer_compares(folder: Folder, section: str, more: str, error: str) -> None:
    config = (
        f'{{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", {section}"zero_optimization": {{"stage": 2}}}}'
    )
    train = _TRL + f"learning_rate: 1.0e-4\naccelerate_config: accelerate.yaml\n{more}"
    folder.write({"run.sh": "trl sft --config train.yaml\n", "ds.json": config, "train.yaml": train, "accelerate.yaml": _OF_LAUNCHER})
    folder.write({"requirements.txt": "trl==1.16.0\ntransformers==5.23.0\ndeepspeed==0.19.8\n"})
    found = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS904" and one.severity == "error"]
    assert len(found) == bool(error)
    assert error in "".join(found)


def test_ms_swift_gives_its_file_to_a_parser_of_flags(folder: Folder) -> None:
    keys = _MS_SWIFT + _SHARED + _BOTH + "optim: adamw\npacking: true\n"
    files = {"run.sh": _COMMANDS["swift"], "ds.json": _CONFIG, "train.yaml": keys} | _PINS
    assert errors(folder, files) == ["DS980", "DS975", "DS960", "DS906"]
    found = json.loads(CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output)["diagnostics"]
    assert any("argument --optim: invalid choice: 'adamw'" in one["message"] for one in found)


@pytest.mark.parametrize(("pins", "severity"), [("transformers==5.19.0\n", "error"), ("", "warning")])
def test_the_optimizer_section_of_ms_swift_raises_for_certain(folder: Folder, pins: str, severity: str) -> None:
    config = json.dumps({**json.loads(_CONFIG), "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})
    folder.write({"run.sh": _COMMANDS["swift"], "ds.json": config, "train.yaml": _MS_SWIFT + _SHARED + "bf16: true\n"})
    folder.write({"requirements.txt": f"ms-swift==4.6.0\ndeepspeed==0.19.8\n{pins}"})
    found = json.loads(CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output)["diagnostics"]
    assert [one["severity"] for one in found if one["code"] == "DS986"] == [severity]


def errors(folder: Folder, files: dict[str, str]) -> list[str]:
    """The codes of the errors in the order in which a job meets them."""
    folder.write({"requirements.txt": "transformers==5.23.0\ndeepspeed==0.19.8\n", **files})
    found = json.loads(CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output)["diagnostics"]
    assert all((one["order"] is None) == (one["phase"] is None) for one in found)
    return [code for _, code in sorted((one["order"], one["code"]) for one in found if one["severity"] == "error")]


@pytest.mark.parametrize(("stage", "said"), [(3, True), (2, False)])
def test_a_batch_that_does_not_fit_may_raise_before_the_trainer_compares_it(folder: Folder, stage: int, said: bool) -> None:
    """At ZeRO stage 3 DeepSpeed parses the config in from_pretrained; whether the program calls that is not known."""
    config = f'{{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto", "zero_optimization": {{"stage": {stage}}}}}'
    given = "--per_device_train_batch_size 2 --gradient_accumulation_steps 4"
    folder.write({"ds.json": config, "run.sh": f"accelerate launch --num_processes 8 elsewhere.py --deepspeed ds.json {given}\n"})
    (found,) = (one for one in folder.diagnostics("run.sh") if one.code == "DS904")
    assert ("If the program loads a model with from_pretrained, DeepSpeed raises AssertionError" in found.message) == said


def test_a_class_of_trl_selects_bf16_by_itself(folder: Folder) -> None:
    """From TRL 0.19 on its classes select bf16 where fp16 is not set; an older one has the default of the Trainer."""
    program = (
        "from trl import SFTConfig, SFTTrainer\nargs = SFTConfig(output_dir='out', deepspeed='ds.json')\n"
        "SFTTrainer(model='m', args=args, train_dataset=data).train()\n"
    )
    config = '{"train_batch_size": "auto", "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    files = {"run.sh": "deepspeed --num_gpus 2 train.py\n", "train.py": program, "ds.json": config}
    assert errors(folder, {**files, "requirements.txt": "trl==0.20.0\ntransformers==4.54.0\n"}) == ["DS905"]
    assert errors(folder, {**files, "requirements.txt": "trl==0.18.0\ntransformers==4.52.4\n"}) == ["DS904"]
    fits = program.replace("'out'", "'out', fp16=True")
    assert errors(folder, {**files, "train.py": fits, "requirements.txt": "trl==0.20.0\ntransformers==4.54.0\n"}) == []


def test_a_schedule_without_warm_up_and_decay(folder: Folder) -> None:
    """The flags of a launch fill WarmupLR, too; without a warm-up the learning rate never changes."""
    scheduler = '{"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}}'
    config = (
        f'{{"train_batch_size": "auto", "optimizer": {{"type": "AdamW"}}, "scheduler": {scheduler}, "zero_optimization": {{"stage": 2}}}}'
    )
    launch = "deepspeed --num_gpus 2 elsewhere.py --deepspeed ds.json --output_dir o --learning_rate 1e-4"
    for more, codes in (("", ["DS658"]), (" --warmup_ratio 0.1", []), (" --lr_scheduler_type constant", [])):
        folder.write({"ds.json": config, "run.sh": f"{launch}{more}\n"})
        assert [one.code for one in folder.diagnostics("run.sh") if one.code == "DS658"] == codes
    for transformers, codes in (("4.57.6", ["DS931"]), ("5.17.0", ["DS658"])):  # DeepSpeed raises for the 0 steps of the older one
        folder.write({"run.sh": _COMMANDS["program"], "train.py": _CALL.format("'out'")})
        folder.write({"requirements.txt": f"transformers=={transformers}\ndeepspeed==0.19.8\n"})
        command = ["check", ".", "--select", "DS658,DS931", "--output-format", "json"]
        found = json.loads(CliRunner().invoke(cli, command).stdout)["diagnostics"]
        assert [one["code"] for one in found] == codes
