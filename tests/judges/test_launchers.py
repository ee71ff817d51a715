"""What is read of generated launch commands agrees with what the launchers start; `python -m tests.judges` asks them with a fresh seed."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable

import pytest

from dslint.evaluate.shell.script import read_script
from dslint.setups.command import read_command
from tests.judges import launchers
from tests.judges.commands import case

READ = 0.88
"""The least part of ranks, machines and programs that is read; what a launcher takes from the machine is not known."""


@pytest.mark.parametrize("step", [pytest.param(4, id="every fourth"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_recorded_answers(step: int) -> None:
    """`python -m tests.judges launchers --record` asks the launchers again, after a change of the generator."""
    recorded = dict([*json.loads(launchers.RECORDED.read_text(encoding="utf-8")).items()][::step])
    verdicts = {seed: launchers.compare(case(int(seed)), answer) for seed, answer in recorded.items()}
    assert {seed: wrong for seed, (_, _, wrong) in verdicts.items() if wrong} == {}
    found, read = (sum(one[index] for one in verdicts.values()) for index in (0, 1))
    assert found > 300 / step
    assert read > READ * found


@pytest.mark.integrations
@pytest.mark.skipif(bool(launchers.missing()), reason=launchers.missing())
def test_the_launchers_still_say_so() -> None:
    recorded = json.loads(launchers.RECORDED.read_text(encoding="utf-8"))
    seeds = list(recorded)[:40]
    assert launchers.answers([case(int(seed)) for seed in seeds]) == [recorded[seed] for seed in seeds]


def _deepspeeds() -> argparse.ArgumentParser:
    """The parser of DeepSpeed's launcher, which makes and uses it in one function."""
    made: list[argparse.ArgumentParser] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", lambda parser, args: made.append(parser))
        importlib.import_module("deepspeed.launcher.runner").parse_args([])
    return made[0]


def _torchs() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = importlib.import_module("torch.distributed.run").get_args_parser()
    parser.add_argument("--use-env", "--use_env", action="store_true")  # of torch.distributed.launch
    return parser


def _accelerates() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = importlib.import_module("accelerate.commands.launch").launch_command_parser()
    return parser


@pytest.mark.integrations
@pytest.mark.skipif(bool(launchers.missing()), reason=launchers.missing())
@pytest.mark.parametrize(("launcher", "parser"), [("deepspeed", _deepspeeds), ("torchrun", _torchs), ("accelerate launch", _accelerates)])
def test_no_flag_takes_the_program_for_its_value(launcher: str, parser: Callable[[], argparse.ArgumentParser]) -> None:
    """The word behind a flag that takes no value is the program, and behind any other it is not."""
    flags = [(flag, one.nargs) for one in parser()._actions for flag in one.option_strings if len(flag) > len("-x")]
    names_program = {"--help", "--module", "--no_python", "--no-python", "--run-path", "--run_path"}  # of what is no file, or of none
    for flag, takes in flags:
        if flag in names_program or takes not in (0, None):
            continue
        script = read_script(f"{launcher} {flag} train.py --own 1\n", "run.sh", "run.sh", {})
        command = read_command(script.launched[0], script)
        assert (command is not None and command.program is not None and command.program.value == "train.py") is (takes == 0), flag
