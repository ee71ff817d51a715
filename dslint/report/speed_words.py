"""Times and speeds in words."""

from __future__ import annotations

from typing import Any

from dslint.speed.step import StepTime

LARGE_PART = 0.08
"""The least share of a step for which a part is named."""


def duration(seconds: float) -> str:
    """Seconds as text: `45 ms`, `2.3 s`, `95 s`, `3.2 min`, `5.1 h`."""
    if seconds < 0.0995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.0095 else f"{1000 * seconds:.1f} ms"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    if seconds < 300:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def spread(step: StepTime) -> str:
    """The range of a step: `2.1 to 4.5 s`."""
    return between(step.low, step.high)


def between(low: float, high: float) -> str:
    """A range of seconds in one unit: `2.1 to 4.5 s`."""
    unit = duration(high).split()[1]
    if duration(low).split()[1] == unit:
        return f"{duration(low).split()[0]} to {duration(high)}"
    return f"{low / _SECONDS[unit]:.2g} to {duration(high)}"


_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def speeds(step: StepTime) -> str:
    """Tokens per second, TFLOPS and utilisation of a GPU, as a phrase."""
    tokens, tflops = step.tokens_per_second / step.job.gpus, step.flops_per_gpu / 1e12
    return f"{tokens:,.0f} tokens/s and {tflops:.3g} TFLOPS per GPU ({step.utilisation:.0%} of its peak)"


def parts(step: StepTime) -> list[str]:
    """The large parts of a step with their shares, and why they vary."""
    found = [part for part in sorted(step.parts, key=lambda part: -part.seconds) if part.seconds >= LARGE_PART * step.seconds]
    rows = []
    for part in found:
        why = f"; {part.kind.why}" if part.kind.why else ""
        rows.append(f"{part.kind.name} {duration(part.seconds)} ({between(part.low, part.high)}{why})")
    return rows


def training(step: StepTime, tokens: float) -> str:
    """How long a training with so many tokens takes, as a phrase."""
    hours = step.hours(tokens)
    low, high = (hours * bound / step.seconds for bound in (step.low, step.high))
    days = f", {hours / 24:,.3g} days" if hours >= LONG else ""
    return f"{_rounded(hours)} hours ({_rounded(low)} to {_rounded(high)}{days}), {_rounded(hours * step.job.gpus)} GPU-hours"


LONG = 72
"""Hours from which days are said as well."""


def _rounded(number: float) -> str:
    """Three significant digits."""
    return f"{float(f'{number:.3g}'):,.{0 if number >= 99.5 else 1}f}"


def shown_tokens(number: float) -> str:
    """A large number in words."""
    for scale, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if number >= scale:
            return f"{number / scale:.4g}{name}"
    return f"{number:,.0f}"


def factor(gain: float) -> str:
    """How a config compares by its gain in samples per second: `2.7 times as fast`, `12 % faster`, `8 % slower`."""
    if gain >= 1:
        return f"{1 + gain:.1f} times as fast"
    return f"{gain:.0%} faster".replace("%", " %") if gain >= 0 else f"{-gain:.0%} slower".replace("%", " %")


def as_data(step: StepTime, tokens: float | None = None) -> dict[str, Any]:
    """A step for JSON, in seconds."""
    data: dict[str, Any] = {
        "seconds": step.seconds,
        "low": step.low,
        "high": step.high,
        "parts": {part.kind.name: {"seconds": part.seconds, "low": part.low, "high": part.high} for part in step.parts},
        "hidden_communication": step.hidden,
        "tokens_per_second": step.tokens_per_second,
        "tflops_per_gpu": step.flops_per_gpu / 1e12,
        "utilisation": step.utilisation,
    }
    if tokens is not None:
        data["training"] = {"tokens": tokens, "hours": step.hours(tokens), "gpu_hours": step.hours(tokens) * step.job.gpus}
    return data
