"""Jobs that fail as their launcher starts them on other machines, or that steps of a pipeline left without a model."""

from __future__ import annotations

import pytest

from dslint.diagnose.diagnosis import End
from tests.diagnose.logs import diagnosed

ADDRESS = "[2026-05-04 09:12:01,104] [INFO] [runner.py:417:main] Using IP address of {} for node node-a"
COMMAND = (
    "[2026-05-04 09:12:01,106] [INFO] [runner.py:508:main] cmd = pdsh -S -f 1024 -w node-a,node-b export PYTHONPATH=/srv; cd /srv; "
    "/opt/env/bin/python -u -m deepspeed.launcher.launch --world_info=e30= --node_rank=%n --master_addr={} --master_port=29500 train.py"
)


@pytest.mark.parametrize(
    "lines", [[ADDRESS.format("")], [COMMAND.format("")], [ADDRESS.format(""), COMMAND.format("")], [ADDRESS.format("/etc/profile")]]
)
def test_a_launcher_without_an_address_of_the_first_machine_is_named(lines: list[str]) -> None:
    found = diagnosed(*lines, "node-a: Welcome to node-a", "node-b: Welcome to node-b")
    (cause,) = found.causes
    assert cause.title == "DeepSpeed's launcher has no address of the first machine"
    assert "--master_addr" in cause.advice[0]
    assert cause.evidence[0].text == lines[0]


@pytest.mark.parametrize("address", ["10.0.0.4", "fd00::4"])
def test_an_address_is_no_cause(address: str) -> None:
    found = diagnosed(ADDRESS.format(address), COMMAND.format(address), "node-a: Welcome to node-a")
    assert found.causes == []
    assert found.outcome.end is End.UNFINISHED


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["node-b: bash: line 0: cd: /srv/job: No such file or directory"], "The folder /srv/job does not exist"),
        (["node-b: bash: line 1: /opt/env/bin/python: No such file or directory"], "No Python is in /opt/env/bin "),
        (["node-b: bash: /opt/env/bin/python3.11: No such file or directory"], "No Python is in /opt/env/bin "),
        (["node-b: sh: 1: /opt/env/bin/python3: not found"], "No Python is in /opt/env/bin "),
    ],
)
def test_what_a_shell_of_another_machine_does_not_find_is_named(lines: list[str], said: str) -> None:
    found = diagnosed(*lines)
    assert found.outcome.end is End.FAILED
    assert said in found.causes[0].why[0]
    assert "of the hostfile" in found.causes[0].advice[0]


@pytest.mark.parametrize("host", ["node-b", "b2", "10.0.0.5"])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bash: line 1: /opt/env/bin/python: No such file or directory", "No Python is in /opt/env/bin "),
        ("/opt/env/bin/python: can't open file '/srv/train.py': [Errno 2] No such file or directory", "no program at /srv/train.py"),
    ],
)
def test_it_is_named_below_the_command_of_the_launcher(host: str, line: str, said: str) -> None:
    found = diagnosed(COMMAND.format("10.0.0.4").replace("node-b", host), f"{host}: {line}")
    assert said in found.causes[0].why[0]
    assert found.outcome.end is End.FAILED


def test_a_job_that_trains_is_not_ended_by_a_helper_without_python() -> None:
    found = diagnosed("sh: 1: /usr/bin/python: not found", "{'loss': 1.5, 'epoch': 0.1}", "{'loss': 1.25, 'epoch': 0.2}")
    assert found.outcome.end is not End.FAILED


def test_a_step_of_deepspeed_chat_that_left_no_model_leads_to_its_log() -> None:
    found = diagnosed(
        "---=== Finished Step 2 in 0:00:14 ===---",
        "Traceback (most recent call last):",
        '  File "train.py", line 149, in verify_model',
        "    raise RuntimeError(error_str)",
        "RuntimeError: Step 2 model has not been trained. Train it with:",
        "python3 train.py --step 2 --reward-model 350m",
    )
    assert "training.log" in found.causes[0].advice[0]
    assert not found.causes[0].certain


@pytest.mark.parametrize(
    "error",
    ["AssertionError: Gradient computed twice for this partition", "ZeRO 1: gradient computed twice for this partition (tied head)"],
)
def test_a_gradient_that_was_reduced_twice_is_known_in_other_wordings(error: str) -> None:
    assert "computed twice in one backward pass" in diagnosed(error).causes[0].why[0]
