"""DS2: batch keys that DeepSpeed's equation rejects: on this number of GPUs, on every number, on every number but one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dslint.config import UNKNOWN, Config, Origin
from dslint.diagnostics import Applicability, Effect, LoadStep, Phase
from dslint.facts import Integration
from dslint.rule import Finding, FixPlan, bad, good, rule, unsafe
from dslint.rules.helpers.batch import BATCH_DOCS, BATCH_KEYS, place_of_ranks, written_batch_keys, wrong_batch
from dslint.rules.helpers.fixes import without, write
from dslint.schemas.derive import ACCUMULATION, MICRO, TRAIN, batch_world_size
from dslint.source.change import Set
from dslint.source.tree import plain

if TYPE_CHECKING:
    from dslint.job.model import Setup

SOURCE = "deepspeed/runtime/config.py, DeepSpeedConfig._batch_assertion"


def _related(written: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The other batch keys, as related places of a finding at the train batch size."""
    return tuple((key, "part of the product") for key in written if key != TRAIN)


def _grouped(value: Any) -> str:
    """A number for messages, with thousands separators from five digits on."""
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


_ACCELERATE = """from accelerate import Accelerator, DeepSpeedPlugin
from transformers import AutoModelForCausalLM
accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config="ds_config.json"))
model = AutoModelForCausalLM.from_pretrained("gpt2")
"""


@rule(
    "DS201",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    step=LoadStep.BATCH,
    needs=("world_size",),
    references=(BATCH_DOCS, SOURCE),
    watches=("train_batch_size",),
)
@bad(
    '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}',
    at="train_batch_size",
    world_size=8,
    message='train_batch_size is 32, but micro batch size x gradient accumulation steps x world size is 4 x 2 x 8 = 64; DeepSpeed raises AssertionError "Check batch related parameters".',
    fixed='{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1}',
)
@bad(
    '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4}',
    at="train_batch_size",
    world_size=8,
    message="train_batch_size 16 is less than one micro batch of 4 on each of 8 GPUs: DeepSpeed computes 0 gradient accumulation steps and asserts that there is at least one.",
    fixed='{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2}',
)
@bad(
    '{"train_batch_size": 4, "gradient_accumulation_steps": 1}',
    at="train_batch_size",
    world_size=8,
    message="train_batch_size 4 is too small for 8 GPUs: the micro batch size becomes 0, and DeepSpeed asserts that it is greater than 0.",
    fixed='{"train_batch_size": 8, "gradient_accumulation_steps": 1}',
)
@bad(
    '{"train_batch_size": 100}',
    at="train_batch_size",
    world_size=8,
    message='train_batch_size is 100, but micro batch size x gradient accumulation steps x world size is 12 x 1 x 8 = 96 (DeepSpeed computes the missing key); DeepSpeed raises AssertionError "Check batch related parameters".',
    fixed='{"train_batch_size": 96}',
)
@bad(
    '{"train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "sequence_parallel_size": 4}',
    at="train_batch_size",
    world_size=4,
    integration="transformers",
    message='train_batch_size is 2, but micro batch size x gradient accumulation steps x world size is 1 x 1 x 1 = 1; DeepSpeed raises AssertionError "Check batch related parameters".',
    fixed='{"train_batch_size": 2, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "sequence_parallel_size": 4}',
)
@bad(
    '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 3}}',
    at="train_batch_size",
    world_size=4,
    program=_ACCELERATE,
    integration="accelerate",
    message='train_batch_size is 32, and the model is divided as it is loaded, before Accelerate knows the batch: until then it puts 1 for a micro batch size and accumulation steps that are not written, and DeepSpeed raises AssertionError "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 32 != 1 * 2 * 4".',
    fixed='{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 3}}',
)
@good('{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}', world_size=8)
@good('{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}', world_size=8)
@good('{"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 5}', world_size=7)
def batch_size_product(config: Config) -> Iterator[Finding]:
    """The train batch size is not micro batch size x gradient accumulation steps x world size.

    DeepSpeed computes the keys that are not written with integer division, and then asserts the product. If it fails, every rank raises
    `AssertionError: Check batch related parameters`, or an AssertionError for the key that becomes 0.

    Write only the micro batch size and the gradient accumulation steps, and DeepSpeed computes the train batch size: such a config runs on
    any number of GPUs. With a sequence parallel size, DeepSpeed first divides the world size by it.

    At ZeRO stage 3 a program with Accelerate parses the config while `from_pretrained` loads the model, before Accelerate knows the batch:
    there "auto" is the train batch size that fits.
    """
    early = _while_loading(config)
    if early is not None:
        yield early
        return
    if config.arguments is not None:
        return  # the Trainer compares the batch with its arguments before DeepSpeed reads it, which another rule reports
    written, ranks = written_batch_keys(config), batch_world_size(config)
    if not written or ranks is UNKNOWN or TRAIN not in written or any(value <= 0 for value in written.values()):
        return
    train, micro, steps = (config.value(key) for key in BATCH_KEYS)
    if any(value is UNKNOWN for value in (train, micro, steps)):
        return
    if train == micro * steps * ranks and micro > 0 and steps > 0:
        return
    related = _related(written)
    if ACCUMULATION not in written and config.facts.integration is Integration.ACCELERATE:
        written = {**written, ACCUMULATION: steps}  # Accelerate adds the key, so that DeepSpeed does not compute it
    if MICRO not in written and config.origin(MICRO) is Origin.FILLED:
        written = {**written, MICRO: micro}  # and Lightning this one
    fix = _write_product(config, written, ranks)
    keeps = f"To keep the train batch size, {fix.title}. " if fix and f'"{TRAIN}"' not in fix.title else ""
    yield Finding(
        TRAIN,
        _mismatch(train, micro, steps, ranks, _gpus(config, ranks), computed=len(written) < len(BATCH_KEYS)),
        help=keeps + _correct_values(written, ranks),
        fix=fix,
        related=(*related, *place_of_ranks(config)),
        certain=not config.may_be_written("sequence_parallel_size"),  # a program that completes the dict may divide the ranks
    )


def _while_loading(config: Config) -> Finding | None:
    """The finding for a batch that is not complete yet when `from_pretrained` divides the model, which parses the config.

    Until it prepares the data loader, Accelerate puts 1 for a micro batch size and for accumulation steps that are "auto" or missing. A flag
    of its launcher, a variable or the plug-in's own argument replaces an "auto" of the steps before that.
    Source: accelerate/utils/dataclasses.py, DeepSpeedPlugin.__post_init__ and set_deepspeed_weakref.
    """
    ranks = batch_world_size(config)
    if not config.facts.passes_accelerate or ranks is UNKNOWN or config.setup is None:
        return None
    from dslint.rules.helpers.models import knows_arguments, parses_while_loading  # a plain check does not import what programs need

    if knows_arguments(config) or not parses_while_loading(config) or (config.is_auto(ACCUMULATION) and _steps_come_first(config.setup)):
        return None
    written: dict[str, Any] = {key: plain(node) for key in BATCH_KEYS if (node := config.node(key)) is not None}
    train, micro, steps = (written.get(key, 1 if key != TRAIN else None) for key in BATCH_KEYS)
    micro, steps = (1 if one in ("auto", None) else one for one in (micro, steps))
    if not all(type(one) is int and one > 0 for one in (train, micro, steps)) or train == micro * steps * ranks:
        return None
    if not any(config.is_auto(key) or not config.has(key) for key in (MICRO, ACCUMULATION)):
        return None  # the product is wrong at any time
    return Finding(
        TRAIN,
        f"train_batch_size is {_grouped(train)}, and the model is divided as it is loaded, before Accelerate knows the batch: until then it puts 1 for "
        "a micro batch size and accumulation steps that are not written, and DeepSpeed raises AssertionError "
        f"{wrong_batch(train, micro, steps, ranks)}.",
        help='Set train_batch_size to "auto": Accelerate computes it.',
        fix=unsafe('write "auto"', Set((TRAIN,), '"auto"')),
        on="value",
        phase=Phase.LOAD,
        step=LoadStep.BATCH,
    )


def _steps_come_first(setup: Setup) -> bool:
    """Whether a flag, a variable or a plug-in says the accumulation steps, and not only the program's `Accelerator`."""
    file, launch, program = setup.accelerate, setup.launch, setup.program
    in_flags = file is not None and ACCUMULATION in file.flags
    in_variables = launch is not None and "ACCELERATE_GRADIENT_ACCUMULATION_STEPS" in launch.variables
    plugins = program.events.of(r"accelerate\.(\w+\.)*DeepSpeedPlugin") if program is not None else ()
    return in_flags or in_variables or any(one.argument(ACCUMULATION, 1) is not None or not one.complete for one in plugins)


def _gpus(config: Config, ranks: float) -> str:
    """The ranks that the batch is divided by, in words."""
    world_size = config.facts.world_size
    gpus = f"{world_size:,} GPU{'' if world_size == 1 else 's'}"
    return gpus if ranks == world_size else f"{ranks:.3g} data-parallel ranks on {gpus}"


def _mismatch(train: Any, micro: Any, steps: Any, ranks: float, gpus: str, *, computed: bool) -> str:
    """The message: which of the assertions fails, with the numbers that DeepSpeed computes."""
    if micro < 1:
        return f"train_batch_size {_grouped(train)} is too small for {gpus}: the micro batch size becomes {micro}, and DeepSpeed asserts that it is greater than 0."
    if steps < 1:
        return f"train_batch_size {_grouped(train)} is less than one micro batch of {_grouped(micro)} on each of {gpus}: DeepSpeed computes {steps} gradient accumulation steps and asserts that there is at least one."
    product = f"{_grouped(micro)} x {_grouped(steps)} x {_grouped(ranks)} = {_grouped(micro * steps * ranks)}"
    how = " (DeepSpeed computes the missing key)" if computed else ""
    return f'train_batch_size is {_grouped(train)}, but micro batch size x gradient accumulation steps x world size is {product}{how}; DeepSpeed raises AssertionError "Check batch related parameters".'


LARGEST_MICRO = 4096
"""The largest micro batch size for which a fix looks for a divisor."""


def _write_product(config: Config, written: dict[str, Any], ranks: float) -> FixPlan | None:
    """Keep the train batch size: write the accumulation steps that go with it, and a smaller micro batch size where none do.

    None if no integers keep it and both are written. If one of them is not written: the nearest train batch size.
    """
    if not all(isinstance(number, int) for number in (*written.values(), ranks)):
        return None
    train, micro, steps = (written.get(key) for key in BATCH_KEYS)
    per_rank, left = divmod(written[TRAIN], int(ranks))
    if micro is not None and 0 < min(micro, per_rank) <= LARGEST_MICRO and not left:
        fitting = max(size for size in range(1, min(micro, per_rank) + 1) if per_rank % size == 0)
        wanted = [(MICRO, fitting, micro), *([(ACCUMULATION, per_rank // fitting, steps)] if steps is not None else [])]
        changed = [(key, number) for key, number, before in wanted if number != before]
        title = " and ".join(f'"{key}": {number}' for key, number in changed)
        return unsafe(f"write {title}", *(Set((key,), str(number)) for key, number in changed))
    if micro is not None and steps is not None:
        return None
    return write(config, TRAIN, str(_nearest_multiple(train, (micro or steps or 1) * ranks)))


def _nearest_multiple(number: Any, unit: Any) -> int:
    """The multiple of a unit nearest to a number, and at least the unit."""
    return int(max(1, round((number or 0) / unit)) * unit)


def _correct_values(written: dict[str, Any], ranks: float) -> str:
    """The help: a train batch size that satisfies the equation, with the written micro batch size, which has to fit into memory."""
    if not isinstance(ranks, int):
        return "Make sequence_parallel_size a divisor of the world size."
    train, micro, steps = (written.get(key) for key in BATCH_KEYS)
    if micro and steps:
        return f"Write {_grouped(micro * steps * ranks)}, or remove train_batch_size, and DeepSpeed computes it."
    per_step = (micro or steps or 1) * ranks
    unit = f"{_grouped(micro or steps)} x {ranks:,} = {_grouped(per_step)}" if micro or steps else f"{ranks:,}"
    return f"Write a multiple of {unit}, such as {_grouped(_nearest_multiple(train, per_step))}."


@rule(
    "DS202",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    step=LoadStep.BATCH,
    references=(BATCH_DOCS, SOURCE),
    watches=("train_batch_size",),
)
@bad(
    '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}',
    at="train_batch_size",
    message="train_batch_size 30 is not a multiple of 4 x 2 = 8: no number of GPUs satisfies this batch configuration, and DeepSpeed raises an AssertionError.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}',
)
@bad(
    '{"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4}',
    at="train_batch_size",
    message="train_batch_size 30 is not a multiple of train_micro_batch_size_per_gpu 4: no number of GPUs satisfies this batch configuration, and DeepSpeed raises an AssertionError.",
    fixed='{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4}',
)
@good('{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}')
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 7}')
def batch_size_never_multiplies(config: Config) -> Iterator[Finding]:
    """The train batch size is not a multiple of the other batch keys, so no number of GPUs satisfies the equation.

    For every world size, DeepSpeed's assertion `train_batch_size == micro_batch_per_gpu * gradient_acc_step * world_size` fails while it
    parses the config. If the world size is known, `batch-size-product` reports the product for it instead.

    Write a multiple of the product of the other keys, or remove `train_batch_size`.
    """
    written = written_batch_keys(config)
    if not written or TRAIN not in written or config.facts.world_size is not None or any(value <= 0 for value in written.values()):
        return
    others = {key: value for key, value in written.items() if key != TRAIN}
    unit = 1
    for value in others.values():
        unit *= value
    train = written[TRAIN]
    if not others or train % unit == 0:
        return
    factors = " x ".join(_grouped(value) for value in others.values())
    product = f"{factors} = {_grouped(unit)}" if len(others) > 1 else f"{next(iter(others))} {factors}"
    nearest = _nearest_multiple(train, unit)
    yield Finding(
        TRAIN,
        f"train_batch_size {_grouped(train)} is not a multiple of {product}: no number of GPUs satisfies this batch configuration, and DeepSpeed raises an AssertionError.",
        help=f"Write a multiple of {_grouped(unit)}, such as {_grouped(nearest)}, or remove train_batch_size, and DeepSpeed computes it.",
        fix=without(config, TRAIN, Applicability.UNSAFE) if len(others) == 2 else write(config, TRAIN, str(nearest)),
        related=_related(written),
    )


@rule("DS203", effect=Effect.ADVICE, references=(BATCH_DOCS,), watches=("train_batch_size",), pedantic=True)
@bad(
    '{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}',
    at="train_batch_size",
    message="This batch configuration runs only on one GPU (16 = 4 x 4 x 1); on any other number DeepSpeed raises an AssertionError.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}',
)
@bad(
    '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}',
    at="train_batch_size",
    message="This batch configuration runs only on 32 GPUs (256 = 4 x 2 x 32); on any other number DeepSpeed raises an AssertionError.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}',
)
@good('{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}', world_size=1)
@good('{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}')
def batch_size_fixes_world_size(config: Config) -> Iterator[Finding]:
    """All three batch keys are written, so the config runs on exactly one number of GPUs.

    On any other number DeepSpeed raises `AssertionError: Check batch related parameters` before training starts. Configs that are copied
    from a guide often run on one GPU only, because the product leaves out the world size.

    Remove `train_batch_size`, and DeepSpeed computes it for every number of GPUs. Or pass `--world-size`, and dslint checks the product.
    """
    written = written_batch_keys(config)
    if not written or len(written) < 3 or config.facts.world_size is not None or any(value <= 0 for value in written.values()):
        return
    train, micro, steps = (written[key] for key in BATCH_KEYS)
    if train % (micro * steps):
        return
    ranks = int(train // (micro * steps))
    gpus = "one GPU" if ranks == 1 else f"{ranks:,} GPUs"
    product = f"{_grouped(train)} = {_grouped(micro)} x {_grouped(steps)} x {ranks:,}"
    other = 16 if ranks == 8 else 8
    yield Finding(
        TRAIN,
        f"This batch configuration runs only on {gpus} ({product}); on any other number DeepSpeed raises an AssertionError.",
        help=f"Remove train_batch_size, and DeepSpeed computes it ({_grouped(micro * steps * other)} on {other} GPUs), or pass --world-size {ranks} if the job always has that many.",
        fix=without(config, TRAIN, Applicability.UNSAFE),
        related=_related(written),
    )
