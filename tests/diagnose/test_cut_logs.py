"""Logs that were cut, wrapped, buffered or copied: what is missing is said, and no guess stands in its place."""

from __future__ import annotations

import pytest

from dslint.diagnose.diagnosis import End
from tests.diagnose.logs import RETURNED, STARTED, diagnosed, steps, traceback

STEP = ("/env/site-packages/deepspeed/runtime/engine.py", 2213, "step", "self._take_model_step(lr_kwargs)")
OWN = ("/home/u/train.py", 212, "main", "self.engine.step()")
FRAMES = traceback("", OWN, STEP).rstrip()
REACHED = "[2026-05-04 09:12:09,530] [INFO] [comm.py:652:init_distributed] cdb=None"
BACKEND = "[2026-05-04 09:12:09,531] [INFO] [comm.py:683:init_distributed] Initializing TorchBackend in DeepSpeed with backend nccl"


@pytest.mark.parametrize(
    "text",
    [
        FRAMES,
        FRAMES.partition("\n")[2],
        f"{FRAMES}\n{RETURNED.format(code=1)}",
        f"{FRAMES}\nTraceback (most recent call last):",  # of another process, of which the log holds no more
    ],
)
def test_a_traceback_without_its_error_is_named_by_its_last_line(text: str) -> None:
    found = diagnosed(text)
    cause = found.causes[0]
    assert found.outcome.end is End.FAILED
    assert cause.title == (
        "A process failed at `self._take_model_step(lr_kwargs)` (deepspeed/runtime/engine.py:2213); the traceback ends before its error"
    )
    assert not cause.certain
    assert "cannot be told" in cause.why[0]
    assert "u/train.py:212 (self.engine.step())" in cause.why[0]
    assert cause.evidence[0].text.strip() == STEP[3]


def test_a_cut_line_that_raises_names_the_error() -> None:
    raises = ("/env/site-packages/deepspeed/ops/op_builder/builder.py", 50, "installed_cuda_version", 'raise MissingCUDAException("CUDA_HOME does not exist, unable to compile CUDA op(s)")')  # fmt: skip
    assert "CUDA_HOME" in " ".join(diagnosed(traceback("", OWN, raises).rstrip()).causes[0].why)


def test_an_error_below_frames_without_a_head_has_these_frames() -> None:
    text = traceback("ValueError: no labels", OWN, ("/home/u/data.py", 3, "read", "check(row)")).partition("\n")[2]
    cause = diagnosed(STARTED, text, RETURNED.format(code=1)).causes[0]
    assert (cause.title, cause.certain) == ("ValueError: no labels", True)
    assert "u/data.py:3" in cause.why[0]


def test_an_error_without_a_message_takes_no_further_line() -> None:
    text = traceback("AssertionError", OWN)
    cause = diagnosed(STARTED, text, "wandb: Find logs at: ./wandb/run", RETURNED.format(code=1)).causes[0]
    assert cause.title == "AssertionError"


def test_a_message_ends_where_another_printer_begins() -> None:
    error = "RuntimeError: Error(s) in loading state_dict for Net:\n\tsize mismatch for a: copying a param with shape torch.Size([2]) from checkpoint, the shape in current model is torch.Size([3])."
    after = "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran"
    cause = diagnosed(STARTED, traceback(error, OWN), after, RETURNED.format(code=1)).causes[0]
    assert (cause.kind, cause.title) == ("checkpoint", "RuntimeError: Error(s) in loading state_dict for Net:")


def test_line_ends_of_windows_divide_no_message() -> None:
    error = "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedZeroConfig\nstag\n  Extra inputs are not permitted [type=extra_forbidden, input_value=1, input_type=int]"
    plain = diagnosed(STARTED, traceback(error, OWN))
    windows = diagnosed("\n".join((STARTED, traceback(error, OWN))).replace("\n", "\r\n"))
    assert [(one.title, one.why) for one in windows.causes] == [(one.title, one.why) for one in plain.causes]
    assert "stag: Extra inputs" in plain.causes[0].title


def wrapped(text: str, columns: int) -> str:
    return "\n".join(line[at : at + columns] for line in text.split("\n") for at in range(0, max(len(line), 1), columns))


@pytest.mark.parametrize("prefix", ["", "[rank1]: ", "gpu-3: ", "trainer-1  | "])
@pytest.mark.parametrize("columns", [80, 100, 140])
def test_lines_that_a_terminal_wrapped_are_joined(columns: int, prefix: str) -> None:
    long = "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 1, in the layer that reads the embeddings of the second tower"
    text = "\n".join(
        (
            STARTED,
            traceback(long, OWN, STEP, prefix=prefix),
            f"{prefix}note: {' '.join(map(str, range(60)))}",
            f"{prefix}widths of the layers: {', '.join(map(str, range(100, 160)))}",
            RETURNED.format(code=1),
        )
    )
    whole, narrow = diagnosed(text), diagnosed(wrapped(text, columns))
    assert [(one.title, one.why) for one in narrow.causes] == [(one.title, one.why) for one in whole.causes]


def test_frames_that_end_at_the_last_column_are_wrapped_lines() -> None:
    """The name of a function that goes on below looks whole without its end."""
    width = 100
    frames = [f'  File "/srv/{"a" * (52 + number)}/work.py", line 1{number}, in {"f" * (12 - number)}' for number in range(4)]
    assert {len(one) for one in frames} == {width}
    calls = "\n".join(f"{one}_and_more\n    go()" for one in frames)
    first = f"Traceback (most recent call last):\n{calls}\nValueError: {'the size of the first part is ' * 9}0"
    last = "\n\nDuring handling of the above exception, another exception occurred:\n\n" + traceback("RuntimeError: stopped", OWN)
    whole, narrow = diagnosed(STARTED, first + last), diagnosed(STARTED, wrapped(first, width) + last)
    assert whole.causes[0].title.startswith("ValueError: the size")
    assert [one.title for one in narrow.causes] == [one.title for one in whole.causes]


def test_equal_lines_of_one_width_are_not_joined() -> None:
    lines = [f"[2026-05-04 09:12:0{number},530] [INFO] [launch.py:268:main] worker {number} of 8 is at your service" for number in range(8)]
    found = diagnosed(STARTED, *lines, traceback("ValueError: no", OWN), RETURNED.format(code=1))
    assert found.causes[0].evidence[0].place.line == 13


def test_a_bar_before_a_traceback_hides_no_frame() -> None:
    bar = "gpu-3:   1%|  | 10/999 [00:10<16:00,  1.0s/it]\r  1%|  | 11/999 [00:11<16:00,  1.0s/it]"
    lines = traceback("ValueError: no labels", OWN).split("\n")
    text = "\n".join((f"gpu-3: {STARTED}", bar + lines[0], *(f"gpu-3: {line}" for line in lines[1:])))
    cause = diagnosed(text).causes[0]
    assert (cause.title, "u/train.py:212" in cause.why[0]) == ("ValueError: no labels", True)


def test_steps_that_are_printed_late_do_not_hide_the_error() -> None:
    found = diagnosed(STARTED, traceback("ValueError: no labels", OWN), steps([3.0, 2.9, 2.8, 2.7]), RETURNED.format(code=1))
    assert (found.causes[0].title, found.causes[0].certain) == ("ValueError: no labels", False)
    assert any("buffered" in sentence for sentence in found.causes[0].why)


@pytest.mark.parametrize(
    "printed", ["  1%|  | 11/999 [00:11<16:00,  1.0s/it, loss=nan]", "step 11 train_loss: nan", "loss tensor(nan, device='cuda:0')"]
)
def test_a_loss_that_is_not_a_number_says_more_than_the_place(printed: str) -> None:
    found = diagnosed(
        STARTED, printed, traceback("AssertionError", ("/home/u/train.py", 9, "check_labels", "assert ok(x)")), RETURNED.format(code=1)
    )
    assert found.causes[0].why[0] == "The loss is not a finite number before this error (line 2): it may only follow from that."
    assert "nan" in [notice.kind for notice in found.notices]


@pytest.mark.parametrize(
    "line",
    [
        "loss_scale: nan",
        "nan_loss: 0",
        "loss=3.1 (nan ignored)",
        "the loss of nanotron",
        "iteration 7 | lm loss: 2.1E+00 | number of nan iterations: 0 |",
    ],
)
def test_other_words_are_no_loss(line: str) -> None:
    assert "nan" not in [notice.kind for notice in diagnosed(STARTED, line, "x").notices]


def test_a_log_that_ends_while_ranks_connect_says_so() -> None:
    found = diagnosed(STARTED, REACHED, REACHED, BACKEND)
    (cause,) = found.causes
    assert (found.outcome.end, cause.kind, cause.certain) == (End.UNFINISHED, "hang", False)
    assert cause.title == "The log ends while the ranks connect to each other"
    assert cause.why[0].startswith("2 of 4 ranks print that they began to connect")
    assert diagnosed(STARTED, REACHED, BACKEND, *["loading the model"] * 3).causes == []
    assert diagnosed(STARTED, BACKEND, steps([2.0])).causes == []


@pytest.mark.parametrize(
    ("last", "title"),
    [
        ("initializing deepspeed distributed: GLOBAL_RANK: 0, MEMBER: 1/2", "The log ends while the ranks connect to each other"),
        ("gpu-3:4121:4200 [0] NCCL INFO Channel 00/02 :    0   1", "The log ends while NCCL connects the GPUs"),
        ("gpu-3:4121:4200 [0] NCCL INFO comm 0x7 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE", None),
        ("Using /home/u/.cache/torch_extensions/py310_cu118 as PyTorch extensions root...", "The log ends while a compiled op is built or loaded"),
    ],
)  # fmt: skip
def test_where_a_log_ends(last: str, title: str | None) -> None:
    assert [cause.title for cause in diagnosed(STARTED, last).causes] == ([title] if title else [])


@pytest.mark.parametrize(
    "line",
    [
        "deepspeed --num_gpus 4 train.py --deepspeed ds.json",
        "Namespace(deepspeed=True, local_rank=0, zero_stage=3)",
        '  "zero_optimization": {"stage": 2},',
        "trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.06",
        "epoch 1 loss 2.3",
        "time (ms) | forward: 376.60 | backward: 864.56 | backward_allreduce: 57.62 | step: 22880.87",
        "    forward-compute ................................: (100.0, 180.0)",
        "CPU Virtual Memory:  used = 31.2 GB, percent = 12.4%",
        "Time to load cpu_adam op: 2.31 seconds",
    ],
)
def test_a_log_of_a_training_that_tells_no_failure_is_one(line: str) -> None:
    found = diagnosed("loading", line, "bye")
    assert found.outcome.end is End.UNFINISHED
    assert "no line tells a failure" in found.outcome.sentence
    assert found.causes == []


def test_a_report_of_what_is_installed_is_no_log() -> None:
    report = "DeepSpeed C++/CUDA extension op report\ncpu_adam ............... [NO] ....... [OKAY]\nDeepSpeed general environment info:\ndeepspeed info ................... 0.14.0, unknown, unknown"
    assert diagnosed(report).outcome.end is End.UNKNOWN


@pytest.mark.parametrize(
    ("said", "name"),
    [("Aborted (core dumped)", "SIGABRT"), ("Segmentation fault (core dumped)", "SIGSEGV"), ("Exited with exit code 3", "code 3")],
)
def test_the_end_of_a_task_comes_before_the_cancelled_step(said: str, name: str) -> None:
    cancelled = "slurmstepd: error: *** STEP 8.0 ON n1 CANCELLED AT 2023-07-09T19:18:33 ***"
    (cause,) = diagnosed(steps([3.0]), f"srun: error: n1: task 2: {said}", cancelled).causes
    assert name in cause.title


def test_a_name_at_the_start_of_a_line_is_no_machine() -> None:
    """A prefix that is learned from "gpu-3: " is not the name of a program before a message."""
    lines = (STARTED, *traceback("ValueError: no", OWN).split("\n"), "train.py: error: unrecognized arguments: --stage 3")
    found = diagnosed(*(f"gpu-3: {line}" for line in lines[1:-1]), f"gpu-3: {lines[-1]}")
    assert any("unrecognized arguments" in event.text for event in found.job.of("refused"))


REPORT = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 4122)
  traceback : Signal 15 (SIGTERM) received by PID 4122
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4121)
============================================================"""
LAUNCHER = ("/opt/bin/torchrun", 8, "<module>", "sys.exit(main())")


@pytest.mark.parametrize("left", [len(REPORT.split("\n")), 9])
def test_a_process_that_torchrun_stopped_is_not_the_one_that_failed(left: int) -> None:
    failed = "E0504 09:13:10.201 139 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 4121) of binary: python"
    report = "\n".join(REPORT.split("\n")[:left])
    found = diagnosed(STARTED, failed, traceback(report, LAUNCHER))
    assert (found.outcome.end, found.causes[0].title) == (End.FAILED, "A process ended with return code 1")
    compiled = diagnosed(STARTED, "nvcc fatal   : Unsupported gpu architecture 'compute_120'", failed, traceback(report, LAUNCHER))
    assert compiled.causes[0].kind == "build"


def test_a_frame_that_ends_in_the_next_line_is_whole() -> None:
    """A copy of which names were edited: the lines do not end at one column."""
    whole = traceback("IndexError: pop from an empty deque", OWN, ("/env/lib/python3.10/site-packages/deepspeed/runtime/zero/partitioned_param_coordinator.py", 208, "record_parameters", "x.popleft()"), prefix="[rank1]: ")  # fmt: skip
    narrow = whole.replace('.py", line 208', '.py", lin\ne 208').replace("in main", "in ma\nin")
    assert [(one.title, one.why) for one in diagnosed(narrow).causes] == [(one.title, one.why) for one in diagnosed(whole).causes]
    assert "coordinator.py:208" in " ".join(diagnosed(narrow).causes[0].why)


RICH = """\
ZeRORuntimeException: You are using ZeRO-Offload with a client provided 
optimizer (<class 'torch.optim.adamw.AdamW'>) which in most cases will yield 
poor performance. Please either use deepspeed.ops.adam.DeepSpeedCPUAdam or set 
an optimizer in your ds-config"""  # noqa: W291 - rich leaves the blank behind the last word of a line
LOGGING = """\
--- Logging error ---
Traceback (most recent call last):
  File "/env/lib/python3.8/logging/__init__.py", line 1088, in emit
    stream.write(msg + self.terminator)
BrokenPipeError: [Errno 32] Broken pipe
Call stack:
  File "/env/lib/python3.8/runpy.py", line 87, in _run_code
    exec(code, run_globals)
  File "/env/site-packages/deepspeed/launcher/launch.py", line 178, in sigkill_handler
    logger.info(f"Killing subprocess {process.pid}")
Message: 'Killing subprocess 15855'
Arguments: ()"""


def test_a_message_that_rich_wrapped_is_read_whole() -> None:
    (cause,) = diagnosed(RICH).causes
    assert "client provided optimizer (<class" in cause.title
    assert "DeepSpeedCPUAdam" in cause.advice[0]


@pytest.mark.parametrize("lines", [12, 10])
def test_an_error_of_logging_is_not_one_of_the_program(lines: int) -> None:
    assert diagnosed(STARTED, "\n".join(LOGGING.split("\n")[:lines])).causes == []
    found = diagnosed(STARTED, LOGGING, traceback("ValueError: no labels", OWN), RETURNED.format(code=1))
    assert [cause.title for cause in found.causes] == ["ValueError: no labels"]


def test_a_traceback_that_followed_from_another_one_may_be_cut() -> None:
    text = "\n".join(
        (traceback("ValueError: no labels", OWN), "", "The above exception was the direct cause of the following exception:", "", FRAMES)
    )
    cause = diagnosed(text).causes[0]
    assert cause.title == "ValueError: no labels"
    assert not any("led to" in sentence for sentence in cause.why)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_deepspeeds_launcher_received_is_named(name: str) -> None:
    ended = "[2026-05-04 09:13:11,470] [INFO] [launch.py:319:sigkill_handler] "
    found = diagnosed(STARTED, steps([3.0, 2.9]), f"{ended}Killing subprocess 4121", f"{ended}Main process received {name}, exiting")
    assert found.outcome.end is End.KILLED
    assert [cause.title for cause in found.causes] == [f"Something ended the launcher with {name}"]


@pytest.mark.parametrize(("number", "name"), [(1, "SIGHUP"), (2, "SIGINT"), (15, "SIGTERM"), (12, "signal 12")])
def test_a_signal_that_the_launcher_received_is_named(number: int, name: str) -> None:
    line = f"W0722 21:16:14.716000 3681165 torch/distributed/elastic/agent/server/api.py:739] Received {number} death signal, shutting down workers"
    found = diagnosed(steps([3.0, 2.9]), line)
    assert found.outcome.end is End.KILLED
    assert found.causes[0].title == f"Something ended the launcher with {name}"
    assert "dmesg" not in " ".join(found.causes[0].advice)


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        (
            (
                "box:17365:17704 [1] NCCL INFO Could not enable P2P between dev 1(=1a000) and dev 0(=19000)",
                "box:17365:17704 [1] NCCL INFO Channel 01 : 1[1a000] -> 0[19000] via direct shared memory",
            ),
            "The log ends while NCCL connects the GPUs",
        ),
        (
            ("Using /home/u/.cache/torch_extensions/py310_cu121 as PyTorch extensions root...", "Loading extension module cpu_adam..."),
            "The log ends while a compiled op is built or loaded",
        ),
    ],
)
def test_a_text_that_only_stops_is_no_error(lines: tuple[str, ...], title: str) -> None:
    (cause,) = diagnosed(*lines).causes
    assert (cause.title, cause.certain) == (title, False)
