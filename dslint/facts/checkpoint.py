"""Infers facts about a checkpoint from the names of its files. Nothing is loaded: no torch, no pickles.

DeepSpeed writes to `DIR/TAG/`, and the tag into `DIR/latest`:

    mp_rank_00_model_states.pt                       the model, at ZeRO stages 0 to 2: one for each model-parallel rank
    zero_pp_rank_3_mp_rank_00_model_states.pt        the same at stage 3: one for each data-parallel rank too
    zero_pp_rank_3_mp_rank_00_optim_states.pt        optimizer states at stages 1 to 3; with the prefix `bf16_` where bf16 was enabled
    layer_05-model_00-model_states.pt                a pipeline's layers

`ds_to_universal.py` converts it into a folder with a subfolder `zero/`, and writes its name into `latest_universal`, next to `latest`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice

from dslint.errors import UserError
from dslint.record import Record
from dslint.source.read import ReadError, read_bytes

_MODEL = re.compile(r"(?:zero_pp_rank_(?P<data>\d+)_)?mp_rank_(?P<model>\d+)_model_states\.pt")
_OPTIMIZER = re.compile(r"(?P<bf16>bf16_)?zero_pp_rank_(?P<data>\d+)_mp_rank_(?P<model>\d+)_?optim_states\.pt")
_LAYER = re.compile(r"layer_\d+-model_\d+-model_states\.pt")
_LONGEST_TAG = 4096
"""The size of a file `latest` in bytes: it contains the name of a folder."""
_MOST_MISSING = 10_000
"""The most missing files that are listed. The ranks in file names may be any numbers."""
_RECOVERY = "zero_to_fp32.py"
"""The script that DeepSpeed adds to checkpoints only if they use ZeRO."""


class CheckpointFacts(Record):
    """A checkpoint, as inferred from the names of its files.

    `path` is the given folder, `tag` that of the checkpoint in it ("" if the folder itself is one). `latest`: a file `latest` points to it,
    which `load_checkpoint` uses without a tag; `dangling` is the tag in `latest` if its folder is missing.

    `zero` are the ZeRO stages that may have written it: (0,), (1, 2) or (3,). `data_parallel` is the number of data-parallel ranks with
    optimizer states (None: no states), `model_parallel` the number of model-parallel ranks (tensor x pipeline). `bf16`: bf16 was enabled
    (None: unknown). `pipeline`: a pipeline wrote it. `missing` are the names of missing files. `universal` is the tag of a universal
    checkpoint in the same folder, or None.
    """

    path: str
    tag: str
    zero: tuple[int, ...]
    data_parallel: int | None
    model_parallel: int | None
    bf16: bool | None
    latest: bool = True
    dangling: str | None = None
    pipeline: bool = False
    missing: tuple[str, ...] = ()
    universal: str | None = None

    def __str__(self) -> str:
        return self.path

    @property
    def place(self) -> str:
        """The folder of the checkpoint itself, with forward slashes."""
        return f"{self.path}/{self.tag}" if self.tag else self.path


def describe(folder: str) -> CheckpointFacts:
    """Read a checkpoint folder: the one with the file `latest`, or that of a tag (`global_step500`).

    Without `latest`, the tag with the highest number is used, as in the Hugging Face Trainer.

    Raises:
        UserError: the folder does not exist or contains no DeepSpeed checkpoint.
    """
    shown = folder.replace(os.sep, "/").rstrip("/") or folder
    names = _names(folder, shown)
    universal = _universal(folder, names)
    if _is_checkpoint(names):
        return _facts(shown, "", names, latest=True, dangling=None, universal="" if "zero" in names else None, recovery=False)
    latest = _pointer(folder, "latest") if "latest" in names else None
    tags = sorted((name for name in names if _is_checkpoint(_listing(os.path.join(folder, name)))), key=_step)
    tags = [tag for tag in tags if tag != universal and "zero" not in _listing(os.path.join(folder, tag))] or tags
    if not tags:
        raise UserError(_nothing(shown, names))
    dangling = latest if latest is not None and latest not in tags else None
    tag = latest if latest in tags else tags[-1]
    assert tag is not None
    found = _listing(os.path.join(folder, tag))
    if "zero" in found:
        universal = tag
    return _facts(shown, tag, found, latest=latest is not None, dangling=dangling, universal=universal, recovery=_RECOVERY in names)


class _Files:
    """The files of one checkpoint, by what their names say."""

    def __init__(self, names: list[str], *, recovery: bool) -> None:
        self.names = names
        self.models = [match for name in names if (match := _MODEL.fullmatch(name))]
        self.optimizers = [match for name in names if (match := _OPTIMIZER.fullmatch(name))]
        self.divided = any(match["data"] is not None for match in self.models)
        """Whether each rank has files of its own for the model, as at stage 3."""
        self.has_states = bool(self.optimizers) or self.divided or recovery
        self.prefix = "bf16_" if any(match["bf16"] for match in self.optimizers) else ""
        self.ranks = {(int(match["data"]), int(match["model"])) for match in self.optimizers}
        self.ranks_of_models = {(int(match["data"] or 0), int(match["model"])) for match in self.models}

    @property
    def data_parallel(self) -> int:
        """How many data-parallel ranks wrote files of their own."""
        every = self.ranks | (self.ranks_of_models if self.divided else set())
        return max((rank for rank, _ in every), default=-1) + 1

    @property
    def model_parallel(self) -> int:
        """How many model-parallel ranks wrote files."""
        return max((rank for _, rank in self.ranks | self.ranks_of_models), default=-1) + 1

    @property
    def zero(self) -> tuple[int, ...]:
        """The ZeRO stages that write such files."""
        if self.divided:
            return (3,)
        return (1, 2) if self.has_states or "zero" in self.names else (0,)

    def missing(self) -> Iterator[str]:
        """Files that belong to the checkpoint, and are not there."""
        data, model = self.data_parallel, self.model_parallel
        if self.has_states:
            for rank in _grid(data, model):
                name = f"zero_pp_rank_{rank[0]}_mp_rank_{rank[1]:02d}"
                if rank not in self.ranks:
                    yield f"{self.prefix}{name}_optim_states.pt"
                if self.divided and rank not in self.ranks_of_models:
                    yield f"{name}_model_states.pt"
            if not self.optimizers and data * model == 0:
                yield "*_optim_states.pt"
        if not self.divided:
            yield from (f"mp_rank_{one:02d}_model_states.pt" for one, _ in _grid(model, 1) if (0, one) not in self.ranks_of_models)


def _facts(
    path: str, tag: str, names: list[str], *, latest: bool, dangling: str | None, universal: str | None, recovery: bool
) -> CheckpointFacts:
    files = _Files(names, recovery=recovery)
    return CheckpointFacts(
        path,
        tag,
        files.zero,
        files.data_parallel if files.optimizers or files.divided else None,
        files.model_parallel or None,
        bool(files.prefix) if files.optimizers else None,
        latest,
        dangling,
        any(_LAYER.fullmatch(name) for name in names),
        tuple(islice(files.missing(), _MOST_MISSING)),
        universal,
    )


def _grid(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """The ranks of a grid, row by row. Unlike `itertools.product`, it takes no memory for sizes that a file name makes up."""
    return ((row, column) for row in range(rows) for column in range(columns))


def _is_checkpoint(names: list[str]) -> bool:
    return any(_MODEL.fullmatch(name) or _OPTIMIZER.fullmatch(name) for name in names)


def _universal(folder: str, names: list[str]) -> str | None:
    """The tag in `latest_universal`, if its folder exists."""
    if "latest_universal" not in names:
        return None
    tag = _pointer(folder, "latest_universal")
    return tag if tag is not None and "zero" in _listing(os.path.join(folder, tag)) else None


def _pointer(folder: str, name: str) -> str | None:
    try:
        tag = read_bytes(os.path.join(folder, name), _LONGEST_TAG).decode("utf-8", "replace").strip()
    except ReadError:
        return None
    return None if "\0" in tag else tag or None


def _names(folder: str, shown: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        raise UserError(f"the checkpoint {shown} does not exist.") from None
    except NotADirectoryError:
        raise UserError(f"{shown} is a file; a DeepSpeed checkpoint is a folder: pass the folder with the file latest.") from None
    except OSError as error:
        raise UserError(f"The checkpoint {shown} cannot be read: {error.strerror or error}.") from None


def _listing(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return []


def _step(tag: str) -> tuple[int, str]:
    """Tags in the order of their steps: `global_step9` before `global_step10`."""
    number = re.search(r"[0-9]+", tag)
    return (int(number[0]) if number else -1, tag)


def _nothing(shown: str, names: list[str]) -> str:
    within = sorted((name for name in names if re.fullmatch(r"checkpoint-\d+", name)), key=_step)
    if within:
        return f"{shown} contains checkpoints of the Hugging Face Trainer: pass one of them, such as {shown}/{within[-1]}."
    if any(name.endswith((".safetensors", ".bin")) for name in names):
        return f"{shown} contains the weights of a model, not a DeepSpeed checkpoint with files such as mp_rank_00_model_states.pt."
    return f"{shown} contains no DeepSpeed checkpoint, which has files such as global_step500/mp_rank_00_model_states.pt."
