"""The commands in advice, with the files, the model and the GPU of a job in place of words for any."""

from __future__ import annotations

import shlex
from dataclasses import replace

from dslint.diagnose.context import LogContext
from dslint.diagnose.diagnosis import Diagnosis
from dslint.facts.model_config import named_model
from dslint.frameworks.workload import told_by

_FIT = "dslint fit CONFIG --model MODEL --gpu-memory SIZE"
_ESTIMATE = "dslint estimate CONFIG --model MODEL --world-size N"


def name_files(diagnosis: Diagnosis, path: str, given: LogContext) -> None:
    """Write the commands in the advice of a diagnosis as they can be run, with the file that leads to its config."""
    if given.config is None:
        return
    model = f" --model {shlex.quote(given.model)}" if given.model else "" if _says_model(given) else " --model MODEL"
    start = f"{shlex.quote(path)}{model}"
    capacity = diagnosis.job.get("gpu_capacity")
    ranks = "" if given.facts is not None and given.facts.world_size else " --world-size N"
    known = {
        _FIT: f"dslint fit {start} --gpu-memory {f'{capacity:g}GiB' if capacity else 'SIZE'}",
        _ESTIMATE: f"dslint estimate {start}{ranks}",
    }

    def named(texts: tuple[str, ...]) -> tuple[str, ...]:
        for general, own in known.items():
            texts = tuple(text.replace(general, own) for text in texts)
        return texts

    diagnosis.causes[:] = [replace(one, advice=named(one.advice), general=named(one.general)) for one in diagnosis.causes]


def _says_model(given: LogContext) -> bool:
    """Whether the files of a job say which model it trains, so that commands need no `--model`."""
    if given.facts is not None and given.facts.model is not None:
        return True
    name = told_by(given.arguments).options.get("model") if given.arguments is not None else None
    return name is not None and named_model(str(name[0])) is not None
