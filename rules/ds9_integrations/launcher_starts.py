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

_WITHOUT_SRUN = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gres=gpu:4\n{start}python train.py\n"
_LIGHTNING = (
    "import lightning as L\nfrom lightning.fabric.strategies import DeepSpeedStrategy\n"
    "fabric = L.Fabric(devices=4, num_nodes=2, strategy=DeepSpeedStrategy(config='ds_config.json'))\n"
)
_JOB = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node={tasks}\n#SBATCH --gpus-per-node=8\n{start}torchrun --nnodes 2 --nproc_per_node 8 train.py --deepspeed ds_config.json\n"
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
@good(BF16_ZERO_2, launch=_OF_DEEPSPEED % "--hostfile hosts --no_ssh --node_rank $SLURM_NODEID ", integration="deepspeed")
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
        f"srun starts deepspeed on each of {machines.value} machines"
        + (
            ", and each of these launchers starts the ranks of all machines in the hostfile: they may take the same GPUs and the same port."
            if has_hostfile
            else ". Without a hostfile each of these launchers may train by itself, with the GPUs of its machine only."
        ),
        help="Start deepspeed once, without srun, with a hostfile. Or start it with srun, --no_ssh, --node_rank $SLURM_NODEID and --master_addr."
        if has_hostfile
        else "Write a hostfile, and start deepspeed with srun, --hostfile, --no_ssh, --node_rank $SLURM_NODEID and --master_addr. Or use torchrun.",
        elsewhere=machines.related(""),
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
