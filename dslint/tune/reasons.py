"""Why configs are not among the best: what each choice that none of them makes costs, in memory or in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dslint.memory.estimate import Estimate
from dslint.memory.plan import HOST, NVME
from dslint.record import Record
from dslint.speed.step import StepTime
from dslint.tune.candidate import Candidate
from dslint.tune.space import ConfigChoice


class Loss(Record):
    """A choice that no reported config makes. `needs` is what its leanest config needs on the GPU at most, in bytes, if that does not fit;
    `slower` how many times longer its fastest config that fits takes than the best, and `part` the part of its step that is longest in
    comparison.
    """

    name: str
    needs: int | None = None
    slower: float | None = None
    part: str = ""


_Test = Callable[[ConfigChoice], bool]

_NAMED: tuple[tuple[str, _Test], ...] = (
    *((f"stage {stage}" if stage else "no ZeRO", lambda choice, stage=stage: choice.stage == stage) for stage in range(4)),
    ("no activation checkpointing", lambda choice: not choice.checkpoint_every),
    ("activation checkpointing", lambda choice: bool(choice.checkpoint_every)),
    ("no offload", lambda choice: not choice.optimizer_device and not choice.parameter_device),
    ("optimizer offload to the CPU", lambda choice: choice.optimizer_device == HOST and not choice.parameter_device),
    ("optimizer offload to NVMe", lambda choice: choice.optimizer_device == NVME),
    ("parameter offload", lambda choice: choice.parameter_device is not None),
    ("secondary partitions (hpZ)", lambda choice: choice.secondary > 1),
)


def losses(
    fits: _Test, estimate: Callable[[ConfigChoice], Estimate], tried: list[Candidate], best: list[Candidate], now: Candidate
) -> Iterator[Loss]:
    """What each choice costs that no reported config makes, and the next larger micro batch of the best one."""
    fastest = best[0] if best else now
    for name, test in _NAMED:
        those = [candidate for candidate in tried if test(candidate.choice)]
        if not those or any(test(candidate.choice) for candidate in best):
            continue
        leanest = min(those, key=lambda candidate: _lean(candidate.choice))
        if not fits(leanest.choice):
            yield Loss(name, needs=estimate(leanest.choice).device.high)
            continue
        fitting = next((candidate for candidate in those if fits(candidate.choice)), leanest)
        yield Loss(name, slower=fitting.seconds / fastest.seconds, part=_longest(fitting.step, fastest.step))
    if best:
        larger = [candidate for candidate in tried if candidate.choice.kind == fastest.choice.kind]
        sizes = sorted({candidate.choice.micro_batch for candidate in larger if candidate.choice.micro_batch > fastest.choice.micro_batch})
        if sizes:
            choice = next(
                one.choice for one in larger if one.choice.micro_batch == sizes[0] and one.choice.overlap <= fastest.choice.overlap
            )
            if not fits(choice):
                yield Loss(f"micro batch size {sizes[0]:,}", needs=estimate(choice).device.high)


def _lean(choice: ConfigChoice) -> tuple[int, bool, bool, bool, int, bool, int]:
    return (
        -choice.stage,
        choice.optimizer_device is None,
        choice.parameter_device is None,
        not choice.checkpoint_every,
        choice.micro_batch,
        choice.overlap,
        choice.secondary,
    )


def _longest(step: StepTime, other: StepTime) -> str:
    """The part by which a step is longest, for each sample, in comparison with another."""
    mine = {part.kind.name: part.seconds / step.job.samples for part in step.parts}
    theirs = {part.kind.name: part.seconds / other.job.samples for part in other.parts}
    return max(mine, key=lambda name: mine[name] - theirs.get(name, 0.0))
