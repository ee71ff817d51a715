"""Write dslint/diagnose/refusals.json: which arguments decide the errors that frameworks raise about them.

    python scripts/refusal_table.py CLONES --wheels FOLDER [--only NAME ...]

CLONES and FOLDER are those of `known_arguments.py`, with clones of GPT-NeoX and Megatron-DeepSpeed besides. The sources are read and never
run. Of each `raise` and `assert` the table has the first words of its message, its file and function, and under which conditions on
arguments it is reached: those of the statements around it, and of those before it that leave the function. An error that no argument
decides is left out.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.known_arguments import LIBRARIES, Clone, Library, Source, Tag, order, releases  # noqa: E402 - of this repository

TARGET = ROOT / "dslint" / "diagnose" / "refusals.json"
ARGUMENTS = ROOT / "dslint" / "diagnose" / "known_arguments.json"
GENERATED = ROOT / "dslint" / "frameworks" / "_generated"

WORDS = 8
"""The most words of a message that are kept: its beginning identifies it."""


class Read(NamedTuple):
    """What is read of a library: the files, the names of the objects that hold arguments, and the releases, or the branches if it has none.

    `tables` are those of `_generated` with the names of arguments; without any, each attribute of such an object is one.
    """

    files: str
    holders: str
    releases: tuple[str, ...]
    tables: tuple[str, ...] = ()


_ARGS = r"(?:\w+_)?(?:args|config|cfg)|self|data"

READ = {
    "LLaMA-Factory": Read(
        r"src/(?:llmtuner|llamafactory)/(?:hparams|train|model|data|extras)/.*\.py",
        _ARGS,
        ("0.3.3", "0.5.3", "0.6.3", "0.7.1", "0.8.3", "0.9.1", "0.9.3", "0.9.5"),
        ("llama_factory", "huggingface"),
    ),
    "ms-swift": Read(
        r"swift/(?:arguments|llm/argument|llm/utils/argument|llm/train|pipelines/train|trainers|rlhf_trainers|tuners|utils)\b.*\.py",
        _ARGS,
        ("2.6.1", "3.0.3", "3.5.3", "3.9.3", "3.12.0", "4.0.0", "4.5.2"),
        ("ms_swift", "huggingface"),
    ),
    "axolotl": Read(
        r"src/axolotl/(?:utils/(?:schemas|config)|core|loaders|utils)/.*\.py",
        _ARGS,
        ("0.4.0", "0.5.2", "0.7.1", "0.9.2", "0.12.2", "0.16.1", "0.18.0"),
        ("axolotl", "huggingface"),
    ),
    "trl": Read(
        r"trl/(?:trainer|experimental|models|scripts)/.*\.py",
        _ARGS,
        ("0.7.11", "0.9.6", "0.12.2", "0.15.2", "0.18.2", "0.22.2", "0.25.1", "1.0.0", "1.9.0"),
        ("trl", "huggingface"),
    ),
    "transformers": Read(
        r"transformers/(?:training_args|trainer|trainer_utils|trainer_seq2seq|integrations/deepspeed|deepspeed|modeling_utils)\.py",
        _ARGS,
        ("4.30.2", "4.37.2", "4.45.2", "4.51.3", "4.57.6", "5.18.0"),
        ("huggingface",),
    ),
    "accelerate": Read(
        r"src/accelerate/(?:accelerator|state|launchers|commands/launch|utils/(?:dataclasses|launch|deepspeed|other))\.py",
        r"(?:\w+_)?(?:args|config|plugin)|self",
        ("0.20.3", "0.27.2", "0.34.2", "1.6.0", "1.14.0"),
    ),
    "peft": Read(
        r"src/peft/(?:config|mapping(?:_func)?|peft_model|tuners/(?:lora/\w+|tuners_utils)|utils/other)\.py",
        r"\w*config|self",
        ("0.5.0", "0.10.0", "0.14.0", "0.20.0"),
    ),
    "lightning": Read(
        r"(?:src/)?(?:pytorch_lightning|lightning/(?:pytorch|fabric))/(?:strategies/deepspeed|plugins/precision/deepspeed|trainer/\w+|trainer/connectors/\w+|connector|fabric)\.py",
        r"self|trainer",
        ("1.9.5", "2.1.4", "2.6.5"),
        ("lightning",),
    ),
    "OpenRLHF": Read(r"openrlhf/.*\.py", r"args|self|strategy", ("0.3.8", "0.5.9", "0.7.5", "0.9.10", "0.11.0")),
    "Megatron-DeepSpeed": Read(r"megatron/(?:arguments|initialize|training|checkpointing)\.py", "args", ("HEAD",)),
    "GPT-NeoX": Read(
        r"megatron/(?:neox_arguments/\w+|training|initialize|utils|data/data_utils)\.py", r"self|neox_args|args", ("v2.0", "HEAD")
    ),
}
CLONES = {"GPT-NeoX": "gpt-neox", "Megatron-DeepSpeed": "Megatron-DeepSpeed"}

ZERO_3 = re.compile(r"zero3|zero_3|zero_stage\s*==\s*3|is_deepspeed_zero3_enabled|\[.zero_optimization.\]\[.stage.\] == 3")
DEEPSPEED = re.compile(r"(?i)is_deepspeed_enabled|DistributedType\.DEEPSPEED|deepspeed_plugin|hf_deepspeed_config|is_deepspeed\b")
FSDP = re.compile(r"fsdp", re.IGNORECASE)

Condition = list[Any]
"""A condition: an argument, its relation ("set", "unset", "given", "missing", "is", "is not", "one of", "none of" or a sign) and values."""


class Row(NamedTuple):
    """An error that arguments decide."""

    words: str
    file: str
    function: str
    error: str
    conditions: tuple[str, ...]
    """Each condition as JSON, so that rows can be compared."""
    depends: tuple[str, ...]
    """Further arguments that conditions name which are not told."""
    whole: bool
    """Whether all conditions are told."""


class Test(NamedTuple):
    """A test that decides whether a statement is reached, and its value there. Of one that is `minor`, such as one of a branch before, only
    what is simple is told.
    """

    expression: ast.expr
    positive: bool = True
    minor: bool = False


class Reader:
    """Reads the refusals of a module."""

    def __init__(self, path: str, holders: str, names: frozenset[str]) -> None:
        self.path, self.names = path, names
        self.holders = re.compile(holders)

    def rows(self, tree: ast.Module) -> Iterator[Row]:
        """The errors that arguments decide."""
        yield from self._of_body(tree.body, "", [])

    def _of_body(self, body: list[ast.stmt], function: str, tests: list[Test]) -> Iterator[Row]:
        tests = list(tests)
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                yield from self._of_body(statement.body, function, [])
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._of_body(statement.body, statement.name, [])
            elif isinstance(statement, ast.If):
                yield from self._of_body(statement.body, function, [*tests, Test(statement.test)])
                yield from self._of_body(statement.orelse, function, [*tests, Test(statement.test, positive=False, minor=True)])
                if isinstance(statement.body[-1], ast.Return | ast.Continue):
                    tests.append(Test(statement.test, positive=False, minor=True))
            elif isinstance(statement, ast.Assert):
                yield from self._row(function, "AssertionError", statement.msg, [*tests, Test(statement.test, positive=False)])
            elif isinstance(statement, ast.Raise) and isinstance(statement.exc, ast.Call):
                error = ast.unparse(statement.exc.func).rpartition(".")[2]
                yield from self._row(function, error, statement.exc.args[0] if statement.exc.args else None, tests)
            else:
                for field in ("body", "orelse", "finalbody"):
                    yield from self._of_body(getattr(statement, field, []), function, tests)
                for handler in getattr(statement, "handlers", []):
                    yield from self._of_body(handler.body, function, [*tests, Test(ast.Constant("an exception"))])

    def _row(self, function: str, error: str, message: ast.expr | None, tests: list[Test]) -> Iterator[Row]:
        told: list[Condition] = []
        depends: list[str] = []
        whole = True
        decisive = any(self._conditions(test.expression, positive=test.positive)[0] for test in tests if not test.minor)
        for test in tests:
            found, complete = self._conditions(test.expression, positive=test.positive)
            if test.minor and decisive:  # that other branches were not taken says little
                found = [one for one in found if one[1] not in ("is not", "none of", "unset", "missing")]
            if complete or not test.minor:
                told += [one for one in found if one not in told]
            if not complete:
                whole = False
                depends += [name for name in self._arguments_in(test.expression) if name not in depends and not test.minor]
        named = {one[0] for one in told}
        if any(name in self.names or not self.names for name in named | set(depends) if name not in SITUATIONS):
            words = beginning(message) if message is not None else ""
            conditions = tuple(json.dumps(one) for one in told)
            if words or (whole and not self.names):
                further = tuple(dict.fromkeys(name for name in depends if name not in named))
                yield Row(words, self.path, function, error, conditions, further, whole)

    def _conditions(self, test: ast.expr, *, positive: bool) -> tuple[list[Condition], bool]:
        """The conditions that all hold where a test has a value, and whether these are all."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._conditions(test.operand, positive=not positive)
        if isinstance(test, ast.BoolOp):
            if isinstance(test.op, ast.And) is positive:
                parts = [self._conditions(one, positive=positive) for one in test.values]
                return [one for found, _ in parts for one in found], all(complete for _, complete in parts)
            return [], False
        if (situation := _situation(test)) is not None:
            return [[situation, "set" if positive else "unset"]], True
        name = self._argument(test)
        if name is not None:
            return [[name, "set" if positive else "unset"]], True
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._of_comparison(test, positive=positive)
        return [], False

    def _of_comparison(self, test: ast.Compare, *, positive: bool) -> tuple[list[Condition], bool]:
        name, operator, right = self._argument(test.left), test.ops[0], test.comparators[0]
        if name is None:
            return [], False
        if isinstance(right, ast.Constant) and isinstance(operator, ast.Is | ast.IsNot) and right.value is None:
            return [[name, "missing" if isinstance(operator, ast.Is) is positive else "given"]], True
        values = _values(right)
        if values is not None and isinstance(operator, ast.Eq | ast.NotEq) and len(values) == 1:
            return [[name, "is" if isinstance(operator, ast.Eq) is positive else "is not", *values]], True
        if values is not None and isinstance(operator, ast.In | ast.NotIn):
            return [[name, "one of" if isinstance(operator, ast.In) is positive else "none of", *values]], True
        sign = _SIGNS.get(type(operator))
        other = self._argument(right)
        if sign is not None and (other is not None or values is not None):
            sign = sign if positive else _OPPOSITE[sign]
            return [[name, sign, *([other] if other is not None else values or [])]], True
        return [], False

    def _argument(self, node: ast.expr) -> str | None:
        """The argument that an expression reads."""
        name = holder = None
        if isinstance(node, ast.Attribute):
            name, holder = node.attr, node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            name, holder = getattr(node.args[0], "value", None), node.func.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
            name, holder = getattr(node.args[1], "value", None), node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            name, holder = node.slice.value, node.value
        if not isinstance(name, str) or holder is None or not re.fullmatch(r"[a-z]\w*", name):
            return None
        said = ast.unparse(holder).rpartition(".")[2]
        if not self.holders.fullmatch(said) or (self.names and name not in self.names):
            return None
        return name

    def _arguments_in(self, test: ast.expr) -> Iterator[str]:
        for node in ast.walk(test):
            if isinstance(node, ast.expr) and (name := self._argument(node)) is not None:
                yield name


SITUATIONS = frozenset({"ZeRO stage 3", "DeepSpeed", "FSDP"})
"""What stands in the place of an argument for a function or an attribute that tells it."""

_SIGNS: dict[type, str] = {ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!="}
_OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "==": "!=", "!=": "=="}


def _situation(test: ast.expr) -> str | None:
    """What a test asks of the job that no single argument tells."""
    if not isinstance(test, ast.Call | ast.Attribute | ast.Name | ast.Compare):
        return None
    said = ast.unparse(test)
    if "!=" in said or " not " in said or " is None" in said:
        return None
    if ZERO_3.search(said):
        return "ZeRO stage 3"
    if isinstance(test, ast.Attribute) and test.attr == "deepspeed":
        return None  # the argument itself
    return "DeepSpeed" if DEEPSPEED.search(said) else "FSDP" if FSDP.search(said) and isinstance(test, ast.Call | ast.Compare) else None


def _values(node: ast.expr) -> list[Any] | None:
    """The constants that an expression is compared with."""
    nodes = node.elts if isinstance(node, ast.List | ast.Tuple | ast.Set) else [node]
    values = []
    for one in nodes:
        if isinstance(one, ast.Attribute) and re.fullmatch(r"[A-Z][A-Z0-9_]*", one.attr):  # of an enumeration
            values.append(one.attr.lower())
        elif isinstance(one, ast.Constant) and isinstance(one.value, str | int | float | bool | None):
            values.append(one.value)
        elif isinstance(one, ast.UnaryOp) and isinstance(one.operand, ast.Constant) and isinstance(one.op, ast.USub):
            values.append(-one.operand.value)
        else:
            return None
    return values if values and len(values) <= 8 else None


def beginning(message: ast.expr) -> str:
    """The first words of a message, with {} for the values that it names."""
    text = _template(message)
    words = text.split()
    kept = words[:WORDS]
    return " ".join(kept[:-1] if kept and kept[-1] == "{}" else kept)


def _template(node: ast.expr) -> str:
    """A message with {} for the values that it names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _template(node.left) + _template(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return re.sub(r"%[sdr]", "{}", _template(node.left))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return re.sub(r"\{[^{}]*\}", "{}", _template(node.func.value))
    return "{}"


VAGUE = frozenset(
    {"model", "optimizer", "trainer", "config", "args", "data", "path", "name", "state", "function", "key", "value", "dataset", "inputs"}
)
"""Names that functions give to values that are not settings."""


def parameters_in(tree: ast.Module) -> Iterator[str]:
    """The parameters of the functions of a module, and the fields of its classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            yield from (name.lstrip("-").replace("-", "_") for name in names if name.startswith("--"))


def names_of(library: str, read: Read) -> frozenset[str]:
    """The names of arguments, empty if tables have none for the library."""
    found: set[str] = set()
    for table in read.tables:
        data = json.loads((GENERATED / f"{table}.json").read_text(encoding="utf-8"))
        found |= set(data["accepted"].split()) | {name for older in data["older"].values() for name in older.get("more", "").split()}
    known = json.loads(ARGUMENTS.read_text(encoding="utf-8"))
    own = [library, "transformers"] if read.tables else []
    for thing in (thing for name in own if name in known for thing in known[name]["things"].values()):
        found |= {*thing["always"].split(), *thing["changed"]}
    return frozenset(found)


def sources(library: str, read: Read, clones: Path, wheels: Path | None) -> Iterator[Source]:
    """The releases to read."""
    if library in CLONES:
        opened = Clone(clones / CLONES[library])
        for name in read.releases:
            yield Tag(opened, name)
        return
    known: Library = LIBRARIES[library]
    wanted = {order(release) for release in read.releases}
    for release, source in releases(known, library, clones, wheels):
        if order(release) in wanted:
            yield source


def table(library: str, read: Read, clones: Path, wheels: Path | None) -> list[Row]:
    """The refusals of a library, each once."""
    known = names_of(library, read)
    found: dict[Row, None] = {}
    for source in sources(library, read, clones, wheels):
        trees = dict(_parsed(source, read.files))
        names = known or frozenset(name for tree in trees.values() for name in parameters_in(tree)) - VAGUE
        if library in CLONES:
            names = frozenset()
        for path, tree in trees.items():
            short = "/".join(path.split("/")[-2:])
            found.update(dict.fromkeys(Reader(short, read.holders, names).rows(tree)))
    return list(found)


def _parsed(source: Source, files: str) -> Iterator[tuple[str, ast.Module]]:
    for path in source.paths():
        if re.fullmatch(files, path) and "/test" not in path:
            with (
                warnings.catch_warnings(action="ignore", category=SyntaxWarning),
                contextlib.suppress(SyntaxError),
            ):  # one was published with it
                yield path, ast.parse(source.read(path))


def main() -> None:
    """Write the refusals of all libraries that can be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--only", nargs="+", default=list(READ), choices=list(READ), help="the libraries to read")
    options = parser.parse_args()
    written = json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.exists() else {}
    for name in options.only:
        rows = table(name, READ[name], options.clones, options.wheels)
        written[name] = [_listed(row) for row in sorted(rows)]
    TARGET.write_text(text(written), encoding="utf-8")


def _listed(row: Row) -> list[Any]:
    conditions = [json.loads(one) for one in row.conditions]
    return [row.words, f"{row.file}:{row.function}", row.error, conditions, list(row.depends), row.whole]


def text(tables: dict[str, list[Any]]) -> str:
    """The tables as JSON, with a line for each row."""
    parts = []
    for name, rows in sorted(tables.items()):
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
        parts.append(f" {json.dumps(name)}: [\n{lines}\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
