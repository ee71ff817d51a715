"""The output of `dslint estimate`: a table of parts, a bar for each phase with the GPU's limit, and how accurate the figures are."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from typing import Any

from dslint.facts import Facts, Release
from dslint.facts.gpus import GIB, in_words
from dslint.memory.estimate import Estimate, Verdict, estimate
from dslint.memory.host import PROCESS, host_range, others_on
from dslint.memory.ledger import ACTIVATIONS, GATHERED, LOGITS, PARTS, PHASES, TRAINING, Moment
from dslint.memory.plan import NO_SCORES, SHORT
from dslint.memory.shapes import Model
from dslint.memory.surroundings import context
from dslint.memory.sweep import Sweep
from dslint.report.speed_words import as_data, duration, parts, speeds, spread
from dslint.report.style import Style, wrap
from dslint.report.words import count
from dslint.speed.step import StepTime

LETTERS = dict(zip(PARTS, "PGMOgBALNC", strict=True))
"""The letter of a part in a bar."""

HUES = dict(
    zip(
        (*LETTERS.values(), "+"),
        ("blue", "green", "cyan", "magenta", "yellow", "red", "yellow", "red", "blue", "green", "dim"),
        strict=True,
    )
)
"""The colour of a letter; neighbours in a bar differ."""

NATIVE_LOCKS = Release(0, 19, 8)
"""The release that was seen to have this variable (`deepspeed/utils/pin_memory.py`)."""

ALLOWANCE = "context and fragmentation"


def page(results: Estimate | Sweep, facts: Facts, limit: int | None, style: Style, time: StepTime | None = None) -> str:
    """The report as text. `limit` is in bytes, None if there is nothing to compare with; `time` is the step, if it is known."""
    if isinstance(results, Sweep):
        return _sweep_page(results, limit, style)
    found = results
    lines = [*_answer(found, facts, limit, style), *_head(found, style), "", *_table(found, style), "", *_bars(found, limit, style), ""]
    lines += [*_ranges(found, style), *_evaluation(found, limit, style), "", *_host(found, facts, style)]
    if time is not None:
        lines += paragraphs("Time of a step", (f"{duration(time.seconds)} ({spread(time)}): {speeds(time)}", *parts(time)), style)
    lines += paragraphs("Accuracy", found.reasons, style)
    lines += paragraphs("Assumptions", found.plan.assumed, style)
    return "\n".join(lines)


def gib(size: float) -> str:
    """Bytes in GiB, with three significant digits below 10 and one decimal above."""
    value = size / GIB
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _head(found: Estimate, style: Style) -> list[str]:
    plan, model = found.plan, found.model
    ranks = f"{plan.world:,} rank{'s' * (plan.world > 1)}, {plan.local} per machine"
    zero = f"ZeRO stage {plan.stage}" if plan.stage else "no ZeRO"
    bits = f"{8 * plan.model_bytes}-bit model"
    trained = f", {model.trained_count} of them trained" if model.trained != model.size else ""
    how = [f"{plan.micro_batch} x {plan.accumulation} samples per rank and step{' (assumed)' * plan.batch_assumed}"]
    if not found.is_lower_bound:
        limit = "at most " if plan.workload.varying else ""
        how.append(f"{limit}{plan.workload.length:,} tokens each")
    if plan.tensor > 1:
        how.append(f"tensor parallel {plan.tensor}")
    if plan.sequence > 1:
        how.append(f"sequence parallel {plan.sequence}")
    if plan.workload.checkpoint_every:
        how.append(
            "activation checkpointing" + (f" of every {plan.workload.checkpoint_every}th layer" * (plan.workload.checkpoint_every > 1))
        )
    return [f"{titled(model, style)}{trained}", f"{ranks}; {zero}, {bits}, {plan.optimizer}", ", ".join(how)]


def titled(model: Model, style: Style) -> str:
    """The name of a model with its number of parameters."""
    size = f"{model.count} parameters"
    return style.paint(model.name, "bold") + (f": {size}" if size != model.name else "")


def _table(found: Estimate, style: Style) -> list[str]:
    rank = f" of rank {found.rank}, the fullest" if found.rank else ""
    title = f"GPU memory{rank}, in GiB"
    rows = [f"{title:<42}{'steady':>10}{'peak':>10}   ({found.phase})"]
    for part in PARTS:
        steady, peak = found.steady.parts[part], found.peak.parts[part]
        if steady or peak:
            rows.append(f"  {LETTERS[part]}  {part:<37}{_cell(steady):>10}{_cell(peak):>10}")
    rows.append(f"  +  {ALLOWANCE:<37}{_cell(found.allowance.expected):>10}{_cell(found.allowance.expected):>10}")
    total = f"     {'total':<37}{gib(found.steady.total + found.allowance.expected):>10}{gib(found.device.expected):>10}"
    return [style.paint(rows[0], "bold"), *rows[1:], style.paint(total, "bold")]


def _cell(size: int) -> str:
    return gib(size) if size else "-"


def _bars(found: Estimate, limit: int | None, style: Style) -> list[str]:
    width = max(20, style.width - 24)
    most = max(found.device.expected, limit or 0)
    lines = []
    for phase in (name for name in PHASES if name in found.peaks):
        moment, extra = found.peaks[phase], found.allowance.expected
        lines.append(f"  {phase:<9} {_bar(moment, extra, most, limit, width, style)} {gib(moment.total + extra):>7}")
    mark = f"  {'':<9} {'':<{_column_of(limit, most, width)}}^ {gib(limit)} GiB" if limit else None
    return [style.paint("Peak of each phase", "bold"), *lines, *([mark] if mark else []), *_further_letters(found, style)]


def _further_letters(found: Estimate, style: Style) -> list[str]:
    """What the letters of the bars mean that are not in the table."""
    listed = {part for part in PARTS if found.steady.parts[part] or found.peak.parts[part]}
    others = [part for part in PARTS if part not in listed and any(moment.parts[part] for moment in found.peaks.values())]
    words = ", ".join(f"{LETTERS[part]} {part}" for part in others)
    return [f"  {line}" for line in wrap(words, style.width - 2)] if others else []


def _column_of(limit: int, most: int, width: int) -> int:
    return min(width - 1, round(limit / most * (width - 1)))


def _bar(moment: Moment, extra: int, most: int, limit: int | None, width: int, style: Style) -> str:
    """A bar of letters, one for each part, with a mark at the limit. A bar that exceeds the width ends in `>`."""
    text, sum_so_far = "", 0
    for letter, amount in [*((LETTERS[part], moment.parts[part]) for part in PARTS), ("+", extra)]:
        sum_so_far += amount
        text += letter * (_column_of(sum_so_far, most, width) - len(text))
    if sum_so_far > most:
        text = text[: width - 1] + ">"
    text = text.ljust(width)
    if limit is not None:
        place = _column_of(limit, most, width)
        text = text[:place] + "|" + text[place + 1 :]
    return "".join(style.paint("".join(run), HUES.get(letter, "bold")) if letter != " " else "".join(run) for letter, run in groupby(text))


def _ranges(found: Estimate, style: Style) -> list[str]:
    rows = [f"{'Peak memory of a GPU, in GiB':<42}{'low':>10}{'expected':>10}{'high':>10}"]
    named = (("allocated by tensors", found.tensors), ("reserved by PyTorch", found.reserved), ("with CUDA context and NCCL", found.device))
    rows += [f"  {name:<40}{gib(sizes.low):>10}{gib(sizes.expected):>10}{gib(sizes.high):>10}" for name, sizes in named]
    return [style.paint(rows[0], "bold"), *rows[1:]]


MEANING = {
    Verdict.FITS: "Fits: needs {usual} of {room}, at most {high}.",
    Verdict.LIKELY: "Likely fits: {usual} of {room}, {expected} on a nearly full GPU, but up to {high} GiB.",
    Verdict.UNLIKELY: "Unlikely to fit: about {expected} GiB on a nearly full GPU of {room}, at least {low} GiB.",
    Verdict.NO: "Does not fit: at least {low} of {room}.",
    Verdict.OPEN: "Not judged: this model needs {usual} of {room}, {low} to {high} GiB, and {others} not counted.",
}


TIGHT = "Tight, and may run out of memory: {usual} of {room}, {expected} on a nearly full GPU, but up to {high} GiB."
"""What likely fits, where the limit is nearer to the expected value than to the high end."""

IF_PARTITIONED = (
    "Fits if the model is partitioned while it is built (zero.Init): needs {usual} of {room}, at most {high}. Otherwise each rank holds "
    "the whole model first, which may not fit. --zero-init or --no-zero-init says which."
)

UNLESS_PARTITIONED = (
    "{verb} if each rank holds the whole model first, as assumed of a program without zero.Init: at least {low} of {room}. {then} if the "
    "model is partitioned while it is built: {usual} GiB, at most {high}. --zero-init or --no-zero-init says which."
)

LENGTH_DECIDES = (
    "Not judged: nothing says how long samples are. With {assumed}, as assumed, it needs about {expected} GiB on a nearly full GPU of "
    "{room}, with samples of {short} tokens about {least} GiB. --sequence-length says which."
)
"""What short samples let fit, and the assumed ones do not."""

LIMIT_DECIDES = (
    "Not judged: --sequence-length is only a limit. With {count} of {length} tokens{others} it needs about {expected} GiB on a nearly full "
    "GPU of {room}, with samples of {short} tokens about {least} GiB."
)
"""The same where one sample of a micro batch is assumed to be as long as the limit."""

LOWER_BOUND = "Not judged: at least {low} of {room}, and the activations of this model are not counted."

USUAL_IMAGES = (
    "Likely fits: needs {usual} of {room}, at most {high} with images and sounds of a usual size. Gradients flow through their encoders, "
    "so that large ones need more."
)
"""What fits, with towers that keep what the backward needs."""

UNLESS_EVALUATING = "Likely fits: training needs {usual} of {room}, at most {high}, but an evaluation may not fit."


def verdict(found: Estimate, facts: Facts, limit: int) -> str:
    """Whether an estimate fits in a GPU, as a sentence."""
    said = _verdict(found, facts, limit)
    if found.verdict(limit) in (Verdict.FITS, Verdict.LIKELY, Verdict.OPEN):
        return said if found.length_decides(limit) else said + _as_assumed_to_fit(found, limit)
    return _if_all_are_trained(found, said) + _as_assumed(found, limit)


def _as_assumed(found: Estimate, limit: int) -> str:
    """The assumptions without which it may fit, as a sentence; empty if parameters and states alone exceed a limit."""
    moments = [found.peaks[phase].parts for phase in TRAINING if phase in found.peaks]
    shrinks = (ACTIVATIONS, LOGITS, GATHERED)  # checkpointing also frees the gathered experts
    states = max(sum(size for part, size in parts.items() if part not in shrinks) for parts in moments)
    if not found.plan.guessed or states + context(found.plan).low > limit:
        return ""
    return f" That is with {' and '.join(found.plan.guessed)}, as assumed."


def _as_assumed_to_fit(found: Estimate, limit: int) -> str:
    """The assumptions with which it fits, as sentences; longer samples and more of them need more, and so do the scores of attention."""
    hoped = found.plan.hoped
    if not hoped:
        return ""
    said = f" That is with {' and '.join(hoped)}, as assumed."
    if NO_SCORES not in hoped:
        return said
    kept = estimate(found.model, replace(found.plan, workload=replace(found.plan.workload, eager=True)))
    if kept.verdict(limit) in (Verdict.NO, Verdict.UNLIKELY):
        then = ", and is unlikely to fit"
    else:
        then = ", and may run out of memory" if kept.device.expected > limit else ""
    return f"{said} With eager attention it needs about {gib(kept.device.expected)} GiB{then}."


def _if_all_are_trained(found: Estimate, said: str) -> str:
    """A sentence with the condition on which it is true, for a run that may train less than all weights."""
    plan = found.plan
    if not plan.may_train_less:
        return said
    divided = plan.stage == 3 and plan.workload.zero_init
    weights = plan.model_bytes * found.model.size / plan.tensor / (plan.replicas if divided else 1)
    when = " while they are loaded" if plan.stage == 3 and not divided else ""
    bits = f"in {8 * plan.model_bytes} bits"
    least = "" if plan.parameter_device else f" The weights alone take {gib(weights)} GiB of each GPU {bits}{when}."
    return f"If all weights are trained: {said[0].lower()}{said[1:]}{least}"


def _verdict(found: Estimate, facts: Facts, limit: int) -> str:
    """The same where all weights are trained."""
    device, answer = found.device, found.verdict(limit)
    divided = _if_partitioned(found) if answer in (Verdict.NO, Verdict.UNLIKELY) else None
    then = divided.verdict(limit) if divided else answer
    if divided is not None and then in (Verdict.FITS, Verdict.LIKELY):
        verb = "Does not fit" if answer is Verdict.NO else "Is unlikely to fit"
        sure = "Fits" if divided.device.high <= limit else "Likely fits"
        usual, high = gib(divided.device.expected), gib(divided.device.high)
        return UNLESS_PARTITIONED.format(verb=verb, low=gib(device.low), room=room(limit, facts), then=sure, usual=usual, high=high)
    meaning = MEANING[answer]
    if answer is Verdict.OPEN and found.is_lower_bound:
        meaning = LOWER_BOUND
    elif answer is Verdict.OPEN and found.length_decides(limit):
        least = gib(found.full_of_short or 0)
        if found.plan.mixes_lengths:
            return _if_limit_decides(found, room(limit, facts), least) + _as_assumed(found, limit)
        short, assumed = f"{found.plan.shortest:,}", " and ".join(found.plan.guessed)
        return LENGTH_DECIDES.format(assumed=assumed, expected=gib(found.full), room=room(limit, facts), short=short, least=least)
    elif answer is Verdict.LIKELY and device.high <= limit:  # training itself surely fits
        meaning = _condition(found, limit)
    elif answer is Verdict.LIKELY and device.high - limit > limit - device.expected:
        meaning = TIGHT
    sizes = {"usual": gib(device.expected), "low": gib(device.low), "expected": gib(found.full), "high": gib(device.high)}
    return meaning.format(room=room(limit, facts), others=_not_counted(found), **sizes)


def _if_limit_decides(found: Estimate, of: str, least: str) -> str:
    """The sentence about a job that fits with short samples, and not with one sample of the limit in each micro batch."""
    plan = found.plan
    count = "a sample" if plan.samples_at_once == 1 else f"one of {plan.samples_at_once} samples"
    others = f" and the others of {SHORT:,}" if plan.samples_at_once > 1 and plan.workload.length > SHORT else ""
    said = {"count": count, "length": f"{plan.workload.length:,}", "others": others, "expected": gib(found.full)}
    return LIMIT_DECIDES.format(room=of, short=f"{plan.shortest:,}", least=least, **said)


def _condition(found: Estimate, limit: int) -> str:
    """On what it depends that a training fits of which even the high end does."""
    if found.evaluating > limit:
        return UNLESS_EVALUATING
    return IF_PARTITIONED if found.unpartitioned > limit else USUAL_IMAGES


def _not_counted(found: Estimate) -> str:
    """What no figure includes, with the verb."""
    names = found.plan.uncounted
    several = len(names) > 1 or any(" models " in name or name.startswith("images") for name in names)
    return f"{' and '.join(names)} {'are' if several else 'is'}"


def _if_partitioned(found: Estimate) -> Estimate | None:
    """The estimate with `zero.Init`, where it is only assumed that the program has none."""
    workload = found.plan.workload
    if found.plan.stage != 3 or workload.zero_init or not workload.assumed_zero_init:
        return None
    return estimate(found.model, found.plan.but(zero_init=True))


def room(limit: int, facts: Facts) -> str:
    """A limit with the name of its GPU: `79.1 GiB (a100)`."""
    return f"{in_words(limit)} ({facts.gpu})" if facts.gpu and facts.gpu.memory == limit else in_words(limit)


def _answer(found: Estimate, facts: Facts, limit: int | None, style: Style) -> list[str]:
    """What most people want to know, first."""
    is_bad = limit is not None and found.verdict(limit) not in (Verdict.FITS, Verdict.LIKELY)
    hues = ["red", "bold"] if is_bad else ["bold"]
    device, *host = _answers(found, facts, limit)
    lines = [style.paint(line, *hues) for line in wrap(device, style.width)]
    return [*lines, *(style.paint(line, "bold") for words in host for line in wrap(words, style.width)), ""]


def _answers(found: Estimate, facts: Facts, limit: int | None) -> list[str]:
    """Whether it fits, or how much it needs if there is nothing to compare with; then the host memory, if it may not suffice."""
    device = found.device
    if limit is None:
        needs = f"Needs {gib(device.expected)} GiB per GPU ({gib(device.low)} to {gib(device.high)})."
        others = f" That is without {' and '.join(found.plan.uncounted)}." if found.plan.uncounted else ""
        answers = [_if_all_are_trained(found, needs) + others]
    else:
        answers = [verdict(found, facts, limit)]
    if facts.host_memory is not None and found.host_verdict(facts.host_memory) is not Verdict.FITS:
        answers.append(f"Host memory of a machine, {in_words(facts.host_memory)}: {_host_meaning(found, facts.host_memory)}.")
    if facts.host_memory is None and found.host.parts:
        low, expected, high = host_range(found.plan, found.host, loading=False)
        needs = f"Each machine needs about {gib(expected)} GiB of host memory ({gib(low)} to {gib(high)})"
        answers.append(f"{needs}; what it has is not known (--host-memory).")
    return answers


def _evaluation(found: Estimate, limit: int | None, style: Style) -> list[str]:
    """What an evaluation needs, as a sentence."""
    if not found.evaluating:
        return []
    samples = count(found.plan.workload.evaluation or 0, "sample")
    words = (
        f"An evaluation of {samples} of {found.plan.workload.length:,} tokens, with all its logits, needs about {gib(found.evaluating)} GiB"
    )
    if limit is not None and found.evaluating > limit:
        words += f", more than {in_words(limit)}: lower per_device_eval_batch_size (--eval-batch)"
    return ["", *wrap(f"{words}. The peak above does not include it.", style.width)]


HOST_MEANING = {
    Verdict.FITS: "this is enough",
    Verdict.LIKELY: "this may not be enough, because the job can use {high} GiB: the kernel may then kill it",
    Verdict.UNLIKELY: "this is likely not enough: the kernel kills the job (exit code -9, no traceback), or an allocation fails",
    Verdict.NO: "this is not enough: the kernel kills the job (exit code -9, no traceback), or an allocation fails",
}


WHILE_LOADING = (
    "this {answer} enough while the ranks load the model: {half} GiB if each holds it in 16 bits, {whole} GiB in fp32: the kernel may then "
    "kill the job (exit code -9, no traceback), or an allocation fails"
)


WITH_ZERO_INIT = (
    "this is enough with zero.Init, which is assumed; without it each rank loads the whole model, and the machine needs {half} GiB for "
    "weights in 16 bits, {whole} GiB in fp32"
)
"""The same for a model that fits only if zero.Init partitions it while it is loaded, which nothing shows."""


def _host_meaning(found: Estimate, memory: int) -> str:
    """What the range of a job's host memory means on a machine with some memory, in bytes. While they load the model, ranks need less than
    this if they share the weights of mapped files, as newer releases of transformers may.
    """
    between = host_range(found.plan, found.host, loading=False).high
    answer = found.host_verdict(memory)
    if answer is not Verdict.FITS and between <= memory and found.host.loading:
        half, whole = _while_loading(found, found.loading_of_node)
        return WHILE_LOADING.format(answer="is likely not" if half > memory else "may not be", half=gib(half), whole=gib(whole))
    if answer is Verdict.FITS and found.plan.assumes_zero_init:
        half, whole = _while_loading(found, 4 * found.model.size * found.plan.local)
        if whole > memory:
            return WITH_ZERO_INIT.format(half=gib(half), whole=gib(whole))
    return HOST_MEANING[answer].format(high=gib(found.host_range.high))


def _while_loading(found: Estimate, weights: float) -> tuple[float, float]:
    """Bytes of a machine whose ranks hold the whole model in 16 bits, and in fp32, in which its `weights` have so many bytes."""
    others = found.plan.local * PROCESS[1] + others_on(found.plan)[1]
    return weights / 2 + others, weights + others


def _host(found: Estimate, facts: Facts, style: Style) -> list[str]:
    host, lines = found.host, []
    if host.parts:
        parts = ", ".join(f"{part} {gib(amount)}" for part, amount in host.parts.items())
        ranks = count(found.plan.local, "rank")
        lines.append(f"Host memory: {gib(host.total)} GiB per rank ({parts}); {gib(found.host_of_node)} GiB per machine of {ranks}.")
    if host.rounding:
        lines.append(
            f"PyTorch rounds page-locked buffers up to powers of two: {gib(host.rounding)} GiB more per rank, "
            f"{gib(host.rounding * found.plan.local)} GiB per machine."
            + (" DS_PIN_MEMORY_BACKEND=native locks no more than needed." if found.plan.release >= NATIVE_LOCKS else "")
        )
    low, expected, high = host_range(found.plan, host, loading=False)
    lines.append(f"With its processes, a machine uses about {gib(expected)} GiB of host memory between steps ({gib(low)} to {gib(high)}).")
    if host.loading:
        half, whole = _while_loading(found, found.loading_of_node)
        lines.append(
            f"While loading, each rank may hold the whole model in fp32 on the host: {gib(host.loading)} GiB, "
            f"{gib(found.loading_of_node)} GiB per machine, {gib(whole)} GiB with its processes; in 16 bits half of it, {gib(half)} GiB."
        )
    if found.resuming:
        read = found.resuming * found.plan.local
        enough = "" if facts.host_memory is None or expected + read <= facts.host_memory else ", more than it has"
        lines.append(
            f"The run resumes from a checkpoint: before the first step each rank reads {gib(found.resuming)} GiB of it into host memory, "
            f"so that a machine needs about {gib(expected + read)} GiB while it resumes{enough}."
        )
    if facts.host_memory is not None:
        lines.append(f"A machine has {in_words(facts.host_memory)}; {_host_meaning(found, facts.host_memory)}.")
    if host.disk:
        lines.append(f"NVMe: {gib(host.disk)} GiB per rank, {gib(host.disk * found.plan.local)} GiB per machine.")
    lines.append(f"A checkpoint takes {gib(found.checkpoint)} GiB on disk.")
    return [part for line in lines for part in wrap(line, style.width)]


def paragraphs(title: str, sentences: tuple[str, ...], style: Style) -> list[str]:
    """A list of sentences with a title; nothing if there are none."""
    if not sentences:
        return []
    lines = ["", style.paint(title, "bold")]
    for sentence in sentences:
        first, *rest = wrap(sentence, style.width - 4)
        lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    return lines


def _sweep_page(results: Sweep, limit: int | None, style: Style) -> str:
    base = results.points[0]
    width = max(10, style.width - 67)
    most = max(limit or 0, *(point.device.expected for point in results.points))
    if limit is not None:
        most = min(most, 2 * limit)
    lines = [titled(base.model, style), ""]
    title = f"{results.name:>11}{'steady':>9}{'peak':>9}{'range':>15}  {'phase':<9}{'host/node':>10}"
    lines.append(style.paint(f"{title}   GiB", "bold"))
    for value, point in zip(results.values, results.points, strict=True):
        bar = _bar(point.peak, point.allowance.expected, most, limit, width, style)
        steady = gib(point.steady.total + point.allowance.expected)
        span = f"{gib(point.device.low)}-{gib(point.device.high)}"
        lines.append(
            f"{value:>11,}{steady:>9}{gib(point.device.expected):>9}{span:>15}  {point.phase:<9}{_cell(point.host_of_node):>10}  {bar}"
        )
    letters = [f"{LETTERS[part]} {part}" for part in PARTS if any(point.peak.parts[part] for point in results.points)]
    lines += ["", *wrap(", ".join([*letters, f"+ {ALLOWANCE}"]), style.width)]
    if limit:
        longer = "; a bar that ends in > exceeds twice the limit" if most < max(point.device.expected for point in results.points) else ""
        lines.append(f"| marks the limit, {gib(limit)} GiB{longer}")
    return "\n".join(lines)


def as_json(results: Estimate | Sweep, facts: Facts, limit: int | None, time: StepTime | None = None) -> str:
    """The estimate with the time of a step, if it is known, or the estimates of a sweep, in bytes and seconds."""
    if isinstance(results, Sweep):
        points = [{"value": value, **_payload(point, facts, limit)} for value, point in zip(results.values, results.points, strict=True)]
        return json.dumps({"version": 1, "sweep": results.name, "limit": limit, "points": points}, indent=2)
    gpu = str(facts.gpu) if facts.gpu else None
    head = {"version": 1, "gpu": gpu, "gpu_memory": facts.gpu_memory, "limit": limit}
    return json.dumps({**head, **_payload(results, facts, limit), "step": as_data(time) if time else None}, indent=2)


def _payload(found: Estimate, facts: Facts, limit: int | None) -> dict[str, Any]:
    plan, model = found.plan, found.model
    return {
        "answer": " ".join(_answers(found, facts, limit)),
        "model": {
            "name": model.name,
            "family": model.family,
            "parameters": round(model.stated) if model.stated and not model.adapted else model.size,
            "trained": model.trained,
            "exact": model.exact,
            "generic": model.generic,
        },
        "world_size": plan.world,
        "stage": plan.stage,
        "micro_batch": plan.micro_batch,
        "accumulation": plan.accumulation,
        "tokens": plan.workload.length,
        "rank": found.rank,
        "device": found.device._asdict(),
        "allowance": found.allowance._asdict(),
        "tensors": found.tensors._asdict(),
        "reserved": found.reserved._asdict(),
        "nearly_full": found.full,
        "fits": None if limit is None else found.fits(limit, facts.host_memory),
        "verdict": None if limit is None else found.verdict(limit),
        "evaluation": _evaluation_payload(found, limit),
        "phase": found.phase,
        "steady": _moment(found.steady),
        "phases": {phase: _moment(moment) for phase, moment in found.peaks.items()},
        "host": {
            "rank": found.host.total,
            "node": found.host_of_node,
            "parts": found.host.parts,
            "loading_rank": found.host.loading,
            "loading_node": found.loading_of_node,
            "rounding_rank": found.host.rounding,
            "machine": found.host_range._asdict(),
            "machine_between_steps": host_range(found.plan, found.host, loading=False)._asdict(),
            "verdict": None if facts.host_memory is None else found.host_verdict(facts.host_memory),
            "disk_rank": found.host.disk,
        },
        "checkpoint": found.checkpoint,
        "reasons": list(found.reasons),
        "assumed": list(plan.assumed),
    }


def _evaluation_payload(found: Estimate, limit: int | None) -> dict[str, Any] | None:
    if not found.evaluating:
        return None
    fits = None if limit is None else found.evaluating <= limit
    return {"samples": found.plan.workload.evaluation, "device": found.evaluating, "fits": fits}


def _moment(moment: Moment) -> dict[str, Any]:
    return {"total": moment.total, "parts": {part: amount for part, amount in moment.parts.items() if amount}}
