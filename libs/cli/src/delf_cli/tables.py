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
from delf_cli.streams import answers

_MIN: Final = 20
"""The minimum width of a text column on a narrow terminal; half of it with many columns."""
_NARROWEST: Final = 60
_NUMBER: Final = ">"


def table(rows: Sequence[Sequence[str]], head: Sequence[str], *, whole: bool = False) -> list[str]:
    """Format rows for this terminal under bold headers; empty without rows."""
    if not rows:
        return []
    first, *lines = format_table(rows, head, terminal_width(), whole=whole)
    return [click.style(first, bold=True), *lines]


def format_table(
    rows: Sequence[Sequence[str]], head: Sequence[str], width: int | None, *, whole: bool = True
) -> list[str]:
    """Format rows in aligned columns under headers; numbers are right-aligned.

    Args:
        rows: Cells, which may be coloured if they are short.
        head: The columns' names; number columns begin with ``>``.
        width: The terminal's width; None without a terminal.
        whole: Wrap texts that do not fit; otherwise truncate them.
    """
    cells = [[name.removeprefix(_NUMBER) for name in head], *rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    texts = [column for column, name in enumerate(head) if not name.startswith(_NUMBER)]
    over = 0 if width is None else sum(widths) + 2 * (len(widths) - 1) - width
    texts.sort(key=lambda column: -widths[column])
    # Narrow columns to a readable width, widest first; if needed, to half of it, narrowest first.
    for column, min_width in [(c, _MIN) for c in texts] + [(c, _MIN // 2) for c in texts[::-1]]:
        narrower = min(max(0, over), max(0, widths[column] - min_width))
        widths[column] -= narrower
        over -= narrower
    lines: list[str] = []
    for row in cells:
        pieces = (
            _wrap_cell(cell, room) if whole else [cut(cell, room)]
            for cell, room in zip(row, widths, strict=True)
        )
        for row_cells in itertools.zip_longest(*pieces, fillvalue=""):
            padded = (
                _pad_cell(cell, size, at_right=name.startswith(_NUMBER))
                for cell, size, name in zip(row_cells, widths, head, strict=True)
            )
            lines.append("  ".join(padded).rstrip())
    return lines


def project_column(folders: Sequence[str | None]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells of the column "project"; empty if all are of this folder."""
    if not set(folders) - {None, str(Path.cwd())}:
        return [], [[] for _ in folders]
    return ["project"], [[one_line(PurePath(folder or "-").name)] for folder in folders]


def _pad_cell(cell: str, size: int, *, at_right: bool) -> str:
    space = " " * (size - _width(cell))
    return space + cell if at_right else cell + space


def _width(cell: str) -> int:
    return len(click.unstyle(cell)) if "\x1b" in cell else len(cell)


def _wrap_cell(text: str, width: int) -> list[str]:
    """Wrap a cell to lines, breaking only words longer than the column."""
    if _width(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def terminal_width() -> int | None:
    """Return the terminal's width; None if stdout is not a terminal."""
    if not answers().isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def one_line(text: str) -> str:
    """Reduce a text to one line without control characters."""
    return " ".join(visible(text).split())


def cut(text: str, width: int) -> str:
    """Truncate a text between words."""
    if _width(text) <= width:
        return text
    short_text, space, _ = text[: width - 1].rpartition(" ")
    return f"{short_text} …" if space and len(short_text) >= width // 2 else f"{text[: width - 1]}…"
