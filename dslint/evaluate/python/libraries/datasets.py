"""The library `datasets`: how many rows its datasets have, as far as their files and tables are in the project."""

from __future__ import annotations

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.data_files import rows_of
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.libraries.table import follows, plain_length
from dslint.evaluate.python.tables import new_table
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.values import Constant, DictValue, Entry, Unknown, Value

_TRAIN = "train"
"""The split of a file that no split is named for."""

_READ_WHOLE = frozenset({"path", "data_files", "split", "cache_dir", "num_proc"})
"""Arguments of `load_dataset` with which a row of the file is a row of the dataset."""

_SAME_ROWS = frozenset(
    """
    shuffle sort flatten rename_column rename_columns remove_columns select_columns add_column cast cast_column class_encode_column
    with_format with_transform flatten_indices map
    """.split()
)
"""Methods whose result has the rows of the dataset."""


@follows("datasets.load_dataset")
def _load_dataset(state: ProgramState, call: CallOf) -> Value:
    """A JSON file, or a file for each split."""
    files, split = call.get("data_files"), call.get("split")
    is_whole = call.complete and len(call.arguments) <= 1 and call.keywords.keys() <= _READ_WHOLE
    if call.plain("path", 0) != "json" or not is_whole or files is None or (isinstance(files, DictValue) and files.open):
        return _dataset(call)
    named = files.cells if isinstance(files, DictValue) else {_TRAIN: Entry(files, call.span, call.span)}
    loaded = {name: Entry(_rows_in(state, one.value, call), call.span, call.span) for name, one in named.items()}
    if split is None:
        return new_table(state, call.span, loaded.items())
    return loaded[split.value].value if isinstance(split, Constant) and split.value in loaded else _dataset(call)


def _rows_in(state: ProgramState, file: Value, call: CallOf) -> Unknown:
    path = file.value if isinstance(file, Constant) else None
    return _dataset(call, rows_of(path, state.sources.all[0].path) if isinstance(path, str) else None)


@follows("datasets.Dataset.from_dict")
def _from_dict(state: ProgramState, call: CallOf) -> Value:
    """A dict of columns."""
    columns = call.get("mapping", 0)
    first = next(iter(columns.cells.values()), None) if isinstance(columns, DictValue) and not columns.open else None
    return _dataset(call, plain_length(state, first.value if first is not None else None))


@follows("datasets.Dataset.from_list")
def _from_list(state: ProgramState, call: CallOf) -> Value:
    """A list of rows."""
    return _dataset(call, plain_length(state, call.get("mapping", 0)))


@follows("datasets.Dataset.from_json")
def _from_json(state: ProgramState, call: CallOf) -> Value:
    """A JSON file."""
    given = call.get("path_or_paths", 0)
    return _rows_in(state, given, call) if given is not None and len(call.arguments) + len(call.keywords) == 1 else _dataset(call)


def rows_after(state: ProgramState, dataset: Unknown, name: str, call: CallOf) -> int | None:
    """How many rows a dataset has after a method; None if that is not known. `map` in batches may make others."""
    if name == "select" and dataset.length is not None:
        chosen = plain_length(state, call.get("indices", 0))
        return chosen if chosen is not None and chosen <= dataset.length else None
    return dataset.length if name in _SAME_ROWS and call.complete and "batched" not in call.keywords else None


def _dataset(call: CallOf, rows: int | None = None) -> Unknown:
    return Unknown(Reason(Cause.RESULT, (call.name,), call.span), call.name, call.span, length=rows)
