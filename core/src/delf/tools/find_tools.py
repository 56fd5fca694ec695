"""``find_tools``: a script looks for tools that the model was not shown, or not whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.protocols.connection import ConnectionLike
from delf.protocols.strategy import ToolChoice
from delf.tools.catalogs import search
from delf.tools.function import tool
from delf.tools.stubs import FIND_TOOLS, fits, render_stubs

_MOST: Final = 10


def own_tools(choice: ToolChoice) -> Sequence[ConnectionLike]:
    """``find_tools``, where not all tools are shown, or not whole.

    Args:
        choice: What a prefilter chose.
    """
    if not choice.left_out and fits(choice.shown):
        return ()

    async def find_tools(words: str) -> str:
        found = search(choice.catalog, words, _MOST)
        stubs = render_stubs(choice.describe(entry.name) for entry in found)
        return stubs or f"no other tool fits {words!r}"

    more = f"{choice.left_out} more tools may be called. " if choice.left_out else ""
    summary = (
        f"{more}Returns whole stubs of those that fit some words; print them and rerun() where the "
        "tools here do not do"
    )
    made = tool(name=FIND_TOOLS, description=summary, effect="read", confirm=False)
    return (made(find_tools),)
