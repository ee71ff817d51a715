"""DS0: the syntax of the file: what hjson cannot read, what only hjson reads, and strings without quotes."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.diagnostics import Effect, LoadStep, Phase
from dslint.facts import Integration
from dslint.rule import Finding, FixPlan, bad, good, rule, safe, unsafe
from dslint.rules.helpers.fixes import json_text
from dslint.rules.helpers.json_syntax import HJSON_SYNTAX, PYTHON_WORDS, STRICT_JSON_LOADERS, intended_json
from dslint.source.change import Replace, Set
from dslint.source.tree import Departure, Document, Mapping, Node, Path, Scalar, Sequence


@rule(
    "DS001",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=(HJSON_SYNTAX,),
    watches=("text",),
)
@bad('{"train_micro_batch_size_per_gpu" 4}', at="", message='Expected ":" after the key "train_micro_batch_size_per_gpu", found "4".')
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}', at="", message='The "{" that opens the file is never closed.'
)
@good('{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}')
@good("train_micro_batch_size_per_gpu: 4 # hjson needs neither quotes nor braces\n")
def syntax_error(config: Config) -> Iterator[Finding]:
    """The file is neither valid JSON nor valid HJSON.

    DeepSpeed loads the file with hjson, which accepts comments, trailing commas and missing quotes. This rule reports what hjson does
    not accept: it raises `HjsonDecodeError`, and the job ends before DeepSpeed allocates anything.

    Correct each mistake at its place. dslint reports each one once, and still checks as much of the rest of the file as it can read.
    """
    if config.document.problems and config.document.text.startswith("version https://git-lfs"):
        message = "The file is a pointer of Git LFS, not the config: it has not been downloaded."
        yield Finding("", message, help="Run git lfs pull.", span=config.document.problems[0].span)
        return
    for problem in config.document.problems:
        word = PYTHON_WORDS.get(config.document.text[slice(*problem.span)])
        yield Finding(
            "",
            f"{problem.message[:1].upper()}{problem.message[1:].rstrip('.')}.",
            span=problem.span,
            fix=safe(f"write {word}", Replace(problem.span, word)) if word else None,
        )


@rule(
    "DS002",
    effect=Effect.CRASH,
    phase=Phase.LOAD,
    step=LoadStep.PLUGIN,
    untried="raised by the integration's own loader; the suite tries Python's json instead",
    references=("https://docs.python.org/3/library/json.html",),
    watches=("text",),
)
@bad(
    '{"train_batch_size": "auto", // filled by the Trainer\n "zero_optimization": {"stage": 2}}',
    at="",
    integration="transformers",
    message="A comment is not strict JSON: the Hugging Face Trainer reads the file with Python's json, which raises JSONDecodeError.",
    fixed='{"train_batch_size": "auto",\n "zero_optimization": {"stage": 2}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2,},}',
    at="",
    integration="accelerate",
    message="A trailing comma is not strict JSON (2 such places in this file): Accelerate reads the file with Python's json, which raises JSONDecodeError.",
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}',
)
@bad(
    "train_batch_size: auto\nzero_optimization:\n  stage: 2\n",
    at="",
    integration="transformers",
    message="This file is YAML, and the Hugging Face Trainer reads it with Python's json, which raises JSONDecodeError.",
)
@good('{"train_micro_batch_size_per_gpu": 4 // a comment\n}', integration="deepspeed")
@good('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}', integration="transformers")
def not_strict_json(config: Config) -> Iterator[Finding]:
    """The file has a comment, a trailing comma or a missing quote, which strict JSON loaders reject.

    DeepSpeed itself reads the file with hjson and accepts these. The Hugging Face Trainer, Accelerate and Lightning read it with
    Python's `json` and raise `JSONDecodeError`; so does every program that loads the file and passes DeepSpeed a dict.

    Write strict JSON, or pass the path of the file to `deepspeed.initialize` and tell dslint so with `--integration deepspeed`.
    """
    departures = config.document.departures
    if not departures or config.document.problems or config.facts.integration is Integration.DEEPSPEED:
        return
    loader = config.facts.integration
    strict = loader if loader in STRICT_JSON_LOADERS else None
    if strict is not None and _is_yaml(config.document):
        message = f"This file is YAML, and {strict.label} reads it with Python's json, which raises JSONDecodeError."
        yield Finding("", message, help="Write the config as JSON.", span=departures[0].span)
        return
    first = departures[0]
    others = [departure for departure in departures[1:] if departure.kind != first.kind]
    count = f" ({len(departures):,} such places in this file)" if len(departures) > 1 else ""
    related = tuple((departure.span, f"and {_DEPARTURES[departure.kind]}") for departure in _first_of_each_kind(others))
    found = f"{_DEPARTURES[first.kind].capitalize()} is not strict JSON{count}"
    if strict is not None:
        message = f"{found}: {strict.label} reads the file with Python's json, which raises JSONDecodeError."
        yield Finding("", message, help=_STRICT_HELP, span=first.span, related=related, fix=_to_strict_json(config.document))
    elif not config.context.is_hjson:
        message = f"{found}. DeepSpeed's own loader accepts it; the Hugging Face Trainer, Accelerate, Lightning and json.load do not."
        yield Finding("", message, help=_STRICT_HELP, span=first.span, related=related, effect=Effect.ADVICE)


def _is_yaml(document: Document) -> bool:
    """Whether a text without outer braces is a YAML file: it has sections in YAML, which hjson reads as strings."""
    if not isinstance(document.root, Mapping) or all(one.kind != "no-root-braces" for one in document.departures):
        return False
    from dslint.source.yaml_tree import parse_yaml

    yaml = parse_yaml(document.text)
    if yaml.problems or not isinstance(yaml.root, Mapping):
        return False
    texts = {
        member.key.value for member in document.root.members if isinstance(member.value, Scalar) and isinstance(member.value.value, str)
    }
    return any(member.key.value in texts and isinstance(member.value, Mapping) for member in yaml.root.members)


def _to_strict_json(document: Document) -> FixPlan | None:
    """Write the same values as strict JSON; unsafe where that deletes comments."""
    from dslint.source.edit import CannotChange, to_strict_json

    try:
        changes = tuple(to_strict_json(document, comments=True))
    except CannotChange:
        return None
    if document.comments:
        return unsafe("write strict JSON, without the comments", *changes)
    return safe("write strict JSON", *changes)


_STRICT_HELP = "Write strict JSON, which every loader reads. If DeepSpeed gets the path of this file, pass `--integration deepspeed`."

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


def _first_of_each_kind(departures: list[Departure]) -> list[Departure]:
    kinds: dict[str, Departure] = {}
    for departure in departures:
        kinds.setdefault(departure.kind, departure)
    return list(kinds.values())


@rule("DS005", effect=Effect.SILENT, references=(HJSON_SYNTAX,), watches=("text",))
@bad(
    "{\n  train_micro_batch_size_per_gpu: 4\n  prescale_gradients: False,\n}",
    at="prescale_gradients",
    message='A value without quotes runs to the end of the line: DeepSpeed reads the string "False,".',
    fixed="{\n  train_micro_batch_size_per_gpu: 4\n  prescale_gradients: false\n}",
)
@bad(
    '{\n  "train_micro_batch_size_per_gpu": 4,\n  "wandb": {\n    "enabled": false,\n    "group": runs // of this week\n  }\n}',
    at="wandb.group",
    message='A value without quotes runs to the end of the line: DeepSpeed reads the string "runs // of this week".',
)
@good("{\n  train_micro_batch_size_per_gpu: 4\n  prescale_gradients: false\n}")
@good('{\n  "train_micro_batch_size_per_gpu": 4,\n  "wandb": {\n    "enabled": false,\n    "group": "runs" // of this week\n  }\n}')
def comma_or_comment_in_value(config: Config) -> Iterator[Finding]:
    """A string without quotes includes the comma or the comment after it.

    In HJSON, a value without quotes that is not a number, `true`, `false` or `null` is a string that runs to the end of its line.
    `False,` is the string "False,", and `NaN // note` is a string that includes the comment. Where DeepSpeed expects a boolean and reads
    the key without a type check, every non-empty string counts as true.

    Write JSON: `false` and `null` in lower case, strings in double quotes.
    """
    refused = {violation.path for violation in config.violations if violation.raises}
    for path, node in _scalars(config.document.root, ()):
        meant = intended_json(node)
        if meant is not None and path not in refused:
            yield Finding(
                path,
                f"A value without quotes runs to the end of the line: DeepSpeed reads the string {json_text(node.value)}.",
                help=f"Write {meant}; a comma or comment can follow it.",
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
