"""Detection of encodings by the alphabets of languages, for texts too short for statistics.

Read as Latin-1, ``Kraków, £ódŸ`` has a pound sign within a word, which no language has. Read as
Windows-1250, all of the text is Polish.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

# Pairs of an encoding and the non-ASCII letters of a language, most common languages first.
_LATIN: Final = (
    ("cp1252", "äöüß"),
    ("cp1252", "àâäçéèêëîïôöùûüÿœæ"),
    ("cp1252", "áéíóúüñçªº"),
    ("cp1252", "áàâãçéêíóôõúüªº"),
    ("cp1252", "àèéìíòóùú"),
    ("cp1252", "åäöéøæü"),
    ("cp1252", "áäéèëïíóöúü"),
    ("cp1250", "ąćęłńóśźż"),
    ("iso8859-2", "ąćęłńóśźż"),
    ("cp1254", "çğıöşüâîûİ"),
    ("cp1250", "áčďéěíňóřšťúůýž"),
    ("iso8859-2", "áčďéěíňóřšťúůýž"),
    ("cp1250", "áäčďéíĺľňóôŕšťúýž"),
    ("iso8859-2", "áäčďéíĺľňóôŕšťúýž"),
    ("cp1250", "áéíóöőúüű"),
    ("cp1250", "ăâîşţ"),
    ("cp1250", "čćđšž"),
    ("iso8859-2", "čćđšž"),
    ("cp1257", "ąčęėįšųūž"),
    ("cp1257", "āčēģīķļņšūž"),
    ("cp1257", "õäöüšž"),
    ("cp1252", "áéíóúýþðæö"),
    ("cp850", "àâäçéèêëîïôöùûüßñáíóúæåø"),
)
_SCRIPTS: Final = (
    ("cp932", "\u3040-\u30ff\u4e00-\u9fff\uff61-\uff9f\u3000-\u303f\uff01-\uff5e"),
    ("cp1255", "\u05d0-\u05ea\u20aa"),
    ("cp1253", "\u0384-\u03ce€«»–—’“”"),
    ("cp1251", "\u0401-\u045f\u0490\u0491№«»–—"),
    ("cp1256", "\u0600-\u06ff"),
)
_RARE: Final = re.compile(r"cp(437|72\d|73\d|775|85\d|86[0-59])|kz-?1048|mac", re.IGNORECASE)
# Signs that no text has between two letters, and ``£`` before a letter.
_NOT_IN_WORDS: Final = re.compile(r"(?<=[^\W\d_])[¡-©«-´¶¸»-¿×÷]+(?=[^\W\d_])|£(?=[^\W\d_])")
# Box-drawing characters, which cp850 yields for the letters of another encoding.
_BOX_DRAWING: Final = re.compile("[\u2500-\u259f]")
# Control characters, which ISO-8859-2 yields for some letters of Windows-1250, such as ``ś``.
_C1_CONTROL: Final = re.compile("[\x80-\x9f]")
# A capital letter after a small one within a word, a sign of the wrong encoding.
_MIXED_CASE: Final = re.compile("[a-zа-яёά-ώ][А-ЯЁΑ-Ω]")
# A non-ASCII byte next to an ASCII letter, a sign that the language has Latin script.
_ASCII_LETTER_BESIDE_NON_ASCII: Final = re.compile(rb"[A-Za-z][\x80-\xff]|[\x80-\xff][A-Za-z]")


def is_rare(name: str) -> bool:
    """Return True if an encoding has hardly been used for decades."""
    return _RARE.match(name) is not None


def latin_encodings(data: bytes) -> Iterator[str]:
    """Yield the encodings in which all letters of a text belong to one language in Latin script.

    Args:
        data: Lines of the text that have non-ASCII bytes.
    """
    # Words in Latin script mix ASCII letters and others, as ``café`` does.
    if not _ASCII_LETTER_BESIDE_NON_ASCII.search(data):
        return
    for encoding, letters in _LATIN:
        # Hardly any text has Ÿ. The byte 0x9F, Ÿ in cp1252, mostly stands for the ź of cp1250.
        alphabet = {*letters, *letters.upper()} - {"Ÿ"}
        decoded = _decode(data, encoding)
        if decoded is None:
            continue
        if _NOT_IN_WORDS.search(decoded) or _BOX_DRAWING.search(decoded):
            continue
        if _C1_CONTROL.search(decoded):  # no text has these: the encoding is wrong
            continue
        non_ascii_letters = (sign for sign in decoded if sign > "\x7f" and sign.isalpha())
        if all(letter in alphabet for letter in non_ascii_letters):
            yield encoding


def script_encoding(data: bytes) -> str | None:
    """Guess a legacy encoding of a text in a non-Latin alphabet, such as Cyrillic.

    Return the first encoding that decodes all non-ASCII bytes to characters of its alphabet; None
    if there is no such encoding.
    """
    for encoding, ranges in _SCRIPTS:
        decoded = _decode(data, encoding)
        # A wrong encoding may swap capital and small letters: the bytes of ``Привет`` in KOI8-R,
        # read as cp1251, are ``рТЙЧЕФ``. Ordinary words have no capital letter after a small one.
        if decoded is None or _MIXED_CASE.search(decoded):
            continue
        if not re.search(rf"[^\x00-\x7f{ranges}]", decoded):
            return encoding
    return None


def _decode(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None
