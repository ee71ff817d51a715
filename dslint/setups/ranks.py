"""How many ranks a launch command starts, on how many machines, and which GPUs it may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from dslint.evaluate.shell.script import Script, gpus_per_node
from dslint.frameworks.base import Framework
from dslint.job.arguments import SourcedValue
from dslint.job.model import Launch
from dslint.setups.limits import slurm_limit
from dslint.source.integers import integer
from dslint.source.ranges import range_of

VISIBLE = "CUDA_VISIBLE_DEVICES"

_LONG_NAMES = {"i": "include", "e": "exclude", "H": "hostfile", "num_accelerators": "num_gpus"}
"""Other names of flags of DeepSpeed's launcher."""


SELECTING = ("include", "exclude", "num_gpus", "num_nodes")
"""Flags of DeepSpeed's launcher that select among the machines and the GPUs."""


OF_TORCHRUN = {"PET_NPROC_PER_NODE": "nproc_per_node", "PET_NNODES": "nnodes"}
"""The variables from which torchrun takes flags that are not given. Source: torch/distributed/argparse_util.py, env."""


def launch_of(
    launcher: str,
    flags: dict[str, SourcedValue],
    script: Script,
    visible: SourcedValue | None,
    memory: SourcedValue | None = None,
    environment: dict[str, SourcedValue] | None = None,
) -> Launch:
    """The number of ranks, the machines and the GPUs of a launch, as its flags, its #SBATCH lines and its environment tell. `memory` is the
    limit of its container.
    """
    set_by = {OF_TORCHRUN[name]: given for name, given in (environment or {}).items() if name in OF_TORCHRUN}
    named = {_LONG_NAMES.get(name, name): given for name, given in flags.items()}
    return replace(
        _started(launcher, {**set_by, **named}, script, visible), flags=named, visible=visible, memory=memory or slurm_limit(script)
    )


COUNTS = ("NPROC_PER_NODE", "NNODES")
"""The variables from which the commands of frameworks take the number of ranks on a machine and the number of machines."""


def framework_launch(
    framework: Framework,
    flags: Mapping[str, SourcedValue],
    environment: dict[str, SourcedValue],
    visible: SourcedValue | None,
    memory: SourcedValue | None,
) -> Launch | None:
    """The ranks that the command of a framework starts with torchrun; None for a framework that decides in another way.

    Source: llamafactory/launcher.py, launch; swift/cli/main.py, get_torchrun_args.
    """
    if framework.rank_flag and framework.rank_flag in flags:
        each = number_of(flags, framework.rank_flag)
        nodes = number_of(flags, framework.node_flag) if framework.node_flag in flags else 1
        world_size = each * nodes if each and nodes else None
        return Launch(framework.launcher, world_size, nodes, flags[framework.rank_flag], visible=visible, memory=memory)
    if not framework.starts_ranks:
        return Launch(framework.launcher, visible=visible, memory=memory) if framework.rank_flag else None
    each, nodes = number_of(environment, "NPROC_PER_NODE"), number_of(environment, "NNODES")
    nodes = 1 if "NNODES" not in environment else nodes
    given = environment.get("NPROC_PER_NODE")
    seen = Launch("torchrun", visible=visible).visible_gpus
    if given is None and seen and framework.starts_all:
        each, given = len(seen), visible
    return Launch("torchrun", each * nodes if each and nodes else None, nodes, given, visible=visible, memory=memory)


def _started(launcher: str, flags: dict[str, SourcedValue], script: Script, visible: SourcedValue | None) -> Launch:
    slurm = {name: value for name, (value, _) in script.slurm.items()}
    if launcher == "torchrun":
        each, nodes = number_of(flags, "nproc_per_node"), number_of(flags, "nnodes")
        nodes = 1 if "nnodes" not in flags else nodes
        given = flags.get("nproc_per_node")  # without it, the operator of Kubernetes may set PET_NPROC_PER_NODE
        return Launch(launcher, each * nodes if each and nodes else None, nodes, given, *_gpus(slurm, script))
    if launcher == "accelerate":
        number, machines = number_of(flags, "num_processes"), number_of(flags, "num_machines")
        return Launch(launcher, number, machines, flags.get("num_processes"), *_gpus(slurm, script))
    if launcher == "deepspeed":
        if "world_info" in flags:
            return Launch(launcher)  # `python -m deepspeed.launcher.launch`: the encoded world decides
        given = flags.get("include")
        if given is not None and isinstance(given.value, str):
            each = None if "hostfile" in flags or "exclusive" in slurm else gpus_per_node(slurm)
            return Launch(launcher, _included(given.value), len(given.value.split("@")), given, hosts={"localhost": each} if each else {})
        gpus, nodes = number_of(flags, "num_gpus"), number_of(flags, "num_nodes")
        if gpus and ("num_nodes" in flags or "hostfile" not in flags):
            return Launch(launcher, gpus * (nodes or 1), nodes or 1, flags["num_gpus"], *_gpus(slurm, script, nodes or 1))
        seen = Launch(launcher, visible=visible).visible_gpus
        if seen and flags.keys().isdisjoint(("hostfile", *SELECTING)):
            return Launch(launcher, len(seen), 1, visible)  # the launcher reads it as --include localhost:0,2
        return Launch(launcher)
    if launcher == "srun":
        nodes, each = _decimal(slurm.get("nodes")), _decimal(slurm.get("ntasks-per-node"))
        tasks = _decimal(slurm.get("ntasks")) or (nodes * each if nodes and each else None)
        name = "ntasks" if "ntasks" in script.slurm else "ntasks-per-node"
        if tasks and name in script.slurm and gpus_per_node(slurm) is not None:
            value, span = script.slurm[name]
            given = SourcedValue(tasks, f"--{name}", value, script.source.shown, range_of(script.source.document, span))
            return Launch(launcher, tasks, nodes, given, *_gpus(slurm, script))
    return Launch(launcher)


def _gpus(slurm: dict[str, str], script: Script, nodes: int | None = None) -> tuple[int | None, SourcedValue | None]:
    """The number of GPUs that #SBATCH lines request, in total or on some machines, and the line that says so."""
    each, nodes = gpus_per_node(slurm), nodes or _decimal(slurm.get("nodes"))
    line = script.slurm.get("gpus-per-node") or script.slurm.get("gres")
    if each is None or nodes is None or line is None or "exclusive" in slurm:
        return None, None  # with --exclusive a job has all GPUs of its nodes
    raw = re.split(r"\s+#", script.source.document.text[slice(*line[1])])[0]
    return each * nodes, SourcedValue(each * nodes, "--gpus-per-node", raw, script.source.shown, range_of(script.source.document, line[1]))


def number_of(flags: Mapping[str, SourcedValue], name: str) -> int | None:
    """The number that a flag gives; None if it gives none that is known."""
    given = flags.get(name)
    return _decimal(str(given.value)) if given is not None else None


def _decimal(text: str | None) -> int | None:
    return (integer(text) or None) if text else None


def _included(text: str) -> int | None:
    """How many GPUs `--include host:0,1@host2:2` selects; None if a host has no list of numbers, as a template has not."""
    slots = [slot for host in text.split("@") for slot in host.partition(":")[2].split(",")]
    return len(slots) if all(integer(slot.strip()) is not None for slot in slots) else None
