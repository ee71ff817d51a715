"""What `dslint estimate` takes from a training file or a launch script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

import dslint as dslint_api
from dslint.frameworks import axolotl, huggingface, llama_factory, ms_swift, trl
from dslint.frameworks.workload import told_by
from dslint.job.arguments import Arguments, SourcedValue, as_read
from dslint.job.training import ARGUMENTS, WORKLOAD
from tests.command import dslint

OWN = (axolotl, llama_factory, ms_swift, huggingface, trl)
AXOLOTL, LLAMA_FACTORY, SWIFT, TRAINER, TRL = (one.FRAMEWORK.name for one in OWN)


def arguments(framework: str, **values: Any) -> Arguments:
    given = {name: SourcedValue(as_read(name, value), name, str(value), "train.yaml") for name, value in values.items()}
    return Arguments(framework, "train.yaml", given)


@pytest.mark.parametrize(
    ("framework", "values", "options"),
    [
        (TRAINER, {}, {}),
        (TRAINER, {"model_max_length": "2048", "gradient_checkpointing": "True"}, {"length": 2048, "checkpoint_every": 1}),
        (TRAINER, {"optim": "adafactor"}, {"optimizer": "adafactor"}),
        (TRAINER, {"optim": "adamw_torch_fused", "attn_implementation": "auto"}, {"optimizer": "adamw"}),
        (TRAINER, {"optim": "adamw_torch"}, {"optimizer": "torch_adamw"}),
        (
            TRAINER,
            {"attn_implementation": "eager", "use_liger_kernel": True},
            {"attention": "eager", "loss_chunk": 1024, "fused_kernels": True},
        ),
        (TRAINER, {"liger_fused_linear_cross_entropy": True}, {"loss_chunk": 1024}),
        (
            TRL,
            {"use_peft": True, "lora_dropout": "0.1"},
            {"lora_rank": 16, "lora_dropout": 0.1, "checkpoint_every": 1, "length": 1024, "zero_init": True},
        ),
        (TRL, {"block_size": 256}, {"length": 256, "zero_init": True}),
        (TRL, {"gradient_checkpointing": False, "max_length": 64}, {"length": 64, "zero_init": True}),
        (
            TRL,
            {"use_peft": True, "lora_r": 64, "lora_target_modules": "q_proj"},
            {"lora_rank": 64, "lora_targets": "q_proj", "lora_dropout": 0.05, "checkpoint_every": 1, "length": 1024, "zero_init": True},
        ),
        (AXOLOTL, {"base_model": "gpt2", "sequence_len": 512}, {"model": "gpt2", "length": 512, "zero_init": True}),
        (AXOLOTL, {"adapter": "qlora", "lora_r": 32}, {"lora_rank": 32, "lora_dropout": 0.0, "zero_init": True, "length": 512}),
        (
            LLAMA_FACTORY,
            {"do_train": True, "finetuning_type": "full", "freeze_vision_tower": False},
            {"checkpoint_every": 1, "zero_init": True},
        ),
        (
            LLAMA_FACTORY,
            {"lora_target": "all"},
            {"checkpoint_every": 1, "lora_rank": 8, "lora_dropout": 0.0, "zero_init": True, "frozen_towers": True},
        ),
        (
            SWIFT,
            {"train_type": "full", "sequence_parallel_size": "4", "freeze_vit": "false"},
            {"checkpoint_every": 1, "zero_init": True, "half_loss": True},
        ),
        (LLAMA_FACTORY, {"finetuning_type": "full", "disable_gradient_checkpointing": True}, {"zero_init": True, "frozen_towers": True}),
        (TRAINER, {"model_max_length": "long", "per_device_train_batch_size": 0}, {}),
    ],
)
def test_arguments_imply_options(framework: str, values: dict[str, Any], options: dict[str, Any]) -> None:
    found = {name: value for name, (value, _) in told_by(arguments(framework, **values)).options.items()}
    assert found.pop("varying", None) in (None, True)  # a test below says when
    assert found == options


@pytest.mark.parametrize(
    ("framework", "values", "batch"),
    [
        (TRAINER, {}, None),
        (TRAINER, {"eval_strategy": "no"}, 0),
        (TRAINER, {"eval_strategy": "steps"}, 8),
        (TRAINER, {"evaluation_strategy": "epoch", "per_device_eval_batch_size": 2}, 2),
        (AXOLOTL, {"val_set_size": 0.05, "per_device_train_batch_size": 4}, 4),
        (AXOLOTL, {"val_set_size": 0.05, "eval_batch_size": 1}, 1),
        (AXOLOTL, {"val_set_size": 0.0}, None),
    ],
)
def test_the_samples_of_an_evaluation(framework: str, values: dict[str, Any], batch: int | None) -> None:
    assert told_by(arguments(framework, **values)).options.get("eval_batch", (None, ""))[0] == batch


@pytest.mark.parametrize(
    ("framework", "values", "options"),
    [
        (LLAMA_FACTORY, {"quantization_bit": 4}, {"base_bits": "4"}),
        (AXOLOTL, {"adapter": "lora", "load_in_8bit": True}, {"base_bits": "8"}),
        (AXOLOTL, {"load_in_4bit": True}, {"base_bits": None}),  # nothing says that adapters are trained
        (LLAMA_FACTORY, {"additional_target": "embed_tokens,lm_head"}, {"lora_saves": "embed_tokens,lm_head"}),
        (LLAMA_FACTORY, {"stage": "dpo"}, {"pairs": True, "frozen_copies": None}),
        (LLAMA_FACTORY, {"stage": "dpo", "finetuning_type": "full"}, {"pairs": True, "frozen_copies": 1}),
        (LLAMA_FACTORY, {"stage": "kto", "finetuning_type": "full"}, {"pairs": None, "frozen_copies": 1}),
        (AXOLOTL, {"rl": "orpo"}, {"pairs": True, "frozen_copies": None}),
        (TRL, {"use_vllm": True, "vllm_mode": "colocate"}, {"vllm_share": 0.3}),
        (TRL, {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.5}, {"vllm_share": 0.5}),
        (TRL, {"use_vllm": True, "vllm_mode": "server"}, {"vllm_share": None}),
        (SWIFT, {"rlhf_type": "ppo", "train_type": "full"}, {"frozen_copies": 2, "value_model": True, "generates": True}),
        (SWIFT, {"rlhf_type": "ppo"}, {"frozen_copies": 1, "value_model": True}),
        (SWIFT, {"rlhf_type": "gkd", "teacher_model": "qwen2.5-14b"}, {"teacher": "qwen2.5-14b", "generates": True}),
        (SWIFT, {"rlhf_type": "grpo", "use_vllm": True}, {"generates": None}),
        (SWIFT, {"rlhf_type": "grpo", "train_type": "full"}, {"frozen_copies": 1}),
        (SWIFT, {"rlhf_type": "grpo", "train_type": "full", "beta": "0.0"}, {"frozen_copies": None}),
        (SWIFT, {"rlhf_type": "dpo", "train_type": "full", "precompute_ref_log_probs": True}, {"pairs": True, "frozen_copies": None}),
        (SWIFT, {"rlhf_type": "rm", "train_type": "full"}, {"pairs": True, "frozen_copies": None, "no_logits": True}),
        (LLAMA_FACTORY, {"stage": "rm"}, {"pairs": True, "no_logits": None}),
        (SWIFT, {"tuner_type": "lora_llm"}, {"lora_rank": 8}),
        (SWIFT, {"task_type": "embedding"}, {"no_logits": True}),
        (TRAINER, {"use_peft_lora": True, "lora_r": 8, "use_4bit_quantization": True}, {"lora_rank": 8, "base_bits": "4"}),
        (TRAINER, {"optim": "paged_lion_8bit"}, {"optimizer": "lion8bit"}),
    ],
)
def test_quantized_bases_saved_modules_and_other_models(framework: str, values: dict[str, Any], options: dict[str, Any]) -> None:
    found = told_by(arguments(framework, **values)).options
    assert {name: found.get(name, (None, ""))[0] for name in options} == options


class Asked(Arguments):
    """Arguments that note the names they are asked for."""

    names: ClassVar[set[str]] = set()

    def get(self, name: str) -> SourcedValue | None:
        self.names.add(name)
        return super().get(name)

    def __contains__(self, name: str) -> bool:
        self.names.add(name)
        return super().__contains__(name)


@pytest.mark.parametrize("framework", [TRAINER, TRL, AXOLOTL, LLAMA_FACTORY, SWIFT])
def test_every_argument_that_counts_is_read_from_files_and_flags(framework: str) -> None:
    for values in ({}, {"lora_enable": True, "eval_strategy": "steps", "val_set_size": 0.1, "use_vllm": True, "vllm_mode": "colocate"}):
        told_by(Asked(framework, "train.yaml", arguments(framework, **values).values))
    own = {name for one in OWN for name in one.FRAMEWORK.workload.attention}
    assert Asked.names - {"train_type"} <= ARGUMENTS | WORKLOAD | own


def test_what_is_not_modelled_has_a_name_and_a_share() -> None:
    told = told_by(arguments(SWIFT, rlhf_type="ppo", optim="galore_adamw"))
    assert [share for _, share in told.unmodelled] == [0.1]
    assert not told_by(arguments(LLAMA_FACTORY, stage="sft", optim="paged_adamw_32bit")).notes


@pytest.mark.parametrize(
    ("packing", "word"), [("packing", "packed"), ("neat_packing", "packed"), ("sample_packing", "packed"), ("", "limit")]
)
def test_the_length_of_samples_is_a_limit_unless_they_are_packed(packing: str, word: str) -> None:
    told = told_by(arguments(TRL, max_length=2048, **({packing: "true"} if packing else {})))
    (note,) = told.notes
    assert word in note
    assert ("varying" in told.options) == (word == "limit")


def test_blocks_are_as_long_as_they_say() -> None:
    assert "varying" not in told_by(arguments(TRAINER, block_size=2048)).options


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    batch = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    (tmp_path / "ds.json").write_text(json.dumps({**batch, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}), encoding="utf-8")
    (tmp_path / "train.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 32\n"
        "deepspeed: ds.json\ndataset: identity\ntemplate: qwen\ncutoff_len: 1024\nper_device_train_batch_size: 2\n"
        "gradient_accumulation_steps: 8\noutput_dir: out\n",
        encoding="utf-8",
    )
    (tmp_path / "run.sh").write_text(
        "torchrun --nproc_per_node 4 train.py --model_name_or_path openai-community/gpt2 --deepspeed ds.json --bf16 True "
        "--model_max_length 256 --gradient_checkpointing True --per_device_train_batch_size 3 --output_dir out\n",
        encoding="utf-8",
    )
    return tmp_path


def estimated(folder: Path, name: str, *options: str) -> dict[str, Any]:
    done = dslint("estimate", name, "--isolated", "--output-format", "json", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def test_a_training_file_tells_its_facts(folder: Path) -> None:
    data = estimated(folder, "train.yaml", "--world-size", "8")
    assert data["model"]["name"].startswith("Qwen/Qwen2.5-0.5B-Instruct with LoRA of rank 32")
    assert (data["stage"], data["tokens"], data["micro_batch"], data["accumulation"]) == (3, 1024, 2, 8)
    assert "--sequence-length is 1024, from train.yaml:9" in data["assumed"]


def test_a_launch_script_tells_its_facts(folder: Path) -> None:
    data = estimated(folder, "run.sh")
    assert (data["model"]["name"], data["world_size"], data["tokens"], data["micro_batch"]) == ("openai-community/gpt2", 4, 256, 3)


def test_lists_of_names_are_read_from_files_and_flags(folder: Path) -> None:
    """peft takes the names of modules as a list, which is one argument of a file and several words of a command."""
    axolotl = (
        "base_model: Qwen/Qwen2.5-0.5B\nadapter: lora\nlora_r: 8\nlora_target_modules:\n  - q_proj\n  - v_proj\n"
        "lora_modules_to_save: [embed_tokens]\ndeepspeed: ds.json\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\nsequence_len: 64\n"
    )
    (folder / "axolotl.yaml").write_text(axolotl, encoding="utf-8")
    (folder / "swift.sh").write_text(
        "swift sft --model Qwen/Qwen2.5-0.5B --train_type lora --lora_rank 8 --target_modules q_proj v_proj --modules_to_save embed_tokens "
        "--deepspeed ds.json --max_length 64 --per_device_train_batch_size 1 --gradient_accumulation_steps 1\n",
        encoding="utf-8",
    )
    for name in ("axolotl.yaml", "swift.sh"):
        said = estimated(folder, name, "--world-size", "2")["assumed"]
        assert [note.partition(",")[0] for note in said if "lora-targets" in note] == ["--lora-targets is q_proj"], said
        assert any(note.startswith("--lora-saves is embed_tokens") for note in said)


MEGATRON = (
    "deepspeed --num_gpus 4 pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
    "--max-position-embeddings 1024 --micro-batch-size 2 --deepspeed --deepspeed_config ds.json"
)


def test_the_arguments_of_megatron_describe_its_model(folder: Path) -> None:
    (folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": true}}', encoding="utf-8")
    (folder / "one.sh").write_text(f"{MEGATRON} --checkpoint-activations --use-flash-attn-v2\n", encoding="utf-8")
    data = estimated(folder, "one.sh")
    assert data["model"]["parameters"] == 124439808 + 47 * 768  # GPT-2, with a vocabulary of 50,304
    assert (data["world_size"], data["tokens"], data["micro_batch"]) == (4, 1024, 2)
    said = " ".join(data["assumed"])
    assert "--activation-checkpointing is 1" in said
    assert "--attention is flash_attention_2" in said
    (folder / "two.sh").write_text(f"{MEGATRON} --swiglu --num-key-value-heads 4 --untie-embeddings-and-output-weights\n", encoding="utf-8")
    data = estimated(folder, "two.sh", "--model", "gpt2")
    assert data["model"]["name"] == "gpt2"  # an option comes first
    data = estimated(folder, "two.sh")
    assert data["model"]["parameters"] == 2 * 50304 * 768 + 12 * (768 * (2 * 768 + 2 * 256) + 3 * 2048 * 768 + 2 * 768) + 768
    assert any("--attention is eager, from the default of Megatron" in note for note in data["assumed"])


def test_the_setting_of_the_allocator_counts(folder: Path) -> None:
    command = "torchrun --nproc_per_node 2 train.py --model_name_or_path gpt2 --deepspeed ds.json --output_dir out\n"
    (folder / "one.sh").write_text("PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' " + command, encoding="utf-8")
    (folder / "two.sh").write_text("export PYTORCH_ALLOC_CONF=max_split_size_mb:512\n" + command, encoding="utf-8")
    notes = [[note for note in estimated(folder, name)["assumed"] if "expandable" in note] for name in ("one.sh", "two.sh")]
    assert notes == [["--expandable-segments is True, from one.sh:1"], []]


def test_sequence_parallelism_of_a_framework_counts(folder: Path) -> None:
    command = "swift sft --model Qwen/Qwen2.5-0.5B --train_type full --deepspeed ds.json --max_length 8192 --per_device_train_batch_size 1"
    sizes = []
    for more in ("", " --sequence_parallel_size 4"):
        (folder / "swift.sh").write_text(f"{command} --gradient_accumulation_steps 1{more}\n", encoding="utf-8")
        sizes.append(estimated(folder, "swift.sh", "--world-size", "4")["phases"]["backward"]["parts"]["logits and loss"])
    assert sizes[0] == pytest.approx(8 * sizes[1], rel=0.01)  # a fourth of the tokens, and no copy in fp32


def test_an_option_overrides_the_training(folder: Path) -> None:
    data = estimated(folder, "train.yaml", "--world-size", "8", "--sequence-length", "512", "--model", "gpt2")
    assert data["tokens"] == 512
    assert data["model"]["name"].startswith("gpt2")


def test_fit_takes_the_same_facts(folder: Path) -> None:
    done = dslint("fit", "run.sh", "--isolated", "--gpu", "t4", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "openai-community/gpt2" in done.stdout


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("trl dpo --deepspeed z3.json", {"--pairs": "True", "--frozen-copies": "1"}),
        ("trl reward --deepspeed z3.json", {"--pairs": "True", "--no-logits": "True"}),
        ("trl grpo --deepspeed z3.json", {"--generates": "True"}),
        ("trl grpo --deepspeed z3.json --beta 0.04", {"--generates": "True", "--frozen-copies": "1"}),
        ("trl sft --deepspeed z3.json", {}),
        ("deepspeed trl/scripts/dpo.py --deepspeed z3.json", {"--pairs": "True", "--frozen-copies": "1"}),
        ("deepspeed --module trl.scripts.kto --deepspeed z3.json", {"--frozen-copies": "1"}),
    ],
)
def test_the_method_of_trl(command: str, options: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "z3.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}', encoding="utf-8")
    flags = "--model_name_or_path qwen2.5-7b --dataset_name x --max_length 1024 --per_device_train_batch_size 2 --bf16"
    (tmp_path / "run.sh").write_text(f"{command} {flags}\n", encoding="utf-8")
    output = " ".join(dslint("estimate", "run.sh", "--world-size", "8", cwd=tmp_path).stdout.split())
    for option in ("--pairs", "--frozen-copies", "--no-logits", "--generates"):
        assert (f"- {option} is {options.get(option)}, from" in output) is (option in options), output


DEFAULT = """import argparse
import deepspeed
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--model", {default})
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained(args.model)
deepspeed.initialize(model=model, config="ds.json", model_parameters=model.parameters())
"""


def test_the_default_of_a_flag_names_the_model_of_an_estimate(folder: Path) -> None:
    (folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": true}}', encoding="utf-8")
    (folder / "train.py").write_text(DEFAULT.format(default='default="openai-community/gpt2"'), encoding="utf-8")
    data = estimated(folder, "train.py", "--world-size", "2")
    assert data["model"]["name"] == "openai-community/gpt2"
    assert "--model is openai-community/gpt2, from the default of args.model (train.py:8)" in data["assumed"]
    data = estimated(folder, "train.py", "--world-size", "2", "--model", "gpt2-xl")
    assert data["model"]["name"] == "gpt2-xl"
    (folder / "run.sh").write_text("deepspeed --num_gpus 2 train.py --model gpt2-large\n", encoding="utf-8")
    data = estimated(folder, "run.sh")
    assert data["model"]["name"] == "gpt2-large"


@pytest.mark.parametrize("default", ["required=True", 'default="ours/unknown"'])
def test_a_default_that_is_no_known_model_names_none(folder: Path, default: str) -> None:
    (folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": true}}', encoding="utf-8")
    (folder / "train.py").write_text(DEFAULT.format(default=default), encoding="utf-8")
    done = dslint("estimate", "train.py", "--world-size", "2", cwd=folder)
    assert done.returncode == 2
    assert "no model given" in done.stderr


def test_the_api_estimates_what_the_command_does(folder: Path) -> None:
    """The arguments of Megatron and the flags of a program with a loop of its own count in both."""
    (folder / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": true}}', encoding="utf-8")
    (folder / "one.sh").write_text(f"{MEGATRON} --checkpoint-activations\n", encoding="utf-8")
    own = "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json --model_name_or_path gpt2 --max_seq_len 256\n"
    (folder / "two.sh").write_text(own, encoding="utf-8")
    (folder / "train.py").write_text("import deepspeed\ndeepspeed.initialize(args=args, model=model)\n", encoding="utf-8")
    for name, tokens in (("one.sh", 1024), ("two.sh", 256)):
        data = estimated(folder, name)
        assert data["tokens"] == tokens
        assert dslint_api.estimate(str(folder / name)).details.device.expected == data["device"]["expected"]


_CHAT = "deepspeed --num_gpus 8 main.py --data_split 2,4,4 --dtype bf16 --per_device_training_batch_size 4 {}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "fits"),
    [
        ("--model_name_or_path meta-llama/Llama-2-70b-hf --zero_stage 2", False),
        ("--actor_model_name_or_path meta-llama/Llama-2-70b-hf --actor_zero_stage 2 --critic_zero_stage 2", False),
        ("--critic_model_name_or_path meta-llama/Llama-2-70b-hf --actor_zero_stage 2 --critic_zero_stage 2", False),
        ("--model_name_or_path meta-llama/Llama-2-70b-hf --zero_stage 2 --lora_dim 8 --only_optimize_lora", True),
        ("--model_name_or_path facebook/opt-1.3b --zero_stage 2", True),
        ("--model_name_or_path $MODEL --zero_stage 2", True),
    ],
)
def test_a_flag_names_the_model_whose_config_the_program_builds(flags: str, fits: bool, tmp_path: Path) -> None:
    """DeepSpeed-Chat has a model and a stage for each of its engines; with LoRA no rule judges the whole model."""
    (tmp_path / "run.sh").write_text(_CHAT.format(flags), encoding="utf-8")
    done = dslint("check", "run.sh", "--gpu", "a100-40gb", "--output-format", "concise", cwd=tmp_path)
    assert ("DS706" not in done.stdout) is fits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("xtuner train llama2_70b_full_mine_e1 --deepspeed deepspeed_zero2", "may"),
        ("xtuner train base.py --deepspeed deepspeed_zero2", "may"),
        ("xtuner train llama2_70b_explora_e1 --deepspeed deepspeed_zero2", "may"),
        ("xtuner train llama2_70b_qlora_mine_e1 --deepspeed deepspeed_zero2", "not judged"),
        ("xtuner train \\\n  --deepspeed deepspeed_zero2 \\\n  configs/llama2_70b_lora.py", "not judged"),
        ("echo qlora\nxtuner train base.py --deepspeed deepspeed_zero2", "may"),
    ],
)
def test_what_xtuner_trains_is_not_known(command: str, said: str, tmp_path: Path) -> None:
    """Its settings are not read: at most their name says that adapters are trained, of a model in 4 bits or not."""
    (tmp_path / "run.sh").write_text(f"{command}\n", encoding="utf-8")
    done = dslint("check", "run.sh", "--gpu", "a100-40gb", "--model", "llama-2-70b", "--world-size", "4", cwd=tmp_path)
    text = " ".join(done.stdout.split())
    assert "error[DS706]" not in text
    assert ("warning[DS706]" in text) is (said == "may")
    assert ("the command names LoRA" in text) is (said == "not judged")
