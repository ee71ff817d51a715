"""What is static in a program is followed: every value of the config that it passes on, and nothing is executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dslint.cli import cli
from dslint.config.context import Context
from dslint.facts import NEWEST, Facts, Integration, Release
from dslint.frameworks.programs import read_python
from dslint.setups.program import read_program
from dslint.setups.read import read_setups
from dslint.source.tree import plain
from tests.setup.folder import Folder
from tests.setup.unknown_values import shown

HEAD = "import deepspeed, json, argparse, os\nfrom dataclasses import dataclass, field\n"
PASS = "\ndeepspeed.initialize(model=m, config=ds)\n"


def configs(text: str) -> list[Any]:
    """The configs that a program passes on; of a path, the path."""
    found = read_python(text, "train.py")
    assert found is not None
    return [plain(call.config) if call.config is not None else call.given.value for call in found.calls]


DICTS = {
    "ds = {'a': 1}\nds['b'] = {'c': 2}\nds['b']['d'] = 3": {"a": 1, "b": {"c": 2, "d": 3}},
    "ds = dict(a=1)\nds.update({'b': 2}, c=3)": {"a": 1, "b": 2, "c": 3},
    "base = {'a': 1, 'b': 1}\nds = base | {'b': 2}\nbase['a'] = 5": {"a": 1, "b": 2},
    "base = {'a': 1}\nds = {**base, 'b': 2}": {"a": 1, "b": 2},
    "ds = {'a': 1}\nds |= {'b': 2}": {"a": 1, "b": 2},
    "ds = {'a': 1, 'b': 2}\ndel ds['a']\nds.pop('b')\nds.setdefault('c', 3)": {"c": 3},
    "import copy\nbase = {'a': {'b': 1}}\nds = copy.deepcopy(base)\nbase['a']['b'] = 2": {"a": {"b": 1}},
    "n = 4\nds = {'a': n * 2, 'b': 5e8, 'c': int(2e8), 'd': f'cuda:{n}'}": {"a": 8, "b": 5e8, "c": 200000000, "d": "cuda:4"},
    "ds = {'a': compute(), 'b': 1}": {"a": "?", "b": 1},
    "ds = {'a': [1, compute()]}": {"a": [1, "?"]},
    "ds = {'a': 1 if compute() else 1, 'b': 1 if compute() else 2}": {"a": 1, "b": "?"},
    "ds = {'a': 1}\nif compute():\n    ds['a'] = 2\n    ds['b'] = 3\nelse:\n    ds['b'] = 3": {"a": "?", "b": 3},
    "ds = {'a': 1}\nif compute():\n    ds['b'] = 3": {"a": 1, "b": "?"},
    "ds = {'a': 1}\nif compute():\n    ds['a'] = 2\n    raise ValueError": {"a": 1},
    "ds = {'a': 1}\nfor n in range(3):\n    ds['a'] = n": {"a": 2},
    "ds = {'a': 1}\nfor n in compute():\n    ds['a'] = n": {"a": "?"},
    "ds = {'a': 1}\nds[compute()] = 2": {"a": "?"},
    "FLAG = False\nds = {'a': 1}\nif FLAG:\n    ds['a'] = 2": {"a": 1},
    "def make(stage=2, *, device='none'):\n    return {'stage': stage, 'device': device}\nds = make(3)": {"stage": 3, "device": "none"},
    "def make(offload):\n    cfg = {}\n    if offload:\n        cfg['d'] = 'cpu'\n    else:\n        cfg['d'] = 'none'\n    return cfg\n"
    "ds = make(True)": {"d": "cpu"},
    "def change(cfg):\n    cfg['a'] = 2\nds = {'a': 1}\nchange(ds)": {"a": 2},
    "def make(n):\n    return make(n)\nds = {'a': make(1)}": {"a": "?"},
    "class T:\n    size = 4\n    def __init__(self, n):\n        self.ds = {'n': n, 'size': self.size}\nds = T(2).ds": {"n": 2, "size": 4},
    "@dataclass\nclass C:\n    stage: int = 2\n    names: list = field(default_factory=list)\nc = C(stage=3)\nds = {'stage': c.stage}": {
        "stage": 3
    },
    "p = argparse.ArgumentParser()\np.add_argument('--bs', type=int, default=4)\np.add_argument('--lr', type=float)\n"
    "args = p.parse_args()\nds = {'bs': args.bs, 'lr': args.lr}": {"bs": 4, "lr": "?"},
    "ds = {'rank': os.environ['RANK'], 'n': int(os.environ.get('N', '2'))}": {"rank": "?", "n": 2},
    "ds = {'a': 1}\ntry:\n    import other\nexcept ImportError:\n    other = None": {"a": 1},
    "ds = {'a': 1}\nds['me'] = 2\nother = ds\nother['a'] = 3": {"a": 3, "me": 2},
    "with open('x.json', 'w') as f:\n    json.dump({'a': 1}, f)\nds = json.load(open('x.json'))\nds['b'] = 2": {"a": 1, "b": 2},
    "ds = json.loads('{\"a\": 1}')": {"a": 1},
    "ds = elsewhere()\nds['a'] = 1\nds['b']['c'] = 2\nds.update(d=3)": {"a": 1, "b": {"c": 2}, "d": 3},
    "ds = None or {'a': 1}": {"a": 1},
}


@pytest.mark.parametrize("program", DICTS)
def test_dicts(program: str) -> None:
    assert shown(configs(HEAD + program + PASS)) == [DICTS[program]]


CALLS = {
    "deepspeed.initialize(config='a.json')": ["a.json"],
    "deepspeed.initialize(config=None, config_params={'a': 1})": [{"a": 1}],
    "p = deepspeed.add_config_arguments(argparse.ArgumentParser())\ndeepspeed.initialize(args=p.parse_args())": [],
    "p = argparse.ArgumentParser()\np.add_argument('--deepspeed_config', default='a.json')\ndeepspeed.initialize(args=p.parse_args())": [
        "a.json"
    ],
    "if compute():\n    deepspeed.initialize(config={'a': 1})\nelse:\n    deepspeed.initialize(config={'a': 2})": [{"a": 1}, {"a": 2}],
    "def train():\n    deepspeed.initialize(config={'a': 1})\nif __name__ == '__main__':\n    train()": [{"a": 1}],
    "class T:\n    def __init__(self):\n        self.ds = {'a': 1}\n    def run(self):\n        deepspeed.initialize(config=self.ds)": [
        {"a": 1}
    ],
    "p = argparse.ArgumentParser()\np.add_argument('--ds', action='store_true')\nif p.parse_args().ds:\n"
    "    deepspeed.initialize(config={'a': 1})": [{"a": 1}],
    "from transformers import TrainingArguments\nTrainingArguments('o', deepspeed={'a': 1})": [{"a": 1}],
    "from optimum.habana.trl import GaudiDPOConfig\nGaudiDPOConfig(output_dir='o', deepspeed='a.json')": ["a.json"],
    "from lib import TrainerConfig\nTrainerConfig(model=model, scheduler=scheduler, deepspeed={'a': 1})": [],
    "from accelerate import Accelerator, DeepSpeedPlugin\nAccelerator(mixed_precision='bf16', deepspeed_plugin=DeepSpeedPlugin(zero_stage=3))": [
        {
            "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "zero_optimization": {"stage": 3},
            "bf16": {"enabled": True},
        }
    ],
    "from lightning.pytorch.strategies import DeepSpeedStrategy\nDeepSpeedStrategy(stage=3, offload_optimizer=True)": [
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
    ],
    "import lightning as L\nL.Trainer(strategy='deepspeed_stage_2', precision='16-mixed')": [
        {"zero_optimization": {"stage": 2}, "fp16": {"enabled": True}}
    ],
    "from transformers.integrations import HfDeepSpeedConfig\nds = {'a': 1}\nhf = HfDeepSpeedConfig(ds)\ndeepspeed.initialize(config=ds)": [
        {"a": 1}
    ],
    "from transformers.integrations import HfDeepSpeedConfig\nhf = HfDeepSpeedConfig({'a': 1})": [{"a": 1}],
    "import deepspeed\nwith deepspeed.zero.Init(config_dict_or_path={'a': 1}):\n    model = Model()": [{"a": 1}],
    "with deepspeed.zero.Init(config_dict_or_path={'a': 1}):\n    model = Model()\ndeepspeed.initialize(config={'b': 2})": [{"b": 2}],
    "from deepspeed.runtime.config import DeepSpeedConfig\nDeepSpeedConfig('a.json')": ["a.json"],
    "ds = {'a': 1} if compute() else elsewhere()\ndeepspeed.initialize(config=ds)": [{"a": 1}],
    "ds = 'a.json' if compute() else 'b.json'\ndeepspeed.initialize(config=ds)": ["a.json", "b.json"],
    "if compute():\n    ds = {'a': 1}\nelse:\n    ds = elsewhere()\n    ds['b'] = 2\ndeepspeed.initialize(config=ds)": [{"a": 1}, {"b": 2}],
    "deepspeed.initialize(config={'a': 1})\nsys.exit(0)!!": [{"a": 1}],
    "args = {'output_dir': 'o', 'learning_rate': 1e-4}\nargs['deepspeed'] = 'a.json'\nlaunch(' '.join(args))": ["a.json"],
    "n = int(os.environ.get('WORLD_SIZE', '1'))\ndeepspeed.initialize(config={'train_batch_size': 4 * n})": [{"train_batch_size": "?"}],
    "from ray.train.torch import TorchTrainer\ndef loop(config):\n    deepspeed.initialize(config=config['ds'])\n"
    "TorchTrainer(loop, train_loop_config={'ds': {'a': 1}})": [{"a": 1}],
}


@pytest.mark.parametrize("program", CALLS)
def test_calls(program: str) -> None:
    assert shown(configs(HEAD + program + "\n")) == CALLS[program]


def test_a_config_from_several_files(folder: Folder) -> None:
    """A dict that a module of the project builds from a JSON file: each finding is in the file of its value."""
    folder.write(
        {
            "train.py": "import deepspeed\nfrom lib.ds import make\nds = make(2)\nds['zero_optimization']['stage3_max_live'] = 1\n"
            "deepspeed.initialize(model=m, config=ds)\n",
            "lib/ds.py": "import json\ndef make(stage):\n    ds = json.load(open('base.json'))\n    ds['zero_optimization'] = {'stagee': stage}\n"
            "    return ds\n",
            "base.json": '{"train_micro_batch_size_per_gpu": 1,\n "gradient_cliping": 1.0}\n',
        }
    )
    found = {(code, path, line) for code, path, line in folder.found("train.py") if code.startswith("DS10")}
    places = {(path, line) for _, path, line in found}
    assert {("train.py", 4), ("lib/ds.py", 4), ("base.json", 2)} <= places


def test_an_import_that_may_raise_is_all_that_is_tried(folder: Folder) -> None:
    """The imported module reads a key that a dict may lack, and the `try` statement has no expression that could stand for it."""
    folder.write(
        {
            "train.py": "import deepspeed\ntry:\n    import rates\nexcept KeyError:\n    rates = None\n"
            "deepspeed.initialize(model=m, config={'train_batch_size': 8, 'stage': 2})\n",
            "rates.py": "from unknown import more\nvalues = {'a': 1}\nvalues.update(more())\nrate = values['rate']\n",
        }
    )
    assert {code for code, _, _ in folder.found("train.py")} == {"DS102"}


def test_a_json_file_that_the_program_does_not_change_is_judged_itself(folder: Folder) -> None:
    folder.write({"ds.json": '{"zero_optimization": {"stage": "x"}}', "train.py": HEAD + "ds = json.load(open('ds.json'))" + PASS})
    assert any(path == "ds.json" for _, path, _ in folder.found("train.py"))


def test_a_notebook_is_read_by_cells(folder: Folder) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# training"]},
        {"cell_type": "code", "source": ["!pip install deepspeed\n", "import deepspeed\n", "ds = {'a': 1}"]},
        {"cell_type": "code", "source": "ds['zero_optimization'] = {\n 'stagee': 3}\ndeepspeed.initialize(model=m, config=ds)"},
    ]
    folder.write({"train.ipynb": json.dumps({"cells": cells, "nbformat": 4})})
    assert ("DS101", "train.ipynb:cell 3", 2) in set(folder.found("train.ipynb"))


def test_a_notebook_is_not_edited(folder: Folder) -> None:
    """Positions are those in a cell, and not in the file."""
    source = "import deepspeed\ndeepspeed.initialize(model=m, config={'zero_optimization': {'stagee': 3}})"
    folder.write({"one.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": source}]}), "one.py": source})
    assert [d.path for d in folder.diagnostics("one.py") if d.code == "DS101" and d.fix] == ["one.py"]
    assert [(d.path, d.fix) for d in folder.diagnostics("one.ipynb") if d.code == "DS101"] == [("one.ipynb:cell 1", None)]


LAUNCHING = {
    "a line": ["!deepspeed train.py \\\n  --deepspeed_config ds.json\n"],
    "a line below Python": ["import os\nif True:\n    !deepspeed train.py --deepspeed_config ds.json\n"],
    "a cell of bash": ["%%bash\nC=ds.json\ndeepspeed train.py --deepspeed_config $C\n"],
    "a program in a cell": ["%%writefile other.py\nprint(1)\n", "!deepspeed --num_gpus={n} other.py --deepspeed_config ds.json"],
}


@pytest.mark.parametrize("name", LAUNCHING)
def test_a_notebook_launches(folder: Folder, name: str) -> None:
    cells = [{"cell_type": "code", "source": source} for source in LAUNCHING[name]]
    folder.write({"ds.json": '{"zero_optimization": {"stagee": 2}}', "run.ipynb": json.dumps({"cells": cells})})
    assert ("DS101", "ds.json", 1) in folder.found("run.ipynb")


WRITING = {
    "%%writefile": '%%writefile ds.json\n{\n "zero_optimization": {"stagee": 2}\n}',
    "a here-document": '%%bash\ncat <<\'EOT\' > ds.json\n{"zero_optimization": {"stagee": 2}}\nEOT\n',
}


@pytest.mark.parametrize("name", WRITING)
def test_a_config_that_a_cell_writes(folder: Folder, name: str) -> None:
    for use in ("!deepspeed train.py --deepspeed_config ds.json", "import deepspeed\ndeepspeed.initialize(config='ds.json')"):
        cells = [{"cell_type": "code", "source": source} for source in (WRITING[name], use)]
        folder.write({"run.ipynb": json.dumps({"cells": cells})})
        assert ("DS101", "run.ipynb:cell 1", 3) in folder.found("run.ipynb")


def test_reports_for_code_hosts_name_the_file_of_a_cell(folder: Folder) -> None:
    source = "import deepspeed\ndeepspeed.initialize(model=m, config={'zero_optimization': {'stagee': 3}})"
    folder.write({"one.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": source}]})})
    log = json.loads(CliRunner().invoke(cli, ["check", "one.ipynb", "--output-format", "sarif"]).stdout)
    (place,) = next(one for one in log["runs"][0]["results"] if one["ruleId"] == "DS101")["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "one.ipynb"
    assert place["logicalLocations"] == [{"fullyQualifiedName": "cell 1, line 2"}]
    annotations = CliRunner().invoke(cli, ["check", "one.ipynb", "--output-format", "github"]).stdout
    assert "file=one.ipynb,title=DS101" in annotations
    gitlab = json.loads(CliRunner().invoke(cli, ["check", "one.ipynb", "--output-format", "gitlab"]).stdout)
    assert {one["location"]["path"] for one in gitlab} == {"one.ipynb"}


def test_magics_are_left_out(folder: Folder) -> None:
    source = (
        "%pip install \\\n  'deepspeed' \\\n  torch\nimport deepspeed\ndeepspeed.initialize(config={'zero_optimization': {'stagee': 3}})"
    )
    folder.write({"run.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": source}]})})
    assert ("DS101", "run.ipynb:cell 1", 5) in folder.found("run.ipynb")
    assert folder.results("run.ipynb")["run.ipynb"].not_judged == ()


def test_databricks(folder: Folder) -> None:
    folder.write(
        {"train.py": f"# Databricks notebook source\n{HEAD}\n# COMMAND ----------\n\nds = {{'zero_optimization': {{'stagee': 3}}}}{PASS}"}
    )
    assert any(code == "DS101" and path == "train.py:cell 2" for code, path, _ in folder.found("train.py"))


REASONS = {
    "p = deepspeed.add_config_arguments(argparse.ArgumentParser())\ndeepspeed.initialize(args=p.parse_args())": "--deepspeed_config",
    "def run(ds):\n    deepspeed.initialize(config=ds)": "ds is an argument of run",
    "from elsewhere import make\ndeepspeed.initialize(config=make())": "elsewhere.make",
    "from elsewhere import make\nds = make()\nds['a'] = 1\ndeepspeed.initialize(config=ds)": "a part of the DeepSpeed config",
    "deepspeed.initialize(config={'a': 1})\nsys.exit(0)!!": "line 4 is not Python",
    "import transformers as t\nclass A(t.TrainingArguments):\n    x: int = 1\nt.HfArgumentParser((A,)).parse_args_into_dataclasses()": "--deepspeed",
}


@pytest.mark.parametrize("program", REASONS)
def test_a_config_that_is_not_in_the_program_is_named(program: str) -> None:
    read = read_program(HEAD + program + "\n", "train.py", "train.py", Context(Facts()), named=True)
    assert read is not None
    assert [REASONS[program] in one.reason for one in read.not_judged] == [True]


def test_of_a_config_that_is_known_in_part_no_key_is_certainly_absent(folder: Folder) -> None:
    program = "from elsewhere import make\nds = %s\nds['zero_optimization'] = {'stagee': 3}\ndeepspeed.initialize(config=ds)\n"
    folder.write({"part.py": HEAD + program % "make()", "whole.py": HEAD + program % "{}"})
    assert {code for code, _, _ in folder.found("part.py")} & {"DS101", "DS204"} == {"DS101"}
    assert {code for code, _, _ in folder.found("whole.py")} & {"DS101", "DS204"} == {"DS101", "DS204"}


def test_nothing_is_executed(tmp_path: Path) -> None:
    """Every way in which reading could run something touches a file."""
    mark = tmp_path / "ran"
    touch = f"open({str(mark)!r}, 'w').write('x')"
    module = tmp_path / "side.py"
    module.write_text(f"{touch}\ndef make():\n    {touch}\n    return {{'a': 1}}\n")
    program = (
        f"import deepspeed, os, side\n{touch}\nos.system('touch {mark}')\nexec({touch!r})\neval({touch!r})\n"
        f"class M(type):\n    def __new__(c, *a):\n        {touch}\nclass C(metaclass=M):\n    def __init__(self):\n        {touch}\nC()\n"
        f"__import__('side')\nx = [{touch} for _ in range(2)]\n@{'C'}\ndef f(a={touch}):\n    {touch}\nf()\n"
        f"deepspeed.initialize(model=m, config={{**side.make(), 'b': {touch}}})\n"
    )
    file = tmp_path / "train.py"
    file.write_text(program)
    read = read_program(program, str(file), "train.py", Context(Facts()), named=True)
    assert read is not None
    assert [shown(plain(one.config.root)) for one in read.setups if one.config and one.config.root] == [{"a": 1, "b": "?"}]
    assert not mark.exists()


def test_nothing_that_a_program_reads_or_runs_is_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, YAML with tags of Python, configs of Hydra, and the shell lines of a notebook."""
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "ran"
    (tmp_path / "evil.yaml").write_text(f"a: !!python/object/apply:os.system ['touch {mark}']\nb: ${{oc.eval:touch}}\n")
    program = (
        f"import click, deepspeed, fire, hydra, os, subprocess, yaml\nfrom functools import partial\nfrom multiprocessing import Process\n"
        f"subprocess.run(['touch', {str(mark)!r}])\nsubprocess.Popen('deepspeed t.py; touch {mark}', shell=True)\nos.popen('touch {mark}')\n"
        f"ds = yaml.unsafe_load(open('evil.yaml'))\nopen({str(mark)!r}, 'w').write('x')\nProcess(target=open, args=({str(mark)!r}, 'w')).start()\n"
        f"partial(open, {str(mark)!r}, 'w')()\nf = '{{0.__class__}}'.format(1)\n"
        f"@hydra.main(config_path='.', config_name='evil')\n@click.option('--a', default=open({str(mark)!r}, 'w'))\n"
        f"def main(cfg):\n    deepspeed.initialize(config={{**cfg, 'a': 1}})\nfire.Fire(main)\n"
    )
    cells = [{"cell_type": "code", "source": f"!touch {mark}\n%run touch.py\n" + program}]
    cells.append({"cell_type": "code", "source": f"%%bash\ntouch {mark}\ndeepspeed $(touch {mark}) train.py --deepspeed_config ds.json"})
    cells.append({"cell_type": "markdown", "source": f"```bash\ntouch {mark}; deepspeed t.py\n```"})
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    for name in ("train.py", "n.ipynb"):
        assert read_setups((tmp_path / name).read_text(), name, name, Context(Facts()), named=True) is not None
    assert not mark.exists()


BOMBS = {
    "calls": "def f0(): return {'a': 1}\n"
    + "".join(f"def f{n}(): return {{'a': f{n - 1}(), 'b': f{n - 1}()}}\n" for n in range(1, 60))
    + "ds = f59()",
    "sharing": "d0 = {'a': 1}\n" + "".join(f"d{n} = {{'a': d{n - 1}, 'b': d{n - 1}}}\n" for n in range(1, 60)) + "ds = d59",
    "text": "s = 'x' * 1000\n" + "s = s + s\n" * 200 + "ds = {'a': s}",
    "number": "n = 9\n" + "n = n ** 9\n" * 200 + "ds = {'a': n}",
    "circle": "ds = {'a': 1}\nds['me'] = ds",
    "branches": "ds = {'a': 1}\n" + "if c():\n    ds['a'] = 2\n" * 300,
    "lists": "l = [1]\n" + "l = l + l\n" * 60 + "ds = {'a': l}",
    "joined": "s = 'x' * 900\n" + "s = s.join([s, s, s])\n" * 60 + "ds = {'a': s}",
    "formatted": "s = '{0}' * 900\n" + "s = s.format(s)\n" * 60 + "ds = {'a': s}",
    "replaced": "s = 'x' * 90\n" + "s = s.replace('x', s)\n" * 60 + "ds = {'a': s}",
    "padded": "ds = {'a': '%999999999d' % 1, 'b': f'{1:>999999999}', 'c': '{:99999999}'.format(1), 'd': '1'.zfill(10**9), 'e': 9**99**99}",
    "loops": "".join(f"{' ' * n}for i{n} in range(40):\n" for n in range(15)) + " " * 15 + "ds = {'a': i0}",
    "comprehensions": "ds = {'a': [0 " + " ".join(f"for i{n} in range(40)" for n in range(9)) + "]}",
    "recursion": "def f(n):\n    return [f(n), f(n), f(n)]\nds = {'a': f(1)}",
    "objects": "class C:\n    def __init__(self):\n        self.me = self\nds = vars(C())",
    "shared": "from dataclasses import asdict\n@dataclass\nclass D:\n    a: object\n    b: object\nd = D(1, 2)\n"
    + "d = D(d, d)\n" * 60
    + "ds = asdict(d)",
    "depth": "ds = {'a': 1}\n" + "".join(f"{' ' * n}if c():\n" for n in range(60)) + " " * 60 + "ds['a'] = 2",
    "nesting": "ds = {'a': " + "(" * 80 + "1" + ")" * 80 + "}",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_reading_is_bounded(name: str) -> None:
    found = read_python(HEAD + BOMBS[name] + PASS, "train.py")
    assert found is None or len(found.calls) <= 1


def test_what_is_left_out_of_a_program_that_is_too_large_has_its_line() -> None:
    read = read_program(HEAD + BOMBS["loops"] + PASS, "train.py", "train.py", Context(Facts()), named=True)
    assert read is not None
    (left,) = read.not_judged
    assert left.range is not None
    assert f"line {left.range.start.line}. Check" in left.reason


def test_recursion_over_what_is_not_known_does_not_use_up_the_steps() -> None:
    hides = """def hide(value, path):
    if isinstance(value, dict):
        return {key: hide(one, key) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(hide(one, path) for one in value)
    return [hide(one, path) for one in value] if isinstance(value, list) else value
"""
    text = hides + HEAD + "".join(f"hide(load({n}), name())\n" for n in range(40)) + 'ds = {"train_batch_size": 8}' + PASS
    read = read_program(text, "train.py", "train.py", Context(Facts()), named=True)
    assert read is not None
    assert not read.not_judged
    assert len(read.setups) == 1


@pytest.mark.parametrize(
    ("rest", "codes"),
    [
        ("", []),
        ("accelerator.save_model(model, 'out')\n", ["DS819"]),
        ("accelerator.get_state_dict(model)\n", ["DS819"]),
        ("accelerator.save_state('out')\n", []),
        ("names = ['stage3_gather_16bit_weights_on_model_save', 'state_dict']\n", []),
    ],
)
def test_a_program_that_saves_no_model_needs_no_gathered_weights(folder: Folder, rest: str, codes: list[str]) -> None:
    program = (
        "from accelerate import Accelerator, DeepSpeedPlugin\naccelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(zero_stage=3))\n"
    )
    folder.write({"train.py": program + "model = accelerator.prepare(model)\n" + rest})
    assert [code for code, _, _ in folder.found("train.py") if code == "DS819"] == codes


@pytest.mark.parametrize(
    ("rest", "judged"),
    [
        ("model.eval()\nwith torch.no_grad():\n    print(model(batch))\nmodel.train()\n", False),
        ("engine.eval()\nengine(batch)\nengine.backward(loss)\n", True),
        ("from loop import run\nengine.eval()\nrun(engine)\n", True),
        ("", True),  # another file may import it, and train
    ],
)
def test_the_schedule_of_a_program_that_only_evaluates_does_nothing(folder: Folder, rest: str, *, judged: bool) -> None:
    optimizer = "'optimizer': {'type': 'AdamW', 'params': {'lr': 1e-4}}"
    schedule = "'scheduler': {'type': 'WarmupDecayLR', 'params': {'warmup_num_steps': 10, 'total_num_steps': 5, 'warmup_max_lr': 1e-4}}"
    program = f"import deepspeed, torch\nds = {{'train_micro_batch_size_per_gpu': 4, {optimizer}, {schedule}}}\n"
    call = "engine, *_ = deepspeed.initialize(model=model, model_parameters=p, config=ds)\n"
    folder.write({"run.py": program + call + rest, "loop.py": "def run(engine):\n    engine.step()\n"})
    assert ("DS635" in {code for code, _, _ in folder.found("run.py")}) is judged


def test_an_optimizer_is_ascribed_to_the_program_only_if_there_is_one(folder: Folder) -> None:
    config = '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
    calling = "import deepspeed\ndeepspeed.initialize(model=m, optimizer=o, config='ds.json')\n"
    said = {}
    for name, files in (("without", {}), ("with", {"train.py": calling})):
        folder.write({"ds.json": config, "run.sh": "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n", **files})
        (found,) = (d for d in folder.diagnostics("run.sh" if name == "without" else "train.py") if d.code == "DS525")
        said[name] = found.message
    assert said["with"].startswith("The program passes the optimizer")
    assert said["without"].startswith("Without an optimizer section")


PLUGIN = "from accelerate import Accelerator, DeepSpeedPlugin\n"
GIVEN = (
    PLUGIN
    + "plugin = DeepSpeedPlugin(hf_ds_config={'zero_optimization': {'stage': 2}})\naccelerator = Accelerator(deepspeed_plugin=plugin)\n"
)
OF_STATE = "accelerator.state.deepspeed_plugin"
CHANGED = {
    f"{GIVEN}{OF_STATE}.deepspeed_config['train_batch_size'] = 8": {"zero_optimization": {"stage": 2}, "train_batch_size": 8},
    f"{GIVEN}if {OF_STATE} is not None:\n    {OF_STATE}.hf_ds_config.config['train_batch_size'] = 8": {
        "zero_optimization": {"stage": 2},
        "train_batch_size": 8,
    },
    f"{GIVEN}plugin.deepspeed_config.update(train_batch_size=8)\nplugin.deepspeed_config['zero_optimization']['stage'] = 3": {
        "zero_optimization": {"stage": 3},
        "train_batch_size": 8,
    },
    f"{GIVEN}if compute():\n    plugin.deepspeed_config['zero_optimization']['stage'] = 1\nelse:\n"
    "    plugin.deepspeed_config['zero_optimization']['stage'] = 3": {"zero_optimization": {"stage": "?"}},
    f"{GIVEN}print({OF_STATE}.deepspeed_config['zero_optimization'])": {"zero_optimization": {"stage": 2}},
    f"{PLUGIN}plugin = DeepSpeedPlugin(zero_stage=3)\nplugin.deepspeed_config['train_batch_size'] = 8\n"
    "plugin.deepspeed_config['zero_optimization']['overlap_comm'] = False": {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_optimization": {"stage": 3, "overlap_comm": False},
    },
    f"{PLUGIN}plugin = DeepSpeedPlugin()\nplugin.deepspeed_config.update({{'train_batch_size': 8}})": {
        "train_batch_size": 8,
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_optimization": {"stage": 2},
    },
}


@pytest.mark.parametrize("program", CHANGED)
def test_a_program_changes_the_config_of_a_plugin(program: str) -> None:
    assert shown(configs(program + "\n")) == [CHANGED[program]]


def test_a_program_changes_the_file_of_a_plugin(folder: Folder) -> None:
    plugin = PLUGIN + "accelerator = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config='ds.json'))\n"
    changed = plugin + f"{OF_STATE}.deepspeed_config['train_micro_batch_size_per_gpu'] = args.n\n"
    folder.write({"ds.json": '{"zero_optimization": {"stagee": 2}}', "as_it_is.py": plugin, "changed.py": changed})
    assert {code for code, path, _ in folder.found("as_it_is.py") if path == "ds.json"} == {"DS101", "DS204"}
    assert {code for code, path, _ in folder.found("changed.py") if path == "ds.json"} == {"DS101"}


def test_of_two_plugins_the_program_selects_one(folder: Folder) -> None:
    first = "one = DeepSpeedPlugin(hf_ds_config={'zero_optimization': {'stage': 2}})\n"
    program = (
        PLUGIN + first + first.replace("one", "two") + f"accelerator = Accelerator()\n{OF_STATE}.deepspeed_config['train_batch_size'] = 8\n"
    )
    folder.write({"train.py": program})
    assert [line for code, _, line in folder.found("train.py") if code == "DS204"] == [2, 3]


def test_the_function_that_a_distributor_runs_decides_who_loads_the_config(folder: Folder) -> None:
    program = (
        "from pyspark.ml.deepspeed.deepspeed_distributor import DeepspeedTorchDistributor\n"
        "DeepspeedTorchDistributor(numGpus=2, deepspeedConfig={'train_batch_size': 8, 'bf16': {'enabled': 'auto'}}).run(train)\n"
    )
    folder.write({"train.py": program})
    (found,) = (d for d in folder.diagnostics("train.py") if d.code == "DS901")
    assert not found.certain


CLIENT = (
    "import torch\nopt = torch.optim.AdamW(m.parameters())\n"
    "deepspeed.initialize(model=m, optimizer=opt, config={'train_batch_size': 1, 'optimizer': {'type': 'Adam', 'params': {'lr': 1e-4, 'warmup': 3}}%s})\n"
)
OFFLOAD = ", 'zero_optimization': {'stage': 2, 'offload_optimizer': {'device': 'cpu'}}"


ENGINES = "import argparse, deepspeed, torch\nargs = deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_args()\n"


@pytest.mark.parametrize(
    ("second", "is_found"),
    [
        ("optimizer=torch.optim.Adam(generator.parameters()), model=generator", True),
        ("optimizer=torch.optim.SGD(generator.parameters()), model=generator", False),
        ("model=generator", False),
    ],
)
def test_several_engines_of_one_config_share_what_they_agree_on(folder: Folder, second: str, *, is_found: bool) -> None:
    first = "deepspeed.initialize(args=args, model=critic, optimizer=torch.optim.Adam(critic.parameters()))\n"
    folder.write(
        {
            "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "optimizer": {"type": "Adam"}}',
            "train.py": f"{ENGINES}{first}deepspeed.initialize(args=args, {second})\n",
            "run.sh": "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n",
        }
    )
    codes = {one.code for one in folder.diagnostics("run.sh")}
    assert ("DS525" in codes, "DS945" in codes) == (is_found, is_found)


def test_a_client_optimizer_replaces_the_section(folder: Folder) -> None:
    folder.write(
        {"train.py": HEAD + CLIENT % "", "own.py": HEAD + (CLIENT % "").replace("optimizer=opt, ", ""), "off.py": HEAD + CLIENT % OFFLOAD}
    )
    found = {name: {code for code, _, _ in folder.found(name)} for name in ("train.py", "own.py", "off.py")}
    assert {"DS609", "DS945"} & found["train.py"] == {"DS945"}
    assert {"DS609", "DS945"} & found["own.py"] == {"DS609"}
    assert "DS525" in found["off.py"]
    assert "DS525" not in found["train.py"] | found["own.py"]


BY_RANK = """import argparse, deepspeed, torch
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = deepspeed.add_config_arguments(parser).parse_args()
optimizer = torch.optim.Adam(model.parameters()) if args.local_rank == -1 else None
deepspeed.initialize(args=args, model=model, model_parameters=model.parameters(), optimizer=optimizer)
"""


@pytest.mark.parametrize(("flag", "expected"), [("", {"DS609"}), ("--no_local_rank ", {"DS945"})])
def test_the_default_of_the_rank_does_not_count_where_the_launcher_passes_it(folder: Folder, flag: str, expected: set[str]) -> None:
    config = '{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "wight_decay": 0.1}}}'
    command = f"deepspeed --num_gpus 2 {flag}train.py --deepspeed_config ds.json\n"
    folder.write({"ds.json": config, "train.py": BY_RANK, "run.sh": command})
    assert {code for code, _, _ in folder.found("run.sh")} & {"DS609", "DS945"} == expected


SCHEDULED = """import deepspeed, yaml
from torch.optim.lr_scheduler import LRScheduler

class Warm(LRScheduler):
    def __init__(self, optimizer):
        super().__init__(optimizer)

with open('ds.yml') as f:
    config = yaml.safe_load(f)
deepspeed.initialize(model=m, optimizer=opt, lr_scheduler=%s, config=config)
"""
IN_YAML = "train_batch_size: 8\nblock_size: 1024\nscheduler:\n  type: WarmupLR\n  params:\n    warmup_max_lr: 6e-4\n"


@pytest.mark.parametrize(("scheduler", "expected"), [("Warm(opt)", ["DS103", "DS945"]), ("None", ["DS103", "DS104"])])
def test_a_config_in_yaml_that_a_program_reads_is_judged_once(folder: Folder, scheduler: str, expected: list[str]) -> None:
    folder.write({"train.py": SCHEDULED % scheduler, "ds.yml": IN_YAML})
    found = [code for code, path, _ in folder.found("ds.yml", "train.py") if path == "ds.yml"]
    assert sorted(code for code in found if code in ("DS103", "DS104", "DS945")) == expected
    assert sorted(code for code, _, _ in folder.found("ds.yml") if code in ("DS103", "DS104", "DS945")) == ["DS103", "DS104"]


MMENGINE = """from torch.optim import AdamW

lr = 1e-4
optim_wrapper = dict(type='DeepSpeedOptimWrapper', optimizer=dict(type={optimizer}, lr=lr))
train_dataloader = dict(batch_size=4, dataset=dict())
strategy = dict(
    type='DeepSpeedStrategy',
    config=dict(gradient_accumulation_steps='auto', gradient_clipping='auto', fp16=dict(enabled=True), steps_per_print=5),
    gradient_accumulation_steps=16,
    gradient_clipping=1,
    inputs_to_half=['inputs'],
    zero_optimization=dict(stage=2, offload_optimizer=dict(device='cpu')))
"""


@pytest.mark.parametrize(
    ("optimizer", "severity"), [("'AdamW'", "error"), ("AdamW", "error"), ("'Own'", "info"), ("'DeepSpeedCPUAdam'", None)]
)
def test_a_file_with_settings_for_mmengine(folder: Folder, optimizer: str, severity: str | None) -> None:
    text = MMENGINE.format(optimizer=optimizer)
    (found,) = configs(text)
    assert found == {
        "fp16": {"enabled": True},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        "gradient_accumulation_steps": 16,
        "gradient_clipping": 1,
        "train_micro_batch_size_per_gpu": 4,
    }
    folder.write({"config.py": text})
    assert [d.severity for d in folder.diagnostics("config.py") if d.code == "DS525"] == ([severity] if severity else [])


def test_arguments_of_mmengine_count_more_than_its_file(folder: Folder) -> None:
    strategy = "strategy = dict(type='DeepSpeedStrategy', config='ds.json', zero_optimization=dict(stage=3), gradient_clipping=0.3)\n"
    program = (
        strategy
        + "optim_wrapper = dict(type='DeepSpeedOptimWrapper', optimizer=dict(type='AdamW'))\ntrain_dataloader = dict(batch_size=4)\n"
    )
    folder.write(
        {"config.py": program, "ds.json": '{"zero_optimization": {"stage": 1}, "gradient_clipping": 1.0, "fp16": {"enabled": true}}'}
    )
    shown = json.loads(CliRunner().invoke(cli, ["show", "config.py", "--output-format", "json"]).stdout)["keys"]
    values = {".".join(map(str, one["path"])): one["value"] for one in shown}
    names = ("zero_optimization.stage", "gradient_clipping", "fp16.enabled", "train_micro_batch_size_per_gpu")
    assert [values[name] for name in names] == [3, 0.3, True, 4]


def test_settings_for_mmengine_with_the_path_of_a_config(folder: Folder) -> None:
    folder.write(
        {"config.py": "strategy = dict(type='DeepSpeedStrategy', config='ds.json')\n", "ds.json": '{"zero_optimization": {"stage": 9}}'}
    )
    assert any(code == "DS107" and path == "ds.json" for code, path, _ in folder.found("config.py"))
    assert configs("strategy = dict(type='Other', zero_optimization=dict(stage=2))\n") == []


@pytest.mark.parametrize(
    ("start", "severity"),
    [
        ("import deepspeed\ndeepspeed.initialize(model=m, model_parameters=m.parameters(), config=ds)\n", "info"),
        ("from transformers import TrainingArguments\nTrainingArguments('out', deepspeed=ds)\n", "warning"),
    ],
)
def test_a_model_that_is_loaded_before_the_config_is_known(folder: Folder, start: str, severity: str) -> None:
    """Only the Trainer's arguments say that a partitioned model is expected."""
    load = "from transformers import AutoModelForCausalLM\nm = AutoModelForCausalLM.from_pretrained('model')\n"
    folder.write({"train.py": f"{load}ds = {{'train_batch_size': 8, 'zero_optimization': {{'stage': 3}}}}\n{start}"})
    assert [d.severity.value for d in folder.diagnostics("train.py") if d.code == "DS958"] == [severity]


@pytest.mark.parametrize(
    ("base", "early"),
    [
        ("", True),
        ("(trl.ModelConfig)", True),
        ("(transformers.TrainingArguments)", False),
        ("(trl.trainer.utils.OnPolicyConfig)", False),
        ("(trl.GKDConfig)", False),
        ("(lmflow.args.FinetunerArguments)", False),
        ("(base_of(3))", False),
    ],
)
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_what_may_tell_transformers_of_the_config(folder: Folder, base: str, *, early: bool, is_elsewhere: bool) -> None:
    own = f"from dataclasses import dataclass\nimport lmflow, transformers, trl, bases\nfrom bases import *\n\n@dataclass\nclass Own{base}:\n    a: int = 1\n"
    program = """
from accelerate import Accelerator
from transformers import AutoModelForCausalLM, HfArgumentParser
own, = HfArgumentParser(Own).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("m")
accelerator = Accelerator()
model = accelerator.prepare(model)
"""
    block = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\nnum_processes: 4\n"
    package = {"own/__init__.py": "from .config import Own\n", "own/config.py": own, "train.py": "from own import Own\n" + program}
    folder.write((package if is_elsewhere else {"train.py": own + program}) | {"acc.yaml": block})
    folder.write({"run.sh": "accelerate launch --config_file acc.yaml train.py\n"})
    assert ("DS958" in [code for code, *_ in folder.found("run.sh", "acc.yaml", "train.py")]) is early


@pytest.mark.parametrize("output", ["'o'", "output_dir='o'"])
def test_a_class_of_trl_takes_its_output_folder_by_position(folder: Folder, output: str) -> None:
    """All other arguments keep their defaults: a micro batch size of 8."""
    config = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
    program = (
        f"from trl import SFTConfig, SFTTrainer\nargs = SFTConfig({output}, deepspeed='ds.json')\nSFTTrainer('m', args=args).train()\n"
    )
    folder.write({"train.py": program, "ds.json": config})
    assert any(code == "DS904" for code, *_ in folder.found("train.py", "ds.json"))


REPLACED = "from dataclasses import replace\nfrom transformers import Trainer, TrainingArguments\nbase = TrainingArguments('o'%s)\n"


@pytest.mark.parametrize(
    ("base", "changes", "found"),
    [
        (", deepspeed='ds.json'", "per_device_train_batch_size=4", False),
        (", deepspeed='ds.json'", "seed=1", True),
        ("", "deepspeed='ds.json'", True),
        ("", "deepspeed='ds.json', per_device_train_batch_size=4", False),
        (", deepspeed='ds.json'", "**more", False),
    ],
)
def test_training_arguments_are_made_again_with_other_values(folder: Folder, base: str, changes: str, found: bool) -> None:
    """`dataclasses.replace` makes them as the class does; the default micro batch size is 8."""
    config = '{"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}'
    program = f"{REPLACED % base}args = replace(base, {changes})\nTrainer(model, args).train()\n"
    folder.write({"train.py": program, "ds.json": config})
    assert any(code == "DS904" for code, *_ in folder.found("train.py", "ds.json")) is found


def test_a_schedule_of_the_project_replaces_the_section(folder: Folder) -> None:
    """DeepSpeed does not read the section, and so does not raise for what is wrong in it."""
    own = "import deepspeed\nfrom torch.optim.lr_scheduler import LRScheduler\nclass Own(LRScheduler):\n    pass\n"
    section = "'scheduler': {'type': 'WarmupLR', 'params': {'warmup_min_lr': '6e-5', 'warmup_num_steps': 10}}"
    start = "deepspeed.initialize(model=m, optimizer=o, %sconfig={'train_batch_size': 8, " + section + "})\n"
    folder.write({"own.py": own + start % "lr_scheduler=Own(o), ", "none.py": own + start % ""})
    assert [code for code, _, _ in folder.found("own.py") if code in ("DS104", "DS945")] == ["DS945"]
    assert [code for code, _, _ in folder.found("none.py") if code in ("DS104", "DS945")] == ["DS104"]


RAY = (
    "import argparse, deepspeed, torch\nfrom ray.train import ScalingConfig\nfrom ray.train.torch import TorchTrainer\n\n"
    "parser = argparse.ArgumentParser()\nparser.add_argument('--workers', type=int, default=8)\nargs = parser.parse_args()\n\n"
    "def train(config):\n    model = torch.nn.Linear(2, 2)\n"
    "    deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config['ds'])\n\n"
    "TorchTrainer(train, scaling_config=ScalingConfig(%suse_gpu=True), train_loop_config={'ds': {'train_batch_size': 64}}).fit()\n"
)


@pytest.mark.parametrize(
    ("workers", "ranks"),
    [("num_workers=8, ", 8), ("num_workers=4 * 4, ", 16), ("num_workers=args.workers, ", None), ("num_workers=(2, 8), ", None), ("", None)],
)
def test_the_workers_of_ray_are_ranks(workers: str, ranks: int | None) -> None:
    read = read_program(RAY % workers, "train.py", "train.py", Context(), named=True)
    assert read is not None
    (gathered,) = read.setups
    assert gathered.facts.world_size == ranks


def test_a_precision_as_text_differs_from_any_argument(folder: Folder) -> None:
    folder.write({"ds.json": '{"train_batch_size": "auto", "fp16": {"enabled": "true"}, "zero_optimization": {"stage": 2}}'})
    for more in ("", ", fp16=True", ", fp16=args.half"):
        trainer = f"Trainer(model=model, args=TrainingArguments('out', deepspeed='ds.json'{more})).train()\n"
        folder.write({"train.py": f"from transformers import Trainer, TrainingArguments\n{trainer}"})
        (found,) = (one for one in folder.diagnostics("train.py") if one.code == "DS904")
        assert found.severity.value == "error"
        assert "fp16.enabled='true'" in found.message


def test_the_first_argument_of_training_arguments_is_the_output_folder(folder: Folder) -> None:
    """What else is not given has its default."""
    scheduler = '"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}'
    folder.write(
        {
            "ds.json": f'{{"train_micro_batch_size_per_gpu": "auto", {scheduler}}}',
            "train.py": 'from transformers import TrainingArguments\nTrainingArguments("out", deepspeed="ds.json", fp16=True)\n',
        }
    )
    facts = Facts(deepspeed=NEWEST, integration=Integration.TRANSFORMERS, loader_release=Release(4, 57, 6))
    assert "DS931" in {code for code, _, _ in folder.found("train.py", facts=facts)}


def test_a_file_outside_of_the_project_is_not_called_missing(folder: Folder) -> None:
    program = "import json, deepspeed\ndeepspeed.initialize(config=json.load(open('../ds.json')))\n"
    (folder.path.parent / "ds.json").write_text("{}", encoding="utf-8")
    folder.write({"train.py": program})
    (reason,) = folder.results("train.py")["train.py"].not_judged
    assert "../ds.json, which is outside this project" in reason.reason


@pytest.mark.parametrize(("between", "is_found"), [("", True), ("del args.deepspeed_config\n", False)])
def test_a_deleted_argument_is_not_a_second_config(folder: Folder, between: str, *, is_found: bool) -> None:
    program = (
        "import argparse, deepspeed, json\nparser = deepspeed.add_config_arguments(argparse.ArgumentParser())\nargs = parser.parse_args()\n"
        f"config = json.load(open(args.deepspeed_config))\n{between}deepspeed.initialize(args=args, model=m, config=config)\n"
    )
    folder.write({"train.py": program, "ds.json": '{"train_batch_size": 8}', "run.sh": "torchrun train.py --deepspeed_config ds.json\n"})
    assert ("DS959" in {one.code for one in folder.diagnostics("run.sh")}) == is_found


def test_a_rule_reads_the_loop_of_a_module(folder: Folder) -> None:
    """The loop tells which of two loaders trains, in a module as in the program itself, whether the config is in the program or in a file."""
    loop = (
        "from datasets import load_dataset\nfrom torch.utils.data import DataLoader\n\n\ndef fit(engine):\n"
        "    first = DataLoader(load_dataset('a'))\n    second = DataLoader(load_dataset('b'))\n"
        "    for batch in second:\n        engine.backward(engine(batch))\n        engine.step()\n"
    )
    program = "import deepspeed\nfrom loop import fit\nengine, *_ = deepspeed.initialize(model=model, config={})\nfit(engine)\n"
    config = '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}'
    folder.write({"loop.py": loop, "ds.json": config, "dict.py": program.format(config), "path.py": program.format("'ds.json'")})
    for name in ("dict.py", "path.py"):
        assert ("DS207", "loop.py", 7) in folder.found(name, facts=Facts(world_size=8))


@pytest.mark.parametrize(
    ("given", "written"), [("net", "model=net"), ("ds_config", "model=model, config=ds_config"), ("args", "model=model")]
)
def test_what_the_first_argument_of_initialize_was_meant_for(folder: Folder, given: str, written: str) -> None:
    folder.write({"train.py": f"import deepspeed\ndeepspeed.initialize({given}, config='ds.json')\n", "ds.json": '{"train_batch_size": 8}'})
    (found,) = [one for one in folder.diagnostics("train.py") if one.code == "DS667"]
    assert found.help == f"Write deepspeed.initialize({written}, ...)."
