"""Checks the sentences of a cause against the facts of the job: what contradicts them is left out, or replaced.

Causes come from tables and from arithmetic that know only the error. Here, in one place, each of their sentences meets what else the log
tells: the ZeRO stage, the launcher, the precision, what is offloaded. A sentence is taken apart at "; " and ", or ", so that one
alternative can go and the others stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from dslint.diagnose.diagnosis import LikelyCause
from dslint.diagnose.situation import Situation
from dslint.facts import Integration
from dslint.record import Record


class Check(Record):
    """Words of a sentence that facts may contradict. `instead` replaces them; without it, the alternative or clause is left out."""

    words: re.Pattern[str]
    contradicts: Callable[[Situation, re.Match[str]], bool]
    instead: str = ""


def _check(words: str, contradicts: Callable[[Situation, re.Match[str]], bool], instead: str = "") -> Check:
    return Check(re.compile(words), contradicts, instead)


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
    return situation.release is not None and situation.release >= _numbers(match["release"])


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


_UNDIVIDED = (0, 1, 2)
"""The ZeRO stages that leave every weight whole."""

_GATHER = "stage3_gather_16bit_weights_on_model_save"

AUTO_CAST = (0, 7, 0)
"""The first release that has fp16.auto_cast."""

_PORTS = r"`deepspeed --master_port PORT`, .* or the variable MASTER_PORT"

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
    _check(r"^Where a framework computes the steps from train_batch_size", lambda job, _: job.automatic_batch),
    _check(r'\bWith the Trainer write "auto" for all three', lambda job, _: job.automatic_batch),
    _check(
        r'^Write "auto" for the key in the config: the Trainer fills it from the arguments',
        lambda job, _: job.described,
        "The config is made of the fields of an Accelerate file: set its field (mixed_precision for fp16 and bf16) to what the training "
        "arguments say, or pass the argument to the program",
    ),
    _check(r"\b[Ww]ith the Trainer\b", lambda job, _: job.loader in (Integration.DEEPSPEED, Integration.LIGHTNING)),
    _check(r"^Either the program runs on one GPU", lambda job, _: job.ranks == 1, "The program runs on one GPU"),
    _check(r"^Either the program runs on one GPU", lambda job, _: job.ranks is not None and job.ranks > 1),
    _check(r"^the config was read before the ranks were known|^If the launcher starts several", lambda job, _: job.ranks == 1),
    _check(r"^For several GPUs start one process for each", lambda job, _: job.ranks is not None and job.ranks > 1),
    _check(r"^If the launcher starts several, call", lambda job, _: job.ranks is not None, "Call"),
    _check(r"\bcreate the training arguments before from_pretrained", lambda job, _: job.arguments_first),
    _check(
        r"^DeepSpeed (?P<release>\d+\.\d+\.\d+) reads the config too early",
        lambda job, match: job.release not in (None, _numbers(match["release"])),
    ),
    _check(rf'with "?{_GATHER}"?(?:": true)? and ', lambda job, _: _GATHER in job.switched_on, "with "),
    _check(
        r'"(?P<key>[a-z0-9_]{6,})": true|save with (?P<bare>stage3_[a-z0-9_]+)',
        lambda job, match: (match["key"] or match["bare"]) in job.switched_on - AMBIGUOUS,
    ),
    _check(_WITH_STAGE + r"(?P<way> or (?:higher|lower|less|below))?", _has_stage),
    _check(r"\b(?:At|With) ZeRO stage 3\b|GatheredParameters|zero3_init_flag|models at stage 2", lambda job, _: job.stage in _UNDIVIDED),
    _check(r"\bBelow ZeRO stage 3", lambda job, _: job.stage == 3),
    _check(r"\bWhere no weight is divided", lambda job, _: job.stage == 3),
    _check(
        r"\bUse ZeRO stage 3, which divides the weights among the ranks",
        lambda job, _: job.ranks == 1 and job.stage != 3,
        "Use ZeRO stage 3 with offload_param (device: cpu), which keeps the weights in host memory",
    ),
    _check(
        r"\bdivides? the (?:weights|states) among the ranks|zero\.Init \(ZeRO stage 3\)|\buse more ranks\b", lambda job, _: job.ranks == 1
    ),
    _check(r"zero\.Init \(ZeRO stage 3\)", lambda job, _: job.loads_partitioned),
    _check(r"\) if it is not offloaded yet", lambda job, _: job.knows_config and not job.offloads_optimizer, ")"),
    _check(r"\b[Oo]ffload less\b", lambda job, _: job.offloads_nothing),
    _check(r"stage 1 or higher if it is off", lambda job, _: job.knows_config and job.stage == 0, "stage 1 or higher"),
    _check(
        r"\buse a higher ZeRO stage or offload\b",
        lambda job, _: job.stage == 3 and job.offloads_nothing,
        "offload the optimizer and the parameters (offload_optimizer, offload_param)",
    ),
    _check(
        r"\buse a higher ZeRO stage or offload\b",
        lambda job, _: job.stage == 3 and job.keeps_parameters,
        "offload the parameters, too (offload_param)",
    ),
    _check(r"\b[Rr]aise the (?:ZeRO )?stage|\bhigher (?:ZeRO )?stage", lambda job, _: job.stage == 3 or (job.pipeline and job.stage == 1)),
    _check(r"\b(?:[Tt]urn on|[Ee]nable) (?:activation|gradient) checkpointing", lambda job, _: job.checkpointing),
    _check(r"^Load the model only once per machine", lambda job, _: job.loads_partitioned or job.stage in _UNDIVIDED or job.ranks == 1),
    _check(
        r"\bcreate the TrainingArguments \(or HfDeepSpeedConfig\) before from_pretrained",
        lambda job, _: job.loader is Integration.ACCELERATE,
        "set zero3_init_flag: true and create the Accelerator before from_pretrained",
    ),
    _check(r"^Pass the loss of this engine's forward pass to engine\.backward", lambda job, _: job.loader is Integration.TRANSFORMERS),
    _check(
        r"\bcreate the TrainingArguments \(or HfDeepSpeedConfig\) before from_pretrained",
        lambda job, _: job.loader not in (None, Integration.TRANSFORMERS),
        "build it under deepspeed.zero.Init (a model of transformers: after an HfDeepSpeedConfig)",
    ),
    _check(r"\beach rank of a machine holds its own copy", lambda job, _: job.loads_partitioned or job.ranks == 1),
    _check(r"^Start every rank: DeepSpeed sees only one", lambda job, _: job.launcher is not None or job.ranks == 1),
    _check(r"\b[Oo]ffload the optimizer\b", lambda job, _: job.offloads_optimizer),
    _check(r"\b(?:[Tt]rain in|[Uu]se|[Ee]nable|[Ss]et) bf16\b", lambda job, _: job.has_bf16 is False),
    _check(r"\b(?:[Tt]rain in|[Uu]se|[Ee]nable|[Ss]et) fp16\b", lambda job, _: job.has_fp16 is False or job.gpu_has("bf16") is True),
    _check(r"^On a P100 or an older GPU train in fp32|^Train in fp32 on such a GPU", lambda job, _: job.gpu_has("fp16") is True),
    _check(r"^On a newer GPU check torch|^If the machine has a newer GPU", lambda job, _: job.gpu_has("bf16") is False),
    _check(r"^The same message comes when torch sees no GPU", lambda job, _: job.gpu_has("bf16") is False),
    _check(r"^V100, P100 and T4 do not have it", lambda job, _: job.gpu_has("bf16") is not None),
    _check(r"\b[Vv]alues exceed the range of fp16|^Values above 65504 overflow", lambda job, _: job.dtype in ("bfloat16", "float32")),
    _check(
        r'"auto_cast": true in fp16',
        lambda job, _: job.dtype in ("bfloat16", "float32") or (job.release is not None and job.release < AUTO_CAST),
    ),
    _check(r"^With fp16 or bf16 DeepSpeed converts the model", lambda job, _: job.dtype == "float32"),
    _check(r'^With "overlap_comm": true at stages 1 and 2', lambda job, _: job.stage in (0, 3) or job.overlaps is False),
    _check(r", clip gradients,", lambda job, _: job.clips, ","),
    _check(r"^clip gradients \(gradient_clipping: 1\.0\)", lambda job, _: job.clips),
    _check(r"learning rate and clip gradients", lambda job, _: job.clips, "learning rate"),
    _check(r"\blower the micro batch size or the ", lambda job, _: job.micro_batch == 1, "lower the "),
    _check(r"\b(?:[Ll]ower|[Rr]educe) the micro batch\b", lambda job, _: job.micro_batch == 1),
    _check(
        r"gradient_accumulation|accumulation steps|gradient_checkpointing|activation checkpointing|[Oo]ffload the optimizer"
        r"|offload_optimizer|learning rate|\b[Tt]rain in\b",
        lambda job, _: job.inference,
    ),
    _check(
        r"\bZeRO\b|[Oo]ffload|zero_optimization|stage3_|dslint (?:estimate|fit|check)|\bengine\b|bucket_size",
        lambda job, _: job.replicas or job.without_deepspeed or bool(job.runs_in),
    ),
    _check(
        r"^The program was started without a launcher: the environment",
        lambda job, _: job.launcher == "accelerate",
        "The command `accelerate launch` started the program as one plain process, as it does where its config names no way of "
        "distributed training: the environment",
    ),
    _check(
        r"^The program was started without a launcher: the environment",
        lambda job, _: job.is_launched,
        "The process that failed is not one that the launcher started as a rank: the environment",
    ),
    _check(r"^Start it with `deepspeed", lambda job, _: job.launcher in ("deepspeed", "torchrun")),
    _check(r"^Start the program with a launcher\.?$", lambda job, _: job.is_launched),
    _check(_PORTS, lambda job, _: job.launcher == "torchrun", "`torchrun --master_port PORT`"),
    _check(_PORTS, lambda job, _: job.launcher == "deepspeed", "`deepspeed --master_port PORT`"),
    _check(_PORTS, lambda job, _: job.launcher == "accelerate", "`accelerate launch --main_process_port PORT`"),
    _check(r"\b[Ii]n a notebook set RANK=0", lambda job, _: job.is_launched),
    _check(r"\bstart with a launcher, on one GPU, too", lambda job, _: job.is_launched),
    _check(
        r", in a quantized load, in a program that starts as one plain process",
        lambda job, _: job.is_launched,
        " or in a quantized load",
    ),
    _check(
        r"`deepspeed(?: train\.py)?`(?:, `torchrun`)? or `accelerate launch(?: --use_deepspeed)?`(?: instead of `python`)?",
        lambda job, _: job.launcher == "accelerate",
        "`accelerate launch --use_deepspeed` (or a config file of accelerate with distributed_type: DEEPSPEED)",
    ),
    _check(r"In most cases the program was started with plain `python`", lambda job, _: job.is_launched),
    _check(
        r"Accelerate may run without DeepSpeed, as in a program that starts as one plain process",
        lambda job, _: job.is_launched,
        "Accelerate may run without DeepSpeed",
    ),
    _check(r"\bstart with `accelerate launch`(?! --)", lambda job, _: job.launcher == "accelerate"),
    _check(
        r",? and set HF_HUB_OFFLINE=1\b", lambda job, _: job.offline, " (HF_HUB_OFFLINE is set already: only what is in the cache is found)"
    ),
    _check(r"\b[Uu]pdate (?:to )?DeepSpeed (?:to )?(?P<release>\d+\.\d+(?:\.\d+)?)(?: or (?:newer|later))?", _is_as_new),
)
"""Every fact that advice of the tables depends on. `tests/diagnose/test_fitting.py` tries each on all entries."""

_OF_STAGE_3 = re.compile(r"At ZeRO stage 3\b")
_UNDIVIDED_CAUSE = re.compile(r"Below ZeRO stage 3|Where no weight is divided")
_IS_EMPTY = re.compile(r"\[0\]|has no elements in this process")
"""A weight of size 0 in the error, which proves that weights were divided."""
_OTHER_CONFIG = (
    "{} has ZeRO stage {}, which leaves every weight whole, and the job had divided weights: it ran with another config, or builds this "
    "model under zero.Init or under a second config with stage 3."
)
_NAME_A_CONFIG = (
    "The command names no DeepSpeed config. If the program is one of the Hugging Face Trainer, pass --deepspeed with a config of a stage "
    "that divides the optimizer states (2) and the parameters (3) among the GPUs."
)
_RUN_IN_DEEPSPEED = (
    "The model runs in {}, and no line of the log is one of DeepSpeed's engine. To run it with DeepSpeed, pass --deepspeed with a config "
    "to a program of the Hugging Face Trainer, or start it with `accelerate launch --use_deepspeed`."
)
OF_CONNECTION = frozenset({"hang", "network", "communication"})
"""The kinds of causes for which ranks may not have found each other."""
_PORT_0 = (
    "The launch sets the port of the ranks to 0, {}: a launcher that passes it on as it is, such as Accelerate before 1.7, lets no rank "
    "connect."
)
_OTHER_PORT = "Write a free port above 1023, or leave the port out."
_HOST_MEMORY = (
    "The job offloads the optimizer: where host memory runs out, an allocation of a library can fail, and end a process with SIGSEGV, too."
)
_COUNT_IT = "Compare the host memory of the machine, and the limit of its container, with what `dslint estimate` counts for this config."
SENTENCES = re.compile(r"(?<=[.!?:]) (?=[A-Z`\"])")
ALTERNATIVES = re.compile(r"(; |, or )")
"""Where a text is taken apart: a check meets each part."""


def fitted(cause: LikelyCause, situation: Situation) -> LikelyCause:
    """A cause without what the facts contradict."""
    unchecked = () if situation.replicas else cause.unchecked  # DeepSpeed runs in none of them as the config says
    why, advice, general = (tuple(_kept(sentences, situation)) for sentences in (cause.why, cause.advice, cause.general))
    if situation.stage in _UNDIVIDED and any(map(_OF_STAGE_3.match, cause.why)):
        if situation.config_found and any(map(_IS_EMPTY.search, (cause.title, *cause.why))):
            divided = fitted(replace(cause, unchecked=()), situation._replace(stage=3))
            return replace(divided, why=(*divided.why, _OTHER_CONFIG.format(situation.config_found, situation.stage)))
        if any(map(_UNDIVIDED_CAUSE.match, why)):  # the rules are about stage 3
            unchecked = ()
        else:  # a second model may have another stage
            why, advice = cause.why, cause.advice
    if situation.without_deepspeed and cause.kind == "oom" and _NAME_A_CONFIG not in advice:
        advice = (_NAME_A_CONFIG, *advice)
    if situation.runs_in and cause.kind == "oom":
        advice = (_RUN_IN_DEEPSPEED.format(situation.runs_in), *advice)
    if situation.port and cause.kind in OF_CONNECTION:
        why, advice = (_PORT_0.format(situation.port), *why), (_OTHER_PORT, *advice)
    if "SIGSEGV" in f"{cause.title} {' '.join(cause.why)}" and situation.offloads_optimizer:
        why, advice = (*why, _HOST_MEMORY), (_COUNT_IT, *advice)
    known = (cause.why, cause.advice, cause.general, cause.unchecked)
    return (
        cause
        if (why, advice, general, unchecked) == known
        else replace(cause, why=why, advice=advice, general=general, unchecked=unchecked, of_table=tuple(_kept(cause.of_table, situation)))
    )


def _kept(texts: Iterable[str], situation: Situation) -> Iterator[str]:
    for text in texts:
        kept = " ".join(filter(None, (_sentence(part, situation) for part in SENTENCES.split(text))))
        if kept:
            yield kept


@lru_cache(maxsize=4096)
def _is_checked(text: str) -> bool:
    """Whether a sentence has words that facts may contradict. The tables have a few thousand sentences, and several causes the same."""
    return any(check.words.search(text) for check in CHECKS)


def _sentence(text: str, situation: Situation) -> str:
    """A sentence as it holds, "" if nothing of it does."""
    if not _is_checked(text):
        return text
    end = text[-1] if text[-1:] in ".!?:" else ""
    parts = ALTERNATIVES.split(text[: len(text) - len(end)])
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
