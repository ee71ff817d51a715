"""Configs that a condition, a flag or another file of the program decides: each that may be passed on is judged, as what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dslint.config.context import Context
from dslint.facts import Facts, Integration
from dslint.frameworks.programs import read_python
from dslint.setups.program import read_program
from tests.command import dslint
from tests.setup.folder import Folder
from tests.setup.test_programs import HEAD, configs
from tests.setup.unknown_values import shown

PASS = "\ndeepspeed.initialize(config=ds)\n"
FLAG = "p = argparse.ArgumentParser()\np.add_argument('--ds', action='store_true')\nargs = p.parse_args()\n"

COMPLETE = {
    "ds = {'a': 1} if compute() else None": [{"a": 1}],
    "ds = None\nif compute():\n    ds = {'a': 1}": [{"a": 1}],
    "ds = {'a': 1} if compute() else 'b.json'": [{"a": 1}, "b.json"],
    "def make(c):\n    if not c.use:\n        return None\n    return {'a': 1}\nds = make(compute())": [{"a": 1}],
    FLAG + "ds = {'a': 1} if args.ds else None": [{"a": 1}],
    FLAG + "ds = None\nif args.ds:\n    ds = {'a': 1}": [{"a": 1}],
    FLAG + "if args.ds:\n    ds = {'a': 1}": [{"a": 1}],
    "class C:\n    ds = None\nc = C()\nif compute():\n    c.ds = {'a': 1}\nds = c.ds": [{"a": 1}],
}


@pytest.mark.parametrize("program", COMPLETE)
def test_every_config_that_a_condition_selects_is_complete(program: str) -> None:
    """Where the other branch passes no config, nothing is left out."""
    assert shown(configs(HEAD + program + PASS)) == COMPLETE[program]
    read = read_program(HEAD + program + PASS, "train.py", "train.py", Context(Facts()), named=True)
    assert read is not None
    assert not read.not_judged


def test_an_argument_is_an_object_of_the_class_that_it_is_said_to_be() -> None:
    """Of a dataclass it has the defaults."""
    program = (
        "@dataclass\nclass C:\n    stage: int = 2\n    lr: float\n    def make(self):\n        return {'a': self.stage, 'b': self.lr}\n"
        "class T:\n    def run(self, c: %s):\n        deepspeed.initialize(config=c.make())\n"
    )
    for annotation in ("C", "'C'"):
        assert shown(configs(HEAD + program % annotation)) == [{"a": 2, "b": "?"}]


EITHER = "if compute():\n    ds = {'a': 1, 'z': {'s': 1}}\nelse:\n    ds = {'a': 2, 'z': {'s': 2, 'o': 1}}\n"
NAMED = "n = 'a'\nif compute():\n    n = 'b'\n"
SEVERAL = {
    NAMED + "ds = f'{n}.json'": ["b.json", "a.json"],
    NAMED + "ds = 'ds/' + n + '.json'": ["ds/b.json", "ds/a.json"],
    NAMED + "ds = os.path.join('ds', f'{n}.json')": ["ds/b.json", "ds/a.json"],
    NAMED + "from pathlib import Path\nds = Path('ds') / (n + '.json')": ["ds/b.json", "ds/a.json"],
    NAMED + "if n == 'a':\n    n = 'c'\nds = n + '.json'": ["c.json", "b.json"],
    NAMED + "if n in {'a': 1}:\n    n = 'c'\nelif n == 'b':\n    n = 'd'\nds = n + '.json'": ["c.json", "d.json"],
    EITHER: [{"a": 1, "z": {"s": 1}}, {"a": 2, "z": {"s": 2, "o": 1}}],
    EITHER + "ds['b'] = 3\nds['z']['t'] = 4": [{"a": 1, "z": {"s": 1, "t": 4}, "b": 3}, {"a": 2, "z": {"s": 2, "o": 1, "t": 4}, "b": 3}],
    EITHER + "ds.update(b=3)\nds['z'].pop('s')": [{"a": 1, "z": {}, "b": 3}, {"a": 2, "z": {"o": 1}, "b": 3}],
    EITHER + "import copy\nds = copy.deepcopy(ds)\nds |= {'a': 3}\ndel ds['z']": [{"a": 3}, {"a": 3}],
    EITHER + "if ds is not None and ds and 'a' in ds:\n    ds['b'] = 3": [
        {"a": 1, "z": {"s": 1}, "b": 3},
        {"a": 2, "z": {"s": 2, "o": 1}, "b": 3},
    ],
    EITHER + "ds = {**ds, 'b': 3}": [{"a": "?", "z": {"s": "?", "o": "?"}, "b": 3}],
    EITHER + "ds = {'z': ds['z'], 'a': ds['a']}": [{"z": {"s": "?", "o": "?"}, "a": "?"}],
    "def make(c):\n    if c:\n        return {'a': 1}\n    return {'b': 1}\nds = make(compute())": [{"a": 1}, {"b": 1}],
}


@pytest.mark.parametrize("program", SEVERAL)
def test_each_of_several_dicts_is_a_config(program: str) -> None:
    """What the program does to them later is done to each; in another dict they are one, with what they have in common."""
    assert shown(configs(HEAD + program + PASS)) == SEVERAL[program]


def test_each_of_several_configs_has_the_arguments_of_its_call() -> None:
    program = (
        EITHER
        + "import transformers as t\nt.TrainingArguments('o', bf16=True, deepspeed=ds)\ndeepspeed.initialize(config=ds, optimizer=o)\n"
    )
    found = read_python(HEAD + program, "train.py")
    assert found is not None
    assert [(call.integration, call.arguments is not None, call.passed is not None) for call in found.calls] == [
        ("transformers", True, False),
        ("transformers", True, False),
        ("deepspeed", False, True),
        ("deepspeed", False, True),
    ]


PARTS = {
    "def run(args):\n    if args.ds:\n        if args.ds == 'default':\n            args.ds = {'a': 1}\n"
    "        else:\n            args.ds = json.load(open(args.ds))\n    deepspeed.initialize(config=args.ds)\n": "args is an argument of run",
    "ds = {'a': 1} if compute() else elsewhere()" + PASS: "a part of the DeepSpeed config",
}


@pytest.mark.parametrize("program", PARTS)
def test_of_configs_that_are_known_in_part_the_rest_is_named(program: str) -> None:
    assert shown(configs(HEAD + program)) == [{"a": 1}]
    read = read_program(HEAD + program, "train.py", "train.py", Context(Facts()), named=True)
    assert read is not None
    assert [PARTS[program] in one.reason for one in read.not_judged] == [True]


NOT_JUDGED = {
    "from accelerate import Accelerator, DeepSpeedPlugin\np = argparse.ArgumentParser()\np.add_argument('--ds', default='')\nargs = p.parse_args()\n"
    "plugin = DeepSpeedPlugin(hf_ds_config=args.ds) if args.ds else None\nAccelerator(deepspeed_plugin=plugin)\n": "with --ds",
    "from accelerate import Accelerator\na = Accelerator()\na.state.deepspeed_plugin.deepspeed_config['a'] = 1\n": "accelerate launch",
    "import lightning as L\nL.Trainer(strategy=kind())\nnames = ['deepspeed_stage_2']\n": "deepspeed_stage_2",
    "from tempfile import NamedTemporaryFile\nf = NamedTemporaryFile()\nf.write(elsewhere())\ndeepspeed.initialize(config=f.name)\n": "temporary file",
}


@pytest.mark.parametrize("program", NOT_JUDGED)
def test_what_the_launch_gives_is_named(program: str) -> None:
    read = read_program(HEAD + program, "train.py", "train.py", Context(Facts()), named=True)
    assert read is not None
    assert [NOT_JUDGED[program] in one.reason for one in read.not_judged] == [True]


def test_a_strategy_that_a_condition_selects() -> None:
    program = "import lightning as L\nL.Trainer(strategy='deepspeed_stage_3' if compute() else 'ddp')\n"
    assert configs(program) == [{"zero_optimization": {"stage": 3}}]


def test_a_key_that_only_one_branch_sets_is_certain_nowhere(folder: Folder) -> None:
    program = (
        HEAD + "ds = {'train_micro_batch_size_per_gpu': 1}\n%sds['amp'] = {'enabled': True}\ndeepspeed.initialize(config=ds, optimizer=o)\n"
    )
    folder.write({"one.py": program % "", "two.py": program % "if compute(): "})
    found = {name: [(d.severity, d.certain) for d in folder.diagnostics(name) if d.code == "DS109"] for name in ("one.py", "two.py")}
    assert found == {"one.py": [("error", True)], "two.py": [("warning", False)]}


@pytest.mark.parametrize(("condition", "clash"), [("if compute():\n    ", False), ("", True)], ids=["two branches", "both"])
def test_arguments_of_two_branches_do_not_clash(folder: Folder, condition: str, clash: bool) -> None:
    """A program that chooses between FSDP and DeepSpeed sets both in its text and never both in a run."""
    program = (
        "from transformers import Trainer, TrainingArguments\ngiven = {'output_dir': 'o', 'deepspeed': 'ds_config.json'}\n"
        f"{condition}given['fsdp'] = 'full_shard'\nTrainer(model=model, args=TrainingArguments(**given)).train()\n"
    )
    folder.write({"ds_config.json": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}', "train.py": program})
    assert ("DS920" in [d.code for d in folder.diagnostics("train.py")]) is clash


@pytest.mark.parametrize(
    ("last", "integration"),
    [
        ("import deepspeed\n", Integration.DEEPSPEED),
        ("from transformers import Trainer\nTrainer()\n", Integration.TRANSFORMERS),
        ("", Integration.TRANSFORMERS),
    ],
)
def test_who_loads_a_config_that_only_from_pretrained_is_told_of(last: str, integration: Integration) -> None:
    found = read_python("from transformers.integrations import HfDeepSpeedConfig\nh = HfDeepSpeedConfig({'a': 1})\n" + last, "train.py")
    assert found is not None
    assert [call.integration for call in found.calls] == [integration]


LOAD = "model = transformers.AutoModelForCausalLM.from_pretrained('m')\n"
ARGUMENTS = "transformers.TrainingArguments('o', deepspeed='a.json')\n"
PARSED = "(given,) = transformers.HfArgumentParser((transformers.TrainingArguments,)).parse_args_into_dataclasses()\n"
LOADS = {
    LOAD + ARGUMENTS: True,
    ARGUMENTS + LOAD: False,
    LOAD + "h = transformers.integrations.HfDeepSpeedConfig('a.json')\n" + ARGUMENTS: True,
    "h = transformers.integrations.HfDeepSpeedConfig('a.json')\n" + LOAD + ARGUMENTS: False,
    LOAD + "import deepspeed\ndeepspeed.initialize(model=model, config='a.json')\n": True,
    f"def load():\n    {LOAD}def arguments():\n    {ARGUMENTS}": False,
    f"def load():\n    {LOAD}def main():\n    load()\n    {ARGUMENTS}main()\n": True,
    f"def load():\n    {LOAD}def main():\n    load()\n    {ARGUMENTS}": True,
    f"if compute():\n    {LOAD}{ARGUMENTS}": False,
    LOAD + ARGUMENTS + LOAD: False,
    PARSED + LOAD + "given.local = 1\ntransformers.Trainer(args=given)\n": False,
    LOAD + PARSED + "transformers.Trainer(args=given)\n": True,
    "transformers.AutoTokenizer.from_pretrained('m')\n" + ARGUMENTS: False,
}


@pytest.mark.parametrize("program", LOADS)
def test_a_model_that_is_certainly_loaded_before_the_config_is_known(program: str) -> None:
    found = read_python("import transformers\n" + program, "train.py")
    assert found is not None
    assert (found.program.loaded_early is not None) is LOADS[program]


@pytest.mark.parametrize(("condition", "noted"), [("args.bits == 4", False), ("True", True)])
def test_a_device_map_that_only_a_branch_adds_does_not_count(condition: str, noted: bool) -> None:
    load = "AutoModelForCausalLM.from_pretrained('m', **kwargs)\n"
    text = f"from transformers import AutoModelForCausalLM\nkwargs = {{}}\nif {condition}:\n    kwargs['device_map'] = 'auto'\n{load}"
    found = read_python(text, "train.py")
    assert found is not None
    assert (found.program.device_map is not None) is noted


@pytest.mark.parametrize(("given", "noted"), [("'auto'", True), ("'auto' if compute() else None", False), ("None", False)])
def test_a_device_map_that_may_be_none_does_not_count(given: str, noted: bool) -> None:
    found = read_python(f"import transformers\ntransformers.AutoModelForCausalLM.from_pretrained('m', device_map={given})\n", "train.py")
    assert found is not None
    assert (found.program.device_map is not None) is noted


TWO_LOADERS = (
    "import argparse, os\nfrom transformers import AutoModelForCausalLM\np = argparse.ArgumentParser()\n"
    "p.add_argument('--qlora', action='store_true')\nargs = p.parse_args()\ndef qlora():\n"
    "    return AutoModelForCausalLM.from_pretrained('m', device_map={'': int(os.environ['LOCAL_RANK'])})\n"
    "def full():\n    return AutoModelForCausalLM.from_pretrained('m')\n"
)


@pytest.mark.parametrize(
    ("chooses", "noted"),
    [
        ("model = full()", False),
        ("model = qlora()", True),
        ("model = qlora() if args.qlora else full()", False),
        ("model = full() if args.qlora else qlora()", True),
        ("load = qlora if args.qlora else full\nmodel = load()", False),
        ("if args.qlora:\n    model = qlora()\nelse:\n    model = full()", False),
        ("model = {'q': qlora, 'f': full}[args.kind]()", True),
    ],
)
def test_a_device_map_of_a_function_that_the_launch_does_not_call_does_not_count(chooses: str, noted: bool) -> None:
    found = read_python(f"{TWO_LOADERS}{chooses}\n", "train.py")
    assert found is not None
    assert (found.program.device_map is not None) is noted


@pytest.mark.parametrize(
    ("program", "called"),
    [
        ("engine, *_ = deepspeed.initialize(config={'a': 1})\nengine.backward(loss)\n", True),
        ("engine = deepspeed.initialize(config={'a': 1})[0]\nengine.backward(loss)\n", True),
        (
            "class T:\n    def __init__(self):\n        self.e, _ = deepspeed.initialize(config={'a': 1})\n    def run(self):\n        self.e.backward(loss)\n",
            True,
        ),
        ("engine, *_ = deepspeed.initialize(config={'a': 1})\nloss = engine(batch)\nloss.backward()\n", False),
        ("_, o, *_ = deepspeed.initialize(config={'a': 1})\no.backward(loss)\n", False),
    ],
)
def test_the_backward_of_the_engine(program: str, called: bool) -> None:
    found = read_python(HEAD + program, "train.py")
    assert found is not None
    assert found.program_of(found.calls[0]).engine_backward is called


PIPELINES = {
    "from deepspeed.pipe import PipelineModule\nm = PipelineModule(layers=x(), num_stages=4)\n": 4,
    "from deepspeed.pipe import PipelineModule\nm = PipelineModule(layers=x(), num_stages=x())\n": "?",
    "import deepspeed.pipe\nclass Pipe(deepspeed.pipe.PipelineModule):\n    pass\nm = Pipe()\n": "?",
    "from deepspeed.pipe import PipelineModule\nm = PipelineModule(layers=x(), num_stages=4) if x() else net()\n": None,
    "from deepspeed.pipe import PipelineModule\np = PipelineModule(layers=x(), num_stages=4)\n": None,
}


@pytest.mark.parametrize("program", PIPELINES)
def test_a_pipeline_that_the_program_certainly_passes(program: str) -> None:
    found = read_python(HEAD + program + "deepspeed.initialize(model=m, config={'a': 1})\n", "train.py")
    assert found is not None
    given = found.program_of(found.calls[0]).pipeline
    assert (given and shown(given.value)) == PIPELINES[program]


def test_a_config_in_another_dict_is_said_to_be_left_out() -> None:
    program = "def make():\n    return {'trainer': {'deepspeed_config': {'zero_optimization': {'stage': 3}}}}\n"
    read = read_program(program, "train.py", "train.py", Context(Facts()), named=True)
    assert read is not None
    assert ["deepspeed_config" in one.reason for one in read.not_judged] == [True]


@pytest.mark.parametrize(("stages", "raises"), [("1", True), ("2", False), ("dist.get_world_size()", False)])
def test_the_stages_of_a_pipeline_share_a_batch(tmp_path: Path, stages: str, raises: bool) -> None:
    """`deepspeed.initialize` takes the data-parallel ranks of the pipeline for the batch sizes: 1,024 = 128 x 8 x 1 on two stages."""
    (tmp_path / "train.py").write_text(
        "import deepspeed\nimport torch.distributed as dist\nfrom deepspeed.pipe import PipelineModule\n"
        f"m = PipelineModule(layers=layers(), num_stages={stages})\ndeepspeed.initialize(model=m, config='ds_config.json')\n"
    )
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 2 train.py\n")
    config = '{"train_batch_size": 1024, "train_micro_batch_size_per_gpu": 128, "gradient_accumulation_steps": 8}'
    (tmp_path / "ds_config.json").write_text(config)
    done = dslint("check", ".", "--select", "DS201", cwd=tmp_path)
    assert ("DS201" in done.stdout) is raises


@pytest.mark.parametrize(("given", "raises"), [("", True), (", mpu=None", True), (", mpu=mpu", False), (", mesh_param=(1, 2)", False)])
def test_the_groups_of_a_program_share_a_batch(folder: Folder, given: str, raises: bool) -> None:
    """DeepSpeed takes the data-parallel ranks of the `mpu` for the batch sizes, and nobody knows their number here."""
    folder.write(
        {
            "train.py": f"import deepspeed\nfrom groups import mpu\ndeepspeed.initialize(model=m, config='ds.json'{given})\n",
            "run.sh": "deepspeed --num_gpus 2 train.py\n",
            "ds.json": '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1}',
        }
    )
    assert ("DS201" in [code for code, _, _ in folder.found("run.sh")]) is raises


PREPARES = """
import deepspeed

class Strategy:
    def prepare(self, *pairs):
        for one in pairs:
            if isinstance(one, tuple):
                self.train(*one)
            else:
                self.evaluate(one)

    def train(self, model, optimizer):
        deepspeed.initialize(model=model, optimizer=optimizer, config={"train_micro_batch_size_per_gpu": 1})

    def evaluate(self, model):
        deepspeed.initialize(model=model, config={"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stagee": 3}})
"""


@pytest.mark.parametrize(("given", "codes"), [("(model, optimizer)", []), ("(model, optimizer), reference", ["DS101"])])
def test_a_tuple_is_told_from_other_values(folder: Folder, given: str, codes: list[str]) -> None:
    """OpenRLHF prepares a pair for training, and a model alone for evaluation."""
    folder.write({"strategy.py": PREPARES, "train.py": f"from strategy import Strategy\nStrategy().prepare({given})\n"})
    assert [code for code, _, _ in folder.found("train.py") if code == "DS101"] == codes


LOADED = (
    "import deepspeed, transformers\nmodel = transformers.AutoModelForCausalLM.from_pretrained('m')\n"
    "if %s:\n    config = {'train_micro_batch_size_per_gpu': 1, 'bf16': {'enabled': True}}\n"
    "else:\n    config = {'train_micro_batch_size_per_gpu': 1, 'bf16': {'enabled': True}, 'fp16': {'enabled': True}}\n"
    "deepspeed.initialize(model=model, config=config)\n"
)


@pytest.mark.parametrize(
    ("condition", "codes"),
    [
        ("model", []),
        ("model.to('cuda') is not None", []),
        ("model.can_generate()", ["DS301"]),
        ("model.get_output_embeddings() is not None", ["DS301"]),
        ("model.is_quantized", ["DS301"]),
    ],
)
def test_a_loaded_model_is_not_none_and_what_its_methods_return_may_be(folder: Folder, condition: str, codes: list[str]) -> None:
    folder.write({"train.py": LOADED % condition})
    assert [code for code, _, _ in folder.found("train.py") if code == "DS301"] == codes


_MADE = """
import argparse
import deepspeed
import torch
from net import Net

parser = argparse.ArgumentParser()
parser.add_argument("--own", action="store_true")
args = parser.parse_args()


%s
net = Net()
if args.own:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config=%s)
else:
    engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=%s)
"""
_BY_FUNCTION = """def made(own):
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 1}}
    if not own:
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 0.001}}
    return config

"""
_BY_CLASS = """class Settings:
    def __init__(self, words):
        self.own = words.own

    def made(self):
        config = dict(train_batch_size=8, zero_optimization=dict(stage=1))
        if not self.own:
            config.update(optimizer=dict(type="AdamW", params=dict(lr=0.001)))
        return config

"""
_AT_THE_TOP = """config = {"train_batch_size": 8, "zero_optimization": {"stage": 1}}
if not args.own:
    config["optimizer"] = {"type": "AdamW", "params": {"lr": 0.001}}

"""


@pytest.mark.parametrize(
    ("made", "config"), [(_BY_FUNCTION, "made(args.own)"), (_BY_CLASS, "Settings(args).made()"), (_AT_THE_TOP, "config")]
)
def test_a_section_for_the_call_without_an_object(folder: Folder, made: str, config: str) -> None:
    """The section and the object that replaces it are in branches that exclude each other."""
    text = _MADE % (made, config, config)
    folder.write({"train.py": text})
    assert "DS945" not in [code for code, *_ in folder.found("train.py")]
    folder.write({"train.py": text.replace("model_parameters=net.parameters()", "optimizer=torch.optim.Adam(net.parameters())")})
    assert "DS945" in [code for code, *_ in folder.found("train.py")]
