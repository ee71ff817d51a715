"""What is read of generated scripts agrees with what bash did with them; `python -m tests.judges` asks it again with a fresh seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.judges import bash, scripts
from tests.judges.fence import fenced, missing

READ = 0.9
"""The least part of the launches that is read with all of its words."""


@pytest.mark.slow
def test_recorded_answers() -> None:
    """`python -m tests.judges bash --record` asks bash again, after a change of the generator."""
    recorded = json.loads(bash.RECORDED.read_text(encoding="utf-8"))
    verdicts = {seed: bash.compare(scripts.script(int(seed)), answer) for seed, answer in recorded.items()}
    assert {seed: verdict.wrong for seed, verdict in verdicts.items() if verdict.wrong} == {}
    launches, read = (sum(getattr(one, name) for one in verdicts.values()) for name in ("launches", "read"))
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
    "a line with more words than names": (
        "while read -r A B; do deepspeed $A '|' \"$B\"; done << E\n 1 2 3  4 \nE\nread -r C <<< 'x  y'\ndeepspeed \"$C\" $C",
        ["deepspeed 1 | 2 3  4", "deepspeed x  y x y"],
    ),
    "a function that gets words of a line": (
        'f() { local first=$1; shift; deepspeed "$1" "$@"; }\nwhile read -r A; do f $A --b; done << E\none two\nthree\nE',
        ["deepspeed two two --b", "deepspeed --b --b"],
    ),
    "arithmetic": ("((A = 2 ** 3, A += 1))\ndeepspeed $A $((A > 8 ? 1 : 0)) $((A++)) $A", ["deepspeed 9 1 9 10"]),
    "exec": ("exec deepspeed a\ndeepspeed b", ["deepspeed a"]),
    "the exit of a subshell": ("(exit 1) && deepspeed a\n(exit 0)\ndeepspeed b", ["deepspeed b"]),
    "another separator": ("IFS=, read -r A B <<< 'x,y'\ndeepspeed $B", ["deepspeed y"]),
    "a function in a loop": (
        "for i in 1 2; do\nf() { while [ $# -gt 0 ]; do shift; done; deepspeed $i; }\nf a b\ndone",
        ["deepspeed 1", "deepspeed 2"],
    ),
    "set -e and a function that fails": ("set -e\nf() { [ a = b ] && echo x; }\ndeepspeed a\nf\ndeepspeed b", ["deepspeed a"]),
    "set -e and a loop whose list fails": (
        "set -e\nfor i in 1 2; do\n[ a = a ] && false && echo x\ndone\nif true; then false && echo x; fi\ndeepspeed a",
        ["deepspeed a"],
    ),
    "set -e and a loop with a redirect whose list fails": (
        "set -e\nwhile read -r l; do\n[ a = b ] && echo x\ndone <<< 'one two'\ndeepspeed a",
        ["deepspeed a"],
    ),
    "set -e and a loop whose command fails": ("set -e\nfor i in 1 2; do\ntrue && false\ndone\ndeepspeed a", []),
    "set -e and a subshell that fails": ("set -e\ndeepspeed a\n( [ a = b ] && echo x )\ndeepspeed b", ["deepspeed a"]),
    "assignments on a line of their own": ("A=1 B=$A\ndeepspeed $A $B", ["deepspeed 1 1"]),
    "a pattern": ("A=run-2\n[[ $A =~ ^[a-z]+-[0-9]$ ]] && deepspeed a\n[[ $A =~ ^(x|y) ]] || deepspeed b", ["deepspeed a", "deepspeed b"]),
    "the order of texts": ('A=b\n[[ "$A" > a ]] && deepspeed a\n[[ "$A" < a ]] || deepspeed b', ["deepspeed a", "deepspeed b"]),
    "a separator of seq": ("deepspeed $(seq -s, 1 3) $(seq -s : 2)", ["deepspeed 1,2,3 1:2"]),
    "a number of lines": ("cat << E > f\na b\nc\nE\ndeepspeed $(cat f | wc -l) $(cat f | wc -w)", ["deepspeed 2 3"]),
    "an argument of srun with blanks": ('A=(--deepspeed x.json)\nsrun python a.py "${A[*]}"', ["srun python a.py --deepspeed x.json"]),
    "an argument of srun that names a flag among blanks": ("srun python ' 2 --deepspeed' x", ["srun python  2 --deepspeed x"]),
    "-a and -o in one test": (
        'A=3\nB=\nif [ $A -ge 1 -a $A -lt 9 ]; then deepspeed a; fi\n[ -n "$A" -a ! "$A" = 4 ] && deepspeed b\n[ $A -gt 5 -o $A = 3 -a -z "$B" ] && deepspeed c',
        ["deepspeed a", "deepspeed b", "deepspeed c"],
    ),
    "arguments that a loop sets itself": (
        "I=0\nwhile [ $I -lt 2 ]; do\nI=$((I + 1))\nset -- a b\nshift\nbash -c 'deepspeed $0 $1' x y\ndeepspeed $1\ndone",
        ["deepspeed x y", "deepspeed b", "deepspeed x y", "deepspeed b"],
    ),
    "variables that another shell gets": (
        "export B=y\nC=z bash -c 'deepspeed $B $C'\nset -a\nA=w\nset +a\nD=v\nbash -c 'deepspeed $A'\nbash -c \"deepspeed $D\"",
        ["deepspeed y z", "deepspeed w", "deepspeed v"],
    ),
    "a dash before a here-document": ("python - <<E\nE", ["python -"]),
}


@pytest.mark.parametrize("name", SHELL)
def test_as_bash_reads_it(name: str) -> None:
    text, expected = SHELL[name]
    made, _, _ = bash.claims({"run.sh": text})
    assert [" ".join(str(word) for word in one.words) for one in made if not one.perhaps] == expected
    if not missing():
        (answer,) = fenced(bash.DRIVER, [{"files": {"run.sh": text}}], 60)
        assert [" ".join([launcher, *words]) for launcher, words, _ in answer["launches"]] == expected


@pytest.mark.parametrize(
    "check", ["[ -f none ] && { echo x; exit 2; }", "f() { true && [ -f none ] && echo x; }\nf", "[ -f none ] && false"]
)
def test_the_launch_behind_a_check_with_set_e(check: str) -> None:
    """Only the run knows whether the check ends the script."""
    made, _, _ = bash.claims({"run.sh": f"set -e\n{check}\ndeepspeed a"})
    assert [(one.words, one.perhaps) for one in made] == [(["deepspeed", "a"], True)]


@pytest.mark.parametrize("script", ["torchrun a < none", "X='<none'\neval torchrun a $X", "while read x; do torchrun a; done < none"])
def test_a_launch_that_reads_a_file_that_is_not_there(script: str) -> None:
    made, _, _ = bash.claims({"run.sh": script})
    assert [(one.words, one.perhaps) for one in made] == [(["torchrun", "a"], True)]
    made, _, _ = bash.claims({"run.sh": "echo x > none\n" + script})
    assert [(one.words, one.perhaps) for one in made] == [(["torchrun", "a"], False)]


@pytest.mark.parametrize(
    ("body", "claimed"),
    [
        ('deepspeed $# "$1"', [["deepspeed", None, None]]),
        ('shift; deepspeed "$1" $#', [["deepspeed", None, None]]),
        ("deepspeed $(($# + 1))", [["deepspeed", None]]),
        ("while [ $# -gt 0 ]; do case $1 in -n) N=$2; shift 2;; *) shift;; esac; done; deepspeed $#", [["deepspeed", None]]),
    ],
)
def test_an_unquoted_argument_may_be_several(body: str, claimed: list[list[str | None]]) -> None:
    made, _, _ = bash.claims({"run.sh": f"f() {{ {body}; }}\nA=$(curl x)\nf $A -n 4"})
    assert [one.words for one in made] == claimed
    made, _, _ = bash.claims({"run.sh": 'f() { deepspeed $# "$2"; }\nA=$(curl x)\nf "$A" 4'})
    assert [one.words for one in made] == [["deepspeed", "2", "4"]]


@pytest.mark.parametrize(
    "check", ["[ $# -lt 2 ] && return 1", "if [ $# -lt 2 ]; then return 1; fi", '[[ "$1" == x ]] && { echo x; return; }']
)
def test_the_launch_behind_a_return_that_only_the_run_decides(check: str) -> None:
    script = f"f() {{ {check}; deepspeed a ${{@:2}}; g; }}\ng() {{ deepspeed b; }}\nA=$(curl x)\nf $A -n 4\ndeepspeed c"
    made, _, _ = bash.claims({"run.sh": script})
    assert [(one.words[:2], one.perhaps) for one in made] == [
        (["deepspeed", "a"], True),
        (["deepspeed", "b"], True),
        (["deepspeed", "c"], False),
    ]
    assert made[0].words[2:] == [None]


def test_a_launch_is_compared_with_the_first_claim_of_its_words() -> None:
    """What is claimed behind a check for a variable is assumed, also if it was claimed before the check."""
    script = {"run.sh": "torchrun a\nif [ -z $UNSET ]; then exit 2; fi\ntorchrun a"}
    verdict = bash.compare(script, {"status": 2, "launches": [["torchrun", ["a"], {}]]})
    assert (verdict.wrong, verdict.assumed) == ([], 1)


MAKEFILES = {
    "a shell for each line": ("all:\n\tGPUS=4\n\tdeepspeed $${GPUS:-none}\n\tGPUS=2; deepspeed $$GPUS", ["deepspeed none", "deepspeed 2"]),
    "one shell": (".ONESHELL:\nall:\n\tGPUS=4\n\tdeepspeed $$GPUS", ["deepspeed 4"]),
    "late and early values": ("C = 1\nA = $(C)\nB := $(C)x\nall:\n\tdeepspeed $(A) $(B)\nC = 2", ["deepspeed 2 1x"]),
    "additions": ("A = $(B)\nA += y\nB := x\nB += z\nall:\n\tdeepspeed $(A)", ["deepspeed x z y"]),
    "additions to what is empty": ("A :=\nA += x\nB := y\nB +=\nB += z\nall:\n\tdeepspeed '$(A)' '$(B)'", ["deepspeed x y z"]),
    "a variable of a target": (
        "A = 1\nall: a b\na: A = 2\na:\n\tdeepspeed $(A) $@\nb: a\n\tdeepspeed $(A) $< $^",
        ["deepspeed 2 a", "deepspeed 1 a a"],
    ),
    "conditionals": (
        "A ?= 8\nifeq ($(A),8)\nB = x\nelse ifdef C\nB = y\nendif\nifneq ($(A),8)\nB = z\nendif\nall:\n\t@deepspeed $(B)",
        ["deepspeed x"],
    ),
    "an exported variable": ("export A = 3\nall:\n\tdeepspeed $$A", ["deepspeed 3"]),
    "a continued recipe": ("all:\n\t-deepspeed a \\\n\t\t--b \\\n\t\t--c # d", ["deepspeed a --b --c"]),
    "a comment behind a value": ("A = 3  # three\nall: ; deepspeed $(A)", ["deepspeed 3"]),
    "a definition": ("define A\nall:\n\tdeepspeed x\nendef\nall:\n\tdeepspeed y", ["deepspeed y"]),
}


@pytest.mark.parametrize("name", MAKEFILES)
def test_as_make_reads_it(name: str) -> None:
    text, expected = MAKEFILES[name]
    files = {"Makefile": text + "\n"}
    made, _, _ = bash.claims(files)
    assert [" ".join(str(word) for word in one.words) for one in made] == expected
    if not missing():
        (answer,) = fenced(bash.DRIVER, [{"files": files}], 60)
        assert [" ".join([launcher, *words]) for launcher, words, _ in answer["launches"]] == expected


def test_a_conditional_that_only_the_run_decides() -> None:
    text = "ifeq ($(shell uname),Linux)\nA = 1\nendif\nall:\n\tdeepspeed $(A)\nifeq ($(shell uname),Linux)\nmore:\n\ttorchrun x\nendif\n"
    made, _, _ = bash.claims({"Makefile": text})
    assert [(one.words, one.perhaps) for one in made] == [(["deepspeed", None], False), (["torchrun", "x"], True)]


@pytest.mark.parametrize("first", ["A := $(FROM_OUTSIDE)", "ifeq ($(shell uname),Linux)\nA := x\nendif"])
def test_whether_a_variable_of_make_is_defined_that_only_the_run_fills(first: str) -> None:
    text = f"{first}\nifdef A\nB := 1\nelse\nB := 2\nendif\nall:\n\tdeepspeed $(B)\n"
    made, _, _ = bash.claims({"Makefile": text})
    assert [one.words for one in made] == [["deepspeed", None]]


def test_an_addition_of_nothing_to_what_nothing_sets() -> None:
    made, _, _ = bash.claims({"Makefile": 'A := $(FROM_OUTSIDE)\nA += $(B)\nall:\n\tif [ -n "$(A)" ]; then deepspeed x; fi\n'})
    assert not made


def test_make_ends_for_a_variable_that_names_itself() -> None:
    made, _, _ = bash.claims({"Makefile": "A = $(B)\nB += $(A)\nall:\n\tdeepspeed x\n\tdeepspeed $(A)\n"})
    assert [one.perhaps for one in made] == [True, True]


def test_variables_of_make_that_double_each_other() -> None:
    """Twenty-four lines must not make eight million pieces."""
    lines = ["A0=x", *(f"A{number}=$(A{number - 1})$(A{number - 1})" for number in range(1, 25)), "all:\n\tdeepspeed train.py $(A24)"]
    ((claim,), _, _) = bash.claims({"Makefile": "\n".join(lines) + "\n"})
    assert claim.words == ["deepspeed", "train.py", None]


@pytest.mark.slow
def test_scripts_that_run_each_other_end() -> None:
    """What is not followed to its end is said."""
    made, cut_off, _ = bash.claims({"run.sh": "bash x.sh\n" * 300 + "deepspeed t.py\n", "x.sh": "source run.sh\n"})
    assert cut_off
    assert made[0].words == ["deepspeed", "t.py"]


@pytest.mark.parametrize("name", ["branch", "function"])
def test_a_test_that_the_parser_does_not_end_is_said(name: str) -> None:
    """The syntax trees of these scripts have an `else` and its commands, or all to the end of another function, within the first `[ ... ]`."""
    text = (Path(__file__).parent / "misread" / f"{name}.sh").read_text(encoding="utf-8")
    _, cut_off, _ = bash.claims({"run.sh": text})
    assert cut_off
