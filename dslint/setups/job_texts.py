"""The texts in job files: what AzureML and Kubernetes fill in before a shell reads them, and the variables that a job sets."""

from __future__ import annotations

import re
from collections.abc import Mapping as Table
from collections.abc import Sequence as Items

from dslint.evaluate.shell.pieces import ShellSource, Text, TextPiece
from dslint.source.tree import Mapping, Member, Node, Scalar, Sequence, Span

Filling = Table[str, "str | None"]
"""By what stands in a text: what the platform writes in its place, None where only the run knows it."""

_TOKENS = re.compile(r"\$\{\{.*?\}\}|\$\(\w+\)|\s+|(?:(?!\$\{\{|\$\(\w+\))\S)+")
"""Words, the blanks between them, the holes that AzureML fills in, and the variables that Kubernetes replaces."""


def text_of(node: Scalar, source: ShellSource, fills: Filling) -> Text:
    """The text of a YAML scalar with its places. `${{inputs.x}}` is unknown, unless it is filled."""
    value, text = str(node.value), source.document.text
    found: list[TextPiece] = []
    cursor = node.span.start
    for match in _TOKENS.finditer(value):
        word = _without_blanks(match[0])
        at = text.find(match[0], cursor, node.span.end)
        if match[0].isspace() or at < 0:  # YAML folds blanks, and writes some characters as escapes
            found.append(TextPiece(match[0], source, Span(cursor, cursor), exact=False))
            continue
        cursor = at + len(match[0])
        hole = word.startswith("${{") or word in fills
        found.append(TextPiece(fills.get(word) if hole else match[0], source, Span(at, cursor), exact=not hole))
    return tuple(found)


def _without_blanks(word: str) -> str:
    return re.sub(r"\s+", "", word) if word.startswith("${{") else word


def of_azure(around: Items[Mapping]) -> Filling:
    """The inputs of a job of AzureML that are values. Those of a component are the defaults, which a pipeline may replace.

    Args:
        around: the mapping of the job and those around it, the outermost first.
    """
    outer = {f"${{{{parent.{name[3:]}": value for node in around[:-1] for name, value in _inputs(node, {}).items()}
    return _inputs(around[-1], outer)


def _inputs(node: Mapping, outer: Filling) -> dict[str, str | None]:
    member = node.get("inputs")
    found: dict[str, str | None] = {}
    for one in member.value.members if member is not None and isinstance(member.value, Mapping) else ():
        written = one.value if isinstance(one.value, Scalar) else _default(one.value)
        value = written.value if written is not None else None
        text = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        if text is not None and "${{" in text:
            text = outer.get(_without_blanks(text))
        found[f"${{{{inputs.{one.key.value}}}}}"] = text
    return found


def _default(node: Node) -> Scalar | None:
    """The default of an input that is declared by its type."""
    member = node.get("default") if isinstance(node, Mapping) else None
    return member.value if member is not None and isinstance(member.value, Scalar) else None


def of_kubernetes(container: Mapping) -> Filling:
    """The variables of a container, which Kubernetes replaces in its command: `$(NAME)`, of the names that the container sets."""
    member = container.get("env")
    items = member.value.items if member is not None and isinstance(member.value, Sequence) else []
    names = [_text(item.get("name")) for item in items if isinstance(item, Mapping)]
    known = environment_of(container)
    return {f"$({name})": known.get(name) for name in names if name is not None}


def environment_of(node: Mapping) -> dict[str, str]:
    """The variables of a container (a list of names and values), of a job (a mapping), or of Determined (a list of texts)."""
    found: dict[str, str] = {}
    inner = node.get("environment")
    nodes = [node, *([inner.value] if inner is not None and isinstance(inner.value, Mapping) else [])]
    for member in [here.get(name) for here in nodes for name in ("env", "envs", "environment_variables")]:
        for item in member.value.items if member is not None and isinstance(member.value, Sequence) else ():
            if isinstance(item, Mapping):
                key, value = _text(item.get("name")), _text(item.get("value"))
            else:
                key, equals, value = str(item.value).partition("=") if isinstance(item, Scalar) else ("", "", "")
                key = key if equals else None
            if key and value is not None:
                found[key] = value
        for one in member.value.members if member is not None and isinstance(member.value, Mapping) else ():
            if (value := _text(one)) is not None:
                found[one.key.value] = value
    return found


def _text(member: Member | None) -> str | None:
    """The value of a key as a text; None if it is not written or null."""
    value = member.value.value if member is not None and isinstance(member.value, Scalar) else None
    return str(value) if value is not None else None
