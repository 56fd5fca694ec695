"""The encoding of a text that has no mark and is not UTF-8.

Each candidate reads a sample, and is judged by how much of it is what people write in its script.
Almost any bytes can be read as Shift-JIS or GB18030, so that being readable proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

LATIN: Final = "cp1252"
_SAMPLE: Final = 16_000
_ENOUGH: Final = 0.8
_HIGH: Final = re.compile(rb"[\x80-\xff]")
_RUN: Final = re.compile(rb"[\x80-\xff]+")
_BEYOND: Final = re.compile(r"[^\x00-\x7f]")
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_KANA: Final = re.compile(r"[\u3041-\u30fe]")
_HALF_KANA: Final = re.compile(r"[\uff61-\uff9f]")
_SELDOM: Final = 0.9
"""The weight of a letter that is written in an encoding less often than others."""

_SYLLABLES: Final = frozenset(
    "이다는을가의에고지도하로사기은한자인리시어대서나정그수아해일들보부원라장전제주여상스성것만게있과구조소세면동경"
    "산김영안선용공우국문신유명적무를으관진비화년내생물오연거며모트회들당계간할마방학된드중위되요박최강울광천남북"
)
"""Common syllables of Korean texts, names and towns included."""
_MARKS_OF_ASIA: Final = re.compile(r"[\u3000-\u3020\uff01-\uff60\uffe0-\uffe6]")

# Letters of Western Europe, and the signs that are written between them.
_LATIN_LETTER: Final = re.compile(rb"[\x8a\x8c\x8e\x9a\x9c\x9e\x9f\xc0-\xd6\xd8-\xf6\xf8-\xff]")
_LATIN_SIGN: Final = re.compile(
    rb"[\x80\x82\x84\x85\x8b\x91-\x97\x99\x9b\xa0-\xa3\xa5\xa7-\xab\xad-\xb7\xb9-\xbf\xd7]"
)
_IN_A_WORD: Final = re.compile(rb"[A-Za-z]")
_MOST_IN_A_ROW: Final = 3
_FEWEST_LETTERS: Final = 3


class _Candidate(NamedTuple):
    """An encoding, its usual name, and the share of a text that is usual in it."""

    encoding: str
    name: str
    share: Callable[[str], float]


def guess(data: bytes) -> tuple[str, str]:
    """Find the encoding that a text was probably written in, and its name for people."""
    sample = _sample_of(data)
    latin = _latin_share(sample)
    best, most = (LATIN, "Windows-1252"), max(latin, _ENOUGH - 0.01)
    for candidate in _CANDIDATES:
        text = sample.decode(candidate.encoding, "replace")
        share = candidate.share(text) - text.count("\ufffd") / len(text)
        if share > most and not _takes_letters(sample, text):
            best, most = (candidate.encoding, candidate.name), share
    return best


def _sample_of(data: bytes) -> bytes:
    """The first lines that have more than ASCII."""
    lines: list[bytes] = []
    length = 0
    for line in data.splitlines(keepends=True):
        found = _HIGH.search(line)
        if found is not None:
            lines.append(line[max(found.start() - 1, 0) :][:_SAMPLE])
            length += len(lines[-1])
            if length > _SAMPLE:
                break
    return b"".join(lines)


def _latin_share(sample: bytes) -> float:
    """Return the share of bytes beyond ASCII that are Latin letters among letters, or signs."""
    fit = total = 0
    for run in _RUN.finditer(sample):
        total += len(run[0])
        before, after = (
            sample[max(run.start() - 1, 0) : run.start()],
            sample[run.end() : run.end() + 1],
        )
        beside = bool(_IN_A_WORD.match(before) or _IN_A_WORD.match(after))
        letters = len(_LATIN_LETTER.findall(run[0]))
        if len(run[0]) <= _MOST_IN_A_ROW and (beside or len(run[0]) % 2):
            fit += letters
        if len(run[0]) <= _MOST_IN_A_ROW - 1:
            fit += len(_LATIN_SIGN.findall(run[0]))
    return fit / total


def _shift_jis(text: str) -> float:
    def weight(letter: str) -> float:
        if _HALF_KANA.match(letter):
            return _SELDOM
        return bool(_KANA.match(letter)) or _is_in(letter, "cp932", 0x88, 0x98)

    return _usual(text, weight)


def _euc_jp(text: str) -> float:
    """Kana prove it: without them the same bytes are Chinese of every day."""
    if not _KANA.search(text):
        return 0.0
    return _usual(
        text, lambda letter: bool(_KANA.match(letter)) or _is_in(letter, "euc_jp", 0xB0, 0xCF)
    )


def _chinese(text: str) -> float:
    def weight(letter: str) -> float:
        if _is_in(letter, "gb18030", 0xB0, 0xD7, 0xA1):
            return 1
        return _SELDOM * _is_in(letter, "big5", 0xA4, 0xC6)

    return _usual(text, weight)


def _big5(text: str) -> float:
    return _usual(text, lambda letter: _is_in(letter, "big5", 0xA4, 0xC6))


def _korean(text: str) -> float:
    """Common syllables prove it: the same bytes are often Chinese of every day."""
    beyond = _BEYOND.findall(text)
    if sum(letter in _SYLLABLES for letter in beyond) < len(beyond) / 3:
        return 0.0
    return _usual(text, lambda letter: _is_in(letter, "cp949", 0xB0, 0xC8, 0xA1))


def _is_in(letter: str, encoding: str, first: int, last: int, lowest: int = 0x40) -> bool:
    """Tell whether a letter is in the rows of a standard that hold what is common."""
    code = letter.encode(encoding, "replace")
    return len(code) == 2 and first <= code[0] <= last and code[1] >= lowest


def _usual(text: str, weight: Callable[[str], float]) -> float:
    """The share of what is beyond ASCII that is common, marks of Asia included."""
    beyond = _BEYOND.findall(text)
    fit = sum(1 if _MARKS_OF_ASIA.match(letter) else weight(letter) for letter in beyond)
    return fit / len(beyond) if beyond else 0.0


def _takes_letters(sample: bytes, text: str) -> bool:
    """Tell whether nearly all that is beyond ASCII took a letter of ASCII with it, as in "25°C"."""
    ascii_before = len(sample) - len(_HIGH.findall(sample))
    beyond = len(_BEYOND.findall(text))
    return ascii_before - (len(text) - beyond) > 0.8 * beyond


def _cased(first: str, last: str) -> Callable[[str], float]:
    """The share of letters in words of one script whose capitals are where capitals are."""

    def share(text: str) -> float:
        fit = 0
        for word in _WORD.findall(text):
            if all(first <= letter <= last for letter in word):
                fit += len(word) * (word[1:].islower() or word.isupper())
        return fit / len(_BEYOND.findall(text)) if fit >= _FEWEST_LETTERS else 0.0

    return share


_CANDIDATES: Final = (
    _Candidate("cp949", "EUC-KR (Korean)", _korean),
    _Candidate("euc_jp", "EUC-JP (Japanese)", _euc_jp),
    _Candidate("gb18030", "GB18030 (Chinese)", _chinese),
    _Candidate("cp932", "Shift-JIS (Japanese)", _shift_jis),
    _Candidate("big5", "Big5 (Chinese)", _big5),
    _Candidate("cp1251", "Windows-1251 (Cyrillic)", _cased("\u0400", "\u04ff")),
    _Candidate("koi8_r", "KOI8-R (Cyrillic)", _cased("\u0400", "\u04ff")),
    _Candidate("cp1253", "Windows-1253 (Greek)", _cased("\u0370", "\u03ff")),
)
