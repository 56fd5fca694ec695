"""Rank texts by words: find the actions that match a search."""

from __future__ import annotations

import functools
import heapq
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from delf.values.unicode import normalized

# If a name has at least this number of words, one of the words may be missing in a text.
_LONG_NAME_WORDS: Final = 3
# BM25's k1 and b: saturation of repeated words, and penalty of long texts.
_SATURATION: Final = 1.2
_LENGTH_PENALTY: Final = 0.4
# The share by which the score grows if all words of an item's name occur in the search.
_NAME_BONUS: Final = 0.5
_WORD: Final = re.compile(r"[^\W_]+")
# Matches a run of letters of writing systems without spaces between words.
#
# Writing systems of this kind are Thai, Lao, Burmese, Khmer, Japanese and Chinese. Korean is
# treated in the same way.
_UNSPACED_RUN: Final = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
# Matches *addresses*, *boxes*, *branches* and *statuses*, but neither *releases* nor *houses*.
_PLURAL_WITH_ES: Final = re.compile(r"(?:ss|x|ch|sh|[^aeiou]us)es$")
_stemmer_lock: Final = threading.Lock()  # the stemmer is not thread-safe
# Matches the place between two words, as in ``user|List`` and ``HTTP|Server``. A plural of
# capitals, such as ``IDs``, is one word.
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")
_STOP_WORDS: Final = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "have", "in", "into"}
    | {"is", "it", "its", "of", "on", "or", "that", "the", "their", "this", "to", "was", "with"}
    | {"all", "get", "i", "me", "my", "please", "show", "what", "which"}
)

_SYNONYM_WEIGHT: Final = 0.5
_SYNONYMS: Final = {
    word: tuple(other for other in group if other != word)
    for group in (
        ("number", "many", "count"),
        ("remove", "erase", "delete"),
        ("make", "new", "create", "add"),
        ("change", "modify", "edit", "update", "set", "rename", "mark"),
        ("find", "search", "lookup"),
        ("fetch", "retrieve", "read"),
        ("copy", "duplicate", "clone"),
        ("cancel", "abort", "stop", "end", "terminate"),
        ("start", "run", "launch", "trigger", "execute"),
        ("mute", "snooze", "silence"),
        ("reject", "decline", "deny"),
        ("approve", "accept"),
        ("buy", "purchase"),
        ("message", "mail", "email"),
        ("folder", "directory"),
        ("person", "people", "user", "member"),
    )
    for word in group
}


def words_of(text: str) -> list[str]:
    """Split a text or name into words, normalised to singular, without stop words.

    In writing systems without spaces, such as Chinese, each pair of letters counts as a word. The
    result is the same whether Unicode encodes a letter and its accent as one character or as two.

    Args:
        text: Plain words, ``snake_case`` or ``camelCase``.
    """
    matches = _WORD.findall(plain_name(normalized(text)))
    words = [singular(word) for word in map(str.lower, matches) if word not in _STOP_WORDS]
    if text.isascii():
        return words
    return [part for word in words for part in parts_of(word)]


def parts_of(word: str) -> list[str]:
    """Split the letters of writing systems without spaces into pairs; keep other parts whole.

    Args:
        word: Letters and digits alone.
    """
    if not _UNSPACED_RUN.search(word):
        return [word]
    parts: list[str] = []
    # split() also returns the runs at which it splits, because the pattern has a group.
    for run in _UNSPACED_RUN.split(word):
        if len(run) > 1 and _UNSPACED_RUN.fullmatch(run):
            parts += _overlapping_pairs(run)
        elif run:
            parts.append(run)
    return parts


def _overlapping_pairs(letters: str) -> list[str]:
    """Split ``abc`` into ``ab`` and ``bc``, because it is unknown where a word begins."""
    return [letters[start : start + 2] for start in range(len(letters) - 1)]


def is_unspaced_script(word: str) -> bool:
    """Return True if a word is of a writing system without spaces, such as Chinese or Thai.

    Args:
        word: A word of :func:`words_of`.
    """
    return _UNSPACED_RUN.fullmatch(word) is not None


def plain_name(name: str) -> str:
    """Return a name as words: ``get_userList`` as ``get user List``."""
    return _CAMEL.sub(" ", name).replace("_", " ").replace(".", " ")


@functools.lru_cache(50_000)
def stem(word: str) -> str:
    """Return the stem of an English word: ``schedul`` of *schedules*, *scheduled*, *scheduling*.

    Args:
        word: In lower case, as from :func:`words_of`.
    """
    if not (word.isascii() and word.isalpha()):
        return word
    with _stemmer_lock:
        return _stemmer()(word)


@functools.cache
def _stemmer() -> Callable[[str], str]:
    import snowballstemmer  # needed only for searches and for prompts without all tools

    library: Any = snowballstemmer
    return library.stemmer("english").stemWord


def named_by(text: str) -> Callable[[str], bool]:
    """Return a predicate that is true for names whose words all occur in a text.

    In a name of three or more words, one may be missing: *start time* names ``start_time_utc``.

    Args:
        text: Plain words, such as a task.
    """

    @functools.cache
    def stems_of_text() -> frozenset[str]:
        return frozenset(map(stem, words_of(text)))

    @functools.cache
    def is_named(name: str) -> bool:
        """Return True if all words of a name occur in the text given to :func:`named_by`.

        A long name may have one word that is missing in the text.
        """
        words = frozenset(map(stem, words_of(name)))
        if not words:
            return False
        missing_words = words - stems_of_text()
        max_missing = 1 if len(words) >= _LONG_NAME_WORDS else 0
        return len(missing_words) <= max_missing

    return is_named


def singular(word: str) -> str:
    """Return the singular of an English word, judged by its ending.

    Args:
        word: In lower case.
    """
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and _PLURAL_WITH_ES.search(word):
        return word[:-2]
    if len(word) > 2 and word.endswith("s") and not word.endswith(("ss", "tus")):  # as in "status"
        return word[:-1]
    return word


def _terms(text: str) -> dict[str, float]:
    """Return the search terms of a text: its words, and their stems with the suffix ``~``.

    The result maps each term to the weight 1. Synonyms, which the caller may add, weigh less.
    """
    words = dict.fromkeys(words_of(text), 1.0)
    return words | dict.fromkeys([f"{stem(word)}~" for word in words], 1.0)


def _with_synonyms(terms: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of search terms and of their synonyms."""
    weights: dict[str, float] = {}
    for term in terms:
        weights |= dict.fromkeys(_SYNONYMS.get(term, ()), _SYNONYM_WEIGHT)
    return weights | dict(terms)  # a synonym that is also a search term has the full weight


def _term_weights(fields: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the terms of weighted texts, each with the sum of the weights of its texts."""
    weights: dict[str, float] = {}
    for text, weight in fields:
        # _terms() has each term once, so a repeated word of a text counts once.
        for term in _terms(text):
            weights[term] = weights.get(term, 0.0) + weight
    return weights


def _rarity(matching_count: int, item_count: int) -> float:
    """Return BM25's inverse document frequency of a term."""
    return math.log(1 + (item_count - matching_count + 0.5) / (matching_count + 0.5))


def _damping(sizes: Sequence[float]) -> list[float]:
    """Return the number by which BM25 damps the weights in each item, larger for longer items."""
    total = sum(sizes)
    if not total:  # all items are empty
        return [_SATURATION * (1 - _LENGTH_PENALTY)] * len(sizes)
    average = total / len(sizes)
    damping: list[float] = []
    for size in sizes:
        length_factor = 1 - _LENGTH_PENALTY + _LENGTH_PENALTY * (size / average)
        damping.append(_SATURATION * length_factor)
    return damping


def _found_share(name: frozenset[str], search_terms: Iterable[str]) -> float:
    """Return the share of a name's terms that a search has."""
    if not name:
        return 0.0
    return len(name.intersection(search_terms)) / len(name)


class Ranking:
    """A search index of items with weighted texts.

    Each word is indexed twice: as written and as its stem. Another form of the word matches only
    the stem, and so scores about half as much. An item scores up to 1.5 times as much if the words
    of its name occur in the search.

    Args:
        texts: The weighted texts of each item; a name usually weighs more than a description.
        names: The names of the items, if any.
    """

    def __init__(
        self, texts: Iterable[Iterable[tuple[str, float]]], names: Iterable[str] = ()
    ) -> None:
        self._names = [frozenset(_terms(name)) for name in names]
        weights_of_items = [_term_weights(fields) for fields in texts]
        # The damping of each item, so that long items do not score more.
        damping = _damping([sum(weights.values()) for weights in weights_of_items])
        item_counts = Counter(chain.from_iterable(weights_of_items))
        rarities = {t: _rarity(count, len(weights_of_items)) for t, count in item_counts.items()}
        # The BM25 score of each term in each item, as ``scores_by_term["invoice"][item_number]``.
        self._scores_by_term: dict[str, dict[int, float]] = {term: {} for term in rarities}
        for number, weights in enumerate(weights_of_items):
            for term, weight in weights.items():
                score = rarities[term] * weight * (_SATURATION + 1) / (weight + damping[number])
                self._scores_by_term[term][number] = score
        self._max_scores = {term: max(s.values()) for term, s in self._scores_by_term.items()}
        # In the score of a perfect match, an unknown search word counts like the weightiest word.
        self._unknown_word_score = max(self._max_scores.values(), default=1.0)

    def find(self, words: str, limit: int = 20) -> list[int]:
        """Return the indexes of the best matching items, best first; ties keep the given order.

        Args:
            words: The search words.
            limit: The maximum number of results.
        """
        return [number for number, _ in self.scored_matches(words, limit)]

    def scored_matches(self, words: str, limit: int = 20) -> list[tuple[int, float]]:
        """Return the matches of :meth:`find`, each with its score.

        The score 1.0 is a perfect match: no item is better for any of the search words, and all
        words of the item's name are search words. A search word that no item has lowers all scores.

        Args:
            words: The search words.
            limit: The maximum number of results.
        """
        terms = _terms(words)
        weights = _with_synonyms(terms)
        scores: dict[int, float] = {}
        for term, weight in weights.items():
            for number, score in self._scores_by_term.get(term, {}).items():
                scores[number] = scores.get(number, 0.0) + weight * score
        if self._names:
            for number in scores:
                share_of_name = _found_share(self._names[number], weights)
                # The factor is 1 if the search has all words of the name, and less otherwise.
                scores[number] *= (1 + _NAME_BONUS * share_of_name) / (1 + _NAME_BONUS)
        ideal_score = sum(map(self._max_score, terms))
        best = heapq.nsmallest(limit, scores, key=lambda number: (-scores[number], number))
        return [(number, scores[number] / ideal_score) for number in best]

    def _max_score(self, word: str) -> float:
        """Return the maximum score that a search term can contribute."""
        return self._max_scores.get(word, self._unknown_word_score)
