"""The frozen `Diagnostic` and its parts.

Every module may import this one; of dslint it imports only `record`.
"""

from __future__ import annotations

from enum import StrEnum

from dslint.record import Record


class Severity(StrEnum):
    """The severity of a diagnostic. It follows from the effect and its certainty unless the settings override it."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for info, 2 for error: comparable, unlike the names."""
        return ("info", "warning", "error").index(self.value)


class Effect(StrEnum):
    """What DeepSpeed does about the mistake."""

    CRASH = "crash"
    """raises, in a `Phase`"""
    SILENT = "silent"
    """runs, but not as written: wrong precision, batch, schedule, an unusable checkpoint"""
    IGNORED = "ignored"
    """the setting does nothing"""
    MEMORY = "memory"
    """uses memory unnecessarily, or does not fit"""
    SLOW = "slow"
    """runs slower than necessary"""
    ADVICE = "advice"
    """deprecated, unclear, not portable"""
    POLICY = "policy"
    """runs, and breaks a policy of the team"""

    @property
    def severity(self) -> Severity:
        """The severity of the effect where it is certain."""
        return _SEVERITY[self]


_SEVERITY = {
    Effect.CRASH: Severity.ERROR,
    Effect.SILENT: Severity.ERROR,
    Effect.IGNORED: Severity.WARNING,
    Effect.MEMORY: Severity.WARNING,
    Effect.SLOW: Severity.INFO,
    Effect.ADVICE: Severity.INFO,
    Effect.POLICY: Severity.ERROR,
}


def severity_of(effect: Effect, *, certain: bool, costly: bool) -> Severity:
    """The severity of a finding. No rule decides it.

    What is not certain is at most a warning. What is `costly` is at least one: it loses hours or memory that no advice is about.
    """
    severity = _SEVERITY[effect]
    if not certain:
        severity = min(severity, Severity.WARNING, key=lambda one: one.rank)
    return max(severity, Severity.WARNING, key=lambda one: one.rank) if costly else severity


class Phase(StrEnum):
    """When DeepSpeed crashes."""

    LOAD = "load"
    """the loader of an integration (transformers, Accelerate, Lightning) reads the file, before DeepSpeed sees it"""
    PARSE = "parse"
    """`DeepSpeedConfig(...)`, the first thing in `deepspeed.initialize`"""
    INITIALIZE = "initialize"
    """the rest of `deepspeed.initialize`"""
    STEP = "step"
    """the first forward, backward or step"""
    LATER = "later"
    """a call of the program, at the start, while it trains or afterwards: a barrier, an evaluation"""
    SAVE = "save"
    RESUME = "resume"


class LoadStep(StrEnum):
    """What raises in `Phase.LOAD`, in the order in which most frameworks come to it. `Framework.steps` has the order of a framework."""

    LAUNCHER = "launcher"
    """Accelerate's launcher reads its file and flags"""
    PARSER = "parser"
    """a parser reads the arguments"""
    CHOICES = "choices"
    """the Trainer's class of arguments looks values up among its choices"""
    REFUSALS = "refusals"
    """the framework refuses arguments"""
    ARGUMENTS = "arguments"
    """the Trainer's class of arguments checks the precision"""
    PLUGIN = "plugin"
    """it makes the plugin for DeepSpeed, which reads the config"""
    REST = "rest"
    """the parser refuses arguments that no class has taken"""
    DATA = "data"
    """the program reads the data"""
    MODEL = "model"
    """ZeRO-3 loads the model"""
    TRAINER = "trainer"
    """the Trainer is made, with its Accelerator, and Accelerate prepares the data"""
    COMPARISON = "comparison"
    """the Trainer compares its arguments with the config; and all other errors of loaders"""
    END = "end"
    """Accelerate fills the config"""
    BATCH = "batch"
    """DeepSpeed checks the batch, when it has read the other keys"""
    RANKS = "ranks"
    """`deepspeed.initialize` looks for the ranks, before it reads the config"""


class Applicability(StrEnum):
    """Which option applies a fix."""

    SAFE = "safe"
    """what DeepSpeed does stays the same, or what it rejects or ignores goes away"""
    UNSAFE = "unsafe"
    """training changes"""
    DISPLAY = "display"
    """shown, never applied"""


class Place(Record):
    """A point in a text: `line` and `column` are 1-based, in code points; `offset` is 0-based, in code points."""

    line: int
    column: int
    offset: int


class Range(Record):
    """A half-open range of text."""

    start: Place
    end: Place


class Related(Record):
    """A second place of a diagnostic, with a message about it."""

    path: str
    message: str
    pointer: str | None = None
    range: Range | None = None


class Edit(Record):
    """Replace `text[start:end]` (code points) by `content`."""

    start: int
    end: int
    content: str


class Fix(Record):
    """Edits that belong together, a title, and which option applies them."""

    title: str
    applicability: Applicability
    edits: tuple[Edit, ...]


class SharedCause(Record):
    """A mistake that shows in several places of a file. Reports print its findings as one, with the other places as related.

    `name` identifies the cause within a file. `message` is the message for several findings, in which `{count}` stands for their number
    and `{keys}` for their config paths; `help` is the help. A single finding keeps its own message and help. `at_key` is what happens at
    the key of this finding, if that is not the same for all. `across` says that findings of several files with this name are one mistake.
    """

    name: str
    message: str
    help: str | None = None
    at_key: str = ""
    across: bool = False


class Diagnostic(Record):
    """One finding at one place, ready to print.

    `message` is complete in itself: what was found and what DeepSpeed does. `help` says what to write instead.
    `phase` is set when the effect is `Effect.CRASH` and only then. `pointer` (RFC 6901) and `range` are None without a place.
    `order` is set with it: a job meets the crash with the lowest number first.
    `certain` is False if file and facts cannot prove that DeepSpeed will do what `effect` says.
    `cause` is set if the finding may be one of several with the same cause.
    `pedantic` findings are reported only where the settings ask for them, so no report format shows the field.
    `rests_on_config` says that it is about a config which is only taken for that of a program; `harms_with_config`, that with it the run
    crashes or differs silently.
    """

    path: str
    code: str
    name: str
    severity: Severity
    effect: Effect
    phase: Phase | None
    message: str
    help: str | None = None
    url: str | None = None
    pointer: str | None = None
    range: Range | None = None
    related: tuple[Related, ...] = ()
    fix: Fix | None = None
    certain: bool = True
    cause: SharedCause | None = None
    pedantic: bool = False
    order: int | None = None
    rests_on_config: bool = False
    harms_with_config: bool = False
