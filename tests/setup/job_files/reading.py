"""What is read of the job files in this folder, and how it differs from what was derived by hand."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dslint.facts import Facts
from dslint.frameworks.loader import with_loaders
from dslint.setups.open import open_text

HERE = Path(__file__).parent
KINDS = ("azureml", "determined", "kubernetes", "sagemaker", "skypilot")


class Launched(NamedTuple):
    """A launch: its program and config, and its ranks and machines, None where only the run knows them."""

    program: str | None
    config: str
    ranks: int | None
    machines: int | None


def expected(kind: str) -> dict[str, list[Launched]]:
    """By the name of each job file of a platform: the launches, derived by hand before dslint read the file."""
    data = json.loads((HERE / kind / "expected.json").read_text(encoding="utf-8"))
    return {name: [Launched(**one) for one in launches] for name, launches in data.items()}


def lay_out(kind: str, name: str, folder: Path) -> str:
    """Write a job file into a repository with the same program and config at three places; returns its name there."""
    for place in ("", "src", "finetune"):
        shutil.copytree(HERE / "repository", folder / place, dirs_exist_ok=True)
    target = f"job{Path(name).suffix}"
    shutil.copyfile(HERE / kind / name, folder / target)
    return target


def read(folder: Path, name: str, programs: set[str | None]) -> list[Launched]:
    """The launches that dslint reads, of a job file in the working directory. `programs` are those it may name."""
    subject = open_text((folder / name).read_text(encoding="utf-8"), name, with_loaders(Facts()))
    found = []
    for used in subject.trainings.setups if subject is not None and subject.trainings is not None else ():
        launch = used.setup.launch
        if launch is None or used.setup.config is None:
            continue
        program = next((one for one in programs if one and str(folder / one) in used.launched), None)
        found.append(Launched(program, os.path.normpath(used.setup.config), used.facts.world_size, launch.nodes))
    return list(dict.fromkeys(found))  # a master and a worker with the same command are one launch


def differences(wanted: list[Launched], got: list[Launched]) -> Iterator[tuple[str, Any, Any, bool]]:
    """What differs: which field of which launch, what was derived, what was read, and whether that is wrong rather than not known."""
    if len(got) > len(wanted) or (got and len(got) < len(wanted)):
        yield "launches", len(wanted), len(got), len(got) > len(wanted)
        return
    if not got and wanted:
        yield "launches", len(wanted), 0, False
        return
    for number, (one, other) in enumerate(
        zip(sorted(wanted, key=lambda it: it.config), sorted(got, key=lambda it: it.config), strict=True)
    ):
        for field in Launched._fields:
            left, right = getattr(one, field), getattr(other, field)
            if left != right:
                yield f"{field} {number}", left, right, right is not None
