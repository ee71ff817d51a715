"""The decorators and types for rules: one function per rule, with everything about it in one place.

    @rule("DS501", effect=Effect.IGNORED)
    @bad('{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}', at="zero_optimization.offload_param")
    @good('{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}')
    def offload_param_below_stage_3(config: Config) -> Iterator[Finding]:
        ...

The docstring is the rule's documentation: a sentence, then what DeepSpeed does and why it matters, then what to write instead.
A rule yields `Finding`s with config paths; the linter turns them into diagnostics with lines and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dslint.config.context import PARTS, Context
from dslint.diagnostics import Applicability, Effect, LoadStep, Phase, Related, Severity, SharedCause
from dslint.facts import Facts, Integration, Release, Upgrade
from dslint.frameworks.loader import LOADERS
from dslint.record import Record
from dslint.source.tree import Span, Where, path_of

if TYPE_CHECKING:
    from dslint.source.change import Change


class FixPlan(Record):
    """A fix in config paths, with a title.

    A fix is safe if DeepSpeed does the same afterwards, or if it removes what DeepSpeed rejects or ignores. It is unsafe if it changes
    training.
    """

    title: str
    changes: tuple[Change, ...]
    applicability: Applicability = Applicability.UNSAFE


def safe(title: str, *changes: Change) -> FixPlan:
    """A safe fix."""
    return FixPlan(title, changes, Applicability.SAFE)


def unsafe(title: str, *changes: Change) -> FixPlan:
    """A fix that changes training."""
    return FixPlan(title, changes)


class CannotJudge(Exception):
    """What a rule raises if a fact is given that it needs and cannot read. The text is a sentence with the reason for the report."""


class Finding(Record):
    """What a rule found.

    `at` is the place: the member there, or its nearest ancestor in the file if the key is absent. `on` selects the underlined part:
    "value", "key", or "member" (both; of a section only the key). `span` overrides it with a range of the text, for rules about the text
    itself. `related` are other places with messages. `elsewhere` is a place in another file of the setup; its message is not used.
    `effect`, `phase` and `step` override those of the rule. `certain=False` means that file and facts cannot prove the consequence;
    the message then says "may". `costly` marks what is only slow or unclear by its effect, and still costs hours, memory or a comment's
    work. The severity follows from these (`dslint.diagnostics.severity_of`). `pedantic` marks what changes nothing, or is hardly ever worth
    a look; it is reported only with `--pedantic`, or if the rule is selected by its code or name.
    Findings with the same `cause` are reported as one. The last two fields are set where the rules run; see
    `Diagnostic`.
    """

    at: Where
    message: str
    help: str | None = None
    on: Literal["member", "key", "value"] = "member"
    span: Span | None = None
    related: tuple[tuple[Where | Span, str] | Related, ...] = ()
    elsewhere: Related | None = None
    fix: FixPlan | None = None
    effect: Effect | None = None
    phase: Phase | None = None
    step: LoadStep | None = None
    certain: bool = True
    costly: bool = False
    pedantic: bool = False
    cause: SharedCause | None = None
    rests_on_config: bool = False
    harms_with_config: bool = False


class Example(Record):
    """An example config of a rule. `at` is the place of the finding, None in a good example. `context` is what it is linted with.

    `files` are the other files of the setup, by name. A bad example has the message of the finding, and in `fixed` the text of the file
    that its fix changes, afterwards; None for a finding without a fix.
    """

    text: str
    context: Context
    at: Where | None = None
    files: tuple[tuple[str, str], ...] = ()
    message: str | None = None
    fixed: str | None = None

    @property
    def facts(self) -> Facts:
        """The facts of the context."""
        return self.context.facts


__all__ = ["CannotJudge", "Example", "Finding", "FixPlan", "Rule", "Where", "bad", "good", "path_of", "rule", "safe", "unsafe"]

Check: TypeAlias = "Callable[[Any], Iterable[Finding]]"
"""What a rule does with a `Config`, or with `IgnoreComments` if it watches "ignores"."""


class WrittenExample(Record):
    """An example as given to the decorators, `facts` by their names."""

    text: str
    at: Where | None
    facts: dict[str, Any]
    message: str | None = None
    fixed: str | None = None


class RuleInfo:
    """What selecting, listing and scheduling a rule needs: everything but its code and documentation, which `load` brings."""

    __slots__ = ("code", "effect", "module", "name", "needs", "pedantic", "phase", "setup", "watches")

    def __init__(
        self,
        code: str,
        name: str,
        effect: Effect,
        phase: Phase | None,
        *,
        needs: tuple[str, ...] = (),
        watches: tuple[str, ...] = (),
        pedantic: bool = False,
        setup: bool = False,
        module: str = "",
    ) -> None:
        self.code = code
        self.name = name
        self.effect = effect
        self.phase = phase
        self.needs = needs
        self.watches = watches
        self.pedantic = pedantic
        self.setup = setup
        self.module = module

    def __repr__(self) -> str:
        return f"<{self.code} {self.name}>"

    @property
    def severity(self) -> Severity:
        """The severity that goes with the effect."""
        return self.effect.severity

    @property
    def is_builtin(self) -> bool:
        """Whether the rule is one of dslint, not of a plug-in. Only these have a page in the documentation."""
        return self.module.startswith("dslint.rules.")

    def load(self) -> Rule:
        """The whole rule; the module that holds it is imported on first use."""
        raise NotImplementedError


class Rule(RuleInfo):
    """A rule with its function and documentation. Made by `rule`; `text` is the function's docstring.

    `written_examples` are the examples as given; `bad` and `good` build them on demand, because a check needs none.
    """

    __slots__ = ("anywhere", "check", "line", "references", "step", "text", "untried", "written_examples")

    def __init__(
        self,
        code: str,
        name: str,
        effect: Effect,
        phase: Phase | None,
        check: Check,
        text: str,
        *,
        step: LoadStep = LoadStep.COMPARISON,
        references: tuple[str, ...] = (),
        untried: str | None = None,
        anywhere: bool = False,
        written_examples: tuple[WrittenExample, ...] = (),
        line: int = 0,
        **info: Any,
    ) -> None:
        super().__init__(code, name, effect, phase, **info)
        self.check = check
        self.text = text
        self.step = step
        self.references = references
        self.untried = untried
        self.anywhere = anywhere
        self.written_examples = written_examples
        self.line = line

    def load(self) -> Rule:
        return self

    @property
    def bad(self) -> tuple[Example, ...]:
        """Examples that the rule finds."""
        return tuple(_example(written) for written in self.written_examples if written.at is not None)

    @property
    def good(self) -> tuple[Example, ...]:
        """Examples in which it finds nothing."""
        return tuple(_example(written) for written in self.written_examples if written.at is None)

    @property
    def documentation(self) -> str:
        """The docstring: a summary in the first line, then what DeepSpeed does, then what to write."""
        return _unindented(self.text)

    @property
    def summary(self) -> str:
        """The first line of the documentation."""
        return self.documentation.partition("\n")[0]


def rule(
    code: str,
    *,
    effect: Effect,
    phase: Phase | None = None,
    step: LoadStep = LoadStep.COMPARISON,
    needs: tuple[str, ...] = (),
    references: tuple[str, ...] = (),
    untried: str | None = None,
    anywhere: bool = False,
    pedantic: bool = False,
    setup: bool = False,
    watches: tuple[str, ...] = (),
) -> Callable[[Check], Rule]:
    """Turn a function into a rule. Its name, with hyphens, is the name of the rule: it reads as "allow <name>".

    Args:
        code: `DS`, the digit or letter of its chapter, and two digits. Never reused.
        effect: what DeepSpeed does; the severity follows from it.
        phase: when DeepSpeed crashes. Required with `Effect.CRASH`, and invalid otherwise.
        step: when in `Phase.LOAD` it crashes: a job meets several errors of loaders in this order.
        needs: names of required facts; without them the rule is skipped and counted.
        references: URLs or DeepSpeed source files (`deepspeed/runtime/engine.py`) that prove the rule.
        untried: why the test suite cannot verify the crash on a CPU.
        anywhere: whether what it finds is as wrong without DeepSpeed: of a program that may train without it, dslint does not say so.
        pedantic: whether experts disagree about it; the rule runs only if enabled. `Finding.pedantic` is for some findings of a rule.
        setup: whether the rule is about the files of a setup, and so also runs without a config.
        watches: conditions under which the rule can find something; it runs, and its module is imported, if one of them holds:
            `"zero_optimization.offload_param"`: the key is written, valid or not, under this name, another name or a deprecated key that
            maps to it, or something other than an object stands where the section should be;
            `"!optimizer"`: the key is not written, or is null;
            `"=auto"`: some value in the file is "auto";
            `"fact:model"`: the fact is known (`dslint.config.context.NEEDS` lists their names);
            `"violation:unknown-key"`: the config has a violation of this kind (`dslint.config.ViolationKind`);
            `"text"`: the text is not strict JSON, has comments, syntax errors or a key written twice, or holds no object at its top;
            `"setup"`: the setup has training arguments, a launcher or a program;
            `"ignores"`: the rule checks the ignore comments of a file (`dslint.source.ignores.IgnoreComments`), after all other rules;
            `"always: why"`: the rule runs on every config, for the reason given.
    """
    if (effect is Effect.CRASH) != (phase is not None):
        raise ValueError(f"{code}: phase is required for a crash, and invalid otherwise")

    def make(check: Check) -> Rule:
        written: list[WrittenExample] = getattr(check, "written_examples", [])
        return Rule(
            code,
            check.__name__.replace("_", "-"),
            effect,
            phase,
            check,
            check.__doc__ or "",
            step=step,
            needs=needs,
            references=references,
            untried=untried,
            anywhere=anywhere,
            pedantic=pedantic,
            setup=setup,
            watches=watches,
            written_examples=tuple(reversed(written)),
            module=check.__module__,
            line=check.__code__.co_firstlineno if hasattr(check, "__code__") else 0,
        )

    return make


def bad(text: str, *, at: Where, message: str | None = None, fixed: str | None = None, **facts: Any) -> Callable[[Check], Check]:
    """Add an example that the rule must find, at the path `at`, with these facts.

    `message` is the finding's message, and `fixed` the text after its fix; `python scripts/pin_examples.py` writes both.
    `integration`, `deepspeed` (a release, or two with dots between) and `gpu` are words, `model` is the content of a config.json.
    `training`, `accelerate`, `program` and `launch` are the texts of other files of the setup. `kernel` is the release of
    the machine's kernel, `pins` are releases of libraries that the project pins.
    """
    return _adding(WrittenExample(text, at, facts, message, fixed))


def good(text: str, **facts: Any) -> Callable[[Check], Check]:
    """Add an example without findings that DeepSpeed runs; the facts are given as for `bad`."""
    return _adding(WrittenExample(text, None, facts))


def _adding(example: WrittenExample) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        if not hasattr(check, "written_examples"):
            check.written_examples = []  # type: ignore[attr-defined]
        check.written_examples.append(example)  # type: ignore[attr-defined]
        return check

    return add


def _example(written: WrittenExample) -> Example:
    """The example built from the arguments of a decorator."""
    others = dict(written.facts)
    files = tuple((name, others.pop(kind)) for kind, name in _BESIDE.items() if kind in others)
    integration, deepspeed, gpu = (others.pop(name, None) for name in ("integration", "deepspeed", "gpu"))
    if isinstance(others.get("model"), dict):
        from dslint.facts.model_config import describe

        others["model"] = describe(others["model"])
    parts = {name: others.pop(name) for name in (*PARTS, "kernel", "pins") if name in others}
    facts = Facts(integration=Integration(integration) if integration else None, **others)
    if gpu:
        from dslint.facts.gpus import gpu_named

        facts = facts._replace(gpu=gpu_named(gpu), gpu_memory=gpu_named(gpu).memory)
    if deepspeed and ".." in deepspeed:
        start, to = Upgrade.parse(deepspeed)
        facts = facts._replace(deepspeed=to, upgrade_from=start)
    elif deepspeed:
        facts = facts._replace(deepspeed=Release.parse(deepspeed))
    return Example(written.text, Context(facts, **parts, filler=LOADERS), written.at, files, written.message, written.fixed)


_BESIDE = {
    "training": "train.yaml",
    "accelerate": "accelerate.yaml",
    "program": "train.py",
    "named_deepspeed": "deepspeed.py",
    "launch": "run.sh",
}
"""The names of the setup files of an example, by the argument with their text; `named_deepspeed` is a program of another name."""


def _unindented(text: str) -> str:
    first, _, rest = text.strip().partition("\n")
    return (first + "\n" + "\n".join(line.removeprefix("    ") for line in rest.split("\n"))).strip()
