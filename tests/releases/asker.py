"""Asks the DeepSpeed on PYTHONPATH, whatever release: reads a JSON string (the text of a config file) a line, answers with the error or null a line.

Runs in an environment of `scripts/release_env.py`; imports nothing of dslint.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import types
from pathlib import Path


def prepare() -> None:
    """What releases of old expect of torch and of the machine."""
    os.environ.update(DS_ACCELERATOR="cpu", DS_IGNORE_CUDA_DETECTION="1", DS_BUILD_OPS="0", OMP_NUM_THREADS="1")
    for name in ("intel_extension_for_pytorch", "oneccl_bindings_for_pytorch"):  # the CPU accelerator of 0.9 to 0.13 insists on them
        stub = types.ModuleType(name)
        stub.__version__ = "0.0"  # type: ignore[attr-defined]
        sys.modules.setdefault(name, stub)
    import torch.distributed.elastic.agent.server.api as api

    for name, value in (("log", logging.getLogger("elastic")), ("_get_socket_with_port", None)):  # gone since torch 2.4
        if not hasattr(api, name):
            setattr(api, name, value)


def main() -> None:
    """Answer until standard input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    prepare()
    from deepspeed.accelerator import get_accelerator
    from deepspeed.runtime.config import DeepSpeedConfig

    accelerator = type(get_accelerator())
    accelerator.is_fp16_supported = lambda self: True
    accelerator.is_bf16_supported = lambda self: True
    logging.disable(logging.CRITICAL)
    file = Path(tempfile.mkdtemp()) / "ds_config.json"
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        file.write_text(json.loads(line), encoding="utf-8")
        error = None
        try:
            DeepSpeedConfig(str(file))
        except BaseException as raised:  # noqa: BLE001 - SystemExit too is something that DeepSpeed does
            error = f"{type(raised).__name__}: {raised}"[:500]
        print(json.dumps(error), file=out, flush=True)


if __name__ == "__main__":
    main()
