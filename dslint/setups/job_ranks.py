"""The ranks and the GPUs of a job file: what AzureML, Determined, SkyPilot and Kubernetes are to start it on."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import replace

from dslint.evaluate.shell.pieces import ShellSource
from dslint.job.arguments import SourcedValue
from dslint.job.model import JobSize, Launch
from dslint.setups.ranks import SELECTING
from dslint.source.integers import integer
from dslint.source.ranges import range_of
from dslint.source.tree import Mapping, Member, Node, Scalar

_TORCHRUN = ("torchrun", "accelerate")


def size_of(path: Items[Mapping], source: ShellSource) -> JobSize:
    """The size of a job, by the mapping with its command and those around it, the outermost first."""
    node = path[-1]
    azure = _number(node, ("distribution", "process_count_per_instance"), source)
    if azure is not None:
        nodes = _count(node, ("resources", "instance_count"))
        return JobSize(ranks=_times(azure, nodes), nodes=nodes)
    slots = _number(node, ("resources", "slots_per_trial"), source)
    if slots is not None:
        return JobSize(ranks=slots, gpus=slots)
    sky = _accelerators(node, source)
    if sky is not None:
        nodes = _count(node, ("num_nodes",))
        return JobSize(gpus=_times(sky, nodes), nodes=nodes)
    limit = _container_gpus(node, source)
    return JobSize(gpus=_times(limit, _pods(path))) if limit is not None else JobSize()


def set_by_operator(path: Items[Mapping]) -> dict[str, str]:
    """The variables from which torchrun takes its ranks, as an operator of Kubeflow sets them for a container.

    Sources: kubeflow/training-operator 1.7, pkg/controller.v1/pytorch/envvar.go; kubeflow/trainer 2, the plugin torch.
    """
    for node in reversed(path):
        if node.get("pytorchReplicaSpecs") is not None:
            each = node.get("nprocPerNode")
            pods = _pods(path) if node.get("elasticPolicy") is None else None
            found = {"PET_NNODES": _text(pods)}
            return found if each is None else {**found, "PET_NPROC_PER_NODE": _text(_whole(each.value))}
        if node.get("runtimeRef") is not None:  # the runtime says what the job leaves out
            nodes, each = (_at(node, ("trainer", name)) for name in ("numNodes", "numProcPerNode"))
            counts = {"PET_NNODES": nodes, "PET_NPROC_PER_NODE": each}
            return {name: _text(_whole(member.value) if member is not None else None) for name, member in counts.items()}
    return {}


_NOT_KNOWN = "?"


def _text(number: int | None) -> str:
    return str(number) if number is not None else _NOT_KNOWN


def sized(launch: Launch, size: JobSize, *, by_platform: bool) -> Launch:
    """A launch with what the job file tells of its ranks and GPUs. `by_platform` says that the platform starts each rank itself."""
    if launch.gpus is None and size.gpus is not None and launch.launcher in _TORCHRUN:
        launch = replace(launch, gpus=size.gpus.value, gpus_given=size.gpus)
    if launch.world_size is not None:
        return launch
    given = size.ranks if by_platform else None
    takes_all = launch.launcher == "deepspeed" and launch.flags.keys().isdisjoint(("hostfile", *SELECTING)) and launch.visible is None
    if takes_all and size.nodes == 1:
        given = size.gpus
    return replace(launch, world_size=given.value, nodes=size.nodes or launch.nodes, given=given) if given is not None else launch


def _times(given: SourcedValue | None, times: int | None) -> SourcedValue | None:
    return replace(given, value=given.value * times) if given is not None and times is not None else None


def _at(node: Mapping, path: tuple[str, ...]) -> Member | None:
    member: Member | None = None
    here: Node | None = node
    for name in path:
        member = here.get(name) if isinstance(here, Mapping) else None
        here = member.value if member is not None else None
    return member


def _place(member: Member, value: int, name: str, source: ShellSource) -> SourcedValue:
    node = member.value
    raw = node.raw if isinstance(node, Scalar) else source.document.text[slice(*node.span)]
    return SourcedValue(value, name, raw, source.shown, range_of(source.document, node.span), pointer=f"/{name}")


def _number(node: Mapping, path: tuple[str, ...], source: ShellSource) -> SourcedValue | None:
    member = _at(node, path)
    value = _whole(member.value) if member is not None else None
    return _place(member, value, path[-1], source) if member is not None and value else None


def _count(node: Mapping, path: tuple[str, ...]) -> int | None:
    """A number that is 1 if the key is not written, and None if it is not known."""
    member = _at(node, path)
    return 1 if member is None else _whole(member.value)


def _whole(node: Node) -> int | None:
    value = node.value if isinstance(node, Scalar) else None
    return integer(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None


def _accelerators(node: Mapping, source: ShellSource) -> SourcedValue | None:
    """The GPUs on each machine of SkyPilot: `A100:8`, `A100` for one, or a mapping with one kind."""
    member = _at(node, ("resources", "accelerators"))
    if member is None:
        return None
    inner = member.value
    if isinstance(inner, Scalar) and isinstance(inner.value, str) and "{" not in inner.value:
        kind, _, number = inner.value.partition(":")
        value = integer(number) if number else 1
        return _place(member, value, "accelerators", source) if value and kind else None
    value = _whole(inner.members[0].value) if isinstance(inner, Mapping) and len(inner.members) == 1 else None
    return _place(member, value, "accelerators", source) if value else None


def _container_gpus(container: Mapping, source: ShellSource) -> SourcedValue | None:
    """The GPUs of a container of Kubernetes: the limit `nvidia.com/gpu`, or that of a kind of GPU."""
    member = _at(container, ("resources", "limits"))
    limits = member.value if member is not None else None
    for one in limits.members if isinstance(limits, Mapping) else ():
        vendor, _, kind = one.key.value.partition("/")
        value = _whole(one.value)
        if value and kind and vendor in ("nvidia.com", "amd.com") and "mig" not in kind:
            return _place(one, value, one.key.value, source)
    return None


def _pods(path: Items[Mapping]) -> int | None:
    """The number of pods with a container that a job of Kubernetes starts; None if it is not known.

    An operator of Kubeflow starts a master and workers, which must all have the same command; the containers of other jobs are alike.
    """
    for node in reversed(path):
        member = node.get("pytorchReplicaSpecs")
        if member is not None:
            specs = [one.value for one in member.value.members] if isinstance(member.value, Mapping) else []
            counts = [_count(one, ("replicas",)) if isinstance(one, Mapping) else None for one in specs]
            return sum(count for count in counts if count) if counts and None not in counts else None
        if node.get("mpiReplicaSpecs") is not None:
            return None
    job = next((node for node in path if node.get("template") is not None), None)
    if job is None:
        return 1
    if job.get("replicas") is not None or job.get("replicatedJobs") is not None:
        return None
    return _count(job, ("parallelism",))
