"""DeepSpeed's launcher starts a program of LLaMA-Factory: without the argument `deepspeed` it trains without DeepSpeed."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder

_TUNER = (
    "import transformers\n\n\ndef run_exp():\n    parser = transformers.HfArgumentParser(transformers.Seq2SeqTrainingArguments)\n"
    "    (args,) = parser.parse_args_into_dataclasses()\n"
    "    args = transformers.Seq2SeqTrainingArguments(**dict(args.to_dict(), remove_unused_columns=False))\n"
    "    if args.do_train:\n        transformers.Seq2SeqTrainer(model, args).train()\n"
)
_ENTRY = "from llmtuner import run_exp\n\n\ndef main():\n    run_exp()\n\n\nif __name__ == '__main__':\n    main()\n"
_FLAGS = "--stage sft --model_name_or_path m --dataset d --template default --finetuning_type lora --output_dir out --learning_rate 1e-4 --per_device_train_batch_size 1"
_TRAINS = f"{_FLAGS} --do_train"


def _write(folder: Folder, command: str, tuner: str = _TUNER, entry: str = _ENTRY) -> set[tuple[str, str, int]]:
    package = {"src/llmtuner/__init__.py": "from .tuner import run_exp\n", "src/llmtuner/tuner.py": tuner}
    folder.write({"src/train_bash.py": entry, **package, "zero2.json": '{"zero_optimization": {"stage": 2}}', "run.sh": f"{command}\n"})
    return {one for one in folder.found("run.sh") if one[0] == "DS950"}


def test_without_a_config(folder: Folder) -> None:
    assert _write(folder, f"deepspeed --num_gpus 4 src/train_bash.py {_TRAINS}") == {("DS950", "run.sh", 1)}
    (found,) = [one for one in folder.results("run.sh")["run.sh"].diagnostics if one.code == "DS950"]
    assert found.help == "Add --deepspeed ds_config.json to the arguments of the program."


@pytest.mark.parametrize(
    "command",
    [
        f"deepspeed --num_gpus 4 src/train_bash.py {_TRAINS} --deepspeed zero2.json",
        f"deepspeed --num_gpus 4 src/train_bash.py --deepspeed zero2.json {_TRAINS}",
        f"deepspeed --num_gpus 4 src/train_bash.py {_TRAINS} --deepspeed=zero2.json",
        f"deepspeed --num_gpus 1 src/train_bash.py {_TRAINS}",
        f"torchrun --nproc_per_node 4 src/train_bash.py {_TRAINS}",
        f"accelerate launch src/train_bash.py {_TRAINS}",
        f"deepspeed --num_gpus 4 src/train_bash.py {_FLAGS} --do_predict",
        f"deepspeed --num_gpus 4 src/train_bash.py {_TRAINS} --fsdp full_shard",
        f"deepspeed --num_gpus 4 src/train_bash.py {_TRAINS} $@",
        f"deepspeed --num_gpus 4 src/train_bash.py {_TRAINS} $MORE",
        f"export ACCELERATE_USE_DEEPSPEED=true\ndeepspeed --num_gpus 4 src/train_bash.py {_TRAINS}",
        f"deepspeed --num_gpus 4 --autotuning tune src/train_bash.py {_TRAINS}",
        f"deepspeed --num_gpus 4 other/train_bash.py {_TRAINS}",
    ],
)
def test_launches_with_a_config_or_without_its_need(folder: Folder, command: str) -> None:
    assert _write(folder, command) == set()


@pytest.mark.parametrize(
    "line",
    [
        "    args.deepspeed = 'zero2.json'\n",
        "    sys.argv += ['--deepspeed', 'zero2.json']\n",
        "    os.environ['ACCELERATE_USE_DEEPSPEED'] = '1'\n",
    ],
)
def test_a_checkout_that_sets_the_config(folder: Folder, line: str) -> None:
    tuner = "import os, sys\n" + _TUNER.replace("    if args", f"{line}    if args")
    assert _write(folder, f"deepspeed --num_gpus 4 src/train_bash.py {_TRAINS}", tuner) == set()
