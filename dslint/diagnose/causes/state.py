"""The memory after initialization is exact arithmetic: a mismatch proves that something other than intended is in force."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.diagnose.diagnosis import Evidence, LikelyCause
from dslint.diagnose.job import LoggedJob, state_after_init
from dslint.record import Record

GIB = 2**30
RIGHT, WRONG = 0.03, 0.1
"""How much the measured state differs, relatively, from one that is right, at most, and from one that is wrong, at least."""

BUCKET = 500_000_000
"""DeepSpeed's default of `allgather_bucket_size` and `reduce_bucket_size`, in elements."""


class StateOf(Record):
    """What decides the state: stage, data-parallel ranks, bytes of a weight, whether the optimizer is offloaded, trained parameters."""

    stage: int
    ranks: int
    width: int
    offload: bool
    trained: int


def state(params: int, setup: StateOf, bucket: int = BUCKET) -> int:
    """The bytes that a rank holds after initialization, without the optimizer's states, which the first step creates."""
    b, d = setup.width, setup.ranks
    master = 0 if setup.offload else 4 * setup.trained // d if b == 2 or setup.stage else 0
    if setup.stage < 3:
        return b * params + master
    gradients = 0 if setup.offload else b * setup.trained // d
    return b * params // d + gradients + master + b * bucket


def state_mismatch(job: LoggedJob) -> LikelyCause | None:
    """What the memory after initialization proves, if it is not what the log says of the job."""
    measured = state_after_init(job)
    params, stage, ranks = job.get("params_of_rank") or job.get("params"), job.get("stage"), job.get("data_parallel")
    if measured is None or not params or stage not in (1, 2, 3) or not ranks or job.get("built_params") or (job.get("pipeline") or 1) > 1:
        return None
    bucket = _bucket(job)
    width = 4 if job.get("dtype") == "float32" else 2
    said = StateOf(stage, ranks, width, bool(job.get("offloads_optimizer")), job.get("trained") or params)
    expected = state(params, said, bucket) / GIB
    if abs(measured.now / expected - 1) < WRONG:
        return None
    proofs = [text for other, text in _others(said, params) if abs(measured.now * GIB / state(params, other, bucket) - 1) < RIGHT]
    if len(proofs) != 1:
        return None
    return LikelyCause(
        "state",
        f"After initialization a rank holds {measured.now:.2f} GiB, not {expected:.2f} GiB: {proofs[0]}",
        (f"ZeRO stage {stage} on {ranks} data-parallel ranks holds {expected:.2f} GiB for {params:,} parameters.",),
        (),
        (Evidence(measured.place, f"{measured.label}: MA {measured.now} GB"),),
    )


def _others(said: StateOf, params: int) -> Iterator[tuple[StateOf, str]]:
    """Setups that may be in force instead, each with what that means."""
    if said.ranks > 1:
        yield said._replace(ranks=1), "the ranks do not share the states, each trains for itself"
    for stage in (1, 2, 3):
        if (stage == 3) != (said.stage == 3):
            yield said._replace(stage=stage), f"ZeRO stage {'3' if stage == 3 else '1 or 2'} is in force"
            break
    yield said._replace(width=6 - said.width), f"the weights are in {'fp32' if said.width == 2 else '16 bits'}"
    yield said._replace(offload=not said.offload), f"the optimizer is {'not ' if said.offload else ''}offloaded"
    if said.trained == params:
        yield said._replace(trained=0), "the weights are frozen"


def _bucket(job: LoggedJob) -> int:
    written = job.setting("zero_optimization", "reduce_bucket_size")
    return written if isinstance(written, int) and 0 < written < 2**40 else BUCKET
