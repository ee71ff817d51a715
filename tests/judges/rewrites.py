"""Programs rewritten as other people write them: the same work in other functions, classes, files and words.

Each rewrite takes the program of an example and gives the files of the rewritten one, or None where the program has no place for it.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

PROGRAM = "train.py"
CONFIG = "ds_config.json"

Files: TypeAlias = "dict[str, str]"


class Parts(NamedTuple):
    """The statements of a program: what it imports, what it defines, what it does before and with its engine, and what afterwards."""

    imports: list[ast.stmt]
    definitions: list[ast.stmt]
    head: list[ast.stmt]
    tail: list[ast.stmt]

    @property
    def statements(self) -> list[ast.stmt]:
        """What the program does."""
        return [*self.head, *self.tail]


_BUILDS = {"initialize", "prepare", "Trainer", "SFTTrainer", "Seq2SeqTrainer", "from_pretrained", "Fabric", "setup"}


def parts_of(text: str) -> Parts | None:
    """The parts of a program; None where a definition reads what a statement assigns, so that neither can move."""
    imports: list[ast.stmt] = []
    definitions: list[ast.stmt] = []
    statements: list[ast.stmt] = []
    try:
        body = ast.parse(text).body
    except SyntaxError:  # an example about programs that Python cannot read
        return None
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            imports.append(statement)
        elif isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            definitions.append(statement)
        else:
            statements.append(statement)
    if not statements or _is_main(statements) or stored(statements) & loaded(definitions):
        return None
    last = max((n for n, statement in enumerate(statements) if _called(statement) & _BUILDS and not _is_block(statement)), default=-1)
    return Parts(imports, definitions, statements[: last + 1], statements[last + 1 :])


def _is_main(statements: Sequence[ast.stmt]) -> bool:
    return any(isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test) for statement in statements)


def _is_block(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.For, ast.While, ast.If, ast.With, ast.Try))


def _called(statement: ast.stmt) -> set[str]:
    calls = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return {call.attr if isinstance(call, ast.Attribute) else call.id for call in calls if isinstance(call, (ast.Attribute, ast.Name))}


def stored(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that statements assign, in no scope of their own."""
    return {
        node.id for statement in statements for node in _own(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def loaded(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that statements read."""
    return {
        node.id for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _own(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, (ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.FunctionDef, ast.ClassDef)):
        for child in ast.iter_child_nodes(node):
            yield from _own(child)


def unparsed(*groups: Sequence[ast.stmt]) -> str:
    """The text of groups of statements."""
    return "".join(ast.unparse(statement) + "\n" for group in groups for statement in group)


def indented(statements: Sequence[ast.stmt], depth: int = 1) -> str:
    """The text of statements in a block."""
    text = unparsed(statements) or "pass\n"
    return "".join("    " * depth + line + "\n" if line else "\n" for line in text.splitlines())


_STARTED = "if __name__ == '__main__':\n    main()\n"


def in_main(parts: Parts) -> Files:
    """All that is done, in main()."""
    return {PROGRAM: unparsed(parts.imports, parts.definitions) + "def main():\n" + indented(parts.statements) + _STARTED}


def in_recorded_main(parts: Parts) -> Files:
    """All that is done, in a main() that torchelastic decorates."""
    first = "from torch.distributed.elastic.multiprocessing.errors import record\n"
    return {PROGRAM: first + unparsed(parts.imports, parts.definitions) + "@record\ndef main():\n" + indented(parts.statements) + _STARTED}


def in_package(parts: Parts) -> Files:
    """All that is done in a module of a package, which the program calls."""
    return {
        PROGRAM: "from recipe.run import main\n" + _STARTED,
        "recipe/__init__.py": "",
        "recipe/run.py": unparsed(parts.imports, parts.definitions) + "def main():\n" + indented(parts.statements),
    }


def definitions_elsewhere(parts: Parts) -> Files | None:
    """Classes and functions of the program in a module of their own."""
    if not parts.definitions:
        return None
    names = ", ".join(definition.name for definition in parts.definitions if isinstance(definition, (ast.FunctionDef, ast.ClassDef)))
    return {
        PROGRAM: unparsed(parts.imports) + f"from parts import {names}\n" + unparsed(parts.statements),
        "parts.py": unparsed(parts.imports, parts.definitions),
    }


def tail_in_function(parts: Parts) -> Files | None:
    """What is done with the engine, in a function that gets it."""
    function = _tail_function(parts)
    if function is None:
        return None
    text, call = function
    return {
        PROGRAM: unparsed(parts.imports, parts.definitions) + text + "def main():\n" + indented(parts.head) + f"    {call}\n" + _STARTED
    }


def tail_in_module(parts: Parts) -> Files | None:
    """What is done with the engine, in a function of another module that gets it."""
    function = _tail_function(parts)
    if function is None:
        return None
    text, call = function
    return {
        PROGRAM: unparsed(parts.imports, parts.definitions)
        + "from loop import run\n"
        + "def main():\n"
        + indented(parts.head)
        + f"    {call}\n"
        + _STARTED,
        "loop.py": unparsed(parts.imports, parts.definitions) + text,
    }


def _tail_function(parts: Parts) -> tuple[str, str] | None:
    if not parts.head or not parts.tail:
        return None
    given = ", ".join(sorted(stored(parts.head) & loaded(parts.tail)))
    return f"def run({given}):\n" + indented(parts.tail), f"run({given})"


def head_in_function(parts: Parts) -> Files | None:
    """A function that makes the engine and returns what the rest needs."""
    given = sorted(stored(parts.head) & loaded(parts.tail))
    if not parts.head or not parts.tail or not given:
        return None
    names = ", ".join(given)
    build = "def build():\n" + indented(parts.head) + f"    return {names}\n"
    return {
        PROGRAM: unparsed(parts.imports, parts.definitions)
        + build
        + "def main():\n"
        + f"    {names} = build()\n"
        + indented(parts.tail)
        + _STARTED
    }


def in_class(parts: Parts) -> Files | None:
    """A class whose constructor makes the engine, and whose method works with it."""
    if not parts.head or not parts.tail:
        return None
    mine = stored(parts.head)
    if _hidden(parts.statements) & mine:
        return None
    head, tail = (_as_attributes(group, mine) for group in (parts.head, parts.tail))
    text = "class Run:\n    def __init__(self):\n" + indented(head, 2) + "    def train(self):\n" + indented(tail, 2)
    return {PROGRAM: unparsed(parts.imports, parts.definitions) + text + "if __name__ == '__main__':\n    run = Run()\n    run.train()\n"}


def _hidden(statements: Sequence[ast.stmt]) -> set[str]:
    """Names that inner scopes assign."""
    every = {
        node.id
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return every - stored(statements)


def _as_attributes(statements: Sequence[ast.stmt], names: set[str]) -> list[ast.stmt]:
    class Attributes(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Attribute(ast.Name("self", ast.Load()), node.id, node.ctx) if node.id in names else node

    copies = ast.parse(unparsed(statements)).body
    return [ast.fix_missing_locations(Attributes().visit(statement)) for statement in copies]


def tail_if_unknown(parts: Parts) -> Files | None:
    """What is done with the engine, under a flag that nobody knows."""
    if not parts.tail or "args" in stored(parts.statements) | loaded(parts.statements):
        return None
    first = "import os\n"
    return {
        PROGRAM: first
        + unparsed(parts.imports, parts.definitions)
        + unparsed(parts.head)
        + "if os.environ.get('DO_TRAIN'):\n"
        + indented(parts.tail)
    }


def in_try(parts: Parts) -> Files:
    """All that is done, with a handler for an interrupt."""
    return {
        PROGRAM: unparsed(parts.imports, parts.definitions)
        + "try:\n"
        + indented(parts.statements)
        + "except KeyboardInterrupt:\n    print('stopped')\n"
    }


def among_noise(parts: Parts) -> Files:
    """Calls of libraries that have nothing to do with it, before and between the statements."""
    before = "import logging\nimport os\nimport random\nimport numpy as np\nimport wandb\n"
    start = "logger = logging.getLogger(__name__)\nrandom.seed(0)\nnp.random.seed(0)\nos.makedirs('logs', exist_ok=True)\nwandb.init(project='p')\n"
    text = before + unparsed(parts.imports, parts.definitions) + start
    for n, statement in enumerate(parts.statements):
        text += unparsed([statement]) + f"logger.info('step {n}')\nwandb.log({{'done': {n}}})\n"
    return {PROGRAM: text}


def in_both_branches(parts: Parts) -> Files | None:
    """Values made in each of two branches of a condition that nobody knows, the same in both; but not what takes the config."""
    if not any(_can_branch(statement) for statement in parts.statements):
        return None
    text = "import os\n" + unparsed(parts.imports, parts.definitions)
    for statement in parts.statements:
        if _can_branch(statement):
            text += "if os.environ.get('OTHER'):\n" + indented([statement]) + "else:\n" + indented([statement])
        else:
            text += unparsed([statement])
    return {PROGRAM: text}


_TAKES_CONFIG = ("initialize", "prepare", "Trainer", "Arguments", "Accelerator", "Plugin", "Strategy", "Config", "parse")


def _can_branch(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    return not any(word in ast.unparse(statement.value.func) for word in _TAKES_CONFIG)


def with_module_names(parts: Parts) -> Files | None:
    """`import torch.nn as nn` instead of `from torch import nn`: names reached through their modules."""
    names: dict[str, tuple[str, str]] = {}
    text = ""
    for statement in parts.imports:
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level and "." not in statement.module:
            for name in statement.names:
                names[name.asname or name.name] = (statement.module, name.name)
            text += f"import {statement.module}\n"
        else:
            text += unparsed([statement])
    if not names or set(names) & stored(parts.statements):
        return None

    class Names(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            if node.id not in names or not isinstance(node.ctx, ast.Load):
                return node
            module, name = names[node.id]
            return ast.Attribute(ast.Name(module, ast.Load()), name, ast.Load())

    body = [Names().visit(statement) for statement in ast.parse(unparsed(parts.definitions, parts.statements)).body]
    return {PROGRAM: text + unparsed([ast.fix_missing_locations(statement) for statement in body])}


def with_alias(parts: Parts) -> Files | None:
    """`import deepspeed as ds`."""
    if not any(
        isinstance(statement, ast.Import) and [n.name for n in statement.names if not n.asname] == ["deepspeed"]
        for statement in parts.imports
    ):
        return None

    class Names(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Name("ds", node.ctx) if node.id == "deepspeed" else node

        def visit_Import(self, node: ast.Import) -> ast.Import:
            return ast.parse("import deepspeed as ds").body[0] if [n.name for n in node.names] == ["deepspeed"] else node  # type: ignore[return-value]

    body = [Names().visit(statement) for statement in ast.parse(unparsed(*parts)).body]
    return {PROGRAM: unparsed([ast.fix_missing_locations(statement) for statement in body])}


def with_words_in_dict(parts: Parts) -> Files | None:
    """The call that takes the config gets its words out of a dict."""

    class Words(ast.NodeTransformer):
        done: ast.Dict | None = None

        def visit_Call(self, node: ast.Call) -> ast.expr:
            self.generic_visit(node)
            takes = any(isinstance(word.value, ast.Constant) and word.value.value == CONFIG for word in node.keywords)
            if not takes or self.done is not None or any(word.arg is None for word in node.keywords):
                return node
            self.done = ast.Dict([ast.Constant(word.arg) for word in node.keywords], [word.value for word in node.keywords])
            return ast.Call(node.func, node.args, [ast.keyword(None, ast.Name("options", ast.Load()))])

    text = unparsed(parts.imports, parts.definitions)
    found = False
    for statement in ast.parse(unparsed(parts.statements)).body:
        words = Words()
        changed = words.visit(statement)
        if words.done is not None:
            found = True
            text += f"options = {ast.unparse(words.done)}\n"
        text += unparsed([ast.fix_missing_locations(changed)])
    return {PROGRAM: text} if found else None


def config_in_flag(parts: Parts) -> Files | None:
    """The config's path in a flag of the launch."""
    return _with_config(
        parts,
        "args.ds",
        "import argparse\n",
        "parser = argparse.ArgumentParser()\nparser.add_argument('--ds')\nparser.add_argument('--local_rank', type=int)\nargs = parser.parse_args()\n",
        " --ds ds_config.json",
    )


def config_as_dict(parts: Parts) -> Files | None:
    """The config read by the program, given as a dict."""
    return _with_config(parts, "config", "import json\n", "with open('ds_config.json') as file:\n    config = json.load(file)\n", "")


def config_in_recipe(parts: Parts) -> Files | None:
    """The config's path in a YAML recipe, read with OmegaConf."""
    files = _with_config(parts, "cfg.train.deepspeed", "from omegaconf import OmegaConf\n", "cfg = OmegaConf.load('recipe.yaml')\n", "")
    return None if files is None else files | {"recipe.yaml": "name: run\ntrain:\n  epochs: 3\n  deepspeed: ds_config.json\n"}


def config_by_hydra(parts: Parts) -> Files | None:
    """The config's path in the YAML of a Hydra program."""
    files = _with_config(parts, "cfg.train.deepspeed", "", "", "")
    if files is None:
        return None
    changed = parts_of(files[PROGRAM])
    if changed is None:
        return None
    main = "@hydra.main(version_base=None, config_path='conf', config_name='run')\ndef main(cfg):\n" + indented(changed.statements)
    return {
        PROGRAM: "import hydra\n" + unparsed(changed.imports, changed.definitions) + main + _STARTED,
        "run.sh": "deepspeed --no_local_rank train.py\n",
        "conf/run.yaml": "name: run\ntrain:\n  epochs: 3\n  deepspeed: ds_config.json\n",
    }


def _with_config(parts: Parts, value: str, imports: str, before: str, flags: str) -> Files | None:
    if {"args", "config", "cfg", "parser", "file"} & (stored(parts.statements) | loaded(parts.statements)):
        return None
    text = unparsed(parts.statements)
    written = repr(CONFIG)
    if written not in text:
        return None
    changed = imports + unparsed(parts.imports, parts.definitions) + before + text.replace(written, value)
    return {PROGRAM: changed, "run.sh": f"deepspeed train.py{flags}\n"}


def arguments_in_flags(parts: Parts) -> Files | None:
    """The Trainer's arguments out of the flags of the launch."""
    flags: list[str] = []

    class Flags(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            self.generic_visit(node)
            name = ast.unparse(node.func)
            if not name.endswith("TrainingArguments") or flags:
                return node
            for word, written in zip(("output_dir",), node.args, strict=False):
                node.keywords.insert(0, ast.keyword(word, written))
            values = [(word.arg, str(word.value.value)) for word in node.keywords if isinstance(word.value, ast.Constant)]
            if len(values) != len(node.keywords) or any(value == "None" for _, value in values):
                return node
            flags.extend(f"--{arg} {value}" for arg, value in values)
            return ast.parse(f"HfArgumentParser({name}).parse_args_into_dataclasses()[0]", mode="eval").body

    body = [ast.fix_missing_locations(Flags().visit(statement)) for statement in ast.parse(unparsed(*parts)).body]
    if not flags:
        return None
    return {
        PROGRAM: "from transformers import HfArgumentParser\n" + unparsed(body),
        "run.sh": f"deepspeed train.py {' '.join(flags)}\n",
    }


def in_notebook_like_cells(parts: Parts) -> Files:
    """The cells of a notebook."""
    cells = [unparsed(parts.imports), unparsed(parts.definitions), *(unparsed([statement]) for statement in parts.statements)]
    written = [{"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None} for text in cells if text]
    return {"train.ipynb": json.dumps({"cells": written, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})}


def config_of_caller(parts: Parts) -> Files | None:
    """The config an argument of a function that nothing calls, and a launch."""
    files = _with_config(parts, "config", "", "", "")
    if files is None:
        return None
    changed = parts_of(files[PROGRAM])
    if changed is None:
        return None
    main = "def main(config):\n" + indented(changed.statements)
    return {PROGRAM: unparsed(changed.imports, changed.definitions) + main, "run.sh": "deepspeed start.py\n"}


def config_of_library(parts: Parts) -> Files | None:
    """The config made by a function that is not in the project."""
    return _with_config(parts, "config", "from company.recipes import load\n", "config = load('run7')\n", "")


def without_imports(parts: Parts) -> Files | None:
    """The program as people post a part of it: without its imports."""
    return {PROGRAM: unparsed(parts.definitions, parts.statements)} if parts.imports else None


def as_indented_body(parts: Parts) -> Files | None:
    """What is done, as the body of a function of which nothing else is posted, beside the rest."""
    if parts.definitions:
        return None
    return {PROGRAM: indented([*parts.imports, *parts.statements], 2)}


def posted_as_body(parts: Parts) -> Files | None:
    """What is done, without imports, as the body of a function of which nothing else is posted."""
    if parts.definitions or not parts.imports:
        return None
    return {PROGRAM: indented(parts.statements, 2)}


REWRITES: tuple[Callable[[Parts], Files | None], ...] = (
    in_main,
    in_recorded_main,
    in_package,
    definitions_elsewhere,
    tail_in_function,
    tail_in_module,
    head_in_function,
    in_class,
    tail_if_unknown,
    in_try,
    among_noise,
    in_both_branches,
    with_module_names,
    with_alias,
    with_words_in_dict,
    config_in_flag,
    config_as_dict,
    config_in_recipe,
    config_by_hydra,
    config_of_caller,
    config_of_library,
    arguments_in_flags,
    in_notebook_like_cells,
    without_imports,
    as_indented_body,
    posted_as_body,
)
