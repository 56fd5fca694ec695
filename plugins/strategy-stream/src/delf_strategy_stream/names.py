"""Other spellings of tool names, as models write them after other systems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from delf.protocols.strategy import ToolDescription


def normalise_spelling(name: str) -> str:
    """Return a name in the form in which spellings are compared."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def spellings(tools: Mapping[str, ToolDescription]) -> dict[str, str]:
    """Map spellings to the names of tools, omitting spellings that two tools share.

    A tool's other spellings are the name of an action alone (``write_file``), the whole name in
    another notation (``disk_write_file``), and the connection's name if that has one action
    (``shell``). Singular and plural of a connection's name are equal, as in ``worker_call`` for
    ``workers.call``.

    Args:
        tools: The shown tools by name.
    """
    names_by_spelling: dict[str, set[str]] = defaultdict(set)
    for name, tool in tools.items():
        connection = tool.connection
        other_number = connection[:-1] if connection.endswith("s") else f"{connection}s"
        forms = [
            name,
            tool.method,
            connection,
            connection + tool.method,
            other_number + tool.method,
        ]
        for form in filter(None, forms if connection else [name]):
            names_by_spelling[normalise_spelling(form)].add(name)
    # A full name always means its own tool.
    full_names = {normalise_spelling(name): name for name in tools}
    return {
        form: next(iter(names)) for form, names in names_by_spelling.items() if len(names) == 1
    } | full_names
