"""Tokens of a SQL statement, by the rules of each database.

Only what has to be told apart is: strings, quoted names, comments, words and the rest. It
serves placeholders and the gate; that a query cannot write does not depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from delf.errors import ToolRefusedError
from delf_sql.target import Dialect

Kind = Literal["word", "name", "string", "comment", "number", "operator"]

_BLANK: Final = re.compile(r"\s+")
_NUMBER: Final = re.compile(r"(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_WORD: Final = re.compile(r"[A-Za-z_\x80-\U0010ffff][\w$]*")
_MYSQL_WORD: Final = re.compile(r"\d*[A-Za-z_$\x80-\U0010ffff][\w$]*")
_DOLLAR: Final = re.compile(r"\$(?:[A-Za-z_\x80-\U0010ffff]\w*)?\$")
_SINGLE: Final = re.compile(r"'[^']*(?:''[^']*)*'")
_SINGLE_BACKSLASH: Final = re.compile(r"'[^'\\]*(?:(?:''|\\.)[^'\\]*)*'", re.DOTALL)
_DOUBLE: Final = re.compile(r'"[^"]*(?:""[^"]*)*"')
_DOUBLE_BACKSLASH: Final = re.compile(r'"[^"\\]*(?:(?:""|\\.)[^"\\]*)*"', re.DOTALL)
_BACKTICK: Final = re.compile(r"`[^`]*(?:``[^`]*)*`")
_BRACKET: Final = re.compile(r"\[[^\]]*\]")
_LINE: Final = re.compile(r"--[^\n]*")
_MYSQL_LINE: Final = re.compile(r"(?:\#|--(?=[\s\x00-\x1f]|\Z))[^\n]*")
_FLAT_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a statement.

    Args:
        kind: What it is; ``name`` is a quoted name.
        text: As it stands; of a ``name``, what is between the quotes.
        start: Where it begins.
        end: Where it ends.
    """

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The keyword that it may be, in capitals; empty for anything else."""
        return self.text.upper() if self.kind == "word" else ""


@dataclass(frozen=True, slots=True)
class Syntax:
    """How a database reads text.

    Args:
        dialect: Which database.
        backslash: Whether a backslash escapes in strings (MySQL's default).
        ansi_quotes: Whether double quotes make names; MySQL's default is strings.
    """

    dialect: Dialect
    backslash: bool = False
    ansi_quotes: bool = True


POSTGRESQL: Final = Syntax("postgresql")
SQLITE: Final = Syntax("sqlite")
MYSQL: Final = Syntax("mysql", backslash=True, ansi_quotes=False)


def words(text: str) -> frozenset[str]:
    """The words of a list that is written as text."""
    return frozenset(text.split())


def tokenize(text: str, syntax: Syntax, *, comments: bool = False) -> list[Token]:
    """The statement's tokens.

    Args:
        text: One statement, or several.
        syntax: How the database reads it.
        comments: Keep comments, too.

    Raises:
        ToolRefusedError: For a string, name or comment without an end.
    """
    if "\x00" in text:
        raise ToolRefusedError("the statement holds a NUL character")
    tokens: list[Token] = []
    place = 0
    while place < len(text):
        blank = _BLANK.match(text, place)
        if blank:
            place = blank.end()
            continue
        token = _next(text, place, syntax, tokens)
        place = token.end
        if comments or token.kind != "comment":
            tokens.append(token)
    return tokens


def _next(text: str, place: int, syntax: Syntax, before: Sequence[Token]) -> Token:
    comment_end = _comment(text, place, syntax)
    if comment_end is not None:
        return Token("comment", text[place:comment_end], place, comment_end)
    quoted = _quoted(text, place, syntax, before)
    if quoted is not None:
        return quoted
    mysql = syntax.dialect == "mysql"
    word = (_MYSQL_WORD if mysql else _WORD).match(text, place)
    number = _NUMBER.match(text, place)
    if number and (not word or number.end() >= word.end()):
        return Token("number", number.group(), place, number.end())
    if word:
        return Token("word", word.group(), place, word.end())
    return Token("operator", text[place], place, place + 1)


def _comment(text: str, place: int, syntax: Syntax) -> int | None:
    line = (_MYSQL_LINE if syntax.dialect == "mysql" else _LINE).match(text, place)
    if line:
        return line.end()
    if not text.startswith("/*", place):
        return None
    if syntax.dialect == "postgresql":
        return _nested_comment(text, place)
    flat = _FLAT_COMMENT.match(text, place)
    if flat is None:
        raise ToolRefusedError("the statement has a comment without an end")
    return flat.end()


def _nested_comment(text: str, place: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, place):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise ToolRefusedError("the statement has a comment without an end")


def _quoted(text: str, place: int, syntax: Syntax, before: Sequence[Token]) -> Token | None:
    sign = text[place]
    if sign == "'":
        escapes = syntax.backslash or _is_escape_string(place, syntax, before)
        return _string(text, place, _SINGLE_BACKSLASH if escapes else _SINGLE)
    if sign == '"':
        if syntax.ansi_quotes:
            return _name(text, place, _DOUBLE)
        return _string(text, place, _DOUBLE_BACKSLASH if syntax.backslash else _DOUBLE)
    if sign == "`" and syntax.dialect != "postgresql":
        return _name(text, place, _BACKTICK)
    if sign == "[" and syntax.dialect == "sqlite":
        return _name(text, place, _BRACKET)
    if sign == "$" and syntax.dialect == "postgresql":
        opening = _DOLLAR.match(text, place)
        if opening:
            return _dollar_string(text, place, opening.group())
    return None


def _is_escape_string(place: int, syntax: Syntax, before: Sequence[Token]) -> bool:
    if syntax.dialect != "postgresql" or not before:
        return False
    return before[-1].end == place and before[-1].word == "E"


def _string(text: str, place: int, pattern: re.Pattern[str]) -> Token:
    match = pattern.match(text, place)
    if match is None:
        raise ToolRefusedError("the statement has a string without an end")
    return Token("string", match.group(), place, match.end())


def _name(text: str, place: int, pattern: re.Pattern[str]) -> Token:
    match = pattern.match(text, place)
    if match is None:
        raise ToolRefusedError("the statement has a quoted name without an end")
    quote = match.group()[-1]
    inner = match.group()[1:-1].replace(quote * 2, quote)
    return Token("name", inner, place, match.end())


def _dollar_string(text: str, place: int, opening: str) -> Token:
    end = text.find(opening, place + len(opening))
    if end < 0:
        raise ToolRefusedError("the statement has a string without an end")
    end += len(opening)
    return Token("string", text[place:end], place, end)
