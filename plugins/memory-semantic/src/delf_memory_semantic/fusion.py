"""Two rankings as one: by words and by meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LOOKED_AT: Final = 50
"""How far down each ranking counts."""
_BY_WORDS: Final = 0.4
"""What words count for where vectors count for the rest."""


def fused(by_words: Mapping[int, float], likeness: Mapping[int, float]) -> list[int]:
    """Numbers by both, best first.

    Args:
        by_words: What words count (BM25); the best one's is the measure.
        likeness: Of vectors, from -1 to 1.
    """
    most = max(by_words.values(), default=0.0) or 1.0
    least = min(likeness.values(), default=0.0)
    scores = {
        number: _BY_WORDS * by_words.get(number, 0.0) / most
        + (1 - _BY_WORDS) * likeness.get(number, least)
        for number in {**by_words, **likeness}
    }
    return sorted(scores, key=lambda number: -scores[number])
