"""Runs a command of dslint for a tool, in a child process that reads only below the roots."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import anyio

from dslint.record import Record

SECONDS = 120
"""How long a command may take."""

MOST = 8 * 2**20
"""The most bytes of output that are passed on: a model cannot read more, and a client would hold all of it."""


class Done(Record):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


class Failed(Exception):
    """A tool cannot answer. The text is for the assistant: what was wrong, and what to pass instead."""


class Roots:
    """The folders that the tools read. The first one is that of relative paths."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = [os.path.realpath(folder) for folder in folders]

    def inside(self, path: str) -> str:
        """A path of a call, relative to the first folder where it can be.

        Raises:
            Failed: the file is not below a folder of the server.
        """
        if "\0" in path:
            raise Failed("a path cannot contain a null character.")
        real = os.path.realpath(os.path.join(self.folders[0], path))
        if not any(real == folder or real.startswith(os.path.join(folder, "")) for folder in self.folders):
            listed = ", ".join(self.folders)
            raise Failed(
                f"{path} is outside the folders that this server reads ({listed}). Pass its text, or start `dslint mcp --root DIR`."
            )
        start = os.path.join(self.folders[0], "")
        return real.removeprefix(start) if real.startswith(start) else real

    def is_path(self, word: str) -> bool:
        """Whether a word that may also be a name is a path: it looks like one, or there is such a file."""
        return word.startswith((".", "/", "\\", "~")) or os.path.exists(os.path.join(self.folders[0], word))


async def run(arguments: Sequence[str], roots: Roots, text: str = "", *, seconds: float = SECONDS) -> Done:
    """Run a command with a text as its standard input.

    Raises:
        Failed: it took too long.
    """
    # -P: the folder of the server, which may be a checkout of strangers, is not searched for modules.
    command = [sys.executable, "-P", "-m", "dslint.mcp.child", *roots.folders, "--", *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", "PYTHONUTF8": "1"}
    data = text.encode("utf-8", "surrogatepass")
    try:
        with anyio.fail_after(seconds):
            done = await anyio.run_process(
                command, input=data, check=False, cwd=roots.folders[0], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
    except TimeoutError:
        raise Failed(f"this took longer than {seconds:g} seconds and was stopped. Pass fewer files.") from None
    if len(done.stdout) > MOST:
        raise Failed(f"the answer is larger than {MOST // 2**20} MiB. Pass fewer files.")
    return Done(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))
