"""What frameworks refuse: combinations of arguments, and arguments at a ZeRO stage, for which they raise before DeepSpeed starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dslint.diagnostics import LoadStep, Phase
from dslint.facts import Release
from dslint.job.arguments import Arguments, SourcedValue
from dslint.record import Record
from dslint.source.unknown import UNKNOWN

SET = "set"
"""Stands for any value but null, false and an empty text."""

GIVEN = "given"
"""Stands for any value that is not null or empty, also a list or a section."""

SEVERAL = "several"
"""Stands for a text of several names with commas between them."""


class Refusal(Record):
    """A combination that a framework refuses with `error`.

    `when` has the values of arguments, each of which must be set: one value, several, `SET`, `GIVEN` or `SEVERAL`. None of `absent` may be
    set, also not by a default of the program's.
    `stages` are the ZeRO stages at which it holds; empty: all of them, and a config need not be known. `help` says what to write instead.
    `since` is the first release of the framework that is known to refuse it, and `until` the first one after it that does not; "" for what
    each known release refuses. `step` says when, and `phase` if DeepSpeed runs by then. With `own_optimizer` it holds only where the config
    leaves the optimizer to the framework: it has no section for one, and does not offload its states. `own` says that its sources have the
    text of the error, which is not one of a library. `tasks` are those of its command for which it holds; empty: for all of them.
    """

    error: str
    when: Mapping[str, Any]
    help: str
    stages: tuple[int, ...] = ()
    absent: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    step: LoadStep = LoadStep.REFUSALS
    phase: Phase | None = None
    own_optimizer: bool = False
    own: bool = True
    tasks: tuple[str, ...] = ()

    def holds_in(self, release: Release | None, before: Release | None = None) -> bool:
        """Whether a release may refuse it. One that is not known (None) counts as the newest, unless it is one `before` another."""
        if release is None and before is not None:
            return not self.since or Release.parse(self.since) < before
        if release is None:
            return not self.until
        return (not self.since or release >= Release.parse(self.since)) and (not self.until or release < Release.parse(self.until))

    def given(self, arguments: Arguments, stage: Any) -> tuple[SourcedValue, ...]:
        """The arguments that the framework refuses; none if it accepts them, or that is not known."""
        if (self.stages and stage not in self.stages) or (self.tasks and arguments.task not in self.tasks):
            return ()
        if not all(map(arguments.is_left_out, self.absent)):
            return ()
        found = [(arguments.get(name), wanted) for name, wanted in self.when.items()]
        if not all(given is not None and _is_one(given, wanted) for given, wanted in found):
            return ()
        return tuple(given for given, _ in found if given is not None)


def _is_one(given: SourcedValue, wanted: Any) -> bool:
    value = given.value
    if wanted is GIVEN:
        return not given.empty and value is not None
    if wanted == given.raw.strip("'\""):
        return True  # a word in the place of a switch
    if value is UNKNOWN or given.empty or "$" in given.raw or "{{" in given.raw:
        return False
    if isinstance(value, str) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    if wanted is SEVERAL:
        return isinstance(value, str) and len([name for name in value.split(",") if name.strip()]) > 1
    if wanted is SET:
        return value not in (None, False, "", "none", "null")
    options = wanted if isinstance(wanted, tuple) else (wanted,)
    return any(value is option if isinstance(option, bool) else value == option and not isinstance(value, bool) for option in options)


def muon_with_zero(argument: str, *, value: Any) -> Refusal:
    """The Muon of Moonlight, which keeps a note for each matrix that it is made with; ZeRO puts flat partitions in their place.

    Source: MoonshotAI/Moonlight, examples/toy_train.py, Muon.__init__ and step.
    """
    return Refusal(
        "KeyError: 'use_muon'",
        {argument: value},
        "Choose another optimizer, or train without ZeRO: this Muon knows only the matrices it is made with, and ZeRO replaces them by "
        "flat partitions.",
        stages=(1, 2, 3),
        step=LoadStep.TRAINER,
        phase=Phase.STEP,
        own_optimizer=True,
        own=False,
    )


def refused(
    refusals: tuple[Refusal, ...], arguments: Arguments, stage: Any, release: Release | None
) -> Iterator[tuple[Refusal, tuple[SourcedValue, ...]]]:
    """The refusals that arguments run into, in the order in which the framework raises, with the arguments of each."""
    for refusal in refusals:
        given = refusal.given(arguments, stage) if refusal.holds_in(release, arguments.former) else ()
        if given:
            yield refusal, given


def names_in(refusals: tuple[Refusal, ...]) -> frozenset[str]:
    """The arguments that refusals speak of."""
    return frozenset(name for refusal in refusals for name in (*refusal.when, *refusal.absent))
