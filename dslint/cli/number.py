"""The type of options for a number of parameters or tokens."""

from __future__ import annotations

from typing import Any

import click

FEWEST = 1000
"""The fewest parameters of a model. With fewer the unit is missing: people write 8 for 8B."""


class Number(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """A number of parameters: `7e9`, `7B`, `7_000_000_000`. A small one, such as 8, misses its unit."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return float(value)
        text = value.strip().lower().replace("_", "").replace(",", "")
        scale = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}.get(text[-1:], 1.0)
        try:
            number = float(text[:-1] if scale > 1 else text) * scale
        except ValueError:
            self.fail(f'"{value}" is not a number', param, ctx)
        if 0 < number < FEWEST:
            self.fail(f'"{value}" is not the size of a model; write {value}B for {value} billion parameters', param, ctx)
        if not 0 < number < 1e15:
            self.fail(f'"{value}" must be greater than 0 and less than 1e15', param, ctx)
        return number
