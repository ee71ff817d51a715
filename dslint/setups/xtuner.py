"""Launches of xtuner: `xtuner train CONFIG --deepspeed ds.json` fills "auto" in the config and passes an optimizer of its own to DeepSpeed.

xtuner builds MMEngine's DeepSpeed strategy from the config, and gives it the batch size, the accumulation steps and the clipping of CONFIG.
It chooses the precision by what the GPU can do where the config leaves it open.
"""

from __future__ import annotations

from dataclasses import replace

from dslint.diagnostics import NotJudged
from dslint.facts import Integration, PassedAs
from dslint.job.arguments import SourcedValue
from dslint.job.model import Program
from dslint.setups.gather import LoadedSetup
from dslint.source.tree import Document, Mapping, Member, Node, Scalar
from dslint.source.unknown import UNKNOWN

_SHIPPED = frozenset(f"deepspeed_zero{kind}" for kind in ("1", "2", "2_offload", "3", "3_offload"))
"""The names of configs that xtuner ships."""

_SECTIONS_IT_FILLS = frozenset({"fp16", "bf16"})


def is_shipped(link: SourcedValue) -> bool:
    """Whether a link is the name of a config that xtuner ships."""
    return link.value in _SHIPPED


def not_shown(link: SourcedValue) -> NotJudged:
    """Why a config that xtuner ships is not judged."""
    return NotJudged(f"the DeepSpeed config is {link.raw}, which xtuner ships; it is not in this project.", link.range)


def as_xtuner_passes(gathered: LoadedSetup) -> None:
    """Make a setup what xtuner makes of it: nothing that it fills is "auto", and the program passes the optimizer."""
    setup, config = gathered.setup, gathered.config
    program = setup.program or Program("xtuner", Integration.DEEPSPEED.value)
    passed = frozenset(("model", "optimizer", "config"))
    gathered.setup = replace(setup, program=replace(program, loader=Integration.DEEPSPEED.value, passed=passed))
    if gathered.facts.integration is None or gathered.facts.integration is Integration.TRANSFORMERS:
        link = setup.link
        evidence = f"xtuner passes it to {Integration.DEEPSPEED.label}" + (f" ({link.where})" if link is not None else "")
        gathered.context = gathered.context.inferring(evidence, integration=Integration.DEEPSPEED).but(passed_as=PassedAs.DICT)
    if config is None or not isinstance(config.root, Mapping):
        return
    root = Mapping(config.root.span, [_filled(member, top=True) for member in config.root.members], may_have_more=config.root.may_have_more)
    gathered.config = Document(
        config.text,
        root,
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
