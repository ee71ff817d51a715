"""What is read of generated scripts agrees with what bash did with them; `python -m tests.judges` asks it again with a fresh seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.judges import bash, scripts
from tests.judges.fence import fenced, missing

RECORDED = Path(__file__).parent / "bash.json"
READ = 0.9
"""The least part of the launches that is read with all of its words."""


def compared(seeds: list[int], answers: list[dict[str, object]]) -> tuple[int, int, list[tuple[int, list[str]]]]:
    verdicts = [bash.compare(scripts.script(seed), answer) for seed, answer in zip(seeds, answers, strict=True)]
    wrong = [(seed, verdict.wrong) for seed, verdict in zip(seeds, verdicts, strict=True) if verdict.wrong]
    return sum(one.launches for one in verdicts), sum(one.read for one in verdicts), wrong


def test_recorded_answers() -> None:
    """`python -m tests.judges bash --record` asks bash again, after a change of the generator."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    launches, read, wrong = compared([int(seed) for seed in recorded], list(recorded.values()))
    assert wrong == []
    assert launches > 200
    assert read > READ * launches


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_fence_holds() -> None:
    script = "touch /outside ../outside 2> err; deepspeed $(cat err | wc -l) $(ls /home /work 2> /dev/null | wc -l); cat /etc/hostname > /etc/x || torchrun kept"
    (answer,) = fenced(bash.DRIVER, [{"files": {"run.sh": script}}], 60)
    assert ["torchrun", ["kept"], {}] in answer["launches"]
    assert not Path("/outside").exists()


SHELL = {
    "a list with a redirection": ('[ -n "$A" ] && echo "x" >&2 && exit 1\ndeepspeed a', ["deepspeed a"]),
    "a backslash before a blank": ("deepspeed a \\ \necho --b", ["deepspeed a  "]),
    "a comment in a continued command": ("deepspeed a \\\n  --b \\\n  # --c\n  --d", ["deepspeed a --b"]),
    "a quoted angle bracket": ("deepspeed a '<b'", ["deepspeed a <b"]),
    "program and flags in an array": ("A=(x.py --b 1)\ndeepspeed ${A[@]}", ["deepspeed x.py --b 1"]),
    "program and flags in pieces": ('A="x.py"\nA+=" --b 1"\ndeepspeed $A', ["deepspeed x.py --b 1"]),
    "set -e": ("set -e\ndeepspeed a\n[ 1 = 2 ]\ndeepspeed b", ["deepspeed a"]),
    "a failure in a condition": ("set -e\n[ 1 = 2 ] && deepspeed a\nif [ 1 = 2 ]; then :; fi\ndeepspeed b", ["deepspeed b"]),
    "a quoted default": ('deepspeed ${A:-"b c"} ${A:-d e}', ["deepspeed b c d e"]),
    "local variables": ("A=1\nf() { local A=2; deepspeed $A; }\nf\ndeepspeed $A", ["deepspeed 2", "deepspeed 1"]),
    "getopts": ("f() { while getopts 'n:' o; do N=$OPTARG; done; deepspeed $N; }\nf -n 4", ["deepspeed 4"]),
    "flags of a function": (
        "f() { while [ $# -gt 0 ]; do case $1 in -n) N=$2; shift 2;; *) shift;; esac; done; deepspeed $N; }\nf x -n 4",
        ["deepspeed 4"],
    ),
    "braces": ("deepspeed a{1..3} {b,c}.txt", ["deepspeed a1 a2 a3 b.txt c.txt"]),
    "a part of an array": ('A=(a b c)\ndeepspeed "${A[@]:1}"', ["deepspeed b c"]),
    "lines of a here-document": ("while read -r A B; do deepspeed $B; done << E\n1 2\n3 4\nE", ["deepspeed 2", "deepspeed 4"]),
    "arithmetic": ("((A = 2 ** 3, A += 1))\ndeepspeed $A $((A > 8 ? 1 : 0)) $((A++)) $A", ["deepspeed 9 1 9 10"]),
    "exec": ("exec deepspeed a\ndeepspeed b", ["deepspeed a"]),
    "the exit of a subshell": ("(exit 1) && deepspeed a\n(exit 0)\ndeepspeed b", ["deepspeed b"]),
    "another separator": ("IFS=, read -r A B <<< 'x,y'\ndeepspeed $B", ["deepspeed y"]),
    "a dash before a here-document": ("python - <<E\nE", ["python -"]),
}


@pytest.mark.parametrize("name", SHELL)
def test_as_bash_reads_it(name: str) -> None:
    text, expected = SHELL[name]
    made, _ = bash.claims({"run.sh": text})
    assert [" ".join(str(word) for word in one.words) for one in made if not one.perhaps] == expected
    if not missing():
        (answer,) = fenced(bash.DRIVER, [{"files": {"run.sh": text}}], 60)
        assert [" ".join([launcher, *words]) for launcher, words, _ in answer["launches"]] == expected


def test_variables_of_make_that_double_each_other() -> None:
    """Twenty-four lines must not make eight million pieces."""
    lines = ["A0=x", *(f"A{number}=$(A{number - 1})$(A{number - 1})" for number in range(1, 25)), "all:\n\tdeepspeed train.py $(A24)"]
    ((claim,), _) = bash.claims({"Makefile": "\n".join(lines) + "\n"})
    assert claim.words == ["deepspeed", "train.py", None]


def test_scripts_that_run_each_other_end() -> None:
    """What is not followed to its end is said."""
    made, cut_off = bash.claims({"run.sh": "bash x.sh\n" * 300 + "deepspeed t.py\n", "x.sh": "source run.sh\n"})
    assert cut_off
    assert made[0].words == ["deepspeed", "t.py"]
