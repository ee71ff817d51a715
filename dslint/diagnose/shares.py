"""Which part of a model a number of elements is."""

from __future__ import annotations

from dslint.diagnose.job import LoggedJob

CLOSE = 0.004
"""How much a number of elements may differ: partitions are padded, printed sizes are rounded."""


def share_of(job: LoggedJob, elements: float) -> str | None:
    """What a number of elements is, such as all parameters, or the part of one rank; None if nothing fits."""
    params, ranks = job.get("params") or job.get("params_of_rank"), job.sure_ranks()
    if not params:
        return None
    stage = job.stage()
    if _close(elements, params):
        if stage is not None and stage.value == 0:
            return f"all {params:,} parameters, which every rank has at ZeRO stage 0"
        if ranks and ranks > 1:
            return f"all {params:,} parameters, although {ranks} ranks should share them: the ranks do not train together"
        return f"all {params:,} parameters, all of which one rank holds, because no other rank takes part"
    parallel = job.get("data_parallel") or ranks
    if parallel and parallel > 1 and _close(elements, params / parallel):
        return f"the part of one of {parallel} ranks of {params:,} parameters"
    if _close(elements, params / 2, CLOSE / 4):
        return f"half of {params:,} parameters, as if 2 ranks shared them, or the size of all of them in 16 bits"
    for number in range(3, 65):
        if _close(elements, params / number, CLOSE / 4):
            return f"a {number}th of {params:,} parameters, as if {number} ranks shared them"
    return None


def _close(left: float, right: float, tolerance: float = CLOSE) -> bool:
    return abs(left / right - 1) < tolerance
