"""argparse, DeepSpeed's arguments for it, and namespaces. A flag has its default until the launch gives it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dslint.evaluate.python.calls import Argument, CallOf
from dslint.evaluate.python.command_flags import note_flags
from dslint.evaluate.python.evaluate import ProgramState
from dslint.evaluate.python.functions import enter
from dslint.evaluate.python.libraries.table import follows
from dslint.evaluate.python.words import is_default, name_of_flag, spelled
from dslint.evaluate.reasons import Cause, Reason, flag
from dslint.evaluate.values import (
    NONE,
    Class,
    Constant,
    Entry,
    Flag,
    Function,
    Library,
    ListValue,
    Object,
    ParsedNames,
    Unknown,
    Value,
    converted,
    harden,
    soften,
)
from dslint.job.events import PARSED_CHOICES, PARSED_VALUES
from dslint.record import Record
from dslint.source.tree import Span

PARSED = "argparse.ArgumentParser.flags"
"""The name of the event of a parser that knows all its flags, and refuses others; its arguments are named after these. No method has it: a
class of the project that inherits from the parser may parse in another way."""

PARSED_IN_PART = "argparse.ArgumentParser.known_flags"
"""The name of the event of a parser that knows all its flags, and leaves others aside; its arguments are named after these."""

REFUSED = "argparse.ArgumentParser.refusals"
"""The name of the event of a parser that ends the program for flags of the launch; its arguments hold argparse's message for each."""


class Option(Record):
    """A flag of argparse, as far as it refuses values: whether it must be given, the kind of its one value, and its choices."""

    flags: tuple[str, ...]
    required: bool
    takes: bool | None
    """Whether it takes one value; None if it may take several, or its action is not known."""
    kind: str
    choices: frozenset[str | int | float] | None


class Stored(Record):
    """What a flag of argparse stores: under which name, and `value` for a flag without a value or the `kind` that reads its text, a
    function of the project being `reads`.
    """

    name: str
    kind: str = "str"
    value: Value | None = None
    reads: Function | None = None


@dataclass(slots=True)
class Flags:
    """The flags of a parser as written. With `open` something that is not followed may add more."""

    names: set[str] = field(default_factory=set)
    open: bool = False
    options: list[Option] = field(default_factory=list)
    """Those that every run adds."""
    positional: bool = False
    """Whether the parser takes words, too."""
    abbreviates: bool = True
    """Whether it takes the beginning of a name."""
    sets_others: bool = False
    """Whether an action of the project, or one that is not known, may set further attributes."""
    stored: dict[str, Stored] = field(default_factory=dict)
    """What each flag stores, by its name without dashes before it and with `_` for those in it."""


@follows("argparse.ArgumentParser")
def _argument_parser(state: ProgramState, call: CallOf) -> Value:
    """`argparse.ArgumentParser()`."""
    return Object(
        "argparse", state.journal.cells(), about=Flags(open="parents" in call.keywords, abbreviates="allow_abbrev" not in call.keywords)
    )


def leave_open(call: CallOf) -> None:
    """A call that is not followed gets a parser or what it returned: it may add flags or attributes."""
    for one in (*call.arguments, *call.keywords.values()) if call.keywords else call.arguments:
        if type(one.value) is not Object:
            continue
        if type(one.value.about) is Flags or (type(one.value.about) is ParsedNames and not _only_reads(call)):
            one.value.about.open = True


_READS = re.compile(
    r"print|repr|str|pprint\.pprint|json\.dumps|torch\.save|wandb\.init|logging\.\w+|deepspeed\.(initialize|init_distributed)"
)
_READ_BY = frozenset("info debug warning error print log".split())


def _only_reads(call: CallOf) -> bool:
    """Whether a call sets no attributes of what it gets."""
    function = call.node.func
    return _READS.fullmatch(call.name) is not None or (isinstance(function, ast.Attribute) and function.attr in _READ_BY)


@follows("deepspeed.add_config_arguments")
def _config_arguments(state: ProgramState, call: CallOf) -> Value:
    """`deepspeed.add_config_arguments(parser)`."""
    parser = call.get("parser", 0)
    if isinstance(parser, Object):
        for name in ("deepspeed_config", "deepscale_config"):
            state.journal.write(parser.cells, name, Unknown(flag(f"--{name}", call.span)))
        state.journal.write(parser.cells, "deepspeed", Constant(value=False, soft=True))
        if isinstance(parser.about, Flags):
            parser.about.names |= {"--deepspeed", "--deepspeed_config", "--deepscale", "--deepscale_config"}
    return parser or Unknown()


@follows(
    "pytorch_lightning.Trainer.add_argparse_args", "lightning.pytorch.Trainer.add_argparse_args", "lightning.Trainer.add_argparse_args"
)
def _trainer_arguments(_state: ProgramState, call: CallOf) -> Value:
    """`Trainer.add_argparse_args(parser)` of Lightning 1.x, which adds the arguments of the Trainer, and returns the parser."""
    leave_open(call)
    return call.get("parent_parser", 0) or Unknown()


@follows("argparse.Namespace", "types.SimpleNamespace")
def _namespace(state: ProgramState, call: CallOf) -> Value:
    """`argparse.Namespace(...)`, `types.SimpleNamespace(...)`."""
    made = Object("command line" if call.name.startswith("argparse") else "a namespace", state.journal.cells())
    made.cells.update({name: one.value for name, one in call.keywords.items()})
    return made


def _add_argument(state: ProgramState, parser: Object, call: CallOf) -> Value:
    names = [argument.value.value for argument in call.arguments if isinstance(argument.value, Constant)]
    flags = [name for name in names if isinstance(name, str)]
    if len(flags) < max(len(call.arguments), 1) and isinstance(parser.about, Flags):
        parser.about.open = True  # a name that only the run knows
    if not flags:
        return NONE
    flag = next((name for name in flags if name.startswith("--")), flags[0])
    name = str(call.plain("dest") or name_of_flag(flag))
    if isinstance(parser.about, Flags):
        is_new = parser.about.names.isdisjoint(flags)
        parser.about.names |= set(flags)
        parser.about.positional |= not flag.startswith("-")
        parser.about.open |= call.get("nargs") in _REST
        parser.about.sets_others |= "action" in call.keywords and call.plain("action") is None and not _is_optional(call)
        others = parser.about.options  # with conflict_handler="resolve", without an older one of the same name
        if not is_new:
            others = [one for one in others if set(flags).isdisjoint(one.flags)]
        parser.about.options = [*others, *([_option(call, flags)] if flag.startswith("-") and not state.undecided else [])]
        stored = _stored(call, name)
        parser.about.stored |= {name_of_flag(one): stored for one in flags}
        if _is_optional(call):
            no = stored._replace(value=Constant(value=False))
            parser.about.names |= {f"--no-{one[2:]}" for one in flags if one.startswith("--")}
            parser.about.stored |= {f"no_{name_of_flag(one)}": no for one in flags}
    state.journal.write(parser.cells, name, _default(state, call, flag))
    return NONE


def _stored(call: CallOf, name: str) -> Stored:
    """What the flag of a call of `add_argument` stores."""
    action, kind = call.plain("action"), call.get("type")
    if action in ("store_true", "store_false") or _is_optional(call):
        return Stored(name, value=Constant(value=action != "store_false"))
    if action == "store_const" and "const" in call.keywords:
        return Stored(name, value=call.keywords["const"].value)
    is_plain = action in (None, "store") and "nargs" not in call.keywords and "action" not in call.keywords
    if is_plain and isinstance(kind, Function):
        return Stored(name, "", reads=kind)
    return Stored(name, "str" if is_plain and kind is None else getattr(kind, "name", "") if is_plain else "")


_REST = (Constant("..."), Constant("A..."), Library("argparse.REMAINDER"), Library("argparse.PARSER"))
"""The `nargs` of what takes all words that follow, flags among them."""


def _option(call: CallOf, flags: list[str]) -> Option:
    action, choices = call.plain("action"), call.get("choices")
    known = [one.value.value for one in choices.items if isinstance(one.value, Constant)] if isinstance(choices, ListValue) else []
    whole = isinstance(choices, ListValue) and not choices.changed and len(known) == len(choices.items)
    kind = getattr(call.get("type"), "name", "") if "type" in call.keywords else "str"
    takes = None
    if action in ("store_true", "store_false"):
        takes = False
    elif action in (None, "store") and "action" not in call.keywords and "nargs" not in call.keywords:
        takes = True
    named = frozenset(one for one in known if one is not None) if whole else None
    if _is_optional(call):
        flags = [name for one in flags for name in ((one, f"--no-{one[2:]}") if one.startswith("--") else (one,))]
    return Option(tuple(flags), call.plain("required") is True, takes, kind, named)


def _refusals(parser: Flags, given: Mapping[str, Flag]) -> dict[str, str]:
    """What argparse says of the flags of a launch, by the flag that it names.

    An unknown word behind a flag without a value may hold more flags.
    """
    found: dict[str, str] = {}
    unread = {name for name, value in given.items() if value is None}
    more = any(option.takes is False and not unread.isdisjoint(_stored_names(option)) for option in parser.options)
    for option in parser.options:
        name = next((one for one in option.flags if one.startswith("--")), option.flags[0])
        names = {one: name_of_flag(one) for one in option.flags}
        passed = [one for one, stored in names.items() if stored in given]
        if not passed:
            if option.required and not more and all(is_default(one, given) for one in names.values()):
                found[name] = f"the following arguments are required: {'/'.join(option.flags)}"
            continue
        message = _refused(option, given[names[passed[0]]], words=parser.positional)
        if message:
            found[passed[0]] = message if message.startswith("unrec") else f"argument {'/'.join(option.flags)}: {message}"
    return found


def _stored_names(option: Option) -> set[str]:
    return {name_of_flag(one) for one in option.flags}


_READ: dict[str, Callable[[str], str | int | float]] = {"str": str, "int": int, "float": float}


def _refused(option: Option, given: Flag, *, words: bool) -> str:
    """What argparse says of a value of a flag; "" if it takes it, or that is not known."""
    if given is True:
        return "expected one argument" if option.takes else ""
    if not isinstance(given, str) or option.takes is None:
        return ""
    if option.takes is False:
        return "" if words else f"unrecognized arguments: {given}"
    if option.kind not in _READ:
        return ""
    try:
        value = _READ[option.kind](given)
    except ValueError:
        return f"invalid {option.kind} value: '{given}'"
    return f"invalid choice: {value!r}" if option.choices is not None and value not in option.choices else ""


def _is_optional(call: CallOf) -> bool:
    """Whether a flag can be given as `--flag` and `--no-flag`."""
    action = call.get("action")
    return isinstance(action, Library) and action.name.endswith("BooleanOptionalAction")


_KEEPS_TEXT = frozenset(("", "str", "pathlib.Path", "os.path.abspath", "os.path.expanduser", "os.path.realpath"))
"""What reads a text as itself, or as the path of the same file. Of "" nothing is known, as of a type that is not followed."""


def _default(state: ProgramState, call: CallOf, option: str) -> Value:
    action, default = call.plain("action"), call.get("default")
    if default is None and action in ("store_true", "store_false"):
        return Constant(action == "store_false", soft=True)
    if not isinstance(default, Constant) or default.value in (None, ""):
        is_none = default.value is None if isinstance(default, Constant) else default is None and action in (None, "store")
        return Unknown(flag(option, call.span), or_none=is_none and option.startswith("-") and "required" not in call.keywords)
    reads = call.get("type")
    if not isinstance(default.value, str):
        return soften(default)
    if isinstance(reads, Function):  # argparse reads a default that is a text as it reads a word
        return soften(_read(state, reads, default.value, flag(option, call.span)))
    kind = reads.name if isinstance(reads, Library) else ""
    if kind in ("int", "float", "bool"):
        return soften(converted(default, kind))
    return soften(default) if kind in _KEEPS_TEXT and not isinstance(reads, Class) else Unknown(flag(option, call.span))


def _set_defaults(state: ProgramState, parser: Object, call: CallOf) -> Value:
    if not call.complete and isinstance(parser.about, Flags):
        parser.about.open = True  # defaults that only the run knows
        for name in list(parser.cells):
            state.journal.write(parser.cells, name, Unknown(flag(f"--{name}", call.span)))
    for name, given in call.keywords.items():
        known = isinstance(given.value, Constant) and given.value.value is not None
        state.journal.write(parser.cells, name, soften(given.value) if known else Unknown(flag(f"--{name}", call.span)))
    return NONE


def _parse_args(state: ProgramState, parser: Object, call: CallOf) -> Value:
    cells = state.journal.cells()
    cells.update(parser.cells)
    words = call.get("args", 0)
    if words is None and isinstance(parser.about, Flags) and not parser.about.open and call.name != _KNOWN_ONLY:
        note_flags(state, call, PARSED, parser.about.names)
        refusals = {name: Argument(Constant(text), call.span, call.span) for name, text in _refusals(parser.about, state.flags).items()}
        if refusals:
            state.note(replace(call, name=REFUSED, arguments=[], keywords=refusals), None)
    elif words is None and isinstance(parser.about, Flags) and not parser.about.open:
        note_flags(state, call, PARSED_IN_PART, parser.about.names)
    given = _flags_in(words, cells) if isinstance(words, ListValue) and not words.changed else _known(parser, state.flags)
    stored = parser.about.stored if isinstance(parser.about, Flags) else {}
    for name in given if isinstance(words, ListValue) else given.keys() & (cells.keys() | stored.keys()):
        known = stored.get(name)
        if known is not None:
            cells[known.name] = _stored_value(state, known, given[name])
        else:
            cells[name] = given_flag(cells.get(name, Unknown()), given[name])
    if words is None and "namespace" not in call.keywords and isinstance(parser.about, Flags) and not parser.about.open:
        cells.update({name: harden(one) for name, one in cells.items() if is_default(name, state.flags)})
    if words is None:
        values = {name: Argument(one, call.span, call.span) for name, one in cells.items() if isinstance(one, Constant)}
        state.note(replace(call, name=PARSED_VALUES, arguments=[], keywords=values), None)
        if isinstance(parser.about, Flags):
            choices = {name: Argument(one, call.span, call.span) for name, one in _choices(parser.about, call.span)}
            state.note(replace(call, name=PARSED_CHOICES, arguments=[], keywords=choices), None)
    is_known = isinstance(parser.about, Flags) and not parser.about.open and not parser.about.sets_others
    return Object("command line", cells, about=_names(parser.about) if is_known and "namespace" not in call.keywords else None)


def _choices(parser: Flags, at: Span) -> Iterator[tuple[str, Value]]:
    """The values that each flag with one value accepts, by the name of its attribute; None for any."""
    for option in (one for one in parser.options if one.takes):
        stored = parser.stored.get(name_of_flag(option.flags[0]))
        if stored is not None:
            accepted = [Entry(Constant(one), at, at) for one in sorted(option.choices or (), key=str)]
            yield stored.name, ListValue(accepted, at) if option.choices is not None else NONE


def _names(parser: Flags) -> ParsedNames:
    """The attributes that the arguments of a parser set, with those of flags that a branch adds which is not followed."""
    names = {one.name for one in parser.stored.values()}
    return ParsedNames(frozenset(names | _OF_DEEPSPEED if "--deepscale" in parser.names else names))


_OF_DEEPSPEED = frozenset("deepspeed deepspeed_config deepspeed_mpi deepscale deepscale_config".split())
"""What `deepspeed.add_config_arguments` adds, in one release or another."""


def _known(parser: Object, given: Mapping[str, Flag]) -> Mapping[str, Flag]:
    """The flags of a launch that a parser knows, by its names for them. `--model_name` is not `--model-name`, but `--model` may be."""
    if not isinstance(parser.about, Flags) or parser.about.open:
        return given
    written, names, known = spelled(given), parser.about.names, dict[str, Flag]()
    for name, value in given.items():
        flag = written.get(name, "")
        meant = [one for one in names if one.startswith(flag)] if parser.about.abbreviates else []
        if not flag.startswith("--") or flag in names:
            known[name] = value
        elif len(meant) == 1:
            known[name_of_flag(meant[0])] = value
    return known


def _stored_value(state: ProgramState, stored: Stored, given: Flag) -> Value:
    """What a flag stores that the launch gives; None is a value that only the run knows."""
    if given is True and stored.value is not None:
        return stored.value
    if isinstance(given, str) and stored.reads is not None:
        return _read(state, stored.reads, given, Reason(Cause.COMMAND_LINE))
    if not isinstance(given, str) or stored.kind not in ("str", "int", "float", "bool"):
        return Unknown(Reason(Cause.COMMAND_LINE))
    return converted(Constant(given), stored.kind)


def _read(state: ProgramState, reads: Function, text: str, reason: Reason) -> Value:
    """What a function of the project makes of the text of a flag, as `str2bool` does."""
    found = enter(state, reads, [Constant(text)], {})
    return found if isinstance(found, Constant) else Unknown(reason)


def _flags_in(words: ListValue, known: Mapping[str, Value]) -> dict[str, Flag]:
    """The flags in a list of words that the program parses instead of the command line."""
    found: dict[str, Flag] = {}
    waiting: str | None = None
    for word in [one.value.value if isinstance(one.value, Constant) else None for one in words.items]:
        if isinstance(word, str) and word.startswith("--"):
            name, equals, value = word.lstrip("-").partition("=")
            waiting = name.replace("-", "_")
            found[waiting] = value if equals else True
        elif waiting is not None and found[waiting] is True:
            found[waiting] = str(word) if word is not None else None
    return {name: given for name, given in found.items() if given is not True or isinstance(known.get(name), Constant)}


_TRUE, _FALSE = frozenset("yes true t y 1".split()), frozenset("no false f n 0".split())
"""What transformers' parser reads as a boolean."""


def given_flag(default: Value, given: Flag) -> Value:
    """The value of a flag that the launch gives; None is a value that only the run knows."""
    if given is None:
        return Unknown(Reason(Cause.COMMAND_LINE))
    if isinstance(default, Constant) and isinstance(default.value, bool) and isinstance(given, str):
        return Constant(given.lower() in _TRUE) if given.lower() in _TRUE | _FALSE else Unknown(Reason(Cause.COMMAND_LINE))
    if isinstance(given, bool):
        return (
            Constant(not default.value)
            if isinstance(default, Constant) and isinstance(default.value, bool)
            else Unknown(Reason(Cause.COMMAND_LINE))
        )
    kind = type(default.value) if isinstance(default, Constant) else None
    try:
        return Constant(kind(given)) if kind in (int, float, str) else _number_or_text(given)
    except ValueError:
        return Unknown(Reason(Cause.COMMAND_LINE))


def _number_or_text(given: str) -> Value:
    """A value for a flag of unknown type: text that reads as a number could be either."""
    try:
        float(given)
    except ValueError:
        return Constant(given)
    return Unknown(Reason(Cause.COMMAND_LINE))


def _parse_known(state: ProgramState, parser: Object, call: CallOf) -> Value:
    call = replace(call, name=_KNOWN_ONLY)
    return ListValue([Entry(_parse_args(state, parser, call), call.span, call.span), Entry(Unknown(), call.span, call.span)], call.span)


_KNOWN_ONLY = "parse_known_args"


def _subparsers(_: ProgramState, parser: Object, __: CallOf) -> Value:
    if isinstance(parser.about, Flags):
        parser.about.open = True
    return Unknown()


def _itself(_: ProgramState, parser: Object, __: CallOf) -> Value:
    return parser


OF_PARSER: dict[str, Callable[[ProgramState, Object, CallOf], Value]] = {
    "add_argument": _add_argument,
    "add_argument_group": _itself,
    "add_mutually_exclusive_group": _itself,
    "set_defaults": _set_defaults,
    "add_subparsers": _subparsers,
    "parse_args": _parse_args,
    "parse_known_args": _parse_known,
}
"""Methods of `argparse.ArgumentParser`."""
