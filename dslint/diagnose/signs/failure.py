"""Errors with figures to be used. Errors that need no arithmetic are in the table of texts."""

from __future__ import annotations

from dslint.diagnose.signs.sign import DECIMAL, sign

SIZE = rf"{DECIMAL} [KMGT]?i?B(?:ytes)?"

IGNORED = ("Exception ignored in", "Error in atexit._run_exitfuncs:", "--- Logging error ---")
"""How a traceback of an error begins that Python ignores."""

STACKS = ("Call stack:", "Stack (most recent call", "(most recent call first)", "Traceback of forward call that caused the error")
"""What stands above frames of which none raised: of logging, of faulthandler, of the detection of anomalies in the backward pass."""

SIGNS = (
    sign(
        "oom",
        ("CUDA out of memory", "HIP out of memory", "NPU out of memory", "XPU out of memory"),
        rf"out of memory\. Tried to allocate (?P<request>{SIZE})(?P<rest>.*)",
    ),
    sign("host_allocation", "DefaultCPUAllocator", r"you tried to allocate (?P<bytes>\d+) bytes"),
    sign("host_allocation", "memory allocation of ", r"^memory allocation of (?P<bytes>\d+) bytes failed$"),  # of Rust: tokenizers
    sign("host_allocation", "Unable to allocate ", rf"Unable to allocate (?P<size>{DECIMAL} [KMGT]iB) for an array"),
    sign("pinned", ("cudaHostAlloc", "pin_memory"), r"(?:cudaHostAlloc|pin_memory).*(?:out of memory|failed|error)"),
    sign(
        "watchdog",
        "Watchdog caught collective operation timeout",
        r"Watchdog caught collective operation timeout: \w+\((?:SeqNum=(?P<number>\d+), )?OpType=(?P<operation>\w+)(?:, NumelIn=(?P<into>\d+), NumelOut=(?P<out>\d+))?.*?Timeout\(ms\)=(?P<timeout>\d+)\)",
    ),
    sign(
        "watchdog",
        "timed out in blocking wait",
        r"WorkNCCL\((?:SeqNum=(?P<number>\d+), )?OpType=(?P<operation>\w+)(?:, NumelIn=(?P<into>\d+), NumelOut=(?P<out>\d+))?.*?Timeout\(ms\)=(?P<timeout>\d+)\) timed out in blocking wait",
    ),
    sign(
        "last_work",
        "last completed",
        r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d+), last completed (?:NCCL )?work: (?P<completed>-?\d+)",
    ),
    sign("minimum_scale", "Current loss scale already at minimum"),
    sign(
        "disk_full",
        ("No space left on device", "Disk quota exceeded", "enforce fail at inline_container"),
        r"No space left on device|Disk quota exceeded|enforce fail at inline_container",
    ),
    sign(
        "build_failed",
        ("Error building extension", "Unable to JIT load", "Ninja is required"),
        r"Error building extension '(?P<operation>\w+)'|Unable to JIT load the (?P<other>\w+) op|Ninja is required",
    ),
    sign(
        "accumulation_differs",
        "GradientAccumulationPlugin has",
        r"GradientAccumulationPlugin has (?P<plugin>\d+), DeepSpeed config has (?P<config>\d+)",
    ),
    sign(  # of Accelerate before 0.23
        "accumulation_replaced",
        "Updating DeepSpeed's gradient accumulation steps",
        r"Updating DeepSpeed's gradient accumulation steps to (?P<used>\d+) from (?P<config>\d+)",
    ),
    sign(
        "hardware",
        ("vendor err", "NVRM: Xid", "Node failure on", "uncorrectable ECC", "fallen off the bus"),
        r"NET/IB.*vendor err|NVRM: Xid|Node failure on (?P<host>[\w.-]+)|uncorrectable ECC|fallen off the bus",
    ),
    sign("assertion", "Assertion `", r"\.(?:cu|cuh|h|cpp):\d+: .*Assertion `(?P<condition>.{1,300})` failed"),
    sign("nccl_warning", "NCCL WARN", r"NCCL WARN \S"),
    sign("traceback", "Traceback (most recent call last)"),
    sign("frame", '", line ', r'^\s*(?:│\s*)?File "[^"]{1,500}", line \d{1,9}(?:, in .{1,200})?\s*$'),
    sign("stack", STACKS),
    sign("ignored", IGNORED),
    sign("hook", "Error in sys.excepthook:", r"Error in sys\.excepthook:\s*$"),
    sign(
        "next_follows",
        ("During handling of the above exception", "The above exception was the direct cause"),
        r"During handling of the above|was the direct cause",
    ),
    sign(
        "error",
        ("Error: ", "Exception: ", "AssertionError", "NotImplementedError", "EOFError", "MemoryError"),
        r"^(?P<kind>(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Exception)|Exception)): ?(?P<message>.*)$"
        r"|^(?P<bare>(?:Assertion|NotImplemented|EOF|Memory)Error)$",  # without a message
    ),
)
