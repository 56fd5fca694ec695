"""Markdown rendering on a terminal without lost text or broken words."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown, MarkdownElement, TableElement
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

_FENCE: Final = re.compile(r"^\s*(?:```|~~~).*$", re.MULTILINE)
_WORD: Final = re.compile(r"[^\W_]+")


class _Table(TableElement):
    """A Markdown table that wraps cells between words.

    If the terminal is too narrow for the columns, each row becomes a block of ``name: cell`` lines.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table, or each row as a block of lines on a narrow terminal."""
        heads: list[Text] = []
        if self.header is not None and self.header.row is not None:
            heads = [cell.content.copy() for cell in self.header.row.cells]
        rows: list[list[Text]] = []
        if self.body is not None:
            rows = [[cell.content for cell in row.cells] for row in self.body.rows]
        columns = [list(column) for column in zip(heads, *rows, strict=True)]
        min_widths = [max(map(_longest_word, column)) for column in columns]
        min_table_width = sum(min_widths) + 3 * len(min_widths)  # with the gaps and borders
        if min_table_width <= options.max_width:
            yield _draw_table(heads, rows, min_widths)
        else:
            yield from _rows_as_blocks(heads, rows)


def _longest_word(cell: Text) -> int:
    return max((Text(word).cell_len for word in cell.plain.split()), default=0)


def _draw_table(heads: list[Text], rows: list[list[Text]], min_widths: list[int]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, style="markdown.table.border")
    for heading, width in zip(heads, min_widths, strict=True):
        heading.stylize("markdown.table.header")
        table.add_column(heading, min_width=width, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _rows_as_blocks(heads: list[Text], rows: list[list[Text]]) -> Iterator[Text]:
    for number, row in enumerate(rows):
        if number > 0:
            yield Text("")  # an empty line between two blocks
        for heading, cell in zip(heads, row, strict=True):
            name = heading.plain.strip()
            label = Text(f"{name}: " if name else "", style="bold")
            yield Text.assemble(label, cell)


class _CodeBlock(CodeBlock):
    """A block of code without a margin, so that its lines can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the code, with an empty line above and below."""
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, padding=(1, 0))


class _Answer(Markdown):
    """A Markdown text in which HTML and addresses in angle brackets are plain text."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "table_open": _Table,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False})
        self.parsed = parser.enable(["strikethrough", "table"]).disable("autolink").parse(text)


def render_markdown(text: str, width: int) -> Markdown | None:
    """Render an answer as Markdown, with HTML as plain text.

    Return None if the rendering would lose words.

    Args:
        text: The answer without control characters.
        width: The terminal's width.
    """
    page = _Answer(text)
    for token in page.parsed:
        for child in token.children or ():
            if child.type == "softbreak":  # keep the line breaks of printed text
                child.type = "hardbreak"
    probe = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    with probe.capture() as capture:
        probe.print(page)
    rendered_text = "".join(capture.get().split())  # joins words that were wrapped
    words = _WORD.findall(_FENCE.sub("", text))  # fences such as ```python are not rendered
    if all(word in rendered_text for word in words):
        return page
    return None
