"""Lightning's DeepSpeed strategy in YAML: files of the Lightning CLI, of Hydra and of NeMo."""

from __future__ import annotations

from dataclasses import dataclass, field

from dslint.evaluate.python.calls import Argument
from dslint.evaluate.python.made import LIGHTNING_TRAINER, STRATEGY, of_name, of_strategy
from dslint.evaluate.shell.written import in_script
from dslint.evaluate.values import Constant, Unknown
from dslint.job.arguments import SourcedValue, given_at
from dslint.job.model import Program
from dslint.source.tree import Document, Mapping, Member, Path, Scalar, Sequence
from dslint.source.unknown import UNKNOWN
from dslint.source.yaml_tree import below

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
    values = {name: value for name in LIGHTNING_TRAINER if (value := _given(document, shown, (*at, name))) is not None}
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
        made = of_name(named, precision) if named is not None else None
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
    keywords = {member.key.value: value for member in arguments.members if (value := _argument(member)) and member.key.value in STRATEGY}
    made = of_strategy(_Keywords(keywords), name.span, precision)
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
