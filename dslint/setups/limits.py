"""What a job may use on a machine: host memory, which its #SBATCH lines request or which limits its container, and the kind of its GPUs."""

from __future__ import annotations

import re

from dslint.evaluate.shell.pieces import ShellSource
from dslint.evaluate.shell.script import Script, gpus_per_node
from dslint.facts.gpus import Gpu, UnknownGpu, gpu_named
from dslint.job.arguments import SourcedValue
from dslint.source.integers import integer
from dslint.source.ranges import range_of
from dslint.source.tree import Mapping, Scalar

_SLURM_SIZE = re.compile(r"(\d{1,15})([KMGT]?)B?", re.IGNORECASE)

_KUBERNETES_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)(Ki|Mi|Gi|Ti|k|M|G|T)?")

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "": 2**20}
"""The units of Slurm. A number without one is in MiB."""

_QUANTITIES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, None: 1}


def slurm_limit(script: Script) -> SourcedValue | None:
    """The bytes that #SBATCH lines request for each node; None if they do not tell."""
    slurm = {name: value for name, (value, _) in script.slurm.items()}
    if {"hetjob", "packjob"} & slurm.keys():
        return None
    for name, times in (("mem", 1), ("mem-per-gpu", gpus_per_node(slurm)), ("mem-per-cpu", _cpus_per_node(slurm))):
        match = _SLURM_SIZE.fullmatch(slurm.get(name, ""))
        limit = int(match[1]) * _UNITS[match[2].upper()] * (times or 0) if match else 0
        if limit:  # `--mem=0` requests all memory of a node
            value, span = script.slurm[name]
            document = script.source.document
            return SourcedValue(limit, f"#SBATCH --{name}", value, script.source.shown, range_of(document, span))
    return None


def _cpus_per_node(slurm: dict[str, str]) -> int | None:
    """The CPUs of a job on a node; None if #SBATCH lines leave that to the cluster."""
    each, per_gpu, gpus = integer(slurm.get("cpus-per-task", "")), integer(slurm.get("cpus-per-gpu", "")), gpus_per_node(slurm)
    if "exclusive" in slurm:
        return None
    if per_gpu and gpus:
        return per_gpu * gpus
    tasks = tasks_per_node(slurm)
    return each * tasks if each and tasks else None


def tasks_per_node(slurm: dict[str, str]) -> int | None:
    """The tasks on a node; None if they are not spread evenly for certain."""
    if "ntasks-per-node" in slurm:
        return integer(slurm["ntasks-per-node"])
    if "ntasks" not in slurm:
        return 1 if "ntasks-per-gpu" not in slurm else None
    tasks, nodes = integer(slurm["ntasks"]), integer(slurm.get("nodes", "1" if slurm["ntasks"] == "1" else ""))
    return tasks // nodes if tasks and nodes and tasks % nodes == 0 else None


_KINDS = (
    ("gpus-per-node", re.compile(r"([\w.-]+):\d+")),
    ("gpus-per-task", re.compile(r"([\w.-]+):\d+")),
    ("gpus", re.compile(r"([\w.-]+):\d+")),
    ("gres", re.compile(r"gpu:([\w.-]+)(?::\d+)?")),
    ("constraint", re.compile(r"([\w.-]+)")),
)
"""The options of Slurm with a kind of GPU, as its clusters name them (`v100`, `a100_80gb`); a constraint is any word of a cluster."""


def slurm_gpu(script: Script) -> SourcedValue | None:
    """The kind of GPU that #SBATCH lines request, if it is known and the only one."""
    if {"hetjob", "packjob"} & script.slurm.keys():
        return None
    found = []
    for name, kind in _KINDS:
        if name not in script.slurm:
            continue
        value, span = script.slurm[name]
        for match in filter(None, map(kind.fullmatch, (value or "").split(","))):
            if (gpu := gpu_of_job(match[1])) is not None:
                where = range_of(script.source.document, span)
                found.append(SourcedValue(gpu, f"#SBATCH --{name}", value, script.source.shown, where))
    return found[0] if len({one.value for one in found}) == 1 else None


def gpu_of_job(name: str) -> Gpu | None:
    """The GPU with a name in a job; None for one that is not known, as for a part of a GPU (`a100_1g.5gb`)."""
    try:
        return gpu_named(name)
    except UnknownGpu:
        return None


def container_limit(container: Mapping, source: ShellSource) -> SourcedValue | None:
    """The bytes in `resources.limits.memory` of a container of Kubernetes; None if it has no limit."""
    node = container
    for name in ("resources", "limits"):
        member = node.get(name)
        if member is None or not isinstance(member.value, Mapping):
            return None
        node = member.value
    member = node.get("memory")
    if member is None or not isinstance(member.value, Scalar):
        return None
    match = _KUBERNETES_SIZE.fullmatch(str(member.value.value).strip())
    limit = int(float(match[1]) * _QUANTITIES[match[2]]) if match else 0
    if not limit:
        return None
    raw, span = str(member.value.value), member.value.span
    return SourcedValue(limit, "limits.memory", raw, source.shown, range_of(source.document, span), pointer="/resources/limits/memory")
