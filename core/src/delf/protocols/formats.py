"""Input files, and file formats: how the host reads some, and makes output files from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from delf.records import dataclass


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that scripts may read.

    Args:
        name: What scripts and the user call it.
        path: Where it is on the host.
        visible: Where scripts find it.
    """

    name: str
    path: str
    visible: str

    @property
    def ending(self) -> str:
        """The end of its name, as ``.csv``."""
        return Path(self.name).suffix.lower()

    @property
    def line(self) -> str:
        """Return its line in the prompt."""
        try:
            size = f"{self.size:,} bytes"
        except OSError:
            size = "gone"
        name = self.name if self.name.isprintable() else repr(self.name)
        return f"{name} ({size}): open({self.visible!r})"

    @property
    def size(self) -> int:
        """Bytes, as it is now.

        Raises:
            OSError: When it is gone.
        """
        return Path(self.path).stat().st_size


class FileFormat(Protocol):
    """Reads files that hold tables, for ``files.read`` and ``files.list``.

    Files are the user's own, and a script chooses when they are read: work that takes long
    belongs in a thread, and what a file claims to hold is limited before it is unpacked.
    """

    async def parts(self, path: str) -> Sequence[str]:
        """The names of a file's tables, such as the sheets of a workbook, in their order.

        Args:
            path: Absolute, on the host.

        Raises:
            ToolExecutionError: When the file cannot be read, with a message for the script.
        """
        ...

    async def read(self, path: str, part: str | None) -> list[dict[str, Any]]:
        """The rows of one table.

        Args:
            path: Absolute, on the host.
            part: The table's name; the first when None.

        Raises:
            ToolExecutionError: When the file cannot be read, or has no such part.
        """
        ...


@runtime_checkable
class SupportsWrite(Protocol):
    """A format that can make files, too."""

    async def write(self, parts: Mapping[str, Sequence[Sequence[Any]]]) -> bytes:
        """A file's content.

        Args:
            parts: The rows of each table by its name; the first row names the columns. Cells
                are None, text, numbers, booleans, dates, times.

        Raises:
            ToolExecutionError: When the rows cannot be put into such a file.
        """
        ...


class FileFormats(Protocol):
    """The formats that are installed."""

    def reader(self, ending: str) -> FileFormat | None:
        """Find the format that reads files of an ending, or None where no plugin does.

        Args:
            ending: As ``.xlsx``.

        Raises:
            PluginError: When two do, or the one that does is broken.
        """
        ...
