"""The content of a database as records, which each backend fills from its catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypedDict

INVALID_DEFINITION: Final = "its definition makes no sense"
"""The reason why a view is broken, without the database's message."""
RelationKind = Literal["table", "view"]


class ColumnInfo(TypedDict):
    """The description of a column that scripts get."""

    name: str
    type: str
    nullable: bool
    primary_key: bool
    references: str | None
    comment: str | None


class TableInfo(TypedDict):
    """The description of a table that scripts get."""

    table: str
    kind: str
    comment: str | None
    columns: list[ColumnInfo] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table or view without its columns.

    Args:
        name: The unquoted name.
        schema: The schema; None if the name alone is unambiguous.
        kind: ``table`` or ``view``.
        comment: The comment in the database.
        key: The backend's internal key.
    """

    name: str
    schema: str | None = None
    kind: RelationKind = "table"
    comment: str | None = None
    key: Any = None

    @property
    def full_name(self) -> str:
        """The name, with its schema if needed."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(slots=True, kw_only=True)
class Column:
    """A column.

    Args:
        name: The unquoted name.
        type: The type, as the database calls it.
        nullable: Whether the column may be NULL.
        primary_key: Whether the column is part of the primary key.
        unique: Whether a unique constraint covers this column alone.
        references: The column that a foreign key refers to, with its table.
        comment: The comment in the database.
        value_description: A description of the values in some rows, for the prompt.
    """

    name: str
    type: str
    nullable: bool = True
    primary_key: bool = False
    unique: bool = False
    references: str | None = None
    comment: str | None = None
    value_description: str | None = None

    def info(self) -> ColumnInfo:
        """Return the column's description in the form that scripts get."""
        return ColumnInfo(
            name=self.name,
            type=self.type,
            nullable=self.nullable,
            primary_key=self.primary_key,
            references=self.references,
            comment=self.comment,
        )


@dataclass(slots=True)
class Table:
    """A table or view with its columns.

    Args:
        relation: The table or view.
        columns: The columns.
        broken: The reason that the columns cannot be read, such as a view whose table is missing.
    """

    relation: Relation
    columns: list[Column] = field(default_factory=list[Column])
    broken: str | None = None

    def column(self, name: str) -> Column | None:
        """Find a column by name."""
        return next((column for column in self.columns if column.name == name), None)

    def info(self) -> TableInfo:
        """Return the description of the table that scripts get."""
        if self.broken is not None:
            return {**relation_info(self.relation), "comment": f"cannot be read: {self.broken}"}
        return relation_info(self.relation, [column.info() for column in self.columns])


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Queries that list a database's content; their number does not depend on the number of tables.

    Args:
        relations: Returns key, schema (NULL if not needed), name, view flag and comment of each
            table and view.
        columns: Takes the tables' ``keys``; returns table key, name, type, nullable flag and
            comment of each column.
        constraints: Takes the tables' ``keys``; returns table key, column name, kind and referenced
            column of each constraint. The kind is ``p`` (primary key), ``u`` (unique) or ``f``
            (foreign key).
    """

    relations: str
    columns: str
    constraints: str


def relations_of(rows: Iterable[Sequence[Any]]) -> list[Relation]:
    """Return the relations in the rows of the query :attr:`Catalogue.relations`."""
    return [
        Relation(
            name=name,
            schema=schema,
            kind="view" if is_view else "table",
            comment=comment,
            key=key,
        )
        for key, schema, name, is_view, comment in rows
    ]


def tables_of(
    relations: Iterable[Relation],
    columns: Iterable[Sequence[Any]],
    constraints: Iterable[Sequence[Any]],
) -> list[Table]:
    """Build tables from the rows that a :class:`Catalogue` returns for columns and constraints."""
    tables = {relation.key: Table(relation) for relation in relations}
    for key, name, kind, nullable, comment in columns:
        tables[key].columns.append(
            Column(name=name, type=kind, nullable=bool(nullable), comment=comment)
        )
    for key, name, role, other in constraints:
        column = tables[key].column(name)
        if column is None:
            continue  # the catalogue does not list the column, for example because it is hidden
        # "p" is a primary key, "u" a unique column; any other role is a reference.
        if role == "p":
            column.primary_key = True
            column.nullable = False
        elif role == "u":
            column.unique = True
        else:
            column.references = other
    for table in tables.values():
        # A catalogue has no columns for a view with an invalid definition, such as one of a table
        # that was dropped.
        if not table.columns:
            table.broken = INVALID_DEFINITION
    return list(tables.values())


def relation_info(relation: Relation, columns: list[ColumnInfo] | None = None) -> TableInfo:
    """Return the description of a table or view that scripts get."""
    return TableInfo(
        table=relation.full_name, kind=relation.kind, comment=relation.comment, columns=columns
    )


def find_relation(name: str, relations: Iterable[Relation]) -> Relation | None:
    """Find a table or view by its exact name, else ignoring case, else without its schema."""
    wanted = name.replace('"', "").replace("`", "")
    listed = list(relations)
    exact = [r for r in listed if r.full_name == wanted]
    folded = [r for r in listed if r.full_name.lower() == wanted.lower()]
    bare = [r for r in listed if r.name.lower() == wanted.lower()]
    matches = [*exact, *folded, *bare]
    return matches[0] if matches else None
