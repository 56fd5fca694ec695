"""Learns the types of tools' results that no schema declares, or that contradict the schema."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from delf.errors import ToolDefinitionError
from delf.tools.json_schema import Checker
from delf_mcp.settings import MCPSettings
from delf_schemas.actions import ObservedTypes, result_text
from delf_schemas.samples import Found, Samples, kind_at, place_of, visible_types

if TYPE_CHECKING:
    import mcp_types as types

_log = logging.getLogger(__name__)
_MAX_FAULTS: Final = 200


class Results:
    """The types that delf has seen in the results of a server's tools.

    Args:
        name: The connection's name.
        settings: The settings that identify the server and enable learning.
    """

    def __init__(self, name: str, settings: MCPSettings) -> None:
        self._name = name
        self._settings = settings
        self._samples: Samples | None = None  # the learned types; made on first use
        # The checkers of the tools' output schemas, by the key of _sample_key().
        self._checkers: dict[str, Checker | None] = {}
        # The types that earlier results of a tool had, and their places, by the same key.
        self._known_types: dict[str, set[Found]] = {}

    def observed_types(self, tool: types.Tool) -> ObservedTypes:
        """Return the types seen in a tool's results so far; none without the setting ``sample``."""
        if not self._settings.sample:
            return ObservedTypes(None, frozenset())
        samples = self._get_samples()
        tool_key = _sample_key(tool)
        # A field that is declared as text may contain JSON, whose type is shown to the model.
        types_in_json_texts: set[Found] = set()
        # The server's schema is not checked: ``properties`` may also be null.
        properties: Mapping[str, Any] = (tool.output_schema or {}).get("properties") or {}
        for field in properties:
            type_name = samples.type_of(_field_key(tool_key, field))
            if type_name:
                types_in_json_texts.add(((field,), type_name))
        undeclared_types = samples.undeclared_types(tool_key) | types_in_json_texts
        return ObservedTypes(samples.type_of(tool_key), undeclared_types)

    async def record_types(self, tool: types.Tool, value: Any) -> str:
        """Record the types of a result's values, as far as the tool's schema does not declare them.

        Nothing is recorded if the setting ``sample`` is off, or after enough results of the tool.

        Returns:
            A report of the types that contradict the schema, and that no earlier result had, such
            as ``None at a.b, str at c``. In fields that the stub does not show, only None is
            reported. The report is empty if the tool has no schema.
        """
        if not self._settings.sample:
            return ""
        samples = self._get_samples()
        tool_key = _sample_key(tool)
        is_in_sample = samples.count_result(tool_key)
        if not is_in_sample:
            return ""
        if tool.output_schema is None:  # record the type of the whole result
            samples.note(tool_key, value)
            return ""
        for field, json_text in _texts_with_data(value):  # the schema says only ``str``
            samples.note(_field_key(tool_key, field), json_text)
        path_by_type = await asyncio.to_thread(self._types_against_schema, tool, tool_key, value)
        new_types = self._new_types(tool_key, path_by_type)
        if not new_types:
            return ""
        shown_types = visible_types(result_text(tool.output_schema), new_types)
        samples.note_undeclared(tool_key, shown_types)
        # A script may fail with None in any field, also in a field that is not shown.
        return ", ".join(
            f"{type_name} at {path_by_type[place, type_name]}"
            for place, type_name in new_types
            if (place, type_name) in shown_types or type_name == "None"
        )

    def _new_types(self, tool_key: str, undeclared_types: Iterable[Found]) -> list[Found]:
        """Return the undeclared types that no earlier result of the tool had at the same place."""
        if tool_key not in self._known_types:
            # Begin with the types that earlier processes recorded.
            self._known_types[tool_key] = set(self._get_samples().undeclared_types(tool_key))
        known_types = self._known_types[tool_key]
        new_types = [found for found in undeclared_types if found not in known_types]
        known_types.update(new_types)
        return new_types

    async def aclose(self) -> None:
        """Finish pending writes."""
        if self._samples is not None:
            await self._samples.aclose()

    def _get_samples(self) -> Samples:
        """Return the learned types of results, which a file keeps."""
        from delf_mcp.known import LearnedTypes

        if self._samples is None:
            self._samples = Samples(LearnedTypes(self._name, self._settings))
        return self._samples

    def _types_against_schema(
        self, tool: types.Tool, tool_key: str, value: Any
    ) -> dict[Found, str]:
        """Return the types of a result's values that contradict the tool's schema.

        If the schema cannot be used, log a warning at the tool's first result.

        Args:
            tool: The tool.
            tool_key: The key under which the checker of the tool's results is stored.
            value: The result.

        Returns:
            A mapping from (place, type) to the path of the first value of that type, such as
            ``orders.0.date``. A place is a path with ``*`` instead of list indexes.
        """
        if tool_key not in self._checkers:
            try:
                self._checkers[tool_key] = Checker(tool.output_schema or {}, tool.name)
            except ToolDefinitionError as error:
                self._checkers[tool_key] = None
                _log.warning(
                    "%s: results of %r are not checked: %s", self._name, tool.name, error.message
                )
        checker = self._checkers[tool_key]
        faults = [] if checker is None else checker.faults(value, _MAX_FAULTS)
        path_by_type: dict[Found, str] = {}
        for fault in faults:
            type_name = kind_at(value, fault.path)
            if type_name and not fault.unchecked:
                path = ".".join(map(str, fault.path))
                path_by_type.setdefault((place_of(fault.path), type_name), path)
        return path_by_type


def _texts_with_data(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the key and the text of each field whose text may be JSON or a Python literal.

    Some servers put their whole result as such a text into one field of a record.
    """
    if not isinstance(value, dict):
        return
    for name, text in cast("dict[str, Any]", value).items():
        if isinstance(text, str) and text.lstrip().startswith(("{", "[", "(")):
            yield name, text


def _sample_key(tool: types.Tool) -> str:
    """Return the key for the sample of a tool's results.

    The key changes with the tool's description and schemas, because a changed tool may return other
    data.
    """
    from delf_mcp.listing import digest_of

    return f"{tool.name} {digest_of(tool)[:16]}"


def _field_key(tool_key: str, field: str) -> str:
    """Return the key under which the sample of one field in a tool's results is stored."""
    return f"{tool_key} {field}"
