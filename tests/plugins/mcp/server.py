"""An MCP server for tests: on standard input and output, or with a port on loopback."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent, SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

server = MCPServer("tests", instructions="Greet before you add.")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False))
def note(text: str) -> str:
    """Write a note."""
    return f"noted: {text}"


@server.tool()
def wipe(everything: bool = False) -> str:
    """Delete notes."""
    return "wiped" if everything else "nothing to do"


@server.tool(name="say-hello")
def say_hello(name: Annotated[str, Field(description="Whom.")]) -> TextContent:
    """Greet somebody."""
    return TextContent(type="text", text=f"Hello {name}, {os.environ.get('GREETING', 'hi')}!")


@server.tool()
def picture() -> list[TextContent | ImageContent]:
    """A picture with its title."""
    return [
        TextContent(type="text", text="a dot"),
        ImageContent(type="image", data="iVBORw0=", mime_type="image/png"),
    ]


@server.tool()
def broken() -> str:
    """Fails."""
    raise ToolError("the lamp is broken")


@server.tool()
async def die() -> str:
    """Ends the server."""
    os._exit(3)


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Takes its time, and says so."""
    marker = os.environ.get("MARKER")
    if marker:
        Path(f"{marker}-begun").touch()
    try:
        for step in range(int(seconds / 0.1)):
            await ctx.report_progress(step, None, "working")
            await asyncio.sleep(0.1)
    except BaseException:
        if marker:
            Path(marker).write_text("cancelled")
        raise
    return "done"


@server.tool()
async def silent(seconds: float) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return "done"


class Choice(BaseModel):
    colour: str = "red"
    pieces: int


@server.tool()
async def order(ctx: Context) -> str:
    """Asks the user what to order."""
    answer = await ctx.elicit("Which lamp?", Choice)
    if answer.action != "accept":
        return f"the user said {answer.action}"
    return f"{answer.data.pieces} in {answer.data.colour}"


@server.tool()
async def think(about: str, ctx: Context) -> str:
    """Asks the model."""
    message = await ctx.session.create_message(
        messages=[SamplingMessage(role="user", content=TextContent(type="text", text=about))],
        max_tokens=50,
        system_prompt="Be short.",
    )
    return f"the model says: {message.content.text}"


@server.tool()
async def folders(ctx: Context) -> list[str]:
    """Asks for the roots."""
    return [str(root.uri) for root in (await ctx.session.list_roots()).roots]


@server.tool()
async def grow(name: str, ctx: Context) -> str:
    """Adds a tool."""

    def grown() -> str:
        """Was not there before."""
        return f"{name} has grown"

    server.add_tool(grown, name=name)
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.resource("notes://today")
def today() -> str:
    """Notes of today."""
    return "buy lamps"


@server.resource("notes://{day}")
def of_day(day: str) -> str:
    """Notes of a day."""
    return f"notes of {day}"


if __name__ == "__main__":
    if os.environ.get("BREAKS"):
        sys.exit("no licence")
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
