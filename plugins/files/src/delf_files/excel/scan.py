"""A scan of a workbook's XML before openpyxl, which loads whole rows and texts.

A small archive can hold a sheet with tens of millions of cells in one row. The scan keeps nothing
in memory, and stops at the first limit of Excel that is exceeded.
"""

from __future__ import annotations

import re
import zipfile
from contextlib import suppress
from typing import IO, Any, Final, NamedTuple, NoReturn
from xml.parsers import expat

from delf.errors import ToolExecutionError
from delf.values.numbers import parse_count

MAX_UNPACKED: Final = 256 * 1024 * 1024
MAX_ROWS: Final = 1_048_576
MAX_COLUMNS: Final = 16_384
MAX_RAW_CELLS: Final = 8_000_000
"""The maximum number of cells of a sheet, including empty cells, such as in coloured rows."""
MAX_TEXTS: Final = 2_000_000
"""The maximum number of distinct texts of all sheets, which openpyxl holds in memory together."""
MAX_TEXT: Final = 8 * 32_767
"""The maximum number of characters of a cell's text in the XML.

Excel allows 32,767 characters, each of which may be escaped, such as ``_x000D_``.
"""
MAX_ELEMENTS: Final = 500_000
"""The maximum number of XML elements that openpyxl holds in memory at once.

For example, openpyxl holds all elements of one row, and those of all styles.
"""
_READ_BYTES: Final = 256 * 1024
_CELL, _ROW, _TEXT, _FORMULA, _VALUE, _DIMENSION, _MERGED, _OTHER = range(8)
_KINDS: Final = {
    "c": _CELL,
    "row": _ROW,
    "si": _TEXT,
    "f": _FORMULA,
    "v": _VALUE,
    "dimension": _DIMENSION,
    "mergeCell": _MERGED,
}
_CELL_REFERENCE: Final = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_AREA: Final = re.compile(r"\$?([A-Z]{1,3})\$?(\d{1,7}):\$?([A-Z]{1,3})\$?(\d{1,7})")
MAX_MERGED: Final = 100_000
"""The maximum number of merged areas of a sheet; further areas are not filled with their text."""
# The root elements of the XML files that openpyxl loads completely to open a workbook.
_LOADED_ROOTS: Final = frozenset(
    {"sst", "styleSheet", "workbook", "Types", "Relationships", "Properties"}
)
_ADVICE: Final = "save the sheet as .csv and open() that in the script"


class _ScanDone(Exception):  # noqa: N818 - no error: the rest of the XML does not matter
    """Raised to stop parsing the XML early, when the result of the scan is known."""


def check_archive(source: str | IO[bytes]) -> None:
    """Check that opening a workbook with openpyxl does not take too much memory.

    Raises:
        ToolExecutionError: If the workbook exceeds a limit.
    """
    with zipfile.ZipFile(source) as archive:
        items = archive.infolist()
        unpacked = sum(item.file_size for item in items)
        if unpacked > MAX_UNPACKED:
            raise ToolExecutionError(
                f"the workbook has {unpacked:,} bytes unpacked, and at most {MAX_UNPACKED:,} are "
                f"read; {_ADVICE}"
            )
        for item in items:
            if item.filename.lower().endswith((".xml", ".rels")):
                # A damaged sheet is reported when it is read; other sheets stay readable.
                with archive.open(item) as stream, suppress(expat.ExpatError):
                    _XmlScan(scans_only_loaded_xml=True).read(stream)


class Area(NamedTuple):
    """The first and last rows and columns of merged cells: rows from 1, columns from 0."""

    top: int
    left: int
    bottom: int
    right: int


class Sheet(NamedTuple):
    """The result of scanning a sheet.

    Args:
        computed_count: The number of formulas with a computed value.
        uncomputed_cells: The cells with formulas that have no computed value, in order, as (row
            from 1, column from 0).
        merged_areas: The merged areas.
        row_count: The number of rows.
    """

    computed_count: int
    uncomputed_cells: dict[tuple[int, int], None]
    merged_areas: list[Area]
    row_count: int


def scan_sheet(source: str | IO[bytes], part: str) -> Sheet:
    """Scan the XML of a sheet; return the number of its rows, its formulas and merged areas.

    Args:
        source: The workbook.
        part: The path of the sheet's XML within the workbook.

    Raises:
        ToolExecutionError: If reading the sheet would take too much memory.
    """
    with zipfile.ZipFile(source) as archive, archive.open(part) as stream:
        # To open a workbook, openpyxl loads only the beginning of a sheet, which check_archive()
        # scans. This scan covers the whole sheet.
        scan = _XmlScan(scans_only_loaded_xml=False)
        scan.read(stream)
        # Each cell is counted when the next cell or row begins. No cell follows the last one.
        scan.end_cell()
        return Sheet(scan.computed_count, scan.uncomputed_cells, scan.merged_areas, scan.row_count)


class _XmlScan:
    """A scan of one XML file of a workbook that stops at the first exceeded limit.

    Args:
        scans_only_loaded_xml: Whether to scan only the XML that openpyxl loads to open a workbook;
            for a sheet, that is the XML before the element ``dimension``.
    """

    def __init__(self, *, scans_only_loaded_xml: bool) -> None:
        self.computed_count = 0
        """The number of formulas whose computed values are stored in the workbook."""
        self.uncomputed_cells: dict[tuple[int, int], None] = {}
        """The cells with formulas that have no computed value, as (row from 1, column from 0)."""
        self.merged_areas: list[Area] = []
        # True to stop after the XML that openpyxl loads to open a workbook.
        self._scans_only_loaded_xml = scans_only_loaded_xml
        # A cache of the kinds of XML elements, such as ``_CELL``.
        self._kind_by_element_name: dict[str, int] = {}
        self.row_count = 0
        self._position = (0, -1)  # of the current cell, as (row from 1, column from 0)
        # Whether the current cell has a formula, whether it has a value, and whether the scan is in
        # the element with the value.
        self._has_formula = self._has_value = self._in_value = False
        self._cell_count = self._cells_in_row = self._text_count = 0
        # The elements since the current row or text began. openpyxl holds these at once, and frees
        # them when the next row or text begins.
        self._held_elements = 0
        self._text_length = 0  # of the current element
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start_root
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._refuse_document_type

    def read(self, stream: IO[bytes]) -> None:
        """Scan the XML to its end, or until the result is known.

        Raises:
            ToolExecutionError: If a limit is exceeded.
        """
        try:
            while piece := stream.read(_READ_BYTES):
                self._parser.Parse(piece, False)
            self._parser.Parse(b"", True)
        except _ScanDone:
            return
        finally:  # break reference cycles
            self._parser.StartElementHandler = None
            self._parser.CharacterDataHandler = None
            self._parser.StartDoctypeDeclHandler = None

    def _start_root(self, name: str, attributes: Any) -> None:
        """Handle the root element of the XML.

        Raises:
            _ScanDone: If this XML need not be scanned.
        """
        root = name.rpartition(":")[2]
        # When openpyxl opens a workbook, it also loads the beginning of each worksheet.
        is_loaded_at_opening = root in _LOADED_ROOTS or root == "worksheet"
        if self._scans_only_loaded_xml and not is_loaded_at_opening:
            raise _ScanDone
        self._parser.StartElementHandler = self._start

    def _start(self, name: str, attributes: Any) -> None:
        """Count an element, and record merged areas and formulas.

        Raises:
            ToolExecutionError: If a limit is exceeded.
        """
        kind = self._kind_by_element_name.get(name)
        if kind is None:
            kind = self._kind_by_element_name[name] = _KINDS.get(name.rpartition(":")[2], _OTHER)
        self._text_length = 0
        self._in_value = kind == _VALUE
        self._held_elements += 1
        if kind == _CELL:
            self._begin_cell(attributes)
        elif kind == _ROW:
            self._begin_row(attributes)
        elif kind == _TEXT:
            self._begin_text()
        elif kind == _FORMULA:
            self._has_formula = True
        elif kind == _MERGED:
            self._add_merged_area(attributes)
        elif kind == _DIMENSION and self._scans_only_loaded_xml:
            # The element ``dimension``, such as ``<dimension ref="A1:D9"/>``, comes before the
            # rows. To open a workbook, openpyxl loads a sheet only up to this element. scan_sheet()
            # scans the rest before a sheet is read.
            raise _ScanDone
        if self._held_elements > MAX_ELEMENTS:
            _refuse(f"a part of the workbook has more than {MAX_ELEMENTS:,} elements")

    def _begin_text(self) -> None:
        """Count a text at the start of its XML element.

        A workbook stores each different text once, and cells refer to the texts by number.
        """
        self._held_elements = 0
        self._text_count += 1
        if self._text_count > MAX_TEXTS:
            _refuse(f"the workbook has more than {MAX_TEXTS:,} different texts")

    def _add_merged_area(self, attributes: Any) -> None:
        area = _AREA.fullmatch(str(attributes.get("ref", "")))
        if area is not None and len(self.merged_areas) < MAX_MERGED:
            left, top, right, bottom = area.groups()
            self.merged_areas.append(Area(int(top), _column(left), int(bottom), _column(right)))

    def _begin_row(self, attributes: Any) -> None:
        """Move the position to a new row, and count the row."""
        self.end_cell()
        row, _ = self._position
        declared_row = parse_count(str(attributes.get("r", "")))
        self._position = (row + 1 if declared_row is None else declared_row), -1
        self._held_elements = 0
        self._cells_in_row = 0
        self.row_count += 1
        if self.row_count > MAX_ROWS:
            _refuse(f"the sheet has more than {MAX_ROWS:,} rows")

    def _begin_cell(self, attributes: Any) -> None:
        """Move the position to a new cell, and count the cell."""
        self.end_cell()
        reference = _CELL_REFERENCE.fullmatch(str(attributes.get("r", "")))
        row, column = self._position
        if reference is None:
            self._position = row, column + 1
        else:
            self._position = int(reference[2]), _column(reference[1])
        # The result of a formula may be an empty text: <c t="str"> without a value element.
        self._has_value = attributes.get("t") == "str"
        self._cell_count += 1
        self._cells_in_row += 1
        if self._cells_in_row > MAX_COLUMNS:
            _refuse(f"a row of the sheet has more than {MAX_COLUMNS:,} cells")
        if self._cell_count > MAX_RAW_CELLS:
            _refuse(f"the sheet has more than {MAX_RAW_CELLS:,} cells, empty ones included")

    def end_cell(self) -> None:
        """Count the formula of the current cell, if the cell has a formula."""
        if self._has_formula and self._has_value:
            self.computed_count += 1
        elif self._has_formula:
            self.uncomputed_cells[self._position] = None
        # Count the formula once: both the next row and its first cell end this cell.
        self._has_formula = False

    def _characters(self, text: str) -> None:
        """Note whether the current cell has a value, and limit the length of texts."""
        if self._in_value and not self._has_value:
            self._has_value = not text.isspace()
        self._text_length += len(text)
        if self._text_length > MAX_TEXT:
            _refuse(f"a text of the workbook has more than {MAX_TEXT:,} characters")

    def _refuse_document_type(self, *_given: Any) -> None:
        # A document type can define nested entities, which expand to texts of unlimited size.
        raise ToolExecutionError("the workbook has a document type, which no workbook of Excel has")


def _column(letters: str) -> int:
    """Return the index of a column by its letters: 0 for ``A``, 26 for ``AA``.

    For letters beyond Excel's last column, return the index of that column.
    """
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return min(number, MAX_COLUMNS) - 1


def _refuse(reason: str) -> NoReturn:
    raise ToolExecutionError(f"{reason}; {_ADVICE}")
