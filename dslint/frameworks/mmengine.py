"""MMEngine and xtuner: `xtuner train CONFIG --deepspeed ds.json` fills "auto" in the config and passes an optimizer of its own.

xtuner builds MMEngine's DeepSpeed strategy from the config, and gives it the batch size, the accumulation steps and the clipping of CONFIG.
It chooses the precision by what the GPU can do where the config leaves it open.
"""

from __future__ import annotations

from dslint.facts import Integration
from dslint.frameworks.base import Framework
from dslint.source.tree import Document, Mapping, Member, Node, Scalar
from dslint.source.unknown import UNKNOWN

_SECTIONS_IT_FILLS = frozenset({"fp16", "bf16"})


def _as_passed(config: Document) -> Document:
    """A config as xtuner passes it: what it fills is not "auto", but unknown here."""
    if not isinstance(config.root, Mapping):
        return config
    root = config.root
    filled = Mapping(root.span, [_filled(member, top=True) for member in root.members], may_have_more=root.may_have_more)
    return Document(
        config.text,
        filled,
        comments=config.comments,
        problems=config.problems,
        departures=config.departures,
        language=config.language,
        places=config.places,
        whole=config.whole,
        sources=config.sources,
        parts=config.parts,
    )


def _filled(member: Member, *, top: bool) -> Member:
    node: Node = member.value
    if isinstance(node, Mapping) and top and member.key.value in _SECTIONS_IT_FILLS:
        return Member(member.key, Mapping(node.span, [_filled(inner, top=False) for inner in node.members]))
    if isinstance(node, Scalar) and node.value == "auto":
        return Member(member.key, Scalar(node.span, UNKNOWN, node.raw, node.style))
    return member


FRAMEWORK = Framework(
    "xtuner",
    Integration.DEEPSPEED,
    packages=("xtuner", "mmengine"),
    commands=("xtuner",),
    ships_unread=frozenset(f"deepspeed_zero{kind}" for kind in ("1", "2", "2_offload", "3", "3_offload")),
    passes=frozenset(("model", "optimizer", "config")),
    as_passed=_as_passed,
    starts_ranks=True,
)
