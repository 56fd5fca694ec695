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
_OTHER: Final = frozenset(
    {"bash", "sh", "shell", "console", "text", "txt", "plain", "plaintext", "output", "stdout"}
    | {"result", "results", "sql", "js", "javascript", "typescript", "ts", "jsx", "tsx", "html"}
    | {"css", "xml", "yaml", "yml", "toml", "ini", "csv", "tsv", "diff", "markdown", "md", "java"}
    | {"c", "cpp", "c++", "csharp", "cs", "go", "rust", "ruby", "php", "r", "kotlin", "swift"}
    | {"scala", "perl", "lua", "powershell", "ps1", "dockerfile", "makefile", "mermaid", "latex"}
    | {"tex", "log", "logs", "http", "graphql", "bat", "cmd", "zsh", "vb", "dart", "haskell"}
    | {"julia", "matlab", "none"}
)
_KNOWN: Final = PYTHON | JSON | _OTHER
_FENCE: Final = re.compile(
    r"(?P<lead>(?:[ \t]*(?:[-*+>]|\d+[.)])(?=[ \t]))*[ \t]*)(?P<marks>`{3,}|~{3,})(?P<info>.*)"
)
_BEHIND_TEXT: Final = re.compile(
    r"(?P<lead>.*[^`\s][ \t]*)(?P<marks>`{3,})(?P<info>[\w+#.-]+)[ \t]*"
)
_ONE_LINE: Final = re.compile(r"(?P<code>.*?\S.*?)(?P<marks>`{3,}|~{3,})[ \t]*")
_WORD: Final = re.compile(r"[\w+#.-]*")
_MAX_LONGER: Final = 50
_LONGEST_INFO: Final = 40


class Block(NamedTuple):
    """A piece of code.

    Args:
        language: The language of the fence; empty if none is stated.
        code: The cleaned code.
        before: The text between the previous block and this one.
        start: The start position in the answer.
        end: The end position.
    """

    language: str
    code: str
    before: str
    start: int
    end: int

    @property
    def is_python(self) -> bool:
        """True if the block is labelled as Python, or has an unknown label and parses as Python."""
        is_known = self.language in PYTHON
        return is_known or bool(
            self.language and self.language not in _KNOWN and is_script(self.code)
        )


class _Line(NamedTuple):
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text) + 1


class _Open(NamedTuple):
    line: int
    lead: str
    marks: str
    language: str
    text_before: str


def blocks_of(text: str) -> list[Block]:
    """Return the fenced blocks of a text, in order, ignoring fences in strings."""
    return _Blocks(text).found


class _Blocks:
    """Goes through the lines of a text once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: list[_Line] = []
        place = 0
        for line in text.split("\n"):
            self._lines.append(_Line(line, place))
            place += len(line) + 1
        self.found: list[Block] = []
        self._remaining_tries = _MAX_LONGER
        self._last_end = 0
        number = 0
        while number < len(self._lines):
            number = self._step(number)

    def _step(self, number: int) -> int:
        """Process a line outside of a block, or a block that begins there; return the next line."""
        line = self._lines[number]
        fence = _FENCE.fullmatch(line.text)
        if fence is not None and (block := _one_line(fence)) is not None:
            language, code = block
            self._add(language, code, fence["lead"], line.start, line.end)
            return number + 1
        if fence is None or ("`" in fence["info"] and fence["marks"][0] == "`"):
            fence = _fence_behind_text(line.text)
        if fence is None:
            return number + 1
        opened = _Open(number, fence["lead"], fence["marks"], _language(fence["info"]), "")
        return self._block(opened)

    def _block(self, opened: _Open) -> int:
        """Record a block; return the number of the next line."""
        first: tuple[int, int] | None = None
        number = opened.line + 1
        while number < len(self._lines):
            following = self._closes(self._lines[number].text, opened)
            if following is not None:
                code = self._between(opened, number)
                first = first or (number, following)
                could_be = not opened.language or opened.language in PYTHON
                if not (could_be and self._remaining_tries and stops_in_string(code)):
                    return self._close(opened, number, following)
                self._remaining_tries -= 1
            number += 1
        if first is not None:  # the string has no end
            return self._close(opened, *first)
        return self._close(opened, len(self._lines), 0)

    def _closes(self, line: str, opened: _Open) -> int | None:
        """Return 1 if a line closes a block, 0 if the line also opens the next block, else None."""
        fence = _FENCE.fullmatch(line)
        if fence is None or not fence["marks"].startswith(opened.marks):
            return None
        info = fence["info"].strip()
        if not info:
            return 1
        if fence["marks"][0] in info:
            return None
        return 0 if _language(info) in _KNOWN else 1

    def _close(self, opened: _Open, number: int, following: int) -> int:
        code = self._between(opened, number)
        end = len(self._text)
        if number < len(self._lines):
            line = self._lines[number]
            marks = _FENCE.fullmatch(line.text) if following else None
            end = line.start + (0 if marks is None else marks.end("marks"))
        self._add(opened.language, code, opened.lead, self._lines[opened.line].start, end)
        return number + following

    def _between(self, opened: _Open, number: int) -> str:
        lines = [line.text for line in self._lines[opened.line + 1 : number]]
        if ">" in opened.lead:
            lines = [re.sub(r"^[ \t]*> ?", "", line) for line in lines]
        return "\n".join(lines)

    def _add(self, language: str, code: str, lead: str, start: int, end: int) -> None:
        before = self._text[self._last_end : start] + lead
        indent = len(lead) - len(lead.lstrip(" \t")) if not lead.strip() else len(lead)
        repaired = repair_script(code, indent) or ""
        self.found.append(Block(language, repaired, before, start, end))
        self._last_end = end


def _fence_behind_text(line: str) -> re.Match[str] | None:
    """Return the opening fence of Python or JSON at the end of a line of prose, if any."""
    match = _BEHIND_TEXT.fullmatch(line) if "```" in line[-_LONGEST_INFO:] else None
    return match if match is not None and _language(match["info"]) in PYTHON | JSON else None


def _one_line(match: re.Match[str]) -> tuple[str, str] | None:
    """Return the language and the code of a fence that opens and ends in one line."""
    parts = _ONE_LINE.fullmatch(match["info"])
    if parts is None or not parts["marks"].startswith(match["marks"]):
        return None
    code = parts["code"]
    word, _, rest = code.strip().partition(" ")
    if word.lower() in _KNOWN and rest.strip():
        return word.lower(), rest.strip()
    return ("", code.strip()) if parse_script(code.strip()) is not None else None


def _language(info: str) -> str:
    found = _WORD.match(info.strip(" \t{}.:"))
    word = "" if found is None else found.group().lower()
    return word.removesuffix(".py") if word.endswith(".py") else word
