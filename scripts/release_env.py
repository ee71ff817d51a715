#!/usr/bin/env python3
"""Make an environment in which an old DeepSpeed release can be asked what it makes of a config.

    python scripts/release_env.py RELEASE FOLDER

The source is fetched by pip and unpacked; what it needs beside torch goes into a virtual environment, with the pydantic and numpy of
its time. torch is borrowed from the environment that runs this script. Prints the interpreter and the source folder to put on PYTHONPATH.
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
"""The first release that is written for pydantic 2, and runs with numpy 2."""


def make(release: Release, folder: Path) -> tuple[Path, Path]:
    """Make the environment; its interpreter, and the folder with the package `deepspeed`.

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
    # What is installed here comes first; torch, and what it needs, comes from outside.
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
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, env=environment)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit((__doc__ or "").strip())
    print(*make(Release.parse(sys.argv[1]), Path(sys.argv[2])))
