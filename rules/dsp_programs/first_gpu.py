"""DSP: models that every rank moves to the first GPU of its machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.facts import Integration
from dslint.job.events import ENGINE, INFERENCE, MODELS, OWN_MODULE, Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ZERO_2, trained
from dslint.rules.helpers.syntax import is_in_a_file, tree_of
from dslint.rules.helpers.zero import USUAL_RANKS
from dslint.source.unknown import UNKNOWN

_CONFIG = trained(ZERO_2)
_MOVED = (
    "import deepspeed\nimport torch\nfrom transformers import AutoModelForCausalLM\n%smodel = AutoModelForCausalLM.from_pretrained('m')%s\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config='ds_config.json')\n"
)
_OWN = (
    "import deepspeed\nimport torch\nclass Net(torch.nn.Module):\n    def __init__(self, device=None):\n        super().__init__()\n"
    "        self.device = device or torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n        self.body = torch.nn.Linear(8, 8)\n"
    "net = Net()\nnet.to(net.device)\n"
    "engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config='ds_config.json')\n"
)


@rule(
    "DSP15",
    effect=Effect.MEMORY,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine._set_distributed_vars: set_device(device_rank)",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_MOVED % ("", ".to('cuda')"),
    integration="deepspeed",
    world_size=8,
    message="train.py:4 moves a model to the GPU before each of the 8 ranks of a machine has selected its own: GPU 0 holds the models of all ranks until deepspeed.initialize moves them, may run out of memory, and its memory stays reserved.",
)
@bad(
    _CONFIG,
    at="",
    program=_MOVED % ("", "\nmodel.cuda()"),
    integration="deepspeed",
    message="train.py:5 moves a model to the GPU before each rank has selected its own: GPU 0 holds the models of all ranks until deepspeed.initialize moves them, may run out of memory, and its memory stays reserved.",
)
@bad(
    _CONFIG,
    at="",
    program=_MOVED % ("device = torch.device('cuda:0')\n", "\nmodel = model.to(device)"),
    integration="deepspeed",
    world_size=4,
    message="train.py:6 moves a model to the GPU before each of the 4 ranks of a machine has selected its own: GPU 0 holds the models of all ranks until deepspeed.initialize moves them, may run out of memory, and its memory stays reserved.",
)
@bad(
    _CONFIG,
    at="",
    program=_OWN,
    integration="deepspeed",
    world_size=4,
    message="train.py:9 moves a model to the GPU before each of the 4 ranks of a machine has selected its own: GPU 0 holds the models of all ranks until deepspeed.initialize moves them, may run out of memory, and its memory stays reserved.",
)
@good(_CONFIG, program=_MOVED % ("", ".to('cuda')"), integration="deepspeed", world_size=1)
@good(_CONFIG, program=_MOVED % ("", ".to('cuda')"), integration="deepspeed", world_size=4, nodes=4)
@good(_CONFIG, program=_MOVED % ("torch.cuda.set_device(local_rank)\n", ".to('cuda')"), integration="deepspeed", world_size=8)
@good(_CONFIG, program=_MOVED % ("", ".to(f'cuda:{local_rank}')"), integration="deepspeed", world_size=8)
@good(_CONFIG, program=_MOVED % ("device = torch.device('cuda', args.local_rank)\n", ".to(device)"), integration="deepspeed", world_size=8)
@good(_CONFIG, program=_MOVED % ("", ".to('cpu')"), integration="deepspeed", world_size=8)
@good(_CONFIG, program=_MOVED % ("", ".to(torch.bfloat16)"), integration="deepspeed", world_size=8)
@good(
    _CONFIG, program=_MOVED % ("", "") + "other = AutoModelForCausalLM.from_pretrained('o').cuda()\n", integration="deepspeed", world_size=8
)
@good(
    _CONFIG,
    program=_MOVED % ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n", ".cuda()"),
    integration="deepspeed",
    world_size=8,
)
@bad(
    _CONFIG,
    at="",
    program=_OWN.replace("class Net", "def unused(rank):\n    torch.cuda.set_device(rank)\nclass Net"),
    integration="deepspeed",
    world_size=4,
    message="train.py:11 moves a model to the GPU before each of the 4 ranks of a machine has selected its own: GPU 0 holds the models of all ranks until deepspeed.initialize moves them, may run out of memory, and its memory stays reserved.",
)
@good(
    _CONFIG,
    program=_OWN.replace("class Net", "def select(rank):\n    torch.cuda.set_device(rank)\nselect(0)\nclass Net"),
    integration="deepspeed",
    world_size=4,
)
@good(_CONFIG, program=_OWN.replace("Net()\nnet", "Net(torch.device(f'cuda:{rank}'))\nnet"), integration="deepspeed", world_size=8)
def moved_to_first_gpu(config: Config) -> Iterator[Finding]:
    """Every rank moves its model to "cuda" before it has selected a GPU, so GPU 0 holds the models of all ranks at first.

    "cuda" is the current device of the process, and that is `cuda:0` until something selects another one. `deepspeed.initialize` does so, and moves
    the model to the GPU of the rank. Until then GPU 0 holds the models of all ranks of its machine, and it runs out of memory where the model would
    fit on each GPU alone. PyTorch keeps the memory reserved afterwards, and each process has a CUDA context there.

    `deepspeed.init_distributed` selects no GPU. What does is `torch.cuda.set_device`, `deepspeed.zero.Init`, and the objects of Accelerate and the
    Trainer, so dslint reports nothing where a file of the program has one of them.

    Remove the move, because `deepspeed.initialize` moves the model, or call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` first.
    """
    program, facts = config.setup.program if config.setup else None, config.facts
    several = facts.world_size is None or facts.world_size > (facts.nodes or 1)
    if program is None or not several or facts.integration is not Integration.DEEPSPEED:
        return
    moved = _moved(config, program.events.all)
    if moved is None or _may_select(config):
        return
    ranks = None if facts.world_size is None else facts.world_size // facts.nodes if facts.nodes else min(facts.world_size, USUAL_RANKS)
    whose = f"each of the {ranks} ranks of a machine" if ranks else "each rank"
    yield Finding(
        "",
        f"{moved.at.where} moves a model to the GPU before {whose} has selected its own: GPU 0 holds the models of all ranks until "
        "deepspeed.initialize moves them, may run out of memory, and its memory stays reserved.",
        help='Remove the move, which deepspeed.initialize makes, or call torch.cuda.set_device(int(os.environ["LOCAL_RANK"])) before it.',
        elsewhere=moved.at.related(""),
        certain=False,
    )


_SELECTS = re.compile(
    r"CUDA_VISIBLE_DEVICES[\"'\]]|torch\.cuda\.device\(|set_default_device|zero\.Init\b|Hf(Trainer)?DeepSpeedConfig|gpus?-(per-task|bind)|"
    r"\bAccelerator\(|PartialState\(|TrainingArguments|device_map"
)
"""What selects the GPU of a process, or may; also a model that is not moved but loaded to the GPU of its rank."""

_LIBRARIES = ("torch", "dist", "deepspeed", "transformers")


def _may_select(config: Config) -> bool:
    """Whether each process may have selected a GPU: a function that does so and that nothing calls does not count."""
    if is_in_a_file(_SELECTS, config):
        return True
    paths = config.setup.documents if config.setup is not None else ()
    nodes = [one for path in paths if (tree := tree_of(config, path)) is not None for one in ast.walk(tree)]
    used = {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    used |= {one.attr for one in nodes if isinstance(one, ast.Attribute) and ast.unparse(one.value).partition(".")[0] not in _LIBRARIES}
    selects = {one for one in nodes if isinstance(one, ast.Attribute) and one.attr == "set_device"}
    in_unused = {
        inner
        for one in nodes
        if isinstance(one, ast.FunctionDef) and one.name not in used and not one.name.startswith("__") and not one.decorator_list
        for inner in ast.walk(one)
        if inner in selects
    }
    return bool(selects - in_unused)


_MOVES = re.compile(rf"({MODELS}|{OWN_MODULE}|transformers\.\w*(Model|For[A-Z]\w*))\.(to|cuda)")
_FIRST = re.compile(r"cuda(:0)?")


def _moved(config: Config, events: tuple[Event, ...]) -> Event | None:
    """The first move of a model to the first GPU, before an engine is made in the same program."""
    for number, event in enumerate(events):
        if event.name in (ENGINE, INFERENCE):
            return None
        if _MOVES.fullmatch(event.name) is None or event.unlikely or event.flow or event.tells_setups_apart:
            continue
        if any(one.ranks for one in event.conditions) or not _is_first_gpu(config, event):
            continue
        return event if any(one.name == ENGINE for one in events[number:]) else None
    return None


def _is_first_gpu(config: Config, event: Event) -> bool:
    """Whether a move goes to the current device, or to `cuda:0`."""
    given = event.argument("device", 0)
    if given is None:
        return event.name.endswith(".cuda") and not event.arguments
    if given.value is not UNKNOWN:
        return (
            given.value == 0 if event.name.endswith(".cuda") else isinstance(given.value, str) and _FIRST.fullmatch(given.value) is not None
        )
    return given.made == "torch.device" and _all_devices_are_first(config)


def _all_devices_are_first(config: Config) -> bool:
    """Whether each `torch.device` in the files of the program, but for those to load weights to, is the first GPU, or the CPU where there is none."""
    paths = config.setup.documents if config.setup is not None else ()
    trees = (tree for path in paths if (tree := tree_of(config, path)) is not None)
    nodes = [one for tree in trees for one in ast.walk(tree)]
    for_loading = {one.value for one in nodes if isinstance(one, ast.keyword) and one.arg == "map_location"}
    made = (one for one in nodes if isinstance(one, ast.Call) and one not in for_loading and ast.unparse(one.func) == "torch.device")
    return all(len(one.args) == 1 and not one.keywords and _names_first(one.args[0]) for one in made)


def _names_first(given: ast.expr) -> bool:
    if isinstance(given, ast.IfExp):
        return _names_first(given.body) and ast.unparse(given.test) == "torch.cuda.is_available()"
    return isinstance(given, ast.Constant) and isinstance(given.value, str) and _FIRST.fullmatch(given.value) is not None
