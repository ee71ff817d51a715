"""Finds the fastest configs that fit by estimate: predicts the time of every choice, then estimates the memory of the fastest ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dslint.config import Config
from dslint.memory.estimate import Estimate, estimate
from dslint.memory.plan import Plan, PlanError
from dslint.memory.shapes import Model
from dslint.memory.ways import Goal
from dslint.record import Record
from dslint.speed.compare import Comparison, compare
from dslint.speed.planned import NO_RATES, Rates, active, job_of, precision_of
from dslint.speed.step import step
from dslint.tune.calibrate import Factor, calibrated
from dslint.tune.candidate import Candidate
from dslint.tune.reasons import Loss, losses
from dslint.tune.space import ConfigChoice, can_divide, choices, present
from dslint.tune.write import Written, write

Planner = Callable[[str, dict[str, Any]], tuple[Config, Plan]]
"""Reads the text of a config with changed options, and plans it."""

Checked = Callable[[Config], bool]
"""Whether a config passes `check`: it has no error that the present one does not have."""

Progress = Callable[[int, int], None]

SHOWN = 5
"""The number of configs that are reported."""

MOST_ESTIMATES = 150
"""The most estimates of a search: each takes 10 to 50 ms."""

TOO_SLOW = 4.0
"""Configs that are slower than the fastest by more than this factor are not reported."""

EFFORT = 0.004
"""The share by which each changed choice must make a step faster."""


class Tuned(Record):
    """A config that fits by estimate and passes `check`: its text, what else changes, its estimate and how its speed compares to the
    present config.
    """

    candidate: Candidate
    found: Estimate
    written: Written
    gain: Comparison


class TuneResult(Record):
    """`now` is the present config with its estimate, `best` the fastest ones that fit by estimate, `lost` why others are not among them.
    `tried` is the number of configs with a predicted time, `estimated` that with an estimate. `ended`: the search was cut off.
    """

    now: Candidate
    found: Estimate
    goal: Goal
    best: tuple[Tuned, ...]
    lost: tuple[Loss, ...]
    tried: int
    estimated: int
    ended: bool


class TuneSearch:
    """Searches for one config and one model."""

    def __init__(
        self,
        text: str,
        model: Model,
        planner: Planner,
        checked: Checked,
        goal: Goal,
        rates: Rates = NO_RATES,
        factor: Factor | None = None,
    ) -> None:
        self.text, self.model, self.planner, self.checked, self.goal, self.rates = text, model, planner, checked, goal, rates
        self.factor = factor
        self.config, self.base = planner(text, {})
        self.precision, self.passed = precision_of(self.config, self.base), active(model)
        self.candidates: dict[ConfigChoice, Candidate] = {}
        self.known: dict[ConfigChoice, Estimate] = {}
        self.misfits: list[ConfigChoice] = []
        self.states: dict[tuple[Any, ...], list[tuple[int, float, float, tuple[int, int]]]] = {}

    def run(self, *, free_batch: bool = False, progress: Progress | None = None) -> TuneResult:
        """Search. `progress` is called with the estimates made so far and the most that there will be."""
        now = self.candidate(present(self.base))
        tried = [self.candidate(choice) for choice in self.choices(free_batch=free_batch)]
        tried = [candidate for candidate in tried if not self._quantizes_for_little(candidate)]
        tried.sort(key=lambda candidate: candidate.seconds * (1 + EFFORT * len(candidate.choice.differs(now.choice))))
        best: list[Tuned] = []
        ended = self._collect(tried, now, best, progress, _kind) or self._collect(tried, now, best, progress, _kind_and_batch)
        if len(best) == SHOWN and all(self._added(one.candidate.choice) for one in best):
            best[-1:] = self._unquantized(tried, now) or best[-1:]
        best.sort(key=lambda one: tried.index(one.candidate))
        lost = tuple(losses(self.fits, self.estimate, tried, [one.candidate for one in best], now))
        return TuneResult(now, self.estimate(now.choice), self.goal, tuple(best), lost, len(tried), len(self.known), ended)

    def choices(self, *, free_batch: bool) -> Iterator[ConfigChoice]:
        """All choices for the setup."""
        divides = can_divide(self.config, self.base, self.model)
        return choices(self.base, self.model, free_batch=free_batch, divides=divides)

    def _collect(
        self,
        tried: list[Candidate],
        now: Candidate,
        best: list[Tuned],
        progress: Progress | None,
        same: Callable[[ConfigChoice], tuple[Any, ...]],
    ) -> bool:
        """Add the fastest configs that fit by estimate to `best`, at most one of those that are the `same`. Whether it was cut off."""
        for candidate in tried:
            if len(best) == SHOWN or (best and candidate.seconds > TOO_SLOW * best[0].candidate.seconds):
                return False
            if len(self.known) >= MOST_ESTIMATES:
                return True
            if progress is not None:
                progress(len(self.known), MOST_ESTIMATES)
            if not any(same(candidate.choice) == same(one.candidate.choice) for one in best):
                best += self._tuned(candidate, now, best)
        return False

    def candidate(self, choice: ConfigChoice) -> Candidate:
        """A choice with its step; each is made once."""
        if choice not in self.candidates:
            plan = choice.plan(self.base)
            found = step(job_of(self.model, plan, self.precision, self.rates, self.passed))
            self.candidates[choice] = Candidate(choice, plan, calibrated(found, self.factor) if self.factor else found)
        return self.candidates[choice]

    def estimate(self, choice: ConfigChoice) -> Estimate:
        """The estimate of a choice; each is made once."""
        if choice not in self.known:
            self.known[choice] = estimate(self.model, choice.plan(self.base))
        return self.known[choice]

    def fits(self, choice: ConfigChoice) -> bool:
        """Whether a choice fits by estimate. What needs no estimate is decided without one."""
        if any(_needs_more(choice, other) for other in self.misfits) or self._too_large(choice):
            return False
        if least_states(self.model, choice.plan(self.base)) <= self.goal.device:
            found = self.estimate(choice)
            if self.goal.sure(found):
                return True
            sizes = choice.reduce_bucket, choice.prefetch_bucket
            state = choice.micro_batch, float(found.steady.total), float(found.device.high), sizes
            self.states.setdefault(_but_micro_batch(choice), []).append(state)
        self.misfits.append(choice)
        return False

    def _too_large(self, choice: ConfigChoice) -> bool:
        """Whether another choice shows that this one does not fit: the same without quantisation, which takes more, or one with a
        larger micro batch or larger buckets. What is held between steps does not depend on the micro batch, and the rest of the peak
        shrinks at most in proportion to it.
        """
        plain = choice._replace(quantized_weights=False, quantized_gradients=False)
        if plain != choice and not self.fits(plain):
            return True
        return any(
            choice.micro_batch <= larger
            and steady + (peak - steady) * choice.micro_batch / larger - self._saved(choice, *buckets) > self.goal.device
            for larger, steady, peak, buckets in self.states.get(_but_micro_batch(choice), ())
        )

    def _saved(self, choice: ConfigChoice, reduce_bucket: int, prefetch_bucket: int) -> float:
        """The most bytes that the buckets of a choice save in comparison with others."""
        buckets = 2 if choice.overlap and choice.stage < 3 else 1
        reduced = buckets * max(self.base.wire_bytes, self.base.gradient_bytes) * max(0, reduce_bucket - choice.reduce_bucket)
        return (reduced + 2 * self.base.model_bytes * max(0, prefetch_bucket - choice.prefetch_bucket)) * OVERHEAD

    def _added(self, choice: ConfigChoice) -> list[str]:
        """What a choice quantises and the config does not."""
        return [name for name in QUANTIZED if getattr(choice, name) and not getattr(self.base, name)]

    def _unquantized(self, tried: list[Candidate], now: Candidate) -> list[Tuned]:
        """The fastest config that trains as the present one does, if one fits: nobody has to quantise."""
        for candidate in tried:
            if len(self.known) >= MOST_ESTIMATES:
                break
            if not self._added(candidate.choice) and (found := list(self._tuned(candidate, now, []))):
                return found
        return []

    def _quantizes_for_little(self, candidate: Candidate) -> bool:
        """Whether quantised weights or gradients, which change training a little, make a step hardly faster where the config does not have
        them.
        """
        without = (self.candidate(candidate.choice._replace(**{name: False})) for name in self._added(candidate.choice))
        return any(candidate.seconds * (1 + WORTH_QUANTIZING) > other.seconds for other in without)

    def makes(self, choice: ConfigChoice, plan: Plan) -> bool:
        """Whether a plan is that of a choice. Where it keeps the buckets of the config, those of the plan count: their defaults follow the
        stage.
        """
        kept = {
            name: getattr(plan, name) for name in ("reduce_bucket", "prefetch_bucket") if getattr(choice, name) == getattr(self.base, name)
        }
        return present(plan) == choice._replace(**kept)

    def _dominated(self, candidate: Candidate, peak: int, one: Tuned) -> bool:
        """Whether a faster config makes a candidate pointless: the candidate has more offload or partitions, and saves little by it."""
        more = _burdens(candidate.choice) > _burdens(one.candidate.choice)
        return more and one.found.device.expected - peak < LITTLE * self.goal.device

    def _offloads_little(self, choice: ConfigChoice) -> bool:
        """Whether offload saves nothing worth reporting at stage 3: the same config without it fits, or does not fit by far, and all that
        the rank would move to the host is little.
        """
        buckets = {"reduce_bucket": self.base.reduce_bucket, "prefetch_bucket": self.base.prefetch_bucket}
        without = choice._replace(optimizer_device=None, offload_ratio=1.0, parameter_device=None, **buckets)
        if choice.stage != 3 or not (choice.optimizer_device or choice.parameter_device):
            return False
        moved = most_offloaded(self.model, choice.plan(self.base))
        if moved >= LITTLE * self.goal.device:
            return False
        if self.fits(without):
            return True
        smaller = without if without in self.known else without._replace(secondary=1, quantized_weights=False, quantized_gradients=False)
        return self.estimate(smaller).device.high - moved - self._saved(choice, *buckets.values()) > self.goal.device

    def _tuned(self, candidate: Candidate, now: Candidate, best: list[Tuned]) -> Iterator[Tuned]:
        if self._offloads_little(candidate.choice) or not self.fits(candidate.choice):
            return
        peak = self.estimate(candidate.choice).device.expected
        if any(self._dominated(candidate, peak, one) for one in best):
            return
        written = write(self.text, self.config, candidate.choice, now.choice)
        if written is None:
            return
        try:
            config, plan = self.planner(written.text, written.said)
        except PlanError:
            return
        if self.makes(candidate.choice, plan) and self.checked(config):
            yield Tuned(candidate, self.estimate(candidate.choice), written, compare(candidate.step, now.step))


def _kind(choice: ConfigChoice) -> tuple[Any, ...]:
    return choice.kind


def _kind_and_batch(choice: ConfigChoice) -> tuple[Any, ...]:
    """What a reader tells apart: all but the overlap."""
    return (*choice.kind, choice.micro_batch, choice.accumulation, choice.checkpoint_every)


def _but_micro_batch(choice: ConfigChoice) -> tuple[Any, ...]:
    return (*choice.kind, choice.checkpoint_every, choice.overlap)


def _needs_more(choice: ConfigChoice, other: ConfigChoice) -> bool:
    """Whether a choice needs at least as much memory as another: none of its values saves any in comparison. Stage 3 is compared only with
    itself, because it gathers into buffers that the others do not have.
    """
    return (
        (choice.stage == other.stage or choice.stage < other.stage < 3)
        and choice.micro_batch >= other.micro_batch
        and (choice.checkpoint_every == other.checkpoint_every or (other.checkpoint_every == 1 and not choice.checkpoint_every))
        and choice.optimizer_device in (None, other.optimizer_device)
        and (choice.optimizer_device is None or choice.offload_ratio <= other.offload_ratio)
        and choice.parameter_device in (None, other.parameter_device)
        and choice.overlap >= other.overlap
        and choice.secondary >= other.secondary
        and choice.reduce_bucket >= other.reduce_bucket
        and choice.prefetch_bucket >= other.prefetch_bucket
        and choice.quantized_weights >= other.quantized_weights
        and choice.quantized_gradients >= other.quantized_gradients
        and (choice.tensor, choice.sequence) == (other.tensor, other.sequence)
    )


WORTH_QUANTIZING = 0.1
"""The share by which quantised weights, and quantised gradients, must each make a step faster to be considered."""

QUANTIZED = ("quantized_weights", "quantized_gradients")

LITTLE = 0.05
"""The share of the limit that a config with more offload or partitions must save to be reported next to a faster one."""


def _burdens(choice: ConfigChoice) -> int:
    return (
        bool(choice.optimizer_device)
        + bool(choice.parameter_device)
        + (choice.secondary > 1)
        + choice.quantized_weights
        + choice.quantized_gradients
    )


def most_offloaded(model: Model, plan: Plan) -> float:
    """The most bytes of a rank that offload keeps off the GPU at stage 3: weights, master weights, optimizer states, gradients, and what
    the step computes with them, which has at most three more numbers of 4 bytes for each element.
    """
    each = plan.model_bytes + plan.master_bytes + plan.optimizer_bytes + plan.gradient_bytes + 12
    return model.size / plan.tensor / plan.replicas * each * OVERHEAD


OVERHEAD = 1.3
"""An allocator's reserve and the doubt of an estimate, as a multiple of the tensors."""


def least_states(model: Model, plan: Plan) -> float:
    """Bytes of weights, gradients and optimizer states that a rank holds at least."""
    share = 1 / plan.replicas
    held, trained = model.size / plan.tensor, model.trained / plan.tensor
    weights = held * plan.model_bytes * (0 if plan.parameter_device else share if plan.stage == 3 else 1)
    if model.adapted:
        weights = 0.0  # a frozen base may be quantized
    on_gpu = 0.0 if plan.optimizer_device and plan.stage < 3 else 1 - (plan.offload_ratio if plan.optimizer_device else 0)
    states = trained * (plan.master_bytes * plan.half + plan.optimizer_bytes) * (share if plan.stage else 1) * on_gpu
    return weights + states
