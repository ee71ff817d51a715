"""Each framework has a folder in `frameworks/`: a job for it, and what dslint makes of it, whichever of its files is named."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dslint.config import resolve
from dslint.facts import Facts, Integration
from dslint.frameworks.loader import with_loaders
from dslint.frameworks.registry import frameworks
from dslint.setups.open import open_text
from tests.setup.folder import Folder

JOBS = Path(__file__).parent / "frameworks"
EXPECTED = "expected.json"
VALUES = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "zero_optimization.stage",
)


def found(folder: Folder, name: str) -> dict[str, Any]:
    """What dslint makes of a named file: who loads the config on how many ranks, its values, the findings, and what is not judged."""
    text = (folder.path / name).read_text(encoding="utf-8")
    subject = open_text(text, name, with_loaders(Facts()))
    assert subject is not None
    configs = []
    for used in subject.configs:
        config = resolve(used.loaded.document, used.loaded.context)
        values = {key: config.value(key) for key in (*VALUES, "fp16.enabled", "bf16.enabled")}
        facts = used.loaded.context.facts
        configs.append(
            {
                "framework": used.arguments.framework if used.arguments is not None else None,
                "loader": facts.integration.value if facts.integration is not None else None,
                "ranks": facts.world_size,
                "values": {key: value for key, value in values.items() if isinstance(value, int | float | str)},
            }
        )
    results = folder.results(name)
    return {
        "configs": configs,
        "findings": [
            f"{d.path}:{d.range.start.line if d.range else 0} {d.code} {d.message}"
            for result in results.values()
            for d in result.diagnostics
        ],
        "not judged": [reason.reason for result in results.values() for reason in result.not_judged],
    }


@pytest.mark.parametrize("job", sorted(one.name for one in JOBS.iterdir() if one.is_dir()))
def test_a_job_of_a_framework(folder: Folder, job: str) -> None:
    """Whichever file is named, the config is the same. Set UPDATE_GOLDEN=1 to write what is found, and read it."""
    shutil.copytree(JOBS / job, folder.path, dirs_exist_ok=True, ignore=shutil.ignore_patterns(EXPECTED))
    names = sorted(one.name for one in folder.path.iterdir() if one.is_file())
    made = {name: found(folder, name) for name in names}
    if os.environ.get("UPDATE_GOLDEN"):
        (JOBS / job / EXPECTED).write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    assert made == json.loads((JOBS / job / EXPECTED).read_text(encoding="utf-8"))
    named = {name: one for name, one in made.items() if job != "mmengine" or name == "run.sh"}  # it fills "auto" in the config itself
    first = next(iter(named.values()))
    assert all(one["configs"] == first["configs"] and one["findings"] == first["findings"] for one in named.values())


def test_arguments_of_a_training_file_are_somebody_s() -> None:
    """Without the Trainer they have to be the framework's own: those without an owner would be compared as the Trainer's."""
    others = [one for one in frameworks() if one.recognises is not None and one.loader is not Integration.TRANSFORMERS]
    assert all(one.own is not None for one in others)


def test_every_framework_has_a_job() -> None:
    """A framework is one module, and one folder of the same name here."""
    import dslint.frameworks

    modules = {
        path.stem for path in Path(dslint.frameworks.__path__[0]).glob("*.py") if "FRAMEWORK = Framework(" in path.read_text("utf-8")
    }
    assert len(modules) == len(frameworks())
    assert modules <= {one.name for one in JOBS.iterdir()}
