"""Other spellings of tool names, as models write them after other systems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from delf.protocols.strategy import ToolDescription


def normalise_spelling(name: str) -> str:
    """Return the letters and digits of a name in lower case, for comparing spellings."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def spellings(tools: Mapping[str, ToolDescription]) -> dict[str, str]:
    """Return a mapping from normalised spelling to tool name.

    Besides its name, a tool may be called by its action's name (``write_file``), by its name in
    another notation (``disk_write_file``), or by its connection's name if that has one action
    (``shell``). The connection's name may be singular or plural: ``worker_call`` means
    ``workers.call``. A spelling that fits two tools is omitted.

    Args:
        tools: A mapping from name to tool, of the tools in the prompt.
    """
    names_by_spelling: dict[str, set[str]] = defaultdict(set)
    for name, tool in tools.items():
        connection = tool.connection
        spellings_of_tool = [name]
        if connection:
            # The plural of a singular name, the singular of a plural name.
            other_form = connection[:-1] if connection.endswith("s") else f"{connection}s"
            spellings_of_tool += [
                tool.method,
                connection,
                connection + tool.method,
                other_form + tool.method,
            ]
        for spelling in filter(None, spellings_of_tool):
            names_by_spelling[normalise_spelling(spelling)].add(name)
    name_by_spelling: dict[str, str] = {}
    for spelling, names in names_by_spelling.items():
        if len(names) == 1:
            name_by_spelling[spelling] = names.pop()
    # A full name always means its own tool.
    for name in tools:
        name_by_spelling[normalise_spelling(name)] = name
    return name_by_spelling
