"""DSP: weights that a program writes while they are gathered, without saying whose values count."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect
from dslint.job.events import Event
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import trained
from dslint.rules.helpers.syntax import statements_around, tree_of
from dslint.rules.helpers.zero import STAGE

_STAGE_3 = trained('"zero_optimization": {"stage": 3}')
_ENGINE = (
    "import deepspeed\nimport torch\nnet = torch.nn.Linear(8, 8)\nema = torch.nn.Linear(8, 8)\n"
    'engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config="ds_config.json")\n'
)
_FILLS = (
    _ENGINE
    + "with deepspeed.zero.GatheredParameters(list(net.parameters())):\n    for p in net.parameters():\n        p.data.clamp_(-1, 1)\n"
)
_AVERAGES = (
    _ENGINE
    + "for p, q in zip(ema.parameters(), net.parameters()):\n    both = [one for one in (p, q) if hasattr(one, 'ds_id')]\n"
    + "    with deepspeed.zero.GatheredParameters(both, enabled=len(both) > 0):\n        p.data.copy_(torch.lerp(q.data, p.data, 0.99))\n"
)
_LOADS = _ENGINE + "with deepspeed.zero.GatheredParameters(net.parameters()):\n    net.load_state_dict(torch.load('best.pt'))\n"
_ROWS = _ENGINE + "with deepspeed.zero.GatheredParameters(net.weight):\n    net.weight.data[4:] = 0\n"


@rule(
    "DSP03",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/partition_parameters.py, GatheredParameters._exit: has_been_updated=False",
        "https://github.com/OpenRLHF/OpenRLHF/pull/1357",
        "https://github.com/deepspeedai/DeepSpeed/pull/7817",
    ),
    setup=True,
)
@bad(
    _STAGE_3,
    at="",
    program=_FILLS,
    integration="deepspeed",
    message="train.py:8 writes p, which GatheredParameters (train.py:6) has gathered without modifier_rank: at the end of the block DeepSpeed drops the gathered weights, and each rank keeps its part as it was.",
)
@bad(
    _STAGE_3,
    at="",
    program=_AVERAGES,
    integration="deepspeed",
    message="train.py:9 writes p, which GatheredParameters (train.py:8) has gathered without modifier_rank: at the end of the block DeepSpeed drops the gathered weights, and each rank keeps its part as it was.",
)
@bad(
    _STAGE_3,
    at="",
    program=_LOADS,
    integration="deepspeed",
    message="train.py:7 writes net, which GatheredParameters (train.py:6) has gathered without modifier_rank: at the end of the block DeepSpeed drops the gathered weights, and each rank keeps its part as it was.",
)
@bad(
    _STAGE_3,
    at="",
    program=_ROWS,
    integration="deepspeed",
    message="train.py:7 writes net.weight, which GatheredParameters (train.py:6) has gathered without modifier_rank: at the end of the block DeepSpeed drops the gathered weights, and each rank keeps its part as it was.",
)
@bad(
    _STAGE_3,
    at="",
    program=_ROWS.replace("net.weight.data[4:] = 0", "torch.nn.init.zeros_(net.weight)"),
    integration="deepspeed",
    message="train.py:7 writes net.weight, which GatheredParameters (train.py:6) has gathered without modifier_rank: at the end of the block DeepSpeed drops the gathered weights, and each rank keeps its part as it was.",
)
@good(_STAGE_3.replace('"stage": 3', '"stage": 2'), program=_FILLS, integration="deepspeed")
@good(_STAGE_3, program=_FILLS.replace("net.parameters()))", "net.parameters()), modifier_rank=0)"), integration="deepspeed")
@good(_STAGE_3, program=_FILLS.replace("net.parameters()))", "net.parameters()), 0)"), integration="deepspeed")
@good(_STAGE_3, program=_FILLS.replace("net.parameters()))", "net.parameters()), **options)"), integration="deepspeed")
@good(_STAGE_3, program=_FILLS.replace("p.data.clamp_(-1, 1)", "print(p.data.abs().mean())"), integration="deepspeed")
@good(_STAGE_3, program=_FILLS.replace("p.data.clamp_(-1, 1)", "p.requires_grad_(False)"), integration="deepspeed")
@good(_STAGE_3, program=_FILLS.replace("p.data.clamp_(-1, 1)", "total.add_(p.data.sum())"), integration="deepspeed")
@good(_STAGE_3, program=_AVERAGES.replace("(both, ", "(both, modifier_rank=0, "), integration="deepspeed")
@good(
    _STAGE_3,
    program=_AVERAGES.replace("for one in (p, q)", "for one in (q,)").replace("ema.parameters()", "ema.buffers()"),
    integration="deepspeed",
)
@good(
    _STAGE_3,
    program=_ENGINE
    + "with deepspeed.zero.GatheredParameters(net.parameters()):\n    for p, q in zip(ema.parameters(), net.parameters()):\n        p.data.copy_(q.data)\n",
    integration="deepspeed",
)
@good(_STAGE_3, program=_LOADS.replace("net.load_state_dict(", "ema.load_state_dict("), integration="deepspeed")
@good(
    _STAGE_3,
    program=_LOADS.replace("net.load_state_dict(torch.load('best.pt'))", "print(net.state_dict())"),
    integration="deepspeed",
)
@good(_STAGE_3, program=_ROWS.replace("net.weight.data[4:] = 0", "rows = net.weight.data[4:]"), integration="deepspeed")
@good(_STAGE_3, program=_ROWS.replace("net.weight.data[4:] = 0", "ema.weight.data[4:] = net.weight.data[4:]"), integration="deepspeed")
def written_without_rank(config: Config) -> Iterator[Finding]:
    """At ZeRO stage 3 the program writes weights in `GatheredParameters` without `modifier_rank`, and the values are lost.

    `deepspeed.zero.GatheredParameters` gathers divided weights on every rank for the length of a block. At its end they are divided again only
    with `modifier_rank`: the values of that rank go to all others. Without it each rank goes back to the part that it had. That holds for
    `.data`, for functions such as `copy_` and those of `torch.nn.init`, and for `load_state_dict`: averages of weights (EMA) stay what they were at
    first, and nothing says so. With `enable_sanity_checks` recent releases raise RuntimeError.

    Pass `modifier_rank=0`, and write the values on that rank at least.
    """
    program = config.setup.program if config.setup else None
    if program is None or not config.value(STAGE) >= 3:
        return
    for event in program.events.of(r"deepspeed\.(\w+\.)*GatheredParameters"):
        rank, enabled = event.argument("modifier_rank", 1), event.argument("enabled", 3)
        is_off = enabled is not None and enabled.value is False
        if not event.complete or event.unlikely or is_off or (rank is not None and rank.value is not None):
            continue
        found = _first_write(tree_of(config, event.at.path), event)
        if found is not None:
            what, line = found
            place = f"{event.at.path}:{line}"
            yield Finding(
                "",
                f"{place} writes {what}, which GatheredParameters ({event.at.where}) has gathered without modifier_rank: at the end of the block DeepSpeed "
                "drops the gathered weights, and each rank keeps its part as it was.",
                help="Pass modifier_rank=0 to GatheredParameters.",
                elsewhere=event.at.related(""),
                certain=False,  # the block may only try something with other weights
            )
            return


def _first_write(tree: ast.Module | None, event: Event) -> tuple[str, int] | None:
    """The first gathered weight that the block of a `with` statement writes, and the line."""
    around = statements_around(tree, event)
    block = next((one for one in reversed(around) if isinstance(one, ast.With)), None)
    call = (
        next((one for item in block.items for one in ast.walk(item.context_expr) if _is_gather(one)), None) if block is not None else None
    )
    if block is None or not isinstance(call, ast.Call):
        return None
    given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "params")]
    gathered = {name for one in given for name in _weights(one)}
    for one in around:  # `both = [p, q]` before the block
        for statement in getattr(one, "body", []):
            if (
                isinstance(statement, ast.Assign)
                and statement.lineno < block.lineno
                and gathered & {ast.unparse(each) for each in statement.targets}
            ):
                gathered |= set(_weights(statement.value))
    for node in ast.walk(block):
        if isinstance(node, ast.For):
            gathered |= set(_targets(node, gathered))
    nodes = (node for node in ast.walk(block) if isinstance(node, ast.stmt | ast.expr))
    writes = ((written, node.lineno) for node in nodes for written in _written(node))
    is_gathered = (one for one in writes if any(one[0] == name or one[0].startswith(f"{name}.") for name in gathered))
    return min(is_gathered, key=lambda one: one[1], default=None)


def _is_gather(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("GatheredParameters")


_OF_MODEL = ("parameters", "named_parameters")


def _weights(node: ast.expr) -> Iterator[str]:
    """The names of weights and models in an expression: `model` of `list(model.parameters())`, `p` and `q` of `[p, q]`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _OF_MODEL:
        yield ast.unparse(node.func.value)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield ast.unparse(node)
    elif isinstance(node, ast.ListComp | ast.GeneratorExp):
        for one in node.generators:
            yield from _weights(one.iter)
    elif isinstance(node, ast.List | ast.Tuple):
        for each in node.elts:
            yield from _weights(each)
    elif isinstance(node, ast.IfExp):
        yield from _weights(node.body)
        yield from _weights(node.orelse)
    elif isinstance(node, ast.Call):
        for each in node.args:
            yield from _weights(each)


def _targets(loop: ast.For, gathered: set[str]) -> Iterator[str]:
    """The variables of a loop over gathered weights: in `zip` only those of the arguments that are gathered."""
    over, target = loop.iter, loop.target
    if isinstance(over, ast.Call) and ast.unparse(over.func) == "enumerate" and isinstance(target, ast.Tuple) and over.args:
        over, target = over.args[0], target.elts[-1]
    pairs = [(over, target)]
    if isinstance(over, ast.Call) and ast.unparse(over.func) == "zip":
        pairs = list(zip(over.args, target.elts, strict=False)) if isinstance(target, ast.Tuple) else []
    for each, variable in pairs:
        if gathered & set(_weights(each)):
            yield from (node.id for node in ast.walk(variable) if isinstance(node, ast.Name))


def _written(node: ast.AST) -> Iterator[str]:
    """The tensors whose elements a statement or a call writes."""
    if isinstance(node, ast.Assign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Subscript) or (isinstance(target, ast.Attribute) and target.attr == "data"):
                yield _tensor(target)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        in_place = name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_", "detach_", "share_memory_")
        if in_place and ast.unparse(node.func.value).endswith("init"):
            yield from (_tensor(one) for one in node.args[:1])
        elif in_place or name == "load_state_dict":
            yield _tensor(node.func.value)


def _tensor(node: ast.expr) -> str:
    """A tensor without what selects a part of it: `net.weight` of `net.weight.data[4:]`."""
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        node = node.value
    return ast.unparse(node)
