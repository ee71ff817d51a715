"""Python programs: dict literals that are configs, the calls that receive them, and training arguments. Parsed, never executed."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dslint.setup.arguments import Arguments, SourcedValue, as_read, range_of
from dslint.setup.model import Program
from dslint.setup.training import ARGUMENTS, TRAINER
from dslint.source.tree import Comment, Document, Key, Mapping, Member, Node, Scalar, Sequence, Span
from dslint.source.unknown import UNKNOWN

CALLS: dict[str, tuple[str, tuple[str, ...], int | None]] = {
    "deepspeed.initialize": ("deepspeed", ("config", "config_params"), None),
    "DeepSpeedStrategy": ("lightning", ("config",), None),
    "DeepSpeedPlugin": ("accelerate", ("hf_ds_config",), 0),
    "HfDeepSpeedConfig": ("transformers", ("config_file_or_dict",), 0),
    "TrainingArguments": ("transformers", ("deepspeed",), None),
}
"""Calls that take a config: the name, its integration, the keywords, and the position among the arguments."""

LIGHTNING_TRAINER = ("precision", "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm")
"""The arguments of Lightning's Trainer that concern DeepSpeed."""

STRATEGY = frozenset(
    """
    zero_optimization stage offload_optimizer offload_parameters offload_params_device nvme_path params_buffer_count params_buffer_size
    max_in_cpu offload_optimizer_device optimizer_buffer_count block_size queue_depth single_submit overlap_events thread_count pin_memory
    sub_group_size contiguous_gradients overlap_comm allgather_partitions reduce_scatter allgather_bucket_size reduce_bucket_size
    zero_allow_untested_optimizer logging_batch_size_per_gpu partition_activations cpu_checkpointing contiguous_memory_optimization
    synchronize_checkpoint_boundary
    """.split()
)
"""The arguments from which Lightning's strategy builds a config if it is given none."""

_TRAINER_CLASSES = frozenset(
    """
    TrainingArguments Seq2SeqTrainingArguments SFTConfig DPOConfig GRPOConfig KTOConfig ORPOConfig RewardConfig CPOConfig PPOConfig
    """.split()
)

_LIGHTNING = ("lightning.", "pytorch_lightning.", "pl.")

_TORCH_OPTIMIZERS = frozenset("Adam AdamW SGD Adagrad Adadelta RMSprop NAdam RAdam Adamax Lion".split())


@dataclass(slots=True)
class Call:
    """A call that takes a config: the config if it is a literal in the file, otherwise its path; and the training arguments of the call."""

    integration: str
    given: SourcedValue
    config: Mapping | None = None
    arguments: Arguments | None = None


@dataclass(slots=True)
class PythonFile:
    """A program that was read. `calls` take a config; `loose` are arguments of the Trainer in a call without a config."""

    document: Document
    program: Program
    calls: list[Call] = field(default_factory=list)
    loose: Arguments | None = None


def read_python(text: str, shown: str) -> PythonFile | None:
    """Read a Python text; None if it cannot be parsed."""
    try:
        tree = ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _Reader(text, tree, shown).read()


class _Reader:
    def __init__(self, text: str, tree: ast.Module, shown: str) -> None:
        self.text = text
        self.tree = tree
        self.shown = shown
        self.document = Document(text, None, comments=list(_comments(text)), language="python")
        self.lines = _line_starts(text)
        self.names = _imported(tree)

    def read(self) -> PythonFile:
        calls: list[Call] = []
        loose: Arguments | None = None
        loaders: set[str] = set()
        legacy: SourcedValue | None = None
        optimizer: SourcedValue | None = None
        asked: dict[str, SourcedValue] = {}
        trainer: dict[str, SourcedValue] = {}
        strategy: tuple[SourcedValue, ...] = ()
        dummy = False
        scopes = list(_scopes(self.tree))
        for scope, node in ((where, node) for where in scopes for node in _own(where) if isinstance(node, ast.Call)):
            name = self._name(node.func)
            short = name.rpartition(".")[2]
            if short == "DummyOptim":
                dummy = True
            elif short in _TORCH_OPTIMIZERS and name.startswith(("torch.optim.", "transformers.")):
                optimizer = optimizer or self._given(short, node, UNKNOWN)
            elif short == "Accelerator" and name.startswith("accelerate"):
                loaders.add("accelerate")
                asked |= self._asked(node, "gradient_accumulation_steps")
            elif name.startswith(_LIGHTNING) and short == "Trainer":
                trainer |= {name: given for argument in LIGHTNING_TRAINER for name, given in self._asked(node, argument).items()}
            elif short in ("Trainer", "Seq2SeqTrainer", "SFTTrainer", "DPOTrainer", "GRPOTrainer"):
                loaders.add("transformers")
            key = "deepspeed.initialize" if name == "deepspeed.initialize" else "TrainingArguments" if short in _TRAINER_CLASSES else short
            if key not in CALLS:
                continue
            integration, keywords, index = CALLS[key]
            loaders.add(integration)
            arguments = self._arguments(node, short) if key == "TrainingArguments" else None
            taken = self._taken(node, keywords, index)
            if taken is None:
                loose = arguments or loose
                continue
            keyword, value = taken
            if keyword == "config_params":
                legacy = self._given("config_params", value, UNKNOWN)
            call = self._call(integration, keyword, value, scope, arguments)
            if call is not None:
                calls.append(call)
            if call is not None and key == "DeepSpeedStrategy":
                own = (keyword for keyword in node.keywords if keyword.arg in STRATEGY)
                strategy += tuple(self._given(str(one.arg), one.value, _literal(one.value), one.arg) for one in own)
        if "transformers" in loaders:
            loaders.discard("accelerate")
        loader = loaders.pop() if len(loaders) == 1 else None
        program = Program(self.shown, loader, dummy, optimizer, legacy, asked.get("gradient_accumulation_steps"), trainer, strategy)
        return PythonFile(self.document, program, calls, loose)

    # ------------------------------------------------------------------ calls

    def _name(self, node: ast.expr) -> str:
        """The full dotted name of the called function, as far as the imports tell."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ".".join(reversed(parts))
        return ".".join([self.names.get(node.id, node.id), *reversed(parts)])

    @staticmethod
    def _taken(node: ast.Call, keywords: tuple[str, ...], index: int | None) -> tuple[str, ast.expr] | None:
        for keyword in node.keywords:
            if keyword.arg in keywords:
                return str(keyword.arg), keyword.value
        if index is not None and index < len(node.args) and not isinstance(node.args[index], ast.Starred):
            return keywords[0], node.args[index]
        return None

    def _call(self, integration: str, keyword: str, value: ast.expr, scope: ast.AST, arguments: Arguments | None) -> Call | None:
        literal: ast.expr | None = value
        if isinstance(value, ast.Name):
            literal = self._assigned(value.id, scope)
        if isinstance(literal, ast.Dict):
            config = self._tree(literal)
            return Call(integration, self._given(keyword, value, UNKNOWN), config, arguments) if isinstance(config, Mapping) else None
        if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
            return Call(integration, self._given(keyword, value, literal.value), None, arguments)
        return None

    def _assigned(self, name: str, scope: ast.AST) -> ast.expr | None:
        """The literal assigned to a name: assigned once, in the scope or the module, and never modified."""
        for where in dict.fromkeys([scope, self.tree]):
            assigned = [value for target, value in _assignments(where) if target == name]
            if not assigned:
                continue
            return assigned[0] if len(assigned) == 1 and not _is_changed(self.tree, name) else None
        return None

    def _asked(self, node: ast.Call, name: str) -> dict[str, SourcedValue]:
        """A keyword argument of a call."""
        values = [keyword.value for keyword in node.keywords if keyword.arg == name]
        return {name: self._given(name, values[0], _literal(values[0]), name)} if values else {}

    def _arguments(self, node: ast.Call, name: str) -> Arguments:
        values: dict[str, SourcedValue] = {}
        for keyword in node.keywords:
            if keyword.arg in ARGUMENTS:
                value = _literal(keyword.value)
                values[keyword.arg] = self._given(keyword.arg, keyword.value, as_read(keyword.arg, value), keyword.arg)
        complete = all(keyword.arg is not None for keyword in node.keywords) and not node.args
        return Arguments(TRAINER, self.shown, values, sure=name in ("TrainingArguments", "Seq2SeqTrainingArguments"), complete=complete)

    def _given(self, name: str, node: ast.expr, value: Any, keyword: str | None = None) -> SourcedValue:
        span = self._span(node)
        raw = self.text[slice(*span)]
        begin = self.text.rfind(keyword, 0, span.start) if keyword else -1
        wide = Span(begin, span.end) if begin >= 0 and "\n" not in self.text[begin : span.start] else span
        return SourcedValue(value, name, raw if len(raw) <= 60 and "\n" not in raw else "...", self.shown, range_of(self.document, wide))

    # ------------------------------------------------------------------ literals

    def _span(self, node: ast.AST) -> Span:
        return Span(self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset))  # type: ignore[attr-defined]

    def _offset(self, line: int, column: int) -> int:
        """The code point at a line and a column in bytes."""
        start = self.lines[line - 1]
        end = self.lines[line] if line < len(self.lines) else len(self.text)
        return start + len(self.text[start:end].encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))

    def _tree(self, node: ast.expr) -> Node | None:
        """A literal as a tree; None for a dict built from parts. A computed value becomes a scalar of unknown value."""
        span = self._span(node)
        if isinstance(node, ast.Dict):
            members: list[Member] = []
            for key, value in zip(node.keys, node.values, strict=True):
                inner = self._tree(value)
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or inner is None:
                    return None
                at = self._span(key)
                inner.span = self._in_brackets(inner.span)
                members.append(Member(Key(at, key.value, self.text[slice(*at)]), inner))
            return Mapping(span, members)
        if isinstance(node, ast.List | ast.Tuple):
            items = [item for item in map(self._tree, node.elts) if item is not None]
            for item in items:
                item.span = self._in_brackets(item.span)
            return Sequence(span, items) if len(items) == len(node.elts) else None
        return Scalar(span, _literal(node), self.text[slice(*span)], "yaml")

    def _in_brackets(self, span: Span) -> Span:
        """The span of a value in a dict or list, with the parentheses around it."""
        start, end = span
        while True:
            before, after = self.text[:start].rstrip(), self.text[end:].lstrip()
            if not (before.endswith("(") and after.startswith(")")):
                return Span(start, end)
            start, end = len(before) - 1, len(self.text) - len(after) + 1


def _literal(node: ast.expr) -> Any:
    """The value of a constant or of plain arithmetic on constants; `UNKNOWN` for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str | int | float | bool) or node.value is None else UNKNOWN
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand)
        return -value if isinstance(value, int | float) else UNKNOWN
    if isinstance(node, ast.BinOp):
        left, right = _literal(node.left), _literal(node.right)
        if all(isinstance(value, int | float) and abs(value) < 1e15 for value in (left, right)):
            if isinstance(node.op, ast.Mult):
                return left * right
            if isinstance(node.op, ast.Pow) and abs(left) <= 10 and 0 <= right <= 15:
                return left**right
            if isinstance(node.op, ast.LShift) and isinstance(left, int) and isinstance(right, int) and 0 <= right < 50:
                return left << right
    return UNKNOWN


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, without those of nested functions."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.JoinedStr):
            waiting = [*ast.iter_child_nodes(node), *waiting]


def _assignments(scope: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    for node in _own(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
                elif isinstance(target, ast.Tuple | ast.List):
                    yield from ((name.id, None) for name in target.elts if isinstance(name, ast.Name))
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value if isinstance(node, ast.AnnAssign) else None


_CHANGING = frozenset("update pop setdefault clear popitem __setitem__".split())


def _is_changed(tree: ast.Module, name: str) -> bool:
    """Whether the program modifies a dict: assigns or deletes a key, or calls a method that changes it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del) and _root(node) == name:
            return True
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _CHANGING
            and _root(node.func.value) == name
        ):
            return True
    return False


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _imported(tree: ast.Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return names


def _line_starts(text: str) -> list[int]:
    """Where lines start for Python: after LF, CRLF and CR, and nothing else."""
    starts = [0]
    for index, character in enumerate(text):
        if character == "\n" or (character == "\r" and text[index + 1 : index + 2] != "\n"):
            starts.append(index + 1)
    return starts


def _comments(text: str) -> Iterator[Comment]:
    starts = _line_starts(text)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                start = starts[token.start[0] - 1] + token.start[1]
                yield Comment(Span(start, start + len(token.string)), token.string)
    except (tokenize.TokenError, SyntaxError, IndentationError, IndexError):
        return
