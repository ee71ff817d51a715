"""The output of `dslint fit`: whether the config fits, the ways to make it fit with diffs and costs, and what is not needed."""

from __future__ import annotations

import json
from dataclasses import asdict
from difflib import unified_diff
from typing import Any

from dslint.facts import Facts
from dslint.facts.gpus import in_words
from dslint.memory.costs import Speeds, differences
from dslint.memory.fit import Fit, Room, Variant
from dslint.report.estimate_page import gib, verdict
from dslint.report.style import Style, visible_lines, wrap

SHOWN = 4
"""How many ways are printed with their diffs; JSON has all."""


def page(fit: Fit, facts: Facts, speeds: Speeds, path: str, style: Style) -> str:
    """The report as text."""
    base = fit.base.found
    lines = [
        style.paint(base.model.name, "bold") + f": {base.model.size:,} parameters, {base.plan.samples:,} samples per step (unchanged below)"
    ]
    lines += [
        style.paint(line, "bold") if fit.fits else style.paint(line, "red", "bold") for line in wrap(_verdict(fit, facts), style.width)
    ]
    for sentence in _not_needed(fit):
        lines += ["", *wrap(sentence, style.width)]
    if fit.room is not None:
        lines += ["", *wrap(_room(fit.room, fit), style.width)]
    if not fit.fits:
        for number, way in enumerate(fit.ways[:SHOWN], 1):
            lines += ["", *_way(number, way, fit, speeds, path, style)]
        if not fit.ways:
            lines += ["", *_nothing(fit, style)]
    lines += ["", *_table(fit, style), "", *_small_print(fit, speeds, style)]
    return "\n".join(lines)


def _verdict(fit: Fit, facts: Facts) -> str:
    found, goal = fit.base.found, fit.goal
    need = f"It peaks at {gib(found.device.expected)} GiB ({found.phase}; {gib(found.device.low)} to {gib(found.device.high)}). "
    words = need + verdict(found, facts, goal.device)
    if not goal.host_met(found):
        words += (
            f" With its processes a machine needs about {gib(found.host_range.expected)} GiB of host memory and has "
            f"{in_words(goal.host or 0)}: the kernel would kill the job with exit code -9."
        )
    return words


def _room(room: Room, fit: Fit) -> str:
    """What free memory allows, as sentences."""
    plan = fit.base.found.plan
    batch = f"The largest micro batch size that certainly fits is {room.micro_batch:,}"
    if room.micro_batch > plan.micro_batch:
        batch += f" (instead of {plan.micro_batch:,}: about {100 * room.faster:.0f} % more tokens per second)"
    return f"{batch}; the longest samples, with micro batch size {plan.micro_batch:,}, have {room.length:,} tokens."


def _not_needed(fit: Fit) -> list[str]:
    """What the config does not need in order to fit, a sentence each."""
    plan, most = fit.base.found.plan, gib(fit.goal.device)
    stages = [f"{way.changes[0].name} peaks at {gib(way.peak)}" for way in reversed(fit.lesser) if way.changes[0].name.startswith("stage")]
    sentences = [f"Stage {plan.stage} is not needed: {', '.join(stages)} GiB of {most}."] if stages else []
    for way in fit.lesser:
        name = way.changes[0].name
        if name.startswith("no "):
            sentences.append(
                f"{name.removeprefix('no ').capitalize()} is not needed: without it, memory peaks at {gib(way.peak)} GiB of {most}."
            )
    return sentences


def _way(number: int, way: Variant, fit: Fit, speeds: Speeds, path: str, style: Style) -> list[str]:
    title = f"{number}. " + ", ".join(change.name for change in (*way.changes, *way.also))
    first, *rest = wrap(title, style.width)
    lines = [style.paint(line, "bold") for line in (first, *(f"   {line}" for line in rest))]
    margin = "" if fit.goal.certain(way.found) else " (likely fits, small margin)"
    saved = f"peak: {gib(way.peak)} GiB, {gib(fit.base.peak - way.peak)} less{margin}"
    host = way.found.host_of_node - fit.base.found.host_of_node
    if abs(host) > 2**20:
        saved += f"; host memory per machine: {gib(way.found.host_of_node)} GiB, {gib(abs(host))} {'more' if host > 0 else 'less'}"
    sentences = [saved, f"step: {_slower(way, fit)}", *(f"cost: {words}" for words in _costs(way, fit, speeds))]
    if way.changes_training:
        names = ", ".join(change.name for change in way.changes if change.changes_training)
        sentences.append(f"changes training: {names}")
    sentences += [f"program: {change.program}" for change in (*way.changes, *way.also) if change.program]
    sentences += [f"note: {change.note}" for change in way.changes if change.note]
    for sentence in sentences:
        head, *more = wrap(sentence, style.width - 5)
        lines += [f"   {head}", *(f"     {line}" for line in more)]
    return lines + [f"   {line}" for line in _painted(diff(fit, way, path), style)]


def _costs(way: Variant, fit: Fit, speeds: Speeds) -> list[str]:
    return differences(fit.base.work, way.work, way.lasts, speeds)


def _slower(way: Variant, fit: Fit) -> str:
    before, after = fit.base.lasts.total, way.lasts.total
    percent = 100 * (after / before - 1)
    change = "about as fast" if abs(percent) < 1 else f"about {abs(percent):.0f} % {'slower' if percent > 0 else 'faster'}"
    return f"{change} ({_time(after)} instead of {_time(before)}, without overlap)"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def diff(fit: Fit, way: Variant, path: str) -> list[str]:
    """What a way changes in the config, as a unified diff without line ends."""
    before, after = fit.base.text.splitlines(), way.text.splitlines()
    return [visible_lines(line) for line in unified_diff(before, after, path, path, lineterm="")]


def _painted(lines: list[str], style: Style) -> list[str]:
    colors = {"+": "green", "-": "red", "@": "cyan"}
    return [style.paint(line, colors[line[0]]) if line[:1] in colors else line for line in lines]


def _nothing(fit: Fit, style: Style) -> list[str]:
    least = fit.least
    names = ", ".join(change.name for change in least.changes) or "the config as it is"
    return wrap(
        f"No change that dslint tried makes it fit. The lowest peak is {gib(least.peak)} GiB, with: {names}. "
        "Use more GPUs (dslint estimate --sweep world-size=...), a shorter sequence, or a smaller model.",
        style.width,
    )


def _table(fit: Fit, style: Style) -> list[str]:
    """All single changes that save something."""
    if not fit.singles:
        return ["No single change saves memory."]
    width = style.width - 36
    lines = [style.paint(f"{'Each change on its own':<{width}}{'peak GiB':>10}{'saves':>9}{'host':>8}{'step':>8}", "bold")]
    for way in fit.singles:
        name = way.changes[0].name + (" *" if way.changes_training else "")
        host = way.found.host_of_node
        slower = 100 * (way.lasts.total / fit.base.lasts.total - 1)
        step = f"{slower:+.0f} %" if abs(slower) >= 0.5 else "="
        row = f"{name:<{width}}{gib(way.peak):>10}{gib(fit.base.peak - way.peak):>9}{gib(host) if host else '-':>8}{step:>8}"
        lines.append(style.paint(row, "green") if fit.goal.met(way.found) and not fit.fits else row)
    return lines


def _small_print(fit: Fit, speeds: Speeds, style: Style) -> list[str]:
    words = (
        "Ranking: first changes that keep training the same, then those that keep the model as it is built, then those that fit even at "
        "the high end of their range, then the fastest. "
        "Peaks are those of dslint estimate, with its allowance for context and fragmentation; host memory is per machine, in GiB. Step "
        f"times assume 40 % of the GPU's peak FLOPS, {speeds.pcie / 1e9:g} GB/s over PCIe, {speeds.nvme / 1e9:g} GB/s of NVMe per machine, "
        f"{speeds.within / 1e9:g} GB/s between GPUs of a machine and {speeds.between / 1e9:g} GB/s between machines. "
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
        "speeds": speeds._asdict(),
        "now": _variant(fit.base, fit, speeds),
        "ways": [_variant(way, fit, speeds) for way in fit.ways],
        "singles": [_variant(way, fit, speeds) for way in fit.singles],
        "not_needed": [_variant(way, fit, speeds) for way in fit.lesser],
        "room": None if fit.room is None else asdict(fit.room),
        "tried": fit.tried,
    }
    return json.dumps(data, indent=2)


def _variant(way: Variant, fit: Fit, speeds: Speeds) -> dict[str, Any]:
    found = way.found
    return {
        "changes": [change.name for change in way.changes],
        "program": [change.program for change in (*way.changes, *way.also) if change.program],
        "notes": [change.note for change in way.changes if change.note],
        "trains_otherwise": way.changes_training,
        "fits": fit.goal.met(found),
        "sure": fit.goal.certain(found),
        "verdict": found.verdict(fit.goal.device),
        "device": found.device._asdict(),
        "saves": fit.base.peak - way.peak,
        "phase": found.phase,
        "host_node": found.host_of_node,
        "step": way.lasts._asdict(),
        "costs": _costs(way, fit, speeds),
        "diff": "\n".join(diff(fit, way, "config")),
    }
