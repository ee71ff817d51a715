"""The folders in which a program finds its modules: those of PYTHONPATH in its launch, and the folder `src` of an installed project."""

from __future__ import annotations

from tests.cases import table
from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}'
NET = (
    "from transformers import AutoModelForCausalLM\n\ndef load():\n"
    "    return AutoModelForCausalLM.from_pretrained('m', device_map='auto')\n"
)
RIGHT = NET.replace(", device_map='auto'", "")
TRAIN = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\nfrom {} import load\n\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "trainer = Trainer(model=load(), args=args)\ntrainer.train()\n"
)
LAUNCH = "deepspeed --num_gpus 2 {} --deepspeed z3.json --output_dir o\n"


def codes(folder: Folder, files: dict[str, str]) -> set[str]:
    folder.write({"z3.json": CONFIG, **files})
    return {code for code, _, _ in folder.found("run.sh")} & {"DS946"}


@table(
    "script, program, found",
    [
        ("PYTHONPATH=lib deepspeed {}", "bin/train.py", True),
        ("env PYTHONPATH=lib deepspeed {}", "bin/train.py", True),
        ("export PYTHONPATH=$PWD/lib:$PYTHONPATH\ndeepspeed {}", "bin/train.py", True),
        ('export PYTHONPATH="${{PYTHONPATH}}:$(pwd)/lib"\ndeepspeed {}', "bin/train.py", True),
        ("export PYTHONPATH=/opt/tools:$TOOLS/lib:lib\ndeepspeed {}", "bin/train.py", True),
        ("cd bin\nPYTHONPATH=../lib deepspeed {}", "train.py", True),
        ("deepspeed {}", "bin/train.py", False),
        ("PYTHONPATH=lib\ndeepspeed {}", "bin/train.py", False),  # not exported
        ("PYTHONPATH=lib echo\ndeepspeed {}", "bin/train.py", False),
        ("export PYTHONPATH=docs:$PYTHONPATH\ndeepspeed {}", "bin/train.py", False),
        ("export PYTHONPATH=$TOOLS/lib\ndeepspeed {}", "bin/train.py", False),
    ],
)
def test_modules_are_found_in_the_folders_of_pythonpath(folder: Folder, script: str, program: str, found: bool) -> None:
    command = LAUNCH.removeprefix("deepspeed ").format(program)
    files = {"bin/train.py": TRAIN.format("net"), "lib/net.py": NET, "docs/other.py": "", "run.sh": script.format(command)}
    assert codes(folder, files) == ({"DS946"} if found else set())


def test_a_module_beside_the_program_comes_first(folder: Folder) -> None:
    script = "PYTHONPATH=lib " + LAUNCH.format("bin/train.py")
    assert codes(folder, {"bin/train.py": TRAIN.format("net"), "bin/net.py": RIGHT, "lib/net.py": NET, "run.sh": script}) == set()


PACKAGE = {"src/tool/__init__.py": "", "src/tool/net.py": NET, "src/tool/train.py": TRAIN.format("tool.net")}


@table(
    "script, files, found",
    [
        (LAUNCH.format("--module tool.train"), {"pyproject.toml": "[project]\nname = 'tool'\n"}, True),
        ("PYTHONPATH=src " + LAUNCH.format("--module tool.train"), {}, True),
        (LAUNCH.format("--module tool.train"), {}, False),  # nothing installs it: another package of that name may be meant
    ],
)
def test_a_package_of_the_project_is_launched_by_its_name(folder: Folder, script: str, files: dict[str, str], found: bool) -> None:
    (folder.path / "pyproject.toml").unlink(missing_ok=True)
    assert codes(folder, {**PACKAGE, **files, "run.sh": script}) == ({"DS946"} if found else set())
    said = [one.reason for one in folder.results("run.sh")["run.sh"].not_judged]
    assert any("the program is not in this project" in one for one in said) is not found
