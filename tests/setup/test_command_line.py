"""`dslint check` of setups, as a person calls it: exit codes, and directories in which pairs are found."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dslint.cli import cli
from tests.setup.folder import Folder

CONFIG = {"train_batch_size": "auto", "gradient_accumulation_steps": 4, "gradient_clipping": "auto", "zero_optimization": {"stage": 2}}
TRAINING = "base_model: m\nmicro_batch_size: 2\ngradient_accumulation_steps: 2\ndeepspeed: ds.json\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (tmp_path / "train.yaml").write_text(TRAINING, encoding="utf-8")
    (tmp_path / "other.yaml").write_text("a: [deepspeed\n", encoding="utf-8")
    (tmp_path / "compose.yml").write_text("services: {}\n", encoding="utf-8")
    return tmp_path


def check(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["check", "--output-format", "concise", *arguments])


def test_a_directory_has_its_pairs_found(here: Path) -> None:
    done = check(".")
    assert done.exit_code == 1
    lines = [line for line in done.stdout.splitlines() if "DS904" in line]
    assert len(lines) == 1
    assert lines[0].startswith("ds.json:1:")
    assert "from train.yaml:3 (gradient_accumulation_steps: 2)" in lines[0]
    assert "train.yaml:1:1" not in done.stdout  # a state has no line in the form of a finding
    assert "training arguments for axolotl; DeepSpeed config: ds.json." in check(".", "--output-format", "full").stdout
    assert "other.yaml" not in done.stdout
    assert "compose.yml" not in done.stdout


def test_several_processes_find_the_same(here: Path) -> None:
    assert check(".", "--jobs", "2").stdout == check(".").stdout


def test_a_command(here: Path) -> None:
    assert check("--command", "torchrun --nproc_per_node 8 t.py --deepspeed ds.json --gradient_accumulation_steps 2").exit_code == 1
    assert check("--command", "torchrun --nproc_per_node 8 t.py --deepspeed ds.json --gradient_accumulation_steps 4").exit_code == 0
    assert check("--command", "torchrun t.py --deepspeed ds.json", "ds.json").exit_code == 2


def test_the_release_of_the_integration(here: Path) -> None:
    assert check("train.yaml", "--integration", "transformers==4.40.0").exit_code == 1
    for wrong in ("transformers==x", "keras==1.0", "transformers=="):
        done = check("train.yaml", "--integration", wrong)
        assert done.exit_code == 2
        assert "Traceback" not in done.output


def test_broken_yaml_that_is_named(here: Path) -> None:
    done = check("other.yaml")
    assert done.exit_code == 2
    assert "invalid YAML" in done.output


def test_what_a_hook_names_and_is_about_something_else_is_silent(here: Path) -> None:
    (here / "run.sh").write_text("echo hello\n", encoding="utf-8")
    nothing = check("--force-exclude", "compose.yml", "run.sh")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "")
    found = check("--force-exclude", "compose.yml", "train.yaml")
    assert found.exit_code == 1
    assert "compose.yml" not in found.stdout


def test_why_something_was_assumed_is_said_on_request(here: Path) -> None:
    why = "--integration transformers: train.yaml sets arguments of axolotl"
    short, verbose = (CliRunner().invoke(cli, ["check", "train.yaml", *flags]).stdout for flags in ([], ["-v"]))
    assert why not in short
    assert why in verbose


PARSED = "import argparse\nparser = argparse.ArgumentParser()\n%s\nargs = parser.parse_args()\n"
INITIALIZES = "import deepspeed\ndeepspeed.initialize(model=model, config='ds.json', optimizer=optimizer)\n"
ADDS = (
    "parser.add_argument('--lr', type=float, default=1e-4)\nparser.add_argument('--epochs', '-e', type=int)\n"
    "parser.add_argument('--mode', choices=['full', 'lora'])\nparser.add_argument('--rank', type=int, choices=(8, 16))\n"
    "parser.add_argument('--bf16', action='store_true')\nparser.add_argument('--layers', nargs='+')\n"
    "parser.add_argument('--wandb', action=argparse.BooleanOptionalAction)\n"
)
NAMED = ADDS + "parser.add_argument('--name')\n"
MUST = ADDS + "parser.add_argument('--data-path', required=True)\n"


@pytest.mark.parametrize(
    ("adds", "words"),
    [
        (ADDS, ""),
        (ADDS, "--lr 2e-5 --epochs 3 --mode lora --rank 8 --bf16 --layers a b c"),
        (ADDS, "--lr=2e-5 --epoch=3 --no-wandb"),
        (ADDS, "--lr fast"),
        (ADDS, "--epochs 1e3"),
        (ADDS, "-e 1.5"),
        (ADDS, "--mode quick"),
        (ADDS, "--rank 32"),
        (ADDS, "--rank eight"),
        (ADDS, "--bf16 true"),
        (ADDS, "--bf16 --learning_rate 1"),
        (ADDS, "--lr --bf16"),
        (ADDS, "--lr -1"),
        (ADDS, "--no_wandb"),
        (ADDS, "--lr=''"),
        (NAMED, "--name '' --bf16"),
        (NAMED, "--name= --bf16"),
        (NAMED, "--name '-x 1'"),
        (NAMED, "--name '--x 1'"),
        (NAMED, "--bf16=1"),
        (ADDS + "parser.add_argument('-n', type=int, required=True)\n", "-n4"),
        (ADDS + "parser.add_argument('--amp', action=argparse.BooleanOptionalAction, required=True)\n", "--no-amp"),
        (MUST, "--data-path x"),
        (MUST, "--data x"),
        (MUST, "--data_path x"),
        (MUST, "--lr 1"),
        (MUST, ""),
        (ADDS + "parser.add_argument('file')\n", "--bf16 true"),
        (ADDS + "parser.add_argument('rest', nargs=argparse.REMAINDER)\n", "run --unknown 1"),
        (ADDS + "group = parser.add_argument_group('g')\ngroup.add_argument('--size', type=int, required=True)\n", "--lr 1"),
    ],
)
def test_a_launch_is_parsed_as_argparse_does(folder: Folder, capsys: pytest.CaptureFixture[str], adds: str, words: str) -> None:
    """argparse is the judge: what it prints holds the error in the finding, and where it parses the words nothing is found."""
    parser = argparse.ArgumentParser()
    exec(adds, {"parser": parser, "argparse": argparse})
    with contextlib.suppress(SystemExit):
        parser.parse_args(shlex.split(words))
    printed = capsys.readouterr().err
    folder.write({"train.py": PARSED % adds + INITIALIZES, "ds.json": '{"train_batch_size": 8}', "run.sh": f"torchrun train.py {words}\n"})
    found = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS973"]
    assert bool(found) == bool(printed), (found, printed)
    assert not found or any(one.endswith(" ends with an error.") or one.partition('"error: ')[2][:-2] in printed for one in found), (
        found,
        printed,
    )


@pytest.mark.parametrize(
    "program",
    [
        PARSED % "extend(parser)",
        PARSED % "for name in names:\n    parser.add_argument(name)",
        PARSED.replace("ArgumentParser()", "ArgumentParser(parents=[base])") % "",
        PARSED.replace("parse_args()", "parse_known_args()[0]") % "",
        "import sys\nsys.argv = sys.argv[:1]\n" + PARSED % "",
        "import sys\nsys.argv.remove('--unknown')\n" + PARSED % "",
        "def parse():\n" + "\n".join("    " + line for line in (PARSED % "").splitlines()) + "\n    return args\n",
        PARSED % "if flag:\n    parser.add_argument('--unknown')\n    parser.add_argument('--must', required=True)\nelse:\n    pass",
        PARSED % "add = parser.add_argument\nadd('--unknown')",
        "import argparse\nclass Own(argparse.ArgumentParser):\n    pass\nparser = Own()\nparser.add_argument('--unknown')\nargs = parser.parse_args()\n",
    ],
)
def test_a_parser_that_may_know_more_refuses_nothing(folder: Folder, program: str) -> None:
    folder.write({"train.py": program + INITIALIZES, "ds.json": '{"train_batch_size": 8}', "run.sh": "torchrun train.py --unknown 1\n"})
    assert "DS973" not in {code for code, _, _ in folder.found("run.sh")}


@pytest.mark.parametrize(
    ("imports", "module", "found"),
    [
        ("from fix import strip", "import sys\ndef strip():\n    sys.argv = sys.argv[:1]\n", False),
        ("import fix", "from sys import argv\nargv.pop(1)\n", False),
        ("import fix", "import os\n", True),
    ],
)
def test_a_module_may_take_the_rank_before_hydra_reads_it(folder: Folder, imports: str, module: str, found: bool) -> None:
    program = f"import deepspeed, hydra\n{imports}\n@hydra.main(config_path='conf', config_name='a')\ndef main(cfg):\n    pass\nmain()\n"
    program += "deepspeed.initialize(model=model, config='ds.json')\n"
    folder.write({"train.py": program, "fix.py": module, "ds.json": '{"train_batch_size": 8}', "run.sh": "deepspeed train.py lr=1\n"})
    assert ("DS973" in {code for code, _, _ in folder.found("run.sh")}) == found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("${N:+--data-path x}", False),
        ("--bf16 ${N:+--data-path x}", False),
        ("--bf16 $N", False),
        ("$N", False),
        ("--data-path x --epochs ${N:+3}", False),
        ("--data-path x --epochs ${N:-}", False),
        ("--data-path x --epochs ${N:-3.5}", True),
        ("--data-path x --epochs 3.5 $N", True),
        ("--lr 1 --epochs $N", True),
        ("--bf16", True),
    ],
)
def test_a_variable_of_the_environment_may_hold_arguments(folder: Folder, words: str, found: bool) -> None:
    folder.write({"train.py": PARSED % MUST + INITIALIZES, "ds.json": '{"train_batch_size": 8}', "run.sh": f"torchrun train.py {words}\n"})
    assert ("DS973" in {code for code, _, _ in folder.found("run.sh")}) == found
    (folder.path / "run.sh").write_text(f"N=\ntorchrun train.py {words}\n", encoding="utf-8")  # now surely empty
    empty = "DS973" in {code for code, _, _ in folder.found("run.sh")}
    assert empty or words == "--bf16 $N"  # whether a value stands there is not followed


@pytest.mark.parametrize("before", ["torchrun ${A:+--master_addr $A}", "torchrun --standalone ${A:-}", "python ${DEBUG:+-m debugpy}"])
def test_optional_words_before_a_program_are_left_out(folder: Folder, before: str) -> None:
    folder.write({"train.py": PARSED % MUST + INITIALIZES, "ds.json": '{"train_batch_size": 8}', "run.sh": f"{before} train.py --lr 1\n"})
    assert "DS973" in {code for code, _, _ in folder.found("run.sh")}


def test_the_launcher_passes_a_rank_that_is_required(folder: Folder) -> None:
    adds = "parser.add_argument('--local_rank', '--local-rank', type=int, required=True)"
    folder.write({"train.py": PARSED % adds + INITIALIZES, "ds.json": '{"train_batch_size": 8}', "run.sh": "deepspeed train.py\n"})
    assert "DS973" not in {code for code, _, _ in folder.found("run.sh")}


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("ARGS='--lr 1 \\\n  --epochs 3'\ntorchrun train.py $ARGS\n", True),
        ('ARGS="--lr 1 \\\n  --epochs 3"\ntorchrun train.py $ARGS\n', False),
        ("read -r -d '' ARGS <<EOF\ntrain.py \\ \n  --lr 1 \\\n  --epochs 3\nEOF\ntorchrun $ARGS\n", True),
        ("read -r -d '' ARGS <<EOF\ntrain.py \\\n  --lr 1 \\\n  --epochs 3\nEOF\ntorchrun $ARGS\n", False),
        ("CMD='torchrun train.py \\\n  --lr 1'\neval \"$CMD\"\n", False),
        ("torchrun train.py --lr 1 --name '\\'\n", False),
    ],
)
def test_a_backslash_that_continues_no_line_is_an_argument(folder: Folder, script: str, found: bool) -> None:
    folder.write({"train.py": PARSED % NAMED + INITIALIZES, "ds.json": '{"train_batch_size": 8}', "run.sh": script})
    messages = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS978"]
    assert [message.startswith("A backslash is an argument") for message in messages] == ([True] if found else [])


SWIFT_2 = (
    "deepspeed {launcher} swift/cli/sft.py --model_type llama3-8b --sft_type full --dataset d --learning_rate 1e-5 --batch_size 1 "
    "--deepspeed default-zero2{more}\n"
)


@pytest.mark.parametrize(
    ("launch", "release", "found"),
    [
        (SWIFT_2.format(launcher="--num_gpus 4", more=""), "", ["before 3.0 reads: each rank takes the 4 GPUs of its machine for its own"]),
        (SWIFT_2.format(launcher="--num_gpus 1", more=""), "", ["before 3.0 does not know it: each rank raises"]),
        (SWIFT_2.format(launcher="--num_gpus 4", more=""), "2.6.1", ["ms-swift 2.6.1 reads: each rank takes the 4 GPUs of its machine"]),
        (SWIFT_2.format(launcher="--num_gpus 4", more=""), "3.2.0", []),
        (SWIFT_2.format(launcher="--num_gpus 4", more="").replace("sft_type", "train_type"), "", []),
        (SWIFT_2.format(launcher="--num_gpus 4", more=" --ignore_args_error true"), "", []),
        (SWIFT_2.format(launcher="--num_gpus 4 --no_local_rank", more=""), "", []),
        (SWIFT_2.format(launcher="", more="").replace("deepspeed ", "torchrun --nproc_per_node 4 ", 1), "", []),
    ],
)
def test_ms_swift_2_does_not_know_the_flag_of_the_launcher(here: Path, launch: str, release: str, found: list[str]) -> None:
    (here / "run.sh").write_text(launch, encoding="utf-8")
    (here / "requirements.txt").write_text(f"ms-swift=={release}\n" if release else "", encoding="utf-8")
    lines = [line for line in check("run.sh").stdout.splitlines() if "DS973" in line]
    assert len(lines) == len(found)
    assert all(words in line for words, line in zip(found, lines, strict=True))


def test_arguments_that_a_comment_loses_are_told_once(folder: Folder) -> None:
    script = "torchrun train.py --lr 1 \\\n  # the data\n  --data-path x\n"
    folder.write({"train.py": PARSED % MUST + INITIALIZES, "ds.json": '{"train_batch_size": 8}', "run.sh": script})
    assert [code for code, _, _ in folder.found("run.sh") if code in ("DS973", "DS978")] == ["DS978"]


FIELDS = (
    "from dataclasses import dataclass, field\nfrom transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "@dataclass\nclass Model:\n    %s\n"
    "model, args = HfArgumentParser((Model, TrainingArguments)).parse_args_into_dataclasses()\nTrainer(model=net, args=args).train()\n"
)


@pytest.mark.parametrize(
    ("written", "words", "missing"),
    [
        ("path: str", "", "--path"),
        ("use_lora: bool", "", ""),
        ("use_lora: 'Optional[bool]'", "", ""),
        ("kind: typing.ClassVar[str]", "", ""),
        ("path: str = field(metadata={'aliases': ['--pp']})", "--pp x", ""),
        ("path: str = field(metadata={'help': 'x'})", "", "--path"),
        ("path: str = field(metadata={'help': 'x'})", "--path x", ""),
        ("path: str = field(metadata={'help': 'x'})", "--pa x", ""),
        ("path: str = field(metadata={'help': 'x'})", "$EXTRA_ARGS", ""),
        ("path: str = field(metadata={'help': 'x'})", "config.json", ""),
        ("path: str = field(default='x')", "", ""),
        ("path: list = field(default_factory=names)", "", ""),
        ("path: str = field(init=False)", "", ""),
        ("path: str = None", "", ""),
        ("path: str\n@dataclass\nclass Model(Model):\n    path: str = 'x'", "", ""),
        ("path: str = field(default='x')\n@dataclass\nclass Model(Model):\n    size: int = 1", "", ""),
        ("use_lora: bool\n@dataclass\nclass Model(Model):\n    size: int = 1", "", ""),
        ("path: str\n@dataclass\nclass Model(Model):\n    size: int = 1", "", "--path"),
    ],
)
def test_a_launch_lacks_a_field_without_a_default(folder: Folder, written: str, words: str, missing: str) -> None:
    folder.write({"train.py": FIELDS % written, "ds.json": '{"train_batch_size": "auto"}'})
    folder.write({"run.sh": f"torchrun --nproc_per_node 2 train.py --deepspeed ds.json --output_dir out {words}\n"})
    found = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS973"]
    error = f"the following arguments are required: {missing}"
    line = 6 + written.count("\n")
    expected = f'train.py is launched without {missing}: the parser of train.py:{line} ends each rank with "error: {error}".'
    assert found == ([expected] if missing else [])


def test_missing_fields_are_named_in_their_order(folder: Folder) -> None:
    folder.write({"train.py": FIELDS % "zeta: str\n    alpha: str\n    mid: str", "ds.json": '{"train_batch_size": "auto"}'})
    folder.write({"run.sh": "torchrun --nproc_per_node 2 train.py --deepspeed ds.json --output_dir out\n"})
    (found,) = [one.message for one in folder.diagnostics("run.sh") if one.code == "DS973"]
    assert found.startswith("train.py is launched without --zeta, --alpha and --mid: ")
    assert found.endswith('required: --zeta, --alpha, --mid".')


@pytest.mark.parametrize(
    ("flag", "found"),
    [("--zero-stage", True), ("--zero", True), ("--zero_stage", False), ("--zero-stages", False), ("--z", False)],
)
def test_a_parser_stores_its_own_flags_and_their_beginnings(tmp_path: Path, flag: str, *, found: bool) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse, deepspeed\nparser = argparse.ArgumentParser()\nparser.add_argument('--zero-stage', type=int, default=1)\n"
        "parser.add_argument('--zoom', type=int)\nargs = parser.parse_known_args()[0]\n"
        "config = {'train_batch_size': 8, 'zero_optimization': {'stage': args.zero_stage}}\n"
        "deepspeed.initialize(model=model, optimizer=optimizer, config=config)\n",
        encoding="utf-8",
    )
    script = tmp_path / "run.sh"
    script.write_text(f"deepspeed --num_gpus 4 train.py {flag} 7\n", encoding="utf-8")
    assert ("DS107" in check(str(script)).stdout) is found


_FLAGS = "deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 1 --output_dir out --do_train\n"


@pytest.mark.parametrize(
    ("program", "reads_json"),
    [
        ("import torch\nfrom deepspeed import DeepSpeedEngine\nengine = DeepSpeedEngine(\n", False),
        ("import torch, deepspeed\nfrom transformers import AutoModel\nprint(AutoModel)\n", False),
        ("from transformers import Trainer\ntrainer = Trainer(\n", True),
        ("from trl import *\nmain()\n", True),
        ("from .tuner import main\nmain()\n", True),
        ("import subprocess\nsubprocess.run('torchrun other.py')\n", True),
        (None, True),
    ],
)
def test_flags_of_the_trainer_show_no_trainer(tmp_path: Path, program: str | None, *, reads_json: bool) -> None:
    """A program that has them, and nothing that could bring a Trainer, does not read its config with Python's json."""
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2,}}', encoding="utf-8")
    (tmp_path / "run.sh").write_text(_FLAGS, encoding="utf-8")
    if program is not None:
        (tmp_path / "train.py").write_text(program, encoding="utf-8")
    assert ("raises JSONDecodeError" in check(str(tmp_path / "run.sh")).stdout) is reads_json


_FLAG = "parser = argparse.ArgumentParser()\nparser.add_argument('--deepspeed')\nargs = parser.parse_args()\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import argparse, torch\n" + _FLAG.replace("deepspeed", "model"), "on 2 ranks, with flags that name DeepSpeed config"),
        (
            "import argparse, deepspeed\n" + _FLAG + "deepspeed.initialize(model=m, config=args.deepspeed)\n",
            "on 2 ranks with DeepSpeed config",
        ),
        (
            "from transformers import *\nHfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n",
            "on 2 ranks with DeepSpeed config",
        ),
    ],
)
def test_a_program_without_deepspeed_is_not_said_to_train_with_the_config(tmp_path: Path, body: str, said: str) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 4}', encoding="utf-8")
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 2 main.py --deepspeed ds.json\n", encoding="utf-8")
    (tmp_path / "main.py").write_text(body, encoding="utf-8")
    assert said in " ".join(CliRunner().invoke(cli, ["check", str(tmp_path / "run.sh")]).output.split())
