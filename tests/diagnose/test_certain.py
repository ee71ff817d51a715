"""What is printed as certain rests on a line of the log: no consequence, no frame of a launcher, nothing that a text alone cannot prove."""

from __future__ import annotations

import random
import re

import pytest

from dslint.diagnose.causes import follows
from dslint.diagnose.diagnosis import Diagnosis, End
from dslint.diagnose.places import known_places
from dslint.diagnose.texts import entries
from tests.diagnose.invented import wrapped
from tests.diagnose.logs import OOM, RETURNED, STARTED, all_diagnosed, diagnosed, steps, traceback
from tests.diagnose.test_prefixes import TEXTS
from tests.diagnose.test_texts import example

TORCHRUN = "E0626 12:43:31.197000 5475 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: {code}) local_rank: 1 (pid: 9) of binary: python"
LAUNCHER = (
    "/env/lib/python3.11/site-packages/torch/distributed/launcher/api.py",
    132,
    "__call__",
    "return launch_agent(self._config, args)",
)
UNPROVABLE = re.compile(r"nothing to do with|not involved|has no part in|cannot be DeepSpeed")
"""What no line of a log can prove."""

NUMBERS = re.compile(r"\b(?:[Rr]ank|GPU|code) (\d+)\b")


def assert_shown(found: list[Diagnosis], text: str) -> None:
    """Each certain cause stands on a line of the log that is no consequence, and names only ranks, GPUs and codes of the log."""
    lines = text.replace("\r", "\n").split("\n")
    for one in found:
        for cause in (cause for cause in one.causes if cause.certain):
            assert cause.evidence
            assert not follows(one.job, cause)
            shown = cause.evidence[0].text.strip()[:40]
            assert shown in lines[cause.evidence[0].place.line - 1] or shown in text
            assert all(re.search(rf"(?<!\d){number}(?!\d)", text) for number in NUMBERS.findall(cause.title))


@pytest.mark.parametrize("name", TEXTS)
def test_a_certain_cause_of_a_log_shows_its_line(name: str) -> None:
    assert_shown(all_diagnosed(TEXTS[name]), TEXTS[name])
    seed = random.randrange(10**9)
    text = wrapped(TEXTS[name], random.Random(seed))
    for one in all_diagnosed(text):
        assert all(cause.evidence and not follows(one.job, cause) for cause in one.causes if cause.certain), f"seed {seed}"


@pytest.mark.slow
def test_a_certain_cause_of_a_known_text_shows_its_line() -> None:
    for entry in entries():
        for text in entry.texts[:1]:
            log = f"{STARTED}\n{traceback(f'RuntimeError: {example(text)[0]}')}\n{RETURNED.format(code=1)}"
            assert_shown(all_diagnosed(log), log)


def test_no_table_says_what_a_log_cannot_prove() -> None:
    told = [(entry.id, entry.cause) for entry in entries()] + [(place.id, place.cause) for place in known_places()]
    assert [name for name, cause in told if UNPROVABLE.search(cause)] == []


@pytest.mark.parametrize(("code", "title"), [(1, "A process ended with return code 1"), (-6, "A process ended with SIGABRT")])
def test_a_launcher_that_waits_is_no_cause(code: int, title: str) -> None:
    cut = traceback("", LAUNCHER).rstrip()
    (cause,) = diagnosed(TORCHRUN.format(code=code), cut).causes
    assert (cause.title, cause.certain) == (title, False)


def test_an_import_does_not_tell_the_stage() -> None:
    frame = "/env/lib/python3.11/site-packages/deepspeed/runtime/zero/stage3.py"
    imported = diagnosed(STARTED, traceback("ImportError: no", (frame, 9, "<module>", "import x")))
    assert imported.job.stage() is None
    stepped = diagnosed(STARTED, traceback("RuntimeError: no", (frame, 900, "step", "x()")))
    assert stepped.job.get("stage") == 3


def test_processes_of_a_later_run_are_not_counted() -> None:
    begun = " [WARNING] Please specify the cache directory for DeepSpeed Triton autotune via TRITON_CACHE_DIR: /home/me/.triton"
    found = all_diagnosed(begun, begun, traceback("ValueError: no"), begun, begun)
    assert max(one.job.get("processes") or 0 for one in found) == 2


def test_an_error_in_the_hook_is_not_the_error() -> None:
    hook = "Error in sys.excepthook:\n" + traceback("TypeError: in the hook", ("hook.py", 1, "hook", "f()"))
    (cut,) = diagnosed(STARTED, steps([2.0]), hook).causes
    assert not cut.certain
    whole = diagnosed(STARTED, steps([2.0]), hook, "\nOriginal exception was:", traceback("ValueError: the first"))
    assert whole.causes[0].title == "ValueError: the first"


def test_an_error_of_a_replica_is_one_of_its_thread() -> None:
    text = traceback("torch.OutOfMemoryError: Caught OutOfMemoryError in replica 0 on device 0.") + "\nOriginal " + traceback(OOM)
    (cause,) = diagnosed(text).causes
    assert "3.91 GiB" in cause.title
    assert "torch.nn.DataParallel" in " ".join(cause.why)
    assert not re.search(r"ZeRO|offload", " ".join(cause.advice))


def test_memory_that_was_free_was_not_too_little() -> None:
    limited = OOM.replace("1.32 GiB is free", "9.00 GiB is free").replace("in use. Of", "in use. 74.00 GiB allowed; Of")
    (cause,) = diagnosed(traceback(limited)).causes
    assert "too little" not in " ".join(cause.why)
    assert "set_per_process_memory_fraction" in cause.advice[0]


def test_memory_that_nobody_accounts_for_is_said() -> None:
    unknown = OOM.replace("this process has 77.82 GiB", "this process has 0 bytes").replace(
        "71.45 GiB is allocated", "48.15 GiB is allocated"
    )
    (cause,) = diagnosed(traceback(unknown)).causes
    assert any("does not say who held the other 24.80 GiB" in sentence for sentence in cause.why)


def test_what_may_be_in_force_is_not_advised_as_new() -> None:
    frames = ("/env/lib/python3.11/site-packages/torch/optim/adamw.py", 9, "step", "exp_avg = torch.zeros_like(p)")
    (cause,) = diagnosed(traceback(OOM, frames)).causes
    assert "if it is not offloaded yet" in cause.advice[0] + cause.advice[1]
    assert "if it is off" in cause.advice[0] + cause.advice[1]


def test_a_report_of_the_environment_is_no_job() -> None:
    report = "deepspeed info ................... 0.15.1, unknown, unknown"
    assert diagnosed(report).outcome.end is End.UNKNOWN
    (found,) = all_diagnosed(report, "[2026-05-04 09:12:09,530] [INFO] [runner.py:1:main] cmd = python train.py", STARTED)
    assert found.job.get("release") == "0.15.1"


def test_a_folder_that_another_process_removed() -> None:
    frame = ("/usr/lib/python3.11/shutil.py", 726, "rmtree", "os.rmdir(path)")
    (cause,) = diagnosed(traceback("FileNotFoundError: [Errno 2] No such file or directory: '/out/step15'", frame)).causes
    assert "in most cases" in cause.why[0]


def test_an_older_traceback_of_ipython_is_read() -> None:
    text = (
        "CalledProcessError                        Traceback (most recent call last)\n"
        "~/.local/lib/python3.6/site-packages/torch/utils/cpp_extension.py in _run_ninja_build(build_directory, verbose)\n"
        "   1672             check=True,\n-> 1673             env=env)\n   1674     except subprocess.CalledProcessError as e:\n"
    )
    (cause,) = diagnosed(text).causes
    assert "builds or loads a compiled op" in cause.why[0]
    assert "cpp_extension.py:1673" in cause.why[1]


def test_an_error_of_communication_before_the_memory_of_another_rank_ran_out() -> None:
    lost = traceback(
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2006, unhandled system error", prefix="[rank0]: "
    )
    found = diagnosed(STARTED, lost, traceback(OOM, prefix="[rank2]: "))
    assert [(cause.kind, cause.rank) for cause in found.causes] == [("oom", 2)]


def test_a_gather_tells_how_many_ranks_there_are_at_least() -> None:
    line = (
        "[E ProcessGroupNCCL.cpp:915] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
        "OpType={operation}, NumelIn={into}, NumelOut={out}, Timeout(ms)=1800000) ran for 1800522 milliseconds before timing out."
    )
    assert diagnosed(line.format(operation="ALLGATHER", into=1, out=8)).job.get("ranks_at_least") == 8
    assert diagnosed(line.format(operation="_REDUCE_SCATTER_BASE", into=64, out=4)).job.get("ranks_at_least") == 16
    assert diagnosed(line.format(operation="ALLREDUCE", into=8, out=8)).job.get("ranks_at_least") in (None, 1)


def test_a_file_that_was_not_written_whole_need_not_be_a_full_disk() -> None:
    found = diagnosed("RuntimeError: [enforce fail at inline_container.cc:325] . unexpected pos 128 vs\n0")
    assert found.causes[0].kind == "disk"
    assert "in most cases" in found.causes[0].why[0]


def test_a_request_in_the_step_of_zero_is_one_of_the_optimizer() -> None:
    frame = ("/env/lib/python3.11/site-packages/deepspeed/runtime/zero/stage3.py", 947, "_optimizer_step", "self.optimizer.step()")
    (cause,) = diagnosed(traceback(OOM, frame)).causes
    assert "in the optimizer's step" in cause.title
    assert "checkpointing" not in " ".join(cause.advice)
