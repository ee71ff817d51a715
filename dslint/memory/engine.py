"""Replays a training step on one rank: init, forward, backward, step."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from math import prod

from dslint.memory.activations import operations
from dslint.memory.layout import Layout, lay_out, sub_groups
from dslint.memory.ledger import (
    ACTIVATIONS,
    BACKWARD,
    CASTS,
    EVALUATION,
    FORWARD,
    GATHERED,
    GENERATION,
    INIT,
    LOGITS,
    OPTIMIZER,
    PARAMETERS,
    PARTS,
    Ledger,
    Moment,
)
from dslint.memory.operations import Operations
from dslint.memory.plan import Plan
from dslint.memory.shapes import Model
from dslint.memory.walk import walk
from dslint.memory.zero3 import Zero3
from dslint.memory.zero12 import Zero12
from dslint.record import Record


class Run(Record):
    """The memory of a rank between steps, and at the peak of each phase. `gathered` is the bytes that one micro batch gathers, and
    `collectives` the number of its collective operations.
    """

    steady: Moment
    peaks: dict[str, Moment]
    layout: Layout
    gathered: int
    collectives: int


def run(
    model: Model,
    plan: Plan,
    rank: int = 0,
    prepared: Operations | None = None,
    layout: Layout | None = None,
    *,
    roomy: bool = False,
    prints: bool = True,
) -> Run:
    """Replay a training step on one of the data-parallel ranks.

    `prepared` are the operations of the model, and `layout` is that of any rank, if they are known. `roomy`: the device has room for a
    second copy of the model while stages 1 and 2 initialize. If it has not, DeepSpeed makes that copy on the host, so it does not count
    as needed. `prints`: DeepSpeed formats its arguments when stage 3 initializes, and torch formats a 16-bit weight through an fp32
    copy.
    """
    done = prepared or operations(model, plan)
    layout = replace(layout or lay_out(model, plan), rank=rank)
    ledger = Ledger()
    states = optimizer_bytes(model, plan, rank)
    engine = Zero3(ledger, plan, layout, states, done) if plan.stage == 3 else Zero12(ledger, plan, layout, states)
    engine.persist()
    ledger.hold(OPTIMIZER, _left_over(plan, layout))
    ledger.hold(PARAMETERS, frozen_copies(plan, layout))
    steady = Moment(ledger.total, ledger.held.copy())
    states_later = 0 if plan.stage == 3 and plan.optimizer == "adagrad" else steady.parts[OPTIMIZER]  # torch's Adagrad has them at once
    later = states_later + plan.model_bytes * sum(layout.sizes[index] for index in engine.persistent) + engine.made_by_steps
    ledger.peaks[INIT] = _init(plan, layout, steady.total - later, roomy=roomy, prints=prints)
    ledger.enter(FORWARD)
    engine.retain()
    walk(done, ledger, engine)
    engine.step()
    if isinstance(engine, Zero3) and engine.gathers and layout.viewed:
        for phase, moment in _untraced(plan, layout, states, done).items():
            ledger.peaks[phase] = max(ledger.peaks[phase], moment, key=lambda one: one.total)
    if plan.workload.generates:
        ledger.peaks[GENERATION] = generation(model, plan, layout, steady)
    if plan.workload.evaluation:
        ledger.peaks[EVALUATION] = evaluation(model, plan, steady, ledger.peaks[FORWARD].parts[GATHERED])
    return Run(steady, ledger.peaks, layout, engine.gathered, engine.collectives)


def _untraced(plan: Plan, layout: Layout, states: float, done: Operations) -> dict[str, Moment]:
    """Peaks of forward and backward before stage 3 has recorded the order of modules. Every weight is released after its forward, and
    gathered again for the backward; weights of which the forward keeps a view are then there twice.

    Source: DeepSpeed 0.19.8, runtime/zero/partitioned_param_coordinator.py, `release_sub_module`. It records the first micro batch; then
    there are no optimizer states yet, unless torch's Adagrad made them.
    """
    ledger = Ledger()
    later = plan.optimizer != "adagrad"
    engine = Zero3(ledger, plan, layout, 0 if later else states, done, traced=False)
    engine.persist()
    ledger.hold(OPTIMIZER, _left_over(plan, layout))
    ledger.hold(PARAMETERS, frozen_copies(plan, layout))
    walk(done, ledger, engine)
    return {phase: ledger.peaks[phase] for phase in (FORWARD, BACKWARD)}


def generation(model: Model, plan: Plan, layout: Layout, steady: Moment) -> Moment:
    """The peak of the model's own generation between two steps: stage 3 gathers all weights for it, and each token keeps keys and values.

    Source: trl, `unwrap_model_for_generation`, with `ds3_gather_for_generation` at its default.
    """
    whole = plan.model_bytes * layout.whole if plan.stage == 3 else 0
    cache = 2 * plan.model_bytes * plan.tokens * sum(block.keys for block in model.blocks) // plan.tensor
    parts = {**steady.parts, GATHERED: whole, ACTIVATIONS: cache}
    return Moment(sum(parts.values()), parts)


def evaluation(model: Model, plan: Plan, steady: Moment, gathered: int) -> Moment:
    """The peak of an evaluation between two steps: the largest operation, and whole logits, because a fused loss applies only to training.

    Nothing is kept for a backward. `gathered` is the bytes of weights that the forward of a step gathers.
    """
    done = operations(model, plan.but(micro_batch=plan.workload.evaluation, loss_chunk=0))
    largest = max((operation.passing for block in done.blocks for operation in block), default=0)
    parts = {**steady.parts, GATHERED: gathered}
    parts[max((ACTIVATIONS, LOGITS), key={ACTIVATIONS: largest, LOGITS: done.loss_forward}.__getitem__)] = max(largest, done.loss_forward)
    return Moment(sum(parts.values()), parts)


def optimizer_bytes(model: Model, plan: Plan, rank: int = 0) -> float:
    """Bytes of optimizer states per trained element. Muon uses Adam for everything except matrices.

    At stages 1 and 2 Muon keeps the momentum of the matrices in a rank's partition whole, in the precision of the gradients, and twice:
    the current value and the next one. Matrices are assigned largest first. At stage 3 the momentum has the precision of communication.
    BF16_Optimizer partitions the momentum like the master weights, in fp32.
    """
    if plan.optimizer != "muon":
        return plan.optimizer_bytes
    matrices = [w for w in model.weights if w.trained and w.is_matrix]
    total = sum(w.size for w in matrices)
    momentum = plan.optimizer_bytes * total / plan.replicas
    if plan.stage == 3 and plan.optimizer_device is None:
        momentum = plan.wire_bytes * total / plan.replicas
    if plan.stage in (1, 2) and not plan.keeps_full_gradients:
        part = max(1, -(-total // plan.replicas))
        sizes = [prod(shape) for shape in sorted((w.shape for w in matrices), reverse=True)]
        touched = (size for size, end in zip(sizes, accumulate(sizes), strict=True) if end > rank * part > end - size - part)
        momentum = 2 * plan.model_bytes * sum(touched)
    return (momentum * plan.replicas + 2 * plan.optimizer_bytes * (model.trained - total)) / max(1, model.trained)


def stepped_elements(plan: Plan, layout: Layout) -> int:
    """The elements that the optimizer updates on the device at a time."""
    if plan.optimizer_device is not None:
        return 0
    if plan.stage < 3:
        return layout.part if plan.stage else layout.flat
    parts = [-(-size // plan.replicas) for size, trained in zip(layout.sizes, layout.trained, strict=True) if trained]
    return min(sum(parts), plan.sub_group + max(parts, default=0))


def _left_over(plan: Plan, layout: Layout) -> int:
    """States that torch's Adagrad creates for the model's parameters. DeepSpeed later passes flat parameters; these states stay."""
    divided = plan.stage == 3 and plan.workload.zero_init
    if plan.optimizer != "adagrad" or plan.optimizer_device or divided or not (plan.half or plan.stage):
        return 0
    return plan.model_bytes * layout.flat


def frozen_copies(plan: Plan, layout: Layout) -> int:
    """Bytes of frozen models beside the trained one, which stage 3 partitions, too; with parameter offload they are on the host."""
    if plan.parameter_device is not None:
        return 0
    one = layout.whole // (2 if plan.workload.value_model else 1)
    elements = plan.workload.copies * one + plan.workload.teacher
    return plan.model_bytes * elements // (plan.replicas if plan.stage == 3 else 1)


def unpartitioned(plan: Plan, layout: Layout) -> int:
    """The bytes on the device while stage 3 initializes, if the model is not partitioned while it is built: each rank moves it whole."""
    return _init_partitioned(plan.but(zero_init=False), layout, 0, prints=True).total


def _init(plan: Plan, layout: Layout, after: int, *, roomy: bool, prints: bool) -> Moment:
    """The peak of `deepspeed.initialize`: flat copies of the model's weights, and the master weights created from them. `after` is the
    bytes that it leaves.

    At stages 1 to 3 the first step creates the optimizer states, and gathers small parameters that stay; without ZeRO a 16-bit model has
    the states (and zero gradients) from the start.
    """
    b, whole, flat, part = plan.model_bytes, layout.whole, layout.flat, layout.part
    master = plan.master_bytes if plan.optimizer_device is None else 0
    if plan.stage == 3:
        return _init_partitioned(plan, layout, after, prints=prints)
    if plan.stage == 0:
        states = max(round(plan.optimizer_bytes * flat), _first_muon_step(plan, layout) if plan.optimizer == "muon" else 0)
        copies = round((2 * plan.master_bytes + (0 if plan.is_fused else b + plan.step_bytes)) * flat) + states if plan.half else 0
        if not plan.half and plan.optimizer == "adagrad":
            copies = round(plan.optimizer_bytes * flat)  # torch's Adagrad creates its states at once
    else:
        matrices = sum(layout.sizes[index] for index in layout.matrices) if plan.optimizer == "muon" else 0
        # Muon has two groups of parameters: the second one is flattened after the master weights of the first one are made.
        copied = max(b * matrices, master * matrices // plan.replicas + b * (flat - matrices))
        # torch's Adagrad creates its states at once, after the flat copies are freed.
        states = round(plan.optimizer_bytes * part) if plan.optimizer == "adagrad" and plan.optimizer_device is None else 0
        copies = max(copied if roomy else 0, 2 * master * part + states) + (b * flat if plan.zenflow else 0)  # ZenFlow transposes matrices
        if plan.keeps_full_gradients:
            copies = plan.gradient_bytes * flat + master * part + states
    return _moment(b * whole, copies + _left_over(plan, layout))


def _first_muon_step(plan: Plan, layout: Layout) -> int:
    """The most bytes of the states of Muon's first step: those of later matrices are not there while one is orthogonalized.

    Source: DeepSpeed 0.19.8, runtime/fp16/unfused_optimizer.py, `initialize_optimizer_states`.
    """
    sizes = [layout.sizes[index] for index in layout.matrices]
    working = (plan.master_bytes * end + size for (_, size), end in zip(layout.one_by_one(), accumulate(sizes), strict=True))
    return max([*working, plan.master_bytes * (2 * layout.flat - sum(sizes))])


def _init_partitioned(plan: Plan, layout: Layout, after: int, *, prints: bool) -> Moment:
    """The peak of initialization at stage 3. At its end, every trained weight is gathered once to create its hook.

    Source: DeepSpeed 0.19.8, runtime/zero/stage3.py, `create_reduce_and_remove_grad_hooks`.
    """
    b, whole, largest = plan.model_bytes, layout.whole, max(layout.sizes)
    parts = [-(-size // plan.replicas) for size in layout.sizes]
    part = sum(parts)  # frozen weights are partitioned, too
    flat_part = max(layout.part, part if all(layout.trained) else 0)
    master = plan.master_bytes if plan.optimizer_device is None else 0
    states = round(plan.optimizer_bytes * layout.part) if master and plan.optimizer == "adagrad" else 0  # torch's Adagrad has them at once
    groups = sub_groups((index for index, trained in enumerate(layout.trained) if trained), parts, plan.sub_group)
    masters = states + master * (layout.part + max((sum(parts[index] for index in group) for group in groups), default=0))  # cast, copied
    bucket = plan.wire_bytes * plan.reduce_bucket if plan.contiguous else 0
    learned = max((size for size, trained in zip(layout.sizes, layout.trained, strict=True) if trained), default=0)
    hooks = after + b * learned
    offloaded = b * (largest + -(-largest // plan.replicas))
    if plan.workload.zero_init:
        # With parameter offload, only a weight that is gathered for its hook is on the device, with the rank's part of it.
        held = b * max(flat_part, part) if plan.parameter_device is None else b * (learned + -(-learned // plan.replicas))
        return _moment(held, max(masters, bucket, hooks - held))
    printed = 4 * largest if prints and plan.half else 0
    flat = b * layout.part + max(bucket, masters)
    divided = b * largest // plan.replicas if plan.parameter_device is None else offloaded + bucket - b * whole
    left = _left_over(plan, layout)  # a part of `after`
    copies = max(printed, divided, flat - b * whole if plan.parameter_device is None else 0, hooks - b * whole - left)
    return _moment(b * whole, copies + left)


def _moment(parameters: int, copies: int) -> Moment:
    parts = dict.fromkeys(PARTS, 0)
    return Moment(parameters + copies, {**parts, PARAMETERS: parameters, CASTS: copies})
