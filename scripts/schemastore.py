"""Write the files of a pull request to SchemaStore.

    python scripts/schemastore.py DIR

DIR is a clone of SchemaStore or an empty folder. It gets the schema in draft 07, documents that it accepts and that it rejects, and the
entry of the catalog in a file of its own: `src/api/json/catalog.json` of a clone gets the entry where it is there. The tests hold these
files to what SchemaStore's `cli.js` checks; opening the pull request requires an account of GitHub.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dslint.schemas.catalog import entry
from dslint.schemas.export import json_schema

NAME = "deepspeed-config"
URL = f"https://www.schemastore.org/{NAME}.json"

ACCEPTED: dict[str, dict[str, Any]] = {
    "zero3-offload": {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 8,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.9, 0.95]}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 200, "total_num_steps": 10000}},
        "zero_optimization": {"stage": 3, "overlap_comm": True, "offload_optimizer": {"device": "cpu", "pin_memory": True}},
    },
    "trainer-auto": {
        "train_micro_batch_size_per_gpu": "auto",
        "fp16": {"enabled": "auto", "loss_scale": 0},
        "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"},
    },
}
REJECTED: dict[str, dict[str, Any]] = {
    "unknown-key": {"train_batch_size": 8, "zero_optimisation": {"stage": 3}},
    "unknown-stage": {"zero_optimization": {"stage": 4}},
    "text-for-number": {"train_batch_size": "eight"},
}


def catalog_entry() -> dict[str, Any]:
    """The entry of the catalog, with the address of the schema."""
    return {**entry(), "url": URL}


def contents() -> Iterator[tuple[str, dict[str, Any]]]:
    """The paths of the files in a clone, and their data."""
    yield f"src/schemas/json/{NAME}.json", {**json_schema("transformers", draft="07"), "$id": URL}
    for folder, documents in (("test", ACCEPTED), ("negative_test", REJECTED)):
        for name, document in documents.items():
            yield f"src/{folder}/{NAME}/{name}.json", document


def write(target: Path) -> None:
    """Write the files. A catalog that is there gets the entry in its order, by name."""
    for path, data in contents():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    catalog = target / "src/api/json/catalog.json"
    if not catalog.exists():
        (target / "catalog-entry.json").write_text(json.dumps(catalog_entry(), indent=2) + "\n", encoding="utf-8")
        return
    data = json.loads(catalog.read_text(encoding="utf-8"))
    others = [one for one in data["schemas"] if one["name"] != catalog_entry()["name"]]
    place = next((number for number, one in enumerate(others) if one["name"].lower() > catalog_entry()["name"].lower()), len(others))
    data["schemas"] = [*others[:place], catalog_entry(), *others[place:]]
    catalog.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
