"""Ranks texts by words: which of many actions fit what somebody is looking for."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable
from typing import Final

# BM25: how soon a repeated word counts no more, and how much long texts are held back.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.4
_WORD: Final = re.compile(r"[^\W_]+")
_RUN: Final = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese, and Korean, which joins its particles to words."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")
_STOP: Final = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "have", "in", "into"}
    | {"is", "it", "its", "of", "on", "or", "that", "the", "their", "this", "to", "was", "with"}
    | {"all", "get", "i", "me", "my", "please", "show", "what", "which"}
)


def words_of(text: str) -> list[str]:
    """The words of a text or a name, singular and plural as one, without those that say nothing.

    Where words are written without blanks between them, each two letters count as a word.

    Args:
        text: Plain words, ``snake_case`` or ``camelCase``.
    """
    found = _WORD.findall(plain_name(text))
    words = [_stem(word) for word in map(str.lower, found) if word not in _STOP]
    return words if text.isascii() else [part for word in words for part in parts_of(word)]


def parts_of(word: str) -> list[str]:
    """A word in two letters each, where it is of a script without blanks; else itself.

    Args:
        word: Letters and digits alone.
    """
    if not _RUN.search(word):
        return [word]
    return [part for run in _RUN.split(word) if run for part in _pairs(run)]


def _pairs(run: str) -> list[str]:
    if len(run) < 2 or not _RUN.fullmatch(run):
        return [run]
    return [run[start : start + 2] for start in range(len(run) - 1)]


def is_pair(word: str) -> bool:
    """Tell whether a word is two letters of a script without blanks.

    Args:
        word: Of :func:`words_of`.
    """
    return _RUN.fullmatch(word) is not None


def plain_name(name: str) -> str:
    """A name as words: ``get_userList`` as ``get user List``."""
    return _CAMEL.sub(" ", name).replace("_", " ").replace(".", " ")


def _stem(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and word.endswith(("ses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if len(word) > 2 and word.endswith("s") and word[-2] != "s" else word


class Ranking:
    """An index of texts, made once and asked many times.

    Args:
        texts: For each thing its texts with their weights; a word that a name holds says more
            than one of a description.
    """

    def __init__(self, texts: Iterable[Iterable[tuple[str, float]]]) -> None:
        # By word: which things have it, and first its weight there, then what it counts for.
        self._postings: dict[str, dict[int, float]] = {}
        sizes: list[float] = []
        for number, fields in enumerate(texts):
            weights: dict[str, float] = {}
            for text, weight in fields:
                for word in dict.fromkeys(words_of(text)):  # said again is not said louder
                    weights[word] = weights.get(word, 0.0) + weight
            for word, weight in weights.items():
                self._postings.setdefault(word, {})[number] = weight
            sizes.append(sum(weights.values()))
        average = sum(sizes) / len(sizes) if sizes else 0.0
        held_back = [
            _SATURATION * (1 - _LENGTH + _LENGTH * (size / average if average else 0.0))
            for size in sizes
        ]
        self._most: dict[str, float] = {}
        for word, postings in self._postings.items():
            rarity = math.log(1 + (len(sizes) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, weight in postings.items():
                share = rarity * weight * (_SATURATION + 1) / (weight + held_back[number])
                postings[number] = share
            self._most[word] = max(postings.values())
        self._unknown = max(self._most.values(), default=1.0)

    def find(self, words: str, limit: int = 20) -> list[int]:
        """The numbers of the things that fit best, best first; equals in their own order.

        Args:
            words: What is looked for, as plain words.
            limit: The most numbers.
        """
        return [number for number, _ in self.shares(words, limit)]

    def shares(self, words: str, limit: int = 20) -> list[tuple[int, float]]:
        """Return the results of :meth:`find`, each with its share of a perfect fit.

        A word that no text has counts as the one that says most: 1 means that all of them are
        there, where they count most.

        Args:
            words: What is looked for, as plain words.
            limit: The most numbers.
        """
        found = dict.fromkeys(words_of(words))
        scores: dict[int, float] = {}
        for word in found:
            for number, share in self._postings.get(word, {}).items():
                scores[number] = scores.get(number, 0.0) + share
        perfect = sum(map(self._counts, found))
        best = heapq.nsmallest(limit, scores, key=lambda number: (-scores[number], number))
        return [(number, scores[number] / perfect) for number in best]

    def _counts(self, word: str) -> float:
        """The most that a word can count."""
        return self._most.get(word, self._unknown)
