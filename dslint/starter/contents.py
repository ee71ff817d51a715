"""The values of a starter config, each with its reason."""

from __future__ import annotations

from typing import Any

from dslint.facts import Facts, Integration
from dslint.memory.changes import EXPANDABLE, SMALL_GROUP, sequence_program
from dslint.memory.shapes import Model
from dslint.record import Record
from dslint.schemas.auto import FILLED
from dslint.starter.choice import StageChoice, Wanted, choose

LEARNING_RATE = 2e-5
"""A common value for fine-tuning."""


BUCKET, LARGE_BUCKET = 500_000_000, 0.1
"""The default bucket size in elements, and the share of GPU memory from which it is reduced."""


NVME_PATH = "/local_nvme"


class Starter(Record):
    """A config, the reasons for its values by dotted path, and notes about the program. `fits`: whether the model fits (None: unknown)."""

    config: dict[str, Any]
    reasons: dict[str, str]
    notes: tuple[str, ...]
    fits: bool | None = None


def start(facts: Facts, model: Model | None = None, wanted: Wanted = Wanted()) -> Starter:  # noqa: B008 - it is immutable
    """A starter config.

    Args:
        facts: the facts; `integration` is required.
        model: the model, if known.
        wanted: ZeRO stage, tokens per sample and micro batch size, if given.
    """
    choice = choose(facts, model, wanted, lambda one: contents(facts, one).config)
    return contents(facts, choice)


def contents(facts: Facts, choice: StageChoice) -> Starter:
    """The config of a choice."""
    config: dict[str, Any] = {}
    reasons: dict[str, str] = {}

    def put(path: str, value: Any, why: str) -> None:
        *sections, name = path.split(".")
        place = config
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
        reasons[path] = why

    integration = facts.integration
    assert integration is not None
    notes: list[str] = []
    filled = FILLED[integration]
    if filled:
        for path in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"):
            put(path, "auto", f"filled by {integration.label}: {filled[path]}")
        notes += _about_batch(choice)
    elif integration is Integration.DEEPSPEED:
        _batch(put, choice)
    _precision(put, facts, notes)
    _optimizer(put, facts, choice, notes)
    _zero(put, facts, choice)
    if choice.nvme:
        notes.append("NVMe offload requires the library libaio and its headers, with which DeepSpeed builds async_io.")
    if choice.checkpointing:
        notes.append(f"Enable activation checkpointing: {_CHECKPOINTING[integration]}.")
    if choice.expandable:
        notes.append(f"For expandable segments, {EXPANDABLE}.")
    if choice.sequence > 1:
        notes.append(f"For sequence parallelism of {choice.sequence}: {sequence_program(choice.sequence)}.")
    if choice.stage == 3 and integration in _PARTITIONED:
        notes.append(f"Build the model {_PARTITIONED[integration]}, so that no GPU needs to hold the whole model.")
    return Starter(config, reasons, tuple(notes), choice.fits)


_CHECKPOINTING = {
    Integration.TRANSFORMERS: "gradient_checkpointing=True in the TrainingArguments",
    Integration.ACCELERATE: "model.gradient_checkpointing_enable()",
    Integration.LIGHTNING: "model.gradient_checkpointing_enable(), or deepspeed.checkpointing.checkpoint",
    Integration.DEEPSPEED: "model.gradient_checkpointing_enable(), or deepspeed.checkpointing.checkpoint",
}


_PARTITIONED = {
    Integration.LIGHTNING: "in configure_model",
    Integration.DEEPSPEED: "under deepspeed.zero.Init(config_dict_or_path=...)",
}
"""Where a program builds a stage-3 model; the Hugging Face loaders do this themselves."""


def _about_batch(choice: StageChoice) -> list[str]:
    return [] if choice.largest is None else [f"The largest micro batch size that fits by estimate is {choice.largest}."]


def _batch(put: Any, choice: StageChoice) -> None:
    fits = f"the largest power of two up to 16 that fits{choice.program}"
    smallest = "the smallest; raise it while it fits, because larger ones use the GPU better"
    why = fits if choice.largest else smallest if choice.micro_batch == 1 else "as given"
    put("train_micro_batch_size_per_gpu", choice.micro_batch, f"samples per GPU at a time: {why}")
    put("gradient_accumulation_steps", 1, "raise it for a larger batch: train_batch_size is micro batch size x this x number of GPUs")
    put("gradient_clipping", 1.0, "gradients above this norm are scaled down, so that a bad batch does not damage the weights")


def _precision(put: Any, facts: Facts, notes: list[str]) -> None:
    """Half precision: bf16 if the GPU supports it, else fp16; neither below compute capability 7.0."""
    integration, gpu = facts.integration, facts.gpu
    old = _without_half(facts)
    name = "fp16" if gpu and not gpu.has_bf16 else "bf16"
    if integration in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        for one in ("bf16", "fp16"):
            put(f"{one}.enabled", "auto", f"filled by {integration.label}: {FILLED[integration][f'{one}.enabled']}")
        _scale(put, facts)
    if old:
        notes.append(f"A {gpu} has a compute capability below 7.0, on which DeepSpeed trains only in fp32.")
        return
    why = (
        f"a {gpu} does not support bf16; DeepSpeed scales the loss so that small gradients are not lost"
        if name == "fp16"
        else "half the memory of fp32 with the same range, so it needs no loss scaling" + ("" if gpu else " (Ampere GPUs and newer)")
    )
    if integration is Integration.DEEPSPEED:
        put(f"{name}.enabled", True, why)  # noqa: FBT003 - a value
        if name == "fp16":
            _scale(put, facts)
    else:
        notes.append(f"Train in {name}: {_PRECISION[integration](name)}.")


def _scale(put: Any, facts: Facts) -> None:
    """The first loss scale, where ZeRO would start too high without it (`schemas/derive.py`)."""
    if facts.deepspeed <= (0, 17, 0):
        why = f"the first loss scale is 2**16; without the key, ZeRO of DeepSpeed {facts.deepspeed} starts at 2**32 and skips steps"
        put("fp16.initial_scale_power", 16, why)


_PRECISION: dict[Integration | None, Any] = {
    Integration.TRANSFORMERS: "{}=True in the TrainingArguments".format,
    Integration.ACCELERATE: 'Accelerator(mixed_precision="{}")'.format,
    Integration.LIGHTNING: lambda name: f'Trainer(precision="{"16-mixed" if name == "fp16" else "bf16-mixed"}")',
}


def _optimizer(put: Any, facts: Facts, choice: StageChoice, notes: list[str]) -> None:
    """The optimizer, if the config must name it: DeepSpeed then uses the version for the device of the states."""
    integration = facts.integration
    on_cpu = "; DeepSpeed uses its CPU version, because the states are offloaded" if choice.offload_optimizer else ""
    if integration is Integration.DEEPSPEED:
        put("optimizer.type", "AdamW", f"common for transformers{on_cpu}")
        put("optimizer.params.lr", LEARNING_RATE, "common for fine-tuning; set yours")
        put("optimizer.params.weight_decay", 0.01, "the default of torch (that of DeepSpeed is 0)")
    elif choice.offload_optimizer and integration is Integration.TRANSFORMERS:
        put("optimizer.type", "AdamW", f"must be in the config{on_cpu}")
        for name in ("lr", "betas", "eps", "weight_decay"):
            key = f"optimizer.params.{name}"
            put(key, "auto", f"filled by {integration.label}: {FILLED[integration][key]}")
    elif choice.offload_optimizer and integration is Integration.LIGHTNING:
        notes.append("Return deepspeed.ops.adam.DeepSpeedCPUAdam from configure_optimizers, because optimizer states are on the CPU.")


def _zero(put: Any, facts: Facts, choice: StageChoice) -> None:
    section = "zero_optimization"
    put(f"{section}.stage", choice.stage, choice.why)
    for name, on in (("offload_optimizer", choice.offload_optimizer), ("offload_param", choice.offload_param)):
        if on and choice.nvme and name == "offload_optimizer":
            put(f"{section}.{name}.device", "nvme", "keeps on a disk what does not fit in host memory; steps are much slower")
            put(f"{section}.{name}.nvme_path", NVME_PATH, "a folder on a fast local disk of each machine; set yours")
            put(f"{section}.{name}.pin_memory", True, "copies between CPU and GPU are faster with pinned memory")  # noqa: FBT003
            put(f"{section}.sub_group_size", SMALL_GROUP, "the buffers of NVMe hold this many elements; the default, 1e9, makes them large")
        elif on:
            put(f"{section}.{name}.device", "cpu", "keeps in host memory what does not fit on the GPU; steps are slower")
            put(f"{section}.{name}.pin_memory", True, "copies between CPU and GPU are faster with pinned memory")  # noqa: FBT003
    integration = facts.integration
    if facts.gpu_memory is not None and choice.stage and BUCKET * (4 if _without_half(facts) else 2) > LARGE_BUCKET * facts.gpu_memory:
        put(f"{section}.reduce_bucket_size", 100_000_000, "the default, 5e8 elements, takes too much of this GPU's memory")
    if choice.stage < 3:
        return
    if integration in (Integration.TRANSFORMERS, Integration.ACCELERATE) and _has_width(facts):
        for name in ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"):
            assert integration is not None
            put(f"{section}.{name}", "auto", f"filled by {integration.label}: {FILLED[integration][f'{section}.{name}']}")
    why = "gathers the weights from all GPUs when saving the model; otherwise the saved model has no weights"
    put(f"{section}.stage3_gather_16bit_weights_on_model_save", True, why)  # noqa: FBT003


def _without_half(facts: Facts) -> bool:
    """Whether DeepSpeed trains only in fp32 on the GPU."""
    capability = facts.gpu.capability if facts.gpu else None
    return capability is not None and capability < (7, 0)


def _has_width(facts: Facts) -> bool:
    """Whether the loader finds the model's hidden size, from which it computes bucket sizes; assumed for an unknown model."""
    return facts.model is None or isinstance(facts.model.data.get("hidden_size"), int)
