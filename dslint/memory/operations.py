"""The operations of a forward pass: what each keeps for its backward pass, and what is allocated while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from dslint.record import Record


class Half(Record):
    """A part of the backward of stacked experts: the weights that get their gradient in it, bytes of gradients, kept bytes freed by it."""

    weights: tuple[int, ...]
    grads: int
    freed: int


class Operation(NamedTuple):
    """A module or a function: indices of its weights in the model, bytes kept, bytes of gradients, and gradient bytes `left` after it.

    `backward`: it has a backward. Frozen modules in front of the first trained one have none. `passing` is the bytes that its forward
    holds at a time if it keeps nothing, as in a checkpointed block. `halves` are the parts of a backward whose weights get their gradients
    one after the other. `opens` and `closes` are the modules without weights (a layer, its attention, its activation function) whose
    forward, or whose backward, begins right before it: stage 3 prefetches at each of them. `leaf`: a leaf module of stage 3.
    """

    weights: tuple[int, ...]
    kept: int
    grads: int
    left: int
    backward: bool = True
    passing: int = 0
    halves: tuple[Half, ...] = ()
    opens: int = 0
    closes: int = 0
    leaf: bool = False


class JoinedBlock(Record):
    """A block as an engine sees it that gathers no weights: the bytes that its forward keeps, and those that it holds at a time if it keeps
    nothing; its backward, in which functions in a row are one operation.
    """

    kept: int
    passing: int
    backward: tuple[Operation, ...]


class Operations(Record):
    """A model in the order of its forward pass. `checkpointed` blocks keep only their input, of `stream` bytes; `shared` bytes of it are
    the same memory that the first norm keeps when the block is recomputed.

    `loss_forward` and `loss_backward` are the bytes of logits and loss at the end of the forward and at the peak of their backward;
    `loss_kept` is kept between the two, and `returned` is the size of the logits that the forward returns with the loss; the program holds
    `output` bytes of them until the next forward has returned. The weights in `twice` are used at both ends: a head that is tied to the
    embedding. `around` is the number of modules without weights that run before the embedding, `behind` of those between it and the blocks.
    """

    before: tuple[Operation, ...]
    blocks: tuple[tuple[Operation, ...], ...]
    after: tuple[Operation, ...]
    checkpointed: tuple[bool, ...]
    stream: int
    shared: int
    host_stream: int
    loss_forward: int
    loss_kept: int
    loss_backward: int
    returned: int
    output: int = 0
    twice: tuple[int, ...] = ()
    around: int = 2
    behind: int = 0

    @cached_property
    def joined(self) -> tuple[JoinedBlock, ...]:
        """The blocks for an engine that gathers no weights."""
        return tuple(map(_joined, self.blocks))

    @cached_property
    def without_bytes(self) -> Operations:
        """The order of the modules alone: the same for micro batches and samples of any size."""

        def plain(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
            return tuple(
                Operation(one.weights, 0, 0, 0, one.backward, 0, tuple(Half(half.weights, 0, 0) for half in one.halves), *one[7:])
                for one in operations
            )

        no_bytes = dict.fromkeys(("stream", "shared", "host_stream", "loss_forward", "loss_kept", "loss_backward", "returned", "output"), 0)
        blocks = tuple(map(plain, self.blocks))
        return self._replace(before=plain(self.before), blocks=blocks, after=plain(self.after), **no_bytes)

    def without_modules(self) -> Operations:
        """The operations of a model that is one module with blocks: their attention, feed-forward layer and activation are functions."""

        def plain(block: tuple[Operation, ...]) -> Iterator[Operation]:
            for number, operation in enumerate(block):
                yield operation._replace(opens=int(number == 0), closes=int(number == len(block) - 1))

        return self._replace(blocks=tuple(tuple(plain(block)) for block in self.blocks), around=1, behind=0)


def _joined(block: tuple[Operation, ...]) -> JoinedBlock:
    backward: list[Operation] = []
    for operation in reversed(block):
        before = backward[-1] if backward else None
        if before is not None and not (before.weights or operation.weights):
            most = max(before.grads, operation.grads - before.kept)
            backward[-1] = Operation((), before.kept + operation.kept, most, operation.left)
        else:
            backward.append(operation)
    return JoinedBlock(sum(one.kept for one in block), max((one.passing for one in block), default=0), tuple(backward))
