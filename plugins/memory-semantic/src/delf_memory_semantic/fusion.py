"""Fusion of two rankings: by words and by meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from delf.tools.ranking import is_unspaced_script, words_of

RANKING_SIZE: Final = 50
"""The number of best entries of each ranking that are used."""
# The weight of word matches in a score, from 0 to 1; the rest is the weight of vectors.
_WORD_WEIGHT: Final = 0.4


def word_coverage(query: str, text: str) -> float:
    """Return the share of a query's words that occur in a text, from 0 to 1.

    In Chinese, which has no spaces, the words are overlapping pairs of letters. Half of the pairs
    are enough for the share 1.
    """
    words = set(words_of(query))
    if not words:
        return 0.0
    needed = sum(0.5 if is_unspaced_script(word) else 1.0 for word in words)
    common_words = words.intersection(words_of(text))
    return min(1.0, len(common_words) / needed)


def fuse_rankings(
    query: str,
    by_words: Mapping[int, float],
    similarities: Mapping[int, float],
    text_of: Callable[[int], str],
) -> dict[int, float]:
    """Combine two rankings of texts; return a mapping from text number to score, best first.

    The scores of both rankings are added on a common scale. With ranks alone (reciprocal rank
    fusion), the weaker ranking would spoil the better one. If no text has more than a few of the
    query's words, the vector similarity decides.

    Args:
        query: The query in plain words.
        by_words: The word score (BM25 or similar) of each text that has words of the query, by the
            text's number, best first.
        similarities: The vector similarity of each text that has a vector, from -1 to 1, by the
            text's number. For a text without a vector, the word score counts alone.
        text_of: Returns a text by its number.
    """
    best_match = next(iter(by_words), None)
    # The share of the query's words in the best word match, by which word scores are multiplied.
    matched_word_ratio = 0.0 if best_match is None else word_coverage(query, text_of(best_match))
    # Never 0, because scores are divided by this number.
    best_word_score = max(by_words.values(), default=0.0) or 1.0
    scores: dict[int, float] = {}
    for number in {**by_words, **similarities}:
        word_score = matched_word_ratio * by_words.get(number, 0.0) / best_word_score
        similarity = similarities.get(number, word_score)
        scores[number] = _WORD_WEIGHT * word_score + (1 - _WORD_WEIGHT) * similarity
    ranked = sorted(scores, key=scores.__getitem__, reverse=True)
    return {number: scores[number] for number in ranked}
