"""The blocks of code in an answer, however their fences were written."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from delf_strategy_codegen.python import is_script, parse_script, repair_script, stops_in_string

PYTHON: Final = frozenset(
    {"python", "py", "python3", "python2", "py3", "tool_code", "code", "ipython", "ipython3"}
    | {"pycon", "pythonrepl", "python-repl", "jupyter", "ipynb", "script", "run", "execute"}
    | {"tool_call", "delf"}
)
JSON: Final = frozenset({"json", "jsonc", "json5"})
_OTHER_LANGUAGES: Final = frozenset(
    {"bash", "sh", "shell", "console", "text", "txt", "plain", "plaintext", "output", "stdout"}
    | {"result", "results", "sql", "js", "javascript", "typescript", "ts", "jsx", "tsx", "html"}
    | {"css", "xml", "yaml", "yml", "toml", "ini", "csv", "tsv", "diff", "markdown", "md", "java"}
    | {"c", "cpp", "c++", "csharp", "cs", "go", "rust", "ruby", "php", "r", "kotlin", "swift"}
    | {"scala", "perl", "lua", "powershell", "ps1", "dockerfile", "makefile", "mermaid", "latex"}
    | {"tex", "log", "logs", "http", "graphql", "bat", "cmd", "zsh", "vb", "dart", "haskell"}
    | {"julia", "matlab", "none"}
)
_KNOWN_LANGUAGES: Final = PYTHON | JSON | _OTHER_LANGUAGES
_FENCE: Final = re.compile(
    r"(?P<lead>(?:[ \t]*(?:[-*+>]|\d+[.)])(?=[ \t]))*[ \t]*)(?P<marks>`{3,}|~{3,})(?P<info>.*)"
)
_FENCE_AFTER_TEXT: Final = re.compile(
    r"(?P<lead>.*[^`\s][ \t]*)(?P<marks>`{3,})(?P<info>[\w+#.-]+)[ \t]*"
)
_ONE_LINE: Final = re.compile(r"(?P<code>.*?\S.*?)(?P<marks>`{3,}|~{3,})[ \t]*")
_WORD: Final = re.compile(r"[\w+#.-]*")
_MAX_EXTENDED: Final = 50
_MAX_INFO_CHARS: Final = 40


class Block(NamedTuple):
    """A block of code in an answer.

    Args:
        language: The language that the fence names; empty if the fence names none.
        code: The code, repaired if it was almost valid Python.
        before: The text between the previous block and this one.
        start: The index in the answer at which the block starts.
        end: The index in the answer at which the block ends.
    """

    language: str
    code: str
    before: str
    start: int
    end: int

    @property
    def is_python(self) -> bool:
        """True if the fence names Python, or names an unknown language and the code is Python."""
        is_known = self.language in PYTHON
        return is_known or bool(
            self.language and self.language not in _KNOWN_LANGUAGES and is_script(self.code)
        )


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
        self._remaining_extensions = _MAX_EXTENDED
        self._last_end = 0
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
        if fence is None or ("`" in fence["info"] and fence["marks"][0] == "`"):
            fence = _fence_after_text(line.text)
        if fence is None:
            return index + 1
        opened = _Open(index, fence["lead"], fence["marks"], _language(fence["info"]))
        return self._parse_block(opened)

    def _parse_block(self, opened: _Open) -> int:
        """Parse the lines of a block up to its closing fence; return the index of the next line.

        A fence within a Python string is part of the code, unless the string has no end.
        """
        first_close: tuple[int, int] | None = None
        index = opened.line + 1
        while index < len(self._lines):
            skipped_lines = self._lines_to_skip(self._lines[index].text, opened)
            if skipped_lines is not None:
                code = self._between(opened, index)
                first_close = first_close or (index, skipped_lines)
                may_be_python = not opened.language or opened.language in PYTHON
                if not (may_be_python and self._remaining_extensions and stops_in_string(code)):
                    return self._close(opened, index, skipped_lines)
                self._remaining_extensions -= 1
            index += 1
        if first_close is not None:  # the string has no end
            return self._close(opened, *first_close)
        return self._close(opened, len(self._lines), 0)

    def _lines_to_skip(self, line: str, opened: _Open) -> int | None:
        """Return the number of lines to skip if a line closes a block; None for another line.

        The number is 0 if the closing line also opens the next block, otherwise 1.
        """
        fence = _FENCE.fullmatch(line)
        if fence is None or not fence["marks"].startswith(opened.marks):
            return None
        info = fence["info"].strip()
        if not info:
            return 1
        if fence["marks"][0] in info:
            return None
        return 0 if _language(info) in _KNOWN_LANGUAGES else 1

    def _close(self, opened: _Open, index: int, skipped_lines: int) -> int:
        """Add a block that ends at a line; return the index of the next line.

        Args:
            opened: The opening fence of the block.
            index: The index of the closing line, or the number of lines if none closes the block.
            skipped_lines: 1 if the closing line belongs to the block, otherwise 0.
        """
        code = self._between(opened, index)
        end = len(self._text)
        if index < len(self._lines):
            line = self._lines[index]
            marks = _FENCE.fullmatch(line.text) if skipped_lines else None
            end = line.start + (0 if marks is None else marks.end("marks"))
        self._add(opened.language, code, opened.lead, self._lines[opened.line].start, end)
        return index + skipped_lines

    def _between(self, opened: _Open, number: int) -> str:
        lines = [line.text for line in self._lines[opened.line + 1 : number]]
        if ">" in opened.lead:
            lines = [re.sub(r"^[ \t]*> ?", "", line) for line in lines]
        return "\n".join(lines)

    def _add(self, language: str, code: str, lead: str, start: int, end: int) -> None:
        before = self._text[self._last_end : start] + lead
        repaired = repair_script(code, len(lead)) or ""
        self.blocks.append(Block(language, repaired, before, start, end))
        self._last_end = end


def _fence_after_text(line: str) -> re.Match[str] | None:
    """Match an opening fence of Python or JSON at the end of a line of prose."""
    match = _FENCE_AFTER_TEXT.fullmatch(line) if "```" in line[-_MAX_INFO_CHARS:] else None
    return match if match is not None and _language(match["info"]) in PYTHON | JSON else None


def _one_line_block(match: re.Match[str]) -> tuple[str, str] | None:
    """Return the language and the code of a block in one line; None for another fence."""
    parts = _ONE_LINE.fullmatch(match["info"])
    if parts is None or not parts["marks"].startswith(match["marks"]):
        return None
    code = parts["code"]
    word, _, rest = code.strip().partition(" ")
    if word.lower() in _KNOWN_LANGUAGES and rest.strip():
        return word.lower(), rest.strip()
    return ("", code.strip()) if parse_script(code.strip()) is not None else None


def _language(info: str) -> str:
    blocks = _WORD.match(info.strip(" \t{}.:"))
    word = "" if blocks is None else blocks.group().lower()
    return word.removesuffix(".py") if word.endswith(".py") else word
