"""Tables on a terminal, no wider than necessary."""

from __future__ import annotations

import itertools
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final

import click

from delf.terminal import visible
from delf_cli.streams import real_stdout

_MIN_COLUMN_WIDTH: Final = 20
_MIN_TERMINAL_WIDTH: Final = 60
_NUMBER_MARK: Final = ">"


def table(rows: Sequence[Sequence[str]], head: Sequence[str], *, whole: bool = False) -> list[str]:
    """Return the lines of a table with bold headers; without rows, return no lines.

    Args:
        rows: The cells of each row.
        head: The columns' names; names of number columns begin with ``>``.
        whole: Whether to wrap texts that do not fit the terminal; otherwise they are truncated.
    """
    if not rows:
        return []
    first, *lines = format_table(rows, head, terminal_width(), whole=whole)
    return [click.style(first, bold=True), *lines]


def format_table(
    rows: Sequence[Sequence[str]], head: Sequence[str], width: int | None, *, whole: bool = True
) -> list[str]:
    """Format rows in aligned columns under headers; numbers are right-aligned.

    Args:
        rows: The cells of each row. Only cells that fit their column may be coloured.
        head: The columns' names; names of number columns begin with ``>``.
        width: The terminal's width; None without a terminal.
        whole: Whether to wrap texts that do not fit; otherwise they are truncated.
    """
    headers = [name.removeprefix(_NUMBER_MARK) for name in head]
    all_rows = [headers, *rows]
    widths = _column_widths(all_rows, head, width)
    lines: list[str] = []
    for row in all_rows:
        wrapped_cells: list[Sequence[str]] = []
        for cell, column_width in zip(row, widths, strict=True):
            wrapped = _wrap_cell(cell, column_width) if whole else [cut_at_word(cell, column_width)]
            wrapped_cells.append(wrapped)
        texts_by_line = itertools.zip_longest(*wrapped_cells, fillvalue="")
        lines += [_format_line(texts, widths, head) for texts in texts_by_line]
    return lines


def _format_line(texts: Sequence[str], widths: Sequence[int], head: Sequence[str]) -> str:
    """Format one line of a table from the texts of its columns."""
    padded_texts: list[str] = []
    for text, column_width, name in zip(texts, widths, head, strict=True):
        is_number = name.startswith(_NUMBER_MARK)
        padded_texts.append(_pad_cell(text, column_width, at_right=is_number))
    return "  ".join(padded_texts).rstrip()


def _column_widths(
    cells: Sequence[Sequence[str]], head: Sequence[str], width: int | None
) -> list[int]:
    """Return the width of each column, with text columns narrowed to the terminal's width."""
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    if width is None:
        return widths
    text_columns = [column for column, name in enumerate(head) if not name.startswith(_NUMBER_MARK)]
    widest_first = sorted(text_columns, key=lambda column: -widths[column])
    _narrow_columns(widths, widest_first, _MIN_COLUMN_WIDTH, width)
    # If the table is still too wide, narrow to half of the minimum, the widest column last.
    narrowest_first = widest_first[::-1]
    _narrow_columns(widths, narrowest_first, _MIN_COLUMN_WIDTH // 2, width)
    return widths


def _narrow_columns(
    widths: list[int], columns: Sequence[int], min_width: int, table_width: int
) -> None:
    """Narrow one column after the other in ``widths``, until the table fits ``table_width``.

    Args:
        widths: The widths of all columns, which this function changes.
        columns: The columns to narrow, in this order.
        min_width: The width below which no column is narrowed.
        table_width: The width of the whole table.
    """
    gaps_width = 2 * (len(widths) - 1)
    for column in columns:
        excess = sum(widths) + gaps_width - table_width
        if excess > 0 and widths[column] > min_width:
            widths[column] = max(min_width, widths[column] - excess)


def project_column(folders: Sequence[str | None]) -> Sequence[Sequence[str]]:
    """Return the cells to add to the header and to each row, to show the project of each row.

    Args:
        folders: For each row, the folder of the project; None for a row without a project.

    Returns:
        For the header and for each row, a list with the added cell. All lists are empty if no row
        belongs to another folder than the current one.
    """
    other_folders = set(folders) - {None, str(Path.cwd())}
    if not other_folders:
        row_count = 1 + len(folders)  # with the header
        return [[] for _ in range(row_count)]
    cells = [[one_line(PurePath(folder or "-").name)] for folder in folders]
    return [["project"], *cells]


def _pad_cell(cell: str, size: int, *, at_right: bool) -> str:
    space = " " * (size - _width(cell))
    return space + cell if at_right else cell + space


def _width(cell: str) -> int:
    return len(click.unstyle(cell)) if "\x1b" in cell else len(cell)


def _wrap_cell(text: str, width: int) -> list[str]:
    """Wrap a cell to lines; only a word longer than the column is broken."""
    if _width(text) <= width:
        return [text]
    lines = textwrap.wrap(text, width, break_on_hyphens=False)
    return lines or [""]  # wrap() returns no line for spaces


def terminal_width() -> int | None:
    """Return the terminal's width; None if stdout is not a terminal."""
    if not real_stdout().isatty():
        return None
    return max(_MIN_TERMINAL_WIDTH, shutil.get_terminal_size().columns)


def one_line(text: str) -> str:
    """Convert a text to one line, with control characters escaped."""
    return " ".join(visible(text).split())


def cut_at_word(text: str, width: int) -> str:
    """Truncate a text, between words unless that would lose more than half of the width."""
    if _width(text) <= width:
        return text
    whole_words = text[: width - 1].rpartition(" ")[0]
    if whole_words and len(whole_words) >= width // 2:
        return f"{whole_words} …"
    return f"{text[: width - 1]}…"
