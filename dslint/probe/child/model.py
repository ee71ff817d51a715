"""The models of a probe: the built-in decoder, a transformers model from a config.json, or that of the program."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import nn
from torch.utils.checkpoint import checkpoint

from dslint.probe.question import DecoderSizes, ProbedModel, Question
from dslint.record import Record

Batch = dict[str, Any]


class BuiltModel(Record):
    """A model, its function for making a batch on a device, its number of layers, and its description."""

    module: nn.Module
    batch: Callable[[int, torch.device | str], Any]
    layers: int | None
    words: str


class NoModel(Exception):
    """The model cannot be built; the text is a sentence for the user."""


def build(question: Question) -> BuiltModel:
    """The model of a question.

    Raises:
        NoModel: it cannot be built.
    """
    model = question.model
    if model.function is not None:
        return _of_function(model.function, model.paths, question)
    if model.data is not None:
        return _of_config(model.data, question)
    shape = model.shape
    words = f"a decoder of {shape.layers} layers, hidden size {shape.hidden:,}, vocabulary {shape.vocab:,}{_with_adapters(model)}"
    module = adapted(Decoder(shape, checkpointing=question.checkpointing), question)
    return BuiltModel(module, _tokens(shape.vocab, question.sequence), shape.layers, words)


def _with_adapters(model: ProbedModel) -> str:
    return f", with LoRA of rank {model.adapters}" if model.adapters else ""


def _tokens(vocabulary: int, sequence: int) -> Callable[[int, torch.device | str], Batch]:
    def batch(size: int, device: torch.device | str) -> Batch:
        tokens = torch.randint(0, vocabulary, (size, sequence), device="cpu").to(device)
        return {"input_ids": tokens, "labels": tokens}

    return batch


def _of_config(data: dict[str, Any], question: Question) -> BuiltModel:
    """The model that transformers builds from a config.json, without pretrained weights."""
    try:
        import transformers
    except ImportError:
        raise NoModel("--model requires transformers: pip install transformers") from None
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        config = transformers.AutoConfig.for_model(**data)
        config.use_cache = False
        with without_padding():
            module = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise NoModel(f"transformers cannot build a causal language model from it: {error}. Use --model-fn for other models") from None
    module = adapted(module, question)
    if question.checkpointing:
        switch_checkpointing_on(module)
    text = config.get_text_config()
    depth = getattr(text, "num_hidden_layers", None)
    layers = f"{depth} layer{'' if depth == 1 else 's'}"
    words = f"{type(module).__name__} of {layers}, hidden size {text.hidden_size:,}, vocabulary {text.vocab_size:,}"
    words += _with_adapters(question.model)
    return BuiltModel(module.train(), _tokens(text.vocab_size, question.sequence), depth, words)


@contextmanager
def without_padding() -> Iterator[None]:
    """Make embeddings without a row for padding.

    transformers clears that row once the embedding is made. Inside of `deepspeed.zero.Init` the weight is then partitioned and has no rows;
    transformers gathers it only where its own integration began the partitioning. No other memory depends on it.
    """
    made = nn.Embedding.__init__

    def unpadded(self: Any, count: int, width: int, padding_idx: int | None = None, *rest: Any, **named: Any) -> None:  # noqa: ARG001
        made(self, count, width, None, *rest, **named)

    nn.Embedding.__init__ = unpadded
    try:
        yield
    finally:
        nn.Embedding.__init__ = made


def adapted(module: Any, question: Question) -> Any:
    """The model with the adapters of a question, and all other weights frozen, as peft does it: every linear layer but the head has one.

    Raises:
        NoModel: no layer has such a name.
    """
    model = question.model
    if not model.adapters:
        return module
    from transformers.pytorch_utils import Conv1D

    head = module.get_output_embeddings()
    layers = [
        (name, layer)
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear | Conv1D) and layer is not head and (not model.targets or name.endswith(model.targets))
    ]
    if not layers:
        raise NoModel(f"no linear layer is named {', '.join(model.targets)}")
    module.requires_grad_(requires_grad=False)
    if question.checkpointing:
        module.enable_input_require_grads()  # as transformers does for peft
    for name, layer in layers:
        parent, _, attribute = name.rpartition(".")
        setattr(module.get_submodule(parent), attribute, Adapted(layer, model.adapters))
    return module


def switch_checkpointing_on(module: nn.Module) -> None:
    """Enable activation checkpointing of a transformers model.

    Raises:
        NoModel: the model does not support it.
    """
    enable = getattr(module, "gradient_checkpointing_enable", None)
    if enable is None:
        raise NoModel(
            f"{type(module).__name__} has no gradient_checkpointing_enable(), so the probe cannot enable activation checkpointing"
        )
    enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def _of_function(name: str, paths: tuple[str, ...], question: Question) -> BuiltModel:
    """The model of the program: the function returns a module, and a function of (micro_batch_size, device) that makes a batch."""
    package, _, attribute = name.partition(":")
    sys.path[:0] = paths
    try:
        function = getattr(importlib.import_module(package), attribute)
    except Exception as error:
        raise NoModel(f"--model-fn {name} cannot be imported: {type(error).__name__}: {error}") from error
    try:
        given = function()
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise NoModel(f"--model-fn {name} raised {type(error).__name__}: {error}") from error
    if not (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], nn.Module) and callable(given[1])):
        raise NoModel(
            f"--model-fn {name} must return (module, make_batch), with make_batch(micro_batch_size, device); "
            f"it returned {type(given).__name__}"
        )
    if question.checkpointing:
        switch_checkpointing_on(given[0])
    return BuiltModel(given[0], given[1], None, f"{type(given[0]).__name__} of {name}")


def loss_of(output: Any) -> torch.Tensor:
    """The loss in the result of a model: a tensor with one number, the first entry of a tuple, `.loss` or ["loss"].

    Raises:
        NoModel: there is no loss.
    """
    if isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, torch.Tensor):
        output = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    if not isinstance(output, torch.Tensor) or output.numel() != 1:
        raise NoModel(
            "the model returns no loss: its forward must return a scalar tensor, a tuple that begins with it, or an object with .loss"
        )
    return output


class Decoder(nn.Module):  # type: ignore[misc] # torch is not typed here
    """A causal language model with the architecture of Llama, and the loss in fp32."""

    def __init__(self, shape: DecoderSizes, *, checkpointing: bool) -> None:
        super().__init__()
        self.shape = shape
        self.checkpointing = checkpointing
        self.embedding = nn.Embedding(shape.vocab, shape.hidden)
        self.blocks = nn.ModuleList(TransformerBlock(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        if shape.tied:
            self.head.weight = self.embedding.weight

    def get_output_embeddings(self) -> nn.Module:
        """The head, by the name that models of transformers have for it."""
        return self.head

    def enable_input_require_grads(self) -> None:
        """Let gradients begin at the embedding, with the same name: DeepSpeed then gathers the frozen embedding in the backward, too."""
        self.embedding.register_forward_hook(lambda _module, _inputs, output: output.requires_grad_())

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.embedding(input_ids)
        turns = _turns(input_ids.shape[1], self.shape.head_size, x)
        for block in self.blocks:
            x = checkpoint(block, x, *turns, use_reentrant=False, preserve_rng_state=False) if self.checkpointing else block(x, *turns)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.view(-1, self.shape.vocab), labels.reshape(-1))


class TransformerBlock(nn.Module):  # type: ignore[misc] # the same
    """Attention and a feed-forward layer, each after a norm and with a residual connection."""

    def __init__(self, shape: DecoderSizes) -> None:
        super().__init__()
        self.shape = shape
        width, narrow = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.before_attention = nn.RMSNorm(shape.hidden)
        self.query = nn.Linear(shape.hidden, width, bias=False)
        self.key = nn.Linear(shape.hidden, narrow, bias=False)
        self.value = nn.Linear(shape.hidden, narrow, bias=False)
        self.out = nn.Linear(width, shape.hidden, bias=False)
        self.before_feed = nn.RMSNorm(shape.hidden)
        self.gate = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.up = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
        shape = self.shape
        rows, length, _ = x.shape

        def heads(part: torch.Tensor) -> torch.Tensor:
            return part.view(rows, length, -1, shape.head_size).transpose(1, 2)

        normed = self.before_attention(x)
        query = _turned(heads(self.query(normed)), cosines, sines)
        key = _turned(heads(self.key(normed)), cosines, sines)
        value = heads(self.value(normed))
        if shape.kv_heads != shape.heads:
            key, value = (part.repeat_interleave(shape.heads // shape.kv_heads, dim=1) for part in (key, value))
        mixed = _eager(query, key, value) if shape.eager else F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, -1))
        normed = self.before_feed(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Adapted(nn.Module):  # type: ignore[misc] # the same
    """A frozen linear layer with a LoRA adapter."""

    def __init__(self, layer: Any, rank: int) -> None:
        super().__init__()
        self.layer = layer
        into, out = (layer.in_features, layer.out_features) if isinstance(layer, nn.Linear) else (layer.nx, layer.nf)
        self.lora_A = nn.Linear(into, rank, bias=False)
        self.lora_B = nn.Linear(rank, out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.lora_B(self.lora_A(x))


def _eager(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention that keeps its scores, with the softmax in fp32, as transformers implements it."""
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return F.softmax(scores.masked_fill(later, float("-inf")).float(), dim=-1).to(value.dtype) @ value


def _turns(length: int, size: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The cosines and sines of rotary positions."""
    frequencies = 10000 ** (torch.arange(0, size, 2, device=like.device).float() / -size)
    angles = torch.outer(torch.arange(length, device=like.device).float(), frequencies).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _turned(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cosines + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sines
