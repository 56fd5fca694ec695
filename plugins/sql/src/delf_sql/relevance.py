"""Ranking of tables by their names, columns, comments and foreign keys."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final, TypeVar

from delf.tools.ranking import Ranking, stem, words_of
from delf_sql.catalog import Column, Relation, Table

T = TypeVar("T")

_NAME_WEIGHT: Final = 3.0
# The share of a foreign-key neighbour's score that is added to a table's own score.
_NEIGHBOUR_SHARE: Final = 0.3
# The number of best tables between which connecting tables are searched.
_MAX_CONNECTED_TABLES: Final = 8
_LONGEST_BRIDGE: Final = 3
# The minimum score, as a share of the best score, for a table that gets connecting tables.
_MIN_CONNECTED_SHARE: Final = 0.3


def rank_relations(relations: Sequence[Relation], words: str) -> list[Relation]:
    """Sort relations by how well their names and comments match some words, best match first."""
    ranking = Ranking([(r.name, _NAME_WEIGHT), (r.comment or "", 1.0)] for r in relations)
    return _with_rest(relations, ranking.find(words, len(relations)))


class TableIndex:
    """A search index of tables, built once and used for many tasks.

    Args:
        tables: Tables with their columns.
    """

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = list(tables)
        names = [table.relation.name for table in tables]
        self._ranking = Ranking((_texts(table) for table in tables), names)
        self._neighbours_by_table = _neighbours_by_table(tables)

    def rank(self, words: str) -> tuple[list[Table], int]:
        """Sort tables by relevance.

        The order is: the best matches, the tables that connect two best matches, all other matches,
        and the remaining tables.

        Args:
            words: The task, or the search words.

        Returns:
            All tables, and the number of relevant tables at the beginning.
        """
        tables = self.tables
        neighbours = self._neighbours_by_table
        own_scores = dict(self._ranking.scored_matches(words, len(tables)))
        scores: dict[int, float] = {}
        for number in range(len(tables)):
            from_neighbours = _score_from_neighbours(neighbours.get(number, ()), own_scores)
            scores[number] = own_scores.get(number, 0.0) + from_neighbours
        matches = [number for number, score in scores.items() if score]
        matches.sort(key=scores.__getitem__, reverse=True)
        min_score = _MIN_CONNECTED_SHARE * max(scores.values(), default=0.0)
        best_matches = [n for n in matches[:_MAX_CONNECTED_TABLES] if scores[n] >= min_score]
        # A join of two best matches needs the tables on the path of foreign keys between them.
        connecting: list[int] = []
        for first, second in combinations(best_matches, 2):
            connecting += _path(neighbours, first, second)
        ranked = list(dict.fromkeys([*best_matches, *connecting, *matches]))
        return _with_rest(tables, ranked), len(ranked)


class ColumnRanking:
    """A ranking of columns by how much a task needs them.

    Args:
        task: The text of the task.
    """

    def __init__(self, task: str) -> None:
        self._wanted = frozenset(map(stem, words_of(task)))

    def rank(self, column: Column) -> int:
        """Return a low rank for a needed column: negative for a match, 0 for a key, else 1."""
        words = words_of(f"{column.name} {column.comment or ''}")
        common_words = len(self._wanted.intersection(map(stem, words)))
        if common_words:
            return -common_words
        if column.primary_key or column.references is not None:
            return 0
        return 1


def _with_rest(items: Sequence[T], first_indexes: Sequence[int]) -> list[T]:
    """Return the items at some indexes, followed by the remaining items in order."""
    first = [items[index] for index in first_indexes]
    excluded = frozenset(first_indexes)
    rest = [item for index, item in enumerate(items) if index not in excluded]
    return first + rest


def _texts(table: Table) -> list[tuple[str, float]]:
    """Return the texts by which a table is found, each with its weight in the ranking."""
    columns = " ".join(f"{c.name} {c.comment or ''}" for c in table.columns)
    about = f"{table.relation.comment or ''} {_enumeration_values(table.columns)}"
    return [(table.relation.name, _NAME_WEIGHT), (columns, 1.0), (about, 1.0)]


def _enumeration_values(columns: Iterable[Column]) -> str:
    # Of the types, only enumerations have quoted values, as in MySQL's enum('new','paid').
    return " ".join(column.type for column in columns if "'" in column.type)


def _neighbours_by_table(tables: Sequence[Table]) -> Mapping[int, set[int]]:
    """Return a mapping from each table's index to the indexes of its foreign-key neighbours."""
    index_by_name = {table.relation.full_name: index for index, table in enumerate(tables)}
    index_by_lower_name = {name.lower(): index for name, index in index_by_name.items()}
    neighbours: defaultdict[int, set[int]] = defaultdict(set)
    for index, table in enumerate(tables):
        for column in table.columns:
            other = _referenced_table(column.references or "", index_by_name, index_by_lower_name)
            if other is not None and other != index:
                neighbours[index].add(other)
                neighbours[other].add(index)
    return dict(neighbours)


def _referenced_table(
    reference: str, index_by_name: Mapping[str, int], index_by_lower_name: Mapping[str, int]
) -> int | None:
    """Return the index of the table in a reference ``schema.table.column``; None if unknown.

    The schema and the column are optional.
    """
    unquoted = reference.replace('"', "")
    without_column = unquoted.rpartition(".")[0]
    for name in (without_column, unquoted):
        index = index_by_name.get(name, index_by_lower_name.get(name.lower()))
        if index is not None:
            return index
    return None


def _score_from_neighbours(neighbours: Iterable[int], own_scores: Mapping[int, float]) -> float:
    """Return the score that a table gets from its two best neighbours.

    Args:
        neighbours: The indexes of the table's neighbours.
        own_scores: The scores of the matching tables by index, before neighbours are counted.
    """
    scores = sorted((own_scores.get(index, 0.0) for index in neighbours), reverse=True)
    return _NEIGHBOUR_SHARE * sum(scores[:2])


def _path(neighbours: Mapping[int, set[int]], start: int, end: int) -> list[int]:
    """Return the tables between two tables on the shortest path of foreign keys.

    The list is empty if the two tables are neighbours, or if the path is too long.
    """
    # For each table that was reached, the table before it on the path from ``start``.
    previous_by_table = {start: start}
    queue = deque([(start, 0)])
    while queue:
        table, steps = queue.popleft()
        if table == end:
            path: list[int] = []
            before = previous_by_table[end]
            while before != start:
                path.append(before)
                before = previous_by_table[before]
            return path
        if steps < _LONGEST_BRIDGE:
            for other in sorted(neighbours.get(table, set()) - previous_by_table.keys()):
                previous_by_table[other] = table
                queue.append((other, steps + 1))
    return []
