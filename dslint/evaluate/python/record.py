"""The calls of a program that concern DeepSpeed: which config each takes, and what else they say about the training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dslint.evaluate.python.calls import ENGINE_BACKWARD, Argument, CallOf
from dslint.evaluate.python.commands import command_of, runs_command
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.events import Noted
from dslint.evaluate.python.files import TEMPORARY, written_at
from dslint.evaluate.python.functions import enter, library_base
from dslint.evaluate.python.given import (
    as_object,
    is_dict,
    known_options,
    of_arguments,
    once,
    reason_for_all,
    says_anything,
    unless_none,
)
from dslint.evaluate.python.integration import InPrograms
from dslint.evaluate.python.libraries.dataclasses import PERHAPS_PARSED, TRAINERS_PARSED, is_trainers, own_fields, redefined
from dslint.evaluate.python.libraries.table import plain_length
from dslint.evaluate.python.loading import Loading
from dslint.evaluate.python.made import of_plugin
from dslint.evaluate.python.notes import ConfigCall, ProgramFacts, RunCommand
from dslint.evaluate.python.plugins import changed_config, is_used, new_plugin, overlaid, written_paths
from dslint.evaluate.python.sagemaker import part_of
from dslint.evaluate.python.sources import Sources
from dslint.evaluate.python.tree import TreeMaker
from dslint.evaluate.reasons import IS_COMPUTED, Cause, Reason
from dslint.evaluate.values import Constant, DictValue, Entry, Function, Object, Unknown, Value, member, path_of
from dslint.facts import Integration
from dslint.job.arguments import FLOATS, Arguments, SourcedValue, as_read
from dslint.job.events import DROPPED, FORMER_PPO, Events
from dslint.job.training import ARGUMENTS, WORKLOAD
from dslint.schemas.recognition import TELLING_KEYS
from dslint.source.tree import Span
from dslint.source.unknown import UNKNOWN

_TRAINERS = frozenset("Trainer Seq2SeqTrainer SFTTrainer DPOTrainer GRPOTrainer RewardTrainer".split())
_TORCH_OPTIMIZERS = frozenset("Adam AdamW SGD Adagrad Adadelta RMSprop NAdam RAdam Adamax Lion".split())
_CONFIG_FILE = "ACCELERATE_DEEPSPEED_CONFIG_FILE"
"""The environment variable that names the config to Accelerate."""

PARSER_REFUSES = "Some keys are not used by the HfArgumentParser: ['{name}']"
"""What a parser raises for a name in a file or a dict that its class does not have."""

ONLY_ARGUMENTS = frozenset({"fp16_backend", "half_precision_backend", "fp16_opt_level"})
"""Arguments that transformers 5 refuses: set as attributes later, they raise nothing, as in copies of its Trainer."""

_UNEXPECTED = "{kind}.__init__() got an unexpected keyword argument '{{name}}'"
"""What Python raises for such a name in a call of the class."""

_IMPORTS_DEEPSPEED = re.compile(r"^\s*(from deepspeed\b|import [^#\n]*\bdeepspeed\b)", re.MULTILINE)

_READERS = {
    "HfDeepSpeedConfig": "config_file_or_dict",
    "HfTrainerDeepSpeedConfig": "config_file_or_dict",
    "DeepSpeedConfig": "config",
}
"""Classes that read a config, with the argument that holds it."""


_ZERO_INIT = re.compile(r"deepspeed\.(\w+\.)*zero\.(\w+\.)*Init")

_TELLING = frozenset({"HfDeepSpeedConfig", "HfTrainerDeepSpeedConfig", "DeepSpeedPlugin", "Accelerator", "Init"})
"""Classes that tell transformers of a config, and `deepspeed.zero.Init`, which partitions a model without them."""

_ONLY_TRAINERS = frozenset({"output_dir", "per_device_train_batch_size"})
"""Arguments of a class that hardly any but the Trainer's has: where dslint does not know the class, it may tell transformers, too."""

_MODEL_CLASS = re.compile(r"\.(AutoModel\w*|\w+(For[A-Z]\w+|Model))\.from_pretrained$")
"""Classes of models, not of tokenizers, processors or configs."""

_TRAINS_ROWS = re.compile(r"(transformers|trl)\.(\w+\.)*(Trainer|Seq2SeqTrainer|SFTTrainer|DPOTrainer)")
"""Trainers that train one sample for each row of their data."""

_DECIDE_STEPS = ("get_train_dataloader", "_get_dataloader", "_get_train_sampler", "set_initial_training_values", "num_examples", "train")
"""Methods of a Trainer with which a class of the project may train another number of steps."""

_OF_PLUGIN = r"([\w.]+\()?[\w.()]*plugin\w*\.deepspeed_config\b"
"""The config of Accelerate's plugin, or a copy of it, as programs write it for the engine of a reference model."""

_INITIALIZE = "args model optimizer model_parameters training_data lr_scheduler".split()
"""The first arguments of `deepspeed.initialize`, by their positions."""


def _is_text(value: Value) -> bool:
    return isinstance(value, Constant) and isinstance(value.value, str) and not value.soft


def _arguments_of_initialize(call: CallOf) -> Iterator[str]:
    """The names of the arguments that a call of `deepspeed.initialize` passes and that are not None."""
    names = (*_INITIALIZE[: len(call.arguments)], *call.keywords)
    return (name for index, name in enumerate(names) if unless_none(call.argument(name, index)) is not None)


class Recorder:
    """Takes note of calls while a program is followed."""

    def __init__(self, sources: Sources, integrations: Sequence[InPrograms]) -> None:
        self.sources = sources
        self.integrations = integrations
        self.calls: list[ConfigCall] = []
        self.unread: list[ConfigCall] = []
        self.commands: list[RunCommand] = []
        self.facts = ProgramFacts()
        self.state: ProgramState | None = None
        self._hints: list[ConfigCall] = []
        self._unread_hints: list[ConfigCall] = []
        self._plugins: list[CallOf] = []
        self._accelerators: list[CallOf] = []
        self._given_to: dict[Span, ConfigCall] = {}
        self._pipelines: dict[Span, CallOf] = {}
        self._scalings: dict[Span, CallOf] = {}
        self._engines: list[tuple[ConfigCall, Span]] = []
        self._with_backward: set[Span] = set()
        self._precision: Argument | None = None
        self._seen: dict[tuple[int, str], ConfigCall] = {}
        self._loading = Loading(self._placed)
        self._noted = Noted(self.sourced)
        self._readers = [one.reader(self) for one in integrations if one.reader is not None]

    def receive(self, call: CallOf) -> Value | None:
        """Note a call of a library's function. Returns its value, if that matters."""
        name, short = call.name, call.name.rpartition(".")[2]
        self.note(call)
        holds = is_trainers(name) and not _is_former_ppo(call)
        is_made = holds and not call.later  # with attributes that are set later they are received again
        perhaps = short.endswith(("Arguments", "Config")) and not holds and not _ONLY_TRAINERS.isdisjoint(call.keywords)
        if is_made or perhaps or short in _TELLING or name == "deepspeed.initialize":
            self._tell(call, perhaps=perhaps)
        if self._is_taken(call):
            return None
        if short == "DeepSpeedPlugin":
            return self._plugin(call)
        if short in _READERS:
            given = call.argument(_READERS[short], 0)
            self._tell_model(given, _READERS[short], "deepspeed" if short == "DeepSpeedConfig" else "transformers")
            return given.value if given else None
        if holds or (short.endswith("Config") and _may_be_trainers(call)):
            self._take_class(call, short)
            return as_object(call)
        if name == "deepspeed.initialize":
            self._initialize(call)
        elif name == ENGINE_BACKWARD:
            self._with_backward.add(call.span)
        elif name == "os.environ":
            if _CONFIG_FILE in call.keywords:
                self.take("accelerate", _CONFIG_FILE, call.keywords[_CONFIG_FILE])
        elif short == "DeepspeedTorchDistributor":
            self._distribute(call)
        elif runs_command(name):
            self.commands += command_of(call, self.sources)
        else:
            self._note_training(call, name, short)
        return part_of(call)

    def _is_taken(self, call: CallOf) -> bool:
        """Whether a call is one of a framework that reads it."""
        for reader in self._readers:  # noqa: SIM110 - twice as fast as `any` with a generator
            if reader.receive(call):
                return True
        return False

    def note(self, call: CallOf, owner: Value | None = None) -> None:
        """Note a call for the table of events; `owner` is the object whose method it calls."""
        if call.name == PERHAPS_PARSED:
            self._loading.tell(call, self._flow, perhaps=True)
        if call.name == TRAINERS_PARSED:
            self._loading.tell(call, self._flow)
        if call.name.endswith(f".{DROPPED}"):
            self._loading.forget(call)
        state = self.state
        statement = state.at[1] if state is not None and state.at is not None else None
        self._noted.note(call, self._flow, owner, state.making if state is not None else (), statement)

    @property
    def events(self) -> Events:
        """The table of events."""
        return self._noted.events

    def _note_training(self, call: CallOf, name: str, short: str) -> None:
        """Note what a call says about the training: its model, its optimizer, its trainer."""
        facts = self.facts
        if short == "from_pretrained" and name.startswith("transformers."):
            self._loading.load(call, self._flow, facts)
            given = call.argument("pretrained_model_name_or_path", 0)
            if given is not None and _MODEL_CLASS.search(name):
                self._note_model("from_pretrained", given)
        elif short == "DataLoader" and name.startswith("torch.utils.data"):
            given = call.argument("batch_size", 1)
            one = self.asked(call, "batch_size").get("batch_size") if "batch_size" in call.keywords else None
            facts.loader_batches.append(one or self.sourced("batch_size", call.span, UNKNOWN if given is not None else 1))
        elif short == "BitsAndBytesConfig" and name.startswith("transformers."):
            self._loading.quantization(call, facts)
        elif short == "PipelineModule" and name.startswith("deepspeed."):
            self._pipelines[call.span] = call
        elif short == "DummyOptim":
            facts.dummy_optimizer = True
        elif _is_former_ppo(call):
            facts.loaders.add("accelerate")
        elif short in _TORCH_OPTIMIZERS and name.startswith(("torch.optim.", "transformers.")):
            facts.optimizer = facts.optimizer or self.sourced(short, call.span, UNKNOWN)
        elif short == "Accelerator" and name.startswith("accelerate"):
            self._accelerator(call)
        elif short == "ScalingConfig" and name.startswith("ray."):
            self._scalings[call.span] = call
        elif name.startswith("ray.train") and short.endswith("Trainer"):
            self._ray(call)
        elif short.endswith("Trainer"):
            facts.makes_trainer = True  # a class that is not in the project can be a subclass of Trainer
            self._trainer(call, name, short)

    def _note_model(self, name: str, given: Argument) -> None:
        """Note the model that the program loads: a flag may name another one than the flag's default."""
        value = given.value if isinstance(given.value, Constant) else Constant(None)
        place = self.sourced(name, given.span, value.value, key=given.key)
        self.facts.models.append(replace(place, value=UNKNOWN) if value.soft or value.value is None else place)
        self.facts.default_models.append(place)

    def _trainer(self, call: CallOf, name: str, short: str) -> None:
        """Note what a trainer gets: the model, if it loads it, and the data, with their rows if those decide the number of steps."""
        facts = self.facts
        facts.loaders |= {"transformers"} if short in _TRAINERS else set()
        given = call.argument("model", 0)
        if name.startswith("trl.") and given is not None and isinstance(given.value, Constant):
            self._note_model("model", given)
        given = call.argument("train_dataset", 3)
        if given is None or self.state is None or _TRAINS_ROWS.fullmatch(name) is None:
            return
        is_sure = not (call.chosen or call.unlikely or call.loops) and call.complete
        changes = call.own is not None and any(member(call.own, name) is not None for name in _DECIDE_STEPS)
        rows = plain_length(self.state, given.value) if is_sure and not changes else None
        facts.train_data.append(self.sourced("train_dataset", given.span, UNKNOWN if rows is None else rows, key=given.key))

    def _tell_model(self, given: Argument | None, keyword: str, integration: str) -> None:
        """`HfDeepSpeedConfig` tells only `from_pretrained` of the config: another call hands it to DeepSpeed."""
        calls, unread = len(self.calls), len(self.unread)
        self.take(integration, keyword, given)
        self._hints += self.calls[calls:]
        known = {(one.given.path, one.given.range) for one in self._unread_hints}
        self._unread_hints += [one for one in self.unread[unread:] if (one.given.path, one.given.range) not in known]
        del self.calls[calls:], self.unread[unread:]

    def _tell(self, call: CallOf, *, perhaps: bool) -> None:
        """A call that tells transformers of a config. `zero.Init` reads it itself, and hands it to nothing else: that makes no loader."""
        self._loading.tell(call, self._flow, perhaps=perhaps)
        if _ZERO_INIT.fullmatch(call.name) is None:
            return
        given, loaders = unless_none(call.argument("config_dict_or_path", 5)), set(self.facts.loaders)
        if given is not None:
            self._tell_model(given, "config_dict_or_path", "deepspeed")
            self.facts.loaders = loaders

    # ------------------------------------------------------------------ the calls

    def _initialize(self, call: CallOf) -> None:
        if "accelerate" in self.facts.loaders and self._is_of_plugin(call):
            return  # an engine for a second model, as a reference: Accelerate has loaded the config, and filled it
        self.facts.loaders.add("deepspeed")
        legacy = call.argument("config_params")
        if legacy is not None:
            self.facts.legacy = self.sourced("config_params", legacy.span, UNKNOWN)
        keyword, given = "config", unless_none(call.argument("config", 10))
        if given is None and legacy is not None:
            keyword, given = "config_params", legacy
        arguments = call.argument("args", 0)
        named = of_arguments(arguments) if arguments else None
        is_dict = arguments is not None and isinstance(arguments.value, DictValue)  # DeepSpeed looks for an attribute of args
        in_args = self._certain(named, call) if named and given and not is_dict else None
        if given is None:
            keyword, given = "deepspeed_config", named
        unread = len(self.unread)
        taken = self.take("deepspeed", keyword, given or Argument(Unknown(Reason(Cause.NOT_PASSED, (), call.span)), call.span, call.span))
        noted: list[ConfigCall] = [*self.unread[unread:], *taken]
        for one in noted:
            one.optimizer = self._object(call, "optimizer", 2)
            one.scheduler = self._object(call, "lr_scheduler", 5)
            one.passed = frozenset(_arguments_of_initialize(call)) if call.complete else None
            one.in_args = in_args
            one.pipeline = self._pipeline(call)
            others = [given for given in call.conditions if not given.default and "deepspeed" not in given.text.lower()]
            one.by_flag = call.unlikely and bool(others or not call.conditions)
            self._engines.append((one, call.span))

    @staticmethod
    def _is_of_plugin(call: CallOf) -> bool:
        """Whether the config of an engine is that of Accelerate's plugin, or a copy: `deepcopy(plugin.deepspeed_config)`."""
        given = unless_none(call.argument("config", 10)) or call.argument("config_params")
        if given is None or given.node is None:
            return False
        if isinstance(given.node, ast.Name):
            return re.search(rf"\b{given.node.id} *= *{_OF_PLUGIN}", call.scope.source.text) is not None
        return re.match(_OF_PLUGIN, ast.unparse(given.node)) is not None

    def _certain(self, given: Argument, call: CallOf) -> SourcedValue | None:
        """The path of a config that a call gets for certain."""
        path = given.value.value if isinstance(given.value, Constant) and not (call.chosen or call.unlikely) else None
        return self.sourced("deepspeed_config", given.span, path, key=given.key) if isinstance(path, str) and path else None

    def _object(self, call: CallOf, name: str, index: int) -> SourcedValue | None:
        """An object that the program passes instead of a section of the config."""
        given = call.argument(name, index)
        value = given.value if given is not None else None
        made = value.made if isinstance(value, Unknown) else ""
        if name == "lr_scheduler" and isinstance(value, Object) and value.type is not None:
            made = value.type.name  # of a class of the project
        return self.sourced(name, given.span, made, key=given.key) if given is not None and made else None

    def _pipeline(self, call: CallOf) -> SourcedValue | None:
        """The pipeline that the program passes as its model; its value is the number of stages, `UNKNOWN` if that is not certain."""
        given = call.argument("model", 1)
        model = given.value if given is not None else None
        if given is not None and isinstance(model, Object) and model.type is not None:
            return self._placed("model", given) if library_base(model.type).endswith(".PipelineModule") else None
        made = self._pipelines.get(model.span) if isinstance(model, Unknown) and model.span is not None else None
        if made is None:
            return None
        stages = self.asked(made, "num_stages").get("num_stages")
        return stages or self.sourced("PipelineModule", self.place_of(made), UNKNOWN)

    def _take_class(self, call: CallOf, short: str) -> None:
        """Note the arguments of a class of the Trainer's, and what it refuses. It converts no text, as the parser of flags does."""
        sure = short in ("TrainingArguments", "Seq2SeqTrainingArguments")
        complete = call.complete and len(call.arguments) <= is_trainers(call.name)  # the first one is the output folder
        keywords = {name: given for name, given in call.keywords.items() if name not in call.later & ONLY_ARGUMENTS}
        arguments = self._arguments(keywords, sure=sure, complete=complete, assigned=call.assigned)
        before = {name: self._argument(name, given) if given is not None else None for name, given in call.before.items()}
        arguments = replace(arguments, before={name: one for name, one in before.items() if name in arguments.values})
        if call.own is not None:
            arguments = replace(arguments, redefined=redefined(call.own))
        known = call.later | (own_fields(call.own) if call.own is not None else frozenset[str]())
        own = {name: given for name, given in call.keywords.items() if name not in known}
        if sure and call.assigned is None and not call.chosen:
            others = tuple(self.sourced(name, one.span, UNKNOWN, key=one.key) for name, one in own.items() if name not in arguments.values)
            texts = frozenset(name for name, one in own.items() if name in FLOATS and _is_text(one.value))
            refusal = PARSER_REFUSES if call.parsed else _UNEXPECTED.format(kind=short)
            arguments = replace(arguments, others=others, texts=texts, refusal=refusal)
        elif not sure and call.name == f"trl.{short}" and call.assigned is None:
            others = tuple(self.sourced(name, one.span, UNKNOWN, key=one.key) for name, one in own.items() if name not in arguments.values)
            arguments = replace(arguments, kind=call.name, others=others, refusal=_UNEXPECTED.format(kind=short))
        late = unless_none(call.keywords.get("deepspeed")) if "deepspeed" in call.later else None
        if late is not None and isinstance(late.node, ast.Constant) and late.node.value is None:
            late = None  # the program switches DeepSpeed off, if only in a branch
        self.facts.set_late = self._placed("deepspeed", late) if late is not None else None
        self._take_link(call.keywords, arguments)

    def take_arguments(self, keywords: dict[str, Argument], *, sure: bool, complete: bool) -> None:
        """Note arguments of the Trainer, and the config among them; for the rest see `Arguments`."""
        self._take_link(keywords, self._arguments(keywords, sure=sure, complete=complete))

    def _arguments(self, keywords: dict[str, Argument], *, sure: bool, complete: bool, assigned: frozenset[str] | None = None) -> Arguments:
        self.facts.loaders.add("transformers")
        values: dict[str, SourcedValue] = {}
        for name, given in keywords.items():
            if name in ARGUMENTS | WORKLOAD:
                values[name] = self._argument(name, given)
        shown = self.sources.all[0].shown
        return Arguments(Integration.TRANSFORMERS.label, shown, values, sure=sure, complete=complete, assigned=assigned)

    def _argument(self, name: str, given: Argument) -> SourcedValue:
        plain = given.value.value if isinstance(given.value, Constant) and not given.value.soft else UNKNOWN
        return self.sourced(name, given.span, as_read(name, plain), key=given.key)

    def _take_link(self, keywords: dict[str, Argument], arguments: Arguments) -> None:
        link = unless_none(keywords.get("deepspeed"))
        for one in self.take("transformers", "deepspeed", link) if link else ():
            one.arguments = arguments
        if link is None:
            self.facts.loose = arguments

    def _plugin(self, call: CallOf) -> Value | None:
        self.facts.loaders.add("accelerate")
        given = unless_none(call.argument("hf_ds_config", 0))
        if given is not None:
            taken = self.take("accelerate", "hf_ds_config", given)
            if len(taken) == 1:
                self._given_to[call.span] = taken[0]
        else:
            self._plugins.append(call)
        return new_plugin(self.state, call.span, given) if self.state is not None else None

    def _accelerator(self, call: CallOf) -> None:
        self.facts.loaders.add("accelerate")
        self._accelerators.append(call)
        self.facts.makes_accelerator = call.complete
        self._precision = call.argument("mixed_precision") or self._precision
        asked = self.asked(call, "gradient_accumulation_steps")
        self.facts.accumulation = asked.get("gradient_accumulation_steps", self.facts.accumulation)
        self.facts.mixed_precision = self.asked(call, "mixed_precision").get("mixed_precision", self.facts.mixed_precision)

    def _distribute(self, call: CallOf) -> None:
        """The function that Spark's distributor runs on the workers decides who loads the config."""
        for one in self.take("deepspeed", "deepspeedConfig", call.argument("deepspeedConfig", 5)):
            one.integration = ""

    def _ray(self, call: CallOf) -> None:
        """Ray calls the training function with the dict `train_loop_config`, on each worker of `scaling_config`.

        Source: ray/train/torch/config.py, which sets WORLD_SIZE to the number of workers, whether or not they have GPUs.
        """
        known = len(self.calls)
        function, config = call.get("train_loop_per_worker", 0), call.get("train_loop_config")
        if isinstance(function, Function) and self.state is not None:
            takes = bool(function.node.args.args)
            enter(self.state, function, [config or Unknown()] if takes else [], {})
        scaling = call.get("scaling_config")
        made = self._scalings.get(scaling.span) if isinstance(scaling, Unknown) and scaling.span is not None else None
        workers = self.asked(made, "num_workers").get("num_workers") if made is not None and not (call.chosen or call.unlikely) else None
        if workers is not None and type(workers.value) is int and workers.value > 0:  # a pair is a range, and 0 is a run without workers
            for one in self.calls[known:]:
                one.ranks = one.ranks or workers

    def finish(self) -> None:
        """Note the configs that plugins and strategies build, once the precision of the trainer is known."""
        self._loading.finish(self.facts)
        plugins = self.state.plugins if self.state is not None else {}
        self._note_changes(plugins)
        for one, span in self._engines:
            one.engine_backward |= span in self._with_backward
        used = self.facts.makes_trainer or is_used(self._accelerators, self.sources.all)
        if not used:
            unused = {id(one) for one in self._given_to.values()}
            self.calls = [one for one in self.calls if id(one) not in unused]
        for call in once(self._plugins) if used else ():
            changed = changed_config(plugins.get(call.span))
            if not call.keywords and changed is None:
                continue
            at = self.place_of(call)
            plugin = of_plugin(call, at, self._precision)
            plugin = overlaid(plugin, TreeMaker(self.sources).config(changed)) if changed is not None else plugin
            self.calls.append(ConfigCall("accelerate", self.sourced("DeepSpeedPlugin", at, UNKNOWN), plugin))
        for reader in self._readers:
            reader.finish()
        if not self.calls and (self._hints or not self.unread):
            self._use_hints()

    def _note_changes(self, plugins: Mapping[Span, Object]) -> None:
        """Use the configs of plugins as the program leaves them. Of a config that is not known here the changed keys are noted."""
        for at, plugin in plugins.items():
            changed = changed_config(plugin)
            taken = self._given_to.get(at)
            if changed is None:
                continue
            if changed.open and at not in {call.span for call in self._plugins}:
                self.facts.sets |= set(written_paths(changed))
            elif taken is not None:
                taken.config, taken.given = TreeMaker(self.sources).config(changed), replace(taken.given, value=UNKNOWN)

    def _use_hints(self) -> None:
        """Take the configs that only `from_pretrained` is told of: without a Trainer, a program with DeepSpeed hands them to it itself."""
        imports = any("deepspeed" in source.text and _IMPORTS_DEEPSPEED.search(source.text) for source in self.sources.all)
        if imports and not self.facts.makes_trainer and not (self.state is not None and self.state.parsed):
            hints: list[ConfigCall] = [*self._hints, *self._unread_hints]
            for hint in hints:
                hint.integration = "deepspeed"
        self.calls = self._hints
        self.unread += self._unread_hints

    @staticmethod
    def place_of(call: CallOf) -> Span:
        """The place of the name of the called function."""
        return call.scope.source.span(call.node.func)

    # ------------------------------------------------------------------ configs

    def take(self, integration: str, keyword: str, given: Argument | None) -> list[ConfigCall]:
        """Note the config that a call takes, or each of those that it may take. [] if the program contains none."""
        self.facts.loaders.add(integration)
        if given is None:
            return []
        value = given.value
        taken = [one for option in known_options(value) for one in self.take(integration, keyword, replace(given, value=option))]
        if taken:
            if not (isinstance(value, Unknown) and value.closed):
                self._leave(integration, keyword, given, is_part=True)
            return taken
        if (name := path_of(value)) is not None and self.state is not None:
            value = written_at(self.state, name) or value
            if isinstance(value, Constant) and str(value.value).startswith(TEMPORARY):
                value = Unknown(Reason(Cause.TEMPORARY_FILE, (), given.span))
                given = replace(given, value=value)
        path = value.path if isinstance(value, DictValue) else path_of(value)
        made: ConfigCall | None = None
        if isinstance(path, str) and path.strip():
            made = ConfigCall(
                integration,
                self.sourced(keyword, given.span, path, key=given.key),
                as_dict=is_dict(value),
                by_hjson=isinstance(value, DictValue) and value.file is not None and "keeps_last" in value.file,
            )
        elif isinstance(value, DictValue) and says_anything(value):
            config = TreeMaker(self.sources).config(value)
            made = ConfigCall(integration, self.sourced(keyword, given.span, UNKNOWN, key=given.key), config, as_dict=True)
            reason = value.open.get("reason") or reason_for_all(value)
            if reason:
                self._leave(integration, keyword, replace(given, value=Unknown(reason)), is_part=True, is_in_use=_is_in_use(value))
        if made is None:
            self._leave(integration, keyword, given, is_in_use=_is_in_use(value))
            return []
        key = (id(given.node) if given.node is not None else given.span.start, repr(path) if path else str(len(self.calls)))
        if key in self._seen and path:
            return [self._seen[key]]
        self._seen[key] = made
        self.calls.append(made)
        return [made]

    def define(self, name: str, value: Value, span: Span) -> None:
        """Note a config that a program defines for another file to use."""
        for option in known_options(value):
            self.define(name, option, option.span if isinstance(option, DictValue) else span)
        if isinstance(value, DictValue) and value.path is None and value.cells.keys() & TELLING_KEYS:
            config = TreeMaker(self.sources).config(value)
            config.may_have_more = True  # the file that uses it may add keys
            self.calls.append(ConfigCall("", self.sourced(name, span, UNKNOWN), config))
        elif (path := path_of(value)) is not None and path.endswith(".json"):
            self.calls.append(ConfigCall("", self.sourced(name, span, path)))

    def define_arguments(self, value: Value) -> None:
        """Note a dict of arguments of the Trainer that names a config; the program makes flags or keyword arguments of it."""
        if isinstance(value, DictValue) and "deepspeed" in value.cells and len(value.cells.keys() & ARGUMENTS) > 1:
            entries: dict[str, Entry] = dict(value.cells)
            given = {name: Argument(one.value, one.span, one.key_span, one.literal) for name, one in entries.items()}
            self.take_arguments(given, sure=False, complete=not value.open)

    def _leave(self, integration: str, keyword: str, given: Argument, *, is_part: bool = False, is_in_use: bool = False) -> None:
        value = given.value
        known = value.reason if isinstance(value, Unknown) else value.open.get("reason") if isinstance(value, DictValue) else None
        reason = known or IS_COMPUTED
        if isinstance(value, Constant) and not value.value:
            return
        sourced = self.sourced(keyword, given.span, UNKNOWN, key=given.key)
        if all((one.given.range, one.given.path) != (sourced.range, sourced.path) for one in self.unread):
            self.unread.append(ConfigCall(integration, sourced, reason=reason, is_part=is_part, is_in_use=is_in_use))

    def asked(self, call: CallOf, *names: str) -> dict[str, SourcedValue]:
        """Keyword arguments of a call."""
        found: dict[str, SourcedValue] = {}
        for name in names:
            given = call.keywords.get(name)
            if given is not None:
                value = given.value.value if isinstance(given.value, Constant) and not given.value.soft else UNKNOWN
                found[name] = self.sourced(name, given.span, value, key=given.key)
        return found

    @property
    def _flow(self) -> int:
        return self.state.flow if self.state is not None else 0

    def _placed(self, name: str, given: Argument) -> SourcedValue:
        """A named argument with its place; its value is left out."""
        return self.sourced(name, given.span, UNKNOWN, key=given.key)

    def sourced(self, name: str, span: Span, value: Any, *, key: Span | None = None) -> SourcedValue:
        """A value with its place in the file that it is written in."""
        return self.sources.sourced(name, span, value, key=key)


def _is_former_ppo(call: CallOf) -> bool:
    """Whether a call makes the config of the PPOTrainer before TRL 0.12."""
    return call.name.startswith("trl.") and call.name.endswith(".PPOConfig") and not FORMER_PPO.isdisjoint(call.keywords)


def _may_be_trainers(call: CallOf) -> bool:
    """Whether the arguments of a class of configs are the Trainer's: `deepspeed`, and another one, or some that are not known."""
    known = call.keywords.keys() & ARGUMENTS
    return "deepspeed" in known and (len(known) > 1 or not call.complete or call.name.startswith(("trl.", "transformers.")))


def _is_in_use(value: Value) -> bool:
    """Whether a config is the one that Accelerate's plugin holds, or a copy of it."""
    return isinstance(value, DictValue) and bool(value.open.get("in_use"))
