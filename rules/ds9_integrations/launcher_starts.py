"""DS9: how often a Slurm job starts its launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.arguments import SourcedValue
from dslint.job.model import Launch, Program
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.loaders import accelerate_file, alone_on_each

_WITHOUT_SRUN = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:4\n{start}python train.py\n"
_LIGHTNING = (
    "import lightning as L\nfrom lightning.fabric.strategies import DeepSpeedStrategy\n"
    "fabric = L.Fabric(devices=4, num_nodes=2, strategy=DeepSpeedStrategy(config='ds_config.json'))\n"
)
_JOB = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node={tasks}\n#SBATCH --gpus-per-node=8\n{start}torchrun --nnodes 2 --nproc_per_node 8 train.py --deepspeed ds_config.json\n"
_ACCELERATE = "accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file ds_config.json"
_OF_DEEPSPEED = (
    "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
    "echo 'work1 slots=8' > hosts\nsrun deepspeed %strain.py --deepspeed --deepspeed_config ds_config.json\n"
)


@rule(
    "DS988",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(
        "https://slurm.schedmd.com/srun.html",
        "torch/distributed/run.py, --nnodes and --nproc_per_node",
        "deepspeed/launcher/runner.py, main",
    ),
    untried="requires a Slurm cluster",
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_JOB.format(tasks=8, start="srun "),
    message="srun starts torchrun 8 times on each machine, once for each task. A launcher starts all ranks of its machine, so the ranks may take the same GPUs or wait for each other.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_JOB.format(tasks=1, start=""),
    message="The script runs on the first of 2 machines, and nothing starts torchrun on the others: its ranks wait for theirs, and may raise when the rendezvous times out.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_WITHOUT_SRUN.format(start=""),
    program=_LIGHTNING,
    integration="lightning",
    message="The job requests 8 tasks, and the script starts train.py once, without srun: Lightning may take it for the first of 8 ranks, and wait for the others.",
)
@good(
    BF16_ZERO_2,
    launch=_WITHOUT_SRUN.format(start=""),
    program=_LIGHTNING.replace("devices=4", "devices=4, plugins=[LightningEnvironment()]"),
    integration="lightning",
)
@good(BF16_ZERO_2, launch=_WITHOUT_SRUN.format(start="srun "), program=_LIGHTNING, integration="lightning")
@good(BF16_ZERO_2, launch=_WITHOUT_SRUN.format(start="flux run -n8 "), program=_LIGHTNING, integration="lightning")
@good(
    BF16_ZERO_2,
    launch=_WITHOUT_SRUN.format(start="for v in $(env | grep -o '^SLURM[^=]*'); do unset $v; done\n"),
    program=_LIGHTNING,
    integration="lightning",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_OF_DEEPSPEED % "--hostfile hosts ",
    integration="deepspeed",
    message="srun starts deepspeed on each of 2 machines, and each of these launchers starts the ranks of all machines in the hostfile: they may take the same GPUs and the same port.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=(_OF_DEEPSPEED % "").replace("srun deepspeed", "srun bash -c 'deepspeed").replace(".json\n", ".json'\n"),
    integration="deepspeed",
    message="srun starts deepspeed on each of 2 machines. Without a hostfile each of these launchers may train by itself, with the GPUs of its machine only.",
)
@good(
    BF16_ZERO_2,
    launch=(_OF_DEEPSPEED % "--hostfile hosts --no_ssh --node_rank $SLURM_NODEID ")
    .replace("srun deepspeed", "srun bash -c 'deepspeed")
    .replace(".json\n", ".json'\n"),
    integration="deepspeed",
)
@good(BF16_ZERO_2, launch=(_OF_DEEPSPEED % "--hostfile hosts ").replace("srun ", ""), integration="deepspeed")
@good(BF16_ZERO_2, launch=(_OF_DEEPSPEED % "").replace("nodes=2", "nodes=1"), integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch=(_OF_DEEPSPEED % "--hostfile hosts ").replace("srun ", "") + "srun bash -c 'nvidia-smi; hostname'\n",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch=(_OF_DEEPSPEED % "--hostfile hosts ").replace("srun deepspeed", "srun -N 1 bash -c 'deepspeed").replace(".json\n", ".json'\n"),
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch=_WITHOUT_SRUN.format(start="").replace("ntasks-per-node=4", "ntasks=8"),
    program=_LIGHTNING,
    integration="lightning",
)
@good(BF16_ZERO_2, launch=_WITHOUT_SRUN.format(start="export SLURM_JOB_NAME=bash\n"), program=_LIGHTNING, integration="lightning")
@bad(
    BF16_ZERO_2,
    at="",
    launch=_JOB.format(tasks=1, start="srun ").replace("--nnodes 2 ", ""),
    message="srun starts torchrun on each of 2 machines, and each of these launchers starts the ranks of one machine only, because nothing sets --nnodes: 2 trainings may run, each by itself.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_JOB.format(tasks=1, start="srun ").replace("torchrun --nnodes 2 --nproc_per_node 8", _ACCELERATE),
    message="srun starts accelerate on each of 2 machines, and each of these launchers starts the ranks of one machine only, because nothing sets --num_machines: 2 trainings may run, each by itself.",
)
@good(BF16_ZERO_2, launch=_JOB.format(tasks=1, start="srun ").replace("torchrun", "torchrun $ARGS").replace("--nnodes 2 ", ""))
@good(BF16_ZERO_2, launch=_JOB.format(tasks=1, start="srun "))
@good(BF16_ZERO_2, launch=_JOB.format(tasks=8, start="srun --ntasks-per-node=1 "))
@good(
    BF16_ZERO_2,
    launch=_JOB.format(tasks=2, start="srun ")
    .replace("nproc_per_node 8", "nproc_per_node 1")
    .replace("gpus-per-node=8", "gpus-per-node=1"),
)
def launcher_not_once_per_machine(config: Config) -> Iterator[Finding]:
    """A Slurm job starts the launcher several times on each machine, or on one machine only.

    A launcher starts all ranks of its machine, so it has to run once on each. `srun` starts it once for each task: with 8 tasks on a machine 8
    launchers start 8 ranks each, which take the same GPUs and the same port, or wait for each other. Without `srun` the script runs on the
    first machine only, and the ranks wait for those of the others until the rendezvous times out.

    DeepSpeed's launcher starts the ranks of all machines in the hostfile from one of them. `srun` on several machines starts it several times;
    without a hostfile each launcher then trains by itself. With `--no_ssh` it starts those of its machine only.

    torchrun and Accelerate start the ranks of one machine unless `--nnodes` and `--num_machines` say otherwise. Where each machine starts
    such a launcher, each trains a model of its own. The same holds for the pods of a PyTorchJob and the machines of SkyPilot.

    Lightning starts no ranks itself in a Slurm job with several tasks: it takes its process for one of them. Without `srun` there is one only.

    Set `--ntasks-per-node=1`, and start the launcher with `srun`. Start a program of Lightning with `srun`, as many tasks as GPUs.
    """
    launch, program = (config.setup.launch, config.setup.program) if config.setup else (None, None)
    of_lightning = program is not None and (program.lightning_trainer or program.fabric)
    if launch is not None and launch.waits_for is not None and program is not None and of_lightning and not _chooses_environment(config):
        yield _alone_of_lightning(launch.waits_for, program)
    if launch is None or launch.launcher not in ("torchrun", "accelerate", "deepspeed"):
        return
    given = launch.flags.get("nproc_per_node") or launch.flags.get("num_gpus")
    starts_one = (given is not None and str(given.value) == "1") or launch.world_size == 1
    if launch.tasks is not None and not starts_one:
        yield Finding(
            "",
            f"srun starts {launch.launcher} {launch.tasks.value} times on each machine, once for each task. A launcher starts all ranks of its machine, so "
            "the ranks may take the same GPUs or wait for each other.",
            help="Set --ntasks-per-node=1.",
            elsewhere=launch.tasks.related(""),
            certain=False,
        )
    if launch.on_each is not None and launch.tasks is None and launch.launcher == "deepspeed":
        yield from _each_for_all(config, launch, launch.on_each)
    if (alone := alone_on_each(config)) is not None and launch.tasks is None:
        yield _each_alone(launch, alone)
    nodes = launch.only_first
    if nodes is not None and launch.launcher != "deepspeed" and launch.nodes == nodes.value:
        yield Finding(
            "",
            f"The script runs on the first of {nodes.value} machines, and nothing starts {launch.launcher} on the others: its ranks wait for theirs, and "
            "may raise when the rendezvous times out.",
            help=f"Start it with srun: srun --ntasks-per-node=1 {launch.launcher} ...",
            elsewhere=nodes.related(""),
            certain=False,
        )


_OF_ONE_MACHINE = ("no_ssh", "node_rank", "launcher", "include", "num_nodes")
"""Flags of DeepSpeed's launcher with which it starts the ranks of its own machine only, or leaves the start of the others to Slurm."""


def _each_for_all(config: Config, launch: Launch, machines: SourcedValue) -> Iterator[Finding]:
    """The finding for DeepSpeed's launcher that srun starts on several machines: one launcher starts the ranks of all."""
    documents = config.setup.documents.values() if config.setup else ()
    has_hostfile = "hostfile" in launch.flags
    if any(name in launch.flags for name in _OF_ONE_MACHINE if name != "num_nodes" or not has_hostfile) or launch.may_hold_more:
        return
    if not has_hostfile and any("hostfile" in one.text.lower() for one in documents if one.language not in ("python", "json")):
        return  # the script may write the default one, /job/hostfile
    yield Finding(
        "",
        f"{_starter(machines)} starts deepspeed on each of {machines.value} machines"
        + (
            ", and each of these launchers starts the ranks of all machines in the hostfile: they may take the same GPUs and the same port."
            if has_hostfile
            else ". Without a hostfile each of these launchers may train by itself, with the GPUs of its machine only."
        ),
        help="Use torchrun, with the number of machines."
        if machines.name != "#SBATCH"
        else (
            "Start deepspeed once, without srun, with a hostfile. Or start it on each machine: "
            if has_hostfile
            else "Use torchrun. Or write a hostfile, and start deepspeed on each machine: "
        )
        + "srun bash -c 'deepspeed --hostfile HOSTFILE --no_ssh --node_rank $SLURM_NODEID --master_addr ADDRESS ...', with single quotes.",
        elsewhere=machines.related(""),
        effect=None if has_hostfile else Effect.SILENT,
        certain=False,
    )


def _starter(machines: SourcedValue) -> str:
    return "srun" if machines.name == "#SBATCH" else "The job"


def _each_alone(launch: Launch, machines: SourcedValue) -> Finding:
    """The finding for a launcher for one machine that is started on several machines."""
    name = "num_machines" if launch.launcher == "accelerate" else "nnodes"
    cause = f"--{name} is 1" if name in launch.flags else f"nothing sets --{name}"
    return Finding(
        "",
        f"{_starter(machines)} starts {launch.launcher} on each of {machines.value} machines, and each of these launchers starts the ranks of one "
        f"machine only, because {cause}: {machines.value} trainings may run, each by itself.",
        help="Write --num_machines and --num_processes for all machines, and give each --machine_rank and --main_process_ip."
        if launch.launcher == "accelerate"
        else f"Write --nnodes {machines.value}, --rdzv_backend c10d and --rdzv_endpoint HOST:PORT.",
        elsewhere=machines.related(""),
        effect=Effect.SILENT,
        certain=False,
    )


def _chooses_environment(config: Config) -> bool:
    """Whether the program may tell Lightning not to take its process for a task of Slurm."""
    documents = config.setup.documents.values() if config.setup else ()
    return any(document.language == "python" and re.search(r"plugins|\w+Environment\b|SLURM_", document.text) for document in documents)


def _alone_of_lightning(tasks: SourcedValue, program: Program) -> Finding:
    return Finding(
        "",
        f"The job requests {tasks.value} tasks, and the script starts {program.path} once, without srun: Lightning may take it for the first of "
        f"{tasks.value} ranks, and wait for the others.",
        help=f"Start it with srun: srun python {program.path}",
        elsewhere=tasks.related(""),
        certain=False,
    )


_NUMBERED = (
    "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
    "%ssrun {start}torchrun --nnodes 2 --nproc_per_node 8 --master_addr $HOST {flags} train.py --deepspeed ds_config.json{end}\n"
)
_TORCHRUN = _NUMBERED % ""
_OF_TASKS = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n{}srun python train.py\n"
_ENGINE = (
    "import deepspeed\nimport torch\n{}"
    "engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-5), config='ds_config.json')\n"
)


@rule(
    "DS999",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    watches=("setup",),
    references=(
        "https://slurm.schedmd.com/sbatch.html, OUTPUT ENVIRONMENT VARIABLES",
        "torch/distributed/run.py, config_from_args: rank of the static rendezvous",
        "accelerate/utils/launch.py, prepare_multi_gpu_env: node_rank",
    ),
    untried="requires a Slurm cluster",
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_TORCHRUN.format(start="", end="", flags="--node_rank $SLURM_NODEID"),
    message="The batch script expands $SLURM_NODEID before srun starts torchrun, and it is 0 there: each of the 2 machines takes itself for number 0, and the ranks wait for each other.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_TORCHRUN.format(start="", end="", flags="--node-rank=${SLURM_PROCID}"),
    message="The batch script expands ${SLURM_PROCID} before srun starts torchrun, and it is 0 there: each of the 2 machines takes itself for number 0, and the ranks wait for each other.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_TORCHRUN.format(start="", end="", flags="--node_rank=${SLURM_NODEID:-0}"),
    message="The batch script expands ${SLURM_NODEID:-0} before srun starts torchrun, and it is 0 there: each of the 2 machines takes itself for number 0, and the ranks wait for each other.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_TORCHRUN.format(start='bash -c "', end='"', flags="--node_rank $SLURM_NODEID"),
    message="The batch script expands $SLURM_NODEID before srun starts torchrun, and it is 0 there: each of the 2 machines takes itself for number 0, and the ranks wait for each other.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=(_NUMBERED % "NODE_RANK=$SLURM_PROCID\n").format(start="", end="", flags="--node_rank $NODE_RANK"),
    message="The batch script expands $SLURM_PROCID before srun starts torchrun, and it is 0 there: each of the 2 machines takes itself for number 0, and the ranks wait for each other.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_TORCHRUN.format(start="", end="", flags="--node_rank \\$SLURM_NODEID"),
    message="No shell expands $SLURM_NODEID behind --node_rank, because srun starts torchrun without one: torchrun expects a number, and stops.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_OF_TASKS.format("export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS\n"),
    program=_ENGINE.format(""),
    message="The batch script expands $SLURM_PROCID before srun starts train.py, and it is 0 there: each task gets RANK=0, and they may wait for each other.",
)
@good(BF16_ZERO_2, launch=_TORCHRUN.format(start="bash -c '", end="'", flags="--node_rank $SLURM_NODEID"))
@good(BF16_ZERO_2, launch=_TORCHRUN.format(start='bash -c "', end='"', flags="--node_rank \\$SLURM_NODEID"))
@good(BF16_ZERO_2, launch=(_NUMBERED % "RUN='--node_rank $SLURM_NODEID'\n").format(start='bash -c "', end='"', flags="$RUN"))
@good(BF16_ZERO_2, launch=_TORCHRUN.format(start="", end="", flags="--rdzv_backend c10d --node_rank $SLURM_NODEID"))
@good(BF16_ZERO_2, launch=_TORCHRUN.format(start="-N 1 -n 1 ", end="", flags="--node_rank $SLURM_NODEID"))
@good(
    BF16_ZERO_2,
    launch=_TORCHRUN.format(start="", end="", flags="--node_rank $SLURM_NODEID")
    .replace("nodes=2", "nodes=1")
    .replace("nnodes 2", "nnodes 1"),
)
@good(
    BF16_ZERO_2,
    launch=_OF_TASKS.format("export RANK=$SLURM_PROCID\n"),
    program=_ENGINE.format("import os\nos.environ['RANK'] = os.environ['SLURM_PROCID']\n"),
)
@good(BF16_ZERO_2, launch=_OF_TASKS.format("").replace("srun python train.py", "srun bash -c 'RANK=$SLURM_PROCID python train.py'"))
def number_expanded_early(config: Config) -> Iterator[Finding]:
    """A Slurm script expands the number of a machine or a rank before `srun` starts the tasks, and all get 0.

    `srun` gives each task its own SLURM_NODEID, SLURM_PROCID and SLURM_LOCALID. The shell of the batch script has these variables, too: it runs
    as the only task of the first machine, and has 0 in all of them. In `srun torchrun --node_rank $SLURM_NODEID` it is this shell that
    expands the variable, before `srun` starts anything. Each launcher then takes its machine for the first, and the ranks have the same numbers
    on each. The same happens in double quotes, and to a variable that the script sets.

    Leave it to a shell that `srun` starts: `srun bash -c 'torchrun --node_rank $SLURM_NODEID ...'`, with single quotes. Or let torchrun number
    the machines: `--rdzv_backend c10d --rdzv_endpoint HOST:PORT`.
    """
    launch, program = (config.setup.launch, config.setup.program) if config.setup else (None, None)
    early = launch.expanded_early if launch is not None else None
    if launch is None or early is None:
        return
    if early.name == "RANK":
        if program is not None and not program.makes_ranks:
            yield _same_rank(early, program)
    elif _rendezvous(config, launch) == "static":
        yield _not_expanded(early, launch) if isinstance(early.value, str) else _same_machine(early, launch)


def _rendezvous(config: Config, launch: Launch) -> object:
    """How the machines find each other: only with "static" they have the numbers that the launch gives them."""
    file = accelerate_file(config) if launch.launcher == "accelerate" else None
    given = launch.flags.get("rdzv_backend") or (file.get("rdzv_backend") if file is not None else None)
    return given.value if given is not None else "static"


def _same_rank(early: SourcedValue, program: Program) -> Finding:
    return Finding(
        "",
        f"The batch script expands {early.raw} before srun starts {program.path}, and it is 0 there: each task gets RANK=0, and they may wait for "
        "each other.",
        help=f"Let each task expand it, in single quotes: srun bash -c 'RANK={early.raw} python {program.path} ...'",
        elsewhere=early.related(""),
        certain=False,
    )


def _same_machine(early: SourcedValue, launch: Launch) -> Finding:
    is_torchrun, is_variable = launch.launcher == "torchrun", early.name == "NODE_RANK"
    started = "the tasks" if is_variable else launch.launcher
    return Finding(
        "",
        f"The batch script expands {early.raw} before srun starts {started}, and it is 0 there: each of the "
        f"{f'{launch.nodes} ' if launch.nodes else ''}machines takes itself for number 0, and the ranks {'' if is_torchrun else 'may '}wait for each other.",
        help=f"Let each task expand it, in single quotes: srun bash -c '{f'NODE_RANK={early.raw}' if is_variable else launch.launcher} ...'."
        + (" Or use --rdzv_backend c10d, which numbers the machines itself." if is_torchrun and not is_variable else ""),
        elsewhere=early.related(""),
        certain=is_torchrun and not launch.may_hold_more,
    )


def _not_expanded(early: SourcedValue, launch: Launch) -> Finding:
    return Finding(
        "",
        f"No shell expands {early.value} behind {early.name}, because srun starts {launch.launcher} without one: {launch.launcher} expects a number, "
        "and stops.",
        help=f"Start a shell: srun bash -c '{launch.launcher} ... {early.name} {early.value} ...'",
        elsewhere=early.related(""),
    )
