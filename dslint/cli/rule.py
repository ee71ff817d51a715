"""`dslint rule`: explain a rule, list all rules, or find the rules behind an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import BinaryIO

import click

from dslint.cli.completion import complete_keys, complete_rules
from dslint.cli.options import color_option, run_settings, show_page, terminal_width, wants_color
from dslint.errors import UserError
from dslint.record import Record
from dslint.registry.rules import all_rules
from dslint.registry.selection import is_name_of, no_such_rule
from dslint.registry.watches import watched_keys
from dslint.report import rule_page
from dslint.rule import Rule, RuleInfo
from dslint.settings import Finder, from_environment

FOUND, NOTHING = 0, 1

ENOUGH = 4 * 2**20
"""The bytes at the end of a log that are searched for an error."""

LONGEST = 256 * 2**20
"""The most bytes that are read from standard input."""


class AnswerOutput(Record):
    """How an answer is printed: as JSON, or as a page of this width."""

    is_json: bool
    color: bool
    width: int


@click.command(name="rule", short_help="Explain a rule, list all rules, or find the rules behind an error.")
@click.argument("word", required=False, metavar="[CODE|NAME]", shell_complete=lambda _ctx, _param, word: complete_rules(word))
@click.option(
    "--error",
    metavar="TEXT|FILE|-",
    help='Find the cause of an error, and the rules behind it: a message, a traceback, a log file, or "-" for standard input.',
)
@click.option(
    "--key",
    metavar="KEY",
    shell_complete=lambda _ctx, _param, word: complete_keys(word),
    help="List the rules about a config key (zero_optimization.offload_param, or only offload_param), the keys below it, and its section.",
)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The output format.")
@color_option
def command(word: str | None, error: str | None, key: str | None, output_format: str, color: str) -> None:
    """Explain a rule: what it finds, why it matters, what to write instead. Without CODE or NAME, list all rules.
    A page that is longer than the terminal opens in the pager ($PAGER).

    With --error, exit with 1 if no cause is known; with --key, if no rule is about the key.
    """
    run_settings(Finder([from_environment(os.environ)]))[
        "plugins"
    ]  # reading the setting loads the plug-ins, so that their rules are listed
    out = AnswerOutput(is_json=output_format == "json", color=wants_color(color, sys.stdout), width=terminal_width(most=100))
    if sum(given is not None for given in (word, error, key)) > 1:
        raise click.UsageError("give only one of CODE or NAME, --error and --key.")
    if key is not None:
        sys.exit(_about(key, out))
    if error is not None:
        sys.exit(_behind(error, out))
    if word is None:
        _list(all_rules(), out)
        return
    for rule in all_rules():
        if is_name_of(word, rule):
            _explain(rule.load(), out)
            return
    raise click.UsageError(no_such_rule(word, all_rules()))


def _explain(rule: Rule, out: AnswerOutput) -> None:
    if out.is_json:
        from dslint.report import rule_json  # with what explains errors, for which a page does not wait

        click.echo(rule_json.of_rule(rule))
    else:
        show_page(rule_page.render(rule, color=out.color, width=out.width), color=out.color, paged=True)


def _list(rules: Sequence[RuleInfo], out: AnswerOutput) -> None:
    if out.is_json:
        from dslint.report import rule_json

        click.echo(rule_json.of_list(rules))
    else:
        show_page(rule_page.index(rules, color=out.color, width=out.width), color=out.color, paged=True)


def _about(key: str, out: AnswerOutput) -> int:
    """List the rules that watch a key, one below it or a section that it is in, and return the exit code."""
    places = _places(key)
    if len(places) > 1:
        return _nothing(f'"{key}" is a key of several sections; give one of: {", ".join(places)}', out)
    if places and places[0] != key:
        show_page(f'"{key}" is {places[0]}.', color=False, err=True)
        key = places[0]
    rules = [rule for rule in all_rules() if any(_concerns(path, key) for path in watched_keys(rule))]
    meant = _meant(key)
    if meant:
        return _nothing(f'DeepSpeed has no key "{key}". Did you mean {meant}?', out)
    if not rules:
        return _nothing(f'No rule is about the key "{key}".', out)
    _list(rules, out)
    return FOUND


def _nothing(why: str, out: AnswerOutput) -> int:
    """Say why there is no rule to list; JSON is an answer without rules."""
    show_page(why, color=False, err=True)
    if out.is_json:
        _list((), out)
    return NOTHING


def _places(key: str) -> list[str]:
    """The paths of a key that is given without its sections; empty if it is a path, or no key has this name."""
    from dslint.schemas.key_table import KEYS

    known = {*KEYS, *(path for rule in all_rules() for path in watched_keys(rule))}
    return [] if key in known else sorted(path for path in known if path.endswith(f".{key}"))


def _meant(key: str) -> str | None:
    """The key that a misspelt one is similar to; None for a key that exists, and for one that is similar to none."""
    from dslint.schemas.key_table import KEYS
    from dslint.source.similar import similar

    known = {*KEYS, *(path for rule in all_rules() for path in watched_keys(rule))}
    parts = key.split(".")
    for depth, part in enumerate(parts):
        section = "".join(f"{name}." for name in parts[:depth])
        names = {path.split(".")[depth] for path in known if path.startswith(section)}
        if part not in names:
            close = similar(part, sorted(names), cutoff=0.75) if "*" not in names else []
            return ".".join([*parts[:depth], close[0], *parts[depth + 1 :]]) if close else None
    return None


def _concerns(path: str, key: str) -> bool:
    return path == key or path.startswith(f"{key}.") or key.startswith(f"{path}.")


def _behind(text: str, out: AnswerOutput) -> int:
    """Print the causes of an error and the rules behind it, and return the exit code."""
    from dslint.diagnose.explain import explain
    from dslint.report import errors_page

    explanation = explain(_text_of(text))
    if not explanation.read:
        raise click.UsageError("--error got an empty text.")
    rules = {rule.code: rule for rule in all_rules()}
    if out.is_json:
        from dslint.report import rule_json

        click.echo(rule_json.of_error(explanation, rules))
    else:
        show_page(errors_page.render(explanation, rules, color=out.color, width=out.width), color=out.color)
    return FOUND if explanation.causes else NOTHING


def _text_of(given: str) -> str:
    """The text itself, or the end of the file of that name or of standard input."""
    if given == "-":
        data = _end_of(sys.stdin.buffer)
    elif "\n" not in given and len(given) < 1000 and os.path.isfile(given):
        try:
            with open(given, "rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - ENOUGH, 0))
                data = file.read(ENOUGH)
        except OSError as error:
            raise UserError(f"cannot read {given}: {error.strerror or error}") from None
    else:
        return given
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # PowerShell's ">" writes UTF-16
    return data.decode("utf-16" if wide else "utf-8", errors="replace").replace("\0", "")


def _end_of(log: BinaryIO) -> bytes:
    """The end of a log that is read as a stream, without holding all of it."""
    end, size = b"", 0
    while piece := log.read(2**20):
        end, size = (end + piece)[-ENOUGH:], size + len(piece)
        if size > LONGEST:
            raise UserError(f"the log on standard input is larger than {LONGEST // 2**20} MiB: pass its end, as `tail -c 4M` prints it.")
    return end
