"""Repairs the text of an invalid script with an obvious correction.

Lines keep their numbers. Valid code is never changed.
"""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Iterator
from dataclasses import field
from typing import Final

from delf.records import dataclass

_INSTALLS: Final = re.compile(
    r"[!%]?\s*(?:(?:python3? -m |uv )?pip3?|conda|mamba) install\b.*"
    r"|%(?:matplotlib|load_ext|config|autoreload)\b.*"
)
_PROMPT: Final = re.compile(r"\s*(?:>>>|\.\.\.)(?: |$)")
_FIRST_CONSOLE_PROMPT: Final = re.compile(r"\s*>>>(?: |$)", re.MULTILINE)
_STRING_PREFIX_AT_END: Final = re.compile(r"(?i)(?<!\w)(?:[rbuf]|rb|br|rf|fr)\Z")
_ASCII_QUOTE_BY_CURLY_QUOTES: Final = {"“”„‟": '"', "‘’‚‛": "'"}
_OTHER_ASCII_QUOTE: Final = str.maketrans("\"'", "'\"")
_QUOTES: Final = frozenset("\"'").union(*_ASCII_QUOTE_BY_CURLY_QUOTES)
_ASCII_BY_TYPOGRAPHIC_SIGN: Final = {
    "≥": ">=",
    "≤": "<=",
    "≠": "!=",
    "−": "-",
    "–": "-",
    "×": "*",
    "÷": "/",
    "\u00a0": " ",
    "\u202f": " ",
    "\u2009": " ",
    "\u200b": "",
    "\ufeff": "",
}
# The maximum number of characters of a script to repair.
_MAX_SCANNED_CHARS: Final = 2**17


def repair_code(code: str) -> str:
    """Repair an invalid script if an obvious correction makes it valid.

    Without such a correction, the script is returned unchanged.
    """
    if len(code) > _MAX_SCANNED_CHARS or _parses(code):
        return code
    repaired = code
    for repair in (_without_installs, _without_prompts, _with_plain_signs):
        repaired = repair(repaired)
        if _parses(repaired):
            return repaired
    return code


def _parses(code: str) -> bool:
    """Return True if a text is valid Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(code)
        except (SyntaxError, SystemError, ValueError, RecursionError, MemoryError):
            return False
    return True


def _without_installs(code: str) -> str:
    """Replace commands that install packages by ``pass``, because sandboxes have no network."""
    lines = code.split("\n")
    for number, line in enumerate(lines):
        if _INSTALLS.fullmatch(line.strip()):
            indentation = line[: len(line) - len(line.lstrip())]
            # ``pass``, because the indented block may have no other statement.
            lines[number] = f"{indentation}pass"
    return "\n".join(lines)


def _without_prompts(code: str) -> str:
    """Remove the prompts of a Python console, and the results that it printed."""
    if not _FIRST_CONSOLE_PROMPT.search(code):
        return code
    lines_without_prompts: list[str] = []
    has_prompt = False
    for line in code.split("\n"):
        prompt = _PROMPT.match(line)
        if prompt is not None:
            has_prompt = True
            lines_without_prompts.append(line[prompt.end() :])
        else:
            # Lines before the first prompt are code; later lines without a prompt are results.
            lines_without_prompts.append("" if has_prompt else line)
    return "\n".join(lines_without_prompts)


def _with_plain_signs(code: str) -> str:
    """Replace typographic quotes and signs by ASCII signs.

    F-strings that only Python 3.12 parses are rewritten for older versions. Code that still does
    not parse is returned unchanged.
    """
    # First assume that only a curly quote closes a string that a curly quote opened; if that fails,
    # assume that a straight quote may close the string, too.
    for must_close_with_curly_quote in (True, False):
        reader = _Reader(code, must_close_with_curly_quote=must_close_with_curly_quote)
        try:
            repaired = "".join(_join_pieces(reader.code(closing="")))
        except _UnreadableError:
            continue
        if _parses(repaired):
            return repaired
    return code


class _UnreadableError(Exception):
    """A script cannot be split into code and strings."""


@dataclass()
class _Text:
    """A string of a script.

    Args:
        prefix: The string's prefix, such as ``f``.
        quotes: The opening quotation mark, one or three ASCII characters. A typographic quotation
            mark in the source is replaced by its ASCII form.
        parts: The pieces of source text, and the replacement fields of an f-string between them.
    """

    prefix: str
    quotes: str
    parts: list[str | _Field] = field(default_factory=list["str | _Field"])

    @property
    def is_f_string(self) -> bool:
        return "f" in self.prefix.lower()

    def as_written(self) -> str:
        """Return the string's source, without conversion to ``str.format``."""
        content = "".join(map(str, self.parts))
        return self.prefix + self.quotes + content + self.quotes

    def choose_raw_quotes(self) -> None:
        """Choose quotes that do not occur in the text of a raw string."""
        text = "".join(part for part in self.parts if isinstance(part, str))
        other_quotes = self.quotes.translate(_OTHER_ASCII_QUOTE)
        for quotes in (self.quotes, other_quotes, '"""', "'''"):
            would_end_early = quotes in text or text.endswith(quotes[0])
            if not would_end_early:
                self.quotes = quotes
                return
        # All quotes occur, so they get a backslash, which becomes text of a raw string. As a
        # regular expression, the string still matches the same.
        quote = self.quotes[0]
        self.parts = [
            part.replace(quote, f"\\{quote}") if isinstance(part, str) else part
            for part in self.parts
        ]

    def needs_str_format(self) -> bool:
        """Return whether the string is an f-string that Python before 3.12 cannot parse."""
        fields = [part for part in self.parts if isinstance(part, _Field)]
        return any(part.needs_python_312_in(self.quotes) for part in fields)

    def __str__(self) -> str:
        """Return the source of the literal; ``str.format`` replaces an f-string if necessary."""
        if not self.is_f_string or not self.needs_str_format():
            return self.as_written()
        # as_format_field() appends the expressions of a replacement field to the arguments.
        arguments: list[str] = []
        content = ""
        for part in self.parts:
            if isinstance(part, _Field):
                content += part.as_format_field(arguments)
            else:
                content += part
        prefix = self.prefix.replace("f", "").replace("F", "")
        template = prefix + self.quotes + content + self.quotes
        return f"{template}.format({', '.join(arguments)})"


@dataclass()
class _Field:
    """A replacement field of an f-string.

    Args:
        code: The pieces of the expression: code and strings.
        equals_sign: The ``=`` after the expression, with blanks; empty without ``=``.
        conversion: The conversion, such as ``!r``; empty without a conversion.
        spec: The format specification with its nested fields; None without a specification.
    """

    code: list[str | _Text]
    equals_sign: str = ""
    conversion: str = ""
    spec: list[str | _Field] | None = None

    def expression(self) -> str:
        """Return the source of the expression, in a form for Python before 3.12, too."""
        return "".join(_join_pieces(self.code))

    def needs_python_312_in(self, quotes: str) -> bool:
        """Return True if only Python 3.12 and later can parse the field between these quotes.

        Earlier versions allow no backslash, comment or quote of the enclosing string in the field,
        and a line break only in triple quotes.
        """
        text = ""  # the expression with its strings
        for part in self.code:
            text += part.as_written() if isinstance(part, _Text) else part
        has_line_break = "\n" in text and len(quotes) == 1
        if has_line_break or quotes in text or "\\" in text or "#" in text:
            return True
        if self.spec is None:
            return False
        nested_fields = [part for part in self.spec if isinstance(part, _Field)]
        return any(field.needs_python_312_in(quotes) for field in nested_fields)

    def __str__(self) -> str:
        text = self.expression() + self.equals_sign + self.conversion
        if self.spec is not None:
            text += ":" + "".join(map(str, self.spec))
        return "{" + text + "}"

    def as_format_field(self, arguments: list[str]) -> str:
        """Return the field for ``str.format``, and append its expression to the arguments.

        For example, return ``{!r}`` for ``{name!r}``, and append ``name``.
        """
        text = self.expression()
        # ``{a, b}`` is a tuple, and would become two arguments.
        needs_parentheses = "\n" in text or "," in text
        arguments.append(f"({text})" if needs_parentheses else text.strip())
        conversion = self.conversion
        has_format = bool(conversion) or self.spec is not None
        if self.equals_sign and not has_format:
            conversion = "!r"  # in an f-string, ``{name=}`` shows the repr
        return self._label() + "{" + conversion + self._format_spec(arguments) + "}"

    def _label(self) -> str:
        """Return the text ``name=`` of a field such as ``{name=}``, escaped for a literal."""
        if not self.equals_sign:
            return ""
        label = f"{self.expression()}{self.equals_sign}".replace("{", "{{").replace("}", "}}")
        return label.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"')

    def _format_spec(self, arguments: list[str]) -> str:
        """Return the format specification of a field, such as ``:>{}`` for ``{price:>{width}}``.

        Append the expressions in the specification, such as ``width``, to ``arguments``.
        """
        if self.spec is None:
            return ""
        spec = ":"
        for part in self.spec:
            spec += part.as_format_field(arguments) if isinstance(part, _Field) else part
        return spec


class _Reader:
    """Splits a script into code and strings.

    Args:
        text: The script.
        must_close_with_curly_quote: Whether a string that a typographic quote opens is closed only
            by a typographic quote. If False, an ASCII quote closes the string, too.
    """

    def __init__(self, text: str, *, must_close_with_curly_quote: bool) -> None:
        self._text = text
        self._must_close_with_curly_quote = must_close_with_curly_quote
        self._position = 0

    def code(self, closing: str) -> list[str | _Text]:
        """Split code into plain code and text literals, up to a closing character.

        Args:
            closing: The set of closing characters. The code ends at the first of them that is
                outside of brackets. Empty to split the whole script.
        """
        parts: list[str | _Text] = []
        plain_code = ""
        depth = 0
        while self._position < len(self._text):
            char = self._text[self._position]
            # A ``!`` or ``=`` ends the expression of an f-string, but not within ``!=`` or ``==``.
            if depth == 0 and char in closing and not self._is_part_of_operator(char):
                break
            # A comment is kept as it is: its quotes and brackets are no code.
            if char == "#":
                plain_code += self._rest_of_line()
                continue
            if char in _QUOTES:
                prefix = _string_prefix_at_end(plain_code)
                parts.append(plain_code.removesuffix(prefix))
                parts.append(self._string(prefix))
                plain_code = ""
                continue
            if char in "([{":
                depth += 1
            elif char in ")]}":
                depth -= 1
            plain_code += _ASCII_BY_TYPOGRAPHIC_SIGN.get(char, char)
            self._position += 1
        if closing and self._position == len(self._text):  # no closing character was found
            raise _UnreadableError
        return [*parts, plain_code]

    def _rest_of_line(self) -> str:
        """Read the text up to the end of the line, without the line break."""
        end_of_line = self._text.find("\n", self._position)
        if end_of_line < 0:
            end_of_line = len(self._text)
        rest = self._text[self._position : end_of_line]
        self._position = end_of_line
        return rest

    def _is_part_of_operator(self, char: str) -> bool:
        """Return whether ``!`` or ``=`` is part of an operator such as ``!=``, ``==`` or ``:=``."""
        char_before = self._text[max(0, self._position - 1) : self._position]
        char_after = self._text[self._position + 1 : self._position + 2]
        if char == "!":
            return char_after == "="
        if char == "=":
            return char_after == "=" or char_before in ("=", "!", "<", ">", ":")
        return False

    def _string(self, prefix: str) -> _Text:
        """Read a string, from its opening quote; typographic quotes become ASCII quotes.

        Args:
            prefix: The string's prefix, such as ``f``.
        """
        curly_quotes, ascii_quote = _quotes_of_same_kind(self._text[self._position])
        closing_quotes = self._closing_quotes(curly_quotes, ascii_quote)
        quote_count = 3 if self._are_next(closing_quotes, 3) else 1
        self._position += quote_count
        text = _Text(prefix, quote_count * ascii_quote)
        is_raw = "r" in prefix.lower()
        while not self._are_next(closing_quotes, quote_count):
            if self._current() == "\n" and quote_count == 1:
                raise _UnreadableError
            if text.is_f_string and self._current() in "{}":
                self._field_or_brace(text.parts)
            elif curly_quotes:
                text.parts.append(self._character_in_curly_quotes(ascii_quote, is_raw=is_raw))
            else:
                text.parts.append(self._character())
        self._position += quote_count
        if curly_quotes and is_raw:
            text.choose_raw_quotes()  # r“5" disk” becomes r'5" disk'
        return text

    def _closing_quotes(self, curly_quotes: str, ascii_quote: str) -> str:
        """Return the characters any of which can close a string.

        ``curly_quotes`` is empty if an ASCII quote opened the string.
        """
        if curly_quotes and not self._must_close_with_curly_quote:
            return curly_quotes + ascii_quote  # “a" is a string, but “5" disk” is none
        return curly_quotes or ascii_quote

    def _character(self) -> str:
        """Read a character of a string, with its backslash if any."""
        is_escape = self._current() == "\\"
        return self._take(2 if is_escape else 1)

    def _character_in_curly_quotes(self, ascii_quote: str, *, is_raw: bool) -> str:
        r"""Read a character, and escape an ASCII quote: “5" disk” becomes "5\" disk"."""
        if is_raw:  # a backslash escapes nothing, and choose_raw_quotes() treats the quotes
            return self._take(1)
        if self._current() == ascii_quote:
            return "\\" + self._take(1)
        return self._character()

    def _take(self, count: int) -> str:
        """Read the next characters."""
        start = self._position
        self._position += count
        return self._text[start : self._position]

    def _current(self) -> str:
        if self._position >= len(self._text):
            raise _UnreadableError
        return self._text[self._position]

    def _are_next(self, quotes: str, count: int) -> bool:
        """Return whether the next ``count`` characters are all among ``quotes``."""
        next_chars = self._text[self._position : self._position + count]
        return len(next_chars) == count and all(char in quotes for char in next_chars)

    def _field_or_brace(self, parts: list[str | _Field]) -> None:
        """Read a field, or a doubled brace such as ``{{``, and append it to ``parts``."""
        pair = self._text[self._position : self._position + 2]
        if pair in ("{{", "}}"):
            parts.append(pair)
            self._position += 2
        elif pair[0] == "}":
            raise _UnreadableError
        else:
            self._position += 1
            parts.append(self._field())

    def _field(self) -> _Field:
        """Read a replacement field, from after its ``{`` to its ``}``.

        Raises:
            _UnreadableError: If the field has no ``}`` where its end is due.
        """
        field = _Field(self.code("}!:="))  # the expression, up to one of these characters
        if self._current() == "=":
            field.equals_sign = "="
            self._position += 1
            while self._current() == " ":
                field.equals_sign += " "
                self._position += 1
        if self._current() == "!":
            field.conversion = self._text[self._position : self._position + 2]
            self._position += 2
        if self._current() == ":":
            self._position += 1
            field.spec = []
            while self._current() != "}":
                if self._current() == "{":
                    self._position += 1
                    field.spec.append(self._field())
                else:
                    field.spec.append(self._current())
                    self._position += 1
        if self._current() != "}":
            raise _UnreadableError
        self._position += 1
        return field


def _quotes_of_same_kind(quote: str) -> tuple[str, str]:
    """Return all typographic quotes of a quote's kind, single or double, and the ASCII quote.

    If the quote is itself an ASCII quote, return an empty text for the typographic quotes.
    """
    for curly_quotes, ascii_quote in _ASCII_QUOTE_BY_CURLY_QUOTES.items():
        if quote in curly_quotes:
            return curly_quotes, ascii_quote
    return "", quote


def _string_prefix_at_end(code: str) -> str:
    """Return the prefix of a string, such as ``f``, at the end of the code before the string.

    Without a prefix, return an empty text.
    """
    # A prefix has at most two letters. The search also needs the character before the prefix, which
    # must not belong to a word.
    prefix = _STRING_PREFIX_AT_END.search(code[-3:])
    return "" if prefix is None else prefix[0]


def _join_pieces(pieces: list[str | _Text]) -> Iterator[str]:
    """Yield the source text of a script's pieces.

    A piece is code (a ``str``) or a string literal of the script (a :class:`_Text`).

    Adjacent strings such as ``"a" "b"`` stay adjacent, unless one of them has to be written as a
    call of ``str.format``. The strings are then joined with ``+``.
    """
    for group in _groups_of_strings(pieces):
        texts = [piece for piece in group if isinstance(piece, _Text)]
        needs_plus = any(text.is_f_string and text.needs_str_format() for text in texts)
        if len(texts) < 2 or not needs_plus:
            yield from map(str, group)
            continue
        # The group of ``"a" f"{b}"`` is a string, whitespace and a string. The result is
        # ``("a" + "{}".format(b))``.
        yield "("
        for piece in group:
            is_whitespace = isinstance(piece, str)
            yield f" +{piece}" if is_whitespace else str(piece)
        yield ")"


def _groups_of_strings(pieces: list[str | _Text]) -> Iterator[list[str | _Text]]:
    """Yield adjacent strings, such as ``"a" "b"``, as one group; yield any other piece alone.

    The whitespace between the strings is part of the group.
    """
    group: list[str | _Text] = []
    for piece, next_piece in itertools.zip_longest(pieces, pieces[1:]):
        follows_string = bool(group)
        precedes_string = isinstance(next_piece, _Text)
        is_in_group = isinstance(piece, _Text) or (
            follows_string and precedes_string and not piece.strip()
        )
        if is_in_group:
            group.append(piece)
            continue
        if group:
            yield group
            group = []
        yield [piece]
    if group:
        yield group
