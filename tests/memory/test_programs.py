"""What the program decides: adapters with saved modules, quantized bases and dropout; torch's optimizer; vLLM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dslint.config.context import Context
from dslint.config.resolve import resolve
from dslint.facts import Facts, Integration
from dslint.frameworks.programs import read_python
from dslint.job.model import Setup
from dslint.memory.activations import dropout_of_adapters, operations
from dslint.memory.estimate import estimate
from dslint.memory.families import read_shape
from dslint.memory.given import ModelRequest, model_of
from dslint.memory.layout import lay_out
from dslint.memory.numbers import with_adapters, with_quantized
from dslint.memory.plan import Plan, Workload
from dslint.memory.planning import builds_partitioned, loads_partitioned
from dslint.source.parse import parse
from tests.command import dslint

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
TIED = read_shape({**SMALL, "tie_word_embeddings": True}, "config.json")


def test_a_quantized_base_is_as_large_in_a_model_of_fp32() -> None:
    adapted = with_quantized(with_adapters(TIED, 8), 4)
    plans = [Plan(Workload(128), world=1, local=1, replicas=1, model_bytes=each) for each in (2, 4)]
    sizes = [[plan.model_bytes * size for size in lay_out(adapted, plan).sizes] for plan in plans]
    for weight, half, full in zip(adapted.weights, *sizes, strict=True):
        assert full == (half if weight.quantized else 2 * half), weight.name


def test_a_saved_module_has_a_trained_copy_and_no_adapters() -> None:
    norms = with_adapters(TIED, 8, saved=["layernorm"])  # the end of a name is enough
    copies = {w.module for w in norms.weights if w.trained and "layernorm" in w.name}
    assert {name.split(".")[3] for name in copies} == {"input_layernorm", "post_attention_layernorm"}
    feed = with_adapters(TIED, 8, saved=["mlp"])
    inside = [w for block in feed.blocks for w in block.weights if ".mlp." in w.name]
    assert not [w.name for w in inside if ".lora_" in w.name]
    assert sum(w.size for w in inside if w.trained) == sum(w.size for w in inside if not w.trained)


def test_a_saved_head_is_no_longer_tied() -> None:
    head = with_adapters(TIED, 8, saved=["lm_head"])
    assert not head.tied
    assert head.size == with_adapters(TIED, 8).size + TIED.vocabulary * TIED.hidden


def test_options_of_adapters_that_do_nothing_are_said() -> None:
    def said(**options: Any) -> str:
        return " ".join(model_of(ModelRequest("llama-3.2-1b", **options)).assumed)

    assert "--lora-saves: score, nose is not counted" in said(lora_rank=8, lora_saves=("score", "embed_tokens", "nose"))
    assert not said(lora_rank=8, lora_saves=("embed_tokens", "lm_head"))
    assert "--lora-saves has no effect without --lora-rank" in said(lora_saves=("lm_head",))
    assert "--lora-targets has no effect without --lora-rank" in said(lora_targets=("q_proj",))


def kept(dropout: bool | None, checkpoint: int = 0) -> int:
    plan = Plan(Workload(128, checkpoint_every=checkpoint, adapter_dropout=dropout), world=1, local=1, replicas=1)
    return sum(operation.kept for block in operations(with_adapters(TIED, 8), plan).blocks for operation in block)


def test_dropout_of_adapters_keeps_a_copy_of_each_input() -> None:
    inputs = 2 * (6 * 64 + 96)  # six layers read the hidden size, one the intermediate size
    shared = 2 * (2 * 64 + 96)  # without dropout: queries, keys and values share one input, as gate and up do
    assert kept(dropout=True) - kept(dropout=False) == 128 * (3 * inputs - 2 * shared)
    plan = Plan(Workload(128), world=1, local=1, replicas=1)
    adapted = with_adapters(TIED, 8)
    assert dropout_of_adapters(adapted, plan, operations(adapted, plan)) == kept(dropout=True) - kept(dropout=False)
    assert dropout_of_adapters(TIED, plan, operations(TIED, plan)) == 0


def test_only_the_high_figure_includes_what_the_program_may_do() -> None:
    plan = Plan(Workload(16), world=1, local=1, replicas=1, stage=2, reduce_bucket=1000)
    least, some, most = (estimate(TIED, plan.but(doubtful_step_bytes=each)) for each in (0, 4, 8))
    assert least.tensors.expected == most.tensors.expected
    assert some.tensors.high == least.tensors.high  # as much as the copies that have been freed
    assert most.tensors.high - least.tensors.high == 4 * most.run.layout.part
    assert estimate(TIED, plan.but(step_bytes=8)).tensors.expected - least.tensors.expected == 4 * most.run.layout.part


def test_a_sleeping_vllm_counts_only_with_what_stays() -> None:
    plan = Plan(Workload(4096), world=1, local=1, replicas=1, stage=2, elsewhere=100 * 2**20)
    awake, asleep, without = (estimate(TIED, plan.but(**more)) for more in ({}, {"sleeps": True}, {"elsewhere": 0}))
    assert awake.device.expected == without.device.expected + plan.elsewhere
    assert without.device.expected <= asleep.device.expected < awake.device.expected
    assert (
        asleep.device.expected
        == max(without.reserved.expected, without.steady.total + plan.elsewhere) + without.device.expected - without.reserved.expected
    )


def test_the_activations_of_towers_widen_the_range(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}', encoding="utf-8")
    width = []
    for more in (("--model", "qwen2.5-7b"), ("--model", "Qwen/Qwen2.5-VL-7B-Instruct", "--frozen-towers"), ("--model", "qwen2.5-vl-7b")):
        done = dslint("estimate", tmp_path / "ds.json", "--world-size", "4", "--output-format", "json", *more)
        tensors = json.loads(done.stdout)["tensors"]
        width.append(tensors["high"] / tensors["expected"])
    assert width[0] < width[1] < width[2]


def test_fused_kernels_keep_less() -> None:
    plan = Plan(Workload(128), world=1, local=1, replicas=1)
    sizes = [
        sum(operation.kept for block in operations(TIED, plan.but(fused=fused)).blocks for operation in block) for fused in (False, True)
    ]
    norms = 2 * (4 + 2) * 64 - 2 * 2 * 64  # an fp32 copy and a 16-bit one become the input
    assert sizes[0] - sizes[1] == 2 * 128 * (norms + 2 * 96)


NEOX = {
    "pipe-parallel-size": 1,
    "model-parallel-size": 1,
    "num-layers": 32,
    "hidden-size": 2560,
    "num-attention-heads": 32,
    "seq-length": 2048,
    "max-position-embeddings": 2048,
    "pos-emb": "rotary",
    "no-weight-tying": True,
    "zero_optimization": {"stage": 1},
    "train_micro_batch_size_per_gpu": 4,
    "checkpoint-activations": True,
    "fp16": {"enabled": True},
    "train-iters": 320000,
}


def test_gpt_neox_gives_the_sizes_of_its_model(tmp_path: Path) -> None:
    """A public training of 2.7B on one GPU of 23.7 GiB: its training file says all that an estimate needs."""
    (tmp_path / "2-7B.yml").write_text(json.dumps(NEOX), encoding="utf-8")
    options = ("--isolated", "--world-size", "1", "--gpu-memory", "23.7GiB")
    said = " ".join(dslint("estimate", "2-7B.yml", *options, cwd=tmp_path).stdout.split())
    assert "2,775,208,960 parameters" in said
    assert "4 x 1 samples per rank and step, 2,048 tokens each, activation checkpointing" in said
    found = dslint("check", "2-7B.yml", *options, "--output-format", "json", cwd=tmp_path).stdout
    assert "DS706" in found


@pytest.mark.parametrize("other", [{"activation": "swiglu"}, {"moe_num_experts": 8}, {"num_kv_heads": 4}, {"mlp_type": "llama"}])
def test_gpt_neox_with_another_layer_gives_no_sizes(tmp_path: Path, other: dict[str, object]) -> None:
    (tmp_path / "2-7B.yml").write_text(json.dumps({**NEOX, **other}), encoding="utf-8")
    assert dslint("estimate", "2-7B.yml", "--isolated", "--world-size", "1", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(("given", "known"), [("", True), (", enabled=True", True), (", enabled=args.stage == 3", False)])
def test_a_program_that_enters_zero_init_builds_a_partitioned_model(given: str, *, known: bool) -> None:
    """Otherwise an estimate says what the whole model needs on each rank first."""
    found = read_python(
        f"import deepspeed\nwith deepspeed.zero.Init(config_dict_or_path='ds.json'{given}):\n    model = Model()\n", "train.py"
    )
    assert found is not None
    config = parse('{"zero_optimization": {"stage": 3}}')
    setup = Setup(program=found.program)
    assert builds_partitioned(resolve(config, Context(Facts(), setup=setup))) is known


def test_a_launch_with_several_models_is_not_judged(tmp_path: Path) -> None:
    """DeepSpeed-Chat's step 3: the estimate counts one of its models."""
    launch = "deepspeed --num_gpus 8 main.py --deepspeed --actor_model_name_or_path a%s --actor_zero_stage 2 --per_device_training_batch_size 4\n"
    for other, expected in ((" --critic_model_name_or_path c", True), ("", False)):
        (tmp_path / "run.sh").write_text(launch % other, encoding="utf-8")
        done = dslint("estimate", "run.sh", "--model", "gpt2", "--gpu", "a100", cwd=tmp_path)
        words = "the other models of the program (--actor_model_name_or_path, --critic_model_name_or_path) are not counted"
        said = " ".join(done.stdout.split())
        assert (words in said) is said.startswith("Not judged: ") is expected, done.stdout + done.stderr
    assert dslint("estimate", "run.sh", "--model", "gpt2", "--gpu", "a100", "--limit", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("options", "counted"),
    [(("--value-model",), True), (("--frozen-copies", "2"), True), ((), False)],
)
def test_models_that_options_count_are_not_said_to_be_left_out(tmp_path: Path, options: tuple[str, ...], counted: bool) -> None:
    launch = (
        "deepspeed --num_gpus 8 main.py --deepspeed --pretrain m --reward_pretrain r --zero_stage 2 --bf16 --micro_train_batch_size 1\n"
    )
    (tmp_path / "run.sh").write_text(launch, encoding="utf-8")
    done = dslint("estimate", "run.sh", "--model", "gpt2", "--gpu", "a100", *options, cwd=tmp_path)
    assert "GiB" in done.stdout, done.stderr
    assert ("the other models of the program" not in " ".join(done.stdout.split())) is counted, done.stdout


@pytest.mark.parametrize(("flags", "judged"), [("--model m --model_path out", True), ("--pretrain m --reward_pretrain r", False)])
def test_two_flags_for_the_trained_model_are_one_model(tmp_path: Path, flags: str, judged: bool) -> None:
    """A name of the model and the folder of it, or a folder for what is saved."""
    launch = f"deepspeed --num_gpus 8 main.py --deepspeed {flags} --zero_stage 2 --per_device_training_batch_size 4\n"
    (tmp_path / "run.sh").write_text(launch, encoding="utf-8")
    done = dslint("estimate", "run.sh", "--model", "gpt2", "--gpu", "a100", cwd=tmp_path)
    assert "GiB" in done.stdout, done.stderr
    assert ("the other models of the program" not in " ".join(done.stdout.split())) is judged, done.stdout


_TWO_ENGINES = (
    "import deepspeed\nstudent, *_ = deepspeed.initialize(model=first, config='ds.json', model_parameters=first.parameters())\n%s"
    "student.backward(student(batch))\nstudent.step()\n"
)


@pytest.mark.parametrize(
    ("other", "judged"),
    [
        ("teacher, *_ = deepspeed.initialize(model=second, config='ds.json')\n", False),
        ("if arguments.distill:\n    teacher, *_ = deepspeed.initialize(model=second, config='ds.json')\n", True),
        ("", True),
    ],
)
def test_a_program_with_several_engines_is_not_judged(tmp_path: Path, other: str, judged: bool) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "train.py").write_text(_TWO_ENGINES % other, encoding="utf-8")
    options = ("--isolated", "--model", "gpt2", "--world-size", "2", "--gpu", "a100", "--sequence-length", "512")
    done = dslint("estimate", "train.py", *options, "--output-format", "json", cwd=tmp_path)
    assert (json.loads(done.stdout)["verdict"] == "fits") is judged, done.stdout + done.stderr


@pytest.mark.parametrize(("trainer", "copies"), [("DPOTrainer", True), ("SFTTrainer", False)])
def test_the_trainer_of_a_program_says_the_method(tmp_path: Path, trainer: str, copies: bool) -> None:
    """The arguments are of a class of the project, which says nothing."""
    program = (
        "import transformers\nfrom dataclasses import dataclass\n"
        f"from trl import {trainer}\n@dataclass\nclass Own(transformers.TrainingArguments):\n    max_length: int = 1024\n"
        "parser = transformers.HfArgumentParser((Own,))\n(arguments,) = parser.parse_args_into_dataclasses()\n"
        f"model = transformers.AutoModelForCausalLM.from_pretrained('gpt2')\n{trainer}(model, args=arguments, train_dataset=data).train()\n"
    )
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    config = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    launch = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --bf16 True --output_dir o --per_device_train_batch_size 1\n"
    (tmp_path / "run.sh").write_text(launch, encoding="utf-8")
    done = dslint("estimate", "run.sh", "--isolated", "--model", "gpt2", cwd=tmp_path)
    assert ("--frozen-copies is 1, from the method dpo" in done.stdout) is copies, done.stdout + done.stderr
    assert ("--pairs is True" in done.stdout) is copies


@pytest.mark.parametrize(
    ("flags", "fits"),
    [
        ("--bf16 True", False),
        ("--fp16 True", False),
        ("--bf16 True --freeze_backbone False", False),
        ("--bf16 True --freeze_backbone True", True),
        ("--bf16 True --tune_mm_mlp_adapter True", True),
        ("--bf16 True --lora_enable True", True),
        ("--bf16 True --bits 4", True),
        ("", False),
    ],
)
def test_a_program_elsewhere_with_16_bits_by_a_flag(tmp_path: Path, flags: str, fits: bool) -> None:
    """The program may have defaults of its own, so that the precision is not known: the model has 16 or 32 bits, and fits with neither."""
    auto = {"enabled": "auto"}
    config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": auto, "fp16": auto}
    (tmp_path / "ds.json").write_text(json.dumps({**config, "zero_optimization": {"stage": 3}}), encoding="utf-8")
    launch = f"deepspeed --num_gpus 1 package/train.py --deepspeed ds.json --model_name_or_path m --output_dir o {flags}\n"
    (tmp_path / "run.sh").write_text(launch, encoding="utf-8")
    options = ("--isolated", "--gpu", "a100-80gb", "--params", "7B", "--output-format", "json")
    assert ("DS706" not in dslint("check", "run.sh", *options, cwd=tmp_path).stdout) == fits


_TRAINED = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nmodel = AutoModelForCausalLM.from_pretrained('m'%s)\n%s"
    "args = TrainingArguments('o', deepspeed='ds.json', bf16=True, per_device_train_batch_size=1)\nTrainer(model, args, train_dataset=data).train()\n"
)
_PEFT = "from peft import LoraConfig, get_peft_model\nmodel = get_peft_model(model, LoraConfig(r=%s, target_modules=['c_attn']))\n"


@pytest.mark.parametrize(
    ("loading", "between", "words"),
    [
        ("", _PEFT % 16, "--lora-rank is 16, from train.py:4 - --lora-targets is c_attn"),
        ("", _PEFT % "rank", "--lora-rank is 8, from a guess: train.py:4 computes it"),
        (", load_in_4bit=True", _PEFT % 16, "--base-bits is 4, from train.py:2"),
        ("", "model.requires_grad_(False)\n", "the program may train a part of them, which needs less (train.py:3)"),
        (
            "",
            "from heads import only_the_head\nonly_the_head(model)\n",
            "the program may train a part of them, which needs less (heads.py:3)",
        ),
        ("", "model.requires_grad_(True)\n# model.requires_grad_(False)\n", ""),
    ],
)
def test_what_a_program_trains(tmp_path: Path, loading: str, between: str, words: str) -> None:
    auto = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}
    (tmp_path / "ds.json").write_text(json.dumps({**auto, "zero_optimization": {"stage": 2}}), encoding="utf-8")
    (tmp_path / "train.py").write_text(_TRAINED % (loading, between), encoding="utf-8")
    (tmp_path / "heads.py").write_text(
        "def only_the_head(model):\n    for one in model.body:\n        one.requires_grad = False\n", encoding="utf-8"
    )
    done = " ".join(dslint("estimate", "ds.json", "--isolated", "--model", "gpt2", "--world-size", "2", cwd=tmp_path).stdout.split())
    assert words in done if words else "lora" not in done and "may train" not in done, done
    options = ("--isolated", "--gpu", "a100-40gb", "--params", "18B", "--world-size", "2", "--output-format", "json")
    assert ("DS706" in dslint("check", ".", *options, cwd=tmp_path).stdout) is (not words)


def test_the_rank_of_lora_is_what_the_program_passes(tmp_path: Path) -> None:
    """The launch only turns LoRA on, and the Trainer has no default for its rank."""
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', encoding="utf-8")
    (tmp_path / "run.sh").write_text(
        "deepspeed --num_gpus 2 train.py --use_lora --output_dir o --per_device_train_batch_size 1 --deepspeed ds.json\n", encoding="utf-8"
    )
    program = (
        "from dataclasses import dataclass\nfrom transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n%s"
        "@dataclass\nclass Own(TrainingArguments):\n    use_lora: bool = False\n%s"
        "args = HfArgumentParser(Own).parse_args_into_dataclasses()[0]\nmodel = AutoModelForCausalLM.from_pretrained('m')\n%s"
        "Trainer(model, args, train_dataset=data).train()\n"
    )
    own = "if args.use_lora:\n    model = get_peft_model(model, LoraConfig(r=args.lora_r))\n"
    field = "    lora_r: int = 64\n"
    for imported, fields, between, words in (
        ("from peft import LoraConfig, get_peft_model\n", field, own, "--lora-rank is 64, from train.py"),
        ("from adapters import adapt\n", field, "adapt(model)\n", "--lora-rank is 64, from train.py"),
        ("from adapters import adapt\n", "", "adapt(model)\n", "--lora-rank is 16, from a guess: no argument says it"),
    ):
        (tmp_path / "train.py").write_text(program % (imported, fields, between), encoding="utf-8")
        done = dslint("estimate", "run.sh", "--isolated", "--model", "gpt2", cwd=tmp_path)
        assert words in " ".join(done.stdout.split()), done.stdout + done.stderr


_BY_FLAGS = (
    "import dataclasses\nimport json\nfrom dataclasses import dataclass, field\nfrom transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
    "@dataclass\nclass Own(TrainingArguments):\n    lora_enable: bool = False\n    freeze_backbone: bool = False\n"
    "args = HfArgumentParser(Own).parse_args_into_dataclasses()[0]\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "if args.lora_enable:\n    from peft import LoraConfig, get_peft_model\n    model = get_peft_model(model, LoraConfig(r=8))\n"
    "if args.freeze_backbone:\n    model.model.requires_grad_(False)\n%sTrainer(model, args, train_dataset=data).train()\n"
)


_HEAD = "def head(model, fixed):\n    if fixed:\n        model.lm_head.requires_grad_(False)\nhead(model, False)\n"
_MANY_STEPS = "def f20(n):\n    pass\n" + "".join(f"def f{k}(n):\n    f{k + 1}(n)\n    f{k + 1}(n + 1)\n" for k in reversed(range(20)))


@pytest.mark.parametrize(
    ("more", "flags", "whole"),
    [
        ("", "", True),
        ("", "--pretrain_mm_mlp_adapter mm_projector.bin", True),
        ("", "--lora_enable True", False),
        ("", "--freeze_backbone True", False),
        ("for one in (False, True):\n    if one:\n        model.lm_head.requires_grad_(False)\n", "", False),
        (
            "def head(model, fixed):\n    if fixed:\n        model.lm_head.requires_grad_(False)\nhead(model, False)\nhead(model, model.config.tied)\n",
            "",
            False,
        ),
        (_HEAD, "", True),
        (f"{_HEAD}{_MANY_STEPS}f0(0)\nhead(model, True)\n", "", False),
        ("if model.config.tied:\n    model.lm_head.requires_grad_(False)\n", "", False),
        (
            "for name, value in json.load(open('x.json')).items():\n    setattr(args, name, value)\nif args.lora_enable:\n    model.requires_grad_(False)\n",
            "",
            False,
        ),
        ("vars(args).update(json.load(open('x.json')))\nif args.lora_enable:\n    model.requires_grad_(False)\n", "", False),
        (
            "for name, value in json.load(open('x.json')).items():\n    setattr(args, name, value)\nif args.lora_enable:\n    model.requires_grad_(False)\n",
            "--lora_enable False",
            True,
        ),
        ("args.__dict__.update(lora_enable=True)\nif args.lora_enable:\n    model.requires_grad_(False)\n", "", False),
        ("vars(args)['lora_enable'] = True\nif args.lora_enable:\n    model.requires_grad_(False)\n", "", False),
        (
            "for name, value in json.load(open('x.json')).items():\n    vars(args)[name] = value\nif args.lora_enable:\n    model.requires_grad_(False)\n",
            "",
            False,
        ),
        (
            "copy = dataclasses.asdict(args)\ncopy.update(lora_enable=True)\nif args.lora_enable:\n    model.requires_grad_(False)\n",
            "",
            True,
        ),
        ('if type(optimizer).__name__ == "Adam8bit":\n    optimizer.register()\n', "", True),
    ],
)
def test_branches_that_the_launch_does_not_take_freeze_nothing(tmp_path: Path, more: str, flags: str, *, whole: bool) -> None:
    """LLaVA's program and its many descendants can train an adapter or a part; whether they do is in the command."""
    auto = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}
    (tmp_path / "ds.json").write_text(json.dumps({**auto, "zero_optimization": {"stage": 3}}), encoding="utf-8")
    (tmp_path / "train.py").write_text(_BY_FLAGS % more, encoding="utf-8")
    launch = f"deepspeed --num_gpus 1 train.py --deepspeed ds.json --output_dir o --bf16 True {flags}\n"
    (tmp_path / "run.sh").write_text(launch, encoding="utf-8")
    options = ("--isolated", "--gpu", "a100-80gb", "--params", "7B", "--output-format", "json")
    assert ("DS706" in dslint("check", ".", *options, cwd=tmp_path).stdout) is whole


_FREEZING = (
    "import deepspeed\nimport torch\nfrom options import get_args\nargs = read_more(get_args())\nmodel = build()\n%s"
    "engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config='ds.json')\n"
    "for batch in data:\n    engine.backward(engine(batch))\n    engine.step()\n"
)
_OPTIONS = (
    "import argparse\ndef get_args():\n    parser = argparse.ArgumentParser()\n    parser.add_argument('--freeze_layers', type=int, default=0)\n"
    "    parser.add_argument('--local_rank', type=int)\n    parser.add_argument('--frozen', action='store_true')\n"
    "    parser.add_argument('--settings')\n    return parser.parse_args()\n"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("between", "flags", "whole"),
    [
        ("if args.frozen:\n    model.requires_grad_(False)\n", "", True),
        ("if args.frozen:\n    model.requires_grad_(False)\n", "--frozen", False),
        ("if args.frozen:\n    model.requires_grad_(False)\n", "--settings other.json", False),
        ("if not args.frozen:\n    model.requires_grad_(False)\n", "", False),
        ("if args.freeze_layers > 0:\n    model.requires_grad_(False)\n", "", True),
        ("if args.frozen or args.freeze_layers > 0:\n    pass\nelse:\n    model.requires_grad_(False)\n", "", False),
        ("if args.frozen and ready:\n    model.requires_grad_(False)\n", "", True),
        ("args.frozen = bool(model)\nif args.frozen:\n    model.requires_grad_(False)\n", "", False),
        ("config.frozen = args.frozen\nif args.frozen:\n    model.requires_grad_(False)\n", "", True),
        ("ref_model = build()\nfor one in ref_model.parameters():\n    one.requires_grad = False\n", "", True),
        ("for name, one in model.named_parameters():\n    one.requires_grad = False\n", "", False),
        ("model.get_model().vision_tower.requires_grad_(False)\n", "", True),
    ],
)
def test_branches_of_options_with_their_defaults_freeze_nothing(tmp_path: Path, between: str, flags: str, *, whole: bool) -> None:
    """Where `args` comes from is not known: a function returns it that is not followed. Its options are, in another file."""
    (tmp_path / "ds.json").write_text(json.dumps({"bf16": {"enabled": True}, "train_batch_size": 1}), encoding="utf-8")
    (tmp_path / "other.json").write_text('{"frozen": true}', encoding="utf-8")
    (tmp_path / "train.py").write_text(_FREEZING % between, encoding="utf-8")
    (tmp_path / "options.py").write_text(_OPTIONS, encoding="utf-8")
    (tmp_path / "run.sh").write_text(f"deepspeed --num_gpus 1 train.py {flags}\n", encoding="utf-8")
    options = ("--isolated", "--gpu", "a100-80gb", "--params", "7B", "--output-format", "json")
    assert ("DS706" in dslint("check", ".", *options, cwd=tmp_path).stdout) is whole


def test_a_module_with_options_is_followed_beyond_the_limit(tmp_path: Path) -> None:
    """The 41st module of TencentPretrain adds the options, one of which decides whether all weights are trained."""
    modules = "".join(f"import m{number}\n" for number in range(45))
    for number in range(45):
        (tmp_path / f"m{number}.py").write_text(f"X = {number}\n", encoding="utf-8")
    (tmp_path / "ds.json").write_text(json.dumps({"bf16": {"enabled": True}, "train_batch_size": 1}), encoding="utf-8")
    (tmp_path / "train.py").write_text(modules + _FREEZING % "if args.frozen:\n    model.requires_grad_(False)\n", encoding="utf-8")
    (tmp_path / "options.py").write_text(_OPTIONS, encoding="utf-8")
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 1 train.py\n", encoding="utf-8")
    options = ("--isolated", "--gpu", "a100-80gb", "--params", "7B", "--output-format", "json")
    assert "DS706" in dslint("check", ".", *options, cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("order", "divided"),
    [
        ("arguments = TrainingArguments('out', deepspeed='ds.json')\nmodel = AutoModel.from_pretrained('m')", True),
        ("model = AutoModel.from_pretrained('m')\narguments = TrainingArguments('out', deepspeed='ds.json')", False),
        ("arguments = TrainingArguments('out', deepspeed='ds.json')\nmodel = build()", False),
    ],
)
def test_a_model_is_divided_as_it_is_loaded_where_the_config_is_known(order: str, *, divided: bool) -> None:
    head = "from transformers import AutoModel, Trainer, TrainingArguments\n"
    found = read_python(f"{head}{order}\nTrainer(model, arguments).train()\n", "train.py")
    assert found is not None
    context = Context(Facts(integration=Integration.TRANSFORMERS), setup=Setup(program=found.program))
    assert loads_partitioned(context) is divided


@pytest.mark.parametrize("told", [True, False])
def test_a_program_of_deepspeed_itself_may_tell_transformers_of_the_config(*, told: bool) -> None:
    tell, load = "known = HfDeepSpeedConfig(config)\n", "model = AutoModel.from_pretrained('m')\n"
    head = "import deepspeed\nfrom transformers import AutoModel\nfrom transformers.integrations import HfDeepSpeedConfig\n"
    found = read_python(f"{head}{tell + load if told else load + tell}deepspeed.initialize(model=model, config=config)\n", "train.py")
    assert found is not None
    assert loads_partitioned(Context(Facts(integration=Integration.DEEPSPEED), setup=Setup(program=found.program))) is told


@pytest.mark.parametrize(("stage", "said"), [(3, True), (2, False), (1, False)])
def test_zero_init_is_said_only_where_a_model_is_divided(tmp_path: Path, stage: int, said: bool) -> None:
    config = {"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
    (tmp_path / "ds.json").write_text(json.dumps(config))
    training = "model_name_or_path: m\nstage: sft\ndo_train: true\ndataset: d\nfinetuning_type: full\noutput_dir: out\nbf16: true\n"
    (tmp_path / "train.yaml").write_text(f"{training}deepspeed: ds.json\nper_device_train_batch_size: 2\n")
    done = dslint("estimate", "train.yaml", "--params", "7e9", "--world-size", "8", cwd=tmp_path)
    assert "--sequence-length" in done.stdout
    assert ("--zero-init is True" in done.stdout) is said


_OWN_FIELDS = (
    "from dataclasses import dataclass, field\nfrom typing import Optional\n"
    "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
    "@dataclass\nclass ModelArguments:\n    model_name_or_path: Optional[str] = field(default='Qwen/Qwen-7B')\n"
    "@dataclass\nclass Own(TrainingArguments):\n    model_max_length: int = field(default=4096, metadata={'help': 'tokens'})\n"
    "    gradient_checkpointing: bool = True\n"
    "model_args, args = HfArgumentParser((ModelArguments, Own)).parse_args_into_dataclasses()\n"
    "model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path)\n"
    "Trainer(model, args, train_dataset=data).train()\n"
)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("", ("Qwen/Qwen-7B: 7,721,324,544 parameters", "--sequence-length is 4096", "--activation-checkpointing is 1")),
        (" --model_max_length 512", ("--sequence-length is 512, from run.sh:1",)),
        (" --gradient_checkpointing False", ("does not use activation checkpointing",)),
        (" --model_name_or_path gpt2", ("gpt2: 124,439,808 parameters",)),
    ],
)
def test_a_script_and_its_program_take_the_defaults_of_its_fields(tmp_path: Path, flags: str, words: tuple[str, ...]) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', encoding="utf-8")
    (tmp_path / "train.py").write_text(_OWN_FIELDS, encoding="utf-8")
    command = f"deepspeed --num_gpus 2 train.py --output_dir o --per_device_train_batch_size 1 --bf16 True --deepspeed ds.json{flags}\n"
    (tmp_path / "run.sh").write_text(command, encoding="utf-8")
    found = [" ".join(dslint("estimate", one, "--isolated", cwd=tmp_path).stdout.split()) for one in ("run.sh", "train.py")]
    assert found[0] == found[1]
    for each in words:
        assert each in found[0], found[0]


def test_the_default_of_a_field_that_the_program_does_not_load(tmp_path: Path) -> None:
    """Another field names the model, as in programs that keep a field of the program that they come from."""
    program = _OWN_FIELDS.replace("from_pretrained(model_args.model_name_or_path)", "from_pretrained(model_args.start_from)")
    (tmp_path / "train.py").write_text(program.replace("class ModelArguments:\n", "class ModelArguments:\n    start_from: str = None\n"))
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}')
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 2 train.py --output_dir o --deepspeed ds.json --start_from my/model\n")
    done = dslint("estimate", "run.sh", "--isolated", cwd=tmp_path)
    assert "no model given" in done.stderr


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--pretrain meta-llama/Llama-2-7b-hf --max_len 1024", ("6,738,415,616 parameters", "--sequence-length is 1024")),
        ("--input_model EleutherAI/pythia-2.8b --seq_len 512", ("2,775,208,960 parameters", "--sequence-length is 512")),
        ("--model_id gpt2 --prompt_max_len 256 --generate_max_len 512", ("--sequence-length is 768, from run.sh:1",)),
        (
            "--model_name_or_path gpt2 --with_tracking --per_device_train_batch_size 3",
            ("--micro-batch is 3, from run.sh:1: the config leaves it",),
        ),
        ("--model_name_or_path gpt2 --batch_size 3", ("micro batch size of 1",)),
    ],
)
def test_flags_of_a_loop_of_its_own_count(tmp_path: Path, flags: str, words: tuple[str, ...]) -> None:
    """The program is not in the project: it may have flags for its model, its samples and its batches."""
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}', encoding="utf-8"
    )
    command = f"accelerate launch --use_deepspeed --deepspeed_config_file ds.json --num_processes 2 own_loop.py {flags}\n"
    (tmp_path / "run.sh").write_text(command, encoding="utf-8")
    done = dslint("estimate", "run.sh", "--isolated", "--gpu", "a100", cwd=tmp_path)
    for each in words:
        assert each in " ".join(done.stdout.split()), done.stdout + done.stderr


def test_the_batch_of_a_config_counts_more_than_that_of_a_flag(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}', encoding="utf-8")
    command = "deepspeed --num_gpus 2 own_loop.py --deepspeed_config ds.json --model_name_or_path gpt2 --per_device_train_batch_size 3\n"
    (tmp_path / "run.sh").write_text(command, encoding="utf-8")
    assert "\n2 x 1 samples per rank" in dslint("estimate", "run.sh", "--isolated", cwd=tmp_path).stdout


def test_the_sample_of_a_method_that_generates_is_a_prompt_with_its_answer(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}', encoding="utf-8")
    (tmp_path / "train.py").write_text(
        "from trl import GRPOConfig, GRPOTrainer\n"
        "args = GRPOConfig(output_dir='o', deepspeed='ds.json', max_prompt_length=4096, max_completion_length=16384)\n"
        "GRPOTrainer(model='Qwen/Qwen3-0.6B', reward_funcs=reward, args=args, train_dataset=data).train()\n",
        encoding="utf-8",
    )
    done = dslint("estimate", "train.py", "--isolated", "--world-size", "8", cwd=tmp_path)
    assert "at most 20,480 tokens each" in done.stdout, done.stdout + done.stderr
