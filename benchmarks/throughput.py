"""Compare the step-time model with measured speeds of trainings.

    python benchmarks/throughput.py FILE.jsonl [--leave-one-out | --fit] [--rows]

A line of FILE is a measurement: `model`, `params`, `layers`, `hidden`, `heads`, `vocab`, `seq`, `micro_batch`, `gas`, `gpus`,
`gpus_per_node`, `gpu`, `interconnect` ("nvlink; ib 8x200Gb/s"), `stage`, `offload_optimizer`, `offload_param`, `tp`, `pp`, `sp`,
`precision`, `checkpointing`, `flash_attention`, `trainable` ("full", "lora"), `year`, `measure` (s_per_step, samples_per_s,
tokens_per_s_per_gpu, tflops_per_gpu) with its `value`, `oom`, `source`, `group`, `note`, and `rank_group`, which joins rows of one model on
one machine that differ only in the config. `experts` are those of a layer, where each is a module of its own (transformers before 5).
`attention` is its kernel, as transformers names it. `adapters` is "attention" if no other modules have adapters.
Unknown values are null. A row without the facts that a prediction needs is counted.

It prints how close predicted times are, and for each rank group whether the config that the model ranks first is within 10 % of the best,
beside the rule of thumb (no offload, no checkpointing, largest micro batch, lowest stage) and a random pick. Of the rows that ran out of
memory it prints which ones surely fit by the estimate of memory, so that `dslint tune` would choose them.
`--leave-one-out` scores each source with constants that are fitted to the others, `--fit` prints constants fitted to all rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dslint import estimate
from dslint.errors import UserError
from dslint.facts.known_models import preset
from dslint.job.attention import FLASH_2, FLASH_3, SDPA
from dslint.memory.families import read_shape
from dslint.speed.compare import SpeedVerdict, compare
from dslint.speed.compute import flops_per_token
from dslint.speed.constants import FITTED, Constants
from dslint.speed.hardware import HARDWARE, Hardware, assumed_network
from dslint.speed.job import EXPERT_MODULES, MODULES, Job
from dslint.speed.step import StepTime, step

Row = dict[str, Any]

UNTOLD_LENGTH = 512
"""Tokens of a sample where a row does not say it: such rows count only in their groups."""

NOT_A_TIME = ("repeats a meas", "only ratios are usable", "timers", "autotuner")
"""Notes of rows that say nothing of the time of a step, or say it twice."""

WITHIN, WINS = 0.25, 0.9

FLASH_SINCE = 2024
"""The first year in which a training that does not say so has flash attention: PyTorch's SDPA is then the default of its frameworks."""

KERNELS = {FLASH_3: r"FA[34]|FlashAttention-[34]|flash_attention_[34]", FLASH_2: r"FA2|FlashAttention-2|flash_attention_2", SDPA: r"sdpa"}
"""How notes write kernels of attention."""

STACKED_SINCE = 2026
"""The first year in which transformers computes all experts of a layer as one module (5.0)."""


class Measured(NamedTuple):
    """A row, its job, and the seconds of its step; None if it ran out of memory."""

    row: Row
    job: Job
    seconds: float | None

    @property
    def source(self) -> str:
        """The repository or page that it comes from."""
        return str(re.split(r"[ #:]", self.row["source"])[0])

    @property
    def is_a_time(self) -> bool:
        """Whether it says how long a step takes, with all that decides it."""
        row = self.row
        told = all(row[name] for name in ("gpu", "seq", "micro_batch"))
        return bool(self.seconds and told and not any(words in (row["note"] or "") for words in NOT_A_TIME))

    @property
    def is_outlier(self) -> bool:
        """Whether its source repeats it with another result: no pair is judged by it."""
        return "outlier of the source" in (self.row["note"] or "")

    def speed(self, seconds: float) -> float:
        """Operations of the model per second and GPU: comparable between rows of one model."""
        return self.job.samples * self.job.length * flops_per_token(self.job) / seconds / self.job.gpus


def read(path: str) -> tuple[list[Measured], int]:
    """The rows of a file that a prediction can be made for, and the number of the others."""
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    jobs = [(row, _job(row)) for row in rows]
    found = [Measured(row, job, _seconds(row, job)) for row, job in jobs if job is not None]
    return found, len(rows) - len(found)


def _hardware_named(text: str) -> Hardware | None:
    """The GPU in a free text such as `A100-SXM4 40GiB`, `NVIDIA H100 PCIe`, `RTX 4080 SUPER 16GiB`; None if it is unknown."""
    plain = re.sub(r"[^a-z0-9]+", "", text.lower())
    gib = re.search(r"(\d+)\s*gi?b", text.lower())
    pcie = "pcie" in plain
    best = max((name for name in HARDWARE if name.split("-")[0] in plain), key=lambda name: len(name.split("-")[0]), default=None)
    if best is None:
        return None
    family = best.split("-")[0]
    for suffix in (*([f"-{gib[1]}gb"] if gib else []), *(["-pcie"] if pcie else [])):
        if family + suffix in HARDWARE:
            return HARDWARE[family + suffix]
    return HARDWARE[family]


def _job(row: Row) -> Job | None:
    hardware = _hardware_named(row["gpu"]) if row["gpu"] else HARDWARE["a100"]
    if hardware is None or not row["params"] or not row["gpus"]:
        return None
    gpus, text = row["gpus"], row["interconnect"] or ""
    local = min(row["gpus_per_node"] or 8, gpus)
    hardware, link = _link(hardware, text)
    network = _network(text)
    params = float(row["params"])
    hidden = row["hidden"] or max(64, round((params / 12 / 24) ** 0.5 / 64) * 64)
    stage = row["stage"] or 0
    flash = row["flash_attention"]
    return Job(
        hardware=hardware,
        precision=row["precision"] or "bf16",
        params=params,
        active=_active(row["model"] or "", params),
        trained=params if row["trainable"] in (None, "full") else params / 100,
        modules=(MODULES + EXPERT_MODULES * _experts(row)) * (row["layers"] or 0),
        adapted=_adapted(row, hidden),
        fused=bool(re.search(r"(?<!no )\bliger|_liger", f"{row['note']} {row['source']}", re.IGNORECASE)),
        layers=row["layers"] or max(1, round(params / 12 / hidden**2)),
        hidden=hidden,
        heads=row["heads"],
        vocabulary=row["vocab"] or 32_000,
        length=row["seq"] or UNTOLD_LENGTH,
        attended=row["seq"] or UNTOLD_LENGTH,
        micro_batch=row["micro_batch"] or 1,
        accumulation=row["gas"] or 1,
        gpus=gpus,
        local=local,
        link=link,
        network=network or assumed_network(hardware, local),
        pcie=hardware.host * 1e9,
        tensor=row["tp"] or 1,
        pipeline=row["pp"] or 1,
        sequence=row["sp"] or 1,
        stage=stage,
        recomputed=1.0 if row["checkpointing"] else 0.0,
        kernel=_kernel(row),
        flash=(row["year"] or 0) >= FLASH_SINCE if flash is None else bool(flash),
        optimizer_on=row["offload_optimizer"] if stage else None,
        parameters_on=row["offload_param"] if stage == 3 else None,
        given=("network",) if "measured" in text else (),
    )


def _link(hardware: Hardware, text: str) -> tuple[Hardware, float]:
    """The hardware and the bandwidth between the GPUs of a machine, as the row's interconnect says."""
    if "pcie" in text:
        return hardware._replace(direct=False), hardware.host * 1e9
    if "nvlink" in text and not hardware.direct:
        return hardware._replace(direct=True), 50e9  # a bridge
    return hardware, hardware.link * 1e9


def _network(text: str) -> float | None:
    measured = re.search(r"measured ([\d.]+) ?Gb/s", text)
    sold = re.search(r"(?:(\d+)x)?(\d+) ?Gb/s", text)
    if measured:
        return float(measured[1]) * 1e9 / 8
    return int(sold[1] or 1) * int(sold[2]) * 1e9 / 8 if sold else None


def _active(name: str, params: float) -> float:
    """The parameters that a token passes: names of models with experts state them (Qwen3-30B-A3B)."""
    match = re.search(r"-A(\d+(?:\.\d+)?)B", name)
    return min(params, float(match[1]) * 1e9) if match else params


def _kernel(row: Row) -> str:
    """The kernel of attention, if the row or its note says it; "" otherwise."""
    note = row["note"] or ""
    return str(row.get("attention") or next((kernel for kernel, words in KERNELS.items() if re.search(words, note, re.IGNORECASE)), ""))


def _experts(row: Row) -> int:
    """The experts of a layer that are modules of their own: of a known model if the row does not say it."""
    if "experts" in row:
        return int(row["experts"])
    known = preset(row["model"] or "")
    if known is None or (row["year"] or 0) >= STACKED_SINCE:
        return 0
    return max((block.experts.number for block in read_shape(known, "").blocks if block.experts), default=0)


def _adapted(row: Row, hidden: int) -> float:
    """The features of adapted modules: adapters are at all linear modules, unless the row names them by `adapters` ("attention")."""
    if row["trainable"] in (None, "full"):
        return 0.0
    mlp = 0 if row.get("adapters") == "attention" else 3 * (hidden + (row["ffn"] or 4 * hidden))
    return float((row["layers"] or 0) * (8 * hidden + mlp))


def _seconds(row: Row, job: Job) -> float | None:
    """The measured seconds of a step. BigScience and Microsoft's Azure page count recomputed operations as work."""
    value, measure = row["value"], row["measure"]
    if not value:
        return None
    if measure == "s_per_step":
        return float(value)
    if measure == "samples_per_s":
        return job.samples / float(value)
    tokens = job.samples * job.length
    if measure == "tokens_per_s_per_gpu":
        return tokens / (float(value) * job.gpus)
    counted = flops_per_token(job)
    if "bigscience" in row["source"] or "azure" in row["source"]:
        counted += job.recomputed * (2 * job.active + 4 * job.layers * job.hidden * job.attended)
    return tokens * counted / (float(value) * 1e12 * job.gpus)


class Time(NamedTuple):
    """A predicted and a measured time."""

    row: Measured
    step: StepTime
    ratio: float


class Score(NamedTuple):
    """The score of a rank group: shares of wins of the model, of the rule of thumb and of a random pick, and Kendall's tau of the first
    two. `wrong` are pairs called too close to call of which one is 25 % faster; `pairs` are all that are called so.
    """

    group: str
    model: float
    rule: float
    random: float
    tau: float
    rule_tau: float
    pairs: int
    wrong: tuple[str, ...]


def predicted(rows: Iterable[Measured], constants: Constants) -> list[Time]:
    """The rows with a measured time, and the predictions."""
    steps = [(row, step(row.job, constants)) for row in rows if row.seconds]
    return [Time(row, found, found.seconds / row.seconds) for row, found in steps if row.seconds]


def grouped(times: Iterable[Time], least: int) -> dict[str, list[Time]]:
    """The rank groups with so many rows."""
    found = defaultdict(list)
    for time in times:
        if time.row.row["rank_group"]:
            found[time.row.row["rank_group"]].append(time)
    return {group: members for group, members in found.items() if len(members) >= least}


def scored(group: str, members: list[Time]) -> Score:
    """The score of a group."""
    real = [time.row.speed(time.row.seconds or math.inf) for time in members]
    ours = [round(time.row.speed(time.step.seconds), 6) for time in members]
    by_rule = [_rule_of_thumb(time.row.job) for time in members]
    good = [speed >= WINS * max(real) for speed in real]

    def wins(keys: Sequence[Any]) -> float:
        """The share of the first by some keys that are good."""
        first = [is_good for is_good, key in zip(good, keys, strict=True) if key == max(keys)]
        return sum(first) / len(first)

    close = [
        (one, other)
        for (one, a), (other, b) in itertools.combinations(zip(members, real, strict=True), 2)
        if compare(one.step, other.step).verdict is SpeedVerdict.CLOSE and not (one.row.is_outlier or other.row.is_outlier)
    ]
    wrong = tuple(f"{one.row.row['id']} and {other.row.row['id']}" for one, other in close if _apart(one, other) >= 1.25)
    return Score(
        group,
        wins(ours),
        wins(by_rule),
        sum(good) / len(good),
        tau(real, ours),
        tau(real, [sorted(set(by_rule)).index(key) for key in by_rule]),
        len(close),
        wrong,
    )


def _apart(one: Time, other: Time) -> float:
    speeds = sorted(time.row.speed(time.row.seconds or math.inf) for time in (one, other))
    return speeds[1] / speeds[0]


def _rule_of_thumb(job: Job) -> tuple[float, ...]:
    return (-bool(job.optimizer_on) - bool(job.parameters_on), -job.recomputed, job.micro_batch, -job.stage)


def tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-b."""

    def signs(values: Sequence[float]) -> list[int]:
        return [(a > b) - (a < b) for a, b in itertools.combinations(values, 2)]

    one, other = signs(first), signs(second)
    ties = sum(map(bool, one)) * sum(map(bool, other))
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.sqrt(ties) if ties else 0.0


HELD = 0.05
"""How strongly a fit is held to the constants it starts from: the weight of the squared logarithm of their ratio. Chosen by
`--leave-one-out`: with 0.004 the fit follows single tables (tau 0.55 instead of 0.73)."""

SHARES = ("matmul", "misaligned", "overlapped", "overlapped3", "streaming", "unpinned", "adam")

FITTED_NAMES = tuple(name for name in Constants._fields if name != "latency")


def loss(times: list[Time], constants: Constants, start: Constants) -> float:
    """What a fit minimises: errors of times, and of ratios of times within groups, with every source weighted by the root of its rows."""
    by_source, pairs = defaultdict(list), defaultdict(list)
    for time in times:
        if time.row.is_a_time:
            by_source[time.row.source].append(min(1.0, abs(math.log(time.ratio))))
    for members in grouped(times, 2).values():
        errors = [min(1.0, abs(math.log(one.ratio / other.ratio))) for one, other in itertools.combinations(members, 2)]
        pairs[members[0].row.source].append(statistics.fmean(errors))
    held = sum(math.log(getattr(constants, name) / getattr(start, name)) ** 2 for name in FITTED_NAMES)
    return _mean(by_source) + _mean(pairs) + HELD * held


def _mean(errors: dict[str, list[float]]) -> float:
    weights = {source: math.sqrt(len(found)) for source, found in errors.items()}
    return sum(weights[source] * statistics.fmean(found) for source, found in errors.items()) / sum(weights.values()) if errors else 0.0


START = Constants(
    matmul=0.8,
    half_point=1.2e6,
    misaligned=0.72,
    flash=0.6,
    scores=10,
    overlapped=0.5,
    overlapped3=0.6,
    streaming=0.7,
    step=0.02,
)
"""What documents and papers state, before any fit."""


def fitted(rows: list[Measured]) -> Constants:
    """Constants fitted to rows, one at a time in ever smaller steps."""
    found = START
    best = loss(predicted(rows, found), found, START)
    for factor in (1.5, 1.2, 1.1):
        improved = True
        while improved:
            improved = False
            for name, scale in itertools.product(FITTED_NAMES, (factor, 1 / factor)):
                tried = found._replace(**{name: getattr(found, name) * scale})
                if name in SHARES and getattr(tried, name) > 1:
                    continue
                reached = loss(predicted(rows, tried), tried, START)
                if reached < best - 1e-6:
                    found, best, improved = tried, reached, True
    return found


def left_out(rows: list[Measured]) -> list[Time]:
    """Predictions for each source with constants fitted to the others."""
    found = []
    for source in sorted({row.source for row in rows}):
        constants = fitted([row for row in rows if row.source != source])
        found += predicted([row for row in rows if row.source == source], constants)
    return found


def chosen(row: Row) -> bool | None:
    """Whether `dslint tune` may choose the config of a row, because it surely fits. None if the row says too little, or has a pipeline,
    which `tune` never proposes.
    """
    memory = re.search(r"(\d+) ?Gi?B", row["gpu"] or "")
    needed = ("params", "layers", "hidden", "micro_batch", "seq", "gpus")
    if not memory or any(not row[name] for name in needed) or row["checkpointing"] is None or (row["pp"] or 1) > 1:
        return None
    stage = row["stage"] or 0
    zero: Row = {"stage": stage}
    zero |= {"offload_optimizer": {"device": row["offload_optimizer"]}} if stage and row["offload_optimizer"] else {}
    zero |= {"offload_param": {"device": row["offload_param"]}} if stage == 3 and row["offload_param"] else {}
    config = {
        "train_micro_batch_size_per_gpu": row["micro_batch"],
        "gradient_accumulation_steps": row["gas"] or 1,
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        **({row["precision"]: {"enabled": True}} if row["precision"] in ("fp16", "bf16") else {}),
    }
    workload = {
        "params": float(row["params"]),
        "hidden": row["hidden"],
        "layers": row["layers"],
        "heads": row["heads"],
        "vocabulary": row["vocab"] or 32_000,
        "length": row["seq"],
        "checkpoint_every": int(row["checkpointing"]),
        "eager": row["flash_attention"] is False,
        "lora_rank": 8 if row["trainable"] == "lora" else None,
    }
    try:
        found = estimate(
            config,
            workload=workload,
            world_size=row["gpus"],
            nodes=math.ceil(row["gpus"] / (row["gpus_per_node"] or 8)),
            tensor_parallel=row["tp"] or 1,
            sequence_parallel=row["sp"] or 1,
            integration="deepspeed",
        )
    except UserError:
        return None
    return found.fits(int(memory[1]) * 2**30)


def show_memory(rows: Iterable[Row]) -> None:
    """Print how many rows that ran out of memory would be chosen."""
    judged = [(row["id"], chosen(row)) for row in rows]
    wrong = [name for name, fits in judged if fits]
    unknown = sum(fits is None for _, fits in judged)
    if judged:
        text = f"{len(judged)} rows ran out of memory, of which {len(wrong)} surely fit by their estimate {', '.join(wrong)}".rstrip()
        print(text + (f"; {unknown} say too little or have a pipeline" if unknown else ""))


def show(times: list[Time], least: int) -> None:
    """Print the scores."""
    absolute = [time for time in times if time.row.is_a_time]
    ratios = sorted(time.ratio for time in absolute)
    inside = [time.step.low <= (time.row.seconds or 0) <= time.step.high for time in absolute]
    widths = [(time.step.high - time.step.low) / 2 / time.step.seconds for time in absolute]
    if absolute:
        print(
            f"times: {len(ratios)} rows, predicted/measured median {statistics.median(ratios):.2f}, "
            f"{sum(1 - WITHIN <= ratio <= 1 + WITHIN for ratio in ratios) / len(ratios):.0%} within 25 %, "
            f"{sum(inside) / len(inside):.0%} inside the range, median half width {statistics.median(widths):.0%}"
        )
    scores = [scored(group, members) for group, members in grouped(times, least).items()]
    if not scores:
        return
    heading = f"{len(scores)} rank groups of {least} or more"
    print(f"{heading:40}{'winner within 10 % of the best':>32}{'Kendall tau':>14}")
    for name, field, order in (("model", "model", "tau"), ("rule of thumb", "rule", "rule_tau"), ("random pick", "random", None)):
        wins = [getattr(score, field) for score in scores]
        taus = [getattr(score, order) if order else 0.0 for score in scores]
        won = f"{sum(wins):.2f} of {len(wins)}  {statistics.fmean(wins):4.0%}"
        print(f"  {name:38}{won:>32}{statistics.fmean(taus):>14.2f}")
    wrong = [pair for score in scores for pair in score.wrong]
    print(
        f"{sum(score.pairs for score in scores)} pairs too close to call, of which {len(wrong)} differ by 25 % {', '.join(wrong)}".rstrip()
    )


def show_rows(times: list[Time]) -> None:
    """Print the largest errors, and the groups that are lost."""
    for time in sorted(times, key=lambda time: abs(math.log(time.ratio)), reverse=True):
        if time.row.is_a_time:
            spread = f"{time.step.low:.3g} to {time.step.high:.3g} s"
            print(f"{time.row.row['id']:28} measured {time.row.seconds:8.3g} s, predicted {spread}, ratio {time.ratio:.2f}")
    for group, members in grouped(times, 3).items():
        score = scored(group, members)
        print(f"{group:24} model {score.model:.2f}, rule {score.rule:.2f}, random {score.random:.2f}, tau {score.tau:.2f}")


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--least", type=int, default=3, help="the fewest rows of a rank group (default: 3)")
    parser.add_argument("--rows", action="store_true", help="also print every row and group")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--leave-one-out", action="store_true")
    how.add_argument("--fit", action="store_true")
    given = parser.parse_args()
    rows, unusable = read(given.file)
    print(f"{len(rows)} rows, {unusable} more without the facts for a prediction")
    if given.fit:
        print(fitted(rows))
        return
    times = left_out(rows) if given.leave_one_out else predicted(rows, FITTED)
    show(times, given.least)
    show_memory(row.row for row in rows if row.row["oom"])
    if given.rows:
        show_rows(times)


if __name__ == "__main__":
    main()
