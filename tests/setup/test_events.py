"""The table of events of a program: what is called, on what, under which conditions."""

from __future__ import annotations

import pytest

from dslint.evaluate.python.read import read_python
from dslint.job.events import Event, Events

ENGINE = 'import deepspeed\nengine, optimizer, _, _ = deepspeed.initialize(model=model, config="ds_config.json")\n'
MODEL = 'from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained("m")\n'


def events(text: str) -> Events:
    found = read_python(text, "train.py")
    assert found is not None
    return found.program.events


def one(text: str, name: str) -> tuple[Events, Event]:
    table = events(text)
    (found,) = table.of(name)
    return table, found


SOME = [
    "if rank == 0:\n    {}",
    "if args.local_rank in (-1, 0):\n    {}",
    'if int(os.environ["RANK"]) == 0:\n    {}',
    'if os.environ.get("LOCAL_RANK", "0") == "0":\n    {}',
    "if torch.distributed.get_rank() == 0 and step % 10 == 0:\n    {}",
    "if not is_main_process():\n    print()\nelse:\n    {}",
    "if trainer.is_world_process_zero():\n    {}",
    "def save(engine):\n    if rank != 0:\n        return\n    {}\nsave(engine)",
    "for step in steps:\n    if rank != 0:\n        continue\n    {}",
    "def save(engine):\n    {}\nif rank == 0:\n    save(engine)",
]

ALL = [
    "{}",
    "if step % 100 == 0:\n    {}",
    "if rank == 0:\n    print()\n{}",
    "if local_rank != -1:\n    {}",
    "if world_size > 1:\n    {}",
    "if rank >= 0:\n    {}",
    "if rank == 0 or stage == 3:\n    {}",
    "if rank == 0:\n    raise ValueError\n{}",
    "def log():\n    if rank != 0:\n        return\n    print()\nlog()\n{}",
]


@pytest.mark.parametrize("around", SOME)
def test_call_on_some_ranks(around: str) -> None:
    table, found = one(ENGINE + around.format('engine.save_checkpoint("out")'), "deepspeed.initialize.save_checkpoint")
    assert table.on_some_ranks(found) is not None


@pytest.mark.parametrize("around", ALL)
def test_call_on_all_ranks(around: str) -> None:
    table, found = one(ENGINE + around.format('engine.save_checkpoint("out")'), "deepspeed.initialize.save_checkpoint")
    assert table.on_some_ranks(found) is None


def test_call_in_both_branches_is_on_all_ranks() -> None:
    table = events(ENGINE + 'if rank == 0:\n    engine.save_checkpoint("a")\nelse:\n    engine.save_checkpoint("b")\n')
    found = list(table.of("deepspeed.initialize.save_checkpoint"))
    assert len(found) == 2
    assert not any(map(table.on_some_ranks, found))


def test_arguments_and_what_made_them() -> None:
    text = MODEL + "import torch\ntorch.save(model.state_dict(), 'out.pt')\n"
    _, found = one(text, r"torch\.save")
    _, loaded = one(text, r".*\.from_pretrained")
    given = found.argument("obj", 0)
    assert given is not None
    assert given.made == "transformers.AutoModelForCausalLM.from_pretrained.state_dict"
    assert given.raw == "model.state_dict()"
    assert (found.argument("f", 1) or given).value == "out.pt"
    assert given.origin is not None
    assert loaded.at.where == "train.py:2"


def test_parts_wrappers_and_results_of_an_engine() -> None:
    table = events(ENGINE + "engine.module.state_dict()\noptimizer.step()\nengine(batch)\n")
    assert [one.name for one in table.all[1:]] == [
        "deepspeed.initialize.state_dict",
        "deepspeed.initialize.optimizer.step",
        "deepspeed.initialize.__call__",
    ]
    text = f"from accelerate import Accelerator\n{MODEL}accelerator = Accelerator()\nmodel, loader = accelerator.prepare(model, loader)\n"
    table = events(text + "accelerator.unwrap_model(model).state_dict()\n")
    assert table.all[-1].name == "transformers.AutoModelForCausalLM.from_pretrained.state_dict"


def test_weights_loops_and_contexts() -> None:
    text = f"{MODEL}import deepspeed\nfor i in range(n):\n    with deepspeed.zero.GatheredParameters(model.parameters()):\n        x = model.lm_head.weight.data\n"
    _, found = one(text + "y = model.lm_head.weight.dtype\n", r".*\.weight")
    assert found.within == ("deepspeed.zero.GatheredParameters",)
    assert found.loops == 1
    assert found.certain


def test_methods_of_classes_of_the_project() -> None:
    text = "import torch\nclass Net(torch.nn.Module):\n    pass\nnet = Net()\ntorch.save(net.state_dict(), 'x')\n"
    assert [one.name for one in events(text).of(r"torch\.nn\.Module\.state_dict")] == ["torch.nn.Module.state_dict"]


PARSER = 'import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument("-n", "--num-steps", type=int)\n'


def test_flags_of_a_parser() -> None:
    _, found = one(f"{PARSER}args = parser.parse_args()\n", r"argparse\.ArgumentParser\.parse_args")
    assert set(found.arguments) == {"-n", "--num-steps"}


@pytest.mark.parametrize(
    "more",
    [
        "args, rest = parser.parse_known_args()\n",
        'args = parser.parse_args(["--num-steps", "1"])\n',
        "import lib\nlib.add_arguments(parser)\nargs = parser.parse_args()\n",
        "parser = lib.extended(parser)\nargs = parser.parse_args()\n",
        "other.add_arguments(parser)\nargs = parser.parse_args()\n",
        "commands = parser.add_subparsers()\nargs = parser.parse_args()\n",
    ],
)
def test_parser_that_may_know_more_flags(more: str) -> None:
    assert not list(events(PARSER + more).of(r"argparse\.ArgumentParser\.parse_args"))


def test_fields_of_a_class_parser() -> None:
    text = (
        "from dataclasses import dataclass\nfrom transformers import HfArgumentParser, TrainingArguments\n"
        "@dataclass\nclass Own:\n    name: str = 'a'\n    size: int = 1\nown = HfArgumentParser({}).parse_args_into_dataclasses()\n"
    )
    _, found = one(text.format("Own"), r".*\.parse_args_into_dataclasses")
    assert set(found.arguments) == {"--name", "--size"}
    assert not list(events(text.format("(Own, TrainingArguments)")).of(r".*\.parse_args_into_dataclasses"))
