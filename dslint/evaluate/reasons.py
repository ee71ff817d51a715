"""Why a value is not known: a cause with its data, and the place where the value becomes unknown. Texts are made only here."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from dslint.source.tree import Span


class Cause(Enum):
    """What makes a value unknown. The text of a cause has a place for each of its data."""

    COMPUTED = "it is computed"
    CONDITION = "a condition decides it"
    DEFAULT = "a flag decides it"
    """The value is None unless a flag of the command line is given."""
    LOOP = "a loop sets it"
    RECURSION = "a recursive function computes it"
    STEPS = "{} computes it, and the program is too large to follow each of its calls"
    GENERATOR = "a generator"
    EXCEPTION = "an exception"
    DUNDER_NAME = "__name__"

    FLAG = "{}"
    """A flag of the command line, by its name with the dashes."""
    POSITIONAL = "{} "
    """A positional argument of the command line, by its name."""
    SOME_FLAG = "a flag of the command line"
    COMMAND_LINE = "the command line"
    ARGV = "an argument of the command line (sys.argv)"
    VARIABLE = "the environment variable {}"

    PARAMETER = "{} is an argument of {}"
    """A parameter of a function that nothing calls: its name, and the function's."""
    REST = "{} of {}"
    """`*args` or `**kwargs` of a function, or a field of a class that another file fills."""
    NOT_ASSIGNED = "{} is not assigned in this file"
    NOT_PASSED = "the call passes none"
    NO_DEFAULT = "it has no default"

    RESULT = "the function {}, which is not in the project, returns it"
    RESULT_OUTSIDE = "the function {} of {}, which is outside this project, returns it"
    """As the one above, where the program adds a folder to `sys.path` that has the module, and that is not read."""
    RETURNED = "{} returns it"
    METHOD = ".{}() returns it"
    ATTRIBUTE = "{}.{}"
    """An attribute of a value that dslint does not follow: what has it ("" if that has no name), and the name of the attribute."""
    ITEM = '["{}"]'
    NOT_DEFINED = "{} is not defined in {}"
    RESULT_BEYOND = "it comes from {} in {}, and the program has more modules than dslint follows"
    MODULE_BEYOND = "it is in {}, and the program has more modules than dslint follows"
    NO_MODULE = "{}, which is not in the project"

    MACHINE = "an absolute path depends on the machine"
    FILE = "it is read from a file"
    NO_FILE = "{}, which is not there"
    NO_PATH = "an empty path"
    OUTSIDE = "{}, which is outside this project"
    BROKEN_FILE = "{} cannot be read"
    TEMPORARY_FILE = "a temporary file that the program writes"
    HYDRA = "the config of hydra.main"

    NO_STRATEGY = "{} is not a strategy of Lightning"

    MERGED = "it depends on an unknown dict"
    COMPUTED_KEY = "a key that is computed may replace it"
    SET_BEFORE = "it may be set before"


class Reason(NamedTuple):
    """Why a value is unknown.

    Args:
        cause: what makes it unknown.
        about: the data of the cause: a name, a path, a flag.
        place: where the value becomes unknown, None if that is not in the program.
        through: the attribute by which the program reaches the value, such as `args.deepspeed`.
    """

    cause: Cause
    about: tuple[str, ...] = ()
    place: Span | None = None
    through: str = ""

    @property
    def text(self) -> str:
        """The reason as a part of a sentence."""
        said = self.cause.value.format(*self.about).rstrip()
        return f"{self.through}: {said}" if self.through else said

    @property
    def flag(self) -> str:
        """The flag of the command line that gives the value; "" if it is not one."""
        return self.about[0] if self.cause is Cause.FLAG and not self.through else ""

    @property
    def is_computed(self) -> bool:
        """Whether nothing is known but that the program computes the value."""
        return self.cause is Cause.COMPUTED and not self.through

    @property
    def is_parameter(self) -> bool:
        """Whether the value is what another file passes to a function."""
        return self.cause is Cause.PARAMETER


def flag(name: str, place: Span | None = None) -> Reason:
    """The reason for the value of an argument of the command line."""
    return Reason(Cause.FLAG if name.startswith("-") else Cause.POSITIONAL, (name,), place)


IS_COMPUTED: Final = Reason(Cause.COMPUTED)
