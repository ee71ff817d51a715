"""DS8: the hostfile of DeepSpeed's launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2

_TRAIN = "train.py --deepspeed_config ds_config.json\n"

_SAMPLE = re.compile(r"worker-\d|hostname-?\d").fullmatch
"""The names of machines in the documentation of DeepSpeed and transformers. `node1` is the name of many real machines, too."""


@rule(
    "DS897",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    watches=("setup",),
    references=("deepspeed/launcher/runner.py, main", "https://www.deepspeed.ai/getting-started/"),
    untried="raised by DeepSpeed's launcher, before the engine exists",
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"printf 'worker-1 slots=8\\nworker-2 slots=8\\n' > hosts\ndeepspeed --hostfile hosts {_TRAIN}",
    integration="deepspeed",
    message='The hostfile names worker-1, worker-2, as the examples of the documentation do: unless ssh knows worker-1, the launcher may raise "Using hostfile at hosts but host=worker-1 was not reachable via ssh".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"echo 'hostname1 slots=8' > hosts\ndeepspeed --hostfile hosts {_TRAIN}",
    integration="deepspeed",
    message='The hostfile names hostname1, as the examples of the documentation do: unless ssh knows hostname1, the launcher may raise "Using hostfile at hosts but host=hostname1 was not reachable via ssh".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=f"echo 'localhost slots=8' > hosts\ndeepspeed --hostfile hosts {_TRAIN}",
    integration="deepspeed",
    message='The hostfile names one machine, localhost, and the launcher connects to it by ssh all the same: where ssh to it requires a password or does not run, as in many containers, it raises "Using hostfile at hosts but host=localhost was not reachable via ssh. If you are running with a single node please remove hosts or setup passwordless ssh".',
)
@good(
    BF16_ZERO_2,
    launch=f"printf 'gpu-a slots=8\\ngpu-b slots=8\\n' > hosts\ndeepspeed --hostfile hosts {_TRAIN}",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch=f"printf 'node1 slots=8\\nnode2 slots=8\\n' > hosts\ndeepspeed --hostfile hosts {_TRAIN}",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch=f"printf '10.0.0.4 slots=8\\n10.0.0.5 slots=8\\n' > hosts\ndeepspeed --hostfile hosts {_TRAIN}",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch=f"printf 'worker-1 slots=8\\nworker-2 slots=8\\n' > hosts\n"
    f"deepspeed --hostfile hosts --no_ssh --node_rank 0 --master_addr 10.0.0.4 {_TRAIN}",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch=f"echo 'localhost slots=8' > hosts\ndeepspeed --hostfile hosts --no_ssh_check --master_addr 127.0.0.1 {_TRAIN}",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch=f"printf 'job-worker-0 slots=8\\njob-worker-1 slots=8\\n' > hosts\ndeepspeed --hostfile hosts {_TRAIN}",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch=f"echo 'node_ip slots=8' > hosts\ndeepspeed --hostfile hosts {_TRAIN}",
    integration="deepspeed",
)
@good(
    BF16_ZERO_2,
    launch=f"echo 'gpu-a slots=8' > hosts\ndeepspeed --hostfile hosts --force_multi {_TRAIN}",
    integration="deepspeed",
)
@good(BF16_ZERO_2, launch=f"deepspeed --num_gpus 8 {_TRAIN}", integration="deepspeed")
def hostfile_over_ssh(config: Config) -> Iterator[Finding]:
    """With a hostfile, DeepSpeed's launcher connects to the first machine by ssh, even if that is the only one.

    Before it starts anything, the launcher runs `ssh HOST hostname` for the first machine of the hostfile. If the name is not known, or ssh
    requires a password, it raises "Using hostfile at ... but host=... was not reachable via ssh". The names in the examples of the documentation,
    `worker-1` and `hostname1`, are those of no machine unless someone has given them. A hostfile with one machine, also with
    `localhost`, needs ssh to it, which containers often do not have.

    Write names or addresses of the machines that ssh reaches without a password. On one machine, leave the hostfile out. If the machines
    cannot reach each other by ssh, start the launcher on each with `--no_ssh`, `--node_rank` and `--master_addr`.
    """
    launch = config.setup.launch if config.setup else None
    given = launch.flags.get("hostfile") if launch is not None else None
    if (
        launch is None
        or launch.launcher != "deepspeed"
        or given is None
        or not launch.hosts
        or not launch.flags.keys().isdisjoint(("no_ssh", "no_ssh_check"))
    ):
        return
    first, samples = next(iter(launch.hosts)), [host for host in launch.hosts if _SAMPLE(host)]
    if len(samples) == len(launch.hosts):
        names = ", ".join(samples[:_MOST_NAMED]) + (", ..." if len(samples) > _MOST_NAMED else "")
        yield Finding(
            "",
            f"The hostfile names {names}, as the examples of the documentation do: unless ssh knows {first}, the launcher may raise "
            f'"Using hostfile at {given.raw} but host={first} was not reachable via ssh".',
            help="Write the names or addresses of your machines, or leave --hostfile out if you train on one.",
            elsewhere=given.related(""),
            certain=False,
        )
    elif len(launch.hosts) == 1 and launch.flags.keys().isdisjoint(("force_multi", "launcher", "include", "exclude")):
        yield Finding(
            "",
            f"The hostfile names one machine, {first}, and the launcher connects to it by ssh all the same: where ssh to it requires a password or "
            f'does not run, as in many containers, it raises "Using hostfile at {given.raw} but host={first} was not reachable '
            f'via ssh. If you are running with a single node please remove {given.raw} or setup passwordless ssh".',
            help="Leave --hostfile out to train on this machine.",
            effect=Effect.ADVICE,
            elsewhere=given.related(""),
            certain=False,
        )


_MOST_NAMED = 3
"""The most machines that a message names."""
