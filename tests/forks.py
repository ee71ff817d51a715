"""A process that has imported dslint and forks for every command line that it gets.

To start Python and import dslint takes longer than most of what tests ask of it. The fork is a process of its own all the same, with its
own environment, folder and streams. What a warm start could hide (imports, their order and their cost) is tested with a fresh Python.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
SELDOM_USED = ("server", "mcp", "playground", "probe")
"""Parts of dslint with libraries of their own, which few tests need."""
ORDINARY_FILES = {
    "ds.json": '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    "run.sh": "deepspeed --num_gpus 8 train.py --deepspeed ds.json --bf16 True --per_device_train_batch_size 1\n",
    "train.py": """from transformers import HfArgumentParser, Trainer, TrainingArguments
(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model, arguments).train()
""",
}
ORDINARY = (
    "check ds.json",
    "check run.sh --output-format json",
    "show ds.json",
    "estimate ds.json --model=gpt2 --world-size=8 --gpu=a100",
)
"""Commands that use what most others use."""
LENGTH = struct.Struct("!I")


class Forks:
    """The near side: starts the process at the first question."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self, words: list[str], cwd: str, environment: dict[str, str], streams: list[IO[bytes]], timeout: float = 300, before: str = ""
    ) -> int:
        """The exit code of `dslint WORDS`, with standard input, output and error as given; negative for a signal.

        `before` is Python that the fork executes first.

        Raises:
            TimeoutError: it did not end in `timeout` seconds.
        """
        near = self._socket or self._start()
        request = json.dumps({"words": words, "cwd": cwd, "environment": environment, "before": before}).encode("utf-8", "surrogateescape")
        socket.send_fds(near, [LENGTH.pack(len(request))], [stream.fileno() for stream in streams])
        near.sendall(request)
        near.settimeout(timeout)
        try:
            return int(LENGTH.unpack(_all_of(near, LENGTH.size))[0]) - 256
        except (OSError, EOFError):
            self._stop()  # what it still answers is of no later question
            raise

    def _start(self) -> socket.socket:
        near, far = socket.socketpair()
        with far:
            command = [sys.executable, "-m", "tests.forks", str(far.fileno())]
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=quiet, stdout=quiet, pass_fds=[far.fileno()])
        self._socket = near
        atexit.register(self._stop)
        return near

    def _stop(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.kill()
            self._process.wait()
            self._socket = self._process = None


def _all_of(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        part = connection.recv(length - len(found))
        if not part:
            raise EOFError
        found += part
    return found


def serve(far: socket.socket) -> None:
    """The far side: answer until the near side ends."""
    import dslint
    from dslint.registry.rules import loaded_rules

    for module in pkgutil.walk_packages(dslint.__path__, "dslint."):
        if not {*module.name.split(".")} & {*SELDOM_USED, "__main__"}:
            importlib.import_module(module.name)
    importlib.import_module("jsonschema")  # a second of a command with a policy
    loaded_rules()
    _warm_up()
    gc.freeze()  # a collection in a fork would copy the memory that it shares
    while True:
        descriptors = array.array("i")
        head, control, _, _ = far.recvmsg(LENGTH.size, socket.CMSG_LEN(3 * descriptors.itemsize))
        if not head:
            return
        for _level, _kind, data in control:
            descriptors.frombytes(data)
        request = json.loads(_all_of(far, LENGTH.unpack(head)[0]).decode("utf-8", "surrogateescape"))
        child = os.fork()
        if child == 0:
            far.close()
            os._exit(_run(request, list(descriptors)))
        for one in descriptors:
            os.close(one)
        _, status = os.waitpid(child, 0)
        far.sendall(LENGTH.pack(os.waitstatus_to_exitcode(status) + 256))


def _warm_up() -> None:
    """Run ordinary commands once, so that every fork has the patterns and tables that they compile and read: a third of its work.

    What these commands say is not kept. What is installed depends on the environment of each fork, which looks it up itself.
    """
    from dslint.cli import main
    from dslint.facts import find_release

    here = Path.cwd()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        os.chdir(folder)
        for name, text in ORDINARY_FILES.items():
            Path(name).write_text(text, encoding="utf-8")
        for words in ORDINARY:
            sys.argv = ["dslint", *words.split()]
            code: object = 0
            try:
                main()
            except SystemExit as ended:
                code = ended.code
            assert code in (0, 1), errors.getvalue()
        os.chdir(here)
    find_release.installed.cache_clear()


def _run(request: dict[str, Any], streams: list[int]) -> int:
    """In the fork: become what `python -m dslint WORDS` is."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["dslint", *request["words"]]
    exec(request["before"], {})
    from dslint.cli import main

    code: Any = 0
    try:
        main()
    except SystemExit as stopped:
        code = stopped.code
    except BaseException:  # noqa: BLE001 - Python prints it and exits with 1
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    return int(code or 0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
