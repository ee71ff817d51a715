"""A program that cannot reach a call with a config is told from one that can, by words: "no" is certain."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.evaluate.python import read
from dslint.evaluate.python.reach import may_call_into, may_take_config
from dslint.evaluate.python.sources import SourceFile
from dslint.frameworks.programs import read_python
from dslint.source.store import a_run
from tests.setup.folder import Folder

CALL = "import deepspeed\n\n\ndef start(model, config):\n    return deepspeed.initialize(model=model, config=config)\n"
CONFIG = "{'train_batch_size': 8}"

REACHES = {
    "itself": {"train.py": f"import deepspeed\ndeepspeed.initialize(model=m, config={CONFIG})\n"},
    "a module": {"engine.py": CALL, "train.py": f"from engine import start\n\n\ndef main():\n    start(m, {CONFIG})\n"},
    "two modules": {
        "engine.py": CALL,
        "middle.py": "import engine\n\n\ndef go(config):\n    engine.start(None, config)\n",
        "train.py": f"from middle import go\ngo({CONFIG})\n",
    },
    "another name": {
        "engine.py": "from deepspeed import initialize as begin\n\n\ndef start(config):\n    begin(model=m, config=config)\n",
        "train.py": f"from engine import start as run\nrun({CONFIG})\n",
    },
    "a module under another name": {"train.py": f"import deepspeed as ds\nds.initialize(model=m, config={CONFIG})\n"},
    "another name from a module": {
        "common.py": "import deepspeed as fast\n",
        "train.py": f"from common import fast\nfast.initialize(model=m, config={CONFIG})\n",
    },
    "a class": {
        "engine.py": f"import deepspeed\n\n\nclass Engine:\n    def __init__(self):\n        deepspeed.initialize(model=m, config={CONFIG})\n",
        "train.py": "import engine\n\n\ndef main():\n    return engine.Engine()\n",
    },
    "a class that is inherited from": {
        "engine.py": f"import deepspeed\n\n\nclass Base:\n    def start(self):\n        deepspeed.initialize(model=m, config={CONFIG})\n",
        "train.py": "from engine import Base\n\n\nclass Engine(Base):\n    def run(self):\n        self.start()\n",
    },
    "a package": {
        "tools/__init__.py": "from .engine import start\n",
        "tools/engine.py": CALL,
        "train.py": f"from tools import start\nstart(m, {CONFIG})\n",
    },
    "a package with the program's name": {
        "train/__init__.py": "from .engine import start\n",
        "train/engine.py": CALL,
        "train.py": f"from train import start\nstart(m, {CONFIG})\n",
    },
    "modules in a circle": {
        "one.py": "import two\n\n\ndef start(config):\n    two.start(None, config)\n",
        "two.py": "import one\n" + CALL,
        "train.py": f"from one import start\nstart({CONFIG})\n",
    },
    "all names of a module": {"engine.py": CALL, "train.py": f"from engine import *\nstart(m, {CONFIG})\n"},
    "a module of a module": {
        "engine.py": CALL,
        "tools.py": "import engine\n",
        "train.py": f"from tools import engine as e\ne.start(m, {CONFIG})\n",
    },
    "a module through all names of another": {
        "engine.py": CALL,
        "tools.py": "import engine\n",
        "train.py": f"from tools import *\nengine.start(m, {CONFIG})\n",
    },
    "a module of a package": {
        "tools/__init__.py": "",
        "tools/engine.py": CALL,
        "train.py": f"from tools import engine\nengine.start(m, {CONFIG})\n",
    },
    "getattr": {
        "engine.py": CALL,
        "train.py": f"import engine\nNAME = 'start'\n\n\ndef main():\n    getattr(engine, NAME)(m, {CONFIG})\n",
    },
    "an expression in a string": {"engine.py": CALL, "train.py": f'from engine import start\nprint(f"{{start(m, {CONFIG})}}")\n'},
    "a function under a condition": {
        "train.py": f"import sys, deepspeed\nif sys.argv:\n    def start(\n        model,\n    ):\n        deepspeed.initialize(config={CONFIG})\n"
    },
    "the main block": {"engine.py": CALL, "train.py": f"from engine import start\nif __name__ == '__main__':\n    start(m, {CONFIG})\n"},
    "a module that runs on import": {"engine.py": CALL + f"\n\nstart(m, {CONFIG})\n", "train.py": "import engine  # deepspeed\n"},
    "an import in a function": {
        "engine.py": CALL,
        "train.py": f"def main():\n    from engine import (\n        start,\n    )\n    start(m, {CONFIG})\n",
    },
    "an annotation": {
        "engine.py": f"import deepspeed\n\n\nclass Engine:\n    def start(self):\n        deepspeed.initialize(model=m, config={CONFIG})\n",
        "train.py": "from engine import Engine\n\n\ndef main(engine: Engine):\n    engine.start()\n",
    },
    "the Trainer": {"train.py": "from transformers import TrainingArguments\nTrainingArguments('out', deepspeed='ds.json')\n"},
    "arguments in a dict": {
        "train.py": "from transformers import TrainingArguments\nARGS = {'deepspeed': 'ds.json'}\nTrainingArguments(**ARGS)\n"
    },
    "an attribute": {
        "train.py": "from transformers import TrainingArguments\nargs = TrainingArguments('out')\nargs.deepspeed = 'ds.json'\n",
    },
    "a class of arguments": {
        "train.py": "from transformers import TrainingArguments, HfArgumentParser\n\n\nclass Mine(TrainingArguments):\n"
        "    deepspeed: str = 'ds.json'\n\n\nHfArgumentParser(Mine).parse_args_into_dataclasses()\n"
    },
    "Lightning by name": {"train.py": "import lightning as L\nL.Trainer(strategy='deepspeed_stage_3')\n"},
    "Accelerate": {"train.py": "from accelerate import DeepSpeedPlugin as P\nP(hf_ds_config='ds.json')\n"},
    "a variable": {"train.py": "ds_config = {'train_batch_size': 8, 'zero_optimization': {'stage': 2}}\n"},
    "a command": {"train.py": "import subprocess\nsubprocess.run(['deepspeed', 'a.py', '--deepspeed_config', 'ds.json'])\n"},
    "a command that a module runs": {
        "tools.py": "from subprocess import run as execute\n\n\ndef sh(command):\n    execute(command, shell=True)\n",
        "train.py": "from tools import sh\nsh('torchrun a.py --deepspeed ds.json')\n",
    },
    "a flag of argparse": {
        "train.py": "import argparse, deepspeed\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"
        "deepspeed.initialize(args=parser.parse_args(), model=m)\n"
    },
}


@pytest.mark.parametrize("how", REACHES)
def test_what_a_program_passes_on_is_reached(how: str, folder: Folder) -> None:
    folder.write(REACHES[how])
    text = REACHES[how]["train.py"]
    with a_run():
        found = read_python(text, "train.py")
        assert found is not None
        assert found.calls or found.unread or found.commands, "the example says nothing"
        assert may_take_config(text, "train.py")


DOES_NOT = {
    "an import": {"engine.py": CALL, "train.py": "from engine import start  # for others\n"},
    "another function of a module": {
        "engine.py": CALL + "\n\ndef log(text):\n    print(text)\n",
        "train.py": "from engine import log\nlog('deepspeed')\n",
    },
    "an annotation of a parameter that is not used": {
        "train.py": "def step(engine: 'deepspeed.DeepSpeedEngine') -> None:\n    engine.step()\n"
    },
    "documentation": {"train.py": 'def step(engine):\n    """See deepspeed.initialize(config=...)."""\n    engine.step()\n'},
    "a comment": {"train.py": "# deepspeed.initialize(config={})\nx = 1\n"},
    "a loss": {
        "train.py": "import deepspeed\n\n\ndef loss(model, batch):\n    with deepspeed.zero.GatheredParameters(model.w):\n        return model(batch)\n"
    },
    "a function of another module with the same name": {
        "engine.py": CALL,
        "tools.py": "from engine import start as begin\n\n\ndef start(app):\n    app.run()\n",
        "train.py": "from tools import start\nstart(app)  # deepspeed\n",
    },
    "the name of a method": {"engine.py": CALL, "train.py": "from engine import VERSION\napp.start(VERSION)  # deepspeed\n"},
    "the main block of a module": {
        "engine.py": CALL + f"\n\nif __name__ == '__main__':\n    start(m, {CONFIG})\n",
        "train.py": "import engine  # deepspeed\n",
    },
    "a list of names": {"engine.py": CALL, "train.py": "from engine import start\n__all__ = ['start']  # deepspeed\n"},
    "a message": {"engine.py": CALL, "train.py": "from engine import start\nprint('to start deepspeed, call start')\n"},
    "a comparison": {"train.py": "if backend == 'deepspeed':\n    print(kind['deepspeed'] == 1)\n"},
    "a config of transformers": {
        "train.py": "from transformers import GenerationConfig\n\n\ndef main(kwargs):\n    loaded = load(kwargs)\n    GenerationConfig(**loaded)\n"
    },
    "a command of a module": {
        "tools.py": "import subprocess\n\n\ndef version():\n    return subprocess.check_output([GIT, 'rev-parse'])\n",
        "train.py": "from tools import version\nNAMES = ['deepspeed']\nversion()\n",
    },
    "a command that is no launcher": {"train.py": "import subprocess\nsubprocess.run(['git', 'clone', 'deepspeed'])\n"},
    "an empty module": {"engine.py": "", "train.py": "import engine\nname = 'deepspeed'\n"},
}


@pytest.mark.parametrize("how", DOES_NOT)
def test_what_only_mentions_deepspeed_reaches_nothing(how: str, folder: Folder) -> None:
    folder.write(DOES_NOT[how])
    with a_run():
        assert not may_take_config(DOES_NOT[how]["train.py"], "train.py")


def test_a_program_that_imports_another_file_is_told_from_one_that_does_not(folder: Folder) -> None:
    folder.write({"engine.py": CALL, "train.py": REACHES["a module"]["train.py"], "other.py": REACHES["itself"]["train.py"]})
    with a_run():
        engine = str(Path("engine.py").resolve())
        assert may_call_into(REACHES["a module"]["train.py"], "train.py", engine)
        assert not may_call_into(REACHES["itself"]["train.py"], "other.py", engine)


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that are followed, in order."""
    found: list[str] = []

    def follow(parts: list[tuple[SourceFile, object]], *rest: object, **named: object) -> object:
        found.append(parts[0][0].shown)
        return original(parts, *rest, **named)  # type: ignore[arg-type]

    original = read.follow
    monkeypatch.setattr(read, "follow", follow)
    return found


def test_programs_that_reach_nothing_are_not_followed(folder: Folder, followed: list[str]) -> None:
    """Of a hundred programs that mention DeepSpeed the two are followed that pass a config, and each once."""
    loss = DOES_NOT["a loss"]["train.py"]
    folder.write({f"loss_{number}.py": f"from engine import VERSION\n{loss}# {number}\n" for number in range(100)})
    folder.write({"engine.py": CALL + "\n\nVERSION = 1\n", "train.py": REACHES["a module"]["train.py"].replace("main", "deepspeed_main")})
    CliRunner().invoke(cli, ["check", ".", "--isolated", "--jobs", "1"])
    assert sorted(followed) == ["engine.py", "train.py"]


TAKES_A_FLAG = """\
import argparse, deepspeed
parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
deepspeed.initialize(args=parser.parse_args(), model=m)
"""


def test_launches_of_other_programs_are_not_followed(folder: Folder, followed: list[str]) -> None:
    """Each of these scripts has the name of the program in it, and one launches it."""
    for number in range(20):
        launch = f"cd project_{number}\ndeepspeed train.py --deepspeed_config ds.json\n"
        folder.write({f"project_{number}/train.py": "import tool\n" + TAKES_A_FLAG, f"run_{number}.sh": launch})
        folder.write({f"project_{number}/tool.py": f"SIZE = {number}\n", f"project_{number}/ds.json": CONFIG.replace("'", '"')})
    for named in ("train", "tool"):
        followed.clear()
        result = CliRunner().invoke(cli, ["check", f"project_7/{named}.py", "--isolated"])
        assert "run_7.sh" in result.output, result.output
        assert set(followed) == {"project_7/train.py", f"project_7/{named}.py"}


def test_no_more_launches_are_followed_than_count(folder: Folder, followed: list[str]) -> None:
    launches = {f"run_{number:02}.sh": f"deepspeed train.py --size {number} --deepspeed_config ds.json\n" for number in range(30)}
    folder.write({"train.py": TAKES_A_FLAG, "ds.json": CONFIG.replace("'", '"'), **launches})
    CliRunner().invoke(cli, ["check", "train.py", "--isolated"])
    assert len(followed) == 1 + 12 + 1  # the program by itself, those that count, and one that says that there are more


def test_programs_without_a_launcher_are_not_read_for_their_commands(folder: Folder, followed: list[str]) -> None:
    runs = f"import deepspeed, subprocess\nsubprocess.run(['echo', 'train.py'])\nm = 0\ndeepspeed.initialize(model=m, config={CONFIG})\n"
    folder.write({"train.py": TAKES_A_FLAG, **{f"tool_{number}.py": runs for number in range(5)}})
    CliRunner().invoke(cli, ["check", "train.py", "--isolated"])
    assert followed == ["train.py"]


def test_a_broken_line_is_still_told(folder: Folder) -> None:
    folder.write({"train.py": "import deepspeed\nprint 'deepspeed'\n"})
    result = folder.results("train.py", named=False)["train.py"]
    assert [one.reason for one in result.not_judged] == ["line 2 is not Python and was left out."]
