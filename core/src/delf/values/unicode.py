"""Normal forms of Unicode for texts of strangers, in linear time."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

_PIECE_LENGTH: Final = 1000
# Matches words up to a length, or the beginning of a longer word.
_PIECE: Final = re.compile(rf".{{1,{_PIECE_LENGTH}}}(?!\S)|.{{1,{_PIECE_LENGTH}}}", re.DOTALL)


def normalized(text: str, form: Literal["NFC", "NFKC", "NFKD"] = "NFC") -> str:
    """Return a text in a normal form of Unicode.

    Args:
        text: A text of any length.
        form: ``NFC`` makes each accent a part of its letter where Unicode has such a letter.
            ``NFKC`` also replaces variants of letters, such as wide ones. ``NFKD`` replaces them,
            too, and separates letters from their accents.
    """
    # In pieces: sorting the accents of one letter takes a time that is quadratic in their number.
    pieces = [text] if len(text) <= _PIECE_LENGTH else _PIECE.findall(text)
    return "".join(unicodedata.normalize(form, piece) for piece in pieces)
