#!/usr/bin/env python3
"""Create an environment for running an old DeepSpeed release.

    python scripts/release_env.py RELEASE FOLDER

pip downloads and unpacks the source; its requirements except torch go into a virtual environment, with pydantic and numpy versions of that
time. torch comes from the environment that runs this script. Prints the interpreter and the source folder to put on PYTHONPATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

from dslint.facts import Release

NEEDS = ("hjson", "packaging", "psutil", "py-cpuinfo", "tqdm", "msgpack", "einops")
PYDANTIC_2 = Release(0, 15, 0)
"""The first release for pydantic 2 that runs with numpy 2."""


def make(release: Release, folder: Path) -> tuple[Path, Path]:
    """Create the environment; returns its interpreter, and the folder with the package `deepspeed`.

    Raises:
        subprocess.CalledProcessError: pip could not fetch something.
    """
    folder.mkdir(parents=True, exist_ok=True)
    environment = folder / "venv"
    venv.create(environment, with_pip=False)
    python = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
    old = release < PYDANTIC_2
    wanted = [*NEEDS, "pydantic<2" if old else "pydantic>=2", "numpy<2" if old else "numpy"]
    _pip("--python", str(python), "install", "--quiet", *wanted)
    # Packages of this environment come first; torch and its requirements come from outside.
    here = next(path for path in environment.rglob("site-packages") if path.is_dir())
    (here / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    command = [
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--no-build-isolation",
        "--dest",
        str(folder),
        f"deepspeed=={release}",
    ]
    _pip(*command)
    archive = next(folder.glob("deepspeed-*.tar.gz"))
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return python, folder / archive.name.removesuffix(".tar.gz")


def _pip(*arguments: str) -> None:
    environment = {
        **os.environ,
        "DS_BUILD_OPS": "0",
        "DS_ACCELERATOR": "cpu",
        "DS_IGNORE_CUDA_DETECTION": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    environment.pop("PIP_CONSTRAINT", None)  # of today's releases
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, env=environment)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit((__doc__ or "").strip())
    print(*make(Release.parse(sys.argv[1]), Path(sys.argv[2])))
