"""Compares the number of parameters of every family of transformers with that of its real class, built on the meta device.

    python -m tests.memory.every_family [NAME ...]

prints a line per family: parameters of the class, error of the estimate's model, and whether it is exact, a guess, or refused.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from dslint.memory.families import ShapeError, read_shape
from dslint.memory.shapes import Model

HEADS = ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM")
"""The classes that people train, in the order in which a family is built; without one of them it is no language model. Encoder-decoders
are built whole, not as a decoder alone.
"""


class Family(NamedTuple):
    """A family with its default sizes: the class that was built, its parameters, and the model of the estimate or why it has none."""

    name: str
    built: str
    real: int
    model: Model | None
    why: str = ""

    @property
    def error(self) -> float:
        """The relative error of the number of parameters."""
        return self.model.size / self.real - 1 if self.model else -1.0

    @property
    def kind(self) -> str:
        """How the estimate knows it."""
        return "refused" if self.model is None else "guess" if self.model.generic else "listed"


def names() -> list[str]:
    """All families of the installed transformers."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return sorted(CONFIG_MAPPING_NAMES)


def built(name: str) -> tuple[dict[str, Any], str, int] | None:
    """The default config of a family as JSON has it, the class that was built of it, and its parameters; None if none can be built."""
    import torch
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            config = transformers.AutoConfig.for_model(name)
            data: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
        except Exception:  # noqa: BLE001 - some families have no default sizes
            return None
        for head in reversed(HEADS[:3]) if config.is_encoder_decoder else HEADS:
            if type(config) not in getattr(transformers, head)._model_mapping:
                continue
            try:
                with torch.device("meta"):
                    model = getattr(transformers, head).from_config(config)
            except Exception:  # noqa: BLE001 - some need packages or sizes that have no default
                continue
            return data, head.removeprefix("AutoModelFor"), sum(weight.numel() for weight in model.parameters())
    return None


def families(chosen: list[str]) -> Iterator[Family]:
    """Every family that can be built."""
    for name in chosen:
        found = built(name)
        if found is None:
            continue
        data, head, real = found
        try:
            yield Family(name, head, real, read_shape(data, name))
        except ShapeError as error:
            yield Family(name, head, real, None, str(error))


def main(chosen: list[str]) -> None:
    """Print the table, then the counts by class and kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in families(chosen or names()):
        said = one.why[:90] if one.model is None else f"{one.error:+.2%}"
        print(f"{one.name:32} {one.built:16} {one.real:>16,} {one.kind:8} {said}", flush=True)
        near = "exact" if not one.error else "within 2 %" if abs(one.error) <= 0.02 else "further"
        counts[one.built, f"{one.kind}, {near}"] += 1
    for (head, kind), count in sorted(counts.items()):
        print(f"{head:18} {kind:24} {count}")


if __name__ == "__main__":
    main(sys.argv[1:])
