"""Runs the real launchers as far as their first process; a program, with cases as JSON on its standard input.

A case is [words, environment, files, GPUs of a machine]; the answer {"ranks", "machines", "program"} or {"error"}.
"""

from __future__ import annotations

import base64
import json
import os
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


def _deepspeed(words: list[str], gpus: int) -> None:
    from deepspeed.launcher import runner

    def start(command: list[str], **_: Any) -> None:
        info = next((word for word in command if "--world_info=" in word), "")
        hosts = json.loads(base64.urlsafe_b64decode(info.partition("=")[2]))
        raise _Started(ranks=sum(map(len, hosts.values())), machines=len(hosts), program=command[command.index("train.py") :])

    accelerator = SimpleNamespace(visible_devices_envs=lambda: ["CUDA_VISIBLE_DEVICES"], device_count=lambda: gpus)
    runner.get_accelerator = lambda: accelerator  # type: ignore[assignment]
    runner.subprocess.Popen = start  # type: ignore[misc, assignment]
    runner.main(["--no_ssh", "--node_rank", "0", "--master_addr", "localhost", *words])


def _of_torch(arguments: Any) -> None:
    """Take the place of `torch.distributed.run.run`: note what it would start."""
    from torch.distributed.run import config_from_args

    config, _, _ = config_from_args(arguments)
    program = [arguments.training_script, *arguments.training_script_args]
    ranks = config.nproc_per_node * config.max_nodes if config.min_nodes == config.max_nodes else None
    raise _Started(ranks=ranks, machines=config.max_nodes if ranks else None, program=program)


def _torchrun(words: list[str]) -> None:
    from torch.distributed import run

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
        os.chdir(folder)
        try:
            if words[0] == "deepspeed":
                _deepspeed(words[1:] if "hosts" in files else ["--hostfile", "none", *words[1:]], gpus)
            elif words[0] == "accelerate":
                _accelerate(words[2:], gpus)
            else:
                _torchrun(words[1:] if words[0] == "torchrun" else words[3:])
        except _Started as started:
            return started.found
        except SystemExit as ended:
            return {"error": f"exit {ended.code}"}
        except Exception as error:  # noqa: BLE001  # any error is an answer
            return {"error": f"{type(error).__name__}: {error}"[:200]}
        finally:
            os.chdir("/")
            os.environ.clear()
            os.environ.update(before)
    return {"error": "nothing starts"}


def known(words: list[str], environment: dict[str, str], files: dict[str, str], gpus: int) -> dict[str, Any]:
    """What the launcher says of a command on machines of any size, None where that differs.

    A file of Accelerate that nothing names is not there, and would say on how many machines it starts.
    """
    found, other = launched(words, environment, files, gpus), launched(words, environment, files, gpus * 2)
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
