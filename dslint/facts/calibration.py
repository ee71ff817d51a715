"""Calibrations: files that `dslint probe --calibrate` writes, with what a GPU needs besides tensors."""

from __future__ import annotations

import json
import os
from typing import Any

from dslint.errors import UserError
from dslint.record import Record

VERSION = 1


class Calibration(Record):
    """Measured on one GPU: bytes of context and libraries, without a communicator (low, expected, high); bytes per second over PCIe, and of
    the optimizer on the CPU. None: not measured.

    The file also has what PyTorch reserves, which estimates do not use: its share of a small training says little about a large one. On an
    H100, 11 trainings with 2 to 9 GiB of tensors reserved 9 to 71 % more; job logs of 10 to 75 GiB have 0 to 39 %.
    """

    path: str
    hardware: str
    context: tuple[float, float, float]
    pcie: float | None
    adam: float | None


def shipped_calibration(gpu: str | None) -> Calibration | None:
    """The calibration that comes with dslint for a GPU, without the speeds of the machine that it was in; None if there is none.

    It is data of the package, which may stand in an archive, as in the playground: not every file has a path.
    """
    if gpu is None:
        return None
    from importlib import resources

    file = resources.files("dslint.facts") / "calibrations" / f"{gpu}.json"
    if not file.is_file():
        return None
    return _calibration(f"{gpu}.json of dslint", json.loads(file.read_text(encoding="utf-8")))._replace(pcie=None, adam=None)


def find_calibration(path: str, gpu: str | None) -> Calibration | None:
    """The calibration in a file, or the one for a GPU in a folder; None if the folder has none for it.

    Raises:
        UserError: the file cannot be used.
    """
    if not os.path.isdir(path):
        return load_calibration(path)
    file = os.path.join(path, f"{gpu}.json")
    return load_calibration(file) if gpu is not None and os.path.isfile(file) else None


def load_calibration(path: str) -> Calibration:
    """The calibration in a file.

    Raises:
        UserError: the file does not exist, is not a calibration, or was not made on a GPU.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise UserError(f"the calibration {path} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise UserError(f"the calibration {path} is not JSON") from None
    return _calibration(path, data)


def _calibration(path: str, data: Any) -> Calibration:
    """The calibration in the content of a file.

    Raises:
        UserError: it is not a calibration, or was not made on a GPU.
    """
    if not isinstance(data, dict) or data.get("calibration") != VERSION:
        raise UserError(f"{path} is not a calibration; `dslint probe --calibrate FILE` writes one")
    found = data.get("measured")
    if not isinstance(found, dict):
        if data.get("device") == "cuda":
            raise UserError(f"the calibration {path} has too few runs; run `dslint probe --calibrate {path}` again")
        raise UserError(f"the calibration {path} was made on the device {data.get('device')}, which has no allocator; run it on a GPU")
    try:
        return Calibration(
            path,
            str(data["hardware"]),
            _three(found["context"]),
            _positive(found.get("pcie")),
            _positive(found.get("adam")),
        )
    except (KeyError, TypeError, ValueError):
        raise UserError(f"the calibration {path} is incomplete or has wrong values; run `dslint probe --calibrate {path}` again") from None


def _three(values: Any) -> tuple[float, float, float]:
    low, expected, high = (float(value) for value in values)
    if not 0 <= low <= expected <= high < float("inf"):
        raise ValueError(values)
    return low, expected, high


def _positive(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(value)
    return number
