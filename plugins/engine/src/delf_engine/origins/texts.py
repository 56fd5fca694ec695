"""Normal forms of a text for searching: its letters, words and pieces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from typing import Final

LEAST: Final = 3
"""The least number of characters of a value that can reveal its source."""
SHORT: Final = 12
"""The least number of characters of a value that may match within another value."""

_PIECE: Final = 24
"""The least number of characters of a piece; twice as many in a long text."""
_MOST_PIECES: Final = 12
"""The most pieces of one value that are searched."""
_WORD: Final = re.compile(r"[\w.@+:/%-]{6,}")
_NAME: Final = re.compile(r"[\w.-]{6,}")
_TELLING: Final = re.compile(r"[\d@/]|\.\w|.{15}")
"""Characters of rare words, such as addresses; common words occur in any two texts."""
_LONGEST_WORD: Final = 300
"""The most characters of a word; longer texts never match by chance, and their patterns are
slow.
"""
_BEFORE: Final = r"(?<![\w@])(?<!\w[.+-])"
_AFTER: Final = r"(?![\w@]|[.+-]\w)"
_NUMBER: Final = re.compile(r"\d{1,15}(?:[\d,]{0,20}\.\d{1,15}|(?:,\d{3}){0,6})")
_NAMES_NEXT: Final = re.compile(
    r"(?:['\"#`“‘]|\b(?:id|no|nr|num|number|file|mail|e-?mail|event|record|order)\b\W{0,4})$",
    re.IGNORECASE,
)
"""Marks before a record's number."""
_IDENTIFIER: Final = re.compile(r"(?=[^\d]*\d)[\w.:/#-]{1,100}")
_LAST_NUMBER: Final = re.compile(r"\d{2,}$")
_ENDS: Final = re.compile(r"\s*(?:[.!?;'\")]|$)(?!\d)")
_WORD_AHEAD: Final = re.compile(r"\w[^\w\n]*$")
_DAY: Final = re.compile(r"(?:[:.,/$€£-]|\b[A-Z][a-z]{2,8})\s?$")
"""Marks before a number that is a day, a time or an amount."""
_LINKS: Final = re.compile(r"\w@\w|://|\bwww\.|\b[\w-]+\.[a-z]{2,12}/|[A-Z]{2}\d{10}|\d[\d ]{6,}\d")
_CODE: Final = re.compile(r"(?<!\S)(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9+/=_-]{20,}")
_KINDS: Final = (
    re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    re.compile(r"(?:https?://)?[\w-]+(?:\.[\w-]+)+(?:/[^\s,;)\"']*)?"),
    re.compile(r"(?=[A-Z0-9]*\d)[A-Z0-9]{8,}"),
    re.compile(r"\d+(?:[.,]\d+)?"),
)
"""Patterns of mail addresses, web addresses, account numbers and numbers."""
_MARKS: Final = bytes(code for code in range(1, 128) if not chr(code).isalnum())
_FOREIGN_MARKS: Final = re.compile(r"[^\w\x00-\x7f]+")


def mentions(text: str, value: str) -> bool:
    """Return whether a text contains a value as separate words.

    Ignores case, spaces and number formats, but no other characters: ``ada@example.co.m`` is not
    ``ada@example.com``.
    """
    if value[:1].isdigit() and _NUMBER.fullmatch(value):
        return _number(value) in map(_number, _NUMBER.findall(text))
    value = re.sub(r"^(?:https?://|mailto:)|/+$", "", value.strip())
    if not value or without_spaces(value) not in without_spaces(text):
        return False
    if len(value) > _LONGEST_WORD:
        return True
    is_account = value.replace(" ", "").isalnum() and any(map(str.isdigit, value))
    parts = "".join(value.split()) if is_account else value.split()  # people write it in groups
    pattern = (r"\s?" if is_account else r"\s+").join(map(re.escape, parts))
    return re.search(rf"{_BEFORE}{pattern}{_AFTER}", text, re.IGNORECASE) is not None


def _number(text: str) -> str:
    return number_text(float(text.replace(",", "").rstrip(".")))


def names(text: str, value: str) -> bool:
    """Return whether a text mentions a record by its number or identifier, among other words.

    ``11`` is a record's number in "file '11'" and "delete 11", but not in "June 11 is".
    """
    if len(text.strip()) == len(value) or not _IDENTIFIER.fullmatch(value):
        return False
    number = "" if value.isdigit() else _LAST_NUMBER.search(value)
    forms = [value, number[0]] if number else [value]
    for form in forms if any(each.casefold() in text.casefold() for each in forms) else ():
        pattern = rf"{_BEFORE}{re.escape(form)}(?:\.\w{{1,5}})?{_AFTER}"
        for match in re.finditer(pattern, text, re.IGNORECASE):
            before, after = text[max(0, match.start() - 12) : match.start()], text[match.end() :]
            is_last = _ENDS.match(after) and _WORD_AHEAD.search(before) and not _DAY.search(before)
            if not form.isdigit() or is_last or _NAMES_NEXT.search(before):
                return True
    return False


def is_only_one(word: str, text: str) -> bool:
    """Return whether a text has only one word of its kind: address, account or number."""
    kind = next((kind for kind in _KINDS if kind.fullmatch(word.strip())), None)
    if kind is None:
        return False
    found = {without_spaces(match[0]).rstrip(".") for match in kind.finditer(text)}
    return found == {without_spaces(word)}


def has_link(text: str) -> bool:
    """Return whether a text contains an address to follow or to pay to."""
    return _LINKS.search(text) is not None


def has_code(text: str) -> bool:
    """Return whether a text holds a long word of letters and digits, which may be encoded data."""
    return _CODE.search(text) is not None


def without_spaces(text: str) -> str:
    """Convert a text to lower case without spaces."""
    return "".join(text.split()).casefold()


def number_text(value: float | Decimal) -> str:
    """Convert a number to a normal form: ``1,250.00`` becomes ``1250``."""
    return f"{value:.15g}" if isinstance(value, (float, Decimal)) else str(value)


def letters_of(text: str) -> str:
    """Return the letters and digits of a text, ignoring case, spaces and invisible characters."""
    text = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    if not text.isascii():
        text = _FOREIGN_MARKS.sub("", text)
    data = text.encode(errors="surrogatepass")  # it may hold halves of characters
    return data.translate(None, _MARKS).decode(errors="surrogatepass")


def pieces_of(text: str) -> Iterator[str]:
    """Yield the normalised pieces of a text: rare words and substrings for partial matches."""
    letters = letters_of(text)
    words = (*_WORD.findall(text), *_NAME.findall(text))
    telling = [word for word in words if _TELLING.search(word)]
    # Long texts are cut into longer pieces, farther apart, so that their number stays bounded.
    size = min(max(_PIECE, len(letters) // 4), 2 * _PIECE)
    step = max(size, len(letters) // _MOST_PIECES)
    rare = map(letters_of, sorted(telling, key=len, reverse=True))
    cuts = (letters[at : at + size] for at in range(0, len(letters) - size, step))
    pieces = dict.fromkeys(piece for piece in (*rare, *cuts) if len(piece) >= 2 * LEAST)
    return islice(pieces, _MOST_PIECES)
