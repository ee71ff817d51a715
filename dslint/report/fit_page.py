"""What `dslint fit` prints: what does not fit, the ways to make it fit with their diffs and costs, and what is not needed."""

from __future__ import annotations

import json
from difflib import unified_diff
from typing import Any

from dslint.facts import Facts
from dslint.facts.gpus import in_words
from dslint.memory.costs import Speeds, differences
from dslint.memory.fit import Fit, Variant
from dslint.report.estimate_page import gib
from dslint.report.style import Style, visible_lines, wrap

SHOWN = 4
"""Ways whose diffs are printed; JSON has all."""


def page(fit: Fit, facts: Facts, speeds: Speeds, path: str, style: Style) -> str:
    """The report for people."""
    base = fit.base.found
    lines = [style.paint(base.model.name, "bold") + f": {base.model.size:,} parameters, {base.plan.samples:,} samples a step, which stay"]
    lines += [
        style.paint(line, "bold") if fit.fits else style.paint(line, "red", "bold") for line in wrap(_verdict(fit, facts), style.width)
    ]
    for sentence in _not_needed(fit):
        lines += ["", *wrap(sentence, style.width)]
    if not fit.fits:
        for number, way in enumerate(fit.ways[:SHOWN], 1):
            lines += ["", *_way(number, way, fit, speeds, path, style)]
        if not fit.ways:
            lines += ["", *_nothing(fit, style)]
    lines += ["", *_table(fit, style), "", *_small_print(fit, speeds, style)]
    return "\n".join(lines)


def _verdict(fit: Fit, facts: Facts) -> str:
    found, goal = fit.base.found, fit.goal
    room = in_words(goal.device) + (f" of {facts.gpu}" if facts.gpu and facts.gpu.memory == goal.device else "")
    need = f"It peaks at {gib(found.device.expected)} GiB ({found.phase}; {gib(found.device.low)} to {gib(found.device.high)})"
    if fit.fits:
        sure = "fits" if found.fits(goal.device) else "is expected to fit, with little room,"
        return f"{need} and {sure} into the {room}."
    words = f"{need} and does not fit into the {room}." if found.device.expected > goal.device else f"{need}, which the {room} hold."
    if not goal.host_met(found):
        words += (
            f" A machine needs {gib(found.host_of_node)} GiB of its {in_words(goal.host or 0)} of host memory: "
            "the kernel would kill the job with exit code -9."
        )
    return words


def _not_needed(fit: Fit) -> list[str]:
    """What it would fit without, a sentence for each thing."""
    plan, most = fit.base.found.plan, gib(fit.goal.device)
    stages = [f"{way.changes[0].name} peaks at {gib(way.peak)}" for way in reversed(fit.lesser) if way.changes[0].name.startswith("stage")]
    sentences = [f"Stage {plan.stage} is not needed: {', '.join(stages)} GiB of {most}."] if stages else []
    for way in fit.lesser:
        name = way.changes[0].name
        if name.startswith("no "):
            sentences.append(
                f"{name.removeprefix('no ').capitalize()} is not needed: without it, it peaks at {gib(way.peak)} GiB of {most}."
            )
    return sentences


def _way(number: int, way: Variant, fit: Fit, speeds: Speeds, path: str, style: Style) -> list[str]:
    title = f"{number}. " + ", ".join(change.name for change in (*way.changes, *way.also))
    first, *rest = wrap(title, style.width)
    lines = [style.paint(line, "bold") for line in (first, *(f"   {line}" for line in rest))]
    sure = "" if way.found.fits(fit.goal.device) else ", with little room"
    saved = f"peaks at {gib(way.peak)} GiB, {gib(fit.base.peak - way.peak)} less{sure}"
    host = way.found.host_of_node - fit.base.found.host_of_node
    if abs(host) > 2**20:
        saved += f"; host memory of a machine {gib(way.found.host_of_node)} GiB, {gib(abs(host))} {'more' if host > 0 else 'less'}"
    told = [saved, f"step: {_slower(way, fit)}", *(f"cost: {words}" for words in _costs(way, fit, speeds))]
    if way.trains_otherwise:
        names = ", ".join(change.name for change in way.changes if change.trains_otherwise)
        told.append(f"trains otherwise, not merely slower: {names}")
    told += [f"program: {change.program}" for change in (*way.changes, *way.also) if change.program]
    told += [f"note: {change.note}" for change in way.changes if change.note]
    for sentence in told:
        head, *more = wrap(sentence, style.width - 5)
        lines += [f"   {head}", *(f"     {line}" for line in more)]
    return lines + [f"   {line}" for line in _painted(diff(fit, way, path), style)]


def _costs(way: Variant, fit: Fit, speeds: Speeds) -> list[str]:
    return differences(fit.base.work, way.work, way.lasts, speeds)


def _slower(way: Variant, fit: Fit) -> str:
    before, after = fit.base.lasts.total, way.lasts.total
    percent = 100 * (after / before - 1)
    change = "about as fast" if abs(percent) < 1 else f"about {abs(percent):.0f} % {'slower' if percent > 0 else 'quicker'}"
    return f"{change} ({_time(after)} instead of {_time(before)}, nothing overlapped)"


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
        f"Nothing that was tried makes it fit. The least, {gib(least.peak)} GiB, comes of: {names}. "
        "What is left is more GPUs (dslint estimate --sweep world-size=...), a shorter sequence, or a smaller model.",
        style.width,
    )


def _table(fit: Fit, style: Style) -> list[str]:
    """All single changes that save something."""
    if not fit.singles:
        return ["No single change saves anything."]
    width = style.width - 36
    lines = [style.paint(f"{'Each change alone':<{width}}{'peak GiB':>10}{'saves':>9}{'host':>8}{'step':>8}", "bold")]
    for way in fit.singles:
        name = way.changes[0].name + (" *" if way.trains_otherwise else "")
        host = way.found.host_of_node
        slower = 100 * (way.lasts.total / fit.base.lasts.total - 1)
        step = f"{slower:+.0f} %" if abs(slower) >= 0.5 else "="
        row = f"{name:<{width}}{gib(way.peak):>10}{gib(fit.base.peak - way.peak):>9}{gib(host) if host else '-':>8}{step:>8}"
        lines.append(style.paint(row, "green") if fit.goal.met(way.found) and not fit.fits else row)
    return lines


def _small_print(fit: Fit, speeds: Speeds, style: Style) -> list[str]:
    words = (
        "Best first: what trains the same, what fits even at the high end of its range, what is quickest. Peaks are those of dslint "
        "estimate, with its allowance for context and fragmentation; host is that of a machine, in GiB. Steps are reckoned at 40 % of the "
        f"GPU's peak, {speeds.pcie / 1e9:g} GB/s over PCIe, {speeds.nvme / 1e9:g} GB/s of NVMe a machine, {speeds.within / 1e9:g} GB/s "
        f"between GPUs of one machine and {speeds.between / 1e9:g} GB/s between machines. {fit.tried} variants were tried."
    )
    if any(way.trains_otherwise for way in fit.singles):
        words += " * trains otherwise, not merely slower."
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
        "tried": fit.tried,
    }
    return json.dumps(data, indent=2)


def _variant(way: Variant, fit: Fit, speeds: Speeds) -> dict[str, Any]:
    found = way.found
    return {
        "changes": [change.name for change in way.changes],
        "program": [change.program for change in (*way.changes, *way.also) if change.program],
        "notes": [change.note for change in way.changes if change.note],
        "trains_otherwise": way.trains_otherwise,
        "fits": fit.goal.met(found),
        "sure": found.fits(fit.goal.device) is True,
        "device": found.device._asdict(),
        "saves": fit.base.peak - way.peak,
        "phase": found.phase,
        "host_node": found.host_of_node,
        "step": way.lasts._asdict(),
        "costs": _costs(way, fit, speeds),
        "diff": "\n".join(diff(fit, way, "config")),
    }
