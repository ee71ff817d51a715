"""Whether a launcher has started this process as one rank of several: torchrun, `deepspeed`, srun, mpirun."""

from __future__ import annotations

from collections.abc import Mapping

from dslint.record import Record


class LaunchedRank(Record):
    """A rank, the number of ranks, and the environment variables that torch reads them from."""

    rank: int
    world_size: int
    variables: dict[str, str]


def launched(environment: Mapping[str, str]) -> LaunchedRank | None:
    """The rank that the environment assigns to this process; None for a single process.

    A Slurm batch script is a single process although the variables of its job are set: only tasks of a step have `SLURM_STEP_NUM_TASKS`.
    """
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _rank_of(environment, environment["RANK"], environment["WORLD_SIZE"], environment.get("LOCAL_RANK", "0"))
    if "SLURM_STEP_NUM_TASKS" in environment and "SLURM_PROCID" in environment:
        host = environment.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
        port = str(20000 + int(environment.get("SLURM_JOB_ID", "0")) % 20000)
        local = environment.get("SLURM_LOCALID", "0")
        return _rank_of(environment, environment["SLURM_PROCID"], environment["SLURM_STEP_NUM_TASKS"], local, host, port)
    return None


def _rank_of(
    environment: Mapping[str, str], rank: str, size: str, local: str, host: str = "127.0.0.1", port: str = "29500"
) -> LaunchedRank | None:
    if not (rank.isdecimal() and size.isdecimal()) or int(size) < 2:
        return None
    variables = {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": local,
        "MASTER_ADDR": environment.get("MASTER_ADDR", host),
        "MASTER_PORT": environment.get("MASTER_PORT", port),
    }
    return LaunchedRank(int(rank), int(size), variables)
