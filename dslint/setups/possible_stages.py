"""A program that writes its config itself, with a ZeRO stage that a flag of its launch says: the config with each possible stage."""

from __future__ import annotations

import re
from dataclasses import replace

from dslint.evaluate.python.read import PythonFile
from dslint.job.events import PARSED_CHOICES
from dslint.job.model import STAGE, Assumed
from dslint.setups.gather import Read, settle
from dslint.source.tree import Mapping, Member, Node, Scalar
from dslint.source.unknown import UNKNOWN

_STAGES = (0, 1, 2, 3)


def with_possible_stages(found: Read, program: PythonFile) -> Read:
    """The setups of a program, and for one with an unknown stage also those with the stages that its flag accepts."""
    setups = [one for one in found.setups if one.setup.launch is None and one.setup.program is not None and not one.is_definition]
    if len(setups) != 1 or len(found.setups) != 1:
        return found
    (setup,) = setups
    member = setup.config.lookup(STAGE) if setup.config is not None else None
    if not isinstance(member, Member) or not isinstance(member.value, Scalar) or member.value.value is not UNKNOWN:
        return found
    flag = member.value.raw
    stages = _accepted(flag, program)
    if len(stages) < _FEWEST:
        return found
    assert setup.config is not None
    assert setup.config.root is not None
    assert setup.setup.program is not None
    assert setup.setup.link is not None
    more = []
    for stage in stages:
        others = tuple(f"ZeRO stage {other}" for other in stages if other != stage)
        taken = Assumed(f"ZeRO stage {stage}", setup.setup.link.where, others, flag=flag)
        one = setup._replace(config=setup.config.with_root(with_stage(setup.config.root, STAGE, stage)))
        more.append(settle(one.but(program=replace(setup.setup.program, assumed=taken))))
    return found._replace(setups=[*found.setups, *more])


_FEWEST = 2
"""How many stages a flag accepts at least: with one, the parser decides."""


def _accepted(flag: str, program: PythonFile) -> tuple[int, ...]:
    """The stages that a flag of a program accepts, by its `choices`; none for what is not read from a flag that the program parses."""
    name = flag.rpartition(".")[2].strip("\"'[]")
    parsed = {given.value for one in program.events.of(re.escape(PARSED_CHOICES)) if (given := one.argument(name)) is not None}
    asks = re.compile(rf"\b{re.escape(name)}\b\s*(?:[=!]=|[<>]|in\b|not in\b)")
    if len(parsed) != 1 or program.has(asks):  # what it does at each stage is not known here
        return ()
    choices = parsed.pop()
    return _STAGES if choices is None else tuple(stage for stage in _STAGES if stage in choices)


def with_stage(node: Node, place: tuple[str, ...], stage: int) -> Node:
    """A tree with a number in the place of the stage."""
    if not place and isinstance(node, Scalar):
        return Scalar(node.span, stage, str(stage), node.style)
    if not isinstance(node, Mapping) or not place:
        return node
    members = [type(one)(one.key, with_stage(one.value, place[1:], stage)) if one.key.value == place[0] else one for one in node.members]
    return Mapping(node.span, members, may_have_more=node.may_have_more)
