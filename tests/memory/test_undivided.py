"""What `dslint estimate` says of trainings without DeepSpeed: each GPU holds the whole model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import dslint

FLAGS = "--stage sft --do_train --finetuning_type %s --model_name_or_path %s --output_dir o --per_device_train_batch_size 1"
LORA = FLAGS % ("lora", "/data/Llama-2-70b-hf")
FULL = FLAGS % ("full", "meta-llama/Llama-3.1-8B")
SWIFT = "--sft_type lora --model_type qwen_72b_chat --output_dir o --learning_rate 1e-4 --num_train_epochs 1"


def answer(folder: Path, command: str, *options: str, code: int = 0) -> str:
    """What is printed of a script with one command."""
    (folder / "run.sh").write_text(f"{command}\n", encoding="utf-8")
    done = dslint("estimate", "run.sh", "--isolated", *options, cwd=folder)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"torchrun --nproc_per_node 8 src/train_bash.py {LORA}", "at least 128.7 GiB of 79.1 GiB (a100)"),
        (
            f"torchrun --nproc_per_node 8 src/train_bash.py {FULL} --bf16",
            "at least 59.8 GiB of 79.1 GiB (a100); activations are not counted",
        ),
        (f"torchrun --nproc_per_node 8 llm_sft.py {SWIFT}", "Does not fit: without DeepSpeed each GPU holds the whole model"),
        (f"CUDA_VISIBLE_DEVICES=1 swift sft {SWIFT}", "Does not fit: without DeepSpeed each GPU holds the whole model"),
        (f"accelerate launch --multi_gpu --num_processes 8 src/train_bash.py {LORA}", "Does not fit: without DeepSpeed"),
        (f"torchrun --nproc_per_node 8 src/train_bash.py {LORA} --quantization_bit 4", "Not judged: without DeepSpeed each GPU holds"),
    ],
)
def test_a_training_without_deepspeed_has_the_whole_model_on_each_gpu(tmp_path: Path, command: str, words: str) -> None:
    said = answer(tmp_path, command, "--gpu", "a100")
    assert words in said, said
    assert "without DeepSpeed Counted, in GiB: weights" in said, said


@pytest.mark.parametrize(
    "command",
    [
        f"CUDA_VISIBLE_DEVICES=0,1 swift sft {SWIFT}",  # it spreads the model over both
        f"swift sft {SWIFT}",
        f"python src/train_bash.py {LORA}",
        f"torchrun --nproc_per_node 8 src/train_bash.py {LORA} --fsdp full_shard",
        f"torchrun --nproc_per_node 8 train.py {LORA} --tp 8",
        f"accelerate launch src/train_bash.py {LORA}",  # its default file is not known
        f"accelerate launch --config_file fsdp.yaml src/train_bash.py {LORA}",
        f"torchrun --nproc_per_node 8 src/train_bash.py {LORA.replace('--do_train', '--do_predict')}",
        "torchrun --nproc_per_node 8 src/train_bash.py --do_train --output_dir o --model_name_or_path ./mine",
        "python make_data.py --output_dir o --model_name_or_path meta-llama/Llama-2-70b-hf",
    ],
)
def test_nothing_is_said_where_the_model_may_be_divided_or_nothing_trains(tmp_path: Path, command: str) -> None:
    (tmp_path / "fsdp.yaml").write_text("distributed_type: FSDP\nnum_processes: 8\n", encoding="utf-8")
    assert "holds the whole model" not in answer(tmp_path, command, "--gpu", "a100", code=2)


def test_a_program_that_divides_its_model_itself_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from torch.distributed.fsdp import FullyShardedDataParallel\n", encoding="utf-8")
    assert not answer(tmp_path, f"torchrun --nproc_per_node 8 train.py {LORA}", "--gpu", "a100", code=2)


TRAINER = (
    "from dataclasses import dataclass\nfrom transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
    "@dataclass\nclass ModelArguments:\n    model_name_or_path: str = 'm'\n"
    "model_args, args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()\n"
    "model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path%s)\n"
    "if args.fsdp:\n    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "Trainer(model, args, train_dataset=data).train()\n"
)


@pytest.mark.parametrize(("loads", "judged"), [("", True), (", device_map='auto'", False)])
def test_a_trainer_uses_fsdp_only_where_its_arguments_say_so(tmp_path: Path, loads: str, judged: bool) -> None:
    (tmp_path / "train.py").write_text(TRAINER % loads, encoding="utf-8")
    command = f"torchrun --nproc_per_node 2 train.py {LORA}"
    said = answer(tmp_path, command, "--gpu", "a100", code=0 if judged else 2)
    assert said.startswith("Does not fit: without DeepSpeed each GPU holds the whole model") is judged, said


@pytest.mark.parametrize(
    ("more", "judged"), [("", True), ("deepspeed: ds.json\n", False), ("fsdp: full_shard\n", False), ("do_predict: true\n", False)]
)
def test_the_command_of_llama_factory_takes_its_arguments_from_a_file(tmp_path: Path, more: str, judged: bool) -> None:
    """A public training of a model of 72 billion parameters on four A800 ran out of memory while it was loaded."""
    trains = "" if "predict" in more else "do_train: true\n"
    (tmp_path / "train.yaml").write_text(
        f"stage: sft\n{trains}finetuning_type: lora\nmodel_name_or_path: Qwen/Qwen2.5-72B-Instruct\noutput_dir: o\nlearning_rate: 1.0e-4\n"
        f"per_device_train_batch_size: 1\ndataset: identity\ntemplate: qwen\ncutoff_len: 2048\n{more}",
        encoding="utf-8",
    )
    command = "CUDA_VISIBLE_DEVICES=1,2,3,4 llamafactory-cli train train.yaml"
    said = answer(tmp_path, command, "--gpu", "a800", code=0 if judged else 2)
    assert said.startswith("Does not fit: without DeepSpeed each GPU holds the whole model, at least 135.6 GiB of 79.1 GiB") is judged, said
    assert not judged or "llamafactory-cli launches a training on 4 ranks, without DeepSpeed" in said


def test_a_limit_is_not_kept_by_a_lower_bound(tmp_path: Path) -> None:
    command = f"torchrun --nproc_per_node 8 src/train_bash.py {FULL}"
    assert answer(tmp_path, command, "--gpu", "h200", "--limit", code=4).startswith("Not judged")
    assert answer(tmp_path, command).startswith("Needs at least 59.8 GiB per GPU: without DeepSpeed")


def test_the_launcher_of_deepspeed_without_a_config_divides_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from dataclasses import dataclass\nfrom transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
        "@dataclass\nclass ModelArguments:\n    model_name_or_path: str = 'm'\n"
        "model_args, args = HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()\n"
        "model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)\n"
        "Trainer(model, args, train_dataset=data).train()\n",
        encoding="utf-8",
    )
    flags = "--model_name_or_path meta-llama/Llama-2-70b-hf --output_dir o --do_train --per_device_train_batch_size 1"
    said = answer(tmp_path, f"deepspeed --num_gpus 4 train.py {flags}", "--gpu", "a100")
    assert said.startswith("Does not fit: without DeepSpeed each GPU holds the whole model"), said
    assert "deepspeed launches train.py on 4 ranks, without DeepSpeed" in said
