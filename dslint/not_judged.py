"""Why a file, or a part of it, is not judged: a cause with its data. Readers choose the cause; the texts are made only here."""

from __future__ import annotations

from enum import Enum, StrEnum

from dslint.diagnostics import Range
from dslint.record import Record


class Why(Enum):
    """The causes. The text of one has a place for each of its data."""

    NOTE = "{}"
    """The sentence that a reader says of a whole file, or a rule of what it cannot judge."""
    FAILED = "dslint failed on it."
    LINK_OUTSIDE = "this link leads out of the project, to {}; name it to check it."
    PLACEHOLDER = "{} is a placeholder, which only the run knows. Rules about it find nothing; check the rendered file."
    PLACEHOLDERS = (
        "{} values are placeholders such as {}, which only the run knows. Rules about them find nothing; check the rendered file."
    )

    # The keys of a file
    OF_WANDB = (
        "each of its values is below a key such as value, as Weights & Biases writes sweeps and finished runs. "
        "Check the command that a sweep starts."
    )
    OF_GRID = "lists stand where DeepSpeed expects one value, as in the grid of a search. Check a config that the program makes of it."
    OF_STRATEGY = "its keys are arguments of Lightning's DeepSpeedStrategy. Check the program that passes them."
    UNKNOWN_FRAMEWORK = "no known framework uses these keys: {}."
    ARGUMENTS_OF_UNKNOWN_FRAMEWORK = "its training arguments: no known framework uses these keys: {}."
    BROKEN_LINE = "line {}: {}"
    OPTION_IS_NO_CONFIG = "the option {} of the group {}: {}"
    """An option of Hydra, its group, and what its file is instead."""
    NO_OPTION = "the DeepSpeed config is the option {} of the group {}; there is no {} next to this file."

    # The config that a setup names
    NO_CONFIG = "no DeepSpeed config was found in it or named by it."
    UNREADABLE = "the DeepSpeed config is {}, which cannot be read."
    OTHER_FILE = "the DeepSpeed config is {}, which is not a DeepSpeed training config."
    AT_RUN_TIME = "the DeepSpeed config is {}, which is only known at run time. {}"
    OUTSIDE = "the DeepSpeed config is {}, which is outside this project. Check the config directly."
    OUTSIDE_WITH_SAME_NAME = "the DeepSpeed config is {}, which is outside this project; {}. Check that file, or the config directly."
    MISSING = "the DeepSpeed config is {}, which does not exist in this project. Check the config where the training runs."
    MISSING_WITH_SAME_NAME = "the DeepSpeed config is {}, which does not exist; {}. Check that file, or correct the path."
    SHIPPED = "the DeepSpeed config is {}, which {} ships; it is not in this project."
    WRITES_NO_JSON = "the script writes the DeepSpeed config {}, and what it writes is not JSON."
    WRITES_UNKNOWN = (
        "the script makes the DeepSpeed config {} with a command whose output is only known at run time. Check the file that it makes."
    )
    BUILT = "{} may build the DeepSpeed config itself; only the keys that follow from its flags were checked."
    BUILT_AS = "{} builds the DeepSpeed config itself, and what it writes is not known: the flags were checked as those of {}."
    COMPLETED = "{} completes the DeepSpeed config at run time{}; only the keys that it sets itself were checked."
    DOTS = "dots stand for keys that are left out; only those that are written were checked."
    UNREAD_MODEL = "{}, so no rule about the model ran. Pass --model FILE|NAME."

    # A launch: its name is in the place {launch}, or before the text
    CONFIG_LOST = "{launch} gets no DeepSpeed config: {} ends the command before {} in {}, so bash does not pass the one behind it."
    ARGUMENT_LOST = "{launch} uses DeepSpeed and names no config: {} ends the command before {} in {}, so bash does not pass that argument."
    PROGRAM_LOST = "{launch} has no program: {} ends the command before {} in {}."
    CONFIG_SET_AT_RUN_TIME = "its DeepSpeed config is {}, which is set at run time. {}"
    FILE_SET_AT_RUN_TIME = "its {} is {}, which is set at run time. {}"
    NO_FILE = "its {} is {}, which is {}."
    NO_FILE_BUT_ANOTHER = "its {} is {}, which is {}; did you mean {}?"
    OWN_FILE = "its {} config {} {}"
    GIVEN_TWICE = "{} {}, and {} is."
    NOT_OWN_FILES = "the files that it names are not configs of {}."
    WITHOUT_DEEPSPEED = "{launch} names no config, so {} trains without DeepSpeed. Pass one with --deepspeed."
    FLAG_OF_PROGRAM = "{launch} gives {} to its launcher, which refuses it, instead of to its program."
    PROGRAM_UNSEEN = "the program is not in this project, so what it does was not judged."
    PROGRAM_SET_AT_RUN_TIME = "the program is set at run time, so what it does was not judged. {}"
    PROGRAM_NOT_PYTHON = "{} is not valid Python, so what it does was not judged."
    PROGRAM_WITHOUT_PY = "{} is not a .py file, so what it does was not judged."
    PROGRAM_WRITTEN = "the script writes the program, and what it does was not judged. Check the file that it writes."
    PROGRAM_ELSEWHERE = "{launch} uses DeepSpeed, names no config, and the program is not in this project."
    GIVEN_TO_PROGRAM = "{launch} passes {} to its program, and dslint does not see what reads it. Check that file directly."
    PROGRAM_BROKEN = "{launch} uses DeepSpeed and names no config that is known; {} is not valid Python."
    OF_HYDRA = "{launch} takes its config from {}, with which Hydra reads a file. Check that file directly."
    PROGRAM_MAY_SET = "{launch} names no config. If the program trains with DeepSpeed, it sets the config: check the program."
    PROGRAM_WITHOUT_WORD = (
        "{launch} names no config, and its program does not mention DeepSpeed. It trains without DeepSpeed, unless a module that dslint "
        "does not see uses it: the launcher only starts its ranks."
    )
    OF_NAMED_STRATEGY = "{launch} names no config file: {} selects a strategy of Lightning, which builds the config."
    PROGRAM_SETS = "{launch} uses DeepSpeed and names no config; the program sets it. Check the program."
    DEFAULT_FILE = (
        "without --config_file, accelerate launch takes the file that accelerate config wrote on that machine, if there is one; whether it "
        "uses DeepSpeed cannot be seen here. Check that file directly."
    )
    MAY_BE_DEFAULT_FILE = (
        "without --config_file, accelerate launch takes the file that accelerate config wrote on that machine, if there is one; whether it "
        "uses DeepSpeed cannot be seen here. If {0} is that file, write accelerate launch --config_file {0}."
    )
    MAY_NAME_FILE = (
        "{launch} gets options from a variable that only the run knows. Whether they name a file with which Accelerate uses DeepSpeed "
        "cannot be seen here. Check that file directly."
    )
    SETTINGS_FILE = "{} describes a training with DeepSpeed. Check that file directly."
    JOB_STARTS_OTHER = (
        "a job that mentions DeepSpeed; what {} starts is not in this project, or names no DeepSpeed config. Check the config directly."
    )

    # A program
    INFERENCE = "{} calls deepspeed.init_inference, which ignores ZeRO stages and offload. dslint checks only training configs."
    NO_KNOWN_CALL = "{} concerns DeepSpeed, but dslint knows no call here that takes a config. Check the config directly."
    NO_STRATEGY = "{}, so no config is built that could be checked."
    NOT_IN_COMMAND = "deepspeed.initialize ({}) takes its config from {}, and the command names none."
    PART_ELSEWHERE = "a part of the DeepSpeed config for {} is not in this program: {}. Only what the program sets is checked."
    CONFIG_ELSEWHERE = "the DeepSpeed config for {} is not in this program: {}. Check the config directly."
    PATH_EMPTY = "the DeepSpeed config for {} is not in this program: its path is empty unless the launch gives one."
    GIVEN_AT_LAUNCH = "the DeepSpeed config{} is given at launch with {}."
    PASSED_BY = "{} {} passes it: {}."
    """The reason for a config that is a parameter, the file that passes it, and what is said of it there."""
    NOT_PYTHON = "{} is not Python and was left out."
    BREAKS_OFF = "the text ends inside a bracket in {}; what stands before that was read."
    WITHOUT_IMPORTS = (
        "what this part of a program leaves out. It has no imports: dslint takes {}. No finding that rests on this is certain."
    )
    WITHOUT_SOME_IMPORTS = (
        "what this part of a program leaves out. It does not import all names: dslint takes {}. No finding that rests on this is certain."
    )

    # The limits of dslint
    TOO_LONG_PROGRAM = "the program is larger than what dslint follows: its calls are followed up to {}. Check its config directly."
    TOO_MANY_CALLS = (
        "the program passes more configs than dslint judges: {} of {} calls are checked, those before {}. "
        "Split the program, or check its configs directly."
    )
    TOO_LONG_SCRIPT = (
        "loops, recursion or nesting at {} go further than dslint follows: launches from there on may be missing. "
        "Check them with --command."
    )
    TOO_MANY_LAUNCHES = (
        "it has more launches than the {} that dslint judges a file with: the next one{} and those after it are not checked here. "
        "Check the files that launch it."
    )
    MAY_USE_DEEPSPEED = (
        "nothing says whether the launch uses DeepSpeed. If it does, name the program with its config: dslint check PROGRAM CONFIG."
    )
    TOO_MANY_CONFIGS = (
        "the program may run with more than {} configs, and dslint tries no more. Name the one that is meant: dslint check {} CONFIG."
    )
    NO_SHELL_PARSER = "a script; scripts are not read because tree-sitter and tree-sitter-bash are not installed."


_OF_PROGRAMS = (
    Why.PROGRAM_UNSEEN,
    Why.PROGRAM_SET_AT_RUN_TIME,
    Why.PROGRAM_NOT_PYTHON,
    Why.PROGRAM_WITHOUT_PY,
    Why.PROGRAM_WRITTEN,
)


class AnsweredBy(StrEnum):
    """What would say which config a program uses, if it were known."""

    FLAG = "a flag of its launch names it"
    REST = "a flag of its launch names the rest of it"
    LAUNCH = "its launch gives it"
    CALLER = "another file passes it to a function"
    CALL = "no call that dslint knows takes it"


class NotJudged(Record):
    """A file, or a part of it, that was not judged: the cause with its data, and the place of the part.

    `answer` says what would give the config that is missing; None if nothing in the project can.
    """

    why: Why
    about: tuple[str, ...] = ()
    range: Range | None = None
    answer: AnsweredBy | None = None
    advice: str = ""
    """What the user can do, where that changes with what else is found; otherwise the text of the cause ends with it."""
    files: tuple[str, ...] = ()
    """The files that are judged with the part: where a run checks them all, the part is judged there."""
    path: str = ""
    """The file of the place; "" for the file that was not judged."""
    launch: str = ""
    """The launch that leads to the part, as `the launch of train.py`."""
    repeated: int = 0
    """How often the line of the place runs again, with other values and the same outcome."""

    @property
    def at_launch(self) -> bool:
        """Whether a launch of the program with its flags makes the reason void."""
        return self.answer in (AnsweredBy.FLAG, AnsweredBy.REST)

    @property
    def is_of_program(self) -> bool:
        """Whether it is about the program of a launch, which no finding at the place of the launch speaks for."""
        return self.why in _OF_PROGRAMS

    @property
    def reason_of_any(self) -> str:
        """The text without the launch that leads to the part, for all launches with the same reason."""
        return self._replace(launch="").reason if "{launch}" not in self.why.value else self.reason

    @property
    def reason(self) -> str:
        """The whole text."""
        text = self.why.value.format(*self.about, launch=self.launch)
        launched = f"{self.launch}: {text}" if self.launch and "{launch}" not in self.why.value else text
        return " ".join(filter(None, (launched.rstrip(), self.advice, repetition(self.repeated))))


def of_note(note: str) -> NotJudged:
    """A file that is not judged for what its reader says of it, or a part for what a rule says."""
    return NotJudged(Why.NOTE, (note,))


def repetition(times: int) -> str:
    """That a line runs so often again, as in a loop; "" if it does not."""
    if not times:
        return ""
    return f"This line runs {f'{times:,} more times' if times > 1 else 'once more'} with another value and the same outcome."


def what_to_pass(raw: str) -> str:
    """How to judge a config that a variable names: `$DS_CONFIG`, `${DS_CONFIG}/ds.json`."""
    given = variable_to_pass(raw)
    return f"{given.removesuffix('.')}, or check the config directly." if given else "Check the config directly."


def variable_to_pass(raw: str) -> str:
    """How to give the variable in a word; "" for a word without a plain one."""
    variable = raw.partition("$")[2].lstrip("{")
    length = next((at for at, letter in enumerate(variable) if not (letter.isalnum() or letter == "_")), len(variable))
    if not variable[:length].isidentifier() and not variable[:length].isdecimal():
        return ""
    return f"Pass --env {variable[:length]}=VALUE."
