"""Other spellings of tool names, as models write them after other systems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from delf.protocols.strategy import ToolDescription


def normalise_spelling(name: str) -> str:
    """Return the letters and digits of a name in lower case, for comparing spellings."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def spellings(tools: Mapping[str, ToolDescription]) -> dict[str, str]:
    """Return a mapping from each unambiguous spelling, in its normalised form, to a tool's name.

    Args:
        tools: A mapping from name to tool, of the tools in the prompt.
    """
    names_by_spelling: dict[str, set[str]] = defaultdict(set)
    for name, tool in tools.items():
        connection = tool.connection
        spellings_of_tool = [name]
        if connection:
            # Singular or plural: ``worker_call`` means ``workers.call``.
            singular = connection.removesuffix("s")
            other_form = f"{connection}s" if singular == connection else singular
            spellings_of_tool += [
                tool.method,  # ``write_file``
                connection,  # ``shell``; ambiguous if the connection has several tools
                connection + tool.method,  # ``disk_write_file``
                other_form + tool.method,
            ]
        for spelling in filter(None, spellings_of_tool):
            names_by_spelling[normalise_spelling(spelling)].add(name)
    name_by_spelling: dict[str, str] = {}
    for spelling, names in names_by_spelling.items():
        if len(names) == 1:
            name_by_spelling[spelling] = names.pop()
    # A full name always means its own tool, even if another tool has the same spelling.
    for name in tools:
        name_by_spelling[normalise_spelling(name)] = name
    return name_by_spelling
