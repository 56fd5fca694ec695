"""File formats of installed plugins."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from delf.errors import PluginError
from delf.plugins.host import PluginHost
from delf.protocols.formats import FormatFactory, SupportsWrite
from delf.specs import FormatSpec
from delf_engine.closing import close_all

T = TypeVar("T")


class Formats:
    """The installed file formats, by the suffixes of files.

    Args:
        host: The plugins.
    """

    def __init__(self, host: PluginHost) -> None:
        self._host = host
        self._shared: dict[Callable[[], Any], Any] = {}  # the results of shared(), by its argument

    @property
    def writable(self) -> tuple[str, ...]:
        """Suffixes of output files that can be written from rows."""
        specs = self._host.specs(FormatSpec)
        return tuple(sorted({ending for spec in specs for ending in spec.writes}))

    def factory(self, ending: str) -> FormatFactory | None:
        """Return the import location of the format that reads files with an ending.

        A confined child process creates the format from this location, because the file may come
        from a stranger. None if no plugin reads files with the ending.
        """
        matching_specs = [spec for spec in self._host.specs(FormatSpec) if ending in spec.endings]
        if not matching_specs:
            return None
        factory = self._resolve(matching_specs, ending)
        module: str = factory.__module__
        return FormatFactory(module, factory.__qualname__, sys.modules[module].__file__)

    def shared(self, make: Callable[[], T]) -> T:
        """Call a function once for all tasks of the agent, and return its result."""
        if make not in self._shared:
            self._shared[make] = make()
        return self._shared[make]

    async def aclose(self) -> None:
        """Close the format objects that all tasks share. The next use creates new objects."""
        formats = {f"the file format {make!r}": made for make, made in self._shared.items()}
        self._shared.clear()
        await close_all(formats)

    def writer(self, ending: str) -> SupportsWrite:
        """Return the format that writes files with a suffix.

        Raises:
            PluginError: If no plugin, or more than one, writes files with the suffix, or if the
                plugin is broken.
        """
        matching_specs = [spec for spec in self._host.specs(FormatSpec) if ending in spec.writes]
        if matching_specs:
            file_format = self._resolve(matching_specs, ending)()
            if isinstance(file_format, SupportsWrite):
                return file_format
        raise self._host.with_load_failures(PluginError(f"no plugin makes {ending} files"))

    def _resolve(self, specs: list[FormatSpec], ending: str) -> Any:
        """Import the factory of the preferred format; raise if several are equally good."""
        return self._host.resolve(self._host.preferred_spec(specs, f"the ending {ending}"))
