"""Reads of the gradients of weights that follow a backward pass, by the syntax trees of a program's files.

The trees are enough: a loop over `parameters()` in the same function binds the name of a weight, and whether the backward pass is that of
DeepSpeed is known from the table of events.
"""

from __future__ import annotations

import ast
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from dslint.evaluate.python.sources import SourceFile
from dslint.job.events import ABOUT_SETUP
from dslint.job.gradient_read import CALLBACK, LOOP, TRAINING_STEP
from dslint.record import Record
from dslint.source.store import store
from dslint.source.tree import Span

_AFTER_STEP = frozenset({"on_pre_optimizer_step", "on_optimizer_step", "on_step_end"})
"""The methods of a callback that follow the last backward pass of a step, which Accelerate ends with the step of the engine."""
_PARAMETERS = frozenset({"parameters", "named_parameters"})
_GO_OVER = frozenset({"list", "tuple", "filter", "enumerate", "dict", "sorted", "tqdm"})
_WEIGHTS = frozenset({"weight", "bias"})
_MODEL = re.compile(r"(\w+_)?(model|engine|net|network|module|unet|transformer|policy|actor|student|llm)\d?(_engine|_module)?")
"""The name of what is trained, among the names in `model.lm_head.weight` and `self.engine.module.parameters()`."""
_OTHER = re.compile(r"critic|probe|disc|ema|ref|teacher|target|aux|reward|vae|value|old|frozen")
"""In such a name: another model, whose gradients an engine does not move."""
_CLEARS = frozenset({"zero_", "detach_"})
_ARGUMENT = re.compile(r"(model_|trainable_)?param(eter)?s(_list)?")
"""The name of an argument that gets the weights, as in `get_grad_norm(parameters)`."""
_FLAG = re.compile(r"\b(\w*args|cfg|config|conf|opts?|hparams|FLAGS)\b\.?")
_TURN = re.compile(r"%|step|sync_gradients|main_process")
"""In a condition: it selects steps or ranks, even if a flag says which."""
_KNOWS = re.compile(r"safe_get_|\bds_|GatheredParameters|is_deepspeed|DistributedType|distributed_type")
"""In a function: it asks DeepSpeed for the gradients, or tells the ways of training apart."""
_CONCERNS = re.compile(r"grad(?<!\wgrad)\b|backward(?<!\wbackward)\b")
"""What every function has in its text that reads a gradient or goes backward. Most files and functions do not."""


class Found(Record):
    """What a `GradientRead` says, with places in the joined text of the program."""

    span: Span
    after: str
    backward: int
    stepped: bool
    raises: bool


class _Read(Record):
    node: ast.Attribute
    around: tuple[ast.AST, ...]
    is_question: bool


class _Unit(Record):
    """A function, or the top of a file, with the class that it is a method of, its reads of gradients and its calls."""

    source: SourceFile
    name: str
    owner: ast.ClassDef | None
    reads: tuple[_Read, ...]
    calls: tuple[tuple[ast.Call, tuple[ast.AST, ...]], ...]

    @property
    def read(self) -> _Read | None:
        """The first read that does more than ask whether there is a gradient, or else the first one."""
        return next((one for one in self.reads if not one.is_question), self.reads[0] if self.reads else None)


def gradient_reads(files: Sequence[SourceFile]) -> list[Found]:
    """The reads, of each function one."""
    if not any(".grad" in one.text for one in files):
        return []
    units = [unit for source in files for unit in _units(source)]
    readers = [unit for unit in units if unit.read is not None]
    found = [one for unit in readers if (one := _of_trainer(unit, files)) is not None]
    for unit in units if readers else ():
        for call, around in unit.calls:
            if _method(call) == "backward":
                found += _after(unit, call, around, readers)
    return found


def _units(source: SourceFile) -> Iterator[_Unit]:
    """The functions of a file that read gradients or go backward. Programs share their modules, and each is searched once a run."""
    for function in store().parsed(("gradient reads", source.parsed), lambda: tuple(_functions(source))):
        yield _Unit(source, *function)


_Function: TypeAlias = tuple[str, ast.ClassDef | None, tuple[_Read, ...], tuple[tuple[ast.Call, tuple[ast.AST, ...]], ...]]


def _functions(source: SourceFile) -> Iterator[_Function]:
    lines = [bisect_right(source.parsed.lines, match.start()) for match in _CONCERNS.finditer(source.text)]
    tree = source.parsed.tree if lines else None
    waiting: list[tuple[ast.AST, ast.ClassDef | None]] = [(tree, None)] if tree is not None else []
    while waiting:
        node, owner = waiting.pop()
        if isinstance(node, ast.stmt) and bisect_left(lines, node.lineno) == bisect_right(lines, node.end_lineno or node.lineno):
            continue
        reads, calls, inner = _read(node)
        waiting += [(one, owner if not isinstance(node, ast.ClassDef) else node) for one in inner]
        if not isinstance(node, ast.ClassDef) and (reads or any(_method(call) == "backward" for call, _ in calls)):
            yield getattr(node, "name", ""), owner, tuple(reads), tuple(calls)


def _read(unit: ast.AST) -> tuple[list[_Read], list[tuple[ast.Call, tuple[ast.AST, ...]]], list[ast.AST]]:
    """The reads of gradients and the calls in a function, each with what is around it, and the functions and classes in it."""
    nodes: list[tuple[ast.AST, tuple[ast.AST, ...]]] = []
    inner: list[ast.AST] = []
    waiting: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(one, ()) for one in _body(unit)]
    while waiting:
        node, around = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner.append(node)
            continue
        nodes.append((node, around))
        waiting += [(one, (*around, node)) for one in ast.iter_child_nodes(node)]
    nodes.sort(key=lambda one: (getattr(one[0], "lineno", 0), getattr(one[0], "col_offset", 0)))
    calls = [(node, around) for node, around in nodes if isinstance(node, ast.Call)]
    if not any(isinstance(node, ast.Attribute) and node.attr == "grad" for node, _ in nodes):
        return [], calls, inner
    weights = _weights(unit, [node for node, _ in nodes])
    reads = [
        _Read(node, around, isinstance(around[-1], ast.Compare | ast.If | ast.BoolOp | ast.UnaryOp))
        for node, around in nodes
        if isinstance(node, ast.Attribute) and node.attr == "grad" and around and _is_weight(node.value, weights) and _is_read(node, around)
    ]
    return reads, calls, inner


def _body(unit: ast.AST) -> list[ast.stmt]:
    return list(getattr(unit, "body", ()))


def _is_weight(value: ast.expr, weights: set[str]) -> bool:
    if isinstance(value, ast.Attribute):
        return value.attr in _WEIGHTS and _is_trained(value.value)
    return isinstance(value, ast.Name) and value.id in weights


def _is_trained(node: ast.expr) -> bool:
    """Whether an object is the model that is trained, or a part of it, by the names in the expression."""
    names = [one.id if isinstance(one, ast.Name) else one.attr for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)]
    names += [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]  # `kwargs["model"]`
    return any(map(_MODEL.fullmatch, names)) and not any(map(_OTHER.search, names))


def _is_read(node: ast.Attribute, around: tuple[ast.AST, ...]) -> bool:
    """Whether the gradient is read, or changed in place; a call that clears it reads nothing."""
    if not isinstance(node.ctx, ast.Load):
        return isinstance(around[-1], ast.AugAssign)
    chain = [one.attr for one in around[-2:] if isinstance(one, ast.Attribute)]
    return not _CLEARS.intersection(chain)


def _weights(unit: ast.AST, nodes: list[ast.AST]) -> set[str]:
    """The names that loops over the weights of a model bind in a function."""
    arguments = getattr(unit, "args", None)
    lists = {one.arg for one in arguments.args if _ARGUMENT.fullmatch(one.arg)} if arguments is not None else set()
    names: set[str] = set()
    for node in nodes:
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and _goes_over(node.value, lists)
        ):
            lists.add(node.targets[0].id)
        elif isinstance(node, ast.For | ast.comprehension) and _goes_over(node.iter, lists) and (last := _last_name(node.target)):
            names.add(last)
    return names


def _goes_over(node: ast.expr, lists: set[str]) -> bool:
    """Whether an expression is the weights of a model, or a selection of them."""
    if isinstance(node, ast.Name):
        return node.id in lists
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        first = node.generators[0]
        return isinstance(node.elt, ast.Name) and node.elt.id == _last_name(first.target) and _goes_over(first.iter, lists)
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "params"
    name = _method(node)
    if name in ("items", "values") and isinstance(node.func, ast.Attribute):
        return _goes_over(node.func.value, lists)
    if name in _PARAMETERS:
        return isinstance(node.func, ast.Attribute) and _is_trained(node.func.value)
    return name in _GO_OVER and any(_goes_over(one, lists) for one in node.args)


def _last_name(target: ast.expr) -> str:
    """The name that gets the weight: of `for name, weight in`, and of `for number, (name, weight) in`."""
    while isinstance(target, ast.Tuple | ast.List) and target.elts:
        target = target.elts[-1]
    return target.id if isinstance(target, ast.Name) else ""


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _of_trainer(unit: _Unit, files: Sequence[SourceFile]) -> Found | None:
    """The read in a method of a Trainer, or of a callback of one, if the program makes an object of the class."""
    read = unit.read
    if read is None or unit.owner is None or not _is_taken(unit, read):
        return None
    bases = [ast.unparse(one) for one in unit.owner.bases]
    is_callback = unit.name in _AFTER_STEP and any(one.endswith("TrainerCallback") for one in bases)
    if not is_callback and not (unit.name == TRAINING_STEP and any(one.endswith("Trainer") for one in bases)):
        return None
    made = re.compile(rf"(?<!class )\b{unit.owner.name}\b")
    if not any(made.search(one.text) for one in files):
        return None
    if is_callback:
        return _found(unit, read, CALLBACK)
    passes = [call for call, _ in unit.calls if ast.unparse(call.func) in ("super().training_step", "self.accelerator.backward")]
    return _found(unit, read, TRAINING_STEP) if passes and _is_before(passes[0], read.node) else None


def _after(unit: _Unit, backward: ast.Call, around: tuple[ast.AST, ...], readers: list[_Unit]) -> Iterator[Found]:
    """The read that follows a call of `backward` in the same turn of its loop, or in a function that is called there."""
    loop = next((one for one in reversed(around) if isinstance(one, ast.For | ast.While)), None)
    owner = ast.unparse(backward.func).removesuffix(".backward")
    others = [call for call, _ in unit.calls if _method(call) == "backward" and ast.unparse(call.func).removesuffix(".backward") != owner]
    if others:
        return  # the program has several ways of training

    def follows(node: ast.AST, inside: tuple[ast.AST, ...]) -> bool:
        return _is_before(backward, node) and (loop is None or loop in inside)

    steps = [call for call, inside in unit.calls if ast.unparse(call.func) == f"{owner}.step" and follows(call, inside)]
    own = next((one for one in sorted(unit.reads, key=lambda one: one.is_question) if follows(one.node, one.around)), None)
    start = unit.source.span(backward).start
    if own is not None and _is_taken(unit, own):
        yield _found(unit, own, LOOP, start, stepped=any(_is_before(one, own.node) for one in steps))
    for call, inside in unit.calls:
        for reader in readers if follows(call, inside) else ():
            read = reader.read if _is_call_of(call, reader) else None
            passed = ast.unparse(call)
            if read is not None and _is_taken(reader, read) and not _is_switched(inside) and not _OTHER.search(passed):
                yield _found(reader, read, LOOP, start, stepped=any(_is_before(one, call) for one in steps))


def _is_call_of(call: ast.Call, unit: _Unit) -> bool:
    """Whether a call is one of a function of the project by its name, its module or `self`: other objects have methods of the same name."""
    if _method(call) != unit.name:
        return False
    if isinstance(call.func, ast.Attribute):
        of = call.func.value.id if isinstance(call.func.value, ast.Name) else ""
        return of == "self" if unit.owner is not None else of == os.path.splitext(os.path.basename(unit.source.path))[0]
    return unit.owner is None


def _found(unit: _Unit, read: _Read, after: str, backward: int = 0, *, stepped: bool = False) -> Found:
    asks = any(one.is_question for one in unit.reads)
    raises = not asks and isinstance(read.around[-1], ast.Attribute | ast.Subscript)
    return Found(unit.source.span(read.node), after, backward, stepped, raises)


def _is_before(first: ast.AST, second: ast.AST) -> bool:
    return (first.lineno, first.col_offset) < (second.lineno, second.col_offset)  # type: ignore[attr-defined]


def _is_taken(unit: _Unit, read: _Read) -> bool:
    """Whether nothing in a function tells ways of training apart, or leaves a read to a flag."""
    names = " ".join(ast.unparse(call.func) for call, _ in unit.calls)
    return not _is_switched(read.around) and _KNOWS.search(names) is None


def _is_switched(around: tuple[ast.AST, ...]) -> bool:
    tests = [ast.unparse(one.test) for one in around if isinstance(one, ast.If | ast.IfExp)]
    return any(ABOUT_SETUP.search(one) or _KNOWS.search(one) or (_FLAG.search(one) and not _TURN.search(one)) for one in tests)
