"""Files of GPT-NeoX: one file for the model, the training and DeepSpeed, from which GPT-NeoX builds the config."""

from __future__ import annotations

from dslint.source.tree import Document, Key, Mapping, Member, Node, Path, Scalar

_DEEPSPEED = frozenset(
    """
    train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps fp32_allreduce prescale_gradients
    gradient_predivide_factor sparse_gradients fp16 bf16 amp gradient_clipping zero_optimization curriculum_learning steps_per_print
    wall_clock_breakdown dump_state flops_profiler communication_data_type autotuning activation_checkpointing sparse_attention
    data_efficiency tensorboard wandb csv_monitor elasticity comms_logger compression_training checkpoint data_types
    zero_allow_untested_optimizer
    """.split()
)
"""The fields that GPT-NeoX passes on to DeepSpeed. It passes the optimizer and the schedule as objects, and not their sections."""

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


def is_neox(document: Document) -> bool:
    """Whether a tree is a file of GPT-NeoX with settings of DeepSpeed."""
    members = _members(document)
    names = set(members)
    is_sure = names & _TELLING or any("-" in member.key.value for name, member in members.items() if name in _OWN)
    if not is_sure:  # a short file of a fork: the shape of the model, and arguments of the fork with hyphens
        is_sure = names >= _SHAPE and any("-" in member.key.value for member in members.values())
    return len(names & _OWN) >= 2 and bool(is_sure) and len(names & _DEEPSPEED) >= 2


def config_of(document: Document) -> Document:
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


def parallel_sizes(document: Document) -> dict[str, int]:
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
