"""The catalogue of MySQL and MariaDB, by the information schema of the current database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from delf_sql.catalog import Column, Relation, Table

Rows = Callable[..., Sequence[Sequence[Any]]]

# Every statement has a LIMIT of its own, since a reader's session has one for all others.
_RELATIONS: Final = """
SELECT table_name, table_type, table_comment FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_type IN ('BASE TABLE', 'VIEW', 'SYSTEM VERSIONED')
ORDER BY table_name LIMIT 1000000
"""
_COLUMNS: Final = """
SELECT table_name, column_name, column_type, is_nullable, column_key, column_comment
FROM information_schema.columns
WHERE table_schema = DATABASE() {only} ORDER BY table_name, ordinal_position LIMIT 1000000
"""
_KEYS: Final = """
SELECT table_name, column_name, referenced_table_schema, referenced_table_name,
       referenced_column_name, DATABASE()
FROM information_schema.key_column_usage
WHERE table_schema = DATABASE() AND referenced_table_name IS NOT NULL {only} LIMIT 1000000
"""


def read_relations(rows: Rows, driver: Any) -> list[Relation]:
    """All tables and views of the database.

    Args:
        rows: Runs a statement and gives its rows.
        driver: A connection.
    """
    return [
        Relation(
            name=name,
            kind="view" if kind == "VIEW" else "table",
            comment=comment if comment and kind != "VIEW" else None,
            key=name,
        )
        for name, kind, comment in rows(driver, _RELATIONS)
    ]


def read_tables(rows: Rows, driver: Any, relations: Sequence[Relation]) -> list[Table]:
    """Tables with their columns and keys.

    Args:
        rows: Runs a statement and gives its rows.
        driver: A connection.
        relations: Of :func:`read_relations`.
    """
    tables = {relation.key: Table(relation) for relation in relations}
    names = list(tables)
    if not names:
        return []
    only = f"AND table_name IN ({', '.join(['%s'] * len(names))})"
    for name, column, kind, nullable, key, comment in rows(
        driver, _COLUMNS.format(only=only), names
    ):
        tables[name].columns.append(
            Column(
                name=column,
                type=kind,
                nullable=nullable == "YES",
                primary_key=key == "PRI",
                unique=key == "UNI",
                comment=comment or None,
            )
        )
    for name, mine, schema, other, theirs, current in rows(driver, _KEYS.format(only=only), names):
        column = tables[name].column(mine)
        if column is not None:
            place = other if schema == current else f"{schema}.{other}"
            column.references = f"{place}.{theirs}"
    return list(tables.values())
