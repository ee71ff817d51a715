"""DS8: methods of a program's own model that replace those of `torch.nn.Module`, which DeepSpeed calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Place, Range, Related
from dslint.job.events import ENGINE, Event, Events
from dslint.record import Record
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ADAMW
from dslint.rules.helpers.models import ENGINES
from dslint.rules.helpers.syntax import classes_in, is_in_a_file, names_called_in, tree_of
from dslint.rules.helpers.zero import STAGE

_STAGE_3 = f'{{{ADAMW}, "zero_optimization": {{"stage": 3}}}}'
_STAGE_2 = _STAGE_3.replace('"stage": 3', '"stage": 2')
_NET = (
    "import deepspeed\nimport torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.layer = torch.nn.Linear(8, 8)\n    def %s:\n        return self.layer.%s\nnet = Net()\n"
    "engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config='ds_config.json')\n"
)
_PARAMETERS = _NET % ("parameters(self)", "parameters()")
_STATE = _NET % ("state_dict(self)", "state_dict()") + "engine.save_checkpoint('out')\n"
_TRAIN = _NET % ("train(self, loader, epochs)", "train()") + "engine.train()\n"
_LOAD = _NET % ("load_state_dict(self, weights)", "load_state_dict(weights)") + "engine.load_checkpoint('out')\n"


class Overridden(Record):
    """A method of `torch.nn.Module`: whether a signature takes DeepSpeed's call, how it is called, and what calls it in a program.

    `on_parts` says that the modules in a model are called so, too.
    """

    takes: Callable[[ast.arguments], bool]
    call: str
    by: str
    phase: Phase
    stage: int = 0
    on_parts: bool = False


def _names(given: ast.arguments) -> set[str]:
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def _takes(*names: str) -> Callable[[ast.arguments], bool]:
    return lambda given: given.kwarg is not None or _names(given) >= set(names)


def _takes_one(given: ast.arguments) -> bool:
    """Whether a method takes just one argument by its position, besides the object."""
    positions = len(given.posonlyargs) + len(given.args)
    required = positions - len(given.defaults)
    rest = any(default is None for default in given.kw_defaults)
    return required <= 2 and not rest and (positions >= 2 or given.vararg is not None)


_METHODS = {
    "parameters": Overridden(_takes("recurse"), "parameters(recurse=True)", "|".join(ENGINES), Phase.INITIALIZE, 3, on_parts=True),
    "train": Overridden(_takes_one, "train(mode)", rf"{re.escape(ENGINE)}\.(train|eval)", Phase.LATER),
    "state_dict": Overridden(
        _takes("destination", "prefix", "keep_vars"),
        "state_dict(destination=..., prefix=..., keep_vars=...)",
        rf"{re.escape(ENGINE)}\.save_checkpoint",
        Phase.SAVE,
    ),
    "load_state_dict": Overridden(
        _takes("strict"), "load_state_dict(weights, strict=...)", rf"{re.escape(ENGINE)}\.load_checkpoint", Phase.LATER
    ),
}
"""Tried with DeepSpeed 0.19.8 at the stages 0, 2 and 3: each of these raises TypeError."""
_DEFINES = re.compile(rf"\bdef\s+(?:{'|'.join(_METHODS)})\b")


@rule(
    "DS898",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "deepspeed/runtime/engine.py, DeepSpeedEngine.train, module_state_dict and load_module_state_dict",
        "deepspeed/runtime/zero/partition_parameters.py, Init: module.parameters(recurse=True)",
    ),
    untried="depends on the class of the program's model",
    setup=True,
)
@bad(
    _STAGE_3,
    at="",
    program=_PARAMETERS,
    integration="deepspeed",
    message="train.py:7 defines Net.parameters(self), and DeepSpeed calls it as parameters(recurse=True) at ZeRO stage 3: train.py:10 raises TypeError.",
)
@bad(
    _STAGE_2,
    at="",
    program=_STATE,
    integration="deepspeed",
    message="train.py:7 defines Net.state_dict(self), and DeepSpeed calls it as state_dict(destination=..., prefix=..., keep_vars=...): train.py:11 raises TypeError.",
)
@bad(
    _STAGE_2,
    at="",
    program=_TRAIN,
    integration="deepspeed",
    message="train.py:7 defines Net.train(self, loader, epochs), and DeepSpeed calls it as train(mode): train.py:11 raises TypeError.",
)
@bad(
    _STAGE_2,
    at="",
    program=_LOAD,
    integration="deepspeed",
    message="train.py:7 defines Net.load_state_dict(self, weights), and DeepSpeed calls it as load_state_dict(weights, strict=...): train.py:11 raises TypeError.",
)
@good(_STAGE_2, program=_PARAMETERS, integration="deepspeed")
@good(_STAGE_3, program=_PARAMETERS.replace("parameters(self)", "parameters(self, recurse=True)"), integration="deepspeed")
@good(_STAGE_3, program=_PARAMETERS.replace("parameters(self)", "parameters(self, **options)"), integration="deepspeed")
@good(_STAGE_3, program=_PARAMETERS.replace("(torch.nn.Module)", "").replace("super().__init__()", "pass"), integration="deepspeed")
@good(_STAGE_3, program=_PARAMETERS.replace("net = Net()", "net = torch.nn.Linear(8, 8)"), integration="deepspeed")
@good(_STAGE_2, program=_STATE.replace("state_dict(self)", "state_dict(self, *args, **kwargs)"), integration="deepspeed")
@good(_STAGE_2, program=_STATE.replace("engine.save_checkpoint('out')", "engine.step()"), integration="deepspeed")
@good(_STAGE_2, program=_TRAIN.replace("(self, loader, epochs)", "(self, mode=True)"), integration="deepspeed")
@good(_STAGE_2, program=_TRAIN.replace("(self, loader, epochs)", "(self, *args)"), integration="deepspeed")
@good(_STAGE_2, program=_TRAIN.replace("engine.train()", "net.train(loader, 3)"), integration="deepspeed")
@good(_STAGE_2, program=_LOAD.replace("(self, weights)", "(self, weights, strict=True)"), integration="deepspeed")
def overridden_method_refuses_call(config: Config) -> Iterator[Finding]:
    """A class of the program overrides a method of `torch.nn.Module` with a signature that does not take DeepSpeed's call.

    `engine.train()` and `engine.eval()` call `module.train(mode)`, `engine.save_checkpoint` calls `module.state_dict` with `destination`,
    `prefix` and `keep_vars`, `engine.load_checkpoint` calls `module.load_state_dict` with `strict`, and ZeRO stage 3 calls
    `parameters(recurse=...)` of the model and of each module in it. A method without these parameters raises TypeError, although the program calls it
    without them. One that shares only the name, as a `train(self, loader, epochs)` with the loop, is called as well.

    Give the method the parameters of `torch.nn.Module` and pass them on, or give it another name.
    """
    program = config.setup.program if config.setup else None
    if program is None or config.setup is None or next(program.events.of(*ENGINES), None) is None:
        return
    if not is_in_a_file(_DEFINES, config):
        return  # as in most programs, whose trees are then not walked for each of their configs
    trees = {path: tree for path in config.setup.documents if (tree := tree_of(config, path)) is not None}
    classes = {one.name: (path, one) for path, tree in trees.items() for one in classes_in(tree)}
    made = frozenset[str]().union(*map(names_called_in, trees.values()))
    is_known = config.document.root is not None
    for path, owner in classes.values():
        for node in owner.body:
            kind = _METHODS.get(node.name) if isinstance(node, ast.FunctionDef) and not node.decorator_list else None
            if kind is None or not isinstance(node, ast.FunctionDef) or kind.takes(node.args) or not _is_module(owner, classes):
                continue
            if kind.stage and is_known and not config.value(STAGE) >= kind.stage:
                continue
            call = next(program.events.of(kind.by), None)
            heirs = {name for name, (_, one) in classes.items() if _inherits(one, owner, node.name, classes)}
            is_model = call is not None and _is_of_engine(program.events, call, heirs, trees)
            if call is None or made.isdisjoint(heirs) or not (is_model or kind.on_parts) or call.unlikely:
                continue
            at_stage = "" if not kind.stage else f" at ZeRO stage {kind.stage}"
            yield Finding(
                "",
                f"{path}:{node.lineno} defines {owner.name}.{node.name}({ast.unparse(node.args)}), and DeepSpeed calls it as {kind.call}"
                f"{at_stage}: {call.at.where} raises TypeError.",
                help="Give it the parameters of torch.nn.Module, or another name.",
                elsewhere=call.at.related(""),
                related=(_place(path, node),),
                phase=kind.phase,
                certain=is_model and is_known and call.certain,
            )
            return


def _place(path: str, node: ast.FunctionDef) -> Related:
    """The line of a method."""
    start = Place(node.lineno, node.col_offset + 1, 0)
    return Related(path, "defined here", None, Range(start, start))


def _is_module(owner: ast.ClassDef, classes: dict[str, tuple[str, ast.ClassDef]], depth: int = 0) -> bool:
    """Whether a class inherits from `torch.nn.Module`, or from another class of models; Lightning calls those of its modules itself."""
    for base in owner.bases:
        name = ast.unparse(base).rpartition(".")[2]
        if re.fullmatch(r"Module|PreTrainedModel|ModelMixin", name):
            return True
        if name in classes and classes[name][1] is not owner and depth < _DEEPEST and _is_module(classes[name][1], classes, depth + 1):
            return True
    return False


_DEEPEST = 5


def _inherits(one: ast.ClassDef, owner: ast.ClassDef, method: str, classes: dict[str, tuple[str, ast.ClassDef]], depth: int = 0) -> bool:
    """Whether objects of a class have a method of another one, or of the same."""
    if one is owner:
        return True
    if depth >= _DEEPEST or any(isinstance(node, ast.FunctionDef) and node.name == method for node in one.body):
        return False
    names = [ast.unparse(base).rpartition(".")[2] for base in one.bases]
    return any(name in classes and _inherits(classes[name][1], owner, method, classes, depth + 1) for name in names)


def _is_of_engine(events: Events, call: Event, names: set[str], trees: dict[str, ast.Module]) -> bool:
    """Whether the model of the engine that a call belongs to is an object of one of these classes, by the assignment to its variable."""
    engines = [one for one in events.of(*ENGINES) if one is call or one.start == call.origin]
    given = [one.argument("model", 1 if one.name == ENGINE else 0) for one in engines]
    tree = trees.get(engines[0].at.path) if engines else None
    written = given[0].raw if given and given[0] is not None else ""
    set_to = [
        node.value
        for node in ast.walk(tree or ast.Module([], []))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == written
    ]
    return len(set_to) == 1 and isinstance(set_to[0], ast.Call) and ast.unparse(set_to[0].func).rpartition(".")[2] in names
