"""What a config to start from holds: every value with the reason why it is there."""

from __future__ import annotations

from typing import Any, NamedTuple

from dslint.facts import Facts, Integration
from dslint.memory.shapes import Model
from dslint.schemas.auto import FILLED
from dslint.starter.choice import Choice, choose

LEARNING_RATE = 2e-5
"""A usual one for fine-tuning; nobody can know the right one."""


BUCKET, LARGE_BUCKET = 500_000_000, 0.1
"""The elements of a bucket of gradients by default, and the share of a GPU's memory from which that is much."""


class Starter(NamedTuple):
    """A config, the reasons for its values by their dotted paths, and what its program has to see to."""

    config: dict[str, Any]
    reasons: dict[str, str]
    notes: tuple[str, ...]


def start(facts: Facts, model: Model | None = None, stage: int | None = None) -> Starter:
    """A config to start from.

    Args:
        facts: what is known of the run; `integration` has to be.
        model: the model, where it is known.
        stage: the ZeRO stage, where it is given and not to be chosen.
    """
    choice = choose(facts, model, stage, lambda one: contents(facts, one).config)
    return contents(facts, choice)


def contents(facts: Facts, choice: Choice) -> Starter:
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
            put(path, "auto", f"{integration.label} fills it in: {filled[path]}")
        notes += _about_batch(choice)
    elif integration is Integration.DEEPSPEED:
        _batch(put, choice)
    _precision(put, facts, notes)
    _optimizer(put, facts, choice, notes)
    _zero(put, facts, choice)
    if choice.checkpointing:
        notes.append(f"The model has to checkpoint its activations: {_CHECKPOINTING[integration]}.")
    if choice.stage == 3 and integration in _DIVIDED:
        notes.append(f"Make the model {_DIVIDED[integration]}, so that it is divided while it is made and no GPU has to hold the whole.")
    return Starter(config, reasons, tuple(notes))


_CHECKPOINTING = {
    Integration.TRANSFORMERS: "gradient_checkpointing=True in the TrainingArguments",
    Integration.ACCELERATE: "model.gradient_checkpointing_enable()",
    Integration.LIGHTNING: "model.gradient_checkpointing_enable(), or deepspeed.checkpointing.checkpoint",
    Integration.DEEPSPEED: "model.gradient_checkpointing_enable(), or deepspeed.checkpointing.checkpoint",
}


_DIVIDED = {
    Integration.LIGHTNING: "in configure_model",
    Integration.DEEPSPEED: "under deepspeed.zero.Init(config_dict_or_path=...)",
}
"""Where a program makes the model of stage 3; the Hugging Face loaders see to it."""


def _about_batch(choice: Choice) -> list[str]:
    return [] if choice.largest is None else [f"A micro batch size of up to {choice.largest} fits."]


def _batch(put: Any, choice: Choice) -> None:
    fits = f"the largest power of two up to 16 that fits{' with checkpointed activations' if choice.checkpointing else ''}"
    why = fits if choice.largest else "the smallest; raise it while it fits, since larger ones use the GPU better"
    put("train_micro_batch_size_per_gpu", choice.micro_batch, f"samples on a GPU at a time: {why}")
    put("gradient_accumulation_steps", 1, "raise it for a larger batch: train_batch_size is the product of both and the number of GPUs")
    put("gradient_clipping", 1.0, "gradients above this norm are scaled down, which keeps a bad batch from spoiling the weights")


def _precision(put: Any, facts: Facts, notes: list[str]) -> None:
    """Half precision: bf16 where the GPU has it, fp16 where it has only that, neither below compute capability 7.0."""
    integration, gpu = facts.integration, facts.gpu
    old = _without_half(facts)
    name = "fp16" if gpu and not gpu.has_bf16 else "bf16"
    if integration in (Integration.TRANSFORMERS, Integration.ACCELERATE):
        for one in ("bf16", "fp16"):
            put(f"{one}.enabled", "auto", f"{integration.label} fills it in: {FILLED[integration][f'{one}.enabled']}")
    if old:
        notes.append(f"A {gpu} is of compute capability below 7.0, on which DeepSpeed trains in fp32 alone.")
        return
    why = (
        f"a {gpu} has no bf16; DeepSpeed scales the loss so that small gradients are not lost"
        if name == "fp16"
        else "half the memory of fp32, with the same range, so that no loss scaling is needed" + ("" if gpu else " (Ampere GPUs and newer)")
    )
    if integration is Integration.DEEPSPEED:
        put(f"{name}.enabled", True, why)  # noqa: FBT003 - it is the value
    else:
        notes.append(f"Train in {name}: {_PRECISION[integration](name)}.")


_PRECISION: dict[Integration | None, Any] = {
    Integration.TRANSFORMERS: "{}=True in the TrainingArguments".format,
    Integration.ACCELERATE: 'Accelerator(mixed_precision="{}")'.format,
    Integration.LIGHTNING: lambda name: f'Trainer(precision="{"16-mixed" if name == "fp16" else "bf16-mixed"}")',
}


def _optimizer(put: Any, facts: Facts, choice: Choice, notes: list[str]) -> None:
    """The optimizer, where the config has to name it: DeepSpeed then takes the one that fits the place of the states."""
    integration = facts.integration
    on_cpu = ", and DeepSpeed takes its own for the CPU, because the states are there" if choice.offload_optimizer else ""
    if integration is Integration.DEEPSPEED:
        put("optimizer.type", "AdamW", f"the usual one for transformers{on_cpu}")
        put("optimizer.params.lr", LEARNING_RATE, "usual for fine-tuning; set yours")
        put("optimizer.params.weight_decay", 0.01, "DeepSpeed's own default is 0, torch's is this")
    elif choice.offload_optimizer and integration is Integration.TRANSFORMERS:
        put("optimizer.type", "AdamW", f"named here{on_cpu}")
        for name in ("lr", "betas", "eps", "weight_decay"):
            key = f"optimizer.params.{name}"
            put(key, "auto", f"{integration.label} fills it in: {FILLED[integration][key]}")
    elif choice.offload_optimizer and integration is Integration.LIGHTNING:
        notes.append("Return deepspeed.ops.adam.DeepSpeedCPUAdam from configure_optimizers: its states are on the CPU.")


def _zero(put: Any, facts: Facts, choice: Choice) -> None:
    section = "zero_optimization"
    put(f"{section}.stage", choice.stage, choice.why)
    for name, on in (("offload_optimizer", choice.offload_optimizer), ("offload_param", choice.offload_param)):
        if on:
            put(f"{section}.{name}.device", "cpu", "what does not fit on the GPU is kept in the machine's memory, and the steps are slower")
            put(f"{section}.{name}.pin_memory", True, "copies between CPU and GPU are faster from pinned memory")  # noqa: FBT003
    integration = facts.integration
    if facts.gpu_memory is not None and choice.stage and BUCKET * (4 if _without_half(facts) else 2) > LARGE_BUCKET * facts.gpu_memory:
        put(f"{section}.reduce_bucket_size", 100_000_000, "the default, 5e8 elements, takes a good part of such a GPU's memory")
    if choice.stage < 3:
        return
    if integration in (Integration.TRANSFORMERS, Integration.ACCELERATE) and _has_width(facts):
        for name in ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"):
            assert integration is not None
            put(f"{section}.{name}", "auto", f"{integration.label} fills it in: {FILLED[integration][f'{section}.{name}']}")
    why = "saving the model gathers its weights from all GPUs; otherwise what is saved has none"
    put(f"{section}.stage3_gather_16bit_weights_on_model_save", True, why)  # noqa: FBT003


def _without_half(facts: Facts) -> bool:
    """Whether DeepSpeed trains in fp32 alone on the GPU."""
    capability = facts.gpu.capability if facts.gpu else None
    return capability is not None and capability < (7, 0)


def _has_width(facts: Facts) -> bool:
    """Whether the loader finds the model's hidden size, from which it computes sizes of buckets; taken for granted of a model unknown."""
    return facts.model is None or isinstance(facts.model.data.get("hidden_size"), int)
