"""Adds suppressions for existing findings: comments if the file format allows them, otherwise settings entries."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable

from dslint.diagnostics import Diagnostic
from dslint.facts import Integration
from dslint.lint.results import FileResult
from dslint.settings.sources import Layer, SettingsError, read_file
from dslint.source import toml
from dslint.source.tree import Document, Mapping, Node, Scalar, Sequence

Lint = Callable[[str], FileResult]
"""Lints a text as if it were the file."""

WITH_COMMENTS = (".hjson", ".jsonc", ".json5")
"""Extensions of file formats with comments."""


def takes_comments(found: FileResult) -> bool:
    """Whether comments may be added to a file: its format allows them or it has some, and no loader reads it as strict JSON."""
    document = found.document
    if document is None or document.problems:
        return False
    if document.language in ("yaml", "python"):
        return True
    welcome = found.path.endswith(WITH_COMMENTS) or bool(document.comments)
    return welcome and found.facts.integration in (None, Integration.DEEPSPEED)


def with_comments(text: str, found: FileResult, reason: str, lint: Lint) -> str:
    """The text with a comment for each line that has findings; unchanged if the comments would do more than suppress them.

    Args:
        text: the file's text.
        found: the result of linting it.
        reason: why the findings are suppressed.
        lint: lints a text with the file's settings.
    """
    document = found.document
    if document is None or not takes_comments(found):
        return text
    lines: dict[int, set[str]] = {}
    for diagnostic in found.diagnostics:
        if diagnostic.range is not None and diagnostic.name != "not-strict-json":  # each comment would add a finding
            lines.setdefault(diagnostic.range.start.line, set()).add(diagnostic.name)
    sign = "#" if document.language in ("yaml", "python") else "//"
    commented = text
    for line in sorted(lines, reverse=True):
        comment = f"{sign} dslint: ignore[{', '.join(sorted(lines[line]))}] {reason}"
        commented = _with_comment(commented, document, line, comment)
    left = {(d.code, d.pointer) for d in lint(commented).diagnostics}
    return commented if left < {(d.code, d.pointer) for d in found.diagnostics} else text


def _with_comment(text: str, document: Document, number: int, comment: str) -> str:
    """The text with a comment at the end of a line, or above it if the line's value would swallow the comment."""
    line = document.line(number)
    start = document.line_start(number)
    end = start + len(line)
    has_comment = any(start <= other.span.start < end or other.span.start <= start < other.span.end for other in document.comments)
    if not has_comment and not any(start < node.span.end <= end for node in _bare(document.root)):
        return f"{text[:end].rstrip(' ')}  {comment}{text[end:]}"
    indent = re.match(r"[ \t]*", line)
    newline = "\r\n" if "\r\n" in text else "\n"
    return f"{text[:start]}{indent[0] if indent else ''}{comment}{newline}{text[start:]}"


def _bare(node: Node | None) -> Iterable[Scalar]:
    """The unquoted strings, which extend to the end of their line."""
    if isinstance(node, Mapping):
        for member in node.members:
            yield from _bare(member.value)
    elif isinstance(node, Sequence):
        for item in node.items:
            yield from _bare(item)
    elif isinstance(node, Scalar) and node.style == "bare":
        yield node


def with_entries(layer: Layer | None, path: str, found: Iterable[Diagnostic], reason: str) -> str:
    """The text of a settings file with entries for findings.

    Args:
        layer: the settings file; None for a new one.
        path: its path.
        found: the findings.
        reason: why they are suppressed.

    Raises:
        SettingsError: the file has its ignores in a form that cannot be extended.
    """
    table = "tool.dslint.ignores" if os.path.basename(path) == "pyproject.toml" else "ignores"
    base = os.path.dirname(os.path.abspath(path))
    rules: dict[tuple[str, str], set[str]] = {}
    for diagnostic in found:
        file = os.path.relpath(os.path.abspath(diagnostic.path), base).replace(os.sep, "/")
        rules.setdefault((file, diagnostic.pointer or ""), set()).add(diagnostic.name)
    text = layer.text if layer else ""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines: list[str] = []
    for (file, pointer), names in rules.items():
        lines += [f"[[{table}]]", f"file = {_toml(_pattern(file))}"]
        lines += [f"pointer = {_toml(pointer)}"] if pointer else []
        lines += [f"rules = {_toml(sorted(names))}", f"reason = {_toml(reason)}", ""]
    if text and not text.endswith(("\n", "\r")):
        text += newline
    whole = text + (newline if text else "") + newline.join(lines)
    try:
        toml.loads(whole)
    except ValueError:
        raise SettingsError(f"{path}: cannot extend its inline list of ignores; write the entries as [[{table}]]") from None
    return whole


def _pattern(path: str) -> str:
    """The pattern of one file: relative to the settings file, with special characters escaped."""
    return "/" + re.sub(r"([*?\[\]!#\\ ])", r"\\\1", path)


def _toml(value: object) -> str:
    """A string or a list of strings as TOML."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def settings_file(layers: Iterable[Layer]) -> tuple[str, Layer | None]:
    """The settings file to add entries to: the active one, or a new one in the working directory."""
    for layer in layers:
        if layer.path is not None:
            return layer.path, read_file(layer.path)
    return "dslint.toml", None
