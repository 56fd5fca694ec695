"""PostgreSQL's catalogue: three statements, whatever the number of tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from delf_sql.catalog import Column, Relation, Table

if TYPE_CHECKING:
    import psycopg

_RELATIONS: Final = """
SELECT c.oid, n.nspname, c.relname, c.relkind IN ('v', 'm'), pg_table_is_visible(c.oid),
       obj_description(c.oid, 'pg_class')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
  AND (has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE')
       OR has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE'))
ORDER BY NOT pg_table_is_visible(c.oid), n.nspname, c.relname
"""
_COLUMNS: Final = """
SELECT a.attrelid, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       col_description(a.attrelid, a.attnum),
       ARRAY(SELECT e.enumlabel::text FROM pg_catalog.pg_enum e
             WHERE e.enumtypid = a.atttypid ORDER BY e.enumsortorder)
FROM pg_catalog.pg_attribute a
WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
_KEYS: Final = """
SELECT k.conrelid, k.contype::text, k.confrelid::regclass::text,
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY u(n, i)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.n
             ORDER BY u.i),
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY u(n, i)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.n
             ORDER BY u.i)
FROM pg_catalog.pg_constraint k
WHERE k.conrelid = ANY (%s::oid[]) AND k.contype IN ('p', 'f', 'u')
ORDER BY k.conname
"""
_SHORT_TYPES: Final = (
    ("timestamp with time zone", "timestamptz"),
    ("timestamp without time zone", "timestamp"),
    ("time with time zone", "timetz"),
    ("time without time zone", "time"),
    ("character varying", "varchar"),
    ("double precision", "float8"),
    ("integer", "int"),
)


def read_relations(driver: psycopg.Connection[Any]) -> list[Relation]:
    """All tables and views that this user may use, those of the search path first.

    Args:
        driver: A connection.
    """
    cursor = driver.execute(_RELATIONS)
    return [
        Relation(
            name=name,
            schema=None if visible else schema,
            kind="view" if view else "table",
            comment=comment,
            key=oid,
        )
        for oid, schema, name, view, visible, comment in cursor.fetchall()
    ]


def read_tables(driver: psycopg.Connection[Any], relations: Sequence[Relation]) -> list[Table]:
    """Tables with their columns and keys.

    Args:
        driver: A connection.
        relations: Of :func:`read_relations`.
    """
    tables = {relation.key: Table(relation) for relation in relations}
    keys = list(tables)
    for oid, name, kind, not_null, comment, labels in driver.execute(_COLUMNS, [keys]).fetchall():
        tables[oid].columns.append(
            Column(name=name, type=_type(kind, labels), nullable=not not_null, comment=comment)
        )
    for oid, kind, other, mine, theirs in driver.execute(_KEYS, [keys]).fetchall():
        _apply_key(tables[oid], kind, other, mine, theirs)
    return list(tables.values())


def _apply_key(
    table: Table, kind: str, other: str, mine: Sequence[str], theirs: Sequence[str]
) -> None:
    for place, name in enumerate(mine):
        column = table.column(name)
        if column is None:
            continue
        if kind == "p":
            column.primary_key = True
        elif kind == "f":
            column.references = f"{other}.{theirs[place]}"
        elif len(mine) == 1:
            column.unique = True


def _type(kind: str, labels: Sequence[str]) -> str:
    for long, short in _SHORT_TYPES:
        kind = kind.replace(long, short)
    if labels:
        return f"{kind}({', '.join(map(repr, labels))})"
    return kind
