"""Comparison of texts, and their normal forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from delf.values.unicode import normalized

# The number of characters of each piece into which a long value is cut.
_PIECE_LENGTH: Final = 24
# The maximum length of a piece that two texts may share by chance, in characters.
_MAX_COMMON_LENGTH: Final = 5
# The maximum number of pieces and rare words of one value that are searched for.
_MAX_PIECES: Final = 12
# Matches words that two texts do not share by chance, such as addresses.
_RARE_WORD: Final = re.compile(r"(?=[\w.@-]*(?:[\d@]|\.\w)|[\w.@-]{16})[\w.@-]{6,}")
_WORD: Final = re.compile(r"[^\W\d_]{3,}")
# Matches a quoted text, as in SQL, and a code such as ``DE89 3704 0044``.
_LITERAL: Final = re.compile(
    r"'([^'\n]+)'|\"([^\"\n]+)\""
    r"|((?<!\w)(?=\w{0,40}\d)\w{1,64}(?:[ .-](?=\w{0,40}\d)\w{1,64})*)"
)
# The maximum number of characters of a value that is searched for with a pattern.
#
# A longer value has to occur literally.
_MAX_PATTERN_LENGTH: Final = 300
# Matches a number that may be written in several ways, but not codes such as ``007``.
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?")
# Matches a number with separators or a sign, a time and a date, but not a list such as ``1,2,3``.
#
# Other separators, as in ``2026-11-30``, are left to the pattern of whole words.
_COMPOSED_NUMBER: Final = re.compile(
    r"(?<![\d.,:/])(?:"
    r"\d{1,3}(?:[ .,'’\u00a0\u2009\u202f]\d{3})+(?:[.,]\d+)?|\d+[.,]\d+"
    r"|(?<!\w)(?:\d{1,2}:\d{2}(?::\d{2})?|\d{1,4}/\d{1,2}(?:/\d{1,4})?)"
    r")(?!\d|[.,:/]\d)|(?<![\w)\]])[-−.]\d"
)
# How far before and after a match, in characters, composed numbers are searched for.
_MAX_NUMBER_LENGTH: Final = 40
# The minimum number of digits of a code, which people group at any place.
_MIN_CODE_DIGITS: Final = 7
# Matches addresses, account numbers and encoded words.
#
# Addresses may be written with ``[dot]``, and words letter by letter.
_ADDRESS_OR_CODE: Final = re.compile(
    r"\w@\w|://|\bwww\.|\w-*\.[a-z]{2,12}/|[A-Z]{2}\d{10}|\d[\d ]{6,}\d"
    r"|(?<!\S)(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9+/=_-]{20,}"
    # Spelled: ``evil [dot] example``, and at least eight single letters: ``G B 4 4 - E V I L``.
    r"|\w\s?[\[({]\s?(?:[.@]|(?i:dot|at))\s?[\])}]\s?\w"
    r"|(?<!\w)(?!(?:\d\W+){7})(?:[^\W_](?:[^\w\n|,;]|_){1,3}){7,}[^\W_](?!\w)"
)
# Patterns of mail addresses, web addresses, account numbers and numbers, in this order.
#
# The length of each part is limited, as the standards do: a search would otherwise take very long
# in a text with a long word, such as encoded data.
_KINDS: Final = (
    re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"),
    re.compile(r"(?:https?://)?[\w-]{1,63}(?:\.[\w-]{1,63})+(?:/[^\s,;)\"']*)?"),
    re.compile(r"(?<![A-Z0-9])(?=[A-Z0-9]*\d)[A-Z0-9]{8,}"),
    re.compile(r"\d+(?:[.,]\d+)?"),
)
_ASCII_SYMBOLS: Final = bytes(code for code in range(128) if not chr(code).isalnum())
_NON_ASCII_SYMBOLS: Final = re.compile(r"[^\w\x00-\x7f]+")


def mentions(text: str, value: str, *, is_script: bool = False) -> bool:
    """Return whether a text contains a value as separate words, ignoring case and line breaks.

    ``ada@example.co`` is not in a text with ``ada@example.com``, and ``250`` is not in a text with
    ``1,250``, except in a script, where the comma separates two numbers.
    """
    # People write ``example.com`` for ``https://example.com/``.
    short_value = re.sub(r"^(?:https?://|mailto:)|/+$", "", value.strip())
    words = short_value.split()
    if not words:
        return False
    if len(value) > _MAX_PATTERN_LENGTH:
        return value.strip() in text
    pattern = r"\s+".join(map(re.escape, words))
    has_digit = any(map(str.isdigit, value))
    if has_digit:  # such as an account number, which people write with other spaces
        pattern = _code_pattern("".join(words))
    # ``ada`` is not mentioned in ``adam``, ``ada@b.de``, ``ada+x`` or ``co.ada``.
    no_word_before = r"(?<![\w@])(?<!\w[.+-])"
    no_word_after = r"(?![\w@]|[.+-]\w)"
    whole_words = f"{no_word_before}{pattern}{no_word_after}"
    matches = re.finditer(whole_words, text, re.IGNORECASE)
    return any(is_script or not _cuts_number(text, match) for match in matches)


def _code_pattern(code: str) -> str:
    """Return a pattern of a code, such as an account number, that may be written with spaces.

    The digits of a short number may only be grouped by thousands: ``1 2`` is not ``12``.
    """
    is_short_number = code.isdigit() and len(code) < _MIN_CODE_DIGITS
    if not is_short_number:
        return r"\s?".join(map(re.escape, code))
    if len(code) <= 3:
        return code
    return rf"{code[:-3]}\s?{code[-3:]}"  # "1250" may be written "1 250"


def _cuts_number(text: str, match: re.Match[str]) -> bool:
    """Return whether a match begins or ends within a number, time or date of a text."""
    start, end = match.span()
    nearby_numbers = _COMPOSED_NUMBER.finditer(
        text, max(0, start - _MAX_NUMBER_LENGTH), end + _MAX_NUMBER_LENGTH
    )
    for number in nearby_numbers:
        begins_inside = number.start() < start < number.end()
        ends_inside = number.start() < end < number.end()
        if begins_inside or ends_inside:
            return True
    return False


def mentions_record(text: str, value: str) -> bool:
    """Return whether a text mentions a record by its identifier, or by the identifier's number.

    For example, "delete 11" and "file '11'" mention the record ``11``, but "June 11 is" does not.

    Args:
        text: The text. A text that is only the identifier, without other words, is no mention.
        value: The identifier of the record. An identifier without a digit is never found.
    """
    has_other_words = len(text.strip()) > len(value)
    has_digit = any(map(str.isdigit, value))
    if not has_other_words or not has_digit:
        return False
    if value.isdigit():
        return _mentions_number(text, value)
    if value.casefold() in text.casefold():
        return True
    number = re.search(r"\d{2,}$", value)  # such as 11 in ``file-11``; a single digit is too common
    return number is not None and _mentions_number(text, number[0])


def _mentions_number(text: str, number: str) -> bool:
    """Return whether a text names a record by a number: ``delete 11``, but not ``11 km``."""
    quote_or_sign = r"['\"#`“‘]"  # "#11"
    word_in_lower_case = r"\b[a-z]+[^\w\n]{0,3}"  # "delete 11", but not "June 11"
    no_date_or_time = r"(?!\w|[,:/-]\w)"  # not "11-30" or "11:30"
    no_decimal_or_measure = r"(?!\.\d|\s+[a-z])"  # not "11.5" or "11 km"
    before = f"(?:{quote_or_sign}|{word_in_lower_case})"
    after = f"{no_date_or_time}{no_decimal_or_measure}"
    return re.search(f"{before}{number}{after}", text) is not None


def is_only_one(word: str, text: str) -> bool:
    """Return whether a text contains a word, and no other word of the same kind.

    The kinds are mail addresses, web addresses, account numbers and numbers. Return False for any
    other word, such as a name. Return True for an empty string, which carries no data.
    """
    word = word.strip()
    if not word:
        return True
    kind = next((kind for kind in _KINDS if kind.fullmatch(word)), None)
    if kind is None:
        return False
    # A match at the end of a sentence may have the full stop, too.
    words = {match[0].lower().rstrip(".") for match in kind.finditer(text)}
    return words == {word.lower()}


def has_address_or_code(text: str) -> bool:
    """Return whether a text contains an address, an account number or an encoded word.

    A word of at least eight letters with a mark between them, as in ``p-a-s-s-w-o-r-d``, also
    counts as an encoded word.
    """
    return _ADDRESS_OR_CODE.search(text) is not None


def number_text(value: float) -> str:
    """Convert a number to a normal form: ``1250.0`` becomes ``1250``."""
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def normalized_text(text: str) -> str:
    """Normalise a text, so that several spellings of a number or an address become equal.

    Ignores number formats, spaces in account numbers, and case in mail addresses.
    """
    plain = text.strip()
    # A text with a digit may be an account number, which people write with or without spaces. A
    # text with small letters may name a file, such as ``plan 7.txt``, which is not ``plan7.txt``.
    is_code = plain == plain.upper() and any(map(str.isdigit, plain))
    if " " in plain and is_code:
        plain = "".join(plain.split())
    if "@" in plain:
        return plain.lower()  # no casefold(), for which ``groß.example`` equals ``gross.example``
    if _NUMBER.fullmatch(plain):
        return number_text(float(plain))
    return plain


def letters_and_digits(text: str) -> str:
    """Return the letters and digits of a text in lower case, without invisible characters."""
    if not text.isascii():
        text = _NON_ASCII_SYMBOLS.sub("", normalized(text, "NFKC").casefold())
    data = text.lower().encode(errors="surrogatepass")  # may contain lone surrogates
    # No byte of another character equals an ASCII symbol, so that only the symbols are deleted.
    return data.translate(None, _ASCII_SYMBOLS).decode(errors="surrogatepass")


def pieces_of(text: str) -> Iterator[str]:
    """Yield search patterns that find a part of a text in another text.

    The patterns are long words, words with digits or marks such as ``@``, and pieces cut from the
    text at equal distances, all reduced to letters and digits. Very short patterns are left out,
    because two texts may share them by chance.
    """
    letters = letters_and_digits(text)
    longest_first = sorted(_RARE_WORD.findall(text), key=len, reverse=True)
    words = map(letters_and_digits, longest_first)
    step = max(_PIECE_LENGTH, len(letters) // _MAX_PIECES)
    starts = range(0, len(letters) - _PIECE_LENGTH, step)
    cuts = (letters[start : start + _PIECE_LENGTH] for start in starts)
    patterns = (each for each in (*words, *cuts) if len(each) > _MAX_COMMON_LENGTH)
    return islice(patterns, _MAX_PIECES)


def parts_of(text: str) -> Iterator[str]:
    """Yield the quoted texts, the codes and the words in a text.

    Yield nothing if the whole text is one code or one word.
    """
    literals = [match[1] or match[2] or match[3] for match in _LITERAL.finditer(text)]
    parts = dict.fromkeys([*literals, *_WORD.findall(text)])
    is_single_part = text in parts
    return iter(()) if is_single_part else iter(parts)
