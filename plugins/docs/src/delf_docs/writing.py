"""Converts blocks to requests of one batch.

Blocks are inserted from last to first at the same index, so that no request depends on the length
of another block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from delf_docs.blocks import Block, List, Mark, Paragraph, Table, utf16_length

_CODE: Final = {"weightedFontFamily": {"fontFamily": "Courier New"}}
_LINK_PREFIXES: Final = ("http://", "https://", "mailto:")
_QUOTE: Final = {"magnitude": 36, "unit": "PT"}

Request = dict[str, Any]


class _Line(NamedTuple):
    """A line of a block, as it is inserted."""

    text: str
    marks: Sequence[Mark]


def insert_blocks(blocks: Sequence[Block], index: int) -> list[Request]:
    """Return the API requests that insert blocks at an empty paragraph.

    The requests insert the last block first. Each earlier block is inserted at the same index, with
    a line break at its end, and so moves the later blocks behind it.

    Args:
        blocks: The blocks.
        index: The index of the empty paragraph, which becomes the last block.
    """
    requests: list[Request] = []
    fills_empty_paragraph = True
    for block in reversed(blocks):
        if isinstance(block, Table):
            requests += _table_requests(block, index)
            fills_empty_paragraph = True  # the API inserts a paragraph before each table
            continue
        lines = _lines(block)
        joined = "\n".join(line.text for line in lines)
        end = "" if fills_empty_paragraph else "\n"
        if joined + end:
            requests.append({"insertText": {"location": {"index": index}, "text": joined + end}})
        requests += _style_requests(block, lines, index, utf16_length(joined))
        fills_empty_paragraph = False
    return requests


def _lines(block: Paragraph | List) -> list[_Line]:
    if isinstance(block, Paragraph):
        return [_Line(block.content.text, block.content.marks)]
    # Leading tabs set an item's depth; the service removes them when it makes the list.
    return [
        _Line("\t" * depth + item.text, [_shift_mark(mark, depth) for mark in item.marks])
        for depth, item in block.items
    ]


def _style_requests(
    block: Paragraph | List, lines: Sequence[_Line], index: int, size: int
) -> list[Request]:
    """Return the requests that format the inserted lines of a block."""
    full_range = _range(index, index + size + 1)  # with the line break at the end
    style: dict[str, Any] = {
        "namedStyleType": block.style if isinstance(block, Paragraph) else "NORMAL_TEXT"
    }
    if isinstance(block, Paragraph) and block.quoted:
        style |= {"indentStart": _QUOTE, "indentFirstLine": _QUOTE}
    # Reset the styles, because inserted text inherits the style of the following text.
    requests: list[Request] = [
        {"deleteParagraphBullets": {"range": full_range}},
        {
            "updateParagraphStyle": {
                "range": full_range,
                "paragraphStyle": style,
                "fields": "namedStyleType,indentStart,indentFirstLine",
            }
        },
    ]
    if size:
        plain = {"range": _range(index, index + size), "textStyle": {}, "fields": "*"}
        requests.append({"updateTextStyle": plain})
    offset = index
    for line in lines:
        requests += _mark_requests(line.marks, offset)
        offset += utf16_length(line.text) + 1
    if isinstance(block, List):
        # Make the list last: the service then removes the leading tabs, which moves the marked
        # texts.
        preset = "NUMBERED_DECIMAL_ALPHA_ROMAN" if block.ordered else "BULLET_DISC_CIRCLE_SQUARE"
        body = {"range": full_range, "bulletPreset": preset}
        requests.append({"createParagraphBullets": body})
    return requests


def _table_requests(table: Table, index: int) -> list[Request]:
    """Return the requests that insert a table and fill its cells."""
    columns = max(len(row) for row in table.rows)
    requests: list[Request] = [
        {
            "insertTable": {
                "location": {"index": index},
                "rows": len(table.rows),
                "columns": columns,
            }
        }
    ]
    # Before the first cell's content come a line break and the starts of table, row and cell.
    first_cell_index = index + 4
    # An empty cell has two units, its start and its line break; the start of a row is one unit.
    cell_size = 2
    row_size = 1 + columns * cell_size
    # Fill the last cell first: inserted text moves all cells after it.
    for row_number, row in reversed(list(enumerate(table.rows))):
        for column, cell in reversed(list(enumerate(row))):
            cell_index = first_cell_index + row_number * row_size + column * cell_size
            if cell.text:
                requests.append(
                    {"insertText": {"location": {"index": cell_index}, "text": cell.text}}
                )
                requests += _mark_requests(cell.marks, cell_index)
                if row_number == 0:
                    requests += _mark_requests([Mark(0, cell.size, "bold")], cell_index)
    return requests


def _mark_requests(marks: Sequence[Mark], offset: int) -> list[Request]:
    """Return the API requests that format the marked parts of a text which begins at an offset.

    A link to anything else than a web or mail address is left out, so that only its text remains.
    """
    requests: list[Request] = []
    for mark in marks:
        if mark.style == "link" and not str(mark.value).lower().startswith(_LINK_PREFIXES):
            continue
        update = {
            "range": _range(offset + mark.start, offset + mark.end),
            "textStyle": text_style(mark.style, mark.value),
            "fields": "weightedFontFamily" if mark.style == "code" else mark.style,
        }
        requests.append({"updateTextStyle": update})
    return requests


def text_style(style: str, value: Any) -> dict[str, Any]:
    """Return a style as a ``TextStyle`` object of the Docs API."""
    if style == "code":
        return _CODE
    if style == "link":
        return {"link": {"url": value}}
    return {style: value}


def _shift_mark(mark: Mark, by: int) -> Mark:
    return Mark(mark.start + by, mark.end + by, mark.style, mark.value)


def _range(start: int, end: int) -> dict[str, int]:
    return {"startIndex": start, "endIndex": end}
