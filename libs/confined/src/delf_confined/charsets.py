"""The encoding of a text that has no mark and is not UTF-8, by alphabets and the package chardet.

For a few Western European letters, chardet guesses Polish or Cyrillic as often as French. If all
non-ASCII bytes could be letters and signs of Western Europe, another encoding therefore needs a
higher confidence.
"""

from __future__ import annotations

import codecs
import math
import re
from collections import Counter
from typing import Final

from delf_confined.alphabets import is_rare, latin_encodings, script_encoding

WESTERN: Final = "cp1252"
_WESTERN_LABEL: Final = "Windows-1252"
_SAMPLE_BYTES: Final = 16_000
_MIN_LATIN_SHARE: Final = 0.8
_MIN_CONFIDENCE: Final = 0.05
_MIN_NON_ASCII: Final = 3
_PARTS: Final = 5
_NON_ASCII: Final = re.compile(rb"[\x80-\xff]")
_NON_ASCII_RUN: Final = re.compile(rb"[\x80-\xff]+")
# ASCII that is more than 60 characters away from any non-ASCII byte, ignored in detection.
_ASCII_FAR_FROM_NON_ASCII: Final = re.compile(
    rb"(?<=[\x00-\x7f]{60})[\x00-\x7f]+(?=[\x00-\x7f]{60})"
)
# Names of encodings for languages with Latin script outside Western Europe.
_OTHER_LATIN_SCRIPT_NAMES: Final = re.compile(
    r"(windows-(1250|1254|1257|1258)|iso-?8859-(2|3|4|9|10|13|14|15|16)|mac-?roman)", re.IGNORECASE
)
_WINDOWS: Final = {f"windows-{number}": f"cp{number}" for number in (1250, 1252, 1254, 1257)}
_WESTERN_NAMES: Final = re.compile(r"(iso-?8859-1|ascii|windows-1252)", re.IGNORECASE)
_SUPERSETS: Final = {"gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949"}

# The bytes with different meanings in ISO 8859-7 and Windows-1253, both for Greek.
_DIFFERENT_IN_GREEK: Final = re.compile(rb"[\xa1\xa2\xa4\xa5\xaa\xb5\xb6]")
_NAMES: Final = {
    "cp932": "Shift-JIS (Japanese)",
    "euc_jp": "EUC-JP (Japanese)",
    "gb18030": "GB18030 (Chinese)",
    "big5": "Big5 (Chinese)",
    "cp949": "EUC-KR (Korean)",
    "cp1251": "Windows-1251 (Cyrillic)",
    "koi8-r": "KOI8-R (Cyrillic)",
    "cp1253": "Windows-1253 (Greek)",
    WESTERN: _WESTERN_LABEL,
    "cp1250": "Windows-1250 (Central Europe)",
    "iso8859-2": "ISO 8859-2 (Central Europe)",
    "cp1254": "Windows-1254 (Turkish)",
    "cp1257": "Windows-1257 (Baltic)",
    "cp850": "CP850 (DOS)",
    "cp1255": "Windows-1255 (Hebrew)",
    "cp1256": "Windows-1256 (Arabic)",
}

# Letters of Western Europe, and the signs that are written between them.
_LATIN_LETTER: Final = re.compile(rb"[\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xc0-\xd6\xd8-\xf6\xf8-\xff]")
_LATIN_PUNCTUATION: Final = re.compile(
    rb"[\x80\x82\x84\x85\x8b\x91-\x97\x99\x9b\xa0-\xa3\xa5\xa7-\xab\xad-\xb7\xb9-\xbf\xd7]"
)
_ASCII_LETTER: Final = re.compile(rb"[A-Za-z]")
# The maximum number of consecutive non-ASCII bytes in a Latin word.
_MAX_CONSECUTIVE: Final = 3


def guess(data: bytes) -> tuple[str, str]:
    """Return the most probable encoding of a text, and its name for messages."""
    sample = _sample_of(data)
    detected_name, confidence = _detect_encoding(sample)
    encoding = _latin_encoding(sample, detected_name, confidence)
    if encoding is None and is_rare(detected_name):
        # A rare encoding is improbable: prefer a usual one in which all letters have one script.
        encoding = script_encoding(sample)
    if encoding is not None:
        return encoding, _NAMES.get(encoding, encoding.upper())
    if _is_western(sample, detected_name, confidence):
        return WESTERN, _WESTERN_LABEL
    encoding = _usual_superset(sample, detected_name)
    return encoding, _NAMES.get(encoding, detected_name)


def _latin_encoding(sample: bytes, detected_name: str, confidence: float) -> str | None:
    """Return an encoding in which all letters belong to one language with Latin script, or None.

    Of several such encodings, the detected one is preferred.
    """
    candidates = list(latin_encodings(sample))
    if not candidates:
        return None
    detected = _WINDOWS.get(detected_name.lower())
    if detected in candidates and confidence >= _MIN_CONFIDENCE:
        return detected
    return candidates[0]


def _is_western(sample: bytes, detected_name: str, confidence: float) -> bool:
    """Return True if a text is probably in a Western European encoding."""
    if not detected_name or _WESTERN_NAMES.fullmatch(detected_name):
        return True
    is_other_latin_script = _OTHER_LATIN_SCRIPT_NAMES.fullmatch(detected_name) is not None
    if is_other_latin_script and confidence >= _MIN_CONFIDENCE:
        return False
    return _looks_western(sample)


def _usual_superset(sample: bytes, detected_name: str) -> str:
    """Return the Python codec of a detected encoding, or of the usual encoding that contains it."""
    try:
        encoding = codecs.lookup(detected_name).name
    except LookupError:
        return WESTERN
    # Windows-1253 is the more probable of the Greek encodings if both give the same text.
    if encoding == "iso8859-7" and not _DIFFERENT_IN_GREEK.search(sample):
        return "cp1253"
    return _SUPERSETS.get(encoding, encoding)


def _looks_western(sample: bytes) -> bool:
    # With only a few non-ASCII characters, an accented letter or a currency sign is most probable.
    has_few_non_ascii = 0 < len(_NON_ASCII.findall(sample)) < _MIN_NON_ASCII
    return has_few_non_ascii or _latin_share(sample) >= _MIN_LATIN_SHARE


def _detect_encoding(sample: bytes) -> tuple[str, float]:
    """Detect the encoding of a text. Return its name and the confidence from 0 to 1.

    The parts of the text vote, so that a few stray bytes do not decide.
    """
    import chardet

    lines = sample.splitlines(keepends=True)
    part_lines = max(1, math.ceil(len(lines) / _PARTS))
    starts = range(0, len(lines), part_lines)
    parts = [b"".join(lines[start : start + part_lines]) for start in starts]
    votes: Counter[str] = Counter()
    confidence: dict[str, float] = {}
    samples = [sample]
    if len(parts) > 2:
        samples += parts
    for part in samples:
        detection = chardet.detect(part)
        name = detection["encoding"] or ""
        votes[name] += 1
        confidence[name] = max(confidence.get(name, 0.0), detection["confidence"] or 0.0)
    best = max(votes, key=lambda name: (votes[name], confidence[name]))
    return best, confidence[best]


def _sample_of(data: bytes) -> bytes:
    """Return the first lines with non-ASCII bytes; without any, the beginning of the data."""
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


def _latin_share(sample: bytes) -> float:
    """Return the share of the non-ASCII bytes that fit words of a Latin script, from 0 to 1.

    Most letters of such words are ASCII, so that runs of non-ASCII bytes are short. In other
    scripts, whole words are runs.
    """
    latin_count = 0
    total_count = 0
    for match in _NON_ASCII_RUN.finditer(sample):
        total_count += len(match[0])
        latin_count += _count_latin(sample, match.start(), match.end())
    if total_count == 0:
        return 0.0
    return latin_count / total_count


def _count_latin(sample: bytes, start: int, end: int) -> int:
    """Count the bytes of a run of non-ASCII bytes that fit words of a Latin script.

    In such words, most letters are ASCII. The run ``é»`` of ``né»`` has a letter and a punctuation
    mark.
    """
    run = sample[start:end]
    if len(run) > _MAX_CONSECUTIVE:
        return 0
    is_beside_ascii_letter = _ASCII_LETTER.search(sample[max(start - 1, 0) : end + 1]) is not None
    # Chinese text, with two bytes a character, has only runs of even length.
    may_be_two_byte_text = len(run) % 2 == 0
    count = 0
    if is_beside_ascii_letter or not may_be_two_byte_text:
        count += len(_LATIN_LETTER.findall(run))
    # Three bytes of punctuation are rather a short word of another script, as in CP866 (Cyrillic).
    if len(run) < _MAX_CONSECUTIVE:
        count += len(_LATIN_PUNCTUATION.findall(run))
    return count
