"""Which weights of a trained model a loop of the program sets."""

from __future__ import annotations

import ast

from dslint.config import Config
from dslint.job.events import ENGINE, Event
from dslint.record import Record
from dslint.rules.helpers.data_flow import names_set
from dslint.rules.helpers.syntax import statements_around, tree_of


class SetWeights(Record):
    """Which weights of the trained model a statement of its file is about."""

    tree: ast.Module
    path: str
    names: tuple[str, ...]
    """The model and the engine as the program writes them."""

    @classmethod
    def of(cls, config: Config, maker: Event) -> SetWeights | None:
        """The weights by the file that makes the engine; None if it cannot be read."""
        tree = tree_of(config, maker.at.path)
        if tree is None or maker.at.range is None:
            return None
        engine = names_set(tree, maker.at.range.start.line)[:1]
        model = maker.argument("model", 1 if maker.name == ENGINE else 0)
        given = [model.raw] if model is not None else []
        return cls(tree, maker.at.path, tuple(sorted({*given, *engine}, key=len, reverse=True)))

    def set_in(self, event: Event) -> tuple[str, ...] | None:
        """The part of the model whose weights a loop sets, and the conditions on a weight in it; None for those of something else."""
        around = statements_around(self.tree, event) if event.at.path == self.path else []
        loops = [node for node in around if isinstance(node, ast.For)]
        if not loops or not isinstance(loops[-1].iter, ast.Call) or not isinstance(loops[-1].iter.func, ast.Attribute):
            return None
        loop, called = loops[-1], loops[-1].iter.func
        if called.attr not in ("parameters", "named_parameters"):
            return None
        part = self._part(ast.unparse(called.value))
        inside = [ast.unparse(node.test) for node in around if isinstance(node, ast.If) and node.lineno > loop.lineno]
        return (part, *inside) if part is not None else None

    def _part(self, written: str) -> str | None:
        """A part of the model without the name of the model: `encoder` of `engine.module.encoder`."""
        for name in self.names:
            for prefix in (f"{name}.module", name):
                if written == prefix or written.startswith((f"{prefix}.", f"{prefix}[")):
                    return written[len(prefix) :].removeprefix(".")
        return None
