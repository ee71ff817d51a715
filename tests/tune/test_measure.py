"""`dslint tune --measure`: what is started ends, what was measured stays, and a killed run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dslint.errors import UserError
from dslint.tune import guard, processes
from dslint.tune.calibrate import calibrated, factor_of
from dslint.tune.launch import CannotSet, followed, is_batch, with_arguments, with_config
from dslint.tune.measure import MeasurableConfig, MeasuredConfig, ResultsFile, can_win, entries_of, measure, remove_configs, summary
from dslint.tune.measure import said as in_words
from dslint.tune.processes import MARK, kill_marked, marked
from dslint.tune.space import present
from dslint.tune.timing import Timing
from dslint.tune.trial import Status, TrialOutcome
from dslint.tune.trial import run as run_trial
from dslint.tune.write import Written
from tests.tune.setups import search

TRAIN = Path(__file__).with_name("fake_train.py")

CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3},
}


def entries(text: str) -> list[MeasurableConfig]:
    """The present config (stage 3), and the same at stages 0 and 1, in this order of predicted times: 0, 1, 3."""
    found = search(text, world=2, model="gpt2", length=128)
    now = found.candidate(present(found.base))
    others = []
    for stage in (0, 1):
        candidate = found.candidate(now.choice._replace(stage=stage, overlap=False))
        changed = json.dumps({**json.loads(text), "zero_optimization": {"stage": stage}})
        others.append((candidate, Written(changed, {}, ())))
    made = entries_of(others, now, text)
    order = {"config 1": 0, "config 2": 1, "the present config": 2}
    return sorted(made, key=lambda entry: order[entry.name])


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "ds.json"
    file.write_text(json.dumps(CONFIG), encoding="utf-8")
    return file


def measured(config: Path, out: Path, *ends: str, limit: float = 20) -> tuple[list[MeasuredConfig], list[str]]:
    said: list[str] = []
    command = [sys.executable, str(TRAIN), str(config)]
    os.environ["FAKE_ENDS"] = " ".join(ends)  # not in the command, which tells measurements apart
    found = measure(entries(config.read_text(encoding="utf-8")), command, str(config), ResultsFile(str(out)), limit, said.append)
    return found, said


def statuses(found: list[MeasuredConfig]) -> dict[str, Status]:
    return {one.entry.name: one.outcome.status for one in found}


@pytest.mark.slow
def test_the_fastest_is_found_and_the_rest_is_not_run(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    found, said = measured(config, out)
    assert found[0].entry.name == "config 1"
    assert found[0].outcome.seconds == pytest.approx(0.02)
    assert found[0].outcome.steps >= 5
    assert any("cannot win" in sentence for sentence in said)
    assert summary(found, ResultsFile(str(out))).startswith("Fastest: config 1, 0.02 s per step")
    events = [json.loads(line)["event"] for line in out.read_text(encoding="utf-8").splitlines()]
    assert events[:2] == ["started", "ended"]
    assert events[-1] == "summary"


@pytest.mark.slow
def test_out_of_memory_hangs_and_failures_are_survived(config: Path, tmp_path: Path) -> None:
    found, _ = measured(config, tmp_path / "out.jsonl", "0=memory", "1=hang", "3=fails", limit=3)
    assert statuses(found) == {"config 1": Status.OOM, "config 2": Status.HUNG, "the present config": Status.FAILED}
    assert summary(found, ResultsFile(str(tmp_path / "out.jsonl"))) == "No config was measured."


@pytest.mark.slow
def test_what_was_measured_is_not_run_again_but_a_failure_is(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    first, _ = measured(config, out, "0=memory", "1=fails")
    second, said = measured(config, out, "0=memory", "1=fails")
    earlier = {one.entry.name: one.earlier for one in second}
    assert earlier == {"config 1": True, "config 2": False, "the present config": True}
    assert statuses(first) == statuses(second)
    assert any("measured before" in sentence for sentence in said)


@pytest.mark.slow
def test_a_cut_line_is_dropped_and_another_file_refused(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    measured(config, out)
    whole = out.read_text(encoding="utf-8")
    out.write_text(whole + '{"version": 1, "event": "sta', encoding="utf-8")
    assert len(ResultsFile(str(out)).lines) == len(whole.splitlines())
    ResultsFile(str(out)).add(event="note")
    assert json.loads(out.read_text(encoding="utf-8").splitlines()[-1]) == {"version": 1, "event": "note"}
    other = tmp_path / "notes.txt"
    other.write_text("my notes\n", encoding="utf-8")
    with pytest.raises(UserError, match="is not a line of"):
        ResultsFile(str(other))
    assert other.read_text(encoding="utf-8") == "my notes\n"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_ranks_that_hear_no_signal_are_ended_with_their_launcher(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {**CONFIG, "steps_per_print": 1}
    config.write_text(json.dumps(data), encoding="utf-8")
    mark = f"test-{os.getpid()}-deaf"
    monkeypatch.setenv("FAKE_ENDS", "3=deaf")
    monkeypatch.setattr(processes, "GRACE", 1.0)  # what is killed after one second is after five
    outcome = run_trial([sys.executable, str(TRAIN), str(config)], mark, 2, 2, str(tmp_path / "log"))
    assert outcome.status is Status.HUNG
    assert list(marked(mark)) == []


@pytest.mark.parametrize("looks", ["marked", "_marked"])
def test_a_process_without_environment_for_a_moment_is_killed(looks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is executing a new program: the first look does not find it."""
    alive, killed = iter([[], [], [7], [], [], [7]]), []
    monkeypatch.setattr(os, "kill", lambda number, how: killed.append((number, how)))
    if looks == "marked":
        monkeypatch.setattr(processes, "marked", lambda mark: next(alive, []))
        kill_marked("x")
    else:
        monkeypatch.setattr(guard, "_marked", lambda name, value: next(alive, []))
        monkeypatch.setattr(sys, "argv", ["guard.py", MARK, "x"])
        guard._kill_marked()
    assert killed == [(7, signal.SIGKILL)] * 2


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_a_lock_of_torch_is_removed_with_the_rank_that_holds_it(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(json.dumps({**CONFIG, "steps_per_print": 1}), encoding="utf-8")
    held, other = tmp_path / "torch_extensions" / "fused_adam" / "lock", tmp_path / "torch_extensions" / "cpu_adam" / "lock"
    for path in (held, other):
        path.parent.mkdir(parents=True)
    other.touch()  # of a process that is not of the trial
    monkeypatch.setenv("FAKE_ENDS", "3=hang")
    monkeypatch.setenv("FAKE_LOCK", str(held))
    outcome = run_trial([sys.executable, str(TRAIN), str(config)], f"test-{os.getpid()}-lock", 2, 2, str(tmp_path / "log"))
    assert outcome.status is Status.HUNG
    assert not held.exists()
    assert other.exists()


DRIVER = """
import sys
from tests.tune.test_measure import measured
from pathlib import Path
from dslint.tune import processes
processes.GRACE = 1.0
measured(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:], limit=60)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, *(pytest.param(how, marks=pytest.mark.slow) for how in (signal.SIGTERM, signal.SIGINT))])
@pytest.mark.parametrize("moment", [0.4, *(pytest.param(moment, marks=pytest.mark.slow) for moment in (0.0, 1.2))])
def test_a_killed_run_leaves_nothing_and_goes_on(config: Path, tmp_path: Path, how: signal.Signals, moment: float) -> None:
    """Killed at any moment of a trial that hangs: its processes end, and the next run measures what is missing."""
    out = tmp_path / "out.jsonl"
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + DRIVER
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(config), str(out), "1=deaf", "3=deaf"], env=environment, stderr=subprocess.DEVNULL
    )
    last = time.monotonic() + 60
    while time.monotonic() < last and not _hangs(out):
        time.sleep(0.05)
    time.sleep(moment)
    process.send_signal(how)
    process.wait(60)
    marks = {json.loads(line)["mark"] for line in out.read_text(encoding="utf-8").splitlines() if "mark" in line}
    last = time.monotonic() + 30
    while time.monotonic() < last and any(list(marked(mark)) for mark in marks):
        time.sleep(0.1)
    assert not [number for mark in marks for number in marked(mark)]
    found, _ = measured(config, out)
    assert found[0].earlier
    assert found[0].outcome.status is Status.OK


def _hangs(out: Path) -> bool:
    """Whether the first trial has ended: the next one, which hangs, is about to start, or has."""
    return out.exists() and '"ended"' in out.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_processes_of_a_run_that_was_killed_with_its_guard_are_ended_by_the_next(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    mark = f"test-{os.getpid()}-left"
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, MARK: mark})
    ResultsFile(str(out)).add(event="started", key="x", mark=mark)
    _, said = measured(config, out)
    assert said[0] == "Ended 1 processes of an earlier run."
    assert left.wait(10) == -signal.SIGKILL
    assert kill_marked(mark) == 0


def test_a_command_that_does_not_exist_is_a_failure(tmp_path: Path) -> None:
    outcome = run_trial(["no-such-launcher"], "test-none", 2, 10, str(tmp_path / "log"))
    assert outcome.status is Status.FAILED
    assert "no-such-launcher" in outcome.tail[-1]


def test_a_slower_config_can_win_only_within_its_range(config: Path) -> None:
    first, second, present_one = entries(config.read_text(encoding="utf-8"))
    ok = MeasuredConfig(first, TrialOutcome(Status.OK, 0.02, 0.02, 0.02, 5), earlier=False)
    assert can_win(first, [])
    assert can_win(second, [MeasuredConfig(first, TrialOutcome(Status.OOM), earlier=False)])
    assert not can_win(present_one, [ok])


def test_the_config_is_replaced_in_every_form(tmp_path: Path) -> None:
    config = str(tmp_path / "ds.json")
    command = ["deepspeed", "train.py", "--deepspeed", config, f"--config={config}", "--lr=1"]
    assert with_config(command, config, "/x.json") == ["deepspeed", "train.py", "--deepspeed", "/x.json", "--config=/x.json", "--lr=1"]
    with pytest.raises(CannotSet, match="does not name"):
        with_config(["deepspeed", "train.py"], config, "/x.json")


@pytest.mark.slow
def test_a_config_that_a_file_of_the_command_names_is_replaced_there(config: Path, tmp_path: Path) -> None:
    """`accelerate launch --config_file accelerate.yaml`: the file names the config."""
    named = tmp_path / "accelerate.yaml"
    named.write_text("# mine\ndeepspeed_config:\n  deepspeed_config_file: ds.json  # the config\nnum_processes: 2\n", encoding="utf-8")
    code = (
        "import re, runpy, sys\ntext = open(sys.argv[1]).read()\nassert 'num_processes: 2' in text\n"
        f"sys.argv[1:] = [re.search('config_file: \"(.*)\"', text)[1]]\nrunpy.run_path({str(TRAIN)!r})\n"
    )
    os.environ["FAKE_ENDS"] = ""
    said: list[str] = []
    command = [sys.executable, "-c", code, str(named)]
    results = ResultsFile(str(tmp_path / "out.jsonl"))
    found = measure(entries(config.read_text(encoding="utf-8")), command, str(config), results, 20, said.append)
    assert found[0].outcome.seconds == pytest.approx(0.02), said
    remove_configs(results)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["accelerate.yaml", "ds.json", "out.jsonl"]


def test_arguments_of_the_trainer_are_replaced() -> None:
    command = ["--per_device_train_batch_size", "2", "--gradient-accumulation-steps=4", "--gradient_checkpointing", "--bf16"]
    said = {"micro_batch": 8, "accumulation": 1, "checkpoint_every": 0}
    assert with_arguments(command, said) == [
        *("--per_device_train_batch_size", "8", "--gradient-accumulation-steps=1", "--gradient_checkpointing=False", "--bf16")
    ]
    with pytest.raises(CannotSet, match="has no --gradient_checkpointing"):
        with_arguments(["train.py"], {"checkpoint_every": 1})
    with pytest.raises(CannotSet, match="tensor parallel is set in the program"):
        with_arguments(["train.py"], {"tensor_parallel": 2})


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        (
            [
                f" iteration {step}/100 | elapsed time per iteration (ms): {ms} | lm loss: 2.0"
                for step, ms in enumerate((9000, 8000, 500, 700, 600))
            ],
            0.6,
        ),
        ([f"steps: {step} loss: 2.0 iter time (s): {s} samples/sec: 4.0" for step, s in enumerate((9.0, 8.0, 0.5, 0.7, 0.6))], 0.6),
        ([f"RunningAvgSamplesPerSec=1, CurrSamplesPerSec={rate}, MemAllocated=1GB" for rate in (1, 1, 8.0, 16.0, 32.0)], 0.5),
        (["{'loss': 1.0, 'grad_norm': 1.0}"] * 5, 1.0),
    ],
)
def test_step_times_are_read_from_every_form_of_log(lines: list[str], seconds: float) -> None:
    timing = Timing(8)
    for number, line in enumerate(lines):
        timing.read(line, float(number))
    assert timing.seconds == pytest.approx(seconds)


@pytest.mark.slow
def test_measurements_correct_predictions(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    found, _ = measured(config, out)
    factor = factor_of(str(out))
    step = found[0].entry.candidate.step
    corrected = calibrated(step, factor)
    assert corrected.low <= 0.02 <= corrected.high
    assert (corrected.high - corrected.low) / corrected.seconds < (step.high - step.low) / step.seconds
    with pytest.raises(UserError, match="cannot be read"):
        factor_of(str(tmp_path / "missing.jsonl"))
    config.write_text("[1]\n", encoding="utf-8")
    with pytest.raises(UserError, match="is not a file of"):
        factor_of(str(config))


def test_slurm_commands() -> None:
    assert is_batch(["/usr/bin/sbatch", "job.sh"])
    assert not is_batch(["srun", "train.py"])
    assert followed(["sbatch", "-N2", "job.sh"], "/log")[1:] == ["--parsable", "--output=/log", "--open-mode=truncate", "-N2", "job.sh"]


def test_a_guard_that_nobody_listens_to_still_cancels_the_job(tmp_path: Path) -> None:
    """Tune was killed while sbatch ran."""
    for name, text in {"sbatch": "echo 42", "scancel": f'echo "$@" > {tmp_path}/cancelled', "squeue": "true"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    reading, writing = os.pipe()
    os.close(reading)
    guard = [sys.executable, "-I", str(Path(processes.__file__).with_name("guard_batch.py")), "sbatch"]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(guard, stdin=subprocess.DEVNULL, stdout=writing, env={**os.environ, "PATH": path}, check=True, timeout=60)
    os.close(writing)
    assert (tmp_path / "cancelled").read_text(encoding="utf-8") == "42\n"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.slow
@pytest.mark.parametrize(("part", "parts"), [(number, 4) for number in range(4)])
def test_a_run_that_is_killed_at_any_line_leaves_nothing_and_goes_on(tmp_path: Path, part: int, parts: int) -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.tune.killed", str(tmp_path), str(part), str(parts)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=580)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5


def test_a_failed_trial_says_why() -> None:
    """The launcher's own lines come last, and say only that a process ended."""
    tail = (
        "Traceback (most recent call last):",
        '  File "train.py", line 22, in <module>',
        "ValueError: Your setup doesn't support bf16/gpu.",
        "[2026-11-27 22:11:14,078] [INFO] [launch.py:253:sigkill_handler] Killing subprocess 20646",
        "[2026-11-27 22:11:14,078] [ERROR] [launch.py:259:sigkill_handler] ['python', '-u', 'train.py'] exits with return code = 1",
    )
    assert in_words(TrialOutcome(Status.FAILED, tail=tail)) == "failed: ValueError: Your setup doesn't support bf16/gpu."
    assert in_words(TrialOutcome(Status.FAILED, tail=("no error", "bye"))) == "failed: bye"
