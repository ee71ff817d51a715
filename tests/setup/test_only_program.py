"""Programs that call `deepspeed.initialize` with a config that is not known: what is wrong under any config is still found."""

from __future__ import annotations

import pytest

from dslint.diagnostics import Severity
from tests.cases import table
from tests.setup.folder import Folder

PIPELINE = (
    "import deepspeed\nfrom deepspeed.pipe import PipelineModule\nfrom omegaconf import OmegaConf\nfrom torch.utils.data import DataLoader\n"
    "model = PipelineModule(layers=layers, num_stages=2, loss_fn=loss)\n"
    "engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=%s)\n"
    "loader = DataLoader(data, batch_size=2)\nengine.train_batch(data_iter=%s)\n"
)
PLAIN = "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=build())\n%s\n"


@pytest.mark.parametrize("config", ["OmegaConf.to_container(OmegaConf.load('conf.yaml').deepspeed)", "build()", "json.load(open(path))"])
def test_a_mistake_that_no_config_changes_is_found(folder: Folder, config: str) -> None:
    folder.write({"train.py": PIPELINE % (config, "loader")})
    assert [code for code, _, _ in folder.found("train.py")] == ["DS874"]
    [reason] = folder.results("train.py")["train.py"].not_judged
    assert "the DeepSpeed config for deepspeed.initialize" in reason.reason


@table(
    "rest, codes",
    [
        ("engine.save_checkpoint('out')", []),
        ("if rank == 0:\n    torch.save(engine.module.state_dict(), 'model.pt')", ["DS967"]),
        ("for weight in engine.module.parameters():\n    print(weight.data.norm())", ["DS968"]),
        ("if rank == 0:\n    engine.save_16bit_model('out')", ["DS964"]),
        ("for batch in loader:\n    loss = engine(batch)\n    engine.backward(loss / 4)\n    engine.step()", []),
        (
            "for batch in loader:\n    engine.backward(engine(batch))\n    torch.nn.utils.clip_grad_norm_(engine.parameters(), 1.0)",
            [],
        ),
        ("for batch in loader:\n    engine.backward(engine(batch))\n    engine.step()\n    lr_scheduler.step()", []),
        ("with deepspeed.zero.GatheredParameters(engine.module.weight):\n    print(engine.module.weight.data.norm())", []),
    ],
)
def test_what_the_config_decides_is_said_with_its_stage(folder: Folder, rest: str, codes: list[str]) -> None:
    folder.write({"train.py": PLAIN % rest})
    found = folder.diagnostics("train.py")
    assert [one.code for one in found] == codes
    for one in found:
        assert (one.severity, one.certain, one.fix) == (Severity.INFO, False, None)
        assert one.message.endswith(" That is so if the config, which is not known, sets ZeRO stage 3.")


def test_a_mistake_that_rests_on_no_stage_is_said_without_one(folder: Folder) -> None:
    folder.write({"train.py": PLAIN % "engine.load_checkpoint('out/global_step500')"})
    (found,) = folder.diagnostics("train.py")
    assert (found.code, found.severity) == ("DS881", Severity.WARNING)
    assert "That is so" not in found.message


def test_a_program_that_gives_the_loop_an_iterator_is_right(folder: Folder) -> None:
    folder.write({"train.py": PIPELINE % ("build()", "iter(loader)")})
    assert folder.found("train.py") == []


def test_a_call_on_some_ranks_is_found(folder: Folder) -> None:
    folder.write({"train.py": PLAIN % "if deepspeed.comm.get_rank() == 0:\n    engine.save_checkpoint('out')"})
    assert [code for code, _, _ in folder.found("train.py")] == ["DS964"]


OPTIONAL = (
    "import deepspeed, torch, yaml\nfrom accelerate import Accelerator\ncfg = yaml.safe_load(open('conf.yaml'))\n"
    "class Training:\n    def __init__(self):\n        self.model = Net()\n        self.optimizer = torch.optim.Adam(self.model.parameters())\n"
    "        if cfg.deepspeed:\n            engine, self.optimizer, *_ = deepspeed.initialize(model=self.model, config=cfg.ds_config)\n"
    "            self.model = engine.module\n        elif cfg.accelerate:\n"
    "            self.model, self.optimizer = Accelerator().prepare(self.model, self.optimizer)\n"
    "    def save(self, path):\n        %storch.save({'model': self.model.state_dict()}, path)\n"
    "training = Training()\nfor epoch in range(3):\n    training.save(f'out/{epoch}.pt')\n"
)


@pytest.mark.parametrize(("before", "codes"), [("", ["DS895"]), ("if torch.distributed.get_rank() != 0: return\n        ", [])])
def test_a_save_of_one_file_by_all_ranks_is_found(folder: Folder, before: str, codes: list[str]) -> None:
    folder.write({"train.py": OPTIONAL % before})
    assert [code for code, _, _ in folder.found("train.py")] == codes


TOLD = (
    "import yaml\nfrom transformers import AutoModelForCausalLM\nfrom transformers.integrations import HfDeepSpeedConfig\n"
    "class Loader:\n    def __init__(self, cfg):\n        self.cfg = cfg\n"
    "    def tell(self):\n        told = None\n        if self.cfg.zero3:\n            told = HfDeepSpeedConfig(self.cfg.deepspeed)\n"
    "            told.fill_match('train_batch_size', 8)\n        return told\n"
    "    def load(self):\n        %s\n        self.model = AutoModelForCausalLM.from_pretrained('m')\n"
    "Loader(yaml.safe_load(open('conf.yaml'))).load()\n"
)


@pytest.mark.parametrize(
    ("call", "codes"), [("self.tell()", ["DS958"]), ("_ = self.tell()", []), ("self.told = self.tell()", []), ("keep(self.tell())", [])]
)
def test_a_config_for_transformers_that_a_call_drops_is_found(folder: Folder, call: str, codes: list[str]) -> None:
    folder.write({"train.py": TOLD % call})
    assert [code for code, _, _ in folder.found("train.py")] == codes


def test_a_method_that_nothing_calls_is_found_in_a_folder(folder: Folder) -> None:
    agent = (
        "import deepspeed\nimport torch\nclass Agent:\n    def __init__(self, model, args):\n"
        "        self.engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=args['ds'])\n"
        "    def save(self, path):\n        torch.save(self.engine.module.state_dict(), path)\n"
        "def load(args):\n    return globals()[args['name']](build(args), args)\n"
    )
    folder.write({"agent.py": agent, "train.py": "import agent\nagent.load(settings()).save('out')\n"})
    results = folder.results("agent.py", named=False)
    assert [one.code for one in results["agent.py"].diagnostics] == ["DS895"]
