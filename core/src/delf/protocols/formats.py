"""A file format: how the host reads input files of a kind, and makes output files from rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable


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
