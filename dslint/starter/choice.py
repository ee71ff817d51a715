"""How far to divide, and what to offload: the fastest way in which the model fits, as far as the facts let that be computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dslint.config import resolve
from dslint.facts import Facts
from dslint.facts.gpus import GIB, in_words
from dslint.memory.estimate import Estimate, estimate
from dslint.memory.plan import Workload, make_plan
from dslint.memory.shapes import Model
from dslint.source.parse import parse

LENGTH = 2048
"""The tokens of a sample, where the model takes so many."""

MICRO_BATCHES = (16, 8, 4, 2)
"""The micro batch sizes that are tried once it is clear that one sample fits."""

LARGE = 13e9
"""The number of parameters from which stage 3 is proposed where nothing can be computed: at stage 2 each GPU holds 4 bytes for each, and
that is half of most GPUs.
"""


class Choice(NamedTuple):
    """A way to train. `why` says why this one; `checkpointing` whether the model has to checkpoint its activations, None if that is not
    known; `largest` is the largest micro batch size that fits, None if that is not known.
    """

    stage: int
    offload_optimizer: bool = False
    offload_param: bool = False
    micro_batch: int = 1
    why: str = ""
    checkpointing: bool | None = None
    largest: int | None = None
    fits: bool | None = None

    @property
    def words(self) -> str:
        """The way in a few words: `stage 3 with offload of the optimizer`."""
        offloaded = [name for name, on in (("the optimizer", self.offload_optimizer), ("the parameters", self.offload_param)) if on]
        return f"stage {self.stage}" + (f" with offload of {' and '.join(offloaded)}" if offloaded else "")


class Tried(NamedTuple):
    """A way, and what it takes."""

    choice: Choice
    needs: Estimate
    fits: bool | None


def choose(facts: Facts, model: Model | None, stage: int | None, written: Callable[[Choice], dict[str, Any]]) -> Choice:
    """The fastest way in which the model surely fits; else one in which it may; else the one that needs least.

    Args:
        facts: what is known of the run. Without world size and GPU memory nothing is computed, and the usual is proposed.
        model: the model, where it is known.
        stage: the ZeRO stage, where it is given.
        written: makes the config of a choice, without the comments.
    """
    memory = facts.gpu_memory
    if model is None or memory is None or facts.world_size is None:
        return _usual(facts, model, stage)
    tried = [_try(choice, facts, model, memory, written) for choice in _ways(facts.world_size, stage)]
    best = next((one for one in tried if one.fits), None) or next((one for one in tried if one.fits is None), None)
    if best is None:
        best = min(tried, key=lambda one: one.needs.device.expected)
    largest = _largest(best, facts, model, memory, written) if best.fits else 1
    why = _why(best, tried, facts, memory)
    return best.choice._replace(micro_batch=largest, largest=largest if best.fits else None, why=why, fits=best.fits)


def _usual(facts: Facts, model: Model | None, stage: int | None) -> Choice:
    wanted = {
        "the model (--model or --params)": model,
        "the GPU (--gpu or --gpu-memory)": facts.gpu_memory,
        "the number of GPUs (--world-size)": facts.world_size,
    }
    missing = " and ".join(name for name, value in wanted.items() if value is None)
    if stage is not None:
        return Choice(stage, why=f"as given. Whether it fits is not known without {missing}")
    if facts.world_size == 1:
        return Choice(0, why=f"one GPU has nothing to divide. Whether it fits is not known without {missing}")
    if model is not None and model.size >= LARGE:
        each = f"{in_words(4 * model.size)} for {model.name}"
        return Choice(3, why=f"at stage 2 each GPU would hold all parameters and gradients, {each}. More is not known without {missing}")
    return Choice(2, why=f"the usual start: it divides gradients and optimizer states. What fits is not known without {missing}")


def _ways(world_size: int, stage: int | None) -> Iterator[Choice]:
    """The ways to train, the fastest first."""
    divided = (0,) if world_size == 1 else (1, 2, 3)
    for one in divided if stage is None else (stage,):
        yield Choice(one)
    for one in (2, 3):
        if stage in (None, one):
            yield Choice(one, offload_optimizer=True)
    if stage in (None, 3):
        yield Choice(3, offload_optimizer=True, offload_param=True)


def _try(choice: Choice, facts: Facts, model: Model, memory: int, written: Callable[[Choice], dict[str, Any]]) -> Tried:
    """What a way takes; with checkpointing where that is what it needs to fit."""
    plain = _needs(choice._replace(checkpointing=False), facts, model, written)
    if _fits(plain, facts, memory):
        return Tried(choice._replace(checkpointing=False), plain, fits=True)
    choice = choice._replace(checkpointing=True)
    needs = _needs(choice, facts, model, written)
    return Tried(choice, needs, _fits(needs, facts, memory))


def _needs(choice: Choice, facts: Facts, model: Model, written: Callable[[Choice], dict[str, Any]]) -> Estimate:
    config = resolve(parse(json.dumps(written(choice))), facts)
    length = model.tokens or min(LENGTH, model.positions or LENGTH)
    workload = Workload(length, checkpoint_every=int(bool(choice.checkpointing)), zero_init=choice.stage == 3)
    return estimate(model, make_plan(config, workload, model.hidden, micro_batch=choice.micro_batch, accumulation=1))


def _fits(needs: Estimate, facts: Facts, memory: int) -> bool | None:
    if facts.host_memory is not None and needs.host_of_node > 0.9 * facts.host_memory:
        return False
    return needs.fits(memory)


def _largest(best: Tried, facts: Facts, model: Model, memory: int, written: Callable[[Choice], dict[str, Any]]) -> int:
    for micro_batch in MICRO_BATCHES:
        if _fits(_needs(best.choice._replace(micro_batch=micro_batch), facts, model, written), facts, memory):
            return micro_batch
    return 1


def _why(best: Tried, tried: list[Tried], facts: Facts, memory: int) -> str:
    device = best.needs.device
    length = best.needs.plan.workload.length
    gpu = f"{facts.gpu}" if facts.gpu else "GPU"
    checked = ", with checkpointed activations" if best.choice.checkpointing else ""
    takes = (
        f"with {best.needs.model.name} each {gpu} needs {_gib(device.expected)}, at most {_gib(device.high)}, of its {in_words(memory)}"
        f" (one sample of {length:,} tokens{checked})"
    )
    if best.needs.host_of_node:
        takes += f", and {_gib(best.needs.host_of_node)} of each machine's memory"
    before = tried[: tried.index(best)]
    if best.fits is False:
        least = "the way that needs least does not fit" if len(tried) > 1 else "it does not fit"
        return f"{least}: {takes}. Use more GPUs, or train adapters (dslint estimate --lora-rank)"
    said = f"{takes}{'' if best.fits else ': that may fit, and may not'}"
    if before:
        last = before[-1]
        said += f"; {last.choice.words} would need up to {_gib(last.needs.device.high)}"
    return said


def _gib(size: int) -> str:
    return f"{size / GIB:,.1f} GiB"
