"""DS8: sequence parallelism (Ulysses)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import UNKNOWN, Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Integration
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import GROUPED_QUERY_MODEL, MINIMAL
from dslint.rules.helpers.fixes import write
from dslint.source.tree import plain
from dslint.source.unknown import UnknownInConfig

SIZE = "sequence_parallel_size"
DATA_PARALLEL = "data_parallel_size"
INITIALIZE = "deepspeed/__init__.py, initialize"


_BY_ACCELERATE = re.compile(r"parallelism_?config", re.IGNORECASE)
"""`ParallelismConfig`, or an argument or a section of that name."""

LAST_FOR_DICTS = (0, 18, 5)
"""The last release that reads the sizes in a dict, but not in a file."""


def reads_sizes(config: Config) -> bool:
    """Whether DeepSpeed reads the sizes."""
    return config.release > LAST_FOR_DICTS or config.facts.is_dict is not False


@rule(
    "DS838",
    effect=Effect.ADVICE,
    watches=(SIZE,),
    references=(INITIALIZE, "deepspeed/runtime/config.py, DeepSpeedConfig"),
)
@bad(
    f'{{{MINIMAL}, "sequence_parallel_size": 2}}',
    at=SIZE,
    message="sequence_parallel_size 2 divides the world size in the batch computation but creates no groups: unless the program passes an mpu or a mesh, the ranks share no sequence.",
)
@bad(
    f'{{{MINIMAL}, "sequence_parallel_size": 2}}',
    at=SIZE,
    deepspeed="0.18.3",
    message="DeepSpeed 0.18.3 reads sequence_parallel_size only if the program passes the config as a dict: with the path of the file it has no effect.",
)
@good(f'{{{MINIMAL}, "sequence_parallel_size": 2, "data_parallel_size": 4}}')
@good(f'{{{MINIMAL}, "sequence_parallel_size": 1}}')
@good(f'{{{MINIMAL}, "sequence_parallel_size": 2, "compile": {{"deepcompile": true, "passes": ["autosp"]}}}}')
@good(
    f'{{{MINIMAL}, "sequence_parallel_size": 2}}',
    program='import deepspeed\ndeepspeed.initialize(model=model, mpu=groups, config="ds_config.json")\n',
)
@good(
    f'{{{MINIMAL}, "sequence_parallel_size": 2, "zero_optimization": {{"stage": 2}}}}',
    program="from accelerate import Accelerator, ParallelismConfig\n"
    'accelerator = Accelerator(parallelism_config=ParallelismConfig(sp_backend="deepspeed", sp_size=2))\nmodel = accelerator.prepare(model)\n',
    integration="accelerate",
)
def sequence_parallel_builds_no_groups(config: Config) -> Iterator[Finding]:
    """Without `data_parallel_size`, `sequence_parallel_size` changes the batch computation but creates no groups of ranks.

    DeepSpeed divides the world size by it to compute the batch sizes. It creates the groups only if the config also has
    `data_parallel_size`, or if the program passes an `mpu` or a mesh, as `UlyssesSPAttentionHF` and Accelerate do. Otherwise all ranks are
    data-parallel, and the real batch is larger than the one that DeepSpeed computes.

    Add `"data_parallel_size"`: the world size divided by `sequence_parallel_size`. Leave it out if the program passes its own groups. With
    the Trainer or Accelerate, set `sp_size` in `parallelism_config` instead.
    """
    size, passes = config.value(SIZE), config.value("compile.passes")
    if isinstance(passes, list) and "autosp" in passes:
        return  # this pass creates the groups
    program = config.setup.program if config.setup else None
    if program is not None and program.passed is not None and program.passed & {"mpu", "mesh_param"}:
        return
    prepared = config.facts.integration in (Integration.TRANSFORMERS, Integration.ACCELERATE)
    if prepared and config.setup is not None and any(_BY_ACCELERATE.search(one.text) for one in config.setup.documents.values()):
        return  # Accelerate makes the groups, and passes them as mpu
    if isinstance(size, int) and size > 1 and config.has(SIZE) and config.lacks(DATA_PARALLEL):
        if config.release <= LAST_FOR_DICTS and not config.facts.is_dict:
            yield Finding(
                SIZE,
                f"DeepSpeed {config.release} reads sequence_parallel_size only if the program passes the config as a dict: with the path of the file it has no effect.",
                help="Pass json.load of the file, or use DeepSpeed 0.18.6 or newer.",
                effect=Effect.IGNORED,
                certain=config.facts.is_dict is False,
            )
            return
        ranks = config.facts.world_size
        data_parallel = str(ranks // size) if ranks and ranks % size == 0 else None
        yield Finding(
            SIZE,
            f"sequence_parallel_size {config.quote(SIZE)} divides the world size in the batch computation but creates no groups: unless the program passes an mpu or a mesh, the ranks share no sequence.",
            help="Remove it, and set sp_size in the parallelism_config of Accelerate, which makes the groups."
            if prepared
            else f'Add "data_parallel_size": {data_parallel or "the world size divided by it"}, unless the program creates its own groups.',
            fix=write(config, DATA_PARALLEL, data_parallel) if data_parallel and not prepared else None,
        )


@rule(
    "DS839",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("world_size",),
    watches=(SIZE,),
    references=(INITIALIZE,),
)
@bad(
    f'{{{MINIMAL}, "sequence_parallel_size": 2, "data_parallel_size": 8}}',
    at=DATA_PARALLEL,
    world_size=8,
    message='data_parallel_size 8 * sequence_parallel_size 2 = 16 is more than the world size 8: DeepSpeed raises RuntimeError "Mesh should not be bigger than default world size 8, but found 16 ranks!" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "sequence_parallel_size": 2, "data_parallel_size": 4}',
)
@good(f'{{{MINIMAL}, "sequence_parallel_size": 2, "data_parallel_size": 4}}', world_size=8)
def mesh_larger_than_world(config: Config) -> Iterator[Finding]:
    """`data_parallel_size` times `sequence_parallel_size` is more than the world size.

    DeepSpeed creates a device mesh of that size, and raises a `RuntimeError` if there are fewer ranks.

    Write sizes with the world size as their product.
    """
    data, size, ranks = config.value(DATA_PARALLEL), config.value(SIZE), config.facts.world_size
    if ranks is None or not isinstance(data, int) or not isinstance(size, int) or not config.has(SIZE):
        return
    if not reads_sizes(config) or isinstance(data, bool) or isinstance(size, bool) or min(data, size) < 1:
        return  # another rule reports sizes that are not numbers of ranks
    if data * size > ranks:
        possible = str(ranks // size) if ranks % size == 0 else None
        yield Finding(
            DATA_PARALLEL,
            f'data_parallel_size {data} * sequence_parallel_size {size} = {data * size} is more than the world size {ranks}: DeepSpeed raises RuntimeError "Mesh should not be bigger than default world size {ranks}, but found {data * size} ranks!" in deepspeed.initialize.',
            help=f'Write "data_parallel_size": {possible}.' if possible else "Write sizes with the world size as their product.",
            related=((SIZE, "the other size"),),
            fix=write(config, DATA_PARALLEL, possible) if possible else None,
        )


@rule(
    "DS865",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(SIZE,),
    references=(INITIALIZE,),
)
@bad(
    f'{{{MINIMAL}, "sequence_parallel_size": 2, "data_parallel_size": null}}',
    at=DATA_PARALLEL,
    message="data_parallel_size is null, and together with sequence_parallel_size it is the size of a device mesh: torch raises an error in deepspeed.initialize, before DeepSpeed parses the config.",
)
@bad(
    f'{{{MINIMAL}, "sequence_parallel_size": "2", "data_parallel_size": 1}}',
    at=SIZE,
    message='sequence_parallel_size is "2", and together with data_parallel_size it is the size of a device mesh: torch raises an error in deepspeed.initialize, before DeepSpeed parses the config.',
)
@bad(
    f'{{{MINIMAL}, "sequence_parallel_size": 0, "data_parallel_size": 1}}',
    at=SIZE,
    message="sequence_parallel_size is 0, and together with data_parallel_size it is the size of a device mesh: torch raises an error in deepspeed.initialize, before DeepSpeed parses the config.",
)
@good(f'{{{MINIMAL}, "sequence_parallel_size": 1, "data_parallel_size": 1}}')
def mesh_size_not_an_integer(config: Config) -> Iterator[Finding]:
    """`sequence_parallel_size` and `data_parallel_size` together make a device mesh, and are not integers above 0.

    DeepSpeed passes both to torch before it parses the config. torch raises a `TypeError` or a `ValueError` that names neither key. In a
    dict, `2.0` is a float and raises as well.

    Write integers with the world size as their product, or remove `data_parallel_size`.
    """
    if not (config.has(SIZE) and config.has(DATA_PARALLEL)) or not reads_sizes(config):
        return
    for key in (SIZE, DATA_PARALLEL):
        node = config.node(key)
        size = plain(node, as_json=bool(config.facts.is_dict)) if node is not None else UNKNOWN
        if size == "auto" or isinstance(size, UnknownInConfig) or (isinstance(size, int) and not isinstance(size, bool) and size > 0):
            continue
        yield Finding(
            key,
            f"{key} is {config.quote(key)}, and together with {DATA_PARALLEL if key == SIZE else SIZE} it is the size of a device mesh: torch raises an error in deepspeed.initialize, before DeepSpeed parses the config.",
            help="Write an integer above 0.",
            on="value",
        )
        return


@rule(
    "DS840",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    needs=("model",),
    watches=(SIZE,),
    references=(
        "deepspeed/runtime/sequence_parallel/ulysses_sp.py, UlyssesSPAttentionHF",
        "https://github.com/deepspeedai/DeepSpeed/issues/5177",
    ),
    untried="needs a model with attention over several ranks",
)
@bad(
    f'{{{MINIMAL}, "sequence_parallel_size": 3, "data_parallel_size": 1}}',
    at=SIZE,
    model=GROUPED_QUERY_MODEL,
    message="sequence_parallel_size 3 does not divide the model's 32 attention heads: Ulysses cannot give every rank the same number, and may raise at the first step.",
)
@good(f'{{{MINIMAL}, "sequence_parallel_size": 4, "data_parallel_size": 2}}', model=GROUPED_QUERY_MODEL)
def sequence_parallel_and_heads(config: Config) -> Iterator[Finding]:
    """`sequence_parallel_size` does not divide the number of attention heads.

    While attention is computed, Ulysses gives each rank the same number of whole heads. `UlyssesSPAttentionHF` raises if the number of
    heads is not a multiple of the size.

    Write a divisor of the number of heads.
    """
    model, size = config.facts.model, config.value(SIZE)
    if model is not None and model.heads and config.has(SIZE) and isinstance(size, int) and size > 1 and model.heads % size:
        divisors = ", ".join(str(n) for n in range(2, min(model.heads, 16) + 1) if model.heads % n == 0)
        yield Finding(
            SIZE,
            f"sequence_parallel_size {config.quote(SIZE)} does not divide the model's {model.heads} attention heads: Ulysses cannot give every rank the same number, and may raise at the first step.",
            help=f"Write one of {divisors}." if divisors else "Write a divisor of the number of heads.",
            certain=False,
        )
