"""The ways in which programs build a config: each is followed to its values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dslint.config.context import Context
from dslint.frameworks.programs import read_python
from dslint.setups.read import read_setups
from dslint.source.tree import plain
from dslint.source.unknown import UNKNOWN
from tests.setup.folder import Folder
from tests.setup.unknown_values import shown

HEAD = "import deepspeed, json, argparse, os, sys, yaml\nfrom dataclasses import dataclass, field, asdict\nfrom pathlib import Path\n"
PASS = "\ndeepspeed.initialize(model=m, config=ds)\n"
HF = "from transformers import TrainingArguments, HfArgumentParser, Trainer\n"


def configs(text: str) -> list[Any]:
    """The configs that a program passes on; of a path, the path."""
    found = read_python(text, "src/train.py", "src/train.py")
    assert found is not None
    return [shown(plain(call.config)) if call.config is not None else call.given.value for call in found.calls]


BUILT = {
    "class C:\n    N = 2\n    DS = {'z': {'stage': N}}\nds = C.DS": {"z": {"stage": 2}},
    "class T:\n    @property\n    def ds(self):\n        return {'a': 1}\nds = T().ds": {"a": 1},
    "class T:\n    n = 3\n    @classmethod\n    def ds(cls, x):\n        return {'a': x, 'n': cls.n}\nds = T.ds(1)": {"a": 1, "n": 3},
    "class B:\n    def __init__(self, n=1):\n        self.ds = {'n': n}\n"
    "class T(B):\n    def __init__(self):\n        super().__init__(n=5)\n        self.ds['m'] = 2\nds = T().ds": {"n": 5, "m": 2},
    "class B:\n    def __init__(self, n=1):\n        self.ds = {'n': n}\n"
    "class T(B):\n    def __init__(self, *a, **k):\n        super(T, self).__init__(*a, **k)\nds = T(n=5).ds": {"n": 5},
    "class C:\n    def __init__(self):\n        self.c = {'a': 1}\n    def more(self):\n        self.c['b'] = 2\n        return self\n"
    "ds = C().more().c": {"a": 1, "b": 2},
    "class C:\n    def __init__(self):\n        self.a = 1\nds = vars(C())": {"a": 1},
    "def f(**kw):\n    d = {'a': 0}\n    d.update(kw)\n    return d\nds = f(a=1, b=2)": {"a": 1, "b": 2},
    "def f(**kw):\n    d = {'a': 0}\n    d.update(kw)\n    return d\nds = f(**elsewhere)": {"a": "?"},
    "def f(*a):\n    return {'x': a[0]}\nds = f(1)": {"x": 1},
    "ds = {'a': 1, **elsewhere}": {"a": "?"},
    "@dataclass\nclass D:\n    a: int = 1\n    b: int = 2\nds = asdict(D(b=3))": {"a": 1, "b": 3},
    "@dataclass\nclass Z:\n    stage: int = 2\n@dataclass\nclass D:\n    z: Z = field(default_factory=Z)\nds = asdict(D())": {
        "z": {"stage": 2}
    },
    "p = argparse.ArgumentParser()\np.add_argument('--bs', type=int, default=4)\na = vars(p.parse_args())\nds = {'b': a['bs']}": {"b": 4},
    "p = argparse.ArgumentParser()\np.add_argument('--bs', type=int)\np.set_defaults(bs=8)\nds = {'b': p.parse_args().bs}": {"b": 8},
    "p = argparse.ArgumentParser()\np.add_argument('--bs', type=int)\nds = {'b': p.parse_args(['--bs', '8']).bs}": {"b": 8},
    "a = argparse.Namespace(n=1)\nsetattr(a, 'm', 2)\nds = {'n': a.n, 'm': getattr(a, 'm')}": {"n": 1, "m": 2},
    "ds = {}\nfor k in ('a', 'b'):\n    ds[k] = {'on': True}": {"a": {"on": True}, "b": {"on": True}},
    "ds = {}\nfor k in ('a', 'b'):\n    if compute():\n        break\n    ds[k] = 1": {},
    "base = {'a': 1, 'b': None}\nds = {k: v for k, v in base.items() if v is not None}": {"a": 1},
    "ds = {'a': [n * 2 for n in range(3)]}": {"a": [0, 2, 4]},
    "def merge(a, b):\n    for k, v in b.items():\n        if isinstance(v, dict) and k in a:\n            merge(a[k], v)\n        else:\n"
    "            a[k] = v\n    return a\nds = merge({'z': {'s': 1}, 'x': 1}, {'z': {'t': 2}})": {"z": {"s": 1, "t": 2}, "x": 1},
    "l = [1]\nl.append(2)\nds = {'a': l}": {"a": [1, 2]},
    "ds = None\ndef setup():\n    global ds\n    ds = {'a': 1}\nsetup()": {"a": 1},
    "def outer():\n    c = {'a': 0}\n    def inner():\n        nonlocal c\n        c = {'a': 1}\n    inner()\n    return c\nds = outer()": {
        "a": 1
    },
    "from functools import partial\ndef f(a, b):\n    return {'a': a, 'b': b}\nds = partial(f, 1)(b=2)": {"a": 1, "b": 2},
    "def f(k):\n    match k:\n        case 'a' | 'b':\n            return {'a': 1}\n        case _:\n            return {'b': 1}\nds = f('b')": {
        "a": 1
    },
    "n = 2\nds = {'a': 'z{}'.format(n), 'b': 'z%d' % n, 'c': f'z{n:02d}', 'd': '/'.join(['x', 'y'])}": {
        "a": "z2",
        "b": "z2",
        "c": "z02",
        "d": "x/y",
    },
    "ds = {'a': [0.9] + [0.95], 'b': list((1, 2)), 'c': max(1, 2), 'd': round(2.6), 'e': len([1]), 'f': 2**20}": {
        "a": [0.9, 0.95],
        "b": [1, 2],
        "c": 2,
        "d": 3,
        "e": 1,
        "f": 1048576,
    },
    "import tempfile\nwith tempfile.NamedTemporaryFile('w') as f:\n    json.dump({'a': 1}, f)\nds = f.name": {"a": 1},
    "with open('x.json', 'w') as f:\n    json.dump({'a': 1}, f)\nds = 'x.json'": {"a": 1},
    "Path('x.json').write_text(json.dumps({'a': 1}))\nds = 'x.json'": {"a": 1},
    "from easydict import EasyDict\nc = EasyDict()\nc.ds = {'a': 1}\nds = c.ds": {"a": 1},
    "from enum import Enum\nclass S(Enum):\n    A = 2\nds = {'s': S.A.value}": {"s": 2},
    "from omegaconf import OmegaConf\nds = OmegaConf.merge(OmegaConf.create({'d': {'a': 1}}), {'d': {'b': 2}}).d": {"a": 1, "b": 2},
    "os.environ['N'] = '3'\nds = {'n': int(os.environ['N']), 'm': os.getenv('N')}": {"n": 3, "m": "3"},
    "ds = {'a': f''}": {"a": ""},
}


@pytest.mark.parametrize("program", BUILT)
def test_built(program: str) -> None:
    assert configs(HEAD + program + PASS) == [BUILT[program]]


GIVEN: dict[str, list[Any]] = {
    "import fire, deepspeed\ndef main(stage=2):\n    deepspeed.initialize(config={'s': stage})\nfire.Fire(main)": [{"s": 2}],
    "import typer, deepspeed\ndef main(n: int = typer.Option(4)):\n    deepspeed.initialize(config={'n': n})\ntyper.run(main)": [{"n": 4}],
    "import deepspeed\nfrom jsonargparse import CLI\ndef main(n: int = 3):\n    deepspeed.initialize(config={'n': n})\nCLI(main)": [
        {"n": 3}
    ],
    "import deepspeed\nimport lightning as L\ndef main(fabric, n):\n    deepspeed.initialize(config={'n': n})\n"
    "fabric = L.Fabric(devices=2)\nfabric.launch(main, 5)": [{"n": 5}],
    "import click, deepspeed\n@click.command()\n@click.option('--n', default=2)\n@click.option('--m')\n"
    "def main(n, m):\n    deepspeed.initialize(config={'n': n, 'm': m})\nmain()": [{"n": 2, "m": "?"}],
    "import deepspeed\nfrom multiprocessing import Process\ndef work(ds):\n    deepspeed.initialize(config=ds)\n"
    "Process(target=work, args=({'a': 1},)).start()": [{"a": 1}],
    "import torch.multiprocessing as mp, deepspeed\ndef work(rank, ds):\n    deepspeed.initialize(config=ds)\nmp.spawn(work, args=({'a': 1},))": [
        {"a": 1}
    ],
    "import deepspeed, sys\nALL = {'z2': {'a': 2}, 'z3': {'a': 3}}\ndeepspeed.initialize(config=ALL[sys.argv[1]])": [{"a": 2}, {"a": 3}],
    "import deepspeed, argparse\nargs = argparse.Namespace(deepspeed_config='ds.json')\ndeepspeed.initialize(args=args)": ["ds.json"],
    "import deepspeed, argparse\nargs = deepspeed.add_config_arguments(argparse.ArgumentParser()).parse_args()\n"
    "args.deepspeed_config = 'ds.json'\ndeepspeed.initialize(args=args)": ["ds.json"],
    "import deepspeed, argparse\np = deepspeed.add_config_arguments(argparse.ArgumentParser())\n"
    "deepspeed.initialize(args=p.parse_args('--deepspeed --deepspeed_config ds.json'.split()))": ["ds.json"],
    "import deepspeed\ndef train(args):\n    args.deepspeed_config = 'ds.json'\n    deepspeed.initialize(args=args)": ["ds.json"],
    HF + "args = TrainingArguments(output_dir='o')\nargs.deepspeed = 'ds.json'": ["ds.json"],
    HF
    + "@dataclass\nclass A(TrainingArguments):\n    deepspeed: str = 'ds.json'\nargs, = HfArgumentParser((A,)).parse_args_into_dataclasses()": [
        "ds.json"
    ],
    HF + "HfArgumentParser(TrainingArguments).parse_dict({'output_dir': 'o', 'deepspeed': 'ds.json'})": ["ds.json"],
    "from accelerate import Accelerator\nimport os\nos.environ['ACCELERATE_DEEPSPEED_CONFIG_FILE'] = 'ds.json'": ["ds.json"],
    "import os\nos.environ.update({'ACCELERATE_DEEPSPEED_CONFIG_FILE': 'ds.json'})": ["ds.json"],
    "import pytorch_lightning as pl\nfrom pytorch_lightning.plugins import DeepSpeedPlugin\npl.Trainer(plugins=[DeepSpeedPlugin(stage=3)])": [
        {"zero_optimization": {"stage": 3}}
    ],
    "import lightning as L\nL.Fabric(strategy='deepspeed_stage_2')": [{"zero_optimization": {"stage": 2}}],
    "from lightning.pytorch.strategies import DeepSpeedStrategy\nclass S(DeepSpeedStrategy):\n    def __init__(self, **k):\n"
    "        super().__init__(config={'a': 1}, **k)\nS()": [{"a": 1}],
    "from accelerate.utils import DeepSpeedPlugin\nfor n in (1, 2):\n    DeepSpeedPlugin(hf_ds_config={'n': n})": [{"n": 1}, {"n": 2}],
}


@pytest.mark.parametrize("program", GIVEN)
def test_given(program: str) -> None:
    assert configs("from dataclasses import dataclass\n" + program + "\n") == GIVEN[program]


FILES = {
    "import utils.ds\nds = utils.ds.make(stage=3)": ({"src/utils/ds.py": "def make(stage):\n    return {'z': stage}\n"}, {"z": 3}),
    "sys.path.append(os.path.join(os.path.dirname(__file__), '..', 'lib'))\nfrom conf import DS\nds = DS": (
        {"lib/conf.py": "DS = {'a': 1}\n"},
        {"a": 1},
    ),
    "ds = json.loads((Path(__file__).resolve().parents[1] / 'cfg' / 'ds.json').read_text())\nds['b'] = 2": (
        {"cfg/ds.json": '{"a": 1}'},
        {"a": 1, "b": 2},
    ),
    "ds = yaml.safe_load(open('train.yaml'))['deepspeed']": ({"train.yaml": "lr: 1\ndeepspeed:\n  a: 1\n"}, {"a": 1}),
    "ds = json.load(open('train.json'))['deepspeed']": ({"train.json": '{"lr": 1, "deepspeed": {"a": 1}}'}, {"a": 1}),
    "from omegaconf import OmegaConf\nds = OmegaConf.load('t.yaml')": ({"t.yaml": "a: 1e-4\nb: '1e-4'\n"}, {"a": 1e-4, "b": "1e-4"}),
    "from omegaconf import OmegaConf\nds = OmegaConf.to_container(OmegaConf.load('t.yaml').deepspeed)": (
        {"t.yaml": "n: 4\ndeepspeed:\n  a: ${n}\n"},
        {"a": 4},
    ),
    "import hydra\n@hydra.main(config_path='conf', config_name='config')\ndef main(cfg):\n    global ds\n    ds = dict(cfg.deepspeed)\nmain()": (
        {"src/conf/config.yaml": "defaults:\n  - deepspeed: z2\nlr: 1\ndeepspeed:\n  b: 2\n", "src/conf/deepspeed/z2.yaml": "a: 1\nb: 1\n"},
        {"a": 1, "b": 2},
    ),
    "if os.path.exists('ds.json'):\n    ds = json.load(open('ds.json'))\nelse:\n    ds = {'z': 1}\nds['b'] = 1": (
        {"ds.json": '{"a": 1}'},
        {"a": 1, "b": 1},
    ),
}


@pytest.mark.parametrize("program", FILES)
def test_files(folder: Folder, program: str) -> None:
    files, expected = FILES[program]
    folder.write({"src/train.py": "", **files})
    assert configs(HEAD + program + PASS) == [expected]


def test_a_finding_in_a_yaml_file_that_a_program_reads(folder: Folder) -> None:
    folder.write({"train.yaml": "lr: 1\ndeepspeed:\n  zero_optimization:\n    stagee: 3\n"})
    folder.write({"train.py": HEAD + "ds = yaml.safe_load(open('train.yaml'))['deepspeed']" + PASS})
    assert ("DS101", "train.yaml", 4) in folder.found("train.py")


COMMANDS = [
    "import subprocess\nsubprocess.run(['deepspeed', '--num_gpus', '1', 'train.py', '--deepspeed_config', 'ds.json'])\n",
    "import os\nos.system('deepspeed train.py --deepspeed_config ds.json')\n",
    "import subprocess\nn = compute()\nsubprocess.Popen(f'deepspeed --master_port {n} train.py --deepspeed_config ds.json', shell=True)\n",
    "import subprocess\ncmd = ['deepspeed', 'train.py']\nsubprocess.check_call(cmd + ['--deepspeed_config', 'ds.json'])\n",
]


@pytest.mark.parametrize("program", COMMANDS)
def test_a_command_that_a_program_runs(folder: Folder, program: str) -> None:
    folder.write({"start.py": program, "train.py": "", "ds.json": '{"zero_optimization": {"stagee": 3}}'})
    assert ("DS101", "ds.json", 1) in folder.found("start.py")


def test_a_command_whose_program_is_not_known(folder: Folder) -> None:
    folder.write({"start.py": "import subprocess, sys\nsubprocess.run(['deepspeed', sys.argv[1]])\n"})
    (reason,) = folder.results("start.py")["start.py"].not_judged
    assert reason.range is not None
    assert reason.range.start.line == 2


def test_a_program_that_only_mentions_deepspeed(folder: Folder) -> None:
    """There is nothing to judge, so that a strict run passes. A name that can lead to a config is a reason."""
    folder.write({"model.py": '"""For deepspeed."""\nfrom elsewhere import is_deepspeed_enabled\nload(deepspeed=None)\n'})
    folder.write({"odd.py": "import elsewhere\nelsewhere.train(ds_config='ds.json')\n", "cmd.py": "START = 'deepspeed --num_gpus 1'\n"})
    assert folder.results("model.py")["model.py"].not_judged == ()
    for name, line in (("odd.py", 2), ("cmd.py", 1)):
        (reason,) = folder.results(name)[name].not_judged
        assert reason.range is not None
        assert reason.range.start.line == line


def test_commands_that_a_notebook_shows(folder: Folder) -> None:
    shown_command = "Run it:\n```bash\ndeepspeed train.py --deepspeed_config ds.json\n```\n"
    cells = [{"cell_type": "markdown", "source": shown_command}, {"cell_type": "code", "source": "import os"}]
    folder.write({"n.ipynb": json.dumps({"cells": cells}), "train.py": "", "ds.json": '{"zero_optimization": {"stagee": 3}}'})
    assert ("DS101", "ds.json", 1) in folder.found("n.ipynb")


def test_a_reason_names_the_program_that_passes_the_config(folder: Folder) -> None:
    folder.write({"engine.py": "import deepspeed\ndef start(args):\n    deepspeed.initialize(config=args.ds)\n"})
    main = "import argparse, engine\np = argparse.ArgumentParser()\np.add_argument('--ds')\nengine.start(p.parse_args())\n"
    folder.write({"main.py": main})
    (reason,) = folder.results("engine.py")["engine.py"].not_judged
    assert "args.ds" in reason.reason
    assert "main.py passes it: --ds" in reason.reason


def test_a_value_that_would_always_raise_is_not_believed() -> None:
    program = "import deepspeed\nN = 3\nif N != 4:\n    raise ValueError\ndeepspeed.initialize(config={'a': 1})\n"
    assert configs(program) == [{"a": 1}]


HYDRA = {
    "conf/config.yaml": "defaults:\n- deepspeed: zero2\n- _self_\nsteps: 2\n",
    "conf/deepspeed/zero2.yaml": "zero_optimization: {stage: 2}\ngradient_accumulation_steps: 2\n",
    "conf/deepspeed/zero3.yaml": "zero_optimization: {stage: 3}\ngradient_accumulation_steps: ${steps}\n",
    "train.py": "import deepspeed, hydra\nfrom omegaconf import OmegaConf\n\n"
    "@hydra.main(version_base=None, config_path='conf', config_name='config')\ndef main(cfg):\n"
    "    deepspeed.initialize(model=model, config=OmegaConf.to_container(cfg.deepspeed, resolve=True))\n\nmain()\n",
}


def launched_configs() -> list[Any]:
    """The configs of run.sh in the working directory."""
    read = read_setups(Path("run.sh").read_text(encoding="utf-8"), "run.sh", "run.sh", Context(), named=True)
    return (
        [plain(one.config.root) for one in read.setups if one.config is not None and one.config.root is not None]
        if read is not None
        else []
    )


@pytest.mark.parametrize(
    ("words", "stage", "steps"),
    [
        ("", 2, 2),
        ("deepspeed=zero3 hydra.run.dir=out", 3, UNKNOWN),
        ("deepspeed.zero_optimization.stage=1", 1, 2),
        ("deepspeed=zero3 deepspeed.gradient_accumulation_steps=4", 3, 4),
        ("deepspeed.gradient_accumulation_steps=1,2", 2, UNKNOWN),
        ("steps=8", 2, 2),
    ],
)
def test_words_override_the_config_of_hydra(folder: Folder, words: str, stage: int, steps: object) -> None:
    folder.write(HYDRA | {"run.sh": f"torchrun --nproc_per_node 4 train.py {words}\n"})
    (config,) = launched_configs()
    assert config["zero_optimization"]["stage"] == stage
    found = config["gradient_accumulation_steps"]
    assert found is UNKNOWN if steps is UNKNOWN else found == steps


@pytest.mark.parametrize(
    "words", ['deepspeed=zero3 "$@"', "deepspeed=zero9", "~deepspeed", "+deepspeed.steps_per_print=5", "--config-name other"]
)
def test_words_of_hydra_that_are_not_followed(folder: Folder, words: str) -> None:
    folder.write(HYDRA | {"run.sh": f"torchrun --nproc_per_node 4 train.py {words}\n"})
    assert not launched_configs()


CHOSEN = """import argparse, deepspeed
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Own:
    q_lora: bool = False

def of_classes():
    return HfArgumentParser((TrainingArguments, Own)).parse_args_into_dataclasses()

def of_flags():
    parser = argparse.ArgumentParser()
    parser.add_argument("--q_lora", action="store_true")
    parser.add_argument("--deepspeed")
    args = parser.parse_args()
    return TrainingArguments(output_dir="out", deepspeed=args.deepspeed), args

training, own = {parser}()
device_map = None
if own.q_lora:
    device_map = {{"": training.local_rank}}
model = AutoModelForCausalLM.from_pretrained("m", device_map=device_map)
Trainer(model, training).train()
"""


def test_words_that_a_program_parses_instead_of_the_command_line_leave_defaults_open(folder: Folder) -> None:
    text = CHOSEN.format(parser="of_classes").replace("dataclasses()", "dataclasses(args=words())")
    config = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}'
    folder.write({"train.py": text, "ds.json": config, "run.sh": "deepspeed --num_gpus 4 train.py --deepspeed ds.json\n"})
    assert "DS946" in [code for code, *_ in folder.found("run.sh", "train.py", "ds.json")]


@pytest.mark.parametrize("parser", ["of_classes", "of_flags"])
@pytest.mark.parametrize(
    ("words", "is_found"),
    [
        ("", False),
        ("--output_dir $OUT", False),
        ("--output_dir $1 --q_lora", True),
        ("--q_lora True", True),
        ("$EXTRA_ARGS", True),
        ('--output_dir out "$@"', True),
        ("--q_l", True),
    ],
)
def test_a_flag_that_no_launch_gives_has_its_default(folder: Folder, parser: str, words: str, *, is_found: bool) -> None:
    config = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}'
    folder.write({"train.py": CHOSEN.format(parser=parser), "ds.json": config})
    folder.write({"run.sh": f"deepspeed --num_gpus 4 train.py --deepspeed ds.json {words}\n"})
    assert ("DS946" in [code for code, *_ in folder.found("run.sh", "train.py", "ds.json")]) is is_found


@pytest.mark.parametrize(("condition", "is_found"), [("model", False), ("model is not None", False), ("not model", True)])
def test_a_loaded_model_is_not_none_and_counts_as_true(folder: Folder, condition: str, *, is_found: bool) -> None:
    program = f"""from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from trl import create_reference_model

def reference_of(model):
    return model if {condition} else create_reference_model(model)

def train(model):
    if {condition}:
        return
    create_reference_model(model)

arguments = TrainingArguments(output_dir="out", deepspeed="ds.json")
model = AutoModelForCausalLM.from_pretrained("m")
reference_of(model)
train(model)
Trainer(model, arguments).train()
"""
    folder.write({"train.py": program, "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}'})
    assert ("DS983" in [code for code, *_ in folder.found("train.py", "ds.json")]) is is_found


@pytest.mark.parametrize(
    ("flag", "words", "severities"),
    [
        ("ema", None, ["warning"]),
        ("ema", "", ["warning"]),
        ("ema", "--ema", ["error"]),
        ("deepspeed", None, ["error"]),
    ],
)
def test_what_a_flag_has_to_select_is_certain_only_where_a_launch_gives_it(
    folder: Folder, flag: str, words: str | None, severities: list[str]
) -> None:
    program = f"""import argparse, deepspeed
parser = argparse.ArgumentParser()
parser.add_argument("--{flag}", action="store_true")
args = parser.parse_args()

def engine_of(model):
    return deepspeed.initialize(model=model, config={{"train_batch_size": -1}})

if args.{flag}:
    engine_of(None)
"""
    folder.write({"train.py": program, "run.sh": f"deepspeed --num_gpus 4 train.py {words}\n"})
    names = ["train.py"] if words is None else ["train.py", "run.sh"]
    assert [one.severity for one in folder.diagnostics(*names) if one.code == "DS106"] == severities


def test_modules_that_import_each_other_define_all_their_names(folder: Folder) -> None:
    """Python runs the package first: the module then finds there what the package imports before it."""
    folder.write(
        {
            "own/__init__.py": "from .made import SIZE\nfrom .tools import config_of\n",
            "own/made.py": "SIZE = 3\n",
            "own/tools.py": "from own import SIZE\n\ndef config_of():\n    return {'train_batch_size': SIZE, 'zero_optimization': {'stage': 9}}\n",
            "train.py": "import deepspeed\nimport own.tools\nfrom own import config_of as made\ndeepspeed.initialize(model=None, config=made())\n",
        }
    )
    assert {reason for one in folder.results("train.py").values() for reason in one.not_judged} == set()
    assert [code for code, *_ in folder.found("train.py")].count("DS107") == 1


def test_a_module_outside_of_the_project_is_called_that(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """import os, sys, deepspeed
sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), os.path.pardir)))
from utils.configs import made
from other.configs import unknown
deepspeed.initialize(model=None, config={name}())
"""
    folder.write({"utils/configs.py": "def made():\n    return {'train_batch_size': 8}\n"})
    for name, said in (
        ("made", "the function made of ../utils/configs.py, which is outside this project"),
        ("unknown", "not in the project"),
    ):
        folder.write({f"one/{name}.py": program.format(name=name), "one/.git": ""})
        monkeypatch.chdir(folder.path / "one")
        ((reason,),) = (one.not_judged for one in folder.results(f"{name}.py").values())
        assert said in reason.reason
        monkeypatch.chdir(folder.path)


@pytest.mark.parametrize(
    ("files", "is_found"),
    [
        ({"setup.py": "", "src/own/__init__.py": "", "src/own/models/__init__.py": "", "src/own/models/load.py": "LOADS"}, True),
        ({"pyproject.toml": "", "src/own/__init__.py": "", "src/own/models/load.py": "LOADS"}, True),
        ({"pyproject.toml": "", "src/own/models/load.py": "LOADS"}, False),  # no package: another one of this name may be installed
        ({"src/own/__init__.py": "", "src/own/models/load.py": "LOADS"}, False),  # nothing installs it
        ({"setup.py": "", "src/own/__init__.py": "", "src/own/models/load.py": "LOADS", "own/models/load.py": "KEEPS"}, False),
        ({"setup.py": "", "src/own/__init__.py": "", "src/own/models/load.py": "KEEPS"}, False),
    ],
)
def test_a_package_that_the_project_installs_from_src_is_followed(folder: Folder, files: dict[str, str], *, is_found: bool) -> None:
    loads = "from transformers import AutoModelForCausalLM\ndef load():\n    return AutoModelForCausalLM.from_pretrained('m'{})\n"
    texts = {"LOADS": loads.format(", device_map='auto'"), "KEEPS": loads.format("")}
    program = (
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\nfrom own.models.load import load\n"
        "training, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer(load(), training).train()\n"
    )
    config = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}}'
    folder.write({name: texts.get(text, text) for name, text in files.items()})
    folder.write({"examples/train.py": program, "configs/ds.json": config})
    folder.write({"scripts/run.sh": "deepspeed --num_gpus 4 examples/train.py --output_dir out --deepspeed configs/ds.json\n"})
    assert ("DS946" in [code for code, *_ in folder.found("scripts/run.sh")]) is is_found
