"""Walks through the last micro batch of a step, forward and backward, and notifies an engine."""

from __future__ import annotations

from typing import Protocol

from dslint.memory.ledger import ACTIVATIONS, BACKWARD, FORWARD, LOGITS, Ledger
from dslint.memory.operations import Operation, Operations


class Engine(Protocol):
    """The hooks of DeepSpeed around a model. One that gathers nothing does nothing when a module fetches or releases weights."""

    gathers: bool

    def fetch(self, weights: tuple[int, ...], *, forward: bool) -> None:
        """A module starts its forward and uses these weights, if any."""

    def release(self, weights: tuple[int, ...], *, forward: bool, saved: bool = True) -> None:
        """The module has used them. `saved`: its forward keeps tensors until a later backward."""

    def allocate(self, weights: tuple[int, ...]) -> None:
        """The gradients of its weights have been computed."""

    def combine(self, weights: tuple[int, ...]) -> None:
        """The gradients of their two uses are added."""

    def reduce(self, weights: tuple[int, ...]) -> None:
        """The activations of its backward are freed, and the hooks of its weights run."""

    def end_backward(self) -> None:
        """The backward is over."""


def walk(operations: Operations, ledger: Ledger, engine: Engine) -> None:
    """Forward and backward of one micro batch. Checkpointed blocks are recomputed in the backward."""
    ledger.enter(FORWARD)
    ledger.set(LOGITS, operations.output)
    for _ in range(operations.around):
        engine.fetch((), forward=True)
    for operation in operations.before:
        _forward(operation, ledger, engine)
    for _ in range(operations.behind):
        engine.fetch((), forward=True)
    (_forward_blocks if engine.gathers else _forward_joined)(operations, ledger, engine)
    for operation in operations.after:
        _forward(operation, ledger, engine)
    ledger.set(LOGITS, operations.loss_forward + operations.output)
    ledger.set(LOGITS, operations.loss_kept + operations.output)
    ledger.enter(BACKWARD)
    ledger.set(LOGITS, operations.loss_backward + operations.output)
    ledger.set(LOGITS, operations.output)
    for operation in reversed(operations.after):
        _leave(operation, engine)
        _backward(operation, ledger, engine, waiting=operations.twice)
    (_backward_blocks if engine.gathers else _backward_joined)(operations, ledger, engine)
    for operation in reversed(operations.before):
        _leave(operation, engine)
        _backward(operation, ledger, engine, first=True, combined=operations.twice)
    engine.end_backward()


def _forward_blocks(operations: Operations, ledger: Ledger, engine: Engine) -> None:
    for block, checkpointed in zip(operations.blocks, operations.checkpointed, strict=True):
        _forward_block(block, ledger, engine, operations.stream if checkpointed else None)


def _forward_joined(operations: Operations, ledger: Ledger, engine: Engine) -> None:  # noqa: ARG001 - as _forward_blocks
    """The forward of the blocks for an engine that gathers nothing."""
    for block, checkpointed in zip(operations.joined, operations.checkpointed, strict=True):
        ledger.hold(ACTIVATIONS, operations.stream if checkpointed else block.kept)
        ledger.pass_by(ACTIVATIONS, block.passing if checkpointed else 0)


def _backward_blocks(operations: Operations, ledger: Ledger, engine: Engine) -> None:
    for block, checkpointed in zip(reversed(operations.blocks), reversed(operations.checkpointed), strict=True):
        if checkpointed:
            _leave(block[-1], engine)  # nothing between its end and that of the block needs a tensor of the forward
            for operation in block[:-1]:
                _forward(operation, ledger, engine, saved=False)
            # torch stops as soon as it has recomputed the last tensor, before the last module returns and could release its weights.
            _enter(block[-1], engine)
            ledger.hold(ACTIVATIONS, block[-1].kept)
            ledger.drop(ACTIVATIONS, operations.shared)
        for operation in reversed(block):
            if not (checkpointed and operation is block[-1]):
                _leave(operation, engine)
            _backward(operation, ledger, engine)
        ledger.drop(ACTIVATIONS, operations.stream - operations.shared if checkpointed else 0)


def _backward_joined(operations: Operations, ledger: Ledger, engine: Engine) -> None:
    """The backward of the blocks for an engine that gathers nothing."""
    for block, checkpointed in zip(reversed(operations.joined), reversed(operations.checkpointed), strict=True):
        if checkpointed:
            ledger.hold(ACTIVATIONS, block.kept)
            ledger.drop(ACTIVATIONS, operations.shared)
        for operation in block.backward:
            _backward(operation, ledger, engine)
        if checkpointed:
            ledger.drop(ACTIVATIONS, operations.stream - operations.shared)


def _forward_block(block: tuple[Operation, ...], ledger: Ledger, engine: Engine, stream: int | None) -> None:
    """The forward of a block; a checkpointed block keeps only its input, of `stream` bytes."""
    ledger.hold(ACTIVATIONS, stream or 0)
    for operation in block:
        if stream is None:
            _forward(operation, ledger, engine)
            continue
        _enter(operation, engine)
        ledger.pass_by(ACTIVATIONS, operation.passing)
        engine.release(operation.weights, forward=True, saved=False)


def _enter(operation: Operation, engine: Engine) -> None:
    """The forward of an operation begins."""
    for _ in range(operation.opens):
        engine.fetch((), forward=True)
    if operation.weights:
        engine.fetch(operation.weights, forward=True)


def _forward(operation: Operation, ledger: Ledger, engine: Engine, *, saved: bool = True) -> None:
    _enter(operation, engine)
    ledger.hold(ACTIVATIONS, operation.kept)
    engine.release(operation.weights, forward=True, saved=saved and operation.backward)


def _leave(operation: Operation, engine: Engine) -> None:
    """The backward of an operation begins."""
    for _ in range(operation.closes):
        engine.fetch((), forward=False)
    if operation.weights and operation.backward:
        engine.fetch(operation.weights, forward=False)


def _backward(
    operation: Operation,
    ledger: Ledger,
    engine: Engine,
    *,
    first: bool = False,
    waiting: tuple[int, ...] = (),
    combined: tuple[int, ...] = (),
) -> None:
    """The backward of an operation. The `first` operations send no notification at their end, because no gradient leaves them.

    The gradient of a weight that is used twice is `waiting` after the backward of its second use, and `combined` with that of the first.
    """
    weights = operation.weights
    if not operation.backward:
        ledger.drop(ACTIVATIONS, operation.kept)
        return
    if not weights:  # most operations are functions
        ledger.pass_by(ACTIVATIONS, operation.grads)
        ledger.drop(ACTIVATIONS, operation.kept)
        return
    ledger.hold(ACTIVATIONS, operation.grads)
    if operation.halves:
        ledger.drop(ACTIVATIONS, operation.grads)
        for half in operation.halves:
            ledger.hold(ACTIVATIONS, half.grads)
            engine.allocate(half.weights)
            ledger.drop(ACTIVATIONS, half.grads + half.freed)
            engine.reduce(half.weights)
        engine.release(weights, forward=False)
        return
    engine.allocate(weights)
    ledger.drop(ACTIVATIONS, operation.kept + operation.grads - operation.left)
    if combined:
        engine.combine(tuple(index for index in weights if index in combined))
    engine.reduce(tuple(index for index in weights if index not in waiting) if waiting else weights)
    ledger.drop(ACTIVATIONS, operation.left)
    if not first:
        engine.release(weights, forward=False)
