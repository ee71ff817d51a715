"""How a rule is written: one function, with everything about it in one place.

    @rule("DS501", "offload-param-below-stage-3", effect=Effect.IGNORED)
    @bad('{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}', at="zero_optimization.offload_param")
    @good('{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}')
    def offload_param_below_stage_3(config: Config) -> Iterator[Finding]:
        ...

The docstring is the rule's documentation: a sentence, then what DeepSpeed does and why it matters, then what to write instead.
A rule yields `Finding`s that speak in config paths; the linter turns them into diagnostics with lines and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dslint.config.context import PARTS, Context
from dslint.diagnostics import Applicability, Effect, Phase, Related, Severity
from dslint.facts import Facts, Integration, Release, Upgrade
from dslint.source.tree import Span, Where, path_of

if TYPE_CHECKING:
    from dslint.source.change import Change


@dataclass(frozen=True, slots=True)
class FixPlan:
    """What to change so that a finding goes, in a few words and in config paths.

    Safe is what leaves all that DeepSpeed does as it is, or takes away what it rejects or ignores; what changes training is unsafe.
    """

    title: str
    changes: tuple[Change, ...]
    applicability: Applicability = Applicability.UNSAFE


def safe(title: str, *changes: Change) -> FixPlan:
    """A repair that may be made unasked."""
    return FixPlan(title, changes, Applicability.SAFE)


def unsafe(title: str, *changes: Change) -> FixPlan:
    """A repair that changes training."""
    return FixPlan(title, changes)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found.

    `at` is the place: the member there, or its nearest ancestor that is in the file when the key is absent. `on` picks the part that is
    underlined: "value", "key", or "member" (both; of a section the key alone). `span` overrides it with a stretch of the text, for rules
    about the text itself. `related` are other places with what they have to do with it. `elsewhere` is the place where it is in another
    file of the setup; its message says nothing. `effect`, `phase` and `severity` override the
    rule's, for the few rules whose consequence depends on what was found. `certain=False` says that the file and the facts cannot prove
    the consequence, and the message then says so, too ("may").
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
    severity: Severity | None = None
    certain: bool | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A config that shows a rule. `at` is where a bad one is found; a good one has none. `context` is what it is linted with.

    `files` are what stands beside it, by name.
    """

    text: str
    context: Context
    at: Where | None = None
    files: tuple[tuple[str, str], ...] = ()

    @property
    def facts(self) -> Facts:
        """The facts of the context."""
        return self.context.facts


__all__ = ["Example", "Finding", "FixPlan", "Rule", "Where", "bad", "good", "path_of", "rule", "safe", "unsafe"]

Check: TypeAlias = "Callable[[Any], Iterable[Finding]]"
"""What a rule does with a `Config`, or with `IgnoreComments` if it watches "ignores"."""

Told: TypeAlias = "tuple[str, Where | None, dict[str, Any]]"
"""An example as it is written: its text, its place if it is a bad one, and its facts."""


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

    def load(self) -> Rule:
        """The whole rule; the module that holds it is imported on first use."""
        raise NotImplementedError


class Rule(RuleInfo):
    """A rule with its function and documentation. Made by `rule`; `text` is the function's docstring.

    `told` are its examples as they are written; `bad` and `good` build them, because a check needs none.
    """

    __slots__ = ("check", "line", "references", "text", "told", "untried")

    def __init__(
        self,
        code: str,
        name: str,
        effect: Effect,
        phase: Phase | None,
        check: Check,
        text: str,
        *,
        references: tuple[str, ...] = (),
        untried: str | None = None,
        told: tuple[Told, ...] = (),
        line: int = 0,
        **info: Any,
    ) -> None:
        super().__init__(code, name, effect, phase, **info)
        self.check = check
        self.text = text
        self.references = references
        self.untried = untried
        self.told = told
        self.line = line

    def load(self) -> Rule:
        return self

    @property
    def bad(self) -> tuple[Example, ...]:
        """Examples that the rule finds."""
        return tuple(_example(*told) for told in self.told if told[1] is not None)

    @property
    def good(self) -> tuple[Example, ...]:
        """Examples in which it finds nothing."""
        return tuple(_example(*told) for told in self.told if told[1] is None)

    @property
    def documentation(self) -> str:
        """What the rule is about: a summary in the first line, then what DeepSpeed does, then what to write."""
        return _unindented(self.text)

    @property
    def summary(self) -> str:
        """The first line of the documentation."""
        return self.documentation.partition("\n")[0]


def rule(
    code: str,
    name: str,
    *,
    effect: Effect,
    phase: Phase | None = None,
    needs: tuple[str, ...] = (),
    references: tuple[str, ...] = (),
    untried: str | None = None,
    pedantic: bool = False,
    setup: bool = False,
    watches: tuple[str, ...] = (),
) -> Callable[[Check], Rule]:
    """Make a rule of a function.

    Args:
        code: `DS` and three digits, the first of them the chapter. Never reused.
        name: reads as "allow <name>"; accepted wherever the code is.
        effect: what DeepSpeed does; the severity follows from it.
        phase: when a crash comes. Given with `Effect.CRASH`, and only then.
        needs: names of the facts without which the rule cannot be asked; it is then skipped and counted.
        references: addresses or DeepSpeed source places (`deepspeed/runtime/engine.py`) that back the rule.
        untried: why the suite cannot try a crash on a CPU, if it cannot.
        pedantic: whether experts disagree, so that the rule is asked of those alone who want to hear it.
        setup: whether the rule is about the files beside a config, and so is asked where there is no config, too.
        watches: what must be there for the rule to have anything to say; it runs, and its module is imported, where one of these holds:
            `"zero_optimization.offload_param"`: the key is written, valid or not, under this name, another name or a deprecated key that
            maps to it, or something other than an object stands where the section should be;
            `"!optimizer"`: the key is not written, or is null;
            `"=auto"`: some value in the file is "auto";
            `"fact:model"`: the fact is known (`dslint.config.context.NEEDS` lists their names);
            `"violation:unknown-key"`: the config has a violation of this kind (`dslint.config.validate.VIOLATIONS`);
            `"text"`: the text is not strict JSON, has comments, syntax errors or a key written twice, or holds no object at its top;
            `"setup"`: training arguments, a launcher or a program stand beside the config;
            `"ignores"`: the rule checks the ignore comments of a file (`dslint.source.ignores.IgnoreComments`), after all other rules;
            `"always: why"`: the rule runs on every config, for the reason given.
    """
    if (effect is Effect.CRASH) != (phase is not None):
        raise ValueError(f"{code}: a crash has a phase, and nothing else has one")

    def make(check: Check) -> Rule:
        told: list[Told] = getattr(check, "told", [])
        return Rule(
            code,
            name,
            effect,
            phase,
            check,
            check.__doc__ or "",
            needs=needs,
            references=references,
            untried=untried,
            pedantic=pedantic,
            setup=setup,
            watches=watches,
            told=tuple(reversed(told)),
            module=check.__module__,
            line=check.__code__.co_firstlineno if hasattr(check, "__code__") else 0,
        )

    return make


def bad(text: str, *, at: Where, **facts: Any) -> Callable[[Check], Check]:
    """Add an example that the rule must find, at the path `at`, with these facts.

    `integration`, `deepspeed` (a release, or two with dots between) and `gpu` are words, `model` is the content of a config.json.
    `training`, `accelerate`, `program` and `launch` are the texts of files beside it.
    """
    return _telling(text, at, facts)


def good(text: str, **facts: Any) -> Callable[[Check], Check]:
    """Add an example in which the rule must find nothing, and which DeepSpeed runs, with facts as in a bad one."""
    return _telling(text, None, facts)


def _telling(text: str, at: Where | None, facts: dict[str, Any]) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        if not hasattr(check, "told"):
            check.told = []  # type: ignore[attr-defined]
        check.told.append((text, at, facts))  # type: ignore[attr-defined]
        return check

    return add


def _example(text: str, at: Where | None, said: dict[str, Any]) -> Example:
    """An example of what the decorators were told."""
    others = dict(said)
    files = tuple((name, others.pop(kind)) for kind, name in _BESIDE.items() if kind in others)
    integration, deepspeed, gpu = (others.pop(name, None) for name in ("integration", "deepspeed", "gpu"))
    if isinstance(others.get("model"), dict):
        from dslint.facts.model_config import describe

        others["model"] = describe(others["model"])
    parts = {name: others.pop(name) for name in PARTS if name in others}
    facts = Facts(integration=Integration(integration) if integration else None, **others)
    if gpu:
        from dslint.facts.gpus import gpu_named

        facts = replace(facts, gpu=gpu_named(gpu), gpu_memory=gpu_named(gpu).memory)
    if deepspeed and ".." in deepspeed:
        start, to = Upgrade.parse(deepspeed)
        facts = replace(facts, deepspeed=to, upgrade_from=start)
    elif deepspeed:
        facts = replace(facts, deepspeed=Release.parse(deepspeed))
    return Example(text, Context(facts, **parts), at, files)


_BESIDE = {"training": "train.yaml", "accelerate": "accelerate.yaml", "program": "train.py", "launch": "run.sh"}
"""The files that may stand beside the config of an example, by the argument that gives their text."""


def _unindented(text: str) -> str:
    first, _, rest = text.strip().partition("\n")
    return (first + "\n" + "\n".join(line.removeprefix("    ") for line in rest.split("\n"))).strip()
