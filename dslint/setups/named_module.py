"""The LightningModule that a YAML file names: `class_path: net.Model`, `_target_: net.Model`, or `module: net` with `definition: Model`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from dslint.config.detect import FileKind
from dslint.evaluate.files import Linked, find
from dslint.evaluate.python.files import text_of
from dslint.evaluate.python.read import PythonFile
from dslint.frameworks.lightning import is_optimizer
from dslint.frameworks.programs import read_python
from dslint.job.model import Program
from dslint.setups.gather import LoadedSetup
from dslint.source.tree import Document, Mapping, Scalar, Sequence

_DEEPEST = 4
_MODULE = re.compile(r"[A-Za-z_][\w.]*")


def with_named_module(gathered: LoadedSetup, document: Document, path: str) -> LoadedSetup:
    """With the calls of the LightningModule that the file of a trainer names: Lightning calls its methods."""
    program = gathered.setup.program
    found = next((one for name, cls in _names(document.root, 0) if (one := _read(name, cls, path)) is not None), None)
    if program is None or found is None or found.calls or found.unread:
        return gathered
    for shown, text in found.modules.items():
        gathered = gathered.with_file(shown, text, FileKind.PYTHON)
    gathered = gathered.with_file(found.path, found.document, FileKind.PYTHON)
    return gathered.but(program=_joined(program, found.program))


def _joined(program: Program, module: Program) -> Program:
    """The trainer that a file describes, with what its module does."""
    made = [one for one in module.events.all if is_optimizer(one.name) and one.function.endswith(".configure_optimizers")]
    optimizer = replace(made[0].at, value=made[0].name) if len({one.name for one in made}) == 1 else program.client_optimizer
    return replace(
        program,
        events=module.events,
        client_optimizer=optimizer,
        several_optimizers=module.several_optimizers,
        unknown_strategy=module.unknown_strategy,
        freezes=module.freezes,
        checkpoints=module.checkpoints,
    )


def _names(node: object, depth: int) -> Iterator[tuple[str, str]]:
    """The modules and classes that a file names, from the outermost section on."""
    if isinstance(node, Sequence):
        for item in node.items:
            yield from _names(item, depth + 1)
    if not isinstance(node, Mapping) or depth > _DEEPEST:
        return
    values = {one.key.value: one.value.value for one in node.members if isinstance(one.value, Scalar)}
    module, definition = values.get("module"), values.get("definition")
    if isinstance(module, str) and isinstance(definition, str) and _MODULE.fullmatch(module):
        yield module, definition
    for given in (values.get("class_path"), values.get("_target_")):
        if isinstance(given, str) and "." in given and _MODULE.fullmatch(given):
            yield given.rpartition(".")[0], given.rpartition(".")[2]
    for member in node.members:
        yield from _names(member.value, depth + 1)


def _read(module: str, name: str, path: str) -> PythonFile | None:
    """The file of a module, if the class is its only LightningModule."""
    below = module.replace(".", "/")
    links = (find(one, path) for one in (f"{below}.py", f"src/{below}.py", f"{below}/__init__.py"))
    linked: Linked | None = next((one for one in links if one is not None), None)
    text = text_of(linked.path) if linked is not None else None
    if linked is None or text is None or "LightningModule" not in text:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    classes = [
        one.name for one in tree.body if isinstance(one, ast.ClassDef) and any("LightningModule" in ast.unparse(base) for base in one.bases)
    ]
    return read_python(text, linked.shown, linked.path) if classes == [name] else None
