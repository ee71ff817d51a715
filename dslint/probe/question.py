"""The input of the child process: plain data, sent through a pipe as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Device = Literal["auto", "cuda", "fake", "cpu"]
Override = tuple[tuple[str, ...], Any]
"""A path in the config and its new value; None removes the key."""


@dataclass(frozen=True, slots=True)
class DecoderSizes:
    """The sizes of the built-in decoder, a Llama architecture: RMSNorm, rotary positions, gated feed-forward layers, no biases.

    `eager` attention keeps its scores.
    """

    layers: int = 2
    hidden: int = 256
    heads: int = 4
    kv_heads: int = 4
    head_size: int = 64
    ffn: int = 704
    vocab: int = 4096
    tied: bool = False
    eager: bool = False

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
class ProbedModel:
    """The model to train.

    One of three: `function` names a function of the program ("package.module:function"); `data` is a Hugging Face config.json, built with
    transformers; otherwise the built-in decoder is built with `shape`. `adapters` is the rank of LoRA adapters in its linear layers (those
    with names that end in one of `targets`; all if there are none), with which all other weights are frozen; 0 means none.
    """

    shape: DecoderSizes = field(default_factory=DecoderSizes)
    data: dict[str, Any] | None = None
    function: str | None = None
    paths: tuple[str, ...] = ()
    """Folders to search for `function` before `sys.path`."""
    adapters: int = 0
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What to run, and how.

    `text` is the text of the config; `overrides` are applied to it. `world_size` and `rank` are the simulated ones, or the real ones if a
    launcher started the process (`launched`). `memory` is what the fake device claims to have, in bytes. `steps` are optimizer steps, with
    at most `micro_steps` micro batches each. `zero_init` builds a stage-3 model inside `deepspeed.zero.Init`, as the integrations do.
    `checkpointing` enables activation checkpointing in the model. `timeline` records memory over time. `snapshot` is the file for CUDA's
    memory snapshot. On a GPU, `cap` limits what PyTorch's allocator takes, in bytes, `expandable` turns on expandable segments, and
    `speeds` measures copies over PCIe.
    """

    text: str
    overrides: tuple[Override, ...] = ()
    device: Device = "auto"
    world_size: int = 1
    rank: int = 0
    launched: bool = False
    model: ProbedModel = field(default_factory=ProbedModel)
    sequence: int = 128
    checkpointing: bool = False
    steps: int = 3
    micro_steps: int = 3
    zero_init: bool = True
    memory: int = 80 * 2**30
    timeline: bool = False
    snapshot: str | None = None
    cap: int | None = None
    expandable: bool = False
    speeds: bool = False

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
        for name in ("paths", "targets"):
            model[name] = tuple(model[name])
        return cls(**data, model=ProbedModel(DecoderSizes(**shape), **model))
