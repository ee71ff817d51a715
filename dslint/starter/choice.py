"""Chooses ZeRO stage and offload: the fastest combination with which the model fits, if the facts allow computing that."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from dslint.config import resolve
from dslint.facts import Facts
from dslint.facts.gpus import GIB, in_words
from dslint.memory.changes import has_expandable, sequence_sizes
from dslint.memory.estimate import Estimate, Verdict, estimate
from dslint.memory.host import host_range
from dslint.memory.plan import Workload
from dslint.memory.planning import make_plan
from dslint.memory.shapes import Model
from dslint.record import Record
from dslint.source.parse import parse

LENGTH = 2048
"""Tokens per sample, if the model supports that many."""

MICRO_BATCHES = (16, 8, 4, 2)
"""The micro batch sizes that are tried once it is clear that one sample fits."""

LARGE = 13e9
"""The number of parameters from which stage 3 is the default: at stage 2 each GPU holds 4 bytes per parameter, half of its memory."""


Written = Callable[["StageChoice"], dict[str, Any]]
"""Returns the config of a choice."""


class StageChoice(Record):
    """A combination of stage and offload. `nvme`: the offloaded optimizer is on NVMe. `why` is the reason for it; `checkpointing`: whether
    it needs activation checkpointing (None: unknown), `expandable`: whether it needs the allocator's expandable segments; `sequence`
    ranks share a sample; `largest` is the largest micro batch size that fits (None: unknown).
    """

    stage: int
    offload_optimizer: bool = False
    offload_param: bool = False
    nvme: bool = False
    micro_batch: int = 1
    why: str = ""
    checkpointing: bool | None = None
    expandable: bool = False
    sequence: int = 1
    largest: int | None = None
    fits: bool | None = None

    @property
    def program(self) -> str:
        """What program and environment must do for it: ` with activation checkpointing`."""
        needed = [
            (f"sequence parallelism of {self.sequence}", self.sequence > 1),
            ("activation checkpointing", self.checkpointing),
            ("expandable segments", self.expandable),
        ]
        *first, last = [name for name, on in needed if on] or [""]
        return f" with {', '.join(first)}{' and ' if first else ''}{last}" if last else ""

    @property
    def words(self) -> str:
        """A short description: `stage 3 with optimizer offload`."""
        offloaded = [name for name, on in (("optimizer", self.offload_optimizer), ("parameter", self.offload_param)) if on]
        where = " (the optimizer to NVMe)" if self.nvme else ""
        sequence = f" with sequence parallelism of {self.sequence}" if self.sequence > 1 else ""
        return f"stage {self.stage}{sequence}" + (f" with {' and '.join(offloaded)} offload{where}" if offloaded else "")


class Wanted(Record):
    """Choices of the user: ZeRO stage, tokens per sample, micro batch size. None: dslint chooses."""

    stage: int | None = None
    length: int | None = None
    micro_batch: int | None = None

    def tokens(self, model: Model) -> int:
        """Tokens per sample for a model."""
        return model.tokens or self.length or min(LENGTH, model.positions or LENGTH)


class Tried(Record):
    """A choice and its estimate."""

    choice: StageChoice
    needs: Estimate
    fits: bool | None


def choose(facts: Facts, model: Model | None, wanted: Wanted, written: Written) -> StageChoice:
    """The fastest choice with which the model certainly fits; else one with which it may fit; else the one that needs the least memory.

    Args:
        facts: the facts. Without world size and GPU memory nothing is computed, and a common default is chosen.
        model: the model, if known.
        wanted: choices of the user.
        written: returns the config of a choice.
    """
    memory = facts.gpu_memory
    if model is None or memory is None or facts.world_size is None:
        return _usual(facts, model, wanted.stage)
    tried: list[Tried] = []
    for choice in _ways(facts, model, wanted, written):
        tried.append(_try(choice, facts, model, memory, wanted, written))
        if tried[-1].fits:
            break
    best = next((one for one in tried if one.fits), None) or next((one for one in tried if one.fits is None), None)
    if best is None:
        best = min(tried, key=lambda one: _lack(one.needs, facts, memory))
    largest = wanted.micro_batch or (_largest(best, facts, model, memory, wanted, written) if best.fits else 1)
    why = _why(best, tried, facts, memory)
    return best.choice._replace(
        micro_batch=largest, largest=largest if best.fits and wanted.micro_batch is None else None, why=why, fits=best.fits
    )


def _usual(facts: Facts, model: Model | None, stage: int | None) -> StageChoice:
    wanted = {
        "--model or --params": model,
        "--gpu or --gpu-memory": facts.gpu_memory,
        "--world-size": facts.world_size,
    }
    missing = ", ".join(name for name, value in wanted.items() if value is None)
    if stage is not None:
        return StageChoice(stage, why=f"as given; to check whether it fits, pass {missing}")
    if facts.world_size == 1:
        return StageChoice(0, why=f"ZeRO has nothing to partition on one GPU; to check whether it fits, pass {missing}")
    if model is not None and model.size >= LARGE:
        each = f"{in_words(4 * model.size)} for {model.name}"
        return StageChoice(3, why=f"at stage 2 each GPU holds all parameters and gradients, {each}; for an estimate, pass {missing}")
    return StageChoice(2, why=f"a common default that partitions gradients and optimizer states; to choose by memory, pass {missing}")


def _ways(facts: Facts, model: Model, wanted: Wanted, written: Written) -> Iterator[StageChoice]:
    """The choices, the fastest first."""
    stage, micro_batch = wanted.stage, wanted.micro_batch or 1
    stages = (stage,) if stage is not None else (0,) if facts.world_size == 1 else (1, 2, 3)
    for one in stages:
        yield StageChoice(one, micro_batch=micro_batch)
    last = StageChoice(stages[-1], micro_batch=micro_batch, checkpointing=True)
    config = resolve(parse(json.dumps(written(last))), facts)
    for size in sequence_sizes(config, _needs(last, facts, model, wanted, written).plan, model):  # divides what a long sample takes
        yield last._replace(sequence=size)
    for one in (2, 3):
        if stage in (None, one):
            yield StageChoice(one, offload_optimizer=True, micro_batch=micro_batch)
    if stage in (None, 3):
        for offload_param, nvme in ((True, False), (False, True), (True, True)):
            yield StageChoice(3, offload_optimizer=True, offload_param=offload_param, nvme=nvme, micro_batch=micro_batch)


def _try(choice: StageChoice, facts: Facts, model: Model, memory: int, wanted: Wanted, written: Written) -> Tried:
    """The estimate of a choice, with the least of activation checkpointing and expandable segments that lets it fit."""
    programs = [choice._replace(checkpointing=False), choice._replace(checkpointing=True)]
    if has_expandable(facts):
        programs.append(choice._replace(checkpointing=True, expandable=True))
    for program in programs:
        tried = Tried(program, needs := _needs(program, facts, model, wanted, written), _fits(needs, facts, memory))
        if tried.fits:
            break
    return tried


def _needs(choice: StageChoice, facts: Facts, model: Model, wanted: Wanted, written: Written) -> Estimate:
    if choice.sequence > 1:
        facts = facts._replace(sequence_parallel=choice.sequence)
    config = resolve(parse(json.dumps(written(choice))), facts)
    workload = Workload(
        wanted.tokens(model), checkpoint_every=int(bool(choice.checkpointing)), zero_init=choice.stage == 3, expandable=choice.expandable
    )
    return estimate(model, make_plan(config, workload, model.hidden, micro_batch=choice.micro_batch, accumulation=1))


def _fits(needs: Estimate, facts: Facts, memory: int) -> bool | None:
    """Whether it certainly fits in GPU and machine; None if only the expected value does."""
    verdicts = [needs.verdict(memory)]
    if facts.host_memory is not None:
        verdicts.append(needs.host_verdict(facts.host_memory, loading=False))
    if all(verdict is Verdict.FITS for verdict in verdicts):
        return True
    return None if all(verdict in (Verdict.FITS, Verdict.LIKELY) for verdict in verdicts) else False


def _lack(needs: Estimate, facts: Facts, memory: int) -> float:
    """What GPU and machine lack, as shares of their memory."""
    host = facts.host_memory
    lack = max(0.0, needs.full / memory - 1)
    return lack + (max(0.0, host_range(needs.plan, needs.host, loading=False).expected / host - 1) if host is not None else 0.0)


def _largest(best: Tried, facts: Facts, model: Model, memory: int, wanted: Wanted, written: Written) -> int:
    for micro_batch in MICRO_BATCHES if best.choice.sequence == 1 else ():
        if _fits(_needs(best.choice._replace(micro_batch=micro_batch), facts, model, wanted, written), facts, memory):
            return micro_batch
    return 1


def _why(best: Tried, tried: list[Tried], facts: Facts, memory: int) -> str:
    device = best.needs.device
    length, samples = best.needs.plan.workload.length, best.choice.micro_batch
    gpu = f"{facts.gpu}" if facts.gpu else "GPU"
    takes = (
        f"each {gpu} needs {_gib(device.expected)} (up to {_gib(device.high)}) of {in_words(memory)} for {best.needs.model.name}"
        f" and {f'{samples} samples' if samples > 1 else 'one sample'} of {length:,} tokens{best.choice.program}"
    )
    if best.needs.host_of_node:
        on_host = host_range(best.needs.plan, best.needs.host, loading=False)
        takes += f"; each machine needs about {_gib(on_host.expected)} of host memory (up to {_gib(on_host.high)})"
        takes += f" and has {in_words(facts.host_memory)}" if facts.host_memory is not None else ""
    before = tried[: tried.index(best)]
    if best.fits is False:
        least = "even the choice with the lowest memory does not fit" if len(tried) > 1 else "it does not fit"
        adapters = ", or train adapters (--lora-rank)" if best.needs.model.trained == best.needs.model.size else ""
        return f"{least}: {takes}. Use more GPUs{adapters}; dslint fit tries more, such as a fused loss, smaller buffers and parallelism"
    said = f"{takes}{'' if best.fits else '; it may not fit'}"
    if before:
        last = before[-1]
        short = f"{_gib(last.needs.device.high)}"
        if last.needs.verdict(memory) is Verdict.FITS:
            short = f"{_gib(host_range(last.needs.plan, last.needs.host, loading=False).high)} of host memory"
        said += f"; {last.choice.words} would need up to {short}"
    return said


def _gib(size: int) -> str:
    return f"{size / GIB:,.1f} GiB"
