"""The trust in a query's rows, from the tables and columns declared as the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

from delf.errors import ConnectionConfigurationError, ToolRefusedError
from delf.types import Trust
from delf_sql.catalog import INVALID_DEFINITION, Relation, Table
from delf_sql.functions import is_listed
from delf_sql.gate import check_query
from delf_sql.placeholders import Params, without_placeholders
from delf_sql.target import Dialect
from delf_sql.tokens import parse

if TYPE_CHECKING:
    from sqlglot import exp

# Dialects that always ignore letter case in the names of tables and columns.
_CASE_INSENSITIVE: Final = ("sqlite", "duckdb", "mssql")
# Longer statements count as untrusted.
_MAX_STATEMENT_CHARS: Final = 10_000
_MAX_PARTS: Final = 3
_OUTSIDE: Final[Trust] = "outside"


@dataclass(frozen=True, slots=True)
class OwnTables:
    """The tables and columns whose contents are declared as the user's own.

    Args:
        trust: A mapping from ``table``, ``schema.table`` or ``table.column`` to ``own`` if only the
            user writes the contents, else to ``outside``.
        dialect: The database's dialect.
        functions: The functions that the user allows in addition to those known to only read.
    """

    trust: Mapping[str, Trust]
    dialect: Dialect
    functions: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(
        cls, name: str, trust: Mapping[str, Trust], dialect: Dialect, functions: frozenset[str]
    ) -> OwnTables:
        """Return the declared tables after checking the keys of the setting ``trust``.

        Raises:
            ConnectionConfigurationError: For a key that does not name a table or column.
        """
        for key in trust:
            parts = key.split(".")
            has_empty_part = any(not part.strip() for part in parts)
            if has_empty_part or len(parts) > _MAX_PARTS or "*" in key:
                raise ConnectionConfigurationError(
                    f"connection {name!r}: trust names {key!r}, not a table or column",
                    hint='trust = {"customers" = "own", "orders.id" = "own"}; all others are '
                    "outside",
                )
        if dialect in _CASE_INSENSITIVE:
            trust = {key.lower(): level for key, level in trust.items()}
        return cls(dict(trust), dialect, functions)

    def is_own_table(self, table: str) -> bool:
        """Return whether the setting ``trust`` says that only the user writes to a table.

        False if the setting names a column of the table as ``outside``: one column that others
        write, such as ``orders.note``, makes the whole row untrusted.
        """
        if self.trust.get(self._key(table)) != "own":
            return False
        outside_columns = [key for key in self._outside_keys() if "." in key]
        tables_of_columns = [key.rpartition(".")[0] for key in outside_columns]
        return not any(_may_mean(name, table) for name in tables_of_columns)

    def is_own_column(self, table: str, column: str) -> bool:
        """Return whether the setting ``trust`` says that only the user writes a column."""
        name = f"{self._key(table)}.{self._key(column)}"
        trust_of_table = self.trust.get(self._key(table))
        if self.trust.get(name, trust_of_table) != "own":
            return False
        # The setting may name the column in another way, such as ``shop.orders.note``. A key
        # without a dot names a table, even if the column has the same name.
        outside_columns = [key for key in self._outside_keys() if "." in key]
        return not any(_may_mean(key, name) for key in outside_columns)

    def _outside_keys(self) -> list[str]:
        return [key for key, level in self.trust.items() if level != "own"]

    def _key(self, name: str) -> str:
        return name.lower() if self.dialect in _CASE_INSENSITIVE else name

    def without_comment(self, relation: Relation) -> Relation:
        """Return a table without its comment, which other people may have written.

        The comment stays if the configuration says that only the user writes the table's columns.
        """
        if self.is_own_table(relation.full_name):
            return relation
        return replace(relation, comment=None)

    def with_trusted_comments(self, table: Table) -> Table:
        """Return a table with only the comments that the setting ``trust`` declares as ``own``."""
        name = table.relation.full_name
        columns = [
            column if self.is_own_column(name, column.name) else replace(column, comment=None)
            for column in table.columns
        ]
        # The database's message about a broken view may quote the view's definition, which other
        # people may have written. A fixed text replaces the message.
        broken_reason = None if table.broken is None else INVALID_DEFINITION
        return Table(self.without_comment(table.relation), columns, broken_reason)

    def trust_of_query(self, statement: object, params: object) -> Trust | Mapping[str, Trust]:
        """Return the trust level of a query's rows, or a mapping from column to trust level."""
        # Parsing a long statement would block the event loop.
        if not isinstance(statement, str) or len(statement) > _MAX_STATEMENT_CHARS:
            return _OUTSIDE
        bound_params = cast("Params", params if isinstance(params, (dict, list, tuple)) else None)
        try:
            tree = self._parsed(statement, bound_params)
        except ToolRefusedError:  # query() reports the mistake to the script
            return _OUTSIDE
        return _OUTSIDE if tree is None else self._trust_of_tree(tree)

    def _parsed(self, statement: str, params: Params) -> exp.Expression | None:
        """Parse a query.

        Return None if the query has a function or session parameter that may read data which the
        query does not name.
        """
        from sqlglot import exp

        checked = check_query(statement, self.dialect, params, self.functions)
        # A function that the user allowed may read any table.
        if any(is_listed(name, self.functions) for name in checked.calls):
            return None
        text = without_placeholders(checked.text, checked.tokens, params, self.dialect)
        tree = parse(text, self.dialect)[0]
        unknown_calls = (exp.Anonymous, exp.AnonymousAggFunc, exp.SessionParameter, exp.Parameter)
        return None if tree.find(*unknown_calls) else tree

    def _trust_of_tree(self, tree: exp.Expression) -> Trust | Mapping[str, Trust]:
        """Return ``own`` if a query reads only tables that only the user writes.

        For any other query of a single table, return the trust by column; else ``outside``.
        """
        from sqlglot import exp

        sources = self._source_tables(tree)
        tables = [table for table in sources if table is not None]
        if not tables or len(tables) < len(sources):  # no source, or one that may not be a table
            return _OUTSIDE
        if all(self.is_own_table(table) for table in tables):
            return "own"
        is_one_table = len([*tree.find_all(exp.Table)]) == 1 and not tree.find(exp.CTE)
        if is_one_table:
            return self._trust_by_column(tree, tables[0])
        return _OUTSIDE

    def _source_tables(self, tree: exp.Expression) -> list[str | None]:
        """Return the names of the tables that a query reads.

        None stands for a source that may not be a table, such as a function or a file.
        """
        from sqlglot import exp

        # The common table expressions (CTEs) of a WITH clause, whose names look like tables.
        ctes: list[exp.CTE] = tree.ctes if isinstance(tree, exp.Query) else []
        has_nested_ctes = len(list(tree.find_all(exp.CTE))) != len(ctes)
        with_clause = tree.find(exp.With)
        is_recursive = with_clause is not None and with_clause.args.get("recursive")
        if has_nested_ctes or is_recursive:
            return [None]  # it is unclear which names are tables
        cte_names = [self._folded_name(cte.args["alias"].this) for cte in ctes]
        sources: list[str | None] = []
        for index, cte in enumerate(ctes):
            names = [self._table_name(table) for table in cte.find_all(exp.Table)]
            # Inside a CTE, the name of an earlier CTE always means that CTE. The name of the CTE
            # itself or of a later CTE may mean a table.
            earlier_ctes = cte_names[:index]
            this_and_later_ctes = cte_names[index:]
            sources += _resolve_names(names, earlier_ctes, this_and_later_ctes)
        tables_outside_of_ctes = [
            table for table in tree.find_all(exp.Table) if table.find_ancestor(exp.CTE) is None
        ]
        names_outside = [self._table_name(table) for table in tables_outside_of_ctes]
        return sources + _resolve_names(names_outside, cte_names, [])

    def _table_name(self, table: exp.Table) -> str | None:
        """Return a table's name as the setting ``trust`` spells it; None for a function or file."""
        from sqlglot import exp

        parts = [table.args.get(part) for part in ("catalog", "db", "this")]
        names = [part for part in parts if part]
        if not all(isinstance(part, exp.Identifier) for part in names):
            return None
        return ".".join(map(self._folded_name, names))

    def _trust_by_column(self, tree: exp.Expression, table: str) -> Trust | Mapping[str, Trust]:
        """Return the trust level of the columns of a query that reads one table.

        A column of the result is trusted (``own``) if it is computed only from columns of the table
        that are declared as the user's own. No column is trusted if the query has ``*`` or a
        subquery, or if another part of the query, such as a condition, uses a column that is not
        the user's own.

        Returns:
            A mapping from the trusted columns to ``own``, and from ``*``, which stands for all
            other columns, to ``outside``. If no column is trusted, only ``outside``.
        """
        from sqlglot import exp

        if not isinstance(tree, exp.Select) or not _uses_only_named_columns(tree):
            return _OUTSIDE
        result_columns = self._result_columns(tree, table)
        if result_columns is None:
            return _OUTSIDE
        unselected_columns = _columns_outside_of_select_list(tree)
        if not all(self._is_own(table, column) for column in unselected_columns):
            return _OUTSIDE
        own_spellings = _spellings_of_own_columns(result_columns)
        if not own_spellings:
            return _OUTSIDE
        trust: dict[str, Trust] = dict.fromkeys(sorted(own_spellings), "own")
        trust["*"] = "outside"
        return trust

    def _result_columns(self, tree: exp.Select, table: str) -> dict[str, Trust] | None:
        """Return the trust of each column in the select list, by the column's name in the result.

        The trust is ``own`` if the column is computed from one or more columns of the table that
        are all declared as the user's own; otherwise ``outside``.

        The result is None if the name of a column is not certain:

        - The database chooses the name of a column.
        - Two columns of the result have the same name.
        - An alias is also the name of a declared column, so that ORDER BY with it is ambiguous.
        """
        from sqlglot import exp

        trust_by_name: dict[str, Trust] = {}
        lower_names: set[str] = set()
        for each in tree.expressions:
            if not isinstance(each, (exp.Column, exp.Alias)):
                return None
            name = each.alias_or_name
            is_alias = isinstance(each, exp.Alias)
            if is_alias and self._may_mean_declared_column(table, name):
                return None
            if name.lower() in lower_names:
                return None
            lower_names.add(name.lower())
            columns = [*each.find_all(exp.Column)]
            is_own = bool(columns) and all(self._is_own(table, column) for column in columns)
            trust_by_name[name] = "own" if is_own else "outside"
        return trust_by_name

    def _is_own(self, table: str, column: exp.Column) -> bool:
        """Return True if only the user writes a column.

        Args:
            table: The only table of the query.
            column: The column, as the query names it.
        """
        return self.is_own_column(table, self._folded_name(column.this))

    def _may_mean_declared_column(self, table: str, alias: str) -> bool:
        """Return True if an alias may also be the name of a column in the setting ``trust``.

        In ``SELECT a AS total FROM orders ORDER BY total``, the last word may mean either.
        """
        # Ignore letter case, because the database may do so.
        column_key = f"{table}.{alias}".lower()
        if any(key.lower() == column_key for key in self.trust):
            return True
        # If the whole table is the user's own, any name may be that of a column.
        return self.is_own_column(table, alias)

    def _folded_name(self, name: exp.Expression) -> str:
        """Return the name of an identifier, in lower case if the database ignores its case."""
        is_quoted = bool(name.args.get("quoted"))
        folds = self.dialect in _CASE_INSENSITIVE or (
            self.dialect == "postgresql" and not is_quoted
        )
        return name.name.lower() if folds else name.name


def _may_mean(key: str, name: str) -> bool:
    """Return True if a key of the setting ``trust`` may mean the same table or column as a name.

    Letter case is ignored, because most databases ignore it, at least in names of columns. The
    key or the name may have a schema: the key ``orders`` may mean the table ``shop.orders``.
    """
    first, second = f".{key.lower()}", f".{name.lower()}"
    return first.endswith(second) or second.endswith(first)


def _resolve_names(
    names: Iterable[str | None], cte_names: Sequence[str], ambiguous_names: Sequence[str]
) -> list[str | None]:
    """Return the tables that a query or a common table expression (CTE) reads.

    The names of CTEs are left out. None stands for a source that may not be a table.

    Args:
        names: The names that are read; None for a source that is not a table.
        cte_names: The names that surely mean CTEs here.
        ambiguous_names: The names that mean a CTE in some databases, and a table in others.
    """
    tables: list[str | None] = []
    for name in names:
        if name in cte_names:
            continue  # surely the CTE, whose own tables are resolved separately
        if name in ambiguous_names:
            tables.append(None)
        else:
            tables.append(name)
    return tables


def _uses_only_named_columns(tree: exp.Select) -> bool:
    """Return True if a query of one table has no ``*``, no renamed columns, and no inner query."""
    from sqlglot import exp

    if tree.find(exp.Star, exp.Dot, exp.Subquery, exp.CTE, exp.PositionalColumn):
        return False
    has_inner_query = len(list(tree.find_all(exp.Select))) > 1
    # FROM items AS t(a, b) gives the table's columns other names than those in the configuration.
    has_column_aliases = any(each.args.get("columns") for each in tree.find_all(exp.TableAlias))
    if has_inner_query or has_column_aliases:
        return False
    (source,) = tree.find_all(exp.Table)
    # In SELECT items FROM items, the first word may mean whole rows instead of a column.
    row_names = {source.name.lower(), source.alias.lower()}
    return all(column.name.lower() not in row_names for column in tree.find_all(exp.Column))


def _columns_outside_of_select_list(tree: exp.Select) -> list[exp.Column]:
    """Return the columns outside of a query's select list, for example in ``WHERE``."""
    from sqlglot import exp

    # By identity, because two nodes of sqlglot with the same content are equal.
    ids_of_selected: set[int] = set()
    for each in tree.expressions:
        ids_of_selected.update(map(id, each.find_all(exp.Column)))
    return [column for column in tree.find_all(exp.Column) if id(column) not in ids_of_selected]


def _spellings_of_own_columns(trust_by_name: Mapping[str, Trust]) -> set[str]:
    """Return the spellings of trusted columns, such as ``total`` and ``TOTAL``.

    A spelling that may also mean another column is left out.
    """
    own_names = {name for name, level in trust_by_name.items() if level == "own"}
    other_names = trust_by_name.keys() - own_names
    # If straße is trusted and strasse is not, STRASSE may mean either, and is left out.
    return _spellings(own_names) - _spellings(other_names)


def _spellings(names: Iterable[str]) -> set[str]:
    """Return names in all the letter cases in which databases may return them."""
    spellings: set[str] = set()
    for name in names:
        spellings |= {name, name.lower(), name.upper()}
    return spellings
