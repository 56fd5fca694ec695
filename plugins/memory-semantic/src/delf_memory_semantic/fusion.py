"""Fusion of two rankings: by words and by meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from delf.tools.ranking import is_pair, words_of

LOOKED_AT: Final = 50
"""The number of entries of each ranking that are used."""
_BY_WORDS: Final = 0.4
"""The weight of word matches; vectors have the remaining weight."""


def share_of(query: str, text: str) -> float:
    """Return the share of a query's words that occur in a text.

    In writing systems without spaces, such as Chinese, a pair of letters counts half.
    """
    words = set(words_of(query))
    total = sum(0.5 if is_pair(word) else 1.0 for word in words)
    return min(1.0, len(words.intersection(words_of(text))) / (total or 1))


def fuse_rankings(
    by_words: Mapping[int, float], likeness: Mapping[int, float], share: float
) -> dict[int, float]:
    """Return the indexes of the texts in either ranking, best first, with their scores.

    Scores are added on a common scale: with ranks alone (reciprocal rank fusion) the weaker ranking
    would spoil the better one. If no text has more than a few of the query's words, the vector
    similarity decides.

    Args:
        by_words: Word scores (BM25 or similar), best first.
        likeness: Vector similarities from -1 to 1; items without a vector are ranked by words.
        share: The share of the query's words in the best word match, from 0 to 1.
    """
    best = max(by_words.values(), default=0.0) or 1.0
    scores: dict[int, float] = {}
    for number in {**by_words, **likeness}:
        words = share * by_words.get(number, 0.0) / best
        scores[number] = _BY_WORDS * words + (1 - _BY_WORDS) * likeness.get(number, words)
    return {number: scores[number] for number in sorted(scores, key=lambda n: -scores[n])}
