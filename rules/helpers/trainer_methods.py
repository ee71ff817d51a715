"""Methods of the Trainer of transformers that projects replace, by release: their parameters, and how the Trainer calls them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType

from dslint.diagnostics import Phase
from dslint.facts import Release
from dslint.record import Record
from dslint.source.posted import tree_of_text
from dslint.source.tree import Document


class Method(Record):
    """A method since a release: its parameters, the arguments with which the Trainer calls it, and the method that makes the call."""

    since: Release
    parameters: str
    call: str


_FIRST = Release(4, 28, 0)
"""The oldest release whose calls were read."""
_LOSS = Release(4, 46, 0)
"""The first release that passes the number of items in the batch."""
_TIME = Release(4, 47, 0)
"""The first release that passes the start of the training, and no metrics to `_save_checkpoint`."""
_REPORTED = "tr_loss, grad_norm, model, trial, epoch, ignore_keys_for_eval"

METHODS: Mapping[str, tuple[Method, ...]] = {
    "compute_loss": (
        Method(_FIRST, "model, inputs, return_outputs=False", "model, inputs"),
        Method(
            _LOSS,
            "model, inputs, return_outputs=False, num_items_in_batch=None",
            "model, inputs, num_items_in_batch=num_items_in_batch",
        ),
    ),
    "training_step": (
        Method(_FIRST, "model, inputs", "model, inputs"),
        Method(_LOSS, "model, inputs, num_items_in_batch=None", "model, inputs, num_items_in_batch"),
    ),
    "log": (
        Method(_FIRST, "logs", "logs"),
        Method(_TIME, "logs, start_time=None", "logs, start_time"),
    ),
    "get_batch_samples": (
        Method(_LOSS, "epoch_iterator, num_batches", "epoch_iterator, num_batches"),
        Method(Release(4, 50, 0), "epoch_iterator, num_batches, device", "epoch_iterator, num_batches, device"),
    ),
    "_get_train_sampler": (
        Method(_FIRST, "", ""),
        Method(Release(4, 52, 0), "train_dataset=None", "train_dataset"),
    ),
    "_maybe_log_save_evaluate": (
        Method(_FIRST, _REPORTED.replace(" grad_norm,", ""), _REPORTED.replace(" grad_norm,", "")),
        Method(Release(4, 38, 0), _REPORTED, _REPORTED),
        Method(_TIME, f"{_REPORTED}, start_time", f"{_REPORTED}, start_time"),
        Method(Release(4, 51, 0), f"{_REPORTED}, start_time, learning_rate=None", f"{_REPORTED}, start_time, learning_rate=learning_rate"),
    ),
    "_save_checkpoint": (
        Method(_FIRST, "model, trial, metrics=None", "model, trial, metrics=metrics"),
        Method(_TIME, "model, trial", "model, trial"),
    ),
    "save_model": (Method(_FIRST, "output_dir=None, _internal_call=False", "output_dir, _internal_call=True"),),
}
"""By name, from the oldest release on. Source: transformers/trainer.py of the releases that are named, and of each before them."""

_CALLER = {
    "compute_loss": "training_step",
    "log": "_maybe_log_save_evaluate",
    "_get_train_sampler": "get_train_dataloader",
    "_save_checkpoint": "_maybe_log_save_evaluate",
    "save_model": "_save_checkpoint",
}
"""The method that calls another one; the loop of the training calls the rest."""
_LOOP = ("_inner_training_loop", "_run_epoch", "train")
_SAVES = ("_save_checkpoint", "save_model")

_OF_TRANSFORMERS = frozenset({"Trainer", "Seq2SeqTrainer"})
_OF_TRL = frozenset(f"{kind}Trainer" for kind in ("SFT", "DPO", "KTO", "ORPO", "CPO", "Reward", "GRPO"))
"""The trainers of TRL that leave the loop to transformers."""
_LEFT_BY_TRL = ("training_step", "compute_loss", "log")
"""The methods that transformers calls in these, too."""

_PLAIN = frozenset({"override", "no_grad", "inference_mode"})
"""Decorators that leave the parameters of a method as they are."""
_BY_RELEASE = re.compile(r"version|signature|hasattr", re.IGNORECASE)


class Misfit(Record):
    """A method that does not fit the Trainer of a release: its file, what is underlined, the error, and what to write.

    `node` is the method, or the call of that of the Trainer (`by_super`), and `shown` what of it is underlined. `since` is the release that
    has the method as it is, with the arguments `takes`, and `wanted` is what to write. `before` is whether the program fits an older release
    of the method, and `from_on` the newer one that it fits.
    """

    path: str
    node: ast.FunctionDef | ast.Call
    shown: str
    owner: str
    method: str
    since: Release
    error: str
    takes: str
    wanted: str
    before: bool
    from_on: Release | None
    by_super: bool

    @property
    def phase(self) -> Phase:
        """When Python raises it."""
        return Phase.SAVE if self.method in _SAVES else Phase.STEP


class _Class(Record):
    """A class of the project that is a Trainer."""

    path: str
    node: ast.ClassDef
    base: str
    above: tuple[_Class, ...]
    alone: bool

    def chain(self) -> Iterator[_Class]:
        yield self
        for one in self.above:
            yield from one.chain()

    def method(self, name: str) -> ast.FunctionDef | None:
        """The method of this name, if the class has one that every release gets."""
        return next((one for one in self.node.body if isinstance(one, ast.FunctionDef) and one.name == name), None)

    def replaces(self, name: str) -> bool:
        """Whether the class, or one above it, has a method of this name that does not go on to that of the Trainer."""
        found = next((method for one in self.chain() if (method := one.method(name)) is not None), None)
        return found is not None and not any(called == name for _, called, _ in _calls_above(found, ()))


def misfits(documents: Mapping[str, Document], release: Release) -> Iterator[Misfit]:
    """The methods of the project's trainers that do not fit the Trainer of a release, and their calls of its own methods.

    Only classes that the project makes an object of, or builds such a class on, are looked at.
    """
    texts = {path: one.text for path, one in documents.items() if one.language == "python"}
    trainers = list(_trainers(texts))
    called = {name for text in texts.values() for defines, name in _CALLED.findall(text) if not defines} if trainers else set()
    seen: set[int] = set()
    for trainer in trainers:
        if trainer.node.name not in called:
            continue
        for one in trainer.chain():
            if id(one.node) not in seen:
                seen.add(id(one.node))
                yield from _overrides(one, trainer, release)
                yield from _passed_above(one, release)


def _at(name: str, release: Release) -> Method | None:
    return next((one for one in reversed(METHODS[name]) if one.since <= release), None)


def _overrides(one: _Class, made: _Class, release: Release) -> Iterator[Misfit]:
    """The methods of a class that the Trainer calls in another way."""
    for name in METHODS if one.base in _OF_TRANSFORMERS else _LEFT_BY_TRL:
        found, method = one.method(name), _at(name, release)
        if found is None or method is None or made.method(name) not in (None, found) or any(map(made.replaces, _LOOP)):
            continue
        if name in _CALLER and made.replaces(_CALLER[name]):
            continue
        if any(_short(each) not in _PLAIN for each in found.decorator_list):
            continue
        error = _refusal(found.args, _arguments_of(method.call), f"{one.node.name}.{name}")
        if error:
            fits = [each.since for each in METHODS[name] if not _refusal(found.args, _arguments_of(each.call))]
            yield Misfit(
                path=one.path,
                node=found,
                shown=f"def {name}",
                owner=one.node.name,
                method=name,
                since=method.since,
                error=error,
                takes=method.call,
                wanted=f"def {name}({', '.join(filter(None, ('self', method.parameters)))})",
                before=any(since < method.since for since in fits),
                from_on=next((since for since in fits if since > method.since), None),
                by_super=False,
            )


def _passed_above(one: _Class, release: Release) -> Iterator[Misfit]:
    """The calls of the Trainer's own methods in a class, with arguments that it does not take."""
    if one.base not in _OF_TRANSFORMERS or one.above or not one.alone:
        return
    for body in one.node.body:
        for call, name, given in _calls_above(body, ()) if isinstance(body, ast.FunctionDef) else ():
            method = _at(name, release) if name in METHODS else None
            if method is None or given is None:
                continue
            error = _refusal(_parameters(method.parameters), given, f"{one.base}.{name}")
            if error:
                fits = [each.since for each in METHODS[name] if not _refusal(_parameters(each.parameters), given)]
                yield Misfit(
                    path=one.path,
                    node=call,
                    shown=ast.unparse(call.func),
                    owner=one.node.name,
                    method=name,
                    since=method.since,
                    error=error,
                    takes=method.parameters,
                    wanted=f"{ast.unparse(call.func)}({method.call})",
                    before=any(since < method.since for since in fits),
                    from_on=next((since for since in fits if since > method.since), None),
                    by_super=True,
                )


def _short(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


Given = tuple[int, tuple[str, ...]]
"""The arguments of a call: how many by position, and the names of the others."""


def _calls_above(node: ast.AST, around: tuple[ast.AST, ...]) -> Iterator[tuple[ast.Call, str, Given | None]]:
    """The calls of the class above in a method: `super().log(logs)`. The arguments are None where they are not all written, or where
    the program handles an error, or asks for the release.
    """
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        of = node.func.value
        by_super = isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "super"
        by_name = _short(of) in _OF_TRANSFORMERS and bool(node.args) and ast.unparse(node.args[0]) == "self"
        if by_super or by_name:
            is_open = any(isinstance(one, ast.Starred) for one in node.args) or any(one.arg is None for one in node.keywords)
            is_doubtful = any(
                isinstance(one, ast.Try) or (isinstance(one, ast.If) and _BY_RELEASE.search(ast.unparse(one.test))) for one in around
            )
            count = len(node.args) - (0 if by_super else 1)
            given = None if is_open or is_doubtful else (count, tuple(one.arg or "" for one in node.keywords))
            yield node, node.func.attr, given
    for child in ast.iter_child_nodes(node):
        yield from _calls_above(child, (*around, node))


def _trainers(texts: Mapping[str, str]) -> Iterator[_Class]:
    """The classes at the top of the files that are trainers, in the order in which they are found."""
    trees = {path: tree for path, text in texts.items() if _EXTENDS.search(text) and (tree := tree_of_text(text)) is not None}
    nodes = {
        path: {one.name: one for one in tree.body if isinstance(one, ast.ClassDef) and not one.decorator_list}
        for path, tree in trees.items()
    }
    imported = {path: _imported(tree) for path, tree in trees.items()}
    yield from filter(None, (_as_trainer(path, one, nodes, imported, ()) for path, classes in nodes.items() for one in classes.values()))


_CALLED = re.compile(r"(class )?\b(\w+Trainer\w*|[A-Z]\w*)\(")
_EXTENDS = re.compile(r"^class \w+\(", re.MULTILINE)


def _imported(tree: ast.Module) -> dict[str, str]:
    """The names that a file imports from the libraries of the trainers, with what they are there."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("transformers", "trl") and not node.level:
            found |= {one.asname or one.name: f"{(node.module or '').partition('.')[0]}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.asname or one.name: one.name for one in node.names if one.name in ("transformers", "trl")}
    return found


def _as_trainer(
    path: str,
    node: ast.ClassDef,
    nodes: Mapping[str, Mapping[str, ast.ClassDef]],
    imported: Mapping[str, Mapping[str, str]],
    below: Sequence[str],
) -> _Class | None:
    """The class as a trainer, if one of its bases is one. Of several, only the trainer counts."""
    for base in node.bases:
        written = ast.unparse(base)
        first, _, rest = written.partition(".")
        full = f"{imported[path].get(first, first)}{f'.{rest}' if rest else ''}"
        library, name = full.partition(".")[0], full.rpartition(".")[2]
        if (library == "transformers" and name in _OF_TRANSFORMERS) or (library == "trl" and name in _OF_TRL):
            return _Class(path, node, name, (), len(node.bases) == 1)
        short = written.rpartition(".")[2]
        places = [path] if short in nodes[path] else [other for other, classes in nodes.items() if short in classes]
        if len(places) == 1 and short not in below and short != node.name:
            above = _as_trainer(places[0], nodes[places[0]][short], nodes, imported, (*below, node.name))
            if above is not None:
                return _Class(path, node, above.base, (above,), len(node.bases) == 1)
    return None


def _parameters(written: str) -> ast.arguments:
    function = ast.parse(f"def f({', '.join(filter(None, ('self', written)))}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    return function.args


def _arguments_of(written: str) -> Given:
    call = ast.parse(f"f({written})", mode="eval").body
    assert isinstance(call, ast.Call)
    return len(call.args), tuple(one.arg or "" for one in call.keywords)


def _refusal(parameters: ast.arguments, given: Given, name: str = "") -> str:
    """What Python raises for a call of a method `name` with these parameters; "" if it takes the call."""
    count, names = given
    try:
        _function(parameters, name)(None, *[None] * count, **dict.fromkeys(names))
    except TypeError as error:
        return str(error)
    return ""


def _function(parameters: ast.arguments, name: str) -> FunctionType:
    """A function with these parameters, whatever their defaults, that does nothing."""
    bare = ast.arguments(
        posonlyargs=[ast.arg(one.arg) for one in parameters.posonlyargs],
        args=[ast.arg(one.arg) for one in parameters.args],
        vararg=parameters.vararg and ast.arg(parameters.vararg.arg),
        kwonlyargs=[ast.arg(one.arg) for one in parameters.kwonlyargs],
        kw_defaults=[None] * len(parameters.kwonlyargs),
        kwarg=parameters.kwarg and ast.arg(parameters.kwarg.arg),
        defaults=[],
    )
    code = compile(ast.fix_missing_locations(ast.Expression(ast.Lambda(bare, ast.Constant(None)))), name or "f", "eval")
    function = FunctionType(
        next(one for one in code.co_consts if isinstance(one, CodeType)), {}, argdefs=(None,) * len(parameters.defaults)
    )
    function.__qualname__ = name
    by_name = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
    function.__kwdefaults__ = {one.arg: None for one, default in by_name if default is not None}
    return function
