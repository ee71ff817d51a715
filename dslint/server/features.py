"""Registers what a server answers about a file. The modules that know the answers are imported with the first question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lsprotocol import types

from dslint.errors import UserError
from dslint.server.app import App, files, lifecycle, uri_in
from dslint.server.checking import Checked
from dslint.server.inside import Training
from dslint.server.names import EXPLAIN, FIX_ALL, FIX_ALL_UNSAFE, IGNORE, SHOW, TRIGGERS
from dslint.server.protocol import Server


def create() -> App:
    """A server with all its handlers."""
    app = App(Server())
    lifecycle(app, commands)
    files(app)
    _about_places(app)
    _about_files(app)
    _of_dslint(app)
    return app


def _about_places(app: App) -> None:
    feature = app.server.feature

    @feature(types.TEXT_DOCUMENT_HOVER)
    async def _(params: types.HoverParams) -> types.Hover | None:
        from dslint.server.hover import hover

        return await app.answer_at_once(
            params.text_document.uri, lambda checked, trainings: hover(checked, trainings, params.position), None
        )

    @feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=TRIGGERS))
    async def _(params: types.CompletionParams) -> types.CompletionList:
        from dslint.server.completion import complete

        has_snippets = app.server.capability("text_document.completion.completion_item.snippet_support") is True

        def items(checked: Checked, trainings: tuple[Training, ...]) -> list[types.CompletionItem]:
            return complete(checked, trainings, params.position, has_snippets=has_snippets)

        return types.CompletionList(is_incomplete=False, items=await app.answer(params.text_document.uri, items, []))

    kinds = [types.CodeActionKind.QuickFix, FIX_ALL, FIX_ALL_UNSAFE]

    @feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=kinds))
    async def _(params: types.CodeActionParams) -> list[types.CodeAction]:
        from dslint.server.actions import code_actions

        only = None if params.context.only is None else [str(getattr(kind, "value", kind)) for kind in params.context.only]
        can_create, asks_reason = _can_create(app), IGNORE in app.own_commands

        def actions(checked: Checked, _trainings: object) -> list[types.CodeAction]:
            return code_actions(checked, app.workspace, params.range, only, can_create=can_create, asks_reason=asks_reason)

        return await app.answer(params.text_document.uri, actions, [])

    @feature(types.TEXT_DOCUMENT_DEFINITION)
    async def _(params: types.DefinitionParams) -> list[types.Location]:
        from dslint.server.links import definition

        return await app.answer(
            params.text_document.uri, lambda checked, trainings: definition(checked, trainings, app.workspace, params.position), []
        )

    @feature(types.TEXT_DOCUMENT_REFERENCES)
    async def _(params: types.ReferenceParams) -> list[types.Location]:
        from dslint.server.links import uses

        return await app.answer(params.text_document.uri, lambda checked, _: uses(checked, app.workspace), [])


def _about_files(app: App) -> None:
    feature = app.server.feature

    @feature(types.TEXT_DOCUMENT_INLAY_HINT)
    async def _(params: types.InlayHintParams) -> list[types.InlayHint]:
        from dslint.server.hints import hints

        return await app.answer(params.text_document.uri, lambda checked, trainings: hints(checked, trainings, params.range), [])

    @feature(types.TEXT_DOCUMENT_CODE_LENS)
    async def _(params: types.CodeLensParams) -> list[types.CodeLens]:
        from dslint.server.estimating import lenses

        return await app.answer(params.text_document.uri, lenses, [])

    @feature(types.TEXT_DOCUMENT_DOCUMENT_LINK)
    async def _(params: types.DocumentLinkParams) -> list[types.DocumentLink]:
        from dslint.server.links import document_links

        return await app.answer(params.text_document.uri, document_links, [])

    @feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    async def _(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        from dslint.server.outline import symbols

        return await app.answer(params.text_document.uri, symbols, [])

    @feature(types.TEXT_DOCUMENT_FOLDING_RANGE)
    async def _(params: types.FoldingRangeParams) -> list[types.FoldingRange]:
        from dslint.server.outline import folds

        return await app.answer(params.text_document.uri, folds, [])


def _of_dslint(app: App) -> None:
    feature = app.server.feature

    @feature("dslint/effectiveConfig")
    async def _(params: Any) -> dict[str, Any]:
        from dslint.server.requests import effective_config

        everything = isinstance(params, dict) and params.get("all") is True
        return await app.of_file(params, lambda _, trainings: effective_config(trainings, everything=everything))

    @feature("dslint/estimate")
    async def _(params: Any) -> dict[str, Any]:
        from dslint.server.estimating import page, the_training

        return await app.of_file(params, lambda _, trainings: page(the_training(trainings)))

    @feature("dslint/ignore")
    async def _(params: Any) -> dict[str, Any]:
        from dslint.server.actions import ignored

        can_create = _can_create(app)

        def edit(checked: Checked, _trainings: object) -> dict[str, Any]:
            place = types.Position(int(params["position"]["line"]), int(params["position"]["character"]))
            return {"edit": ignored(checked, app.workspace, str(params["rule"]), place, str(params["reason"]), can_create=can_create)}

        return await app.of_file(params, edit)

    @feature("dslint/facts")
    async def _(params: Any) -> dict[str, Any]:
        from dslint.server.requests import facts

        new = params.get("set") if isinstance(params, dict) else None
        wrong: list[str] = []
        if isinstance(new, dict):
            wrong = await app.work(app.workspace.set_facts, new)
            app.check_all()
        uri = uri_in(params)
        known = await app.answer(uri, lambda checked, _: facts(app.workspace, checked), None) if uri else None
        return {"facts": await app.work(facts, app.workspace, None) if known is None else known, "wrong": wrong}

    @feature("dslint/rule")
    async def _(params: Any) -> dict[str, Any]:
        from dslint.server.requests import explanation

        return await app.work(_said, explanation, str(params.get("rule")) if isinstance(params, dict) else "")


def _can_create(app: App) -> bool:
    """Whether the editor can create files."""
    return types.ResourceOperationKind.Create in (app.server.capability("workspace.workspace_edit.resource_operations") or ())


def commands(app: App) -> None:
    """Register the commands that code actions and lenses name, without those that the editor has itself."""

    async def explain(code: str) -> dict[str, Any]:
        from dslint.server.requests import explanation

        return app.show(await app.work(_said, explanation, code), "markdown")

    async def show(uri: str) -> dict[str, Any]:
        from dslint.server.estimating import page, the_training

        return app.show(await app.of_file(uri, lambda _, trainings: page(the_training(trainings))), "text")

    for name, handler in ((EXPLAIN, explain), (SHOW, show)):
        if name not in app.own_commands:
            app.server.command(name)(handler)


def _said(function: Callable[[str], dict[str, Any]], word: str) -> dict[str, Any]:
    try:
        return function(word)
    except UserError as error:
        return {"error": str(error)}
