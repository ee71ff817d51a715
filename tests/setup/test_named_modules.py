"""LightningModules of other files: those that a program imports, and those that a YAML file names."""

from __future__ import annotations

import pytest

from dslint.facts import Facts
from tests.setup.folder import Folder

_MODULE = (
    "import torch\nimport lightning as L\nfrom transformers import AutoModelForCausalLM\n\n\nclass Base(L.LightningModule):\n"
    "    def __init__(self, name='m'):\n        super().__init__()\n        self.net = AutoModelForCausalLM.from_pretrained(name)\n\n"
    "    def validation_step(self, batch, index):\n        return self.net.generate(batch)\n\n"
    "    def chat(self, text):\n        return self.net.generate(text)\n"
)
_OPTIMIZER = "\n    def configure_optimizers(self):\n        return torch.optim.AdamW(self.parameters(), lr=1e-4)\n"
_TRAINS = "import lightning as L\nfrom net import Base\ntrainer = L.Trainer(strategy='%s', devices=4, precision='bf16-mixed')\ntrainer.fit(Base(), loader)\n"
_YAML = "trainer:\n  strategy: %s\n  devices: 4\n  precision: bf16-mixed\nmodel:\n  class_path: %s\n  init_args:\n    name: m\n"
_BY_DEFINITION = "module: net\ndefinition: Base\nstrategy: %s\ndevices: 4\nnum_nodes: 1\nprecision: bf16-mixed\nmax_epochs: 1\n"


def _found(folder: Folder, name: str) -> list[tuple[str, str, int]]:
    return [one for one in folder.found(name) if one[0] in ("DS985", "DS525")]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("deepspeed_stage_3", [("DS985", "net.py", 12)]),
        ("deepspeed_stage_2", []),
        ("deepspeed_stage_2_offload", [("DS525", "train.py", 3)]),
        ("ddp", []),
    ],
)
def test_the_methods_of_an_imported_module_are_followed(folder: Folder, strategy: str, expected: list[tuple[str, str, int]]) -> None:
    folder.write({"net.py": _MODULE + _OPTIMIZER, "train.py": _TRAINS % strategy})
    assert _found(folder, "train.py") == expected


def test_an_inherited_method_is_followed(folder: Folder) -> None:
    own = f"import torch\nfrom base import Base\n\n\nclass Own(Base):{_OPTIMIZER}"
    folder.write({"base.py": _MODULE, "net.py": own, "train.py": (_TRAINS % "deepspeed_stage_3").replace("Base", "Own")})
    assert _found(folder, "train.py") == [("DS985", "base.py", 12)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("generate(batch)", "generate(batch, synced_gpus=True)"),
        ("self.net = ", "self.kept = HfDeepSpeedConfig(config)\n        self.net = "),
        ("def validation_step", "def show"),
        ("self.net.generate(batch)", "self(batch)"),
    ],
)
def test_modules_that_keep_the_ranks_together(folder: Folder, before: str, after: str) -> None:
    module = "from transformers.integrations import HfDeepSpeedConfig\n" + _MODULE.replace(before, after) + _OPTIMIZER
    folder.write({"net.py": module, "train.py": _TRAINS % "deepspeed_stage_3"})
    assert _found(folder, "train.py") == []


def test_a_class_that_the_program_does_not_make_is_not_followed(folder: Folder) -> None:
    others = "\n\nclass Other(L.LightningModule):\n    def configure_optimizers(self):\n        return torch.optim.SGD(self.parameters(), lr=1)\n"
    folder.write({"net.py": _MODULE.replace("self.net.generate(batch)", "0") + others, "train.py": _TRAINS % "deepspeed_stage_2_offload"})
    assert _found(folder, "train.py") == []


@pytest.mark.parametrize("name", ["net.Base", "models.net.Base"])
@pytest.mark.parametrize(("strategy", "codes"), [("deepspeed_stage_3", ["DS985"]), ("deepspeed_stage_2", []), ("ddp", [])])
def test_a_file_names_its_module(folder: Folder, name: str, strategy: str, codes: list[str]) -> None:
    module = f"{name.rpartition('.')[0].replace('.', '/')}.py"
    folder.write({module: _MODULE + _OPTIMIZER, "config.yaml": _YAML % (strategy, name)})
    assert _found(folder, "config.yaml") == [(code, module, 12) for code in codes]


def test_a_file_names_its_module_and_class(folder: Folder) -> None:
    folder.write({"net.py": _MODULE + _OPTIMIZER, "config.yaml": _BY_DEFINITION % "deepspeed_stage_3"})
    assert _found(folder, "config.yaml") == [("DS985", "net.py", 12)]


def test_the_optimizer_of_the_named_module_is_known(folder: Folder) -> None:
    folder.write({"net.py": _MODULE + _OPTIMIZER, "config.yaml": _YAML % ("deepspeed_stage_3_offload", "net.Base")})
    assert "DS525" in [code for code, _, _ in _found(folder, "config.yaml")]


@pytest.mark.parametrize(
    "change",
    [
        ("class_path: net.Base", "class_path: elsewhere.Base"),
        ("class_path: net.Base", "class_path: net.Missing"),
        ("class_path: net.Base", "class_path: torch.nn.Linear"),
    ],
)
def test_a_module_that_is_not_in_the_project_is_left_out(folder: Folder, change: tuple[str, str]) -> None:
    folder.write({"net.py": _MODULE + _OPTIMIZER, "config.yaml": (_YAML % ("deepspeed_stage_3", "net.Base")).replace(*change)})
    assert _found(folder, "config.yaml") == []


def test_the_micro_batch_size_that_lightning_adds_is_not_computed(folder: Folder) -> None:
    fabric = (
        "import lightning as L\nfrom lightning.fabric.strategies import DeepSpeedStrategy\n"
        "fabric = L.Fabric(strategy=DeepSpeedStrategy(config='ds.json'), devices=2)\nmodel, optimizer = fabric.setup(model, optimizer)\n"
    )
    folder.write(
        {"train.py": fabric, "ds.json": '{"train_batch_size": 48, "gradient_accumulation_steps": 8, "zero_optimization": {"stage": 2}}'}
    )
    (found,) = [one for one in folder.diagnostics("train.py", facts=Facts(world_size=2)) if one.code == "DS201"]
    assert "is 1 x 8 x 2 = 16; DeepSpeed raises" in found.message
    assert "remove train_batch_size" in (found.help or "")
