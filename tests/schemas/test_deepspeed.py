"""The models say what DeepSpeed's own code does: its pydantic models, its constructors, its parser."""

from __future__ import annotations

import copy
import importlib
import inspect
import warnings
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from dslint.config.coerce import is_kind
from dslint.config.read_value import read_value
from dslint.facts import NEWEST
from dslint.schemas import key_table, marks
from dslint.schemas.base import PydanticSection
from dslint.schemas.optimizers import OPTIMIZERS
from dslint.schemas.schedulers import SCHEDULERS
from dslint.schemas.walk import NO_DEFAULT, Key, keys_of

from .samples import KEYS, document, dotted, values_for

pytestmark = pytest.mark.deepspeed

TWINS = {
    "zero_optimization": "runtime.zero.config.DeepSpeedZeroConfig",
    "zero_optimization.offload_param": "runtime.zero.offload_config.DeepSpeedZeroOffloadParamConfig",
    "zero_optimization.offload_optimizer": "runtime.zero.offload_config.DeepSpeedZeroOffloadOptimizerConfig",
    "zero_optimization.zenflow": "runtime.zenflow.zenflow_config.ZenFlowConfig",
    "zero_optimization.leaf_module": "runtime.zero.leaf_module_config.DeepSpeedZeroLeafModuleConfig",
    "fp16": "runtime.precision_config.DeepSpeedFP16Config",
    "bf16": "runtime.precision_config.DeepSpeedBF16Config",
    "bfloat16": "runtime.precision_config.DeepSpeedBF16Config",
    "tensorboard": "monitor.config.TensorBoardConfig",
    "wandb": "monitor.config.WandbConfig",
    "csv_monitor": "monitor.config.CSVConfig",
    "comet": "monitor.config.CometConfig",
    "comms_logger": "comm.config.CommsLoggerConfig",
    "compile": "compile.config.CompileConfig",
    "tensor_parallel": "runtime.tensor_parallel.config.TPTrainingConfig",
    "tensor_parallel.tp": "runtime.tensor_parallel.config.TPConfig",
    "hybrid_engine": "runtime.config.HybridEngineConfig",
    "weight_quantization": "inference.config.WeightQuantConfig",
    "timers.throughput": "utils.config.DeepSpeedThroughputTimerConfig",
}
"""Every section that DeepSpeed parses with a model, and the model."""

BY_PATH = {dotted(key): key for key in KEYS}
PARSED = [key for key in KEYS if key.shape.section is not None and issubclass(key.shape.section, PydanticSection)]


def twin(path: str) -> type[BaseModel]:
    module, _, name = TWINS[path].rpartition(".")
    found: type[BaseModel] = getattr(importlib.import_module(f"deepspeed.{module}"), name)
    return found


def test_every_parsed_section_has_a_twin() -> None:
    live = {dotted(key) for key in PARSED if key.mark(marks.Until) is None}
    nested = {path for path in live if path not in TWINS}
    assert nested == set(), "sections without a DeepSpeed model to compare with"
    assert set(TWINS) <= live


def plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return None
    return getattr(value, "value", value)


@pytest.mark.parametrize("path", TWINS)
def test_fields_spellings_and_defaults(deepspeed: Any, path: str) -> None:
    theirs = twin(path)
    section = BY_PATH[path].shape.section
    assert section is not None
    ours = {key.name: key for key in keys_of(section) if key.mark(marks.Until) is None}
    named = {info.alias or name: (name, info) for name, info in theirs.model_fields.items()}
    assert set(ours) == set(named)
    for spelling, (name, info) in named.items():
        key = ours[spelling]
        assert key.also == ((name,) if name != spelling else ()), spelling
        if key.shape.section is not None:
            continue
        default = info.get_default(call_default_factory=True)
        if key.default == "auto":
            continue  # a torch data type, which no file can hold
        if "dtype" in spelling and default is not None:
            assert str(default) in (key.default, f"torch.{key.default}"), spelling
        else:
            assert plain(default) == key.default, spelling
            assert type(plain(default)) is type(key.default) or isinstance(key.default, float | int), spelling


@pytest.mark.parametrize("path", TWINS)
def test_ranges(deepspeed: Any, path: str) -> None:
    section = BY_PATH[path].shape.section
    assert section is not None
    ours = {key.name: key for key in keys_of(section) if key.mark(marks.Until) is None}
    for name, info in twin(path).model_fields.items():
        bounds = {type(entry).__name__.lower(): getattr(entry, type(entry).__name__.lower(), None) for entry in info.metadata}
        if (path, name) in {("fp16", "loss_scale"), ("zero_optimization.zenflow", "update_interval")}:
            continue  # their bounds stand in validators; the values below try them
        assert ours[info.alias or name].shape.bounds == {edge: value for edge, value in bounds.items() if value is not None}, name


NEIGHBOURS = {
    "zero_optimization.compute_grad_norm": {"stage": 1},
    "zero_optimization.offload_optimizer": {"stage": 3},
}
"""What has to stand beside a key so that the value alone decides."""


@pytest.mark.parametrize("path", TWINS)
def test_the_same_values_are_taken(deepspeed: Any, path: str) -> None:
    """Value by value: DeepSpeed's model, ours, and the key table as `check` reads it."""
    theirs = twin(path)
    section = BY_PATH[path].shape.section
    assert section is not None
    for key in keys_of(section, BY_PATH[path].path):
        spec = key_table.KEYS[dotted(key)]
        if "until" in spec:
            continue
        beside = NEIGHBOURS.get(dotted(key), {})
        for value in [*values_for(key), 2.0, "2", "yes", "OFF", "1e3", 10**30]:
            if value == "auto" or ("deprecated" in spec and value is not None) or isinstance(value, dict):
                continue
            taken = takes(theirs, {key.name: value, **beside})
            where = (dotted(key), value)
            assert takes(section, {key.name: value, **beside}) == taken or unlike(key, value), where
            reading = read_value(value, spec, NEWEST, by_hand=False)
            assert (reading.fault is None) == taken, (*where, reading)


def takes(model: type[BaseModel], values: dict[str, Any]) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model(**copy.deepcopy(values))
    except (ValidationError, TypeError):
        return False
    return True


def unlike(key: Key, value: Any) -> bool:
    """Our models hold resolved values, DeepSpeed's also read unresolved ones: a stage of "3" or 3.0, a bool for a number."""
    if key.mark(marks.NoBool) is not None and isinstance(value, bool):
        return True
    return bool(key.shape.choices) and isinstance(value, str | float | bool)


CLASSES = {
    "FusedAdam": "deepspeed.ops.adam",
    "DeepSpeedCPUAdam": "deepspeed.ops.adam",
    "FusedLamb": "deepspeed.ops.lamb",
    "FusedLion": "deepspeed.ops.lion",
    "DeepSpeedCPULion": "deepspeed.ops.lion",
    "DeepSpeedCPUAdagrad": "deepspeed.ops.adagrad",
}
POPPED = {"Adam": {"torch_adam", "adam_w_mode", "fp32_optimizer_states"}, "AdamW": {"torch_adam", "adam_w_mode", "fp32_optimizer_states"}}
GIVEN = {"adam_w_mode", "adamw_mode", "fp32_optimizer_states"}
"""Arguments that the engine gives itself, from what it popped."""


def constructor(name: str) -> Any:
    if name.startswith("torch."):
        return getattr(pytest.importorskip("torch").optim, name.rpartition(".")[2])
    return getattr(importlib.import_module(CLASSES[name]), name)


MADE = [(kind, name) for kind, entry in OPTIMIZERS.items() for name in entry.classes if name in CLASSES or name.startswith("torch.")]


@pytest.mark.parametrize(("kind", "name"), MADE, ids=[f"{kind}-{name}" for kind, name in MADE])
def test_parameters_are_those_of_the_constructor(deepspeed: Any, kind: str, name: str) -> None:
    signature = dict(list(inspect.signature(constructor(name).__init__).parameters.items())[2:])
    ours = {key.name: key for key in keys_of(OPTIMIZERS[kind].params) if key.mark(marks.Until) is None}
    popped = POPPED.get(kind, set())
    for parameter in ours.values():
        only = parameter.mark(marks.OnlyFor)
        expected = parameter.name in popped or ((only is None or name in only.classes) and not (popped and parameter.name in GIVEN))
        if parameter.name not in popped:
            assert (parameter.name in signature) == expected, parameter.name
    given = GIVEN if popped else set()
    assert set(signature) - set(ours) - given - {"max_grad_norm"} == set()
    for argument, parameter in signature.items():
        if argument not in ours or argument in given:
            continue
        default = ours[argument].default
        if (kind, name, argument) in {("AdamW", "torch.optim.AdamW", "weight_decay"), ("Adam", "torch.optim.AdamW", "weight_decay")}:
            continue  # 0.01, as the description says
        assert (tuple(default) if isinstance(default, list) else default) == parameter.default, argument


def test_every_optimizer_of_torch_is_known(deepspeed: Any) -> None:
    torch = pytest.importorskip("torch")
    there = {
        name
        for name in dir(torch.optim)
        if isinstance(getattr(torch.optim, name), type) and issubclass(getattr(torch.optim, name), torch.optim.Optimizer)
    }
    assert there - {"Optimizer"} <= set(OPTIMIZERS)


def test_deepspeeds_own_names(deepspeed: Any) -> None:
    from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS
    from deepspeed.runtime.lr_schedules import VALID_LR_SCHEDULES

    assert sorted(name.lower() for name, kind in OPTIMIZERS.items() if kind.any_case and kind.until is None) == sorted(DEEPSPEED_OPTIMIZERS)
    assert set(VALID_LR_SCHEDULES) <= set(SCHEDULERS)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedules(deepspeed: Any, name: str) -> None:
    from deepspeed.runtime import lr_schedules

    torch = pytest.importorskip("torch")
    made = getattr(lr_schedules, name, None) or getattr(torch.optim.lr_scheduler, name)
    signature = dict(list(inspect.signature(made.__init__).parameters.items())[2:])
    ours = {key.name: key for key in keys_of(SCHEDULERS[name].params)}
    assert set(ours) == set(signature) - {"scale_fn"}
    for argument, parameter in signature.items():
        if argument in ours:
            assert ours[argument].required == (parameter.default is inspect.Parameter.empty), argument
            assert ours[argument].required or ours[argument].default == parameter.default, argument


WORKING: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}


def parse(deepspeed: Any, config: dict[str, Any]) -> Exception | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            deepspeed.runtime.config.DeepSpeedConfig(copy.deepcopy(config))
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
        return error
    return None


def beside(key: Key, value: Any) -> dict[str, Any]:
    """A config that works, with the value in it."""
    config = copy.deepcopy(WORKING)
    for name, entry in document(key.path, value).items():
        if isinstance(entry, dict) and isinstance(config.get(name), dict) and len(key.path) > 1:
            config[name] |= entry
        else:
            config[name] = entry
    return config


BY_HAND = [
    key
    for key in KEYS
    if "wrong" in key_table.KEYS[dotted(key)]
    and "hand" in key_table.KEYS[dotted(key)]
    and "until" not in key_table.KEYS[dotted(key)]
    and "*" not in key.path
    and "[]" not in dotted(key)
]


@pytest.mark.parametrize("key", BY_HAND, ids=dotted)
def test_hand_read_keys_raise_while_parsing_exactly_where_the_table_says(deepspeed: Any, key: Key) -> None:
    spec = key_table.KEYS[dotted(key)]
    if "read_with" in spec:
        return  # nothing reads it here, without the key that it is read with
    for value in ("x", None, True, 2, 1.5, ["x"]):
        if isinstance(value, bool) and "bool_for" in spec:
            continue
        if key.path == ("train_batch_size",) and value == 1.5:
            continue  # no multiple of the micro batch
        reading = read_value(value, spec, NEWEST, by_hand=True)
        consequence = reading.consequence
        claimed = consequence is not None and consequence[0] == "raises" and consequence[1] == "parse"
        error = parse(deepspeed, beside(key, value))
        if consequence == ("truthy",) and error is not None:
            claimed = parse(deepspeed, beside(key, value=True)) is not None  # it counts as true, and true raises here
        if (value is None and dotted(key) == "train_micro_batch_size_per_gpu") or dotted(key) in ELSEWHERE:
            continue  # no batch size is left
        if is_section(key) and reading.fault is None:
            continue
        assert claimed == (error is not None), (dotted(key), value, reading, repr(error)[:200])
        if claimed and value == "x" and consequence is not None and consequence[0] == "raises" and dotted(key) != "tensor_parallel":
            assert f"{type(error).__name__}: {error}".startswith(consequence[2][:70]), (dotted(key), repr(error)[:200])


ELSEWHERE = {
    "aio.use_gds",  # refused on a CPU alone
    "data_efficiency.data_sampling.curriculum_learning.enabled",  # true asks for curriculum_metrics beside it
    "data_efficiency.data_sampling.dynamic_batching.enabled",  # true asks for max_tokens beside it
    "sequence_parallel_size",  # read only where torch.distributed runs
    "optimizer.type",  # a string fails in initialize, everything else already here
    "torch_autocast.lower_precision_safe_modules",  # a string fails in initialize, everything else already here
}


def is_section(key: Key) -> bool:
    return key.shape.section is not None


@pytest.mark.parametrize("key", [key for key in KEYS if len(key.path) <= 2 and key.mark(marks.Until) is not None], ids=dotted)
def test_removed_keys(deepspeed: Any, key: Key) -> None:
    until = key.mark(marks.Until)
    assert until is not None
    if key.default is NO_DEFAULT:
        return
    for value in (None, {}, False):
        error = parse(deepspeed, beside(key, value))
        assert (error is not None) == (until.then != "ignored"), (dotted(key), value, error)


def test_a_config_of_defaults_is_parsed(deepspeed: Any) -> None:
    """Every default written out, section by section."""
    for key in KEYS:
        spec = key_table.KEYS[dotted(key)]
        if "until" in spec or "deprecated" in spec or "default" not in spec or "*" in key.path or "[]" in dotted(key):
            continue
        value = spec["default"]
        if (value is None and "null" not in spec["types"]) or dotted(key) in UNWRITABLE:
            continue
        assert any(is_kind(value, kind) for kind in spec["types"]), dotted(key)
        assert parse(deepspeed, beside(key, value)) is None, dotted(key)


UNWRITABLE = {"train_micro_batch_size_per_gpu", "tensor_parallel.dtype"}
"""Null here leaves no batch size; no JSON value is a torch.dtype."""
