"""How events tell the facts of a job: a function for each kind of event."""

from __future__ import annotations

import ast
import base64
import json
import re
import shlex
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from dslint.diagnose.events import LogEvent
from dslint.diagnose.frames import Frame
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.places import is_library
from dslint.diagnose.read_config import read_config
from dslint.facts.model_config import describe

KEEPERS = frozenset(
    {
        "launch", "exited_well", "return_code", "killing", "worker_failed", "worker_signal", "child_failed", "first_failed", "failed_rank",
        "failed_code", "srun", "cancelled", "host_kill", "shell_killed", "signal_received", "interrupted", "ssh", "overflow", "oom",
        "host_allocation", "pinned", "hardware", "unread",
        "watchdog", "last_work", "minimum_scale", "disk_full", "build_failed", "assertion", "nccl_warning",
        "accumulation_differs", "accumulation_replaced",
        "raised", "error", "refused", "finished", "left", "lsf", "lsf_killed", "lsf_errors",
        "flushes", "fallback", "not_finite", "peak", "breakdown", "spread", "text",
    }
)  # fmt: skip
"""The kinds of events that are evidence for an outcome or a cause."""

_COMMAND = re.compile(r"(\[('|\").*\]) exits with return code")
_GROUPED = re.compile(r"(?<=\d)[,_](?=\d)")

ARGUMENTS = {
    "hidden_size": "hidden",
    "num_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "seq_length": "length",
    "micro_batch_size": "micro_batch",
    "global_batch_size": "total_batch",
    "data_parallel_size": "data_parallel",
    "world_size": "ranks",
    "tensor_model_parallel_size": "tensor",
    "pipeline_model_parallel_size": "pipeline",
    "zero_stage": "stage",
    "train_iters": "steps",
}
"""Arguments that Megatron prints, and the facts that they are."""

WHOLE_AND_PARTS = re.compile(r"^_?(?:ALLGATHER|REDUCE_SCATTER)(?:_BASE)?$")
"""Collectives with a tensor of one rank on one side, and those of all ranks on the other. Coalesced ones add several up."""

BEGUN = frozenset({"step", "throughput", "raised", "oom", "finished", "left", "exited_well", "return_code", "child_failed"})
"""Lines that no process prints while the other processes of its run start."""

OF_STAGE_3 = ("runtime/zero/stage3.py", "runtime/zero/partitioned_param_coordinator.py", "runtime/zero/parameter_offload.py")
"""Files of DeepSpeed that run only at ZeRO stage 3."""

LAUNCHER, MOST_OPTIONS = "deepspeed.launcher.launch", 20
"""The module of DeepSpeed's launcher that starts the processes, and the most words of a command in which its program is searched."""

OF_TRAINING_ARGUMENTS = frozenset({"per_device_train_batch_size", "output_dir"})
"""Options of programs that read the arguments of the Trainer, and --deepspeed with them."""

OPTIONS = {
    "model_name_or_path": "model_name",
    "per_device_train_batch_size": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "zero_stage": "stage",
    "max_seq_length": "length",
    "max_seq_len": "length",
    "model_max_length": "length",
    "cutoff_len": "length",
    "max_length": "length",
    "deepspeed": "config_path",
    "deepspeed_config": "config_path",
    "deepspeed_config_file": "config_path",
    "optim": "optim",
}
"""Options of launched programs, and the facts that they are."""


def _release(job: LoggedJob, event: LogEvent) -> None:
    if re.match(r"0\.\d", event.values["release"]):
        job.learn("release", event.values["release"].rstrip(","), event.place)


def _text(name: str, value: str) -> Callable[[LoggedJob, LogEvent], None]:
    def learn(job: LoggedJob, event: LogEvent) -> None:
        job.learn(name, event.values.get(value), event.place)

    return learn


def _number(name: str, value: str) -> Callable[[LoggedJob, LogEvent], None]:
    def learn(job: LoggedJob, event: LogEvent) -> None:
        job.learn(name, event.number(value), event.place)

    return learn


def _numbers(**names: str) -> Callable[[LoggedJob, LogEvent], None]:
    def learn(job: LoggedJob, event: LogEvent) -> None:
        for name, value in names.items():
            job.learn(name, event.number(value), event.place)

    return learn


def _gpu_total(job: LoggedJob, event: LogEvent) -> None:
    job.learn("gpu_memory", (event.number("mib") or 0) * 2**20 or None, event.place)


def _config(job: LoggedJob, event: LogEvent) -> None:
    data = read_config(event.values["text"])
    if data is not None:
        job.learn("config", data, event.place, again=True)


def _attribute(job: LoggedJob, event: LogEvent) -> None:
    """An attribute of DeepSpeed's resolved config. Its world size counts data-parallel ranks only."""
    name, value = event.values["name"], event.values["value"].strip()
    attributes: dict[str, str] = job.get("attributes") or {}
    job.learn("attributes", {**attributes, name: value[:4000]}, event.place, again=True)
    if name == "world_size" and value.isdecimal():
        job.learn("data_parallel", int(value), event.place)
    elif name == "zero_optimization_stage" and value in ("0", "1", "2", "3"):
        job.learn("stage", int(value), event.place)
    elif name == "zero_config" and _OFFLOADED.search(value):
        job.learn("offloads_optimizer", value=True, place=event.place)


_OFFLOADED = re.compile(r"\boffload_optimizer=\w+\(device=(?:<OffloadDeviceEnum\.\w+: )?'(?:cpu|nvme)'")
"""How DeepSpeed prints an offloaded optimizer among the values of the ZeRO section."""


def _zero(job: LoggedJob, event: LogEvent) -> None:
    job.learn("stage", int(event.values["stage"]), event.place)
    if event.values["dtype"] in ("bfloat16", "float16", "float32"):
        job.learn("dtype", event.values["dtype"], event.place)


def _argument(job: LoggedJob, event: LogEvent) -> None:
    """An argument that Megatron prints."""
    name, value = event.values["name"], event.values["value"].strip()
    if name in ARGUMENTS and value.isdecimal():
        job.learn(ARGUMENTS[name], int(value), event.place)
        _megatron(job, event)


def _parallel(job: LoggedJob, event: LogEvent) -> None:
    _numbers(ranks="ranks", data_parallel="data", tensor="tensor", pipeline="pipeline", sequence="sequence")(job, event)
    _megatron(job, event)


def _megatron(job: LoggedJob, event: LogEvent) -> None:
    """A line of Megatron, whose programs call DeepSpeed themselves."""
    job.learn("megatron", value=True, place=event.place)
    job.learn("integration", "deepspeed", event.place)


def _params(job: LoggedJob, event: LogEvent) -> None:
    params, trained = event.number("params"), event.number("trained")
    job.learn("params", params, event.place)
    job.learn("trained", trained, event.place)
    _trainer(job, event)


def _zero_init(job: LoggedJob, event: LogEvent) -> None:
    scale = {"B": 1e9, "M": 1e6}[event.values["size"][-1]]
    job.learn("built_params", round(float(event.values["size"][:-1]) * scale), event.place)


def _model(job: LoggedJob, event: LogEvent) -> None:
    """The `config.json` that transformers prints."""
    try:
        data = json.loads(event.values["text"])
    except ValueError:
        return
    if not isinstance(data, dict):
        return
    changed: dict[str, Any] = job.get("model_overrides") or {}
    data.update((name, value) for name, value in changed.items() if name in data)
    job.learn("model_config", data, event.place)
    job.learn("model_name", str(data.get("_name_or_path") or event.values["name"]), event.place)
    shape = describe(data)
    for name, value in (("hidden", shape.hidden_size), ("layers", shape.layers), ("heads", shape.heads), ("vocabulary", shape.vocab_size)):
        job.learn(name, value, event.place)


def _model_overrides(job: LoggedJob, event: LogEvent) -> None:
    """What a training script of transformers changes in the `config.json` that is printed afterwards (--config_overrides)."""
    pairs = [part.partition("=") for part in event.values["changes"].split(",")]
    job.learn("model_overrides", {name.strip(): _plain(value) for name, sign, value in pairs if sign}, event.place)


def _plain(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _launch(job: LoggedJob, event: LogEvent) -> None:
    job.learn("left_out", event.number("left_out"), event.place)
    try:
        words = shlex.split(event.values["command"])
    except ValueError:
        words = event.values["command"].split()
    world = next((word.partition("=")[2] for word in words if word.startswith("--world_info=")), "")
    hosts = _hosts(world)
    if hosts:
        job.learn("nodes", len(hosts), event.place)
        job.learn("ranks", sum(map(len, hosts.values())), event.place)
        job.learn("hosts", tuple(hosts), event.place)
    _options(job, event, words)


def _hosts(world: str) -> dict[str, list[Any]]:
    """The slots of each host, from the launcher's base64."""
    try:
        data = json.loads(base64.urlsafe_b64decode(world + "=" * (-len(world) % 4)))
    except ValueError:
        return {}
    return {str(host): slots for host, slots in data.items() if isinstance(slots, list)} if isinstance(data, dict) else {}


def _spawned(job: LoggedJob, event: LogEvent) -> None:
    if "spawned" in job.facts:
        return
    words = _words(event.values["command"])
    if words:
        job.learn("spawned", words, event.place)
        _options(job, event, words)


def _return_code(job: LoggedJob, event: LogEvent) -> None:
    """Facts from the command of a process that ended, if nothing said how the job was started."""
    command = _COMMAND.search(event.text)
    if command is None or "launch" in job.counts:
        return
    words = _words(command[1])
    local = next((word.partition("=")[2] for word in words if word.startswith(("--local_rank=", "--local-rank="))), "")
    if local.isdecimal():
        job.see_rank(int(local[:6]), event.place)
    _options(job, event, words)


def _words(text: str) -> list[str]:
    """The words of a command that is printed as a list of Python; empty if it is none."""
    try:
        words = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(word) for word in words] if isinstance(words, list) else []


def _displaced(words: list[str]) -> tuple[str, str] | None:
    """What a command starts with Python in the place of the program, and the program, which it passes on; None for others."""
    begin = next((at + 1 for at, word in enumerate(words) if word == LAUNCHER), 0)
    options = words[begin : begin + MOST_OPTIONS] if begin else words[1 : MOST_OPTIONS + 1]
    if {"-m", "--module", "--no_python"} & set(options) or not words or "python" not in words[0]:
        return None
    started, *passed = [word for word in options if not word.startswith("-")] or [""]
    given = passed[0] if passed else ""
    return (started, given) if given.endswith(".py") and started and not started.endswith((".py", ".pyc", ".pyz")) else None


def _options(job: LoggedJob, event: LogEvent, words: list[str]) -> None:
    """Facts from the options of the program."""
    job.learn("displaced", _displaced(words), event.place)
    split = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    named = {part[2:].replace("-", "_") for part in split if part.startswith("--")}
    if named >= OF_TRAINING_ARGUMENTS and not any(name.startswith("deepspeed") for name in named):
        names_file = any(part.endswith((".json", ".yaml", ".yml")) for part in split)
        job.learn("no_config_passed", None if names_file else True, event.place)
    for option, value in pairwise([*split, "--"]):
        name = option.removeprefix("--").replace("-", "_") if option.startswith("--") else ""
        _given(job, event, name, value)


def _printed(job: LoggedJob, event: LogEvent) -> None:
    """Facts from arguments that a program prints as Python shows them: only those whose defaults say what runs, too."""
    for name, text in _PRINTED.findall(event.values["arguments"]):
        value = text.strip("'\"")
        if value not in ("None", "") and OPTIONS.get(name) != "length" and (name, value) != ("zero_stage", "0"):
            _given(job, event, name, value)


_PRINTED = re.compile(r"(?<![\w.])(\w+)=('[^'\n]*'|\"[^\"\n]*\"|[\w./-]+)")


def _given(job: LoggedJob, event: LogEvent, name: str, value: str) -> None:
    """The fact from an argument with its value."""
    if name == "gradient_checkpointing" and value.lower() != "false":
        job.learn("checkpointing", value=True, place=event.place)
    elif name in ("bf16", "fp16") and value.lower() != "false":
        job.learn("dtype", "bfloat16" if name == "bf16" else "float16", event.place)
    elif name in OPTIONS and not value.startswith("-"):
        _option(job, event, OPTIONS[name], value)


def _option(job: LoggedJob, event: LogEvent, name: str, value: str) -> None:
    if name == "config_path":
        job.learn(name, value if value.endswith((".json", ".hjson")) else None, event.place)
    elif name in ("model_name", "optim"):
        job.learn(name, value, event.place)
    elif value.isdecimal() and (name != "stage" or int(value) <= 3):
        job.learn(name, int(value), event.place)


def _machines(job: LoggedJob, event: LogEvent) -> None:
    nodes, local = event.number("nodes"), event.number("local")
    job.learn("nodes", nodes, event.place)
    if nodes and local:
        job.learn("ranks", nodes * local, event.place)


OF_TRAINER = ("|trainer.py", "Number of trainable parameters = ", "train_runtime", "'epoch': ")
"""What only the Trainer of transformers prints. Its title "Running training" and its sizes are those of many programs."""


def _trainer(job: LoggedJob, event: LogEvent) -> None:
    """The loader. Programs with a loop of their own copy what the Trainer prints before it trains."""
    if any(text in event.text for text in OF_TRAINER) and not job.get("megatron"):
        job.learn("integration", "transformers", event.place)
        job.learn("loader_by_format", value=True, place=event.place)
    if "***** Running training *****" in event.text and "trainer.py" in event.text:
        job.learn("began", value=True, place=event.place)  # the engine exists by then


def _lightning(job: LoggedJob, event: LogEvent) -> None:
    """A line of Lightning. Its programs may print what the Trainer prints, too; no program of the Trainer prints these."""
    job.learn("integration", "lightning", event.place, again=True)


def _label(job: LoggedJob, event: LogEvent) -> None:
    label = event.values["label"]
    if label.startswith(("Stage 3 initialize", "DeepSpeedZeRoOffload")):
        job.learn("stage", 3, event.place)
    elif label.startswith("After initializing ZeRO optimizer"):
        job.learn("partitions", value=True, place=event.place)


def _oom(job: LoggedJob, event: LogEvent) -> None:
    match = re.search(r"(?:total capacity of |; )(\d+(?:\.\d+)?) GiB(?: total capacity)?", event.values.get("rest", ""))
    if match:
        job.learn("gpu_capacity", float(match[1]), event.place)


def _rank_mention(job: LoggedJob, event: LogEvent) -> None:
    job.see_rank(event.number("rank"), event.place)


def _watchdog(job: LoggedJob, event: LogEvent) -> None:
    """The size of the process group of a collective, which tells how many ranks there are at least."""
    small, large = sorted((event.number("into") or 0, event.number("out") or 0))
    if WHOLE_AND_PARTS.search(event.values["operation"]) and 0 < small < large and large % small == 0:
        job.see_rank(large // small - 1, event.place)


def _process_started(job: LoggedJob, event: LogEvent) -> None:
    """A line that each process prints once, as it starts. What starts after a step or an end is a process of another run."""
    if not BEGUN.isdisjoint(job.counts):
        return
    job.learn("processes", (job.get("processes") or 0) + 1, event.place, again=True)


def _failed_rank(job: LoggedJob, event: LogEvent) -> None:
    job.see_rank(event.number("rank"), event.place)


def _checkpointing(job: LoggedJob, event: LogEvent) -> None:
    job.learn("checkpointing", value=True, place=event.place)


def _raised(job: LoggedJob, event: LogEvent) -> None:
    """An exception in an optimizer on the CPU, or in the code of a ZeRO stage. An import runs through these files at every stage."""
    files = [frame.file.replace("\\", "/") for frame in event.frames if not frame.function.startswith(("<module>", "estimate_"))]
    if any(file.endswith(OF_STAGE_3) for file in files):
        job.learn("stage", 3, event.place)
    elif any(file.endswith("runtime/zero/stage_1_and_2.py") for file in files):
        job.learn("partitions", value=True, place=event.place)
    loader = loader_in(event.frames)
    job.learn("integration", loader, event.place, again=loader == "lightning")
    job.learn("loader_in_frames", loader, event.place)
    if any(file.endswith(("ops/adam/cpu_adam.py", "ops/lion/cpu_lion.py", "ops/adagrad/cpu_adagrad.py")) for file in files):
        job.learn("offloads_optimizer", value=True, place=event.place)


_OF_LIGHTNING = re.compile(r"(?:lightning/pytorch|pytorch_lightning|lightning/fabric|lightning_fabric)/(?:\w+/|fabric\.py|wrappers\.py)")
_OF_TRAINERS = re.compile(r"(?:^|/)(?:transformers|trl)/")
_OF_ENGINE = re.compile(r"deepspeed/(?:__init__\.py:initialize|runtime/engine\.py:(?:backward|step|save_checkpoint|load_checkpoint))$")


def loader_in(frames: Sequence[Frame]) -> str | None:
    """The loader of a config, as the frames of an error show it: the library that drives the training, or the program that calls
    DeepSpeed itself. An import or a line of a model runs under any loader.
    """
    places = [frame.place.replace("\\", "/") for frame in frames]
    if any(place.partition(":")[0].endswith("transformers/trainer.py") for place in places):
        return "transformers"
    if any(_OF_LIGHTNING.search(place) and not place.endswith(":<module>") for place in places):
        return "lightning"
    if any(_OF_TRAINERS.search(place) for place in places):
        return None
    if any(place.endswith("accelerate/accelerator.py:_prepare_deepspeed") for place in places):
        return "accelerate"
    calls = (number for number, place in enumerate(places) if number and _OF_ENGINE.search(place))
    caller = next(calls, 0) - 1
    return "deepspeed" if caller >= 0 and not is_library(frames[caller]) else None


def _extensions(job: LoggedJob, event: LogEvent) -> None:
    """An op of DeepSpeed is being built or loaded in a folder, until the line of `_operation` says that it is."""
    job.learn("building", event.values["folder"], event.place, again=True)


def _operation(job: LoggedJob, event: LogEvent) -> None:
    job.facts.pop("building", None)
    if event.values["operation"].endswith(("_adam", "_adagrad", "_lion", "_lamb")):
        job.learn("optimizer_op", event.values["operation"], event.place)
    if event.values["operation"] in ("cpu_adam", "cpu_adagrad", "cpu_lion"):
        job.learn("offloads_optimizer", value=True, place=event.place)


def _trace_cache(job: LoggedJob, event: LogEvent) -> None:
    """A line that only the prefetch of ZeRO stage 3 prints."""
    job.learn("stage", 3, event.place)


def _offload(job: LoggedJob, event: LogEvent) -> None:
    if event.values["offload"] == "True":
        job.learn("offloads_optimizer", value=True, place=event.place)


FACTS: dict[str, Callable[[LoggedJob, LogEvent], None]] = {
    "release": _release,
    "installed": _release,
    "torch": _text("torch", "torch"),
    "gpu": _text("gpu", "gpu"),
    "gpu_total": _gpu_total,
    "config": _config,
    "attribute": _attribute,
    "mesh": _number("ranks", "ranks"),
    "mpi": _number("ranks", "ranks"),
    "ranks": _number("ranks", "ranks"),
    "return_code": _return_code,
    "machines": _machines,
    "zero": _zero,
    "optimizer": _text("optimizer", "optimizer"),
    "offload": _offload,
    "trace_cache": _trace_cache,
    "extensions": _extensions,
    "operation": _operation,
    "zero_init": _zero_init,
    "pipeline_stage": _number("params", "total"),
    "params": _params,
    "params_of_rank": _number("params_of_rank", "params"),
    "dimensions": _numbers(hidden="hidden", layers="layers", heads="heads", vocabulary="vocabulary"),
    "model": _model,
    "model_overrides": _model_overrides,
    "raised": _raised,
    "argument": _argument,
    "parallel": _parallel,
    "dtype": _text("dtype", "dtype"),
    "vocabulary": _number("vocabulary", "vocabulary"),
    "batch": _numbers(micro_batch="micro", accumulation="accumulation", total_batch="total"),
    "steps": _number("steps", "steps"),
    "length": _number("length", "length"),
    "sequence_parallel": _number("sequence", "sequence"),
    "checkpointing": _checkpointing,
    "trainer": _trainer,
    "lightning": _lightning,
    "finished": _trainer,
    "step": _trainer,
    "label": _label,
    "launch": _launch,
    "spawned": _spawned,
    "printed_arguments": _printed,
    "oom": _oom,
    "rank_mention": _rank_mention,
    "process_started": _process_started,
    "watchdog": _watchdog,
    "failed_rank": _failed_rank,
}
"""The function for each kind of event."""
