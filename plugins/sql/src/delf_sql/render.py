"""The schema as compact text for a prompt: a line for each table, within a budget."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from delf_sql.catalog import Column, Relation, Table
from delf_sql.functions import words
from delf_sql.target import Dialect

_LONGEST_COMMENT: Final = 100
_LONGEST_TYPE: Final = 120
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOLDED: Final = re.compile(r"[a-z_][a-z0-9_]*")
_FOLDS: Final = ("mysql", "sqlite", "duckdb", "mssql")
"""Those that find a name whatever the case it is written in."""
_BACKTICKS: Final = ("mysql", "bigquery", "databricks", "hive", "spark")
_RESERVED: Final = words(
    "all alter analyze and as asc between by case check column constraint create cross "
    "current_date default delete desc distinct drop else end except exists false fetch for "
    "foreign from full grant group having in index inner insert intersect into is join key "
    "left like limit lock natural not null offset on or order outer primary rank references "
    "right row rows select set table then to trigger true union unique update user using "
    "values when where window with"
)
_RESERVE_FOR_NOTE: Final = 120


def quoted(name: str, dialect: Dialect) -> str:
    """A name as a statement has to write it."""
    plain = _PLAIN if dialect in _FOLDS else _FOLDED
    if plain.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    sign = "`" if dialect in _BACKTICKS else '"'
    return f"{sign}{_one_line(name, 200).replace(sign, sign * 2)}{sign}"


def relation_name(relation: Relation, dialect: Dialect) -> str:
    """A table's name as a statement has to write it, with its schema where that is needed."""
    name = quoted(relation.name, dialect)
    return f"{quoted(relation.schema, dialect)}.{name}" if relation.schema else name


def table_line(table: Table, dialect: Dialect) -> str:
    """``orders(id int pk, customer_id int -> customers.id, total numeric) -- What was sold``."""
    columns = ", ".join(_column(column, dialect) for column in table.columns)
    kind = "view " if table.relation.kind == "view" else ""
    if table.broken is not None:
        why = _one_line(table.broken, _LONGEST_COMMENT)
        return f"{kind}{relation_name(table.relation, dialect)} -- cannot be read: {why}"
    line = f"{kind}{relation_name(table.relation, dialect)}({columns})"
    comment = _one_line(table.relation.comment or "", _LONGEST_COMMENT)
    return f"{line} -- {comment}" if comment else line


def _column(column: Column, dialect: Dialect) -> str:
    parts = [quoted(column.name, dialect), _one_line(column.type, _LONGEST_TYPE)]
    if column.primary_key:
        parts.append("pk")
    elif column.unique:
        parts.append("unique")
    if column.references:
        parts.append(f"-> {_one_line(column.references, 200)}")
    if column.comment:
        comment = _one_line(column.comment, _LONGEST_COMMENT).replace("*/", "* /")
        parts.append(f"/* {comment} */")
    return " ".join(part for part in parts if part)


def _one_line(text: str, longest: int) -> str:
    """Text from the database, which must not look like more than one line of a prompt."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def whole_schema(tables: Sequence[Table], dialect: Dialect, budget: int) -> str | None:
    """All tables with their columns; None when that is longer than the budget."""
    text = "\n".join(table_line(table, dialect) for table in tables)
    return text if len(text) <= budget else None


def partial_schema(
    detailed: Iterable[Table],
    others: Sequence[Relation],
    dialect: Dialect,
    budget: int,
    name: str,
) -> str:
    """Return the part that fits: tables with columns, then names, then where to ask for more."""
    lines: list[str] = []
    left = budget - _RESERVE_FOR_NOTE
    for_details = left // 2
    more: list[Relation] = []
    for table in detailed:
        line = table_line(table, dialect)
        if len(line) < for_details:
            lines.append(line)
            for_details -= len(line) + 1
            left -= len(line) + 1
        else:
            more.append(table.relation)
    names: list[str] = []
    rest = [*more, *others]
    for relation in rest:
        text = relation_name(relation, dialect)
        if len(text) + 2 > left:
            break
        names.append(text)
        left -= len(text) + 2
    if names:
        lines.append(f"{'other ' if lines else ''}tables: {', '.join(names)}")
    hidden = len(rest) - len(names)
    note = f"and {hidden} more; " if hidden else ""
    lines.append(f"({note}columns of a table: await {name}.schema('table'))")
    return "\n".join(lines)
