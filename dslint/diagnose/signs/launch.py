"""What launchers print: commands, ranks, how processes ended."""

from __future__ import annotations

import re

from dslint.diagnose.signs.sign import sign

LAUNCH = "main] cmd = "
"""What the launcher of DeepSpeed prints before anything else."""

FIRST_FAILURE = "Root Cause (first observed failure)"
"""What torchrun prints after the processes that failed later."""

SIGNS = (
    sign("rank_mention", "[Rank ", r"\[Rank (?P<rank>\d{1,5})\]"),
    sign("process_started", "cache directory for DeepSpeed Triton autotune"),
    sign("backend", "Initializing TorchBackend in DeepSpeed"),
    sign("launch", LAUNCH, re.escape(LAUNCH) + "(?P<command>.*)"),
    sign("restart", ("will restart worker group", "estarting worker group"), r"will restart worker group|[Rr]estarting worker group"),
    # what processes print as they start, before anything that a run tells
    sign(
        "process_begins",
        ("Setting ds_accelerator to", "Setting OMP_NUM_THREADS environment variable", "not passed to `accelerate launch`"),
        r"Setting ds_accelerator to|Setting OMP_NUM_THREADS environment variable|not passed to `accelerate launch`",
    ),
    sign("spawned", "spawned with command: [", r"process \d+ spawned with command: (?P<command>\[.*)"),
    sign("ranks", "dist_world_size=", r"dist_world_size=(?P<ranks>\d+)"),
    sign("machines", "num_local_procs=", r"nnodes=(?P<nodes>\d+), num_local_procs=(?P<local>\d+)"),
    sign(
        "refused",
        (
            ": error: unrecognized arguments",
            ": error: the following arguments are required",
            ": error: argument ",
            ": error: ambiguous option",
            ": can't open file '",
            "/bin/python",
        ),
        r"^(?:bash|zsh): (?:line \d+: |\d+: )?(?P<interpreter>\S+/bin/python[\w.]*): (?:No such file or directory|not found)"
        r"|^\S*python[\w.]*: can't open file '(?P<missing>[^']+)': \[Errno \d+\] .*"
        r"|^\S*[\w.-]: error: (?:unrecognized arguments: |the following arguments are required: |argument \S+: |ambiguous option: ).*",
    ),
    sign("exited_well", "exits successfully", r"Process \d+ exits successfully"),
    sign("return_code", "exits with return code = ", r"exits with return code = (?P<code>-?\d+)"),
    sign("killing", "Killing subprocess", r"(?<!')Killing subprocess (?P<pid>\d+)"),
    sign(
        "worker_failed", "failed (exitcode: ", r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+)(?: \(pid: (?P<pid>\d+)\))?"
    ),
    sign("worker_signal", "Signal ", r"Signal (?P<number>\d+) \((?P<signal>SIG\w+)\) received by PID"),
    sign("child_failed", ("ChildFailedError", "CalledProcessError"), r"ChildFailedError|CalledProcessError"),
    sign("first_failed", FIRST_FAILURE),
    sign("failed_rank", "(local_rank: ", r"rank +: (?P<rank>\d+) \(local_rank: \d+\)"),
    sign("failed_code", "exitcode  : ", r"exitcode +: (?P<code>-?\d+)(?: \(pid: (?P<pid>\d+)\))?"),
    sign(
        "srun",
        "srun: error: ",
        r"srun: error: \S+: tasks? [\d,-]+: (?:Exited with exit code (?P<code>\d+)|(?P<signal>Aborted|Segmentation fault|Bus error|Killed)\b)",
    ),
    sign(
        "cancelled",
        "CANCELLED AT ",
        r"\*\*\* (?:JOB|STEP) (?P<job>\S+) ON (?P<host>\S+) CANCELLED AT (?P<when>\S+)(?: DUE (?:TO (?P<reason>.*?)|to SIGNAL (?P<signal>.*?)))? \*\*\*",
    ),
    sign(
        "host_kill",
        ("oom-kill", "oom_kill", "Killed process", "OOM Killed", "OOMKilled", "memory limit", "Out Of Memory"),
        r"oom[-_]kill|Out of memory: Killed process|OOM ?Killed"
        r"|slurmstepd: error: (?:Exceeded \w+|(?:Job|Step) \S+ exceeded) memory limit|srun: error: .{1,200}: Out Of Memory",
    ),
    sign("shell_killed", "Killed", r"line \d+: *\d+ Killed +|(?:^|(?:it/s|s/it)\])Killed\s*$|^\S*bash: .*Killed"),
    sign(
        "signal_received",
        ("death signal", "Main process received"),
        r"Received (?P<number>\d+) death signal|Main process received (?P<signal>SIG[A-Z]+), exiting",
    ),
    sign(
        "interrupted",
        ("KeyboardInterrupt", "Received signal 2"),
        r"(?:^|[:\]|>)] *|\^C|\b(?:raise|with|by) )\s*(?:\w+\.)*KeyboardInterrupt(?=\W*$|:|\()",
    ),
    sign("ssh", "ssh exited with exit code", r"ssh exited with exit code (?P<code>\d+)"),
)
