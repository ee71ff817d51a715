"""Arguments that the config classes of TRL have in some releases only."""

from __future__ import annotations

import json

import pytest

from tests.command import dslint
from tests.setup.folder import Folder

HEAD = "from dataclasses import dataclass\nfrom trl import GRPOConfig, SFTConfig, SFTTrainer, TrlParser\n"
PARSES = f"{HEAD}(arguments,) = TrlParser((SFTConfig,)).parse_args_and_config()\nSFTTrainer('m', arguments, train_dataset=data).train()\n"
OWN = (
    PARSES.replace("(arguments,)", "own, arguments")
    .replace("(SFTConfig,)", "(Own, SFTConfig)")
    .replace(HEAD, f"{HEAD}@dataclass\nclass Own:\n    max_seq_length: int = 0\n")
)
GIVEN = f"{HEAD}SFTTrainer('m', SFTConfig('out', deepspeed='ds.json', %s=2048), train_dataset=data).train()\n"
CONFIG = '{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}'
RUN = "deepspeed train.py --deepspeed ds.json --output_dir out --{}\n"


@pytest.mark.parametrize(
    ("program", "flag", "release", "codes"),
    [
        (PARSES, "max_seq_length 2048", "==0.20.0", ["DS974"]),
        (PARSES, "max_seq_length 2048", "==0.19.1", []),
        (PARSES, "max_seq_length 2048", ">=0.12", []),
        (PARSES, "max_length 2048", "==0.15.2", ["DS974"]),
        (PARSES, "max_length 2048", "==0.16.0", []),
        (PARSES, "use_liger true", "==0.20.0", []),  # argparse takes the beginning of a name
        (PARSES, "vllm_device cuda:7", "==0.20.0", []),  # of another class
        (OWN, "max_seq_length 2048", "==0.20.0", []),
        (f"import unsloth\n{PARSES}", "max_seq_length 2048", "==0.20.0", []),
        (PARSES.replace("config()", "config(return_remaining_strings=True)[:1]"), "max_seq_length 2048", "==0.20.0", []),
        (GIVEN % "max_seq_length", "x", "==0.20.0", ["DS983"]),
        (GIVEN % "max_seq_length", "x", "==0.18.2", []),
        (GIVEN % "max_seq_length", "x", ">=0.12", ["DS983"]),
        (GIVEN % "max_length", "x", "==0.20.0", []),
        (GIVEN % "max_length", "x", "==0.14.0", ["DS983"]),
        (GIVEN.replace("SFTConfig(", "GRPOConfig(") % "max_length", "x", "==0.14.0", []),
    ],
)
def test_arguments_of_a_release(folder: Folder, program: str, flag: str, release: str, codes: list[str]) -> None:
    run = RUN.format(flag) if "deepspeed=" not in program else "deepspeed train.py\n"
    folder.write({"train.py": program, "run.sh": run, "ds.json": CONFIG, "requirements.txt": f"trl{release}\n"})
    assert [code for code in _codes(folder) if code in ("DS974", "DS983")] == codes


def test_arguments_of_its_command(folder: Folder) -> None:
    run = "trl sft --model_name_or_path m --dataset_name d --max_seq_length 2048 --output_dir out --deepspeed ds.json\n"
    folder.write({"run.sh": run, "ds.json": CONFIG, "requirements.txt": "trl==0.24.0\n"})
    assert "DS974" in _codes(folder)


def _codes(folder: Folder) -> list[str]:
    """What the command finds, with the releases that the project requires."""
    done = dslint("check", ".", "--output-format", "json", cwd=folder.path)
    return [one["code"] for one in json.loads(done.stdout)["diagnostics"]]
