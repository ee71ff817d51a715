"""A checkout of LLaMA-Factory refuses only what its own source refuses."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from tests.setup.folder import Folder

STAGE_3 = '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
LAUNCH = (
    "deepspeed --num_gpus 4 src/train.py --deepspeed ds.json --stage sft --do_train --model_name_or_path m --dataset d --template t "
    "--finetuning_type lora --output_dir out %s\n"
)
CHECK = '    if args.use_unsloth:\n        raise ValueError("Unsloth is incompatible with DeepSpeed ZeRO-3.")\n'
PARSER = "def read(args):\n%s    return args\n"


def lines(code: str) -> list[str]:
    """What `dslint check run.sh` prints of a rule; it reads the folder's sources and requirements."""
    printed = CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "concise"]).stdout
    return [line for line in printed.splitlines() if code in line]


def checkout(parser: str) -> dict[str, str]:
    """The sources of LLaMA-Factory with this parser: as many modules as a whole package has."""
    others = {f"src/llamafactory/extras/of_{number}.py": "" for number in range(40)}
    return {"src/llamafactory/__init__.py": "", "src/llamafactory/hparams/parser.py": parser, **others}


@pytest.mark.parametrize(
    ("check", "flag", "found"),
    [
        (CHECK, "--use_unsloth true", {"Unsloth is incompatible"}),
        ("", "--use_unsloth true", {"does not check it"}),
        ("", "--use_unsloth false", set()),
        ("", "--pure_bf16 true", set()),
    ],
)
def test_the_source_beside_the_program_says_what_it_refuses(folder: Folder, check: str, flag: str, found: set[str]) -> None:
    folder.write(
        {
            "run.sh": LAUNCH % flag,
            "ds.json": STAGE_3,
            "src/train.py": "from llamafactory.hparams.parser import read\nread(None)\n",
            **checkout(PARSER % check),
        }
    )
    says = ("Unsloth is incompatible", "does not check it")
    assert {one for one in says for line in lines("DS948") if one in line} == found


ARGUMENTS = "stage: sft\ndo_train: true\nmodel_name_or_path: m\ndataset: d\ntemplate: t\nfinetuning_type: full\noutput_dir: o\n"
ONE_PROCESS = (
    "        raise ValueError(\n            'Please use `FORCE_TORCHRUN=1` to launch '\n            'DeepSpeed training.'\n        )\n"
)
OF_EVALUATION = '    raise ValueError("`predict_with_generate` is incompatible with DeepSpeed ZeRO-3.")\n'


@pytest.mark.parametrize(
    ("check", "pinned", "message"),
    [
        (
            "    if args.deepspeed:\n" + ONE_PROCESS,
            "",
            'LLaMA-Factory raises "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training." unless',
        ),
        ("", "", "this LLaMA-Factory does not check it"),
        (None, "", 'LLaMA-Factory may raise "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training." unless'),
        (None, "llamafactory==0.9.1\n", 'LLaMA-Factory raises "Please use `FORCE_TORCHRUN=1` to launch DeepSpeed training." unless'),
        (None, "llamafactory==0.8.0\n", "this LLaMA-Factory does not check it"),
    ],
)
def test_one_process_is_refused_by_what_the_release_says(folder: Folder, check: str | None, pinned: str, message: str) -> None:
    sources = checkout(PARSER % check) if check is not None else {}
    folder.write(
        {
            "run.sh": "CUDA_VISIBLE_DEVICES=0 llamafactory-cli train train.yaml\n",
            "train.yaml": ARGUMENTS + "deepspeed: ds.json\n",
            "ds.json": STAGE_3,
            "requirements.txt": pinned,
            **sources,
        }
    )
    (line,) = lines("DS982")
    assert message in line


@pytest.mark.parametrize(
    ("check", "pinned", "says"),
    [
        (OF_EVALUATION, "", "LLaMA-Factory raises"),
        ("", "", None),
        (None, "", "LLaMA-Factory may raise"),
        (None, "llamafactory==0.9.0\n", "LLaMA-Factory raises"),
        (None, "llamafactory==0.8.3\n", None),
    ],
)
def test_a_refusal_of_later_releases_is_not_quoted_of_older_ones(folder: Folder, check: str | None, pinned: str, says: str | None) -> None:
    sources = checkout(PARSER % check) if check is not None else {}
    folder.write(
        {
            "run.sh": "FORCE_TORCHRUN=1 NPROC_PER_NODE=4 llamafactory-cli train train.yaml\n",
            "train.yaml": ARGUMENTS + "deepspeed: ds.json\npredict_with_generate: true\nval_size: 0.1\n",
            "ds.json": STAGE_3,
            "requirements.txt": pinned,
            **sources,
        }
    )
    assert [says is not None and says in line for line in lines("DS975")] == ([True] if says else [])
