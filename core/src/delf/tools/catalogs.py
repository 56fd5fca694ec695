"""Word search over the tools of a catalog."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Final, NamedTuple

from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.tools.ranking import Ranking, stem, words_of
from delf.tools.resources import change_of, kinds_of_change, shared_words
from delf.tools.steps import short_steps_of, steps_of

_CACHE_KEY: Final = "ranking"
_MAX_MATCHES: Final = 100
# The weight of an action's score for the whole task. The score for its best step has the remaining
# weight, so that both weights add up to 1.
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

    An action's score is the mean of its score for the task and its score for the step that it
    matches best. Both are relative: the best action for the task, or for a step, has 1. The mean is
    multiplied by the best action's absolute score for the task, so that all scores are low if no
    action fits the task.

    Args:
        catalog: The actions.
        task: The user's task, in plain words.
        limit: The maximum number of actions to score for the task and for each step.

    Returns:
        A mapping from position in the catalog to score, best first. Scores range from 0 to 1; 1 is
        a perfect match.
    """
    # Each step is searched for separately, because the words of a short step have little weight in
    # a long task. The first item of steps_of() is the whole task.
    searches = [scored_matches(catalog, step, limit) for step in steps_of(task)]
    relative_scores = [_divide_by_best_score(matches) for matches in searches]
    task_scores = relative_scores[0]
    best_task_score = _best_score(searches[0])
    scores: dict[int, float] = {}
    for position in set[int]().union(*relative_scores):
        task_score = task_scores.get(position, 0.0)
        best_step_score = max(each.get(position, 0.0) for each in relative_scores)
        mean_score = _TASK_WEIGHT * task_score + (1 - _TASK_WEIGHT) * best_step_score
        scores[position] = best_task_score * mean_score
    best_first = sorted(scores, key=lambda position: (-scores[position], position))
    return {position: scores[position] for position in best_first}


def _divide_by_best_score(matches: Sequence[tuple[int, float]]) -> dict[int, float]:
    best_score = _best_score(matches)
    return {number: score / best_score for number, score in matches}


def _best_score(matches: Sequence[tuple[int, float]]) -> float:
    """Return the score of the first match, which is the best one.

    Without a match, return 1: multiplying or dividing a score by 1 changes nothing.
    """
    return matches[0][1] if matches else 1.0


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
    # score_actions() has no separate score for a step of one or two words, such as "archive it".
    short_step_matches = interleaved(
        [find_positions(catalog, step, _MATCHES_PER_SHORT_STEP) for step in short_steps_of(task)]
    )
    positions = matches[:_MATCHES_BEFORE_CHANGES]
    positions += changes
    positions += matches[_MATCHES_BEFORE_CHANGES:_MATCHES_BEFORE_SHORT_STEPS]
    positions += short_step_matches
    positions += matches[_MATCHES_BEFORE_SHORT_STEPS:]
    positions += range(len(catalog))
    positions_without_repeats = dict.fromkeys(positions)
    return [catalog[position].name for position in positions_without_repeats]


def _changes_in_step(catalog: Catalog, step: str) -> list[int]:
    """Return the actions that change a resource named in a step, by position in the catalog.

    Word search misses some of these actions: the step "mark the task as done" needs
    ``update_task``, but shares only one word with that name. The action ``update_task`` is found by
    its noun ``task`` and its kind of change, an update.
    """
    kinds = kinds_of_change(step)
    if not kinds:
        return []
    word_positions: dict[str, int] = {}  # the position of each word's first occurrence
    for position, word in enumerate(words_of(step)):
        word_positions.setdefault(stem(word), position)
    # "Add the label to the ticket" updates the ticket, the word after the preposition.
    words_after_preposition = _words_after_preposition(step)
    # Words that most actions have in their names, such as ``v1``, do not name a resource.
    shared = shared_words(entry.name for entry in catalog)
    changes: list[_RankedChange] = []
    for catalog_position, entry in enumerate(catalog):
        change = None if entry.reads else change_of(entry.name, shared)
        if change is None or not change.nouns <= word_positions.keys():
            continue
        is_after_preposition = change.nouns <= words_after_preposition
        if _is_requested(change.kind, kinds, is_after_preposition):
            noun_positions = [word_positions[noun] for noun in change.nouns]
            changes.append(_RankedChange.rank(entry.name, noun_positions, catalog_position))
    best_changes = sorted(changes)[:_CHANGES_PER_STEP]
    return [change.catalog_position for change in best_changes]


def _is_requested(
    kind: str, requested_kinds: frozenset[str], is_resource_after_preposition: bool
) -> bool:
    """Return True if a step may request a kind of change of a resource.

    Args:
        kind: The kind of change.
        requested_kinds: The kinds of change in the step.
        is_resource_after_preposition: Whether the step names the resource after "to" or "from".
    """
    if kind not in requested_kinds:
        return False
    if len(requested_kinds) == 1:
        return True
    # "Add the label new to the ticket" may create a label or update a ticket, but neither updates a
    # label nor creates a ticket.
    if is_resource_after_preposition:
        return kind == "update"
    return kind != "update"


class _RankedChange(NamedTuple):
    """An action that may do a step; the better action of two is the smaller tuple.

    Args:
        first_noun: The index of the first noun of the action's name among the words of the step.
        is_apart: Whether other words are between the nouns: "the label of an issue" has the nouns
            of ``issue_label`` apart.
        negative_noun_count: The negated number of nouns, so that more nouns are better.
        replaces: Whether the action replaces the whole resource instead of updating a part.
        catalog_position: The position of the action in the catalog.
    """

    first_noun: int
    is_apart: bool
    negative_noun_count: int
    replaces: bool
    catalog_position: int

    @classmethod
    def rank(cls, name: str, noun_positions: Sequence[int], catalog_position: int) -> _RankedChange:
        """Rank an action for a step such as "add a label to the issue".

        An action is better if its first noun comes earlier in the step, then if its nouns are next
        to each other, then if it has more nouns, and then if it updates and does not replace.

        Args:
            name: The action's name.
            noun_positions: The index of each of the name's nouns among the words of the step.
            catalog_position: The position of the action in the catalog.
        """
        first_noun = min(noun_positions)
        noun_count = len(noun_positions)
        words_from_first_to_last_noun = max(noun_positions) - first_noun + 1
        _, _, method = name.rpartition(".")
        return cls(
            first_noun=first_noun,
            is_apart=words_from_first_to_last_noun > noun_count,
            negative_noun_count=-noun_count,
            replaces=method.startswith(_REPLACE_VERBS),
            catalog_position=catalog_position,
        )


def _words_after_preposition(step: str) -> frozenset[str]:
    """Return the stems of the words after the first "to" or "from" of a step, if any."""
    _, *rest = _CONTAINER_PREPOSITION.split(step, maxsplit=1)
    return frozenset(stem(word) for text in rest for word in words_of(text))


def interleaved(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Interleave rankings without repeats: the best of each, then the second of each, and so on.

    Args:
        rankings: Lists of positions in a catalog, each best first.
    """
    # zip_longest() fills shorter rankings up with None.
    positions = chain.from_iterable(zip_longest(*rankings))
    return list(dict.fromkeys(position for position in positions if position is not None))


def _ranking(catalog: Catalog) -> Ranking:
    """Return the catalog's search index, creating it on the first call."""
    cached_ranking = catalog.cache.get(_CACHE_KEY)
    if not isinstance(cached_ranking, Ranking):
        methods = [entry.name.rpartition(".")[2] for entry in catalog]
        cached_ranking = Ranking(map(_weighted_texts, catalog), names=methods)
        catalog.cache[_CACHE_KEY] = cached_ranking
    return cached_ranking


def _weighted_texts(entry: CatalogEntry) -> list[tuple[str, float]]:
    """Return the texts by which an action is found, each with its weight."""
    parameters = [" ".join(parameter) for parameter in entry.parameters]
    return [
        (entry.name, _NAME_WEIGHT),
        (entry.summary, _SUMMARY_WEIGHT),
        (" ".join(entry.tags), _TAGS_WEIGHT),
        (" ".join(parameters), _PARAMETERS_WEIGHT),
        (" ".join(entry.values), _VALUES_WEIGHT),
        (entry.description, _DESCRIPTION_WEIGHT),
    ]
