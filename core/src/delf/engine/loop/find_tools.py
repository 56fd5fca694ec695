"""``find_tools``: a script looks for tools that the model was not shown, or not whole."""

from __future__ import annotations

from typing import Final

from delf.engine.stubs import render_stubs
from delf.engine.toolset import Toolset
from delf.protocols.connection import ConnectionLike
from delf.tools.function import tool

_MOST: Final = 10


def find_tools_in(tools: Toolset) -> ConnectionLike:
    """The built-in tool that finds what is allowed, shown in the prompt or left out of it.

    Args:
        tools: The tools of a task.
    """

    async def find_tools(words: str) -> str:
        return render_stubs(tools.like(words, _MOST)) or f"no other tool fits {words!r}"

    more = len(tools.left_out)
    summary = (
        f"{more} more tools may be called. "
        * bool(more)
        + "Returns whole stubs of those that fit some words; print them and rerun() where the "
        "tools here do not do"
    )
    return tool(name="find_tools", description=summary, effect="read", confirm=False)(find_tools)
