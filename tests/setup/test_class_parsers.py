"""Programs whose parser makes an object of a dataclass: what tyro, draccus, pyrallis, simple_parsing and OmegaConf give for a command.

The values were compared with those of tyro 1.0, draccus 0.11, pyrallis 0.3 and simple_parsing 0.1; OmegaConf is asked here.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dslint.facts import Facts
from dslint.frameworks.loader import with_loaders
from dslint.setups.gather import reasons_of
from dslint.setups.open import open_text
from dslint.source.tree import plain
from dslint.source.unknown import UNKNOWN

_CLASSES = """import json
import sys
from dataclasses import dataclass, field
from typing import Optional

import deepspeed
{imports}


@dataclass
class Training:
    batch: int = 2
    bf16: bool = True
    overlap: bool = False
    steps: Optional[int] = None


@dataclass
class Args:
    clip: float = 1.0
    training: Training = field(default_factory=Training)

    def __post_init__(self):
        self.print_steps = 10


"""
_USE = """    config = {{"train_batch_size": {0}.training.batch, "bf16": {{"enabled": {0}.training.bf16}}, "gradient_clipping": {0}.clip}}
    config["zero_optimization"] = {{"stage": 2, "overlap_comm": {0}.training.overlap}}
    deepspeed.initialize(model=model, config=config)
"""
_FILE = "clip: 0.5\ntraining:\n  batch: 9\n"
_PLAIN = {
    "train_batch_size": 2,
    "bf16": {"enabled": True},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 2, "overlap_comm": False},
}


def _program(imports: str, parse: str) -> str:
    return _CLASSES.format(imports=imports) + f"def main():\n    args = {parse}\n" + _USE.format("args") + "\n\nmain()\n"


_TYRO = _program("import tyro", "tyro.cli(Args)")
_OF_FUNCTION = (
    _CLASSES.format(imports="import tyro") + "def main(args: Args, seed: int = 3) -> None:\n" + _USE.format("args") + "\n\ntyro.cli(main)\n"
)
_DRACCUS = _program("import draccus", "draccus.parse(Args)")
_PYRALLIS = _program("import pyrallis", "pyrallis.parse(config_class=Args)")
_WRAPPED = _CLASSES.format(imports="import draccus") + "@draccus.wrap()\ndef main(args: Args):\n" + _USE.format("args") + "\n\nmain()\n"
_SIMPLE = _program("from simple_parsing import parse", "parse(Args)")


def _config(folder: Path, program: str, words: str) -> Any:
    (folder / "train.py").write_text(program, encoding="utf-8")
    (folder / "run.yaml").write_text(_FILE, encoding="utf-8")
    script = f"torchrun --nproc_per_node 4 train.py {words}\n"
    (folder / "run.sh").write_text(script, encoding="utf-8")
    subject = open_text(script, str(folder / "run.sh"), with_loaders(Facts()))
    assert subject is not None
    (used,) = subject.configs
    assert used.loaded.document.root is not None
    return plain(used.loaded.document.root)


def _changed(**changes: Any) -> dict[str, Any]:
    places = {
        "batch": ("train_batch_size",),
        "bf16": ("bf16", "enabled"),
        "clip": ("gradient_clipping",),
        "overlap": ("zero_optimization", "overlap_comm"),
    }
    made = {name: dict(value) if isinstance(value, dict) else value for name, value in _PLAIN.items()}
    for name, value in changes.items():
        *above, last = places[name]
        (made[above[0]] if above else made)[last] = value
    return made


@pytest.mark.parametrize(
    ("program", "words", "changes"),
    [
        (_TYRO, "", {}),
        (_TYRO, "--training.batch 8", {"batch": 8}),
        (_TYRO, "--training.no-bf16 --training.overlap", {"bf16": False, "overlap": True}),
        (_TYRO, "--training.bf16 --clip 0.25", {"clip": 0.25}),
        (_OF_FUNCTION, "", {}),
        (_OF_FUNCTION, "--args.training.batch 8 --args.training.no-bf16 --seed 4", {"batch": 8, "bf16": False}),
        (_DRACCUS, "--training.batch 8 --training.bf16 false", {"batch": 8, "bf16": False}),
        (_DRACCUS, "--config_path run.yaml", {"batch": 9, "clip": 0.5}),
        (_DRACCUS, "--config_path run.yaml --training.batch 8", {"batch": 8, "clip": 0.5}),
        (_WRAPPED, "--config_path run.yaml --training.overlap true", {"batch": 9, "clip": 0.5, "overlap": True}),
        (_WRAPPED, "", {}),
        (_PYRALLIS, "--config_path run.yaml --training.batch 8", {"batch": 8, "clip": 0.5}),
        (_SIMPLE, "--batch 8", {"batch": 8}),
        (_SIMPLE, "--nobf16 --overlap", {"bf16": False, "overlap": True}),
        (_SIMPLE, "--bf16 false --clip 0.5", {"bf16": False, "clip": 0.5}),
        (_SIMPLE, "--bf16", {}),
    ],
)
def test_flags_and_files(tmp_path: Path, program: str, words: str, changes: dict[str, Any]) -> None:
    assert _config(tmp_path, program, words) == _changed(**changes)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (_DRACCUS, "--config_path missing.yaml"),
        (_TYRO.replace("tyro.cli(Args)", "tyro.cli(Args, args=words)"), ""),
        (_DRACCUS.replace("draccus.parse(Args)", "draccus.parse(Args, config_path=where)"), ""),
        (_SIMPLE.replace("parse(Args)", "parse(Args, add_config_path_arg=True)"), "--batch 8"),
        (_TYRO.replace("@dataclass\nclass Args", "@attrs.define\nclass Args"), ""),
    ],
)
def test_values_that_only_the_run_knows(tmp_path: Path, program: str, words: str) -> None:
    found = _config(tmp_path, program, words)
    assert found["train_batch_size"] is UNKNOWN
    assert found["bf16"]["enabled"] is UNKNOWN


_MERGED = _program(
    "from omegaconf import OmegaConf", 'OmegaConf.merge(OmegaConf.structured(Args), OmegaConf.load("run.yaml"), OmegaConf.from_cli())'
)


@pytest.mark.skipif(find_spec("omegaconf") is None, reason="no omegaconf")
@pytest.mark.parametrize("words", ["", "training.batch=8", "training.bf16=false clip=2", "clip=1e-1 training.overlap=true"])
def test_merged_as_omegaconf_does(tmp_path: Path, words: str) -> None:
    found = _config(tmp_path, _MERGED, words)
    asked = _MERGED.replace("import deepspeed\n", "").replace(
        "deepspeed.initialize(model=model, config=config)", "print(json.dumps(config))"
    )
    (tmp_path / "ask.py").write_text(asked, encoding="utf-8")
    ran = subprocess.run([sys.executable, "ask.py", *words.split()], cwd=tmp_path, capture_output=True, text=True, check=True)
    import json

    assert found == json.loads(ran.stdout)


@pytest.mark.parametrize("trainer", ["pytorch_lightning", "lightning.pytorch"])
def test_lightning_returns_the_parser_that_it_extends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str) -> None:
    """What the program added before is a flag of its launch."""
    monkeypatch.chdir(tmp_path)
    text = (
        f"import argparse\nimport {trainer} as pl\nfrom {trainer}.strategies import DeepSpeedStrategy\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--ds', default=None)\n"
        "parser = pl.Trainer.add_argparse_args(parser)\nargs = parser.parse_args()\n"
        "pl.Trainer(strategy=DeepSpeedStrategy(config=args.ds)).fit(net)\n"
    )
    (tmp_path / "fit.py").write_text(text, encoding="utf-8")
    opened = open_text(text, "fit.py", with_loaders(Facts()))
    assert opened is not None
    assert opened.trainings is not None
    assert any("--ds" in one.reason for one in reasons_of(opened.trainings))
