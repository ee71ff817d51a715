"""The table of events of a program: what is called, on what, under which conditions."""

from __future__ import annotations

from textwrap import indent

import pytest

from dslint.frameworks.programs import read_python
from dslint.job.events import Event, Events
from tests.setup.folder import Folder

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


def test_events_of_several_names_in_the_order_of_the_program() -> None:
    table = events(ENGINE + "engine.load_checkpoint('a')\nengine.save_checkpoint('a')\nengine.load_checkpoint('b')\n")
    patterns = (r"deepspeed\.initialize\.save_\w+", r"deepspeed\.initialize\.load_\w+")
    for _ in range(2):  # the second answer is kept from the first
        assert [one.name.rpartition(".")[2] for one in table.of(*patterns)] == ["load_checkpoint", "save_checkpoint", "load_checkpoint"]
    assert next(table.of(*patterns)) is next(table.of(*patterns))
    assert not list(table.of(r"save_\w+"))


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
    _, found = one(f"{PARSER}args = parser.parse_args()\n", r"argparse\.ArgumentParser\.flags")
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
        "for name in names():\n    parser.add_argument('--' + name)\nargs = parser.parse_args()\n",
        "parser.add_argument(*NAMES)\nargs = parser.parse_args()\n",
    ],
)
def test_parser_that_may_know_more_flags(more: str) -> None:
    assert not list(events(PARSER + more).of(r"argparse\.ArgumentParser\.flags"))


def test_fields_of_a_class_parser() -> None:
    text = (
        "from dataclasses import dataclass\nfrom transformers import HfArgumentParser, TrainingArguments\n"
        "@dataclass\nclass Own:\n    name: str = 'a'\n    size: int = 1\nown = HfArgumentParser({}).parse_args_into_dataclasses()\n"
    )
    _, found = one(text.format("Own"), r"transformers\.HfArgumentParser\.flags")
    assert set(found.arguments) == {"--name", "--size"}
    assert not list(events(text.format("(Own, TrainingArguments)")).of(r"transformers\.HfArgumentParser\.flags"))


LOOPS = {
    "a counter": ("step = 0", "for batch in loader:", "step += 1", "step % 10 == 0"),
    "a counter that is assigned": ("step = 0", "for batch in loader:", "step = step + 1", "step % 10 == 0"),
    "a counter of a while loop": ("step = 0", "while step < total:", "step += 1", "step == 500"),
    "a counter at the end of the body": ("step = 0", "for batch in loader:", "pass", "step > 0", "step += 1"),
    "a flag": ("done = False", "while not done:", "pass", "done", "done = finished(step)"),
    "the best value so far": ("best = None", "for batch in loader:", "pass", "best is not None", "best = loss"),
    "an attribute": ("state.step = 0", "for batch in loader:", "state.step += 1", "state.step % 10 == 0"),
    "a loop with a break": ("step = 0", "for batch in [1, 2, 3]:", "step += 1", "step == 2", "if stop(): break"),
    "a loop in a loop": ("step = 0", "for epoch in range(epochs):", "for batch in loader: step += 1", "step % 10 == 0"),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_later_turn_of_a_loop_takes_another_branch(loop: str) -> None:
    before, head, first, test, *last = LOOPS[loop]
    body = [first, f"if {test}:", "    if rank == 0:", '        engine.save_checkpoint("out")', *last]
    text = "\n".join(["class State: pass", "state = State()", before, head, *(f"    {line}" for line in body)])
    table, found = one(ENGINE + text, "deepspeed.initialize.save_checkpoint")
    assert table.on_some_ranks(found) is not None


COUNTING = """
class Training:
    def __init__(self, engine):
        self.engine, self.steps, self.every = engine, 0, 10
    def run(self, loader):
        for batch in loader:
            self.step(batch)
    def step(self, batch):
        self.steps += 1
        if self.steps % self.every == 0 and rank == 0:
            self.engine.save_checkpoint("out")
Training(engine).run(loader)
"""


def test_a_method_that_a_loop_calls_counts_up() -> None:
    table, found = one(ENGINE + COUNTING, "deepspeed.initialize.save_checkpoint")
    assert table.on_some_ranks(found) is not None


KNOWN = [
    "every = 10\nfor batch in loader:\n    if every == 3 and rank == 0:\n        {}",  # which the loop does not set
    "for batch in loader:\n    step = 0\n    step += 1\n    if step == 5 and rank == 0:\n        {}",  # set anew in each turn
    "step = 0\nfor batch in [1, 2]:\n    step += 1\n    if step == 5 and rank == 0:\n        {}",  # followed turn by turn
]


@pytest.mark.parametrize("text", KNOWN)
def test_a_branch_that_no_turn_takes_is_not_entered(text: str) -> None:
    assert not list(events(ENGINE + text.format('engine.save_checkpoint("out")')).of("deepspeed.initialize.save_checkpoint"))


def test_a_class_of_the_project_loads_a_model_as_its_library_does() -> None:
    text = (
        "from transformers import PreTrainedModel\nclass Voice(PreTrainedModel):\n    pass\n"
        'voice = Voice.from_pretrained("m")\nvoice.save_pretrained("out")\n'
    )
    table, saved = one(text, r"transformers\.PreTrainedModel\.from_pretrained\.save_pretrained")
    assert saved.origin == next(table.of(r"transformers\.PreTrainedModel\.from_pretrained")).start


def test_the_model_of_a_trainer() -> None:
    _, saved = one('from trl import DPOTrainer\ntrainer = DPOTrainer(m)\ntrainer.model.save_pretrained("o")\n', r".*\.save_pretrained")
    assert saved.name == "trl.DPOTrainer.model.save_pretrained"
    assert saved.called == "trainer.model.save_pretrained"


@pytest.mark.parametrize(
    "loop", ["for w in model.parameters():\n    w.data.zero_()\n", "for n, w in model.named_parameters():\n    print(w.data)\n"]
)
def test_a_weight_in_a_loop(loop: str) -> None:
    _, use = one(MODEL + loop, r".*\.weight")
    assert use.at.raw == "w.data"


def test_the_default_of_a_flag_decides() -> None:
    text = (
        'import argparse\nimport torch\nparser = argparse.ArgumentParser()\nparser.add_argument("--deepspeed", action="store_true")\n'
        'args = parser.parse_args()\nif args.deepspeed:\n    torch.save(1, "a")\nelse:\n    torch.save(2, "b")\n'
    )
    with_flag, without = events(text).of(r"torch\.save")
    assert (with_flag.certain, with_flag.likely, with_flag.tells_setups_apart) == (False, False, True)
    assert (without.certain, without.likely, without.tells_setups_apart) == (False, True, True)


@pytest.mark.parametrize(
    ("test", "unlikely"),
    [
        ("rank == 0 and args.save", True),
        ("rank == 0 and (args.save or args.save)", True),
        ("rank == 0", False),
        ("rank == 0 and not args.save", False),
    ],
)
def test_the_default_of_a_flag_beside_the_rank(test: str, unlikely: bool) -> None:
    text = (
        'import argparse\nimport os\nimport torch\nparser = argparse.ArgumentParser()\nparser.add_argument("--save", action="store_true")\n'
        f'args = parser.parse_args()\nrank = int(os.environ["RANK"])\nif {test}:\n    torch.save(1, "a")\n'
    )
    table, saved = one(text, r"torch\.save")
    assert saved.unlikely is unlikely
    assert table.on_some_ranks(saved) is not None


SAVING = (
    "import torch\nfrom transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n%s"
    'model = AutoModelForCausalLM.from_pretrained("m")\ntrainer = Trainer(model, TrainingArguments("out", deepspeed="ds.json"))\n%s'
)


@pytest.mark.parametrize(
    ("function", "saves", "found"),
    [
        ("", 'torch.save({k: v.cpu() for k, v in trainer.model.state_dict().items()}, "out")\n', True),
        ("", 'torch.save({k: v for k, v in trainer.model.named_parameters() if "lora" in k}, "out")\n', True),
        ("", 'trainer._save("out", state_dict={k: v.cpu() for k, v in trainer.model.state_dict().items()})\n', True),
        ("from safetensors.torch import save_file\n", 'save_file(trainer.model.state_dict(), "out")\n', True),
        (
            "def whole(weight):\n    return gather(weight)\n",
            'torch.save({k: whole(v) for k, v in model.named_parameters()}, "out")\n',
            False,
        ),
        ("", 'torch.save({k: v for k, v in accelerator.get_state_dict(model).items()}, "out")\n', False),
        (
            (
                "def save(trainer):\n    if trainer.deepspeed:\n        trainer.save_model()\n        return\n    "
                'trainer._save("out", state_dict={k: v.cpu() for k, v in trainer.model.state_dict().items()})\n'
            ),
            "save(trainer)\n",
            False,
        ),
    ],
)
def test_a_copy_of_a_state_dict_is_as_divided_as_it(folder: Folder, function: str, saves: str, found: bool) -> None:
    """A function may gather the weights, and what follows a branch for DeepSpeed that ends is for other trainings."""
    config = '{"train_batch_size": "auto", "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}'
    folder.write({"train.py": SAVING % (function, saves), "ds.json": config})
    assert ("DS967" in [code for code, _, _ in folder.found("train.py")]) is found


@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        ('with arguments.main_process_first():\n    AutoModel.from_pretrained("m")\n', "load"),
        ("if trainer.is_world_process_zero():\n    trainer.evaluate()\n", "later"),
        ("if trainer.is_world_process_zero():\n    trainer.save_model()\n", "save"),
    ],
)
def test_when_some_ranks_wait(folder: Folder, lines: str, phase: str) -> None:
    """DS964 says that the run hangs at the call: only some calls save a checkpoint."""
    program = (
        'from transformers import AutoModel, Trainer, TrainingArguments\narguments = TrainingArguments("o", deepspeed="ds.json")\n'
        f"trainer = Trainer(model, arguments)\n{lines}"
    )
    config = '{"train_batch_size": "auto", "zero_optimization": {"stage": 3}}'
    folder.write({"train.py": program, "ds.json": config, "run.sh": "torchrun --nproc_per_node 2 train.py\n"})
    assert [one.phase for one in folder.diagnostics("run.sh") if one.code == "DS964"] == [phase]


@pytest.mark.parametrize(
    ("text", "function", "bound"),
    [
        ("weights = model.state_dict()\n", "", "weights"),
        ("weights: dict = {\n    key: one.cpu()\n    for key, one in model.state_dict().items()\n}\n", "", "weights"),
        ("print(model.state_dict())\n", "", ""),
        ("first = second = model.state_dict()\n", "", ""),
        ("weights = whole(model.state_dict())\n", "", ""),
        ("first, second = model.state_dict(), 1\n", "", ""),
        ("def save():\n    weights = [model.state_dict() for _ in range(2)]\nsave()\n", "save", "weights"),
        ("class Saver:\n    def save(self):\n        (lambda: model.state_dict())()\nSaver().save()\n", "Saver.save", ""),
        ("def inner(given):\n    return given.state_dict()\nouter = inner(model)\n", "inner", ""),
        ("def inner(given):\n    for _ in range(2):\n        pass\n    return given\ntaken = inner(model).state_dict()\n", "", "taken"),
    ],
)
def test_a_call_knows_its_function_and_what_it_sets(text: str, function: str, bound: str) -> None:
    _, found = one(MODEL + text, r".*\.state_dict")
    assert (found.function, found.bound) == (function, bound)


POP = "def hook(models, weights, output_dir):\n    for number, one in enumerate(models):\n        one.save_pretrained(output_dir)\n        {}\n"
INNER = indent(POP, "    ")
METHOD = "class Hook:\n" + INNER.replace("hook(", "hook(self, ")
REGISTER = "accelerator.register_save_state_pre_hook"
HOOKS = [
    f"{POP}{REGISTER}(hook)",
    f"{POP}def main():\n    {REGISTER}(hook=hook)\nmain()",
    f"def make(unet):\n{INNER}    return hook\n{REGISTER}(make(None))",
    f"{METHOD}{REGISTER}(Hook().hook)",
    f"{METHOD.replace('hook(', '__call__(')}{REGISTER}(Hook())",
    f"from functools import partial\n{POP.replace('hook(', 'hook(step, ')}{REGISTER}(partial(hook, 3))",
]
ACCELERATOR = "from accelerate import Accelerator, DistributedType\naccelerator = Accelerator()\n"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_registered_hook_is_followed_with_what_accelerate_gives_it(hook: str) -> None:
    table, popped = one(ACCELERATOR + hook.replace("{}", "weights.pop()"), "accelerate.save_hook.weights.pop")
    (saved,) = table.of("accelerate.save_hook.model.save_pretrained")
    (registered,) = table.of("accelerate.Accelerator.register_save_state_pre_hook")
    assert popped.origin == saved.origin == registered.start
    assert not popped.handled
    assert popped.certain


@pytest.mark.parametrize(
    "guarded",
    [
        "if weights:\n            weights.pop()",
        "if not weights:\n            return\n        weights.pop()",
        "while len(weights) > 0:\n            weights.pop()",
        "for _ in range(len(weights)):\n            weights.pop()",
        "for _ in weights:\n            weights.pop()",
    ],
)
def test_a_hook_gets_no_weights_under_deepspeed(guarded: str) -> None:
    assert not list(events(ACCELERATOR + HOOKS[0].replace("{}", guarded)).of(r"accelerate.save_hook.weights.pop"))


@pytest.mark.parametrize(
    ("guarded", "handled", "asks", "ranks"),
    [
        ("try:\n            weights.pop()\n        except IndexError:\n            pass", True, False, False),
        ("if accelerator.distributed_type != DistributedType.DEEPSPEED:\n            weights.pop()", False, True, False),
        ("if accelerator.distributed_type == DistributedType.DEEPSPEED:\n            return\n        weights.pop()", False, True, False),
        ("if accelerator.is_main_process:\n            weights.pop()", False, False, True),
    ],
)
def test_conditions_in_a_hook(guarded: str, handled: bool, asks: bool, ranks: bool) -> None:
    table, found = one(ACCELERATOR + HOOKS[0].replace("{}", guarded), "accelerate.save_hook.weights.pop")
    assert (found.handled, found.tells_setups_apart, table.on_some_ranks(found) is not None) == (handled, asks, ranks)


def test_a_hook_is_followed_under_the_conditions_of_its_registration() -> None:
    hook = f"{POP}if not is_deepspeed():\n    {REGISTER}(hook)".replace("{}", "weights.pop()")
    assert one(ACCELERATOR + hook, "accelerate.save_hook.weights.pop")[1].tells_setups_apart


def test_a_hook_that_registers_itself_ends() -> None:
    hook = HOOKS[0].replace("{}", f"weights.pop()\n        {REGISTER}(hook)")
    assert len(list(events(ACCELERATOR + hook).of("accelerate.save_hook.weights.pop"))) == 1


@pytest.mark.parametrize("line", ["models[0]", "unwrap(models[0])", "accelerator.unwrap_model(models[-1])"])
def test_a_model_of_a_hook_is_known_by_how_it_is_reached(line: str) -> None:
    unwrap = (
        "def unwrap(model):\n    model = accelerator.unwrap_model(model)\n    return model._orig_mod if is_compiled(model) else model\n"
    )
    hook = f"{unwrap}def hook(models, weights, output_dir):\n    {line}.save_pretrained(output_dir)\n{REGISTER}(hook)"
    one(ACCELERATOR + hook, "accelerate.save_hook.model.save_pretrained")


LOADS = "if compute():\n    model = AutoModelForCausalLM.from_pretrained('m', {})\nelse:\n    model = AutoModelForCausalLM.from_pretrained('n', {})\n"


@pytest.mark.parametrize("between", ["", "model = model.cuda()\n", "if other():\n    model = AutoModelForCausalLM.from_pretrained('o')\n"])
def test_what_either_of_two_branches_makes_is_still_an_object_of_its_maker(between: str) -> None:
    text = "from transformers import AutoModelForCausalLM\n" + LOADS + between + "model.gradient_checkpointing_enable()\n"
    _, found = one(text, r"transformers\.AutoModelForCausalLM\.from_pretrained\.gradient_checkpointing_enable")
    assert found.origin in {one.start for one in events(text).of(r".*\.from_pretrained")}
    assert not found.certain  # which of the two, only the run knows


def test_what_two_models_of_libraries_make_is_a_model() -> None:
    text = "from transformers import AutoModel, AutoModelForCausalLM\n" + LOADS.replace("AutoModelForCausalLM", "AutoModel", 1)
    [found] = events(text + "model.gradient_checkpointing_enable()\n").of(r".*gradient_checkpointing_enable")
    assert not found.certain


def test_what_two_other_makers_make_is_an_object_of_neither() -> None:
    text = "from transformers import AutoTokenizer, AutoModelForCausalLM\n" + LOADS.replace("AutoModelForCausalLM", "AutoTokenizer", 1)
    assert not list(events(text + "model.gradient_checkpointing_enable()\n").of(r".*gradient_checkpointing_enable"))


@pytest.mark.parametrize("others", [2, 3])
def test_the_calls_of_all_branches_are_the_makers(others: int) -> None:
    branches = "".join(f"elif kind == {number}:\n    loader = DataLoader(data, {number})\n" for number in range(1, others))
    text = (
        f"from torch.utils.data import DataLoader\nif kind == 0:\n    loader = DataLoader(data, 0)\n{branches}else:\n    raise ValueError\n"
    )
    table = events("from accelerate import Accelerator\n" + text + "Accelerator().prepare(loader)\n")
    [prepared] = table.of(r".*prepare")
    assert [one.arguments["1"].value for one in table.makers_of(prepared.arguments["0"])] == list(range(others))


@pytest.mark.parametrize(
    ("handler", "goes_on"),
    [
        ("except KeyboardInterrupt:\n    print()", False),
        ("except (KeyboardInterrupt, SystemExit):\n    print()", False),
        ("except ImportError:\n    print()", False),
        ("except Exception:\n    print()\n    raise", False),
        ("except Exception as error:\n    raise RuntimeError('no') from error", False),
        ("except Exception:\n    sys.exit(1)", False),
        ("finally:\n    print()", False),
        ("except Exception:\n    print()", True),
        ("except:\n    print()", True),
        ("except (KeyboardInterrupt, ValueError):\n    print()", True),
        ("except made_elsewhere():\n    print()", True),
        ("except Exception:\n    if rank == 0:\n        raise", True),
        ("except KeyboardInterrupt:\n    raise\nexcept Exception:\n    print()", True),
    ],
)
def test_whether_a_program_goes_on_after_an_error(handler: str, goes_on: bool) -> None:
    text = "import sys\n" + ENGINE + f"try:\n    engine.step()\n{handler}\n"
    assert one(text, "deepspeed.initialize.step")[1].handled is goes_on


@pytest.mark.parametrize(
    ("target", "bound"), [("loader", "loader"), ("self.loader", "loader"), ("made.loader", ""), ("loaders[0]", ""), ("a, b", "")]
)
def test_the_name_that_is_bound_to_what_a_call_makes(target: str, bound: str) -> None:
    text = f"from torch.utils.data import DataLoader\nclass Run:\n    def __init__(self, made):\n        {target} = DataLoader(data)\nRun(made)\n"
    assert [call.bound for call in events(text).of(r"torch\.utils\.data\.DataLoader")] == [bound]
