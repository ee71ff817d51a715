"""Training as it goes: steps, losses, loss scale, time."""

from __future__ import annotations

from dslint.diagnose.signs.sign import DECIMAL, sign

LOSS = r"(?P<loss>-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|nan|inf|NaN|Infinity))"

NORM = r"(?P<norm>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|nan|inf|NaN)"
"""The norm of the gradients."""

NOT_FINITE = r"(?:^|[^\w.])(?!nan_)\w*[lL]oss(?!_?scal)\w*['\"]?(?: is)?\s*[=:]?\s*['\"]?(?:tensor\()?(?:nan|NaN)\b"
"""A loss that is printed as NaN, in whichever form."""

SIGNS = (
    # Not step 0, which DeepSpeed prints while it initializes
    sign("step", "skipped=", r"\bstep=(?P<step>[1-9]\d*), skipped=(?P<skipped>\d+), lr=\[(?P<rate>[^\],]*)"),
    sign(
        "step",
        "elapsed time per iteration",
        rf"iteration +(?P<step>\d+)/ *(?P<steps>\d+) \|.*?elapsed time per iteration \(ms\): (?P<ms>{DECIMAL})(?:.*?lm[ -]loss: "
        + LOSS
        + r")?(?:.*?loss scale: (?P<scale>-?[\d.eE+]+))?(?:.*?grad[ _]norm: "
        + NORM
        + rf")?(?:.*?nan iterations: +(?P<nan>\d+))?(?:.*?samples per second: (?P<rate_per_second>{DECIMAL}))?",
    ),
    sign("step", "'loss': ", r"\{'loss': '?" + LOSS + r"(?:'?, 'grad_norm': '?(?:tensor\()?" + NORM + ")?"),
    sign(
        "step",
        "iter time (s): ",
        r"steps: (?P<step>\d+) loss: " + LOSS + rf" iter time \(s\): (?P<seconds>{DECIMAL}) samples/sec: (?P<rate_per_second>{DECIMAL})",
    ),
    # the bar of an epoch: its steps begin again in the next one
    sign("step", "Epoch ", r"Epoch \d+: +\d+%\|.{0,120}?\b[lL]oss[ =:]+" + LOSS),
    sign(
        "step",
        ("Iteration ", "Step ", "Epoch "),
        r"(?!Epoch \d+: +\d+%\|)(?:Iteration|Step|Epoch)[ :\[]*(?P<step>\d+)(?:/(?P<steps>\d+))?\b.{0,60}?\b[lL]oss[ =:]+" + LOSS,
    ),
    sign(  # as programs print it in small letters, with the epoch before or not
        "step",
        ("loss ", "loss:", "loss="),
        r"(?<![A-Z])\b(?:global_)?(?:step|iter|iteration)\b[ :=#\[(]*(?P<step>\d+)(?: ?(?:/|of) ?(?P<steps>\d+))?\b(?!%).{0,60}?\b(?:train_)?loss[ =:]+"
        + LOSS
        + r"(?![\w.])",
    ),
    sign(
        "bar",
        ("it/s", "s/it"),
        rf"(?P<step>\d+)/(?P<steps>\d+) \[(?P<time>[\d:]+)<(?:[\d:]+|\?), +(?P<rate>{DECIMAL})(?P<unit>it/s|s/it)",
    ),
    sign("not_finite", ("nan", "NaN"), NOT_FINITE),
    sign("throughput", "train_samples_per_second", rf"train_samples_per_second['\"]?\s*[:=]\s*['\"]?(?P<rate_per_second>{DECIMAL})"),
    sign(
        "throughput",
        ("tokens/s", "tok/s", "tokens_per_sec", "tokens per sec", "tokens-per-sec", "tgs"),
        r"(?i)(?P<of_gpu>per[-_ ](?:gpu|device)[-_ ])?(?:tokens?[-_ /]per[-_ ]sec(?:ond)?|tokens/s(?:ec)?|tok/s|(?P<tgs>\btgs))"
        r"(?P<each_gpu>[-_/ ](?:per[-_ ])?(?:gpu|device))?\S{0,3}\s*[:=]\s*(?P<tokens_per_second>\d[\d,]*(?:\.\d+)?)",
    ),
    sign(
        "throughput",
        ("tokens/s", "tok/s"),
        r"(?<!throughput: )(?<![\d.,])(?P<tokens_per_second>\d[\d,]*(?:\.\d+)?) (?:tokens|tok)/s(?:ec)?(?P<each_gpu>/(?:gpu|GPU|device))?\b",
    ),
    sign("throughput", ("TFLOPS", "TFLOPs", "TFlops"), rf"(?i:tflops)(?:/GPU| per GPU)?\S{{0,2}}\s*[:=]\s*(?P<tflops>{DECIMAL})"),
    sign("throughput", "SamplesPerSec=", rf"SamplesPerSec=(?P<rate_per_second>{DECIMAL})"),
    sign(
        "overflow",
        "OVERFLOW!",
        r"OVERFLOW! (?:Rank \d+ )?Skipping step\. Attempted loss scale: (?P<scale>[\d.e+]+)(?:, reducing to (?P<next>[\d.e+]+))?",
    ),
    sign("trace_cache", "Invalidate trace cache @ "),
    sign("breakdown", "time (ms) | ", r"time \(ms\) \| (?P<parts>(?:fwd|bwd|optimizer|forward|backward)\S*: .*)"),
    sign(
        "spread",
        ("forward-compute .", "backward-compute .", "forward-backward .", "batch-generator ."),
        r"(?P<timer>forward-compute|backward-compute|forward-backward|batch-generator) \.+: \((?P<least>\d+\.\d+), (?P<most>\d+\.\d+)\)",
    ),
)
