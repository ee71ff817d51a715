"""DS8: tensor and sequence parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.config.validate import is_habit
from dslint.diagnostics import Applicability, Effect, Phase, Severity
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.fixes import spelling, without, write
from dslint.source.tree import Mapping

MINIMAL = '"train_micro_batch_size_per_gpu": 4'
TENSOR = "tensor_parallel"
SIZE = f"{TENSOR}.autotp_size"
SEQUENCE = "sequence_parallel_size"
STAGE = "zero_optimization.stage"
AUTOTP = "https://www.deepspeed.ai/tutorials/autotp-training/"
ENGINE = "deepspeed/runtime/engine.py, DeepSpeedEngine._apply_autotp_partitioning"
GQA = {"num_attention_heads": 32, "num_key_value_heads": 4, "hidden_size": 4096}


@rule("DS824", "tensor-parallel-sizes-differ", effect=Effect.CRASH, phase=Phase.INITIALIZE, references=(ENGINE, AUTOTP))
@bad(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 4, "tp": {{"tp_size": 2}}}}}}', at=f"{TENSOR}.tp.tp_size", world_size=8)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 1, "tp": {{"tp_size": 1}}}}}}')
def tensor_parallel_sizes_differ(config: Config) -> Iterator[Finding]:
    """`tensor_parallel` has two sizes, and they differ.

    `autotp_size` is what counts in training. `tp.tp_size` comes from inference; DeepSpeed takes it only if it is 1 or the same number, and raises a `ValueError` otherwise.

    Write `autotp_size` alone.
    """
    key = f"{TENSOR}.tp.tp_size"
    size, inner = config.value(SIZE), config.value(key)
    if size > 1 and config.has(key) and inner != 1 and isinstance(inner, int) and inner != size:
        yield Finding(
            key,
            f'tp.tp_size {config.quote(key)} is neither 1 nor autotp_size {size}: DeepSpeed raises ValueError "tensor_parallel.tp.tp_size ({inner}) does not match tensor_parallel.autotp_size ({size})" in deepspeed.initialize.',
            help="Remove tp, and keep autotp_size.",
            related=((SIZE, "the size that counts"),),
            fix=without(
                config, key if len(getattr(config.node(f"{TENSOR}.tp"), "members", ())) > 1 else f"{TENSOR}.tp", Applicability.UNSAFE
            ),
        )


@rule("DS833", "tensor-parallel-not-on", effect=Effect.IGNORED, references=("deepspeed/__init__.py, initialize", AUTOTP))
@bad(f'{{{MINIMAL}, "tensor_parallel": {{"tp": {{"tp_size": 2}}}}}}', at=TENSOR)
@bad(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 1, "preset_model": "llama"}}}}', at=SIZE)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 1}}}}')
@good(f'{{{MINIMAL}, "tensor_parallel": {{}}}}')
def tensor_parallel_not_on(config: Config) -> Iterator[Finding]:
    """`tensor_parallel` has settings, and `autotp_size` is not above 1, without which none of them counts.

    The size in `tp.tp_size` is read for inference alone: in training every rank keeps the whole model, and all ranks are data-parallel.

    Write `"autotp_size"`: the number of ranks that share a layer.
    """
    node = config.node(TENSOR)
    if not isinstance(node, Mapping) or config.value(SIZE) not in (0, 1):
        return
    names = [member.key.value for member in node.members if member.key.value != "autotp_size" and not is_habit(member.key.value)]
    if not names or any(violation.path[:1] == (TENSOR,) for violation in config.violations):
        return
    size = config.value(f"{TENSOR}.tp.tp_size")
    what = f"tp_size {size} divides nothing" if "tp" in names and size > 1 else f"{names[0]} does nothing"
    yield Finding(
        SIZE if config.has(SIZE) else TENSOR,
        f"autotp_size is {config.quote(SIZE) if config.has(SIZE) else 'not written'}, and tensor parallelism is off: {what}, and every rank trains the whole model.",
        help=f'Write "autotp_size": {size}.'
        if size > 1
        else 'Write "autotp_size": the number of ranks that share a layer; or remove the section.',
        on="member" if config.has(SIZE) else "key",
        fix=write(config, SIZE, str(size)) if size > 1 and _divides(config, size) else None,
    )


def _divides(config: Config, size: int) -> bool:
    """Whether nothing that is known of the run stands against tensor-parallel groups of this size."""
    ranks, at_stage_3 = config.facts.world_size, config.value(STAGE) == 3 and config.release < Release(0, 19, 4)
    return not at_stage_3 and (ranks is None or ranks % size == 0)


@rule(
    "DS834",
    "tensor-parallel-not-a-divisor",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("world_size",),
    references=("deepspeed/utils/groups.py, _init_tp_mesh_device", AUTOTP),
)
@bad(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 16}}}}', at=SIZE, world_size=8)
@bad(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 3}}}}', at=SIZE, world_size=8)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 1}}}}', world_size=8)
def tensor_parallel_not_a_divisor(config: Config) -> Iterator[Finding]:
    """The ranks cannot be divided into groups of `autotp_size`.

    Each group of that many ranks holds one copy of the model. DeepSpeed asserts that the world size is a multiple of it.

    Write a divisor of the world size; within one node's GPUs, since every layer communicates.
    """
    size, ranks = config.value(SIZE), config.facts.world_size
    if ranks is not None and isinstance(size, int) and size > 1 and ranks % size:
        divisors = [n for n in range(2, min(ranks, 16) + 1) if ranks % n == 0]
        yield Finding(
            SIZE,
            f"autotp_size {size} does not divide the world size {ranks:,}: DeepSpeed raises AssertionError in deepspeed.initialize.",
            help=f"Write {' or '.join(map(str, divisors))}." if divisors else "Run on a multiple of that many ranks, or write 1.",
            fix=write(config, SIZE, str(divisors[0])) if len(divisors) == 1 else None,
        )


@rule(
    "DS835",
    "tensor-parallel-at-stage-3",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    references=("https://github.com/deepspeedai/DeepSpeed/issues/7389", AUTOTP),
    untried="releases from 0.19.4 on allow it, and the suite runs 0.19.8",
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 2}}, "zero_optimization": {{"stage": 3}}}}',
    at=SIZE,
    deepspeed="0.19.3",
)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 2}}, "zero_optimization": {{"stage": 3}}}}')
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 2}}, "zero_optimization": {{"stage": 2}}}}', deepspeed="0.19.3")
def tensor_parallel_at_stage_3(config: Config) -> Iterator[Finding]:
    """Tensor parallelism with ZeRO stage 3 came with 0.19.4.

    Before, DeepSpeed asserts that the stage is below 3 where `autotp_size` is above 1.

    Upgrade, or set the stage to 2.
    """
    if config.value(SIZE) > 1 and config.value(STAGE) == 3 and config.release < Release(0, 19, 4):
        yield Finding(
            SIZE,
            f'autotp_size {config.quote(SIZE)} with ZeRO stage 3: DeepSpeed {config.release} raises AssertionError "compatibility between autotp and zero_stage = 3 has not been validated" in deepspeed.initialize.',
            help='Set "stage": 2, or upgrade DeepSpeed to 0.19.4 or newer.',
            related=((STAGE, "the stage is set here"),),
            fix=write(config, STAGE, "2"),
        )


PRESETS = ("llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3")


@rule(
    "DS836",
    "unknown-tensor-parallel-preset",
    effect=Effect.IGNORED,
    references=("deepspeed/module_inject/autotp_config.py, AutoTPPresets",),
)
@bad(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 2, "preset_model": "lama"}}}}', at=f"{TENSOR}.preset_model")
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 2, "preset_model": "Llama"}}}}')
def unknown_tensor_parallel_preset(config: Config) -> Iterator[Finding]:
    """`preset_model` names no preset.

    DeepSpeed looks it up, finds nothing, and divides the layers as it would without it: by the model's own plan, or by guessing from the names of its layers.

    Write one of its names, or remove it.
    """
    key = f"{TENSOR}.preset_model"
    name = config.value(key) if config.has(key) else None
    if isinstance(name, str) and name.lower() not in PRESETS and config.value(SIZE) > 1:
        yield Finding(
            key,
            f"preset_model {config.quote(key)} is none that DeepSpeed has, and is dropped without a word.",
            help=f"Write one of {', '.join(PRESETS)}, or remove it.",
            fix=write(config, key, f'"{close.word}"') if (close := spelling(name, PRESETS)) and close.sure else without(config, key),
        )


@rule(
    "DS837",
    "more-ranks-than-key-value-heads",
    effect=Effect.SLOW,
    needs=("model",),
    references=(ENGINE,),
)
@bad(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 8}}}}', at=SIZE, model=GQA)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 4}}}}', model=GQA)
def more_ranks_than_key_value_heads(config: Config) -> Iterator[Finding]:
    """More ranks share a layer than the model has key-value heads.

    Attention is divided by key-value heads. The ranks beyond their number hold no part of it and wait, which DeepSpeed warns about.

    Write at most the number of key-value heads.
    """
    model, size = config.facts.model, config.value(SIZE)
    heads = model and (model.kv_heads or model.heads)
    if heads and size > heads:
        yield Finding(
            SIZE,
            f"autotp_size {config.quote(SIZE)} is more than the model's {heads} key-value heads: {size - heads} of {size} ranks have no part in attention.",
            help=f'Write "autotp_size": {heads} or less.',
            fix=write(config, SIZE, str(heads)) if _divides(config, heads) else None,
        )


@rule(
    "DS838",
    "sequence-parallel-builds-no-groups",
    effect=Effect.ADVICE,
    references=("deepspeed/__init__.py, initialize", "deepspeed/runtime/config.py"),
)
@bad(f'{{{MINIMAL}, "sequence_parallel_size": 2}}', at=SEQUENCE)
@good(f'{{{MINIMAL}, "sequence_parallel_size": 2, "data_parallel_size": 4}}')
@good(f'{{{MINIMAL}, "sequence_parallel_size": 1}}')
@good(f'{{{MINIMAL}, "sequence_parallel_size": 2, "compile": {{"deepcompile": true, "passes": ["autosp"]}}}}')
def sequence_parallel_builds_no_groups(config: Config) -> Iterator[Finding]:
    """`sequence_parallel_size` alone divides the world size for the batch, and builds no groups of ranks.

    DeepSpeed builds the groups where `data_parallel_size` stands beside it, or where the program hands over an `mpu` or a mesh, as `UlyssesSPAttentionHF` and Accelerate do.
    Without one of those, all ranks are data-parallel, and the batch is larger than DeepSpeed takes it for.

    Add `"data_parallel_size"`: the world size divided by it; unless the program brings its own.
    """
    size = config.value(SEQUENCE)
    passes = config.value("compile.passes")
    if isinstance(passes, list) and "autosp" in passes:
        return  # this pass builds them
    if config.has(SEQUENCE) and size > 1 and not config.has("data_parallel_size"):
        ranks = config.facts.world_size
        data = (
            f'"data_parallel_size": {ranks // size}'
            if ranks and ranks % size == 0
            else '"data_parallel_size": the world size divided by it'
        )
        yield Finding(
            SEQUENCE,
            f"sequence_parallel_size {config.quote(SEQUENCE)} divides the world size in the batch arithmetic, and builds no groups: unless the program hands over an mpu or a mesh, no sequence is shared.",
            help=f"Add {data}, unless the program brings its own groups.",
            fix=write(config, "data_parallel_size", str(ranks // size)) if ranks and ranks % size == 0 else None,
        )


@rule(
    "DS839",
    "mesh-larger-than-world",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("world_size",),
    references=("deepspeed/__init__.py, initialize",),
)
@bad(f'{{{MINIMAL}, "sequence_parallel_size": 2, "data_parallel_size": 8}}', at="data_parallel_size", world_size=8)
@good(f'{{{MINIMAL}, "sequence_parallel_size": 2, "data_parallel_size": 4}}', world_size=8)
def mesh_larger_than_world(config: Config) -> Iterator[Finding]:
    """`data_parallel_size` times `sequence_parallel_size` is more than there are ranks.

    DeepSpeed builds a mesh of that size over the ranks, and raises a `RuntimeError` where they are too few.

    Write sizes whose product is the world size.
    """
    data, size, ranks = config.value("data_parallel_size"), config.value(SEQUENCE), config.facts.world_size
    if ranks is None or not isinstance(data, int) or not isinstance(size, int) or not config.has(SEQUENCE):
        return
    if data * size > ranks:
        yield Finding(
            "data_parallel_size",
            f'data_parallel_size {data} * sequence_parallel_size {size} = {data * size} is more than the world size {ranks}: DeepSpeed raises RuntimeError "Mesh should not be bigger than default world size {ranks}, but found {data * size} ranks!" in deepspeed.initialize.',
            help=f'Write "data_parallel_size": {ranks // size}.' if ranks % size == 0 else "Write sizes whose product is the world size.",
            related=((SEQUENCE, "the other size"),),
            fix=write(config, "data_parallel_size", str(ranks // size)) if ranks % size == 0 else None,
        )


@rule(
    "DS840",
    "sequence-parallel-and-heads",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    needs=("model",),
    references=(
        "deepspeed/runtime/sequence_parallel/ulysses_sp.py, UlyssesSPAttentionHF",
        "https://github.com/deepspeedai/DeepSpeed/issues/5177",
    ),
    untried="needs a model with attention over several ranks",
)
@bad(f'{{{MINIMAL}, "sequence_parallel_size": 3, "data_parallel_size": 1}}', at=SEQUENCE, model=GQA)
@good(f'{{{MINIMAL}, "sequence_parallel_size": 4, "data_parallel_size": 2}}', model=GQA)
def sequence_parallel_and_heads(config: Config) -> Iterator[Finding]:
    """The attention heads cannot be divided among the ranks that share a sequence.

    Ulysses gives every rank whole heads while attention is computed, and so as many heads each. Its attention for Hugging Face models raises where the number of heads is no
    multiple of the size.

    Write a divisor of the number of heads.
    """
    model, size = config.facts.model, config.value(SEQUENCE)
    if model is not None and model.heads and config.has(SEQUENCE) and isinstance(size, int) and size > 1 and model.heads % size:
        yield Finding(
            SEQUENCE,
            f"sequence_parallel_size {config.quote(SEQUENCE)} does not divide the model's {model.heads} attention heads: Ulysses cannot give every rank as many.",
            help=f"Write one of {', '.join(str(n) for n in range(2, min(model.heads, 16) + 1) if model.heads % n == 0)}.",
            severity=Severity.WARNING,
        )
