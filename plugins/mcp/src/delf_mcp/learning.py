"""Learns the types of tools' results that no schema declares, or that contradict the schema."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from delf.errors import ToolDefinitionError
from delf.tools.json_schema import Checker
from delf.tools.type_texts import with_types
from delf_mcp.settings import MCPSettings
from delf_schemas.actions import Seen, result_text
from delf_schemas.samples import Found, Samples, kind_at, place_of

if TYPE_CHECKING:
    import mcp_types as types

_MAX_FAULTS: Final = 200


class Results:
    """Learned types of results of a server's tools.

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

    def seen(self, tool: types.Tool) -> Seen:
        """Return the type of a tool's results so far, and the types that contradict its schema."""
        if not self._settings.sample:
            return None, frozenset()
        samples, key = self._get_samples(), _key(tool)
        contents = {
            ((name,), kind)
            for name in (tool.output_schema or {}).get("properties", ())
            if (kind := samples.type_of(f"{key} {name}"))
        }
        return samples.type_of(key), samples.undeclared_types(key) | contents

    async def learn(self, tool: types.Tool, value: Any) -> str:
        """Learn from a result.

        Returns:
            The values that contradict the schema and were not reported yet, as ``None at a.b``.
        """
        samples, key = self._get_samples(), _key(tool)
        if not self._settings.sample or not samples.wants(key):
            return ""
        if tool.output_schema is None:
            samples.note(key, value)
            return ""
        for name, text in _texts(value):
            samples.note(f"{key} {name}", text)
        faults = await asyncio.to_thread(self._faults, tool, key, value)
        reported = self._reported.setdefault(key, set(samples.undeclared_types(key)))
        new_faults = {fault: path for fault, path in faults.items() if fault not in reported}
        reported.update(new_faults)
        declared = result_text(tool.output_schema) if new_faults else ""
        fault = {each for each in new_faults if with_types(declared, [each]) != declared}
        samples.note_undeclared(key, fault)
        nulls = (each for each in new_faults if each[1] == "None")
        return ", ".join(
            f"{each[1]} at {new_faults[each]}" for each in new_faults if each in {*fault, *nulls}
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

    def _faults(self, tool: types.Tool, key: str, value: Any) -> dict[Found, str]:
        """Map each type that contradicts the tool's schema to the path of its first value."""
        if key not in self._checkers:
            try:
                self._checkers[key] = Checker(tool.output_schema or {}, tool.name)
            except ToolDefinitionError:  # results of such a tool are not checked
                self._checkers[key] = None
        checker = self._checkers[key]
        faults = [] if checker is None else checker.faults(value, _MAX_FAULTS)
        return {
            (place_of(fault.path), kind): ".".join(map(str, fault.path))
            for fault in reversed(faults)
            if not fault.unchecked and (kind := kind_at(value, fault.path))
        }


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts of a record that may be JSON, because servers wrap results in this way."""
    for name, text in cast("dict[str, Any]", value).items() if isinstance(value, dict) else ():
        if isinstance(text, str) and text.lstrip().startswith(("{", "[", "(")):
            yield name, text


def _key(tool: types.Tool) -> str:
    """Return a key for a tool and its description, as a changed tool may return other data."""
    from delf_mcp.listing import digest_of

    return f"{tool.name} {digest_of(tool)[:16]}"
