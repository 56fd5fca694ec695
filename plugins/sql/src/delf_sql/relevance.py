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
_NEIGHBOUR_SHARE: Final = 0.3
"""The share of a table's score that each of its foreign-key neighbours adds to their own."""
_MAX_CONNECTED_TABLES: Final = 8
"""The number of best tables between which connecting tables are searched."""
_LONGEST_BRIDGE: Final = 3
_MIN_CONNECTED_SHARE: Final = 0.3
"""The minimum score, as a share of the best score, for a table that gets connecting tables."""


def rank_relations(relations: Sequence[Relation], words: str) -> list[Relation]:
    """Sort tables without columns by how well they match some words."""
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
        """Sort tables by relevance, each connecting table after the tables it connects.

        Args:
            words: The task, or the search words.

        Returns:
            All tables, and the number of relevant tables at the beginning.
        """
        tables, links = self.tables, self._neighbours_by_table
        own = dict(self._ranking.shares(words, len(tables)))
        scores = {
            number: own.get(number, 0.0) + _score_from_neighbours(links.get(number, ()), own)
            for number in range(len(tables))
        }
        best = sorted((n for n, score in scores.items() if score), key=lambda n: (-scores[n], n))
        strong = [
            n
            for n in best[:_MAX_CONNECTED_TABLES]
            if scores[n] >= _MIN_CONNECTED_SHARE * scores[best[0]]
        ]
        bridging = [n for ends in combinations(strong, 2) for n in _path(links, *ends)]
        ranked = list(dict.fromkeys([*strong, *bridging, *best]))
        return _with_rest(tables, ranked), len(ranked)


class ColumnNeed:
    """A sort key for columns: a lower number for a column that a task needs more.

    Args:
        words: The task.
    """

    def __init__(self, words: str) -> None:
        self._wanted = frozenset(map(stem, words_of(words)))

    def __call__(self, column: Column) -> int:
        """Return a negative number for a column that matches the task, 0 for a key, else 1."""
        words = words_of(f"{column.name} {column.comment or ''}")
        common_words = len(self._wanted.intersection(map(stem, words)))
        if common_words:
            return -common_words
        return 0 if column.primary_key or column.references is not None else 1


def _with_rest(things: Sequence[T], best: Sequence[int]) -> list[T]:
    """Return the items at some indexes, followed by the remaining items in order."""
    chosen = frozenset(best)
    rest = [thing for number, thing in enumerate(things) if number not in chosen]
    return [*(things[number] for number in best), *rest]


def _texts(table: Table) -> list[tuple[str, float]]:
    columns = " ".join(f"{c.name} {c.comment or ''}" for c in table.columns)
    about = f"{table.relation.comment or ''} {_values(table.columns)}"
    return [(table.relation.name, _NAME_WEIGHT), (columns, 1.0), (about, 1.0)]


def _values(columns: Iterable[Column]) -> str:
    """Return the enumeration values in the columns' types."""
    return " ".join(column.type for column in columns if "'" in column.type)


def _neighbours_by_table(tables: Sequence[Table]) -> Mapping[int, set[int]]:
    """Return a mapping from each table's index to the indexes of its foreign-key neighbours."""
    numbers = {table.relation.full_name: number for number, table in enumerate(tables)}
    folded = {name.lower(): number for name, number in numbers.items()}
    links: defaultdict[int, set[int]] = defaultdict(set)
    for number, table in enumerate(tables):
        for column in table.columns:
            other = _referenced_table(column.references or "", numbers, folded)
            if other is not None and other != number:
                links[number].add(other)
                links[other].add(number)
    return dict(links)


def _referenced_table(
    reference: str, numbers: Mapping[str, int], folded: Mapping[str, int]
) -> int | None:
    """Return the index of the table in a reference ``schema.table.column``; None if unknown.

    The schema and the column are optional.
    """
    plain = reference.replace('"', "")
    for name in (plain.rpartition(".")[0], plain):
        number = numbers.get(name, folded.get(name.lower()))
        if number is not None:
            return number
    return None


def _score_from_neighbours(linked: Iterable[int], own: Mapping[int, float]) -> float:
    """Return the share of a score that a table gets from its two best neighbours."""
    best = sorted((own.get(number, 0.0) for number in linked), reverse=True)[:2]
    return _NEIGHBOUR_SHARE * sum(best)


def _path(links: Mapping[int, set[int]], start: int, end: int) -> list[int]:
    """Return the shortest path between two tables; empty if it is too long."""
    came_from = {start: start}
    waiting = deque([(start, 0)])
    while waiting:
        number, steps = waiting.popleft()
        if number == end:
            path: list[int] = []
            while (number := came_from[number]) != start:
                path.append(number)
            return path
        if steps < _LONGEST_BRIDGE:
            for other in sorted(links.get(number, set()) - came_from.keys()):
                came_from[other] = number
                waiting.append((other, steps + 1))
    return []
