"""What an estimate says of a job is what its files say, and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import dslint

HALF = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}


def words(*arguments: str, folder: Path) -> str:
    """The output of a command in one line."""
    done = dslint(*arguments, "--isolated", cwd=folder)
    return " ".join((done.stdout + done.stderr).split())


def write(folder: Path, stage: int = 2, program: str = "", launch: str = "", **more: Any) -> None:
    (folder / "ds.json").write_text(json.dumps({**HALF, "zero_optimization": {"stage": stage}, **more}), encoding="utf-8")
    if program:
        (folder / "train.py").write_text(program, encoding="utf-8")
    if launch:
        (folder / "run.sh").write_text(launch, encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "options", "expected"),
    [
        ("7.07e9", (), " 7.07B parameters 1 rank"),
        ("6738415616", (), " 6,738,415,616 parameters 1 rank"),
        ("125M", (), " 125M parameters 1 rank"),
        ("7.07e9", ("--lora-rank", "8"), "7.07B parameters with LoRA of rank 8: about 7.09B parameters, about 20.4M of them trained"),
    ],
)
def test_a_number_of_parameters_is_printed_as_it_was_given(tmp_path: Path, given: str, options: tuple[str, ...], expected: str) -> None:
    """The model that stands for it has other digits."""
    write(tmp_path)
    assert expected in words("estimate", "ds.json", "--params", given, "--world-size", "1", *options, folder=tmp_path)


@pytest.mark.parametrize(
    ("sizes", "layers"), [((), "32"), (("--layers", "2"), ""), (("--params", "7B"), ""), (("--hidden-size", "64"), "1")]
)
def test_a_hidden_size_alone_leaves_the_layers_open(tmp_path: Path, sizes: tuple[str, ...], layers: str) -> None:
    write(tmp_path)
    said = words("estimate", "ds.json", "--hidden-size", "4096", *sizes, "--world-size", "1", folder=tmp_path)
    assert (f"--layers is {layers}, as usual for this hidden size:" in said) if layers else ("as usual for this" not in said)


@pytest.mark.parametrize(
    ("targets", "trained", "expected"),
    [
        ("W_pack", "12.6M", "--lora-targets: W_pack is taken as q_proj, k_proj, v_proj, because only numbers are given"),
        ("nose", "4.19M", "--lora-targets: nose is taken as q_proj, because only numbers are given"),
        ("wo,fc1", "20.3M", "wo is taken as o_proj, because only numbers are given - --lora-targets: fc1 is taken as gate_proj, up_proj"),
    ],
)
def test_the_name_of_a_layer_is_no_error_where_only_numbers_are_given(tmp_path: Path, targets: str, trained: str, expected: str) -> None:
    """Baichuan has one layer for queries, keys and values."""
    write(tmp_path)
    options = (
        "--params",
        "7B",
        "--hidden-size",
        "4096",
        "--layers",
        "32",
        "--world-size",
        "1",
        "--lora-rank",
        "16",
        "--lora-targets",
        targets,
    )
    said = words("estimate", "ds.json", *options, folder=tmp_path)
    assert expected in said
    assert f"about {trained} of them trained" in said


@pytest.mark.parametrize("targets", ["v_proj,lm_head", "self_attn.v_proj"])
def test_a_head_and_a_known_layer_need_no_layer_that_stands_for_them(tmp_path: Path, targets: str) -> None:
    write(tmp_path)
    options = ("--params", "7B", "--world-size", "1", "--lora-rank", "16", "--lora-targets", targets)
    assert "is taken as" not in words("estimate", "ds.json", *options, folder=tmp_path)


def test_names_of_llama_stand_for_layers_of_a_model_without_a_gate(tmp_path: Path) -> None:
    """The numbers are those of Pythia 6.9B."""
    write(tmp_path)
    sizes = ("--params", "6.9B", "--hidden-size", "4096", "--layers", "32", "--ffn-size", "16384", "--vocab-size", "50432")
    options = ("--world-size", "1", "--lora-rank", "16", "--lora-targets", "up_proj,down_proj")
    said = words("estimate", "ds.json", *sizes, *options, folder=tmp_path)
    assert "up_proj is taken as dense_h_to_4h" in said
    assert "down_proj is taken as dense_4h_to_h" in said


@pytest.mark.parametrize("rank", [0, 128])
def test_lora_of_deepspeed_chat_depends_on_the_names_of_the_layers(tmp_path: Path, rank: int) -> None:
    """GPT-Neo has no `decoder.layers.`, so that all its weights are trained, without an error."""
    launch = (
        f"deepspeed --num_gpus 1 train.py --lora_dim {rank} --lora_module_name decoder.layers. --deepspeed --deepspeed_config ds.json\n"
    )
    write(tmp_path, program=_PLAIN % "None", launch=launch)
    said = words("estimate", "run.sh", "--params", "1.3B", folder=tmp_path)
    assert ("if it is in none, all weights may be trained" in said) == bool(rank)


@pytest.mark.parametrize(("part", "whole"), [("decoder.layers.", True), ("model.layers.", False)])
def test_lora_of_deepspeed_chat_in_no_layer_trains_all_weights(tmp_path: Path, part: str, whole: bool) -> None:
    launch = (
        "deepspeed --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --lora_dim 16 --only_optimize_lora "
        f"--lora_module_name {part} --deepspeed --deepspeed_config ds.json\n"
    )
    write(tmp_path, program=_PLAIN % "None", launch=launch)
    said = words("estimate", "run.sh", folder=tmp_path)
    assert ("with LoRA of rank 16" not in said) is whole
    assert ("all weights are trained, without LoRA: --lora_module_name is in no name of the model's layers" in said) is whole


def test_a_check_prints_the_number_of_parameters_as_it_was_given(tmp_path: Path) -> None:
    write(tmp_path, zero_optimization={"stage": 2, "offload_optimizer": {"device": "cpu"}})
    options = ("--params", "7.07e9", "--world-size", "1", "--host-memory", "64GiB")
    assert "(7.07B parameters x 18 bytes" in words("check", "ds.json", *options, folder=tmp_path)


_PLAIN = (
    "import argparse\nimport deepspeed\nimport torch\nfrom transformers import Adafactor\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--local_rank', type=int)\nparser.add_argument('--optimizer', default='adamw')\n"
    "parser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\noptimizer = %s\n"
    "engine, *_ = deepspeed.initialize(args=args, model=model, optimizer=optimizer)\n"
    "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n"
)
_LAUNCH = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json%s\n"
_TRAINER = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\nargs, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "Trainer(model, args, train_dataset=data).train()\n"
)
_TRAINS = "deepspeed --num_gpus 8 train.py --deepspeed ds.json --output_dir o --bf16 True --per_device_train_batch_size 1%s\n"
_OWN = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}


@pytest.mark.parametrize(
    ("program", "launch", "more", "name", "why"),
    [
        (_PLAIN % "torch.optim.SGD(model.parameters(), lr=1e-3)", _LAUNCH % "", {}, "sgd", "--optimizer is sgd, from train.py:10"),
        (_PLAIN % "torch.optim.SGD(p, lr=1e-3, momentum=0.9)", _LAUNCH % "", {}, "sgd", "from train.py:10, with momentum"),
        (_PLAIN % "torch.optim.SGD(p, 1e-3, 0.9)", _LAUNCH % "", {}, "sgd", "from train.py:10, with momentum"),
        (_PLAIN % "torch.optim.SGD(p, 1e-3, momentum=0.0)", _LAUNCH % "", {}, "sgd", "--optimizer is sgd, from train.py:10 "),
        (_PLAIN % "torch.optim.SGD(p, **options)", _LAUNCH % "", {}, "sgd", "from train.py:10, counted with momentum"),
        (_PLAIN % "torch.optim.AdamW(p, fused=False)", _LAUNCH % "", {}, "torch_adamw", "--optimizer is torch_adamw, from train.py:10"),
        (_PLAIN % "torch.optim.AdamW(p, fused=True)", _LAUNCH % "", {}, "adamw", "two fp32 states per parameter: AdamW (train.py:10)"),
        (_PLAIN % "torch.optim.AdamW(p, **options)", _LAUNCH % "", {}, "adamw", "two fp32 states per parameter: AdamW (train.py:10)"),
        (_PLAIN % "Adafactor(model.parameters())", _LAUNCH % "", {}, "adafactor", "--optimizer is adafactor, from train.py:10"),
        (_PLAIN % "torch.optim.AdamW(model.parameters())", _LAUNCH % "", {}, "torch_adamw", "--optimizer is torch_adamw, from train.py:10"),
        (_PLAIN % "build(args)", _LAUNCH % "", {}, "adamw", "the program's optimizer build (train.py:11) counts as AdamW"),
        (_PLAIN % "build(args)", _LAUNCH % "", _OWN, "adamw", "the program's optimizer build (train.py:11) counts as AdamW"),
        (_TRAINER, _TRAINS % "", {}, "adamw", "two fp32 states per parameter, the default of the Trainer"),
        (_TRAINER, _TRAINS % ' --optim="adafactor"', {}, "adafactor", "--optimizer is adafactor, from run.sh:1"),
        (_TRAINER, _TRAINS % " --optim adamw_8bit", _OWN, "adamw", ""),
        (
            _TRAINER,
            _TRAINS % " --optim paged_adamw_32bit",
            {},
            "adamw",
            "the optimizer is AdamW with two fp32 states per parameter: --optim",
        ),
        (
            _TRAINER,
            _TRAINS % " --optim schedule_free_radam",
            {},
            "adamw",
            'the optimizer "schedule_free_radam" counts as AdamW, because its',
        ),
        ("", "", {}, "adamw", "the optimizer is assumed to be AdamW with two fp32 states per parameter: the config has none"),
        ("", "", {"optimizer": {"params": {}}}, "adamw", "the config has no type that is known"),
        ("", "", _OWN, "adamw", ""),
    ],
)
def test_the_optimizer_is_the_one_that_the_files_name(
    tmp_path: Path, program: str, launch: str, more: dict[str, Any], name: str, why: str
) -> None:
    write(tmp_path, 2, program, launch, **more)
    subject = ("run.sh",) if launch else ("ds.json", "--world-size", "8")
    said = words("estimate", *subject, "--params", "7e9", folder=tmp_path)
    assert f"ZeRO stage 2, 16-bit model, {name} " in said
    assert (why in said) if why else ("states per parameter" not in said and "--optimizer is" not in said), said
    assert "because the config has no optimizer" not in said


_EARLY = (
    "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n%smodel = AutoModelForCausalLM.from_pretrained('m')\n%s"
    "Trainer(model, args, train_dataset=data).train()\n"
)
_ARGUMENTS = "args = TrainingArguments('o', deepspeed='ds.json', bf16=True, per_device_train_batch_size=1)\n"
_ALONE = (
    "import deepspeed\nimport torch\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('m')\n"
    "engine, *_ = deepspeed.initialize(model=model, config='ds.json'%s)\n"
)
_OPTIMIZER = ", optimizer=torch.optim.AdamW(model.parameters())"
_LOOP = "for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n"
_STARTED = "deepspeed --num_gpus 8 train.py\n"


def test_a_model_that_is_loaded_whole_is_counted_whole_by_all_commands(tmp_path: Path) -> None:
    """The estimate assumed zero.Init where DS958 says that every rank loads the whole model."""
    options = ("run.sh", "--params", "13B", "--gpu", "a100-80gb", "--host-memory", "128GiB")
    for program, whole in ((_EARLY % ("", _ARGUMENTS), True), (_EARLY % (_ARGUMENTS, ""), False)):
        write(tmp_path, 3, program, _STARTED)
        said = words("estimate", *options, folder=tmp_path)
        assert ("every rank holds the whole model first: train.py:2 loads it before TrainingArguments" in said) is whole
        assert ("zero.Init: assumed" in said) is not whole
        assert ("this is likely not enough while the ranks load the model" in said) is whole
        assert ("DS958" in words("check", ".", folder=tmp_path)) is whole


@pytest.mark.slow
def test_what_is_enough_only_with_an_assumed_zero_init_says_so(tmp_path: Path) -> None:
    options = ("ds.json", "--params", "30B", "--lora-rank", "16", "--world-size", "8", "--nodes", "1", "--gpu", "h200")
    write(tmp_path, 3, "", "")
    for memory, more, is_said in (("512GiB", (), True), ("512GiB", ("--zero-init",), False), ("2TiB", (), False)):
        said = words("estimate", *options, "--host-memory", memory, *more, folder=tmp_path)
        assert ("this is enough with zero.Init, which is assumed; without it each rank loads the whole model" in said) is is_said
        assert ("this is enough." in said) is not is_said


def test_a_program_that_tells_transformers_first_loads_a_part(tmp_path: Path) -> None:
    told = "from transformers.integrations import HfDeepSpeedConfig\nkept = HfDeepSpeedConfig('ds.json')\n"
    for program, divided in ((_ALONE.replace("model = ", told + "model = "), True), (_ALONE.replace("engine,", told + "engine,"), False)):
        write(tmp_path, 3, program % _OPTIMIZER + _LOOP, _STARTED)
        said = words("estimate", "run.sh", "--params", "13B", folder=tmp_path)
        assert ("While loading, each rank may hold the whole model" not in said) is divided


@pytest.mark.slow
def test_a_model_that_no_gpu_holds_while_it_is_loaded_does_not_fit(tmp_path: Path) -> None:
    options = ("--params", "70B", "--gpu", "a100-80gb")
    for program in (_EARLY % ("", _ARGUMENTS), _ALONE % _OPTIMIZER + _LOOP, _ALONE % ""):
        write(tmp_path, 3, program, "deepspeed --num_gpus 64 train.py\n")
        said = words("check", ".", *options, folder=tmp_path)
        assert "Its 70 billion parameters need 130 GiB in 16 bits, and the a100" in said
        assert "DS958" not in said
    write(tmp_path, 3, _ALONE.replace("'m'", "'m', load_in_4bit=True") % "", "deepspeed --num_gpus 64 train.py\n")
    assert "DS706" not in words("check", ".", *options, folder=tmp_path)
    write(tmp_path, 3, _ALONE % _OPTIMIZER + _LOOP, "deepspeed --num_gpus 64 train.py\n")
    assert "zero.Init" in words("fit", "run.sh", *options, folder=tmp_path)


_ADAPTER = _ALONE.replace("engine,", "from peft import get_peft_model\nmodel = get_peft_model(model, c)\nengine,") % _OPTIMIZER + _LOOP
_FROZEN = "for one in model.body.parameters():\n    one.requires_grad = False\n"
_PARTLY = _ALONE.replace("engine,", _FROZEN + "engine,") % _OPTIMIZER + _LOOP


@pytest.mark.parametrize(
    ("stage", "program", "params", "found"),
    [
        (2, _PARTLY, "70B", "also those that are not trained: 70 billion parameters need 130"),
        (2, _PARTLY, "30B", ""),
        (2, _ADAPTER, "70B", "also those that no adapter changes"),
        (2, "import bitsandbytes\n" + _ADAPTER + "# load_in_4bit\n", "70B", ""),
        (0, _ALONE % "" + "with torch.no_grad():\n    engine(x)\n", "70B", "also those that are not trained"),
        (0, _ALONE % "" + "with torch.no_grad():\n    engine(x)\n", "30B", ""),
    ],
)
def test_weights_that_alone_do_not_fit(tmp_path: Path, stage: int, program: str, params: str, found: str) -> None:
    write(tmp_path, stage, program, _STARTED)
    said = words("check", ".", "--params", params, "--gpu", "a100-80gb", folder=tmp_path)
    assert (found in said and "The job runs out of GPU memory" in said) if found else "DS706" not in said, said


def test_a_config_that_leaves_the_precision_to_the_run_may_certainly_not_fit(tmp_path: Path) -> None:
    write(tmp_path, 3, bf16={"enabled": "auto"}, fp16={"enabled": "auto"})
    options = ("ds.json", "--gpu", "a100-80gb", "--world-size", "1")
    said = words("check", *options, "--params", "13B", folder=tmp_path)
    assert "DS706" in said
    assert 'Add "offload_optimizer": {"device": "cpu"}. ' in said  # without ZeRO it does not fit, either
    assert "DS706" not in words("check", *options, "--params", "3B", folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "conditional"),
    [
        (_ALONE % _OPTIMIZER + _LOOP, False),
        (_PARTLY, True),
        (_ALONE % "" + "with torch.no_grad():\n    engine(x)\n", True),
    ],
)
def test_a_verdict_names_its_condition(tmp_path: Path, program: str, *, conditional: bool) -> None:
    """A run that may train a part of the weights, or nothing, needs less than what is estimated."""
    write(tmp_path, 2, program, "deepspeed --num_gpus 2 train.py\n")
    # With a length the search of `fit` takes half the time: it estimates each config once, not for three lengths.
    for command, *more in (("estimate",), ("fit", "--sequence-length", "2048")):
        said = words(command, "run.sh", "--params", "13B", "--gpu", "a100-80gb", *more, folder=tmp_path)
        assert ("If all weights are trained: does not fit: at least" in said) is conditional, said
        assert ("The weights alone take 24.2 GiB of each GPU in 16 bits." in said) is conditional


def test_a_verdict_says_which_lengths_it_assumes(tmp_path: Path) -> None:
    write(tmp_path, 3, optimizer=_OWN["optimizer"])
    options = ("ds.json", "--params", "13B", "--world-size", "8", "--gpu", "a100-40gb")
    assumed = "With samples of 2,048 tokens and no activation checkpointing, as assumed, it needs about"
    assert assumed in words("estimate", *options, folder=tmp_path)
    more = ("--sequence-length", "2048", "--activation-checkpointing", "4")
    assert "as assumed" not in words("estimate", *options, *more, folder=tmp_path)
    alone = words("estimate", *options[:-1], "v100-16gb", folder=tmp_path)  # the states alone do not fit
    assert "Does not fit" in alone
    assert "as assumed" not in alone


def test_a_number_that_is_given_counts_more_than_the_model_of_a_launch(tmp_path: Path) -> None:
    write(tmp_path, 2, _TRAINER, _TRAINS % " --model_name_or_path meta-llama/Llama-2-13b-hf")
    said = words("estimate", "run.sh", "--params", "7B", folder=tmp_path)
    assert " 7B parameters 8 ranks" in said
    assert "has no effect" not in said


def test_a_model_that_is_quantized_is_not_loaded_whole(tmp_path: Path) -> None:
    write(tmp_path, 2)
    options = ("estimate", "ds.json", "--model", "llama-3-8b", "--world-size", "2", "--lora-rank", "8")
    assert "each rank may hold the whole model in fp32 on the host" in words(*options, folder=tmp_path)
    assert "each rank may hold the whole model" not in words(*options, "--base-bits", "4", folder=tmp_path)


def test_a_trainer_of_trl_has_the_defaults_of_trl(tmp_path: Path) -> None:
    """A GRPOTrainer has no reference model by default, and checkpoints activations."""
    program = (
        "from trl import GRPOConfig, GRPOTrainer\nargs = GRPOConfig('o', deepspeed='ds.json', per_device_train_batch_size=4, bf16=True%s)\n"
        "GRPOTrainer('Qwen/Qwen2.5-3B', reward_funcs=f, args=args, train_dataset=d).train()\n"
    )
    for more, copies in (("", False), (", beta=0.04", True)):
        write(tmp_path, 2, program % more, _STARTED)
        said = words("estimate", "run.sh", "--model", "qwen2.5-3b", folder=tmp_path)
        assert ("--frozen-copies is 1" in said) is copies
        assert "--activation-checkpointing is 1, from the default of TRL since its release 0.20" in said


def test_what_nothing_says_widens_the_range_and_is_in_the_answer(tmp_path: Path) -> None:
    """A length that is only a default must not decide: short samples of 8 billion parameters fit where 2,048 tokens do not."""
    config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 16}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    options = ("--isolated", "--model", "gpt2", "--world-size", "1", "--gpu", "v100-16gb")
    guessed, given = (dslint("estimate", "ds.json", *options, *more, cwd=tmp_path).stdout for more in ((), ("--sequence-length", "1024")))
    assert given.startswith("Does not fit"), given
    assert guessed.startswith("Not judged: nothing says how long samples are. With samples of 1,024 tokens"), guessed
    assert "lengths: nothing says how long samples are; in the low figure all have 256 tokens" in " ".join(guessed.split())
    roomy = dslint("estimate", "ds.json", *options[:-1], "h200", cwd=tmp_path).stdout
    assert "That is with samples of 1,024 tokens and attention that keeps no scores" in " ".join(roomy.split())


def test_the_low_figure_of_a_low_limit_is_a_quarter_of_it(tmp_path: Path) -> None:
    """A published training of T5-3b with 20 samples of at most 128 tokens fits in 24 GiB."""
    config = {
        "fp16": {"enabled": True},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "overlap_comm": True, "reduce_bucket_size": 2e8},
        "train_micro_batch_size_per_gpu": 20,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    }
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    options = ("--isolated", "--model", "t5-3b", "--world-size", "1", "--sequence-length", "128", "--eager-attention", "--limit", "24GiB")
    found = json.loads(dslint("estimate", "ds.json", *options, "--varying-lengths", "--output-format", "json", cwd=tmp_path).stdout)
    assert found["device"]["low"] < 24 * 2**30
    assert found["verdict"] == "not judged"  # it fitted
    text = " ".join(dslint("estimate", "ds.json", *options, "--varying-lengths", cwd=tmp_path).stdout.split())
    assert "Not judged: --sequence-length is only a limit. With one of 20 samples of 128 tokens it needs about" in text
    assert "with samples of 32 tokens about" in text


def test_host_memory_that_is_not_known_is_in_the_answer(tmp_path: Path) -> None:
    config = {
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
    }
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    options = ("--isolated", "--model", "llama-3-70b", "--world-size", "8", "--gpu", "h200", "--sequence-length", "1024")
    said = " ".join(dslint("estimate", "ds.json", *options, "--activation-checkpointing", cwd=tmp_path).stdout.split())
    assert "what it has is not known (--host-memory)." in said
    known = " ".join(dslint("estimate", "ds.json", *options, "--host-memory", "4TiB", cwd=tmp_path).stdout.split())
    assert "what it has is not known" not in known


@pytest.mark.parametrize("frozen", [True, False])
def test_towers_that_gradients_reach_fit_only_with_usual_images(tmp_path: Path, frozen: bool) -> None:
    config = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 1}
    (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    options = (
        "--isolated",
        "--model",
        "qwen2.5-vl-3b",
        "--world-size",
        "8",
        "--gpu",
        "h200",
        "--sequence-length",
        "1024",
        "--lora-rank",
        "8",
    )
    more = ("--frozen-towers",) if frozen else ()
    said = dslint("estimate", "ds.json", *options, *more, cwd=tmp_path).stdout
    assert said.startswith("Fits: " if frozen else "Likely fits: "), said
    assert ("images and sounds of a usual size" in " ".join(said.split())) is not frozen


def test_a_parser_s_default_is_the_limit_of_samples(tmp_path: Path) -> None:
    """`estimate run.sh` knows what the program that the script starts would use."""
    (tmp_path / "train.py").write_text(
        "import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--max_seq_len', type=int, default=512)\n"
        "parser.add_argument('--local_rank', type=int)\nparser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\n"
        "engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())\n"
        "engine.backward(engine(batch))\nengine.step()\n",
        encoding="utf-8",
    )
    (tmp_path / "ds.json").write_text(json.dumps({**HALF, "zero_optimization": {"stage": 2}}), encoding="utf-8")
    launch = "deepspeed --num_gpus 2 train.py --deepspeed --deepspeed_config ds.json%s\n"
    for flag, length in (("", 512), (" --max_seq_len 300", 300)):
        (tmp_path / "run.sh").write_text(launch % flag, encoding="utf-8")
        said = words("estimate", "run.sh", "--model", "gpt2", folder=tmp_path)
        assert f"at most {length} tokens each" in said
        assert f"--sequence-length is {length}, from" in said


def test_data_loaders_of_one_batch_size_fill_auto(tmp_path: Path) -> None:
    """Accelerate takes the batch size of the loaders that the program prepares."""
    (tmp_path / "train.py").write_text(
        "import torch\nfrom accelerate import Accelerator\nfrom torch.utils.data import DataLoader\naccelerator = Accelerator()\nsize = 8\n"
        "first = DataLoader(data, batch_size=size)\nsecond = DataLoader(data, batch_size=size)\n"
        "model, optimizer, first, second = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), first, second)\n"
        "for batch in first:\n    accelerator.backward(model(batch).loss)\n    optimizer.step()\n",
        encoding="utf-8",
    )
    section = {"zero_stage": 2, "gradient_accumulation_steps": 1}
    yaml = {"distributed_type": "DEEPSPEED", "mixed_precision": "bf16", "num_processes": 2, "deepspeed_config": section}
    (tmp_path / "accelerate.yaml").write_text(json.dumps(yaml), encoding="utf-8")
    (tmp_path / "run.sh").write_text("accelerate launch --config_file accelerate.yaml train.py\n", encoding="utf-8")
    assert "8 x 1 samples per rank and step, " in words("estimate", "run.sh", "--model", "gpt2", folder=tmp_path)


def test_a_batch_that_nobody_states_is_called_assumed(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text(
        '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto"}', encoding="utf-8"
    )
    said = words("estimate", "ds_config.json", "--model", "gpt2", "--world-size", "2", "--integration", "transformers", folder=tmp_path)
    assert "4 x 1 samples per rank and step (assumed)" in said


@pytest.mark.parametrize(("made", "logits"), [("create_critic_model(args)", False), ("create_hf_model(args)", True)])
def test_a_sample_of_deepspeed_chat_s_rewards_is_a_pair(tmp_path: Path, made: str, logits: bool) -> None:
    """A public training of BLOOM with 3 billion parameters ran out of memory where single samples would fit."""
    program = (
        "import deepspeed\nfrom utils.data import DataCollatorReward\n"
        f"model = {made}\ncollator = DataCollatorReward()\n"
        "engine, *_ = deepspeed.initialize(model=model, config='ds.json', model_parameters=model.parameters())\n"
        "engine.backward(engine(batch))\nengine.step()\n"
    )
    write(tmp_path, program=program, launch="deepspeed --num_gpus 1 train.py --deepspeed\n")
    said = words("estimate", "run.sh", "--model", "bloom-3b", "--sequence-length", "1024", folder=tmp_path)
    assert "--pairs is True, from DataCollatorReward in train.py" in said
    assert ("--no-logits is True" not in said) is logits
    assert "bloom keeps attention scores by default in transformers" in said


@pytest.mark.parametrize(
    ("model", "options", "assumed"),
    [
        ("llama-7b", ("--sequence-length", "2048"), True),
        ("llama-7b", ("--sequence-length", "2048", "--attention", "sdpa"), False),
        ("llama-7b", ("--sequence-length", "2048", "--integration", "transformers==4.57.0"), False),
        ("llama-7b", ("--sequence-length", "2048", "--integration", "transformers==4.30.0"), True),
        ("qwen-7b", ("--sequence-length", "8192", "--activation-checkpointing", "--integration", "transformers==4.57.0"), True),
        ("llama-7b", ("--sequence-length", "2048", "--activation-checkpointing"), False),  # the scores of one layer are few
        (
            "llama-7b",
            (
                "--sequence-length",
                "128",
            ),
            False,
        ),
    ],
)
def test_what_fits_only_without_scores_of_attention_says_so(tmp_path: Path, model: str, options: tuple[str, ...], assumed: bool) -> None:
    """A public training of LLaMA 7B on four A100 ran out of memory without FlashAttention, as transformers had no SDPA then."""
    write(tmp_path, stage=3)
    said = words("estimate", "ds.json", "--model", model, "--world-size", "8", "--gpu", "h200", *options, folder=tmp_path)
    assert said.startswith(("Fits", "Likely fits")), said[:300]
    assert ("attention that keeps no scores (SDPA or FlashAttention), as assumed" in said) is assumed
    assert ("With eager attention it needs about " in said) is assumed


@pytest.mark.parametrize(
    ("gpu", "needed"),
    [("h200", "about 60.2 GiB. "), ("a100", "about 60.2 GiB. "), ("a100-40gb", "about 60.2 GiB, and is unlikely to fit. ")],
)
def test_what_scores_of_attention_would_need_is_said_beside_what_fits(tmp_path: Path, gpu: str, needed: str) -> None:
    write(tmp_path, stage=3)
    options = ("--model", "llama-7b", "--world-size", "8", "--gpu", gpu, "--sequence-length", "2048")
    said = words("estimate", "ds.json", *options, folder=tmp_path)
    assert f"With eager attention it needs {needed}" in said, said[:400]


@pytest.mark.parametrize(
    ("pixels", "frozen", "judged"), [(67108864, False, False), (589824, False, True), (67108864, True, True), ("many", False, True)]
)
def test_images_without_a_usual_limit_are_not_judged(tmp_path: Path, pixels: Any, frozen: bool, judged: bool) -> None:
    write(tmp_path, stage=3)
    arguments = {"stage": "sft", "do_train": True, "finetuning_type": "lora", "model_name_or_path": "Qwen/Qwen2.5-VL-3B-Instruct"}
    arguments |= {"template": "qwen2_vl", "cutoff_len": 2048, "bf16": True, "deepspeed": "ds.json", "output_dir": "o"}
    arguments |= {"image_max_pixels": pixels, "freeze_vision_tower": frozen, "per_device_train_batch_size": 1}
    (tmp_path / "train.yaml").write_text(json.dumps(arguments), encoding="utf-8")
    said = words("estimate", "train.yaml", "--world-size", "4", "--gpu", "h100", folder=tmp_path)
    assert ("images of up to 67 million pixels in their encoder (--image_max_pixels) are not counted" in said) is not judged, said[:400]


def test_a_job_whose_shortest_samples_hardly_fit_is_unlikely_to_fit(tmp_path: Path) -> None:
    """A public training of 72 billion parameters on 16 GPUs of 80 GB: 78.6 of 79.1 GiB with samples of 256 tokens."""
    arguments = {"stage": "sft", "do_train": True, "finetuning_type": "full", "model_name_or_path": "Qwen/Qwen1.5-72B", "fp16": True}
    arguments |= {"cutoff_len": 1024, "per_device_train_batch_size": 1, "deepspeed": "ds.json", "output_dir": "o"}
    auto = {"train_micro_batch_size_per_gpu": "auto", "fp16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}
    (tmp_path / "ds.json").write_text(json.dumps(auto), encoding="utf-8")
    (tmp_path / "train.yaml").write_text(json.dumps(arguments), encoding="utf-8")
    said = words("estimate", "train.yaml", "--world-size", "16", "--nodes", "2", "--gpu", "a800", folder=tmp_path)
    assert "Unlikely to fit: about" in said, said[:400]


@pytest.mark.parametrize(("model", "tokens"), [("THUDM/chatglm-6b", "768"), ("llama-7b", "768"), ("google/flan-t5-xl", "512")])
def test_source_and_target_are_one_sample_of_a_model_without_an_encoder(tmp_path: Path, model: str, tokens: str) -> None:
    flags = f"--model_name_or_path {model} --do_train --output_dir o --max_source_length 512 --max_target_length 256 --fp16"
    write(tmp_path, launch=f"deepspeed --num_gpus 2 main.py --deepspeed ds.json {flags} --per_device_train_batch_size 1\n")
    assert f"at most {tokens} tokens each" in words("estimate", "run.sh", folder=tmp_path)


@pytest.mark.parametrize(("stage", "tokens"), [("sft", "1,024"), ("pt", "512")])
def test_llama_factory_adds_its_default_length_of_the_target(tmp_path: Path, stage: str, tokens: str) -> None:
    """Releases up to 0.1.8 limit the source and the target each to 512; they train on texts in blocks of the source's length."""
    flags = (
        f"--stage {stage} --do_train --model_name_or_path llama-7b --dataset d --template t --finetuning_type full --output_dir o --fp16"
    )
    launch = f"deepspeed --num_gpus 2 src/train_bash.py --deepspeed ds.json {flags} --max_source_length 512\n"
    write(tmp_path, launch=launch)
    assert f"{tokens} tokens each" in words("estimate", "run.sh", folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "finds"), [("4", True), ("64", False)])
def test_frozen_encoders_do_not_hide_that_the_rest_does_not_fit(tmp_path: Path, ranks: str, finds: bool) -> None:
    """LLaMA-Factory freezes the encoder of images by default; `estimate` said so of four GPUs, and `check` was green."""
    arguments = {"stage": "sft", "do_train": True, "finetuning_type": "full", "model_name_or_path": "Qwen/Qwen2-VL-72B-Instruct"}
    arguments |= {"template": "qwen2_vl", "cutoff_len": 2048, "bf16": True, "deepspeed": "ds.json", "output_dir": "o"}
    arguments |= {"per_device_train_batch_size": 1, "learning_rate": 1e-5}
    write(tmp_path, stage=3)
    (tmp_path / "train.yaml").write_text(json.dumps(arguments), encoding="utf-8")
    said = words("check", "train.yaml", "--world-size", ranks, "--gpu", "a100", folder=tmp_path)
    assert ("(73.4 billion parameters), without its encoders, with AdamW on 4 ranks needs at least" in said) is finds, said
