"""Learns the types of tools' results that no schema declares, or that contradict the schema."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from delf.errors import ToolDefinitionError
from delf.tools.json_schema import Checker
from delf.tools.type_texts import with_types
from delf_mcp.settings import MCPSettings
from delf_schemas.actions import ObservedTypes, result_text
from delf_schemas.samples import Found, Samples, kind_at, place_of

if TYPE_CHECKING:
    import mcp_types as types

_MAX_FAULTS: Final = 200


class Results:
    """The learned types of the results of a server's tools.

    Args:
        name: The connection's name.
        settings: The settings that identify the server and enable learning.
    """

    def __init__(self, name: str, settings: MCPSettings) -> None:
        self._name = name
        self._settings = settings
        self._samples: Samples | None = None
        self._checkers: dict[str, Checker | None] = {}
        self._reported: dict[str, set[Found]] = {}

    def seen(self, tool: types.Tool) -> ObservedTypes:
        """Return what was learned about a tool's results.

        Returns:
            The type of the results so far (None if unknown), and the types inside results that the
            tool's schema does not declare, with their paths.
        """
        if not self._settings.sample:
            return None, frozenset()
        samples, key = self._get_samples(), _key(tool)
        types_in_json_texts = {
            ((name,), kind)
            for name in (tool.output_schema or {}).get("properties", ())
            if (kind := samples.type_of(f"{key} {name}"))
        }
        return samples.type_of(key), samples.undeclared_types(key) | types_in_json_texts

    async def learn(self, tool: types.Tool, value: Any) -> str:
        """Learn the types of a result.

        Returns:
            The types that contradict the tool's schema and were not reported yet, each with the
            path of the first such value, as ``None at a.b``. Empty if there are none.
        """
        samples, key = self._get_samples(), _key(tool)
        if not self._settings.sample or not samples.wants(key):
            return ""
        if tool.output_schema is None:
            samples.note(key, value)
            return ""
        for name, text in _json_like_texts(value):
            samples.note(f"{key} {name}", text)
        paths = await asyncio.to_thread(self._undeclared_types, tool, key, value)
        reported = self._reported.setdefault(key, set(samples.undeclared_types(key)))
        new_types = [found for found in paths if found not in reported]
        reported.update(new_types)
        declared = result_text(tool.output_schema) if new_types else ""
        # Only these types change how the result's type is shown to the model.
        shown_types = {found for found in new_types if with_types(declared, [found]) != declared}
        samples.note_undeclared(key, shown_types)
        return ", ".join(
            f"{kind} at {paths[place, kind]}"
            for place, kind in new_types
            if kind == "None" or (place, kind) in shown_types
        )

    async def aclose(self) -> None:
        """Finish pending writes."""
        if self._samples is not None:
            await self._samples.aclose()

    def _get_samples(self) -> Samples:
        from delf_mcp.known import Learned

        if self._samples is None:
            learned = Learned(self._name, self._settings) if self._settings.sample else None
            self._samples = Samples(learned)
        return self._samples

    def _undeclared_types(self, tool: types.Tool, key: str, value: Any) -> dict[Found, str]:
        """Return the types in a result that contradict the tool's schema.

        Returns:
            A mapping from (place, type) to the path of the first value of that type.
        """
        if key not in self._checkers:
            try:
                self._checkers[key] = Checker(tool.output_schema or {}, tool.name)
            except ToolDefinitionError:  # results of such a tool are not checked
                self._checkers[key] = None
        checker = self._checkers[key]
        faults = [] if checker is None else checker.faults(value, _MAX_FAULTS)
        # In reverse order, so that the first of several faults with the same key remains.
        return {
            (place_of(fault.path), kind): ".".join(map(str, fault.path))
            for fault in reversed(faults)
            if not fault.unchecked and (kind := kind_at(value, fault.path))
        }


def _json_like_texts(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the key and the text of each text field of a record that may contain JSON.

    Some servers put their whole result as JSON into one text field.
    """
    if not isinstance(value, dict):
        return
    for name, text in cast("dict[str, Any]", value).items():
        if isinstance(text, str) and text.lstrip().startswith(("{", "[", "(")):
            yield name, text


def _key(tool: types.Tool) -> str:
    """Return a key for samples that changes with the tool's description.

    A changed tool may return other data.
    """
    from delf_mcp.listing import digest_of

    return f"{tool.name} {digest_of(tool)[:16]}"
