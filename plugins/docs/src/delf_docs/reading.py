"""A document of Google's editors as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from delf_docs.blocks import LINE_BREAK

_HEADINGS: Final = {f"HEADING_{level}": "#" * level for level in range(1, 7)} | {
    "TITLE": "#",
    "SUBTITLE": "##",
}
_BOLD_CELL: Final = re.compile(r"^\*\*([^*]*)\*\*$")
_MONOSPACED: Final = frozenset({"Courier New", "Consolas", "Roboto Mono", "Source Code Pro"})

Node = Mapping[str, Any]


def markdown_of(document: Node) -> str:
    """Return the body of a document as Markdown."""
    body: Node = document.get("body") or {}
    return _blocks(body.get("content") or (), document.get("lists") or {}).strip() + "\n"


def paragraphs(document: Node) -> Iterator[Node]:
    """Yield the JSON elements of all paragraphs, including the paragraphs in tables."""
    body: Node = document.get("body") or {}
    yield from _paragraphs(body.get("content") or ())


def _paragraphs(content: Sequence[Node]) -> Iterator[Node]:
    for element in content:
        if "paragraph" in element:
            yield element
        elif "table" in element:
            for row in element["table"].get("tableRows") or ():
                for cell in row.get("tableCells") or ():
                    yield from _paragraphs(cell.get("content") or ())


def plain_text(element: Node) -> str:
    """Return a paragraph's text, in which U+FFFC characters stand for elements without text.

    Each such element gets as many characters as it takes up in the document, so that positions in
    the text equal positions in the document.
    """
    pieces: list[str] = []
    for part in element["paragraph"].get("elements") or ():
        if "textRun" in part:
            pieces.append(str(part["textRun"].get("content", "")))
        else:
            pieces.append("\ufffc" * (int(part["endIndex"]) - int(part.get("startIndex") or 0)))
    return "".join(pieces)


def heading_level(element: Node) -> int | None:
    """Return the level of a heading, 1 to 6; None for other paragraphs."""
    style: Node = element["paragraph"].get("paragraphStyle") or {}
    marks = _HEADINGS.get(str(style.get("namedStyleType")))
    return len(marks) if marks else None


def _blocks(content: Sequence[Node], lists: Node) -> str:
    """Return paragraphs, lists and tables as Markdown, separated by blank lines."""
    lines: list[str] = []
    in_list = False
    for element in content:
        if "paragraph" in element:
            text, is_item = _paragraph(element, lists)
            if not text:
                continue
            if not (is_item and in_list):  # no blank line between the items of a list
                lines.append("")
            lines.append(text)
            in_list = is_item
        elif "table" in element:
            lines += ["", _table(element["table"], lists)]
            in_list = False
    return "\n".join(lines)


def _paragraph(element: Node, lists: Node) -> tuple[str, bool]:
    """Return a paragraph as Markdown, and whether it is a list item."""
    paragraph: Node = element["paragraph"]
    text = _inline(paragraph).strip()
    if not text:
        return "", False
    bullet: Node | None = paragraph.get("bullet")
    level = heading_level(element)
    if level is not None:
        return f"{'#' * level} {text}", False
    if bullet is None:
        return text, False
    depth = int(bullet.get("nestingLevel") or 0)
    marker = "1." if _is_ordered(bullet, lists, depth) else "-"
    return f"{'    ' * depth}{marker} {text}", True


def _is_ordered(bullet: Node, lists: Node, depth: int) -> bool:
    """Return True for an item of a list with numbers or letters, as opposed to bullets.

    The ``glyphType`` of the item's level is the kind of number or letter; a bullet has none.
    """
    list_properties: Node = lists.get(str(bullet.get("listId"))) or {}
    properties: Node = list_properties.get("listProperties") or {}
    levels: Sequence[Node] = properties.get("nestingLevels") or ()
    if depth >= len(levels):
        return False
    kind = str(levels[depth].get("glyphType") or "")
    return kind not in ("", "NONE", "GLYPH_TYPE_UNSPECIFIED")


def _inline(paragraph: Node) -> str:
    """Return the content of a paragraph as Markdown, without the mark of a heading or list."""
    pieces: list[str] = []
    for element in paragraph.get("elements") or ():
        if "textRun" in element:
            run: Node = element["textRun"]
            pieces.append(_styled_text(str(run.get("content", "")), run.get("textStyle") or {}))
        elif "inlineObjectElement" in element:
            pieces.append("![image]()")
        elif "person" in element:
            properties: Node = element["person"].get("personProperties") or {}
            pieces.append(str(properties.get("name") or properties.get("email") or ""))
        elif "richLink" in element:
            link: Node = element["richLink"].get("richLinkProperties") or {}
            pieces.append(f"[{link.get('title') or 'link'}]({link.get('uri', '')})")
        elif "horizontalRule" in element:
            pieces.append("---")
    return "".join(pieces)


def _styled_text(content: str, style: Node) -> str:
    """Return a text with one style as Markdown; spaces at its ends stay outside of the markup."""
    text = content.replace(LINE_BREAK, "  \n").rstrip("\n")
    markdown = text.strip(" ")
    if not markdown:
        return text
    leading_spaces = text[: len(text) - len(text.lstrip(" "))]
    trailing_spaces = text[len(text.rstrip(" ")) :]
    font: Node = style.get("weightedFontFamily") or {}
    if font.get("fontFamily") in _MONOSPACED:
        markdown = f"`{markdown}`"
    if style.get("bold"):
        markdown = f"**{markdown}**"
    if style.get("italic"):
        markdown = f"*{markdown}*"
    if style.get("strikethrough"):
        markdown = f"~~{markdown}~~"
    link: Node = style.get("link") or {}
    if link.get("url"):
        markdown = f"[{markdown}]({link['url']})"
    return f"{leading_spaces}{markdown}{trailing_spaces}"


def _table(table: Node, lists: Node) -> str:
    """Return a table as Markdown, with the first row as its head."""
    rows: list[list[str]] = []
    for row in table.get("tableRows") or ():
        cells: Sequence[Node] = row.get("tableCells") or ()
        rows.append([_cell(cell.get("content") or (), lists) for cell in cells])
    if not rows:
        return ""
    # Markdown shows the cells of the first row in bold anyway: remove their marks ``**``.
    rows[0] = [_BOLD_CELL.sub(r"\1", cell) for cell in rows[0]]
    width = max(len(row) for row in rows)
    lines: list[str] = []
    for row in rows:
        missing_cells = [""] * (width - len(row))
        lines.append(f"| {' | '.join(row + missing_cells)} |")
    lines.insert(1, f"|{'---|' * width}")
    return "\n".join(lines)


def _cell(content: Sequence[Node], lists: Node) -> str:
    """Return a table cell as one line of Markdown.

    Args:
        content: The paragraphs and tables in the cell.
        lists: The lists of the document, by list id. An entry shows whether the items of the list
            are numbered.
    """
    text = _blocks(content, lists).strip()
    return " ".join(text.replace("|", "\\|").split("\n")).strip()
