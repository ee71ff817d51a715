"""The facts of a job on which advice depends, as its log and its config tell them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dslint.config import Config
from dslint.config.context import Context
from dslint.diagnose.frames import Frame
from dslint.diagnose.job import LoggedJob
from dslint.facts import Facts, Integration
from dslint.facts.find_release import ReleaseSource
from dslint.facts.gpus import gpu_named
from dslint.job.events import LOADS, Events
from dslint.job.model import Launch, Setup
from dslint.record import Record
from dslint.rules.helpers.models import parses_while_loading
from dslint.rules.helpers.precision import model_dtype
from dslint.schemas.derive import ACCUMULATION, MICRO, TRAIN
from dslint.source.config_text import unread_parts
from dslint.source.tree import plain

WITHOUT_BF16 = re.compile(r"\b(?:[VP]100|T4|P4|P40|K80|M60|RTX (?:20|8000|6000\b(?! Ada))|GTX|Titan (?:V|X|RTX))")
"""GPUs of before Ampere, which have no bf16."""

WITHOUT_FP16 = re.compile(r"\b(?:P100|P4|P40|K80|M60|GTX (?:9|10)|Titan X)")
"""GPUs of before Volta, on which DeepSpeed 0.13.0 and later refuse fp16."""

PIPELINE = "deepspeed/runtime/pipe/"
INFERENCE = re.compile(r":(?:generate|_sample|greedy_search|beam_search|init_inference)$|deepspeed/inference/")
ACCELERATE = re.compile(r"accelerate/commands/|\baccelerate launch\b|/bin/accelerate\b|accelerate-launch\b")
TORCHRUN = re.compile(r"torch/distributed/(?:run|launcher)|\btorchrun\b|torch\.distributed\.elastic")
OFFLINE = re.compile(r"outgoing traffic has been disabled|offline mode is enabled|HF_HUB_OFFLINE=1")


OTHER_WAYS = (("torch/nn/parallel/distributed.py", "DistributedDataParallel"), ("torch/distributed/fsdp/", "FSDP"))
"""Files through which the calls of a model go that another way of distributed training than DeepSpeed has wrapped, and its name."""


class Situation(Record):
    """What a log tells of a job, as far as advice depends on it; None is unknown, and an unknown fact contradicts nothing. `switched_on`
    are the keys that are true in its config, and `automatic_batch` says that all three batch values are "auto" there. `loads_partitioned`
    says that the program or the log divides the model while it is loaded. `runs_in` names another way of distributed training that the
    model runs in. `ranks` is the number of ranks that were started, and `several` says that the log names more than one. `loader` is
    what loads the config, `overlaps` whether overlap_comm is on, and `clips` whether gradient_clipping is. `knows_config` says that the
    whole config is known, `offloads_nothing` that neither the optimizer nor parameters are offloaded in it, and `keeps_parameters` that
    parameters are not. `port` is the place where
    the launch sets the port of the ranks to 0, as it is written. `arguments_first` says that the program certainly makes its
    TrainingArguments before it loads any model. `config_found` is the config that the given program leads to, if the log tells nothing of
    it: the job may have run with another one. `described` says that the config is made of the fields of an Accelerate file.
    """

    stage: int | None = None
    release: tuple[int, ...] | None = None
    launcher: str | None = None
    micro_batch: int | None = None
    dtype: str | None = None
    gpu: str | None = None
    checkpointing: bool = False
    loads_partitioned: bool = False
    offloads_optimizer: bool = False
    pipeline: bool = False
    inference: bool = False
    offline: bool = False
    replicas: bool = False
    switched_on: frozenset[str] = frozenset()
    automatic_batch: bool = False
    without_deepspeed: bool = False
    runs_in: str = ""
    ranks: int | None = None
    several: bool = False
    loader: Integration | None = None
    overlaps: bool | None = None
    clips: bool = False
    knows_config: bool = False
    offloads_nothing: bool = False
    keeps_parameters: bool = False
    port: str = ""
    arguments_first: bool = False
    config_found: str = ""
    described: bool = False

    def completed(self, other: Situation) -> Situation:
        """The situation, with what only the other one tells."""
        return self._replace(
            **{name: told for name, told in other._asdict().items() if getattr(self, name) in (None, False, "", frozenset())}
        )

    @property
    def is_launched(self) -> bool:
        """Whether a launcher started the ranks: the log shows it, or ranks that nothing else starts."""
        return self.launcher is not None or self.several

    @property
    def has_bf16(self) -> bool | None:
        """Whether training in bf16 is new, and possible: False if the job does so, or if its GPU cannot."""
        return False if self.dtype == "bfloat16" or self.gpu_has("bf16") is False else None

    @property
    def has_fp16(self) -> bool | None:
        """Whether training in fp16 is new, and possible: False if the job does so, or if its GPU cannot."""
        return False if self.dtype == "float16" or self.gpu_has("fp16") is False else None

    def gpu_has(self, name: str) -> bool | None:
        """Whether the GPU has the precision "bf16" or "fp16"; None if it is not known."""
        if not self.gpu:
            return None
        try:
            gpu = gpu_named(self.gpu)
        except ValueError:
            return False if (WITHOUT_BF16 if name == "bf16" else WITHOUT_FP16).search(self.gpu) else None
        return gpu.has_bf16 if name == "bf16" else gpu.capability is None or gpu.capability >= (7, 0)


def situation_of(job: LoggedJob, frames: Iterable[Frame] = (), text: str = "") -> Situation:
    """The facts of a job that failed at some frames. `text` is what else is known of the log, such as a pasted error."""
    places = [frame.place for frame in frames]
    shown = "\n".join([text, *places, *_of_launchers(job)])
    stage = job.stage()
    dtype = job.get("dtype")
    return Situation(
        stage.value if stage else None,
        tuple(int(part) for part in re.findall(r"\d+", str(job.get("release") or ""))[:3]) or None,
        "accelerate"
        if ACCELERATE.search(shown)
        else "deepspeed"
        if any(kind in job.counts for kind in _OF_LAUNCHER)
        else "torchrun"
        if TORCHRUN.search(shown)
        else None,
        job.get("micro_batch"),
        dtype if isinstance(dtype, str) else None,
        job.get("gpu"),
        bool(job.get("checkpointing")),
        job.get("built_params") is not None,
        bool(job.get("offloads_optimizer")) or job.setting("zero_optimization", "offload_optimizer", "device") in ("cpu", "nvme"),
        (job.get("pipeline") or 1) > 1 or any(PIPELINE in place for place in places),
        any(INFERENCE.search(place) for place in places) and not any(place.endswith(":backward") for place in places),
        bool(OFFLINE.search("\n".join([text, *(event.values.get("message", "") for event in job.of("raised"))]))),
        in_replicas(job),
        runs_in="" if shows_deepspeed(job) else next((name for part, name in OTHER_WAYS if any(part in place for place in places)), ""),
        ranks=job.sure_ranks(),
        several=(job.sure_ranks() or job.get("ranks_at_least") or 0) > 1,
    )


def situation_in(config: Config) -> Situation:
    """What the config of a job tells, with the facts that it is judged with and the command of its launch."""
    root = plain(config.document.root) if config.document.root is not None else None
    whole = config.document.root is not None and not any(unread_parts(config.document.root))
    offload = [config.value(f"zero_optimization.{section}.device") for section in ("offload_optimizer", "offload_param")]
    stage, micro, clipping = (config.value(key) for key in ("zero_optimization.stage", MICRO, "gradient_clipping"))
    overlaps = config.value("zero_optimization.overlap_comm")
    return situation_given(config.facts)._replace(
        release=stated_release(config.context),
        stage=stage if whole and isinstance(stage, int) and not isinstance(stage, bool) and 0 <= stage <= 3 else None,
        micro_batch=micro if isinstance(micro, int) and not isinstance(micro, bool) else None,
        knows_config=whole,
        dtype=_DTYPES.get(model_dtype(config) or ""),
        offloads_optimizer=offload[0] in ("cpu", "nvme"),
        offloads_nothing=whole and all(device in (None, "none") for device in offload),
        keeps_parameters=whole and offload[1] in (None, "none"),
        switched_on=switched_on(root),
        automatic_batch=automatic_batch(root),
        overlaps=overlaps if isinstance(overlaps, bool) else None,
        clips=isinstance(clipping, int | float) and clipping > 0,
        launcher=_launcher_of(config.setup.launch) if config.setup is not None else None,
        loads_partitioned=parses_while_loading(config),
        port=_port_of(config.setup) if config.setup is not None else "",
        described=config.setup is not None and config.setup.made and config.setup.accelerate is not None,
        arguments_first=config.setup is not None
        and config.setup.program is not None
        and _makes_arguments_first(config.setup.program.events),
    )


def _makes_arguments_first(events: Events) -> bool:
    """Whether a program certainly makes its TrainingArguments before it loads a model, as far as it can be followed."""
    made = next((one for one in events.of(_ARGUMENTS, LOADS)), None)
    if made is None or not re.fullmatch(_ARGUMENTS, made.name) or not made.certain or made.conditions:
        return False
    return {one.flow for one in events.of(LOADS)} == {made.flow}


_ARGUMENTS = r"(transformers|trl)\.(\w+\.)*\w*TrainingArguments"


def _port_of(setup: Setup) -> str:
    """Where a launch sets the port on which the ranks connect to 0, "" if it does not. torchrun and newer launchers may choose one then."""
    launch, file = setup.launch, setup.accelerate
    given = [launch.flags.get("main_process_port"), launch.flags.get("master_port")] if launch and launch.launcher != "torchrun" else []
    given += [file.flags.get("main_process_port"), file.top.get("main_process_port")] if file is not None else []
    first = next((one for one in given if one is not None), None)
    return f"{first.shown} ({first.where})" if first is not None and first.raw.strip("'\"") == "0" else ""


def scales_loss(job: LoggedJob) -> bool:
    """Whether a log shows the loss scale of fp16, whatever a config says that was given with it. In bf16 the scale is 1."""
    return any((event.real("scale") or 0) > 1 for event in job.of("overflow"))


_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
"""The types of a model as a config and as a log name them."""


def situation_given(facts: Facts) -> Situation:
    """What the facts of a job tell besides its config."""
    return Situation(gpu=facts.gpu.name if facts.gpu is not None else None, ranks=facts.world_size, loader=facts.integration)


def stated_release(context: Context) -> tuple[int, ...] | None:
    """The numbers of the DeepSpeed release that runs a job; None if it is only assumed, or if a requirement leaves several open."""
    if context.release_source is not ReleaseSource.STATED or context.oldest is not None or context.facts.deepspeed is None:
        return None
    release = context.outside or context.facts.deepspeed
    return release.major, release.minor, release.patch


STARTS_RANKS = ("deepspeed", "torchrun", "accelerate")
"""The launchers that start each rank as a process of its own, as commands and situations name them."""


def _launcher_of(launch: Launch | None) -> str | None:
    """The launcher that the command of a job names, if it is one that starts ranks."""
    return launch.launcher if launch is not None and launch.bare is None and launch.launcher in STARTS_RANKS else None


def switched_on(config: object) -> frozenset[str]:
    """The keys of a config, at any depth, that are true."""
    if not isinstance(config, dict):
        return frozenset()
    below = (switched_on(value) for value in config.values())
    return frozenset(key for key, value in config.items() if value is True).union(*below)


def automatic_batch(config: object) -> bool:
    """Whether all three batch values of a config are "auto", so that the integration fills in each."""
    return isinstance(config, dict) and all(config.get(key) == "auto" for key in (TRAIN, MICRO, ACCUMULATION))


def shows_deepspeed(job: LoggedJob) -> bool:
    """Whether a log has lines or frames of DeepSpeed."""
    frames = (frame.file for event in job.of("raised") for frame in event.frames)
    return any(kind in job.counts for kind in _OF_DEEPSPEED) or any("deepspeed" in file for file in frames)


_OF_LAUNCHER = ("launch", "spawned", "machines", "killing", "return_code")
"""Lines that only DeepSpeed's launcher prints."""

_OF_DEEPSPEED = ("launch", "release", "config", "attribute", "zero", "backend", "extensions", "parallel", "zero_init", "throughput")


def in_replicas(job: LoggedJob) -> bool:
    """Whether an error was raised in a replica of torch.nn.DataParallel."""
    return any("in replica" in event.values.get("message", "")[:100] for event in job.of("raised"))


def _of_launchers(job: LoggedJob) -> Iterator[str]:
    """The lines and frames that show which launcher runs."""
    for event in job.of("child_failed", "worker_failed", "raised"):
        yield event.text
        yield from (frame.file for frame in event.frames)
