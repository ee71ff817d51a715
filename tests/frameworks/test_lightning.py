"""What Lightning's trainer and its strategy make of a config: dslint shows it, and the real strategy says the same for drawn jobs."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from dslint.config import resolve
from dslint.config.resolve import Config
from dslint.config.values import Origin
from dslint.facts import Facts
from dslint.setups.open import open_text
from dslint.source.unknown import UNKNOWN
from tests.setup.folder import Folder, with_loaders


class Job(NamedTuple):
    """The arguments of the trainer; a strategy by its name or by its arguments; the config that it is given; the batch size of the loader."""

    trainer: dict[str, Any]
    strategy: str | dict[str, Any]
    config: dict[str, Any] | None = None
    batch: int | None = None

    @property
    def program(self) -> str:
        """The program of the job."""
        config = {} if self.config is None else {"config": "ds.json"}
        keywords = (
            ", ".join(f"{name}={value!r}" for name, value in {**dict(self.strategy or ()), **config}.items()) if self.named is None else ""
        )
        strategy = repr(self.named) if self.named is not None else f"DeepSpeedStrategy({keywords})"
        given = "".join(f", {name}={value!r}" for name, value in self.trainer.items())
        loader = "        pass\n" if self.batch is None else f"        return DataLoader(data, batch_size={self.batch})\n"
        return (
            "import lightning as L\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\nfrom torch.utils.data import DataLoader\n\n\n"
            f"class Model(L.LightningModule):\n    def train_dataloader(self):\n{loader}\n\n"
            f"L.Trainer(devices=8{given}, strategy={strategy}).fit(Model())\n"
        )

    @property
    def named(self) -> str | None:
        """The name of the strategy."""
        return self.strategy if isinstance(self.strategy, str) else None


ZERO = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}
NAMES = [
    "deepspeed",
    *(f"deepspeed_stage_{one}" for one in ("1", "2", "2_offload", "3", "3_offload", "3_offload_nvme")),
]
ARGUMENTS: dict[str, list[Any]] = {
    "stage": [0, 1, 2, 3],
    "zero_optimization": [False],
    "offload_optimizer": [True, False],
    "offload_parameters": [True],
    "offload_optimizer_device": ["cpu", "nvme"],
    "offload_params_device": ["cpu", "nvme"],
    "nvme_path": ["/nvme"],
    "pin_memory": [True],
    "params_buffer_size": [50_000_000],
    "max_in_cpu": [1_000_000],
    "optimizer_buffer_count": [8],
    "sub_group_size": [1_000_000_000],
    "reduce_bucket_size": [50_000_000],
    "allgather_bucket_size": [500_000_000],
    "overlap_comm": [False],
    "contiguous_gradients": [False],
    "zero_allow_untested_optimizer": [False],
    "logging_batch_size_per_gpu": ["auto", 2],
    "partition_activations": [True],
    "cpu_checkpointing": [True],
    "queue_depth": [16],
    "thread_count": [4],
    "loss_scale": [128],
    "initial_scale_power": [12],
    "hysteresis": [4],
}
TRAINER: dict[str, list[Any]] = {
    "accumulate_grad_batches": [1, 4],
    "gradient_clip_val": [None, 0.5, 1],
    "precision": ["16-mixed", "16-true", "bf16-mixed", "bf16-true", "32-true"],
}
CONFIGS: list[dict[str, Any]] = [
    ZERO,
    {"zero_optimization": {"stage": 3}},
    {**ZERO, "gradient_clipping": 1.0},
    {**ZERO, "bf16": {"enabled": False}},
    {**ZERO, "fp16": {"enabled": True, "loss_scale": 64}},
]


def drawn(seed: int, count: int) -> Iterator[Job]:
    """Jobs that Lightning accepts."""
    chance = random.Random(seed)

    def some(of: dict[str, list[Any]], most: int) -> dict[str, Any]:
        return {name: chance.choice(of[name]) for name in chance.sample(list(of), chance.randint(0, most))}

    for _ in range(count):
        trainer, batch = some(TRAINER, 3), chance.choice([None, 2, 16])
        kind = chance.choice(["name", "arguments", "arguments", "config"])
        if kind == "name":
            yield Job(trainer, chance.choice(NAMES), batch=batch)
        else:
            yield Job(
                trainer, some(ARGUMENTS, 7) if kind == "arguments" else {}, chance.choice(CONFIGS) if kind == "config" else None, batch
            )


REAL = """
import json, sys
from types import SimpleNamespace
from lightning.pytorch.plugins.precision import DeepSpeedPrecision
from lightning.pytorch.strategies import DeepSpeedStrategy, StrategyRegistry

out = []
for trainer, strategy, config, batch in json.load(sys.stdin):
    precision = DeepSpeedPrecision(trainer.pop("precision", "32-true"))
    made = StrategyRegistry.get(strategy) if isinstance(strategy, str) else DeepSpeedStrategy(config=config, **strategy)
    made.precision_plugin = precision
    loader = SimpleNamespace(batch_sampler=SimpleNamespace(batch_size=batch))
    source = SimpleNamespace(is_defined=lambda: batch is not None, dataloader=lambda: loader)
    loop = SimpleNamespace(_data_source=source)
    given = {"accumulate_grad_batches": 1, "gradient_clip_val": None, **trainer}
    made._lightning_module = SimpleNamespace(trainer=SimpleNamespace(fit_loop=loop, **given))
    made._format_config()
    out.append(made.config)
print(json.dumps(out))
"""


def ours(folder: Folder, job: Job, **instead: str) -> Config:
    """What dslint makes of the config of a job; `instead` is text for an argument of the trainer."""
    program = job.program
    for name, text in instead.items():
        program = program.replace(f"{name}=8", text)
    folder.write({"train.py": program, **({} if job.config is None else {"ds.json": json.dumps(job.config)})})
    subject = open_text(program, "train.py", with_loaders(Facts()))
    assert subject is not None
    (used,) = subject.configs
    return resolve(used.loaded.document, used.loaded.context)


def leaves(config: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The paths of a config with their values."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name), value


def test_what_the_trainer_is_given_is_shown(folder: Folder) -> None:
    job = Job({"accumulate_grad_batches": 4, "gradient_clip_val": 0.5, "precision": "bf16-mixed"}, {}, ZERO)
    config = ours(folder, job)
    shown = {key: config.value(key) for key in ("gradient_accumulation_steps", "gradient_clipping", "fp16.enabled", "bf16.enabled")}
    assert shown == {"gradient_accumulation_steps": 4, "gradient_clipping": 0.5, "fp16.enabled": False, "bf16.enabled": True}
    assert config.value("train_batch_size") == 4 * 4 * 8


def test_a_strategy_has_defaults_of_its_own(folder: Folder) -> None:
    config = ours(folder, Job({}, "deepspeed_stage_3_offload", batch=16))
    bucket = config.resolved("zero_optimization.reduce_bucket_size")
    assert (bucket.value, bucket.origin) == (200_000_000, Origin.FILLED)
    assert config.value("zero_allow_untested_optimizer") is True
    assert config.value("zero_optimization.offload_optimizer.nvme_path") == "/local_nvme"
    assert config.value("gradient_clipping") == 0.0
    assert config.value("train_batch_size") == 16 * 8


def test_a_micro_batch_of_one_counts(folder: Folder) -> None:
    assert ours(folder, Job({"accumulate_grad_batches": 4}, "deepspeed", batch=1)).value("train_batch_size") == 1 * 4 * 8


@pytest.mark.parametrize(("given", "scale"), [({}, 0), ({"loss_scale": 128}, 128)])
def test_a_config_gets_the_loss_scale_of_the_strategy(folder: Folder, given: dict[str, Any], scale: int) -> None:
    config = ours(folder, Job({"precision": "16-mixed"}, given, ZERO))
    assert (config.value("fp16.loss_scale"), config.resolved("fp16.hysteresis").origin) == (scale, Origin.FILLED)
    untouched = ours(folder, Job({"precision": "16-mixed"}, given, {**ZERO, "fp16": {"enabled": True, "loss_scale": 64}}))
    assert untouched.value("fp16.loss_scale") == 64


def test_the_ranks_are_those_of_the_trainer(folder: Folder) -> None:
    assert ours(folder, Job({"num_nodes": 2}, "deepspeed")).facts.world_size == 16
    for devices, ranks in (("[0, 1]", 2), ("'4'", 4), ("-1", None), ("'auto'", None), ("n", None)):
        assert ours(folder, Job({}, "deepspeed"), devices=f"devices={devices}").facts.world_size == ranks, devices


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


def test_unpacked_arguments_may_say_anything(folder: Folder) -> None:
    resolved = ours(folder, Job({}, "deepspeed"), devices="devices=8, **more")
    assert [resolved.value(key) for key in ("gradient_accumulation_steps", "gradient_clipping")] == [UNKNOWN] * 2
    assert resolved.facts.world_size is None


@pytest.mark.slow
@pytest.mark.deepspeed
def test_lightnings_own_strategy_writes_the_same(folder: Folder) -> None:
    pytest.importorskip("lightning")
    jobs = [*drawn(20261124, 150), *(Job({}, name, batch=4) for name in NAMES)]
    done = subprocess.run([sys.executable, "-c", REAL], input=json.dumps(jobs), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    values = known = 0
    for job, real in zip(jobs, json.loads(done.stdout.splitlines()[-1]), strict=True):
        config = ours(folder, job)
        for path, value in leaves(real):
            shown = config.value(path)
            values, known = values + 1, known + (shown is not UNKNOWN)
            assert shown is UNKNOWN or shown == value, (job, path)
    assert known > 0.97 * values  # the micro batch size of a job without a data loader
