"""The text output of `dslint probe`: whether the engine starts, the memory it uses and for what, and the predicted figures."""

from __future__ import annotations

from collections.abc import Iterable

from dslint.facts.gpus import in_words
from dslint.probe.answer import PHASES, Answer, Site
from dslint.probe.result import ComparedVariants, ProbeResult, SearchResult
from dslint.probe.variants import relative_cost
from dslint.report.style import Style, clipped, paragraphs, visible, wrap

DEVICES = {"cuda": "a GPU", "fake": "a fake GPU", "cpu": "the CPU"}
TENSORS_ONLY = "Besides tensors, a GPU needs 1 to 4 GiB for its context, libraries and NCCL, and some memory for fragmentation."
SHOWN_SITES = 6
LEAST_SITE = 0.005
"""The share of the peak below which an allocation site is not listed."""


def page(result: ProbeResult | ComparedVariants | SearchResult, *, color: bool, width: int) -> str:
    """The report."""
    style = Style(color=color, width=width)
    if isinstance(result, ComparedVariants):
        lines = _comparison(result, style)
    elif isinstance(result, SearchResult):
        lines = _search(result, style)
    else:
        lines = _result(result, style)
    return "\n".join(lines)


def _result(result: ProbeResult, style: Style) -> list[str]:
    answer = result.answer
    lines = [*_verdict(result, style), *_what(answer, style)]
    if answer.raised is not None:
        lines += ["", *_raised(result, style)]
    if answer.memory and answer.engine:
        lines += ["", *_memory(answer, style)]
        lines += _sites(answer, style)
    lines += _predicted(result, style)
    lines += _depths(result, style)
    lines += _fits(result, style)
    lines += _notes([*_warnings(answer), *result.notes, *answer.notes, *_redirected(answer)], style)
    return lines


def _verdict(result: ProbeResult, style: Style) -> list[str]:
    answer = result.answer
    if answer.unable is not None:
        return _bold(f"The probe could not run: {visible(answer.unable)}.", style, "yellow")
    place = f"on {DEVICES[answer.device]}" + (f" ({visible(answer.hardware)})" if answer.hardware else "")
    rank = f"as rank {answer.rank} of {answer.world_size}" if answer.world_size > 1 else "as the only rank"
    if answer.ranks > 1:
        rank = f"with {answer.ranks} real ranks; the figures are those of rank {answer.rank}, which used the most memory"
    if answer.out_of_memory:
        return _bold(f"Out of memory {_phase(answer)}, {place}, {rank}.", style, "red")
    if answer.raised is not None:
        return _bold(f"Does not start: DeepSpeed raises {_phase(answer)}, {place}, {rank}.", style, "red")
    return _bold(f"Starts: took {_count(answer.steps, 'optimizer step')} {place}, {rank}.", style)


def _phase(answer: Answer) -> str:
    phase = answer.raised.phase if answer.raised else ""
    return {
        "parse": "while parsing the config",
        "build": "while building the model",
        "initialize": "in deepspeed.initialize",
        "forward": "in the forward pass",
        "backward": "in the backward pass",
        "step": "in the optimizer step",
    }.get(phase, phase)


def _what(answer: Answer, style: Style) -> list[str]:
    lines = []
    if answer.model:
        lines.append(f"{visible(answer.model)}: {answer.parameters:,} parameters")
    if answer.engine:
        engine = answer.engine
        zero = f"ZeRO stage {engine['stage']}" if engine["stage"] else "no ZeRO"
        batch = f"micro batch {engine['micro_batch']}, gradient accumulation {engine['accumulation']}"
        lines.append(f"{zero}, {engine['dtype']}, {engine['optimizer']} in {engine['wrapper']}, {batch}")
    if answer.versions:
        lines.append(", ".join(f"{name} {version}" for name, version in answer.versions.items()) + f"; {answer.seconds:.0f} s")
    if answer.step_seconds is not None:
        alone = "; the simulated ranks add no communication" if answer.world_size > answer.ranks else ""
        lines.append(f"{answer.step_seconds:.3f} s per optimizer step (median, without the first{alone})")
    return [part for line in lines for part in wrap(line, style.width)]


def _raised(result: ProbeResult, style: Style) -> list[str]:
    raised = result.answer.raised
    assert raised is not None
    lines = [f"  {line}" for line in paragraphs(f"{raised.kind}: {clipped(raised.text, 1500)}", style.width - 2)]
    if raised.where:
        lines.append(f"  at {visible(raised.where)}")
    for diagnostic in result.explained:
        lines += ["", style.paint(f"{diagnostic.code} {diagnostic.name} explains this error", "bold")]
        lines += [f"  {line}" for line in paragraphs(diagnostic.message, style.width - 2)]
        if diagnostic.help:
            lines += [f"  {line}" for line in paragraphs(f"help: {diagnostic.help}", style.width - 2)]
    return lines


def _memory(answer: Answer, style: Style) -> list[str]:
    titles = {"device": "device", "host": "host", "both": "tensors"}
    places = [place for place in titles if place in answer.memory and (place != "both" or len(answer.memory) == 1)]
    lines = [style.paint(f"{'Memory':<24}" + "".join(f"{titles[place]:>12}" for place in places), "bold")]
    shown = answer.memory[answer.place]

    def row(name: str, sizes: Iterable[int], mark: str = "") -> str:
        return f"  {name:<22}" + "".join(f"{in_words(size) if size else '0':>12}" for size in sizes) + mark

    for phase in PHASES:
        if phase in shown.peaks or any(phase in answer.memory[place].peaks for place in places):
            mark = "  highest" if phase == shown.peak_phase else ""
            lines.append(row(f"peak of {phase}", (answer.memory[place].peaks.get(phase, 0) for place in places), mark))
    if answer.started:
        lines.append(row("after initialize", (answer.memory[place].initialized for place in places)))
        lines.append(row("between steps", (answer.memory[place].steady for place in places)))
        names = sorted({part for place in places for part in answer.memory[place].parts})
        lines += [row(f"  {part}", (answer.memory[place].parts.get(part, 0) for place in places)) for part in names]
    pinned = max((memory.pinned for memory in answer.memory.values()), default=0)
    if pinned:
        lines.append(f"  {in_words(pinned)} of host memory is pinned")
    if shown.reserved is not None:
        retries = f"; it emptied its cache {_count(shown.retries, 'time')}" if shown.retries else ""
        lines.append(f"  the allocator reserved up to {in_words(shown.reserved)}{retries}")
    if shown.out_of_memory:
        lines.append(f"  the allocator ran out of memory {_count(shown.out_of_memory, 'time')}")
    return lines


def _sites(answer: Answer, style: Style) -> list[str]:
    memory = answer.memory[answer.place]
    lines: list[str] = []
    place = "" if len(answer.memory) == 1 else f" on the {answer.place}"
    for title, sites in ((f"Peak of a step{place}", memory.at_peak), (f"Kept{place} between steps", memory.kept)):
        total = max(memory.training_peak if sites is memory.at_peak else memory.steady, 1)
        large = [site for site in sites[:SHOWN_SITES] if site.size >= LEAST_SITE * total]
        if large:
            lines += ["", *_bold(f"{title}, by allocating line of code", style), *(_site(site, style.width) for site in large)]
    return lines


def _site(site: Site, width: int) -> str:
    where, room = visible(site.where), width - 26
    while len(where) > room and "/" in where.removeprefix(".../"):
        where = ".../" + where.removeprefix(".../").partition("/")[2]
    return f"  {in_words(site.size):>10}  {site.phase:<10}  {where}"


def _predicted(result: ProbeResult, style: Style) -> list[str]:
    if not result.predicted:
        return []
    lines = ["", style.paint(f"{'On the device':<42}{'predicted':>12}{'measured':>12}", "bold")]
    for what, predicted, measured in result.predicted:
        off = f"{100 * (predicted / measured - 1):+.1f} %".replace("-0.0", "0.0").replace("+0.0", "0.0") if measured else ""
        lines.append(f"  {what:<40}{in_words(predicted):>12}{in_words(measured):>12}{off:>10}")
    return lines


def _depths(result: ProbeResult, style: Style) -> list[str]:
    line = result.line
    if line is None:
        return []
    runs = ", ".join(map(str, line.depths))
    said = f"Extrapolated linearly to {line.answer.layers} layers from runs with {runs} layers."
    if line.error is None:
        said += " The error is unknown: pass three numbers of layers to check it."
    elif line.holds:
        said += f" The shallower runs predict the deepest one with an error of at most {line.error:.2%} of the peak ({line.where})."
    else:
        said += f" This is unreliable: the error may be {line.error:.1%} of the peak ({line.where}). Pass larger numbers of layers."
    return ["", *wrap(said, style.width)]


def _fits(result: ProbeResult, style: Style) -> list[str]:
    limit, fits = result.limit, result.fits
    if limit is None or fits is None or result.answer.out_of_memory:
        return []
    peak = result.answer.memory[result.answer.place].peak
    verb = "Fits" if fits else "Does not fit"
    room = f"{in_words(limit.size - peak)} to spare" if fits else f"{in_words(peak - limit.size)} too much"
    said = f"{verb} in {in_words(limit.size)} ({limit.source}): peak {in_words(peak)}, {room}."
    if result.answer.device != "cuda":
        said += " " + TENSORS_ONLY
    return ["", *_bold(said, style, *(() if fits else ("red",)))]


def _warnings(answer: Answer) -> list[str]:
    said = []
    if answer.skipped:
        taken = f"{answer.skipped} of {answer.steps} optimizer steps were skipped because gradients overflowed"
        shown = "the figures include the optimizer states" if answer.states else "no optimizer state was created, so none is shown"
        said.append(f"{taken}; {shown}.")
    elif answer.started and answer.engine and not answer.states and "SGD" not in str(answer.engine.get("optimizer", "")):
        said.append("No optimizer state was found in memory.")
    if answer.device == "cpu" and answer.started:
        said.append("On the CPU, device and host share memory: the sum of both is shown. --device fake separates them.")
    if answer.device == "fake" and answer.started:
        said.append(
            "Nothing was computed: tensors are fake, compiled operations are replaced, and attention keeps what a fused kernel keeps."
        )
    return said


def _redirected(answer: Answer) -> list[str]:
    return [f"{key} is {visible(value)}; the probe used a temporary folder instead and removed it." for key, value in answer.redirected]


def _notes(sentences: list[str], style: Style) -> list[str]:
    lines = [""] if sentences else []
    for sentence in sentences:
        first, *rest = wrap(visible(sentence), style.width - 4)
        lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    return lines


def _comparison(result: ComparedVariants, style: Style) -> list[str]:
    first = result.results[0][1].answer
    longest = max(len(visible(result.path)), *(len(variant.name) for variant, _ in result.results))
    timed = any(one.answer.step_seconds is not None for _, one in result.results)
    apart = any("host" in one.answer.memory for _, one in result.results)
    head = f"{visible(result.path):<{longest}}{'peak':>11}{'':>7}  {'in':<10}{'between steps':>14}"
    head += (f"{'host peak':>12}" if apart else "") + (f"{'s/step':>10}{'slower':>9}" if timed else "")
    lines = [*_common([one for _, one in result.results], style), style.paint(head, "bold")]
    for variant, one in result.results:
        lines.append(f"{variant.name:<{longest}}" + _variant(first, one, apart=apart, timed=timed))
    last = result.results[-1][1]
    lines += _notes([*(_unlike(one, variant.name) for variant, one in result.results if not one.answer.started), *last.notes], style)
    return lines


def _common(results: list[ProbeResult], style: Style) -> list[str]:
    """What the runs of a table have in common."""
    answer = next((one.answer for one in results if one.answer.model), None)
    if answer is None:
        return []
    said = (
        f"{visible(answer.model)}: {answer.parameters:,} parameters; on {DEVICES[answer.device]}, rank {answer.rank} of {answer.world_size}"
    )
    return [*wrap(said, style.width), ""]


def _variant(first: Answer, one: ProbeResult, *, apart: bool, timed: bool) -> str:
    answer = one.answer
    if not answer.started:
        what = "cannot run" if answer.unable is not None else "out of memory" if answer.out_of_memory else "does not start"
        return f"{what:>18}"
    memory = answer.memory[answer.place]
    cost = relative_cost(first, answer)
    change = "" if answer is first or cost is None else f"{cost.peak / max(first.memory[first.place].peak, 1):+.0%}"
    line = f"{in_words(memory.peak):>11}{change:>7}  {memory.peak_phase:<10}{in_words(memory.steady):>14}"
    if apart:
        line += f"{in_words(answer.memory['host'].peak if 'host' in answer.memory else 0):>12}"
    if timed and answer.step_seconds is not None:
        line += f"{answer.step_seconds:>10.3f}" + (f"{cost.time:>8.2f}x" if cost and cost.time and answer is not first else "")
    return line + ("  does not fit" if one.fits is False else "")


def _unlike(one: ProbeResult, name: str) -> str:
    if one.answer.raised is None:
        return f"{name}: {one.answer.unable}."
    rules = ", ".join(f"{d.code}: {d.message}" for d in one.explained[:1])
    return f"{name}: {one.answer.raised.kind}: {clipped(one.answer.raised.text, 300)}" + (f" ({rules})" if rules else "")


def _search(result: SearchResult, style: Style) -> list[str]:
    limit = result.result.limit
    into = f" in {in_words(limit.size)} ({limit.source})" if limit else " on this GPU"
    if result.largest is not None:
        lines = _bold(f"The largest micro batch that fits{into} is {result.largest:,}.", style)
    elif result.result.answer.started or result.result.answer.out_of_memory:
        lines = _bold(f"Not even a micro batch of 1 fits{into}.", style, "red")
    else:
        return _result(result.result, style)
    lines += _common([one for _, one in result.tried], style)
    lines.append(style.paint(f"{'micro batch':>13}{'peak':>12}  in", "bold"))
    for size, one in result.tried:
        memory = one.answer.memory.get(one.answer.place)
        peak = in_words(memory.peak) if memory and one.answer.started else "-"
        phase = memory.peak_phase if memory and one.answer.started else ""
        verdict = "fits" if one.answer.started and one.fits is not False else "does not fit" if one.fits is False else "does not run"
        lines.append(f"{size:>13,}{peak:>12}  {phase:<12}{verdict}")
    beyond = [TENSORS_ONLY] if result.result.answer.device != "cuda" else []
    return [*lines, *_notes([*beyond, *result.result.notes, *result.result.answer.notes], style)]


def _bold(text: str, style: Style, *names: str) -> list[str]:
    return [style.paint(line, "bold", *names) for line in wrap(text, style.width)]


def _count(number: int | None, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
