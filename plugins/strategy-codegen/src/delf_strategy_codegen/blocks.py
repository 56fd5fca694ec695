"""The blocks of code in an answer, however their fences were written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from delf_strategy_codegen.python import is_script, parse_script, repair_script, stops_in_string

_PYTHON_LABELS: Final = frozenset(
    {"python", "py", "python3", "python2", "py3", "tool_code", "code", "ipython", "ipython3"}
    | {"pycon", "pythonrepl", "python-repl", "jupyter", "ipynb", "script", "run", "execute"}
    | {"tool_call", "delf"}
)
JSON_LABELS: Final = frozenset({"json", "jsonc", "json5"})
_OTHER_LANGUAGES: Final = frozenset(
    {"bash", "sh", "shell", "console", "text", "txt", "plain", "plaintext", "output", "stdout"}
    | {"result", "results", "sql", "js", "javascript", "typescript", "ts", "jsx", "tsx", "html"}
    | {"css", "xml", "yaml", "yml", "toml", "ini", "csv", "tsv", "diff", "markdown", "md", "java"}
    | {"c", "cpp", "c++", "csharp", "cs", "go", "rust", "ruby", "php", "r", "kotlin", "swift"}
    | {"scala", "perl", "lua", "powershell", "ps1", "dockerfile", "makefile", "mermaid", "latex"}
    | {"tex", "log", "logs", "http", "graphql", "bat", "cmd", "zsh", "vb", "dart", "haskell"}
    | {"julia", "matlab", "none"}
)
_KNOWN_LANGUAGES: Final = _PYTHON_LABELS | JSON_LABELS | _OTHER_LANGUAGES
_FENCE: Final = re.compile(
    r"(?P<lead>(?:[ \t]*(?:[-*+>]|\d+[.)])(?=[ \t]))*[ \t]*)(?P<marks>`{3,}|~{3,})(?P<info>.*)"
)
_FENCE_AFTER_TEXT: Final = re.compile(
    r"(?P<lead>.*[^`\s][ \t]*)(?P<marks>`{3,})(?P<info>[\w+#.-]+)[ \t]*"
)
# The lookbehinds let a match of the marks begin only at the first of adjacent marks. Otherwise,
# many marks would take quadratic time.
_ONE_LINE: Final = re.compile(r"(?P<code>\s*\S.*?)(?P<marks>(?<!`)`{3,}|(?<!~)~{3,})[ \t]*")
_WORD: Final = re.compile(r"[\w+#.-]*")
_MAX_FENCES_IN_STRINGS: Final = 50
_MAX_INFO_CHARS: Final = 40


class Block(NamedTuple):
    """A block of code in an answer.

    Args:
        language: The language that the fence names; empty if the fence names none.
        code: The code, repaired if it was almost valid Python.
        text_before: The text between the previous block and this one.
        start: The index in the answer at which the block starts.
        end: The index in the answer at which the block ends.
    """

    language: str
    code: str
    text_before: str
    start: int
    end: int

    @property
    def is_python(self) -> bool:
        """True if the fence names Python, or names an unknown language and the code is Python."""
        if self.language in _PYTHON_LABELS:
            return True
        has_unknown_language = bool(self.language) and self.language not in _KNOWN_LANGUAGES
        return has_unknown_language and is_script(self.code)


class _Line(NamedTuple):
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text) + 1


class _Open(NamedTuple):
    line: int  # the index of the line with the fence
    lead: str  # the text before the fence in its line
    marks: str
    language: str


class _Closing(NamedTuple):
    line: int  # the index of the line with the fence
    fence: re.Match[str]

    @property
    def opens_next_block(self) -> bool:
        """True if the fence names a language, as ```python does, and so begins the next block."""
        return _language(self.fence["info"]) in _KNOWN_LANGUAGES


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a text in order; a fence within a Python string is ignored."""
    return _BlockParser(text).blocks


class _BlockParser:
    """Parses the fenced blocks of a text, line by line."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: list[_Line] = []
        position = 0
        for line in text.split("\n"):
            self._lines.append(_Line(line, position))
            position += len(line) + 1
        self.blocks: list[Block] = []
        # How often a closing fence may still count as text, because it is in a Python string.
        self._remaining_string_checks = _MAX_FENCES_IN_STRINGS
        self._last_block_end = 0
        index = 0
        while index < len(self._lines):
            index = self._parse_line(index)

    def _parse_line(self, index: int) -> int:
        """Parse a line outside of a block, or the block that begins there.

        Returns:
            The index of the next line.
        """
        line = self._lines[index]
        fence = _FENCE.fullmatch(line.text)
        if fence is not None and (block := _one_line_block(fence)) is not None:
            language, code = block
            self._add(language, code, fence["lead"], line.start, line.end)
            return index + 1
        # By CommonMark, a line is no fence if a backtick follows the marks of a backtick fence.
        is_inline_code = fence is not None and fence["marks"][0] == "`" and "`" in fence["info"]
        if fence is None or is_inline_code:
            fence = _fence_after_text(line.text)  # an opening fence at the end of a line of prose
        if fence is None:
            return index + 1
        opened = _Open(index, fence["lead"], fence["marks"], _language(fence["info"]))
        return self._parse_block(opened)

    def _parse_block(self, opened: _Open) -> int:
        """Parse the lines of a block up to its closing fence; return the index of the next line.

        A fence within a Python string is part of the code, unless the string has no end.
        """
        for closing in self._closing_fences(opened):
            if not self._is_in_string(opened, closing):
                return self._close(opened, closing)
        # All fences are within strings, so a string has no end: close at the first fence. Without
        # a fence, the block ends with the text.
        first_closing = next(self._closing_fences(opened), None)
        return self._close(opened, first_closing)

    def _closing_fences(self, opened: _Open) -> Iterator[_Closing]:
        """Yield the fences that can close a block, in order."""
        for index in range(opened.line + 1, len(self._lines)):
            fence = _closing_fence(self._lines[index].text, opened)
            if fence is not None:
                yield _Closing(index, fence)

    def _is_in_string(self, opened: _Open, closing: _Closing) -> bool:
        """Return True if a closing fence is within a Python string of the block.

        After ``_MAX_FENCES_IN_STRINGS`` such fences, return False, because each check parses the
        block.
        """
        may_be_python = not opened.language or opened.language in _PYTHON_LABELS
        if not may_be_python or self._remaining_string_checks <= 0:
            return False
        is_in_string = stops_in_string(self._code_of(opened, closing.line))
        if is_in_string:
            self._remaining_string_checks -= 1
        return is_in_string

    def _close(self, opened: _Open, closing: _Closing | None) -> int:
        """Add a block; return the index of the line to parse next.

        A closing line that also opens the next block, such as ```python, is parsed again.

        Args:
            opened: The opening fence of the block.
            closing: The closing fence; None if the block ends with the text.
        """
        start = self._lines[opened.line].start
        if closing is None:
            code = self._code_of(opened, len(self._lines))
            self._add(opened.language, code, opened.lead, start, len(self._text))
            return len(self._lines)
        code = self._code_of(opened, closing.line)
        next_index = closing.line
        end = self._lines[closing.line].start
        if not closing.opens_next_block:
            next_index += 1
            end += closing.fence.end("marks")
        self._add(opened.language, code, opened.lead, start, end)
        return next_index

    def _code_of(self, opened: _Open, end: int) -> str:
        """Return the lines after an opening fence up to the line with the index ``end``."""
        lines = [line.text for line in self._lines[opened.line + 1 : end]]
        is_in_quotation = ">" in opened.lead
        if is_in_quotation:  # its lines begin with ``>``
            lines = [re.sub(r"^[ \t]*> ?", "", line) for line in lines]
        return "\n".join(lines)

    def _add(self, language: str, code: str, lead: str, start: int, end: int) -> None:
        """Add a block with repaired code.

        Args:
            language: The language that the fence names, if any.
            code: The code as written.
            lead: The text before the fence in its line, such as an indentation.
            start: The index at which the block's first line starts.
            end: The index at which the block ends.
        """
        before = self._text[self._last_block_end : start] + lead
        repaired = repair_script(code, indent=len(lead)) or ""
        self.blocks.append(Block(language, repaired, before, start, end))
        self._last_block_end = end


def _closing_fence(line: str, opened: _Open) -> re.Match[str] | None:
    """Match a line that closes a block.

    A line such as ```json opens a block, and closes a block that the model left open before.
    """
    fence = _FENCE.fullmatch(line)
    # A block that four backticks opened is closed by four or more, not by three.
    if fence is None or not fence["marks"].startswith(opened.marks):
        return None
    # With further marks in the line, as in ```a```, the line is inline code instead of a fence.
    is_inline_code = fence["marks"][0] in fence["info"]
    return None if is_inline_code else fence


def _fence_after_text(line: str) -> re.Match[str] | None:
    """Match an opening fence of Python or JSON at the end of a line of prose."""
    if "```" not in line[-_MAX_INFO_CHARS:]:
        return None
    fence = _FENCE_AFTER_TEXT.fullmatch(line)
    if fence is None:
        return None
    language = _language(fence["info"])
    is_script_or_call = language in _PYTHON_LABELS or language in JSON_LABELS
    return fence if is_script_or_call else None


def _one_line_block(match: re.Match[str]) -> tuple[str, str] | None:
    """Return the language and the code if a fence's line also has the code and the closing marks.

    An example is ```py x = 1```. None if the line only opens a block.
    """
    code_and_marks = _ONE_LINE.fullmatch(match["info"])
    if code_and_marks is None:
        return None
    # As in Markdown, the closing marks are the opening ones, or more of them.
    if not code_and_marks["marks"].startswith(match["marks"]):
        return None
    code = code_and_marks["code"].strip()
    word, _, rest = code.partition(" ")
    if word.lower() in _KNOWN_LANGUAGES and rest.strip():
        return word.lower(), rest.strip()
    if parse_script(code) is None:
        return None
    return "", code


def _language(info: str) -> str:
    """Return the first word after a fence's marks, in lower case; empty without one.

    A file name such as ``main.py`` may stand there instead of a language, and loses its suffix.
    """
    match = _WORD.match(info.strip().strip(" \t{}.:"))
    word = "" if match is None else match.group().lower()
    return word.removesuffix(".py")
