"""Detection of the row with column names, because sheets often begin with a title."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

SAMPLE_ROWS: Final = 30
_HIGH_SHARE: Final = 0.8
_MIN_CELLS: Final = 2
_MIN_ROWS: Final = 2
_MIN_ROWS_BELOW_FIRST: Final = 2
_NUMBER: Final = re.compile(r"[+-]?\d+(?:,\d{3})*(?:\.\d+)?")
_DATE: Final = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}(?:$|[ T])")
_YEARS: Final = range(1800, 2200)


def header_of(rows: Sequence[tuple[int, Sequence[Any]]]) -> int:
    """Return the index in ``rows`` of the row that probably names the columns.

    Titles above that row fill fewer cells than the rows below, or repeat one text in all cells, as
    merged cells do.

    Args:
        rows: The first non-empty rows with their numbers.
    """
    sample = rows[:SAMPLE_ROWS]
    if len(sample) < _MIN_ROWS:  # one row alone cannot be compared with others
        return 0
    width = _usual_width([len(_filled(row)) for _, row in sample])
    if width < _MIN_CELLS:
        return 0
    for index, (_, row) in enumerate(sample):
        cells = _filled(row)
        are_texts = all(isinstance(cell, str) and not _is_number(cell) for cell in cells)
        has_names_for_most_columns = len(set(cells)) >= _HIGH_SHARE * width
        if are_texts and has_names_for_most_columns and len(cells) >= _MIN_CELLS:
            return index
    return 0


def is_headless(rows: Sequence[tuple[int, Sequence[Any]]]) -> bool:
    """Return True if the first row looks like data, so that no row names the columns.

    For example, ``Anna, 3.5`` looks like data above ``Paul, 2.0``.

    Args:
        rows: The first non-empty rows with their numbers.
    """
    sample = [row for _, row in rows[:SAMPLE_ROWS]]
    if len(sample) < 1 + _MIN_ROWS_BELOW_FIRST:
        return False
    has_names_in_later_row = header_of(rows) > 0
    if has_names_in_later_row:
        return False
    first, others = sample[0], sample[1:]
    has_empty_cell = len(_filled(first)) < len(first)
    if has_empty_cell:
        return False  # it may be a row of names, in which some column has no name
    cells_above_values: list[Any] = []  # the cells of the first row above dates or numbers
    for index, cell in enumerate(first):
        usual_kind = _usual_kind([row[index] for row in others if index < len(row)])
        if usual_kind is None:
            continue
        if _kind(cell) != usual_kind:
            return False
        cells_above_values.append(cell)
    # Numbers can be names, such as the years 2023 and 2024.
    return bool(cells_above_values) and not _may_be_names(cells_above_values)


def _usual_kind(column: Sequence[Any]) -> str | None:
    """Return ``date`` or ``number`` for a column of such cells; None for any other column.

    A column of texts or of mixed kinds does not show whether the cell above is a name.
    """
    kinds = list(map(_kind, _filled(column)))
    if not kinds:
        return None
    usual_kind, count = Counter(kinds).most_common(1)[0]
    is_mixed = count < _HIGH_SHARE * len(kinds)
    return None if is_mixed or usual_kind == "text" else usual_kind


def _may_be_names(cells: Sequence[Any]) -> bool:
    """Return True for numbers that may name columns: years (2023, 2025) or 1, 2, 3 and so on."""
    numbers = [float(str(cell).replace(",", "")) for cell in cells if _kind(cell) == "number"]
    are_years = len(numbers) == len(cells) and all(map(_is_year, numbers))
    are_consecutive = len(numbers) > 1 and all(b - a == 1 for a, b in pairwise(numbers))
    return are_years or are_consecutive


def _kind(cell: Any) -> str:
    """Return the kind of a cell: ``date``, ``number`` or ``text``.

    A text that is written like a number or a date, such as ``"3.5"``, has that kind.
    """
    if isinstance(cell, (dt.date, dt.time, dt.timedelta)):
        return "date"
    if isinstance(cell, (int, float, Decimal)) and not isinstance(cell, bool):
        return "number"
    text = str(cell).strip()
    if _DATE.match(text):
        return "date"
    return "number" if _NUMBER.fullmatch(text) else "text"


def _is_year(number: float) -> bool:
    return number.is_integer() and number in _YEARS


def _usual_width(widths: Sequence[int]) -> int:
    """Return the most common number of filled cells; of equally common numbers, the largest."""
    counts = Counter(widths)
    return max(counts, key=lambda width: (counts[width], width))


def _filled(row: Sequence[Any]) -> list[Any]:
    return [cell for cell in row if cell is not None and str(cell).strip()]


def _is_number(text: str) -> bool:
    return text.strip().replace(",", "").replace(".", "").lstrip("+-").isdigit()
