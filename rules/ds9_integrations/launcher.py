"""DS9: the number of ranks that a launcher starts."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Severity
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.loaders import accelerate_file
from dslint.setup.arguments import SourcedValue
from dslint.setup.model import Launch

_TWO_MACHINES = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 2\n"
    "num_processes: {processes}\ndeepspeed_config:\n  zero_stage: 2\n"
)
_SLURM_JOB = (
    "#SBATCH --nodes=2\n#SBATCH --gpus-per-node={gpus}\ntorchrun --nnodes 2 --nproc_per_node 8 train.py --deepspeed ds_config.json\n"
)


@rule(
    "DS917",
    "processes-do-not-divide",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("accelerate/utils/launch.py, prepare_deepspeed_cmd_env",),
    setup=True,
)
@bad(BF16_ZERO_2, at=("num_processes",), accelerate=_TWO_MACHINES.format(processes=9))
@good(BF16_ZERO_2, accelerate=_TWO_MACHINES.format(processes=16))
def processes_do_not_divide(config: Config) -> Iterator[Finding]:
    """`num_processes` is not a multiple of `num_machines`, so Accelerate starts fewer processes.

    `num_processes` counts the processes of all machines. Accelerate starts `num_processes // num_machines` of them on each: for 9 on 2
    machines it starts 4 on each, 8 in total. The batch is then smaller than intended, and a written `train_batch_size` may no longer equal
    the product of its factors.

    Write the total number of processes, a multiple of the number of machines.
    """
    file = accelerate_file(config)
    processes, machines = (file.number("num_processes"), file.number("num_machines")) if file else (None, None)
    if file is None or processes is None or machines is None or processes % machines == 0:
        return
    each = processes // machines
    yield Finding(
        "",
        f"num_processes ({processes}) is not a multiple of num_machines ({machines}): "
        f"Accelerate starts {each} processes on each machine, {each * machines} in total.",
        help=f"Write a multiple of {machines}, such as {max(1, (2 * processes + machines - 1) // (2 * machines)) * machines}: "
        "num_processes counts the processes of all machines.",
        elsewhere=file.top["num_processes"].related(""),
        related=(file.top["num_machines"].related("the number of machines"),),
    )


@rule(
    "DS930",
    "ranks-and-gpus-differ",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("deepspeed/launcher/runner.py, parse_resource_filter", "https://pytorch.org/docs/stable/elastic/run.html"),
    setup=True,
)
@bad(BF16_ZERO_2, at="", launch=_SLURM_JOB.format(gpus=4), integration="deepspeed")
@good(BF16_ZERO_2, launch=_SLURM_JOB.format(gpus=8), integration="deepspeed")
def ranks_and_gpus_differ(config: Config) -> Iterator[Finding]:
    """The launcher starts more or fewer ranks than the job has GPUs.

    dslint reads the number of GPUs from the Slurm options (nodes times GPUs per node) or from the hostfile (the sum of its slots). With
    fewer ranks, GPUs that the job pays for stay idle. With more ranks, those without their own GPU fail with
    "CUDA error: invalid device ordinal".

    Use the same number in both places.
    """
    setup = config.setup
    launch = setup.launch if setup else None
    if setup is None or launch is None or launch.gpus is None or launch.gpus_given is None:
        return
    ranks, given = launch.world_size, launch.given
    if ranks is None and setup.accelerate is not None:
        ranks, given = setup.accelerate.number("num_processes"), setup.accelerate.top.get("num_processes")
    if ranks is None or given is None or ranks == launch.gpus or (launch.hosts and _selection(launch) is not None):
        return  # --include selects some of the GPUs on purpose
    more = ranks > launch.gpus
    idle = launch.gpus - ranks
    outcome = (
        'the ranks without a GPU may fail with "CUDA error: invalid device ordinal"'
        if more
        else f"{idle} {'GPU' if idle == 1 else 'GPUs'} may stay idle"
    )
    yield Finding(
        "",
        f"{given.shown} starts {ranks} ranks in total, but the job has {launch.gpus} GPUs "
        f"({launch.gpus_given.where}: {launch.gpus_given.raw}): {outcome}.",
        help="Use the same number in both places.",
        elsewhere=given.related(""),
        related=(launch.gpus_given.related(f"{launch.gpus} GPUs"),),
        effect=Effect.CRASH if more else None,
        phase=Phase.LOAD if more else None,
        severity=Severity.WARNING,
        certain=False,
    )


def _selection(launch: Launch) -> SourcedValue | None:
    """The flag of DeepSpeed's launcher that selects GPUs by their numbers."""
    given = launch.given
    return given if launch.launcher == "deepspeed" and given is not None and given.name.lstrip("-") in ("include", "i") else None


@rule(
    "DS951",
    "launcher-slot-missing",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("deepspeed/launcher/runner.py, parse_resource_filter",),
    untried="raised by DeepSpeed's launcher, before the engine exists",
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="#SBATCH --gres=gpu:2\ndeepspeed --include localhost:4,5 train.py --deepspeed_config ds_config.json\n",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch="#SBATCH --gres=gpu:2\ndeepspeed --include localhost:0,1 train.py --deepspeed_config ds_config.json\n",
    integration="deepspeed",
)
@good(BF16_ZERO_2, launch="deepspeed --include localhost:4,5 train.py --deepspeed_config ds_config.json\n", integration="deepspeed")
def launcher_slot_missing(config: Config) -> Iterator[Finding]:
    """`--include` names a machine or a GPU that the job does not have.

    The launcher numbers the GPUs of a machine from 0 to one less than the `slots` of its line in the hostfile, or the GPUs that it finds.
    It ignores `CUDA_VISIBLE_DEVICES` if `--include` is given. For another number it raises "No slot '4' specified on host 'localhost'", and for
    another machine "Hostname 'worker-9' not found in hostfile". With Slurm options only, the node may have more GPUs than the job requests:
    the finding is then a warning.

    Use the numbers from 0 on, and the names in the hostfile.
    """
    launch = config.setup.launch if config.setup else None
    given = _selection(launch) if launch is not None else None
    if launch is None or given is None or not launch.hosts or not isinstance(given.value, str):
        return
    for node in given.value.split("@"):
        host, _, numbers = node.strip().partition(":")
        slots = launch.hosts.get(host)
        missing = next((one for one in numbers.split(",") if slots is not None and one.strip().isdecimal() and int(one) >= slots), None)
        if slots is not None and missing is None:
            continue
        if slots is None:
            error, found = f"Hostname '{host}' not found in hostfile", f"the hostfile has {', '.join(sorted(launch.hosts))}"
        else:
            error, found = f"No slot '{missing.strip() if missing else ''}' specified on host '{host}'", f"{host} has {slots} GPUs"
        of_hostfile = launch.gpus_given is not None
        yield Finding(
            "",
            f'{given.shown}: the launcher {"raises" if of_hostfile else "may raise"} "{error}", because {found}.',
            help="Number the GPUs of each machine from 0 on." if slots is not None else "Use a name in the hostfile.",
            elsewhere=given.related(""),
            severity=None if of_hostfile else Severity.WARNING,
            certain=of_hostfile,
        )
        return
