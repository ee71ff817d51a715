"""MMEngine and xtuner: `xtuner train CONFIG --deepspeed ds.json` fills "auto" in the config and passes an optimizer of its own.

xtuner builds MMEngine's DeepSpeed strategy from the config, and gives it the batch size, the accumulation steps and the clipping of CONFIG.
It chooses the precision by what the GPU can do where the config leaves it open.

A Python file with the settings of a training describes MMEngine's strategy, as MMEngine and xtuner read it.
Source: mmengine/_strategy/deepspeed.py, DeepSpeedStrategy; mmengine/runner/_flexible_runner.py, FlexibleRunner.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping as Tables

from dslint.evaluate.python.calls import CallOf
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.files import json_file
from dslint.evaluate.python.integration import InPrograms, Notes
from dslint.evaluate.python.libraries.table import first_argument
from dslint.evaluate.python.notes import ConfigCall
from dslint.evaluate.python.tree import TreeMaker
from dslint.evaluate.reasons import IS_COMPUTED
from dslint.evaluate.values import Constant, DictValue, Entry, Library, Unknown, Value
from dslint.facts import Integration
from dslint.frameworks.base import Framework
from dslint.record import Record
from dslint.source.parse import parse
from dslint.source.tree import Document, Key, Mapping, Member, Node, Scalar, Span
from dslint.source.unknown import UNKNOWN

_SECTIONS_IT_FILLS = frozenset({"fp16", "bf16"})


def _as_passed(config: Document) -> Document:
    """A config as xtuner passes it: what it fills is not "auto", but unknown here."""
    if not isinstance(config.root, Mapping):
        return config
    root = config.root
    filled = Mapping(root.span, [_filled(member, top=True) for member in root.members], may_have_more=root.may_have_more)
    return config.with_root(filled)


_SHIPPED = re.compile(r"deepspeed_zero(?P<stage>1|2(?P<offload>_offload)?|3(?P<offloads>_offload)?)")
_TO_CPU = {"device": "cpu", "pin_memory": True}


def _config_by_name(name: str) -> Document | None:
    """The config that ships with xtuner under a name; None for any other name. Source: xtuner/configs/deepspeed."""
    match = _SHIPPED.fullmatch(name)
    if match is None:
        return None
    zero: dict[str, object] = {"stage": int(match["stage"][0]), "overlap_comm": True}
    if match["offload"] or match["offloads"]:
        zero["offload_optimizer"] = _TO_CPU
    if match["offloads"]:
        zero["offload_param"] = _TO_CPU
    if zero["stage"] == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    config = {
        "gradient_accumulation_steps": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": zero,
        "fp16": {"enabled": "auto", "initial_scale_power": 16},
        "bf16": {"enabled": "auto"},
    }
    return parse(json.dumps(config, indent=2))


def _filled(member: Member, *, top: bool) -> Member:
    node: Node = member.value
    if isinstance(node, Mapping) and top and member.key.value in _SECTIONS_IT_FILLS:
        return Member(member.key, Mapping(node.span, [_filled(inner, top=False) for inner in node.members]))
    if isinstance(node, Scalar) and node.value == "auto":
        return Member(member.key, Scalar(node.span, UNKNOWN, node.raw, node.style))
    return member


FRAMEWORK = Framework(
    "xtuner",
    Integration.DEEPSPEED,
    packages=("xtuner", "mmengine"),
    commands=("xtuner",),
    config_by_name=_config_by_name,
    passes=frozenset(("model", "optimizer", "config")),
    as_passed=_as_passed,
    starts_ranks=True,
)


# ---------------------------------------------------------------------- files with the settings of a training

_ARGUMENTS = (
    "zero_optimization",
    "gradient_clipping",
    "fp16",
    "bf16",
    "amp",
    "activation_checkpointing",
    "aio",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)
"""The arguments of the strategy that take the place of what its `config` says."""

_BATCH = "train_micro_batch_size_per_gpu"
_STEPS = "gradient_accumulation_steps"
_OVERWRITTEN = "steps_per_print"

_TORCH = frozenset("Adam AdamW SGD Adagrad Adadelta RMSprop NAdam RAdam Adamax ASGD Rprop".split())
_DEEPSPEED = {"DeepSpeedCPUAdam": "deepspeed.ops.adam", "FusedAdam": "deepspeed.ops.adam", "FusedLamb": "deepspeed.ops.lamb"}


class _Described(Record):
    """What a file describes: the config, or the path of one; and the full name of the class of its optimizer with its place."""

    at: Span
    config: Mapping | None
    path: Entry | None
    optimizer: tuple[str, Span] | None


def _described(variables: Tables[str, Value], maker: TreeMaker, state: ProgramState | None) -> _Described | None:
    """The strategy that a file assigns to the variable `strategy`, or a program gives to a runner; None for any other one.

    A config that it names by its path is read where it is found: the other arguments count more than what it says.
    """
    strategy = variables.get("strategy")
    if not isinstance(strategy, DictValue) or _name(strategy.cells.get("type")).rpartition(".")[2] != "DeepSpeedStrategy":
        return None
    optimizer = _optimizer(variables.get("optim_wrapper"))
    given = strategy.cells.get("config")
    inner = given.value if given is not None else None
    if state is not None and isinstance(inner, Constant) and isinstance(inner.value, str):
        inner = json_file(state, inner.value)
    if given is not None and not isinstance(inner, DictValue) and not _is_none(given):
        return _Described(strategy.span, None, given, optimizer)
    inner = inner if isinstance(inner, DictValue) else None
    return _Described(strategy.span, _built(strategy, inner, variables.get("train_dataloader"), maker), None, optimizer)


def _built(strategy: DictValue, config: DictValue | None, loader: Value | None, maker: TreeMaker) -> Mapping:
    """The config: that of the argument `config`, with the other arguments in its place, and the batch size of the data loader."""
    own = maker.config(strategy)
    written = maker.config(config).members if config is not None else []
    over = {one.key.value: one for one in own.members if one.key.value in _ARGUMENTS and not _is_none(strategy.cells[one.key.value])}
    members = [one for one in written if one.key.value not in over and one.key.value != _OVERWRITTEN]
    members += over.values()
    names = {one.key.value for one in members}
    filled = {_BATCH: _batch_size(loader, strategy.span), _STEPS: Scalar(strategy.span, 1, "1", "computed")}
    members += [Member(Key(strategy.span, name, name), value) for name, value in filled.items() if name not in names]
    return Mapping(strategy.span, members, may_have_more=bool(strategy.open) or (config is not None and bool(config.open)))


def _batch_size(loader: Value | None, at: Span) -> Scalar:
    given = loader.cells.get("batch_size") if isinstance(loader, DictValue) else None
    value = given.value.value if given is not None and isinstance(given.value, Constant) else UNKNOWN
    return Scalar(at, value, "..." if value is UNKNOWN else repr(value), "computed")


def _optimizer(wrapper: Value | None) -> tuple[str, Span] | None:
    """The full name of the class of the optimizer and the place of its name; None if it is not known."""
    given = wrapper.cells.get("optimizer") if isinstance(wrapper, DictValue) else None
    kind = given.value.cells.get("type") if given is not None and isinstance(given.value, DictValue) else None
    if kind is None:
        return None
    name = _name(kind)
    short = name.rpartition(".")[2]
    if "." in name:
        return name, kind.span
    module = "torch.optim" if short in _TORCH else _DEEPSPEED.get(short)
    return (f"{module}.{short}", kind.span) if module else None


def _name(entry: Entry | None) -> str:
    """The name of a class that a file gives as text or imports."""
    value = entry.value if entry is not None else None
    if isinstance(value, Constant):
        return value.value if isinstance(value.value, str) else ""
    if isinstance(value, Library):
        return value.name
    return value.made if isinstance(value, Unknown) else ""


def _is_none(entry: Entry) -> bool:
    return isinstance(entry.value, Constant) and entry.value.value is None


def _note_described(notes: Notes, variables: Tables[str, Value]) -> None:
    """Note the config of a file with the settings of a training."""
    found = _described(variables, TreeMaker(notes.sources), notes.state)
    if found is None:
        return
    notes.facts.loaders.add("deepspeed")
    path = found.path.value.value if found.path is not None and isinstance(found.path.value, Constant) else UNKNOWN
    if found.path is not None and path is UNKNOWN:
        notes.unread.append(ConfigCall("deepspeed", notes.sourced("config", found.path.span, UNKNOWN), reason=IS_COMPUTED))
        return
    given = notes.sourced("strategy", found.path.span if found.path is not None else found.at, path)
    call = ConfigCall("deepspeed", given, found.config, passed=FRAMEWORK.passes, through=FRAMEWORK.name, as_dict=True)
    if found.optimizer is not None:
        name, at = found.optimizer
        call.optimizer = notes.sourced("optimizer", at, name)
    notes.calls.append(call)


class _Runners:
    """Reads the calls of a program that makes a runner with the settings of a training."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def receive(self, call: CallOf) -> bool:
        """Take note of a call. Returns whether it makes MMEngine's runner."""
        if not _RUNNER.fullmatch(call.name):
            return False
        _note_described(self._notes, {name: value for name in _SETTINGS if (value := call.get(name)) is not None})
        return True

    def finish(self) -> None:
        """Nothing is left to note."""


_RUNNER = re.compile(r"mmengine\.(\w+\.)*FlexibleRunner")
_SETTINGS = ("strategy", "optim_wrapper", "train_dataloader")

PROGRAMS = InPrograms(
    _Runners,
    functions={"mmengine.Config": first_argument},
    settings=_SETTINGS,
    describes=_note_described,
    takes=((r"FlexibleRunner(?<!\wFlexibleRunner)\s*\(", r"strategy(?<!\wstrategy)\s*="),),
)
