"""Lightning's DeepSpeed strategy: in programs, and in YAML files of the Lightning CLI, of Hydra and of NeMo."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping as Table
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from dslint.config.values import Origin, Value
from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.given import once, possible, unless_none
from dslint.evaluate.python.integration import InPrograms, Notes
from dslint.evaluate.python.made import Made, plain_value
from dslint.evaluate.python.notes import ConfigCall
from dslint.evaluate.reasons import Cause, Reason
from dslint.evaluate.shell.written import in_script
from dslint.evaluate.values import Constant, ListValue, Unknown
from dslint.frameworks.tables import table
from dslint.job.arguments import Said, SourcedValue, given_at
from dslint.job.model import Program, Setup
from dslint.schemas.derive import ACCUMULATION, MICRO
from dslint.source.integers import integer
from dslint.source.searched import has
from dslint.source.tree import Document, Mapping, Member, Path, Scalar, Sequence, Span
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import below

if TYPE_CHECKING:
    from dslint.config import Config

_CLASS = ("class_path", "_target_")
"""The keys that name a class: of the Lightning CLI, and of Hydra."""


_TRAINERS = (
    "accelerator",
    "accumulate_grad_batches",
    "check_val_every_n_epoch",
    "gpus",
    "gradient_clip_val",
    "limit_val_batches",
    "max_epochs",
    "num_nodes",
    "sync_batchnorm",
    "val_check_interval",
)
"""Arguments that only Lightning's Trainer has."""


@dataclass(slots=True)
class Strategy:
    """A strategy: the place that selects it, and either the config that it is given or builds, or the link to one."""

    given: SourcedValue
    program: Program
    config: Document | None = None
    link: SourcedValue | None = None
    ranks: SourcedValue | None = None
    """The number of ranks that the trainer starts, if the file tells it."""


@dataclass(slots=True)
class _Keywords:
    """The arguments of a class that a file names, as if a program called it."""

    keywords: dict[str, Argument] = field(default_factory=dict)

    def argument(self, name: str, index: int | None = None) -> Argument | None:  # noqa: ARG002 - a file has no positions
        return self.keywords.get(name)

    def plain(self, name: str, index: int | None = None) -> object:  # noqa: ARG002 - a file has no positions
        found = self.keywords.get(name)
        return found.value.value if found is not None and isinstance(found.value, Constant) else None


def bare_strategy(document: Document, shown: str) -> Strategy | None:
    """The DeepSpeed strategy that a whole file describes, as one of a config group of Hydra; None for any other file.

    The precision stands in another file, and is unknown.
    """
    root = document.root
    if not isinstance(root, Mapping):
        return None
    name = next((name for name in _CLASS if root.get(name) is not None), "")
    given = given_at(document, shown, (name,), "", None)
    unknown = Argument(Unknown(), root.span, root.span)
    return _of_class(document, (), shown, given, Program(shown, "lightning"), unknown) if given is not None else None


def strategy_of(document: Document, at: Path, shown: str) -> Strategy | None:
    """The DeepSpeed strategy of a trainer's section; None for any other section."""
    trainer = _mapping(document, at)
    selected = trainer.get("strategy") if trainer else None
    if trainer is None or selected is None:
        return None
    given = given_at(document, shown, (*at, "strategy"), "", None)
    precision = _argument(trainer.get("precision"))
    values = {name: value for name in _OF_TRAINER if (value := _given(document, shown, (*at, name))) is not None}
    program = Program(shown, "lightning", trainer=values, trainer_complete=not _is_composed(document), lightning_trainer=True)
    assert given is not None
    found = _selected(document, at, shown, selected, (given, program, precision))
    if found is not None:
        found.ranks = _ranks(document, at, shown, trainer)
    return found


def _selected(
    document: Document, at: Path, shown: str, selected: Member, said: tuple[SourcedValue, Program, Argument | None]
) -> Strategy | None:
    given, program, precision = said
    trainer = _mapping(document, at)
    assert trainer is not None
    if isinstance(selected.value, Scalar):
        if selected.value.value == "deepspeed" and not _is_trainer(trainer, at):
            return None
        named = _argument(selected)
        made = _of_name(named, precision) if named is not None else None
        return Strategy(given, replace(program, builds_config=True), in_script(document, made)) if made is not None else None
    return _of_class(document, (*at, "strategy"), shown, given, program, precision)


def _ranks(document: Document, at: Path, shown: str, trainer: Mapping) -> SourcedValue | None:
    """The devices of the trainer times its nodes; a file that is only a part may have them in another one."""
    name = next((name for name in ("devices", "gpus") if trainer.get(name) is not None), "")
    nodes = trainer.get("num_nodes")
    each = _devices(trainer.get(name))
    times = _devices(nodes) if nodes is not None else None if _is_composed(document) else 1
    return given_at(document, shown, (*at, name), "", each * times) if each and times else None


def _is_composed(document: Document) -> bool:
    """Whether a file has a list of defaults, as Hydra's have: other files say the rest."""
    return isinstance(document.root, Mapping) and document.root.get("defaults") is not None


def _devices(member: Member | None) -> int | None:
    """A number of devices, also of a list of them; None for "auto", for all (-1), and for what is not known."""
    node = member.value if member is not None else None
    if isinstance(node, Sequence):
        return len(node.items) or None
    value = node.value if isinstance(node, Scalar) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _is_trainer(section: Mapping, at: Path) -> bool:
    """Whether a section with `strategy: deepspeed` is one of Lightning's Trainer: by its name, or by arguments that others do not have."""
    return (bool(at) and str(at[-1]) == "trainer") or any(section.get(name) is not None for name in _TRAINERS)


def _of_class(
    document: Document, at: Path, shown: str, given: SourcedValue, program: Program, precision: Argument | None
) -> Strategy | None:
    """The strategy that a class path and its arguments describe, as the Lightning CLI and Hydra write them."""
    written = _mapping(document, at)
    name = next((member.value for key in _CLASS if written and (member := written.get(key))), None)
    if written is None or not isinstance(name, Scalar) or not str(name.value).rpartition(".")[2].startswith("DeepSpeedStrategy"):
        return None
    inside = (*at, "init_args") if _mapping(document, (*at, "init_args")) else at
    arguments = _mapping(document, inside)
    assert arguments is not None
    config = arguments.get("config")
    if config is not None and isinstance(config.value, Scalar) and config.value.value is not None:
        return Strategy(given, program, link=_given(document, shown, (*inside, "config")))
    if config is not None and isinstance(config.value, Mapping):
        return Strategy(given, program, below(document, (*inside, "config")))
    keywords = {member.key.value: value for member in arguments.members if (value := _argument(member)) and member.key.value in BUILT_FROM}
    made = _of_strategy(_Keywords(keywords), name.span, precision)
    return Strategy(given, replace(program, builds_config=True), in_script(document, made))


def _argument(member: Member | None) -> Argument | None:
    if member is None:
        return None
    node = member.value
    value = Constant(node.value) if isinstance(node, Scalar) and node.value is not UNKNOWN else Unknown()  # type: ignore[arg-type]
    return Argument(value, node.span, member.key.span)


def _given(document: Document, shown: str, at: Path) -> SourcedValue | None:
    found = document.lookup(at)
    value = found.value.value if isinstance(found, Member) and isinstance(found.value, Scalar) else UNKNOWN
    return given_at(document, shown, at, "", value)


def _mapping(document: Document, at: Path) -> Mapping | None:
    found = document.lookup(at)
    node = found.value if isinstance(found, Member) else found
    return node if isinstance(node, Mapping) else None


# ---------------------------------------------------------------------- in programs

_PACKAGES = ("lightning.", "pytorch_lightning.", "pl.")
_STRATEGY_CLASSES = ("DeepSpeedStrategy", "RayDeepSpeedStrategy")
_STRATEGY_PACKAGES = (*_PACKAGES, "lightning_fabric.", "ray.")
_STAR = re.compile(r"^\s*from\s+(?:lightning|pytorch_lightning|lightning_fabric|ray)\b[\w.]*\s+import\s+\*", re.MULTILINE)


def _is_of_lightning(call: CallOf) -> bool:
    """Whether a class with the name of a strategy is that of Lightning or Ray: MMEngine and projects have others."""
    return call.name.startswith(_STRATEGY_PACKAGES) or ("." not in call.name and _STAR.search(call.scope.source.text) is not None)


class _Calls:
    """Reads the calls of a program: a trainer, and strategies with a config or with arguments that describe one."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._strategies: list[CallOf] = []
        self._trainers: list[CallOf] = []
        self._optimizers: dict[int, CallOf] = {}
        """The calls that make one in `configure_optimizers`, by their places: a method may be followed several times."""

    def receive(self, call: CallOf) -> bool:
        """Take note of a call. Returns whether it is one of Lightning's."""
        short, facts = call.name.rpartition(".")[2], self._notes.facts
        is_own = call.name.startswith(_PACKAGES)
        if _OPTIMIZER.search(call.name) and _in_configure_optimizers(call):
            self._optimizers[call.span.start] = call
        if (short in _STRATEGY_CLASSES and _is_of_lightning(call)) or (short == "DeepSpeedPlugin" and is_own):
            self._strategy(call)
            return True
        if is_own and short in ("Trainer", "Fabric"):
            facts.fabric |= short == "Fabric"
            facts.lightning_trainer |= short == "Trainer"
            if _has_another_strategy(call):
                return True
            self._trainers.append(call)
            facts.trainer_complete = call.complete and len(self._trainers) == 1
            facts.trainer |= self._notes.asked(call, *_OF_TRAINER)
            return True
        return False

    def _strategy(self, call: CallOf) -> None:
        notes = self._notes
        notes.facts.loaders.add("lightning")
        given = unless_none(call.argument("config"))
        if given is None and call.complete:
            self._strategies.append(call)
        if given is not None and notes.take("lightning", "config", given):
            notes.facts.trainer |= notes.asked(call, *_OF_LOSS_SCALE)
            own = (name for name in call.keywords if name in BUILT_FROM)
            notes.facts.strategy += tuple(one for name in own for one in notes.asked(call, name).values())

    def finish(self) -> None:
        """Note the configs that strategies build, once the precision of the trainer is known, and what the trainer says of each config."""
        notes, trainer = self._notes, self._trainers[-1] if self._trainers else None
        precision = trainer.argument("precision") if trainer else None
        starts_itself = any(one.integration == "deepspeed" for one in (*notes.calls, *notes.unread))
        is_unused = starts_itself and not (
            notes.facts.lightning_trainer or notes.facts.fabric
        )  # as in settings shared with another program
        for call in once(self._strategies) if not is_unused else ():
            at = notes.place_of(call)
            built = _of_strategy(call, at, precision)
            notes.calls.append(ConfigCall("lightning", notes.sourced("DeepSpeedStrategy", at, UNKNOWN), built, is_built=True))
        named = trainer.argument("strategy") if trainer else None
        for option in possible(named.value) if named else ():
            assert trainer is not None
            assert named is not None
            config = _of_name(replace(named, value=option), precision, fabric=_is_fabric(trainer))
            if config is not None:
                notes.facts.loaders.add("lightning")
                given = notes.sourced("strategy", named.span, UNKNOWN, key=named.key)
                notes.calls.append(ConfigCall("lightning", given, config, is_built=True))
        self._note_unknown_strategy()
        notes.facts.several_optimizers = self._several()
        ranks, optimizer = self._ranks(), self._optimizer()
        for one in (*notes.calls, *notes.unread):
            if one.integration == "lightning":
                one.ranks, one.optimizer = ranks, optimizer

    def _note_unknown_strategy(self) -> None:
        """Note the first name of a strategy that the `Trainer` does not have, where the program cannot have registered it."""
        notes = self._notes
        if not self._trainers or any(has(_REGISTERS, one.text) for one in notes.sources.all):
            return
        for call in self._trainers:
            named = call.argument("strategy")
            options = possible(named.value) if named is not None else ()
            unknown = [one for one in options if isinstance(one, Constant) and _is_unknown_name(one.value)]
            if not unknown or named is None or call.own is not None:  # a class of the project may read names of its own
                continue
            given = notes.sourced("strategy", named.span, unknown[0].value, key=named.key)
            sure = len(options) == 1 and not unknown[0].soft and not call.conditions and not call.handled
            notes.facts.unknown_strategy = Said(unknown[0].value, given, sure)
            if not any(one.integration == "lightning" for one in (*notes.calls, *notes.unread)):
                notes.facts.loaders.add("lightning")
                reason = Reason(Cause.NO_STRATEGY, (str(unknown[0].value),))
                notes.unread.append(ConfigCall("lightning", given, reason=reason, is_built=True, by_flag=unknown[0].soft))
            return

    def _ranks(self) -> SourcedValue | None:
        """The devices of the only trainer times its nodes, which are as many ranks as Lightning starts or expects."""
        call = self._trainers[0] if len(self._trainers) == 1 else None
        given = call.argument("devices") or call.argument("gpus") if call is not None and call.complete else None
        if call is None or given is None:
            return None
        each, nodes = _number(given), _number(call.argument("num_nodes")) if "num_nodes" in call.keywords else 1
        return self._notes.sourced("devices", given.span, each * nodes, key=given.key) if each and nodes else None

    def _several(self) -> SourcedValue | None:
        """The second optimizer of `configure_optimizers`, if it makes several in any case, and returns a list of several."""
        made = [call for call in self._optimizers.values() if not call.chosen and not call.conditions and not call.loops]
        functions = {id(call.scope.function): call.scope.function for call in made}
        if len(made) < 2 or len(made) != len(self._optimizers) or len(functions) != 1:
            return None
        (function,) = functions.values()
        returned = _returned(function.node) if function is not None else 0
        return self._notes.sourced("configure_optimizers", made[1].span, returned) if returned > 1 else None

    def _optimizer(self) -> SourcedValue | None:
        """The only optimizer that the program makes in `configure_optimizers`; its value is the full name of the class."""
        made = list(self._optimizers.values())
        if len({call.name for call in made}) != 1:
            return None
        return self._notes.sourced("configure_optimizers", made[-1].span, made[-1].name)


_REGISTERS = re.compile(r"(?i)strategy_?registry|register_strategies")
"""What a program contains that may add names of strategies to those of Lightning."""


def _is_fabric(call: CallOf) -> bool:
    return call.name.endswith(".Fabric")


def _is_unknown_name(name: object) -> bool:
    """Whether a strategy is named after DeepSpeed, and Lightning's `Trainer` has none of that name. It reads names in lower case."""
    return isinstance(name, str) and name.lower().startswith("deepspeed") and name.lower() not in OF_TRAINER


def _has_another_strategy(call: CallOf) -> bool:
    """Whether a trainer certainly trains without DeepSpeed: one for a test on the CPU, beside that of the training."""
    named = call.argument("strategy")
    if named is None:
        return call.complete and "plugins" not in call.keywords
    options = possible(named.value)
    known = [str(one.value) for one in options if isinstance(one, Constant) and not one.soft]
    return bool(known) and len(known) == len(options) and not any("deepspeed" in one.lower() for one in known)


_OPTIMIZER = re.compile(
    r"^(torch\.optim|deepspeed\.ops\.\w+|bitsandbytes\.optim|transformers)\.(?!lr_scheduler).*(Adam|SGD|Lion|Lamb|Adagrad|prop|delta|factor)"
)
"""The classes of optimizers of the libraries that programs take them from."""


def is_optimizer(name: str) -> bool:
    """Whether a class, by its full name, is one of an optimizer."""
    return _OPTIMIZER.match(name) is not None


def _in_configure_optimizers(call: CallOf) -> bool:
    """Whether a call stands in the method in which a LightningModule makes its optimizers."""
    function = call.scope.function
    return function is not None and function.owner is not None and getattr(function.node, "name", "") == "configure_optimizers"


def _returned(function: ast.AST) -> int:
    """How many optimizers `configure_optimizers` returns, by its only `return`, such as `[a, b], [schedule]`; 0 if that is not seen."""
    returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    found = returns[0] if len(returns) == 1 else None
    if isinstance(found, ast.Tuple) and found.elts and all(isinstance(one, ast.List) for one in found.elts):
        found = found.elts[0]
    single = (ast.Name, ast.Attribute, ast.Call, ast.Dict)
    several = isinstance(found, ast.List | ast.Tuple) and all(isinstance(one, single) for one in found.elts)
    return len(found.elts) if several and isinstance(found, ast.List | ast.Tuple) else 0


def _number(given: Argument | None) -> int | None:
    """A number of devices or nodes, also of a list of devices; None for "auto", for all (-1), and for what is not known."""
    value = given.value if given is not None else None
    if isinstance(value, ListValue):
        return len(value.items) or None
    number = integer(value.value) if isinstance(value, Constant) and isinstance(value.value, str) else getattr(value, "value", None)
    soft = isinstance(value, Constant) and value.soft
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 and not soft else None


PROGRAMS = InPrograms(
    _Calls,
    takes=((r"(?:Trainer(?<!\wTrainer)|Fabric(?<!\wFabric))\s*\(", r"\bstrategy\s*=|\*\*"),),
    hooks=(
        r"(pytorch_lightning|lightning)\.([\w.]+\.)?LightningModule",
        r"(training|validation|test|predict|optimizer)_step|configure_\w+|on_\w+|\w+_epoch_end",
    ),
)


# ---------------------------------------------------------------------- the config that its strategy builds

_OF_TRAINER = (
    "precision",
    "accumulate_grad_batches",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "devices",
    "num_nodes",
    "plugins",
    "accelerator",
    "stochastic_weight_avg",
)
"""The arguments of Lightning's Trainer that concern DeepSpeed."""

_OF_SECTIONS = {
    "zero_optimization": "sub_group_size contiguous_gradients overlap_comm allgather_partitions reduce_scatter allgather_bucket_size "
    "reduce_bucket_size",
    "activation_checkpointing": "partition_activations cpu_checkpointing contiguous_memory_optimization synchronize_checkpoint_boundary",
    "aio": "block_size queue_depth single_submit overlap_events thread_count",
}
"""The arguments of the strategy that it writes into a section under their own names."""

_OF_OFFLOAD = {
    "optimizer": {"nvme_path": "nvme_path", "buffer_count": "optimizer_buffer_count", "pin_memory": "pin_memory"},
    "param": {
        "nvme_path": "nvme_path",
        "buffer_count": "params_buffer_count",
        "buffer_size": "params_buffer_size",
        "max_in_cpu": "max_in_cpu",
        "pin_memory": "pin_memory",
    },
}
"""By section of an offload: its keys besides the device, and the arguments that they come from."""

_SWITCHES = {"optimizer": ("offload_optimizer", "offload_optimizer_device"), "param": ("offload_parameters", "offload_params_device")}
"""By section of an offload: the argument that switches it on, and the one that names the device."""

_OF_LOSS_SCALE = "loss_scale initial_scale_power loss_scale_window hysteresis min_loss_scale".split()
"""The arguments that it writes into the section "fp16" under their own names, with a config of the program, too."""

_UNTESTED = "zero_allow_untested_optimizer"

BUILT_FROM = frozenset({"zero_optimization", "stage", _UNTESTED, "logging_batch_size_per_gpu"}).union(
    *(names.split() for names in _OF_SECTIONS.values()), *(names.values() for names in _OF_OFFLOAD.values()), *_SWITCHES.values()
)
"""The arguments from which Lightning's strategy builds a config if it is given none."""

STAGE_1_OF_FABRIC = "deepspeed_stage_1_offload"
"""The only name that `Fabric` has and Lightning's `Trainer` does not: 2.1.0 does not register it, 2.2.0 and 2.6.6 do."""

_STRATEGIES: dict[str, dict[str, int | bool | str]] = {
    "deepspeed": {},
    "deepspeed_stage_1": {"stage": 1},
    STAGE_1_OF_FABRIC: {"stage": 1, "offload_optimizer": True},
    "deepspeed_stage_2": {"stage": 2},
    "deepspeed_stage_2_offload": {"stage": 2, "offload_optimizer": True},
    "deepspeed_stage_3": {"stage": 3},
    "deepspeed_stage_3_offload": {"stage": 3, "offload_optimizer": True, "offload_parameters": True},
    "deepspeed_stage_3_offload_nvme": {
        "stage": 3,
        "offload_optimizer": True,
        "offload_parameters": True,
        "offload_params_device": "nvme",
        "offload_optimizer_device": "nvme",
    },
}
"""Lightning's names of strategies, with the arguments that each stands for.

The others are the same from 1.5, the first release that takes `strategy`, to 2.6.6.
Source: lightning/pytorch/strategies/deepspeed.py and lightning/fabric/strategies/deepspeed.py, DeepSpeedStrategy.register_strategies.
"""

OF_TRAINER = tuple(name for name in _STRATEGIES if name != STAGE_1_OF_FABRIC)
"""The names that Lightning's `Trainer` has."""


def arguments_of(name: str) -> str:
    """The arguments of `DeepSpeedStrategy` that a name stands for, as a program writes them; "" for a name that Lightning does not have."""
    return ", ".join(f"{key}={value!r}" for key, value in _STRATEGIES.get(name.lower(), {}).items())


def nearest_strategy(name: str) -> str:
    """The name of a strategy of the `Trainer` that is most like another name, of those for its ZeRO stage if it names one."""
    of_stage = [one for one in OF_TRAINER if _DIGITS.findall(one) == _DIGITS.findall(name)]
    return difflib.get_close_matches(name.lower(), of_stage or OF_TRAINER, 1, 0)[0]


_DIGITS = re.compile(r"\d")


class _Arguments(Protocol):
    """The arguments that a class is made with, in a program or in a file."""

    @property
    def keywords(self) -> Table[str, Argument]:
        """The arguments by name."""

    def argument(self, name: str, index: int | None = None) -> Argument | None:
        """An argument by its name or position."""

    def plain(self, name: str, index: int | None = None) -> Any:
        """The plain value of an argument; None if it is not known."""


def _of_strategy(call: _Arguments, at: Span, precision: Argument | None) -> Mapping:
    """The config that Lightning's `DeepSpeedStrategy` builds, as far as arguments say it; `added` has its defaults.

    Source: lightning/pytorch/strategies/deepspeed.py, DeepSpeedStrategy._create_default_config.
    """
    made = Made(at)
    has_zero = call.plain("zero_optimization", 1) is not False
    if has_zero:
        made.take("zero_optimization.stage", call.argument("stage", 2), 2)
        made.take(_UNTESTED, call.argument(_UNTESTED))
        for kind, (switch, device) in _SWITCHES.items():
            given = call.argument(switch)
            if given is not None and plain_value(given) is not False:
                made.put(f"zero_optimization.offload_{kind}.device", _device(given, call.argument(device)), call.argument(device) or given)
                for key, name in _OF_OFFLOAD[kind].items():
                    made.take(f"zero_optimization.offload_{kind}.{key}", call.argument(name))
    for section, names in _OF_SECTIONS.items():
        for name in names.split() if has_zero or section != "zero_optimization" else ():
            made.take(f"{section}.{name}", call.argument(name))
    logged = call.argument("logging_batch_size_per_gpu")
    if logged is not None and plain_value(logged) != "auto":
        made.take(MICRO, logged)
    made.precision(precision, _PRECISIONS)
    if made.root.get("fp16") is not None:
        for name in _OF_LOSS_SCALE:
            made.take(f"fp16.{name}", call.argument(name))
    return made.root


_PRECISIONS = {"16": "fp16", "16-mixed": "fp16", "16-true": "fp16", "bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16"}


def _device(switch: Argument, device: Argument | None) -> Any:
    if plain_value(switch) is UNKNOWN:
        return UNKNOWN
    return plain_value(device) if device is not None else "cpu"


def _of_name(given: Argument, precision: Argument | None, *, fabric: bool = False) -> Mapping | None:
    """The config of a strategy that Lightning knows by its name: `strategy="deepspeed_stage_3"`. None for any other name."""
    name = str(plain_value(given)).lower()
    known = _STRATEGIES.get(name)
    if known is None or isinstance(given.value, Unknown) or (name == STAGE_1_OF_FABRIC and not fabric):
        return None
    words = {name: Argument(Constant(value), given.span, given.key) for name, value in known.items()}
    return _of_strategy(_Keywords(words), given.span, precision)


# ---------------------------------------------------------------------- what it adds to a config


def added(config: Config, setup: Setup) -> dict[Path, Value]:
    """The keys that the config does not have, from what Lightning's trainer and its strategy are given, and from their defaults.

    Without `gradient_clip_val` the trainer writes 0, where DeepSpeed's own default is 1. What unpacked arguments may say is unknown.
    """
    program = setup.program
    if program is None:
        return {}
    found = {} if program.fabric else _of_trainer(config, program)
    if not config.has(MICRO):
        found[MICRO,] = _added(1, "the default of Lightning Fabric") if program.fabric else _micro(program)
    if program.builds_config:
        found |= _of_defaults(config)
    precision = program.trainer.get("precision")
    if precision is None:
        return found
    selected = _PRECISIONS.get(str(precision.value), "") if isinstance(precision.value, str | int) else UNKNOWN
    for kind in ("fp16", "bf16"):
        if not isinstance(config.document.lookup((kind,)), Member):
            found[kind, "enabled"] = _added(UNKNOWN if selected is UNKNOWN else selected == kind, f"precision in {precision.where}")
    if selected == "fp16" and ("fp16", "enabled") in found:
        found |= {("fp16", name): _of_loss_scale(program, name) for name in _OF_LOSS_SCALE}
    return found


def _of_loss_scale(program: Program, name: str) -> Value:
    """What the strategy writes into the section "fp16" that it adds to a config."""
    given = program.trainer.get(name)
    if given is not None:
        return _added(given.value, f"{name} in {given.where}")
    return _added(table("lightning").defaults[name], "the default of DeepSpeedStrategy")


_OF_BATCH: dict[str, tuple[str, float]] = {ACCUMULATION: ("accumulate_grad_batches", 1), "gradient_clipping": ("gradient_clip_val", 0.0)}
"""The keys that Lightning's trainer writes, with its arguments and their defaults."""


def _of_trainer(config: Config, program: Program) -> dict[Path, Value]:
    """The keys that the arguments of Lightning's trainer fill."""
    found: dict[Path, Value] = {}
    for key, (name, default) in _OF_BATCH.items():
        if config.has(key):
            continue
        given = program.trainer.get(name)
        if given is None:
            found[key,] = _added(default if program.trainer_complete else UNKNOWN, f"{name} of Lightning's trainer, {default:g} by default")
            continue
        number = given.value if isinstance(given.value, int | float) and not isinstance(given.value, bool) else UNKNOWN
        found[key,] = _added(default if given.value is None else number, f"{name} in {given.where}")
    return found


def _micro(program: Program) -> Value:
    """The micro batch size, which Lightning takes from the data loader of the training."""
    loader = program.loader_batch
    known = loader.value if loader is not None and isinstance(loader.value, int) and not isinstance(loader.value, bool) else UNKNOWN
    return _added(known, f"the data loader in {loader.where}" if loader is not None else "the batch size of the training's data loader")


def _of_defaults(config: Config) -> dict[Path, Value]:
    """The keys that the strategy writes into the config that it builds, where no argument says another value."""
    defaults = table("lightning").defaults
    names: dict[Path, str] = {(section, name): name for section, every in _OF_SECTIONS.items() for name in every.split()}
    if config.has("zero_optimization.stage"):
        names[_UNTESTED,] = _UNTESTED
    for kind, keys in _OF_OFFLOAD.items():
        if config.has(f"zero_optimization.offload_{kind}"):
            names |= {("zero_optimization", f"offload_{kind}", key): name for key, name in keys.items()}
    absent = {path: name for path, name in names.items() if path[0] != "zero_optimization" or config.has("zero_optimization.stage")}
    return {path: _added(defaults[name], "the default of DeepSpeedStrategy") for path, name in absent.items() if not config.has(path)}


def _added(value: Any, note: str) -> Value:
    return Value(value, Origin.FILLED, note)
