"""The parsers that read the arguments of a program, and what each says of an argument that it does not know."""

from __future__ import annotations

from enum import Enum

from dslint.job.events import Event
from dslint.job.model import Program
from dslint.record import Record


class ParserTexts(Record):
    """How messages name a parser, with `{where}` for its call; with what it ends a rank for `{given}`; how it learns the flag `{name}`.

    `adds` is "" for a parser that learns no flags.
    """

    who: str
    ends_with: str
    adds: str


class ParserKind(Enum):
    """What ends a program for an unknown argument."""

    ARGPARSE = ParserTexts("the parser of {where}", '"error: unrecognized arguments:{given}"', "Add the argument --{name} to the parser")
    CLASSES = ParserTexts(
        "the parser of {where}",
        'ValueError "Some specified arguments are not used by the HfArgumentParser"',
        "Add a field {name} to a dataclass of the arguments",
    )
    CLICK = ParserTexts("the parser of {where}", '"No such option:{given}"', "Add the option --{name} to the command")
    FIRE = ParserTexts(
        "Fire, which calls the function that {where} gives it,",
        '"Could not consume arg:{given}", after the function has run without it',
        "Add the parameter {name} to the function",
    )
    TYRO = ParserTexts("the parser of {where}", '"Unrecognized options:{given}"', "Add {name} to what tyro parses")
    HYDRA = ParserTexts("Hydra's parser, which runs the function of {where},", '"error: unrecognized arguments:{given}"', "")


class Parser(Record):
    """The call of a program that parses its arguments."""

    kind: ParserKind
    call: Event

    @property
    def who(self) -> str:
        """Its name in a sentence."""
        return self.kind.value.who.format(where=self.call.at.where)

    def knows(self, flag: str) -> bool:
        """Whether it has a flag that begins with these letters; click takes no beginnings, and tyro has flags for parts of a value."""
        if self.kind is ParserKind.CLICK:
            return flag in self.call.arguments
        if self.kind in (ParserKind.FIRE, ParserKind.TYRO):
            name = "--" + flag[2:].partition(".")[0].replace("-", "_")
            return name in self.call.arguments or len(name) == len("--x")
        return any(name.startswith(flag) for name in self.call.arguments)

    def ends_with(self, given: str) -> str:
        """With what it ends a rank for an unknown argument; "" for one that is blank."""
        return self.kind.value.ends_with.format(given=f" {given}" if given else "")

    def adds(self, name: str) -> str:
        """How it learns a flag, as the begin of a sentence; "" if it cannot."""
        return self.kind.value.adds.format(name=name)


def only_parser(program: Program) -> Parser | None:
    """What parses the arguments of a program, if that is one call, and ends at an unknown argument."""
    calls = list(program.events.of(r"(argparse\.ArgumentParser|transformers\.HfArgumentParser)\.flags"))
    if len(calls) != 1 or not calls[0].certain:
        return None
    return Parser(ParserKind.CLASSES if calls[0].name.startswith("transformers") else ParserKind.ARGPARSE, calls[0])


_COMMANDS = {"click.flags": ParserKind.CLICK, "fire.flags": ParserKind.FIRE, "tyro.flags": ParserKind.TYRO}


def only_command(program: Program) -> Parser | None:
    """The function that click, typer, Fire or tyro calls with the flags of the command, if a program has one."""
    calls = list(program.events.of(r"(click|fire|tyro)\.flags"))
    return Parser(_COMMANDS[calls[0].name], calls[0]) if len(calls) == 1 and calls[0].certain else None


def hydras_parser(program: Program) -> Parser | None:
    """The parser of Hydra, if it runs one function of the program, and nothing may change the command line before."""
    calls = list(program.events.of(r"hydra\.flags"))
    return Parser(ParserKind.HYDRA, calls[0]) if len(calls) == 1 and calls[0].certain and not program.reads_words else None
