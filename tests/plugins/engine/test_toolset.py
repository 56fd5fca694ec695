"""Tests of the tools of an agent and of its tasks."""

from delf.tools.function import tool
from delf_engine.toolset import load_toolset


async def test_copies_of_tools_share_a_catalog_that_is_made_later():
    @tool
    def search(words: str) -> list[str]:
        """Search."""
        return [words]

    tools = await load_toolset([search])
    first_task, second_task = tools.showing_questions(), tools.showing_questions()
    assert first_task.catalog() is second_task.catalog() is tools.catalog()
