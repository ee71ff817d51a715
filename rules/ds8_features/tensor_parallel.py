"""DS8: tensor parallelism (AutoTP)."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.config.sections import is_habit
from dslint.diagnostics import Applicability, Effect, Phase
from dslint.facts import Release
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.cost import idle_in_attention
from dslint.rules.helpers.examples import GROUPED_QUERY_MODEL, MINIMAL
from dslint.rules.helpers.fixes import spelling, without, write
from dslint.rules.helpers.project import programs_of
from dslint.rules.helpers.zero import STAGE
from dslint.source.tree import Mapping

SECTION = "tensor_parallel"
SIZE = f"{SECTION}.autotp_size"
INFERENCE_SIZE = f"{SECTION}.tp.tp_size"
PRESET = f"{SECTION}.preset_model"
TUTORIAL = "https://www.deepspeed.ai/tutorials/autotp-training/"
ENGINE = "deepspeed/runtime/engine.py, DeepSpeedEngine._apply_autotp_partitioning"
_COMPARES_SIZES = Release(0, 18, 6)
"""The first release that compares the size for inference with that for training."""
WITH_STAGE_3 = Release(0, 19, 4)
"""The first release that supports tensor parallelism at ZeRO stage 3."""
PRESETS = ("llama", "bloom", "chatglm", "mixtral", "deepseek_v2", "qwen2", "phi3")


@rule(
    "DS824",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(INFERENCE_SIZE,),
    references=(ENGINE, TUTORIAL),
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 4, "tp": {{"tp_size": 2}}}}}}',
    at=INFERENCE_SIZE,
    world_size=8,
    message='tp.tp_size 2 is neither 1 nor autotp_size 4: DeepSpeed raises ValueError "tensor_parallel.tp.tp_size (2) does not match tensor_parallel.autotp_size (4)" in deepspeed.initialize.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "tensor_parallel": {"autotp_size": 4}}',
)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 1, "tp": {{"tp_size": 1}}}}}}')
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 4, "tp": {{"tp_size": 2}}}}}}', deepspeed="0.18.5")
def tensor_parallel_sizes_differ(config: Config) -> Iterator[Finding]:
    """`tensor_parallel` has two sizes, and they differ.

    Training uses `autotp_size`. `tp.tp_size` is a setting for inference: since 0.18.6 DeepSpeed accepts it only if it is 1 or equal to
    `autotp_size`, and otherwise raises a `ValueError`. Earlier releases do not read it in training.

    Write only `autotp_size`.
    """
    size, inference_size = config.value(SIZE), config.value(INFERENCE_SIZE)
    if not size > 1 or not config.has(INFERENCE_SIZE) or not isinstance(inference_size, int) or inference_size in (1, size):
        return
    if config.release < _COMPARES_SIZES:
        return
    only_member = len(getattr(config.node(f"{SECTION}.tp"), "members", ())) == 1
    yield Finding(
        INFERENCE_SIZE,
        f'tp.tp_size {config.quote(INFERENCE_SIZE)} is neither 1 nor autotp_size {size}: DeepSpeed raises ValueError "tensor_parallel.tp.tp_size ({inference_size}) does not match tensor_parallel.autotp_size ({size})" in deepspeed.initialize.',
        help="Remove tp, and keep autotp_size.",
        related=((SIZE, "the size that training uses"),),
        fix=without(config, f"{SECTION}.tp" if only_member else INFERENCE_SIZE, Applicability.UNSAFE),
    )


@rule(
    "DS833",
    effect=Effect.IGNORED,
    watches=(SECTION,),
    references=("deepspeed/__init__.py, initialize", TUTORIAL),
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel": {{"tp": {{"tp_size": 2}}}}}}',
    at=SECTION,
    message="autotp_size defaults to 0, so tensor parallelism is off: tp_size 2 has no effect, and every rank trains the whole model.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "tensor_parallel": {"tp": {"tp_size": 2}, "autotp_size": 2}}',
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 1, "preset_model": "llama"}}}}',
    at=SIZE,
    message="autotp_size is 1, so tensor parallelism is off: preset_model has no effect, and every rank trains the whole model.",
)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 1}}}}')
@good(f'{{{MINIMAL}, "tensor_parallel": {{}}}}')
@good(
    f'{{{MINIMAL}, "tensor_parallel": {{"tp": {{"tp_size": 2}}}}}}',
    program="import deepspeed\nmodel = deepspeed.tp_model_init(model, tp_size=2, dtype=torch.bfloat16)\n"
    'engine, *_ = deepspeed.initialize(model=model, config="ds_config.json")\n',
)
def tensor_parallel_not_on(config: Config) -> Iterator[Finding]:
    """`tensor_parallel` has settings, but they have no effect because `autotp_size` is not above 1.

    Only inference reads the size in `tp.tp_size`. In training every rank then holds the whole model, and all ranks are data-parallel.
    A program that calls `deepspeed.tp_model_init` gives the size itself.

    Write `"autotp_size"`: the number of ranks that share a layer.
    """
    node = config.node(SECTION)
    if not isinstance(node, Mapping) or config.value(SIZE) not in (0, 1) or any("tp_model_init(" in text for text in programs_of(config)):
        return
    names = [member.key.value for member in node.members if member.key.value != "autotp_size" and not is_habit(member.key.value)]
    if not names or any(violation.path[:1] == (SECTION,) for violation in config.violations):
        return
    inference_size, written = config.value(INFERENCE_SIZE), config.has(SIZE)
    ignored = f"tp_size {inference_size}" if "tp" in names and inference_size > 1 else names[0]
    yield Finding(
        SIZE if written else SECTION,
        f"autotp_size {f'is {config.quote(SIZE)}' if written else 'defaults to 0'}, so tensor parallelism is off: {ignored} has no effect, and every rank trains the whole model.",
        help=f'Write "autotp_size": {inference_size}.'
        if inference_size > 1
        else 'Write "autotp_size": the number of ranks that share a layer. Or remove the section.',
        on="member" if written else "key",
        fix=write(config, SIZE, str(inference_size)) if inference_size > 1 and _is_possible(config, inference_size) else None,
    )


def _is_possible(config: Config, size: int) -> bool:
    """Whether the release, the ZeRO stage and the world size, as far as known, allow tensor-parallel groups of this size."""
    ranks, rejected = config.facts.world_size, config.value(STAGE) == 3 and config.release < WITH_STAGE_3
    return not rejected and (ranks is None or ranks % size == 0)


@rule(
    "DS834",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    needs=("world_size",),
    watches=(SIZE,),
    references=("deepspeed/utils/groups.py, _init_tp_mesh_device", TUTORIAL),
    untried="raised on the ranks that are left over, and only with a model that DeepSpeed can divide",
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 16}}}}',
    at=SIZE,
    world_size=8,
    message="autotp_size 16 does not divide the world size 8: the ranks do not fill a tensor-parallel group, and raise an error in deepspeed.initialize.",
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 3}}}}',
    at=SIZE,
    world_size=8,
    message="autotp_size 3 does not divide the world size 8: the last 2 ranks are in no tensor-parallel group, and raise an error in deepspeed.initialize.",
)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 1}}}}', world_size=8)
def tensor_parallel_not_a_divisor(config: Config) -> Iterator[Finding]:
    """The ranks cannot be divided into groups of `autotp_size`.

    Each group holds one copy of the model. torch makes the groups: where the ranks do not fill one, it raises an `AssertionError` without a
    message, and where some ranks are left over, these raise an error that does not name the key.

    Write a divisor of the world size. Keep a group within the GPUs of one node, because its ranks communicate in every layer.
    """
    size, ranks = config.value(SIZE), config.facts.world_size
    if ranks is not None and isinstance(size, int) and size > 1 and ranks % size:
        left = ranks % size
        raises = (
            f"the last {left:,} {'rank is' if left == 1 else 'ranks are'} in no tensor-parallel group, and {'raises' if left == 1 else 'raise'} an error in deepspeed.initialize"
            if left < ranks
            else "the ranks do not fill a tensor-parallel group, and raise an error in deepspeed.initialize"
        )
        divisors = [n for n in range(2, min(ranks, 16) + 1) if ranks % n == 0]
        yield Finding(
            SIZE,
            f"autotp_size {size} does not divide the world size {ranks:,}: {raises}.",
            help=f"Write one of {', '.join(map(str, divisors))}." if divisors else f"Run on a multiple of {size} ranks, or write 1.",
            fix=write(config, SIZE, str(divisors[0])) if len(divisors) == 1 else None,
        )


@rule(
    "DS835",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=(SIZE,),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/7389", TUTORIAL),
    untried="releases from 0.19.4 on allow it, and the suite runs 0.19.8",
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 2}}, "zero_optimization": {{"stage": 3}}}}',
    at=SIZE,
    deepspeed="0.19.3",
    message="autotp_size is 2 at ZeRO stage 3: DeepSpeed 0.19.3 raises AssertionError \"Currently, the compatibility between 'autotp' and 'zero_stage = 3' has not been validated\" in deepspeed.initialize.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 2}}',
)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 2}}, "zero_optimization": {{"stage": 3}}}}')
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 2}}, "zero_optimization": {{"stage": 2}}}}', deepspeed="0.19.3")
def tensor_parallel_at_stage_3(config: Config) -> Iterator[Finding]:
    """Tensor parallelism at ZeRO stage 3 requires DeepSpeed 0.19.4.

    Earlier releases assert that the stage is below 3 if `autotp_size` is above 1.

    Upgrade DeepSpeed, or set the stage to 2.
    """
    if config.value(SIZE) > 1 and config.value(STAGE) == 3 and config.release < WITH_STAGE_3:
        yield Finding(
            SIZE,
            f"autotp_size is {config.quote(SIZE)} at ZeRO stage 3: DeepSpeed {config.release} raises AssertionError \"Currently, the compatibility between 'autotp' and 'zero_stage = 3' has not been validated\" in deepspeed.initialize.",
            help='Write "stage": 2, or upgrade DeepSpeed to 0.19.4 or later.',
            related=((STAGE, "the stage is set here"),),
            fix=write(config, STAGE, "2"),
        )


@rule(
    "DS836",
    effect=Effect.IGNORED,
    watches=(PRESET,),
    references=("deepspeed/module_inject/autotp_config.py, AutoTPPresets",),
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 2, "preset_model": "lama"}}}}',
    at=PRESET,
    message='DeepSpeed has no tensor-parallel preset named "lama", and silently ignores it.',
    fixed='{"train_micro_batch_size_per_gpu": 4, "tensor_parallel": {"autotp_size": 2, "preset_model": "llama"}}',
)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 2, "preset_model": "Llama"}}}}')
def unknown_tensor_parallel_preset(config: Config) -> Iterator[Finding]:
    """`preset_model` is not the name of a preset.

    DeepSpeed silently ignores an unknown name and divides the layers as without it: by the model's own plan, or by guessing from the layer
    names.

    Write the name of a preset, or remove the key.
    """
    name = config.value(PRESET) if config.has(PRESET) else None
    if isinstance(name, str) and name.lower() not in PRESETS and config.value(SIZE) > 1:
        close = spelling(name, PRESETS)
        yield Finding(
            PRESET,
            f"DeepSpeed has no tensor-parallel preset named {config.quote(PRESET)}, and silently ignores it.",
            help=f"Write one of {', '.join(PRESETS)}, or remove it.",
            fix=write(config, PRESET, f'"{close.word}"') if close and close.sure else without(config, PRESET),
        )


@rule(
    "DS837",
    effect=Effect.SLOW,
    needs=("model",),
    watches=(SIZE,),
    references=(ENGINE,),
)
@bad(
    f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 8}}}}',
    at=SIZE,
    model=GROUPED_QUERY_MODEL,
    message="autotp_size 8 is more than the model's 4 key-value heads: 4 of 8 ranks have no part of attention and wait.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "tensor_parallel": {"autotp_size": 4}}',
)
@good(f'{{{MINIMAL}, "tensor_parallel": {{"autotp_size": 4}}}}', model=GROUPED_QUERY_MODEL)
def more_ranks_than_key_value_heads(config: Config) -> Iterator[Finding]:
    """`autotp_size` is larger than the number of key-value heads of the model.

    DeepSpeed divides attention by key-value heads. The ranks beyond their number hold no part of it and wait; DeepSpeed logs a warning.

    Write at most the number of key-value heads.
    """
    model, size = config.facts.model, config.value(SIZE)
    heads = model and (model.kv_heads or model.heads)
    if heads and size > heads:
        yield Finding(
            SIZE,
            f"autotp_size {config.quote(SIZE)} is more than the model's {heads} key-value heads: {size - heads} of {size} ranks have no part of attention and wait.",
            help=f'Write "autotp_size": {heads} or less.' + idle_in_attention(config, heads),
            fix=write(config, SIZE, str(heads)) if _is_possible(config, heads) else None,
        )
