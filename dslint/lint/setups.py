"""Lint setups: each config together with the files around it; a finding goes to the file it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from os.path import normpath

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.infer import infer
from dslint.diagnostics import Diagnostic, Effect, Related, Severity
from dslint.facts import Facts
from dslint.frameworks.loader import with_loaders
from dslint.job.model import Assumed, Setup
from dslint.lint.document import Linted, lint_document
from dslint.lint.place import by_place
from dslint.lint.results import FileResult
from dslint.not_judged import NotJudged, repetition
from dslint.rule import RuleInfo
from dslint.setups.gather import LoadedSetup, Read, reasons_of
from dslint.source.tree import Document

COMMAND = "<command>"
"""The name under which a command from the command line is reported."""


def lint_command(text: str, given: Facts | Context, rules: Sequence[RuleInfo]) -> list[FileResult]:
    """Lint the setup of a launch command, given as text."""
    from dslint.setups.script import read_shell

    context = with_loaders(given)
    found = read_shell(text, "command", COMMAND, context, named=True)
    assert found is not None, "a named text always has a result"
    return lint_read(found, COMMAND, context, rules)


def lint_read(found: Read, shown: str, given: Context, rules: Sequence[RuleInfo]) -> list[FileResult]:
    """Lint a file that was read: one result for the file itself, and one for each file that it names."""
    if found.kind is FileKind.UNREADABLE:
        return [FileResult(shown, FileKind.UNREADABLE, error=found.note, context=given)]
    reasons = (one._replace(path="") if one.path and normpath(one.path) == normpath(shown) else one for one in reasons_of(found))
    not_judged = tuple(_once_for_each_place(reasons))
    results = [FileResult(shown, found.kind, found.document, note=found.note, context=given, not_judged=not_judged)]
    of_each: list[tuple[Assumed, FileResult]] = []
    may_be_tried = not any(one.setup.one_of_several is not None and one.config is not None for one in found.setups)
    for gathered in found.setups:
        taken = gathered.setup.one_of_several
        if taken is None:
            results += _lint_one(gathered, shown, rules)
        elif not taken.tried:
            of_each += [(taken, one) for one in _lint_one(gathered, shown, rules)]
        if may_be_tried and gathered.setup.program is not None:
            from dslint.lint.tried import lint_tried  # most programs have a config
            from dslint.setups.tried_stages import tried

            of_each += lint_tried(tried(gathered), shown, rules)
    if of_each:
        from dslint.lint.assumed import of_each_config  # few programs have several

        results += of_each_config(of_each, results)
    if found.only_findings:
        return [result._replace(not_judged=()) for result in merged(results) if result.diagnostics]
    return [_without_repetition(result) if result.path == shown and found.kind is FileKind.SCRIPT else result for result in merged(results)]


def _once_for_each_place(reasons: Iterable[NotJudged]) -> Iterator[NotJudged]:
    """The first reason at each place: a line in a loop names one config after another."""
    by_place: dict[object, list[NotJudged]] = {}
    for reason in dict.fromkeys(reasons):
        by_place.setdefault((reason.path, reason.range) if reason.range else reason, []).append(reason)
    for first, *others in by_place.values():
        yield first._replace(repeated=len(others))


def _without_repetition(result: FileResult) -> FileResult:
    """The result for a script with one finding for a line that runs several times, as in a loop."""
    by_place: dict[object, list[Diagnostic]] = {}
    for diagnostic in result.diagnostics:
        by_place.setdefault((diagnostic.code, diagnostic.range) if diagnostic.range else diagnostic, []).append(diagnostic)
    if len(by_place) == len(result.diagnostics):
        return result
    kept = [
        first._replace(message=f"{first.message} {repetition(len(others))}") if others else first for first, *others in by_place.values()
    ]
    return result._replace(diagnostics=tuple(kept))


def _lint_one(gathered: LoadedSetup, shown: str, rules: Sequence[RuleInfo]) -> Iterable[FileResult]:
    setup = gathered.setup
    config, context, at = gathered.config, gathered.context, setup.config or shown
    if config is None:
        asked = [rule for rule in rules if rule.setup]
        linted = lint_document(Document("", None, language="text"), "", context, asked)
        linted = Linted(tuple(d for d in linted.diagnostics if d.path), (), frozenset())  # no config was judged
    else:
        context = infer(config, context)
        linted = lint_document(config, at, context, rules)
    yield from _by_file(gathered, context, linted, at if config is not None else shown)
    for path, error in gathered.errors.items():
        yield FileResult(path, FileKind.UNREADABLE, error=error, context=context)


def _by_file(gathered: LoadedSetup, context: Context, linted: Linted, at: str) -> Iterable[FileResult]:
    written_for, launched = _written_for(gathered, at), _launched(gathered)
    for path in dict.fromkeys([at, *gathered.documents, *(d.path for d in linted.diagnostics)]):
        document = gathered.documents.get(path)
        of_file = [d for d in linted.diagnostics if d.path == path]
        if written_for is not None and path == at:
            of_file = [d._replace(related=(*d.related, written_for)) for d in of_file]
        if launched is not None and launched.path != path:
            of_file = [d._replace(related=(*d.related, launched)) for d in of_file]
        kind = _kind(gathered, path, document)
        skipped, not_judged = (linted.skipped, linted.not_judged) if path == at else ((), ())
        yield FileResult(path, kind, document, tuple(of_file), skipped, context=context, ran=linted.ran, not_judged=not_judged)


def _kind(gathered: LoadedSetup, path: str, document: Document | None) -> FileKind:
    """The kind of a file of a setup; `document` is None for one that was not read for it: a module of a program with a finding in it."""
    if document is None:
        return gathered.kinds.get(path, FileKind.PYTHON if path.endswith(".py") else FileKind.TRAINING)
    return FileKind.DS_CONFIG if document is gathered.config else gathered.kinds.get(path, FileKind.TRAINING)


def _written_for(gathered: LoadedSetup, at: str) -> Related | None:
    """The launch of the script that writes a config from the file at `at`: other scripts may write another one from it."""
    config, link = gathered.config, gathered.setup.link
    if config is None or config.language != "text" or link is None or link.path == at:
        return None
    return Related(link.path, "the config that this script writes is used here", range=link.range)


def _launched(gathered: LoadedSetup) -> Related | None:
    """The launch of a program that has its config in it: the flags of each launch may fill it in another way."""
    config, launch = gathered.config, gathered.setup.launch
    passed = launch.passed if launch is not None else None
    if config is None or config.language != "python" or passed is None:
        return None
    return Related(passed.program.path, "the program is launched here", range=passed.program.range)


def merged(results: Iterable[FileResult]) -> list[FileResult]:
    """One result per file, in the order of the files. Findings that several setups agree on are kept once.

    A config that setups name is reported with those setups only, not a second time by itself.
    """
    by_path: dict[str, list[FileResult]] = {}
    for result in results:
        by_path.setdefault(normpath(result.path), []).append(result)
    return [_merged(of_file) for of_file in by_path.values()]


def _is_by_itself(result: FileResult) -> bool:
    """Whether a result is for a config that no other file names, or only a file of a program that says nothing else of the training."""
    setup = result.context.setup
    return setup is not None and setup == Setup(config=setup.config, link=setup.link)


def _merged(results: list[FileResult]) -> FileResult:
    judged = [result for result in results if result.context.setup is not None and not _is_by_itself(result)]
    if not judged:  # a config in YAML is a setup, even by itself
        judged = [result for result in results if result.context.setup is not None]
    alone = [result for result in results if result.context.setup is None]
    if not judged:
        return results[0]
    if any(_has_config(one) for one in judged):  # it answers for those that are tried in the place of an unknown one
        judged = [one if _has_config(one) else _without_tried(one) for one in judged]
    as_config = next((result for result in judged if result.ran and result.kind is FileKind.DS_CONFIG), None)
    if as_config is not None:
        # Scripts fill the template in, and what they write was judged: the placeholders no longer prevent that.
        alone = [result for result in alone if result.kind is not FileKind.TEMPLATE]
        results = [*alone, *judged]
    # The result without a setup knows the kind of the file; the findings come from its setups.
    first = alone[0] if alone else as_config or judged[0]
    setups = [one.context.setup for one in judged if one.context.setup is not None]
    if all(one.one_of_several is not None for one in setups):  # what the file shows by itself counts as well
        judged = [*alone, *map(partial(_without_known, known=alone), judged)]
    elif all(one.config is None for one in setups):  # a launch whose config is not known does not answer for those that are tried
        judged = [*(one for one in alone if any(d.rests_on_config for d in one.diagnostics)), *judged]
    asked = judged
    sure = [one for one in judged if not _is_taken_for_part(one)]
    if any(_has_config(one) for one in sure):  # a launch of a program that is not in the project uses the same config
        judged = [*sure, *(_without_known(one, known=sure) for one in judged if _is_taken_for_part(one))]
    used = {(d.code, d.range) for result in judged if not _is_definition(result) for d in result.diagnostics}
    diagnostics: dict[object, Diagnostic] = {}
    found = (d for one in judged for d in one.diagnostics if not _is_definition(one) or (d.code, d.range) not in used)
    for diagnostic in (d for d in found if d.severity is not Severity.INFO or _all_agree(d, asked)):
        said = diagnostic.cause.name if diagnostic.cause is not None and diagnostic.cause.across else diagnostic.message
        said = said.replace(" may raise ", " raises ")  # a module by itself does not know that a program calls its function
        key = diagnostic.code, diagnostic.range or diagnostic.pointer, said  # a program that reads a file knows no pointer
        if _says_more(diagnostic, diagnostics.setdefault(key, diagnostic)):
            diagnostics[key] = diagnostic
    trainings = [one for one in judged if _is_of_a_training(one)]  # a program that only names the file lacks their facts
    launched = any(result.ran and result.context.setup is not None and result.context.setup.launch is not None for result in judged)
    return first._replace(
        document=first.document or next((result.document for result in judged if result.document), None),
        diagnostics=tuple(sorted(_said_once(diagnostics.values()), key=by_place)),
        skipped=tuple(dict.fromkeys(skip for result in trainings or judged for skip in result.skipped)),
        ran=frozenset().union(*(result.ran for result in judged)),
        context=(trainings or judged)[0].context,
        not_judged=tuple(dict.fromkeys(one for result in results for one in result.not_judged if not (one.at_launch and launched))),
        note=first.note or next((result.note for result in judged if result.note), None),
        error=first.error or next((result.error for result in judged if result.error), None),
        left_out=max(result.left_out for result in judged),
    )


def _has_config(result: FileResult) -> bool:
    return result.context.setup is not None and result.context.setup.config is not None


def _is_taken_for_part(result: FileResult) -> bool:
    """Whether a config is only taken for that of a part of a program, which people post."""
    program = result.context.setup.program if result.context.setup is not None else None
    return program is not None and program.is_posted and program.assumed is not None


def _without_tried(result: FileResult) -> FileResult:
    """A result without a known config, without what rests on the configs that were tried in its place."""
    return result._replace(diagnostics=tuple(d for d in result.diagnostics if not d.rests_on_config))


def _is_of_a_training(result: FileResult) -> bool:
    setup = result.context.setup
    return setup is not None and (setup.launch is not None or setup.workload is not None)


def _said_once(found: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Findings without those that say of a place, in other words, what another one says: what only may be so beside what is so for sure,
    and what may be so in a program with several launches or configs.
    """
    alike: dict[object, list[Diagnostic]] = {}
    for d in found:
        alike.setdefault((d.code, d.range, d.help) if d.range is not None else d, []).append(d)
    for same in alike.values():
        sure = [d for d in same if d.certain]
        yield from sure or (same[:1] if same[0].path.endswith(".py") else same)


def _without_known(result: FileResult, known: Sequence[FileResult]) -> FileResult:
    """A result with a config that is only taken for that of a program, without mistakes that the file shows by itself as severely."""
    severity: dict[object, int] = {}
    for d in (d for one in known for d in one.diagnostics):
        place = d.code, d.range or d.pointer
        severity[place] = max(severity.get(place, 0), d.severity.rank)
    is_part = _is_taken_for_part(result)
    kept = (
        d
        for d in result.diagnostics
        if not (d.rests_on_config or is_part) or severity.get((d.code, d.range or d.pointer), -1) < d.severity.rank
    )
    return result._replace(diagnostics=tuple(kept))


def _says_more(one: Diagnostic, other: Diagnostic) -> bool:
    """Whether the first of two findings of the same mistake at the same place is the one to report."""
    first, second = ((d.severity.rank, d.fix is not None, d.pointer is not None) for d in (one, other))
    return first > second


def _all_agree(info: Diagnostic, judged: list[FileResult]) -> bool:
    """Whether no other setup contradicts what is only slow in one of them: a config for eight GPUs may also be tried on one.

    A setup contradicts if it has this config and its rule ran there without finding it.
    """
    if info.effect is not Effect.SLOW or info.pointer is None:
        return True
    asked = [one for one in judged if info.code in one.ran and one.kind is FileKind.DS_CONFIG]
    return all(any((d.code, d.pointer) == (info.code, info.pointer) for d in one.diagnostics) for one in asked)


def _is_definition(result: FileResult) -> bool:
    """Whether a config is only defined in a program: what uses it says more about it."""
    setup = result.context.setup
    return setup is not None and setup.launch is None and setup.program is not None and setup.program.loader is None
