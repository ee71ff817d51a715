"""Writes `dslint/memory/_generated/model_defaults.json`: the sizes that the model families of transformers have by default.

A `config.json` leaves out values that are the default of its family. Requires transformers: `python scripts/model_defaults.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dslint.memory.sizes import DEFAULTED, INNER, LISTS

OUT = Path(__file__).parents[1] / "dslint" / "memory" / "_generated" / "model_defaults.json"


def period(values: list[Any]) -> list[Any]:
    """The shortest list that gives these values if it is repeated."""
    return next(values[:size] for size in range(1, len(values) + 1) if all(v == values[i % size] for i, v in enumerate(values)))


def defaults(data: dict[str, Any]) -> dict[str, Any]:
    """The values of a default config that `generic` reads."""
    found = {name: value for name in DEFAULTED if (value := data.get(name)) is not None and isinstance(value, int | float | str | bool)}
    found |= {name: period(value) for name in LISTS if isinstance(value := data.get(name), list) and value}
    heads, hidden = data.get("num_attention_heads"), data.get("hidden_size")
    if found.get("num_key_value_heads") == heads:  # follows from the number of heads
        found.pop("num_key_value_heads", None)
    if heads and hidden and found.get("head_dim") == hidden // heads:
        del found["head_dim"]
    return {name: value for name, value in found.items() if name not in INNER or value != 4 * (hidden or 0)}


def main() -> None:
    """Write the file."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    table = {}
    for name in sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *(n for n in CONFIG_MAPPING_NAMES if n.endswith("_text"))}):
        try:
            data = transformers.AutoConfig.for_model(name).to_dict()
        except Exception as error:  # noqa: BLE001 - some families have no defaults
            print(f"{name}: {type(error).__name__}")
            continue
        table[name] = defaults(data)
    OUT.parent.mkdir(exist_ok=True)
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(values, sort_keys=True)}" for name, values in table.items() if values)
    OUT.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
