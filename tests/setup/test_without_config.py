"""Programs for Accelerate whose DeepSpeed config nothing names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dslint.facts import Facts, Integration
from tests.command import dslint
from tests.setup.folder import Folder

PROGRAM = (
    "from accelerate import Accelerator\naccelerator = Accelerator()\n%s\n"
    'model = accelerator.prepare(model)\nif accelerator.is_main_process:\n    accelerator.save_state("out")\n'
)


@pytest.mark.parametrize(
    ("line", "facts", "codes"),
    [
        ("", Facts(integration=Integration.ACCELERATE), ["DS964"]),
        ("print(accelerator.state.deepspeed_plugin)", None, ["DS964"]),
        ("", None, []),
        ("", Facts(integration=Integration.TRANSFORMERS), []),
    ],
)
def test_its_calls_are_checked_where_deepspeed_is_used(folder: Folder, line: str, facts: Facts | None, codes: list[str]) -> None:
    folder.write({"train.py": PROGRAM % line})
    assert [code for code, _, _ in folder.found("train.py", facts=facts)] == codes
    if codes:
        [reason] = folder.results("train.py", facts=facts)["train.py"].not_judged
        assert "the DeepSpeed config for Accelerate is given at launch" in reason.reason


def test_a_folder_for_accelerate_is_checked_without_a_config(tmp_path: Path) -> None:
    """Nothing in the files names DeepSpeed; the integration that a person gives does."""
    (tmp_path / "train.py").write_text(PROGRAM % "")
    (tmp_path / "run.sh").write_text("accelerate launch train.py --learning_rate 1e-4\n")
    (tmp_path / "plot.py").write_text("import matplotlib\n")
    found = json.loads(dslint("check", ".", "--integration", "accelerate", "--output-format", "json", cwd=tmp_path).stdout)
    assert [(one["code"], one["path"]) for one in found["diagnostics"]] == [("DS964", "train.py")]
    done = dslint("check", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing to check" in done.stderr


MADE = "import sys\nimport transformers\ntransformers.Trainer(model, %s).train()\n"
PARSED = "transformers.HfArgumentParser(transformers.TrainingArguments).%s[0]"
PARSES = MADE % (PARSED % "parse_args_into_dataclasses()")
GIVEN = MADE % "transformers.TrainingArguments('out')"
BY_FILE = (
    "import sys\nimport transformers\nparser = transformers.HfArgumentParser(transformers.TrainingArguments)\n"
    "if len(sys.argv) == 2 and sys.argv[1].endswith('.json'):\n    args = parser.parse_json_file(json_file=sys.argv[1])[0]\n"
    "else:\n    args = parser.parse_args_into_dataclasses()[0]\ntransformers.Trainer(model, args).train()\n"
)
DDP = "DS950"


@pytest.mark.parametrize(
    ("launch", "program", "codes"),
    [
        ("deepspeed --num_gpus 2 train.py", GIVEN, [DDP]),
        ("deepspeed --num_gpus 2 train.py --output_dir out --bf16 True", PARSES, [DDP]),
        ("deepspeed --num_gpus 2 train.py --deepspeed ds_config.json", GIVEN, [DDP]),
        ("torchrun --nproc_per_node 2 train.py --deepspeed ds_config.json", GIVEN, [DDP]),
        ("deepspeed --num_gpus 2 train.py", "import trl\n" + MADE % "trl.SFTConfig('out')", [DDP]),
        (
            "deepspeed --num_gpus 2 train.py",
            "# deepspeed zero\n" + GIVEN + "if transformers.is_deepspeed_zero3_enabled(): print(1)\n",
            [DDP],
        ),
        ("torchrun --nproc_per_node 2 train.py", GIVEN, []),
        ("accelerate launch --use_deepspeed train.py", GIVEN, []),
        ("ACCELERATE_USE_DEEPSPEED=true deepspeed --num_gpus 2 train.py", GIVEN, []),
        ("deepspeed --num_gpus 2 train.py --output_dir out --deepspeed ds_config.json", PARSES, []),
        ("deepspeed --num_gpus 2 train.py --output_dir out $MORE", PARSES, []),
        ("deepspeed --num_gpus 2 train.py --output_dir out", BY_FILE, [DDP]),
        ("deepspeed --num_gpus 2 train.py args.json", BY_FILE, []),
        ("deepspeed --num_gpus 2 train.py args.json", MADE % (PARSED % "parse_json_file(sys.argv[-1])"), []),
        ("deepspeed --num_gpus 2 train.py", MADE % (PARSED % "parse_dict(settings)"), []),
        ("deepspeed --num_gpus 2 train.py", MADE % "transformers.TrainingArguments('out', deepspeed='ds_config.json')", []),
        ("deepspeed --num_gpus 2 train.py", MADE % "transformers.TrainingArguments(**settings)", []),
        ("deepspeed --num_gpus 2 train.py", MADE % "make_arguments()", []),
        ("deepspeed --num_gpus 2 train.py", GIVEN + "import deepspeed\ndeepspeed.initialize(model=model, config=config)\n", []),
        ("deepspeed --num_gpus 2 train.py", GIVEN.replace(".train()", ".predict(rows)"), []),
        ("deepspeed --autotuning run train.py", GIVEN, []),
        ("deepspeed --num_gpus 1 train.py", GIVEN, []),
        ("deepspeed --num_gpus 2 train.py --output_dir out --fsdp full_shard", PARSES, []),
        ("deepspeed --num_gpus 2 train.py", MADE % "transformers.TrainingArguments('out', fsdp='full_shard')", []),
        (
            "deepspeed --num_gpus 2 train.py",
            "import dataclasses\nimport transformers\n@dataclasses.dataclass\nclass Own(transformers.TrainingArguments):\n"
            "    deepspeed: str = dataclasses.field(default='ds_config.json')\n" + GIVEN.replace("transformers.TrainingArguments", "Own"),
            [],
        ),
        (
            "deepspeed --num_gpus 2 train.py --output_dir out",
            "import dataclasses\nimport transformers\n@dataclasses.dataclass\nclass Own(transformers.TrainingArguments):\n"
            "    deepspeed: str = 'ds_config.json'\n" + PARSES.replace("transformers.TrainingArguments", "Own"),
            [],
        ),
    ],
)
def test_a_trainer_that_gets_no_config_is_found(folder: Folder, launch: str, program: str, codes: list[str]) -> None:
    config = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'
    folder.write({"train.py": program, "run.sh": f"{launch}\n", "ds_config.json": config})
    assert [code for code, _, _ in folder.found("run.sh") if code == DDP] == codes


def test_rules_about_deepspeed_do_not_read_a_program_that_trains_without_it(folder: Folder) -> None:
    program = (
        'import transformers\nmodel = transformers.AutoModelForCausalLM.from_pretrained("m", device_map="auto")\n'
        "arguments = transformers.TrainingArguments('out')\ntrainer = transformers.Trainer(model, arguments)\ntrainer.train()\n"
        "if arguments.local_rank == 0:\n    trainer.accelerator.save_state('out')\n"
    )
    folder.write({"train.py": program, "run.sh": "deepspeed --num_gpus 2 train.py\n"})
    assert [code for code, _, _ in folder.found("run.sh")] == [DDP]
    assert folder.found("train.py") == []


@pytest.mark.parametrize(("line", "codes"), [("", ["DS974"]), ("parser.add_argument('--extra')\n", [])])
def test_an_argument_that_a_program_adds_to_the_parser_is_known(folder: Folder, line: str, codes: list[str]) -> None:
    program = (
        f"import transformers\nparser = transformers.HfArgumentParser(transformers.TrainingArguments)\n{line}"
        "arguments, *_ = parser.parse_args_into_dataclasses()\ntransformers.Trainer(model, arguments).train()\n"
    )
    launch = "torchrun --nproc_per_node 2 train.py --deepspeed ds.json --output_dir out --extra 3\n"
    folder.write({"train.py": program, "run.sh": launch, "ds.json": '{"zero_optimization": {"stage": 2}}'})
    assert [code for code, _, _ in folder.found("run.sh") if code in ("DS973", "DS974")] == codes
