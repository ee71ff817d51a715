"""What only followed from the failure is not its cause, and what a message says in further lines counts."""

from __future__ import annotations

from tests.diagnose.logs import RETURNED, diagnosed, steps, traceback

SHARED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 15.70 GiB of which 18.81 MiB is"
    " free. Process {process} has 2.42 GiB memory in use. Including non-PyTorch memory, this process has 13.25 GiB memory in use. Of the"
    " allocated memory 13.00 GiB is allocated by PyTorch, and 7.33 MiB is reserved by PyTorch but unallocated."
)
KILLING = "[2024-10-01 01:17:14,554] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 198907"
NCCL = """\
torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, internal error - please \
report this issue to the NCCL developers, NCCL version 2.20.5
ncclInternalError: Internal check failed.
Last error:
Bootstrap : no socket interface found"""
REPORT = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-06-23_21:26:20
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 1133)
  traceback : Signal 15 (SIGTERM) received by PID 1133
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-06-23_21:26:19
  rank      : 1 (local_rank: 1)
  exitcode  : -6 (pid: 1134)
  traceback : Signal 6 (SIGABRT) received by PID 1134
============================================================"""
AT_EXIT = """\
Error in atexit._run_exitfuncs:
Traceback (most recent call last):
  File "/env/lib/python3.9/site-packages/deepspeed/ops/transformer/inference/triton/matmul_ext.py", line 96, in put
    with open(self.file_path + ".tmp", 'wb') as handle:
OSError: [Errno 122] Disk quota exceeded: '/home/x/.triton/autotune/Fp16Matmul_2d_kernel.pickle.tmp'"""
CANCELLED = "slurmstepd: error: *** STEP 8867242.2 ON gra1177 CANCELLED AT 2023-07-09T19:18:33 ***"


def test_a_rank_of_the_job_is_no_other_program() -> None:
    (cause,) = diagnosed(SHARED.format(process=198907), KILLING, RETURNED.format(code=1)).causes
    assert "another rank of this job held 2.42 GiB" in cause.why[1]
    assert "set_device(local_rank)" in cause.advice[0]
    (cause,) = diagnosed(SHARED.format(process=77), KILLING, RETURNED.format(code=1)).causes
    assert "another process held 2.42 GiB" in cause.why[1]
    assert cause.advice[0].startswith("Another process uses this GPU")


def test_a_context_of_another_rank_is_no_model_of_it() -> None:
    """What a CUDA context takes says nothing of `device_map`."""
    (cause,) = diagnosed(SHARED.format(process=198907).replace("2.42 GiB", "310.00 MiB"), KILLING, RETURNED.format(code=1)).causes
    assert "another rank of this job held 0.30 GiB" in cause.why[1]
    assert any("has a CUDA context on this GPU" in one and "device_map" not in one for one in cause.advice), cause.advice


def test_the_last_error_of_nccl_counts() -> None:
    (cause,) = diagnosed(traceback(NCCL)).causes
    assert cause.why[0] == "The communication library does not find a usable network interface."


def test_the_first_failure_of_torchruns_report_is_told() -> None:
    (cause,) = diagnosed(REPORT).causes
    assert cause.title == "A process ended with SIGABRT"
    assert cause.evidence[0].place.line == REPORT.split("\n").index("  traceback : Signal 6 (SIGABRT) received by PID 1134") + 1


def test_an_error_at_exit_is_not_the_cause() -> None:
    for text in ([RETURNED.format(code=1), AT_EXIT], [AT_EXIT, RETURNED.format(code=1)]):
        assert [cause.title for cause in diagnosed(*text).causes] == ["A process ended with return code 1"]


def test_a_step_that_srun_ended_is_not_cancelled_by_a_person() -> None:
    ended = "srun: error: gra1177: task 0: Exited with exit code 1"
    found = diagnosed(steps([3.0]), traceback("ValueError: no"), ended, CANCELLED)
    assert [cause.title for cause in found.causes] == ["ValueError: no"]
    (cause,) = diagnosed(steps([3.0]), CANCELLED).causes
    assert cause.why == ("The log shows no error before it.",)
    causes = diagnosed(steps([3.0]), traceback("ValueError: no"), CANCELLED).causes
    assert not any("no error before" in why for cause in causes for why in cause.why)


def test_a_division_by_zero_elsewhere_is_not_one_of_deepspeed() -> None:
    own = ("/w/trainer.py", 716, "fit", "start = step // self.steps_per_epoch")
    (cause,) = diagnosed(traceback("ZeroDivisionError: integer division or modulo by zero", own)).causes
    assert "reduce_bucket_size" not in " ".join([*cause.why, *cause.advice])
    theirs = ("/env/site-packages/deepspeed/runtime/zero/stage_1_and_2.py", 1, "reduce", "a // b")
    (cause,) = diagnosed(traceback("ZeroDivisionError: float floor division by zero", theirs)).causes
    assert "reduce_bucket_size" in cause.why[0]


def test_the_command_of_a_process_that_ended_tells_the_stage() -> None:
    command = "[2024-01-19 10:14:05,903] [ERROR] [launch.py:321:sigkill_handler] ['python', '-u', 'main.py', '--zero_stage', '{}'] exits with return code = -9"
    alone = "create the TrainingArguments (or HfDeepSpeedConfig) before from_pretrained"
    assert any(alone in advice for advice in diagnosed(command.format(3)).causes[0].advice)
    assert not any(alone in advice for advice in diagnosed(command.format(2)).causes[0].advice)


def test_slurm_writes_a_signal_in_small_letters() -> None:
    signal = "[2026-02-17T12:32:42.486] error: *** STEP 9577392.0 ON node0371 CANCELLED AT 2026-02-17T12:32:42 DUE to SIGNAL Terminated ***"
    (cause,) = diagnosed(steps([3.0]), signal).causes
    assert (cause.kind, cause.why[0]) == ("cancelled", "Slurm sent the signal Terminated.")
