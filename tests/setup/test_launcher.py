"""Which GPUs DeepSpeed's launcher uses: the real launcher says what the rules say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.diagnostics import Phase
from dslint.facts import Facts, Integration, Release
from dslint.rules.ds9_integrations.launcher_flags import OF_PROGRAMS, OWN_FLAGS, refused_by
from tests.setup.folder import Folder

ROOT = Path(__file__).resolve().parents[2]


class Case(NamedTuple):
    """Flags of the launcher on a machine with some GPUs; `code` is what dslint finds, None for nothing, `says` part of the launcher's answer."""

    flags: str
    code: str | None
    says: str
    visible: str | None = None
    gpus: int = 4
    hostfile: str | None = None


ALL = [
    Case("", None, '{"localhost": [0, 1, 2, 3]}'),
    Case("--include localhost:0,1", None, '{"localhost": [0, 1]}'),
    Case("--include localhost", None, '{"localhost": [0, 1, 2, 3]}'),
    Case("", "DS951", "No slot '2' specified on host 'localhost'", visible="0,2", gpus=2),
    Case("", None, '{"localhost": [0, 1]}', visible="0,1"),
    Case("--num_gpus 2", "DS953", '{"localhost": [0, 1]}', visible="2,3"),
    Case("--num_gpus 2", None, '{"localhost": [0, 1]}', visible="0,1,2"),
    Case("-i localhost:0", "DS953", '{"localhost": [0]}', visible="2,3"),
    Case("--include localhost:2,3", None, '{"localhost": [2, 3]}', visible="2,3"),
    Case("--num_gpus 2 --include localhost:0", "DS954", "Cannot specify num_nodes/gpus with include/exclude"),
    Case("--num_nodes 1 --exclude localhost:0", "DS954", "Cannot specify num_nodes/gpus with include/exclude"),
    Case("--include localhost:0 --exclude localhost:1", "DS954", "include_str and exclude_str are mutually exclusive."),
    Case("--num_nodes 2", "DS954", "Num nodes is >1 but no extra nodes available via hostfile"),
    Case("--num_nodes 1", "DS954", "Cannot specify num_nodes/gpus with include/exclude", visible="0,1"),
    Case("--num_gpus 0", "DS954", "Cannot specify num_nodes/gpus with include/exclude", visible="0,1"),
    Case("--num_nodes 1 --num_gpus 2", None, '{"localhost": [0, 1]}', visible="0,1"),
    Case("--num_gpus 0 --include localhost:0", "DS954", "Cannot specify num_nodes/gpus with include/exclude"),
    Case("--num_nodes 1", None, '{"work1": [0, 1]}', visible="0,1", hostfile="work1 slots=2\n"),
    Case("--include work1:2", "DS951", "No slot '2' specified on host 'work1'", hostfile="work1 slots=2\n"),
    Case("--exclude work1:2", "DS951", "No slot '2' specified on host 'work1'", hostfile="work1 slots=2\nwork2 slots=2\n"),
    Case("--include work9:0", "DS951", "Hostname 'work9' not found in hostfile", hostfile="work1 slots=2\n"),
    Case(
        "--include work2:0@work1:0,1", None, '{"work1": [0, 1], "work2": [0]}', hostfile="work1 slots=2\n# a\nwork2 slots=2 max_slots=8\n"
    ),
    Case("--num_nodes 2 --num_gpus 4", None, '{"work1": [0, 1, 2, 3]}', hostfile="work1 slots=4\n"),
    Case("--num_nodes 1", None, '{"work1": [0, 1]}', hostfile="work1 slots=2\nwork2 slots=2\n"),
    Case("--num_gpus 1", None, '{"work1": [0], "work2": [0]}', hostfile="work1 slots=2\nwork2 slots=2\n"),
    Case("", "DS955", "Hostfile contains a bad entry: work1, unable to proceed with launching", hostfile="work1\n"),
    Case("", "DS955", "Hostfile contains multiple entries for a, unable to proceed with launching", hostfile="a slots=1\na slots=2\n"),
    Case("", "DS955", "Hostfile is empty or not formatted correctly", hostfile="# none\n"),
]

_HOSTS = "work1 slots=2\nwork2 slots=2\n"
ALL += [
    Case(f"--launcher {kind} {flags}", "DS981", f"{kind} backend does not support {says}", hostfile=_HOSTS)
    for kind in ("openmpi", "mpich", "impi", "mvapich")
    for flags, says in (
        ("--include work1@work2", "worker include/exclusion"),
        ("--exclude work1:0", "worker include/exclusion"),
        ("--num_gpus 1", "limiting num nodes/gpus"),
        ("--num_nodes 2", "limiting num nodes/gpus"),
        ("--force_multi --include work1", "worker include/exclusion"),
    )
] + [
    Case(f"--launcher {kind} {flags}", None, "work1", hostfile=_HOSTS)
    for kind in ("openmpi", "impi")
    for flags in ("--include work1", "--exclude work2", "--num_nodes 1")
]

LAUNCHER = ("DS981", "DS951", "DS953", "DS954", "DS955")


def messages(folder: Folder, case: Case, facts: Facts | None = None) -> dict[str, str]:
    """What dslint says of the launch, by code."""
    before = f"CUDA_VISIBLE_DEVICES={case.visible} " if case.visible is not None else ""
    hosts = "--hostfile hosts " if case.hostfile is not None else ""
    folder.write({"run.sh": f"{before}deepspeed {hosts}{case.flags} train.py\n"})
    if case.hostfile is not None:
        folder.write({"hosts": case.hostfile})
    return {d.code: d.message for d in folder.diagnostics("run.sh", facts=facts) if d.code in LAUNCHER}


@pytest.mark.parametrize("case", ALL, ids=lambda case: f"{case.visible} {case.flags} {case.hostfile}")
def test_what_is_found(folder: Folder, case: Case) -> None:
    found = messages(folder, case)
    assert list(found) == ([case.code] if case.code else [])
    if case.code and "{" not in case.says:
        assert case.says in found[case.code]


@pytest.mark.parametrize(
    ("hosts", "flags", "ranks"),
    [
        ("a slots=4\n", "--num_nodes 2 --num_gpus 4", 4),
        ("a slots=2\nb slots=2\n", "--num_nodes 1", 2),
        ("a slots=2\nb slots=2\n", "--num_gpus 1", 2),
        ("a slots=2\nb slots=2\n", "--num_gpus $N", None),
    ],
)
def test_ranks_of_a_hostfile_and_flags(folder: Folder, hosts: str, flags: str, ranks: int | None) -> None:
    folder.write({"run.sh": f"deepspeed --hostfile hosts {flags} train.py --deepspeed_config ds.json\n", "hosts": hosts})
    folder.write({"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 1}}'})
    assert folder.results("run.sh")["ds.json"].facts.world_size == ranks
    differs = [code for code, _, _ in folder.found("run.sh") if code == "DS930"]
    assert differs == (["DS930"] if flags == "--num_gpus 1" else [])


def test_a_hostfile_with_placeholders_is_a_template(folder: Folder) -> None:
    for name, codes in (("node_ip", []), ("<hostname>", []), ("work1", ["DS955"])):
        folder.write({"run.sh": "deepspeed --hostfile hosts train.py\n", "hosts": f"{name} slots=8\n{name} slots=8\n"})
        assert [code for code, _, _ in folder.found("run.sh")] == codes


@pytest.mark.integrations
def test_the_launcher_says_the_same() -> None:
    pytest.importorskip("deepspeed")
    cases = [(case.flags.split(), case.visible, case.gpus, case.hostfile) for case in ALL]
    command = [sys.executable, "-m", "tests.setup.launcher_runs"]
    run = subprocess.run(command, input=json.dumps(cases), cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    for case, answer in zip(ALL, json.loads(run.stdout), strict=True):
        assert case.says in (answer if isinstance(answer, str) else json.dumps(answer)), case


@pytest.mark.parametrize(
    ("release", "flags", "certain"),
    [("0.15.1", "--include work1:2", True), ("0.15.2", "--include work1:2", False), ("0.19.6", "--include work1", True)],
)
def test_releases_that_do_not_check_slots(folder: Folder, release: str, flags: str, certain: bool) -> None:
    folder.write({"run.sh": f"deepspeed --hostfile hosts {flags} train.py\n", "hosts": "work1 slots=2\n"})
    (found,) = (d for d in folder.diagnostics("run.sh", facts=Facts(deepspeed=Release.parse(release))) if d.code == "DS951")
    assert found.certain is certain


def test_a_hostfile_that_the_script_writes(folder: Folder) -> None:
    loop = "scontrol show hostnames | while read h; do echo $h slots=8; done > hosts\n"
    folder.write({"run.sh": loop + "deepspeed --hostfile hosts train.py\n"})
    assert folder.found("run.sh") == []
    folder.write({"run.sh": "echo work1 slots=2 > hosts\ndeepspeed --hostfile hosts --include work1:5 train.py\n"})
    assert [code for code, _, _ in folder.found("run.sh")] == ["DS951"]


def test_a_hostfile_that_is_not_there(folder: Folder) -> None:
    start = "deepspeed --hostfile hosts {} train.py --deepspeed_config ds.json\n"
    folder.write({"ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 1}}', ".git/HEAD": "x"})
    for flags, says, severity in (
        ("--num_nodes 1", "which is what --num_nodes requests", "info"),
        ("--include localhost:0,1", "which is what --include requests", "info"),
        ("--include work1:0,1", "starts on this machine only", "warning"),
        ("--num_nodes 2", "starts on this machine only", "warning"),
    ):
        folder.write({"run.sh": start.format(flags)})
        (found,) = (one for one in folder.diagnostics("run.sh") if one.code == "DS919")
        assert says in found.message
        assert str(found.severity) == severity


def test_the_launcher_alone_does_not_prove_a_training(folder: Folder) -> None:
    folder.write({"predict.py": "print(1)\n", "run.sh": "deepspeed --num_gpus 1 predict.py --mode inference\n"})
    (result,) = folder.results("run.sh").values()
    assert "its program does not mention DeepSpeed. It trains without DeepSpeed" in result.not_judged[0].reason
    folder.write({"predict.py": "import deepspeed\nprint(1)\n"})
    (result,) = folder.results("run.sh").values()
    assert "If the program trains with DeepSpeed" in result.not_judged[0].reason


def test_visible_gpus_and_ranks_of_torchrun(folder: Folder) -> None:
    start = "torchrun --nproc_per_node 8 train.py --deepspeed\n"
    for text in (f"CUDA_VISIBLE_DEVICES=0,1 {start}", f"export CUDA_VISIBLE_DEVICES=0,1\n{start}"):
        folder.write({"run.sh": text})
        assert [code for code, _, _ in folder.found("run.sh")] == ["DS930"]
    folder.write({"run.sh": f"export CUDA_VISIBLE_DEVICES=0,1\nunset CUDA_VISIBLE_DEVICES\n{start}"})
    assert folder.found("run.sh") == []


@pytest.mark.parametrize(
    ("gpus", "ranks", "launch", "says"),
    [
        ("0,1,2,3", 2, "swift sft", 'ms-swift may raise "DeepSpeed is not compatible with ..."'),
        ("0,1,2", 2, "swift sft", "ms-swift may raise AssertionError"),
        ("0,1,2,3", 2, "torchrun --nproc_per_node 2 swift/cli/sft.py", 'ms-swift may raise "DeepSpeed is not compatible with ..."'),
        ("0,1", 2, "swift sft", ""),
    ],
)
def test_ms_swift_refuses_more_gpus_than_ranks(folder: Folder, gpus: str, ranks: int, launch: str, says: str) -> None:
    config = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'
    start = f"export CUDA_VISIBLE_DEVICES={gpus} NPROC_PER_NODE={ranks}\n{launch} --model m --dataset d --deepspeed ds.json\n"
    folder.write({"ds.json": config, "run.sh": start})
    found = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS930"]
    assert [says in one for one in found] == ([True] if says else [])


def test_a_variable_that_is_not_exported_does_not_reach_the_launch(folder: Folder) -> None:
    start = "torchrun --nproc_per_node 8 train.py --deepspeed\n"
    for text in (f"CUDA_VISIBLE_DEVICES=0,1\n{start}", f"CUDA_VISIBLE_DEVICES=0,1 \\\n\n{start}"):
        folder.write({"run.sh": text})
        assert [code for code, _, _ in folder.found("run.sh")] == ["DS978"]
    for text in (
        f"set -a\nCUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n{start}",
        f"CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\necho $CUDA_VISIBLE_DEVICES\n{start}",
        f"CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \\\n{start}",
    ):
        folder.write({"run.sh": text})
        assert folder.found("run.sh") == []


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("deepspeed $H train.py", "train.py"),
        ("deepspeed $H --master_port 29500 train.py", "train.py"),
        ("deepspeed $H --master_port 29500 $P", "$P"),
        ("deepspeed $P --master_port 29500", "$P"),
        ("deepspeed $P --lr 1 train.py", "$P"),
    ],
)
def test_a_variable_before_the_program_may_hold_flags(folder: Folder, command: str, program: str) -> None:
    sets = 'if [ -f "$1" ]; then H="--hostfile=$1"; P=$1; fi\n'
    folder.write({"run.sh": f"{sets}{command} --deepspeed_config ds.json\n", "ds.json": "{}"})
    unseen = "" if program.startswith("$") else " (not in this project)"
    assert f"deepspeed launches {program}{unseen} with" in (folder.results("run.sh")["run.sh"].note or "")


def test_a_blank_behind_the_backslash_leaves_a_launcher_without_program(folder: Folder) -> None:
    for launcher in ("deepspeed --num_gpus 8", "torchrun --nproc_per_node 8"):
        for behind in (" ", "  # 8 ranks", " # 8 ranks"):
            folder.write({"run.sh": f"{launcher} \\{behind}\n  train.py --deepspeed ds.json\n"})
            (found,) = (one for one in folder.diagnostics("run.sh") if one.code == "DS978")
            assert found.message.endswith(
                f"bash starts {launcher.split()[0]} without train.py and what follows it. This loses the DeepSpeed config, too."
            )
    folder.write({"run.sh": "accelerate launch --use_deepspeed \\ \n  --num_processes 4 train.py\n"})
    (found,) = (one for one in folder.diagnostics("run.sh") if one.code == "DS978")
    assert "bash starts accelerate without --num_processes" in found.message
    assert found.effect == "crash"


def test_what_ends_a_command_is_the_place_of_lost_arguments(folder: Folder) -> None:
    start = "torchrun --nproc_per_node 8 train.py --deepspeed ds.json \\\n"
    for text, place in (
        (" --bf16 \\ \n --lr 1\n", (2, 10)),
        (" --bf16 \\\n # --fp16 \\\n --lr 1\n", (3, 2)),
        (" --bf16 \\\n\n --lr 1\n", (2, 9)),
        (" --bf16\n --lr 1\n", (2, 2)),
    ):
        folder.write({"run.sh": start + text})
        (found,) = (one for one in folder.diagnostics("run.sh") if one.code == "DS978")
        assert found.range is not None
        assert (found.range.start.line, found.range.start.column) == place


def test_a_blank_behind_the_backslash_is_an_argument_that_parsers_refuse(folder: Folder) -> None:
    parser = "import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--local_rank')\n"
    made = "parser = deepspeed.add_config_arguments(parser)\nargs = parser.%s\ndeepspeed.initialize(args=args, model=model)\n"
    folder.write({"run.sh": "deepspeed train.py --deepspeed --deepspeed_config ds.json \\ \n  --lr 1\n", "ds.json": "{}"})
    for call, effect, words in (
        ("parse_args()", "crash", "train.py:6 refuses it: each rank ends with"),
        ("parse_known_args()[0]", "silent", "which a parser may refuse"),
    ):
        folder.write({"train.py": parser + made % call})
        (found,) = (one for one in folder.diagnostics("run.sh") if one.code == "DS978")
        assert (found.effect, words in found.message) == (effect, True)


def test_a_command_that_trains_nothing(folder: Folder) -> None:
    chat = "from transformers import HfArgumentParser\nfrom lib import Arguments, Chat\nChat(HfArgumentParser(Arguments).parse_args())\n"
    folder.write({"chat.py": chat, "ds.json": '{"train_micro_batch_size_per_gpu": 1}'})
    for flags, expected in (
        ("--end_string '#'", []),
        ("--end_string '#' ${@:1}", []),
        ("--end_string '#' $MORE", ["DS910"]),
        ("--output_dir o --learning_rate 1e-5", ["DS910"]),
    ):
        folder.write({"run.sh": f"MORE=$(cat more)\ndeepspeed chat.py --deepspeed ds.json --model_name_or_path m {flags}\n"})
        assert [code for code, _, _ in folder.found("run.sh") if code == "DS910"] == expected


def test_a_parser_of_another_file(folder: Folder) -> None:
    options = "import argparse\n\ndef more(parser):\n    parser.add_argument('--width')\n    return parser\n\n"
    options += "def get_args():\n    parser = more(argparse.ArgumentParser())\n%s    parser.add_argument('--config')\n    return parser.parse_args()\n"
    program = "import deepspeed\nfrom options import get_args\nargs = get_args()\n"
    folder.write(
        {
            "run.sh": "deepspeed --num_gpus 4 train.py --config ds.json\n",
            "train.py": program + "deepspeed.initialize(model=model, config=args.config)\n",
            "ds.json": '{"train_batch_size": 8}',
        }
    )
    for line, expected in (("", ["DS973"]), ("    parser.add_argument('--local_rank')\n", []), ("    extend(parser)\n", [])):
        folder.write({"options.py": options % line})
        assert [code for code, _, _ in folder.found("run.sh") if code == "DS973"] == expected


ALL_FLAGS = [(launcher, name) for launcher in OWN_FLAGS for name in sorted({one for flags in OWN_FLAGS.values() for one in flags})]
ALL_FLAGS += [(launcher, name) for launcher in ("deepspeed", "torchrun") for name in sorted(OF_PROGRAMS)]


@pytest.mark.integrations
def test_the_parsers_of_the_launchers_say_the_same() -> None:
    pytest.importorskip("deepspeed")
    pytest.importorskip("accelerate")
    cases = [(launcher, [f"--{name}"]) for launcher, name in ALL_FLAGS]
    cases += [("deepspeed", ["--num-gpus", "2"]), ("deepspeed", ["-m"]), ("torchrun", ["--nproc-per-node", "2"]), ("torchrun", ["-m"])]
    command = [sys.executable, "-m", "tests.setup.launcher_flags"]
    run = subprocess.run(command, input=json.dumps(cases), cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    for (launcher, (written, *_)), answer in zip(cases, json.loads(run.stdout), strict=True):
        refused = refused_by(launcher, written.lstrip("-").replace("-", "_"), written)
        assert refused == ("unrecognized arguments: " + written in (answer or "")), (launcher, written, answer)


def test_flags_of_another_launcher(folder: Folder) -> None:
    folder.write({"run.sh": 'L="deepspeed --num_gpus 4"\n$L --nnodes=1 --nproc-per-node 4 train.py --deepspeed ds.json\n'})
    found = [d for d in folder.diagnostics("run.sh") if d.code == "DS961"]
    assert [("--nnodes and --nproc-per-node" in d.message, d.help) for d in found] == [
        (True, "Write --num_nodes 1 instead of --nnodes. Remove --nproc-per-node.")
    ]


def test_a_variable_in_a_flag_is_one_value(folder: Folder) -> None:
    """A variable that nothing sets here is the value of its flag, and does not hide which flags there are: the others have their defaults."""
    program = (
        "import argparse, transformers\nparser = argparse.ArgumentParser()\nparser.add_argument('--save-dir')\n"
        "parser.add_argument('--local_rank')\nparser.add_argument('--lr', default=5e-5, type=float)\nargs = parser.parse_args()\n"
        "training = transformers.TrainingArguments(args.save_dir, deepspeed='ds.json', learning_rate=args.lr)\n"
        "transformers.Trainer(model, training).train()\n"
    )
    folder.write({"train.py": program, "ds.json": '{"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}'})
    for flag, codes in (("--save-dir=${OUT}", ["DS904"]), ("--save-dir ${OUT}", ["DS904"]), ("--save-dir=$ARGS", []), ("$OUT", [])):
        folder.write({"run.sh": f"deepspeed --num_gpus 2 train.py {flag}\n"})
        assert [code for code, _, _ in folder.found("run.sh") if code == "DS904"] == codes


def test_a_flag_of_the_program_before_it(folder: Folder) -> None:
    folder.write({"run.sh": "deepspeed --num_gpus 4 --deepspeed ds.json train.py --output_dir out\n"})
    [found] = [d for d in folder.diagnostics("run.sh") if d.code == "DS961"]
    assert found.help == "Write --deepspeed after the program, which reads it."


@pytest.mark.parametrize(
    ("command", "help_"),
    [
        ("deepspeed /hostfile train.py --deepspeed ds.json", "Write --hostfile /hostfile."),
        ("deepspeed /hostfile train.py --lr 1", "Write --hostfile /hostfile."),
        ("deepspeed /job/hostfile --num_gpus 4 train.py --deepspeed ds.json", "Write --hostfile /job/hostfile."),
        ("deepspeed --num_gpus 2 my_hostfile.txt train.py --deepspeed ds.json", "Write --hostfile my_hostfile.txt."),
        ("torchrun 8 train.py --deepspeed ds.json", "Write --nproc_per_node 8."),
        (
            "accelerate launch --use_deepspeed --zero_stage 2 acc.yaml train.py",
            "Write the flag that acc.yaml belongs to before it, or remove it.",
        ),
        (
            "torchrun --nproc_per_node 2 /opt/bin/python3 train.py --deepspeed ds.json",
            "Remove /opt/bin/python3. For a module write --module NAME.",
        ),
        ("deepspeed --num_gpus 2 python -m train --deepspeed ds.json", "Remove python. For a module write --module NAME."),
        ("deepspeed --no_python --num_gpus 2 python train.py --deepspeed ds.json", None),
        ("deepspeed --hostfile /hostfile train.py --deepspeed ds.json", None),
        ("deepspeed --no_python hostfile train.py --deepspeed ds.json", None),
        ("deepspeed train.py hostfile other.py --deepspeed ds.json", None),
        ("torchrun wrapper train.py --deepspeed ds.json", None),
    ],
)
def test_a_value_in_the_place_of_the_program(folder: Folder, command: str, help_: str | None) -> None:
    folder.write({"run.sh": f"{command}\n", "train.py": ALONE, "ds.json": '{"train_micro_batch_size_per_gpu": 1}'})
    found = [d.help for d in folder.diagnostics("run.sh") if d.code == "DS961"]
    assert found == ([help_] if help_ else [])


ALONE = "import argparse, deepspeed\np = deepspeed.add_config_arguments(argparse.ArgumentParser())\ndeepspeed.initialize(args=p.parse_args(), model=m)\n"
FOUR_GPUS = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n"


@pytest.mark.parametrize(
    ("command", "program", "codes"),
    [
        ("python train.py", ALONE, ["DS962"]),
        ("CUDA_VISIBLE_DEVICES=0 nohup python3 -u train.py", ALONE, ["DS962"]),
        ("python train.py", "import argparse, os\nos.environ['RANK'] = '0'\n" + ALONE, []),
        ("RANK=0 python train.py", ALONE, []),
        ("mpirun -np 2 python train.py", ALONE, []),
        ("srun python train.py", ALONE, []),
        (f"{FOUR_GPUS}srun python train.py", ALONE, ["DS962"]),
        (f"{FOUR_GPUS}#SBATCH --ntasks=1\nsrun -u --cpu-bind=none python -u train.py", ALONE, ["DS962"]),
        (f"{FOUR_GPUS}#SBATCH --ntasks-per-node=4\nsrun python train.py", ALONE, []),
        (f"{FOUR_GPUS}srun --ntasks=4 python train.py", ALONE, []),
        (f"{FOUR_GPUS}srun -n4 python train.py", ALONE, []),
        (f"{FOUR_GPUS}export MASTER_ADDR=$(hostname)\nsrun python train.py", ALONE, []),
        (f"{FOUR_GPUS}srun singularity exec a.sif python train.py", ALONE, []),
        (f"{FOUR_GPUS}srun torchrun --nproc_per_node 4 train.py", ALONE, []),
        ("#SBATCH --gres=gpu:1\nsrun python train.py", ALONE, []),
        ("srun -p gpu --job-name=debug --gres=gpu:1 --ntasks=1 --ntasks-per-node=1 python train.py", ALONE, ["DS962"]),
        ("srun -n 1 -p gpu python -u train.py", ALONE, ["DS962"]),
        ("srun -N 1 -p gpu python train.py", ALONE, []),
        ("srun --ntasks=1 --mpi=pmix python train.py", ALONE, []),
        ("srun --ntasks=1 --exclusive apptainer exec a.sif python train.py", ALONE, []),
        ("export MASTER_ADDR=$(hostname)\nsrun --ntasks=1 python train.py", ALONE, []),
        ("docker run image python train.py", ALONE, []),
        ("torchrun train.py", ALONE, []),
        ("python train.py", "import torch\n", []),
    ],
)
def test_a_program_without_a_launcher(folder: Folder, command: str, program: str, codes: list[str]) -> None:
    folder.write(
        {"run.sh": f"{command} --deepspeed --deepspeed_config ds.json\n", "train.py": program, "ds.json": '{"train_batch_size": 8}'}
    )
    assert [code for code, _, _ in folder.found("run.sh") if code == "DS962"] == codes


@pytest.mark.parametrize(
    ("before", "given", "codes"),
    [
        ("", "'ds.json' if WORLD_SIZE > 1 else None", []),
        ("", "(\n    'ds.json'\n    if 'LOCAL_RANK' in os.environ\n    else None\n)", []),
        ("path = None\nif WORLD_SIZE > 1:\n    print('several')\n    path = 'ds.json'\n", "path", []),
        ("if WORLD_SIZE > 1:\n    print('several')\npath = 'ds.json'\n", "path", ["DS962"]),
        ("path = None\na = 1\nb = 2\nc = 3\nif WORLD_SIZE > 1:\n    path = 'ds.json'\n", "path", []),
        ("path = 'ds.json'\nif WORLD_SIZE > 1:\n    print('several')\n", "path", ["DS962"]),
        ("", "'ds.json'", ["DS962"]),
    ],
)
def test_a_program_that_names_its_config_only_for_several_ranks(folder: Folder, before: str, given: str, codes: list[str]) -> None:
    program = "import os\nfrom transformers import Trainer, TrainingArguments\nWORLD_SIZE = int(os.environ.get('WORLD_SIZE', 1))\n"
    program += f"{before}arguments = TrainingArguments('out', deepspeed={given})\nTrainer(model, arguments).train()\n"
    folder.write({"run.sh": "python train.py\n", "train.py": program, "ds.json": '{"train_batch_size": "auto"}'})
    assert [code for code, _, _ in folder.found("run.sh") if code == "DS962"] == codes


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ("", ["DS904", "DS904"]),
        ("per_device_train_batch_size=4", ["DS904"]),
        ("per_device_train_batch_size=4 gradient_accumulation_steps=8", []),
        ("per_device_train_batch_size=$BATCH gradient_accumulation_steps=8", []),
        ("deepspeed=other.json", []),
        ("per_device_train_batch_size=4 gradient_accumulation_steps=8 bf16=false fp16=true", ["DS905"]),
    ],
)
def test_words_override_the_training_file_of_llama_factory(folder: Folder, words: str, codes: list[str]) -> None:
    """From 0.9.3: llamafactory/hparams/parser.py, read_args."""
    config = '{"train_micro_batch_size_per_gpu": %s, "gradient_accumulation_steps": %s, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    training = "model_name_or_path: m\nstage: sft\ndo_train: true\ndataset: d\nfinetuning_type: full\noutput_dir: out\nbf16: true\n"
    training += "deepspeed: ds.json\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 2\n"
    folder.write({"train.yaml": training, "ds.json": config % (4, 8), "other.json": config % (2, 2)})
    folder.write({"run.sh": f"llamafactory-cli train train.yaml {words}\n"})
    assert [code for code, _, _ in folder.found("run.sh") if code in ("DS904", "DS905")] == codes


@pytest.mark.parametrize(
    ("visible", "stage", "said"),
    [
        ("", 2, (True, True)),
        ("CUDA_VISIBLE_DEVICES=1 ", 2, (True, False)),
        ("CUDA_VISIBLE_DEVICES=0,1 ", 2, (False, True)),
        ("CUDA_VISIBLE_DEVICES=0,1 ", 3, (True, False)),
    ],
)
def test_a_trainer_that_sees_several_gpus_copies_the_model_without_a_launcher(
    folder: Folder, visible: str, stage: int, said: tuple[bool, bool]
) -> None:
    config = {"train_batch_size": "auto", "zero_optimization": {"stage": stage}}
    folder.write({"run.sh": f"{visible}python train.py --deepspeed ds.json\n", "train.py": TRAINER, "ds.json": json.dumps(config)})
    (message,) = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS962"]
    assert ("mpi4py" in message, "DataParallel" in message) == said


@pytest.mark.parametrize(
    ("pins", "stage", "said"),
    [
        ("accelerate==0.30.0\ntransformers==4.40.2\n", 2, (True, False)),
        ("accelerate==0.34.2\n", 1, (True, False)),
        ("accelerate==0.30.0\n", 3, (False, True)),
        ("accelerate==1.0.0\n", 2, (False, True)),
        ("accelerate==0.20.3\ntransformers==4.29.2\n", 2, (False, True)),
        ("accelerate\n", 2, (True, True)),
        ("accelerate\n", 3, (False, True)),
    ],
)
def test_what_an_old_accelerate_does_without_a_launcher(folder: Folder, pins: str, stage: int, said: tuple[bool, bool]) -> None:
    config = {"train_batch_size": "auto", "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": stage}}
    folder.write({"run.sh": "python train.py --deepspeed ds.json\n", "train.py": TRAINER, "ds.json": json.dumps(config)})
    folder.write({"requirements.txt": pins})
    found = json.loads(CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"]).output)["diagnostics"]
    (message,) = [one["message"] for one in found if one["code"] == "DS962"]
    assert ("'DummyOptim' object has no attribute 'step'" in message, "mpi4py" in message) == said


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("accelerate launch --num_processes 1 train.py", ["DS962"]),
        ("accelerate launch -m package.train", ["DS962"]),
        ("accelerate launch --use_deepspeed --num_processes 1 train.py", []),
        ("accelerate launch --config_file own.yaml --num_processes 1 train.py", []),
        ("accelerate launch --num_processes 2 train.py", []),
        ("RANK=0 accelerate launch --num_processes 1 train.py", []),
    ],
)
def test_accelerate_starts_one_process_without_ranks(folder: Folder, command: str, codes: list[str]) -> None:
    folder.write(
        {"run.sh": f"{command} --deepspeed ds.json\n", "ds.json": '{"train_batch_size": "auto", "zero_optimization": {"stage": 1}}'}
    )
    given = None if "_processes" in command else 1
    found = folder.diagnostics("run.sh", facts=Facts(integration=Integration.TRANSFORMERS, world_size=given))
    assert [one.code for one in found if one.code == "DS962"] == codes


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({"requirements.txt": "deepspeed==0.19.8\n"}, "error"),
        ({"requirements.txt": "deepspeed==0.19.8\nmpi4py\n"}, "warning"),
        ({"requirements.txt": "deepspeed==0.19.8\n", "environment.yml": "dependencies:\n  - mpi4py\n"}, "warning"),
        ({"requirements.txt": "deepspeed==0.19.8\n", "Dockerfile": "FROM ours\n"}, "warning"),
        ({"requirements.txt": "transformers\n"}, "warning"),
        ({}, "warning"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch --num_processes 1 train.py --deepspeed ds.json",
        "trl sft --config train.yaml",
        "trl sft --config train.yaml --use_deepspeed",
    ],
)
def test_one_process_where_the_project_lists_what_it_requires(folder: Folder, command: str, files: dict[str, str], severity: str) -> None:
    given = {"train.yaml": "model_name_or_path: m\ndataset_name: d\noutput_dir: out\ndeepspeed: ds.json\nnum_processes: 1\n"}
    folder.write({**given, **files, "run.sh": command + "\n", "train.py": TRAINER, "ds.json": '{"train_batch_size": "auto"}'})
    found = [severity for code, severity, _ in reported("run.sh") if code == "DS962"]
    assert found == ([] if "use_deepspeed" in command or "multi_gpu" in command else [severity])


@pytest.mark.parametrize(("stage", "codes"), [(2, ["DS904", "DS962", "DS104"]), (3, ["DS104", "DS962", "DS904"])])
def test_ranks_are_looked_for_before_the_config_is_read_but_for_stage_3(folder: Folder, stage: int, codes: list[str]) -> None:
    config = {"train_batch_size": "auto", "gradient_clipping": 0.5, "zero_optimization": {"stage": stage, "sub_group_size": "1e9"}}
    launch = "accelerate launch --num_processes 1 train.py --deepspeed ds.json\n"
    folder.write({"run.sh": launch, "train.py": TRAINER, "requirements.txt": "deepspeed==0.19.8\n", "ds.json": json.dumps(config)})
    result = CliRunner().invoke(cli, ["check", "run.sh", "--output-format", "json"])
    errors = [(one["order"], one["code"]) for one in json.loads(result.output)["diagnostics"] if one["severity"] == "error"]
    assert [code for _, code in sorted(errors)] == codes


TRAINER = """from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model=AutoModelForCausalLM.from_pretrained("m"), args=args).train()
"""


def reported(name: str) -> list[tuple[str, str, Phase | None]]:
    """The findings of a file by the command line: code, severity and phase."""
    result = CliRunner().invoke(cli, ["check", name, "--output-format", "json"])
    found = json.loads(result.output)["diagnostics"]
    return [(one["code"], one["severity"], Phase(one["phase"]) if one["phase"] else None) for one in found]


@pytest.mark.integrations
def test_deepspeed_looks_for_mpi_without_a_launcher() -> None:
    pytest.importorskip("deepspeed")
    program = "import sys, deepspeed; sys.modules['mpi4py'] = None; deepspeed.init_distributed('gloo')"
    environment = {name: value for name, value in os.environ.items() if "RANK" not in name and not name.startswith(("MASTER_", "WORLD_"))}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert "import of mpi4py halted" in run.stderr


@pytest.mark.parametrize("flag", ["-H hosts", "--hostfile hosts", "--hostfile=hosts"])
def test_a_missing_hostfile_is_a_warning_of_the_launcher(folder: Folder, flag: str) -> None:
    """It is not the DeepSpeed config, which is not known here."""
    folder.write({"train.py": "import deepspeed\n", "run.sh": f"deepspeed {flag} train.py --deepspeed --deepspeed_config $1\n"})
    (found,) = [d for d in folder.diagnostics("run.sh") if d.code == "DS919"]
    assert "the launcher prints a warning and starts on this machine only" in found.message
    assert not found.certain


@pytest.mark.parametrize(
    ("holds", "meant"),
    [
        (["machines/cluster/hosts.txt"], "Did you mean machines/cluster/hosts.txt?"),
        (["a/hosts.txt", "b/hosts.txt"], ""),  # of which is not known
        ([], ""),
        (["machines-cluster/hosts.txt"], ""),
    ],
)
def test_a_hostfile_that_lies_in_another_folder_is_reported(folder: Folder, holds: list[str], meant: str) -> None:
    folder.write(
        dict.fromkeys(holds, "gpu-a slots=8\ngpu-b slots=8\n") | {"ds.json": '{"train_batch_size": 16}', "train.py": "import deepspeed\n"}
    )
    folder.write({"run.sh": "deepspeed --hostfile=./machines-cluster/hosts.txt train.py --deepspeed_config ds.json\n"})
    found = [one for one in folder.diagnostics("run.sh") if one.code == "DS919" and not one.pedantic]
    assert [meant in (one.help or "") for one in found] == [True] * bool(meant)


def test_a_command_that_starts_torchrun_itself_is_not_called_torchrun(folder: Folder) -> None:
    folder.write(
        {"run.sh": "NPROC_PER_NODE=2 swift sft --model m --deepspeed zero2 \\\n  --max_steps 10\n  --gradient_checkpointing_kwargs '{}'\n"}
    )
    (found,) = (one for one in folder.diagnostics("run.sh") if one.code == "DS978")
    assert "torchrun" not in found.message


@pytest.mark.skipif(os.sep != "/", reason="Git writes other line ends on Windows than a script has")
@pytest.mark.parametrize(
    ("script", "found", "passed"),
    [
        ("deepspeed train.py \\\r\n  --deepspeed_config ds.json\r\n", "without --deepspeed_config and what follows", "train.py|\r"),
        ("deepspeed \\\r\n  train.py --deepspeed_config ds.json\r\n", "bash starts deepspeed without train.py", "\r"),
        ("deepspeed train.py --deepspeed_config ds.json\r\n", '"ds.json\\r"', "train.py|--deepspeed_config|ds.json\r"),
        ('deepspeed train.py --deepspeed_config "ds.json"\r\n', '"ds.json\\r"', "train.py|--deepspeed_config|ds.json\r"),
        ("deepspeed train.py --deepspeed_config ds.json --lr 1\r\n", "", "train.py|--deepspeed_config|ds.json|--lr|1\r"),
        ("deepspeed train.py \\\n  --deepspeed_config ds.json\n", "", "train.py|--deepspeed_config|ds.json"),
    ],
)
def test_what_windows_line_ends_do_to_a_launch(folder: Folder, script: str, found: str, passed: str) -> None:
    """bash itself shows what the launcher gets."""
    (folder.path / "run.sh").write_bytes(script.encode())
    folder.write({"ds.json": '{"train_batch_size": 8}'})
    assert [found in one.message for one in folder.diagnostics("run.sh") if one.code == "DS978"] == [True] * bool(found)
    shell = "deepspeed() { local IFS='|'; printf '%s' \"$*\"; }\nsource ./run.sh"
    process = subprocess.run(["bash", "-c", shell], cwd=folder.path, capture_output=True, check=False)
    assert process.stdout.decode() == passed


def test_yaml_takes_windows_line_ends_for_its_own(folder: Folder) -> None:
    job = "apiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n      - command: [bash, -c]\n        args:\n        - |\n"
    job += "          deepspeed train.py \\\n            --deepspeed_config ds.json\n"
    folder.write({"ds.json": '{"train_batch_size": 8}'})
    (folder.path / "job.yaml").write_bytes(job.replace("\n", "\r\n").encode())
    assert "DS978" not in {code for code, _, _ in folder.found("job.yaml")}
    assert "ds.json" in folder.results("job.yaml")


SWIFT = "swift/cli/sft.py --model m --dataset d --output_dir o --deepspeed zero2"


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("CUDA_VISIBLE_DEVICES=0 swift sft --model m --dataset d --output_dir o --deepspeed zero2", ["DS962"]),
        ("CUDA_VISIBLE_DEVICES=3 swift rlhf --rlhf_type dpo --model m --dataset d --output_dir o --deepspeed zero3", ["DS962"]),
        (f"CUDA_VISIBLE_DEVICES=0 python {SWIFT}", ["DS962"]),
        (f"CUDA_VISIBLE_DEVICES=0,1 python {SWIFT}", ["DS982"]),
        (f"torchrun --nproc_per_node 1 {SWIFT}", []),
        ("CUDA_VISIBLE_DEVICES=0 NPROC_PER_NODE=1 swift sft --model m --dataset d --output_dir o --deepspeed zero2", []),
        ("export NNODES=1\nCUDA_VISIBLE_DEVICES=0 swift sft --model m --dataset d --output_dir o --deepspeed zero2", []),
        ("swift sft --model m --dataset d --output_dir o --deepspeed zero2", []),
        ("CUDA_VISIBLE_DEVICES=0 swift sft --model m --dataset d --output_dir o", []),
    ],
)
def test_one_process_of_ms_swift(folder: Folder, command: str, codes: list[str]) -> None:
    folder.write({"run.sh": f"{command}\n", "swift/__init__.py": "", "swift/cli/sft.py": "from swift.llm import sft_main\nsft_main()\n"})
    assert [code for code, _, _ in folder.found("run.sh") if code in ("DS962", "DS982")] == codes


def test_a_missing_config_is_no_certain_loss_for_a_program_that_reads_no_flags(folder: Folder) -> None:
    program = "import deepspeed, os\nengine, *_ = deepspeed.initialize(model=m, config=os.environ['CONFIG'])\n"
    folder.write({"train.py": program, "run.sh": "deepspeed train.py --deepspeed_config none.json\n"})
    (found,) = folder.diagnostics("run.sh")
    assert (found.code, found.certain) == ("DS919", False)
    parses = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--deepspeed_config')\n"
    folder.write({"train.py": parses + program.replace("config=os.environ['CONFIG']", "config=p.parse_known_args()[0].deepspeed_config")})
    (found,) = folder.diagnostics("run.sh")
    assert (found.code, found.certain) == ("DS919", True)


@pytest.mark.parametrize("launcher", ["accelerate launch", "torchrun", "deepspeed"])
def test_a_variable_with_options_before_the_program_is_not_the_program(folder: Folder, launcher: str) -> None:
    script = (
        f'if [ -f own.yaml ]; then\n  OPTIONS="--num_x $A"\nelse\n  OPTIONS="$B"\nfi\n{launcher} $OPTIONS train.py --deepspeed ds.json\n'
    )
    folder.write({"run.sh": script, "train.py": "import deepspeed\n", "ds.json": '{"train_batch_size": 8}'})
    setups = [result.context.setup for result in folder.results("run.sh").values() if result.context.setup is not None]
    launches = [one.launch for one in setups if one.launch is not None and one.launch.passed is not None]
    assert {(one.passed.program.raw, one.may_hold_more) for one in launches if one.passed} == {("train.py", True)}


def test_a_variable_before_the_program_may_name_the_file_of_accelerate(folder: Folder) -> None:
    script = 'if [ -f own.yaml ]; then\n  OPTIONS="--config_file $A"\nelse\n  OPTIONS="$B"\nfi\naccelerate launch $OPTIONS train.py\n'
    folder.write({"run.sh": script, "train.py": "from accelerate import Accelerator\nAccelerator()\n"})
    (one,) = folder.results("run.sh")["run.sh"].not_judged
    assert one.reason.startswith("the launch of train.py gets options from a variable that only the run knows.")


@pytest.mark.parametrize(("given", "found"), [("", True), ("--max_steps 10", False), ("--max_step 10", False)])
def test_argparse_takes_the_beginning_of_a_flag_for_the_flag(folder: Folder, given: str, found: bool) -> None:
    flags = f"--stage sft --do_train --model_name_or_path m --dataset a --template t --finetuning_type full --streaming --output_dir out {given}"
    folder.write(
        {"run.sh": f"deepspeed --num_gpus 2 LLaMA-Factory/src/train.py --deepspeed ds.json {flags} --per_device_train_batch_size 2\n"}
    )
    folder.write({"ds.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}'})
    assert ("DS975" in {one.code for one in folder.diagnostics("run.sh")}) is found
