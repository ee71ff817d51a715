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


@pytest.mark.parametrize(
    ("start", "files", "codes"),
    [
        ("llama", {"train.yaml": _LLAMA_FACTORY + _SHARED + _BOTH + "learning_rat: 1.0e-4\n"}, ["DS960", "DS974"]),
        ("llama", {"train.yaml": _LLAMA_FACTORY + _SHARED + _BOTH + "quantization_bit: 4\n"}, ["DS960", "DS975"]),
        ("llama", {"train.yaml": _LLAMA_FACTORY + _SHARED + "quantization_bit: 4\nlearning_rat: 1.0e-4\n"}, ["DS974", "DS975"]),
        ("llama", {"train.yaml": _LLAMA_FACTORY + _SHARED + "use_galore: true\nuse_badam: true\npure_bf16: true\n"}, ["DS975"]),
        ("swift", {"train.yaml": _MS_SWIFT + _SHARED + "packing: true\nsave_strategy: stepss\n"}, ["DS975", "DS980"]),
        ("program", {"train.py": _CALL.format("'out', fp16=True, bf16=True, no_cuda=True")}, ["DS974", "DS960"]),
        ("program", {"train.py": _PARSED, "train.yaml": _SHARED + _BOTH + "learning_rat: 1.0e-4\n"}, ["DS960", "DS974"]),
    ],
)
def test_frameworks_have_an_order_of_their_own(folder: Folder, start: str, files: dict[str, str], codes: list[str]) -> None:
    assert errors(folder, {"run.sh": _COMMANDS[start], "ds.json": _CONFIG, **files}) == codes


@pytest.mark.parametrize(("stage", "codes"), [(2, ["DS904", "DS104"]), (3, ["DS104", "DS904"])])
def test_a_config_is_parsed_while_zero_3_loads_the_model(folder: Folder, stage: int, codes: list[str]) -> None:
    config = {"train_batch_size": "auto", "gradient_clipping": 0.5, "zero_optimization": {"stage": stage, "sub_group_size": "1e9"}}
    files = {"run.sh": _COMMANDS["llama"], "ds.json": json.dumps(config), "train.yaml": _LLAMA_FACTORY + _SHARED + "bf16: true\n"}
    assert errors(folder, files) == codes


def test_ms_swift_gives_its_file_to_a_parser_of_flags(folder: Folder) -> None:
    files = {"run.sh": _COMMANDS["swift"], "ds.json": _CONFIG, "train.yaml": _MS_SWIFT + _SHARED + _BOTH + "optim: adamw\npacking: true\n"}
    assert errors(folder, files) == ["DS980", "DS975", "DS960"]
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
