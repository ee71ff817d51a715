"""What is asked of the child process. Plain data that goes through a pipe as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Device = Literal["auto", "cuda", "fake", "cpu"]
Override = tuple[tuple[str, ...], Any]
"""A path in the config and the value to put there; None takes the key out."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the built-in decoder, which is built as Llama is: RMSNorm, rotary positions, a gated feed-forward part, no biases."""

    layers: int = 2
    hidden: int = 256
    heads: int = 4
    kv_heads: int = 4
    head_size: int = 64
    ffn: int = 704
    vocab: int = 4096
    tied: bool = False

    def as_data(self) -> dict[str, Any]:
        """The config.json of such a model."""
        return {
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.ffn,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_size,
            "vocab_size": self.vocab,
            "tie_word_embeddings": self.tied,
        }


@dataclass(frozen=True, slots=True)
class Model:
    """Which model to train.

    One of three: `function` names the program's own ("package.module:function"); `data` is a Hugging Face config.json, which transformers
    builds; else `shape` is built by the built-in decoder.
    """

    shape: Shape = field(default_factory=Shape)
    data: dict[str, Any] | None = None
    function: str | None = None
    paths: tuple[str, ...] = ()
    """Folders to look for `function` in, before Python's own."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to run, and how.

    `text` is the config as its file has it; `overrides` are put into it. `world_size` and `rank` say which rank of how many is played;
    `launched` says that the other ranks are real, as a launcher's environment has them. `memory` is what the fake device claims to have,
    in bytes. `steps` are optimizer steps, of each of which `micro_steps` micro-batches at most are run. `zero_init` builds a
    model of stage 3 inside `deepspeed.zero.Init`, as the integrations do. `checkpointing` turns activation
    checkpointing on in the model. `timeline` asks for the course of memory. `snapshot` is the file for CUDA's memory snapshot.
    """

    text: str
    overrides: tuple[Override, ...] = ()
    device: Device = "auto"
    world_size: int = 1
    rank: int = 0
    launched: bool = False
    model: Model = field(default_factory=Model)
    sequence: int = 128
    checkpointing: bool = False
    steps: int = 3
    micro_steps: int = 3
    zero_init: bool = True
    memory: int = 80 * 2**30
    timeline: bool = False
    snapshot: str | None = None

    def to_json(self) -> str:
        """The question as a line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Question:
        """The question of a line."""
        data = json.loads(line)
        model = data.pop("model")
        shape = model.pop("shape")
        data["overrides"] = tuple((tuple(path), value) for path, value in data["overrides"])
        paths = tuple(model.pop("paths"))
        return cls(**data, model=Model(Shape(**shape), paths=paths, **model))
