"""Values as text to insert, in the language of a file: JSON, YAML or Python, with placeholders or without."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from dslint.record import Record
from dslint.schemas.snippets import without_placeholders
from dslint.server.keys import KnownKey

_WORDS = {True: "True", False: "False", None: "None"}


class Writer(Record):
    """How a file is written: `language` is "json", "yaml" or "python"; `has_snippets` says whether the editor knows placeholders."""

    language: str = "json"
    has_snippets: bool = True

    def member(self, name: str, value: str) -> str:
        """A member with its value."""
        return f"{self.key(name)}: {value}"

    def key(self, name: str) -> str:
        """The name of a member."""
        return name if self.language == "yaml" else json.dumps(name)

    def value(self, value: Any) -> str:
        """A plain value as one line."""
        if self.language == "python" and isinstance(value, bool | None):
            return _WORDS[value]
        if self.language == "yaml" and isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value) and value not in _YAML_WORDS:
            return value
        return json.dumps(value)

    def body(self, body: Any, indent: str = "  ") -> str:
        """The value of a snippet, in as many lines as it has members. In YAML, `indent` is that of its lines."""
        if self.language == "yaml":
            return _yaml(body, indent, self._scalar)
        return _braces(body, "", self._scalar)

    def members(self, body: dict[str, Any]) -> str:
        """The members of a snippet without braces around them."""
        if self.language == "yaml":
            return _yaml(body, "", self._scalar).lstrip("\n")
        return ",\n".join(self.member(name, _braces(value, "", self._scalar)) for name, value in body.items())

    def _scalar(self, value: Any) -> str:
        if not isinstance(value, str):
            return self.value(value)
        text = value if self.has_snippets else without_placeholders(value)
        if text.startswith("^"):
            return text[1:].replace("true", "True").replace("false", "False") if self.language == "python" else text[1:]
        return f'"{text}"' if "$" in text else self.value(text)

    def blank(self, key: KnownKey) -> str:
        """A value to fill in for a key: its default, its choices, or the right kind of brackets."""
        if "object" in key.kinds:
            inner = "$1" if self.has_snippets else ""
            return "\n  " + inner if self.language == "yaml" else "{" + inner + "}"
        words = [self.value(choice.value) for choice in key.choices if choice.value != "auto" and choice.value is not None]
        default = self.value(key.default) if key.default is not None else words[0] if words else ""
        if not self.has_snippets:
            return default
        if len(words) > 1:
            ordered = [default, *(word for word in words if word != default)]
            return "${1|" + ",".join(re.sub(r"([\\,|])", r"\\\1", word) for word in ordered) + "|}"
        if not default:
            return '"$1"' if "string" in key.kinds and self.language != "yaml" else "$1"
        return "${1:" + re.sub(r"([\\$}])", r"\\\1", default) + "}"


_YAML_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def _braces(value: Any, indent: str, scalar: Callable[[Any], str]) -> str:
    if isinstance(value, dict):
        inner = ",\n".join(f"{indent}  {json.dumps(name)}: {_braces(entry, indent + '  ', scalar)}" for name, entry in value.items())
        return f"{{\n{inner}\n{indent}}}"
    return "[" + ", ".join(map(scalar, value)) + "]" if isinstance(value, list) else scalar(value)


def _yaml(value: Any, indent: str, scalar: Callable[[Any], str]) -> str:
    if not isinstance(value, dict):
        return "[" + ", ".join(map(scalar, value)) + "]" if isinstance(value, list) else scalar(value)
    lines = []
    for name, entry in value.items():
        inner = _yaml(entry, indent + "  ", scalar)
        lines.append(f"\n{indent}{name}:{inner if isinstance(entry, dict) else ' ' + inner}")
    return "".join(lines)
