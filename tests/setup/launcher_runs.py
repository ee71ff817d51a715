"""Runs DeepSpeed's launcher as far as its first process; run as a program, cases as JSON on standard input.

A case is the arguments of `deepspeed`, the value of CUDA_VISIBLE_DEVICES or null, the number of GPUs of this machine, and the text of the hostfile
or null. The answer is the error as "Type: text", or the GPUs that each machine uses.
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


def start(command: list[str], **_: Any) -> None:
    """Take the place of `subprocess.Popen`: note which GPUs the launcher has chosen."""
    world = next(word for word in command if word.startswith("--world_info="))
    raise _Started(base64.urlsafe_b64decode(world.partition("=")[2]).decode())


def launched(arguments: list[str], visible: str | None, gpus: int, hostfile: str | None) -> object:
    """What the launcher says of a command."""
    from deepspeed.launcher import runner

    accelerator = SimpleNamespace(visible_devices_envs=lambda: ["CUDA_VISIBLE_DEVICES"], device_count=lambda: gpus)
    runner.get_accelerator = lambda: accelerator  # type: ignore[assignment]
    runner.subprocess.Popen = start  # type: ignore[misc, assignment]
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "hosts"
        if hostfile is not None:
            given.write_text(hostfile, encoding="utf-8")
        try:
            alone = ["--no_ssh_check"] if "--launcher" in arguments else ["--no_ssh", "--node_rank", "0"]
            runner.main(["--hostfile", str(given), *alone, "--master_addr", "localhost", *arguments, "train.py"])
        except _Started as started:
            return json.loads(str(started))
        except Exception as error:  # noqa: BLE001  # any error is an answer
            return f"{type(error).__name__}: {error}"
    return None


def main() -> None:
    """Answer every case."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    json.dump([launched(*case) for case in json.load(sys.stdin)], out)
    out.close()


if __name__ == "__main__":
    main()
