"""Word search over the tools of a catalog."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Final

from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.tools.ranking import Ranking, stem, words_of
from delf.tools.resources import change_of, kinds_of_change, shared_words
from delf.tools.steps import short_steps_of, steps_of

_CACHE_KEY: Final = "ranking"
_MAX_MATCHES: Final = 100
# The weight of an action's score for the whole task; the score for its best step has the rest.
_TASK_WEIGHT: Final = 0.75
_MATCHES_BEFORE_SHORT_STEPS: Final = 10
_MATCHES_BEFORE_CHANGES: Final = 4
_CHANGES_PER_STEP: Final = 3
_MATCHES_PER_SHORT_STEP: Final = 3
_CONTAINER_PREPOSITION: Final = re.compile(r"\b(?:to|from)\b")
# Actions that replace a whole record rank below actions for partial updates.
_REPLACE_VERBS: Final = ("replace", "put")
_NAME_WEIGHT: Final = 2.0
_TAGS_WEIGHT: Final = 1.0
_SUMMARY_WEIGHT: Final = 2.0
_PARAMETERS_WEIGHT: Final = 1.0
_VALUES_WEIGHT: Final = 0.5
_DESCRIPTION_WEIGHT: Final = 0.5


def search(catalog: Catalog, words: str, limit: int = 20) -> tuple[CatalogEntry, ...]:
    """Return the actions that match search words, best first.

    The first search creates an index of names, descriptions and parameters, which the catalog
    caches.

    Args:
        catalog: The actions.
        words: The search words.
        limit: The maximum number of actions.
    """
    return tuple(catalog[number] for number in find_positions(catalog, words, limit))


def find_positions(catalog: Catalog, words: str, limit: int = 20) -> list[int]:
    """Return the positions in the catalog of the actions that :func:`search` returns."""
    return _ranking(catalog).find(words, limit)


def scored_matches(catalog: Catalog, words: str, limit: int = 20) -> list[tuple[int, float]]:
    """Return the position in the catalog and the score of each match, the best match first.

    Scores range from 0 to 1; 1 is a perfect match.
    """
    return _ranking(catalog).scored_matches(words, limit)


def score_actions(catalog: Catalog, task: str, limit: int = _MAX_MATCHES) -> dict[int, float]:
    """Score actions by how well they match a task and its steps.

    An action's score is the weighted sum of its score for the whole task and of its score for the
    step of the task that it matches best. Each step, a part of the task's text, is scored
    separately, because the words of a short step have little weight in a long task. Within each
    step, scores are divided by the score of the step's best action.

    Args:
        catalog: The actions.
        task: The user's task, in plain words.
        limit: The maximum number of actions to score for the task and for each step.

    Returns:
        A mapping from position in the catalog to score, best first. Scores range from 0 to 1; 1 is
        a perfect match.
    """
    # The first item of steps_of() is the whole task.
    scored_matches_by_step = [scored_matches(catalog, step, limit) for step in steps_of(task)]
    best_task_score = max((score for _, score in scored_matches_by_step[0]), default=1.0)
    task_scores, *step_scores = map(_divide_by_best_score, scored_matches_by_step)
    best_scores: dict[int, float] = {}
    for part_scores in (task_scores, *step_scores):
        for number, score in part_scores.items():
            best_scores[number] = max(best_scores.get(number, 0.0), score)
    # After the division, the best action always has the score 1. The multiplication by the best
    # task score makes all scores low if even the best action matches the task weakly.
    scores = {
        number: best_task_score
        * (_TASK_WEIGHT * task_scores.get(number, 0.0) + (1 - _TASK_WEIGHT) * score)
        for number, score in best_scores.items()
    }
    return {n: scores[n] for n in sorted(scores, key=lambda n: (-scores[n], n))}


def _divide_by_best_score(matches: Sequence[tuple[int, float]]) -> dict[int, float]:
    best_score = matches[0][1] if matches else 1.0
    return {number: score / best_score for number, score in matches}


def best_first(catalog: Catalog, task: str) -> list[str]:
    """Return the names of all actions, the best matches for a task first.

    Args:
        catalog: The actions.
        task: The user's task, in plain words.
    """
    matches = list(score_actions(catalog, task))
    # Word search ranks some changing actions low: "mark the task as done" shares only one word with
    # `update_task`. Therefore, actions that change a resource of a step are placed early.
    changes = interleaved([_changes_in_step(catalog, step) for step in steps_of(task)])
    short_step_matches = interleaved(
        [find_positions(catalog, step, _MATCHES_PER_SHORT_STEP) for step in short_steps_of(task)]
    )
    order = dict.fromkeys(
        [
            *matches[:_MATCHES_BEFORE_CHANGES],
            *changes,
            *matches[_MATCHES_BEFORE_CHANGES:_MATCHES_BEFORE_SHORT_STEPS],
            *short_step_matches,
            *matches[_MATCHES_BEFORE_SHORT_STEPS:],
            *range(len(catalog)),
        ]
    )
    return [catalog[number].name for number in order]


def _changes_in_step(catalog: Catalog, step: str) -> list[int]:
    """Return positions in the catalog of actions that change a resource that a step names.

    Word search misses some of these: the step "mark the task as done" needs ``update_task``, but
    shares only one word with that name.
    """
    kinds = kinds_of_change(step)
    if not kinds:
        return []
    word_positions: dict[str, int] = {}  # the position of each word's first occurrence
    for position, word in enumerate(words_of(step)):
        word_positions.setdefault(stem(word), position)
    ranked_changes: list[tuple[int, bool, int, bool, int]] = []
    # "Add the label new to the ticket" may create a label, or update a ticket. If a step allows
    # several kinds of change, a resource after "to" or "from" can only be updated, and any other
    # resource cannot be updated.
    has_several_kinds = len(kinds) > 1
    words_after_preposition = _words_after_preposition(step)
    shared = shared_words(entry.name for entry in catalog)
    for catalog_position, entry in enumerate(catalog):
        change = None if entry.reads else change_of(entry.name, shared)
        if change is None or change.kind not in kinds:
            continue
        if not change.nouns <= word_positions.keys():  # the step does not name the resource
            continue
        if has_several_kinds:
            is_update = change.kind == "update"
            is_after_preposition = change.nouns <= words_after_preposition
            if is_update != is_after_preposition:
                continue
        noun_positions = sorted(word_positions[noun] for noun in change.nouns)
        # In "the label of an issue" the words of "issue label" are apart.
        is_apart = noun_positions[-1] - noun_positions[0] >= len(noun_positions)
        replaces = entry.name.rpartition(".")[2].startswith(_REPLACE_VERBS)
        # A lower rank is better. Compare the position of the first noun in the step; then prefer
        # adjacent nouns, then more nouns, then updates of a part to replacements.
        rank = (noun_positions[0], is_apart, -len(noun_positions), replaces)
        ranked_changes.append((*rank, catalog_position))
    best_changes = sorted(ranked_changes)[:_CHANGES_PER_STEP]
    return [catalog_position for *_, catalog_position in best_changes]


def _words_after_preposition(step: str) -> frozenset[str]:
    """Return the stems of the words after the first "to" or "from" of a step, if any."""
    _, *rest = _CONTAINER_PREPOSITION.split(step, maxsplit=1)
    return frozenset(stem(word) for text in rest for word in words_of(text))


def interleaved(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Interleave rankings without repeats: the best of each, then the second of each, and so on.

    Args:
        rankings: Lists of positions in a catalog, each best first.
    """
    numbers = chain.from_iterable(zip_longest(*rankings))
    return list(dict.fromkeys(number for number in numbers if number is not None))


def _ranking(catalog: Catalog) -> Ranking:
    """Return the catalog's search index, creating it on the first call."""
    cached_ranking = catalog.cache.get(_CACHE_KEY)
    if not isinstance(cached_ranking, Ranking):
        cached_ranking = catalog.cache[_CACHE_KEY] = Ranking(
            (
                (
                    (e.name, _NAME_WEIGHT),
                    (e.summary, _SUMMARY_WEIGHT),
                    (" ".join(e.tags), _TAGS_WEIGHT),
                    (" ".join(map(" ".join, e.parameters)), _PARAMETERS_WEIGHT),
                    (" ".join(e.values), _VALUES_WEIGHT),
                    (e.description, _DESCRIPTION_WEIGHT),
                )
                for e in catalog
            ),
            names=(e.name.rpartition(".")[2] for e in catalog),
        )
    return cached_ranking
