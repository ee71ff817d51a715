"""DS9: the GPUs that DeepSpeed's launcher uses: --include, --exclude, --num_gpus, the hostfile, CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.facts import Release
from dslint.job.arguments import SourcedValue
from dslint.job.model import Launch
from dslint.record import Record
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.source.integers import integer

_RUNNER = "deepspeed/launcher/runner.py"
_BY_LAUNCHER = "raised by DeepSpeed's launcher, before the engine exists; tests/setup runs the launcher"
_TRAIN = "train.py --deepspeed_config ds_config.json\n"

_UNCHECKED = (Release(0, 15, 2), Release(0, 19, 6))
"""The releases from the first to the last that do not compare the slots of `--include` with the hostfile."""


class Node(Record):
    """A part of `--include` or `--exclude`: a machine and its GPUs; without GPUs, all of them."""

    host: str
    slots: tuple[int, ...]


def nodes_of(given: SourcedValue) -> tuple[Node, ...]:
    """The machines in `work1:0,1@work2`; empty if the value is not known or not readable."""
    found: list[Node] = []
    for part in given.value.split("@") if isinstance(given.value, str) else ():
        host, colon, numbers = part.strip().partition(":")
        slots = [integer(number.strip()) for number in numbers.split(",")] if colon else []
        if None in slots:
            return ()
        found.append(Node(host, tuple(slot for slot in slots if slot is not None)))
    return tuple(found)


def slots_of(given: SourcedValue) -> tuple[str, ...]:
    """The GPUs of all machines in `work1:0,1@work2`, as they are written; empty if the value is not known."""
    parts = [part.partition(":") for part in given.value.split("@")] if isinstance(given.value, str) else []
    return tuple(slot.strip() for _, colon, slots in parts if colon for slot in slots.split(","))


def launched_by_deepspeed(config: Config) -> Launch | None:
    """The launch of the setup, if DeepSpeed's launcher runs it."""
    launch = config.setup.launch if config.setup else None
    return launch if launch is not None and launch.launcher == "deepspeed" else None


@rule(
    "DS951",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(f"{_RUNNER}, parse_inclusion_exclusion and parse_resource_filter", "https://github.com/deepspeedai/DeepSpeed/issues/5818"),
    untried=_BY_LAUNCHER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"#SBATCH --gres=gpu:2\ndeepspeed --include localhost:4,5 {_TRAIN}",
    integration="deepspeed",
    message="--include localhost:4,5: the launcher may raise \"No slot '4' specified on host 'localhost'\", because localhost has 2 GPUs.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --include localhost {_TRAIN}",
    integration="deepspeed",
    deepspeed="0.16.9",
    message='--include localhost names no GPU of localhost: DeepSpeed 0.16.9 then uses none of them, and the launch fails with "IndexError: list index out of range".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"CUDA_VISIBLE_DEVICES=0,2 deepspeed {_TRAIN}",
    integration="deepspeed",
    message="The launcher reads CUDA_VISIBLE_DEVICES=0,2 as --include localhost:0,2. Where the job sees only 2 GPUs, as under Slurm or in a container, it raises \"No slot '2' specified on host 'localhost'\".",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f'#SBATCH --gres=gpu:4\nexport CUDA_VISIBLE_DEVICES="$SLURM_JOB_GPUS"\ndeepspeed {_TRAIN}',
    integration="deepspeed",
    message='CUDA_VISIBLE_DEVICES gets the numbers of SLURM_JOB_GPUS, which count all GPUs of the machine. Where Slurm shows a job only its own GPUs, these are numbered from 0, and the launch may fail with "No slot \'4\' specified" or "invalid device ordinal".',
)
@good(
    BF16_ZERO_2,
    launch=f'#SBATCH --gres=gpu:4\nexport CUDA_VISIBLE_DEVICES="${{CUDA_VISIBLE_DEVICES:-$SLURM_JOB_GPUS}}"\ndeepspeed {_TRAIN}',
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch='#SBATCH --gres=gpu:4\nif [ -z "$CUDA_VISIBLE_DEVICES" ]; then\n  export CUDA_VISIBLE_DEVICES=$SLURM_JOB_GPUS\nfi\n'
    f"deepspeed {_TRAIN}",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch=f"#SBATCH --gres=gpu:4\nexport CUDA_VISIBLE_DEVICES=$(seq -s, 0 $(echo $SLURM_JOB_GPUS | tr -cd , | wc -c))\ndeepspeed {_TRAIN}",
    integration="deepspeed",
)
@bad(
    BF16_ZERO_2,
    launch=f"deepspeed --include localhost:gpu_ids {_TRAIN}",
    at="",
    integration="deepspeed",
    message="--include localhost:gpu_ids names the GPU 'gpu_ids', and the launcher takes only numbers: it raises ValueError \"invalid literal for int() with base 10: 'gpu_ids'\".",
)
@bad(
    BF16_ZERO_2,
    launch=f"deepspeed --include localhost::0,1 {_TRAIN}",
    at="",
    integration="deepspeed",
    message='--include localhost::0,1 has more than one colon behind the name of a machine: the launcher raises ValueError "too many values to unpack".',
)
@good(BF16_ZERO_2, launch=f"deepspeed --include localhost:$GPUS {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"#SBATCH --gres=gpu:2\ndeepspeed --include localhost:0,1 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"deepspeed --include localhost:4,5 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"deepspeed --include localhost {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"CUDA_VISIBLE_DEVICES=0,1 deepspeed {_TRAIN}", integration="deepspeed")
def launcher_slot_missing(config: Config) -> Iterator[Finding]:
    """`--include` or `--exclude` names a machine or a GPU that the job does not have.

    The launcher numbers the GPUs of a machine from 0 to one less than the `slots` of its line in the hostfile, or than the GPUs that it finds.
    For another number it raises "No slot '4' specified on host 'localhost'", and for another machine "Hostname 'worker-9' not found in
    hostfile". DeepSpeed 0.15.2 to 0.19.6 does not check the numbers of `--include`: the rank that gets such a GPU fails, unless the machine
    has more GPUs than the hostfile says. These releases also find no GPU for a machine without numbers (`--include localhost`).

    Without flags, `CUDA_VISIBLE_DEVICES=0,2` counts as `--include localhost:0,2`, and the launcher removes the variable before it counts.
    Where the job sees only two GPUs, number 2 does not exist; that is reported with `--pedantic`.

    `SLURM_JOB_GPUS` has the numbers of the GPUs on the machine. On clusters that show a job only its own GPUs, these are numbered from 0, so the
    variable does not belong in `CUDA_VISIBLE_DEVICES`, which Slurm sets by itself.

    Use the numbers from 0 on, and the names in the hostfile.
    """
    launch = config.setup.launch if config.setup else None
    if launch is not None and launch.by_machine is not None:
        yield _numbered_by_machine(launch.by_machine)
        return
    launch = launched_by_deepspeed(config)
    if launch is None:
        return
    for flag in ("include", "exclude"):
        given = launch.flags.get(flag)
        if given is None:
            continue
        word = next((slot for slot in slots_of(given) if integer(slot) is None), None)
        if word is not None and ":" in word:
            yield Finding(
                "",
                f'{given.shown} has more than one colon behind the name of a machine: the launcher raises ValueError "too many values to unpack".',
                help="Write the numbers of the GPUs behind one colon, such as localhost:0,1.",
                elsewhere=given.related(""),
            )
            return
        if word is not None:
            yield Finding(
                "",
                f"{given.shown} names the GPU {word!r}, and the launcher takes only numbers: it raises ValueError "
                f'"invalid literal for int() with base 10: {word!r}".',
                help="Write the numbers of the GPUs, such as localhost:0,1.",
                elsewhere=given.related(""),
            )
            return
        for node in nodes_of(given):
            found = _of_node(launch, node, given, flag, config.facts.deepspeed)
            if found is not None:
                yield found
                return
    seen = launch.visible_gpus
    if launch.visible is None or launch.given is not launch.visible or not seen or not _checks_include(config.facts.deepspeed):
        return
    missing = next((number for number in seen if number >= len(seen)), None)
    if missing is not None:
        yield _of_visible(launch, launch.visible, missing)


def _numbered_by_machine(given: SourcedValue) -> Finding:
    name = "SLURM_STEP_GPUS" if "STEP" in given.raw else "SLURM_JOB_GPUS"
    return Finding(
        "",
        f"CUDA_VISIBLE_DEVICES gets the numbers of {name}, which count all GPUs of the machine. Where Slurm shows a job only its own GPUs, these "
        'are numbered from 0, and the launch may fail with "No slot \'4\' specified" or "invalid device ordinal".',
        help="Remove the assignment of CUDA_VISIBLE_DEVICES: Slurm sets it.",
        elsewhere=given.related(""),
        certain=False,
    )


def _checks_include(release: Release) -> bool:
    return not _UNCHECKED[0] <= release <= _UNCHECKED[1]


def _of_node(launch: Launch, node: Node, given: SourcedValue, flag: str, release: Release) -> Finding | None:
    checked = flag == "exclude" or _checks_include(release)
    if flag == "include" and not node.slots and not checked:
        return Finding(
            "",
            f"{given.shown} names no GPU of {node.host}: DeepSpeed {release} then uses none of them, and the launch fails with "
            '"IndexError: list index out of range".',
            help=f"Write the numbers, such as {node.host}:0,1.",
            elsewhere=given.related(""),
        )
    if not launch.hosts:
        return None
    from_hostfile = launch.gpus_given is not None
    slots = launch.hosts.get(node.host)
    if slots is None:
        verb = "raises" if from_hostfile else "may raise"
        known = f"the hostfile has {', '.join(sorted(launch.hosts))}" if from_hostfile else "without a hostfile it knows only localhost"
        return Finding(
            "",
            f"{given.shown}: the launcher {verb} \"Hostname '{node.host}' not found in hostfile\", because {known}.",
            help="Use a name in the hostfile.",
            elsewhere=given.related(""),
            certain=from_hostfile,
        )
    missing = next((slot for slot in node.slots if slot >= slots), None)
    if missing is None:
        return None
    certain = from_hostfile and checked
    outcome = (
        f"the launcher {'raises' if certain else 'may raise'} \"No slot '{missing}' specified on host '{node.host}'\""
        if checked
        else f'the rank on GPU {missing} may fail with "CUDA error: invalid device ordinal"'
    )
    return Finding(
        "",
        f"{given.shown}: {outcome}, because {node.host} has {slots} {'GPU' if slots == 1 else 'GPUs'}.",
        help="Number the GPUs of each machine from 0 on.",
        elsewhere=given.related(""),
        certain=certain,
    )


def _of_visible(launch: Launch, given: SourcedValue, missing: int) -> Finding:
    count = len(launch.visible_gpus or ())
    return Finding(
        "",
        f"The launcher reads {given.shown} as --include localhost:{given.raw}. Where the job sees only {count} "
        f"{'GPU' if count == 1 else 'GPUs'}, as under Slurm or in a container, it raises \"No slot '{missing}' specified on host 'localhost'\".",
        help=f"Select the GPUs with --include localhost:{given.raw}, without CUDA_VISIBLE_DEVICES.",
        elsewhere=given.related(""),
        certain=False,
        effect=Effect.ADVICE,
        pedantic=True,  # the launcher removes the variable before it counts: a machine that shows all its GPUs raises nothing
    )


@rule(
    "DS953",
    effect=Effect.SILENT,
    watches=("setup",),
    references=(f"{_RUNNER}, main", "deepspeed/launcher/launch.py, main"),
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 2 {_TRAIN}",
    integration="deepspeed",
    message="The launcher ignores CUDA_VISIBLE_DEVICES=2,3, because --num_gpus 2 is given: the training runs on GPUs 0, 1.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"export CUDA_VISIBLE_DEVICES=2,3\ndeepspeed --include localhost:0,1 {_TRAIN}",
    integration="deepspeed",
    message="The launcher ignores CUDA_VISIBLE_DEVICES=2,3, because --include localhost:0,1 is given: the training runs on GPUs 0, 1.",
)
@good(BF16_ZERO_2, launch=f"CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus 2 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"CUDA_VISIBLE_DEVICES=2,3 deepspeed --include localhost:2,3 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"CUDA_VISIBLE_DEVICES=0,1,2 deepspeed --num_gpus 2 {_TRAIN}", integration="deepspeed")
def visible_devices_ignored(config: Config) -> Iterator[Finding]:
    """`CUDA_VISIBLE_DEVICES` names other GPUs than the flags of DeepSpeed's launcher, which ignores the variable.

    With `--num_gpus`, `--num_nodes`, `--include` or `--exclude` the launcher prints "but ignoring it", removes the variable, and sets it
    anew for each rank: `CUDA_VISIBLE_DEVICES=2,3 deepspeed --num_gpus 2` runs on GPUs 0 and 1, which another job may use.

    Select the GPUs with `--include localhost:2,3`, or remove the flags: without them the launcher uses the variable.
    """
    launch = launched_by_deepspeed(config)
    if launch is None or launch.visible is None or not launch.visible_gpus or "hostfile" in launch.flags:
        return
    used = _used(launch)
    if used is None or set(used) <= set(launch.visible_gpus):
        return
    flag = launch.flags.get("include") or launch.flags["num_gpus"]
    wanted = ",".join(map(str, launch.visible_gpus))
    yield Finding(
        "",
        f"The launcher ignores {launch.visible.shown}, because {flag.shown} is given: the training runs on "
        f"{'GPU' if len(used) == 1 else 'GPUs'} {', '.join(map(str, used))}.",
        help=f"Select the GPUs with --include localhost:{wanted}, without CUDA_VISIBLE_DEVICES{' and --num_gpus' if 'num' in flag.name else ''}.",
        elsewhere=launch.visible.related(""),
        related=(flag.related("the launcher uses this"),),
    )


def _used(launch: Launch) -> tuple[int, ...] | None:
    """The GPUs of this machine that the flags select; None if they do not say it."""
    if "include" in launch.flags:
        nodes = nodes_of(launch.flags["include"])
        return nodes[0].slots or None if len(nodes) == 1 else None
    count = integer(str(launch.flags["num_gpus"].value)) if "num_gpus" in launch.flags else None
    return tuple(range(min(count, 64))) or None if count is not None else None


@rule(
    "DS954",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(f"{_RUNNER}, main and parse_resource_filter", "accelerate/commands/launch.py, _validate_launch_command"),
    untried=_BY_LAUNCHER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --num_gpus 2 --include localhost:0,1 {_TRAIN}",
    integration="deepspeed",
    message='--include localhost:0,1 together with --num_gpus 2: the launcher raises "Cannot specify num_nodes/gpus with include/exclude".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --include localhost:0,1 --exclude localhost:2 {_TRAIN}",
    integration="deepspeed",
    message='--include localhost:0,1 together with --exclude localhost:2: the launcher raises "include_str and exclude_str are mutually exclusive.".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --num_nodes 2 --num_gpus 8 {_TRAIN}",
    integration="deepspeed",
    message='--num_nodes 2 without --hostfile: unless the machine has a file /job/hostfile, the launcher raises "Num nodes is >1 but no extra nodes available via hostfile".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_nodes 1 {_TRAIN}",
    integration="deepspeed",
    message='--num_nodes 1 together with CUDA_VISIBLE_DEVICES=0,1: unless the machine has a file /job/hostfile, the launcher reads the variable as --include, and raises "Cannot specify num_nodes/gpus with include/exclude".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="accelerate launch --use_deepspeed --multi_gpu --deepspeed_config_file ds_config.json train.py\n",
    message='--use_deepspeed together with --multi_gpu: the launcher raises "You can only use one of `--cpu`, `--multi_gpu`, `--tpu`, `--use_deepspeed`, `--use_fsdp` at a time.".',
)
@good(BF16_ZERO_2, launch=f"deepspeed --num_gpus 2 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"deepspeed --num_nodes 1 --num_gpus 8 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_nodes 1 --num_gpus 2 {_TRAIN}", integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch=f"N=$(nvidia-smi -L | wc -l)\nCUDA_VISIBLE_DEVICES=0,1 deepspeed --num_nodes 1 --num_gpus=$N {_TRAIN}",
    integration="deepspeed",
)
def launcher_flags_conflict(config: Config) -> Iterator[Finding]:
    """Flags of a launcher exclude each other.

    `--num_gpus` and `--num_nodes` together with `--include` or `--exclude` raise "Cannot specify num_nodes/gpus with include/exclude", and
    `--include` with `--exclude` raises "include_str and exclude_str are mutually exclusive." More than one machine requires a hostfile: the
    launcher raises "Num nodes is >1 but no extra nodes available via hostfile" unless the machine has a file /job/hostfile.

    Without a hostfile the launcher reads `CUDA_VISIBLE_DEVICES=0,1` as `--include localhost:0,1`, which `--num_nodes 1` excludes, too. With
    `--num_gpus` it ignores the variable.

    `accelerate launch` accepts one of `--cpu`, `--multi_gpu`, `--tpu`, `--use_deepspeed` and `--use_fsdp`, each without a value.

    Keep one way to select the GPUs. For several machines, pass `--hostfile`. Of the flags of `accelerate launch`, keep `--use_deepspeed`.
    """
    yield from _ways_to_train(config)
    launch = launched_by_deepspeed(config)
    if launch is None:
        return
    flags = launch.flags
    numbers = [flags[name] for name in ("num_gpus", "num_nodes") if _number(flags, name) >= 0]
    filters = [flags[name] for name in ("include", "exclude") if name in flags and flags[name].value != ""]
    if numbers and filters:
        clash, error, advice = (filters[0], numbers[0]), "Cannot specify num_nodes/gpus with include/exclude", f"Remove {numbers[0].name}."
    elif len(filters) == 2:
        clash, error, advice = (filters[0], filters[1]), "include_str and exclude_str are mutually exclusive.", f"Remove {filters[1].name}."
    else:
        documents = config.setup.documents.values() if config.setup else ()
        if not any(_HOSTFILE in one.text for one in documents):  # otherwise a script may write it
            yield from _without_hostfile(flags)
        yield from _with_visible(launch)
        return
    yield Finding(
        "",
        f'{clash[0].shown} together with {clash[1].shown}: the launcher raises "{error}".',
        help=advice,
        elsewhere=clash[0].related(""),
        related=(clash[1].related("given here"),),
    )


def _number(flags: Mapping[str, SourcedValue], name: str) -> int:
    """The value of a flag; -1, the launcher's default, if it is not given or not known."""
    value = integer(str(flags[name].value)) if name in flags else None
    return -1 if value is None else value


def _ways_to_train(config: Config) -> Iterator[Finding]:
    """The finding for `accelerate launch` with flags for several ways to train."""
    launch = config.setup.launch if config.setup else None
    if launch is None or launch.launcher != "accelerate" or "use_deepspeed" not in launch.flags:
        return
    others = [launch.flags[name] for name in ("multi_gpu", "use_fsdp", "cpu", "tpu") if name in launch.flags]
    if others:
        first = launch.flags["use_deepspeed"]
        yield Finding(
            "",
            f"{first.name} together with {others[0].name}: the launcher raises "
            '"You can only use one of `--cpu`, `--multi_gpu`, `--tpu`, `--use_deepspeed`, `--use_fsdp` at a time.".',
            help=f"Remove {others[0].name}.",
            elsewhere=others[0].related(""),
            related=(first.related("excludes it"),),
        )


_HOSTFILE = "/job/hostfile"


def _without_hostfile(flags: Mapping[str, SourcedValue]) -> Iterator[Finding]:
    if "hostfile" in flags or _number(flags, "num_nodes") <= 1:
        return
    nodes = flags["num_nodes"]
    yield Finding(
        "",
        f"{nodes.shown} without --hostfile: unless the machine has a file /job/hostfile, the launcher raises "
        '"Num nodes is >1 but no extra nodes available via hostfile".',
        help="Pass --hostfile FILE.",
        elsewhere=nodes.related(""),
        certain=False,
    )


def _with_visible(launch: Launch) -> Iterator[Finding]:
    flags, visible = launch.flags, launch.visible
    nodes, gpus = _number(flags, "num_nodes"), _number(flags, "num_gpus")
    are_known = all(integer(str(flags[name].value)) is not None for name in ("num_nodes", "num_gpus") if name in flags)
    if visible is None or not are_known or {"hostfile", "include", "exclude"} & set(flags) or nodes > 1 or gpus > 0 or max(nodes, gpus) < 0:
        return
    number = flags["num_nodes" if nodes >= 0 else "num_gpus"]
    yield Finding(
        "",
        f"{number.shown} together with {visible.shown}: unless the machine has a file /job/hostfile, the launcher reads the variable as "
        '--include, and raises "Cannot specify num_nodes/gpus with include/exclude".',
        help=f"Remove {number.name}.",
        elsewhere=number.related(""),
        related=(visible.related("read as --include"),),
        certain=False,
    )


@rule(
    "DS955",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=(f"{_RUNNER}, _parse_hostfile",),
    untried=_BY_LAUNCHER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"echo 'work1' > hosts\ndeepspeed --hostfile hosts {_TRAIN}",
    integration="deepspeed",
    message='hosts: the launcher raises "Hostfile contains a bad entry: work1, unable to proceed with launching".',
)
@good(BF16_ZERO_2, launch=f"echo 'work1 slots=2' > hosts\ndeepspeed --hostfile hosts {_TRAIN}", integration="deepspeed")
def hostfile_refused(config: Config) -> Iterator[Finding]:
    """DeepSpeed's launcher cannot read the hostfile.

    Each line names a machine and its number of GPUs, `worker-1 slots=8`; a machine has one line. The launcher raises ValueError for any other
    line that is not a comment, and for a file without lines.

    Correct the hostfile.
    """
    launch = config.setup.launch if config.setup else None
    if launch is not None and launch.hostfile_error is not None and launch.gpus_given is not None:
        yield Finding(
            "",
            f'{launch.gpus_given.value}: the launcher raises "{launch.hostfile_error}".',
            help="Write a line per machine: its name or address, and slots=8.",
            elsewhere=launch.gpus_given.related(""),
        )


_MPI = ("openmpi", "mpich", "impi", "mvapich")
"""The values of `--launcher` that start every GPU of the hostfile with mpirun."""

_TWO_HOSTS = "cat > hosts <<EOF\nwork1 slots=2\nwork2 slots=2\nEOF\n"


@rule(
    "DS981",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("deepspeed/launcher/multinode_runner.py, validate_args", f"{_RUNNER}, main"),
    untried=_BY_LAUNCHER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"{_TWO_HOSTS}deepspeed --hostfile hosts --launcher openmpi --include work1@work2 {_TRAIN}",
    integration="deepspeed",
    message='--include work1@work2 together with --launcher openmpi: the launcher raises "openmpi backend does not support worker include/exclusion".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --launcher MPICH --force_multi --num_gpus 2 {_TRAIN}",
    integration="deepspeed",
    message='--num_gpus 2 together with --launcher MPICH: the launcher raises "mpich backend does not support limiting num nodes/gpus".',
)
@good(BF16_ZERO_2, launch=f"{_TWO_HOSTS}deepspeed --hostfile hosts --launcher pdsh --include work1@work2 {_TRAIN}", integration="deepspeed")
@good(
    BF16_ZERO_2, launch=f"{_TWO_HOSTS}deepspeed --hostfile hosts --launcher openmpi --include work1:0,1 {_TRAIN}", integration="deepspeed"
)
@good(BF16_ZERO_2, launch=f"deepspeed --launcher openmpi --num_gpus 2 {_TRAIN}", integration="deepspeed")
def mpi_launcher_selects(config: Config) -> Iterator[Finding]:
    """`--launcher openmpi`, `mpich`, `impi` or `mvapich` together with a flag that selects machines or GPUs.

    These launchers start every GPU of the hostfile. With `--include` or `--exclude` they raise "backend does not support worker
    include/exclusion", with `--num_nodes` or `--num_gpus` "backend does not support limiting num nodes/gpus". On one machine DeepSpeed
    starts the ranks itself and ignores `--launcher`, unless `--force_multi` is given.

    Remove the flag and write only the machines and slots to use into the hostfile, or use `--launcher pdsh`.
    """
    launch = launched_by_deepspeed(config)
    kind = launch.flags.get("launcher") if launch is not None else None
    if launch is None or kind is None or str(kind.value).lower() not in _MPI or "no_ssh" in launch.flags:
        return
    flags = launch.flags
    filters = [flags[name] for name in ("include", "exclude") if name in flags and flags[name].value != ""]
    numbers = [flags[name] for name in ("num_nodes", "num_gpus") if _number(flags, name) != -1]
    several = True if "force_multi" in flags else _starts_several(launch)
    if several is False or bool(filters) is bool(numbers):  # DS954 says that both raise
        return
    given = (filters or numbers)[0]
    why = "worker include/exclusion" if filters else "limiting num nodes/gpus"
    where = "" if several else "if the hostfile has more than one machine, "
    yield Finding(
        "",
        f'{given.shown} together with {kind.shown}: {where}the launcher raises "{str(kind.value).lower()} backend does not support {why}".',
        help=f"Remove {given.name} and write only the machines and slots to use into the hostfile, or use --launcher pdsh.",
        elsewhere=given.related(""),
        related=(kind.related("given here"),),
        certain=several is True,
    )


def _starts_several(launch: Launch) -> bool | None:
    """Whether the launcher starts ranks on more than one machine; None if the hostfile is not known."""
    flags = launch.flags
    if "hostfile" not in flags:
        return False
    included = {node.host for node in nodes_of(flags["include"])} if "include" in flags else set()
    if included:
        return len(included) > 1
    if launch.gpus_given is None or not launch.hosts:
        return False if _number(flags, "num_nodes") in (0, 1) else None
    excluded = nodes_of(flags["exclude"]) if "exclude" in flags else ()
    left = len(
        launch.hosts.keys() - {node.host for node in excluded if not node.slots or len(set(node.slots)) >= launch.hosts.get(node.host, 0)}
    )
    most = _number(flags, "num_nodes")
    return (min(left, most) if most > 0 else left) > 1
