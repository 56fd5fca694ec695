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
    """Rows in aligned columns under their heads; on a terminal none is wider than it.

    Args:
        rows: Cells, which may be coloured.
        head: The columns' names.
        droppable: Columns that are left out, in this order, where the last one has no room.
        whole: The last column is data: what does not fit goes on in the next line. Else it is cut.
    """
    if not rows:
        return []
    lines = [[click.style(cell, bold=True) for cell in head], *rows]
    columns = list(zip(*lines, strict=True))
    widths = [max(len(click.unstyle(cell)) for cell in column) for column in columns]
    width = terminal_width()
    if width is not None:
        room = width - sum(widths[:-1]) - 2 * len(widths) + 2
        if droppable and room < min(_NARROW, widths[-1]):
            out = head.index(droppable[0])
            rest = [[*row[:out], *row[out + 1 :]] for row in (head, *rows)]
            return table(rest[1:], rest[0], droppable[1:], whole=whole)
        widths[-1] = min(widths[-1], max(20, room))
    drawn: list[str] = []
    for line in lines:
        pairs = zip(line[:-1], widths, strict=False)
        padded = [cell + " " * (size - len(click.unstyle(cell))) for cell, size in pairs]
        last = _folded(line[-1], widths[-1]) if whole else [cut(line[-1], widths[-1])]
        drawn.append("  ".join([*padded, last[0]]).rstrip())
        indent = " " * (sum(widths[:-1]) + 2 * len(widths) - 2)
        drawn += [f"{indent}{more}" for more in last[1:]]
    return drawn


def _folded(text: str, width: int) -> list[str]:
    """A cell in lines; only a word that is longer than the column is broken."""
    if len(click.unstyle(text)) <= width:
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
    if len(click.unstyle(text)) <= width:
        return text
    short, space, _ = text[:width].rpartition(" ")
    return f"{short} …" if space and len(short) >= width // 2 else f"{text[: width - 1]}…"
