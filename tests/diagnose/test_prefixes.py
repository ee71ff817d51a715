"""What stands before the lines of a log does not change the diagnosis: prefixes are learned, and a generator invents them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from dslint.diagnose import diagnose
from dslint.diagnose.diagnosis import Diagnosis, End
from dslint.diagnose.memory import Way, Workshop, ways_to_fit
from tests.diagnose.invented import wrapped
from tests.diagnose.logs import FINISHED, OOM, RETURNED, STARTED, all_diagnosed, diagnosed, traceback

EXAMPLES = Path(__file__).parents[2] / "examples/logs"
RANKS = "\n".join(
    line
    for pair in zip(
        traceback("ValueError: left", ("a.py", 1, "a", "f()"), prefix="[default0]:[rank8]: ").split("\n"),
        traceback("KeyError: 'right'", ("b.py", 2, "b", "g()"), prefix="[default1]:[rank9]: ").split("\n"),
        strict=True,
    )
    for line in pair
)
TEXTS = {
    "out-of-memory": (EXAMPLES / "out-of-memory.log").read_text(encoding="utf-8"),
    "second-machine": (EXAMPLES / "second-machine.log").read_text(encoding="utf-8"),
    "two-ranks": f"{STARTED}\n{RANKS}\n{RETURNED.format(code=1)}",
    "error": f"{STARTED}\n{traceback(OOM)}\n{RETURNED.format(code=1)}",
    "finished": f"{STARTED}\n{{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': 0.1}}\n{FINISHED}",
    "paste": traceback("RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 1"),
}
WAYS: dict[tuple[object, ...], list[Way]] = {}
"""The changes with which a job would have fitted, by what they follow from."""


@pytest.fixture(autouse=True)
def _ways_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search once for what makes an equal job fit: the search takes a hundred times longer than to read the log."""

    def ways(shop: Workshop, needed: float, capacity: float) -> list[Way]:
        key = (shop.job.told(), needed, capacity)
        if key not in WAYS:
            WAYS[key] = ways_to_fit(shop, needed, capacity)
        return WAYS[key]

    monkeypatch.setattr(diagnose, "ways_to_fit", ways)


ROUNDS = 25
"""How many prefixes are invented for each text."""


def told(found: list[Diagnosis]) -> list[tuple[End, list[tuple[str, str, int | None, int]]]]:
    """How each job ended, and the causes with their ranks and lines."""
    return [
        (one.outcome.end, [(cause.kind, cause.title, cause.rank, cause.evidence[0].place.line) for cause in one.causes]) for one in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_an_invented_prefix_changes_nothing(name: str) -> None:
    text = TEXTS[name]
    seeds = [random.randrange(10**9) for _ in range(ROUNDS)]
    expected = [(end, [(kind, title, line) for kind, title, _, line in causes]) for end, causes in told(all_diagnosed(text))]
    for seed in seeds:
        changed = told(all_diagnosed(wrapped(text, random.Random(seed))))
        assert [(end, [(kind, title, line) for kind, title, _, line in causes]) for end, causes in changed] == expected, f"seed {seed}"


PREFIXES = {
    "kubectl --timestamps --prefix": "[pod/train-0/pytorch] 2026-05-04T09:12:07.101234567Z ",
    "containerd": "2026-05-04T09:12:07.101234567Z stderr F ",
    "docker compose": "trainer-1  | ",
    "stern": "train-7f9c6d5b4-x2k9p pytorch ",
    "journald": "May 04 09:12:07 gpu-7 train.sh[4711]: ",
    "SageMaker": "[1,mpirank:0,algo-1]<stderr>:",
    "GitHub Actions": "2026-05-04T09:12:07.1012345Z ",
    "gh run view": "train\tRun training\t2026-05-04T09:12:07.1012345Z ",
    "Jenkins": "[2026-05-04T09:12:07.101Z] ",
    "ts": "May 04 09:12:07 ",
    "logging": "2026-05-04 09:12:07,101 - trainer - ERROR - ",
    "hydra": "[2026-05-04 09:12:07,101][__main__][ERROR] - ",
    "loguru": "2026-05-04 09:12:07.101 | ERROR    | __main__:main:12 - ",
    "torchrun --tee": "[default3]:[rank11]: ",
    "Megatron": "[default3]:[rank11]:[default3]: ",
    "a level": "E ",
    "a level and a tab": "ERROR\t",
    "mail": "> > ",
    "indented": "        ",
    "a comment": "# ",
    "a table": "| ",
}


@pytest.mark.parametrize("name", PREFIXES)
def test_a_prefix_of_a_known_tool(name: str) -> None:
    text = TEXTS["out-of-memory"]
    lines = "\n".join(PREFIXES[name] + line for line in text.split("\n"))
    assert [(cause.title, cause.why) for cause in diagnosed(lines).causes] == [(cause.title, cause.why) for cause in diagnosed(text).causes]


def numbered(text: str, form: str) -> str:
    return "\n".join(form.format(number, line) for number, line in enumerate(text.split("\n"), 1))


@pytest.mark.parametrize("form", ["{:6}\t{}", "train.log:{}:{}", "{}:{}", "{}: {}", "{:4} | {}"])
def test_numbers_of_lines_are_no_processes(form: str) -> None:
    text = traceback("ValueError: no", ("a.py", 1, "a", "f()"), ("b.py", 2, "b", "g()"))
    (cause,) = diagnosed(numbered(text, form)).causes
    assert cause.title == "ValueError: no"
    assert any("b.py:2" in sentence for sentence in cause.why)


@pytest.mark.parametrize("form", ["{} | ", "[{}] ", "2026-05-04 09:12:0{time} {} INFO ", '{{"pod": "{}", "log": ', "host={} rank={rank} "])
def test_processes_that_interrupt_each_other_are_told_apart(form: str) -> None:
    left = traceback("ValueError: left", ("a.py", 1, "a", "f()")).split("\n")
    right = traceback("KeyError: 'right'", ("b.py", 2, "b", "g()")).split("\n")

    def line(name: str, rank: int, number: int, text: str) -> str:
        prefix = form.format(name, time=number, rank=rank)
        return f"{prefix}{json.dumps(text)}}}" if form.startswith("{{") else prefix + text

    pairs = [
        part
        for number, (one, two) in enumerate(zip(left, right, strict=True))
        for part in (line("gpu-7", 0, number, one), line("gpu-8", 1, number, two))
    ]
    found = diagnosed("\n".join(pairs)).causes
    assert [cause.title for cause in found] == ["ValueError: left", "KeyError: 'right'"]
    assert ["a.py:1" in str(cause.why) for cause in found] == [True, False]


def test_a_prefix_tells_rank_machine_and_time() -> None:
    text = "\n".join(f"2026-05-04 09:12:07 gpu-7 rank=3 | {line}" for line in traceback("ValueError: no").split("\n"))
    (cause,) = diagnosed(text).causes
    assert (cause.rank, cause.host, cause.when) == (3, "gpu-7", "2026-05-04 09:12:07")


@pytest.mark.parametrize("field", ["message", "msg", "log", "exc_info"])
def test_a_record_may_hold_a_whole_traceback(field: str) -> None:
    record = json.dumps({"level": "ERROR", "rank": 5, field: traceback("ValueError: no")})
    (cause,) = diagnosed(STARTED, record).causes
    assert (cause.title, cause.rank, cause.evidence[0].place.line) == ("ValueError: no", 5, 2)


def test_records_printed_over_several_lines() -> None:
    lines = [
        line for part in traceback("ValueError: no").split("\n") for line in json.dumps({"textPayload": part, "n": 1}, indent=2).split("\n")
    ]
    (cause,) = diagnosed("\n".join(["[", *lines, "]"])).causes
    assert cause.title == "ValueError: no"


def test_what_a_program_prints_as_json_stays() -> None:
    assert diagnosed('{"loss": 2.5, "step": 3}', "{'loss': 2.5, 'epoch': 1.0}").job.counts["step"] == 1
