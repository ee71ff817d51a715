"""A run over many files: each with the settings nearest to it, in one process or several."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from dslint.config.context import Context
from dslint.config.detect import FileKind
from dslint.config.load import take
from dslint.config.sections import is_habit
from dslint.diagnostics import Applicability, Diagnostic, Effect, Severity
from dslint.evaluate.files import may_concern_deepspeed, may_use_loader
from dslint.lint.discovery import Target, shown, with_mentions
from dslint.lint.document import lint_loaded, lint_opened
from dslint.lint.guard import guarded
from dslint.lint.patterns import matches
from dslint.lint.results import FileResult, Suppressed, SuppressedBy
from dslint.not_judged import NotJudged, Why, of_note
from dslint.registry.selection import Selection, choose
from dslint.rule import RuleInfo
from dslint.schemas.recognition import TELLING_KEYS
from dslint.settings import Finder, Settings
from dslint.setups.names import Says, says
from dslint.setups.open import Subject, opened
from dslint.setups.project import top_of
from dslint.source.read import ReadError, decode, read_bytes
from dslint.source.store import Store, a_run, store
from dslint.source.tree import Document, Mapping, Path

ALONE = 1.0
"""The seconds that one process works before all cores take part: most runs end before, and a fork keeps what is read until then."""

CHUNK = 10
"""Files per chunk for a process. Files beside each other share programs and modules, each of which is followed once by a process."""

Progress = Callable[[int], None]
"""Called with the number of additional finished files."""


def lint_target(target: Target, settings: Settings) -> list[FileResult]:
    """Lint a file with its settings, and the configs that it names. Empty for a discovered file that is not a config."""
    with a_run():
        return _lint_target(target, settings)


def _lint_target(target: Target, settings: Settings) -> list[FileResult]:
    # A hook names every file of a type: skip those that are not about DeepSpeed.
    named = target.named and not (target.leads and settings["force-exclude"])
    if target.outside is not None:
        why = NotJudged(Why.LINK_OUTSIDE, (shown(target.outside),))
        return [as_settings_say(FileResult(shown(target.path), FileKind.UNREADABLE, note=why.reason, not_judged=(why,)), settings)]
    data = b""
    try:
        data = read_bytes(target.path)
        told = settings.context.is_for_accelerate and b"ccelerat" in data
        if not named and target.leads and not told and not may_concern_deepspeed(data) and not may_use_loader(data):
            return []
        text = decode(data, target.path)
    except ReadError as error:
        if not named and not target.mentioned and _is_unreadable_data(target.path, error, data):
            return []
        result = FileResult(shown(target.path), FileKind.UNREADABLE, context=settings.context)
        if target.leads and not named:
            return [as_settings_say(result._replace(not_judged=(of_note(str(error)),)), settings)]
        return [as_settings_say(result._replace(error=str(error)), settings)]
    return _linted(opened(text, target.path, settings.context, named=named, hinted=target.mentioned), settings)


def _is_unreadable_data(path: str, error: ReadError, data: bytes) -> bool:
    """Whether a file of a folder that cannot be read is surely no config: its name says nothing of one, and it is too large for one, or has
    none of the keys that mark one, in any encoding. Data of trainings and vocabularies are such files.
    """
    if says(path) is not Says.NOTHING:
        return False
    if error.kind in ("binary", "encoding"):
        plain = data.replace(b"\0", b"")
        return not any(key.encode() in plain for key in TELLING_KEYS)
    return error.kind == "too-large"


def lint_given(
    text: str, path: str, settings: Settings, *, named: bool = True, hinted: bool = False, contexts: Sequence[Context] | None = None
) -> list[FileResult]:
    """Lint a text as if it were the file `path`. The first result is for the file itself, others for the configs that it names.

    `contexts` is what is known in the trainings that use it; by default the files near it are searched. `hinted` says that a program
    mentions a discovered file (not `named`). Empty for a discovered file that is not a config.
    """
    with a_run(store().with_text(path, text)):
        return _linted(opened(text, path, settings.context, named=named, hinted=hinted, contexts=contexts), settings)


def _linted(subject: Subject | None, settings: Settings) -> list[FileResult]:
    """The results for what was opened, as the settings report them."""
    if subject is None:
        return []
    found = lint_subject(subject, settings.context, settings.rules)
    wanted = rules_for(subject.path, settings)
    if len(wanted) < len(settings.rules):
        left_out = {rule.code for rule in settings.rules} - {rule.code for rule in wanted}
        found = [_without(result, left_out) for result in found]
    results = [as_settings_say(result, settings) for result in found]
    return results if settings["pedantic"] else [_for_a_part(result) for result in results]


def lint_subject(subject: Subject, given: Context, rules: Sequence[RuleInfo]) -> list[FileResult]:
    """Lint what was opened: a config by itself, or as each training uses it; the configs of a file that leads to some."""
    if subject.trainings is not None:
        from dslint.lint.setups import lint_read

        return lint_read(subject.trainings, subject.shown, given, rules)
    assert subject.loaded is not None
    if subject.contexts:
        from dslint.lint.setups import merged

        document = subject.loaded.document
        return [_own(result) for result in merged(lint_loaded(take(document, one), subject.shown, rules) for one in subject.contexts)]
    result = lint_opened(subject.loaded, subject.shown, rules, named=subject.named)
    return [result] if result is not None else []


FIXTURES = {"test", "tests", "fixtures", "testdata"}
"""Names of folders that contain configs of tests."""


def _for_a_part(result: FileResult) -> FileResult:
    """The result for a file that may be a part of a config only: a test, the tuner or the reader of an example adds the rest."""
    return _without_what_it_lacks(result, _incomplete(result)) if result.kind is FileKind.DS_CONFIG else result


def _without_what_it_lacks(result: FileResult, reason: str | None) -> FileResult:
    """The result for a config that is not a training for this reason: without warnings about what is not written, about memory and speed.

    What DeepSpeed rejects or ignores in the file is reported as anywhere.
    """
    if reason is None or result.document is None:
        return result
    kept = tuple(d for d in result.diagnostics if d.severity is Severity.ERROR or not _is_about_the_training(d, result.document))
    left_out = len(result.diagnostics) - len(kept)
    if not left_out:
        return result
    said = f"{reason}: {left_out:,} {'warnings' if left_out > 1 else 'warning'} about a whole training left out."
    note = f"{result.note} {said}" if result.note else said
    return result._replace(diagnostics=kept, note=note, left_out=result.left_out + left_out)


def _incomplete(result: FileResult) -> str | None:
    """The evidence that a config is not a whole training; None if there is none."""
    if FIXTURES.intersection(result.path.split("/")[:-1]) and (folder := _fixture_folder(result.path)) is not None:
        return f"this config lies under {folder}/"
    root = result.document.root if result.document is not None else None
    if not isinstance(root, Mapping) or result.context.setup is not None:
        return None
    members = {member.key.value: member.value for member in root.members if not is_habit(member.key.value)}
    if isinstance(members.get("autotuning"), Mapping):
        return "this config has a section autotuning, and the tuner adds the rest"
    only = next(iter(members.items())) if len(members) == 1 else None
    return f"this config has only the section {only[0]}" if only is not None and isinstance(only[1], Mapping) else None


def _fixture_folder(path: str) -> str | None:
    """The first folder for tests between the top of the project and a file."""
    inside = os.path.relpath(os.path.abspath(path), top_of(path)).split(os.sep)[:-1]
    return next((name for name in inside if name in FIXTURES), None)


def _is_about_the_training(found: Diagnostic, document: Document) -> bool:
    """Whether a finding is about something that is not written, or about the memory and the speed of the run."""
    if found.code.startswith("DS0"):
        return False  # it is about the text
    steps = (part.replace("~1", "/").replace("~0", "~") for part in (found.pointer or "").split("/")[1:])
    path: Path = tuple(int(step) if step.isdigit() else step for step in steps)
    absent = not path or document.lookup(path) is None
    return absent or found.effect in (Effect.MEMORY, Effect.SLOW) or (found.effect is Effect.SILENT and not found.certain)


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


def lint_launch(command: str, settings: Settings) -> list[FileResult]:
    """Lint the setup of a launch command."""
    from dslint.lint.setups import lint_command

    return [as_settings_say(result, settings) for result in lint_command(command, settings.context, settings.rules)]


def rules_for(path: str, settings: Settings, chosen: Sequence[RuleInfo] | None = None) -> Sequence[RuleInfo]:
    """The rules to run on a file: the chosen ones (by default those of the settings) without its `per-file-ignores`."""
    rules = settings.rules if chosen is None else chosen
    tables = settings.based("per-file-ignores")
    unwanted = [words for base, table in tables for pattern, words in table.items() if matches(path, base, [pattern])]
    return choose(rules, [Selection(ignore=tuple(word for words in unwanted for word in words))]) if unwanted else rules


def as_settings_say(result: FileResult, settings: Settings) -> FileResult:
    """The result with the severities and the `fail-on` of the settings, and without pedantic findings unless they ask for them.

    A rule with findings that are left out counts as one that did not run: no comment is called unused because of that.
    """
    kept: list[Diagnostic] = []
    left_out: set[str] = set()
    for d in result.diagnostics:
        if d.pedantic and not settings.is_pedantic_about(d):
            left_out.add(d.code)
        else:
            kept.append(d)
    result = result._replace(ran=result.ran - left_out) if left_out else result
    chosen = settings.severity
    judged = tuple(d._replace(severity=chosen.get(d.code, d.severity)) for d in kept) if chosen else tuple(kept)
    return result._replace(diagnostics=judged, fail_on=settings["fail-on"])


def lint_all(targets: Sequence[Target], finder: Finder, *, jobs: int | None = None, progress: Progress | None = None) -> list[FileResult]:
    """Lint files; the results are in the order of the files.

    Args:
        targets: the files.
        finder: finds their settings.
        jobs: the number of processes; None for one that is joined by one for each other core if there is work for them.
        progress: called with the number of additional finished files.
    """
    targets = with_mentions(targets)
    chunks = [targets[start : start + CHUNK] for start in range(0, len(targets), CHUNK)]
    results: list[FileResult] = []
    with a_run(Store(named=_together(targets, finder))):
        for chunk in _in_chunks(chunks, finder, _cores() if jobs is None else jobs, alone=ALONE if jobs is None else 0):
            results += [result for of_target in chunk for result in of_target]
            if progress:
                progress(len(chunk))
    return combined(results, targets, finder)


def _together(targets: Sequence[Target], finder: Finder) -> list[str]:
    """The files that a person names in one command; none where a hook does, which names whatever a commit has changed."""
    named = [target.path for target in targets if target.named]
    if len(named) < len(targets) or len(named) < 2 or any(finder.for_file(path)["force-exclude"] for path in named):
        return []
    return [os.path.abspath(path) for path in named]


def combined(results: list[FileResult], targets: Iterable[Target], finder: Finder) -> list[FileResult]:
    """One result for each file, also where several trainings lead to it. Files that are not targets are not to be fixed."""
    if not any(result.context.setup is not None for result in results):
        return results
    from dslint.lint.setups import merged

    named = {shown(target.path): target.named for target in targets}
    checked = {os.path.normpath(path) for path in named}
    results = [_without_answered(result if result.path in named else unasked(result), checked) for result in merged(results)]
    if not _shows_all_uses(results):
        return results
    found = {path for path, is_named in named.items() if not is_named}
    return [_for_no_command(one) if one.path in found and not finder.for_file(one.path)["pedantic"] else one for one in results]


def _without_answered(result: FileResult, checked: set[str]) -> FileResult:
    """A result without the reasons for parts that are judged with other files, if all of these are checked, too."""
    left = tuple(one for one in result.not_judged if not one.files or not checked.issuperset(map(os.path.normpath, one.files)))
    return result._replace(not_judged=left) if len(left) < len(result.not_judged) else result


def _shows_all_uses(results: Iterable[FileResult]) -> bool:
    """Whether a command or a program uses a config, and the configs of all that were found are known."""
    leading = [result for result in results if result.kind in (FileKind.SCRIPT, FileKind.PYTHON)]
    return any(result.kind is FileKind.SCRIPT and result.is_judged for result in leading) and not any(
        not one.is_of_program for result in leading for one in result.not_judged
    )


def _for_no_command(result: FileResult) -> FileResult:
    """The result for a config that no command uses where others are used: one of a collection, whose reader chooses and completes it."""
    setup = result.context.setup
    used = setup is not None and (setup.launch is not None or setup.program is not None or setup.arguments is not None)
    is_config = result.kind in (FileKind.DS_CONFIG, FileKind.ACCELERATE) and not used
    return _without_what_it_lacks(result, "no command or program of this project uses this config" if is_config else None)


def unasked(result: FileResult) -> FileResult:
    """The result for a file that is not among the targets but named by one; it gets no fixes."""
    shown_only = (d._replace(fix=d.fix._replace(applicability=Applicability.DISPLAY)) if d.fix else d for d in result.diagnostics)
    return result._replace(diagnostics=tuple(shown_only))


def _in_chunks(chunks: Sequence[Sequence[Target]], finder: Finder, jobs: int, *, alone: float) -> Iterator[list[list[FileResult]]]:
    """The results of each chunk: after `alone` seconds in this process those of the rest from several."""
    begun = time.monotonic()
    for number, chunk in enumerate(chunks):
        if jobs > 1 and time.monotonic() - begun >= alone:
            yield from _in_processes(chunks[number:], finder, min(jobs, len(chunks) - number))
            return
        yield _lint_chunk(chunk, finder)


def _lint_chunk(targets: Iterable[Target], finder: Finder) -> list[list[FileResult]]:
    return [guarded(partial(_lint_one, target, finder), shown(target.path)) for target in targets]


def _lint_one(target: Target, finder: Finder) -> list[FileResult]:
    return lint_target(target, finder.for_file(target.path))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_processes(chunks: Iterable[Sequence[Target]], finder: Finder, jobs: int) -> Iterator[list[list[FileResult]]]:
    from multiprocessing import get_all_start_methods, get_context

    # fork starts fast with all modules imported, and is safe because there are no threads here.
    forks = "fork" in get_all_start_methods() and os.name == "posix"
    context = get_context("fork" if forks else None)
    with contextlib.nullcontext() if forks else _safe_path(), context.Pool(jobs, _begin, (finder,)) as pool:
        yield from pool.imap(_lint_in_process, chunks)


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Let a new Python import nothing from the working directory, which is perhaps a stranger's checkout."""
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


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
    """The result without the tree of a document that no finding is in, unless a comment in it speaks to dslint.

    Its text stays: a report quotes it where the finding of another file, of another process perhaps, names a line of it.
    """
    document = result.document
    if document is None or result.diagnostics or document.parts or any("dslint" in comment.text for comment in document.comments):
        return result
    return result._replace(document=Document(document.text, None, language=document.language))
