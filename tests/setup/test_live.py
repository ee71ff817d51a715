"""`dslint.check_training_arguments`, and `dslint show` of a training."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import dslint
from tests.setup.folder import Folder

CONFIG = {"train_batch_size": "auto", "gradient_accumulation_steps": 4, "gradient_clipping": "auto", "zero_optimization": {"stage": 2}}


def codes(args: object, **more: object) -> list[str]:
    return [d.code for d in dslint.check_training_arguments(args, **more)]  # type: ignore[arg-type]


def test_arguments_that_disagree_with_their_config() -> None:
    args = SimpleNamespace(deepspeed=copy.deepcopy(CONFIG), gradient_accumulation_steps=2, world_size=8)
    (found,) = dslint.check_training_arguments(args)
    assert found.code == "DS904"
    assert found.path == "<dict>"
    assert [related.path for related in found.related] == ["<TrainingArguments>"]
    assert args.deepspeed == CONFIG
    assert codes(SimpleNamespace(deepspeed=CONFIG, gradient_accumulation_steps=4)) == []


def test_what_an_attribute_does_not_say_is_not_known() -> None:
    assert codes(SimpleNamespace(deepspeed=CONFIG)) == []
    assert codes(SimpleNamespace(deepspeed=CONFIG, gradient_accumulation_steps=object())) == []


def test_a_config_beside_the_arguments_and_none() -> None:
    args = SimpleNamespace(gradient_accumulation_steps=2)
    assert codes(args) == []
    assert codes(args, config=CONFIG) == ["DS904"]
    with pytest.raises(TypeError, match="pass config="):
        codes(SimpleNamespace(deepspeed=5))


def test_the_model_says_whether_bucket_sizes_can_be_filled() -> None:
    config = {**CONFIG, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}
    args = SimpleNamespace(deepspeed=config, gradient_accumulation_steps=4)
    assert codes(args, model={"hidden_size": 4096}) == []
    assert codes(args, model={"model_type": "odd"}) == ["DS928"]


@pytest.mark.integrations
def test_live_arguments(folder: Folder) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("deepspeed")
    program = (
        "import json, warnings; warnings.simplefilter('ignore')\n"
        "import dslint\n"
        "from transformers import TrainingArguments\n"
        "args = TrainingArguments(output_dir='o', deepspeed='ds.json', use_cpu=True, report_to=[], gradient_accumulation_steps=2)\n"
        "print(json.dumps([d.code for d in dslint.check_training_arguments(args)]))\n"
    )
    assert transformers.__version__
    folder.write({"ds.json": json.dumps(CONFIG)})
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "DS904" in json.loads(done.stdout.splitlines()[-1])


def show(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "dslint", "show", *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def test_show_says_where_filled_values_come_from(folder: Folder) -> None:
    config = {**CONFIG, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"}}
    folder.write(
        {
            "train.yaml": "base_model: m\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\nmax_grad_norm: 0.3\ndeepspeed: ds.json\n",
            "ds.json": json.dumps(config),
            "config.json": json.dumps({"model_type": "llama", "hidden_size": 4096}),
        }
    )
    words = " ".join(show("train.yaml", "--model", "config.json", "--world-size", "8").replace("filled:", "filled").split())
    assert "gradient_clipping 0.3 filled max_grad_norm in train.yaml:4" in words
    assert "train_batch_size 64 filled" in words
    assert "stage3_prefetch_bucket_size 15099494 filled from hidden_size 4,096 in config.json" in words


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "base_model: m\nmicro_batch_size: 2\ndeepspeed: nowhere.json\n", "a: [\n"])
def test_show_of_what_leads_to_no_config(folder: Folder, text: str) -> None:
    folder.write({"train.yaml": text})
    assert "train.yaml: " in show("train.yaml")


def test_a_plain_check_reads_no_yaml(folder: Folder) -> None:
    folder.write({"ds.json": json.dumps(CONFIG)})
    program = (
        "import sys\nsys.argv = ['dslint', 'check', 'ds.json']\nfrom dslint.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = [name for name in sys.modules if name.split('.')[0] in ('yaml', 'pydantic')]\n"
        "assert not heavy, heavy\nassert not any(name.startswith('dslint.setups.gather') for name in sys.modules)\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env={"PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
