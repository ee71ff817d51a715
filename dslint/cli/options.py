"""Options that several commands share, and what they mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TextIO, TypeVar

import click

from dslint.facts import NEWEST, OLDEST, Facts, Integration, Release
from dslint.rule import Rule
from dslint.rules import all_rules

Command = TypeVar("Command", bound=Callable[..., Any])


class ReleaseType(click.ParamType):  # type: ignore[type-arg] # older releases of click have no parameter here
    """A DeepSpeed release: 0.16.9, or 0.16 for its last patch."""

    name = "release"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Release:
        if isinstance(value, Release):
            return value
        try:
            release = Release.parse(value)
        except ValueError:
            self.fail(f"{value!r} is not a DeepSpeed release; write it like 0.16.9 or 0.16", param, ctx)
        if release < OLDEST:
            self.fail(f"DeepSpeed {release} is older than {OLDEST}, the oldest that dslint knows", param, ctx)
        return release


@dataclass(frozen=True, slots=True)
class FactsOptions:
    """The facts as options gave them."""

    world_size: int | None
    integration: str | None
    deepspeed: Release | None

    def facts(self) -> Facts:
        return Facts(self.world_size, Integration(self.integration) if self.integration else None, self.deepspeed or NEWEST)


def facts_options(command: Command) -> Command:
    """Add the options for facts to a command, which receives them as one argument `facts`."""

    def with_facts(world_size: int | None, integration: str | None, deepspeed: Release | None, **rest: Any) -> Any:
        return command(facts=FactsOptions(world_size, integration, deepspeed), **rest)

    with_facts.__doc__ = command.__doc__
    with_facts.__click_params__ = list(getattr(command, "__click_params__", []))  # type: ignore[attr-defined]
    for option in reversed(
        (
            click.option("--world-size", type=click.IntRange(min=1), metavar="N", help="The number of ranks (GPUs) of the whole job."),
            click.option(
                "--integration", type=click.Choice([i.value for i in Integration]), help='Who loads the config, and so replaces "auto".'
            ),
            click.option(
                "--deepspeed", type=ReleaseType(), metavar="RELEASE", help=f"The DeepSpeed release that will run it.  [default: {NEWEST}]"
            ),
        )
    ):
        option(with_facts)
    return with_facts  # type: ignore[return-value]


def choose_rules(select: Iterable[str], ignore: Iterable[str]) -> list[Rule]:
    """The rules that --select and --ignore leave. A word is a code, a name, or the beginning of codes (`DS5`).

    Raises:
        click.UsageError: a word that means no rule.
    """
    rules = all_rules()
    selected, ignored = _words(select), _words(ignore)
    for option, words in (("--select", selected), ("--ignore", ignored)):
        for word in words:
            if not any(_means(word, rule) for rule in rules):
                raise click.UsageError(f"{option}: {no_such_rule(word)}")
    return [r for r in rules if (not selected or any(_means(w, r) for w in selected)) and not any(_means(w, r) for w in ignored)]


def no_such_rule(word: str) -> str:
    """A sentence that says that there is no such rule, and which one may be meant."""
    from difflib import get_close_matches

    names = [name for rule in all_rules() for name in (rule.code, rule.name)]
    close = get_close_matches(word, names, n=1, cutoff=0.6) or get_close_matches(word.upper(), names, n=1, cutoff=0.6)
    return f"there is no rule {word!r}." + (f" Did you mean {close[0]!r}?" if close else "") + " `dslint rule` lists them all."


def _words(options: Iterable[str]) -> list[str]:
    return [word.strip() for option in options for word in option.split(",") if word.strip()]


def _means(word: str, rule: Rule) -> bool:
    code = word.upper()
    return word.lower() == rule.name or (code.startswith("DS") and code[2:].isdigit() and rule.code.startswith(code))


def wants_color(choice: str, out: TextIO) -> bool:
    """Whether to colour: as chosen; else as NO_COLOR and FORCE_COLOR say; else if a person is watching."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return out.isatty() and os.environ.get("TERM") != "dumb"
