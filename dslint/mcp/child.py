"""`python -P -m dslint.mcp.child ROOTS... -- ARGUMENTS`: the command line of dslint, which reads only below the roots.

An audit hook of the interpreter sees every file that is opened, whichever part of dslint opens it: what is not below a root does not
exist for the command, except Python's own files and settings files above the roots. Nothing is written, started or connected to.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

SETTINGS = ("dslint.toml", "pyproject.toml")
"""The names of settings files, which dslint also reads in the folders above a config."""

READS = {"open", "os.listdir", "os.scandir"}

REFUSED = (
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.link",
    "os.mkdir",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.spawn",
    "os.startfile",
    "os.symlink",
    "os.system",
    "os.truncate",
    "os.utime",
    "pty.spawn",
    "shutil.",
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
    "subprocess.Popen",
    "webbrowser.open",
)
"""The beginnings of the names of events that no command of a tool needs."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def guard(roots: Iterable[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that lets the process read below the roots and do nothing else to the machine."""
    roots = [os.path.realpath(root) for root in roots]
    # The packages lie in the installation, or, while dslint is developed, in its repository.
    here = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    packages = [here, *(os.path.realpath(os.path.join(here, name)) for name in ("rules", "schemas"))]
    places = {os.path.abspath(path) for path in (sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path) if path}
    installed = tuple(os.path.join(path, "") for path in places)
    allowed = [os.path.join(path, "") for path in (*roots, *packages, *map(os.path.realpath, places))]
    above = [os.path.join(path, "") for path in roots]

    def may_read(path: str) -> bool:
        real = os.path.realpath(path)
        if any(real.startswith(place) or os.path.join(real, "") == place for place in allowed) or real == os.devnull:
            return True
        if os.path.abspath(path).startswith(installed):
            return True  # `uv pip install --link-mode symlink` fills an environment with links to its cache
        folder = os.path.join(os.path.dirname(real), "")
        return os.path.basename(real) in SETTINGS and any(root.startswith(folder) for root in above)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in READS:
            path = arguments[0]
            if isinstance(path, int) or path is None:
                return
            path = os.fsdecode(path)
            if event == "open" and _writes(arguments) and path != os.devnull:
                raise PermissionError(errno.EACCES, "no file is written", path)
            if not may_read(path):
                raise PermissionError(errno.EACCES, "outside the folders of this server", path)
        elif event.startswith(REFUSED):
            raise PermissionError(errno.EACCES, f"not allowed here: {event}")

    return hook


def _writes(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2] if len(arguments) > 2 else 0
    return isinstance(flags, int) and bool(flags & _WRITING)


def main() -> None:
    """Run the command that the arguments name."""
    split = sys.argv.index("--")
    roots, arguments = sys.argv[1:split], sys.argv[split + 1 :]
    sys.argv = ["dslint", *arguments]
    sys.dont_write_bytecode = True
    from dslint.cli import main as run

    sys.addaudithook(guard(roots))
    run()


if __name__ == "__main__":
    main()
