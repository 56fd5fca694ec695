"""Tables on a terminal: as wide as it is, and no wider."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Final

import click

from delf.terminal import visible

_NARROW: Final = 30
"""The last column is to have so many columns of the terminal, if it needs them."""
_NARROWEST: Final = 60


def table(
    rows: Sequence[Sequence[str]],
    head: Sequence[str],
    droppable: Sequence[str] = (),
    *,
    whole: bool = False,
) -> list[str]:
    """Rows in aligned columns under their heads, as :class:`Table` draws them; nothing for none."""
    if not rows:
        return []
    drawn = Table(rows, head, droppable, whole=whole)
    return [drawn.head, *drawn.lines(rows)]


class Table:
    """Columns that are as wide as some rows need; on a terminal all together as wide as it is.

    Further rows fit in as far as they can: a cell that is wider moves those after it.

    Args:
        rows: Cells, which may be coloured.
        head: The columns' names.
        droppable: Columns that are left out, in this order, where the last one has no room.
        whole: The last column is data: what does not fit goes on in the next line. Else it is cut.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[str]],
        head: Sequence[str],
        droppable: Sequence[str] = (),
        *,
        whole: bool = False,
    ) -> None:
        self._whole = whole
        self._columns = [*range(len(head))]
        every = [max(map(_width, column)) for column in zip(head, *rows, strict=True)]
        width = terminal_width()
        room, left = sys.maxsize, list(droppable)
        while width is not None:
            before = [every[column] + 2 for column in self._columns[:-1]]
            room = width - sum(before)
            if not left or room >= min(_NARROW, every[-1]):
                break
            self._columns.remove(head.index(left.pop(0)))
        widths = [*(every[column] for column in self._columns[:-1]), max(20, room)]
        self._widths = widths
        (self.head,) = self.lines([[click.style(cell, bold=True) for cell in head]])

    def lines(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Rows as lines, of which each has one or more."""
        drawn: list[str] = []
        *widths, last_width = self._widths
        for row in rows:
            *cells, last = [row[column] for column in self._columns]
            padded = [
                cell + " " * (size - _width(cell)) for cell, size in zip(cells, widths, strict=True)
            ]
            first, *more = _folded(last, last_width) if self._whole else [cut(last, last_width)]
            drawn.append("  ".join([*padded, first]).rstrip())
            indent = " " * (sum(widths) + 2 * len(widths))
            drawn += [f"{indent}{line}" for line in more]
        return drawn


def _width(cell: str) -> int:
    return len(click.unstyle(cell)) if "\x1b" in cell else len(cell)


def _folded(text: str, width: int) -> list[str]:
    """A cell in lines; only a word that is longer than the column is broken."""
    if _width(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def terminal_width() -> int | None:
    """The terminal's width; None when stdout is none."""
    if not sys.stdout.isatty():
        return None
    return max(_NARROWEST, shutil.get_terminal_size().columns)


def one_line(text: str) -> str:
    """A text in one line, without characters that steer a terminal."""
    return " ".join(visible(text).split())


def cut(text: str, width: int) -> str:
    """A text of at most so many characters, cut between words where it has some."""
    if _width(text) <= width:
        return text
    short, space, _ = text[: width - 1].rpartition(" ")
    return f"{short} …" if space and len(short) >= width // 2 else f"{text[: width - 1]}…"
