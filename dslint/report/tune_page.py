"""The output of `dslint tune`: the present config, the fastest ones that fit by estimate, what changes, and why others lost."""

from __future__ import annotations

import json
from contextlib import suppress
from difflib import unified_diff
from typing import Any

from dslint.facts import Facts
from dslint.memory.changes import SMALL_BUCKET
from dslint.memory.ledger import INIT
from dslint.report.estimate_page import gib, paragraphs, titled
from dslint.report.speed_words import as_data, duration, factor, parts, shown_tokens, speeds, spread, training
from dslint.report.style import Style, visible_lines, wrap
from dslint.report.words import count
from dslint.source.config_text import config_text
from dslint.source.edit import CannotChange
from dslint.source.tree import Document
from dslint.speed.compare import CLOSE, SpeedVerdict, compare
from dslint.tune.candidate import Candidate
from dslint.tune.reasons import Loss
from dslint.tune.search import Tuned, TuneResult


def page(
    result: TuneResult, facts: Facts, document: Document, path: str, style: Style, tokens: float | None = None, source: str | None = None
) -> str:
    """The report as text. `source` is the file that the config is made of, if it has none of its own."""
    model, now = result.found.model, result.now
    plan = now.plan
    gpu = str(facts.gpu) if facts.gpu else "a100 (assumed; pass --gpu)"
    first = f"{titled(model, style)}; {count(plan.world, 'GPU')} {gpu}, {plan.local} per machine"
    lines = [first, f"{count(plan.samples, 'sample')} of {now.step.job.length:,} tokens per step", ""]
    lines += [*wrap(f"Now: {_described(now)}: {_time(now)}; {_memory(result)}.", style.width)]
    if not result.best:
        lines += ["", *wrap(_nothing(result), style.width), "", *_lost(result, style), *paragraphs("Assumptions", _assumed(result), style)]
        return "\n".join(lines)
    lines += ["", *_table(result, style)]
    best = result.best[0]
    lines += ["", *wrap(_verdict(result), style.width)]
    lines += wrap(f"Config 1: {speeds(best.candidate.step)}.", style.width)
    if tokens is not None:
        lines += wrap(f"{shown_tokens(tokens)} tokens: {training(best.candidate.step, tokens)}.", style.width)
        if best.candidate.choice != now.choice:
            lines += wrap(f"With the present config: {training(now.step, tokens)}.", style.width)
    lines += ["", style.paint("Parts of a step of config 1", "bold")]
    lines += [f"  {line}" for part in parts(best.candidate.step) for line in wrap(part, style.width - 2)]
    if source is not None:
        lines += [
            "",
            *wrap(f"A diff of JSON shows the config that DeepSpeed gets from {source}, which has no keys for the change.", style.width),
        ]
    changes = [line for number, one in enumerate(result.best, 1) for line in _changes(number, one, document, path, style)]
    lines += ["", *changes, *_lost(result, style), *paragraphs("Assumptions", _assumed(result), style), "", *_small_print(result, style)]
    return "\n".join(lines)


def _described(candidate: Candidate) -> str:
    """The choices of a config, as a phrase."""
    choice = candidate.choice
    words = [f"stage {choice.stage}" if choice.stage else "no ZeRO", f"micro batch {choice.micro_batch} x {choice.accumulation}"]
    if choice.checkpoint_every:
        words.append("checkpointing")
    if choice.optimizer_device:
        share = f"{choice.offload_ratio:.0%} of the " if choice.offload_ratio < 1 else ""
        words.append(f"{share}optimizer on {_device(choice.optimizer_device)}")
    if choice.parameter_device:
        words.append(f"parameters on {_device(choice.parameter_device)}")
    if choice.secondary > 1:
        words.append(f"hpZ {choice.secondary}")
    if choice.quantized_weights:
        words.append("quantised weights *")
    if choice.quantized_gradients:
        words.append("quantised gradients *")
    if choice.tensor > 1:
        words.append(f"tensor parallel {choice.tensor}")
    if choice.sequence > 1:
        words.append(f"sequence parallel {choice.sequence}")
    if choice.overlap and choice.stage in (1, 2):
        words.append("overlap")
    if not choice.overlap and choice.stage == 3:
        words.append("no overlap")
    if choice.stage and choice.reduce_bucket == SMALL_BUCKET:
        words.append("small buckets")
    return ", ".join(words)


def _device(name: str) -> str:
    return "NVMe" if name == "nvme" else "CPU"


def _time(candidate: Candidate) -> str:
    return f"{duration(candidate.step.seconds)} per step ({spread(candidate.step)})"


def _memory(result: TuneResult) -> str:
    found, limit = result.found, result.goal.device
    peak = f"{gib(found.device.expected)} of {gib(limit)} GiB"
    if result.goal.sure(found):
        return f"{peak}, fits by estimate"
    return f"{peak}, up to {gib(found.device.high)} GiB: may not fit"


def _table(result: TuneResult, style: Style) -> list[str]:
    head = f"{'step':>8}{'speed':>8}{'peak GiB':>10}{'MFU':>6}"
    width = style.width - 1
    lines = [style.paint(f"{'Fastest configs that fit by estimate':<{width - len(head)}}{head}", "bold")]
    for number, one in enumerate(result.best, 1):
        step = one.candidate.step
        speed = result.now.seconds / one.candidate.seconds
        figures = f"{duration(step.seconds):>8}{f'{speed:.2f}x':>8}{gib(one.found.device.expected):>10}{step.utilisation:>6.0%}"
        first, *rest = wrap(f"{number}. {_described(one.candidate)}", width - len(figures) - 1)
        lines += [first.ljust(width - len(figures)) + figures, *(f"   {line}" for line in rest)]
    return lines


def _verdict(result: TuneResult) -> str:
    """How sure the order is, as sentences."""
    best = result.best[0]
    gain = best.gain
    if best.candidate.choice == result.now.choice:
        words = "The present config is the fastest one that fits by estimate."
    elif gain.verdict is SpeedVerdict.CLOSE:
        words = "Config 1 and the present config are too close to call: keep the present one."
    elif gain.kind is not None and abs(gain.gain) < CLOSE:
        words = (
            f"Config 1 is about as fast as the present config ({factor(gain.low)} to {factor(gain.high)}, depending on {gain.kind.name}): "
            "measure to know which is faster."
        )
    else:
        how = "" if gain.verdict is SpeedVerdict.FASTER else "likely "
        words = (
            f"Config 1 is {how}{factor(gain.gain)}{'' if gain.gain >= 1 else ' than'} {'as ' if gain.gain >= 1 else ''}the present config"
        )
        words += f" ({factor(gain.low)} to {factor(gain.high)}{f', depending on {gain.kind.name}' if gain.kind else ''})."
    close = [number for number, one in enumerate(result.best[1:], 2) if _close(best, one)]
    if close:
        words += f" Too close to call against config 1: {', '.join(map(str, close))}."
    open_ = [number for number, one in enumerate(result.best[1:], 2) if not _close(best, one) and _open(best, one)]
    if open_:
        words += f" Not certainly slower than config 1: {', '.join(map(str, open_))}; measure to know."
    return words


def _close(best: Tuned, one: Tuned) -> bool:
    return compare(best.candidate.step, one.candidate.step).verdict is SpeedVerdict.CLOSE


def _open(best: Tuned, one: Tuned) -> bool:
    return compare(best.candidate.step, one.candidate.step).verdict is SpeedVerdict.LIKELY_FASTER


def diff(one: Tuned, document: Document, path: str) -> list[str]:
    """What a config changes in its file, as a unified diff without line ends; in its JSON, if it has no file of its own."""
    before, after = config_text(document), one.written.text
    with suppress(CannotChange):
        before, after = document.text, one.written.into(document)
    return [visible_lines(line) for line in unified_diff(before.splitlines(), after.splitlines(), path, path, lineterm="")]


def _changes(number: int, one: Tuned, document: Document, path: str, style: Style) -> list[str]:
    colors = {"+": "green", "-": "red", "@": "cyan"}
    changed = diff(one, document, path)
    if not changed and not one.written.program:
        return [style.paint(f"{number}. The present config.", "bold"), ""]
    lines = [style.paint(f"{number}. {_described(one.candidate)}", "bold")]
    lines += [f"   {line}" for sentence in one.written.program for line in wrap(f"program: {sentence}", style.width - 3)]
    lines += [f"   {style.paint(line, colors[line[0]]) if line[:1] in colors else line}" for line in changed[2:]]
    return [*lines, ""]


def _lost(result: TuneResult, style: Style) -> list[str]:
    if not result.lost:
        return []
    lines = [style.paint("Not among them", "bold")]
    for loss in result.lost:
        lines += [f"  {line}" for line in wrap(_why(loss, result), style.width - 2)]
    return lines


def _why(loss: Loss, result: TuneResult) -> str:
    if loss.needs is not None:
        return f"{loss.name}: may not fit, up to {gib(loss.needs)} of {gib(result.goal.device)} GiB"
    assert loss.slower is not None
    if loss.slower < 1:
        return f"{loss.name}: no config that passes `dslint check`"
    return f"{loss.name}: {loss.slower:.2f} times as long as config 1 ({loss.part})"


def _assumed(result: TuneResult) -> tuple[str, ...]:
    """What was assumed or inferred of the present config and its training. Sizes of buckets matter too little for the time."""
    return tuple(sentence for sentence in result.now.plan.assumed if "bucket_size" not in sentence)


def _nothing(result: TuneResult) -> str:
    least = gib(result.found.device.high)
    divides = result.now.choice.stage == 3 and result.found.steady.total <= result.goal.device
    if divides and result.found.phase == INIT:
        return (
            f"No config fits by estimate in {gib(result.goal.device)} GiB: every rank builds the whole model before ZeRO divides it, which "
            f"needs up to {least} GiB. Build it under `deepspeed.zero.Init()`, as `from_pretrained` does if the Trainer's or Accelerate's "
            "config exists before, and pass --zero-init."
        )
    return (
        f"No config that dslint tried fits by estimate in {gib(result.goal.device)} GiB; the present one needs up to {least} GiB. "
        "`dslint fit` lists further changes, such as shorter samples, more GPUs and NVMe."
    )


def _small_print(result: TuneResult, style: Style) -> list[str]:
    job = result.now.step.job
    link = f"{job.link / 1e9:,.0f} GB/s between GPUs of a machine"
    network = f", {job.network * 8 / 1e9:,.0f} Gb/s between machines (--network)" if job.gpus > job.local else ""
    words = (
        f"{result.tried:,} configs compared, {result.estimated:,} estimated. Times are predicted for {job.hardware.name}, {link}{network} "
        f"and {job.pcie / 1e9:,.0f} GB/s to the host, from figures of data sheets and public measurements; docs/tune.md says how well. "
        "A config fits by estimate if the high end of its estimate does."
    )
    if any(one.candidate.choice.quantized_weights or one.candidate.choice.quantized_gradients for one in result.best):
        words += " * changes training a little: weights are sent in 8 bits, gradients in 4."
    return wrap(words, style.width)


def as_json(result: TuneResult, facts: Facts, document: Document, path: str, tokens: float | None) -> str:
    """All of it, in bytes and seconds."""
    data = {
        "version": 1,
        "gpu": str(facts.gpu) if facts.gpu else None,
        "limit": result.goal.device,
        "host_limit": result.goal.host,
        "now": {
            "config": _described(result.now),
            "surely_fits": result.goal.sure(result.found),
            "device": result.found.device._asdict(),
            "samples": result.now.plan.samples,
            "step": as_data(result.now.step, tokens),
        },
        "best": [_tuned(one, document, path, tokens) for one in result.best],
        "lost": [loss._asdict() for loss in result.lost],
        "tried": result.tried,
        "estimated": result.estimated,
        "complete": not result.ended,
        "assumed": list(result.now.plan.assumed),
    }
    return json.dumps(data, indent=2)


def _tuned(one: Tuned, document: Document, path: str, tokens: float | None) -> dict[str, Any]:
    gain = one.gain
    return {
        "config": _described(one.candidate),
        "choice": one.candidate.choice._asdict(),
        "program": list(one.written.program),
        "diff": "\n".join(diff(one, document, path)),
        "device": one.found.device._asdict(),
        "samples": one.candidate.plan.samples,
        "step": as_data(one.candidate.step, tokens),
        "against_now": {"verdict": gain.verdict, "gain": gain.gain, "low": gain.low, "high": gain.high},
    }
