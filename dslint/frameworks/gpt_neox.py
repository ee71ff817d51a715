"""Files of GPT-NeoX: one file for the model, the training and DeepSpeed, from which GPT-NeoX builds the config."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping as Table
from typing import Any

from dslint.facts import Integration
from dslint.frameworks.base import Framework, OwnFiles, Told
from dslint.job.arguments import Arguments, SourcedValue, given_at
from dslint.job.attention import EAGER, FLASH_2
from dslint.source.similar import similar
from dslint.source.tree import Document, Key, Mapping, Member, Node, Path, Scalar

_DEEPSPEED = frozenset(
    """
    train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps prescale_gradients
    gradient_predivide_factor sparse_gradients fp16 bf16 amp gradient_clipping zero_optimization curriculum_learning steps_per_print
    wall_clock_breakdown dump_state flops_profiler communication_data_type autotuning activation_checkpointing sparse_attention
    data_efficiency tensorboard wandb csv_monitor elasticity comms_logger compression_training checkpoint data_types
    zero_allow_untested_optimizer
    """.split()
)
"""The fields that GPT-NeoX passes on to DeepSpeed. It passes the optimizer and the schedule as objects, and not their sections."""

_FOR_BOTH = "fp32_allreduce"
"""A former field of DeepSpeed that GPT-NeoX also reads itself, for its parallel layers.

Source: megatron/mpu/mappings.py and megatron/model/utils.py of GPT-NeoX.
"""

_OWN = frozenset(
    """
    pipe_parallel_size model_parallel_size num_layers hidden_size num_attention_heads train_iters seq_length max_position_embeddings
    tokenizer_type pos_emb no_weight_tying
    """.split()
)
"""Fields of GPT-NeoX itself."""

_TELLING = frozenset("pipe_parallel_size model_parallel_size train_iters pos_emb no_weight_tying".split())
"""Those of its own fields that other programs hardly write next to a config for DeepSpeed. Any field with hyphens is as sure a sign."""


_SHAPE = frozenset("num_layers hidden_size num_attention_heads".split())
"""Its own fields that a file for it has at least. Configs of models have them, too, but no keys with hyphens."""


_OF_A_PART = 3
"""Its fields in a file that has the training without the model, since its launcher joins several: configs/llama/train_config.yml has 5."""

_DESCRIBING = frozenset(
    """
    num_layers hidden_size num_attention_heads intermediate_size num_kv_heads seq_length max_position_embeddings pos_emb no_weight_tying
    make_vocab_size_divisible_by model_parallel_size activation mlp_type moe_num_experts hidden_dropout attention_config
    checkpoint_activations checkpoint_num_layers
    """.split()
)
"""The fields that describe the model and how it is trained. Source: megatron/neox_arguments/neox_args.py of GPT-NeoX."""

_GATED = frozenset("geglu reglu swiglu bilinear glu".split())
"""Activation functions of feed-forward layers with a gate."""

_GPT2_WORDS = 50257
"""The words of GPT-2's vocabulary, the default of GPT-NeoX."""


def _recognises(document: Document) -> bool:
    """Whether a tree is a file of GPT-NeoX with settings of DeepSpeed."""
    members = _members(document)
    names = set(members)
    is_sure = names & _TELLING or any("-" in member.key.value for name, member in members.items() if name in _OWN)
    if not is_sure:  # a short file of a fork: the shape of the model, and arguments of the fork with hyphens
        is_sure = names >= _SHAPE and any("-" in member.key.value for member in members.values())
    is_its = len(names & _OWN) >= 2 or len(names & (_OWN | _DESCRIBING)) >= _OF_A_PART
    return bool(is_sure) and is_its and len(names & (_DEEPSPEED | {_FOR_BOTH})) >= 2


def _config(document: Document) -> Document:
    """The config that GPT-NeoX builds from a file: the fields for DeepSpeed, with underscores for hyphens."""
    assert isinstance(document.root, Mapping)
    places: dict[Path, Path] = {(): ()}
    members: list[Member] = []
    for name, member in _members(document).items():
        if name in _DEEPSPEED:
            places[(name,)] = (member.key.value,)
            members.append(Member(Key(member.key.span, name, member.key.raw), _without_own(name, member.value)))
    return Document(
        document.text,
        Mapping(document.root.span, members),
        comments=document.comments,
        problems=document.problems,
        language=document.language,
        places=places,
        whole=document,
        parts=document.parts,
    )


def _without_own(name: str, node: Node) -> Node:
    """A section without the key that only GPT-NeoX reads: its configs write `"fp16": {"fp16": true, "enabled": true}`.

    GPT-NeoX installs a fork of DeepSpeed that ignores the key, from before the releases that refuse unknown keys in `fp16`.
    """
    if name != "fp16" or not isinstance(node, Mapping):
        return node
    return Mapping(node.span, [member for member in node.members if member.key.value != "fp16"])


def _arguments(documents: Table[str, Document]) -> Arguments | None:
    """The fields of GPT-NeoX's files that describe a model and its training; None if the model's sizes are not among them."""
    values: dict[str, SourcedValue] = {}
    for shown, document in documents.items():
        for name, member in _members(document).items():
            value = member.value.value if isinstance(member.value, Scalar) else member.value
            given = given_at(document, shown, (member.key.value,), name, value) if name in _DESCRIBING else None
            if given is not None:
                values[name] = given
    found = Arguments(FRAMEWORK.name, next(iter(documents), ""), values, others=tuple(_misspelt(documents)))
    return found if all(_count(found, name) for name in (*_SHAPE, "seq_length")) else None


_KNOWN = _DEEPSPEED | {_FOR_BOTH} | _OWN | _DESCRIBING


def _misspelt(documents: Table[str, Document]) -> Iterator[SourcedValue]:
    """The fields whose names are nearly those of others that are not there. GPT-NeoX has more fields than are known here, and its forks add
    some: none of its 322 and of those in the public files of two source trees comes near one of these.
    """
    written = {name for document in documents.values() for name in _members(document)}
    for shown, document in documents.items():
        for name, member in _members(document).items():
            meant = _field_meant(name) if name not in _KNOWN else None
            given = given_at(document, shown, (member.key.value,), name, None) if meant is not None and meant not in written else None
            if given is not None:
                yield given


def _field_meant(name: str) -> str | None:
    """The field that a name is nearly the one of, with the same first letters: comparing with all takes ten times as long."""
    name = name.replace("-", "_")
    near = [one for one in _KNOWN if one[:2] == name[:2] and abs(len(one) - len(name)) < _LETTERS]
    return next(iter(similar(name, near, cutoff=_CLOSE)), None) if near else None


_CLOSE = 0.86
"""How near a name must be to a field: forks have fields of their own, so this is stricter than for other frameworks."""

_LETTERS = 4
"""Names that differ by so many letters in length are less near than that, if they have up to 25 letters."""


def _model(arguments: Arguments) -> dict[str, Any] | None:
    """The model as the data of a `config.json`: GPT-2 with learned positions, else GPT-NeoX; None with experts or gates."""
    if _count(arguments, "moe_num_experts", 1) > 1 or _value(arguments, "activation", "gelu") in _GATED:
        return None
    hidden, layers, heads = (_count(arguments, name) for name in ("hidden_size", "num_layers", "num_attention_heads"))
    if _value(arguments, "mlp_type", "regular") != "regular" or _count(arguments, "num_kv_heads", heads) != heads:
        return None
    unit = _count(arguments, "make_vocab_size_divisible_by", 128) * _count(arguments, "model_parallel_size", 1)
    common = {"vocab_size": -(-_GPT2_WORDS // unit) * unit, "tie_word_embeddings": _value(arguments, "no_weight_tying") is not True}
    inner = _count(arguments, "intermediate_size", 4 * hidden)
    if _value(arguments, "pos_emb", "learned") == "learned":
        positions = _count(arguments, "max_position_embeddings", _count(arguments, "seq_length"))
        sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_inner": inner, "n_positions": positions}
        dropout = _value(arguments, "hidden_dropout", 0)
        return {"model_type": "gpt2", **sizes, "activation_function": "gelu", "resid_pdrop": dropout, **common}
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner}
    return {"model_type": "gpt_neox", **sizes, "max_position_embeddings": _count(arguments, "seq_length"), **common}


def _options(arguments: Arguments) -> dict[str, tuple[Any, str]]:
    """Options of an estimate, with the place of each. The loss is computed before the program gets the logits."""
    options: dict[str, tuple[Any, str]] = {
        "length": (_count(arguments, "seq_length"), arguments.values["seq_length"].where),
        "keeps_logits": (False, "GPT-NeoX, which returns only the loss"),
    }
    if _value(arguments, "checkpoint_activations") is True:
        options["checkpoint_every"] = 1, arguments.values["checkpoint_activations"].where
    kinds = arguments.get("attention_config")
    if kinds is not None and "flash" in kinds.raw:
        options["attention"] = FLASH_2, kinds.where
    elif kinds is None or "global" in kinds.raw:
        options["attention"] = EAGER, "the default of GPT-NeoX" if kinds is None else kinds.where
    return options


def _value(arguments: Arguments, name: str, default: Any = None) -> Any:
    given = arguments.get(name)
    return default if given is None or given.value is None else given.value


def _count(arguments: Arguments, name: str, default: int = 0) -> int:
    value = _value(arguments, name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default


def _parallel_sizes(document: Document) -> dict[str, int]:
    """The tensor and pipeline parallel sizes, by the names of the facts. GPT-NeoX writes 0 for no pipeline."""
    members = _members(document)
    found: dict[str, int] = {}
    for name, fact in (("model_parallel_size", "tensor_parallel"), ("pipe_parallel_size", "pipeline_parallel")):
        node = members[name].value if name in members else None
        if isinstance(node, Scalar) and isinstance(node.value, int) and not isinstance(node.value, bool):
            found[fact] = max(node.value, 1)
    return found


def _members(document: Document) -> dict[str, Member]:
    root = document.root
    return {member.key.value.replace("-", "_"): member for member in root.members} if isinstance(root, Mapping) else {}


FRAMEWORK = Framework(
    "GPT-NeoX",
    Integration.DEEPSPEED,
    refuses_unknown="NeoXArgs.__init__() got an unexpected keyword argument '{name}'",
    own_files=OwnFiles(
        _recognises,
        _config,
        _arguments,
        _model,
        _parallel_sizes,
        _field_meant,
        launcher="deepy.py",
        trains="train",
        folder=("conf_dir", "d"),
        ending=".yml",
        refuses_twice="raises ValueError, because no key may be in two of its files",
    ),
    tells=lambda arguments: Told(_options(arguments), ()),
)
"""Source of its launcher: megatron/neox_arguments/arguments.py, consume_deepy_args and from_ymls."""
