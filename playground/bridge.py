"""What the page calls in its worker: one request, the texts of the files in it, is answered in JSON.

The worker runs this file in the browser's Python, where dslint is installed from its own wheel. The findings come from the functions of
`dslint check`; the other views are the commands themselves, with the JSON that they print. No sentence is worded here.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from dslint.config import resolve
from dslint.config.detect import FileKind
from dslint.diagnostics import Diagnostic, Range
from dslint.errors import UserError
from dslint.lint.discovery import Target
from dslint.lint.files import lint_all, lint_given
from dslint.lint.group import for_report
from dslint.lint.results import FileResult, Results
from dslint.report.full import remarks
from dslint.report.words import hidden, inferred_facts, reasons, skipped_rules, verdict
from dslint.settings import Finder, from_options
from dslint.settings.kinds import Wrong
from dslint.settings.sources import FILES as SETTINGS_FILES
from dslint.settings.table import SETTINGS
from dslint.source.tree import Document
from dslint.source.tree import Mapping as Section
from dslint.suppress.run import suppress

PICTURE = Path("chart.svg")
"""The file that a command with `--plot` draws."""


def answer(request: str) -> str:
    """Answer a request of the page.

    The request has the `files` (their texts by name), the `facts` (options of `dslint check` and their words), and one view or none: `run`,
    the words of a command; `upgrade`, two releases `A..B`; `fix`, the words of a `dslint check --fix`; `hover`, a file and an offset.

    Returns:
        JSON with `check`, the findings; and the `output` of a command, the `upgrade`'s findings, the `texts` of the fixed files, or what is
        known of the `key` at an offset.
    """
    asked = json.loads(request)
    files: dict[str, str] = asked["files"]
    with _folder(files):
        if "fix" in asked:
            output = run(asked["fix"])
            return json.dumps({"output": output, "texts": {name: _read(Path(name)) for name in files}})
        if "hover" in asked:
            return json.dumps({"key": key_at(asked["facts"], *asked["hover"])})
        answered: dict[str, Any] = {"check": check(files, asked["facts"])}
        if "upgrade" in asked:
            answered["upgrade"] = check(files, {**asked["facts"], "deepspeed": asked["upgrade"]})
        if "run" in asked:
            answered["output"] = run(asked["run"], asked.get("input", {}))
    return json.dumps(answered)


def check(files: Iterable[str], facts: Mapping[str, str]) -> dict[str, Any]:
    """The findings in files of the working directory: as marks, each by itself, and as a report shows them, by cause."""
    try:
        finder = _finder(facts)
        linted = lint_all([Target(name, named=True) for name in files if name not in SETTINGS_FILES], finder, jobs=1)
        found = suppress(linted, finder)
    except UserError as error:
        return {"error": str(error), "verdict": "", "notes": [], "findings": [], "marks": []}
    results = Results(finder.for_directory(str(Path.cwd())).context, tuple(map(for_report, found)), verbose=True)
    documents = {file.path: file.document for file in results.files if file.document is not None}
    sentences = (*reasons(results), *filter(None, [hidden(results)]), *inferred_facts(results), *skipped_rules(results))
    return {
        "verdict": verdict(results),
        "notes": [*_about_files(results.files), *sentences],
        "findings": [_finding(one, documents) for one in results.diagnostics],
        "marks": [_finding(one, documents) for file in found for one in file.diagnostics],
    }


def key_at(facts: Mapping[str, str], name: str, offset: int) -> dict[str, Any] | None:
    """The stretch of the key or the value at an offset of a config, and what there is to say of it, as paragraphs in Markdown."""
    from dslint.server.about import about_key, spot_at  # with the JSON Schema, for which the first findings do not wait

    try:
        result = lint_given(_read(Path(name)), name, _finder(facts).for_file(name))[0]
    except UserError:
        return None
    document = result.document
    if result.kind != FileKind.DS_CONFIG or document is None or document.whole is not None or not isinstance(document.root, Section):
        return None
    start = document.text.encode("utf-16-le", "surrogatepass")[: 2 * offset]
    spot = spot_at(document.root, len(start.decode("utf-16-le", "surrogatepass")))
    if spot is None:
        return None
    units = _units(document)
    said = list(about_key(resolve(document, result.context), spot.path))
    return {"from": units(spot.span.start), "to": units(spot.span.end), "paragraphs": said}


def run(words: list[str], given: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a command of dslint: what it prints, and the chart that it draws. `given` are more files for it."""
    from dslint.cli import main  # with click, for which the first findings do not wait

    for name, text in (given or {}).items():
        _write(Path(name), text)
    out, err = StringIO(), StringIO()
    sys.argv = ["dslint", *words]
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    chart = _read(PICTURE) if PICTURE.exists() else None
    return {"text": out.getvalue(), "errors": err.getvalue(), "code": code, "chart": chart}


def _finder(facts: Mapping[str, str]) -> Finder:
    return Finder([from_options({name: _value(name, word) for name, word in facts.items() if word})])


def _value(name: str, word: str) -> Any:
    try:
        return SETTINGS[name].kind.from_word(word)
    except Wrong as wrong:
        raise UserError(f'--{name}: "{word}" {wrong}') from None


def _about_files(files: Iterable[FileResult]) -> Iterator[str]:
    for file in files:
        for sentence in (file.error, file.note):
            if sentence is not None:
                yield f"{file.path}: {sentence}"


def _finding(diagnostic: Diagnostic, documents: dict[str, Document]) -> dict[str, Any]:
    units = _units(documents.get(diagnostic.path))
    fix = diagnostic.fix
    return {
        "path": diagnostic.path,
        "code": diagnostic.code,
        "name": diagnostic.name,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "remarks": [one for one in remarks(diagnostic, documents) if one[0] not in ("fix", "see")],
        "range": _range(diagnostic.range, units),
        "fix": fix
        and {
            "title": fix.title,
            "applicability": fix.applicability.value,
            "changes": [{"from": units(edit.start), "to": units(edit.end), "insert": edit.content} for edit in fix.edits],
        },
    }


def _range(of: Range | None, units: Callable[[int], int]) -> dict[str, int] | None:
    if of is None:
        return None
    return {"from": units(of.start.offset), "to": units(of.end.offset), "line": of.start.line, "column": of.start.column}


def _units(document: Document | None) -> Callable[[int], int]:
    """Offsets as the browser counts them: in units of UTF-16."""
    text = document.text if document is not None else ""
    if text.isascii():
        return lambda offset: offset
    return lambda offset: len(text[:offset].encode("utf-16-le", "surrogatepass")) // 2


@contextlib.contextmanager
def _folder(files: Mapping[str, str]) -> Iterator[None]:
    """A working directory with these files only, which is empty again afterwards."""
    try:
        for name, text in files.items():
            _write(Path(name), text)
        yield
    finally:
        for entry in Path().iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")


def _read(path: Path) -> str:
    with path.open(encoding="utf-8", errors="surrogatepass", newline="") as stream:
        return stream.read()
