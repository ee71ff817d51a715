"""DS0: comments that tell dslint to ignore a finding."""

from __future__ import annotations

from collections.abc import Iterator

from dslint.diagnostics import Effect
from dslint.rule import Finding, FixPlan, bad, good, rule, safe
from dslint.rules.helpers.json_syntax import HJSON_SYNTAX
from dslint.source.change import Replace
from dslint.source.ignores import Ignore, IgnoreComments, IgnoreUse
from dslint.source.tree import Document


@rule("DS006", effect=Effect.ADVICE, references=(HJSON_SYNTAX,), watches=("ignores",))
@bad(
    '// dslint: ignore\n{"train_micro_batch_size_per_gpu": 4}',
    at="",
    integration="deepspeed",
    message="This comment ignores nothing: no rules in brackets; dslint cannot ignore all rules at once.",
)
@bad(
    '{"train_micro_batch_size_per_gpu": 4 // dslint: ignore[DS201]\n}',
    at="",
    integration="deepspeed",
    message="This comment ignores DS201 without a reason.",
)
@bad(
    '// dslint: ignore-file[no-such-rule] because\n{"train_micro_batch_size_per_gpu": 4}',
    at="",
    integration="deepspeed",
    message='Unknown rule in ignore comment: unknown rule "no-such-rule". Did you mean "no-launcher"? `dslint rule` lists all rules, `dslint rule --key KEY` those about a key.',
)
@good('// dslint: ignore-file[DS201] the batch is set by the program\n{"train_micro_batch_size_per_gpu": 4}', integration="deepspeed")
def malformed_ignore(comments: IgnoreComments) -> Iterator[Finding]:
    """A comment that begins with "dslint:" does not name the rules to ignore, or gives no reason.

    dslint understands three forms:

        // dslint: ignore[offload-param-below-stage-3] reason
        // dslint: ignore[DS501, DS502] reason
        // dslint: ignore-file[not-strict-json] reason

    `ignore` at the end of a line applies to that line; on a line of its own it applies to the member below it, with everything inside.
    Name the rules by code or name. There is no form for all rules at once, because it would hide new mistakes together with the known
    one. A comment without a reason works, but a later reader cannot tell whether it can be deleted.
    """
    for use in comments.uses:
        ignore, unknown = use.ignore, use.unknown
        if ignore.problem:
            message = f"This comment ignores nothing: {ignore.problem}."
        elif unknown:
            message = f"Unknown rule in ignore comment: {unknown}"
        elif not ignore.reason:
            message = f"This comment ignores {' and '.join(ignore.words)} without a reason."
        else:
            continue
        yield Finding("", message, help=_FORM, span=ignore.comment.span, costly=True)


_FORM = "Write `// dslint: ignore[RULE] reason`, with the code or name of a rule."


@rule("DS007", effect=Effect.ADVICE, references=(HJSON_SYNTAX,), watches=("ignores",))
@bad(
    '// dslint: ignore-file[DS501] we will raise the stage\n{"train_micro_batch_size_per_gpu": 4}',
    at="",
    integration="deepspeed",
    message="This comment ignores DS501, but DS501 finds nothing in this file.",
    fixed='{"train_micro_batch_size_per_gpu": 4}',
)
@good(
    '{"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2,\n'
    ' // dslint: ignore[offload-param-below-stage-3] we will raise the stage\n "offload_param": {"device": "cpu"}}}',
    integration="deepspeed",
)
def unused_ignore(comments: IgnoreComments) -> Iterator[Finding]:
    """A comment ignores a rule that finds nothing there.

    The mistake that it was written for has been fixed or has moved. An unused comment hides the next mistake of the same kind. dslint
    reports a comment as unused only when its rule ran: not when the rule is deselected, or requires a fact that is unknown.

    Delete the comment, or the name of the rule from it.
    """
    for use, word in [(used, word) for used in comments.uses for word in used.unused]:
        ignore = use.ignore
        reason = "no key follows it" if ignore.nothing else f"{word} finds nothing {_scope(ignore)}"
        yield Finding(
            "",
            f"This comment ignores {word}, but {reason}.",
            help="Delete it.",
            span=ignore.comment.span,
            fix=_delete_unused(comments.document, use),
            costly=True,
        )


def _delete_unused(document: Document, use: IgnoreUse) -> FixPlan:
    """Delete the unused rules from a comment, or the whole comment if it names no others."""
    from dslint.source.edit import without

    ignore = use.ignore
    left = [word for word in ignore.words if word not in use.unused]
    if not left:
        return safe("delete the comment", without(document, ignore.comment.span))
    before, _, after = ignore.comment.text.partition("[")
    return safe(
        f"delete {' and '.join(sorted(use.unused))}", Replace(ignore.comment.span, f"{before}[{', '.join(left)}]{after.partition(']')[2]}")
    )


def _scope(ignore: Ignore) -> str:
    """Where the ignored finding would have to be, in words."""
    if ignore.line is not None:
        return "on this line"
    return "in this file" if ignore.path is None else f"at or below {'.'.join(map(str, ignore.path)) or 'the top level'}"
