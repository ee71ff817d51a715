"""`dslint tune --measure` with real launchers: the real DeepSpeed on two and four gloo ranks, and a real Slurm on this machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dslint.tune.measure import ResultsFile
from dslint.tune.processes import marked
from tests.command import dslint

HERE = Path(__file__).resolve().parent

CONFIG = """{
  // of a small model
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 16,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": true}}
}
"""

MODEL = ("--hidden-size", "64", "--layers", "4", "--vocab-size", "1000", "--sequence-length", "64", "--gpu", "a100", "--isolated")


def outcomes(out: Path) -> dict[str, dict[str, object]]:
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return {line["config"]: line["outcome"] for line in lines if line["event"] == "ended"}


def nothing_left(out: Path) -> bool:
    return not [number for line in ResultsFile(str(out)).lines if "mark" in line for number in marked(line["mark"])]


def launch(ranks: int) -> list[str]:
    program = [str(HERE / "train.py"), "--deepspeed_config", "ds.json"]
    return [sys.executable, "-m", "torch.distributed.run", "--master_addr", "127.0.0.1", "--nproc_per_node", str(ranks), *program]


def launched(launcher: str, folder: Path) -> list[str]:
    """The command of a launcher for two ranks of this machine."""
    program = [str(HERE / "train.py"), "--deepspeed_config", "ds.json"]
    port = str(_free_port())
    if launcher == "deepspeed":
        (folder / "hosts").write_text("localhost slots=2\n", encoding="utf-8")
        return [
            sys.executable,
            "-m",
            "deepspeed.launcher.runner",
            "--no_ssh_check",
            "--hostfile",
            "hosts",
            "--master_addr",
            "127.0.0.1",
            "--master_port",
            port,
            *program,
        ]
    where = ("--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")
    return [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", *where, "--main_process_port", port, *program]


@pytest.mark.slow
@pytest.mark.deepspeed
@pytest.mark.parametrize("launcher", ["deepspeed", "accelerate"])
def test_the_launchers_of_users_are_measured(tmp_path: Path, launcher: str) -> None:
    """`deepspeed` with a hostfile and `accelerate launch` start two ranks each, and leave none behind."""
    (tmp_path / "ds.json").write_text(CONFIG, encoding="utf-8")
    out = tmp_path / "out.jsonl"
    done = dslint(
        *("tune", "ds.json", *MODEL, "--world-size", "2", "--integration", "deepspeed", "--time-limit", "120", "--measure", "out.jsonl"),
        *("--", *launched(launcher, tmp_path)),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert outcomes(out)["config 1"]["status"] == "ok", outcomes(out)
    assert nothing_left(out)


@pytest.mark.slow
@pytest.mark.deepspeed
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_real_engine_is_measured(tmp_path: Path, ranks: int) -> None:
    """Accumulating 16 micro batches of one sample at stage 3 is several times slower than one micro batch at a lower stage."""
    (tmp_path / "ds.json").write_text(CONFIG, encoding="utf-8")
    out = tmp_path / "out.jsonl"
    done = dslint(
        *(
            "tune",
            "ds.json",
            *MODEL,
            "--world-size",
            str(ranks),
            "--integration",
            "deepspeed",
            "--time-limit",
            "120",
            "--measure",
            "out.jsonl",
        ),
        *("--", *launch(ranks)),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    found = outcomes(out)
    assert found["config 1"]["status"] == "ok"
    assert "Fastest: config" in done.stderr
    assert nothing_left(out)
    assert not (tmp_path / "out.jsonl.configs").exists()
    assert (tmp_path / "ds.json").read_text(encoding="utf-8") == CONFIG
    corrected = dslint(
        *("tune", "ds.json", *MODEL, "--world-size", str(ranks), "--integration", "deepspeed", "--measured", "out.jsonl"),
        *("--output-format", "json"),
        cwd=tmp_path,
    )
    best = json.loads(corrected.stdout)["best"][0]["step"]
    assert best["low"] <= float(str(found["config 1"]["seconds"])) <= best["high"]


@pytest.mark.slow
@pytest.mark.deepspeed
@pytest.mark.parametrize(("ends", "status"), [("memory", "out of memory"), ("deaf", "no steps within the time limit")])
def test_the_real_engine_that_fails_is_survived(tmp_path: Path, ends: str, status: str) -> None:
    (tmp_path / "ds.json").write_text(CONFIG, encoding="utf-8")
    out = tmp_path / "out.jsonl"
    done = dslint(
        *("tune", "ds.json", *MODEL, "--world-size", "2", "--integration", "deepspeed", "--time-limit", "45", "--measure", "out.jsonl"),
        *("--", *launch(2), "--ends", ends, "--if-stage", "1"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert status in {str(outcome["status"]) for outcome in outcomes(out).values()}
    assert "ok" in {str(outcome["status"]) for outcome in outcomes(out).values()}
    assert nothing_left(out)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Slurm of one machine: its controller and its node, in a folder of their own. Skipped where the daemons cannot start."""
    for name in ("slurmctld", "slurmd", "sbatch", "srun", "scancel", "squeue", "munged"):
        if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"{name} is not installed (Debian: slurmctld slurmd slurm-client munge)")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    folder = tmp_path_factory.mktemp("slurm")
    host, started = socket.gethostname().split(".")[0], []
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    folder.chmod(0o755)
    sock = folder / "munge.sock"
    munge = ["/usr/sbin/munged", "--foreground", "--force", f"--socket={sock}", f"--key-file={key}", f"--pid-file={folder / 'munge.pid'}"]
    munge += [f"--seed-file={folder / 'munge.seed'}", f"--log-file={folder / 'munge.log'}"]
    conf = folder / "slurm.conf"
    conf.write_text(
        f"ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmctldPort={_free_port()}\nSlurmdPort={_free_port()}\n"
        f"AuthType=auth/munge\nAuthInfo=socket={sock}\nCredType=cred/munge\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool\n"
        f"SlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/d.pid\nSlurmctldLogFile={folder}/ctld.log\nSlurmdLogFile={folder}/d.log\n"
        "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\nMpiDefault=none\nReturnToService=2\nMinJobAge=2\n"
        f"KillWait=2\nNodeName={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN\n"
        f"PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES\n",
        encoding="utf-8",
    )
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    try:
        for command in (munge, ["slurmctld", "-D", "-c", "-f", str(conf)], ["slurmd", "-D", "-f", str(conf)]):
            started.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(1.5)
        last, state = time.monotonic() + 40, ""
        while time.monotonic() < last and "idle" not in state:
            state = subprocess.run(["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True, check=False).stdout
            time.sleep(0.5)
        if "idle" not in state:
            logs = " ".join(file.read_text(errors="replace")[-300:] for file in folder.glob("*.log"))
            pytest.skip(f"the daemons of Slurm do not start here: {logs}")
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


FAKE = HERE / "fake_train.py"


def measured(slurm: dict[str, str], folder: Path, *command: str, limit: str = "30", ends: str = "") -> dict[str, dict[str, object]]:
    (folder / "ds.json").write_text(CONFIG.replace("  // of a small model\n", ""), encoding="utf-8")  # read as strict JSON
    done = dslint(
        *("tune", "ds.json", *MODEL, "--world-size", "2", "--integration", "deepspeed", "--time-limit", limit, "--measure", "out.jsonl"),
        *("--", *command),
        cwd=folder,
        env={**slurm, "FAKE_ENDS": ends},
    )
    assert done.returncode == 0, done.stderr
    return outcomes(folder / "out.jsonl")


def _idle(slurm: dict[str, str]) -> bool:
    return not subprocess.run(["squeue", "-h"], env=slurm, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_srun_is_started_and_ended(slurm: dict[str, str], tmp_path: Path) -> None:
    found = measured(slurm, tmp_path, "srun", "-n", "1", sys.executable, str(FAKE), "ds.json")
    assert found["config 1"]["status"] == "ok", found
    assert _idle(slurm)


@pytest.mark.slow
def test_sbatch_is_followed_and_cancelled(slurm: dict[str, str], tmp_path: Path) -> None:
    job = tmp_path / "job.sh"
    job.write_text(f'#!/bin/bash\nexec {sys.executable} {FAKE} "$1"\n', encoding="utf-8")
    found = measured(slurm, tmp_path, "sbatch", "-n", "1", str(job), "ds.json")
    assert found["config 1"]["status"] == "ok", found
    assert _idle(slurm)


@pytest.mark.slow
def test_a_job_of_slurm_that_hangs_is_cancelled(slurm: dict[str, str], tmp_path: Path) -> None:
    job = tmp_path / "job.sh"
    job.write_text(f'#!/bin/bash\nexec {sys.executable} {FAKE} "$1"\n', encoding="utf-8")
    ends = "0=hang 1=deaf 2=hang 3=hang"
    found = measured(slurm, tmp_path, "sbatch", "-n", "1", str(job), "ds.json", limit="3", ends=ends)
    assert {outcome["status"] for outcome in found.values()} == {"no steps within the time limit"}
    assert _idle(slurm)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.0, 0.5, 2.0])
def test_a_killed_run_cancels_its_job(slurm: dict[str, str], tmp_path: Path, moment: float) -> None:
    """Killed at any moment after the first line of its results, which says that a trial starts."""
    job = tmp_path / "job.sh"
    job.write_text(f'#!/bin/bash\nexec {sys.executable} {FAKE} "$1"\n', encoding="utf-8")
    (tmp_path / "ds.json").write_text(CONFIG.replace("  // of a small model\n", ""), encoding="utf-8")
    out = tmp_path / "out.jsonl"
    words = ("tune", "ds.json", *MODEL, "--world-size", "2", "--integration", "deepspeed", "--measure", "out.jsonl")
    started = subprocess.Popen(
        [sys.executable, "-m", "dslint", *words, "--", "sbatch", "-n", "1", str(job), "ds.json"],
        cwd=tmp_path,
        env={**slurm, "FAKE_ENDS": "0=hang 1=hang 2=hang 3=hang"},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    last = time.monotonic() + 60
    while time.monotonic() < last and not out.exists():
        time.sleep(0.02)
    time.sleep(moment)
    started.kill()
    started.wait()
    time.sleep(2)  # sbatch, if it was just started, submits its job first
    while time.monotonic() < last and not _idle(slurm):
        time.sleep(0.2)
    assert _idle(slurm)


@pytest.mark.slow
def test_a_job_whose_guard_was_killed_is_cancelled_by_the_next_run(slurm: dict[str, str], tmp_path: Path) -> None:
    left = subprocess.run(
        ["sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 600"], env=slurm, capture_output=True, text=True, check=True
    )
    results = ResultsFile(str(tmp_path / "out.jsonl"))
    results.add(event="started", key="x", mark="gone")
    results.add(event="submitted", mark="gone", job=left.stdout.strip())
    measured(slurm, tmp_path, "srun", "-n", "1", sys.executable, str(FAKE), "ds.json")
    last = time.monotonic() + 30
    while time.monotonic() < last and not _idle(slurm):
        time.sleep(0.2)
    assert _idle(slurm)
