"""``ExcelFormat``: the sheets of a workbook as rows, and rows as a workbook."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from delf.protocols.formats import Peek
from delf_confined.office import is_locked
from delf_files.excel import legacy, reading, writing
from delf_files.tables import records_of

_OLE_HEADER: Final = b"\xd0\xcf\x11\xe0"
_ZIP_HEADER: Final = b"PK\x03\x04"


class ExcelFormat:
    """The format of Excel workbooks: reads ``.xls`` and ``.xlsx``, and writes ``.xlsx``.

    Implements :class:`delf.protocols.formats.FileFormat`, ``SupportsPeek`` and ``SupportsWrite``.
    Reading may take much time and memory, so callers must use a child process with limits.
    """

    async def parts(self, path: str) -> Sequence[str]:
        """Return the names of the sheets in order.

        Raises:
            ToolExecutionError: If the workbook cannot be read.
        """
        return _reader(path).sheet_names(path)

    async def read(self, path: str, part: str | None) -> list[dict[str, Any]]:
        """Return the rows of one sheet, with formulas' last computed values.

        Args:
            path: The absolute path on the host.
            part: The sheet's name; the first when None.

        Raises:
            ToolExecutionError: If the workbook cannot be read or does not have the sheet.
        """
        peek = _reader(path).peek(path, part, None)
        return records_of([row for _, row in peek.rows])

    async def peek(self, path: str, part: str | None, max_rows: int | None) -> Peek:
        """Return the first non-empty rows of one sheet.

        Args:
            path: The absolute path on the host.
            part: The sheet's name; the first when None.
            max_rows: The maximum number of rows; all when None.

        Raises:
            ToolExecutionError: If the workbook cannot be read or does not have the sheet.
        """
        return _reader(path).peek(path, part, max_rows)

    async def write(self, parts: Mapping[str, Sequence[Sequence[Any]]]) -> bytes:
        """Return the bytes of an ``.xlsx`` workbook; text is never written as a formula.

        Args:
            parts: A mapping from sheet name to rows, of which the first names the columns.

        Raises:
            ToolExecutionError: If the rows exceed Excel's limits.
        """
        return await asyncio.to_thread(writing.make_workbook, parts)


def _reader(path: str) -> Any:
    """Return the module that reads a workbook, chosen by the content of the file.

    The extension is only a fallback, because Office opens a workbook in the format of .xls also
    under the extension .xlsx, and the reverse.
    """
    with suppress(OSError), Path(path).open("rb") as file:
        first_bytes = file.read(len(_OLE_HEADER))
        # An encrypted .xlsx file has the same header as an .xls file.
        if first_bytes == _OLE_HEADER and not is_locked(path):
            return legacy
        if first_bytes.startswith(_ZIP_HEADER):
            return reading
    return legacy if path.lower().endswith(".xls") else reading
