"""Questions about syntax trees that need no evaluation."""

from __future__ import annotations

import ast


def is_literal(node: ast.expr) -> bool:
    """Whether a value is written out in full, so that a fix can replace it."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return is_literal(node.operand)
    if isinstance(node, ast.BinOp):
        return is_literal(node.left) and is_literal(node.right)
    return isinstance(node, ast.Dict | ast.List | ast.Tuple)


def is_main(test: ast.expr) -> bool:
    """Whether a condition is `__name__ == "__main__"`."""
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def annotated_names(node: ast.ClassDef) -> list[str]:
    """The names with an annotation in the body of a class, in order."""
    return [one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]


def is_dataclass(node: ast.ClassDef) -> bool:
    """Whether a class is decorated as a dataclass."""
    names = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any((name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")) == "dataclass" for name in names)


def is_static(node: ast.AST) -> bool:
    """Whether a method is decorated as static."""
    return any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in getattr(node, "decorator_list", ()))
