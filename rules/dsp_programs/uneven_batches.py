"""DSP: training loops over data that a program divides among the ranks, with more batches on some of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ZERO_2, trained
from dslint.rules.helpers.syntax import first_in_ranks, related_to

_CONFIG = trained(ZERO_2)
_SHARDS = (
    "import deepspeed\nimport glob\nimport torch\nnet = torch.nn.Linear(8, 8)\n"
    "engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config='ds_config.json')\n"
    "rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()\nfiles = sorted(glob.glob('data/*.pt'))%s\n"
    "for epoch in range(3):\n    for name in files[rank::world]:\n        for batch in torch.utils.data.DataLoader(torch.load(name)):\n"
    "            engine.backward(engine(batch).mean())\n            engine.step()%s\n"
)
_NAMED = _SHARDS.replace("for epoch", "mine = files[rank::world]\nfor epoch").replace("in files[rank::world]", "in mine")


@rule(
    "DSP16",
    effect=Effect.CRASH,
    phase=Phase.LATER,
    watches=("setup",),
    references=(
        "deepspeed/runtime/zero/stage_1_and_2.py, average_tensor: the ranks reduce each bucket of gradients together",
        "https://github.com/deepspeedai/DeepSpeed/issues/2223",
    ),
    untried="the run hangs instead of raising, and only with several ranks",
    setup=True,
)
@bad(
    _CONFIG,
    at="",
    program=_SHARDS % ("", ""),
    integration="deepspeed",
    world_size=8,
    message="train.py:9 trains on files[rank::world], which has one item more on some ranks unless the number of items is a multiple of the world size: with more batches on some ranks, these wait for the others, and the run hangs.",
)
@bad(
    _CONFIG,
    at="",
    program=_NAMED % ("", ""),
    integration="deepspeed",
    message="train.py:10 trains on mine, which has one item more on some ranks unless the number of items is a multiple of the world size: with more batches on some ranks, these wait for the others, and the run hangs.",
)
@good(_CONFIG, program=_SHARDS % ("", ""), integration="deepspeed", world_size=1)
@good(_CONFIG, program=_SHARDS % ("\nfiles = files[: len(files) // world * world]", ""), integration="deepspeed", world_size=8)
@good(_CONFIG, program=_SHARDS % ("\nassert len(files) % world == 0", ""), integration="deepspeed", world_size=8)
@good(
    _CONFIG,
    program=_SHARDS % ("", "\n            if engine.global_steps == 1000:\n                break"),
    integration="deepspeed",
    world_size=8,
)
@good(
    _CONFIG,
    program=(_SHARDS % ("", "")).replace("engine.backward(engine(batch).mean())", "print(name)").replace("engine.step()", "pass"),
    integration="deepspeed",
    world_size=8,
)
def uneven_batches(config: Config) -> Iterator[Finding]:
    """The program gives each rank every n-th file or sample, so some ranks may have one more than others, and train longer.

    The ranks average the gradients of each micro batch together, and at stage 3 they gather the weights of each layer. `files[rank::world_size]`
    has one item more on some ranks unless the number of files is a multiple of the number of ranks, and files may hold different numbers of
    samples. A rank with a batch more than the others waits for them, until the timeout of the process group ends the run.

    dslint reports it where such a slice is what a training loop goes through, and nothing near it makes the numbers equal or ends the loop.

    Use a DistributedSampler, which gives every rank the same number, or cut what is left over.
    """
    at = first_in_ranks(config, _divided_loop)
    if at is None:
        return
    path, found = at
    yield Finding(
        "",
        f"{path}:{found.lineno} trains on {ast.unparse(found.iter)}, which {_HAS_MORE}: with more batches on some ranks, these wait for the others, "
        "and the run hangs.",
        help="Use a DistributedSampler, or cut the data to the same number of batches on each rank.",
        elsewhere=related_to(config, path, found.iter),
        certain=False,
    )


_HAS_MORE = "has one item more on some ranks unless the number of items is a multiple of the world size"
_TRAINS = re.compile(r"\.backward\(|\.train_batch\(")
_RANK, _WORLD = re.compile("rank", re.IGNORECASE), re.compile("world|size|replicas|num_proc|n_?gpus", re.IGNORECASE)
_EQUAL = re.compile(
    r"len\([^()]*\) *(//|%)|% *\w*(world|size)|\bpad|islice|DistributedSampler|even_batches|cycle\(|\bmin\(|all_reduce|barrier|join"
)
"""What makes the numbers equal, or may."""


def _divided_loop(tree: ast.Module) -> ast.For | None:
    """The first loop that trains on every n-th item, which nothing leaves early."""
    loops = [one for one in ast.walk(tree) if isinstance(one, ast.For) and _TRAINS.search(ast.unparse(one))]
    sliced = {
        ast.unparse(one.targets[0])
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and _is_share(one.value)
    }
    mine = [one for one in loops if _is_share(one.iter) or ast.unparse(one.iter) in sliced]
    if not mine or _EQUAL.search(ast.unparse(tree)):
        return None
    leaves = any(isinstance(inner, ast.Break | ast.Return) for one in mine for inner in ast.walk(one))
    return None if leaves else mine[0]


def _is_share(node: ast.expr) -> bool:
    """Whether it is `items[rank::world_size]`."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return False
    lower, upper, step = node.slice.lower, node.slice.upper, node.slice.step
    if lower is None or upper is not None or step is None:
        return False
    return _RANK.search(ast.unparse(lower)) is not None and _WORLD.search(ast.unparse(step)) is not None
