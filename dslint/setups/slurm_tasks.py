"""How often Slurm starts a launcher: once for each task of `srun`, and only on the first machine of a job without `srun`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dslint.evaluate.shell.script import Script
from dslint.job.arguments import SourcedValue
from dslint.setups.limits import tasks_per_node
from dslint.source.integers import integer
from dslint.source.ranges import range_of
from dslint.source.tree import Span

TASKS = re.compile(r"-n\d*|-N\d*|--(ntasks|nodes|tasks|gpus|het|distribution)\S*")
"""Flags of srun that change how many tasks there are, or where they run."""
_ON_OTHERS = re.compile(r"(?<![\w-])(\w?srun|ssh|pdsh|clush|mpi(run|exec)\S*|parallel|ibrun|prun|aprun)(?![\w-])|SLURM_PROCID|SLURM_NODEID")
"""What starts a command on the other machines, or shows that the script itself runs on each."""


def tasks_of_srun(words: Sequence[str], script: Script) -> SourcedValue | None:
    """The tasks that srun starts on each machine, as #SBATCH lines say, if they are several and no flag of srun says otherwise.

    `words` stand before the launcher.
    """
    if "srun" not in words or any(TASKS.match(word) for word in words[words.index("srun") + 1 :]):
        return None
    tasks = tasks_per_node({name: value for name, (value, _) in script.slurm.items()})
    line = script.slurm.get("ntasks-per-node") or script.slurm.get("ntasks")
    return _at(script, line[1], tasks) if tasks is not None and tasks > 1 and line is not None else None


def only_first(script: Script) -> SourcedValue | None:
    """The number of machines that #SBATCH lines request, if they are several and nothing in the script starts a command on the others."""
    line = script.slurm.get("nodes")
    nodes = integer(line[0]) if line is not None else None
    text = script.source.document.text
    return _at(script, line[1], nodes) if line is not None and nodes is not None and nodes > 1 and not _ON_OTHERS.search(text) else None


def _at(script: Script, span: Span, value: int) -> SourcedValue:
    document = script.source.document
    return SourcedValue(value, "#SBATCH", document.text[span.start : span.end], script.source.shown, range_of(document, span))
