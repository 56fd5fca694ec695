"""The columns that a statement's parameters are stored in, by parsing the statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from delf_sql.catalog import Column, Table
from delf_sql.placeholders import BoundStatement
from delf_sql.target import Dialect
from delf_sql.tokens import parse

# The beginning of the names that placeholders get for the parser.
_PLACEHOLDER_PREFIX: Final = "delf_p"
_STORING: Final = ("INSERT", "UPDATE", "REPLACE", "MERGE", "WITH")
Assigned = tuple[str, str | int, int]
"""The table's name, the column's name or index, and the index of the parameter stored there."""


def stored_parameters(bound: BoundStatement, dialect: Dialect) -> list[Assigned]:
    """Return the parameters that a statement assigns to columns, with the tables and columns.

    A parameter in an expression, as in ``a = ? + 1``, is left out.

    Args:
        bound: The statement.
        dialect: The database's dialect.

    Returns:
        The assignments; an empty list if sqlglot cannot parse the statement.
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    keyword, _, rest = _text_with_named_placeholders(bound).lstrip().partition(" ")
    if keyword.upper() not in _STORING:
        return []
    if keyword.upper() == "REPLACE":  # assigns like INSERT, but sqlglot does not parse REPLACE
        keyword = "INSERT"
    try:
        trees = parse(f"{keyword} {rest}", dialect)
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


def _text_with_named_placeholders(bound: BoundStatement) -> str:
    """Return a statement with a name for each placeholder, for :func:`_parameter_index`."""
    text = bound.pieces[0]
    for index, piece in enumerate(bound.pieces[1:]):
        text += f" :{_PLACEHOLDER_PREFIX}{index} {piece}"
    return text


def _assigned_by_merge_branch(tree: Any, change: Any) -> Iterator[Assigned]:
    """Yield the columns to which a branch of a MERGE assigns parameters.

    Args:
        tree: The MERGE.
        change: The UPDATE or INSERT of the branch. An INSERT without a list of columns is ignored.
    """
    from sqlglot import exp

    table = _name(tree.this)
    if isinstance(change, exp.Update):
        yield from _assigned_by_set(table, change.expressions)
        return
    column_list = change.this
    values = change.expression
    if isinstance(column_list, exp.Tuple) and isinstance(values, exp.Tuple):
        columns = [column.name for column in column_list.expressions]
        yield from _assigned_by_row(table, columns, values.expressions)


def _name(table: Any) -> str:
    return ".".join(part.name for part in table.parts)


def _assigned_by_set(table: str, changes: Sequence[Any]) -> Iterator[Assigned]:
    """Yield the columns to which the assignments of SET assign parameters."""
    from sqlglot import exp

    for change in changes:
        if isinstance(change, exp.EQ) and isinstance(change.this, exp.Column):
            parameter = _parameter_index(change.expression)
            if parameter is not None:
                yield table, change.this.name, parameter


def _assigned_by_row(
    table: str, columns: Sequence[str | int], items: Sequence[Any]
) -> Iterator[Assigned]:
    """Yield the columns to which a row of VALUES assigns parameters."""
    for column, item in zip(columns, items, strict=False):
        parameter = _parameter_index(item)
        if parameter is not None:
            yield table, column, parameter


def _assigned_by_insert_or_update(tree: Any) -> Iterator[Assigned]:
    """Yield the columns to which an INSERT or UPDATE assigns parameters.

    If an INSERT has no list of columns, the index of the column stands for its name.
    """
    from sqlglot import exp

    target = tree.this
    columns: list[str] = []
    if isinstance(target, exp.Schema):
        columns = [column.name for column in target.expressions]
        target = target.this
    if not isinstance(target, exp.Table):
        return
    table = _name(target)
    if isinstance(tree, exp.Insert):
        for row in _rows(tree.args.get("expression")):
            yield from _assigned_by_row(table, columns or range(len(row)), row)
    assignments = list(tree.args.get("expressions") or ())  # SET of an UPDATE
    conflict = tree.args.get("conflict")  # ON CONFLICT or ON DUPLICATE KEY of an INSERT
    if conflict is not None:
        assignments += conflict.args.get("expressions") or ()  # SET of the conflict's UPDATE
    yield from _assigned_by_set(table, assignments)


def _rows(source: Any) -> Iterator[Sequence[Any]]:
    """Yield the rows of expressions that an INSERT stores, from its VALUES or SELECT."""
    from sqlglot import exp

    if isinstance(source, exp.Values):
        for row in source.expressions:
            yield row.expressions if isinstance(row, exp.Tuple) else [row]
    elif isinstance(source, exp.Select):
        yield source.expressions


def _parameter_index(item: Any) -> int | None:
    """Return the index of a parameter; None for an expression that is not just a parameter."""
    from sqlglot import exp

    while isinstance(item, (exp.Paren, exp.Alias)):
        item = item.this
    if isinstance(item, exp.Placeholder) and item.name.startswith(_PLACEHOLDER_PREFIX):
        return int(item.name.removeprefix(_PLACEHOLDER_PREFIX))
    return None


def column_types_of(
    bound: BoundStatement, dialect: Dialect, find_table: Callable[[str], Table | None]
) -> list[str | None]:
    """Return the column type for each parameter; None for a parameter not stored in a column.

    Args:
        bound: The statement.
        dialect: The database's dialect.
        find_table: Returns a table with its columns, by the table's name.
    """
    types: list[str | None] = [None] * len(bound.values)
    tables: dict[str, Table | None] = {}
    for table_name, column_name, parameter in stored_parameters(bound, dialect):
        if table_name not in tables:
            tables[table_name] = find_table(table_name)
        table = tables[table_name]
        column = None if table is None else _find_column(table, column_name)
        types[parameter] = None if column is None else column.type
    return types


def _find_column(table: Table, name: str | int) -> Column | None:
    """Find a column by its name, ignoring case, or by its index."""
    if isinstance(name, int):
        return table.columns[name] if name < len(table.columns) else None
    lower_name = name.lower()
    return next((column for column in table.columns if column.name.lower() == lower_name), None)
