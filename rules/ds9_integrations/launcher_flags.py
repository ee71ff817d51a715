"""DS9: flags of one launcher that are given to another one, and values that no launcher takes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.job.arguments import SourcedValue
from dslint.job.model import Launch
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import ACCELERATE_HEAD, BF16_ZERO_2
from dslint.rules.helpers.loaders import accelerate_file

_TRAIN = "train.py --deepspeed_config ds_config.json\n"

_NAMES = {"deepspeed": "DeepSpeed's launcher", "torchrun": "torchrun", "accelerate": "accelerate launch"}

_DEEPSPEED = """
    include exclude hostfile num_gpus num_nodes master_addr master_port node_rank no_ssh no_ssh_check force_multi launcher launcher_args autotuning
    no_python no_local_rank save_pid enable_each_rank_log bind_cores_to_rank bind_core_list ssh_port venv_script log_level
"""
_TORCHRUN = "nnodes nproc_per_node node_rank master_addr master_port rdzv_endpoint rdzv_id standalone start_method no_python"
_ACCELERATE = """
    num_processes num_machines machine_rank main_process_ip main_process_port mixed_precision config_file use_deepspeed multi_gpu
    deepspeed_config_file zero_stage no_python
"""

OWN_FLAGS = {
    "deepspeed": frozenset(_DEEPSPEED.split()),
    "torchrun": frozenset(_TORCHRUN.split()),
    "accelerate": frozenset(_ACCELERATE.split()),
}
"""Flags that each launcher has; of torchrun and accelerate those that another launcher may be given by mistake."""

OF_PROGRAMS = frozenset(
    ["deepspeed", "deepspeed_config", "model_name_or_path", "output_dir", "per_device_train_batch_size", "bf16", "fp16"]
)
"""Flags of programs that are given to a launcher by mistake."""

_COUNTERPARTS = (
    {"deepspeed": "num_gpus", "torchrun": "nproc_per_node", "accelerate": "num_processes"},
    {"deepspeed": "num_nodes", "torchrun": "nnodes", "accelerate": "num_machines"},
    {"deepspeed": "node_rank", "torchrun": "node_rank", "accelerate": "machine_rank"},
    {"deepspeed": "master_addr", "torchrun": "master_addr", "accelerate": "main_process_ip"},
    {"deepspeed": "master_port", "torchrun": "master_port", "accelerate": "main_process_port"},
    {"deepspeed": "module", "torchrun": "m", "accelerate": "m"},
)
"""Flags that mean the same."""


def refused_by(launcher: str, name: str, written: str) -> bool:
    """Whether a launcher ends with an error because it does not have a flag. `written` is the flag as written, with hyphens.

    Only flags that another launcher has, or that are misspelt with hyphens, are known to be refused.
    """
    own = OWN_FLAGS.get(launcher)
    if own is None:
        return False
    if launcher == "deepspeed" and ((name in own and "-" in written.lstrip("-")) or written == "-m"):
        return True
    of_program = name in OF_PROGRAMS and launcher != "accelerate"  # which has --deepspeed_config_file, and takes a part of it for the whole
    return name not in own and (of_program or any(name in flags for flags in OWN_FLAGS.values()))


@rule(
    "DS961",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("deepspeed/launcher/runner.py, parse_args", "torch/distributed/run.py", "accelerate/commands/launch.py"),
    untried="raised by the launcher, before the engine exists; tests/setup runs the parsers of the launchers",
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --nproc_per_node 4 {_TRAIN}",
    integration="deepspeed",
    message='DeepSpeed\'s launcher has no flag --nproc_per_node: it ends with "error: unrecognized arguments: --nproc_per_node".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --num-gpus=4 {_TRAIN}",
    integration="deepspeed",
    message='DeepSpeed\'s launcher has no flag --num-gpus: it ends with "error: unrecognized arguments: --num-gpus".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"torchrun --num_gpus 4 {_TRAIN}",
    integration="deepspeed",
    message='torchrun has no flag --num_gpus: it ends with "error: unrecognized arguments: --num_gpus".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"accelerate launch --use_deepspeed --module --no_python {_TRAIN}",
    integration="accelerate",
    message="accelerate launch refuses --module with --no_python: it ends with a ValueError.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed /hostfile {_TRAIN}",
    integration="deepspeed",
    message="DeepSpeed's launcher runs /hostfile as the Python program, with the program after it as its argument, because no flag stands before it: the training never starts.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --num_gpus 4 python {_TRAIN}",
    integration="deepspeed",
    message="DeepSpeed's launcher starts Python itself, and runs python as its program: Python finds no such file, or no source text in it.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed CUDA_VISIBLE_DEVICES=0,1 {_TRAIN}",
    integration="deepspeed",
    message="DeepSpeed's launcher runs CUDA_VISIBLE_DEVICES=0,1 as the Python program, with the program after it as its argument: behind the command it sets no variable, and the training never starts.",
)
@good(BF16_ZERO_2, launch=f"CUDA_VISIBLE_DEVICES=0,1 deepspeed {_TRAIN}", integration="deepspeed")
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --num_gpus 4 python -u {_TRAIN}",
    integration="deepspeed",
    message="DeepSpeed's launcher starts Python itself, and runs python as its program: Python finds no such file, or no source text in it.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --master_addr admin@10.0.0.1 --master_port 29501 {_TRAIN}",
    integration="deepspeed",
    message='--master_addr admin@10.0.0.1 has a user: admin@10.0.0.1 is looked up as the name of a machine, and the run ends with an error such as "Name or service not known".',
)
@bad(
    BF16_ZERO_2,
    at=("main_process_ip",),
    accelerate=ACCELERATE_HEAD + "num_machines: 2\nnum_processes: 16\nmain_process_ip: 10.0.0.1:29500\nmain_process_port: 29500\n"
    "deepspeed_config:\n  zero_stage: 2\n  deepspeed_multinode_launcher: standard\n",
    message='main_process_ip: 10.0.0.1:29500 has a port: 10.0.0.1:29500 is looked up as the name of a machine, and the run ends with an error such as "Name or service not known".',
)
@good(BF16_ZERO_2, launch=f"deepspeed --master_addr fe80::1 --master_port 29501 {_TRAIN}", integration="deepspeed")
@good(
    BF16_ZERO_2,
    launch=f"torchrun --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint node0:29500 --master_addr node0:29500 {_TRAIN}",
    integration="deepspeed",
)
@good(BF16_ZERO_2, launch=f"torchrun --standalone --nproc_per_node 8 --master_addr tcp://node0 {_TRAIN}", integration="deepspeed")
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"torchrun --nproc_per_node 8 --master_port 0 {_TRAIN}",
    integration="deepspeed",
    message="torchrun passes the port 0 on instead of a free one: the ranks connect to port 0, and the run ends with a timeout.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"deepspeed --num_gpus 8 --master_port 0 {_TRAIN}",
    integration="deepspeed",
    message="DeepSpeed's launcher passes the port 0 on instead of a free one: the ranks connect to port 0, and the run ends with a timeout.",
)
@good(BF16_ZERO_2, launch=f"torchrun --nproc_per_node 8 --standalone --master_port 0 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"torchrun --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint localhost:0 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"deepspeed --num_gpus 1 --master_port 0 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"deepspeed --num_gpus 4 --master_port 29501 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"accelerate launch --use_deepspeed --main_process_port 0 {_TRAIN}", integration="accelerate")
@bad(
    BF16_ZERO_2,
    at="",
    launch="deepspeed train.py --num_gpus=4 --deepspeed_config ds_config.json\n",
    integration="deepspeed",
    message="--num_gpus 4 stands behind train.py: DeepSpeed's launcher passes it on to the program, and starts its ranks without it.",
)
@good(BF16_ZERO_2, launch="deepspeed $WORDS --num_gpus 4 train.py --deepspeed_config ds_config.json\n", integration="deepspeed")
@good(BF16_ZERO_2, launch="deepspeed --num_gpus 4 train.py --num_gpus 4 --deepspeed_config ds_config.json\n", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"deepspeed --num_gpus 4 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch=f"torchrun --nproc-per-node 4 {_TRAIN}", integration="deepspeed")
@good(BF16_ZERO_2, launch="accelerate launch --deepspeed_config_file ds_config.json train.py\n", integration="accelerate")
def launcher_flag_refused(config: Config) -> Iterator[Finding]:
    """A launcher is given a flag that it does not have, or a value without its flag.

    The launchers name the same things differently: `deepspeed` has `--num_gpus` and `--num_nodes`, `torchrun` has `--nproc_per_node` and
    `--nnodes`, and `accelerate launch` has `--num_processes` and `--num_machines`. Each ends with "error: unrecognized arguments" for a
    flag of another one. `deepspeed` also knows its flags only with underscores: it refuses `--num-gpus`. None of them takes `--module`
    together with `--no_python`. Without its flag, a hostfile, a config or a number is what the launcher runs as the program, and so is `python`.

    The address of the first machine is an IP address or a name, without a user, a port or a scheme: `user@10.0.0.1` and
    `10.0.0.1:29500` are looked up as they are, and the run ends with "Name or service not known" or another error about it.

    The port 0 lets the first rank choose a free port, but the launchers tell every rank to connect to port 0, so the run ends with a timeout.
    `torchrun --standalone` chooses one port for all ranks, and so does `accelerate launch --main_process_port 0` since Accelerate 1.7.0.

    A flag of the program, such as `--deepspeed`, stands after the program: before it, it is one of the launcher's. And a flag of the
    launcher behind the program, as in `accelerate launch train.py --num_processes 8`, is one of the program.

    Write the flag of the launcher that starts the training.
    """
    launch = config.setup.launch if config.setup else None
    yield from _not_an_address(config, launch)
    if launch is None:
        return
    yield from _port_zero(config, launch)
    module, plain = launch.flags.get("module") or launch.flags.get("m"), launch.flags.get("no_python")
    if module is not None and plain is not None and launch.launcher in _NAMES:
        yield Finding(
            "",
            f"{_NAMES[launch.launcher]} refuses {module.name} with {plain.name}: it ends with a ValueError.",
            help=f"Remove {plain.name} for a module, or {module.name} for a command that is not Python.",
            elsewhere=plain.related(""),
        )
    yield from _behind_program(config, launch)
    wrong = launch.not_a_program
    if wrong is not None and launch.launcher in _NAMES:
        yield _not_a_program(launch, wrong)
    refused = {name: given for name, given in launch.flags.items() if refused_by(launch.launcher, name, given.name)}
    if not refused:
        return
    *most, last = (given.name for given in refused.values())
    named = f"flags {', '.join(most)} and {last}" if most else f"flag {last}"
    first = next(iter(refused.values()))
    yield Finding(
        "",
        f'{_NAMES[launch.launcher]} has no {named}: it ends with "error: unrecognized arguments: {first.name}".',
        help=" ".join(dict.fromkeys(_help(launch, name, given) for name, given in refused.items())),
        elsewhere=first.related(""),
    )


_OF_RANKS = {
    "deepspeed": ("num_gpus", "num_nodes", "hostfile", "include"),
    "torchrun": ("nproc_per_node", "nnodes"),
    "accelerate": ("num_processes", "num_machines", "use_deepspeed", "deepspeed_config_file"),
}
"""Flags of the launchers that programs have seldom: those that say which ranks run, and with what config."""


def _behind_program(config: Config, launch: Launch) -> Iterator[Finding]:
    """A flag of the launcher behind the program, which gets it. A program that is seen says by itself whether it takes it (DS973)."""
    passed = launch.passed
    if passed is None or config.setup is None or config.setup.program is not None or not passed.program.raw.endswith(".py"):
        return  # a variable in the place of the program may hold flags
    names = {name.replace("-", "_"): given for name, given in passed.flags.items()}
    lost = [names[name] for name in _OF_RANKS.get(launch.launcher, ()) if name in names and name not in launch.flags]
    if lost:
        is_one = len(lost) == 1
        shown = " and ".join(one.shown for one in lost)
        yield Finding(
            "",
            f"{shown} {'stands' if is_one else 'stand'} behind {passed.program.raw}: {_NAMES[launch.launcher]} passes "
            f"{'it' if is_one else 'them'} on to the program, and starts its ranks without {'it' if is_one else 'them'}.",
            help=f"Write {shown} before {passed.program.raw}.",
            elsewhere=lost[0].related(""),
            effect=Effect.SILENT,
            certain=False,
        )


def _not_a_program(launch: Launch, wrong: SourcedValue) -> Finding:
    """The finding for a value that stands in the place of the program."""
    if re.fullmatch(r"(.*/)?python[\d.]*", wrong.raw):
        return Finding(
            "",
            f"{_NAMES[launch.launcher]} starts Python itself, and runs {wrong.raw} as its program: Python finds no such file, or no source text "
            "in it.",
            help=f"Remove {wrong.raw}. For a module write --module NAME.",
            elsewhere=wrong.related(""),
        )
    if (name := wrong.raw.partition("=")[0]) != wrong.raw:
        return Finding(
            "",
            f"{_NAMES[launch.launcher]} runs {wrong.raw} as the Python program, with the program after it as its argument: behind the command it sets "
            "no variable, and the training never starts.",
            help=f"Write {name}=... before {launch.launcher}.",
            elsewhere=wrong.related(""),
        )
    flag = "--hostfile" if "hostfile" in wrong.raw and launch.launcher == "deepspeed" else ""
    if wrong.raw.isdecimal():
        flag = f"--{_COUNTERPARTS[0][launch.launcher]}"
    return Finding(
        "",
        f"{_NAMES[launch.launcher]} runs {wrong.raw} as the Python program, with the program after it as its argument, because no flag stands "
        "before it: the training never starts.",
        help=f"Write {flag} {wrong.raw}." if flag else f"Write the flag that {wrong.raw} belongs to before it, or remove it.",
        elsewhere=wrong.related(""),
    )


_NO_ADDRESS = re.compile(r"(?P<scheme>\w+://\S+)|(?P<user>[\w.-]+@[\w.:-]+)|[\w.-]+:(?P<port>\d{1,5})")


def _not_an_address(config: Config, launch: Launch | None) -> Iterator[Finding]:
    """The address of the first machine, if it has a user, a port or a scheme. Accelerate passes it on only for several machines."""
    file = accelerate_file(config)
    machines = (
        launch.nodes if launch is not None and launch.nodes is not None else file.number("num_machines") if file is not None else None
    )
    flags = launch.flags if launch is not None else {}
    given = flags.get("main_process_ip") or flags.get("master_addr") or (file.get("main_process_ip") if file is not None else None)
    match = _NO_ADDRESS.fullmatch(str(given.value)) if given is not None and isinstance(given.value, str) else None
    if given is None or match is None or ("main_process_ip" in given.name and (machines or 1) < 2):
        return
    if launch is not None and launch.launcher == "torchrun" and not _is_static(launch):
        return  # torchrun reads --rdzv_endpoint in its place
    what = "a scheme" if match["scheme"] else "a user" if match["user"] else "a port"
    yield Finding(
        "",
        f'{given.shown} has {what}: {given.value} is looked up as the name of a machine, and the run ends with an error such as "Name or service not known".',
        help="Write the IP address or the name of the machine alone." + (" The port has a flag of its own." if match["port"] else ""),
        elsewhere=given.related(""),
    )


def _port_zero(config: Config, launch: Launch) -> Iterator[Finding]:
    """The port 0, which DeepSpeed's launcher and torchrun pass to all ranks. A single rank of DeepSpeed's launcher connects to nobody.

    Sources: deepspeed/launcher/launch.py, main; torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py, next_rendezvous.
    """
    given = launch.flags.get("master_port")
    ranks = launch.world_size or config.facts.world_size
    is_alone = launch.launcher == "deepspeed" and ranks == 1
    if given is None or str(given.value) != "0" or launch.launcher not in ("deepspeed", "torchrun") or is_alone:
        return
    if launch.launcher == "torchrun" and not _is_static(launch):
        return
    certain = launch.launcher == "torchrun" or ranks is not None
    yield Finding(
        "",
        f"{_NAMES[launch.launcher]} passes the port 0 on instead of a free one: the ranks {'connect' if certain else 'may connect'} to port 0, and "
        "the run ends with a timeout.",
        help="Write a port such as 29511." + (" Or write --standalone instead." if launch.launcher == "torchrun" else ""),
        elsewhere=given.related(""),
        certain=certain,
    )


def _is_static(launch: Launch) -> bool:
    """Whether the ranks of torchrun meet at the address of the master. Source: torch/distributed/run.py, get_rdzv_endpoint and run."""
    backend = launch.flags.get("rdzv_backend")
    return (backend is None or backend.value == "static") and launch.flags.keys().isdisjoint(("rdzv_endpoint", "standalone"))


def _help(launch: Launch, name: str, given: SourcedValue) -> str:
    if name in OWN_FLAGS[launch.launcher]:
        return f"Write --{name}: {_NAMES[launch.launcher]} knows its flags only with underscores."
    if name in OF_PROGRAMS:
        return f"Write {given.name} after the program, which reads it."
    meant = next((same[launch.launcher] for same in _COUNTERPARTS if name in same.values()), None)
    if meant is None or meant in launch.flags:
        return f"Remove {given.name}."
    value = f" {given.raw}" if given.raw else ""
    return f"Write {'-' if len(meant) == 1 else '--'}{meant}{value} instead of {given.name}."


@rule(
    "DS940",
    effect=Effect.ADVICE,
    watches=("setup",),
    references=("https://github.com/deepspeedai/DeepSpeed/issues/8572", "deepspeed/runtime/config.py, DeepSpeedConfig._batch_assertion"),
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="PYTHONOPTIMIZE=1 torchrun --nproc_per_node 8 " + _TRAIN,
    message="PYTHONOPTIMIZE runs Python without assertions, with which DeepSpeed checks batch sizes and precision: a batch size that does not match passes unnoticed.",
)
@bad(
    BF16_ZERO_2,
    at="",
    launch="srun python -O " + _TRAIN,
    message="-O runs Python without assertions, with which DeepSpeed checks batch sizes and precision: a batch size that does not match passes unnoticed.",
)
@good(BF16_ZERO_2, launch="torchrun --nproc_per_node 8 " + _TRAIN)
@good(BF16_ZERO_2, launch="python -O -m torch.distributed.run --nproc_per_node 8 " + _TRAIN)
def assertions_removed(config: Config) -> Iterator[Finding]:
    """The launch runs Python with `-O` or PYTHONOPTIMIZE, which removes DeepSpeed's assertions.

    DeepSpeed checks batch sizes, precision and sizes of groups with `assert`. Without assertions a config with `train_batch_size` 32 trains with 4 x 2 x 8 = 64
    samples per step, and nothing says so. `-O` before a launcher such as `python -m torch.distributed.run` does not reach the ranks; PYTHONOPTIMIZE does.

    Remove `-O` or PYTHONOPTIMIZE.
    """
    launch = config.setup.launch if config.setup else None
    if launch is not None and launch.unasserted is not None:
        name = launch.unasserted.name
        yield Finding(
            "",
            f"{name} runs Python without assertions, with which DeepSpeed checks batch sizes and precision: a batch size that does not match passes unnoticed.",
            help=f"Remove {name}.",
            elsewhere=launch.unasserted.related(""),
        )
