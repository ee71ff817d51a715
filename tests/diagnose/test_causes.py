"""The first cause is found, and its figures are used."""

from __future__ import annotations

import io
import random
import re

import pytest

from dslint.diagnose.causes.gpu_memory import figures_of
from dslint.diagnose.diagnosis import End
from dslint.diagnose.events import EventReader, LogEvent
from dslint.diagnose.explain import codes, explain
from dslint.diagnose.reading import LogSource
from dslint.diagnose.texts import match_line
from tests.diagnose.logs import (
    CHILD_FAILED,
    FINISHED,
    OOM,
    RETURNED,
    STARTED,
    WATCHDOG,
    all_diagnosed,
    causes,
    diagnosed,
    notices,
    steps,
    traceback,
)

GIB = 2**30


def test_the_cause_comes_before_what_follows_from_it() -> None:
    found = diagnosed(
        STARTED,
        traceback(OOM, prefix="[rank2]: "),
        traceback(CHILD_FAILED),
        RETURNED.format(code=1),
        "srun: error: n1: task 0: Exited with exit code 1",
    )
    assert found.outcome.end is End.FAILED
    assert causes(found) == [("oom", 5)]
    assert found.causes[0].rank == 2


def test_a_watchdog_after_a_traceback_of_another_rank_is_a_consequence() -> None:
    found = diagnosed(STARTED, traceback("FileNotFoundError: [Errno 2] no such file: 'index.npy'", prefix="gpu-2: [rank4]: "), WATCHDOG)
    assert found.outcome.end is End.FAILED
    assert causes(found) == [("crash", 5)]
    assert (found.causes[0].rank, found.causes[0].host) == (4, "gpu-2")


def test_a_watchdog_without_an_error_is_a_hang_and_names_the_ranks_that_did_not_wait() -> None:
    others = "\n".join(WATCHDOG.replace("[rank0]", f"[rank{rank}]") for rank in (0, 1, 3))
    found = diagnosed(STARTED, others, RETURNED.format(code=-6))
    assert found.outcome.end is End.HUNG
    assert causes(found) == [("hang", 2)]
    assert any(
        sentence.endswith("reported that they waited: 2. Look at their logs first.") or ": 2." in sentence
        for sentence in found.causes[0].why
    )


NOISE = "Exception ignored in atexit callback: <function update at 0x7fc2>\n" + traceback(
    "FileNotFoundError: [Errno 2] No such file: 'a.tmp'"
)


@pytest.mark.parametrize(
    "end",
    [
        FINISHED,
        "{'train_runtime': 20.2, 'train_loss': 1.0}",
        "[rank0]:[W406 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct it",
    ],
)
def test_noise_at_the_end_of_a_finished_job_is_no_failure(end: str) -> None:
    found = diagnosed(STARTED, steps([2.0, 1.9]), end, NOISE)
    assert found.outcome.end is End.FINISHED
    assert found.causes == []
    assert found.is_clean


def test_an_error_that_the_job_survives_is_no_failure() -> None:
    found = diagnosed(STARTED, traceback("ConnectionError: no route to the tracker"), steps([2.0, 1.9]), FINISHED)
    assert (found.outcome.end, found.causes) == (End.FINISHED, [])


def test_a_log_that_just_ends() -> None:
    found = diagnosed(STARTED, steps([2.0, 1.9]))
    assert (found.outcome.end, found.causes) == (End.UNFINISHED, [])


def test_nothing_of_a_job() -> None:
    assert diagnosed("hello\nworld").outcome.end is End.UNKNOWN


@pytest.mark.parametrize(
    ("line", "kind", "end"),
    [
        (RETURNED.format(code=-9), "host-memory", End.KILLED),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0.", "host-memory", End.KILLED),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.",
            "host-memory",
            End.KILLED,
        ),
        ("slurmstepd: error: Exceeded job memory limit", "host-memory", End.KILLED),
        ("slurmstepd: error: Job 9 exceeded memory limit (70254592 > 65536000), being killed", "host-memory", End.KILLED),
        ("srun: error: n1: task 0: Out Of Memory", "host-memory", End.KILLED),
        ("Out of memory: Killed process 4121 (python) total-vm:1kB", "host-memory", End.KILLED),
        ("slurmstepd: error: *** JOB 878 ON n1 CANCELLED AT 2026-03-05T12:56:33 DUE TO TIME LIMIT ***", "time-limit", End.KILLED),
        ("slurmstepd: error: *** STEP 878.0 ON n1 CANCELLED AT 2026-03-05T12:56:33 ***", "cancelled", End.KILLED),
        ("run.sh: line 57: 3698895 Killed                  deepspeed train.py", "killed", End.KILLED),
        (RETURNED.format(code=-11), "exit", End.FAILED),
    ],
)
def test_jobs_that_something_stopped(line: str, kind: str, end: End) -> None:
    found = diagnosed(STARTED, steps([2.0]), line)
    assert [cause.kind for cause in found.causes] == [kind]
    assert found.outcome.end is end


ENDED = "[2026-05-04 09:13:11,470] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4121"
CUT = """Traceback (most recent call last):
  File "/env/lib/python3.8/runpy.py", line 87, in _run_code
    exec(code, run_globals)
  File "/env/lib/python3.8/site-packages/deepspeed/launcher/launch.py", line 167, in <mo"""


def test_a_launcher_that_ends_its_processes_shows_a_failure() -> None:
    """The lines with the reason may be cut off; where they are not, they say more."""
    found = diagnosed(STARTED, steps([2.0]), ENDED)
    assert found.outcome.end is End.FAILED
    assert [(cause.title, cause.certain) for cause in found.causes] == [("The launcher ended its processes", False)]
    assert [cause.title for cause in diagnosed(STARTED, ENDED, ENDED, CUT).causes] == ["The launcher ended its processes"]
    assert causes(diagnosed(STARTED, ENDED, RETURNED.format(code=-11))) == [("exit", 3)]
    assert causes(diagnosed(STARTED, traceback("KeyError: 'a'"), ENDED)) == [("general", 5)]
    assert diagnosed(STARTED, FINISHED, ENDED).outcome.end is End.FINISHED


@pytest.mark.parametrize(("code", "word"), [(2, "command line"), (127, "does not find a command"), (1, "no traceback")])
def test_a_return_code_that_programs_agree_on_is_explained(code: int, word: str) -> None:
    (cause,) = diagnosed(STARTED, RETURNED.format(code=code)).causes
    assert word in cause.why[0]
    (cause,) = diagnosed(STARTED, traceback(CHILD_FAILED), RETURNED.format(code=code)).causes
    assert "only follow from a failure" in cause.why[0]


@pytest.mark.parametrize(("percent", "said"), [("84.6", True), ("40.1", False)])
def test_a_launcher_that_ends_its_processes_where_host_memory_is_full(percent: str, said: bool) -> None:
    memory = "[2026-05-04 09:13:04,315] [INFO] [utils.py:{}:see_memory_usage] {}"
    read = [
        memory.format(791, "Before creating fp16 partitions"),
        memory.format(792, "MA 0.0 GB         Max_MA 0.0 GB         CA 4.04 GB         Max_CA 4 GB"),
        memory.format(799, f"CPU Virtual Memory:  used = 26.4 GB, percent = {percent}%"),
    ]
    (cause,) = diagnosed(STARTED, *read, ENDED).causes
    assert any("the kernel may have killed" in why for why in cause.why) is said


def test_a_program_that_the_shell_reports_as_killed() -> None:
    """Without a launcher the program itself was killed, as while it loads a model. The shell writes behind a bar without a line end."""
    bar = "Loading checkpoint shards:   0%|          | 0/2 [00:00<?, ?it/s]"
    found = diagnosed(f"{bar}Killed")
    assert found.outcome.end is End.KILLED
    assert [cause.kind for cause in found.causes] == ["host-memory"]
    assert [cause.kind for cause in diagnosed(STARTED, "Killed").causes] == ["killed"]
    assert [cause.kind for cause in diagnosed(f"{bar}Killed workers restart").causes] == ["unknown"]


@pytest.mark.parametrize(("owner", "is_place"), [("ModelArguments", False), ("dict", True)])
def test_a_class_of_the_program_lacks_something_wherever_it_is_read(owner: str, is_place: bool) -> None:
    """A checkpoint may hold objects of the program: the folder that is read is not at fault."""
    frame = ("/job/last/zero_to_fp32.py", 509, "get_fp32_state_dict_from_zero_checkpoint", "return read(folder)")
    (cause,) = diagnosed(traceback(f"AttributeError: '{owner}' object has no attribute 'custom'", frame)).causes
    assert any("latest" in advice for advice in cause.advice) is is_place


def test_a_frame_that_is_cut_off_is_not_the_code_of_the_one_above() -> None:
    head = 'Traceback (most recent call last):\n  File "/job/me.py", line 9, in load\n'
    (cause,) = diagnosed(f'{head}  File "/env/lib/py').causes
    assert cause.title == "A process failed at job/me.py:9; the traceback ends before its error"


def test_an_error_without_a_colon_has_no_message() -> None:
    """Below it stands the code of the next traceback, of which the search left that line."""
    found = diagnosed(STARTED, "AssertionError", "    return forward(x)", RETURNED.format(code=1))
    assert found.causes[0].title == "AssertionError"


def test_a_colon_before_a_message_is_not_part_of_it() -> None:
    """Of processes that write at the same time, the name of an error and its colon may come from two."""
    (cause,) = diagnosed(traceback("company.OwnError: : no rows")).causes
    assert cause.title == "OwnError: no rows"


def test_a_message_about_sizes_that_was_cut_is_no_mistake_of_a_rule() -> None:
    (cause,) = diagnosed("RuntimeError: The size of tensor a (768) must match the size of tensor b (3072)").causes
    assert cause.why == ("Tensors of different sizes are combined: 768 and 3072.",)


EXTENSIONS = "Using /home/ann/.cache/torch_extensions/py312_cu130 as PyTorch extensions root..."
LIMIT = "slurmstepd: error: *** JOB 878 ON n1 CANCELLED AT 2026-03-05T12:56:33 DUE TO TIME LIMIT ***"


@pytest.mark.parametrize(
    ("lines", "folder"),
    [
        ((EXTENSIONS, LIMIT), "/home/ann/.cache/torch_extensions/py312_cu130"),
        ((EXTENSIONS, "Time to load fused_adam op: 24.2 seconds", LIMIT), None),
        ((EXTENSIONS, steps([2.0]), LIMIT), None),
    ],
)
def test_a_job_that_waited_for_the_lock_of_a_killed_build(lines: tuple[str, ...], folder: str | None) -> None:
    (cause,) = diagnosed(STARTED, *lines).causes
    said = f"If no other process is building there, delete {folder}/*/lock and start again."
    assert (said in cause.advice) is (folder is not None)
    assert any("waits for it silently" in why for why in cause.why) is (folder is not None)


BATON = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    engine = deepspeed.initialize(args)
  File "/env/lib/python3.12/site-packages/torch/utils/cpp_extension.py", line 2151, in _jit_compile
    baton.wait()
  File "/env/lib/python3.12/site-packages/torch/utils/file_baton.py", line 49, in wait
    time.sleep(self.wait_seconds)
KeyboardInterrupt"""


def test_a_message_of_python_is_explained_by_its_place() -> None:
    error = "ValueError: invalid literal for int() with base 10: '0a'"
    log = traceback(error, ("/env/site-packages/deepspeed/ops/op_builder/builder.py", 710, "<genexpr>", "ccs = sorted(ccs)"))
    (cause,) = diagnosed(STARTED, log).causes
    assert any("TORCH_CUDA_ARCH_LIST" in why for why in cause.why)
    assert cause.rules == ()
    assert [list(codes(explained)) for explained in explain(log).causes] == [[]]


def test_an_interrupted_wait_for_a_build_is_explained() -> None:
    (cause,) = diagnosed(STARTED, BATON).causes
    assert "delete the files named lock below ~/.cache/torch_extensions" in cause.advice[0]


def test_a_limit_of_slurm_is_told_apart_from_full_memory() -> None:
    (slurm,) = diagnosed(STARTED, "slurmstepd: error: Job 9 exceeded memory limit (70254592 > 65536000), being killed").causes
    assert "70254592 of 65536000 kB" in slurm.title
    assert any("--mem" in advice for advice in slurm.advice)
    (kernel,) = diagnosed(STARTED, "Out of memory: Killed process 4121 (python) total-vm:1kB").causes
    assert not any("--mem" in advice for advice in kernel.advice)


def test_an_error_of_a_script_before_the_job_is_not_the_cause() -> None:
    launch = "[2026-05-04 09:12:07,114] [INFO] [runner.py:610:main] cmd = python -m deepspeed.launcher.launch train.py"
    found = diagnosed(
        traceback("KeyError: 'GPU_IDS'"), launch, STARTED, traceback("ValueError: no", prefix="[rank1]: "), RETURNED.format(code=1)
    )
    assert causes(found) == [("crash", 10)]


def test_jobs_that_follow_each_other_are_told_apart() -> None:
    launch = "[2026-05-04 09:12:07,114] [INFO] [runner.py:610:main] cmd = python -m deepspeed.launcher.launch train.py"
    found = all_diagnosed(
        launch, STARTED, FINISHED, launch, STARTED, traceback("ValueError: no", prefix="[rank1]: "), RETURNED.format(code=1)
    )
    assert [diagnosis.outcome.end for diagnosis in found] == [End.FINISHED, End.FAILED]


def test_figures_of_a_host_allocation() -> None:
    params = "[Rank 0] Model parameters: 6,860,104,785 total, 6,860,104,785 trainable"
    error = "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 27440419144 bytes. Error code 12"
    found = diagnosed(
        STARTED, params, traceback(error, ("cpu_adam.py", 157, "step", "x = zeros()"), prefix="[rank0]: "), RETURNED.format(code=1)
    )
    assert causes(found) == [("host-memory", 6)]
    assert any("all 6,860,104,785 parameters, although 4 ranks" in sentence for sentence in found.causes[0].why)


OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.70 GiB total capacity; 22.00 GiB already allocated; 5.00 MiB free; "
    "22.50 GiB reserved in total by PyTorch)"
)
TYPO = OOM.replace("capacity", "capacty").replace(" is free.", " is free. Process 7 has 414.00 MiB memory in use.")


@pytest.mark.parametrize(
    ("line", "request_", "capacity", "free", "allocated", "unused", "others", "gpu"),
    [
        (OOM, 3.91, 79.15, 1.32, 71.45, 4.88, (), 2),
        (TYPO, 3.91, 79.15, 1.32, 71.45, 4.88, (414 / 1024,), 2),
        (OLD, 20 / 1024, 23.70, 5 / 1024, 22.0, 0.5, (), 0),
        ("torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", 2.0, None, None, None, None, (), None),
    ],
)
def test_every_wording_of_pytorch(
    line: str,
    request_: float,
    capacity: float | None,
    free: float | None,
    allocated: float | None,
    unused: float | None,
    others: tuple[float, ...],
    gpu: int | None,
) -> None:
    found = figures_of(_out_of_memory(line))
    expected = (request_, capacity, free, allocated, unused)
    got = (found.request, found.capacity, found.free, found.allocated, found.unused)
    assert [None if value is None else round(value / GIB, 4) for value in got] == [
        None if value is None else pytest.approx(value, abs=1e-3) for value in expected
    ]
    assert [other / GIB for other in found.others] == pytest.approx(list(others), abs=1e-3)
    assert found.gpu == gpu


def _out_of_memory(line: str) -> LogEvent:
    (event,) = [event for event in EventReader().read([LogSource("x", io.BytesIO(line.encode()))]) if event.kind == "oom"]
    return event


def test_in_a_container_the_own_process_is_no_other_rank() -> None:
    listed = OOM.replace(" is free.", " is free. Process 7 has 77.00 GiB memory in use. Process 8 has 1.00 GiB memory in use.")
    found = figures_of(_out_of_memory(re.sub(r" (?:Including|this process).*?in use\.", "", listed)), {7, 8})
    assert found.in_use == 77 * GIB
    assert found.others == found.ranks == (GIB,)


def test_the_size_of_a_request_names_what_it_was() -> None:
    facts = [
        "  vocab_size ........ 1",
        "> padded vocab (size: 5) with 4 dummy tokens (new size: 128256)",
        "seq_length=2048",
        "Instantaneous batch size per device = 4",
    ]
    found = diagnosed(STARTED, *facts, traceback(OOM, ("a.py", 1, "loss", "x = y * 2"), prefix="[rank2]: "))
    assert "for the logits" in found.causes[0].title
    assert any("8,192 tokens x 128,256 words x 4 bytes" in sentence for sentence in found.causes[0].why)


def test_overflows_at_the_start_are_told_apart_from_those_that_go_on() -> None:
    line = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {scale}, reducing to {next}"
    start = "\n".join(line.format(scale=2**power, next=2 ** (power - 1)) for power in range(32, 16, -1))
    late = "\n".join(line.format(scale=2**power, next=2 ** (power - 1)) for power in range(16, 2, -1))
    first, second = diagnosed(STARTED, start, FINISHED).notices, diagnosed(STARTED, late, FINISHED).notices
    assert [notice.certain for notice in (*first, *second)] == [True, False]


def test_losses() -> None:
    assert notices(diagnosed(STARTED, steps([2.0, float("nan"), float("nan")]), FINISHED)) == ["nan"]
    assert notices(diagnosed(STARTED, steps([2.0 - 0.01 * i for i in range(60)] + [4.0] * 20), FINISHED)) == ["diverging"]
    assert notices(diagnosed(STARTED, steps([2.0 - 0.01 * i for i in range(60)]), FINISHED)) == []


STATE = "Creating torch.bfloat16 ZeRO stage 2 optimizer\nworld_rank=0, local_rank=0, world_size=4\nconfig.py:1:print]   world_size ................... 4\n[Rank 0] Model parameters: 1,000,000,000 total, 1,000,000,000 trainable\nAfter initializing ZeRO optimizer\nMA {held:.2f} GB         Max_MA 9.0 GB         CA 9.0 GB         Max_CA 9 GB \n"


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (3e9 / GIB, None),
        (6e9 / GIB, "the ranks do not share the states"),
        (2e9 / GIB, None),  # offload or frozen weights: both hold only the weights
        (5e9 / GIB, "the weights are in fp32"),
    ],
)
def test_the_state_after_initialization_proves_what_is_in_force(held: float, words: str | None) -> None:
    found = [notice.title for notice in diagnosed(STATE.format(held=held), FINISHED).notices if notice.kind == "state"]
    assert len(found) == (words is not None)
    assert all(str(words) in title for title in found)


OFFLOADED = """config.py:1:print_user_config]   json = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {
            "device": "cpu"
        }
    },
    "bf16": {
        "enabled": true
    }
}"""


def test_host_memory_is_compared_with_the_estimate() -> None:
    found = diagnosed(
        STARTED,
        "process 1 spawned with command: ['python', 'train.py', '--model_name_or_path', 'org/llama-3-8b']",
        OFFLOADED,
        RETURNED.format(code=-9),
    )
    (cause,) = found.causes
    assert cause.kind == "host-memory"
    # 8.03e9 parameters x (4 master + 4 gradient + 8 states + 2 buffer) bytes are 135 GiB; loading them takes 4 ranks x 4 bytes
    assert any("4 ranks of a machine need 135 GiB" in sentence for sentence in cause.why), cause.why


def test_an_allocator_at_its_limit_is_told_apart_from_one_flush() -> None:
    flush = "[WARNING] [stage3.py:2274:step] 1 pytorch allocator cache flushes since last step."
    assert notices(diagnosed(STARTED, steps([2.0, 1.9]), flush, flush, FINISHED)) == ["memory-limit"]
    assert notices(diagnosed(STARTED, steps([2.0] * 100), flush, FINISHED)) == []


def test_progress_counts_the_bar_over_all_steps_only() -> None:
    trainer = "[INFO|trainer.py:2422] >>   Total optimization steps = 40"
    bars = " 10%|# | 90/100 [00:01<00:09, 1.0s/it]\r 10%|# | 7/40 [00:01<00:09, 1.0s/it]"
    assert "after step 7 of 40" in diagnosed(STARTED, trainer, bars).outcome.sentence


def test_one_skipped_step() -> None:
    line = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4294967296, reducing to 2147483648"
    found = diagnosed(line)
    assert (found.outcome.end, notices(found)) == (End.UNFINISHED, ["overflow"])
    assert found.notices[0].title.startswith("A step was skipped")
    (advice,) = found.notices[0].advice
    assert "0.9.2 to 0.17.0 start at 2**32 without it" in advice  # as this job did, which wrote no such key


@pytest.mark.parametrize("seed", range(12))
def test_errors_at_exit_of_processes_that_write_at_the_same_time(seed: int) -> None:
    chance = random.Random(seed)
    waiting = [NOISE.split("\n") for _ in range(chance.randint(2, 3))]
    mixed = []
    while any(waiting):
        mixed.append(chance.choice([lines for lines in waiting if lines]).pop(0))
    text = "\n".join(mixed)
    assert diagnosed(STARTED, steps([3.0, 2.9, 2.8]), text).outcome.end is End.FINISHED
    failed = diagnosed(STARTED, steps([3.0, 2.9, 2.8]), traceback("ValueError: no"), text, RETURNED.format(code=1))
    assert [cause.title for cause in failed.causes] == ["ValueError: no"]


@pytest.mark.parametrize(
    ("printed", "alone"),
    [
        ("ValueErrorValueError: : no moreno more", "ValueError: no more"),
        ("ValueErrorValueErrorValueError: : : no more\nno more\nno more", "ValueError: no more"),
        (
            "ValueErrorValueError: : the file has no rows of rank 0the file has no rows of rank 1",
            "ValueError: the file has no rows of rank 0",
        ),
        ("ValueErrorValueError: : one of a kindanother one", "ValueError: one of a kindanother one"),
        ("torch.cuda.OutOfMemoryErrortorch.cuda.OutOfMemoryError: : CUDA error: x", "OutOfMemoryError: CUDA error: x"),
    ],
)
def test_an_error_of_processes_that_print_at_once_is_the_one_of_each(printed: str, alone: str) -> None:
    assert diagnosed(STARTED, traceback(printed)).causes[0].title == alone
    assert diagnosed(STARTED, printed).causes[0].title.removeprefix("torch.cuda.") == alone


def test_the_last_error_of_nccl_counts_without_a_traceback_too() -> None:
    said = "[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank0]: Last error:\n[rank0]: Cuda failure 'out of memory'"
    error = "[rank0]: torch.distributed.DistBackendError: NCCL error in: ../x.cpp:1970, unhandled cuda error, NCCL version 2.20.5\n"
    found = diagnosed(STARTED, error + said)
    assert found.causes[0].kind == "oom"
    assert "its buffers" in found.causes[0].why[0]


def test_a_signal_that_launchers_report_in_several_lines_is_one_cause() -> None:
    worker = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -7) local_rank: 2 (pid: 94) of binary: /usr/bin/python"
    report = "Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 2)\n  exitcode  : -7 (pid: 94)\n  traceback : Signal 7 (SIGBUS) received by PID 94"
    found = diagnosed(worker, traceback(CHILD_FAILED), report)
    assert [cause.title for cause in found.causes] == ["A process ended with SIGBUS"]


def test_a_bar_of_a_loader_is_no_training() -> None:
    bar = "Loading checkpoint shards:  67%|######7   | 2/3 [01:10<00:35, 35.32s/it]"
    killed = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed."
    loading, training = diagnosed(STARTED, bar, killed), diagnosed(STARTED, bar.partition(": ")[2], killed)
    assert not any("during training" in sentence for sentence in loading.causes[0].why)
    assert any("during training" in sentence for sentence in training.causes[0].why)


def test_a_job_that_is_killed_after_its_training() -> None:
    trained = "{'loss': 1.2, 'epoch': 1.0}\n{'train_runtime': 1178.3, 'train_samples_per_second': 0.4, 'train_loss': 2.0, 'epoch': 1.0}"
    found = diagnosed(STARTED, trained, RETURNED.format(code=-9))
    assert "after the training had finished" in found.outcome.sentence
    said = " ".join(found.causes[0].why)
    assert "It happened after the training" in said
    assert "during training" not in said


def test_the_local_rank_of_a_command_counts_ranks() -> None:
    ended = "[2023-07-10 04:26:35,999] [ERROR] [launch.py:324:sigkill_handler] ['/bin/python', 'a.py', '--local_rank=3'] exits with return code = -11"
    assert diagnosed("[Rank 0] DeepSpeed info: version=0.8.3", ended).job.get("ranks_at_least") == 4


def test_equal_explanations_are_told_once() -> None:
    frames = traceback("KeyError: b'RANK'"), "\nDuring handling of the above exception, another exception occurred:\n", "KeyError: 'RANK'"
    found = diagnosed(*frames)
    assert len(found.causes) == 1
    assert found.causes[0].why[0].startswith("The program was started without a launcher")


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: ':/usr/local/cuda/bin/nvcc'", "cuda-home-missing"),
        ("/usr/include/x.h:1:10: fatal error: cublas_v2.h: No such file or directory", "cuda-header-missing"),
        ("/usr/include/x.h:1:10: fatal error: crypt.h: No such file or directory", "header-missing"),
        ("ImportError: /lib/libc.so.6: version `GLIBC_2.32' not found", "glibc-too-old"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(`", "cublas-failed"),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", "cudnn-failed"),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "gpu-busy"),
        ("n1:1:2 [0] NCCL WARN Cuda failure 'invalid resource handle'", "nccl-cuda-failure"),
        ("n1:1:2 [0] NCCL WARN Cuda failure 2 'out of memory'", "nccl-out-of-memory"),
        (
            "OSError: /data/m does not appear to have a file named config.json. Checkout 'https://huggingface.co//data/m'",
            "model-file-missing",
        ),
        ("RuntimeError: pidfd_getfd: Operation not permitted", "expandable-segments-shared"),
        ("subprocess.CalledProcessError: Command '['hostname -I']' returned non-zero exit status 1.", "hostname-command"),
        ("KeyError: 'LOCAL_WORLD_SIZE'", "local-world-size-missing"),
    ],
)
def test_a_line_leads_to_the_entry_that_says_most(line: str, entry: str) -> None:
    known = match_line(line)
    assert known is not None
    assert known[0].id == entry


def test_a_failed_build_is_explained_by_the_line_of_the_compiler() -> None:
    ninja = "ninja: build stopped: subcommand failed.\n" + traceback("RuntimeError: Error building extension 'fused_adam'")
    known = diagnosed("FAILED: a.cuda.o\nnvcc fatal   : Unsupported gpu architecture 'compute_90'\n" + ninja)
    assert "has no code for compute_90" in known.causes[0].why[0]
    other = diagnosed('FAILED: a.cuda.o\n/x/a.cu(12): error: identifier "f" is undefined\n' + ninja)
    assert "fused_adam did not compile" in other.causes[0].why[0]
    assert [shown.text for shown in other.causes[0].evidence][1:] == ['/x/a.cu(12): error: identifier "f" is undefined']


def test_the_launcher_adds_nothing_to_a_signal() -> None:
    worker = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -11) local_rank: 0 (pid: 94) of binary: /usr/bin/python"
    found = diagnosed(STARTED, worker, traceback(CHILD_FAILED))
    assert [cause.kind for cause in found.causes] == ["exit"]


def test_a_changed_trace_is_one_of_stage_3() -> None:
    found = diagnosed(STARTED, "Invalidate trace cache @ step 1: expected module 25, but got module 323", WATCHDOG)
    assert found.job.get("stage") == 3


def test_a_model_that_trains_is_loaded() -> None:
    full = "RuntimeError: [enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000 bytes"
    loading = diagnosed(STARTED, traceback(full)).causes[0]
    training = diagnosed(STARTED, steps([1.0, 1.0]), traceback(full)).causes[0]
    assert "host-memory" == loading.kind == training.kind
    assert any(advice.startswith("Load the model only once") for advice in loading.advice)
    assert not any(advice.startswith("Load the model only once") for advice in training.advice)
    assert any("if several ranks run there and the ZeRO stage is 3, create" in advice for advice in loading.advice)
    one = "[2026-05-04 09:12:03,118] [INFO] [launch.py:165:main] dist_world_size=1"
    alone = diagnosed(one, traceback(full)).causes[0]
    assert not any(advice.startswith("Load the model only once") for advice in alone.advice)
    place = '  File "/opt/lib/python3.11/site-packages/deepspeed/runtime/engine.py", line 1500, in _configure_zero_optimizer\n    flat = torch.empty(n)'
    inside = diagnosed(STARTED, f"Traceback (most recent call last):\n{place}\n{full}").causes[0]
    assert inside.kind == "host-memory"
    assert not any(advice.startswith("Load the model only once") for advice in inside.advice)


def test_a_buffer_of_all_weights_says_nothing_about_the_ranks() -> None:
    """ZeRO 1 and 2 copy the weights of every rank into one buffer on the CPU before they divide it."""
    params = "[Rank 0] Model parameters: 2,000,000,000 total, 2,000,000,000 trainable"
    full = "RuntimeError: [enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000 bytes"
    file = "/opt/lib/python3.11/site-packages/deepspeed/runtime/zero/stage_1_and_2.py"
    flat = diagnosed(STARTED, params, traceback(full, (file, 1390, "flatten_dense_tensors_aligned", "x"))).causes[0]
    other = diagnosed(STARTED, params, traceback(full, (file, 600, "initialize_optimizer_states", "x"))).causes[0]
    assert not any("do not train together" in one for one in flat.why)
    assert any("do not train together" in one for one in other.why)
    half = diagnosed(STARTED, params, traceback(full.replace("8000000000", "4000000000"))).causes[0]
    assert any("all of them in 16 bits" in one for one in half.why)


def test_a_bare_line_of_sigkill_is_confirmed_before_a_remedy() -> None:
    """Without a stage or a number of ranks, the advice about loading the model holds for some jobs only."""
    bare = diagnosed("exitcode  : -9 (pid: 4541)").causes[0]
    assert bare.advice[0].startswith("To confirm")
    known = diagnosed(STARTED, RETURNED.format(code=-9)).causes[0]
    assert known.advice[0].startswith("Load the model only once")
    assert known.advice[-1].startswith("To confirm")


def test_a_program_that_names_an_interrupt_was_not_interrupted() -> None:
    told = "Press Ctrl+C to raise KeyboardInterrupt and save a checkpoint\nKeyboardInterrupt handler installed"
    assert causes(diagnosed(STARTED, told, steps([2.0, 1.9]))) == []
    assert causes(diagnosed(STARTED, steps([2.0, 1.9]), "^CKeyboardInterrupt"))


SOME_FAILED = (
    "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
    "corrupted/incomplete data."
)


@pytest.mark.parametrize(
    ("last", "kind"),
    [
        (f"[rank3]:[E ProcessGroupNCCL.cpp:684] [Rank 3] {SOME_FAILED}", "hang"),
        ("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc", "host-memory"),
        ("[W socket.cpp:663] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address).", None),
        ("No module named 'flash_attn', falling back to sdpa", None),
        ("UserWarning: bitsandbytes was compiled without GPU support", None),
        ("wandb: ERROR Error while calling W&B API", None),
    ],
)  # fmt: skip
def test_the_last_lines_of_a_log_that_is_cut(last: str, kind: str | None) -> None:
    """A process that ends says so in few words; a warning is no end."""
    found = diagnosed(STARTED, last)
    assert [cause.kind for cause in found.causes] == ([kind] if kind else [])
    assert found.outcome.end is (End.FAILED if kind else End.UNFINISHED)
    trained_on = diagnosed(STARTED, last, steps([2.0, 1.9, 1.8, 1.7]))
    assert trained_on.outcome.end is End.UNFINISHED


PDSH = "[2026-05-04 09:12:03,118] [INFO] [runner.py:607:main] cmd = pdsh -S -f 1024 -w n1,n2 cd /proj; python -u -m deepspeed.launcher.launch train.py"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("n2: Permission denied (publickey,password).", "cannot log in to a machine"),
        ("n2: Host key verification failed.", "cannot log in to a machine"),
        ("n2: ssh: connect to host n2 port 22: Connection refused", "No ssh server answers"),
        (
            "n2: python: Error while finding module specification for 'deepspeed.launcher' (ModuleNotFoundError: No module named 'deepspeed')",
            "DeepSpeed is not installed",
        ),
        ("mpirun has detected an attempt to run as root.", "mpirun refuses to start as root"),
        ("There are not enough slots available in the system to satisfy the 8", "mpirun shall start 8 processes"),
    ],
)
def test_a_machine_that_starts_nothing_ends_the_job(said: str, told: str) -> None:
    """No traceback and no line of the launcher of a machine follows."""
    found = diagnosed(PDSH, said, "pdsh@n1: n2: ssh exited with exit code 255" if said.startswith("n2") else "")
    assert found.outcome.end is End.FAILED
    assert told in found.causes[0].why[0]
    trained = "\n".join(f"n1: Iteration {number}: loss=2.0" for number in range(4))
    assert not diagnosed(PDSH, said, trained).causes


@pytest.mark.parametrize(("best", "more"), [(0.0, ""), (0.4, ", 'reward': 0.5, 'kl': 0.01")])
def test_the_loss_of_reinforcement_learning_may_rise(best: float, more: str) -> None:
    lines = [f"{{'loss': {best + 0.002 * step:.4f}, 'learning_rate': 1e-06, 'epoch': {step / 100}{more}}}" for step in range(1, 300)]
    assert "diverging" not in notices(diagnosed(STARTED, *lines, FINISHED))
    if more:
        assert "diverging" in notices(diagnosed(STARTED, *[line.replace(more, "") for line in lines], FINISHED))


def test_the_number_of_an_epoch_is_not_that_of_a_step() -> None:
    found = diagnosed(STARTED, "Epoch 1:  10%|#         | 10/100 [00:30<04:30,  3.0s/it, loss=nan]", traceback("RuntimeError: no"))
    assert "step 1" not in found.outcome.sentence
    assert [notice.title for notice in found.notices] == ["The loss is NaN"]


def test_a_group_that_is_larger_than_the_job_is_explained_by_its_message() -> None:
    message = "RuntimeError: the new group's world size should be less or equal to the world size set by init_process_group"
    (cause,) = diagnosed(message).causes
    assert "more ranks than the job has processes" in cause.why[0]
    assert not any("dslint check" in advice for advice in cause.all_advice)


@pytest.mark.parametrize(
    ("form", "loss", "zero"),
    [
        ("{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 4.5e-06, 'epoch': 0.6}}", "0.0", True),
        (" iteration     5426/  250000 | elapsed time per iteration (ms): 4247.9 | loss scale: 1.0 | grad norm: {norm} | number of nan iterations:   0 |", "", False),
    ],
)  # fmt: skip
def test_gradients_that_stay_nan_are_told_though_the_loss_is_a_number(form: str, loss: str, *, zero: bool) -> None:
    """The Trainer prints 0.0 for a loss that is NaN (logging_nan_inf_filter); Megatron counts only losses."""
    good, bad = (form.format(loss=value, norm=norm) for value, norm in (("1.4", "1.2"), (loss, "nan")))
    (notice,) = [one for one in diagnosed(STARTED, good, *[bad] * 3).notices if one.kind == "nan"]
    assert notice.evidence[0].place.line == 3
    assert ("printed as 0.0" in notice.title) is zero
    assert "nan" not in notices(diagnosed(STARTED, good, *[bad] * 2, good))
    assert "nan" not in notices(diagnosed(STARTED, good, bad))


@pytest.mark.parametrize(
    ("code", "condition"),
    [
        ("assert model.layers % parts == 0", "model.layers % parts == 0"),
        ("assert isinstance(batch, (list, tuple))", "isinstance(batch, (list, tuple))"),
        ("assert rows, reason", None),  # has a message, which is empty
        ("assert all(", None),  # goes on
        ("check(model)", None),
    ],
)
def test_the_check_that_failed_without_a_message_is_named(code: str, condition: str | None) -> None:
    (cause,) = diagnosed(STARTED, traceback("AssertionError", ("train.py", 7, "main", code))).causes
    named = [why for why in cause.why if "check in the code" in why]
    assert named == ([f"A check in the code fails that has no message: `{condition}` is not true here."] if condition else [])


def test_the_place_of_a_library_explains_no_name_that_its_own_code_lacks() -> None:
    """The step of ZeRO calls the optimizer, whose code reads a name that it has not set: no gradient and no order of calls is wrong."""
    frames = (
        ("/env/lib/python3.8/site-packages/deepspeed/runtime/zero/stage3.py", 1760, "_optimizer_step", "self.optimizer.step()"),
        ("/env/lib/python3.8/site-packages/torch/optim/adamw.py", 117, "step", "beta1,"),
    )
    (cause,) = diagnosed(STARTED, traceback("UnboundLocalError: local variable 'beta1' referenced before assignment", *frames)).causes
    assert "reads beta1 before a line of it has set beta1" in cause.why[0]
    assert not any("engine.backward" in advice for advice in cause.advice)


def test_an_error_that_ray_cannot_rebuild_counts_less_than_the_one_of_the_worker() -> None:
    unreadable = traceback(
        "RuntimeError: Failed to unpickle serialized exception", ("/env/site-packages/ray/exceptions.py", 54, "f", "raise")
    )
    (cause,) = diagnosed(STARTED, unreadable).causes
    assert not cause.certain
    (cause,) = diagnosed(STARTED, unreadable, traceback("ValueError: The batch is empty")).causes[:1]
    assert cause.title == "ValueError: The batch is empty"


def test_what_python_says_of_anything_is_no_sure_cause_without_a_traceback() -> None:
    """A program may print such a line, and go on."""
    line = "ValueError: could not convert string to float: 'n/a'"
    (cause,) = diagnosed(STARTED, line).causes
    assert not cause.certain
    assert "reads a number" in cause.why[0]
    (cause,) = diagnosed(STARTED, line, traceback("OSError: [Errno 28] No space left on device")).causes[:1]
    assert cause.title.startswith("OSError")
    (cause,) = diagnosed(STARTED, traceback(line)).causes
    assert cause.certain


@pytest.mark.parametrize(
    ("error", "is_place"),
    [("TypeError: collect() takes 1 positional argument but 2 were given", False), ("KeyError: 'param_shapes'", True)],
)
def test_the_files_of_a_checkpoint_explain_no_call_with_too_many_arguments(error: str, is_place: bool) -> None:
    """The script calls its own function: whatever the folder holds, two releases of it are mixed."""
    frame = ("/out/zero_to_fp32.py", 124, "convert", "collect(folder, stage)")
    (cause,) = diagnosed(STARTED, traceback(error, frame)).causes
    assert any('Pass the folder with "latest"' in advice for advice in cause.advice) is is_place
    assert any("other arguments than it has" in why for why in cause.why) is not is_place


def test_an_error_of_a_worker_that_ray_cannot_rebuild_is_not_taken_for_a_wrong_call() -> None:
    frame = ("/env/site-packages/ray/exceptions.py", 51, "from_ray_exception", "return pickle.loads(ray_exception.serialized_exception)")
    error = "TypeError: CompileFailed.__init__() missing 1 required positional argument: 'inner'"
    (cause,) = diagnosed(STARTED, traceback(error, frame)).causes
    assert "A worker of Ray raised an error that Ray cannot build again" in cause.why[0]
    assert not cause.certain
