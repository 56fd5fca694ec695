"""The encoding of a text that has no mark and is not UTF-8, by alphabets and the package chardet.

For a few letters of one language, chardet often guesses another language. If all letters of a text
belong to one language in Latin script, only the encodings of such languages are compared. Read as
Latin-1, ``Kraków, £ódŸ`` has a pound sign within a word, which no language has. Read as
Windows-1250, all of the text is Polish.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

WESTERN: Final = "cp1252"
# The encodings that occur, most common first, each with its name for messages. The other encodings
# that chardet knows have hardly been used for decades.
_NAMES: Final = {
    WESTERN: "Windows-1252",
    "cp1250": "Windows-1250 (Central Europe)",
    "iso8859-2": "ISO 8859-2 (Central Europe)",
    "cp1251": "Windows-1251 (Cyrillic)",
    "koi8-r": "KOI8-R (Cyrillic)",
    "koi8-u": "KOI8-U (Cyrillic)",
    "iso8859-5": "ISO 8859-5 (Cyrillic)",
    "cp866": "CP866 (DOS, Cyrillic)",
    "cp1253": "Windows-1253 (Greek)",
    "iso8859-7": "ISO 8859-7 (Greek)",
    "cp1254": "Windows-1254 (Turkish)",
    "cp1255": "Windows-1255 (Hebrew)",
    "cp1256": "Windows-1256 (Arabic)",
    "cp1257": "Windows-1257 (Baltic)",
    "cp1258": "Windows-1258 (Vietnamese)",
    "cp850": "CP850 (DOS)",
    "cp852": "CP852 (DOS, Central Europe)",
    "cp874": "Windows-874 (Thai)",
    "cp932": "Shift-JIS (Japanese)",
    "euc_jis_2004": "EUC-JP (Japanese)",
    "gb18030": "GB18030 (Chinese)",
    "big5hkscs": "Big5 (Chinese)",
    "cp949": "EUC-KR (Korean)",
}
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
# Signs that no text has between two letters, ``£`` before a letter, control characters, and
# box-drawing characters, which cp850 yields for the letters of another encoding.
_NOT_IN_WORDS: Final = re.compile(
    r"(?<=[^\W\d_])[¡-©«-´¶¸»-¿×÷]+(?=[^\W\d_])|£(?=[^\W\d_])|[\x80-\x9f\u2500-\u259f]"
)
# A non-ASCII byte next to an ASCII letter: words in Latin script mix both, as ``café`` does.
_ASCII_LETTER_BESIDE_NON_ASCII: Final = re.compile(rb"[A-Za-z][\x80-\xff]|[\x80-\xff][A-Za-z]")
# The encoding of the most common language is taken if its confidence is at least this share of the
# best confidence.
_MIN_SHARE: Final = 0.85
_MIN_NON_ASCII: Final = 3
_PARTS: Final = 5
_SAMPLE_BYTES: Final = 16_000
_NON_ASCII: Final = re.compile(rb"[\x80-\xff]")
# ASCII that is more than 60 characters away from any non-ASCII byte, ignored in detection.
_ASCII_FAR_FROM_NON_ASCII: Final = re.compile(
    rb"(?<=[\x00-\x7f]{60})[\x00-\x7f]+(?=[\x00-\x7f]{60})"
)


def guess(data: bytes) -> tuple[str, str]:
    """Return the most probable encoding of a text, and its name for messages."""
    sample = _sample_of(data)
    confidence = _confidence_by_encoding(sample)
    candidates = list(_latin_encodings(sample))
    if candidates:
        best = max(candidates, key=lambda name: confidence[name])
        most_common = candidates[0]
        # The most common encoding is taken unless another one is much more probable.
        if confidence[most_common] >= _MIN_SHARE * confidence[best]:
            best = most_common
    elif len(_NON_ASCII.findall(sample)) < _MIN_NON_ASCII:  # a currency sign, for example
        best = WESTERN
    else:
        best = max(_NAMES, key=lambda name: confidence[name])
    # Several encodings may give the same text: name the most common one.
    text = sample.decode(best, "replace")
    encoding = next(name for name in _NAMES if sample.decode(name, "replace") == text)
    return encoding, _NAMES[encoding]


def _confidence_by_encoding(sample: bytes) -> defaultdict[str, float]:
    """Return how well each encoding fits a text: the sum over the whole text and several parts.

    A stray byte can make the whole text invalid in the right encoding. The parts without stray
    bytes then still count for this encoding.

    Args:
        sample: The text, which must not be empty.
    """
    import chardet

    lines = sample.splitlines(keepends=True)
    lines_per_part = math.ceil(len(lines) / _PARTS)
    starts = range(0, len(lines), lines_per_part)
    parts = [b"".join(lines[start : start + lines_per_part]) for start in starts]
    confidence: defaultdict[str, float] = defaultdict(float)
    # A set, because the only part of a text of one line is the text itself, which must count once.
    for part in {sample, *parts}:
        for found in chardet.detect_all(
            part, include_encodings=_NAMES, ignore_threshold=True, compat_names=False
        ):
            confidence[found["encoding"] or ""] += found["confidence"]
    return confidence


def _latin_encodings(sample: bytes) -> Iterator[str]:
    """Yield the encodings by which a sample has only letters that one Latin-script language has."""
    if not _ASCII_LETTER_BESIDE_NON_ASCII.search(sample):
        return
    for encoding, letters in _LATIN:
        # Hardly any text has Ÿ. The byte 0x9F, Ÿ in cp1252, mostly stands for the ź of cp1250.
        alphabet = {*letters, *letters.upper()} - {"Ÿ"}
        try:
            text = sample.decode(encoding)
        except UnicodeDecodeError:
            continue
        non_ascii_letters = {sign for sign in text if sign > "\x7f" and sign.isalpha()}
        if non_ascii_letters <= alphabet and not _NOT_IN_WORDS.search(text):
            yield encoding


def _sample_of(data: bytes) -> bytes:
    """Return the first lines with non-ASCII bytes; for pure ASCII, the beginning of the data."""
    lines: list[bytes] = []
    length = 0
    for line in data.splitlines(keepends=True):
        if _NON_ASCII.search(line) is None:
            continue
        relevant_part = _ASCII_FAR_FROM_NON_ASCII.sub(b" ", line)[:_SAMPLE_BYTES]
        lines.append(relevant_part)
        length += len(relevant_part)
        if length > _SAMPLE_BYTES:
            break
    return b"".join(lines) or data[:_SAMPLE_BYTES]
