"""Checks the sentences of a cause against the facts of the job: what contradicts them is left out, or replaced.

Causes come from tables and from arithmetic that know only the error. Here, in one place, each of their sentences meets what else the log
tells: the ZeRO stage, the launcher, the precision, what is offloaded. A sentence is taken apart at "; " and ", or ", so that one
alternative can go and the others stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from dslint.diagnose.diagnosis import LikelyCause
from dslint.diagnose.frames import Frame
from dslint.diagnose.job import LoggedJob
from dslint.record import Record

WITHOUT_BF16 = re.compile(r"\b(?:[VP]100|T4|P4|P40|K80|M60|RTX (?:20|8000|6000\b(?! Ada))|GTX|Titan (?:V|X|RTX))")
"""GPUs of before Ampere, which have no bf16."""

PIPELINE = "deepspeed/runtime/pipe/"
INFERENCE = re.compile(r":(?:generate|_sample|greedy_search|beam_search|init_inference)$|deepspeed/inference/")
ACCELERATE = re.compile(r"accelerate/commands/|\baccelerate launch\b|/bin/accelerate\b|accelerate-launch\b")
TORCHRUN = re.compile(r"torch/distributed/(?:run|launcher)|\btorchrun\b|torch\.distributed\.elastic")
OFFLINE = re.compile(r"outgoing traffic has been disabled|offline mode is enabled|HF_HUB_OFFLINE=1")


class Situation(Record):
    """What a log tells of a job, as far as advice depends on it; None is unknown, and an unknown fact contradicts nothing. `switched_on`
    are the keys that are true in its config, and `automatic_batch` says that all three batch values are "auto" there.
    """

    stage: int | None = None
    release: tuple[int, ...] | None = None
    launcher: str | None = None
    micro_batch: int | None = None
    dtype: str | None = None
    gpu: str | None = None
    checkpointing: bool = False
    offloads_optimizer: bool = False
    pipeline: bool = False
    inference: bool = False
    offline: bool = False
    replicas: bool = False
    switched_on: frozenset[str] = frozenset()
    automatic_batch: bool = False
    without_deepspeed: bool = False

    @property
    def has_bf16(self) -> bool | None:
        """Whether training in bf16 is new, and possible: False if the job does so, or if its GPU cannot."""
        if self.dtype == "bfloat16" or (self.gpu and WITHOUT_BF16.search(self.gpu)):
            return False
        return None


def situation_of(job: LoggedJob, frames: Iterable[Frame] = (), text: str = "") -> Situation:
    """The facts of a job that failed at some frames. `text` is what else is known of the log, such as a pasted error."""
    places = [f"{frame.file}:{frame.function}" for frame in frames]
    shown = "\n".join([text, *places, *_of_launchers(job)])
    stage = job.stage()
    dtype = job.get("dtype")
    return Situation(
        stage.value if stage else None,
        tuple(int(part) for part in re.findall(r"\d+", str(job.get("release") or ""))[:3]) or None,
        "accelerate"
        if ACCELERATE.search(shown)
        else "deepspeed"
        if "launch" in job.counts
        else "torchrun"
        if TORCHRUN.search(shown)
        else None,
        job.get("micro_batch"),
        dtype if isinstance(dtype, str) else None,
        job.get("gpu"),
        bool(job.get("checkpointing")),
        bool(job.get("offloads_optimizer")) or job.setting("zero_optimization", "offload_optimizer", "device") in ("cpu", "nvme"),
        (job.get("pipeline") or 1) > 1 or any(PIPELINE in place for place in places),
        any(INFERENCE.search(place) for place in places) and not any(place.endswith(":backward") for place in places),
        bool(OFFLINE.search("\n".join([text, *(event.values.get("message", "") for event in job.of("raised"))]))),
        in_replicas(job),
    )


def switched_on(config: object) -> frozenset[str]:
    """The keys of a config, at any depth, that are true."""
    if not isinstance(config, dict):
        return frozenset()
    below = (switched_on(value) for value in config.values())
    return frozenset(key for key, value in config.items() if value is True).union(*below)


def automatic_batch(config: object) -> bool:
    """Whether all three batch values of a config are "auto", so that the integration fills in each."""
    return isinstance(config, dict) and all(config.get(key) == "auto" for key in BATCH)


def stage_in(config: object) -> int | None:
    """The ZeRO stage that a config says: 0 without the section; None where the value is none of a stage."""
    if not isinstance(config, dict):
        return None
    section = config.get("zero_optimization", {})
    stage = section.get("stage", 0) if isinstance(section, dict) else None
    return stage if isinstance(stage, int) and not isinstance(stage, bool) and 0 <= stage <= 3 else None


def shows_deepspeed(job: LoggedJob) -> bool:
    """Whether a log has lines or frames of DeepSpeed."""
    frames = (frame.file for event in job.of("raised") for frame in event.frames)
    return any(kind in job.counts for kind in _OF_DEEPSPEED) or any("deepspeed" in file for file in frames)


_OF_DEEPSPEED = ("launch", "release", "config", "attribute", "zero", "backend", "extensions", "parallel", "zero_init", "throughput")


def in_replicas(job: LoggedJob) -> bool:
    """Whether an error was raised in a replica of torch.nn.DataParallel."""
    return any("in replica" in event.values.get("message", "")[:100] for event in job.of("raised"))


def _of_launchers(job: LoggedJob) -> Iterator[str]:
    """The lines and frames that show which launcher runs."""
    for event in job.of("child_failed", "worker_failed", "raised"):
        yield event.text
        yield from (frame.file for frame in event.frames)


class Check(Record):
    """Words of a sentence that facts may contradict. `instead` replaces them; without it, the alternative or clause is left out."""

    words: re.Pattern[str]
    contradicts: Callable[[Situation, re.Match[str]], bool]
    instead: str = ""


def _check(words: str, contradicts: Callable[[Situation, re.Match[str]], bool], instead: str = "") -> Check:
    return Check(re.compile(words), contradicts, instead)


BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
"""The keys of the batch size."""

AMBIGUOUS = frozenset({"enabled"})
"""Keys that several sections have."""

_WITH_STAGE = (
    r"\b(?:[Uu]se|[Ss]et|[Tt]ry|[Ss]witch to|[Cc]hoose|[Tt]urn on)(?: an?| the| DeepSpeed| ZeRO)* (?:ZeRO[- ])?[Ss]tage (?P<stage>\d)"
)


def _has_stage(situation: Situation, match: re.Match[str]) -> bool:
    """Whether the stage that a sentence advises is in force, or is none for a pipeline."""
    stage, way = int(match["stage"]), match["way"] or ""
    if situation.pipeline and stage > 1:
        return True
    if situation.stage is None:
        return False
    if "higher" in way:
        return situation.stage >= stage
    return situation.stage <= stage if "l" in way else situation.stage == stage


def _is_as_new(situation: Situation, match: re.Match[str]) -> bool:
    """Whether the job has the release that a sentence advises."""
    return situation.release is not None and situation.release >= tuple(int(part) for part in match["release"].split("."))


_UNDIVIDED = (0, 1, 2)
"""The ZeRO stages that leave every weight whole."""

_GATHER = "stage3_gather_16bit_weights_on_model_save"

CHECKS = (
    _check(
        r"^train_batch_size is not micro batch size x gradient accumulation steps x world size",
        lambda job, _: job.automatic_batch,
        'The three batch values are "auto" in the config, and were filled in for another number of ranks than DeepSpeed counted: '
        "train_batch_size is not micro batch size x gradient accumulation steps x world size",
    ),
    _check(
        r"\bLeave train_batch_size out and keep [^.]* DeepSpeed computes it",
        lambda job, _: job.automatic_batch,
        "DeepSpeed may have read the config before torch.distributed was initialized: call deepspeed.init_distributed() "
        "before the model is loaded, or update transformers, accelerate and deepspeed together",
    ),
    _check(r'\bWith the Trainer write "auto" for all three', lambda job, _: job.automatic_batch),
    _check(rf'with "?{_GATHER}"?(?:": true)? and ', lambda job, _: _GATHER in job.switched_on, "with "),
    _check(
        r'"(?P<key>[a-z0-9_]{6,})": true|save with (?P<bare>stage3_[a-z0-9_]+)',
        lambda job, match: (match["key"] or match["bare"]) in job.switched_on - AMBIGUOUS,
    ),
    _check(_WITH_STAGE + r"(?P<way> or (?:higher|lower|less|below))?", _has_stage),
    _check(r"\b(?:At|With) ZeRO stage 3\b|GatheredParameters|zero3_init_flag|models at stage 2", lambda job, _: job.stage in _UNDIVIDED),
    _check(r"\bBelow ZeRO stage 3", lambda job, _: job.stage == 3),
    _check(r"\bWhere no weight is divided", lambda job, _: job.stage == 3),
    _check(r"\b[Rr]aise the (?:ZeRO )?stage|\bhigher (?:ZeRO )?stage", lambda job, _: job.stage == 3 or (job.pipeline and job.stage == 1)),
    _check(r"\b(?:[Tt]urn on|[Ee]nable) (?:activation|gradient) checkpointing", lambda job, _: job.checkpointing),
    _check(r"\b[Oo]ffload the optimizer\b", lambda job, _: job.offloads_optimizer),
    _check(r"\b(?:[Tt]rain in|[Uu]se|[Ee]nable|[Ss]et) bf16\b", lambda job, _: job.has_bf16 is False),
    _check(r"\blower the micro batch size or the ", lambda job, _: job.micro_batch == 1, "lower the "),
    _check(r"\b(?:[Ll]ower|[Rr]educe) the micro batch\b", lambda job, _: job.micro_batch == 1),
    _check(
        r"gradient_accumulation|accumulation steps|gradient_checkpointing|activation checkpointing|[Oo]ffload the optimizer"
        r"|offload_optimizer|learning rate|\b[Tt]rain in\b",
        lambda job, _: job.inference,
    ),
    _check(
        r"\bZeRO\b|[Oo]ffload|zero_optimization|stage3_|dslint (?:estimate|fit|check)|\bengine\b|bucket_size",
        lambda job, _: job.replicas or job.without_deepspeed,
    ),
    _check(
        r"`deepspeed(?: train\.py)?`(?:, `torchrun`)? or `accelerate launch(?: --use_deepspeed)?`",
        lambda job, _: job.launcher == "accelerate",
        "`accelerate launch --use_deepspeed` (or a config file of accelerate with distributed_type: DEEPSPEED)",
    ),
    _check(r"In most cases the program was started with plain `python`", lambda job, _: job.launcher is not None),
    _check(r"\bstart with `accelerate launch`(?! --)", lambda job, _: job.launcher == "accelerate"),
    _check(
        r",? and set HF_HUB_OFFLINE=1\b", lambda job, _: job.offline, " (HF_HUB_OFFLINE is set already: only what is in the cache is found)"
    ),
    _check(r"\b[Uu]pdate (?:to )?DeepSpeed (?:to )?(?P<release>\d+\.\d+(?:\.\d+)?)(?: or (?:newer|later))?", _is_as_new),
)
"""Every fact that advice of the tables depends on. `tests/diagnose/test_fitting.py` tries each on all entries."""

_OF_STAGE_3 = re.compile(r"At ZeRO stage 3\b")
_UNDIVIDED_CAUSE = re.compile(r"Below ZeRO stage 3|Where no weight is divided")
_NAME_A_CONFIG = (
    "The command names no DeepSpeed config. If the program is one of the Hugging Face Trainer, pass --deepspeed with a config of a stage "
    "that divides the optimizer states (2) and the parameters (3) among the GPUs."
)
_SENTENCES = re.compile(r"(?<=[.!?:]) (?=[A-Z`\"])")
_ALTERNATIVES = re.compile(r"(; |, or )")


def fitted(cause: LikelyCause, situation: Situation) -> LikelyCause:
    """A cause without what the facts contradict."""
    unchecked = () if situation.replicas else cause.unchecked  # DeepSpeed runs in none of them as the config says
    why, advice, general = (tuple(_kept(sentences, situation)) for sentences in (cause.why, cause.advice, cause.general))
    if situation.stage in _UNDIVIDED and any(map(_OF_STAGE_3.match, cause.why)):
        if any(map(_UNDIVIDED_CAUSE.match, why)):  # the rules are about stage 3
            unchecked = ()
        else:  # a second model may have another stage
            why, advice = cause.why, cause.advice
    if situation.without_deepspeed and cause.kind == "oom" and _NAME_A_CONFIG not in advice:
        advice = (_NAME_A_CONFIG, *advice)
    known = (cause.why, cause.advice, cause.general, cause.unchecked)
    return (
        cause
        if (why, advice, general, unchecked) == known
        else replace(cause, why=why, advice=advice, general=general, unchecked=unchecked)
    )


def _kept(texts: Iterable[str], situation: Situation) -> Iterator[str]:
    for text in texts:
        kept = " ".join(filter(None, (_sentence(part, situation) for part in _SENTENCES.split(text))))
        if kept:
            yield kept


def _sentence(text: str, situation: Situation) -> str:
    """A sentence as it holds, "" if nothing of it does."""
    if not any(check.words.search(text) for check in CHECKS):
        return text
    end = text[-1] if text[-1:] in ".!?:" else ""
    parts = _ALTERNATIVES.split(text[: len(text) - len(end)])
    kept: list[str] = []
    for separator, part in zip(["", *parts[1::2]], parts[::2], strict=True):
        held = _part(part, situation)
        if held is not None:
            kept.append(f"{separator}{held}" if kept else held)
    whole = "".join(kept)
    return f"{whole[0].upper()}{whole[1:]}{end}" if whole and whole != text[: len(text) - len(end)] else whole + end if whole else ""


def _part(text: str, situation: Situation) -> str | None:
    for check in CHECKS:
        match = check.words.search(text)
        if match is None or not check.contradicts(situation, match):
            continue
        if not check.instead:
            return None
        text = f"{text[: match.start()]}{check.instead}{text[match.end() :]}"
    return text
