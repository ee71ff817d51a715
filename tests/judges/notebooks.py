"""nbconvert judges what is read of notebooks: the Python of the cells, the commands of their shells, and the files that they write."""

from __future__ import annotations

import ast
import json
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from dslint.evaluate.python.cells import as_python, cells_of, shell_of
from tests.judges.table import Row

RECORDED = Path(__file__).parent / "notebooks.json"

_SHELL = (
    "deepspeed train.py --deepspeed ds.json",
    "deepspeed --num_gpus {gpus} train.py \\\n    --lr 1e-4",
    "pip install -q deepspeed",
    "ls -l | head",
)
_STATEMENTS = (
    "gpus = 2",
    "config = {'train_batch_size': 8 % 5, 'zero_optimization': {'stage': 2}}",
    "import json",
    "print(f'{gpus}!')  # ! not a command",
    "text = '''\n!deepspeed in_text.py\n%cd nowhere\n'''",
    "total = (1 +\n    2)",
    "rate = gpus \\\n    % 3",
    "with open('ds.json', 'w') as stream:\n    json.dump(config, stream)",
    "def f(x):\n    return x % 2",
    "def run(name):\n    !deepspeed {name}\n    return name",
    "if gpus > 1:\n    !deepspeed a.py\nelse:\n    !python a.py",
    "for one in range(2):\n    %time f(one)\n    print(one)",
    "# only a comment",
)
_LINES = (
    "%load_ext autoreload",
    "%matplotlib inline",
    "%env MASTER_PORT=29500",
    "%pip install accelerate",
    "%cd project",
    "files = !ls *.json",
    "home = %env HOME",
    "json?",
    "?json",
    "!!ls",
    "%time config = dict(config)",
)
_CELLS = (
    "%%bash\ndeepspeed train.py\n",
    "%%sh\nexport A=1\ndeepspeed b.py --x $A",
    '%%writefile ds.json\n{"train_batch_size": 4}\n',
    "%%writefile -a run.sh\ndeepspeed c.py",
    "%%html\n<b>deepspeed d.py</b>",
    "%%time\n{inner}",
    "%%capture out\n{inner}",
    "\n\n%%bash\ndeepspeed e.py",
)


def missing() -> str:
    """Why nbconvert cannot be asked here; "" if it can."""
    return "" if find_spec("nbconvert") is not None and find_spec("IPython") is not None else "no nbconvert"


def case(seed: int) -> str:
    """The notebook of a seed, as text."""
    rng = Random(f"notebooks {seed}")
    cells: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, 5)):
        kind = rng.random()
        if kind < 0.12:
            cells.append(
                {
                    "cell_type": "markdown",
                    "metadata": {},
                    "source": rng.choice(["# Title", "Then run `!deepspeed x.py`.", "!deepspeed y.py"]),
                }
            )
            continue
        text = _python_cell(rng)
        if kind < 0.35:
            text = rng.choice(_CELLS).replace("{inner}", text)
        source: str | list[str] = text if rng.random() < 0.4 else text.splitlines(keepends=True)
        cells.append({"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source})
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, indent=1)


def _python_cell(rng: Random) -> str:
    lines: list[str] = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.6:
            lines.append(rng.choice(_STATEMENTS))
        elif kind < 0.85:
            lines.append("!" + rng.choice(("", " ")) + rng.choice(_SHELL))
        else:
            lines.append(rng.choice(_LINES))
        if rng.random() < 0.2:
            lines.append("")
    return "\n".join(lines) + rng.choice(("", "\n"))


def answer(text: str) -> list[str]:
    """The script that nbconvert makes of each code cell."""
    from IPython.core.inputtransformer2 import TransformerManager
    from nbconvert.exporters import PythonExporter
    from nbformat import reads

    found = []
    notebook = reads(text, as_version=4)
    for cell in list(notebook.cells):
        if cell.cell_type == "code":
            notebook.cells = [cell]
            script, _ = PythonExporter(exclude_input_prompt=True).from_notebook_node(notebook)
            found.append(_with_inner(script, TransformerManager()))
    return found


def _with_inner(script: str, manager: Any) -> str:
    """A script in which the body of `%%time` and `%%capture`, which is Python, stands in the place of the call."""
    tree = ast.parse(script)
    call = tree.body[0].value if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr) else None
    magic = _magic(call) if call is not None else None
    if magic is not None and magic[0] == "run_cell_magic" and magic[1][0] in ("time", "capture"):
        return str(manager.transform_cell(magic[1][2]))
    return script


def _magic(node: ast.AST) -> tuple[str, list[str]] | None:
    """The method and the arguments of a call of `get_ipython()`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    of = node.func.value
    if not (isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "get_ipython"):
        return None
    return node.func.attr, [str(one.value) for one in node.args if isinstance(one, ast.Constant)]


def _of_script(script: str) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """The statements of a script without its magics, the commands for a shell, and the files."""
    tree = ast.parse(script)
    shell, files = [], []
    for node in ast.walk(tree):
        called = _magic(node)
        if called is None:
            continue
        name, arguments = called
        if name in ("system", "getoutput"):
            shell.append(arguments[0])
        elif name == "run_cell_magic" and arguments[0] in ("bash", "sh"):
            shell.append(arguments[2])
        elif name == "run_cell_magic" and arguments[0] == "writefile":
            files.append((arguments[1].removeprefix("-a ").strip(), arguments[2].rstrip("\n")))
    return _statements(tree), sorted(map(_plain, shell)), files


def _of_cell(cell: str) -> tuple[list[str], list[str], list[tuple[str, str]]] | None:
    """The same of what dslint reads of a cell; None if its Python cannot be parsed."""
    try:
        tree = ast.parse(as_python(cell))
    except SyntaxError:
        return None
    parts = list(shell_of(cell))
    shell = [cell[one.start : one.end] for one in parts if one.name is None]
    return (
        _statements(tree),
        sorted(map(_plain, shell)),
        [(one.name, cell[one.start : one.end].rstrip("\n")) for one in parts if one.name is not None],
    )


def _plain(command: str) -> str:
    return " ".join(command.replace("\\\n", " ").split())


def _statements(tree: ast.Module) -> list[str]:
    """The statements that have an effect, with what a magic gives as an unknown value."""
    return [ast.dump(_Without().visit(one)) for one in tree.body if not _is_nothing(one)]


def _is_nothing(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(node, ast.Pass) or isinstance(value, ast.Constant) or (value is not None and _magic(value) is not None)


class _Without(ast.NodeTransformer):
    """Takes magics out of a tree: a block keeps `pass`, a value becomes `...`."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if _is_nothing(node) else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(...) if node.id == "_" else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return ast.Constant(...) if _magic(node) is not None else self.generic_visit(node)


def compare(text: str, scripts: list[str]) -> tuple[int, int, list[str]]:
    """How many cells there are, how many are read, and what is wrong."""
    cells = [cell for cell in cells_of(text) or () if cell.is_code]
    read, wrong = 0, []
    for cell, script in zip(cells, scripts, strict=True):
        said, real = _of_cell(cell.text), _of_script(script)
        read += said is not None
        if said is not None and said != real:
            wrong.append(f"{cell.text!r}: {[one for one in zip(said, real, strict=True) if one[0] != one[1]]}")
    return len(cells), read, wrong


def ask(count: int, seed: int) -> Row:
    """Compare the notebooks of `count` seeds with nbconvert."""
    found = read = 0
    wrong: list[tuple[int, str]] = []
    for number in range(seed, seed + count):
        cells, known, bad = compare(case(number), answer(case(number)))
        found, read = found + cells, read + known
        wrong += [(number, text) for text in bad]
    return Row("notebooks", count, "cells", found, read, wrong)


def record(count: int, seed: int) -> str:
    """Write the answers to the notebooks of `count` seeds."""
    made = {number: answer(case(number)) for number in range(seed, seed + count)}
    RECORDED.write_text(json.dumps(made, separators=(",", ":")) + "\n", encoding="utf-8")
    return f"{count} notebooks recorded"
