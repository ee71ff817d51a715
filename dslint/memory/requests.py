"""The model and the workload of an estimate, from the options of `dslint estimate` and the arguments of `dslint.estimate`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dslint.config import UNKNOWN, Config
from dslint.errors import UserError
from dslint.facts import Facts, Integration, Release
from dslint.facts.gpus import GIB
from dslint.frameworks.base import UNKNOWN_SHARE
from dslint.frameworks.engine_optimizer import runs_without_optimizer
from dslint.frameworks.trained import may_train_part
from dslint.frameworks.whole_load import whole_load
from dslint.job.arguments import as_read
from dslint.job.attention import EAGER, SDPA
from dslint.memory.given import FoundModel, ModelRequest, model_of
from dslint.memory.images import UNCOUNTED
from dslint.memory.numbers import with_value_model, without_logits
from dslint.memory.plan import FROZEN_TOWERS, IN_TOWERS, NO_SCORES, STATES, TOWERS, UNFUSED, Plan, PlanError, Workload
from dslint.memory.planning import builds_partitioned, lists_experts, make_plan, trains_with
from dslint.memory.shapes import Model
from dslint.memory.towers import has_towers

DEFAULT_LENGTH = 2048
"""The sequence length where neither an option nor a training says one. The report names it as an assumption."""

MASKED = (None, EAGER, SDPA)
"""The kernels with which attention has a mask for padded samples; those of FlashAttention leave padding out."""

DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("model", "params", "hidden", "layers", "heads", "kv_heads", "inner", "vocabulary", "lora_rank", "lora_targets")),
    **dict.fromkeys(("length", "micro_batch", "accumulation", "checkpoint_every", "loss_chunk", "optimizer", "zero_init", "keeps_logits")),
    **dict.fromkeys(("eval_batch", "host_used", "base_bits", "lora_saves", "lora_dropout", "frozen_copies", "vllm_share", "teacher")),
    "attention": None,
    **dict.fromkeys(("pairs", "frozen_towers", "value_model", "generates", "varying", "no_logits"), False),
    **dict.fromkeys(("eager", "padded", "expandable", "half_loss", "fused_kernels", "vllm_sleeps"), False),
}
"""What can be said of the model and the program, with what counts where nothing is said. `dslint estimate --help` explains each."""


def described_model(said: dict[str, Any], facts: Facts) -> FoundModel:
    """The model that the options describe; raises `UserError`."""
    targets = _words(said["lora_targets"])
    given = ModelRequest(
        name=said["model"],
        params=said["params"],
        hidden=said["hidden"],
        layers=said["layers"],
        heads=said["heads"],
        kv_heads=said["kv_heads"],
        inner=said["inner"],
        vocabulary=said["vocabulary"],
        lora_rank=said["lora_rank"],
        lora_targets=() if targets == ("all-linear",) else targets,
        frozen_towers=said["frozen_towers"],
        lora_saves=_words(said["lora_saves"]),
        base_bits=said["base_bits"] and int(said["base_bits"]),
        listed_experts=lists_experts(facts),
    )
    found = model_of(given, facts.model)
    if said["no_logits"]:
        found = found._replace(model=without_logits(found.model))
    return found._replace(model=with_value_model(found.model)) if said["value_model"] else found


def _teacher(name: str | None, notes: list[str]) -> tuple[int, tuple[tuple[str, float], ...]]:
    """The parameters of a frozen model of another size, and what the estimate leaves out if it is not known."""
    if name is None:
        return 0, ()
    try:
        return model_of(ModelRequest(name=name)).model.size, ()
    except UserError as error:
        notes.append(f"the teacher is not counted: {error}")
        return 0, (("the teacher model", UNKNOWN_SHARE),)


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


WITHOUT_COPY = Release(4, 49, 0)
"""The first release of transformers that shifts labels for the loss. Earlier ones shift logits, and copy them (its pull request 35646)."""


def _elsewhere(share: float | None, facts: Facts, notes: list[str]) -> int:
    """The bytes of a GPU that vLLM reserves."""
    if share and facts.gpu_memory is None:
        notes.append("what vLLM reserves is not counted, because the memory of the GPU is unknown (pass --gpu)")
    return round(share * facts.gpu_memory) if share and facts.gpu_memory else 0


def _copies_logits(facts: Facts) -> bool:
    release = facts.loader_release if facts.integration is Integration.TRANSFORMERS else None
    return release is not None and release < WITHOUT_COPY


def _uncounted(model: Model, *, frozen: bool) -> Iterator[tuple[str, float]]:
    if not model.vocabulary and model.generic:
        yield UNCOUNTED
    if has_towers(model):
        yield IN_TOWERS, FROZEN_TOWERS if frozen else TOWERS


def _may_train_less(config: Config) -> bool:
    """Whether a setup may train a part of the weights only, or nothing."""
    program = config.setup.program if config.setup is not None else None
    if runs_without_optimizer(config) or (program is not None and not program.trains):
        return True
    return may_train_part(config.setup, config.setup.workload if config.setup is not None else None) is not None


_BATCHES = ("per_device_train_batch_size", "per_device_batch_size", "micro_train_batch_size", "micro_batch_size", "batch_size_per_gpu")
"""The flags of programs with a loop of their own for the samples of a GPU; `batch_size` may count those of all."""


def _micro_batch(config: Config, said: dict[str, Any], notes: list[str]) -> int | None:
    """The micro batch size that is given, or, where the config leaves it to the program, that of a flag of the launch."""
    launch = config.setup.launch if config.setup is not None else None
    if said["micro_batch"] is not None or launch is None or launch.passed is None:
        return said["micro_batch"]  # type: ignore[no-any-return]
    if config.value("train_micro_batch_size_per_gpu") is not UNKNOWN:
        return None
    given = next((launch.passed.flags[name] for name in _BATCHES if name in launch.passed.flags), None)
    value = as_read("per_device_train_batch_size", given.value) if given is not None else None
    if given is None or type(value) is not int or value < 1:
        return None
    notes.append(f"--micro-batch is {value}, from {given.where}: the config leaves it to the program")
    return value


_SCORES = 6
"""Bytes per score that eager attention keeps at least: the softmax in fp32, and its result in 16 bits."""

_MANY_SCORES = 2 * GIB

_SDPA = Release(4, 48, 0)
"""The first release of transformers in which all usual decoders have SDPA; the first ones got it in 4.36."""


def _may_keep_scores(config: Config, model: Model, said: dict[str, Any], length: int, micro_batch: int | None) -> bool:
    """Whether nothing says what computes attention, and its scores would be many if they were kept: by a model with code of its own, or by
    an earlier release of transformers.
    """
    known = config.facts.loader_release is not None and config.facts.loader_release >= _SDPA
    own_code = config.facts.model is not None and "auto_map" in config.facts.model.data
    if said["attention"] is not None or said["eager"] or not model.blocks or (known and not own_code):
        return False
    batch = micro_batch or config.value("train_micro_batch_size_per_gpu")
    samples = (2 if said["pairs"] else 1) * (batch if isinstance(batch, int) else 1)
    layers = 1 if said["checkpoint_every"] else len(model.blocks)
    return _SCORES * samples * model.blocks[0].heads * length**2 * layers > _MANY_SCORES


def _unknown_and_least(config: Config, micro_batch: int | None) -> Iterator[str]:
    """What a plan assumes of values that are not known, with which a run needs the least."""
    if micro_batch is None and config.value("train_micro_batch_size_per_gpu") is UNKNOWN:
        yield "a micro batch size of 1"
    if config.value("bf16.enabled") is UNKNOWN and config.value("fp16.enabled") is not True:
        yield "16 bits"


def planned(
    config: Config, model: Model, said: dict[str, Any], assumed: tuple[str, ...] = (), unmodelled: tuple[tuple[str, float], ...] = ()
) -> Plan:
    """The plan of a config for a model; `unmodelled` is what the program needs in addition. Raises `UserError`."""
    divides = config.value("zero_optimization.stage") == 3
    notes = [note for note in assumed if divides or not note.startswith("--zero-init ")]
    micro_batch = _micro_batch(config, said, notes)
    hoped = list(_unknown_and_least(config, micro_batch))
    guessed = ["no ZeRO"] if config.value("zero_optimization.stage") is UNKNOWN else []
    length = said["length"]
    if length is None:
        length = model.tokens or min(DEFAULT_LENGTH, model.positions or DEFAULT_LENGTH)
        if not model.tokens:
            notes.append(f"--sequence-length is {length:,} (default)")
            guessed.append(f"samples of {length:,} tokens")
            hoped.append(f"samples of {length:,} tokens")
    if _may_keep_scores(config, model, said, length, micro_batch):
        hoped.append(NO_SCORES)
    if said["checkpoint_every"] is None:
        notes.append("the model does not use activation checkpointing (--activation-checkpointing enables it)")
        guessed.append("no activation checkpointing")
    teacher, unknown = _teacher(said["teacher"], notes)
    built = said["zero_init"]
    if built is None and builds_partitioned(config):
        built = True
    elif built is None and (whole := whole_load(config)) is not None:
        built = False
        notes.append(f"every rank holds the whole model first: {whole.at.where} loads it{whole.when} (--zero-init, --no-zero-init)")
    zero_init = trains_with(config.facts.integration) if built is None else built
    if said["eager"] and said["attention"] not in (None, EAGER):
        raise UserError(f"--eager-attention and --attention {said['attention']} contradict each other.")
    workload = Workload(
        length,
        checkpoint_every=said["checkpoint_every"] or 0,
        eager=said["eager"] or said["attention"] == EAGER,
        attention=said["attention"] or "",
        padded=said["padded"] and said["attention"] in MASKED,
        loss_chunk=said["loss_chunk"] or 0,
        full_loss=not said["half_loss"],
        fused=said["fused_kernels"],
        zero_init=zero_init,
        assumed_zero_init=built is None,
        shifted_copy=_copies_logits(config.facts),
        evaluation=said["eval_batch"],
        copies=said["frozen_copies"] or 0,
        teacher=teacher,
        value_model=said["value_model"],
        generates=said["generates"],
        varying=said["varying"],
        adapter_dropout=None if said["lora_dropout"] is None else said["lora_dropout"] > 0,
        pairs=said["pairs"],
        keeps_logits=config.facts.integration is not Integration.TRANSFORMERS if said["keeps_logits"] is None else said["keeps_logits"],
        expandable=said["expandable"],
        guessed_length=said["length"] is None and not model.tokens,
    )
    plan = make_plan(config, workload, model.hidden, micro_batch=micro_batch, accumulation=said["accumulation"])
    plan = plan.but(unmodelled=(*plan.unmodelled, *unmodelled, *unknown, *_uncounted(model, frozen=said["frozen_towers"])))
    used = 0 if said["host_used"] is None and "host_memory" in config.evidence else said["host_used"]  # other programs have their own limit
    plan = plan.but(guessed=tuple(guessed), hoped=tuple(hoped), may_train_less=said["lora_rank"] is None and _may_train_less(config))
    plan = plan.but(host_used=used, elsewhere=_elsewhere(said["vllm_share"], config.facts, notes), sleeps=said["vllm_sleeps"])
    if said["pairs"] and not said["no_logits"]:
        plan = plan.but(unmodelled=(*plan.unmodelled, ("log-probabilities of pairs, and logits of a reference model", 0.15)))
    if length % plan.sequence:
        raise PlanError(f"--sequence-length {length} is not divisible by the sequence parallel size {plan.sequence}")
    if said["optimizer"]:
        notes += [note for note in plan.assumed if "optimizer" not in note]
        return plan.but(
            optimizer=said["optimizer"],
            optimizer_bytes=STATES[said["optimizer"]],
            step_bytes=UNFUSED if said["optimizer"] == "torch_adamw" else 0,
            doubtful_step_bytes=0,
            assumed=tuple(notes),
        )
    return plan.but(assumed=(*notes, *plan.assumed))
