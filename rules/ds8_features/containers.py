"""DS8: the container in which a job runs."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase
from dslint.rule import Finding, bad, good, rule
from dslint.rules.helpers.examples import BF16_ZERO_2
from dslint.rules.helpers.loaders import RAISED_BY_LOADER

_RUN = "docker run --gpus all %s-v $PWD:/w -w /w pytorch/pytorch deepspeed %strain.py --deepspeed --deepspeed_config ds_config.json\n"


@rule(
    "DS894",
    effect=Effect.CRASH,
    phase=Phase.STEP,
    watches=("setup",),
    references=(
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory",
        "https://github.com/deepspeedai/DeepSpeed/issues/2897",
    ),
    untried=RAISED_BY_LOADER,
    setup=True,
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_RUN % ("", "--num_gpus 8 "),
    integration="deepspeed",
    message='docker run gives the container 64 MiB of shared memory, which NCCL and data loader workers share: the job may end with a bus error, "exits with return code = -7".',
)
@bad(
    BF16_ZERO_2,
    at="",
    launch=_RUN % ("--rm -it ", ""),
    integration="deepspeed",
    message='docker run gives the container 64 MiB of shared memory, which NCCL and data loader workers share: the job may end with a bus error, "exits with return code = -7".',
)
@good(BF16_ZERO_2, launch=_RUN % ("--shm-size=16g ", "--num_gpus 8 "), integration="deepspeed")
@good(BF16_ZERO_2, launch=_RUN % ("--ipc=host ", "--num_gpus 8 "), integration="deepspeed")
@good(BF16_ZERO_2, launch=_RUN % ("--ipc host ", "--num_gpus 8 "), integration="deepspeed")
@good(BF16_ZERO_2, launch=_RUN % ("-v /dev/shm:/dev/shm ", "--num_gpus 8 "), integration="deepspeed")
@good(BF16_ZERO_2, launch=_RUN % ("$OPTIONS ", "--num_gpus 8 "), integration="deepspeed")
@good(BF16_ZERO_2, launch=_RUN % ("", "--num_gpus 1 "), integration="deepspeed")
@good(BF16_ZERO_2, launch=(_RUN % ("", "")).replace("--gpus all", "--gpus 1"), integration="deepspeed")
@good(BF16_ZERO_2, launch=(_RUN % ("", "")).replace("--gpus all", "--gpus '\"device=0\"'"), integration="deepspeed")
@good(BF16_ZERO_2, launch=(_RUN % ("", "")).replace("docker run --gpus all", "docker exec"), integration="deepspeed")
@good(BF16_ZERO_2, launch=(_RUN % ("", "")).replace("docker run --gpus all", "singularity exec --nv"), integration="deepspeed")
def little_shared_memory(config: Config) -> Iterator[Finding]:
    """A container has 64 MiB of shared memory unless it is started with more, which several ranks may exceed.

    NCCL exchanges data of GPUs on one machine in `/dev/shm` where they cannot reach each other directly, and the workers of data loaders
    hand over their batches there. A process that touches memory beyond the limit gets SIGBUS: the launcher says "exits with return code =
    -7", without a traceback; or NCCL says "No space left on device". `docker run`, docker compose and Kubernetes give 64 MiB.

    Start the container with `--ipc=host` or a larger `--shm-size`; in docker compose write `ipc: host` or `shm_size`, in Kubernetes mount
    an emptyDir of medium Memory at /dev/shm.
    """
    launch = config.setup.launch if config.setup is not None else None
    given = launch.container if launch is not None else None
    if given is None or config.facts.world_size == 1:
        return
    what = given.raw if given.raw.endswith(" run") else "By default the engine"
    yield Finding(
        "",
        f"{what} gives the container 64 MiB of shared memory, which NCCL and data loader workers share: the job may end with a bus error, "
        '"exits with return code = -7".',
        help="Add --ipc=host or --shm-size=16g."
        if given.raw.endswith(" run")
        else "Write ipc: host or shm_size: 16g (docker compose), or mount an emptyDir of medium Memory at /dev/shm (Kubernetes).",
        elsewhere=given.related(""),
        certain=False,
    )
