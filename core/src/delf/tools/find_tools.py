"""``find_tools``: lets a script search for tools that the prompt omits or shortens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.protocols.connection import ConnectionLike
from delf.protocols.strategy import ToolChoice, ToolDescription
from delf.tools.catalogs import search
from delf.tools.function import tool
from delf.tools.ranking import named_by
from delf.tools.stubs import FIND_TOOLS, StubLimits, render_stubs, whole_size

_MAX_RESULTS: Final = 10
# The limits in characters for tools found by words. A tool found by its name is shown in full.
_STUB_LIMITS: Final = StubLimits(important_parameter=800, other_parameter=800, result=3_000)


def find_tools_if_needed(choice: ToolChoice) -> Sequence[ConnectionLike]:
    """Return the tool ``find_tools`` if the prompt omits or shortens tools; else nothing.

    Args:
        choice: The tools of the task.
    """
    shown_tools = [tool for tool in choice.shown if not tool.built_in]
    if not choice.left_out and whole_size(shown_tools, choice.budget) <= choice.budget:
        return ()

    async def find_tools(words: str) -> str:
        named_tools = _tools_by_name(choice, words)
        if named_tools:
            return render_stubs(named_tools)
        matches = search(choice.catalog, words, _MAX_RESULTS)
        descriptions = [choice.describe(entry.name) for entry in matches]
        # Long stubs are shortened, but keep every key that the search words mention.
        stubs = render_stubs(descriptions, _STUB_LIMITS, is_mentioned=named_by(words))
        return stubs or f"no tool fits {words!r}"

    more_note = f"{choice.left_out} more tools may be called. " if choice.left_out else ""
    summary = (
        f"{more_note}Gives the whole stub of a tool by its name, or stubs of those that fit some "
        'words; read them first, as rerun(await find_tools("a, b"), "the work that remains")'
    )
    find_tool = tool(name=FIND_TOOLS, description=summary, effect="read", confirm=False)
    return (find_tool(find_tools),)


def _tools_by_name(choice: ToolChoice, words: str) -> list[ToolDescription]:
    """Return the tools that a text names; empty if any word of the text is not a tool's name."""
    wanted_names: set[str] = set()
    for word in words.replace(",", " ").split():
        before_parenthesis, _, _ = word.partition("(")
        wanted_names.add(before_parenthesis.strip("`'\""))
    found_tools: list[str] = []
    unknown_names = set(wanted_names)
    for entry in choice.catalog:
        _, _, method = entry.name.rpartition(".")
        names_of_tool = {entry.name, method}
        if not names_of_tool.isdisjoint(wanted_names):
            found_tools.append(entry.name)
            unknown_names -= names_of_tool
    if unknown_names:
        return []
    return [choice.describe(name) for name in found_tools]
