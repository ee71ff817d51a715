"""A session with the server, by the client of the package `mcp`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import anyio
from mcp import Client

from dslint.mcp.serve import server

Answer = TypeVar("Answer")


class Refused(Exception):
    """The tool answered that it cannot."""


class Session:
    """What a test asks of a server."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tool(self, name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
        """The short answer and the data of a call. The client checks the data against the schema that the tool declares."""
        result = await self.client.call_tool(name, arguments)
        text = result.content[0].text  # type: ignore[union-attr]
        if result.is_error:
            raise Refused(text)
        assert result.structured_content is not None
        return text, result.structured_content


def in_a_loop(talk: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run a coroutine in a thread of its own: while Playwright has a browser open, this thread runs Playwright's event loop."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(anyio.run, talk).result()


def session(root: Path, talk: Callable[[Session], Awaitable[Answer]]) -> Answer:
    """Talk to a server that reads below a folder."""

    async def main() -> Answer:
        async with Client(server([str(root)])) as client:
            await client.list_tools()
            return await talk(Session(client))

    return in_a_loop(main)
