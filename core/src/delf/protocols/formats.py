"""Input files and file formats, which read tables and write output files from rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from delf.members import ProtocolMeta
from delf.records import dataclass
from delf.types import Trust

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that scripts may read.

    Args:
        name: The name for scripts and the user.
        path: The path on the host.
        visible: The path for scripts.
        trust: ``own`` if the user declared the contents as their own, else ``outside``.
    """

    name: str
    path: str
    visible: str
    trust: Trust = "outside"

    @property
    def ending(self) -> str:
        """The file's suffix, such as ``.csv``."""
        return Path(self.name).suffix.lower()

    @property
    def line(self) -> str:
        """The file's line in the prompt."""
        try:
            size = f"{self.size:,} bytes"
        except OSError:
            size = "gone"
        name = self.name if self.name.isprintable() else repr(self.name)
        path_for_scripts = self.visible
        return f"{name} ({size}): open({path_for_scripts!r})"

    @property
    def size(self) -> int:
        """The current size in bytes.

        Raises:
            OSError: If the file no longer exists.
        """
        return Path(self.path).stat().st_size


class FormatFactory(NamedTuple):
    """The import location of a factory, so that another process can make a :class:`FileFormat`.

    Args:
        module: The module's name.
        attribute: The factory's name in the module.
        file: The module's file, for a process that does not find the module by its name.
    """

    module: str
    attribute: str
    file: str | None = None


class FileFormat(Protocol):
    """A reader of files with tables, for ``files.read``, ``files.query`` and ``files.list``.

    The reader is created in a child process, which can read the file but cannot write, holds no
    data of the host, and has limits on time and memory. The methods :meth:`parts` and
    :meth:`read` may therefore block.
    """

    async def parts(self, path: str) -> Sequence[str]:
        """Return the names of a file's tables, such as the sheets of a workbook, in their order.

        Args:
            path: Absolute, on the host.

        Raises:
            ToolException: If the file cannot be read, with a message for the script.
        """
        ...

    async def read(self, path: str, part: str | None) -> list[dict[str, Any]]:
        """Return the rows of one table.

        Args:
            path: Absolute, on the host.
            part: The table's name; the first when None.

        Raises:
            ToolException: If the file cannot be read or has no such table.
        """
        ...


class Peek(NamedTuple):
    """The first rows of a table, unparsed.

    Args:
        rows: Non-empty rows with their row numbers in the file, from 1.
        total: The approximate number of rows; None if unknown without reading the file.
        columns: Column names and types declared by the file; None if a header row names the
            columns.
        last: The last rows of the table, without those in ``rows``; empty if the format can get
            the last rows only slowly.
    """

    rows: Sequence[tuple[int, list[Any]]]
    total: int | None = None
    columns: Sequence[tuple[str, str]] | None = None
    last: Sequence[tuple[int, list[Any]]] = ()


@runtime_checkable
class SupportsPeek(Protocol, metaclass=ProtocolMeta):
    """A format that can read only the first rows of its tables.

    The prompt shows these rows. If the column names are not in the first row, the prompt tells the
    model to read the table with ``header=``.
    """

    async def peek(self, path: str, part: str | None, max_rows: int | None) -> Peek:
        """Return the first rows of one table as stored, so that the caller can choose the header.

        Args:
            path: The absolute path of the file on the host.
            part: The table's name; the first when None.
            max_rows: The maximum number of rows; all when None.

        Raises:
            ToolException: If the file cannot be read or has no such table.
        """
        ...


@runtime_checkable
class SupportsWrite(Protocol, metaclass=ProtocolMeta):
    """A format that can also write files."""

    async def write(self, parts: Mapping[str, Sequence[Sequence[Any]]]) -> bytes:
        """Encode tables as a file.

        Args:
            parts: The rows of each table by its name; the first row names the columns. Cells
                are None, text, numbers, booleans, dates, times.

        Raises:
            ToolException: If the format cannot represent the rows.
        """
        ...


class InstalledFormats(Protocol):
    """The installed file formats, shared by all tasks of an agent.

    This is a protocol because connections use the formats without a dependency on the engine.
    """

    def factory(self, ending: str) -> FormatFactory | None:
        """Return the import location of the format that reads files with a suffix.

        Args:
            ending: A suffix such as ``.rows``.

        Returns:
            The location, for use in another process; None if no plugin reads such files.

        Raises:
            PluginError: If two plugins match, or the matching plugin is broken.
        """
        ...

    def shared(self, make: Callable[[], T]) -> T:
        """Return an object that all tasks of the agent share, and that is closed with the agent.

        Args:
            make: A class or function that makes the object, called only once.
        """
        ...
