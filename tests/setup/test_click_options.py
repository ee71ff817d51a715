"""The values of options of click, Fire and typer: those of the launch, or else their defaults. Click itself says what each is."""

from __future__ import annotations

from typing import Any

import click

from dslint.facts import Facts
from dslint.facts.gpus import GPUS
from tests.cases import table
from tests.setup.folder import Folder

CONFIG = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}'
HEAD = (
    "import click, os, transformers\n"
    "def train(half, deepspeed):\n"
    "    options = transformers.TrainingArguments('out', bf16=half, deepspeed=deepspeed)\n"
    "    transformers.Trainer(model, options).train()\n"
)
OPTION = "@click.command(%s)\n@click.option('--deepspeed')\n@click.option(%s)\n"
MAIN = "def main(%s):\n    train(%s)\n"
PAIR = "'--half/--no-half', default=True"

ROWS = [
    ("default", "'--half', default=True", "", True, "found"),
    ("default of a type", "'--half', type=bool, default='1'", "", True, "found"),
    ("text that is off", "'--half', type=bool, default='off'", "", False, "silent"),
    ("not the default", "'--half', default=True", "--half off", False, "silent"),
    ("given", "'--half', default=False", "--half y", True, "found"),
    ("switch", "'--half', is_flag=True", "--half", True, "found"),
    ("switch left out", "'--half', is_flag=True", "", False, "silent"),
    ("pair", PAIR, "", True, "found"),
    ("pair, on", PAIR.replace("True", "False"), "--half", True, "found"),
    ("pair, off", PAIR, "--no-half", False, "silent"),
    ("name of its own", "'--use-bf16', 'half', default=True", "", True, "found"),
    ("short", "'-b', '--half', is_flag=True", "-b", True, "found"),
    ("variable", "'--half', default=True, envvar='HALF'", "", True, "silent"),
    ("callback", "'--half', default=True, callback=lambda c, p, v: False", "", False, "silent"),
]


@table("name, option, words, value, expected", ROWS, ids=lambda row: row[0])
def test_value_of_an_option(name: str, option: str, words: str, value: bool, expected: str, folder: Folder) -> None:
    seen: dict[str, Any] = {}
    exec(
        "import click\n" + OPTION % ("", option) + "def main(**given):\n    seen.update(given)\n",
        {"seen": seen, "click": click},
        space := {},
    )
    space["main"](words.split(), standalone_mode=False)
    assert seen["half"] is value
    for parameters, passed in (
        ("half, deepspeed", "half, deepspeed"),
        ("half, deepspeed", "half=half, deepspeed=deepspeed"),
        ("**all", "**all"),
    ):
        assert found(folder, OPTION % ("", option) + MAIN % (parameters, passed) + "main()\n", words) == (expected == "found"), parameters


def test_words_that_the_script_adds(folder: Folder) -> None:
    """A variable of the job may hold further flags."""
    assert not found(folder, OPTION % ("", "'--half', default=True") + MAIN % ("**all", "**all") + "main()\n", "$MORE")


OTHERS = [
    ("other words", OPTION % ("", PAIR) + MAIN % ("**all", "**all") + "main(['--no-half'])\n"),
    ("defaults elsewhere", OPTION % ("context_settings={'default_map': {'half': False}}", PAIR) + MAIN % ("**all", "**all") + "main()\n"),
    ("decorated", "@changed\n" + OPTION % ("", PAIR) + MAIN % ("**all", "**all") + "main()\n"),
    ("called with its own", OPTION % ("", PAIR) + MAIN % ("**all", "**all") + "main.callback(half=False, deepspeed='ds.json')\n"),
]


@table("name, program", OTHERS, ids=lambda row: row[0])
def test_default_that_may_not_count(name: str, program: str, folder: Folder) -> None:
    assert not found(folder, program, "")


OF_FUNCTIONS = [
    ("fire", "import fire\n%sfire.Fire(main)\n", "", True),
    ("fire, given", "import fire\n%sfire.Fire(main)\n", "--half=False", False),
    ("fire, switched off", "import fire\n%sfire.Fire(main)\n", "--nohalf", False),
    ("fire, a word", "import fire\n%sfire.Fire(main)\n", "False", False),
    ("fire, beginning", "import fire\n%sfire.Fire(main)\n", "-h=False", False),
    ("fire, words of its own", "import fire\n%sfire.Fire(main, command=['--nohalf'])\n", "", False),
    ("typer", "import typer\n%styper.run(main)\n", "", True),
    ("typer, switched off", "import typer\n%styper.run(main)\n", "--no-half", False),
]


@table("name, program, words, expected", OF_FUNCTIONS, ids=lambda row: row[0])
def test_default_of_a_parameter(name: str, program: str, words: str, expected: bool, folder: Folder) -> None:
    function = "def main(half: bool = True, deepspeed: str = None):\n    train(half, deepspeed)\n"
    assert found(folder, program % function, words) == expected


def found(folder: Folder, program: str, words: str) -> bool:
    """Whether a GPU without bf16 is reported for a training with `half`."""
    run = f"torchrun --nproc_per_node 2 train.py {words} --deepspeed ds.json\n"
    folder.write({"ds.json": CONFIG, "train.py": HEAD + program, "run.sh": run})
    return "DS323" in {one.code for one in folder.diagnostics("run.sh", facts=Facts(gpu=GPUS["v100"]))}
