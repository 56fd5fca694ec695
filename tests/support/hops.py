"""How far one task travels through the core: ``python -m support.hops`` prints its files.

A warm run with one call, seen by a profiler: each time a function of another file begins, the way
changes file. Few changes mean that who follows a task through the code turns few pages.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import delf
from delf import Agent, tool
from delf.testing import ScriptedModel, TestHost

_ROOT = f"{Path(delf.__file__).parent}/"


@tool(effect="read", confirm=False)
async def show(n: int) -> int:
    """Show a number."""
    return n


async def files_on_the_way() -> list[str]:
    """The core's files in the order in which a warm run with one call comes through them."""
    way: list[str] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(_ROOT):
            file = name.removeprefix(_ROOT)
            if not way or way[-1] != file:
                way.append(file)

    script = "```python\nprint(await show(1))\n```"
    host = TestHost.discover(environ={})
    model = ScriptedModel().says(script, script)
    host.provide(model.spec, model.factory)
    async with Agent(tools=[show], llm="scripted", host=host, sandbox="local") as agent:
        await agent.arun("x", 20)
        sys.setprofile(look)
        try:
            response = await agent.arun("x", 20)
        finally:
            sys.setprofile(None)
    assert response.text.strip() == "1", response.error
    return way


if __name__ == "__main__":
    print(json.dumps(asyncio.run(files_on_the_way())))
