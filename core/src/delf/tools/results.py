"""Names for records that several tools return, so that a prompt spells out each record once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from delf.protocols.strategy import ToolDescription
from delf.tools.resources import nouns_of

_RECORD: Final = re.compile(r"(?P<before>list\[)?(?P<record>\{.+\})(?P<after>\]?(?: \| None)?)")
# Matches a brace; a brace in a text, such as in a key, is part of another match.
_BRACE: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[{}]")
# The minimum number of characters of a record's text for which the record gets a name.
_MIN_NAMED_LENGTH: Final = 80


class NamedRecord(NamedTuple):
    """A record that several tools return.

    Args:
        name: The name of the record, such as ``FlowRun``.
        text: The definition of the record, with the names of inner records.
        complete_text: The definition without names of other records.
        inner_records: The named records in ``text``, and those in their definitions.
        first_tool: The first tool whose result contains the record.
        described_by: The first tool whose result is the record, or a list of such records.
    """

    name: str
    text: str
    complete_text: str
    inner_records: Sequence[NamedRecord]
    first_tool: ToolDescription
    described_by: ToolDescription


class Result(NamedTuple):
    """A tool's result type, in which names stand for records.

    Args:
        text: The result type, such as ``list[FlowRun]``.
        records: The records that the type names, with their inner records.
        is_record: True if the result is a record, or a list of records; False if it contains them.
    """

    text: str
    records: Sequence[NamedRecord]
    is_record: bool


Results = Mapping[str, Result]
"""The result types that contain a named record, by the name of the tool that returns them."""


def named_results(tools: Iterable[ToolDescription]) -> Results:
    """Give names to the long record types that at least two tools return.

    A record gets a name only if the whole result of one of these tools is the record, or a list of
    such records. In the results of the other tools, the record may be a part, such as in a page of
    records.

    Args:
        tools: The tools that the prompt shows.

    Returns:
        A mapping from a tool's name to its :class:`Result`. The ``text`` of the result is the
        tool's result type with the new names in place of the records.
    """
    types = [(tool, _complete_result_type(tool)) for tool in tools]
    records = _name_records(types)
    results: dict[str, Result] = {}
    for tool, result_type in types:
        text, named_records = _with_names(result_type, records)
        if named_records:
            is_record = _whole_record(result_type) in records
            results[tool.name] = Result(text, named_records, is_record=is_record)
    return results


def _name_records(types: Iterable[tuple[ToolDescription, str]]) -> Mapping[str, NamedRecord]:
    """Give names to records, as :func:`named_results` describes.

    Args:
        types: Each tool with its complete result type.

    Returns:
        The named records. The key is the record's text ``{…}`` before inner records are replaced by
        their names.
    """
    # For each record, the tools whose result contains the record anywhere.
    tools_by_record: dict[str, list[ToolDescription]] = {}
    # For each record, the tools whose result is the record, or a list of such records.
    tools_by_whole_record: dict[str, list[ToolDescription]] = {}
    for tool, result_type in types:
        for record in _records_in(result_type):
            tools_by_record.setdefault(record, []).append(tool)
        whole_record = _whole_record(result_type)
        if whole_record is not None:
            tools_by_whole_record.setdefault(whole_record, []).append(tool)
    records: dict[str, NamedRecord] = {}
    used_names: set[str] = set()
    # The shortest first: inner records need names before the records around them, whose definitions
    # contain these names.
    for record in sorted(tools_by_whole_record, key=len):
        all_tools = tools_by_record[record]
        if len(all_tools) < 2:
            continue
        record_tools = tools_by_whole_record[record]
        name = _record_name(record_tools, used_names)
        used_names.add(name)
        text, inner_records = _with_names(record, records)
        records[record] = NamedRecord(
            name=name,
            text=text,
            complete_text=record,
            inner_records=inner_records,
            first_tool=all_tools[0],
            described_by=record_tools[0],
        )
    return records


def _with_names(text: str, records: Mapping[str, NamedRecord]) -> tuple[str, Sequence[NamedRecord]]:
    """Replace the outermost named records of a type by their names.

    Returns:
        The type with names, and the records to define: each after its inner records.
    """
    to_define: dict[str, NamedRecord] = {}
    for part in _records_in(text):
        record = records.get(part)
        # ``part`` is missing in ``text`` if a record around it was replaced before.
        if record is None or part not in text:
            continue
        text = text.replace(part, record.name)
        to_define.update((needed.name, needed) for needed in (*record.inner_records, record))
    return text, tuple(to_define.values())


@lru_cache(20_000)
def _records_in(result_type: str) -> Sequence[str]:
    """Return the distinct records ``{…}`` in a type that are long enough for a name, longest first.

    A record is long enough with ``_MIN_NAMED_LENGTH`` characters.
    """
    starts: list[int] = []
    records: set[str] = set()
    for match in _BRACE.finditer(result_type):
        if match[0] == "{":
            starts.append(match.start())
        elif match[0] == "}" and starts:
            record = result_type[starts.pop() : match.end()]
            if len(record) >= _MIN_NAMED_LENGTH:
                records.add(record)
    return sorted(records, key=lambda record: (-len(record), record))


@lru_cache(20_000)
def _whole_record(result_type: str) -> str | None:
    """Return the record ``{…}`` if a type is a long ``{…}`` or ``list[{…}]``, else None."""
    match = _RECORD.fullmatch(result_type)
    if match is None or match["record"] not in _records_in(result_type):
        return None
    return match["record"]


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
