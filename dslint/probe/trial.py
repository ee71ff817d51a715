"""From a config and what a person wishes to questions, and from answers to results."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Diagnostic
from dslint.errors import UserError
from dslint.facts import Release
from dslint.lint.document import lint_document
from dslint.probe import depth, sizing
from dslint.probe.answer import Answer
from dslint.probe.explain import explain
from dslint.probe.filling import fill, in_words, micro_batch, ranks_of
from dslint.probe.launcher import Place
from dslint.probe.predict import as_run, predict
from dslint.probe.question import Model, Override, Question
from dslint.probe.result import Comparison, Limit, Predicted, Result, Search
from dslint.probe.search import largest
from dslint.probe.session import Progress, ask
from dslint.probe.variants import ALL_OFFLOADED, Variant, variants

OLDEST, NEWEST = Release(0, 15, 0), Release(0, 19, 99)
"""The releases of DeepSpeed that the probe is tried with."""

DEFAULT_SEQUENCE, LONGEST_DEFAULT = 128, 2048
DEFAULT_MEMORY = 80 * 2**30


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """What a person wishes, option by option. `place` is this process's place among ranks that a launcher started."""

    device: Any
    rank: int
    model_fn: str | None
    layers: tuple[int, ...] | None
    sequence_length: int | None
    micro_batch: int | None
    activation_checkpointing: bool
    zero_init: bool
    assignments: tuple[Override, ...]
    steps: int
    limit: int | None
    timeout: float
    comparison: str | None
    searched: str | None
    snapshot: str | None
    timeline: bool
    place: Place | None


@dataclass(frozen=True, slots=True)
class PreparedProbe:
    """A config that is ready to be probed: the first question about it, and what was decided on the way."""

    path: str
    config: Config
    question: Question
    limit: Limit | None
    depths: tuple[int, ...]
    full_depth: int | None
    notes: tuple[str, ...]


def prepare(path: str, text: str, config: Config, wishes: ProbeOptions) -> PreparedProbe:
    """Make the question.

    Raises:
        ValueError: the wishes do not go together; the text says why.
    """
    facts = config.facts
    notes: list[str] = []
    model, full_depth = _model(config, wishes, notes)
    world_size, rank = _ranks(config, wishes, notes)
    text_part = sizing.text_part(model.data or model.shape.as_data())
    hidden = next((text_part[name] for name in ("hidden_size", "n_embd", "d_model") if isinstance(text_part.get(name), int)), None)
    overrides = fill(config, hidden)
    if overrides:
        notes.append(f'For "auto": {"; ".join(map(in_words, overrides))}.')
    overrides += micro_batch(wishes.micro_batch) if wishes.micro_batch is not None else []
    overrides += wishes.assignments
    memory = facts.gpu_memory or (facts.gpu.memory if facts.gpu else None)
    limit = Limit(wishes.limit, "--limit") if wishes.limit else None
    if limit is None and memory is not None:
        limit = Limit(memory, f"one {facts.gpu}" if facts.gpu and facts.gpu.memory == memory else "--gpu-memory")
    question = Question(
        text,
        tuple(overrides),
        wishes.device,
        world_size,
        rank,
        launched=wishes.place is not None,
        model=model,
        sequence=wishes.sequence_length or _sequence(config, wishes),
        checkpointing=wishes.activation_checkpointing,
        steps=wishes.steps,
        zero_init=wishes.zero_init,
        memory=memory or DEFAULT_MEMORY,
        timeline=wishes.timeline,
        snapshot=os.path.abspath(wishes.snapshot) if wishes.snapshot else None,  # noqa: PTH100 - the child runs elsewhere
    )
    return PreparedProbe(path, config, question, limit, wishes.layers or (), full_depth, tuple(notes))


def _model(config: Config, wishes: ProbeOptions, notes: list[str]) -> tuple[Model, int | None]:
    given = config.facts.model
    if wishes.model_fn is not None:
        return Model(function=wishes.model_fn, paths=(os.getcwd(),)), None  # noqa: PTH109 - as Python itself would look for it
    if given is None:
        if wishes.layers is not None:
            raise ValueError("--layers is for the model of --model.")
        notes.append("The model is a small one of the probe's own: --model CONFIG.JSON or --model-fn trains yours.")
        return Model(), None
    data = given.data
    full = sizing.depth(data)
    if wishes.layers is not None and (full is None or max(wishes.layers) > full):
        raise ValueError(f"{given.path} has {full or 'no known number of'} layers, and --layers asks for {max(wishes.layers)}.")
    if wishes.device == "cpu" and wishes.layers is None:
        data, said = sizing.small(data)
        if said:
            notes.append(f"The model is scaled down to run on a CPU: {said}. --device fake runs it at its full size.")
    return Model(data=data), full


def _sequence(config: Config, wishes: ProbeOptions) -> int:
    model = config.facts.model
    if model is None or wishes.model_fn is not None or wishes.device == "cpu":
        return DEFAULT_SEQUENCE
    return min(model.positions or LONGEST_DEFAULT, LONGEST_DEFAULT)


def _ranks(config: Config, wishes: ProbeOptions, notes: list[str]) -> tuple[int, int]:
    """The world size and the rank: those of the launcher, else those that are given, else what the batch sizes of the config say."""
    given = config.facts.world_size
    if wishes.place is not None:
        if given not in (None, wishes.place.world_size):
            notes.append(f"{wishes.place.world_size} ranks were started, and --world-size {given} is not heeded.")
        return wishes.place.world_size, wishes.place.rank
    derived = ranks_of(config) if given is None and wishes.micro_batch is None else None
    if derived is not None and derived[0] > 1:
        notes.append(f"Assumed --world-size {derived[0]}: {derived[1]}.")
    world_size = given or (derived[0] if derived else 1)
    if wishes.rank >= world_size:
        raise ValueError(
            f"there is no rank {wishes.rank} of {world_size}: ranks count from 0 to {world_size - 1}. --world-size says how many there are."
        )
    return world_size, wishes.rank


def probe(setup: PreparedProbe, wishes: ProbeOptions, progress: Progress) -> Result:
    """Ask once, or at several depths."""
    if len(setup.depths) < 2:
        question = _at_depth(setup.question, setup.depths[0]) if setup.depths else setup.question
        notes = (_built(setup.depths[0], setup),) if setup.depths else ()
        return _result(setup, question, ask(question, timeout=wishes.timeout, progress=progress), notes)
    assert setup.full_depth is not None
    answers: dict[int, Answer] = {}
    for layers in setup.depths:
        question = _at_depth(setup.question, layers)
        answers[layers] = ask(question, timeout=wishes.timeout, progress=_named(progress, f"{layers} layers"))
        if not answers[layers].started:
            return _result(setup, question, answers[layers], (_built(layers, setup),))
    line = depth.line(answers, setup.full_depth)
    return replace(_result(setup, setup.question, line.answer), line=line)


def compare(setup: PreparedProbe, wishes: ProbeOptions, progress: Progress) -> Comparison:
    """Run the variants in turn, each in a process of its own.

    Raises:
        dslint.errors.UserError: there is no such comparison.
    """
    assert wishes.comparison is not None
    try:
        wanted = variants(setup.question, wishes.comparison)
    except ValueError as error:
        raise UserError(f"--compare {wishes.comparison}: {error}") from None
    results: list[tuple[Variant, Result]] = []
    for variant in wanted:
        one = replace(setup, question=variant.question)
        if variant.name == ALL_OFFLOADED and results[0][1].answer.engine.get("stage", 3) < 3:
            note = "offload_param is for stage 3, and was not tried: below it, parameters stay on the device."
            results[-1] = results[-1][0], replace(results[-1][1], notes=(*results[-1][1].notes, note))
            break
        results.append((variant, probe(one, wishes, _named(progress, variant.name))))
        if results[-1][1].answer.unable is not None:
            break
    return Comparison(setup.path, tuple(results))


def search(setup: PreparedProbe, wishes: ProbeOptions, progress: Progress) -> Search:
    """Find the largest micro batch that fits.

    Raises:
        dslint.errors.UserError: nothing says what there is to fit into.
    """
    if setup.limit is None and wishes.device in ("fake", "cpu"):
        raise UserError("--search wants to know what there is to fit into: --limit SIZE, or --gpu NAME.")
    tried: dict[int, Result] = {}

    def fits(size: int) -> bool:
        one = replace(setup, question=replace(setup.question, overrides=(*setup.question.overrides, *micro_batch(size))))
        tried[size] = probe(one, wishes, _named(progress, f"micro batch {size}"))
        if tried[size].answer.device == "fake" and setup.limit is None:
            raise UserError("--search wants to know what there is to fit into, as there is no GPU here: --limit SIZE, or --gpu NAME.")
        return tried[size].answer.started and tried[size].fits is not False

    found = largest(fits)
    return Search(setup.path, found, tried[found or 1], tuple(sorted(tried.items())))


def _built(layers: int, setup: PreparedProbe) -> str:
    return f"{layers} of {setup.full_depth} layers {'was' if layers == 1 else 'were'} built."


def _at_depth(question: Question, layers: int) -> Question:
    assert question.model.data is not None
    return replace(question, model=replace(question.model, data=sizing.with_layers(question.model.data, layers)))


def _named(progress: Progress, name: str) -> Callable[[str, float | None], None]:
    return lambda doing, part: progress(f"{name}: {doing}", part)


def _result(setup: PreparedProbe, question: Question, answer: Answer, notes: tuple[str, ...] = ()) -> Result:
    explained: tuple[Diagnostic, ...] = ()
    predicted: tuple[Predicted, ...] = ()
    release = _release(answer)
    if release is not None and not OLDEST <= release <= NEWEST:
        notes += (f"DeepSpeed {release} is installed, and the probe is tried with 0.15 to 0.19: what it says may be wrong.",)
    elif release is not None and setup.config.facts.deepspeed != release:
        notes += (f"DeepSpeed {release} is installed, and is what ran; the config is meant for {setup.config.facts.deepspeed}.",)
    config = as_run(setup.config, question, answer)
    if answer.raised is not None and not answer.out_of_memory:
        from dslint.registry.rules import default_rules

        linted = lint_document(config.document, setup.path, config.context, default_rules())
        explained = explain(answer.raised, linted.diagnostics)
    elif answer.started:
        predicted = predict(config, question, answer)
    return Result(setup.path, question, answer, setup.limit, explained, predicted, notes=(*setup.notes, *notes))


def _release(answer: Answer) -> Release | None:
    try:
        return Release.parse(answer.versions["deepspeed"])
    except (KeyError, ValueError):
        return None
