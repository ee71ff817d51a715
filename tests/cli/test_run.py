"""`dslint run` starts what is not certainly wrong, and gets out of the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dslint.facts.host import Host, facts_of, this_host
from tests.command import forked

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """\
import argparse, deepspeed, torch
parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int)
args = parser.parse_args()
model = torch.nn.Linear(4, 4)
engine, *_ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
"""
GOOD = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
BAD = {**GOOD, "fp16": {"enabled": True}}
LAUNCH = ["deepspeed", "--num_gpus", "2", "train.py", "--deepspeed", "--deepspeed_config", "ds.json"]


class Machine:
    """A folder with a training, and commands that stand for the launchers and `nvidia-smi`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.binary = folder / "work", folder / "bin"
        self.folder.mkdir()
        self.binary.mkdir()
        (self.folder / "train.py").write_text(PROGRAM, encoding="utf-8")
        self.config(GOOD)
        self.command("deepspeed", 'echo started "$@"; exit 7')
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "CUDA_", "DSLINT_", "DS_"))}
        self.environment |= {"PATH": f"{self.binary}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "100"}

    def config(self, content: dict[str, object]) -> None:
        (self.folder / "ds.json").write_text(json.dumps(content), encoding="utf-8")

    def command(self, name: str, text: str) -> None:
        (self.binary / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (self.binary / name).chmod(0o755)

    def gpus(self, *names: str) -> None:
        self.command("nvidia-smi", f"printf '%s\\n' {' '.join(repr(name) for name in names)}")

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return forked(["run", *words], self.environment, cwd=self.folder, input=stdin)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_right_starts_with_its_own_exit_code(machine: Machine) -> None:
    done = machine.run("--", *LAUNCH)
    assert done.returncode == 7
    assert done.stdout == "started --num_gpus 2 train.py --deepspeed --deepspeed_config ds.json\n"
    assert "no errors in" in done.stderr
    assert machine.run(*LAUNCH).returncode == 7, "the dashes may be left out"


def test_what_is_wrong_does_not_start(machine: Machine) -> None:
    machine.config(BAD)
    done = machine.run("--", *LAUNCH)
    assert (done.returncode, done.stdout) == (1, "")
    assert "error[DS301]" in done.stderr
    assert "not started" in done.stderr
    forced = machine.run("--force", "--", *LAUNCH)
    assert forced.returncode == 7
    assert "error[DS301]" in forced.stderr


def test_a_dry_run_starts_nothing(machine: Machine) -> None:
    done = machine.run("--dry-run", "--", *LAUNCH)
    assert done.returncode == 0
    assert "started" not in done.stdout
    machine.config(BAD)
    done = machine.run("--dry-run", "--", *LAUNCH)
    assert done.returncode == 1
    assert "error[DS301]" in done.stdout
    assert machine.run("--dry-run", "--force", "--", "true").returncode == 2
    assert machine.run().returncode == 2


@pytest.mark.parametrize(
    "command",
    [
        ["deepspeed", "train.py", "--deepspeed_config", "missing.json"],
        ["deepspeed", "other.py"],
        ["sh", "-c", "exit 7"],
        ["env", "A=1", "sh", "-c", "exit 7"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_what_is_not_known_stops_nothing(machine: Machine, command: list[str]) -> None:
    assert machine.run("--", *command).returncode == 7


def test_an_uncertain_error_stops_nothing(machine: Machine) -> None:
    machine.config({**GOOD, "zero_optimization": {"stage": 3}})
    assert machine.run("--", *LAUNCH).returncode == 7


def test_a_defect_of_dslint_stops_nothing(machine: Machine) -> None:
    program = "import dslint.cli.run as r, sys; r.lint_command = None; sys.argv = ['dslint', 'run', '--', 'deepspeed', 'x']; from dslint.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=machine.folder, env=machine.environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 7
    assert "internal error" in done.stderr
    assert "Traceback" not in done.stderr


def test_words_input_and_signals_are_those_of_the_command(machine: Machine) -> None:
    words = ["a b", "$HOME", "'", '"', "", "*", "-x", "--", "ü"]
    said = machine.run("--", sys.executable, "-c", "import sys; print(sys.argv[1:], sys.stdin.read())", *words, stdin="in")
    assert said.stdout == f"{words} in\n"
    # Python ignores SIGPIPE; a shell that it starts would ignore it for the whole job.
    ignored = machine.run("--", "sh", "-c", "grep SigIgn /proc/self/status || echo SigIgn: 0")
    assert int(ignored.stdout.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0
    assert machine.run("--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    assert machine.run("--", "no-such-command").returncode == 127
    (machine.folder / "text").write_text("x", encoding="utf-8")
    assert machine.run("--", "./text").returncode == 126


def test_more_ranks_than_gpus(machine: Machine) -> None:
    machine.gpus("NVIDIA H100 80GB HBM3, 81559")
    done = machine.run("--", *LAUNCH)
    assert done.returncode == 1
    assert "deepspeed starts 2 ranks on this machine, which has 1 visible GPU" in " ".join(done.stderr.split())
    machine.gpus("NVIDIA H100 80GB HBM3, 81559", "NVIDIA H100 80GB HBM3, 81559")
    assert machine.run("--", *LAUNCH).returncode == 7
    machine.environment["CUDA_VISIBLE_DEVICES"] = "0"
    assert machine.run("--", *LAUNCH).returncode == 1


def test_the_number_of_gpus_is_the_number_of_ranks(machine: Machine) -> None:
    machine.config({**GOOD, "train_batch_size": 12})
    launch = ["deepspeed", "train.py", "--deepspeed", "--deepspeed_config", "ds.json"]
    assert machine.run("--", *launch).returncode == 7, "nobody knows the number of ranks"
    machine.gpus(*["NVIDIA H100 80GB HBM3, 81559"] * 8)
    done = machine.run("--", *launch)
    assert done.returncode == 1
    assert "DS201" in done.stderr


@pytest.mark.parametrize("listed", ["NVIDIA-SMI has failed because it couldn't communicate with the driver", "NVIDIA GB10, [N/A]", ""])
def test_what_nvidia_smi_says_besides_a_list(machine: Machine, listed: str) -> None:
    machine.gpus(listed)
    assert this_host(machine.environment).gpus is None
    assert machine.run("--", *LAUNCH).returncode == 7


def test_what_the_machine_and_slurm_tell() -> None:
    def told(host: Host, command: str, **environment: str) -> dict[str, object]:
        return {fact.name: fact.value for fact in facts_of(host, command.split(), environment)}

    h100 = ("NVIDIA H100 80GB HBM3", 81559 * 2**20)
    assert str(told(Host((h100,)), "python train.py")["gpu"]) == "h100"
    assert told(Host((("Abacus 9", 10 * 2**30),)), "python train.py") == {"gpu_memory": int(9.8 * 2**30)}
    assert told(Host((h100, ("NVIDIA A100-SXM4-80GB", 81920 * 2**20))), "python train.py") == {}
    assert told(Host((h100, h100), 2**40), "sbatch job.sh") == {}
    assert told(Host((h100, h100)), "deepspeed train.py")["world_size"] == 2
    assert "world_size" not in told(Host((h100, h100)), "deepspeed --include=localhost:0 train.py")
    assert told(Host((h100, h100)), "deepspeed train.py --num_gpus 1")["world_size"] == 2, "a flag of the program"
    assert told(Host(), "srun python train.py", SLURM_NTASKS="16", SLURM_JOB_NUM_NODES="2") == {"world_size": 16, "nodes": 2}
    assert told(Host(), "srun -n 4 python train.py", SLURM_NTASKS="16") == {}
    assert this_host({"SLURM_MEM_PER_NODE": "2048", "PATH": ""}).memory == 2 * 2**30
