"""What this machine says of a job that starts on it: GPUs by `nvidia-smi`, host memory, and the variables of Slurm.

`nvidia-smi` is the only program that dslint starts besides the probe, and only for `dslint run`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dslint.facts.gpus import gpu_named, in_words
from dslint.record import Record
from dslint.source.integers import integer

QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")

PATIENCE = 3.0
"""The seconds that `nvidia-smi` may take. On a machine without persistence mode it loads the driver first."""

USABLE = 0.98
"""The share of the memory that `nvidia-smi` lists that a program gets: of 81,559 MiB of an H100, torch reports 80,998; of 81,920 MiB of an
A100, 81,037."""

HOSTFILE = "/job/hostfile"
"""The hostfile that the DeepSpeed launcher reads if no flag names one."""

_SELECTING = ("--num_gpus", "--num_nodes", "--hostfile", "-H", "--include", "-i", "--exclude", "-e", "--master_addr", "--no_ssh")


class Host(Record):
    """A machine: its GPUs with their memory in bytes, in the order of their numbers, and its memory in bytes; None is unknown."""

    gpus: tuple[tuple[str, int], ...] | None = None
    memory: int | None = None


class HostFact(NamedTuple):
    """A fact with what it was read from."""

    name: str
    value: object
    evidence: str


def this_host(environment: Mapping[str, str]) -> Host:
    """This machine, with the GPUs that a process with this environment sees."""
    return Host(_visible(_gpus(environment), environment), _memory(environment))


def facts_of(host: Host, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[HostFact]:
    """What the machine says of the job of a command. A batch job runs on other machines: of it nothing is known here."""
    program = os.path.basename(command[0]) if command else ""
    if program == "sbatch":
        return
    if host.gpus and len({name for name, _ in host.gpus}) == 1:
        name, memory = host.gpus[0]
        try:
            gpu = gpu_named(name)
        except ValueError:
            yield HostFact("gpu_memory", int(memory * USABLE), f"nvidia-smi lists {name} with {in_words(memory)}")
        else:
            yield HostFact("gpu", gpu, f"nvidia-smi lists {name}")
            yield HostFact("gpu_memory", gpu.memory, f"nvidia-smi lists {name}")
    if host.memory:
        yield HostFact("host_memory", host.memory, "Slurm limits this job" if _slurm_memory(environment) else "this machine has it")
    if program == "deepspeed" and host.gpus and _starts_all(command):
        yield HostFact("world_size", len(host.gpus), f"deepspeed starts a rank for each of the {len(host.gpus)} GPUs of this machine")
    tasks = integer(environment.get("SLURM_NTASKS", ""))
    if program == "srun" and tasks and not _says_tasks(command):
        yield HostFact("world_size", tasks, f"SLURM_NTASKS is {tasks}")
        nodes = integer(environment.get("SLURM_JOB_NUM_NODES", ""))
        if nodes:
            yield HostFact("nodes", nodes, f"SLURM_JOB_NUM_NODES is {nodes}")


def _starts_all(command: Sequence[str]) -> bool:
    """Whether the DeepSpeed launcher starts a rank for each GPU that it sees: no flag before the program selects some."""
    flags = [word.partition("=")[0] for word in command[1 : _program_at(command)]]
    return not any(flag in _SELECTING for flag in flags) and not os.path.exists(HOSTFILE)


def _program_at(command: Sequence[str]) -> int:
    return next((index for index, word in enumerate(command) if word.endswith(".py")), len(command))


def _says_tasks(command: Sequence[str]) -> bool:
    return any(word.startswith(("-n", "-N", "--ntasks", "--nodes")) for word in command[1:])


def _gpus(environment: Mapping[str, str]) -> tuple[tuple[str, int], ...] | None:
    """All GPUs of the machine; None without `nvidia-smi`, and where it fails."""
    try:
        done = subprocess.run(QUERY, env=dict(environment), capture_output=True, text=True, timeout=PATIENCE, check=True)  # noqa: S603 - its own words
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    found = []
    for line in done.stdout.splitlines():
        name, _, size = line.rpartition(",")
        mebibytes = integer(size.strip())
        if not name or mebibytes is None:
            return None  # a message, or "[N/A]" of a GPU that shares the memory of the host
        found.append((name.strip(), mebibytes * 2**20))
    return tuple(found) or None


def _visible(gpus: tuple[tuple[str, int], ...] | None, environment: Mapping[str, str]) -> tuple[tuple[str, int], ...] | None:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves; None if it names them in another way than by number."""
    written = environment.get("CUDA_VISIBLE_DEVICES")
    if gpus is None or written is None:
        return gpus
    numbers = [integer(word.strip()) for word in written.split(",") if word.strip()]
    kept = [gpus[number] for number in numbers if number is not None and 0 <= number < len(gpus)]
    return tuple(kept) if len(kept) == len(numbers) else None


def _memory(environment: Mapping[str, str]) -> int | None:
    """The memory that processes may use: what Slurm gives the job on this machine, else that of the container, else all."""
    given = _slurm_memory(environment)
    limits = [size for size in (given, _limit("/sys/fs/cgroup/memory.max"), _whole()) if size]
    return min(limits, default=None)


def _slurm_memory(environment: Mapping[str, str]) -> int | None:
    mebibytes = integer(environment.get("SLURM_MEM_PER_NODE", ""))
    return mebibytes * 2**20 if mebibytes else None


def _limit(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return integer(file.read(32).strip())
    except (OSError, ValueError):
        return None


def _whole() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
