"""Code actions: fixes, suppressions with a reason, and the explanation of a rule."""

from __future__ import annotations

import os
from collections.abc import Iterator

from lsprotocol import types

from dslint.diagnostics import Applicability, Diagnostic, Edit
from dslint.errors import UserError
from dslint.fixes.run import ALL, SAFE, FixOptions, fix_text
from dslint.lint.files import lint_given
from dslint.lint.results import FileResult
from dslint.server.checking import Checked
from dslint.server.diagnostics import diagnostic_of
from dslint.server.files import uri_of
from dslint.server.names import EXPLAIN, FIX_ALL, FIX_ALL_UNSAFE, IGNORE
from dslint.server.positions import Positions
from dslint.server.workspace import Workspace
from dslint.source.read import ReadError, read
from dslint.suppress.adding import settings_file, takes_comments, with_comments, with_entries
from dslint.suppress.run import suppress

REASON = "TODO: why"
"""The reason that is written where an editor cannot ask for one."""


def code_actions(
    checked: Checked, workspace: Workspace, place: types.Range, only: list[str] | None, *, can_create: bool, asks_reason: bool = False
) -> list[types.CodeAction]:
    """What can be done at a place.

    Args:
        checked: the check of the file.
        workspace: the state of the server.
        place: the place.
        only: the kinds of actions that the editor asks for; None for all.
        can_create: whether the editor can create files.
        asks_reason: whether the editor has the command that asks for the reason of a suppression.
    """

    def is_asked(kind: str) -> bool:
        return only is None or any(kind == one or kind.startswith(f"{one}.") for one in only)

    result = checked.result
    if result is None:
        return []
    quick = types.CodeActionKind.QuickFix.value
    actions: list[types.CodeAction] = []
    here = [found for found in result.diagnostics if _touches(checked.file.positions.placed(found.range), place)] if is_asked(quick) else []
    actions += [action for found in here if (action := _fix(found, checked))]
    if asks_reason:
        actions += [_ask_reason(found, checked) for found in here]
    else:
        actions += [action for found in here if (action := _ignore(found, result, checked, workspace, can_create=can_create))]
    actions += [_explain(found, checked) for found in {found.code: found for found in here}.values()]
    kinds = {found.fix.applicability for found in result.diagnostics if found.fix}
    if Applicability.SAFE in kinds and is_asked(FIX_ALL):
        actions += _fix_all("Fix all safe problems (dslint)", FIX_ALL, SAFE, checked, workspace)
    if Applicability.UNSAFE in kinds and is_asked(FIX_ALL_UNSAFE):
        actions += _fix_all("Fix all problems, also by changing training (dslint)", FIX_ALL_UNSAFE, ALL, checked, workspace)
    return actions


def _touches(one: types.Range, other: types.Range) -> bool:
    return one.start <= other.end and other.start <= one.end


def _fix(found: Diagnostic, checked: Checked) -> types.CodeAction | None:
    if found.fix is None or found.fix.applicability is Applicability.DISPLAY:
        return None
    is_safe = found.fix.applicability is Applicability.SAFE
    title = found.fix.title[:1].upper() + found.fix.title[1:]
    return types.CodeAction(
        title=title if is_safe else f"{title} (changes training or drops comments)",
        kind=types.CodeActionKind.QuickFix,
        diagnostics=[diagnostic_of(found, checked)],
        is_preferred=is_safe,
        edit=_edits(checked, found.fix.edits),
    )


def _edits(checked: Checked, edits: tuple[Edit, ...]) -> types.WorkspaceEdit:
    positions = checked.file.positions
    return types.WorkspaceEdit({checked.file.uri: [types.TextEdit(positions.range(one.start, one.end), one.content) for one in edits]})


def _explain(found: Diagnostic, checked: Checked) -> types.CodeAction:
    title = f"Explain {found.code} {found.name}"
    command = types.Command(title, EXPLAIN, arguments=[found.code])
    return types.CodeAction(title, kind=types.CodeActionKind.QuickFix, diagnostics=[diagnostic_of(found, checked)], command=command)


def _fix_all(
    title: str, kind: str, allowed: frozenset[Applicability], checked: Checked, workspace: Workspace
) -> Iterator[types.CodeAction]:
    """The action that makes all fixes, as `dslint check --fix` makes them; none if they cannot be made."""
    with workspace.inside(checked.file) as path:
        finder = workspace.finder(checked.folder)
        contexts = workspace.evidence(checked.file, path, finder.for_file(path).context)
        fixed = fix_text(checked.file.text, path, finder, FixOptions(allowed), named=True, contexts=contexts)
    if fixed is not None and fixed.after != checked.file.text:
        yield types.CodeAction(title, kind=kind, edit=types.WorkspaceEdit({checked.file.uri: [change(checked, fixed.after)]}))


def change(checked: Checked, after: str) -> types.TextEdit:
    """The edit that makes one text of another, with what both begin and end with left alone."""
    return _change(checked.file.text, after, checked.file.positions)


def _change(before: str, after: str, positions: Positions) -> types.TextEdit:
    start = _common(before, after)
    most = min(len(before), len(after)) - start
    end = _common(before[::-1][:most], after[::-1][:most])
    return types.TextEdit(positions.range(start, len(before) - end), after[start : len(after) - end])


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return next((index for index, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))


def _ignore(found: Diagnostic, result: FileResult, checked: Checked, workspace: Workspace, *, can_create: bool) -> types.CodeAction | None:
    """The action that suppresses a finding: by a comment where the file may have comments, otherwise by an entry in the settings."""
    edit = ignore_edit(found, result, checked, workspace, REASON, can_create=can_create)
    if edit is None:
        return None
    where = "here" if edit.changes and checked.file.uri in edit.changes else "in the settings"
    title = f"Ignore {found.code} {found.name} {where}, with a reason"
    return types.CodeAction(title, kind=types.CodeActionKind.QuickFix, diagnostics=[diagnostic_of(found, checked)], edit=edit)


def _ask_reason(found: Diagnostic, checked: Checked) -> types.CodeAction:
    """The action that runs the command of the editor, which asks for the reason."""
    title = f"Ignore {found.code} {found.name} here, with a reason"
    start = checked.file.positions.placed(found.range).start
    place = {"line": start.line, "character": start.character}
    command = types.Command(title, IGNORE, arguments=[checked.file.uri, found.code, place])
    return types.CodeAction(title, kind=types.CodeActionKind.QuickFix, diagnostics=[diagnostic_of(found, checked)], command=command)


def ignored(
    checked: Checked, workspace: Workspace, code: str, place: types.Position, reason: str, *, can_create: bool
) -> types.WorkspaceEdit:
    """The answer to `dslint/ignore`: the edit that suppresses the finding of a rule at a place.

    Raises:
        UserError: the rule finds nothing there, the reason is not one line, or the editor cannot create the settings file.
    """
    if not reason.strip() or not reason.isprintable():
        raise UserError("a reason is one line.")
    result = checked.result
    diagnostics = result.diagnostics if result is not None else ()
    found = next((one for one in diagnostics if one.code == code and checked.file.positions.placed(one.range).start == place), None)
    if found is None or result is None:
        raise UserError(f"no finding of {code} is there.")
    edit = ignore_edit(found, result, checked, workspace, reason.strip(), can_create=can_create)
    if edit is None:
        raise UserError("create a file dslint.toml first: this file cannot have comments.")
    return edit


def ignore_edit(
    found: Diagnostic, result: FileResult, checked: Checked, workspace: Workspace, reason: str, *, can_create: bool
) -> types.WorkspaceEdit | None:
    """The edit that suppresses a finding for a reason."""
    with workspace.inside(checked.file) as path:
        finder = workspace.finder(checked.folder)
        settings = finder.for_file(path)
        contexts = workspace.evidence(checked.file, path, settings.context)
        if takes_comments(result):
            others = {(one.code, one.pointer) for one in result.diagnostics} - {(found.code, found.pointer)}

            def lint(text: str) -> FileResult:
                fresh = suppress(lint_given(text, path, settings, contexts=contexts)[:1], finder)[0]
                return fresh._replace(diagnostics=tuple(one for one in fresh.diagnostics if (one.code, one.pointer) not in others))

            after = with_comments(checked.file.text, result._replace(diagnostics=(found,)), reason, lint)
            if after != checked.file.text:
                return types.WorkspaceEdit({checked.file.uri: [change(checked, after)]})
        name, layer = settings_file(settings.layers)
        whole = with_entries(layer, name, [found], reason)
        return _write(os.path.abspath(name), whole, workspace.encoding, can_create=can_create)


def _write(path: str, text: str, encoding: str, *, can_create: bool) -> types.WorkspaceEdit | None:
    """The edit that gives a file another text; the file is created where that is possible."""
    uri = uri_of(path)
    try:
        before = read(path)
    except ReadError:
        if not can_create:
            return None
        start = types.Range(types.Position(0, 0), types.Position(0, 0))
        create = types.CreateFile(uri, options=types.CreateFileOptions(ignore_if_exists=True))
        document = types.OptionalVersionedTextDocumentIdentifier(uri)
        return types.WorkspaceEdit(document_changes=[create, types.TextDocumentEdit(document, [types.TextEdit(start, text)])])
    return types.WorkspaceEdit({uri: [_change(before, text, Positions(before, encoding))]})
