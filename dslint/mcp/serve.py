"""The server: tools and resources over the Model Context Protocol, on standard input and output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
from jsonschema import Draft202012Validator
from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from dslint import __version__, project
from dslint.mcp import resources
from dslint.mcp.answers import data_of, short_answer
from dslint.mcp.run import Failed, Roots, run
from dslint.mcp.tools import Tool, tools

INSTRUCTIONS = """\
dslint finds mistakes in DeepSpeed training setups without running them. After writing or changing a DeepSpeed config, a training YAML, a
launch script or a launch command, call `check` with the facts you know (world_size, integration, gpu, model), apply what the help lines
and fixes say, and call it again until no errors are left. Use `init` for a new config, `estimate` and `fit` for memory, `tune` for speed,
`explain_error` for a message and `diagnose` for the log of a failed job."""

Context = ServerRequestContext[Any]


def server(folders: Sequence[str]) -> Server[Any]:
    """The server of tools that read below these folders."""
    roots = Roots(folders)
    known = {tool.name: tool for tool in tools()}

    async def list_tools(_context: Context, _params: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in known.values()])

    async def call_tool(_context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in known:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name}")
        try:
            text, data = await answer(known[params.name], dict(params.arguments or {}), roots)
        except Failed as failed:
            return types.CallToolResult(content=[types.TextContent(text=str(failed))], is_error=True)
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=data)

    async def list_resources(_context: Context, _params: object) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(name="rules", title="All rules", uri=resources.RULES, mime_type="text/plain"),
                types.Resource(name="keys", title="All keys of a DeepSpeed config", uri=resources.KEYS, mime_type="text/plain"),
            ]
        )

    async def list_templates(_context: Context, _params: object) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(name="rule", title="A rule", uri_template=resources.RULES + "{code}", mime_type="text/plain"),
                types.ResourceTemplate(name="key", title="A config key", uri_template=resources.KEYS + "{path}", mime_type="text/plain"),
            ]
        )

    async def read_resource(_context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        text = page(str(params.uri))
        if text is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {params.uri}")
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, mime_type="text/plain", text=text)])

    return Server(
        "dslint",
        version=__version__,
        title="dslint: a linter for DeepSpeed configs",
        instructions=INSTRUCTIONS,
        website_url=project.SITE or project.REPOSITORY or None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


async def answer(tool: Tool, arguments: dict[str, Any], roots: Roots) -> tuple[str, dict[str, Any]]:
    """The short answer of a call, and its data.

    Raises:
        Failed: the arguments are wrong, or the command cannot answer.
    """
    wrong = next(Draft202012Validator(tool.inputs).iter_errors(arguments), None)
    if wrong is not None:
        place = ".".join(map(str, wrong.absolute_path))
        raise Failed(f"{place}: {wrong.message}" if place else wrong.message)
    call = tool.call(arguments, roots)
    if not tool.has_report:
        data = data_of(tool.name, await run(call.words, roots, call.text))
        return short_answer(tool.name, data, None), data
    command, *words = call.words
    data = data_of(tool.name, await run((command, "--output-format=json", *words), roots, call.text))
    report = await run(call.words, roots, call.text)
    warnings = "\n".join(line.removeprefix("dslint: ") for line in report.err.strip().splitlines())
    return short_answer(tool.name, data, report.out) + (f"\n\n{warnings}" if warnings else ""), data


def page(uri: str) -> str | None:
    """The text of a resource; None if there is none."""
    lists = {resources.RULES: resources.rules, resources.KEYS: resources.keys}
    if uri in lists:
        return lists[uri]()
    if uri.startswith(resources.RULES):
        return resources.rule(uri.removeprefix(resources.RULES))
    return resources.key(uri.removeprefix(resources.KEYS)) if uri.startswith(resources.KEYS) else None


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.inputs,
        output_schema=tool.answer,
        annotations=types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False),
    )


def serve(folders: Sequence[str]) -> None:
    """Serve on standard input and output until the client closes them."""

    async def main() -> None:
        async with stdio_server() as (read, write):
            made = server(folders)
            await made.run(read, write, made.create_initialization_options())

    anyio.run(main)
