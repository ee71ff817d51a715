"""DS9: the number of ranks that a launcher starts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Integration, Release
from dslint.frameworks.registry import of_arguments
from dslint.job.arguments import Arguments, SourcedValue
from dslint.job.model import Launch, Setup
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.loaders import accelerate_file, alone_on_each, trainer_arguments
from dslint.rules.helpers.models import DIVIDING
from dslint.rules.helpers.project import programs_of

_TWO_MACHINES = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 2\n"
    "num_processes: {processes}\ndeepspeed_config:\n  deepspeed_multinode_launcher: standard\n  zero_stage: 2\n"
)
_SLURM_JOB = (
    "#SBATCH --nodes=2\n#SBATCH --gpus-per-node={gpus}\nsrun torchrun --nnodes 2 --nproc_per_node 8 train.py --deepspeed ds_config.json\n"
)
_TASKS = "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n#SBATCH --{gpus}\nsrun python train.py --deepspeed_config ds_config.json\n"
_EIGHT_RANKS = "torchrun --nproc_per_node 8 train.py --deepspeed ds_config.json\n"


@rule(
    "DS917",
    effect=Effect.SILENT,
    watches=("setup",),
    references=("accelerate/utils/launch.py, prepare_deepspeed_cmd_env",),
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at=("num_processes",),
    accelerate=_TWO_MACHINES.format(processes=9),
    message="num_processes (9) is not a multiple of num_machines (2): Accelerate starts 4 processes on each machine, 8 in total.",
)
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
    effect=Effect.SILENT,
    watches=("setup",),
    references=("deepspeed/launcher/runner.py, parse_resource_filter", "https://pytorch.org/docs/stable/elastic/run.html"),
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_SLURM_JOB.format(gpus=4),
    integration="deepspeed",
    message='--nproc_per_node 8 starts 8 ranks on each of 2 machines, but each has 4 GPUs (run.sh:2: #SBATCH --gpus-per-node=4): the ranks without a GPU may fail with "CUDA error: invalid device ordinal".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"CUDA_VISIBLE_DEVICES=0,1 {_EIGHT_RANKS}",
    integration="deepspeed",
    message='--nproc_per_node 8 starts 8 ranks, but the job sees 2 GPUs with CUDA_VISIBLE_DEVICES=0,1 (run.sh:1): the ranks without a GPU may fail with "CUDA error: invalid device ordinal".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\ndeepspeed --num_gpus 8 train.py --deepspeed_config ds_config.json\n",
    integration="deepspeed",
    message='--num_gpus 8 starts 8 ranks on a machine, but it has 4 GPUs (run.sh:2: #SBATCH --gres=gpu:4): the ranks without a GPU may fail with "CUDA error: invalid device ordinal".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_TASKS.format(gpus="gres=gpu:1"),
    integration="deepspeed",
    message='--ntasks-per-node 4 starts 4 ranks, but the job has 1 GPU (run.sh:3: #SBATCH --gres=gpu:1): the ranks without a GPU may fail with "CUDA error: invalid device ordinal".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_TASKS.format(gpus="gpus-per-task=1"),
    integration="deepspeed",
    message='With #SBATCH --gpus-per-task=1 each task of srun sees one GPU, number 0, but DeepSpeed uses GPU number LOCAL_RANK: on each machine, every task except the first may fail with "CUDA error: invalid device ordinal".',
)
@good(BF16_ZERO_2, launch=_TASKS.format(gpus="gpus-per-node=4"), integration="deepspeed")
@good(BF16_ZERO_2, launch=_TASKS.format(gpus="gres=gpu:1").replace("srun", "srun -n 1"), integration="deepspeed")
@good(BF16_ZERO_2, launch=_TASKS.format(gpus="gpus-per-task=1\n#SBATCH --gpu-bind=none"), integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch=_TASKS.format(gpus="gpus-per-task=1"),
    program="import lightning as L\nfrom lightning.fabric.strategies import DeepSpeedStrategy\n"
    "fabric = L.Fabric(devices=1, strategy=DeepSpeedStrategy(config='ds_config.json'))\n",
    integration="lightning",
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    launch=_TASKS.format(gpus="gpus-per-task=1"),
    program="from lightning.pytorch.cli import LightningCLI\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\n"
    "LightningCLI(trainer_defaults={'strategy': DeepSpeedStrategy(config='ds_config.json'), 'devices': 4})\n",
    integration="lightning",
)
@good(
    BF16_ZERO_2,
    launch=_TASKS.format(gpus="gpus-per-task=1"),
    program="import os\nimport deepspeed\nos.environ.setdefault('LOCAL_RANK', '0')\n"
    "deepspeed.initialize(model=model, optimizer=optimizer, config='ds_config.json')\n",
    integration="deepspeed",
)
@good(BF16_ZERO_2, launch=_TASKS.format(gpus="gpus-per-task=1").replace("srun ", "srun ./wrap.sh "), integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch="#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\ndeepspeed --num_gpus 4 train.py --deepspeed_config ds_config.json\n",
    integration="deepspeed",
)
@good(BF16_ZERO_2, launch=_SLURM_JOB.format(gpus=8), integration="deepspeed")
@good(
    BF16_ZERO_2, launch=f"#SBATCH --nodes=1\n#SBATCH --gpus=8\n#SBATCH --gres=lscratch:100,nvme:1\n{_EIGHT_RANKS}", integration="deepspeed"
)
@good(BF16_ZERO_2, launch=f"#SBATCH --nodes=1\n#SBATCH --gres=lscratch:100,gpu:a100:8\n{_EIGHT_RANKS}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"#SBATCH --nodes=1\n#SBATCH --exclusive\n#SBATCH --gres=gpu:1\n{_EIGHT_RANKS}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 {_EIGHT_RANKS}", integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch=f"CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7,8 {_EIGHT_RANKS}",
    program="import trl\nfrom settings import arguments\n"
    "trl.GRPOTrainer('gpt2', args=trl.GRPOConfig(deepspeed='ds_config.json', **arguments())).train()\n",
    integration="transformers",
)
def ranks_and_gpus_differ(config: Config) -> Iterator[Finding]:
    """The launcher starts more or fewer ranks than the job has GPUs.

    dslint reads the number of GPUs from the Slurm options (nodes times GPUs per node), from the hostfile (the sum of its slots), or
    from `CUDA_VISIBLE_DEVICES` before torchrun and `accelerate launch`. With
    fewer ranks, GPUs that the job pays for stay idle. With more ranks, those without their own GPU fail with
    "CUDA error: invalid device ordinal". ms-swift does not leave GPUs idle: it would spread the model over those that a rank sees, which it refuses
    with DeepSpeed.

    With `--gpus-per-task=1` Slurm shows each task its own GPU only, which has the number 0 for each of them. DeepSpeed uses GPU number LOCAL_RANK,
    so on each machine every task except the first fails in the same way.

    Use the same number in both places. For one GPU per task, request them with `--gpus-per-node`, or pass `--gpu-bind=none`.
    """
    setup = config.setup
    launch = setup.launch if setup else None
    if setup is None or launch is None:
        return
    ranks, given = launch.world_size, launch.given
    if launch.one_gpu is not None and not _takes_first(setup):
        yield _of_own_gpus(launch.one_gpu)
        return
    if ranks is None and setup.accelerate is not None:
        ranks, given = setup.accelerate.number("num_processes"), setup.accelerate.top.get("num_processes")
    gpus, gpus_given = _gpus_of(launch, setup)
    if ranks is None or given is None or gpus is None or gpus_given is None or ranks == gpus:
        return
    if launch.hosts and "include" in launch.flags:
        return  # --include selects some of the GPUs on purpose
    more = ranks > gpus
    by_slurm = launch.launcher == "deepspeed" and not launch.hosts
    if not more and (by_slurm or launch.launcher == "srun"):
        return  # deepspeed may select some GPUs, and a task of srun may use several
    if not more and (_shares_gpus(setup) or _may_generate(config) or _spreads_model(setup) or alone_on_each(config) is not None):
        return
    framework = of_arguments(config.arguments)
    refused = framework if not more and framework is not None and framework.spread_error else None
    machines = launch.nodes or (setup.accelerate.number("num_machines") if setup.accelerate is not None else None) or 1
    machines = machines if ranks % machines == gpus % machines == 0 else 1
    on_each = f" on each of {machines} machines" if machines > 1 else ""
    outcome = f"{_gpus((gpus - ranks) // machines)} {'of each machine ' if on_each else ''}may stay idle"
    if more:
        outcome = 'the ranks without a GPU may fail with "CUDA error: invalid device ordinal"'
    elif refused is not None and gpus % ranks:
        outcome = f"{refused.name} may raise AssertionError, because each rank must have the same number of GPUs"
    elif refused is not None:
        outcome = f'each rank sees several GPUs, and {refused.name} may raise "{refused.spread_error} ..."'
    there, owner = _gpus(gpus // machines), "each" if on_each else "the job"
    if by_slurm:
        on_each, owner = " on a machine", "it"
    limit = f"{owner} {_seen(there, gpus_given, by_variable=gpus_given is launch.visible)}"
    yield Finding(
        "",
        f"{given.shown} starts {_ranks(ranks // machines)}{on_each}, but {limit}: {outcome}.",
        help="Use the same number in both places.",
        elsewhere=given.related(""),
        related=(gpus_given.related(f"{there} on each machine" if on_each else there),),
        effect=Effect.CRASH if more or refused else None,
        phase=Phase.LOAD if more or refused else None,
        certain=False,
    )


_SERVES = re.compile(r"vllm|sglang|lmdeploy|\bserve\b")
"""A server that generates, which may use GPUs of the job."""

_SAYS_ONLY = re.compile(r"^\s*#|\binstall\b")
"""A line that starts no server: a comment, or one that installs packages."""

_IN_BACKGROUND = re.compile(r"(?m)(?<!&)&[ \t]*(#.*)?$")
_SEPARATOR = re.compile(r"(?<![&<>|])&(?![&>])")
_REPEATS = re.compile(r"(?m)^[ \t]*(for|while|until)\b|\(\)\s*\{|^[ \t]*function\b|\b(xargs|parallel)\b")
"""What may run one command of a script several times."""


def _spreads_model(setup: Setup) -> bool:
    """Whether the program loads its model over all the GPUs that a rank sees: none of them is idle, and DS957 says what that does."""
    given = setup.program.device_map if setup.program is not None else None
    return given is not None and given.value in DIVIDING


def _shares_gpus(setup: Setup) -> bool:
    """Whether the script may start something beside the training that uses the other GPUs of the job."""
    generates = setup.arguments is not None and any(
        name.startswith(("use_vllm", "vllm_", "use_lmdeploy")) for name in _names_of(setup.arguments)
    )
    given = setup.launch.given if setup.launch is not None else None
    script = setup.documents.get(given.path) if given is not None else None
    if generates or given is None or script is None:
        return generates
    return _starts_others(script.text, given.range.start.line if given.range is not None else 0)


_GENERATES = re.compile(r"\buse_vllm\b|\bGRPO(Trainer|Config)\b")
"""A program that may leave a GPU to vLLM. TRL's first documents of GRPO start one rank less than there are GPUs, and whether the argument is
set often stands in a file that a launcher of its own reads, such as Hydra."""


def _may_generate(config: Config) -> bool:
    return any(_GENERATES.search(text) for text in programs_of(config))


def _starts_others(script: str, own: int) -> bool:
    """Whether a script starts a server, or another command in the background than that of the line `own`."""
    last = 0
    for command in re.split(r"(?<!\\)\n", script):
        first, last = last + 1, last + 1 + command.count("\n")
        if _SERVES.search(command) and not _SAYS_ONLY.search(command):
            return True
        if not _IN_BACKGROUND.search(command):
            continue
        if not first <= own <= last or len(_SEPARATOR.findall(command)) > 1 or _REPEATS.search(script):
            return True
    return False


def _names_of(arguments: Arguments) -> set[str]:
    return {*arguments.values, *(one.name.lstrip("-").replace("-", "_") for one in arguments.others)}


_FIRST = re.compile(
    r"device_rank|(LOCAL_RANK[\"']?\]?\s*[=:]|setdefault\(\s*[\"']LOCAL_RANK[\"']\s*,)\s*[\"']?(str\()?0|LightningCLI"
    r"|(CUDA|ROCR)_VISIBLE_DEVICES|device_count\(\)"
)
"""What may let each process take the only GPU that it sees."""


def _takes_first(setup: Setup) -> bool:
    """Whether the program may choose its GPU by something else than LOCAL_RANK, or is Lightning's, which counts the GPUs itself."""
    if setup.program is not None and (setup.program.lightning_trainer or setup.program.fabric):
        return True
    return any(document.language == "python" and _FIRST.search(document.text) for document in setup.documents.values())


def _of_own_gpus(given: SourcedValue) -> Finding:
    shown = given.raw or given.name
    return Finding(
        "",
        f"With {shown} each task of srun sees one GPU, number 0, but DeepSpeed uses GPU number LOCAL_RANK: on each machine, every task except the "
        'first may fail with "CUDA error: invalid device ordinal".',
        help="Request the GPUs with --gpus-per-node, or pass --gpu-bind=none to srun.",
        elsewhere=given.related(""),
        effect=Effect.CRASH,
        phase=Phase.LOAD,
        certain=False,
    )


def _ranks(count: int) -> str:
    return f"{count} {'rank' if count == 1 else 'ranks'}"


def _gpus(number: int) -> str:
    return f"{number} {'GPU' if number == 1 else 'GPUs'}"


def _seen(gpus: str, given: SourcedValue, *, by_variable: bool) -> str:
    """How a message says how many GPUs there are, with what says so."""
    return f"sees {gpus} with {given.shown} ({given.where})" if by_variable else f"has {gpus} ({given.where}: {given.raw})"


def _gpus_of(launch: Launch, setup: Setup) -> tuple[int | None, SourcedValue | None]:
    """The number of GPUs of the job, and what says so. DeepSpeed's launcher has its own rules for CUDA_VISIBLE_DEVICES."""
    seen = launch.visible_gpus
    if not seen or launch.launcher == "deepspeed":
        return launch.gpus, launch.gpus_given
    machines = launch.nodes if launch.nodes is not None else setup.accelerate.number("num_machines") if setup.accelerate else None
    if "nnodes" in launch.flags and launch.nodes is None:
        return None, None
    return len(seen) * (machines or 1), launch.visible


_OF_A_LAUNCHER = re.compile(r"\bif\b[^\n]*(?:world_?size|local_?rank|\brank\b|distributed|is_initialized|\bddp\b)", re.IGNORECASE)
_MOST_LINES, _MOST_OF_STATEMENT, _LONG = 200, 3, 400


def _names_it_for_several(setup: Setup) -> bool:
    """Whether the program names its config in a branch that asks for ranks: a process that no launcher started trains without DeepSpeed."""
    link = setup.link
    document = setup.documents.get(link.path) if link is not None else None
    if link is None or link.range is None or document is None or document.language != "python":
        return False
    lines, at = document.text.splitlines(), link.range.start.line - 1
    name = link.raw if link.raw.isidentifier() else ""
    assigned = re.compile(rf"\s*{name}\s*=(?!=)(?!\s*None\b)") if name else None
    sets = [number for number, line in enumerate(lines[:at]) if assigned is not None and assigned.match(line)]
    return _asks_for_ranks(lines, at) or (bool(sets) and all(_asks_for_ranks(lines, number) for number in sets[:_MOST_LINES]))


def _asks_for_ranks(lines: list[str], at: int) -> bool:
    """Whether a statement, or a branch around it, asks for ranks."""
    if any(_OF_A_LAUNCHER.search(line) for line in _statement(lines, at)):
        return True
    depth = _indent(lines[at])
    for line in reversed(lines[max(0, at - _MOST_LINES) : at]):
        if line.strip() and _indent(line) < depth:
            depth = _indent(line)
            if _OF_A_LAUNCHER.search(line[:_LONG]):
                return True
    return False


def _statement(lines: list[str], at: int) -> Iterator[str]:
    """The first lines of a statement: one that follows belongs to it where a bracket is open, or where it begins with the condition of an
    expression.
    """
    opened = 0
    for number, line in enumerate(one[:_LONG] for one in lines[at : at + _MOST_OF_STATEMENT]):
        if number and opened <= 0 and not _CONDITION.match(line):
            return
        yield line
        opened += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))


_CONDITION = re.compile(r"\s*if\b(?!.*:\s*(?:#.*)?$)")
"""The condition of an expression on a line of its own. That of a branch ends with a colon."""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


_BY_ITSELF = "needs a process without the variables of a launcher; tests/setup runs one"


@rule(
    "DS962",
    effect=Effect.CRASH,
    phase=Phase.INITIALIZE,
    step=LoadStep.RANKS,
    watches=("setup",),
    references=("deepspeed/comm/comm.py, init_distributed and mpi_discovery",),
    untried=_BY_ITSELF,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="python train.py --deepspeed_config ds_config.json\n",
    program="import deepspeed\nargs = deepspeed.add_config_arguments(parser).parse_args()\ndeepspeed.initialize(args=args, model=model)\n",
    message="python starts train.py without a launcher: DeepSpeed finds no RANK in its environment, looks for MPI, and raises \"No module named 'mpi4py'\" unless that is installed.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\nsrun python train.py --deepspeed_config ds_config.json\n",
    program="import deepspeed\nargs = deepspeed.add_config_arguments(parser).parse_args()\ndeepspeed.initialize(args=args, model=model)\n",
    message="srun starts train.py as one task without a launcher: DeepSpeed finds no RANK in its environment, looks for MPI, and raises \"No module named 'mpi4py'\" unless that is installed; with it, the program trains on one GPU.",
)
@good(
    BF16_ZERO_2,
    launch="deepspeed --num_gpus 1 train.py --deepspeed_config ds_config.json\n",
    program="import deepspeed\nargs = deepspeed.add_config_arguments(parser).parse_args()\ndeepspeed.initialize(args=args, model=model)\n",
)
def no_launcher(config: Config) -> Iterator[Finding]:
    """A script starts the program with `python`, so no launcher tells it its rank.

    DeepSpeed needs the environment variables RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which launchers set. Without them it
    looks for MPI, on one GPU and without ZeRO, too, and raises `ModuleNotFoundError: No module named 'mpi4py'` unless that package is
    installed. transformers and Accelerate start DeepSpeed in the same way. With mpi4py, the program trains on one GPU. With Accelerate before
    1.0 and an optimizer in the config, a Trainer's program below stage 3 does not reach DeepSpeed: it gets `DummyOptim`, which cannot step.
    Nor does one that sees several GPUs: the Trainer wraps the model in DataParallel, does not prepare it, and Accelerate has no engine.

    `accelerate launch` of one process does the same as `python`, unless a flag, or the file of `accelerate config`, selects DeepSpeed: it
    sets these variables only for several processes, and for DeepSpeed. Nor does `srun` set them: its own are called SLURM_PROCID and
    SLURM_NTASKS. As the only task of a job with several GPUs, the program uses one of them at most.

    Start the program with `deepspeed`, `torchrun` or `accelerate launch --use_deepspeed`, for one GPU as well.
    """
    setup = config.setup
    if setup is None or setup.launch is None or setup.launch.bare is None or (setup.program is not None and setup.program.makes_ranks):
        return
    if _names_it_for_several(setup):
        return
    if setup.launch.launcher == "accelerate":
        yield from _started_by_accelerate(config, setup.launch.bare)
        return
    alike = setup.program is not None and setup.program.loader in _STARTED_ALIKE
    if alike or (_is_of_framework(config, setup.launch) and (setup.program is None or setup.program.loader is None)):
        program = setup.launch.bare
        by_slurm, by_command = setup.launch.launcher == "srun", setup.launch.launcher == "torchrun"
        starts = f"{'srun' if by_slurm else 'python'} starts {program.raw}{' as one task' if by_slurm else ''}"
        starts = f"{program.raw} starts one process" if by_command else starts
        with_mpi = "; with it, the program trains on one GPU" if by_slurm else ""
        launcher = "deepspeed --num_gpus 1" if alike else "torchrun --nproc_per_node 1"  # before 3.0 ms-swift refuses --local_rank
        write = f"Write {launcher} {program.raw}, or the number of GPUs to train on."
        write_torchrun = f"Write srun torchrun --nproc_per_node N {program.raw}, with the number of GPUs as N."
        old = _leaves_deepspeed_out(config)
        makes = f"makes only a stand-in for the optimizer, and the Trainer raises {_STAND_IN} in its first step"
        looks = f"DeepSpeed finds no RANK in its environment, looks for MPI, and raises {_NO_MPI} unless that is installed{with_mpi}"
        seen = len(setup.launch.visible_gpus) if setup.launch.visible_gpus is not None else None
        in_one = seen != 1 and _may_be_data_parallel(config)
        copies = f"the Trainer wraps the model in DataParallel instead of passing it to DeepSpeed, and its first step raises {_NO_ENGINE}"
        if old is not None:
            outcome = f"without LOCAL_RANK Accelerate {old} starts no DeepSpeed, {makes}"
        elif in_one:
            outcome = (
                f"with {seen} visible GPUs {copies}" if seen is not None else f"on one GPU {looks}; with several visible GPUs {copies}"
            )
        else:
            outcome = looks
        before = (
            ""
            if old is not None or not _may_leave_deepspeed_out(config)
            else f" With Accelerate before 1.0 the Trainer raises {_STAND_IN}."
        )
        yield Finding(
            "",
            f"{starts} without a launcher: {outcome}.{before}",
            help=write_torchrun if by_slurm else "Write NPROC_PER_NODE=1 before the command." if by_command else write,
            elsewhere=program.related(""),
            phase=Phase.STEP if old is not None or (in_one and seen is not None) else None,
            certain=False,
        )


_NO_MPI = "\"No module named 'mpi4py'\""
_NO_ENGINE = "AttributeError \"'NoneType' object has no attribute 'backward'\""
_STAND_IN = "AttributeError \"'DummyOptim' object has no attribute 'step'\""


def _may_be_data_parallel(config: Config) -> bool:
    """Whether the Trainer of one process that sees several GPUs wraps the model in DataParallel.

    Source: transformers/trainer.py, Trainer._wrap_model: not a quantized model; what it has wrapped it does not prepare. At stage 3 loading
    the model looks for the ranks before that.
    """
    program = config.setup.program if config.setup is not None else None
    if program is None or program.loader != Integration.TRANSFORMERS.value:
        return False
    return program.quantized is None and config.value("zero_optimization.stage") < 3


def _leaves_deepspeed_out(config: Config) -> Release | None:
    """The pinned release of Accelerate if, without LOCAL_RANK, it leaves DeepSpeed out and its stand-in for the optimizer of the config in.

    Source: accelerate/state.py, AcceleratorState.__init__; since 1.0.0 it sets the type DEEPSPEED there. Below stage 3 the Trainer makes no
    use of DeepSpeed before that, and since transformers 4.30 none without Accelerate.
    """
    release = config.context.pinned("accelerate")
    is_old = release is not None and Release(0, 20, 0) <= release < Release(1, 0, 0)
    return release if is_old and _may_leave_deepspeed_out(config) else None


def _may_leave_deepspeed_out(config: Config) -> bool:
    """Whether a release of Accelerate leaves DeepSpeed out of this job, which may be the one of the job: none is pinned, or an older one."""
    release, transformers = config.context.pinned("accelerate"), config.context.pinned("transformers")
    by_trainer = config.facts.integration is Integration.TRANSFORMERS and (transformers is None or transformers >= Release(4, 30, 0))
    if not by_trainer or (release is not None and not Release(0, 20, 0) <= release < Release(1, 0, 0)):
        return False
    return config.has("optimizer") and bool(config.value("zero_optimization.stage") < 3)


_STARTED_ALIKE = (Integration.DEEPSPEED.value, Integration.TRANSFORMERS.value, Integration.ACCELERATE.value)


def _is_of_framework(config: Config, launch: Launch) -> bool:
    """Whether python, or its own command, starts the program of a framework that starts ranks only when it is told to, and sees one GPU at most."""
    framework = of_arguments(config.arguments)
    if framework is None or framework.loader is not Integration.TRANSFORMERS or not framework.starts_ranks or framework.starts_all:
        return False
    seen = len(launch.visible_gpus) if launch.visible_gpus is not None else None
    if launch.launcher == "torchrun":  # its own command, which starts torchrun only where a variable asks for it
        return seen == 1
    return launch.launcher in ("python", "srun") and not (seen is not None and seen > 1)  # DS982 says what it raises


def _started_by_accelerate(config: Config, started: SourcedValue) -> Iterator[Finding]:
    """The finding for one process of `accelerate launch`, if the arguments or the program bring DeepSpeed in, and no Accelerate file.

    At stage 3 the Trainer's program looks for the ranks when it loads the model, otherwise when it calls `deepspeed.initialize`.
    """
    program = config.setup.program if config.setup else None
    plugin = program is not None and program.loader == Integration.ACCELERATE.value
    if (trainer_arguments(config) is None and not plugin) or config.facts.world_size != 1 or accelerate_file(config) is not None:
        return
    loads_it = config.value("zero_optimization.stage") >= 3
    # without --num_processes, a file in the user's home may say more than the number
    sure = (
        config.context.leaves_out("mpi4py")
        and config.setup is not None
        and config.setup.launch is not None
        and config.setup.launch.given is not None
    )
    yield Finding(
        "",
        f"{started.raw} is one process of accelerate launch without --use_deepspeed, which sets no RANK: DeepSpeed looks for MPI, and "
        f"raises \"No module named 'mpi4py'\"{', which the project does not require' if sure else ' unless that is installed'}.",
        help="Add --use_deepspeed, or select DeepSpeed with accelerate config.",
        elsewhere=started.related(""),
        phase=Phase.LOAD if loads_it else None,
        step=LoadStep.MODEL if loads_it else None,
        certain=sure,
    )
