"""The activations that a model keeps for its backward pass, operation by operation, for the tokens of one micro batch.

An operation is a module with weights, or a function between modules. `kept` is what its forward keeps until its own backward has run;
`grads` is the size of activation gradients while that backward runs. The counts follow what transformers' modules and PyTorch's kernels
save: LayerNorm its input and two fp32 numbers per token; RMSNorm, as transformers implements it, an fp32 copy and a cast one (Gemma two
fp32 ones); flash or SDPA attention q, k, v, its output and an fp32 number per head, with grouped keys and values repeated if there is a
mask; experts the buffers of a grouped matrix product of their tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from dslint.facts.experts import EXPERT_BLOCKS
from dslint.memory.operations import Half, Operation, Operations
from dslint.memory.plan import Plan, Workload
from dslint.memory.shapes import Block, BlockStep, Model, Norm, Weight
from dslint.record import Record


class ForwardPlan(Record):
    """What of a plan decides the operations: plans that differ in stage, offload or optimizer have the same. `tokens` are those of a micro
    batch on one rank.
    """

    workload: Workload
    micro_batch: int
    tokens: int
    model_bytes: int
    tensor: int
    partitions_activations: bool
    activations_on_host: bool
    prefetches: bool
    leaves: tuple[str, ...]


def operations(model: Model, plan: Plan) -> Operations:
    """The operations of a model under a plan."""
    return _operations(
        model,
        ForwardPlan(
            plan.workload,
            plan.micro_batch,
            plan.tokens,
            plan.model_bytes,
            plan.tensor,
            plan.partitions_activations,
            plan.activations_on_host,
            plan.prefetch_bucket > 0,
            plan.leaves,
        ),
    )


@lru_cache(maxsize=32)
def _operations(model: Model, plan: ForwardPlan) -> Operations:
    """`dslint fit` estimates a model under hundreds of plans, of which few change the forward: the last ones are kept."""
    tokens = plan.tokens if model.tokens is None else plan.micro_batch * model.tokens
    every = plan.workload.checkpoint_every
    b, hidden = plan.model_bytes, model.hidden
    longest = max((plan.micro_batch * (block.tokens or 0) for block in model.blocks), default=0)
    stream = b * hidden * max(tokens, longest)
    index = len(model.first)
    blocks = []
    known: dict[tuple[Block, Learning], list[BlockPart]] = {}
    frozen = not every and not any(weight.trained for weight in model.first)
    groups = _groups_of(model)
    for number, block in enumerate(fused_blocks(model) if plan.workload.fused else model.blocks):
        learning = _learning(block.weights, first=number == 0 and frozen, dropout=bool(plan.workload.adapter_dropout))
        shape = replace(block, weights=()), learning
        if shape not in known:
            its = plan if block.tokens is None else replace(plan, workload=replace(plan.workload, length=block.tokens))
            known[shape] = list(_steps(block, its, tokens if block.tokens is None else plan.micro_batch * block.tokens, learning))
        each = list(_in_order(block.weights, index, groups[number], known[shape], 2 * stream, b))
        if block.experts and EXPERT_BLOCKS.get(model.family) in plan.leaves:
            each = _with_leaf(each, model)
        in_order = tuple(_with_modules(each))
        blocks.append(tuple(_without_backward(model, in_order)) if learning.first else in_order)
        index += len(block.weights)
    # A frozen embedding is released after the forward. With prefetching it stayed in a model of transformers, but not in the probe's own.
    stays = not frozen or plan.prefetches
    embedded = [Operation(group, 0, stream, 0, backward=stays) for group in _modules(model.first, 0)]
    if embedded:
        dropped = model.blocks[0].dropout if model.blocks else False
        mask = plan.workload.length if plan.workload.padded and every else 0  # checkpointed blocks keep the mask with their inputs
        embedded[0] = embedded[0]._replace(kept=(16 + mask + (hidden if dropped else 0)) * tokens)
    loss = _loss(model, plan, tokens)
    return Operations(
        tuple(embedded),
        tuple(blocks),
        tuple(_after(model, plan, tokens, index)),
        tuple(bool(every) and number % every == 0 for number in range(len(blocks))),
        *_stream(stream, plan, shares=plan.model_bytes == 4 or model.norm in (Norm.LAYER, Norm.T5)),
        *loss,
        output=loss[-1] if plan.workload.keeps_logits else 0,
        behind=int(len(embedded) == 1),  # positions that are not learned have a module of their own
        twice=(model.embedding,) if model.tied and model.vocabulary else (),
    )


def _with_leaf(block: list[Operation], model: Model) -> list[Operation]:
    """The operations of a block in which stage 3 gathers all weights of the layer of experts at once, router and shared expert included."""
    steps = (BlockStep.INTO_FEED, BlockStep.OUT_OF_FEED)
    first = next(number for number, one in enumerate(block) if one.weights and model.weights[one.weights[0]].step in steps)
    inside = block[first:]
    halves: list[Half] = []
    for one in reversed(inside):
        halves += one.halves or (Half(one.weights, one.grads, one.kept),)
    leaf = Operation(
        tuple(sorted(index for one in inside for index in one.weights)),
        sum(one.kept for one in inside),
        max(one.grads for one in inside),
        inside[0].left,
        passing=max(one.passing for one in inside),
        halves=tuple(halves),
        leaf=True,
    )
    return [*block[:first], leaf]


def _with_modules(block: list[Operation]) -> Iterator[Operation]:
    """The operations with the modules without weights around them: the layer itself begins before its first, and ends with its last."""
    for number, operation in enumerate(block):
        first, last = int(number == 0), int(number == len(block) - 1)
        yield operation._replace(opens=operation.opens + first, closes=operation.closes + last) if first or last else operation


def fused_blocks(model: Model) -> Iterator[Block]:
    """The blocks with Liger's kernels: its RMSNorm keeps its input, and its gates keep their two inputs, but not the activation."""
    for block in model.blocks:
        norm = Norm.FUSED if block.norm in (Norm.RMS, Norm.RMS_IN_FP32) else block.norm
        yield replace(block, norm=norm, copies=0 if block.gated and block.experts is None else block.copies)


def _stream(stream: int, plan: ForwardPlan, *, shares: bool) -> tuple[int, int, int]:
    """The bytes of a block's input: on the device, of these shared with its norm, and on the host."""
    if plan.partitions_activations:
        stream //= plan.tensor
    if plan.activations_on_host:
        return 0, 0, stream
    return stream, 2 * stream if shares and not plan.partitions_activations else 0, 0


def dropout_of_adapters(model: Model, plan: Plan, done: Operations) -> int:
    """Bytes that the dropout of adapters would add to the activations at their peak, if it is unknown whether they have dropout."""
    if plan.workload.adapter_dropout is not None or not model.adapted:
        return 0
    more = operations(model, plan.but(adapter_dropout=True))
    extra = [
        max(0, sum(o.kept for o in with_it) - sum(o.kept for o in without))
        for with_it, without in zip(more.blocks, done.blocks, strict=True)
    ]
    recomputed = max((size for size, checkpointed in zip(extra, done.checkpointed, strict=True) if checkpointed), default=0)
    return recomputed + sum(size for size, checkpointed in zip(extra, done.checkpointed, strict=True) if not checkpointed)


def _without_backward(model: Model, block: tuple[Operation, ...]) -> Iterator[Operation]:
    """The operations of a block whose input has no gradient: frozen modules of the step with the first trained one have no backward."""
    steps = {model.weights[index].step for operation in block for index in operation.weights if model.weights[index].trained}
    for operation in block:
        weights = [model.weights[index] for index in operation.weights]
        early = bool(weights) and bool(steps) and weights[0].step <= min(steps)
        yield operation._replace(backward=not early or any(weight.trained for weight in weights))


def _modules(weights: tuple[Weight, ...], start: int) -> list[tuple[int, ...]]:
    """The indices of weights, grouped by module."""
    groups: dict[str, list[int]] = {}
    for index, weight in enumerate(weights, start):
        groups.setdefault(weight.module, []).append(index)
    return [tuple(group) for group in groups.values()]


class BlockPart(Record):
    """A step of a block, or a function: bytes kept, bytes of gradients, and bytes `passing` in a forward that keeps nothing.

    Of stacked experts, `down` and `up` are the bytes of gradients while the second and the first product are differentiated; `inside` is
    freed in between. `opens` and `closes` are those of the first and of the last module of the step.
    """

    step: BlockStep | None
    kept: int
    grads: int
    passing: int
    down: int = 0
    up: int = 0
    inside: int = 0
    opens: int = 0
    closes: int = 0


class ModuleGroup(Record):
    """The indices of a module's weights, and the most elements of one of them that are unpacked at a time."""

    indices: tuple[int, ...]
    unpacked: int


@lru_cache(maxsize=8)
def _groups_of(model: Model) -> list[dict[BlockStep, list[ModuleGroup]]]:
    """The modules of each step of each block, which all plans of a model share."""
    found: list[dict[BlockStep, list[ModuleGroup]]] = []
    start = len(model.first)
    for block in model.blocks:
        weights, steps = block.weights, dict[BlockStep, list[ModuleGroup]]()
        modules = _modules(weights, start)
        modules.sort(key=lambda group: not weights[group[0] - start].routes)
        for group in modules:
            unpacked = max(_unpacked(weights[index - start]) for index in group)
            steps.setdefault(weights[group[0] - start].step, []).append(ModuleGroup(group, unpacked))
        found.append(steps)
        start += len(weights)
    return found


def _in_order(
    weights: tuple[Weight, ...], start: int, modules: dict[BlockStep, list[ModuleGroup]], steps: list[BlockPart], left: int, b: int
) -> Iterator[Operation]:
    """The operations of a block in the order of its forward pass. Memory kept by a step counts for its first module, or for the experts. A
    quantized weight is unpacked while it is used.
    """
    for part in steps:
        groups = modules.get(part.step, ()) if part.step is not None else ()
        if not groups:
            yield Operation((), part.kept, part.grads, left, passing=part.passing, opens=part.opens, closes=part.closes)
        stacked = next((one.indices for one in groups if part.inside and ".experts." in weights[one.indices[0] - start].name), None)
        first_of_all, last_of_all = (groups[0].indices, groups[-1].indices) if groups else ((), ())
        for one in groups:
            group, unpacked = one.indices, b * one.unpacked
            kept = part.kept if group is (stacked or first_of_all) else 0
            opens, closes = part.opens * (group is first_of_all), part.closes * (group is last_of_all)
            found = Operation(group, kept, part.grads + unpacked, left, passing=part.passing + unpacked, opens=opens, closes=closes)
            if group is stacked:
                second = tuple(index for index in group if "down_proj" in weights[index - start].name)
                first = tuple(index for index in group if index not in second)
                found = found._replace(halves=(Half(second, part.down, part.inside), Half(first, part.up, kept - part.inside)))
            yield found


def _unpacked(weight: Weight) -> int:
    """The elements of a quantized weight that are unpacked at a time: experts one after the other."""
    if weight.quantized is None:
        return 0
    return weight.size // weight.shape[0] if weight.is_stacked else weight.size


class Learning(Record):
    """The steps of a block that keep their input for trained weights, and the total `ranks` of their adapters and `inputs` of the dropout
    of these, which keep the results of the dropout instead. `first`: no gradient leaves the block.
    """

    steps: frozenset[BlockStep]
    ranks: tuple[tuple[BlockStep, int], ...]
    inputs: tuple[tuple[BlockStep, int], ...]
    first: bool

    def adapters(self, step: BlockStep, b: int) -> int:
        """The bytes that the adapters of a step keep per token: their intermediate results, and with dropout its mask and result."""
        return b * dict(self.ranks).get(step, 0) + (b + 1) * dict(self.inputs).get(step, 0)


def _learning(weights: tuple[Weight, ...], *, first: bool, dropout: bool) -> Learning:
    ranks: dict[BlockStep, int] = {}
    inputs: dict[BlockStep, int] = {}
    for weight in weights:
        if weight.name.endswith("lora_B.weight"):
            ranks[weight.step] = ranks.get(weight.step, 0) + weight.shape[1]
        elif weight.name.endswith("lora_A.weight") and dropout:
            inputs[weight.step] = inputs.get(weight.step, 0) + weight.shape[1]
    steps = frozenset(weight.step for weight in weights if weight.trained and not (dropout and ".lora_" in weight.name))
    return Learning(steps, tuple(ranks.items()), tuple(inputs.items()), first)


def _norm(width: int, b: int, kind: Norm, rows: int = 1, *, trained: bool = True) -> int:
    """Bytes that a norm keeps per token, with `rows` rows each. A trained weight also needs the tensor that it is multiplied with."""
    if kind is Norm.LAYER:
        return b * width + 8 * rows
    if kind is Norm.FUSED:
        return b * width + 4 * rows
    kept = {Norm.RMS: 4, Norm.RMS_IN_FP32: 4, Norm.T5: 4 + b if b == 2 else 4}[kind]
    scaled = 4 if kind is Norm.RMS_IN_FP32 else b
    return (kept + (scaled if trained else 0)) * width + 4 * rows


def _score_bytes(block: Block, b: int) -> tuple[int, int]:
    """Bytes that eager attention keeps per score, and those of gradients in its backward.

    Llama and most decoders compute the softmax in fp32 and cast it; models with dropout (GPT-2, BERT) compute it in their own precision and
    keep the mask and the result of the dropout. T5 does both. gpt-oss has its sinks beside the scores, in its own precision. Measured with
    transformers 5 on a device that counts bytes.
    """
    in_fp32 = (not block.dropout or block.norm is Norm.T5) and not block.sinks
    kept = (4 + (b if b == 2 else 0) if in_fp32 else b) + (b + 1 if block.dropout else 0) + (b if block.softcap else 0)
    return kept, (4 + b if in_fp32 else b)


def _steps(block: Block, plan: ForwardPlan, tokens: int, learning: Learning) -> Iterator[BlockPart]:
    """The steps of a block with bytes kept, bytes of gradients, and bytes that pass in a checkpointed forward; None stands for a function
    without weights.
    """
    b, h, divide = plan.model_bytes, block.hidden, plan.tensor
    query, keys, heads = block.query // divide, block.keys // divide, max(1, block.heads // divide)
    before, norm = (
        _norm(h, b, block.norm, trained=step in learning.steps) * tokens for step in (BlockStep.BEFORE_ATTENTION, BlockStep.BEFORE_FEED)
    )
    more = max(0, block.norms - 2) * norm // 2
    mask = h * tokens if block.dropout else 0
    t = b * tokens
    eager = plan.workload.eager or block.keeps_scores
    kept, passing = _score_bytes(block, b)
    pairs = tokens * heads * plan.workload.length
    scores = pairs * kept if eager else 4 * heads * tokens
    groups = heads * keys // max(1, query)
    masked = (eager or plan.workload.padded) and 1 < groups < heads  # a single group is expanded without a copy
    repeats = masked or (plan.workload.repeated and groups < heads)
    attended = 3 * query if repeats else query + keys + (query + 2 * keys if block.fused else keys)
    values = query
    if (compressed := block.latent) is not None:
        attended, values = query + keys + compressed.expands // divide, compressed.values // divide
    per_head = _norm(query + keys, b, block.norm, heads + groups) * tokens if block.head_norms else 0
    twice = 2 if block.cross else 1
    normed = (b if block.norm in (Norm.LAYER, Norm.FUSED) else 8) * h * tokens  # an fp32 copy, and another tensor made of it
    yield BlockPart(
        BlockStep.BEFORE_ATTENTION, 0 if learning.first and BlockStep.BEFORE_ATTENTION not in learning.steps else before, 3 * h * t, normed
    )
    into = twice * h * t if BlockStep.INTO_ATTENTION in learning.steps else 0
    into += learning.adapters(BlockStep.INTO_ATTENTION, b) * tokens
    if compressed is not None:
        trained = BlockStep.INTO_ATTENTION in learning.steps
        into += sum(_norm(rank, b, block.norm, trained=trained) * tokens + rank * t * trained for rank in compressed[:2] if rank)
    bare = int(not block.sinks)  # the module of attention has no weights
    yield BlockPart(
        BlockStep.INTO_ATTENTION, into + per_head, (2 * h + query + 2 * keys) * t, (h + 4 * query + 2 * keys) * t, opens=bare
    )  # with rotations
    at_once = (h + query + attended) * t + (pairs * (kept + b) if eager else scores)
    yield BlockPart(None, twice * (attended * t + scores), (2 * h + 2 * query + 2 * keys) * t, at_once)
    if eager:
        yield BlockPart(None, 0, pairs * passing, 0)
    own = learning.adapters(BlockStep.OUT_OF_ATTENTION, b) * tokens
    mixed = twice * (values * t + mask) + own + more
    yield BlockPart(BlockStep.OUT_OF_ATTENTION, mixed, (2 * h + query) * t, (2 * h + query) * t + mask, closes=bare)
    if block.norms > 1:
        yield BlockPart(BlockStep.BEFORE_FEED, norm - (h * t if block.parallel else 0), 3 * h * t, h * t + normed)
    yield from _feed(block, plan, tokens, mask + more, learning)


def _feed(block: Block, plan: ForwardPlan, tokens: int, more: int, learning: Learning) -> Iterator[BlockPart]:
    """The steps of a feed-forward layer, or of experts, beside the residual stream and the input of the layer."""
    b, h = plan.model_bytes, block.hidden
    t = b * tokens
    into = h * t if block.norms > 1 and BlockStep.INTO_FEED in learning.steps else 0
    into += learning.adapters(BlockStep.INTO_FEED, b) * tokens
    around = 2 * h * t
    if block.experts is None:
        inner = block.inner // plan.tensor
        wide = 2 if block.gated else 1
        added = 2 if learning.adapters(BlockStep.INTO_FEED, b) else 0  # the results of layer and adapter, beside their sum
        yield BlockPart(BlockStep.INTO_FEED, into, (3 * h + wide * inner) * t, around + (wide + added) * inner * t, opens=1)
        activated = (block.copies + (2 if block.gated else 0)) * inner * t
        at_once = around + max(3, block.copies) * inner * t
        yield BlockPart(None, activated, (2 * h + (wide + 1) * inner) * t, at_once, opens=1, closes=1)
        mask = inner * tokens if block.inner_dropout else 0
        out = learning.adapters(BlockStep.OUT_OF_FEED, b) * tokens + (inner * t if BlockStep.OUT_OF_FEED in learning.steps else 0)
        yield BlockPart(BlockStep.OUT_OF_FEED, out + mask + more, (2 * h + inner) * t, around + (h + inner) * t + mask, closes=1)
        return
    experts = block.experts
    width, shared = experts.width // plan.tensor, experts.shared // plan.tensor
    seen = experts.active * tokens
    each = b * seen
    routing = (4 * experts.number + 20 + (4 * h if experts.routed_in_fp32 else 0)) * tokens + 24 * seen
    inside = (h + (block.copies + 3) * width) * each  # all but the inputs of the experts
    yield BlockPart(
        BlockStep.INTO_FEED,
        into + routing + h * each + inside + (block.copies + 3) * shared * t,
        (2 * h + 3 * shared) * t,
        around + routing + h * each + (block.copies + (5 if experts.biased else 3)) * width * each,
        down=h * t + (h + width) * each,
        up=h * t + (h + 2 * width) * each,
        inside=inside,
        opens=1,
        closes=int(not shared),
    )
    if shared:
        yield BlockPart(BlockStep.OUT_OF_FEED, (h * t if experts.shared_gate else 0) + more, 3 * h * t, around + h * t, closes=1)


def _after(model: Model, plan: ForwardPlan, tokens: int, start: int) -> Iterator[Operation]:
    """The final norm and the head."""
    b, h = plan.model_bytes, model.hidden
    t = b * tokens
    tail = _modules(model.last, start)
    head = [model.embedding] if model.tied and model.vocabulary else []
    logits = model.vocabulary // plan.tensor * _at_a_time(plan, tokens) * b
    for position, group in enumerate(tail):
        last = position == len(tail) - 1 and not head
        # The backward of the whole model begins before its head, that of the decoder before its last norm.
        trained = any(model.last[index - start].trained for index in group)
        kept = (h * t if trained else 0) if last else _norm(h, b, model.norm, trained=trained) * tokens
        yield Operation(group, kept, (h * t + logits) if last else 2 * h * t, h * t, closes=1)
    if head:
        yield Operation(tuple(head), h * t if model.weights[head[0]].trained else 0, h * t + logits, h * t, closes=1)


def _at_a_time(plan: ForwardPlan, tokens: int) -> int:
    return min(tokens, plan.workload.loss_chunk or tokens)


def _loss(model: Model, plan: ForwardPlan, tokens: int) -> tuple[int, int, int, int]:
    """Bytes of logits and loss: at the end of the forward, kept after it, at the peak of the backward, and returned.

    In fp32: the logits, their log-softmax and the gradient of each; a copy in the model's precision until the end of the forward; and what
    capping keeps. Older releases of transformers also copy the logits to shift them. With a chunked loss only for one chunk, and the
    gradient of the loss's input.
    """
    width, b = model.vocabulary // plan.tensor, plan.model_bytes
    each = 4 if plan.workload.full_loss and model.full_loss else b
    if not plan.workload.loss_chunk:
        logits = width * tokens
        capped = b * logits if model.softcap else 0
        returned = b * logits if model.returns_logits else 0
        copy = returned if each != b else 0
        shifted = each * logits if plan.workload.shifted_copy else 0
        return 2 * each * logits + capped + copy + shifted, each * logits + capped, 3 * each * logits + capped, returned
    chunk = _at_a_time(plan, tokens)
    kept = b * model.hidden * tokens
    return 3 * each * width * chunk + kept, kept, kept, 0
