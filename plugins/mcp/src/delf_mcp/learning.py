"""Learns undeclared parts of tools' results."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from delf.errors import ToolDefinitionError
from delf.tools.json_schema import Checker
from delf.tools.type_texts import with_none
from delf_mcp.settings import MCPSettings
from delf_schemas.actions import Seen, result_text
from delf_schemas.samples import Place, Samples, is_null_at, place_of

if TYPE_CHECKING:
    import mcp_types as types

_MOST_FAULTS: Final = 200


class Results:
    """Learned result types of a server's tools, and undeclared nulls.

    Args:
        name: The connection's name.
        settings: The settings that identify the server and enable learning.
    """

    def __init__(self, name: str, settings: MCPSettings) -> None:
        self._name = name
        self._settings = settings
        self._samples: Samples | None = None
        self._checkers: dict[str, Checker | None] = {}
        self._null_places: dict[str, set[Place]] = {}

    def seen(self, tool: types.Tool) -> Seen:
        """Return the type of a tool's results as seen so far, and the places of nulls."""
        if not self._settings.sample:
            return None, frozenset()
        samples, key = self._kept(), _key(tool)
        return samples.type_of(key), samples.nulls(key)

    async def learn(self, tool: types.Tool, value: Any) -> str:
        """Learn from a result.

        Returns:
            The paths of undeclared nulls that were not reported yet.
        """
        samples, key = self._kept(), _key(tool)
        if not self._settings.sample or not samples.wants(key):
            return ""
        if tool.output_schema is None:
            samples.note(key, value)
            return ""
        nulls = await asyncio.to_thread(self._nulls, tool, key, value)
        null_places = self._null_places.setdefault(key, set(samples.nulls(key)))
        new = {place: path for place, path in nulls.items() if place not in null_places}
        null_places.update(new)
        if new:
            declared = result_text(tool.output_schema)
            places = {place for place in new if with_none(declared, [place]) != declared}
            samples.note_nulls(key, places)
        return ", ".join(new.values())

    async def aclose(self) -> None:
        """Finish pending writes."""
        if self._samples is not None:
            await self._samples.aclose()

    def _kept(self) -> Samples:
        from delf_mcp.known import Learned

        if self._samples is None:
            learned = Learned(self._name, self._settings) if self._settings.sample else None
            self._samples = Samples(learned)
        return self._samples

    def _nulls(self, tool: types.Tool, key: str, value: Any) -> dict[Place, str]:
        """Return the places of undeclared nulls of a tool, each with its first path."""
        if key not in self._checkers:
            try:
                self._checkers[key] = Checker(tool.output_schema or {}, tool.name)
            except ToolDefinitionError:  # results of such a tool are not checked
                self._checkers[key] = None
        checker = self._checkers[key]
        faults = [] if checker is None else checker.faults(value, _MOST_FAULTS)
        paths = [f.path for f in faults if not f.unchecked and is_null_at(value, f.path)]
        return {place_of(path): ".".join(map(str, path)) for path in reversed(paths)}


def _key(tool: types.Tool) -> str:
    """Return a key for a tool and its description, as a changed tool may return other data."""
    from delf_mcp.listing import digest_of

    return f"{tool.name} {digest_of(tool)[:16]}"
