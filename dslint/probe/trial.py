"""Turns a config and options into questions, and answers into results."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dslint.config import Config
from dslint.diagnostics import Diagnostic
from dslint.errors import UserError
from dslint.facts import NEWEST, Release
from dslint.lint.document import lint_document
from dslint.probe import depth, sizing
from dslint.probe.answer import Answer
from dslint.probe.explain import explain
from dslint.probe.filling import fill, in_words, micro_batch, ranks_of
from dslint.probe.launcher import LaunchedRank
from dslint.probe.predict import as_run, predict
from dslint.probe.question import Override, ProbedModel, Question
from dslint.probe.result import ComparedVariants, MemoryLimit, Predicted, ProbeResult, SearchResult
from dslint.probe.search import largest
from dslint.probe.session import Progress, ask
from dslint.probe.variants import ALL_OFFLOADED, ProbedVariant, variants
from dslint.record import Record

_FIRST_TRIED = Release(0, 15, 0)
"""The first DeepSpeed release that the probe is tested with; the last are those with the minor number of the newest."""

DEFAULT_SEQUENCE, LONGEST_DEFAULT = 128, 2048
"""The sequence length for a program of the user or a CPU, and the longest one that is taken from the config of a model."""

DEFAULT_MEMORY = 80 * 2**30
"""The memory of a fake GPU where none is given, in bytes: that of an A100 or H100."""


class ProbeOptions(Record):
    """The options of `dslint probe`. `place` is this process's rank, if a launcher started it."""

    device: Any
    rank: int
    model_fn: str | None
    layers: tuple[int, ...] | None
    sequence_length: int | None
    micro_batch: int | None
    activation_checkpointing: bool
    lora_rank: int | None
    lora_targets: str | None
    zero_init: bool
    assignments: tuple[Override, ...]
    steps: int
    limit: int | None
    timeout: float
    comparison: str | None
    searched: str | None
    snapshot: str | None
    timeline: bool
    place: LaunchedRank | None


class PreparedProbe(Record):
    """A config that is ready to be probed: its first question, and the decisions behind it."""

    path: str
    config: Config
    question: Question
    limit: MemoryLimit | None
    depths: tuple[int, ...]
    full_depth: int | None
    notes: tuple[str, ...]


def prepare(path: str, text: str, config: Config, options: ProbeOptions) -> PreparedProbe:
    """Build the question.

    Raises:
        ValueError: the options are invalid together; the text says why.
    """
    facts = config.facts
    notes: list[str] = []
    model, full_depth = _model(config, options, notes)
    world_size, rank = _ranks(config, options, notes)
    text_part = sizing.text_part(model.data or model.shape.as_data())
    hidden = next((text_part[name] for name in ("hidden_size", "n_embd", "d_model") if isinstance(text_part.get(name), int)), None)
    overrides = fill(config, hidden)
    if overrides:
        notes.append(f'Values used for "auto": {"; ".join(map(in_words, overrides))}.')
    overrides += micro_batch(options.micro_batch) if options.micro_batch is not None else []
    overrides += options.assignments
    memory = facts.gpu_memory or (facts.gpu.memory if facts.gpu else None)
    limit = MemoryLimit(options.limit, "--limit") if options.limit else None
    if limit is None and memory is not None and not model.data and not model.function:
        notes.append(f"The built-in model does not show whether yours fits in {facts.gpu or 'the GPU'}; --model or --model-fn does.")
    elif limit is None and memory is not None:
        limit = MemoryLimit(memory, f"one {facts.gpu}" if facts.gpu and facts.gpu.memory == memory else "--gpu-memory")
    question = Question(
        text,
        tuple(overrides),
        options.device,
        world_size,
        rank,
        launched=options.place is not None,
        model=model,
        sequence=options.sequence_length or _sequence(config, options),
        checkpointing=options.activation_checkpointing,
        steps=options.steps,
        zero_init=options.zero_init,
        memory=memory or DEFAULT_MEMORY,
        timeline=options.timeline,
        snapshot=os.path.abspath(options.snapshot) if options.snapshot else None,  # noqa: PTH100 - the child runs elsewhere
    )
    return PreparedProbe(path, config, question, limit, options.layers or (), full_depth, tuple(notes))


def _model(config: Config, options: ProbeOptions, notes: list[str]) -> tuple[ProbedModel, int | None]:
    given = config.facts.model
    rank, targets = options.lora_rank or 0, tuple(name.strip() for name in (options.lora_targets or "").split(",") if name.strip())
    if options.model_fn is not None:
        return ProbedModel(function=options.model_fn, paths=(os.getcwd(),)), None  # noqa: PTH109 - as Python itself would look for it
    if given is None:
        if options.layers is not None:
            raise ValueError("--layers requires --model.")
        notes.append("The model is a small built-in one; pass --model CONFIG.JSON or --model-fn to train yours.")
        return ProbedModel(adapters=rank, targets=targets), None
    data = given.data
    full = sizing.depth(data)
    if options.layers is not None and (full is None or max(options.layers) > full):
        raise ValueError(f"{given.path} has {full or 'an unknown number of'} layers; --layers {max(options.layers)} is too many.")
    if options.device == "cpu" and options.layers is None:
        data, said = sizing.small(data)
        if said:
            notes.append(f"The model is scaled down to run on a CPU: {said}. --device fake runs it at full size.")
    return ProbedModel(data=data, adapters=rank, targets=targets), full


def _sequence(config: Config, options: ProbeOptions) -> int:
    model = config.facts.model
    if model is None or options.model_fn is not None or options.device == "cpu":
        return DEFAULT_SEQUENCE
    return min(model.positions or LONGEST_DEFAULT, LONGEST_DEFAULT)


def _ranks(config: Config, options: ProbeOptions, notes: list[str]) -> tuple[int, int]:
    """World size and rank: those of the launcher, else those given, else those that the batch sizes of the config determine."""
    given = config.facts.world_size
    if options.place is not None:
        if given not in (None, options.place.world_size):
            notes.append(f"--world-size {given} is ignored: the launcher started {options.place.world_size} ranks.")
        return options.place.world_size, options.place.rank
    derived = ranks_of(config) if given is None and options.micro_batch is None else None
    if derived is not None and derived[0] > 1:
        notes.append(f"Inferred --world-size {derived[0]}: {derived[1]}.")
    world_size = given or (derived[0] if derived else 1)
    if options.rank >= world_size:
        raise ValueError(f"--rank {options.rank} is out of range: with --world-size {world_size}, ranks are 0 to {world_size - 1}.")
    return world_size, options.rank


def probe(setup: PreparedProbe, options: ProbeOptions, progress: Progress) -> ProbeResult:
    """Run once, or at several depths."""
    if len(setup.depths) < 2:
        question = _at_depth(setup.question, setup.depths[0]) if setup.depths else setup.question
        notes = (_built(setup.depths[0], setup),) if setup.depths else ()
        return _result(setup, question, ask(question, timeout=options.timeout, progress=progress), notes)
    assert setup.full_depth is not None
    answers: dict[int, Answer] = {}
    for layers in setup.depths:
        question = _at_depth(setup.question, layers)
        answers[layers] = ask(question, timeout=options.timeout, progress=_named(progress, f"{layers} layers"))
        if not answers[layers].started:
            return _result(setup, question, answers[layers], (_built(layers, setup),))
    line = depth.line(answers, setup.full_depth)
    return _result(setup, setup.question, line.answer)._replace(line=line)


def compare(setup: PreparedProbe, options: ProbeOptions, progress: Progress) -> ComparedVariants:
    """Run the variants one after another, each in its own process.

    Raises:
        dslint.errors.UserError: the comparison is invalid.
    """
    assert options.comparison is not None
    try:
        wanted = variants(setup.question, options.comparison)
    except ValueError as error:
        raise UserError(f"--compare {options.comparison}: {error}") from None
    results: list[tuple[ProbedVariant, ProbeResult]] = []
    for variant in wanted:
        one = setup._replace(question=variant.question)
        if variant.name == ALL_OFFLOADED and results[0][1].answer.engine.get("stage", 3) < 3:
            note = "offload_param was not tried: it requires stage 3."
            results[-1] = results[-1][0], results[-1][1]._replace(notes=(*results[-1][1].notes, note))
            break
        results.append((variant, probe(one, options, _named(progress, variant.name))))
        if results[-1][1].answer.unable is not None:
            break
    return ComparedVariants(setup.path, tuple(results))


def search(setup: PreparedProbe, options: ProbeOptions, progress: Progress) -> SearchResult:
    """Find the largest micro batch that fits.

    Raises:
        dslint.errors.UserError: no memory limit is known.
    """
    if setup.limit is None and options.device in ("fake", "cpu"):
        raise UserError("--search requires --limit, or --gpu with --model or --model-fn.")
    tried: dict[int, ProbeResult] = {}

    def fits(size: int) -> bool:
        one = setup._replace(question=replace(setup.question, overrides=(*setup.question.overrides, *micro_batch(size))))
        tried[size] = probe(one, options, _named(progress, f"micro batch {size}"))
        if tried[size].answer.device == "fake" and setup.limit is None:
            raise UserError("--search requires --limit, or --gpu with --model, because this machine has no GPU.")
        return tried[size].answer.started and tried[size].fits is not False

    found = largest(fits)
    return SearchResult(setup.path, found, tried[found or 1], tuple(sorted(tried.items())))


def _built(layers: int, setup: PreparedProbe) -> str:
    return f"Built with {layers} of {setup.full_depth} layers."


def _at_depth(question: Question, layers: int) -> Question:
    assert question.model.data is not None
    return replace(question, model=replace(question.model, data=sizing.with_layers(question.model.data, layers)))


def _named(progress: Progress, name: str) -> Callable[[str, float | None], None]:
    return lambda doing, part: progress(f"{name}: {doing}", part)


def _result(setup: PreparedProbe, question: Question, answer: Answer, notes: tuple[str, ...] = ()) -> ProbeResult:
    explained: tuple[Diagnostic, ...] = ()
    predicted: tuple[Predicted, ...] = ()
    release = _release(answer)
    if release is not None and (release < _FIRST_TRIED or release[:2] > NEWEST[:2]):
        tried = f"0.15 to {NEWEST.major}.{NEWEST.minor}"
        notes += (f"DeepSpeed {release} is installed, but the probe is tested with {tried}: figures may be wrong.",)
    elif release is not None and setup.config.facts.deepspeed != release:
        notes += (f"Ran on the installed DeepSpeed {release}; the config targets {setup.config.facts.deepspeed}.",)
    config = as_run(setup.config, question, answer)
    if answer.raised is not None and not answer.out_of_memory:
        from dslint.registry.rules import default_rules

        linted = lint_document(config.document, setup.path, config.context, default_rules())
        explained = explain(answer.raised, linted.diagnostics)
    elif answer.started:
        predicted = predict(config, question, answer)
    return ProbeResult(setup.path, question, answer, setup.limit, explained, predicted, notes=(*setup.notes, *notes))


def _release(answer: Answer) -> Release | None:
    try:
        return Release.parse(answer.versions["deepspeed"])
    except (KeyError, ValueError):
        return None
