"""Lightning's DeepSpeed strategy: in programs, and in YAML files of the Lightning CLI, of Hydra and of NeMo."""

from __future__ import annotations

from collections.abc import Mapping as Table
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from dslint.config.values import Origin, Value
from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.given import once, possible, unless_none
from dslint.evaluate.python.integration import InPrograms, Notes
from dslint.evaluate.python.made import Made, plain_value
from dslint.evaluate.python.notes import ConfigCall
from dslint.evaluate.shell.written import in_script
from dslint.evaluate.values import Constant, Unknown
from dslint.job.arguments import SourcedValue, given_at
from dslint.job.model import Program, Setup
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
    program = Program(shown, "lightning", trainer=values)
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
        return Strategy(given, program, in_script(document, made)) if made is not None else None
    return _of_class(document, (*at, "strategy"), shown, given, program, precision)


def _ranks(document: Document, at: Path, shown: str, trainer: Mapping) -> SourcedValue | None:
    """The devices of the trainer times its nodes. A file with a list of defaults may take the nodes from another one."""
    name = next((name for name in ("devices", "gpus") if trainer.get(name) is not None), "")
    nodes = trainer.get("num_nodes")
    composed = isinstance(document.root, Mapping) and document.root.get("defaults") is not None
    each = _devices(trainer.get(name))
    times = _devices(nodes) if nodes is not None else None if composed else 1
    return given_at(document, shown, (*at, name), "", each * times) if each and times else None


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
    keywords = {member.key.value: value for member in arguments.members if (value := _argument(member)) and member.key.value in _BUILT_FROM}
    made = _of_strategy(_Keywords(keywords), name.span, precision)
    return Strategy(given, program, in_script(document, made)) if made is not None else None


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


class _Calls:
    """Reads the calls of a program: a trainer, and strategies with a config or with arguments that describe one."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._strategies: list[CallOf] = []
        self._trainer: CallOf | None = None

    def receive(self, call: CallOf) -> bool:
        """Take note of a call. Returns whether it is one of Lightning's."""
        short, facts = call.name.rpartition(".")[2], self._notes.facts
        is_own = call.name.startswith(_PACKAGES)
        if short in _STRATEGY_CLASSES or (short == "DeepSpeedPlugin" and is_own):
            self._strategy(call)
            return True
        if is_own and short in ("Trainer", "Fabric"):
            self._trainer = call
            facts.fabric |= short == "Fabric"
            facts.lightning_trainer |= short == "Trainer"
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
            own = (name for name in call.keywords if name in _BUILT_FROM)
            notes.facts.strategy += tuple(one for name in own for one in notes.asked(call, name).values())

    def finish(self) -> None:
        """Note the configs that strategies build, once the precision of the trainer is known."""
        notes, trainer = self._notes, self._trainer
        precision = trainer.argument("precision") if trainer else None
        for call in once(self._strategies):
            at = notes.place_of(call)
            built = _of_strategy(call, at, precision)
            notes.calls.append(ConfigCall("lightning", notes.sourced("DeepSpeedStrategy", at, UNKNOWN), built))
        named = trainer.argument("strategy") if trainer else None
        for option in possible(named.value) if named else ():
            assert named is not None
            config = _of_name(replace(named, value=option), precision)
            if config is not None:
                notes.facts.loaders.add("lightning")
                given = notes.sourced("strategy", named.span, UNKNOWN, key=named.key)
                notes.calls.append(ConfigCall("lightning", given, config))


PROGRAMS = InPrograms(_Calls, takes=((r"\b(?:Trainer|Fabric)\s*\(", r"\bstrategy\s*=|\*\*"),))


# ---------------------------------------------------------------------- the config that its strategy builds

_OF_TRAINER = ("precision", "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm")
"""The arguments of Lightning's Trainer that concern DeepSpeed."""

_BUILT_FROM = frozenset(
    """
    zero_optimization stage offload_optimizer offload_parameters offload_params_device nvme_path params_buffer_count params_buffer_size
    max_in_cpu offload_optimizer_device optimizer_buffer_count block_size queue_depth single_submit overlap_events thread_count pin_memory
    sub_group_size contiguous_gradients overlap_comm allgather_partitions reduce_scatter allgather_bucket_size reduce_bucket_size
    zero_allow_untested_optimizer logging_batch_size_per_gpu partition_activations cpu_checkpointing contiguous_memory_optimization
    synchronize_checkpoint_boundary
    """.split()
)
"""The arguments from which Lightning's strategy builds a config if it is given none."""

_ZERO = frozenset(
    """
    contiguous_gradients overlap_comm allgather_partitions reduce_scatter allgather_bucket_size reduce_bucket_size sub_group_size
    """.split()
)
_ACTIVATION = frozenset("partition_activations cpu_checkpointing contiguous_memory_optimization synchronize_checkpoint_boundary".split())
_AIO = frozenset("block_size queue_depth single_submit overlap_events thread_count".split())

_STRATEGIES: dict[str, tuple[int, str | None, str | None]] = {
    "deepspeed": (2, None, None),
    "deepspeed_stage_1": (1, None, None),
    "deepspeed_stage_2": (2, None, None),
    "deepspeed_stage_2_offload": (2, "cpu", None),
    "deepspeed_stage_3": (3, None, None),
    "deepspeed_stage_3_offload": (3, "cpu", "cpu"),
    "deepspeed_stage_3_offload_nvme": (3, "nvme", "nvme"),
}
"""Lightning's names of strategies: the stage, and the devices of the optimizer and of the parameters."""


class _Arguments(Protocol):
    """The arguments that a class is made with, in a program or in a file."""

    @property
    def keywords(self) -> Table[str, Argument]:
        """The arguments by name."""

    def argument(self, name: str, index: int | None = None) -> Argument | None:
        """An argument by its name or position."""

    def plain(self, name: str, index: int | None = None) -> Any:
        """The plain value of an argument; None if it is not known."""


def _of_strategy(call: _Arguments, at: Span, precision: Argument | None) -> Mapping | None:
    """The config that Lightning's `DeepSpeedStrategy` builds; None with a strategy that is not DeepSpeed's."""
    made = Made(at)
    if call.plain("zero_optimization", 1) is not False:
        made.take("zero_optimization.stage", call.argument("stage", 2), 2)
        devices = {"optimizer": "offload_optimizer_device", "param": "offload_params_device"}
        for kind, switch in (("optimizer", "offload_optimizer"), ("param", "offload_parameters")):
            given = call.argument(switch)
            if given is not None and plain_value(given) is not False:
                device = call.argument(devices[kind])
                made.put(f"zero_optimization.offload_{kind}.device", _device(given, device), device or given)
        for name in sorted(_ZERO & call.keywords.keys()):
            made.take(f"zero_optimization.{name}", call.keywords[name])
    for section, names in (("activation_checkpointing", _ACTIVATION), ("aio", _AIO)):
        for name in sorted(names & call.keywords.keys()):
            made.take(f"{section}.{name}", call.keywords[name])
    made.precision(precision, _PRECISIONS)
    return made.root


_PRECISIONS = {"16": "fp16", "16-mixed": "fp16", "16-true": "fp16", "bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16"}


def _device(switch: Argument, device: Argument | None) -> Any:
    if plain_value(switch) is UNKNOWN:
        return UNKNOWN
    return plain_value(device) if device is not None else "cpu"


def _of_name(given: Argument, precision: Argument | None) -> Mapping | None:
    """The config of a strategy that Lightning knows by its name: `strategy="deepspeed_stage_3"`. None for any other name."""
    known = _STRATEGIES.get(str(plain_value(given)))
    if known is None or isinstance(given.value, Unknown):
        return None
    made = Made(given.span)
    stage, optimizer, parameters = known
    made.put("zero_optimization.stage", stage, given)
    if optimizer:
        made.put("zero_optimization.offload_optimizer.device", optimizer, given)
    if parameters:
        made.put("zero_optimization.offload_param.device", parameters, given)
    made.precision(precision, _PRECISIONS)
    return made.root


# ---------------------------------------------------------------------- what it adds to a config


def added(config: Config, setup: Setup) -> dict[Path, Value]:
    """The keys that the config does not have, from the arguments that Lightning's trainer is given.

    Without `gradient_clip_val` its trainer writes 0, where DeepSpeed's own default is 1; the arguments that a program unpacks are not seen.
    """
    program = setup.program
    given = program.trainer if program is not None else {}
    names = {"gradient_accumulation_steps": "accumulate_grad_batches", "gradient_clipping": "gradient_clip_val"}
    found: dict[Path, Value] = {}
    for key, name in names.items():
        value = given.get(name)
        if config.has(key):
            continue
        if value is not None:
            number = value.value if isinstance(value.value, int | float) and not isinstance(value.value, bool) else UNKNOWN
            number = 0.0 if value.value is None and name == "gradient_clip_val" else number
            found[key,] = _added(number, f"{name} in {value.where}")
        elif name == "gradient_clip_val" and program is not None and not program.fabric:
            found[key,] = _added(UNKNOWN, "gradient_clip_val of Lightning's trainer, 0 by default")
    precision = given.get("precision")
    if precision is None:
        return found
    selected = _PRECISIONS.get(str(precision.value), "") if isinstance(precision.value, str | int) else UNKNOWN
    for kind in ("fp16", "bf16"):
        if not isinstance(config.document.lookup((kind,)), Member):
            found[kind, "enabled"] = _added(UNKNOWN if selected is UNKNOWN else selected == kind, f"precision in {precision.where}")
    return found


def _added(value: Any, note: str) -> Value:
    return Value(value, Origin.FILLED, note)
