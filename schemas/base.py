"""The two ways in which DeepSpeed reads a section, as base classes of the models."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section of the config. The docstring of a subclass is its documentation: what it does, in terms of training."""

    model_config = ConfigDict(
        extra="forbid", populate_by_name=True, protected_namespaces=(), use_attribute_docstrings=True, validate_default=False
    )

    unknown_keys: ClassVar[str]
    """What DeepSpeed does with an unknown key: "raise" (while parsing) or "ignore"."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """The values that differ from DeepSpeed's defaults, for `repr`."""
        fields = type(self).model_fields
        return (
            (name, value)
            for name, value in super().__repr_args__()
            if name not in fields or value != fields[name].get_default(call_default_factory=True)
        )

    def _repr_html_(self) -> str:
        """The same as a table with dotted keys, for notebooks."""
        rows = "".join(f"<tr><td>{html.escape(key)}</td><td>{html.escape(value)}</td></tr>" for key, value in _in_dots(self, ""))
        return f"<table>{rows}</table>" if rows else "<p>DeepSpeed's defaults</p>"


def _in_dots(section: Section, above: str) -> Iterator[tuple[str, str]]:
    for name, value in section.__repr_args__():
        if isinstance(value, Section):
            yield from _in_dots(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", repr(value)


class PydanticSection(Section):
    """DeepSpeed parses the section with a pydantic model.

    Unknown keys raise a ValidationError, values are coerced as pydantic's lax mode does ("3" and 3.0 are 3, "off" is false),
    and keys with the value "auto" are dropped first, so that their defaults apply.
    """

    unknown_keys: ClassVar[str] = "raise"
    forbids_since: ClassVar[str] = "0.7.0"
    """The first release in which unknown keys raise; earlier ones read the section without a model. 0.7.0 is that of ZeRO's models."""
    drops_auto_since: ClassVar[str] = "0.9.0"
    """The first release in which an "auto" is dropped; earlier ones read it as a value."""


class HandReadSection(Section):
    """DeepSpeed looks keys up in a plain dict: unknown ones are ignored, values are used as written, "auto" stays a string."""

    unknown_keys: ClassVar[str] = "ignore"


class Parameters(Section):
    """The keyword arguments of an optimizer or a schedule: an unknown argument raises a TypeError in `initialize`."""

    unknown_keys: ClassVar[str] = "raise"
