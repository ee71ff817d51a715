"""Read a Python program or a notebook. It is followed as far as it is static, and never executed."""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property

from dslint.evaluate.python.assumed_names import AssumedNames, assumed_names
from dslint.evaluate.python.cells import Cell, as_python, blank, cells_of, is_notebook
from dslint.evaluate.python.checkpointing import checkpointing
from dslint.evaluate.python.follow import follow
from dslint.evaluate.python.freezing import frozen
from dslint.evaluate.python.functions import library_base
from dslint.evaluate.python.gradient_reads import gradient_reads
from dslint.evaluate.python.integration import InPrograms
from dslint.evaluate.python.libraries.dataclasses import argument_class, fields_of, is_trainers, own_fields, redefined
from dslint.evaluate.python.notes import ConfigCall, ProgramFacts, RunCommand
from dslint.evaluate.python.own_save import own_save
from dslint.evaluate.python.record import Recorder
from dslint.evaluate.python.sources import SourceFile, Sources
from dslint.evaluate.python.untaken import Untaken
from dslint.evaluate.values import Cells, Class, Constant, Flag, Library, Value, is_soft, path_of
from dslint.facts import Integration
from dslint.job.arguments import Arguments, SourcedValue, in_short
from dslint.job.attention import FLASH_2, NAMED
from dslint.job.events import TRAINER_ARGUMENTS, Events
from dslint.job.gradient_read import GradientRead
from dslint.job.model import Program
from dslint.source.ranges import range_of
from dslint.source.searched import has, matches_in
from dslint.source.store import store
from dslint.source.tree import Comment, Document, Mapping, Span
from dslint.source.unknown import UNKNOWN

_ATTENTION = re.compile(
    r"""^[ \t]*[\w.]+\._attn_implementation(?:_internal)?[ \t]*=[ \t]*["'](?P<kernel>\w+)["']|^(?:from|import) flash_attn\b.*""",
    re.MULTILINE,
)
"""What sets the kernel of attention besides a call: an attribute of a model's config, and the package of FlashAttention where a line starts
with its import: under a condition, or in a `try`, a program runs without it, too."""

_SAVES = re.compile(r"(?:save(?!(?<=\bsave)_state\b)|state_dict(?!(?<=\bload_state_dict)\b))\w*\s*\(")
"""A call that may collect the weights. Accelerate's `save_state` does not: every rank saves its part.

Like the patterns below, it begins with letters: one that begins with the border of a word is searched 20 times as long.
"""

_FILLED = re.compile(r"\.(hf_ds_config|hf_deepspeed_config)\b")
"""The config of training arguments, in which their constructor has replaced "auto", whoever passes it to DeepSpeed."""

_FILLS_AUTO = re.compile(r"""(?m)^(?!.*(?:torch_dtype|model_dtype|\.dtype\b|device_map|\.device\b|attn)).*[=!]= ?["']auto["']""")
"""Code that asks whether a value is "auto": programs that have a copy of the Trainer's, or their own, write the number in its place. Types,
devices and attention of a model may be "auto", too.
"""

_MADE_AGAIN = re.compile(
    r"__post_init__|hf_deepspeed_config(?<!\whf_deepspeed_config)\b|deepspeed_plugin(?<!\wdeepspeed_plugin)\b"
    r"|replace\((?<![\w.]replace\()|(?:dataclasses|copy)\.replace\(|deepcopy\((?<!\wdeepcopy\()|hyperparameter_search"
)
"""What lets the Trainer see what is set in arguments which are made: they are made again, or get what they make of it."""

_SETS_RATE = re.compile(r"""param_groups(?<!\wparam_groups)\b(?s:.{0,300}?)\[["']lr["']\]\s*=(?!=)""")
"""A program that writes the rate into the groups of its optimizer: `for group in optimizer.param_groups: group["lr"] = rate`. A loop over
groups sets the rate in its first lines; what stands further away is about something else, and searching for it takes quadratic time."""

_DIVIDES_DATA = re.compile(
    r"Distributed\w*Sampler|num_replicas|split_dataset_by_node|num_shards|shard(?<!\wshard)\w*\(|IterableDataset|Streaming\w*Dataset|webdataset"
    r"|wds(?<!\wwds)\.|streaming\s*=\s*True|deepspeed_io|prepare_data_loader|setup_dataloaders|rank\s*::|rank\s*\*|%\s*\w*world_size|//\s*\w*world_size"
    r"|(?:sampler|split|loader|data)\w*\([^\n]{0,120}\brank|rank\s*=\s*\w*rank|nemo|megatron"
    r"|seed\w*(?:\([^\n]{0,120}?|\s*\+=?\s*[\w.]*)(?:(?<!lora_)rank(?!s\b)|process_index|RANK\b)"
)
"""What divides data over ranks, or gives each rank another order or part of it."""

_TRAINS = re.compile(
    r"backward(?<!\wbackward)\s*\(|train_batch(?<!\wtrain_batch)\b|training_step(?<!\wtraining_step)\b"
    r"|train(?<!\wtrain)(?<!model\.train)\w*\s*\(|fit(?<!\wfit)(?<!model\.fit)\w*\s*\(|step(?<!\wstep)(?<!model\.step)\w*\s*\("
    r"|optimize(?<!\woptimize)(?<!model\.optimize)\w*\s*\(|Trainer\b"
)
"""What takes a step, or calls something that may; `model.train()` only ends an evaluation."""

_LEAN_OPTIMIZER = re.compile(
    r"SGD|Ada[fF]actor|Lion\(|[aA]damW?8bit(?<!== .Adam8bit)|RMSprop|Muon|GaLore|CAME|Sophia|Adagrad"
    r"|L(?:OMO|omo)|BAdam|BlockOptimizer|APOLLO|Shampoo|SOAP|ScheduleFree|dam_mini|D[aA]dapt|Prodigy"
)
"""A word in the name of an optimizer that keeps less than two states in 32 bits, or may do so. Programs that copy the Trainer's
`create_optimizer` ask `optimizer_cls.__name__ == "Adam8bit"` whichever they use."""

_EVALUATES = re.compile(r"no_grad|inference_mode|\.eval\(\)|\.generate\(")
"""What a program does that uses a model without training it. Without it the steps may be in a file that imports the program."""

_MAKES_RANKS = re.compile(
    r"""environ\[["'](?:LOCAL_)?RANK["']\]\s*=|environ\.(?:setdefault|update)\(|MASTER_(?:ADDR|PORT)|init_process_group|init_dist\w*\(|mpi4py"""
    r"|auto_mpi_discovery|subprocess|multiprocessing|spawn(?<!\wspawn)\b|os\.(?:system|exec|popen)|notebook_launcher|elastic_launch"
    r"|torch\.distributed\.run|Distributor|ray(?<!\wray)\b|submitit(?<!\wsubmitit)\b|horovod(?<!\whorovod)\b|lightning(?<!\wlightning)\b"
    r"|pytorch_lightning(?<!\wpytorch_lightning)\b|sagemaker(?<!\wsagemaker)\b"
)
"""What starts processes, initializes the process group, or sets the variables that a launcher sets."""


_READS_WORDS = re.compile(r"argv(?<!\wargv)\b|get_args_parser")
"""What may take arguments out of the command line, or make Hydra's parser another one: all that names them, by any name of the module."""


@dataclass
class PythonFile:
    """A program that was read. `calls` take a config; `unread` are calls with a config that is not in the program.

    `facts`, `events` and `untaken` are what `program` is made of, and all that is kept of following it.
    """

    path: str
    document: Document
    facts: ProgramFacts
    events: Events
    """The calls of the program; see `Program.events`."""
    untaken: Untaken
    calls: list[ConfigCall] = field(default_factory=list)
    unread: list[ConfigCall] = field(default_factory=list)
    sources: Sources = field(default_factory=Sources)
    broken: list[SourcedValue] = field(default_factory=list)
    """The first line that is not Python, of the program or of each cell."""
    commands: list[RunCommand] = field(default_factory=list)
    """The commands that the program runs and that may launch a training."""
    assumed: AssumedNames | None = None
    """The names that nothing in the program binds, with what they are taken for."""
    breaks_off: SourcedValue | None = None
    """The last line of a text that ends inside a bracket."""
    cut_off: SourcedValue | None = None
    """The statement up to which a program is followed that is too large for more."""
    parses_arguments: bool = False
    """Whether the program parses the Trainer's arguments, `--deepspeed` among them, from the command line."""
    variables: dict[str, str] = field(default_factory=dict)
    """Texts, numbers and paths that a notebook assigns once, as its commands get them: `!deepspeed --num_gpus {n} train.py`."""
    is_whole: bool = True
    """Whether all functions were followed, those that cannot lead to a call with them."""
    argument_class: str = ""
    """See `Program.argument_class`."""
    own_flags: frozenset[str] | None = None
    """The names of the flags of the other classes of arguments that it parses with them; None if they are not all known."""
    own_defaults: frozenset[str] | None = None
    """The Trainer's arguments for which its own class of them may have other defaults; None if these are not known."""

    @cached_property
    def program(self) -> Program:
        """What the program says about the training, also by the words in all of its files. Most programs of a project are not asked."""
        return _program(self)

    @cached_property
    def loader(self) -> str | None:
        """See `Program.loader`."""
        return _loader(self)

    def parses_itself(self, name: str) -> bool:
        """Whether a flag belongs to the program's own classes of arguments, and the program makes no arguments of the Trainer."""
        is_own = self.own_flags is not None and name in self.own_flags and not self.argument_class
        return is_own and next(self.events.of(TRAINER_ARGUMENTS), None) is None

    def has(self, pattern: re.Pattern[str]) -> bool:
        """Whether a pattern matches in a file of the program, also in the commands of a notebook."""
        return any(has(pattern, one.original) for one in self.sources.all)

    @cached_property
    def documents(self) -> dict[str, Document]:
        """The files that the program consists of. Most programs of a project need none of them."""
        first, *others = self.sources.all
        own = self.document if not first.is_cell else _document(first)
        return {first.shown: own} | {one.shown: _document(one) for one in others}

    @property
    def modules(self) -> dict[str, Document]:
        """The files that the program imports, without its own file or cells."""
        own = {one.shown for one in self.sources.all if one.path == self.sources.all[0].path}
        return {shown: document for shown, document in self.documents.items() if shown not in own}

    def program_of(self, call: ConfigCall) -> Program:
        """The program as it is for one of its calls."""
        program = replace(self.program, loader=call.integration or None)
        objects = replace(program, client_optimizer=call.optimizer, client_scheduler=call.scheduler)
        return replace(
            objects,
            passed=call.passed,
            through=call.through,
            config_in_args=call.in_args,
            pipeline=call.pipeline,
            by_flag=call.by_flag,
            engine_backward=call.engine_backward,
            builds_config=call.is_built,
        )

    def place(self, source: SourceFile, span: Span) -> SourcedValue:
        """A place in one of the files of the program."""
        own = Span(span.start - source.base, span.end - source.base)
        return SourcedValue(UNKNOWN, "", in_short(source.written(span)), source.shown, range_of(self.documents[source.shown], own))

    def consists_of(self, path: str) -> bool:
        """Whether a file is the program or a module that it imports; `path` is absolute."""
        return any(os.path.abspath(one.path) == path for one in self.sources.all)

    @property
    def launched(self) -> Program:
        """The program as it is for a config that its launch gives: with the objects on which its calls of `deepspeed.initialize` agree."""
        noted: list[ConfigCall] = [*self.calls, *self.unread]
        calls = [call for call in noted if call.integration == Integration.DEEPSPEED]
        if not calls:
            return self.program
        places = {(call.given.path, call.given.range) for call in calls}
        return self.program_of(calls[0] if len(places) == 1 else _agreed(calls))

    @property
    def arguments(self) -> Arguments | None:
        """The arguments of the Trainer that the program sets itself, if it sets them in one place."""
        found = [call.arguments for call in self.calls if call.arguments is not None]
        return found[0] if len(found) == 1 else self.facts.loose if not found else None

    def config(self, root: Mapping) -> Document:
        """A config that the program builds, as a document over all its files."""
        first = self.sources.all[0]
        own = [Comment(Span(one.span.start + first.base, one.span.end + first.base), one.text) for one in self.document.comments]
        return self.sources.document(root, own)


def _agreed(calls: Sequence[ConfigCall]) -> ConfigCall:
    """The first of the calls that make the engines of a program, with what is the same for all of them."""
    first, *others = calls

    def same(*names: str) -> bool:
        return all(_value(call, name) == _value(first, name) for call in others for name in names)

    return replace(
        first,
        passed=first.passed if same("passed") else None,
        optimizer=first.optimizer if same("passed", "optimizer") else None,
        scheduler=first.scheduler if same("passed", "scheduler") else None,
        pipeline=first.pipeline if same("pipeline") else None,
        through=first.through if same("through") else "",
        in_args=next((call.in_args for call in calls if call.in_args is not None), None),
        engine_backward=all(call.engine_backward for call in calls),
        by_flag=any(call.by_flag for call in calls),
        is_built=False,
    )


def _value(call: ConfigCall, name: str) -> object:
    found = getattr(call, name)
    return str(found.value) if isinstance(found, SourcedValue) else found


def read_text(
    text: str,
    shown: str,
    path: str | None,
    flags: dict[str, Flag] | None,
    integrations: Sequence[InPrograms],
    left: AbstractSet[tuple[str, str]] = frozenset(),
    sections: frozenset[str] | None = None,
    folders: Sequence[str] = (),
) -> PythonFile | None:
    """Read a Python text, or a notebook in Jupyter's or Databricks' format; None if it cannot be parsed.

    `flags` are those that the program is launched with; see `State.flags`. `integrations` are what the frameworks add. `left` are functions
    that need not be followed, `sections` those of the config, and `folders` those of PYTHONPATH; see `follow`.
    """
    path = path or shown
    key = ("program", path, shown, text, tuple(sorted((flags or {}).items(), key=repr)), sections, tuple(folders))
    if left:
        found = store().found((*key, "in part"), lambda: _read_in_limits(text, shown, path, flags or {}, integrations, left, None, folders))
        if found is None or not found.is_whole:
            return found
        return store().found(key, lambda: found)
    return store().found(key, lambda: _read_in_limits(text, shown, path, flags or {}, integrations, left, sections, folders))


def _read_in_limits(
    text: str,
    shown: str,
    path: str,
    flags: dict[str, Flag],
    integrations: Sequence[InPrograms],
    left: AbstractSet[tuple[str, str]],
    sections: frozenset[str] | None,
    folders: Sequence[str],
) -> PythonFile | None:
    """Read a program; one that is too large is read again, without most of its functions.

    The scripts of a project may launch one program in fifty ways: where it was too large once, it is read without them at once.
    """
    too_large = store().found(("too large", path, text), list[bool])
    whole = None
    if not too_large:
        whole = _read(text, shown, path, flags, integrations, left, sections, folders)
        if whole is None or whole.cut_off is None:
            return whole
        too_large.append(True)
    again = _read(text, shown, path, flags, integrations, left, sections, folders, again=True)
    if again is not None and again.cut_off is None:
        return again
    return whole or _read(text, shown, path, flags, integrations, left, sections, folders)


def _read(
    text: str,
    shown: str,
    path: str,
    flags: dict[str, Flag],
    integrations: Sequence[InPrograms],
    left: AbstractSet[tuple[str, str]],
    sections: frozenset[str] | None,
    folders: Sequence[str],
    *,
    again: bool = False,
) -> PythonFile | None:
    sources = Sources()
    has_cells = is_notebook(path, text)
    cells = cells_of(text) if has_cells else []
    if cells is None:
        return None
    recorder = Recorder(sources, integrations)
    parts: list[tuple[SourceFile, ast.Module]] = []
    for cell in cells or ([Cell("cell 1", "")] if has_cells else ()):
        python = as_python(cell.text) if cell.is_code and cell.is_python else blank(cell.text)
        sources.add(python, path, f"{shown}:{cell.name}", cell=cell.text)
    if not has_cells:
        sources.add(text, path, shown)
    for source in list(sources.all):
        tree = source.parsed.tree
        if tree is not None:
            parts.append((source, tree))
    if not parts:
        return None
    assumed = assumed_names(source.parsed for source, _ in parts)
    if "accelerator" in assumed.values:
        recorder.facts.loaders.add("accelerate")
    followed = follow(parts, sources, recorder, flags, left, sections, assumed, folders, again=again)
    parsed, cut_off = followed.parsed, followed.at
    first = sources.all[0]
    document = _document(first) if not first.is_cell else Document(text, None, language="text")
    found = PythonFile(shown, document, recorder.facts, recorder.events, followed.untaken, recorder.calls, recorder.unread, sources)
    found.assumed = assumed
    found.breaks_off = next((_last_line(one, found.documents[one.shown]) for one, _ in parts if one.parsed.breaks_off), None)
    found.broken = [_broken(one, found.documents[one.shown]) for one in sources.all if one.path == path and one.parsed.broken]
    found.cut_off = found.place(cut_off[0], cut_off[0].span(cut_off[1])) if cut_off is not None else None
    found.commands = list(dict.fromkeys(recorder.commands))
    found.variables = _assigned_once(parts, followed.variables) if has_cells else {}
    found.is_whole = followed.is_whole
    found.parses_arguments = any(_is_trainers(kind) for kind in parsed)
    trainers = [kind for kind in parsed if _is_trainers(kind)]
    found.own_flags = fields_of([kind for kind in parsed if not _is_trainers(kind)])
    if len(trainers) == 1:
        found.argument_class = argument_class(trainers[0])
    if found.own_flags is not None and found.argument_class:
        found.own_flags |= own_fields(trainers[0]) if isinstance(trainers[0], Class) else frozenset[str]()
    if len(trainers) == 1 and isinstance(trainers[0], Class):
        found.own_defaults = redefined(trainers[0])
    return found


def _assigned_once(parts: list[tuple[SourceFile, ast.Module]], variables: Cells) -> dict[str, str]:
    """The variables of a notebook whose value at the end is that of each command between. A parameter of the same name is another one."""
    nodes = [node for _, tree in parts for node in ast.walk(tree)]
    stored = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    stored.update(node.arg for node in nodes if isinstance(node, ast.arg))
    once = {name: value for name in stored if stored[name] == 1 and (value := variables.get(name)) is not None and not is_soft(value)}
    paths = {name: path for name, value in once.items() if (path := path_of(value)) is not None}
    numbers = {name: str(one.value) for name, one in once.items() if isinstance(one, Constant) and type(one.value) in (int, float)}
    return paths | numbers


def _document(source: SourceFile) -> Document:
    return Document(source.original, None, comments=source.parsed.comments, language=_language(source))


def _any_has(pattern: re.Pattern[str], sources: Sources) -> bool:
    """Whether a pattern matches in a file of the program. Each file is searched once a run: programs share their modules."""
    return any(has(pattern, one.text) for one in sources.all)


def _fills_auto(text: str) -> bool:
    """Whether `_FILLS_AUTO` matches. Few texts have the word in quotes, and the pattern looks at each line."""
    return ('"auto"' in text or "'auto'" in text) and has(_FILLS_AUTO, text)


def _own_save(sources: Sources) -> SourcedValue | None:
    found = own_save(sources.all)
    return sources.sourced(*found, UNKNOWN) if found is not None else None


def _gradient_reads(sources: Sources) -> tuple[GradientRead, ...]:
    return tuple(
        GradientRead(sources.sourced("grad", one.span, UNKNOWN), one.after, one.backward, one.stepped, one.raises)
        for one in gradient_reads(sources.all)
    )


def _attention(sources: Sources) -> SourcedValue | None:
    """The kernel of attention by the text of the program's files, if they name one."""
    found = [
        (match["kernel"], sources.sourced(match[0].strip(), Span(one.base + match.start(), one.base + match.end()), UNKNOWN))
        for one in sources.all
        if "_attn_implementation" in one.text or "flash_attn" in one.text  # a twentieth of the time of the pattern
        for match in matches_in(_ATTENTION, one.text)
    ]
    set_to = {kernel for kernel, _ in found if kernel}
    kernels = {NAMED.get(kernel, UNKNOWN) for kernel in set_to} or {FLASH_2}
    value = kernels.pop() if len(kernels) == 1 else UNKNOWN
    place = next((one for kernel, one in found if bool(kernel) == bool(set_to)), None)
    return replace(place, value=value) if place is not None and value is not UNKNOWN else None


def _is_trainers(kind: Value) -> bool:
    """Whether a class is the Trainer's `TrainingArguments`, or inherits from it."""
    name = kind.name if isinstance(kind, Library) else library_base(kind) if isinstance(kind, Class) else ""
    return is_trainers(name)


def _broken(source: SourceFile, document: Document) -> SourcedValue:
    assert source.parsed.broken is not None
    start = source.parsed.lines[source.parsed.broken - 1]
    raw = source.text[start:].partition("\n")[0].strip()
    return SourcedValue(UNKNOWN, "line", raw, source.shown, range_of(document, Span(start, start + len(raw))))


def _last_line(source: SourceFile, document: Document) -> SourcedValue:
    end = len(source.text.rstrip())
    start = source.text.rfind("\n", 0, end) + 1
    return SourcedValue(UNKNOWN, "line", source.text[start:end].strip(), source.shown, range_of(document, Span(start, end)))


def _language(source: SourceFile) -> str:
    return "json" if source.shown.endswith(".json") else "python"


def _loader(found: PythonFile) -> str | None:
    facts = found.facts
    prepares = any(found.events.of(r"accelerate\.(\w+\.)*Accelerator\.prepare"))
    other = "transformers" if prepares and not facts.makes_trainer else "accelerate"  # its arguments may only be parsed
    loaders = facts.loaders - {other} if facts.loaders >= {"accelerate", "transformers"} else facts.loaders
    if "deepspeed" in loaders and not facts.makes_trainer and not _any_has(_FILLED, found.sources):
        loaders = loaders - {"transformers"}  # its arguments are read, but only the Trainer acts on them
    return next(iter(loaders)) if len(loaders) == 1 else None


def _program(found: PythonFile) -> Program:
    facts, untaken = found.facts, found.untaken
    again = _any_has(_MADE_AGAIN, found.sources)
    return Program(
        found.path,
        found.loader,
        facts.dummy_optimizer,
        facts.optimizer,
        facts.legacy,
        facts.accumulation,
        facts.trainer,
        strategy=facts.strategy,
        trainer_complete=facts.trainer_complete,
        device_map=facts.device_map,
        makes_ranks=_any_has(_MAKES_RANKS, found.sources),
        reads_words=_any_has(_READS_WORDS, found.sources),
        saves=_any_has(_SAVES, found.sources),
        divides_data=_any_has(_DIVIDES_DATA, found.sources),
        sets_rate=_any_has(_SETS_RATE, found.sources),
        freezes=frozen(found.sources, untaken),
        checkpoints=checkpointing(found.sources, untaken),
        own_save=_own_save(found.sources),
        gradient_reads=_gradient_reads(found.sources),
        lean_optimizer=_any_has(_LEAN_OPTIMIZER, found.sources),
        attention=_attention(found.sources),
        trains=_any_has(_TRAINS, found.sources) or not _any_has(_EVALUATES, found.sources),
        quantized=facts.quantized,
        quantized_storage=facts.quantized_storage,
        mixed_precision=facts.mixed_precision,
        loaded_early=facts.loaded_early,
        fabric=facts.fabric,
        lightning_trainer=facts.lightning_trainer,
        several_optimizers=facts.several_optimizers,
        unknown_strategy=facts.unknown_strategy,
        set_late=None if again else facts.set_late,
        makes_again=again,
        sets=frozenset(facts.sets),
        loader_batch=facts.loader_batches[0] if len({one.value for one in facts.loader_batches}) == 1 else None,
        fills_auto="deepspeed" in facts.loaders and any(_fills_auto(one.text) for one in found.sources.all),
        makes_accelerator=facts.makes_accelerator,
        events=found.events,
        is_posted=bool(found.assumed),
        argument_class=found.argument_class,
        model=facts.models[0] if len({one.value for one in facts.models}) == 1 else None,
        default_model=facts.default_models[0] if len({one.value for one in facts.default_models}) == 1 else None,
        train_data=facts.train_data[0] if len({(one.path, one.range) for one in facts.train_data}) == 1 else None,
    )
