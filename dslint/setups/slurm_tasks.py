"""How often Slurm starts a launcher: once for each task of `srun`, and only on the first machine of a job without `srun`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dslint.evaluate.shell.pieces import Text, known, place_of
from dslint.evaluate.shell.script import Script
from dslint.job.arguments import SourcedValue
from dslint.job.model import Launch
from dslint.setups.command_words import CommandWord
from dslint.setups.limits import tasks_per_node
from dslint.source.integers import integer
from dslint.source.ranges import range_of
from dslint.source.tree import Span

TASKS = re.compile(r"-n\d*|-N\d*|--(ntasks|nodes|tasks|gpus|het|distribution)\S*")
"""Flags of srun that change how many tasks there are, or where they run."""
_ON_OTHERS = re.compile(
    r"(?<![\w-])(\w?srun|flux +(mini +)?run|ssh|pdsh|clush|mpi(run|exec)\S*|parallel|ibrun|prun|aprun)(?![\w-])|SLURM_PROCID|SLURM_NODEID"
)
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


_CHOSEN = re.compile(r"-w.*|--nodelist\b.*|--relative\b.*")
"""Flags of srun that choose among the machines of a job."""


def machines_of_srun(words: Sequence[str], script: Script) -> SourcedValue | None:
    """The machines on each of which srun starts the launcher, as an #SBATCH line says, if they are several.

    `words` stand before the launcher, or before the shell that runs it; a flag of srun among them may say otherwise.
    """
    if "srun" not in words or any(TASKS.match(word) or _CHOSEN.match(word) for word in words[words.index("srun") + 1 :]):
        return None
    return several_machines(script)


def several_machines(script: Script) -> SourcedValue | None:
    """The number of machines that an #SBATCH line requests, if they are several."""
    line = script.slurm.get("nodes")
    nodes = integer(line[0]) if line is not None else None
    return _at(script, line[1], nodes) if line is not None and nodes is not None and nodes > 1 else None


def counted_anew(words: Sequence[CommandWord], launch: Launch) -> Launch:
    """A launch by srun without the numbers of the #SBATCH lines that flags of srun may override. `words` stand before the program."""
    texts = [word.text or "" for word in words]
    own = [text for text in texts[texts.index("srun") + 1 :] if TASKS.match(text)] if "srun" in texts else []
    if not own:
        return launch
    launch = replace(launch, gpus=None, gpus_given=None)
    number = tasks_by_flag(texts)
    return launch if number is not None and number == launch.world_size else replace(launch, world_size=None, given=None)


def tasks_by_flag(words: Sequence[str]) -> int | None:
    """The number of all tasks that a flag of srun gives. `words` stand before the program."""
    number = re.search(r"(?:^| )(?:-n ?|--ntasks[= ])(\d+)(?= |$)", " ".join(words))
    return integer(number[1]) if number is not None else None


_OF_MACHINE = re.compile(r"\$\{?SLURM_(JOB|STEP)_GPUS\}?")
_READS_VISIBLE = re.compile(r"(\$\{?|-v\s+)CUDA_VISIBLE_DEVICES\b")


def is_by_machine(text: Text) -> bool:
    """Whether CUDA_VISIBLE_DEVICES gets the numbers of the GPUs on the machine in any case.

    Where the script reads the variable before, it may do so only if Slurm has not set it.
    """
    source, span = place_of(text)
    raw = known(text) or source.document.text[slice(*span)]
    return _OF_MACHINE.fullmatch(raw) is not None and _READS_VISIBLE.search(source.document.text, 0, span.start) is None


_OWN_GPU = re.compile(r"(single|per_task):1|map_gpu:\d+(,\d+)*")
"""The values of --gpu-bind with which a task sees one GPU."""
_CHOOSES = re.compile(r"LOCAL_RANK=[\"']?0\b|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES")
"""What may tell each task the number of its GPU."""
_WRAPPER = re.compile(r"\./\S+|\S+\.(sh|bash)|(\S*/)?(ba)?sh")
"""A script between srun and the program, which may choose the GPU."""
_OF_SRUN = re.compile(r"--(?P<name>ntasks|ntasks-per-node|nodes|gpus-per-task|gpu-bind)(?:=(?P<value>.*))?|-(?P<short>[nN])(?P<number>\d*)")


def one_gpu_of_srun(words: Sequence[CommandWord], script: Script) -> SourcedValue | None:
    """The option with which each of several tasks on a machine sees one GPU only: `--gpus-per-task=1`, which binds it, or `--gpu-bind`.

    `words` stand before the program; the flags of srun among them count more than the #SBATCH lines.

    Source: https://slurm.schedmd.com/srun.html, --gpus-per-task and --gpu-bind.
    """
    texts = [word.text or "" for word in words]
    if "srun" not in texts or _CHOOSES.search(script.source.document.text) or any(map(_WRAPPER.fullmatch, texts)):
        return None
    options = {name: value for name, (value, _) in script.slurm.items()}
    places = {name: _at(script, span, 1) for name, (_, span) in script.slurm.items()}
    start = texts.index("srun") + 1
    for index in range(start, len(words)):
        match = _OF_SRUN.fullmatch(texts[index])
        if match is None:
            continue
        name = match["name"] or {"n": "ntasks", "N": "nodes"}[match["short"]]
        value = match["value"] if match["name"] else match["number"]
        options[name] = value or (texts[index + 1] if index + 1 < len(words) else "")
        word = words[index]
        places[name] = SourcedValue(1, word.raw if value else f"{word.raw} {options[name]}", "", word.path, word.range)
        if name == "ntasks":
            options.pop("ntasks-per-node", None)
    binds, each = options.get("gpu-bind"), options.get("gpus-per-task", "").rpartition(":")[2]
    by = "gpu-bind" if binds is not None else "gpus-per-task"
    is_own = _OWN_GPU.fullmatch(binds) is not None if binds is not None else each == "1"
    return places[by] if is_own and (tasks_per_node(options) or 1) > 1 else None


def only_first(words: Sequence[str], script: Script) -> SourcedValue | None:
    """The number of machines that #SBATCH lines request, if they are several and nothing in the script starts a command on the others.

    `words` stand before the launcher, perhaps in another script that this one runs.
    """
    machines = several_machines(script)
    if machines is None or _ON_OTHERS.search(f"{script.source.document.text} {' '.join(words)}"):
        return None
    return machines


_TELLS_LIGHTNING = re.compile(
    r"SLURM_(NTASKS|JOB_NAME)|\bunset\b[^\n]*(SLURM|\$)|\benv +-i\b|(?m:^#SBATCH[ \t]+(-J|--job-name)[ =]*(bash|interactive)\b)"
)
"""What lets Lightning not take the process for a task of a Slurm job: other variables, or the names of interactive jobs."""


def waits_for_tasks(script: Script) -> SourcedValue | None:
    """The number of tasks that #SBATCH lines request, if they are several and nothing in the script starts a command as a task.

    Source: lightning/fabric/plugins/environments/slurm.py, SLURMEnvironment.detect and world_size.
    """
    slurm = {name: value for name, (value, _) in script.slurm.items()}
    if "ntasks-per-node" not in slurm:
        return None  # Lightning refuses --ntasks alone, with srun, too
    name = "ntasks" if "ntasks" in slurm else "ntasks-per-node"
    each, nodes = integer(slurm.get(name, "")), integer(slurm.get("nodes", "1"))
    tasks = each if name == "ntasks" else each * nodes if each and nodes else None
    text = script.source.document.text
    if tasks is None or tasks < 2 or _ON_OTHERS.search(text) or _TELLS_LIGHTNING.search(text):
        return None
    return _at(script, script.slurm[name][1], tasks)


def _at(script: Script, span: Span, value: int) -> SourcedValue:
    document = script.source.document
    return SourcedValue(value, "#SBATCH", document.text[span.start : span.end], script.source.shown, range_of(document, span))
