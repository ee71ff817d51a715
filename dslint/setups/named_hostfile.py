"""A hostfile that a person names by itself."""

from __future__ import annotations

import os
import re

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.job.arguments import SourcedValue
from dslint.job.model import Launch, Setup
from dslint.not_judged import of_note
from dslint.setups.gather import LoadedSetup, Read
from dslint.setups.hostfile import LINE, read_hostfile
from dslint.setups.project import project_of
from dslint.source.tree import Document


def read_by_itself(text: str, path: str, shown: str, given: Context) -> Read | None:
    """A hostfile that a person names: what the launcher makes of it, and which scripts start a training with it. None for another file."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    if not any(LINE.match(line) for line in lines):  # other launchers read a file with nothing but names
        return None
    slots, error = read_hostfile(text)
    named = SourcedValue(shown, "hostfile", shown, shown)
    launch = Launch("deepspeed", hosts=slots, hostfile_error=error, gpus_given=named, flags={"hostfile": named})
    machines = f", {len(slots)} machine{'s' * (len(slots) > 1)} with {sum(slots.values()):,} GPUs" if slots else ""
    project = project_of(path)
    pattern = re.compile(rf"hostfile.*(?<![\w.-]){re.escape(os.path.basename(path))}(?![\w.-])", re.IGNORECASE)
    using = [os.path.relpath(one).replace(os.sep, "/") for one in project.scripts if pattern.search(project.text(one))]
    check = f" Check the training with dslint check {using[0]}." if using else " Check the training with the script that names it."
    note = f"a hostfile of DeepSpeed's launcher{machines}.{check}"
    document = Document(text, None, language="text")
    setup = Setup(launch=launch, documents={shown: document})
    loaded = LoadedSetup(setup, given._replace(setup=setup), documents={shown: document}, reason=of_note(note))
    return Read(FileKind.SCRIPT, document, [loaded], note)
