"""Runs the real launchers as far as their first process; a program, with cases as JSON on its standard input.

A case is [words, environment, files, GPUs of a machine]; the answer {"ranks", "machines", "program"} or {"error"}.
"""

from __future__ import annotations

import base64
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class _Started(BaseException):
    """The launcher starts its first process."""

    def __init__(self, **found: Any) -> None:
        super().__init__()
        self.found = found


def _programs(command: list[str]) -> list[list[str]]:
    """The commands that mpirun gets, which a colon separates."""
    ends = [index for index, word in enumerate(command) if word == ":"]
    return [command[start:end] for start, end in zip([0, *(one + 1 for one in ends)], [*ends, len(command)], strict=True)]


def _deepspeed(words: list[str], gpus: int) -> None:
    from deepspeed.launcher import runner

    def start(command: list[str], **_: Any) -> None:
        info = next((word for word in command if "--world_info=" in word), "")
        if not info:  # MPI and Slurm are told how many processes to start, and where by files
            first, *more = _programs(command)  # Intel MPI gets a command for each rank
            count = sum(int(one[index + 1]) for one in (first, *more) for index, word in enumerate(one) if word in ("-n", "-np"))
            raise _Started(ranks=count, machines=machines[0], program=first[first.index("train.py") :])
        if command[0] == "pdsh":  # a shell on each machine reads the words
            command = shlex.split(" ".join(command))
        hosts = json.loads(base64.urlsafe_b64decode(info.partition("=")[2]))
        raise _Started(ranks=sum(map(len, hosts.values())), machines=len(hosts), program=command[command.index("train.py") :])

    encode, machines = runner.encode_world_info, [0]

    def encoded(hosts: dict[str, Any]) -> str:
        machines[0] = len(hosts)
        return str(encode(hosts))

    runner.encode_world_info = encoded
    for name in ("PDSHRunner", "OpenMPIRunner", "MPICHRunner", "IMPIRunner", "SlurmRunner", "MVAPICHRunner"):
        getattr(runner, name).backend_exists = lambda _: True

    accelerator = SimpleNamespace(
        visible_devices_envs=lambda: ["CUDA_VISIBLE_DEVICES"], device_count=lambda: gpus, export_envs=lambda: ["NCCL"]
    )
    runner.get_accelerator = lambda: accelerator  # type: ignore[assignment]
    runner.subprocess.Popen = start  # type: ignore[misc, assignment]
    alone = ["--no_ssh_check"] if any("launcher" in word for word in words) else ["--no_ssh", "--node_rank", "0"]
    runner.main([*alone, "--master_addr", "localhost", *words])


def _of_torch(arguments: Any) -> None:
    """Take the place of `torch.distributed.run.run`: note what it would start."""
    from torch.distributed.run import config_from_args

    config, _, _ = config_from_args(arguments)
    program = [arguments.training_script, *arguments.training_script_args]
    ranks = config.nproc_per_node * config.max_nodes if config.min_nodes == config.max_nodes else None
    raise _Started(ranks=ranks, machines=config.max_nodes if ranks else None, program=program)


def _torchrun(words: list[str], gpus: int) -> None:
    import torch
    from torch.distributed import run

    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: gpus
    if hasattr(torch, "accelerator"):
        torch.accelerator.is_available = lambda: True
        torch.accelerator.device_count = lambda: gpus
        torch.accelerator.current_accelerator = lambda **_: SimpleNamespace(type="cuda")
    run.run = _of_torch
    run.main(words)


def _accelerate(words: list[str], gpus: int) -> None:
    import torch
    import torch.distributed.run as distributed
    from accelerate.commands import launch

    def start(command: list[str], **_: Any) -> None:
        raise _Started(ranks=1, machines=1, program=command[command.index("train.py") :])

    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: gpus
    launch.check_cuda_p2p_ib_support = lambda: True  # type: ignore[assignment]
    distributed.run = _of_torch
    launch.subprocess.Popen = start  # type: ignore[misc, assignment]
    launch.launch_command(launch.launch_command_parser().parse_args(words))


def launched(words: list[str], environment: dict[str, str], files: dict[str, str], gpus: int) -> dict[str, Any]:
    """What the launcher says of a command."""
    before = dict(os.environ)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ.update(environment)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        os.environ["HF_HOME"] = folder
        tempfile.tempdir = folder  # torchrun makes a folder of logs for each launch and leaves it
        os.chdir(folder)
        try:
            if words[0] == "deepspeed":
                _deepspeed(words[1:] if "hosts" in files else ["--hostfile", "none", *words[1:]], gpus)
            elif words[0] == "accelerate":
                _accelerate(words[2:], gpus)
            else:
                _torchrun(words[1:] if words[0] == "torchrun" else words[3:], gpus)
        except _Started as started:
            return started.found
        except SystemExit as ended:
            return {"error": f"exit {ended.code}"}
        except Exception as error:  # noqa: BLE001  # any error is an answer
            return {"error": f"{type(error).__name__}: {error}"[:200]}
        finally:
            os.chdir("/")
            tempfile.tempdir = None
            os.environ.clear()
            os.environ.update(before)
    return {"error": "nothing starts"}


def known(words: list[str], environment: dict[str, str], files: dict[str, str], gpus: int) -> dict[str, Any]:
    """What the launcher says of a command on machines of any size, None where that differs.

    Operators of Kubernetes set PET_NPROC_PER_NODE, from which torchrun takes the number of ranks that no flag gives.
    A file of Accelerate that nothing names is not there, and would say on how many machines it starts.
    """
    found = launched(words, environment, files, gpus)
    other = launched(words, {"PET_NPROC_PER_NODE": "7", **environment}, files, gpus * 2)
    if "error" in found:
        return found
    if "error" in other:
        return other
    named = words[0] != "accelerate" or any("config_file" in word or "num_machines" in word or "num-machines" in word for word in words)
    return {name: value if other[name] == value and (named or name != "machines") else None for name, value in found.items()}


def main() -> None:
    """Answer every case."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    json.dump([known(*case) for case in json.load(sys.stdin)], out)
    out.close()


if __name__ == "__main__":
    main()
