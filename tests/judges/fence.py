"""Run generated texts in namespaces of their own: no network, a read-only root, a writable scratch folder, an empty environment, limits.

Only texts that a generator of this folder wrote are ever run. Where namespaces cannot be had, `missing` says why, and nothing runs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

_FENCE = """
set -e
mount --make-rprivate /
mount -t tmpfs -o size=64m,mode=755 scratch /tmp
touch /tmp/null; mount --bind /dev/null /tmp/null
mount -t tmpfs -o size=1m dev /dev
touch /dev/null; mount --bind /tmp/null /dev/null; umount /tmp/null; rm /tmp/null
ln -s /proc/self/fd /dev/fd
mount -o remount,ro,bind /
cd /tmp
exec "$@"
"""
_NAMESPACES = (
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--net",
    "--ipc",
    "--uts",
    "--fork",
    "--mount-proc",
    "--kill-child",
)


def fenced(driver: Path, asked: Any, limit: float) -> Any:
    """Run a driver of this folder with a question on its standard input. Returns the answer on its standard output."""
    inside = [*_NAMESPACES, "sh", "-c", _FENCE, "fence", _python(), "-I", "-c", driver.read_text(encoding="utf-8")]
    done = subprocess.run(
        inside, input=json.dumps(asked), capture_output=True, text=True, timeout=limit, env={"PATH": "/usr/bin:/bin"}, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{driver.name} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def _python() -> str:
    """The interpreter without its virtual environment: that may lie in a folder of /tmp, which the fence hides."""
    return str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())


@cache
def missing() -> str:
    """Why nothing can be run in a fence here; "" if it can."""
    if shutil.which("unshare") is None:
        return "no unshare"
    done = subprocess.run(
        [*_NAMESPACES, "sh", "-c", _FENCE, "fence", _python(), "-I", "-c", "open('/tmp/x', 'w')"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        return f"no namespaces: {done.stderr.strip()[-200:]}"
    outside = subprocess.run([*_NAMESPACES, "sh", "-c", _FENCE, "fence", "touch", "/fence"], capture_output=True, text=True, check=False)
    return "the root can be written" if outside.returncode == 0 else ""
