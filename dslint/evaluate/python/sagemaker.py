"""The jobs that a program starts on SageMaker: `PyTorch(entry_point="train.py", distribution={"torch_distributed": {"enabled": True}})`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.notes import Command
from dslint.evaluate.python.sources import Sources
from dslint.evaluate.values import HOLE, Constant, DictValue, Value, text_of
from dslint.source.tree import Span

_ESTIMATOR = re.compile(r"sagemaker\.(?:pytorch|huggingface)\.(?:\w+\.)*(?:PyTorch|HuggingFace)")

_GPUS = (
    (re.compile(r"ml\.(?:p3\.16|p3dn\.24|p4de?\.24|p5(?:e|en)?\.48|g5\.48|g6e?\.48)xlarge"), 8),
    (re.compile(r"ml\.(?:p3\.8|g4dn\.12|g5\.(?:12|24)|g6e?\.(?:12|24))xlarge"), 4),
    (re.compile(r"ml\.(?:p3\.2|g4dn\.(?:2|4|8|16)?|g5\.(?:2|4|8|16)?|g6e?\.(?:2|4|8|16)?)xlarge"), 1),
)
"""The GPUs of instance types. Source: aws.amazon.com/sagemaker/pricing, accelerated computing."""


def is_estimator(name: str) -> bool:
    """Whether a class is an estimator that starts a program with PyTorch."""
    return _ESTIMATOR.fullmatch(name) is not None


def job_of(call: CallOf, sources: Sources) -> Iterator[Command]:
    """The command that an estimator starts in its source folder.

    Source: sagemaker-training-toolkit, torch_distributed.py, TorchDistributedRunner._create_command; entry_point.py.
    """
    entry = call.argument("entry_point")
    if entry is None or not isinstance(entry.value, Constant) or "git_config" in call.keywords:  # the program is in another repository
        return
    folder, flags = call.get("source_dir"), _flags(call.get("hyperparameters"))
    words = [*_launcher(call), shlex.quote(str(entry.value.value)), *flags]
    place = f"cd {_word(folder)} && " if folder is not None and text_of(folder) not in ("", ".", "./", "None") else ""
    source = sources.at(entry.span.start)
    yield Command(place + " ".join(words), source.shown, Span(entry.span.start - source.base, entry.span.end - source.base))


def _launcher(call: CallOf) -> list[str]:
    """The launcher: torchrun on all GPUs of all machines, or one process on each machine. Other ways to distribute use mpirun."""
    distribution = call.get("distribution")
    if not _is_on(distribution, "torch_distributed"):
        return ["mpirun", "python"] if distribution is not None else ["python"]
    count, kind = call.get("instance_count"), text_of(call.get("instance_type") or Constant(""))
    gpus = next((str(number) for pattern, number in _GPUS if pattern.fullmatch(kind)), HOLE)
    return ["torchrun", "--nnodes", _word(count) if count is not None else HOLE, "--nproc_per_node", gpus]


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
