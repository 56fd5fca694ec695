"""Markdown as blocks that a document can hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

# The service removes these characters, which would shift the indexes computed here.
_REMOVED_CHARACTERS: Final = re.compile("[\x00-\x08\x0c-\x1f\ue000-\uf8ff]")

LINE_BREAK: Final = "\x0b"
"""The character of the Docs API for a line break within a paragraph."""

_MAX_LIST_DEPTH: Final = 8


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 code units, in which the Docs API counts indexes."""
    return len(text) + sum(character > "\uffff" for character in text)


@dataclass(frozen=True, slots=True)
class Mark:
    """A style of a part of a text.

    Args:
        start: The index of the first UTF-16 code unit.
        end: The index after the last code unit.
        style: ``bold``, ``italic``, ``strikethrough``, ``code`` or ``link``.
        value: The address of a link; True for any other style.
    """

    start: int
    end: int
    style: str
    value: Any = True


@dataclass(slots=True)
class Text:
    """A text with its styles; ``size`` is its length in UTF-16 code units."""

    text: str = ""
    marks: list[Mark] = field(default_factory=list[Mark])
    size: int = 0

    def add(self, text: str, styles: Sequence[tuple[str, Any]] = ()) -> None:
        """Append text with styles, without the characters that the Docs API would remove."""
        text = _REMOVED_CHARACTERS.sub("", text)
        length = utf16_length(text)
        self.text += text
        if length:
            self.marks += [Mark(self.size, self.size + length, *style) for style in styles]
        self.size += length


@dataclass(slots=True)
class Paragraph:
    """A paragraph, a heading, a quotation or a line of code.

    Args:
        content: The text.
        style: The name of the style in the Docs API, such as ``HEADING_2``.
        quoted: Whether the paragraph is a quotation, which is indented.
    """

    content: Text
    style: str = "NORMAL_TEXT"
    quoted: bool = False


@dataclass(slots=True)
class List:
    """A list with its nested lists, flattened to (depth, text) pairs."""

    items: list[tuple[int, Text]]
    ordered: bool


@dataclass(slots=True)
class Table:
    """A table whose first row is the header."""

    rows: list[list[Text]]


Block: TypeAlias = Paragraph | List | Table


def blocks_of(markdown: str) -> list[Block]:
    """Parse Markdown (CommonMark with tables and strikethrough) into blocks."""
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    blocks: list[Block] = []
    _collect(SyntaxTreeNode(parser.parse(markdown)).children, blocks, quoted=False)
    return blocks


def _collect(nodes: Sequence[Any], blocks: list[Block], *, quoted: bool) -> None:
    """Append the blocks of syntax nodes to a list of blocks."""
    for node in nodes:
        if node.type == "heading":
            level = min(int(node.tag[1:]), 6)
            blocks.append(Paragraph(_text(node), f"HEADING_{level}"))
        elif node.type == "paragraph":
            blocks.append(Paragraph(_text(node), quoted=quoted))
        elif node.type in ("fence", "code_block"):
            for line in node.content.rstrip("\n").split("\n"):
                code = Text()
                code.add(line, [("code", True)])
                blocks.append(Paragraph(code))
        elif node.type in ("bullet_list", "ordered_list"):
            items: list[tuple[int, Text]] = []
            _items(node, 0, items)
            blocks.append(List(items, node.type == "ordered_list"))
        elif node.type == "table":
            # The children of a table are its head and its body.
            rows = [row for part in node.children for row in part.children]
            blocks.append(Table([[_text(cell) for cell in row.children] for row in rows]))
        elif node.type == "hr":
            # The Docs API cannot insert a horizontal rule.
            rule = Text()
            rule.add("\u2015" * 10)
            blocks.append(Paragraph(rule))
        elif node.type == "html_block":
            plain = Text()
            plain.add(node.content.rstrip("\n").replace("\n", LINE_BREAK))
            blocks.append(Paragraph(plain))
        else:
            _collect(node.children, blocks, quoted=quoted or node.type == "blockquote")


def _items(node: Any, depth: int, items: list[tuple[int, Text]]) -> None:
    """Append the depth and the text of each item of a list to ``items``."""
    for item in node.children:
        has_text = False
        for child in item.children:
            if child.type in ("bullet_list", "ordered_list"):
                _items(child, min(depth + 1, _MAX_LIST_DEPTH), items)
            elif not has_text:
                items.append((depth, _text(child)))
                has_text = True
            else:
                # A second paragraph continues the text above it. After a nested list, this is the
                # text of the last nested item.
                _, text_above = items[-1]
                text_above.add(LINE_BREAK)
                _inline(child, text_above, styles=[])


def _text(node: Any) -> Text:
    """Return the text of a syntax node, with the styles of the nodes in it."""
    text = Text()
    _inline(node, text, styles=[])
    return text


def _inline(node: Any, text: Text, styles: list[tuple[str, Any]]) -> None:
    """Append an inline syntax node to a text, with the styles of the nodes around it."""
    if node.type in ("text", "html_inline"):  # Docs has no HTML: keep the tags as text
        text.add(node.content, styles)
    elif node.type in ("code_inline", "fence", "code_block"):
        text.add(node.content.rstrip("\n").replace("\n", LINE_BREAK), [*styles, ("code", True)])
    elif node.type == "softbreak":
        text.add(" ", styles)
    elif node.type == "hardbreak":
        text.add(LINE_BREAK, styles)
    elif node.type == "html_block":
        text.add(node.content.rstrip("\n").replace("\n", LINE_BREAK), styles)
    elif node.type == "image":
        address = str(node.attrs.get("src", ""))
        text.add(node.content or address, [*styles, ("link", address)])
    else:
        style = {"strong": "bold", "em": "italic", "s": "strikethrough"}.get(node.type)
        if node.type == "link":
            styles = [*styles, ("link", str(node.attrs.get("href", "")))]
        elif style is not None:
            styles = [*styles, (style, True)]
        for child in node.children:
            _inline(child, text, styles)
