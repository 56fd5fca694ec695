"""Finds the row of a table that names its columns: sheets often begin with a title."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

LOOKED_AT: Final = 30
_NEARLY: Final = 0.8
_FEWEST: Final = 2


def header_of(rows: Sequence[tuple[int, Sequence[Any]]]) -> int:
    """Find the row that probably names the columns: an index into non-empty rows.

    A title fills fewer cells than the rows below it, or the same text fills all of them, as in
    merged cells.

    Args:
        rows: The first rows with their numbers.
    """
    looked = rows[:LOOKED_AT]
    if len(looked) < _FEWEST:
        return 0
    width = _usual_width([len(_filled(row)) for _, row in looked])
    if width < _FEWEST:
        return 0
    for index, (_, row) in enumerate(looked):
        cells = _filled(row)
        is_names = all(isinstance(cell, str) and not _is_number(cell) for cell in cells)
        if is_names and len(set(cells)) >= _NEARLY * width and len(cells) >= _FEWEST:
            return index
    return 0


def _usual_width(widths: Sequence[int]) -> int:
    """Return the most common number of filled cells per row; of equal ones the largest."""
    counted = Counter(widths)
    return max(counted, key=lambda width: (counted[width], width))


def _filled(row: Sequence[Any]) -> list[Any]:
    return [cell for cell in row if cell is not None and str(cell).strip()]


def _is_number(text: str) -> bool:
    return text.strip().replace(",", "").replace(".", "").lstrip("+-").isdigit()
