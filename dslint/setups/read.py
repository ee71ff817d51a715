"""Files that lead to configs, read by their names."""

from __future__ import annotations

import os

from dslint.config.context import Context
from dslint.setups.gather import Read
from dslint.setups.project import COMMAND_KEYS
from dslint.setups.yaml import read_tree, read_yaml
from dslint.source.store import store
from dslint.source.tree import Document


def read_once(text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read a file as `read_setups` does, once a run."""
    # The context has no hash. It is kept with the result, so that no other one gets its id.
    key = ("setups", path, shown, text, id(given), named)
    return store().found(key, lambda: (given, read_setups(text, path, shown, given, named=named)))[1]


def read_setups(text: str, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read a file by its name and text. None for a discovered file that has nothing to do with DeepSpeed."""
    name = os.path.basename(path).lower()
    if name.endswith((".yaml", ".yml")):
        found = read_yaml(text, path, shown, given, named=named)
        if found is not None and found.setups and not _may_be_of_job(found):
            return _launched(found, path, shown, given)
        job = _job(text, path, shown, given)
        if job is not None and (job.setups or found is None or not found.setups):
            return job
        return _launched(found, path, shown, given) if found is not None else None
    if name.endswith(".py"):  # most runs see neither programs nor scripts
        from dslint.evaluate.python.cells import is_notebook
        from dslint.setups.program_files import read_program_file

        if not is_notebook(path, text):
            return read_program_file(text, path, shown, given, named=named)
    from dslint.setups.launching import read_launching

    return read_launching(text, path, shown, given, named=named)


def _may_be_of_job(found: Read) -> bool:
    """Whether what was found may be a part of a job file: a variable that names a config, or the first of several documents."""
    return all(one.setup.arguments is None and one.setup.accelerate is None and one.setup.program is None for one in found.setups)


def read_arguments(document: Document, path: str, shown: str, given: Context, *, named: bool) -> Read | None:
    """Read the tree of a training file in JSON. None for a discovered file that does not use DeepSpeed."""
    found = read_tree(document, path, shown, given, named=named)
    return _launched(found, path, shown, given) if found is not None else None


def _launched(found: Read, path: str, shown: str, given: Context) -> Read:
    from dslint.setups.launches_of_file import with_launches_of_file

    return with_launches_of_file(found, path, shown, given)


def _job(text: str, path: str, shown: str, given: Context) -> Read | None:
    """A job file, if the text has the keys of one."""
    if "ConfigMap" not in text and not any(f"{key}:" in text for key in COMMAND_KEYS):
        return None
    from dslint.setups.launching import read_launching

    return read_launching(text, path, shown, given, named=True)
