"""The columns that a statement's parameters are stored in, by parsing the statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from delf_sql.catalog import Table
from delf_sql.placeholders import BoundStatement
from delf_sql.target import Dialect
from delf_sql.tokens import parse

_MARK: Final = "delf_p"
_STORING: Final = ("INSERT", "UPDATE", "REPLACE", "MERGE", "WITH")
Assigned = tuple[str, str | int, int]
"""The table's name, the column's name or index, and the index of the parameter stored there."""


def stored_parameters(bound: BoundStatement, dialect: Dialect) -> list[Assigned]:
    """Return the parameters that a statement stores unchanged, with the columns that get them.

    Args:
        bound: The statement.
        dialect: The database's dialect.

    Returns:
        The assignments; an empty list if sqlglot cannot parse the statement.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    first, _, rest = bound.pieces[0].lstrip().partition(" ")
    if first.upper() not in _STORING:
        return []
    if first.upper() == "REPLACE":  # sqlglot does not parse REPLACE
        first = "INSERT"
    *pieces_before_values, last_piece = [f"{first} {rest}", *bound.pieces[1:]]
    marked_pieces = [
        f"{piece} :{_MARK}{number} " for number, piece in enumerate(pieces_before_values)
    ]
    try:
        trees = parse("".join([*marked_pieces, last_piece]), dialect)
    except (SqlglotError, RecursionError):
        return []
    assignments: list[Assigned] = []
    for tree in trees:
        if isinstance(tree, (exp.Insert, exp.Update)):
            assignments += _assigned_by_insert_or_update(tree)
        elif isinstance(tree, exp.Merge):
            for change in tree.find_all(exp.Insert, exp.Update):
                assignments += _assigned_by_merge_branch(tree, change)
    return assignments


def _assigned_by_merge_branch(tree: Any, change: Any) -> Iterator[Assigned]:
    """Yield the columns to which a branch of a MERGE assigns parameters."""
    from sqlglot import exp

    table = _name(tree.this)
    if isinstance(change, exp.Update):
        yield from _assigned_by_set(table, change.expressions)
    elif isinstance(change.this, exp.Tuple) and isinstance(change.expression, exp.Tuple):
        for column, item in zip(
            change.this.expressions, change.expression.expressions, strict=False
        ):
            parameter = _parameter_index(item)
            if parameter is not None:
                yield table, column.name, parameter


def _name(table: Any) -> str:
    return ".".join(part.name for part in table.parts)


def _assigned_by_set(table: str, changes: Sequence[Any]) -> Iterator[Assigned]:
    from sqlglot import exp

    for change in changes:
        if isinstance(change, exp.EQ) and isinstance(change.this, exp.Column):
            parameter = _parameter_index(change.expression)
            if parameter is not None:
                yield table, change.this.name, parameter


def _assigned_by_insert_or_update(tree: Any) -> Iterator[Assigned]:
    """Yield the columns to which an INSERT or UPDATE assigns parameters.

    If an INSERT has no list of columns, the index of the column stands for its name.
    """
    from sqlglot import exp

    target = tree.this
    columns: list[str | int] = []
    if isinstance(target, exp.Schema):
        columns = [column.name for column in target.expressions]
        target = target.this
    if not isinstance(target, exp.Table):
        return
    table = _name(target)
    if isinstance(tree, exp.Insert):
        for row in _rows(tree.args.get("expression")):
            for index, item in enumerate(row):
                parameter = _parameter_index(item)
                if parameter is not None and (not columns or index < len(columns)):
                    yield table, columns[index] if columns else index, parameter
    changes = list(tree.args.get("expressions") or ())
    conflict = tree.args.get("conflict")
    if conflict is not None:
        changes += conflict.args.get("expressions") or ()
    yield from _assigned_by_set(table, changes)


def _rows(source: Any) -> Iterator[Sequence[Any]]:
    from sqlglot import exp

    if isinstance(source, exp.Values):
        for row in source.expressions:
            yield row.expressions if isinstance(row, exp.Tuple) else [row]
    elif isinstance(source, exp.Select):
        yield source.expressions


def _parameter_index(item: Any) -> int | None:
    from sqlglot import exp

    while isinstance(item, (exp.Paren, exp.Alias)):
        item = item.this
    name = item.name if isinstance(item, exp.Placeholder) else ""
    return int(name.removeprefix(_MARK)) if name.startswith(_MARK) else None


def kinds_of(
    bound: BoundStatement, dialect: Dialect, find_table: Callable[[str], Table | None]
) -> list[str | None]:
    """Return the column type for each parameter; None for a parameter not stored in a column.

    Args:
        bound: The statement.
        dialect: The database's dialect.
        find_table: Returns a table with its columns, by the table's name.
    """
    kinds: list[str | None] = [None] * len(bound.values)
    tables: dict[str, Table | None] = {}
    for name, column, parameter in stored_parameters(bound, dialect):
        if name not in tables:
            tables[name] = find_table(name)
        table = tables[name]
        if table is None:
            continue
        if isinstance(column, int):  # the index of the column: the statement does not name columns
            target = table.columns[column] if column < len(table.columns) else None
        else:
            lower_name = column.lower()
            target = next((each for each in table.columns if each.name.lower() == lower_name), None)
        kinds[parameter] = target.type if target is not None else None
    return kinds
