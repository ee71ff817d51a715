"""Logs that end without a failure while ranks connect to each other, or while an op is built: where they end is what is known."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dslint.diagnose.causes.hang import FIRST_PATH
from dslint.diagnose.causes.stopped import building
from dslint.diagnose.diagnosis import Evidence, LikelyCause
from dslint.diagnose.job import LoggedJob
from dslint.diagnose.paste import worst
from dslint.diagnose.prefixes import LogLine
from dslint.diagnose.texts import filled, match_line

LAST = 3
"""The last lines of a log of which one must be the one that begins to wait. Other ranks, and warnings, may print after it."""

REACHED = re.compile(r":init_distributed\] cdb=")
"""What each rank prints as it begins to connect (deepspeed/comm/comm.py)."""

CONNECTS = re.compile(
    r":init_distributed\] (?:cdb=|Initializing TorchBackend|Not using the DeepSpeed or dist launchers)"
    r"|nitializing (?:deepspeed )?distributed: GLOBAL_RANK: \d+, MEMBER: \d+/\d+|\| distributed init \(rank \d+"
    r"|\[c10d\] The client socket has timed out after"
)
"""What is printed before torch.distributed.init_process_group, by DeepSpeed, Lightning and many programs, and while it tries to connect."""

ADDRESS_OF_LAUNCHER = re.compile(r":main\] (?:Using IP address of |cmd = .*--master_addr= )")
"""Where DeepSpeed's launcher prints the address of the first machine; it prints no error if that is none."""

NO_ADDRESS = frozenset({"master-address-empty", "master-address-is-a-path"})
"""The entries about an address that is none."""

OF_NCCL = re.compile(r"\bNCCL INFO ")
COMPLETE = re.compile(r"\bNCCL INFO .*(?i:init complete)")
BUILDS = re.compile(
    r"Using \S+ as PyTorch extensions root|Detected CUDA files, patching ldflags|Emitting ninja build file"
    r"|Building extension module \w+|Loading extension module \w+"
)

ADDRESS = (
    "Check that each machine starts its ranks with the same MASTER_ADDR, MASTER_PORT and number of ranks, and that this port is open between the"
    " machines. It must be a number above 0: Accelerate before 1.7 passes main_process_port 0 on as it is."
)
WHERE = "Run `py-spy dump --pid PID` for a process that waits: it shows the line. NCCL_DEBUG=INFO and TORCH_DISTRIBUTED_DEBUG=DETAIL print more."


def wait_at_end(job: LoggedJob, lines: Sequence[LogLine]) -> LikelyCause | None:
    """What a job did where its log ends, if that is to wait for other processes; `lines` are those of the log that are not empty."""
    for line in lines:
        if ADDRESS_OF_LAUNCHER.search(line.text) and (known := match_line(line.text)) is not None and known[0].id in NO_ADDRESS:
            why, advice = filled(known[0].cause, known[1]), filled(known[0].advice, known[1])
            return _wait("DeepSpeed's launcher has no address of the first machine", (why,), (advice,), line)
    last = list(lines[-LAST:])
    for line in reversed(last):
        text = line.text[:500]
        if CONNECTS.search(text):
            return _connects(job, line, lines)
        if COMPLETE.search(text):
            return None
        if OF_NCCL.search(text):
            return _of_nccl(line)
        if BUILDS.search(text):
            return _of_build(job, line)
        if worst([text]) is not None:
            return None
    return None


def _connects(job: LoggedJob, line: LogLine, lines: Sequence[LogLine]) -> LikelyCause:
    """A log that ends in init_distributed: how many ranks came so far, and what they wait for."""
    came, ranks = sum(bool(REACHED.search(one.text[:500])) for one in lines), job.sure_ranks()
    why = []
    if came and ranks and came < ranks:
        why.append(f"{came} of {ranks} ranks print that they began to connect: the others did not come so far, or print elsewhere.")
    elif came and came == ranks:
        why.append(f"All {ranks} ranks print that they began to connect.")
    why.append(
        "init_process_group waits until every rank has connected to the same MASTER_ADDR and MASTER_PORT. Nothing is printed when it ends, so the"
        " job may also wait in what the program does next, such as loading the model."
    )
    return _wait("The log ends while the ranks connect to each other", why, (ADDRESS, WHERE), line)


def _of_nccl(line: LogLine) -> LikelyCause:
    why = [
        "No line of NCCL says here that this communicator is complete: a rank is missing, or the GPUs or machines do not reach each other."
    ]
    return _wait("The log ends while NCCL connects the GPUs", why, (FIRST_PATH, WHERE), line)


def _of_build(job: LoggedJob, line: LogLine) -> LikelyCause:
    why, advice = building(job)
    said = why or ("A build takes minutes the first time; the other ranks wait for it.",)
    return _wait("The log ends while a compiled op is built or loaded", said, (*advice, WHERE), line)


def _wait(title: str, why: Sequence[str], advice: Sequence[str], line: LogLine) -> LikelyCause:
    return LikelyCause("hang", title, tuple(why), tuple(advice), (Evidence(line.place, line.text),), line.rank, line.host, certain=False)
