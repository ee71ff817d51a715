"""Where an error was raised: the places in libraries that tell what a job was doing, for errors that the table of texts does not know.

The places are data: `known_places.json`, with paths inside the libraries, such as "deepspeed/runtime/pipe/" or
"deepspeed/runtime/engine.py:load_checkpoint".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib import resources
from itertools import takewhile

from dslint.diagnose.frames import Frame, read_frame
from dslint.record import Record

LIBRARIES = (
    "site-packages",
    "dist-packages",
    "/lib/python3",
    "deepspeed/runtime/",
    "deepspeed/utils/",
    "deepspeed/ops/",
    "deepspeed/module_inject/",
    "deepspeed/__init__.py",
    "/torch/nn/modules/",
    "/torch/utils/_contextlib.py",
    "/src/transformers/",
    "/src/accelerate/",
    "zero_to_fp32.py",
    "megatron/arguments.py",
    "axolotl/utils/schemas/",
    "swift/llm/argument/",
    "swift/arguments/",
)
"""Parts of the paths of libraries, also of those that run from a checkout."""


_WAITING = re.compile(
    r"torch/distributed/(?:run|launcher/api|elastic/.*)\.py$|accelerate/commands/(?:launch|accelerate_cli)\.py$|deepspeed/launcher/launch\.py$"
    r"|(?:^|/)bin/(?:torchrun|accelerate|deepspeed)$"
)
"""Files in which a launcher waits for the processes that it started, and raises because one of them has failed."""


class KnownPlace(Record):
    """A place in libraries: `at` are files, folders or functions; `cause` says what happens there, `advice` what to check, "" where
    that differs from error to error. `only_library`: the cause names the library, and says no more.
    """

    id: str
    at: tuple[str, ...]
    cause: str
    advice: str
    only_library: bool = False


@cache
def known_places() -> tuple[KnownPlace, ...]:
    """All places."""
    data = json.loads(resources.files("dslint.diagnose").joinpath("known_places.json").read_text(encoding="utf-8"))
    return tuple(KnownPlace(row["id"], tuple(row["at"]), row["cause"], row["advice"], row.get("only_library", False)) for row in data)


def place_of(frames: Sequence[Frame]) -> KnownPlace | None:
    """The place of an error: of the innermost frames of libraries, the first one that is known.

    None if the program itself raised it, or code of a library that many places call, or a launcher that waits for its processes.
    """
    if frames and is_launcher(frames[-1]):
        return None
    for frame in takewhile(is_library, reversed(frames)):
        found = _at(frame.file, frame.function)
        if found is not None:
            return _of_hybrid_engine(frames) or found if found.id == "injection" else found
    return None


def _of_hybrid_engine(frames: Sequence[Frame]) -> KnownPlace | None:
    """The place of the hybrid engine, if it called what injects kernels: the arguments of init_inference do not concern it."""
    return next((found for one in frames if (found := _at(one.file, one.function)) is not None and found.id == "hybrid-engine"), None)


def is_library(frame: Frame) -> bool:
    """Whether a frame belongs to a library, and not to the program."""
    path = frame.file.replace("\\", "/")
    return any(part in path for part in LIBRARIES)


def is_launcher(frame: Frame) -> bool:
    """Whether a frame is one of a launcher that waits for its processes: what fails there failed in one of them."""
    return bool(_WAITING.search(frame.file.replace("\\", "/")))


def frames_in(lines: Iterable[str]) -> list[Frame]:
    """The frames that a text shows, also in the form that rich prints."""
    frames: list[Frame] = []
    for line in lines:
        frame = read_frame(line)
        if frame:
            frames.append(frame)
        elif frames and line.startswith(" "):
            frames[-1] = frames[-1].with_code(line)
    return frames


@lru_cache(maxsize=1024)
def _at(file: str, function: str) -> KnownPlace | None:
    """The place of a frame; of several the one that is described most exactly."""
    path = "/" + file.replace("\\", "/").lstrip("/")
    found = [
        (bool(named), len(at), place)
        for place in known_places()
        for at in place.at
        for part, _, named in [at.partition(":")]
        if f"/{part}" in path and (not named or named == function)
    ]
    return max(found, key=lambda hit: hit[:2])[2] if found else None
