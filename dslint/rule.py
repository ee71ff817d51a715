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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dslint.diagnostics import Effect, Fix, Phase, Severity
from dslint.facts import Facts, Integration, Release, Upgrade
from dslint.source.tree import Path, Span

if TYPE_CHECKING:
    from dslint.config import Config

Where: TypeAlias = str | Path
"""A config path: dotted (`"zero_optimization.stage"`), or a tuple where a key holds a dot or an index is meant. `""` is the root."""


def path_of(where: Where) -> Path:
    """The tuple form of a config path."""
    if isinstance(where, tuple):
        return where
    return tuple(where.split(".")) if where else ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found.

    `at` is the place: the member there, or its nearest ancestor that is in the file when the key is absent. `on` picks the part that is
    underlined: "value", "key", or "member" (both; of a section the key alone). `span` overrides it with a stretch of the text, for rules
    about the text itself. `related` are other places with what they have to do with it. `effect`, `phase` and `severity` override the
    rule's, for the few rules whose consequence depends on what was found, and for what nobody can know for sure.
    """

    at: Where
    message: str
    help: str | None = None
    on: Literal["member", "key", "value"] = "member"
    span: Span | None = None
    related: tuple[tuple[Where | Span, str], ...] = ()
    fix: Fix | None = None
    effect: Effect | None = None
    phase: Phase | None = None
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A config that shows a rule. `at` is where a bad one is found; a good one has none. `facts` are what it is linted with."""

    text: str
    facts: Facts
    at: Where | None = None


Check: TypeAlias = "Callable[[Config], Iterable[Finding]]"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule and all that is known about it. Made by `rule`; `documentation` is the function's docstring, its first line the summary."""

    code: str
    name: str
    effect: Effect
    phase: Phase | None
    check: Check
    documentation: str
    needs: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    untried: str | None = None
    last: bool = False
    pedantic: bool = False
    bad: tuple[Example, ...] = ()
    good: tuple[Example, ...] = ()
    module: str = ""
    line: int = field(default=0, compare=False)

    @property
    def summary(self) -> str:
        """The first line of the documentation."""
        return self.documentation.partition("\n")[0]

    @property
    def severity(self) -> Severity:
        """The severity that goes with the effect."""
        return self.effect.severity


def rule(
    code: str,
    name: str,
    *,
    effect: Effect,
    phase: Phase | None = None,
    needs: tuple[str, ...] = (),
    references: tuple[str, ...] = (),
    untried: str | None = None,
    last: bool = False,
    pedantic: bool = False,
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
        last: whether the rule is asked once all others were: it is about what became of their findings.
        pedantic: whether experts disagree, so that the rule is asked of those alone who want to hear it.
    """
    if (effect is Effect.CRASH) != (phase is not None):
        raise ValueError(f"{code}: a crash has a phase, and nothing else has one")

    def make(check: Check) -> Rule:
        examples: list[Example] = getattr(check, "examples", [])
        return Rule(
            code,
            name,
            effect,
            phase,
            check,
            _unindented(check.__doc__ or ""),
            needs=needs,
            references=references,
            untried=untried,
            last=last,
            pedantic=pedantic,
            bad=tuple(e for e in reversed(examples) if e.at is not None),
            good=tuple(e for e in reversed(examples) if e.at is None),
            module=check.__module__,
            line=check.__code__.co_firstlineno if hasattr(check, "__code__") else 0,
        )

    return make


def bad(
    text: str, *, at: Where, integration: str | None = None, deepspeed: str | None = None, gpu: str | None = None, **facts: Any
) -> Callable[[Check], Check]:
    """Add an example that the rule must find, at the path `at`, with these facts."""
    return _example(text, at, integration, deepspeed, gpu, facts)


def good(
    text: str, *, integration: str | None = None, deepspeed: str | None = None, gpu: str | None = None, **facts: Any
) -> Callable[[Check], Check]:
    """Add an example in which the rule must find nothing, and which DeepSpeed runs."""
    return _example(text, None, integration, deepspeed, gpu, facts)


def _example(
    text: str, at: Where | None, integration: str | None, deepspeed: str | None, gpu: str | None, others: dict[str, Any]
) -> Callable[[Check], Check]:
    facts = Facts(integration=Integration(integration) if integration else None, **others)
    if gpu:
        from dslint.hardware import gpu_named

        facts = replace(facts, gpu=gpu_named(gpu), gpu_memory=gpu_named(gpu).memory)
    if deepspeed and ".." in deepspeed:
        start, to = Upgrade.parse(deepspeed)
        facts = replace(facts, deepspeed=to, upgrade_from=start)
    elif deepspeed:
        facts = replace(facts, deepspeed=Release.parse(deepspeed))

    def add(check: Check) -> Check:
        if not hasattr(check, "examples"):
            check.examples = []  # type: ignore[attr-defined]
        check.examples.append(Example(text, facts, at))  # type: ignore[attr-defined]
        return check

    return add


def _unindented(text: str) -> str:
    first, _, rest = text.strip().partition("\n")
    return (first + "\n" + "\n".join(line.removeprefix("    ") for line in rest.split("\n"))).strip()
