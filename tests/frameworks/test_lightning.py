"""What Lightning's trainer writes into a config that its strategy loads: dslint shows it, and the real strategy says the same."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from dslint.config import resolve
from dslint.facts import Facts
from dslint.setups.open import open_text
from dslint.source.unknown import UNKNOWN
from tests.setup.folder import Folder, with_loaders

ZERO = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "accumulation": ({"accumulate_grad_batches": 4}, ZERO),
    "clipping": ({"gradient_clip_val": 0.5}, ZERO),
    "clipping of the config": ({"gradient_clip_val": 0.5}, {**ZERO, "gradient_clipping": 1.0}),
    "bf16": ({"precision": "bf16-mixed"}, ZERO),
    "fp16": ({"precision": "16-mixed"}, ZERO),
    "16": ({"precision": "16-true"}, ZERO),
    "no clipping": ({"gradient_clip_val": None}, ZERO),
    "fp32": ({"precision": "32-true"}, ZERO),
    "precision of the config": ({"precision": "bf16-true"}, {**ZERO, "bf16": {"enabled": False}}),
}
DEFAULTS = {"gradient_accumulation_steps": 1, "gradient_clipping": UNKNOWN, "fp16.enabled": False, "bf16.enabled": False}

REAL = """
import json, sys
from types import SimpleNamespace
from lightning.pytorch.plugins.precision import DeepSpeedPrecision
from lightning.pytorch.strategies import DeepSpeedStrategy

out = []
for arguments, config in json.load(sys.stdin):
    strategy = DeepSpeedStrategy(config=config, precision_plugin=DeepSpeedPrecision(arguments.pop("precision", "32-true")))
    loop = SimpleNamespace(_data_source=SimpleNamespace(is_defined=lambda: False))
    trainer = SimpleNamespace(fit_loop=loop, **{"accumulate_grad_batches": 1, "gradient_clip_val": None, **arguments})
    strategy._lightning_module = SimpleNamespace(trainer=trainer)
    strategy._format_config()
    out.append(strategy.config)
print(json.dumps(out))
"""


def ours(folder: Folder, arguments: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """The values that dslint shows for the config of a program with these arguments of the trainer."""
    given = "".join(f", {name}={value!r}" for name, value in arguments.items())
    program = "import lightning as L\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\n\n"
    program += f"L.Trainer(devices=8{given}, strategy=DeepSpeedStrategy(config='ds.json')).fit(None)\n"
    text = json.dumps(config)
    folder.write({"train.py": program, "ds.json": text})
    subject = open_text(text, "ds.json", with_loaders(Facts(world_size=8)))
    assert subject is not None
    (used,) = subject.configs
    resolved = resolve(used.loaded.document, used.loaded.context)
    return {key: resolved.value(key) for key in (*DEFAULTS, "train_batch_size")}


@pytest.mark.parametrize("name", CASES)
def test_what_the_trainer_is_given_is_shown(folder: Folder, name: str) -> None:
    arguments, config = CASES[name]
    written = {"gradient_clipping": config["gradient_clipping"]} if "gradient_clipping" in config else {}
    said = {
        "gradient_accumulation_steps": arguments.get("accumulate_grad_batches", 1),
        "gradient_clipping": arguments.get("gradient_clip_val", UNKNOWN),
        "fp16.enabled": arguments.get("precision") in ("16-mixed", "16-true"),
        "bf16.enabled": arguments.get("precision") == "bf16-mixed",
    }
    if name == "no clipping":
        said["gradient_clipping"] = 0.0
    expected = {**DEFAULTS, **said, **written}
    assert ours(folder, arguments, config) == {**expected, "train_batch_size": 4 * expected["gradient_accumulation_steps"] * 8}


def test_what_is_not_known_stays_unknown(folder: Folder) -> None:
    folder.write({"ds.json": json.dumps(ZERO)})
    program = "import sys\nimport lightning as L\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\n\n"
    program += "L.Trainer(accumulate_grad_batches=int(sys.argv[1]), precision=sys.argv[2], strategy=DeepSpeedStrategy(config='ds.json'))\n"
    folder.write({"train.py": program})
    subject = open_text(json.dumps(ZERO), "ds.json", with_loaders(Facts()))
    assert subject is not None
    (used,) = subject.configs
    resolved = resolve(used.loaded.document, used.loaded.context)
    unknown = ("gradient_accumulation_steps", "train_batch_size", "fp16.enabled", "bf16.enabled")
    assert [resolved.value(key) for key in unknown] == [UNKNOWN] * 4


@pytest.mark.slow
@pytest.mark.deepspeed
def test_lightnings_own_strategy_writes_the_same(folder: Folder) -> None:
    pytest.importorskip("lightning")
    asked = json.dumps(list(CASES.values()))
    done = subprocess.run([sys.executable, "-c", REAL], input=asked, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    for (arguments, config), real in zip(CASES.values(), json.loads(done.stdout.splitlines()[-1]), strict=True):
        shown = ours(folder, arguments, config)
        got = {
            "gradient_accumulation_steps": real["gradient_accumulation_steps"],
            "gradient_clipping": real["gradient_clipping"],
            "fp16.enabled": real.get("fp16", {}).get("enabled", False),
            "bf16.enabled": real.get("bf16", {}).get("enabled", False),
        }
        known = {key: value for key, value in shown.items() if key in got and value is not UNKNOWN}
        assert known == {key: got[key] for key in known}, (arguments, config)
        assert len(known) >= len(got) - 1
