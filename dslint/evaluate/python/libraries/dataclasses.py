"""dataclasses, and the parsers that make flags of their fields: HfArgumentParser and TrlParser."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.command_flags import note_flags
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.files import json_file, yaml_file
from dslint.evaluate.python.functions import enter, instance, library_base
from dslint.evaluate.python.libraries.argparse import given_flag
from dslint.evaluate.python.libraries.builtins import vars_of
from dslint.evaluate.python.libraries.files import note_rank_as_path
from dslint.evaluate.python.libraries.table import entry_of, follows
from dslint.evaluate.python.tables import new_table, whole
from dslint.evaluate.python.words import WORDS_PARSED, is_default, known_words
from dslint.evaluate.reasons import Cause, Reason, flag
from dslint.evaluate.values import (
    COMPUTED,
    DEEPEST_CLASS,
    Class,
    Constant,
    DictValue,
    Entry,
    Function,
    Library,
    ListValue,
    Object,
    Unknown,
    Value,
    path_of,
    soften,
)
from dslint.job.arguments import as_read
from dslint.job.events import PARSED_FIELDS
from dslint.job.training import ARGUMENTS, WORKLOAD

TRAINER_CLASSES = frozenset(
    "SFTConfig DPOConfig GRPOConfig KTOConfig ORPOConfig RewardConfig CPOConfig PPOConfig RLOOConfig OnlineDPOConfig".split()
)
"""TRL's classes of training arguments of which other libraries have some with the same names."""

_OF_TRL = frozenset(
    "A2POConfig AsyncGRPOConfig BCOConfig BaseConfig DPPOConfig DistillationConfig ExampleSDFTConfig ExampleSDPOConfig "
    "GKDConfig GMPOConfig GOLDConfig GRPOWithReplayBufferConfig IWOPDConfig IterativeSFTConfig MiniLLMConfig NashMDConfig "
    "OnPolicyConfig PAPOConfig PPOv2Config PRMConfig SDFTConfig SDPOConfig SSDConfig SelfDistillationConfig "
    "ServerDistillationConfig TPOConfig XPOConfig".split()
)
"""The others, of TRL 0.7.2 to 1.9.0: the classes that inherit from `TrainingArguments` in one of these releases. In none of them another
class has one of these names."""

_WITHOUT_ARGUMENTS = ("trl.", "peft.", "transformers.", "accelerate.", "typing.", "abc.", "enum.", "pydantic.", "object")
"""How the full names of classes begin that are known, and are not the Trainer's arguments unless `is_trainers` says so."""


TRAINERS_PARSED = "transformers.HfArgumentParser.arguments"
"""The name of the event of a parser that makes arguments of the Trainer, which the program may set attributes of later."""

PERHAPS_PARSED = "transformers.HfArgumentParser.perhaps"
"""The name of the event of a parser that makes an object of a class which may inherit from the Trainer's arguments, and cannot be read."""

CLASSES_PARSED = "transformers.HfArgumentParser.flags"
"""The name of the event of a parser of dataclasses of the project, whose fields are all known; see `PARSED`."""


CLASSES_REFUSED = "transformers.HfArgumentParser.refusals"
"""The name of the event of a parser of dataclasses that ends the program, because the launch does not give a field without a default."""


@follows("transformers.HfArgumentParser", "trl.TrlParser")
def _class_parser(state: ProgramState, call: CallOf) -> Value:
    """`HfArgumentParser(classes)`."""
    given = call.get("dataclass_types", 0)
    kinds = [one.value for one in given.items] if isinstance(given, ListValue) else [given]
    state.parsed += [kind for kind in kinds if kind is not None]
    return Object("classes", state.journal.cells(), about=kinds)


def _parse_classes(state: ProgramState, parser: Object, call: CallOf) -> Value:
    _note_words(state, parser, call)
    return _parsed(state, parser, call, None)


def _parse_args(state: ProgramState, parser: Object, call: CallOf) -> Value:
    """`parse_args()` of argparse itself: one object with the fields of all classes. None is made: the Trainer learns of no config."""
    state.parsed = [one for one in state.parsed if one not in parser.about]
    _note_words(state, parser, call)
    names = frozenset(state.flags) if not call.arguments and not call.keywords else frozenset[str]()
    thing = Object("command line", state.journal.cells())
    for kind in parser.about:
        _set_fields(state, thing, kind, call, names)
    return thing


def _note_words(state: ProgramState, parser: Object, call: CallOf) -> None:
    """Note what a parser gets and cannot use, and what it misses."""
    kinds = [one for one in parser.about if isinstance(one, Class) and not library_base(one)]
    if any("aliases" in one.text for one in state.sources.all):
        kinds = []  # fields with other names than their own
    if len(kinds) == len(parser.about) and not call.keywords and not call.arguments:
        note_flags(state, call, CLASSES_PARSED, {f"--{name}" for kind in kinds for base in line_of(kind) for name in base.fields})
    missing = list(dict.fromkeys(f"--{name}" for kind in kinds for name in _required(kind) if is_default(name, state.flags)))
    if missing and not call.keywords and not call.arguments and getattr(call.node.func, "attr", "") == "parse_args_into_dataclasses":
        error = Constant(f"the following arguments are required: {', '.join(missing)}")
        state.note(replace(call, name=CLASSES_REFUSED, keywords={one: Argument(error, call.span, call.span) for one in missing}), None)
    words = {name: Argument(Constant(word), call.span, call.span) for name, word in known_words(state.flags).items()}
    if words and not call.keywords and not call.arguments:
        state.note(replace(call, name=WORDS_PARSED, keywords=words), None)


def _parse_dict(state: ProgramState, parser: Object, call: CallOf) -> Value:
    return _parsed(state, parser, call, call.get("args", 0))


def _parse_json_file(state: ProgramState, parser: Object, call: CallOf) -> Value:
    path = call.get("json_file", 0)
    name = _path_to_read(state, call, path)
    return _parsed(state, parser, call, json_file(state, name) if name is not None else path)


def _parse_yaml_file(state: ProgramState, parser: Object, call: CallOf) -> Value:
    path = call.get("yaml_file", 0)
    name = _path_to_read(state, call, path)
    return _parsed(state, parser, call, yaml_file(state, name) if name is not None else path)


def _path_to_read(state: ProgramState, call: CallOf, path: Value | None) -> str | None:
    note_rank_as_path(state, call, path)
    return path_of(path)


def _parsed(state: ProgramState, parser: Object, call: CallOf, given: Value | None) -> Value:
    """The objects that a parser makes, of the flags or of a dict with the same names."""
    given = whole(state, given) if given is not None else None
    values: dict[str, Entry] = dict(given.cells) if isinstance(given, DictValue) else {}
    if isinstance(given, DictValue) and not given.open and len(parser.about) == 1 and isinstance(parser.about[0], Library):
        made = [_from_dict(state, parser.about[0], call, values)]
    else:
        with_file = call.name.endswith("parse_args_and_config") and "config" in state.flags  # of defaults
        gets_command = given is None and not call.arguments and call.keywords.keys() <= {"return_remaining_strings"}
        flags = state.flags if gets_command and not with_file else {}
        made = [_from_flags(state, kind, call, values, frozenset(flags)) for kind in parser.about]
        cells = {name: one for thing in made if isinstance(thing, Object) for name, one in thing.cells.items()}
        known = {name: Argument(one, call.span, call.span) for name, one in cells.items() if isinstance(one, Constant)}
        if gets_command and known:
            state.note(replace(call, name=PARSED_FIELDS, arguments=[], keywords=known), None)
    return ListValue([Entry(one, call.span, call.span) for one in made], call.span)


def _from_dict(state: ProgramState, kind: Library, call: CallOf, given: dict[str, Entry]) -> Value:
    """An object of a library's dataclass with all its values: no flag changes them."""
    arguments = {name: Argument(one.value, one.span, one.key_span, one.literal) for name, one in given.items()}
    thing = Object("command line", state.journal.cells())
    thing.cells.update(given)
    if is_trainers(kind.name):
        extra = call.argument("allow_extra_keys", 1)
        strict = extra is None or extra.value == Constant(value=False)
        thing.about = CallOf(call.node, call.scope, kind.name, call.span, keywords=arguments, parsed=strict)
        state.receive(thing.about)
    return thing


def _from_flags(
    state: ProgramState, kind: Value | None, call: CallOf, given: dict[str, Entry], names: frozenset[str] = frozenset()
) -> Value:
    """An object of a dataclass with its defaults, which flags can override. Training arguments that name a config are received.

    `names` are those of the flags of a command that gives all that the parser gets.
    """
    thing = Object("command line", state.journal.cells(), kind if isinstance(kind, Class) else None)
    arguments = {name: Argument(one.value, one.span, one.key_span, one.literal) for name, one in given.items()}
    arguments = _set_fields(state, thing, kind, call, names) | arguments
    name = kind.name if isinstance(kind, Library) else library_base(kind) if isinstance(kind, Class) else ""
    if is_trainers(name):
        for option in state.flags.keys() & ARGUMENTS:
            read = as_read(option, state.flags[option])
            known_value = isinstance(read, str | int | float)
            thing.cells[option] = Constant(read) if known_value else Unknown(flag(f"--{option}", call.span))
        received = CallOf(call.node, call.scope, name, call.span, keywords=arguments, complete=False, assigned=frozenset())
        thing.about = received
        state.note(replace(received, name=TRAINERS_PARSED), None)
        if "deepspeed" in arguments:
            state.receive(received)
    elif _is_unread(kind):
        state.note(replace(call, name=PERHAPS_PARSED, arguments=[], keywords={}), None)
    thing.cells.update({name: one.value for name, one in given.items() if isinstance(kind, Library) or name in thing.cells})
    return thing


def _set_fields(state: ProgramState, thing: Object, kind: Value | None, call: CallOf, names: frozenset[str]) -> dict[str, Argument]:
    """Set the fields of a dataclass as attributes of an object, as the flags of the command say. Returns the defaults that are known.

    `names` are those of the flags of a command that gives all that the parser gets.
    """
    defaults: dict[str, Argument] = {}
    for base in reversed(line_of(kind)) if isinstance(kind, Class) else ():
        for name in base.fields:
            if name in base.cells:
                default = base.cells[name]
                known = isinstance(default, Constant) and default.value is not None
                default = soften(default) if not is_default(name, names) else default
                thing.cells[name] = default if known else Unknown(flag(f"--{name}", call.span))
                if known:
                    defaults[name] = Argument(default, call.span, call.span)
            else:
                thing.cells.setdefault(name, Unknown(flag(f"--{name}", call.span)))
    lists = {name for base in line_of(kind) for name in base.lists} if isinstance(kind, Class) else set()
    for option in thing.cells.keys() & state.flags.keys():
        is_list = option in lists  # the words of its flag, of which only the first is known
        thing.cells[option] = Unknown(flag(f"--{option}", call.span)) if is_list else given_flag(thing.cells[option], state.flags[option])
    return defaults


@lru_cache(maxsize=4096)
def is_trainers(name: str) -> bool:
    """Whether a class of a library holds the Trainer's arguments."""
    short = name.rpartition(".")[2]
    return short.endswith(("TrainingArguments", *TRAINER_CLASSES)) or (short in _OF_TRL and name.startswith("trl."))


def _is_unread(kind: Value | None) -> bool:
    """Whether nothing is known of a class, or of one that it inherits from."""
    if isinstance(kind, Class):
        return any(not isinstance(base, Class) and _is_unread(base) for one in line_of(kind) for base in one.bases)
    return not isinstance(kind, Library) or not kind.name.startswith(_WITHOUT_ARGUMENTS)


def fields_of(kinds: Iterable[Value]) -> frozenset[str] | None:
    """The fields of dataclasses of the project, with those that they inherit; None if a library has some of them."""
    names: set[str] = set()
    for kind in kinds:
        if not isinstance(kind, Class) or library_base(kind) or not kind.dataclass:
            return None
        names.update(name for base in line_of(kind) for name in base.fields)
    return frozenset(names)


PLAIN_CLASSES = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
"""The classes with the defaults of the Trainer itself."""


def redefined(kind: Class) -> frozenset[str] | None:
    """What a class of the project defines that inherits only from the Trainer's arguments; None if its code may set any argument.

    A method could set one: most subclasses have none, and `__post_init__` of the others does.
    """
    bases = _libraries(kind)
    return _defined(kind) if all(isinstance(base, Library) and base.name in PLAIN_CLASSES for base in bases) else None


def argument_class(kind: Value) -> str:
    """The full name of the library's class whose arguments and defaults a class has: its own, or the only one that it inherits from.

    "" for a class of the project with code of its own, or that changes the default of an argument, and for one that adds only fields to
    `TrainingArguments`: `redefined` tells of it.
    """
    if isinstance(kind, Library):
        return kind.name
    bases = _libraries(kind) if isinstance(kind, Class) else []
    (base,) = bases if len(bases) == 1 else (None,)
    if not isinstance(kind, Class) or not isinstance(base, Library) or base.name in PLAIN_CLASSES or not is_trainers(base.name):
        return ""
    own = _defined(kind)
    return base.name if own is not None and own.isdisjoint(ARGUMENTS | WORKLOAD) else ""


def _libraries(kind: Class) -> list[Value]:
    """The classes outside of the project that a class of it inherits from, itself or through others."""
    return [base for one in line_of(kind) for base in one.bases if not isinstance(base, Class)]


def _defined(kind: Class) -> frozenset[str] | None:
    """The fields and values that classes of the project define; None if one of them has a method."""
    line = line_of(kind)
    if any(not isinstance(value, Constant | Unknown | ListValue | DictValue) for one in line for value in one.cells.values()):
        return None
    return frozenset(name for one in line for name in (*one.fields, *one.cells))


def _required(kind: Class) -> list[str]:
    """The fields of a dataclass of the project that a parser requires: without a default, and not booleans. Inherited ones are among them.

    Source: transformers/hf_argparser.py, HfArgumentParser._parse_dataclass_field.
    """
    fields: dict[str, bool] = {}
    for base in reversed(line_of(kind)):
        for name in base.fields:  # with those that it inherits, whose defaults the classes above have
            if name in base.cells:
                fields[name] = _has_no_default(base.cells[name])
            else:
                fields.setdefault(name, True)
        fields |= dict.fromkeys(base.switches, False)
    return [name for name, is_required in fields.items() if is_required] if kind.dataclass else []


def _has_no_default(value: Value) -> bool:
    return isinstance(value, Unknown) and value.reason is not None and value.reason.cause is Cause.NO_DEFAULT


def own_fields(kind: Class) -> frozenset[str]:
    """The fields that classes of the project have, or add to those of a library's class."""
    return frozenset(name for base in line_of(kind) for name in base.fields)


def line_of(kind: Class, depth: int = 0) -> list[Class]:
    """A class of the project with those that it inherits from."""
    above = [one for base in kind.bases if isinstance(base, Class) and depth < DEEPEST_CLASS for one in line_of(base, depth + 1)]
    return [kind, *above]


@follows("dataclasses.field")
def _field(state: ProgramState, call: CallOf) -> Value:
    """The default of a field of a dataclass."""
    factory = call.get("default_factory")
    if isinstance(factory, Function):
        return enter(state, factory, [], {})
    if isinstance(factory, Class):
        return instance(state, factory, [], {})
    if isinstance(factory, Library) and factory.name in ("dict", "list"):
        return new_table(state, call.span) if factory.name == "dict" else ListValue([], call.span)
    if not call.complete or "default_factory" in call.keywords or call.plain("init") is False:
        return COMPUTED
    return call.get("default") or Unknown(Reason(Cause.NO_DEFAULT))


@follows("dataclasses.asdict")
def _asdict(state: ProgramState, call: CallOf) -> Value:
    """`dataclasses.asdict(...)`: the fields, without other attributes."""
    found = vars_of(state, call)
    if isinstance(found, DictValue):
        found.of = None  # a copy
    thing = call.arguments[0].value if call.arguments else None
    if isinstance(found, DictValue) and isinstance(thing, Object) and thing.type is not None and thing.type.dataclass:
        for name in [name for name in found.cells if name not in thing.type.fields]:
            del found.cells[name]
    return found


@follows("dataclasses.fields")
def _fields(state: ProgramState, call: CallOf) -> Value:
    """`dataclasses.fields(...)` of a class or an object, each with its `name`."""
    given = call.arguments[0].value if call.arguments else None
    kind = given.type if isinstance(given, Object) else given
    if not isinstance(kind, Class) or not kind.dataclass or library_base(kind):
        return COMPUTED
    made: list[Entry] = []
    for name in dict.fromkeys(kind.fields):
        one = Object("dataclasses.Field", state.journal.cells(), reason=Reason(Cause.COMPUTED, (), call.span))
        one.cells["name"] = Constant(name)
        made.append(entry_of(one, call))
    return ListValue(made, call.span)


@follows("dataclasses.replace")
def _replace(state: ProgramState, call: CallOf) -> Value:
    """`dataclasses.replace(...)` of training arguments: they are made again with other values, and received again. What is passed but not
    known, as in `**more`, may be any of them.
    """
    thing = call.arguments[0].value if call.arguments else None
    made = thing.about if isinstance(thing, Object) else None
    if not isinstance(thing, Object) or not isinstance(made, CallOf) or not is_trainers(made.name):
        return COMPUTED
    perhaps = call.chosen or call.unlikely
    unknown = Argument(Unknown(Reason(Cause.MERGED, (), call.span)), call.span, call.span)
    any_other = dict.fromkeys((ARGUMENTS | WORKLOAD) - {"deepspeed"}, unknown) if not call.complete else {}
    changes = any_other | {name: replace(given, value=Unknown()) if perhaps else given for name, given in call.keywords.items()}
    assigned = made.assigned | changes.keys() if made.assigned is not None else None
    later = made.later - changes.keys()
    complete, keywords = made.complete and call.complete, made.keywords | changes
    changed = replace(made, keywords=keywords, complete=complete, assigned=assigned, later=later, before={})
    cells = state.journal.cells()
    cells.update(thing.cells)
    cells.update({name: given.value for name, given in changes.items()})
    state.receive(changed)
    return Object(thing.kind, cells, thing.type, changed, thing.reason)


OF_CLASSES: dict[str, Callable[[ProgramState, Object, CallOf], Value]] = {
    "parse_args_into_dataclasses": _parse_classes,
    "parse_args_and_config": _parse_classes,
    "parse_args": _parse_args,
    "parse_dict": _parse_dict,
    "parse_json_file": _parse_json_file,
    "parse_yaml_file": _parse_yaml_file,
}
"""Methods of `transformers.HfArgumentParser` and `trl.TrlParser`."""
