"""A run over many files: each with the settings nearest to it, in one process or several."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.load import load_text, take
from dslint.diagnostics import Applicability, NotJudged
from dslint.evaluate.files import is_setup, may_concern_deepspeed
from dslint.lint.discovery import CONFIGS, Target, shown, with_mentions
from dslint.lint.document import lint_loaded, lint_opened
from dslint.lint.evidence import contexts_of
from dslint.lint.guard import guarded
from dslint.lint.names import Says, says
from dslint.lint.patterns import matches
from dslint.lint.results import FileResult, Suppressed, SuppressedBy
from dslint.registry.selection import Selection, choose
from dslint.rule import RuleInfo
from dslint.settings import Finder, Settings
from dslint.source.read import ReadError, decode, read_bytes
from dslint.source.store import Store, a_run
from dslint.source.tree import Document, Mapping

PARALLEL_FROM = 400
"""The number of files from which several processes are faster."""

FOREIGN = (".toml", ".ini", ".cfg", ".md", ".rst", ".xml", ".html", ".csv", ".lock")
"""Endings of files that are not configs, even if they are named."""

CHUNK = 40
"""Files per chunk for a process."""

Progress = Callable[[int], None]
"""Called with the number of additional finished files."""


def lint_target(target: Target, settings: Settings) -> list[FileResult]:
    """Lint a file with its settings, and the configs that it names. Empty for a discovered file that is not a config."""
    with a_run():
        return _lint_target(target, settings)


def _lint_target(target: Target, settings: Settings) -> list[FileResult]:
    # A hook names every file of a type: skip those that are not about DeepSpeed.
    named = target.named and not (is_setup(target.path) and settings["force-exclude"])
    if target.outside is not None:
        note = f"this link leads out of the project, to {shown(target.outside)}; name it to check it."
        return [with_severities(FileResult(shown(target.path), FileKind.UNREADABLE, note=note, not_judged=(NotJudged(note),)), settings)]
    try:
        data = read_bytes(target.path)
        if not named and is_setup(target.path) and not may_concern_deepspeed(data):
            return []
        text = decode(data, target.path)
    except ReadError as error:
        result = FileResult(shown(target.path), FileKind.UNREADABLE, context=settings.context)
        if is_setup(target.path) and not named:
            return [with_severities(result._replace(not_judged=(NotJudged(str(error)),)), settings)]
        return [with_severities(result._replace(error=str(error)), settings)]
    led = contexts_of(target.path, settings.context) if named and not is_setup(target.path) else ()
    return lint_given(text, target.path, settings, named=named, hinted=target.mentioned, led=led)


def lint_given(
    text: str, path: str, settings: Settings, *, named: bool = True, hinted: bool = False, led: Sequence[Context] = ()
) -> list[FileResult]:
    """Lint a text as if it were the file `path`. The first result is for the file itself, others for the configs that it names.

    `led` is what is known in the trainings that lead to it; it is linted with each. `hinted` says that a program mentions a discovered file
    (not `named`). Empty for a discovered file that is not a config.
    """
    with a_run():
        return _lint_given(text, path, settings, named=named, hinted=hinted, led=led)


def _lint_given(text: str, path: str, settings: Settings, *, named: bool, hinted: bool, led: Sequence[Context]) -> list[FileResult]:
    rules, name = settings.rules, shown(path)
    if is_setup(path):
        from dslint.lint.setups import lint_setup_text

        found = lint_setup_text(text, path, name, settings.context, rules, named=named)
    elif led:
        from dslint.lint.setups import merged

        document = load_text(text, led[0]).document
        found = [_own(result) for result in merged(lint_loaded(take(document, given), name, rules) for given in led)]
    else:
        found = lint_config(text, path, settings.context, rules, named=named, hinted=hinted)
    wanted = rules_for(path, settings)
    if len(wanted) < len(rules):
        left_out = {rule.code for rule in rules} - {rule.code for rule in wanted}
        found = [_without(result, left_out) for result in found]
    return [with_severities(result, settings) for result in found]


def _without(result: FileResult, codes: set[str]) -> FileResult:
    """The result with the findings of these rules suppressed by the settings, as if the rules did not run."""
    left_out = tuple(Suppressed(d, SuppressedBy.SETTINGS, "per-file-ignores") for d in result.diagnostics if d.code in codes)
    return result._replace(
        diagnostics=tuple(d for d in result.diagnostics if d.code not in codes),
        suppressed=(*result.suppressed, *left_out),
        ran=result.ran - codes,
        skipped=tuple(one for one in result.skipped if one.code not in codes),
    )


def _own(result: FileResult) -> FileResult:
    """The result with the findings in the file itself. Those in a file that leads to it belong to the check of that file."""
    return result._replace(diagnostics=tuple(d for d in result.diagnostics if d.path == result.path))


def lint_config(text: str, path: str, given: Context, rules: Sequence[RuleInfo], *, named: bool, hinted: bool = False) -> list[FileResult]:
    """Lint a JSON text: a config, or a file that names one. A file that is only found has a result if its name or its text says so."""
    if path.lower().endswith(FOREIGN) or (named and _is_plain_text(text, path)):
        note = "not a DeepSpeed config: a config is a JSON file."
        return [FileResult(shown(path), FileKind.UNRELATED, note=note, context=given, not_judged=(NotJudged(note),))] if named else []
    name_says = Says.NOTHING if named else says(path)
    loaded = load_text(text, given, named=named or name_says is Says.CONFIG, hinted=hinted or name_says is Says.MAYBE)
    if name_says is Says.CONFIG and loaded.kind is FileKind.DS_CONFIG and _holds_other_data(loaded.document):
        loaded = loaded._replace(kind=FileKind.UNRELATED, note="not checked: a config is an object, and this is another JSON value.")
    if loaded.kind in (FileKind.TRAINING, FileKind.ACCELERATE):
        from dslint.lint.setups import lint_tree

        return lint_tree(loaded.document, path, shown(path), given, rules, named=named)
    result = lint_opened(loaded, shown(path), rules, named=named or name_says is Says.CONFIG)
    return [result] if result is not None else []


def _holds_other_data(document: Document) -> bool:
    """Whether a text is sound JSON of another kind than an object: a list of results, say."""
    return document.root is not None and not isinstance(document.root, Mapping) and not document.problems


def _is_plain_text(text: str, path: str) -> bool:
    """Whether a file is another one than a config, such as a hostfile: neither its name nor its text is that of JSON."""
    if path.startswith("<") or path.lower().endswith(CONFIGS) or "{" in text or text.lstrip().startswith("["):
        return False
    return bool(text.strip()) and not _MEMBER.search(text)


_MEMBER = re.compile(r"^\s*[\"']?\w+[\"']?\s*:", re.MULTILINE)
"""A key with its colon, which HJSON accepts at the top level without braces."""


def lint_launch(command: str, settings: Settings) -> list[FileResult]:
    """Lint the setup of a launch command."""
    from dslint.lint.setups import lint_command

    return [with_severities(result, settings) for result in lint_command(command, settings.context, settings.rules)]


def rules_for(path: str, settings: Settings, chosen: Sequence[RuleInfo] | None = None) -> Sequence[RuleInfo]:
    """The rules to run on a file: the chosen ones (by default those of the settings) without its `per-file-ignores`."""
    rules = settings.rules if chosen is None else chosen
    tables = settings.based("per-file-ignores")
    unwanted = [words for base, table in tables for pattern, words in table.items() if matches(path, base, [pattern])]
    return choose(rules, [Selection(ignore=tuple(word for words in unwanted for word in words))]) if unwanted else rules


def with_severities(result: FileResult, settings: Settings) -> FileResult:
    """The result with the severities and the `fail-on` of the settings."""
    chosen = settings.severity
    judged = tuple(d._replace(severity=chosen.get(d.code, d.severity)) for d in result.diagnostics) if chosen else result.diagnostics
    return result._replace(diagnostics=judged, fail_on=settings["fail-on"])


def lint_all(targets: Sequence[Target], finder: Finder, *, jobs: int | None = None, progress: Progress | None = None) -> list[FileResult]:
    """Lint files; the results are in the order of the files.

    Args:
        targets: the files.
        finder: finds their settings.
        jobs: the number of processes; None to choose by the number of files and cores.
        progress: called with the number of additional finished files.
    """
    if jobs is None:
        jobs = min(_cores(), len(targets) // (PARALLEL_FROM // 2)) if len(targets) >= PARALLEL_FROM else 1
    targets = with_mentions(targets)
    chunks = [targets[start : start + CHUNK] for start in range(0, len(targets), CHUNK)]
    results: list[FileResult] = []
    with a_run(Store()):
        for chunk in _in_processes(chunks, finder, jobs) if jobs > 1 else (_lint_chunk(chunk, finder) for chunk in chunks):
            results += [result for of_target in chunk for result in of_target]
            if progress:
                progress(len(chunk))
    return combined(results, targets)


def combined(results: list[FileResult], targets: Iterable[Target]) -> list[FileResult]:
    """One result for each file, also where several trainings lead to it. Files that are not targets are not to be fixed."""
    if not any(result.context.setup is not None for result in results):
        return results
    from dslint.lint.setups import merged

    asked = {shown(target.path) for target in targets}
    return [result if result.path in asked else unasked(result) for result in merged(results)]


def unasked(result: FileResult) -> FileResult:
    """The result for a file that is not among the targets but named by one; it gets no fixes."""
    shown_only = (d._replace(fix=d.fix._replace(applicability=Applicability.DISPLAY)) if d.fix else d for d in result.diagnostics)
    return result._replace(diagnostics=tuple(shown_only))


def _lint_chunk(targets: Iterable[Target], finder: Finder) -> list[list[FileResult]]:
    return [guarded(partial(_lint_one, target, finder), shown(target.path)) for target in targets]


def _lint_one(target: Target, finder: Finder) -> list[FileResult]:
    return lint_target(target, finder.for_file(target.path))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_processes(chunks: Iterable[Sequence[Target]], finder: Finder, jobs: int) -> Iterator[list[list[FileResult]]]:
    from multiprocessing import get_all_start_methods, get_context

    # fork starts fast with all modules imported, and is safe because there are no threads here.
    context = get_context("fork" if "fork" in get_all_start_methods() and os.name == "posix" else None)
    with context.Pool(jobs, _begin, (finder,)) as pool:
        yield from pool.imap(_lint_in_process, chunks)


_finder: Finder
"""In a process: where the settings are."""


def _begin(finder: Finder) -> None:
    """Initialize a worker process: only the parent handles interrupts."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    global _finder  # noqa: PLW0603 - what the initializer of a pool is for
    _finder = finder


def _lint_in_process(targets: Sequence[Target]) -> list[list[FileResult]]:
    return [[_without_ballast(result) for result in of_target] for of_target in _lint_chunk(targets, _finder)]


def _without_ballast(result: FileResult) -> FileResult:
    """The result without the document where no report quotes it, and no comment in it speaks to dslint."""
    speaks = result.document is not None and any("dslint" in comment.text for comment in result.document.comments)
    return result if result.diagnostics or speaks else result._replace(document=None)
