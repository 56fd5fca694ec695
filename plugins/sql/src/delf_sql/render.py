"""The schema as compact text for a prompt, one line per table, within a budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from delf_sql.catalog import Column, Relation, Table
from delf_sql.functions import words
from delf_sql.target import Dialect

_LONGEST_COMMENT: Final = 100
_LONGEST_TYPE: Final = 120
_ANY_CASE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOWER_CASE_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_CASE_INSENSITIVE: Final = ("mysql", "sqlite", "duckdb", "mssql")
_BACKTICKS: Final = ("mysql", "bigquery", "databricks", "hive", "spark")
_RESERVED: Final = words(
    "all alter analyze and as asc between by case check column constraint create cross "
    "current_date default delete desc distinct drop else end except exists false fetch for "
    "foreign from full grant group having in index inner insert intersect into is join key "
    "left like limit lock natural not null offset on or order outer primary rank references "
    "right row rows select set table then to trigger true union unique update user using "
    "values when where window with"
)
# Words that a dialect reserves in addition to :data:`_RESERVED`.
_RESERVED_BY: Final[dict[Dialect, frozenset[str]]] = {
    "duckdb": words(
        "analyse anti any array asof asymmetric at authorization binary both cast collate "
        "collation concurrently deferrable describe do freeze glob ilike initially isnull lambda "
        "lateral leading notnull only overlaps pivot pivot_longer pivot_wider placing positional "
        "qualify returning semi show similar some summarize symmetric tablesample trailing unpack "
        "unpivot variadic verbose"
    ),
    "postgresql": words("collation lateral tablesample"),
    "sqlite": words(
        "add cast collate commit deferrable escape isnull nothing notnull returning transaction"
    ),
}
# Dialects whose reserved words are all listed above, so that SQLAlchemy is not imported for them.
_WITH_COMPLETE_LIST: Final = ("duckdb", "sqlite")
_RESERVE_FOR_NOTE: Final = 120
_RESERVE_FOR_CUT: Final = 24
# The share of the budget that names of tables without columns may take.
_NAMES_SHARE: Final = 0.2
# The maximum length of a table's line while other tables wait for space. A longer line shows only
# the columns that the task needs.
_MAX_LINE_CHARS: Final = 600


def quoted(name: str, dialect: Dialect) -> str:
    """Quote a name for a statement if necessary."""
    valid_unquoted = _ANY_CASE_NAME if dialect in _CASE_INSENSITIVE else _LOWER_CASE_NAME
    if valid_unquoted.fullmatch(name) and name.lower() not in _reserved_words(dialect):
        return name
    sign = "`" if dialect in _BACKTICKS else '"'
    return f"{sign}{_one_line(name, 200).replace(sign, sign * 2)}{sign}"


@lru_cache
def _reserved_words(dialect: Dialect) -> frozenset[str]:
    """Return the words that a dialect accepts as names only if they are quoted."""
    reserved = _RESERVED_BY.get(dialect, frozenset[str]())
    if dialect not in _WITH_COMPLETE_LIST:
        from sqlalchemy.dialects import registry
        from sqlalchemy.exc import NoSuchModuleError

        try:
            preparer: Any = registry.load(dialect)()
            reserved |= frozenset(preparer.identifier_preparer.reserved_words)
        except (NoSuchModuleError, ImportError):
            pass  # a dialect that SQLAlchemy does not know has no list
    return _RESERVED | reserved


def relation_name(relation: Relation, dialect: Dialect) -> str:
    """Format a table's name for a statement, with its schema if necessary."""
    name = quoted(relation.name, dialect)
    if relation.schema:
        return f"{quoted(relation.schema, dialect)}.{name}"
    return name


def table_line(table: Table, dialect: Dialect, omitted_count: int = 0) -> str:
    """Format a table: ``orders(id int pk, customer_id int -> customers.id, total numeric)``.

    Args:
        table: The table, with the columns to show.
        dialect: The database's dialect.
        omitted_count: The number of omitted columns.
    """
    name = relation_name(table.relation, dialect)
    if table.relation.kind == "view":
        name = f"view {name}"
    if table.broken is not None:
        reason = _one_line(table.broken, _LONGEST_COMMENT)
        return f"{name} -- cannot be read: {reason}"
    columns = [_column(column, dialect) for column in table.columns]
    if omitted_count:
        columns.append(f"… {omitted_count} more columns")
    line = f"{name}({', '.join(columns)})"
    comment = _one_line(table.relation.comment or "", _LONGEST_COMMENT)
    return f"{line} -- {comment}" if comment else line


def _column(column: Column, dialect: Dialect) -> str:
    """Format a column: name, type, key, reference, values and comment."""
    parts = [quoted(column.name, dialect), _one_line(column.type, _LONGEST_TYPE)]
    if column.primary_key:
        parts.append("pk")
    elif column.unique:
        parts.append("unique")
    if column.references:
        parts.append(f"-> {_one_line(column.references, 200)}")
    if column.value_description:
        parts.append(f"= {column.value_description}")
    if column.comment:
        comment = _one_line(column.comment, _LONGEST_COMMENT).replace("*/", "* /")
        parts.append(f"/* {comment} */")
    return " ".join(part for part in parts if part)


def _one_line(text: str, longest: int) -> str:
    """Reduce text from the database to one line, for a prompt."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def with_column_values(lines: str, tables: Sequence[Table], dialect: Dialect, budget: int) -> str:
    """Add descriptions of column values to the lines of a schema, within the budget.

    Tables whose lines omit columns get no descriptions.

    Args:
        lines: The lines of the schema.
        tables: The tables with described columns, most relevant first.
        dialect: The database's dialect.
        budget: The maximum number of characters.
    """
    result_lines = lines.split("\n")
    remaining_chars = budget - len(lines)
    for table in tables:
        table_without_values = replace(
            table, columns=[replace(column, value_description=None) for column in table.columns]
        )
        plain_line = table_line(table_without_values, dialect)
        full_line = table_line(table, dialect)
        extra_chars = len(full_line) - len(plain_line)
        if plain_line in result_lines and extra_chars <= remaining_chars:
            result_lines[result_lines.index(plain_line)] = full_line
            remaining_chars -= extra_chars
    return "\n".join(result_lines)


def whole_schema(tables: Sequence[Table], dialect: Dialect, budget: int) -> str | None:
    """Format all tables with columns; return None if that exceeds the budget."""
    text = "\n".join(table_line(table, dialect) for table in tables)
    return text if len(text) <= budget else None


class PartialSchema:
    """The part of a schema that fits a budget.

    The text has the most relevant tables with their columns, then the names of other tables, then a
    hint on how to look up the rest.

    Args:
        dialect: The database's dialect.
        budget: The maximum number of characters.
        name: The connection's name.
        column_rank: The sort key of columns, lowest for the most relevant column.
    """

    def __init__(
        self, dialect: Dialect, budget: int, name: str, column_rank: Callable[[Column], int]
    ) -> None:
        self._dialect = dialect
        self._budget = budget - _RESERVE_FOR_NOTE
        self._column_rank = column_rank
        self._name = name

    def text(self, ranked: Sequence[Table], others: Sequence[Relation] = ()) -> str:
        """Format tables: first those with columns, then the names of the others.

        Args:
            ranked: Tables with columns, most relevant first.
            others: Tables without columns.
        """
        all_relations = [table.relation for table in ranked]
        all_relations += others
        names = [relation_name(relation, self._dialect) for relation in all_relations]
        # Reserve space for the names of the tables that get no line. These names can also use the
        # space that the lines leave unused.
        chars_of_all_names = sum(len(name) + 2 for name in names)
        reserved_chars = min(chars_of_all_names, round(_NAMES_SHARE * self._budget))
        lines = self._lines(ranked, self._budget - reserved_chars)
        # The lines belong to the first tables in the order of ``names``.
        names_without_line = names[len(lines) :]
        used_chars = sum(len(line) + 1 for line in lines)
        remaining_chars = self._budget - used_chars
        listed_names = _first_fitting(names_without_line, remaining_chars)
        if listed_names:
            label = "other tables" if lines else "tables"
            lines.append(f"{label}: {', '.join(listed_names)}")
        hidden_count = len(names_without_line) - len(listed_names)
        note = f"and {hidden_count} more tables; " if hidden_count else ""
        schema_calls = f"{self._name}.schema('table'), or {self._name}.schema(search='words')"
        lines.append(f"({note}all columns: {schema_calls})")
        return "\n".join(lines)

    def _lines(self, ranked: Sequence[Table], budget: int) -> list[str]:
        """Format as many tables as fit, one a line, the most relevant first.

        The lines of wide tables are cut at first. Then they are lengthened with the rest of the
        budget, the lines of the most relevant tables first.
        """
        # At most a third of the budget for one table, so that several tables fit.
        max_chars_at_first = min(_MAX_LINE_CHARS, budget // 3)
        cut_lines: list[str] = []
        remaining = budget  # the characters that no line uses yet
        for table in ranked:
            line = self._line(table, max_chars_at_first)
            if len(line) >= remaining:
                break
            cut_lines.append(line)
            remaining -= len(line) + 1  # with the line break
        lines: list[str] = []
        for table, cut_line in zip(ranked, cut_lines, strict=False):
            line = self._line(table, len(cut_line) + remaining)
            lines.append(line)
            remaining -= len(line) - len(cut_line)
        return lines

    def _line(self, table: Table, max_chars: int) -> str:
        """Format a table completely if it fits, else with its most relevant columns."""
        full_line = table_line(table, self._dialect)
        if len(full_line) <= max_chars:
            return full_line
        line_without_columns = table_line(replace(table, columns=[]), self._dialect)
        remaining_chars = max_chars - len(line_without_columns) - _RESERVE_FOR_CUT
        ranks = [self._column_rank(column) for column in table.columns]
        numbers_by_relevance = sorted(range(len(ranks)), key=ranks.__getitem__)
        kept_numbers: set[int] = set()
        for number in numbers_by_relevance:
            size = len(_column(table.columns[number], self._dialect)) + len(", ")
            if size > remaining_chars:
                break
            kept_numbers.add(number)
            remaining_chars -= size
        columns = [table.columns[number] for number in sorted(kept_numbers)]
        omitted_count = len(table.columns) - len(columns)
        return table_line(replace(table, columns=columns), self._dialect, omitted_count)


def _first_fitting(names: Sequence[str], max_chars: int) -> Sequence[str]:
    """Return as many of the first names as fit into a number of characters, with separators."""
    for count, name in enumerate(names):
        max_chars -= len(name) + 2
        if max_chars < 0:
            return names[:count]
    return names
