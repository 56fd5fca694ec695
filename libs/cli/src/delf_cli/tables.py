"""Tables on a terminal, no wider than necessary."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import Final

import click

from delf.terminal import visible
from delf_cli.streams import answers

_LEAST: Final = 20
"""Columns that the widest text keeps on a narrow terminal."""
_NARROWEST: Final = 60
_NUMBER: Final = ">"


def table(rows: Sequence[Sequence[str]], head: Sequence[str], *, whole: bool = False) -> list[str]:
    """Rows for this terminal, under bold heads, as :func:`aligned` draws them; none for none."""
    if not rows:
        return []
    first, *lines = aligned(rows, head, terminal_width(), whole=whole)
    return [click.style(first, bold=True), *lines]


def aligned(
    rows: Sequence[Sequence[str]], head: Sequence[str], width: int | None, *, whole: bool = True
) -> list[str]:
    """Draw rows in aligned columns under their heads; numbers are right-aligned.

    Args:
        rows: Cells, which may be coloured, except those of the widest column.
        head: The columns' names; number columns begin with ``>``.
        width: Columns of the terminal; None where it is none.
        whole: Wrap the widest text if it does not fit; otherwise truncate it.
    """
    cells = [[name.removeprefix(_NUMBER) for name in head], *rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    texts = [column for column, name in enumerate(head) if not name.startswith(_NUMBER)]
    widest = max(texts, key=lambda column: widths[column])
    if width is not None:
        over = max(0, sum(widths) + 2 * (len(widths) - 1) - width)
        widths[widest] = max(min(widths[widest], _LEAST), widths[widest] - over)
    indent = " " * (sum(widths[:widest]) + 2 * widest)
    lines: list[str] = []
    for row in cells:
        text, room = row[widest], widths[widest]
        first, *more = _folded(text, room) if whole else [cut(text, room)]
        shown = [*row[:widest], first, *row[widest + 1 :]]
        padded = (
            _padded(cell, size, at_right=name.startswith(_NUMBER))
            for cell, size, name in zip(shown, widths, head, strict=True)
        )
        lines.append("  ".join(padded).rstrip())
        lines += [f"{indent}{piece}" for piece in more]
    return lines


def _padded(cell: str, size: int, *, at_right: bool) -> str:
    space = " " * (size - _width(cell))
    return space + cell if at_right else cell + space


def _width(cell: str) -> int:
    return len(click.unstyle(cell)) if "\x1b" in cell else len(cell)


def _folded(text: str, width: int) -> list[str]:
    """Return a cell in lines; only a word that is longer than the column is broken."""
    if _width(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def terminal_width() -> int | None:
    """Return the terminal's width; None when stdout is none."""
    if not answers().isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def one_line(text: str) -> str:
    """Return a text in one line, without control characters."""
    return " ".join(visible(text).split())


def cut(text: str, width: int) -> str:
    """Truncate a text between words."""
    if _width(text) <= width:
        return text
    short, space, _ = text[: width - 1].rpartition(" ")
    return f"{short} …" if space and len(short) >= width // 2 else f"{text[: width - 1]}…"
