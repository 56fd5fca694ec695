"""A shop as an MCP server that delf serves: on standard input and output, or with a port.

What happens is added to a file, a line each: what was sold, and how each task ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

from delf import Agent, Connection, action
from delf.events import ApprovalRequested, Event, TaskFinished
from delf.specs import ObserverSpec
from delf.testing import ScriptedModel, TestHost
from delf_mcp.command import serve_on
from delf_mcp.serving import Served

log = Path(sys.argv[1])


def note(line: str) -> None:
    """Add a line to the file."""
    with log.open("a") as file:
        file.write(f"{line}\n")


class Shop(Connection):
    """A shop."""

    @action(effect="read")
    async def price(self, lamp: str) -> float:
        """The price of a lamp."""
        return 40.0

    @action(effect="irreversible")
    async def sell(self, lamp: str) -> str:
        """Sell a lamp."""
        note(f"sold {lamp}")
        return f"sold {lamp}"

    @action(effect="read")
    async def wait(self) -> None:
        """Wait for ever."""
        note("waits")
        await asyncio.get_running_loop().create_future()


class Ends:
    """Notes each question, and how tasks end."""

    async def observe(self, event: Event) -> None:
        """Note an event."""
        if isinstance(event, ApprovalRequested):
            note("asks")
        if isinstance(event, TaskFinished):
            note(f"ended {event.status}")

    async def aclose(self) -> None:
        """There is nothing to free."""


def write(request: Any) -> str:
    """Return the task's own text as the script."""
    lines = [line.strip() for message in request.messages for line in message.text.splitlines()]
    code = next(line for line in reversed(lines) if line.startswith("print(shop."))
    return f"```python\n{code}\n```"


def main() -> None:
    """Serve until the client leaves, or for ever."""
    host, model = TestHost.discover(environ={}), ScriptedModel(default=write)
    host.provide(model.spec, model.factory)
    host.provide(ObserverSpec(name="ends", summary="E.", factory="x:y"), Ends)
    options = {"llm": "scripted", "host": host, "sandbox": "local", "approval_timeout": 3}
    served = Served(lambda **more: Agent(tools=[Shop()], **options, **more))
    address = sys.argv[2] if len(sys.argv) > 2 else None
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve_on(served, address))


if __name__ == "__main__":
    main()
