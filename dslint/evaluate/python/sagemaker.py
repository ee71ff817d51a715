"""The jobs that a program starts on SageMaker.

`PyTorch(entry_point="train.py", distribution={"torch_distributed": {"enabled": True}})`, and in later SDKs
`ModelTrainer(source_code=SourceCode(source_dir="src", entry_script="train.py"), distributed=Torchrun())`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.notes import RunCommand
from dslint.evaluate.python.sources import Sources
from dslint.evaluate.values import HOLE, Cells, Constant, DictValue, Object, Value, text_of
from dslint.source.tree import Span

_ESTIMATOR = re.compile(r"sagemaker\.(?:pytorch|huggingface)\.(?:\w+\.)*(?:PyTorch|HuggingFace)")

_TRAINER = re.compile(r"sagemaker\.(?:modules|train)\.(?:\w+\.)*ModelTrainer")
_PART = re.compile(r"sagemaker\.(?:modules|train|core)\.(?:\w+\.)*(SourceCode|Compute|Torchrun|MPI)")

_GPUS = (
    (re.compile(r"ml\.(?:p3\.16|p3dn\.24|p4de?\.24|p5(?:e|en)?\.48|g5\.48|g6e?\.48)xlarge"), 8),
    (re.compile(r"ml\.(?:p3\.8|g4dn\.12|g5\.(?:12|24)|g6e?\.(?:12|24))xlarge"), 4),
    (re.compile(r"ml\.(?:p3\.2|g4dn\.(?:2|4|8|16)?|g5\.(?:2|4|8|16)?|g6e?\.(?:2|4|8|16)?)xlarge"), 1),
)
"""The GPUs of instance types. Source: aws.amazon.com/sagemaker/pricing, accelerated computing."""


def is_estimator(name: str) -> bool:
    """Whether a class is an estimator that starts a program with PyTorch, or a `ModelTrainer`."""
    return _ESTIMATOR.fullmatch(name) is not None or _TRAINER.fullmatch(name) is not None


def part_of(call: CallOf) -> Object | None:
    """What a `ModelTrainer` is made of: its code, its machines and its launcher, with their arguments as attributes."""
    match = _PART.fullmatch(call.name)
    if match is None:
        return None
    cells = Cells(0)
    cells.update({name: given.value for name, given in call.keywords.items()})
    return Object(match[1], cells, about=call)


def job_of(call: CallOf, sources: Sources) -> Iterator[RunCommand]:
    """The command that an estimator or a `ModelTrainer` starts in its source folder.

    Source: sagemaker-training-toolkit, torch_distributed.py, TorchDistributedRunner._create_command; entry_point.py.
    """
    if _TRAINER.fullmatch(call.name) is not None:
        yield from _job_of_trainer(call, sources)
        return
    entry = call.argument("entry_point")
    if entry is None or not isinstance(entry.value, Constant) or "git_config" in call.keywords:  # the program is in another repository
        return
    folder, flags = call.get("source_dir"), _flags(call.get("hyperparameters"))
    yield _command(" ".join([*_launcher(call), shlex.quote(str(entry.value.value)), *flags]), folder, entry, sources)


def _command(text: str, folder: Value | None, at: Argument, sources: Sources) -> RunCommand:
    place = f"cd {_word(folder)} && " if folder is not None and text_of(folder) not in ("", ".", "./", "None") else ""
    source = sources.at(at.span.start)
    return RunCommand(place + text, source.shown, Span(at.span.start - source.base, at.span.end - source.base))


def _job_of_trainer(call: CallOf, sources: Sources) -> Iterator[RunCommand]:
    """The command of a `ModelTrainer`: that of its source code, or its script with the launcher that it names.

    Source: sagemaker-python-sdk, modules/train/container_drivers: torchrun_driver.py, create_commands, and basic_script_driver.py.
    """
    code = call.argument("source_code")
    cells = code.value.cells if code is not None and isinstance(code.value, Object) and code.value.kind == "SourceCode" else None
    if code is None or cells is None:
        return
    script, command = cells.get("entry_script"), cells.get("command")
    if isinstance(script, Constant) and isinstance(script.value, str):
        words = [*_launcher_of_trainer(call, script.value), shlex.quote(script.value), *_flags(call.get("hyperparameters"))]
        yield _command(" ".join(words), cells.get("source_dir"), code, sources)
    elif isinstance(command, Constant) and isinstance(command.value, str):
        yield _command(command.value, cells.get("source_dir"), code, sources)


def _launcher_of_trainer(call: CallOf, script: str) -> list[str]:
    distributed, compute = call.get("distributed"), call.get("compute")
    if distributed is None:
        return ["bash" if script.endswith(".sh") else "python"]
    if not isinstance(distributed, Object) or distributed.kind != "Torchrun":
        return ["mpirun", "python"]
    machines = compute.cells if isinstance(compute, Object) else Cells(0)
    ranks = distributed.cells.get("process_count_per_node")
    return _torchrun(machines.get("instance_count"), machines.get("instance_type"), ranks)


def _launcher(call: CallOf) -> list[str]:
    """The launcher: torchrun on all GPUs of all machines, or one process on each machine. Other ways to distribute use mpirun."""
    distribution = call.get("distribution")
    if not _is_on(distribution, "torch_distributed"):
        return ["mpirun", "python"] if distribution is not None else ["python"]
    return _torchrun(call.get("instance_count"), call.get("instance_type"))


def _torchrun(count: Value | None, kind: Value | None, ranks: Value | None = None) -> list[str]:
    gpus = next((str(number) for pattern, number in _GPUS if pattern.fullmatch(text_of(kind or Constant("")))), HOLE)
    each = gpus if ranks is None or text_of(ranks) == "None" else _word(ranks)
    return ["torchrun", "--nnodes", _word(count) if count is not None else HOLE, "--nproc_per_node", each]


def _word(value: Value) -> str:
    return shlex.quote(str(value.value)) if isinstance(value, Constant) else text_of(value)


def _is_on(distribution: Value | None, name: str) -> bool:
    table = distribution.cells.get(name) if isinstance(distribution, DictValue) else None
    inner = table.value if table is not None else None
    enabled = inner.cells.get("enabled") if isinstance(inner, DictValue) else None
    return enabled is not None and isinstance(enabled.value, Constant) and enabled.value.value is True


def _flags(hyperparameters: Value | None) -> list[str]:
    """The flags of the program: one for each hyperparameter, and something unknown if there may be more."""
    if hyperparameters is None:
        return []
    if not isinstance(hyperparameters, DictValue):
        return [HOLE]
    found = [word for name, entry in hyperparameters.cells.items() for word in (f"--{name}", _word(entry.value))]
    return [*found, HOLE] if "more" in hyperparameters.open else found
