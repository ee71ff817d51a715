"""The table of events of a program: the calls of libraries' functions, and of methods of the objects that they make.

A rule about a program asks this table, as a rule about a key asks the config:

    for event in program.events.of("accelerate.Accelerator.save_state"):
        if condition := program.events.on_some_ranks(event): ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from dslint.job.arguments import SourcedValue
from dslint.record import Record
from dslint.source.unknown import UNKNOWN

MODELS = (
    r"(transformers|diffusers)\.(?!.*EMAModel)(.*\.)?\w*(Model|For[A-Z]\w*|Transformer\w*|VAE\w*)\w*\.(from_pretrained|from_config)"
    r"|peft\.(get_peft_model|PeftModel\w*\.from_pretrained)"
)
"""What makes a model of a library: the names of the classes contain this, and those of tokenizers and configs do not. An `EMAModel` is
not a module: it holds copies of the weights."""

OWN_MODULE = r"torch\.nn\.(\w+\.)*Module"
"""What the classes of a project's own models inherit from: the methods of such a model have this in place of the call that makes it."""

LOADS = r"transformers\.(.*\.)?\w*(Model|For[A-Z]\w*)\w*\.from_pretrained"
"""What loads a model of transformers."""

MAKES_MODEL = ("from_pretrained", "from_config")
"""The methods of a class that make a model."""

CHECKPOINTS = r"(.*\.)?(gradient_checkpointing_enable|enable_gradient_checkpointing)"
"""The methods with which models of transformers and of diffusers checkpoint their activations."""

FOR_KBIT = r"(.*\.)?prepare_model_for_kbit_training"
"""The function of PEFT that prepares a quantized model: its activations are checkpointed unless `use_gradient_checkpointing` is False."""

TRAINER = "transformers.Trainer"
"""The Trainer of transformers."""

TRAINERS = r"(transformers|trl)\.(\w+\.)*\w*Trainer"
"""The Trainer of transformers, and those of TRL that are built on it."""

TRAINER_ARGUMENTS = r"transformers\.(\w+\.)*\w*TrainingArguments|trl\.(\w+\.)*\w+Config"
"""The classes of their arguments."""

FORMER_PPO = frozenset({"model_name", "ppo_epochs", "steps", "log_with", "tracker_project_name", "init_kl_coef", "adap_kl_ctrl"})
"""Arguments of the `trl.PPOConfig` before TRL 0.12, which did not hold training arguments: its PPOTrainer passed an optimizer of torch to
`Accelerator.prepare`."""

ENGINE = "deepspeed.initialize"
"""What makes an engine."""

HELD_WEAKLY = r"transformers\.(\w+\.)*Hf(Trainer)?DeepSpeedConfig"
"""What tells transformers of a config as long as the object lives."""

DROPPED = "dropped"
"""The last part of the name of the event that ends the life of such an object, which nothing keeps; its place is that of the call, and its
argument `at_once` is true where a statement drops it, which is nothing but a call.
"""

UNPACKED = "unpacked"
"""The last part of the name of the event of a call whose results are assigned to another number of names; its arguments hold both numbers:
`names` and `results`."""

DATA_LOADER = r"torch\.utils\.data\.(\w+\.)?DataLoader"
"""What makes a data loader of torch."""

FABRIC_SETUP = r"lightning(\.|_)(fabric\.)?Fabric\.setup"
"""What makes an engine of a model and its optimizer with Lightning Fabric."""

RETURNED_OPTIMIZER = rf"({re.escape(ENGINE)}|{FABRIC_SETUP})\.optimizer"
"""What makes the optimizer that is returned with an engine: the second of the results."""

RETURNED_SCHEDULE = f"{ENGINE}.lr_scheduler"
"""What makes the schedule of an engine: the fourth of the results."""

FROZEN, UNFROZEN = "torch.nn.Parameter.requires_grad.off", "torch.nn.Parameter.requires_grad.on"
"""An assignment to `requires_grad` of a weight, false or true."""

INFERENCE = "deepspeed.init_inference"
"""What makes an engine for inference. Its arguments are the only ones in the table whose value can be a dict."""

PARSED_VALUES = "argparse.ArgumentParser.values"
"""What a parser returns, with the defaults of flags that the launch does not give; its arguments are those whose value is known."""

PARSED_CHOICES = "argparse.ArgumentParser.choices"
"""The flags of a parser that take one value, by the names of their attributes: the values that each accepts, None for any."""

PARSED_FIELDS = "transformers.HfArgumentParser.values"
"""What a parser of dataclasses returns, as `PARSED_VALUES`: the fields of classes of the project whose value is known."""

MISSING_ARGUMENT = "argparse.Namespace.missing"
"""A read of an attribute of parsed arguments that neither the parser nor the program sets; its argument has the name of the attribute."""

HOOK = "accelerate.save_hook.model"
"""A model that Accelerate's `save_state` passes to a function which the program registers for it."""

REFUSAL = "raise"
"""The `raise` statement that the flags of the launch lead to. Its argument `at_stage_3` is true if ZeRO stage 3 is a condition."""

ABOUT_SETUP = re.compile(
    r"(?<!process_)(?<!global_)(?<!rank_)(?<!rank)zero|deepspeed|\bds_|stage|fsdp|world_size|num_processes|is_distributed|distributed_type",
    re.IGNORECASE,
)
"""In a condition: the program tells ZeRO stages or ways of training apart, and may do the right thing for each. `is_world_process_zero`
and its kind ask for the rank."""


class Condition(NamedTuple):
    """A condition around a call: its text, the place of its `if` or `except`, whether it holds for the call, and whether it selects some
    ranks.

    `default` is True where the default of a flag decides that the call is made. `missing` is what `holds` is where the caller gives no
    value for a parameter of the function, None for a condition on anything else.
    """

    text: str
    at: int
    holds: bool
    ranks: bool
    default: bool = False
    missing: bool | None = None


class GivenArgument(Record):
    """An argument of a call: its value, `UNKNOWN` if that is not known; what made it; the place of that; and how it is written.

    `depends_on` is what only the run knows of it: the function of a library that returns a part of it, a flag, or a variable of the
    environment. `length` is how many items a list or tuple has, if that is known. `gives` is how many items each tuple has that a function
    of the project returns, or that an item of its data is; 0 if these are dicts. `makers` are the functions of libraries of which one made
    it, where a condition selects one; "" among them stands for anything else. `others` are the places of the other calls that may have
    made it, where each branch calls one function, or makes a model.
    """

    value: Any
    made: str = ""
    origin: int | None = None
    raw: str = ""
    depends_on: str = ""
    length: int | None = None
    gives: int | None = None
    makers: tuple[str, ...] = ()
    others: tuple[int, ...] = ()

    @property
    def made_by_one_of(self) -> tuple[str, ...]:
        """The functions of libraries of which one made it; () if nothing is known of that."""
        return self.makers or ((self.made,) if self.made else ())


@dataclass(frozen=True, slots=True)
class Event:
    """A call, or a use of a weight.

    `name` is the full name of the function. For a method it is the name of what made its object, and the method:
    `deepspeed.initialize.save_checkpoint`; `origin` is then the place of the call that made the object. Positional arguments are named
    "0", "1". `within` names the context managers around the call, `loops` counts the loops in its function. `certain` is False in a branch
    that only the run knows; there, where only defaults of flags decide, `likely` is True if they decide for the call, and `unlikely` if one
    decides against it. `flow` is 0 for what the program runs from its first statement on, and another number for each function that nothing
    calls. `start` is the place of the call, which is the `origin` of what it makes. `parts_of` are the numbers, as in `origin`, of the
    objects of the project's classes that the call helps to make, from the outermost. `handled` is True in a `try` statement that handles
    some error: the program may go on after one. `function` is the function of the project that makes the call, a method as `Class.method`;
    "" at the top of a file. `bound` is the variable, or the attribute of `self`, that is set to the value of the call, or to what
    is made of it other than by another call that gets it; "" if none is, or several are.
    """

    name: str
    at: SourcedValue
    arguments: Mapping[str, GivenArgument] = field(default_factory=dict)
    complete: bool = True
    origin: int | None = None
    conditions: tuple[Condition, ...] = ()
    within: tuple[str, ...] = ()
    loops: int = 0
    certain: bool = True
    likely: bool = True
    unlikely: bool = False
    flow: int = 0
    start: int = 0
    parts_of: tuple[int, ...] = ()
    handled: bool = False
    function: str = ""
    bound: str = ""

    @property
    def called(self) -> str:
        """The function as the program writes it; only its name in a chain of calls, or in a call that goes over several lines."""
        written, name = self.at.raw.partition("(")[0], self.name.rpartition(".")[2]
        if name == "__call__":
            return written if written.strip(".") else "the model"
        return written if written.endswith(name) else name

    def argument(self, name: str, index: int | None = None) -> GivenArgument | None:
        """An argument by its name or position."""
        return self.arguments.get(name) or (self.arguments.get(str(index)) if index is not None else None)

    @property
    def always(self) -> bool:
        """Whether every run makes the call, and what it raises ends the program."""
        return self.certain and not self.conditions and not self.handled and self.flow == 0

    @property
    def tells_setups_apart(self) -> bool:
        """Whether a condition asks for the way of training, as `if is_deepspeed_zero3_enabled()`, and only the run knows it.

        The default of a flag that leads to the other branch of `if args.deepspeed` is not what runs under DeepSpeed, either.
        """
        return any(ABOUT_SETUP.search(one.text) for one in self.conditions if not (one.default and one.holds))

    def excludes(self, other: Event) -> bool:
        """Whether two calls are in different branches of one condition, so that a run makes only one of them."""
        return any(mine.at == its.at and mine.holds is not its.holds for mine in self.conditions for its in other.conditions)


class Events(Record):
    """All events of a program, in the order in which it is followed."""

    all: tuple[Event, ...] = ()

    @cached_property
    def _found(self) -> dict[tuple[str, ...], tuple[Event, ...]]:
        """The events by the patterns that were asked for. Many configs share a program, and each rule asks for the same events of it."""
        return {}

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(one.name for one in self.all)

    def of(self, *patterns: str) -> Iterator[Event]:
        """The events whose whole names match one of the patterns, which are regular expressions."""
        if patterns not in self._found:
            wanted = _compiled("|".join(patterns))
            names = {name for name in self._names if wanted.fullmatch(name)}  # a name is that of many events
            self._found[patterns] = tuple(one for one in self.all if one.name in names) if names else ()
        return iter(self._found[patterns])

    def maker_of(self, given: GivenArgument | None) -> Event | None:
        """The call that made an argument of another one, if the table has it."""
        return next((one for one in self.all if given is not None and one.start == given.origin and one.name == given.made), None)

    def makers_of(self, given: GivenArgument) -> list[Event]:
        """The calls of which one made an argument of another one; [] if the table does not have them all."""
        maker = self.maker_of(given)
        others = [one for one in self.all if one.start in given.others and one.name in given.made_by_one_of]
        return [maker, *others] if maker is not None and len(others) == len(given.others) else []

    def on_some_ranks(self, event: Event) -> Condition | None:
        """The condition that keeps some ranks from a call, unless they make the same call in the other branch.

        A call for a parameter that is missing is not made if every caller gives it, as after a gather on every rank.
        """
        for number, one in enumerate(event.conditions, 1):
            if any(inner.missing is inner.holds for inner in event.conditions[number:]):
                continue
            if one.ranks and not any(self._is_counterpart(event, other, one) for other in self.all):
                return one
        return None

    @staticmethod
    def _is_counterpart(event: Event, other: Event, condition: Condition) -> bool:
        """Whether another call of the same function is made where the condition does not hold."""
        return other.name == event.name and any(one.at == condition.at and one.holds is not condition.holds for one in other.conditions)


@lru_cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def is_true(given: GivenArgument | None) -> bool:
    """Whether an argument is given, and certainly true."""
    return given is not None and given.value is not UNKNOWN and bool(given.value)
