"""The ranks and the GPUs of a job file: what AzureML, Determined, SkyPilot and Kubernetes are to start it on."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import replace

from dslint.evaluate.shell.pieces import ShellSource
from dslint.facts.gpus import Gpu
from dslint.job.arguments import SourcedValue
from dslint.job.model import JobSize, Launch
from dslint.setups.limits import gpu_of_job
from dslint.setups.ranks import SELECTING
from dslint.source.integers import integer
from dslint.source.ranges import range_of
from dslint.source.tree import Mapping, Member, Node, Scalar

_TORCHRUN = ("torchrun", "accelerate")


def size_of(path: Items[Mapping], source: ShellSource) -> JobSize:
    """The size of a job, by the mapping with its command and those around it, the outermost first."""
    node = path[-1]
    azure = _of_azure(node, source)
    if azure is not None:
        return azure
    slots = _number(node, ("resources", "slots_per_trial"), source)
    if slots is not None:
        return JobSize(ranks=slots, gpus=slots, slots=slots)
    if node.get("run") is not None and node.get("resources") is not None:
        sky, nodes = _accelerators(node, source), _count(node, ("num_nodes",))
        machines = _number(node, ("num_nodes",), source)
        several = machines if machines is not None and machines.value > 1 else None
        return JobSize(gpus=_times(sky, nodes), nodes=nodes, on_each=several, gpu=_kind_of_accelerators(node, source))
    limit, pods = container_gpus(node, source), _pods(path)
    mpi = _of_mpi(path, source)
    if mpi is not None:
        return mpi
    ranks, several = _by_operator(path, source, pods), _workers(path, source, pods)
    gpu = _selected_gpu(path, source)
    has_size = limit is not None or ranks is not None or several is not None
    return JobSize(gpus=_times(limit, pods), nodes=pods, ranks=ranks, on_each=several, gpu=gpu) if has_size else JobSize(gpu=gpu)


def _of_azure(node: Mapping, source: ShellSource) -> JobSize | None:
    """The processes that AzureML starts: one on each machine if their number is not written. Without `distribution` it starts one."""
    kind = _at(node, ("distribution", "type"))
    named = kind.value.value if kind is not None and isinstance(kind.value, Scalar) else None
    if named not in ("pytorch", "mpi"):
        is_azures = isinstance(node.get("code"), Member) and node.get("command") is not None
        return JobSize(nodes=_count(node, ("resources", "instance_count"))) if is_azures else None
    assert kind is not None
    written = _at(node, ("distribution", "process_count_per_instance"))
    each = _number(node, ("distribution", "process_count_per_instance"), source) if written else _place(kind, 1, "type", source)
    nodes = _count(node, ("resources", "instance_count"))
    return JobSize(ranks=_times(each, nodes), nodes=nodes)


def _of_mpi(path: Items[Mapping], source: ShellSource) -> JobSize | None:
    """The slots of an MPIJob, which its operator writes into the hostfile: one for each worker if their number is not written.

    Source: kubeflow/mpi-operator 0.6, pkg/controller/mpi_job_controller.go, newConfigMap.
    """
    for node in reversed(path):
        workers = _at(node, ("mpiReplicaSpecs", "Worker", "replicas"))
        count = _whole(workers.value) if workers is not None else None
        if workers is not None and count:
            each = _number(node, ("slotsPerWorker",), source) or _place(workers, 1, "replicas", source)
            return JobSize(gpus=_times(each, count), nodes=count, hostfile=HOSTFILE)
    return None


HOSTFILE = "/etc/mpi/hostfile"
"""The hostfile that the operator of MPIJobs writes."""


def _by_operator(path: Items[Mapping], source: ShellSource, pods: int | None) -> SourcedValue | None:
    """The ranks of a program that a PyTorchJob starts without a launcher: the operator sets RANK and WORLD_SIZE where there is a master.

    Source: kubeflow/training-operator 1.7, pkg/controller.v1/pytorch/envvar.go, setPodEnv.
    """
    for node in reversed(path):
        master = _at(node, ("pytorchReplicaSpecs", "Master"))
        if master is not None and node.get("nprocPerNode") is None and node.get("elasticPolicy") is None and pods:
            return replace(_place(master, pods, "replicas", source), raw=str(pods))
    return None


def _workers(path: Items[Mapping], source: ShellSource, pods: int | None) -> SourcedValue | None:
    """The pods of a PyTorchJob, if they are several, at the number of its workers."""
    for node in reversed(path):
        workers = _at(node, ("pytorchReplicaSpecs", "Worker", "replicas"))
        if workers is not None and pods is not None and pods > 1:
            return _place(workers, pods, "replicas", source)
    return None


def set_by_platform(path: Items[Mapping]) -> dict[str, str]:
    """The variables that a platform sets for a command: from those of Kubeflow's operators torchrun takes its ranks.

    Sources: kubeflow/training-operator 1.7, pkg/controller.v1/pytorch/envvar.go; kubeflow/trainer 2, the plugin torch;
    docs.skypilot.co, "Environment variables".
    """
    here = path[-1]
    if here.get("run") is not None and here.get("resources") is not None:
        each, nodes = _each_accelerators(here), _count(here, ("num_nodes",))
        counts = {"SKYPILOT_NUM_GPUS_PER_NODE": each, "SKYPILOT_NUM_NODES": nodes}
        return {name: str(count) for name, count in counts.items() if count is not None}
    for node in reversed(path):
        if node.get("pytorchReplicaSpecs") is not None:
            member = node.get("nprocPerNode")
            pods = _pods(path) if node.get("elasticPolicy") is None else None
            found = {"PET_NNODES": _text(pods)}
            return found if member is None else {**found, "PET_NPROC_PER_NODE": _processes(member.value)}
        if node.get("runtimeRef") is not None:  # the runtime says what the job leaves out
            members = {"PET_NNODES": _at(node, ("trainer", "numNodes")), "PET_NPROC_PER_NODE": _at(node, ("trainer", "numProcPerNode"))}
            return {name: _processes(member.value) if member is not None else _NOT_KNOWN for name, member in members.items()}
    return {}


def _processes(node: Node) -> str:
    """A number of processes, or the word for one on each GPU."""
    is_word = isinstance(node, Scalar) and node.value in _PER_GPU
    return str(node.value) if is_word and isinstance(node, Scalar) else _text(_whole(node))


_PER_GPU = ("gpu", "auto")
"""Words for a process on each GPU. Source: torch/distributed/run.py, determine_local_world_size."""

_NOT_KNOWN = "?"


def _text(number: int | None) -> str:
    return str(number) if number is not None else _NOT_KNOWN


def sized(launch: Launch, size: JobSize, *, by_platform: bool) -> Launch:
    """A launch with what the job file tells of its ranks and GPUs. `by_platform` says that the platform starts each rank itself."""
    if size.on_each is not None and not by_platform:
        launch = replace(launch, on_each=size.on_each)
    if launch.gpus is None and size.gpus is not None and launch.launcher in _TORCHRUN:
        launch = replace(launch, gpus=size.gpus.value, gpus_given=size.gpus)
    if launch.world_size is not None:
        from_slots = size.hostfile and by_platform  # mpirun, which fills the slots of the hostfile in order
        return replace(launch, nodes=launch.nodes or (size.nodes if from_slots else None))
    hostfile = launch.flags.get("hostfile")
    if hostfile is not None and hostfile.value == size.hostfile and launch.flags.keys().isdisjoint(SELECTING):
        return _with(launch, size.gpus, size.nodes)
    each = launch.given.value if launch.given is not None else None
    if launch.launcher == "torchrun" and each in _PER_GPU and size.gpus is not None and size.nodes:
        return _with(launch, _times(replace(size.gpus, value=size.gpus.value // size.nodes), launch.nodes), launch.nodes)
    takes_all = launch.launcher == "deepspeed" and launch.flags.keys().isdisjoint(("hostfile", *SELECTING)) and launch.visible is None
    if takes_all and size.nodes == 1:
        return _with(launch, size.gpus, 1)
    return _with(launch, size.ranks if by_platform else None, size.nodes if by_platform else None)


def _with(launch: Launch, given: SourcedValue | None, nodes: int | None) -> Launch:
    if given is None:
        return replace(launch, nodes=launch.nodes or nodes)
    return replace(launch, world_size=given.value, nodes=nodes or launch.nodes, given=given)


def _times(given: SourcedValue | None, times: int | None) -> SourcedValue | None:
    return replace(given, value=given.value * times) if given is not None and times is not None else None


def _at(node: Mapping, path: tuple[str, ...]) -> Member | None:
    member: Member | None = None
    here: Node | None = node
    for name in path:
        member = here.get(name) if isinstance(here, Mapping) else None
        here = member.value if member is not None else None
    return member


def _place(member: Member, value: int | Gpu, name: str, source: ShellSource) -> SourcedValue:
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
    """The GPUs on each machine of SkyPilot, if all kinds that it may choose have the same number of them."""
    member, each = _at(node, ("resources", "accelerators")), _each_accelerators(node)
    return _place(member, each, "accelerators", source) if member is not None and each else None


def _kind_of_accelerators(node: Mapping, source: ShellSource) -> SourcedValue | None:
    """The kind of GPU of `accelerators: V100:8`, if there is one kind."""
    member = _at(node, ("resources", "accelerators"))
    inner = member.value if member is not None else None
    if isinstance(inner, Mapping) and len(inner.members) == 1:
        name: object = inner.members[0].key.value
    else:
        name = inner.value if isinstance(inner, Scalar) else None
    gpu = gpu_of_job(name.partition(":")[0]) if isinstance(name, str) else None
    return _place(member, gpu, "accelerators", source) if member is not None and gpu is not None else None


_GPU_LABELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator", "accelerator")
"""The labels by which a pod selects nodes with a kind of GPU: of NVIDIA's GPU feature discovery, of GKE, of EKS, and a usual one."""


def _selected_gpu(path: Items[Mapping], source: ShellSource) -> SourcedValue | None:
    """The kind of GPU of the nodes that a pod selects."""
    for node in reversed(path):
        for label in _GPU_LABELS:
            member = _at(node, ("nodeSelector", label))
            value = member.value.value if member is not None and isinstance(member.value, Scalar) else None
            gpu = gpu_of_job(value) if isinstance(value, str) else None
            if member is not None and gpu is not None:
                return _place(member, gpu, label, source)
    return None


def _each_accelerators(node: Mapping) -> int | None:
    """`A100:8`, `A100` for one; a mapping, a list or a set of kinds to choose from."""
    member = _at(node, ("resources", "accelerators"))
    inner = member.value if member is not None else None
    if isinstance(inner, Scalar):
        return _number_of(inner.value)
    if isinstance(inner, Mapping):  # `{A100: 8}`, and a set `{A100:8, H100:8}`, whose members have no value
        counts = [_number_of(one.key.value) if _is_null(one.value) else _whole(one.value) for one in inner.members]
    else:
        counts = [_number_of(item.value) if isinstance(item, Scalar) else None for item in inner.items] if inner is not None else []
    return counts[0] if counts and len(set(counts)) == 1 else None


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _number_of(text: object) -> int | None:
    kind, _, number = text.partition(":") if isinstance(text, str) else ("", "", "")
    return (integer(number) if number else 1) if kind and "{" not in kind else None


def container_gpus(container: Mapping, source: ShellSource) -> SourcedValue | None:
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
        if node.get("mpiReplicaSpecs") is not None or node.get("replicaSpecs") is not None:
            return None
    job = next((node for node in path if node.get("template") is not None), None)
    if job is None:
        return 1
    if job.get("replicas") is not None or job.get("replicatedJobs") is not None:
        return None
    return _count(job, ("parallelism",))
