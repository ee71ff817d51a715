"""DS0: the file itself, before any key of it is read."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, Phase, Severity
from dslint.facts import Integration
from dslint.registry.selection import is_name_of, no_such_rule
from dslint.rule import Finding, FixPlan, bad, good, rule, safe, unsafe
from dslint.rules.helpers.bare_strings import as_json, swallowed
from dslint.source.change import Replace, Set
from dslint.source.tree import Departure, Document, Mapping, Member, Node, Path, Scalar, Sequence, Span
from dslint.suppress.comments import Ignore

MINIMAL = '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}'

STRICT_LOADERS = (Integration.TRANSFORMERS, Integration.ACCELERATE, Integration.LIGHTNING)
"""Integrations that read the file with Python's `json`."""


@rule(
    "DS001",
    "syntax-error",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("https://hjson.github.io/syntax.html",),
    watches=("text",),
)
@bad('{"train_micro_batch_size_per_gpu" 4}', at="")
@bad('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}', at="")
@good(MINIMAL)
@good("train_micro_batch_size_per_gpu: 4 # hjson needs neither quotes nor braces\n")
def syntax_error(config: Config) -> Iterator[Finding]:
    """The file can be read neither as JSON nor as HJSON.

    DeepSpeed loads the file with hjson, which forgives comments, trailing commas and missing quotes. What is reported here is
    what even hjson refuses: it raises a `HjsonDecodeError`, and the job ends before the first tensor is made.

    Each mistake is reported once, at its own place; the rest of the file is still checked as far as it can be understood.
    """
    for problem in config.document.problems:
        yield Finding("", f"{problem.message[:1].upper()}{problem.message[1:].rstrip('.')}.", span=problem.span)


@rule(
    "DS002",
    "not-strict-json",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    untried="raised by the integration's own loader; the suite tries Python's json instead",
    references=("https://docs.python.org/3/library/json.html",),
    watches=("text",),
)
@bad('{"train_batch_size": "auto", // filled by the Trainer\n "zero_optimization": {"stage": 2}}', at="", integration="transformers")
@bad('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2,},}', at="", integration="accelerate")
@good('{"train_micro_batch_size_per_gpu": 4 // a comment\n}', integration="deepspeed")
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers")
def not_strict_json(config: Config) -> Iterator[Finding]:
    """A comment, a trailing comma or a missing quote, in a file that a strict JSON loader reads.

    DeepSpeed itself reads the file with hjson and does not mind. The Hugging Face Trainer, Accelerate and Lightning read it with
    Python's `json` and raise a `JSONDecodeError`; so does every program that loads the file and hands DeepSpeed a dict.

    Write strict JSON, or make sure that the path of the file is what `deepspeed.initialize` receives (`--integration deepspeed` says so).
    """
    departures = config.document.departures
    if not departures or config.document.problems or config.facts.integration is Integration.DEEPSPEED:
        return
    first = departures[0]
    rest = [d for d in departures[1:] if d.kind != first.kind]
    more = f" ({len(departures):,} such places in this file)" if len(departures) > 1 else ""
    related = tuple((d.span, f"and {_DEPARTURES[d.kind]}") for d in _one_of_each(rest))
    if config.facts.integration in STRICT_LOADERS:
        message = f"{_DEPARTURES[first.kind].capitalize()} is not strict JSON{more}: {config.facts.integration.label} reads the file with Python's json, which raises JSONDecodeError."
        yield Finding("", message, help=_STRICT_HELP, span=first.span, related=related, fix=_strict(config.document))
    else:
        message = f"{_DEPARTURES[first.kind].capitalize()} is not strict JSON{more}. DeepSpeed's own loader reads it; the Hugging Face Trainer, Accelerate, Lightning and json.load do not."
        yield Finding("", message, help=_STRICT_HELP, span=first.span, related=related, effect=Effect.ADVICE)


def _strict(document: Document) -> FixPlan | None:
    """Strict JSON of the same values. Where that costs comments it is not done unasked."""
    from dslint.source.edit import CannotChange, to_strict_json

    try:
        changes = tuple(to_strict_json(document, comments=True))
    except CannotChange:
        return None
    if document.comments:
        return unsafe("write strict JSON, without the comments", *changes)
    return safe("write strict JSON", *changes)


_STRICT_HELP = "Write strict JSON, which every loader reads, or say `--integration deepspeed` if DeepSpeed gets the path of this file."

_DEPARTURES = {
    "comment": "a comment",
    "trailing-comma": "a trailing comma",
    "missing-comma": "a missing comma",
    "bare-key": "a key without quotes",
    "bare-string": "a string without quotes",
    "single-quoted": "a string in single quotes",
    "multiline-string": "a string in triple quotes",
    "no-root-braces": "an object without braces",
    "bom": "a byte order mark",
    "empty": "an empty file",
    "odd-literal": "a literal that JSON does not have",
    "not-a-number": "a number that JSON does not have",
}


def _one_of_each(departures: list[Departure]) -> list[Departure]:
    kinds: dict[str, Departure] = {}
    for departure in departures:
        kinds.setdefault(departure.kind, departure)
    return list(kinds.values())


@rule("DS003", "duplicate-key", effect=Effect.CRASH, phase=Phase.PARSE, watches=("text",))
@bad('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "fp16": {"enabled": false}}', at="fp16")
@bad('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "stage": 3}}', at="zero_optimization.stage")
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}, "bf16": {"enabled": true}}')
def duplicate_key(config: Config) -> Iterator[Finding]:
    """A key is written twice in one object.

    DeepSpeed, given the path of the file, raises `ValueError: Duplicate keys in DeepSpeed config`. A program or integration that reads
    the file with Python's `json` never learns of it: the last one counts, the ones before it are lost without a word.

    Keep the one that is meant.
    """
    if config.document.root is not None:
        yield from _duplicates(config, config.document.root, ())


def _duplicates(config: Config, node: Node, path: Path) -> Iterator[Finding]:
    if isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            yield from _duplicates(config, item, (*path, index))
    if not isinstance(node, Mapping):
        return
    first: dict[str, Member] = {}
    for member in node.members:
        name = member.key.value
        here = (*path, name)
        if name in first:
            strict = config.facts.integration in STRICT_LOADERS
            line = config.document.position(first[name].key.span.start).line
            outcome = (
                "Python's json keeps the last one and loses the other"
                if strict
                else 'DeepSpeed raises "Duplicate keys in DeepSpeed config"'
            )
            yield Finding(
                here,
                f'"{name}" is written twice in one object, first in line {line}: {outcome}.',
                help="Keep the one that is meant.",
                span=member.key.span,
                related=((first[name].key.span, "first written here"),),
                fix=_keep_last(config.document, node, first[name], member, strict=strict),
                effect=Effect.SILENT if strict else None,
            )
        else:
            first[name] = member
        yield from _duplicates(config, member.value, here)


def _keep_last(document: Document, node: Mapping, first: Member, last: Member, *, strict: bool) -> FixPlan:
    """Take the first of two members out. That is safe where it never counted, or says the same."""
    from dslint.source.edit import remove_at

    edits = remove_at(document, node.members, next(number for number, member in enumerate(node.members) if member is first))
    changes = [Replace(Span(start, end), text) for start, end, text in edits]
    same = document.text[slice(*first.value.span)] == document.text[slice(*last.value.span)]
    return (safe if strict or same else unsafe)(f'remove the first "{last.key.value}"', *changes)


@rule("DS004", "not-an-object", effect=Effect.CRASH, phase=Phase.PARSE, watches=("text",))
@bad("[1, 2]", at="")
@bad('"ds_config"', at="")
@good(MINIMAL)
def not_an_object(config: Config) -> Iterator[Finding]:
    """The file holds a list, a string or a number in place of an object with keys.

    DeepSpeed looks keys up in what it has read and raises an `AttributeError` or `TypeError` that does not name the file.

    Put the settings in braces: `{"train_micro_batch_size_per_gpu": 4, ...}`.
    """
    root = config.document.root
    if isinstance(root, Mapping) or config.document.problems or root is None:
        return
    what = "a list" if isinstance(root, Sequence) else f"only {config.quote('')}"
    yield Finding(
        "",
        f"The file holds {what}; DeepSpeed looks for keys in an object and raises.",
        help="Put the settings in braces: { ... }.",
        span=Span(root.span.start, root.span.end),
    )


@rule("DS005", "swallowed-line", effect=Effect.SILENT, watches=("text",))
@bad("{\n  train_micro_batch_size_per_gpu: 4\n  prescale_gradients: False,\n}", at="prescale_gradients")
@bad(
    '{\n  "train_micro_batch_size_per_gpu": 4,\n  "wandb": {\n    "enabled": false,\n    "group": runs // of this week\n  }\n}',
    at="wandb.group",
)
@good("{\n  train_micro_batch_size_per_gpu: 4\n  prescale_gradients: false\n}")
@good('{\n  "train_micro_batch_size_per_gpu": 4,\n  "wandb": {\n    "enabled": false,\n    "group": "runs" // of this week\n  }\n}')
def swallowed_line(config: Config) -> Iterator[Finding]:
    """A string without quotes takes in the comma or the comment behind it.

    In HJSON a value that is no number, no `true`, `false` or `null` and has no quotes is a string that runs to the end of its line.
    `False,` is the string "False,", and `NaN // note` is a string with a comment in it: not what anybody means. A string that is not
    empty counts as true wherever DeepSpeed asks for a boolean by hand.

    Write JSON: `false` and `null` in small letters, strings in double quotes.
    """
    refused = {violation.path for violation in config.violations if violation.raises}
    for path, node in _scalars(config.document.root, ()):
        meant = swallowed(node)
        if meant is not None and path not in refused:
            yield Finding(
                path,
                f"Without quotes the value runs to the end of the line: DeepSpeed reads the string {as_json(node.value)}.",
                help=f"Write {meant}; a comma or comment may stand behind it.",
                on="value",
                fix=unsafe(f"write {meant}", Set(path, meant)) if " " not in str(node.value) else None,
            )


def _scalars(node: Node | None, path: Path) -> Iterator[tuple[Path, Scalar]]:
    if isinstance(node, Scalar):
        yield path, node
    elif isinstance(node, Mapping):
        for member in node.members:
            yield from _scalars(member.value, (*path, member.key.value))
    elif isinstance(node, Sequence):
        for index, item in enumerate(node.items):
            yield from _scalars(item, (*path, index))


@rule("DS006", "malformed-ignore", effect=Effect.ADVICE, watches=("text",))
@bad('// dslint: ignore\n{"train_micro_batch_size_per_gpu": 4}', at="", integration="deepspeed")
@bad('{"train_micro_batch_size_per_gpu": 4 // dslint: ignore[DS201]\n}', at="", integration="deepspeed")
@bad('// dslint: ignore-file[no-such-rule] because\n{"train_micro_batch_size_per_gpu": 4}', at="", integration="deepspeed")
@good('// dslint: ignore-file[DS201] the batch is set by the program\n{"train_micro_batch_size_per_gpu": 4}', integration="deepspeed")
def malformed_ignore(config: Config) -> Iterator[Finding]:
    """A comment that begins with "dslint:" does not say what to ignore, or not why.

    Three forms are understood:

        // dslint: ignore[offload-param-below-stage-3] reason
        // dslint: ignore[DS501, DS502] reason
        // dslint: ignore-file[not-strict-json] reason

    `ignore` at the end of a line is for that line; on a line of its own it is for the member below, and for all that is in it. Rules are
    named by code or name, never all at once, so that a new mistake is not hidden with the old. A comment without a reason works, but
    nobody will know whether it may go.
    """
    from dslint.registry.rules import all_rules

    known = all_rules()
    for ignore in config.ignores:
        unknown = [word for word in ignore.words if not any(is_name_of(word, rule) for rule in known)]
        if ignore.problem:
            said = f"This comment ignores nothing: {ignore.problem}."
        elif unknown:
            said = f"This comment ignores less than it means to: {no_such_rule(unknown[0], known)}"
        elif not ignore.reason:
            said = f"This comment ignores {' and '.join(ignore.words)} without saying why."
        else:
            continue
        yield Finding("", said, help=_IGNORE_HELP, span=ignore.comment.span, severity=Severity.WARNING)


_IGNORE_HELP = "Write `// dslint: ignore[RULE] reason`, with the code or name of a rule."


@rule("DS007", "unused-ignore", effect=Effect.ADVICE, last=True, watches=("text",))
@bad('// dslint: ignore-file[DS501] we will raise the stage\n{"train_micro_batch_size_per_gpu": 4}', at="", integration="deepspeed")
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2,\n'
    ' // dslint: ignore[offload-param-below-stage-3] we will raise the stage\n "offload_param": {"device": "cpu"}}}',
    integration="deepspeed",
)
def unused_ignore(config: Config) -> Iterator[Finding]:
    """A comment ignores a rule that finds nothing there.

    What it was written for has been mended, or has moved; left alone, it will hide the next mistake of the kind. A comment is only called
    unused when its rule was asked: not when the rule is deselected, or needs a fact that nobody gave.

    Delete the comment, or the name of the rule from it.
    """
    for ignore, word in config.unused_ignores:
        where = "there is nothing below it" if ignore.nothing else f"{word} finds nothing {_scope(ignore)}"
        yield Finding(
            "",
            f"This comment ignores {word}, but {where}.",
            help="Delete it.",
            span=ignore.comment.span,
            fix=_unignore(config, ignore),
            severity=Severity.WARNING,
        )


def _unignore(config: Config, ignore: Ignore) -> FixPlan:
    """Take the unused rules out of a comment, or the comment if nothing is left in it."""
    from dslint.source.edit import without

    unused = {word for other, word in config.unused_ignores if other is ignore}
    left = [word for word in ignore.words if word not in unused]
    if not left:
        return safe("delete the comment", without(config.document, ignore.comment.span))
    before, _, after = ignore.comment.text.partition("[")
    return safe(
        f"delete {' and '.join(sorted(unused))}", Replace(ignore.comment.span, f"{before}[{', '.join(left)}]{after.partition(']')[2]}")
    )


def _scope(ignore: Ignore) -> str:
    if ignore.line is not None:
        return "on this line"
    return "in this file" if ignore.path is None else f"at or below {'.'.join(map(str, ignore.path)) or 'the top level'}"
