"""DS0: the structure of the file: keys written twice, and a file that is not an object."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.config import Config
from dslint.config.detect import wrapper_of
from dslint.diagnostics import Effect, Phase
from dslint.evaluate.interpolation import is_for_omegaconf
from dslint.facts import PassedAs
from dslint.rule import Finding, FixPlan, bad, good, rule, safe, unsafe
from dslint.rules.helpers.json_syntax import STRICT_JSON_LOADERS
from dslint.source.change import Replace
from dslint.source.tree import Mapping, Member, Node, Path, Sequence, Span


@rule(
    "DS003",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/config_utils.py, dict_raise_error_on_duplicate_keys",),
    watches=("text",),
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": true}, "fp16": {"enabled": false}}',
    at="fp16",
    message='Duplicate key "fp16", first written in line 1: DeepSpeed may raise "Duplicate keys in DeepSpeed config".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}}',
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, "stage": 3}}',
    at="zero_optimization.stage",
    integration="deepspeed",
    message='Duplicate key "stage", first written in line 1: DeepSpeed raises "Duplicate keys in DeepSpeed config".',
    fixed='{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3}}',
)
@bad(
    '{"train_batch_size": "auto", "zero_optimization": {"stage": 2, "stage": 2}}',
    at="zero_optimization.stage",
    integration="transformers",
    message='Duplicate key "stage", first written in line 1: Python\'s json keeps one of the two, which are the same.',
    fixed='{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}',
)
@good('{"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": false}, "bf16": {"enabled": true}}')
def duplicate_key(config: Config) -> Iterator[Finding]:
    """An object has the same key twice.

    Given the path of the file, DeepSpeed raises `ValueError: Duplicate keys in DeepSpeed config`. A program or integration that reads the
    file with Python's `json` or with PyYAML gets no error: the last value counts, and the earlier ones are silently lost.

    Keep the value that you mean and delete the other.
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
    before: dict[str, int] = {}
    for index, member in enumerate(node.members):
        name = member.key.value
        if name in first:
            yield _duplicate(config, (*path, name), first[name], member, _keep_last(config, node, before[name], index))
        else:
            first[name] = member
        before[name] = index
        yield from _duplicates(config, member.value, (*path, name))


_DUPLICATES = {"DeepSpeed": 'DeepSpeed raises "Duplicate keys in DeepSpeed config"', "OmegaConf": 'OmegaConf raises "found duplicate key"'}
"""What readers say that refuse a key that is there twice."""


def _duplicate(config: Config, path: Path, first: Member, last: Member, fix: FixPlan) -> Finding:
    """The finding for a member that has the key of an earlier one."""
    reader, text = "DeepSpeed", config.document.text
    if config.document.language == "yaml":
        reader = "OmegaConf" if is_for_omegaconf(config.document) else "PyYAML"
    elif config.facts.integration in STRICT_JSON_LOADERS:
        reader = "Python's json"
    elif config.facts.passed_as is PassedAs.HJSON:
        reader = "the program reads the file with hjson, which"
    elif config.facts.is_dict:
        reader = "the program reads the file into a dict, which"
    line = config.document.position(first.key.span.start).line
    raises = _DUPLICATES.get(reader)
    same = text[slice(*first.value.span)] == text[slice(*last.value.span)]
    keeps = f"{reader} keeps one of the two, which are the same" if same else f"{reader} keeps the last value and silently drops the other"
    return Finding(
        path,
        f'Duplicate key "{last.key.value}", first written in line {line}: {raises or keeps}.',
        help="Delete one of the two." if same else "Keep the value that you mean and delete the other.",
        span=last.key.span,
        related=((first.key.span, "first written here"),),
        fix=fix,
        effect=None if raises else Effect.ADVICE if same else Effect.SILENT,
        certain=reader != "DeepSpeed" or config.facts.integration is not None,  # an unknown program may read the file with json
    )


def _keep_last(config: Config, node: Mapping, first: int, last: int) -> FixPlan:
    """Remove the first of two members with the same key, given by index. That is safe where the loader drops it, or where both values are the
    same.
    """
    from dslint.source.edit import remove_at

    text = config.document.text
    changes = [Replace(Span(start, end), content) for start, end, content in remove_at(config.document, node.members, [first])]
    same = text[slice(*node.members[first].value.span)] == text[slice(*node.members[last].value.span)]
    by_json = bool(config.facts.is_dict) or config.facts.passed_as is PassedAs.HJSON
    return (safe if by_json or same else unsafe)(f'remove the first "{node.members[last].key.value}"', *changes)


@rule(
    "DS008",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/config.py, DeepSpeedConfig",),
    watches=("text",),
)
@bad(
    '{"deepspeed": {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}}',
    at="",
    message='The config is below "deepspeed": if this file is passed to it, DeepSpeed looks for its keys at the top level and raises AssertionError "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided".',
)
@bad(
    '{"ds_config": {"train_batch_size": 32, "bf16": {"enabled": true}}}',
    at="",
    message='The config is below "ds_config": if this file is passed to it, DeepSpeed looks for its keys at the top level and raises AssertionError "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided".',
)
@good('{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}')
def config_below_a_key(config: Config) -> Iterator[Finding]:
    """The whole config is below one key, such as `deepspeed` or `ds_config`.

    DeepSpeed looks for its keys at the top level. If this file is passed to it, it finds no batch size and raises `AssertionError: Either
    train_batch_size or train_micro_batch_size_per_gpu needs to be provided`. dslint checks the object below the key. A program that reads the
    file and passes only that object is right; the finding is a warning as long as nothing names the file as a config.

    Move the keys to the top level.
    """
    wrapper = wrapper_of(config.document.whole or config.document)
    if wrapper is None or config.document.language not in ("json", "hjson"):
        return
    setup = config.setup
    if setup is not None and setup.launch is None and setup.link is None and setup.program is not None:
        return  # the program reads the file, and passes what it makes of it
    if setup is not None and setup.arguments is not None and setup.arguments.path == setup.config:
        return  # a file of training arguments: the Trainer takes the object below its key
    named = setup is not None
    yield Finding(
        "",
        f'The config is below "{wrapper.key.value}": {"" if named else "if this file is passed to it, "}DeepSpeed looks for its keys at the top level and raises AssertionError "Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided".',
        help=f'Move the keys to the top level, or pass only the object below "{wrapper.key.value}".',
        span=wrapper.key.span,
        certain=named,
    )


@rule(
    "DS004",
    effect=Effect.CRASH,
    phase=Phase.PARSE,
    references=("deepspeed/runtime/config.py, DeepSpeedConfig.__init__",),
    watches=("text",),
)
@bad("[1, 2]", at="", message="The file holds a list; DeepSpeed looks up keys in an object and raises an error.")
@bad('"ds_config"', at="", message='The file holds only "ds_config"; DeepSpeed looks up keys in an object and raises an error.')
@good('{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}')
def not_an_object(config: Config) -> Iterator[Finding]:
    """The file holds a list, a string or a number instead of an object.

    DeepSpeed looks up keys in what it has read and raises an `AttributeError` or `TypeError` that does not name the file.

    Put the settings in braces: `{"train_micro_batch_size_per_gpu": 4, ...}`.
    """
    root = config.document.root
    if isinstance(root, Mapping) or config.document.problems or root is None:
        return
    found = "a list" if isinstance(root, Sequence) else f"only {config.quote('')}"
    yield Finding(
        "",
        f"The file holds {found}; DeepSpeed looks up keys in an object and raises an error.",
        help="Put the settings in braces: { ... }.",
        span=Span(root.span.start, root.span.end),
    )
