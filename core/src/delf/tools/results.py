"""Names for records that several tools return, so that a prompt spells out each record once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from delf.protocols.strategy import ToolDescription
from delf.tools.resources import nouns_of

_RECORD: Final = re.compile(r"(?P<before>list\[)?(?P<record>\{.+\})(?P<after>\]?(?: \| None)?)")
# The minimum number of characters of a record's text for which the record gets a name.
_MIN_NAMED_LENGTH: Final = 80


class Result(NamedTuple):
    """A tool's result type, in which a name stands for a record.

    Args:
        name: The name of the record, such as ``FlowRun``.
        record: The definition of the record: its keys and their types.
        text: The result type as shown, such as ``list[FlowRun]``.
        first_tool: The first tool that returns the record.
    """

    name: str
    record: str
    text: str
    first_tool: ToolDescription


Results = Mapping[str, Result]
"""The result types that contain a named record, by the name of the tool that returns them."""


def named_results(tools: Iterable[ToolDescription]) -> Results:
    """Give names to the record types that at least two tools return, alone or in a list.

    Args:
        tools: The tools that the prompt shows.

    Returns:
        A mapping from a tool's name to its :class:`Result`. The ``text`` of the result is the
        tool's result type with the new name in place of the record.
    """
    tools_by_record: dict[str, list[tuple[ToolDescription, str]]] = {}
    for tool in tools:
        result_type = _complete_result_type(tool)
        match = _RECORD.fullmatch(result_type)
        if match is not None and len(match["record"]) >= _MIN_NAMED_LENGTH:
            tools_by_record.setdefault(match["record"], []).append((tool, result_type))
    results: dict[str, Result] = {}
    used_names: set[str] = set()
    for record, tools_and_types in tools_by_record.items():
        if len(tools_and_types) < 2:
            continue
        record_tools = [tool for tool, _ in tools_and_types]
        name = _record_name(record_tools, used_names)
        used_names.add(name)
        for tool, result_type in tools_and_types:
            results[tool.name] = Result(
                name=name,
                record=record,
                text=result_type.replace(record, name, 1),
                first_tool=record_tools[0],
            )
    return results


def _complete_result_type(tool: ToolDescription) -> str:
    """Return the type of a tool's result, with the keys that ``tool.returns`` omits."""
    return tool.returns if tool.full_types is None else tool.full_types().returns


def _record_name(tools: Sequence[ToolDescription], used_names: set[str]) -> str:
    """Return an unused name, such as ``Message``, for the type of a result."""
    # Take the name with the fewest nouns: ``send_message``, not ``find_unread_message``.
    words = min((nouns_of(tool.name) for tool in tools), key=len)
    name_of_nouns = "".join(word.capitalize() for word in words)
    base = name_of_nouns or tools[0].connection.title() or "Result"
    name = base
    number = 2
    while name in used_names:
        name = f"{base}{number}"
        number += 1
    return name
