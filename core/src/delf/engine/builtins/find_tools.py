"""``find_tools``: a script looks for tools that the model was not shown."""

from __future__ import annotations

from typing import Final

from delf.engine.codegen.stubs import render_stubs
from delf.engine.toolset import Toolset
from delf.protocols.connection import ConnectionLike
from delf.ranking import Ranking
from delf.tools.function import tool

_MOST: Final = 10


def find_tools_in(tools: Toolset) -> ConnectionLike:
    """The built-in tool that finds what is allowed and was left out of the prompt.

    Args:
        tools: The tools of a task.
    """
    left_out = tools.left_out
    ranking: list[Ranking] = []

    async def find_tools(words: str) -> str:
        if not ranking:
            ranking.append(
                Ranking(
                    ((b.name, 2.0), (" ".join(b.action.tags), 1.0), (b.action.summary, 2.0))
                    for b in left_out
                )
            )
        found = [left_out[number] for number in ranking[0].find(words, _MOST)]
        return render_stubs(found) or f"no other tool fits {words!r}"

    summary = (
        f"{len(left_out)} more tools may be called. Returns stubs of those that fit some words; "
        "print them and rerun() where the tools here do not do"
    )
    return tool(name="find_tools", description=summary, effect="read", confirm=False)(find_tools)
