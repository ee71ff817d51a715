"""The output of `dslint fit`: whether the config fits, the ways to make it fit with diffs and costs, and what is not needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import unified_diff
from typing import Any

from dslint.facts import Facts
from dslint.facts.gpus import in_words
from dslint.memory.costs import Speeds, differences
from dslint.memory.estimate import Estimate, Verdict
from dslint.memory.fit import Fit
from dslint.memory.host import host_range
from dslint.memory.ways import ChangedConfig, Room
from dslint.report.estimate_page import gib, titled, verdict
from dslint.report.style import Style, visible_lines, wrap

TIMES_BEYOND = 200
"""The percentage beyond which a slower step is given as a multiple."""

COLUMN = 8
"""The width of the column for a step."""

SHOWN = 4
"""How many ways are printed with their diffs; JSON has all."""


def page(fit: Fit, facts: Facts, speeds: Speeds, path: str, style: Style) -> str:
    """The report as text."""
    base = fit.base.found
    lines = [
        style.paint(line, "bold") if fit.fits else style.paint(line, "red", "bold") for line in wrap(_verdict(fit, facts), style.width)
    ]
    lines.append(f"{titled(base.model, style)}, {base.plan.samples:,} samples per step (unchanged below)")
    for sentence in _advice(fit):
        lines += ["", *wrap(sentence, style.width)]
    for number, way in enumerate(fit.ways[:SHOWN], 1):
        lines += ["", *_way(number, way, fit, speeds, path, style)]
    lines += ["", *_table(fit, style), "", *_small_print(fit, speeds, style)]
    return "\n".join(lines)


def _verdict(fit: Fit, facts: Facts) -> str:
    found, goal = fit.base.found, fit.goal
    need = f" It peaks at {gib(found.device.expected)} GiB ({found.phase}; {gib(found.device.low)} to {gib(found.device.high)})."
    words = verdict(found, facts, goal.device) + need
    if goal.host is None:
        return words
    if not goal.host_met(found):
        return words + (
            f" With its processes a machine needs about {gib(fit.base.host)} GiB of host memory and has "
            f"{in_words(goal.host)}: the kernel would kill the job (exit code -9), or an allocation would fail."
        )
    return words + _loading(found, goal.host)


def _loading(found: Estimate, host: int) -> str:
    """What loading the model may do to a machine with enough memory for training, as a sentence; empty if that is enough for it, too."""
    if found.host_verdict(host) in (Verdict.FITS, Verdict.LIKELY):
        return ""
    return (
        f" Training fits in the {in_words(host)} of a machine, but while loading its {found.plan.local} ranks hold up to "
        f"{gib(found.loading_of_node)} GiB (the whole model in fp32, each): load in 16 bits, one rank after the other, or at stage 3 under "
        "zero.Init."
    )


def _advice(fit: Fit) -> Iterator[str]:
    """What to know before the ways, a sentence or two each."""
    if fit.adapters and not fit.goal.sure(fit.base.found):
        yield _adapters(fit)
    if fit.divided is not None:
        gpus, found = fit.divided
        needs = f"{gib(found.device.expected)} GiB each (at most {gib(found.device.high)})"
        yield f"With more GPUs: on {gpus:,} it fits as it is, with {needs}."
    yield from _not_needed(fit)
    if fit.room is not None:
        yield _room(fit.room, fit)
    if fit.fits and fit.ways:
        yield "With each of the following even the high end of its range fits."
    if not fit.fits and not fit.ways:
        yield _nothing(fit)


def _adapters(fit: Fit) -> str:
    """What adapters would need: the first question of a practitioner."""
    needs = [
        f"{name} needs {gib(found.device.expected)} GiB ({found.verdict(fit.goal.device)}, at most {gib(found.device.high)})"
        for name, found in fit.adapters
    ]
    how = "with activation checkpointing and micro batch size 1, without offload"
    if fit.adapters[0][1].plan.assumes_zero_init:
        how += ", if the model is partitioned while it is built (zero.Init)"
    return f"If adapters are enough: {how}, {' and '.join(needs)}. Options: --lora-rank, --base-bits."


def _room(room: Room, fit: Fit) -> str:
    """What free memory allows, as sentences."""
    plan = fit.base.found.plan
    batch = f"The largest micro batch size of which even the high end fits is {room.micro_batch:,}"
    if room.micro_batch > plan.micro_batch:
        batch += f" (instead of {plan.micro_batch:,}: about {100 * room.faster:.0f} % more tokens per second)"
    return f"{batch}; the longest samples, with micro batch size {plan.micro_batch:,}, have {room.length:,} tokens."


def _not_needed(fit: Fit) -> list[str]:
    """What the config does not need in order to fit, a sentence each."""
    plan, most = fit.base.found.plan, gib(fit.goal.device)
    stages = [f"{way.changes[0].name} peaks at {gib(way.peak)}" for way in reversed(fit.lesser) if not way.changes[0].without]
    sentences = [f"Stage {plan.stage} is not needed: {', '.join(stages)} GiB of {most}."] if stages else []
    for way in fit.lesser:
        name = way.changes[0].without
        if name:
            sentences.append(f"{name.capitalize()} is not needed: without it, memory peaks at {gib(way.peak)} GiB of {most}.")
    return sentences


def _way(number: int, way: ChangedConfig, fit: Fit, speeds: Speeds, path: str, style: Style) -> list[str]:
    title = f"{number}. " + ", ".join(change.name for change in (*way.changes, *way.also))
    first, *rest = wrap(title, style.width)
    lines = [style.paint(line, "bold") for line in (first, *(f"   {line}" for line in rest))]
    less = fit.base.peak - way.peak
    saved = f"peak: {gib(way.peak)} GiB, {f'{gib(less)} less' if less >= 2**20 else 'unchanged'}{_margin(way, fit)}"
    sentences = [saved, *_host(way, fit), f"step: {_slower(way, fit)}", *(f"cost: {words}" for words in _costs(way, fit, speeds))]
    if way.changes_training:
        names = ", ".join(change.name for change in way.changes if change.changes_training)
        sentences.append(f"changes training: {names}")
    sentences += [f"program: {change.program}" for change in (*way.changes, *way.also) if change.program]
    sentences += [f"note: {change.note}" for change in way.changes if change.note]
    for sentence in sentences:
        head, *more = wrap(sentence, style.width - 5)
        lines += [f"   {head}", *(f"     {line}" for line in more)]
    return lines + [f"   {line}" for line in _painted(diff(fit, way, path), style)]


def _margin(way: ChangedConfig, fit: Fit) -> str:
    """What is not certain about a way that fits."""
    found, goal = way.found, fit.goal
    if found.verdict(goal.device) is Verdict.OPEN:
        return f" (without {'activations' if found.is_lower_bound else ' and '.join(found.plan.uncounted)})"
    if found.device.high > goal.device:
        return f" (likely fits: about {gib(found.full)} GiB on a GPU that is nearly full, up to {gib(found.device.high)})"
    if not goal.host_sure(found):
        return " (host memory likely suffices)"
    if found.plan.images_decide:
        return " (likely fits: large images and sounds need more)"
    return "" if goal.certain(found) else " (if the model is partitioned while it is built: zero.Init)"


def _host(way: ChangedConfig, fit: Fit) -> list[str]:
    """The host memory of a way, if it differs."""
    more = way.host - fit.base.host
    if abs(more) <= 2**20:
        return []
    low, expected, high = host_range(way.found.plan, way.found.host, loading=False)
    change = f"{gib(abs(more))} {'more' if more > 0 else 'less'}"
    return [f"host memory per machine, with its processes: {gib(expected)} GiB ({gib(low)} to {gib(high)}), {change}"]


def _costs(way: ChangedConfig, fit: Fit, speeds: Speeds) -> list[str]:
    return differences(fit.base.work, way.work, way.lasts, speeds)


def _slower(way: ChangedConfig, fit: Fit) -> str:
    before, after = fit.base.lasts.total, way.lasts.total
    return f"{change_of_step(after / before)} ({_time(after)} instead of {_time(before)})"


def change_of_step(ratio: float) -> str:
    """How a step compares by the ratio of its time: `about as fast`, `about 12 % slower`, `about 42 times as slow`."""
    percent = 100 * (ratio - 1)
    if percent > TIMES_BEYOND:
        return f"about {ratio:.0f} times as slow"
    return "about as fast" if abs(percent) < 1 else f"about {abs(percent):.0f} % {'slower' if percent > 0 else 'faster'}"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def diff(fit: Fit, way: ChangedConfig, path: str) -> list[str]:
    """What a way changes in the config, as a unified diff without line ends."""
    before, after = fit.base.text.splitlines(), way.text.splitlines()
    return [visible_lines(line) for line in unified_diff(before, after, path, path, lineterm="")]


def _painted(lines: list[str], style: Style) -> list[str]:
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return [style.paint(line, colors[line[0]]) if line[:1] in colors else line for line in lines]


def _nothing(fit: Fit) -> str:
    least = fit.least
    names = ", ".join(change.name for change in least.changes) or "the config as it is"
    words = f"No change that dslint tried makes it fit. Closest is {gib(least.peak)} GiB"
    if fit.goal.host is not None and least.host > fit.goal.host:
        words += f" on a GPU with {gib(least.host)} of {gib(fit.goal.host)} GiB on the host"
    words += f", with: {names}. Use more GPUs (dslint estimate --sweep world-size=...)"
    if not fit.goal.host_met(least.found):
        words += " on more machines, which divide what is on the host"
    if not fit.goal.met(least.found) and least.found.full > fit.goal.device:
        words += ", shorter samples"
    adapters = ", adapters (--lora-rank)" if least.found.model.trained == least.found.model.size else ""
    return f"{words}{adapters}, or a smaller model."


def _table(fit: Fit, style: Style) -> list[str]:
    """All single changes that save something."""
    if not fit.singles:
        return ["No single change saves memory."]
    width = style.width - 1
    head = f"{'peak GiB':>10}{'saves':>9}{'host':>8}{'step':>8}"
    lines = [style.paint(f"{'Each change on its own':<{width - len(head)}}{head}", "bold")]
    for way in fit.singles:
        name = way.changes[0].name + (" *" if way.changes_training else "")
        host = way.host if way.found.host_of_node else 0
        slower = 100 * (way.lasts.total / fit.base.lasts.total - 1)
        step = f"{slower:+.0f} %" if abs(slower) >= 0.5 else "="
        if slower > TIMES_BEYOND:
            step = f"{1 + slower / 100:.0f} times"
            step = step if len(step) < COLUMN else step.replace("times", "x")
        figures = f"{gib(way.peak)}{gib(fit.base.peak - way.peak):>9}{gib(host) if host else '-':>8}{step:>8}"
        is_long = len(name) + len(figures) >= width
        rows = [name, figures.rjust(width)] if is_long else [name + figures.rjust(width - len(name))]
        lines += [style.paint(row, "green") for row in rows] if fit.goal.met(way.found) and not fit.fits else rows
    return lines


def _small_print(fit: Fit, speeds: Speeds, style: Style) -> list[str]:
    words = (
        "Ranking: first changes that fit even at the high end of their range, then those that keep training the same, then those that keep "
        "the model as it is built, then the fastest, with a surcharge for what needs host memory, a disk or new code. "
        "Peaks are those of dslint estimate, with its allowance for context and fragmentation; host memory is per machine, with its "
        f"processes, in GiB. Step times are those of dslint tune, with {speeds.pcie / 1e9:.3g} GB/s over PCIe, "
        f"{speeds.nvme / 1e9:.3g} GB/s of NVMe and {speeds.memory / 1e9:.3g} GB/s of the CPU optimizer per machine. "
        f"{fit.tried} variants were tried."
    )
    if any(way.changes_training for way in fit.singles):
        words += " * changes training, not only its speed."
    return wrap(words, style.width)


def as_json(fit: Fit, facts: Facts, speeds: Speeds) -> str:
    """All of it, in bytes and seconds."""
    data = {
        "version": 1,
        "gpu": str(facts.gpu) if facts.gpu else None,
        "limit": fit.goal.device,
        "host_limit": fit.goal.host,
        "fits": fit.fits,
        "answer": _verdict(fit, facts),
        "advice": list(_advice(fit)),
        "speeds": speeds._asdict(),
        "now": _variant(fit.base, fit, speeds),
        "ways": [_variant(way, fit, speeds) for way in fit.ways],
        "singles": [_variant(way, fit, speeds) for way in fit.singles],
        "not_needed": [_variant(way, fit, speeds) for way in fit.lesser],
        "more_gpus": fit.divided and {"world_size": fit.divided[0], "device": fit.divided[1].device._asdict()},
        "adapters": [
            {"name": name, "device": found.device._asdict(), "verdict": found.verdict(fit.goal.device)} for name, found in fit.adapters
        ],
        "room": None if fit.room is None else fit.room._asdict(),
        "tried": fit.tried,
    }
    return json.dumps(data, indent=2)


def _variant(way: ChangedConfig, fit: Fit, speeds: Speeds) -> dict[str, Any]:
    found = way.found
    return {
        "changes": [change.name for change in way.changes],
        "program": [change.program for change in (*way.changes, *way.also) if change.program],
        "notes": [change.note for change in way.changes if change.note],
        "trains_otherwise": way.changes_training,
        "fits": fit.goal.met(found),
        "sure": fit.goal.certain(found),
        "sure_if_partitioned": fit.goal.sure(found),
        "verdict": found.verdict(fit.goal.device),
        "device": found.device._asdict(),
        "saves": fit.base.peak - way.peak,
        "phase": found.phase,
        "host_node": found.host_of_node,
        "host_machine": host_range(found.plan, found.host, loading=False)._asdict(),
        "step": way.lasts._asdict(),
        "slower": way.lasts.total / fit.base.lasts.total - 1,
        "costs": _costs(way, fit, speeds),
        "diff": "\n".join(diff(fit, way, "config")),
    }
