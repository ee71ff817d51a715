"""Flags that click, typer, Fire or tyro refuse: those of the function are all that it knows. The libraries say so when asked."""

from __future__ import annotations

from tests.cases import table
from tests.setup.folder import Folder

TRAINS = "    transformers.Trainer(model, transformers.TrainingArguments('out'%s)).train()\n"
TYPER = "import transformers, typer\napp = typer.Typer()\n@app.command()\ndef main(corpus: str%s):\n" + TRAINS + "app()\n"
CLICK = (
    "import click, transformers\n@click.command(%s)\n@click.option('--rate', type=float)\n%sdef main(**given):\n" + TRAINS % "" + "main()\n"
)
FIRE = "import fire, transformers\ndef main(rate=1.0%s):\n" + TRAINS + "fire.Fire(main)\n"
TYRO = (
    "import transformers, tyro\nfrom dataclasses import dataclass\n@dataclass\nclass Options:\n    rate: float = 1.0\n%s"
    "options = tyro.cli(Options)\n" + TRAINS.strip() + "\n"
)
WITH = ", deepspeed=deepspeed"

ROWS = [
    ("typer", TYPER % ("", ""), "corpus", "No such option: --deepspeed"),
    ("typer, switch", TYPER % (", bf16: bool = False", ""), "corpus --no-bf16", "No such option: --deepspeed"),
    ("typer, flag of its own", TYPER % (", config: str = typer.Option('x', '--deepspeed')", ""), "corpus", ""),
    ("typer, parameter", TYPER % (", deepspeed: str = ''", WITH), "corpus", ""),
    (
        "typer, takes the rest",
        (TYPER % ("", "")).replace("app.command()", "app.command(context_settings={'ignore_unknown_options': 1})"),
        "c",
        "",
    ),
    ("typer, two commands", (TYPER % ("", "")).replace("app()", "@app.command()\ndef other():\n    pass\napp()"), "main c", ""),
    ("typer, words of its own", (TYPER % ("", "")).replace("app()", "app(args=['c'])"), "corpus", ""),
    (
        "typer.run",
        (TYPER % ("", "")).replace("@app.command()\n", "").replace("app()", "typer.run(main)"),
        "c",
        "No such option: --deepspeed",
    ),
    ("click", CLICK % ("", ""), "--rate 1", "No such option: --deepspeed"),
    ("click, help", CLICK % ("help='Trains.'", ""), "--rate 1", "No such option: --deepspeed"),
    ("click, option", CLICK % ("", "@click.option('--deepspeed')\n"), "--rate 1", ""),
    ("click, takes the rest", CLICK % ("context_settings=dict(ignore_unknown_options=True)", ""), "--rate 1", ""),
    ("click, cleaned before", "import sys\nsys.argv = sys.argv[:3]\n" + CLICK % ("", ""), "--rate 1", ""),
    ("fire", FIRE % ("", ""), "--rate 2", "Could not consume arg: --deepspeed"),
    ("fire, parameter", FIRE % (", deepspeed=None", WITH), "--rate 2", ""),
    ("fire, takes the rest", FIRE % (", **more", ""), "--rate 2", ""),
    ("tyro", TYRO % ("", ""), "--rate 2", "Unrecognized options: --deepspeed"),
    ("tyro, field", TYRO % ("    deepspeed: str = ''\n", ""), "--rate 2", ""),
]


@table("name, program, words, expected", ROWS, ids=lambda row: row[0])
def test_flag_of_the_config(name: str, program: str, words: str, expected: str, folder: Folder) -> None:
    config = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'
    run = f"torchrun --nproc_per_node 2 train.py {words} --deepspeed ds.json\n"
    folder.write({"ds.json": config, "train.py": program, "run.sh": run})
    found = [one for one in folder.diagnostics("run.sh") if one.code == "DS973"]
    assert (len(found), all(expected in one.message for one in found)) == (bool(expected), True)
