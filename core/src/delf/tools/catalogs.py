"""Word search over the tools of a catalog."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.tools.ranking import Ranking, stem, words_of
from delf.tools.resources import kinds_of_change, plain_change, shared_words
from delf.tools.steps import short_steps_of, steps_of

_KEPT: Final = "ranking"
_RANKED: Final = 100
"""The number of actions ranked for each step of the task."""
_WHOLE: Final = 0.75
"""The weight of the whole task, where the best of its steps has the rest."""
_SURE: Final = 10
_SUREST: Final = 4
"""The number of best matches that come before the plain changes of named resources."""
_PLAIN: Final = 3
_FEW: Final = 3
"""The number of actions added for each short step, such as *and pause it*."""
_PART: Final = re.compile(r"\b(?:to|from)\b")
_REPLACES: Final = ("replace", "put")
"""Verbs of actions that replace a whole record; actions for partial updates rank higher."""
_NAME: Final = 2.0
_TAGS: Final = 1.0
_SUMMARY: Final = 2.0
_PARAMETERS: Final = 1.0
_VALUES: Final = 0.5
_DESCRIPTION: Final = 0.5


def search(catalog: Catalog, words: str, limit: int = 20) -> tuple[CatalogEntry, ...]:
    """Return the actions that match some words, best first; names and parameters count, too.

    The first search makes an index of all actions, which the catalog keeps.

    Args:
        catalog: The actions.
        words: The search words.
        limit: The maximum number of actions.
    """
    return tuple(catalog[number] for number in places(catalog, words, limit))


def places(catalog: Catalog, words: str, limit: int = 20) -> list[int]:
    """Like :func:`search`, but return positions in the catalog."""
    return _ranking(catalog).find(words, limit)


def shares(catalog: Catalog, words: str, limit: int = 20) -> list[tuple[int, float]]:
    """Like :func:`places`, with a score from 0 to 1 (a perfect match) for each position."""
    return _ranking(catalog).shares(words, limit)


def fit(catalog: Catalog, task: str, limit: int = _RANKED) -> dict[int, float]:
    """Score actions for a task, best first: by the whole task, and by its best step.

    Steps are searched one by one, because a long task would hide the words of a short step; the
    best action of every step gets the same score for that step, however long the step is. Scores
    are from 0 to 1, relative to a perfect match.

    Args:
        catalog: The actions.
        task: The user's task, in plain words.
        limit: The maximum number of actions of the task and of each step.
    """
    shares_by_step = [shares(catalog, step, limit) for step in steps_of(task)]
    best_share = max((share for _, share in shares_by_step[0]), default=1.0)
    whole_task_shares, *parts = map(_relative, shares_by_step)
    best: dict[int, float] = {}
    for part in (whole_task_shares, *parts):
        for number, share in part.items():
            best[number] = max(best.get(number, 0.0), share)
    scores = {
        number: best_share * (_WHOLE * whole_task_shares.get(number, 0.0) + (1 - _WHOLE) * share)
        for number, share in best.items()
    }
    return {n: scores[n] for n in sorted(scores, key=lambda n: (-scores[n], n))}


def _relative(places_with_shares: Sequence[tuple[int, float]]) -> dict[int, float]:
    best_share = places_with_shares[0][1] if places_with_shares else 1.0
    return {number: share / best_share for number, share in places_with_shares}


def best_first(catalog: Catalog, task: str) -> list[str]:
    """Return all action names, the best matches for the task's steps first.

    Args:
        catalog: The actions.
        task: The user's task, in plain words.
    """
    best = list(fit(catalog, task))
    plain_change_places = in_turn([_plain_changes(catalog, step) for step in steps_of(task)])
    short_step_places = in_turn([places(catalog, step, _FEW) for step in short_steps_of(task)])
    first = [*best[:_SUREST], *plain_change_places, *best[_SUREST:_SURE], *short_step_places]
    order = dict.fromkeys([*first, *best[_SURE:], *range(len(catalog))])
    return [catalog[number].name for number in order]


def _plain_changes(catalog: Catalog, step: str) -> list[int]:
    """Return a few actions that create, update or delete a resource which a step names.

    A step such as "mark the task as done" needs ``update_task``, but shares only one word with that
    name.
    """
    kinds = kinds_of_change(step)
    if not kinds:
        return []
    order = {word: at for at, word in reversed([*enumerate(map(stem, words_of(step)))])}
    ranked_changes: list[tuple[int, bool, int, bool, int]] = []
    # "Add the label new to the ticket" creates a label, or updates a ticket.
    container = "".join(_PART.split(step, maxsplit=1)[1:])
    tail = frozenset(map(stem, words_of(container))) if len(kinds) > 1 else None
    shared = shared_words(entry.name for entry in catalog)
    for number, entry in enumerate(catalog):
        change = None if entry.reads else plain_change(entry.name, shared)
        if change is None or change.kind not in kinds or not change.nouns <= order.keys():
            continue
        if tail is not None and (change.nouns <= tail) != (change.kind == "update"):
            continue
        at = sorted(order[noun] for noun in change.nouns)
        is_apart = at[-1] - at[0] >= len(at)  # the label of an issue is no issue
        replaces = entry.name.rpartition(".")[2].startswith(_REPLACES)
        ranked_changes.append((at[0], is_apart, -len(at), replaces, number))
    return [number for *_, number in sorted(ranked_changes)[:_PLAIN]]


def in_turn(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Interleave rankings without repeats: the best of each, then the second of each, and so on.

    Args:
        rankings: Places in a catalog.
    """
    rounds = zip_longest(*rankings)
    return list(dict.fromkeys(place for row in rounds for place in row if place is not None))


def _ranking(catalog: Catalog) -> Ranking:
    """Return the catalog's search index, creating it on the first call."""
    cached_ranking = catalog.cache.get(_KEPT)
    if not isinstance(cached_ranking, Ranking):
        cached_ranking = catalog.cache[_KEPT] = Ranking(
            (
                (
                    (e.name, _NAME),
                    (e.summary, _SUMMARY),
                    (" ".join(e.tags), _TAGS),
                    (" ".join(map(" ".join, e.parameters)), _PARAMETERS),
                    (" ".join(e.values), _VALUES),
                    (e.description, _DESCRIPTION),
                )
                for e in catalog
            ),
            (e.name.rpartition(".")[2] for e in catalog),
        )
    return cached_ranking
