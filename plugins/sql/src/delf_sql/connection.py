"""``SQL``: a database whose actions are ``schema``, ``query`` and ``write``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, TypeVar, cast

from delf.errors import (
    DelfError,
    ToolExecutionError,
    ToolRefusedError,
    did_you_mean,
)
from delf.machine.forks import reset_in_forks
from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused, Verdict
from delf.settings import Source
from delf.tools.action import action
from delf.tools.connection import Connection
from delf.tools.permissions import is_allowed, needs_confirmation
from delf.types import Trust
from delf_postgresql.login import check_login
from delf_sql.authors import OwnTables
from delf_sql.backends import make_backend
from delf_sql.backends.base import create_missing
from delf_sql.catalog import (
    Relation,
    Table,
    TableInfo,
    find_relation,
    relation_info,
)
from delf_sql.counting import Count, count_of
from delf_sql.failures import (
    SQLSchemaError,
    failed_statement_error,
    lost_write_error,
    problem_of,
    unexplained_problem,
)
from delf_sql.gate import Statement, check_query, check_writes
from delf_sql.placeholders import find_placeholders
from delf_sql.relevance import ColumnRanking, TableIndex, rank_relations
from delf_sql.render import PartialSchema, whole_schema, with_column_values
from delf_sql.rows import Fetched, as_dicts
from delf_sql.samples import ROWS, sampling_query, with_samples
from delf_sql.settings import SQLSettings
from delf_sql.target import check_dialect, make_target
from delf_sql.value_notes import values_note

if TYPE_CHECKING:
    from delf_sql.backends import Backend
    from delf_sql.database import Database
    from delf_sql.placeholders import Params

    Change = tuple[Statement, Sequence[Params]]

T = TypeVar("T")

# Held while a connection makes its backend, in a thread: two calls may come at once.
_MAKING: Final = Lock()
# The maximum number of tables returned by ``schema(search=…)``.
_MAX_FOUND_TABLES: Final = 20
# The maximum number of sets of parameters for which affected rows are counted before approval.
_MAX_COUNTED_SETS: Final = 20
_COUNT_SECONDS: Final = 10.0
_MAX_SAMPLED: Final = 40
SAMPLE_SECONDS: Final = 1.0
_VALUES_NOTE: Final = "(after =: what rows hold)\n"


class Changes(TypedDict):
    """The result of ``write``: the number of changed rows, and the rows that RETURNING gave."""

    rowcount: int
    rows: list[dict[str, Any]]
    committed: bool


class _SchemaText(NamedTuple):
    """The schema as text for a prompt, and its tables.

    If the budget allows, the lines have all tables with their columns, and the tables are in the
    order of the schema. Otherwise, the lines have the tables that are most relevant to the task,
    and the tables are in the order of their relevance.
    """

    heading: str
    lines: str
    tables: Sequence[Table]


class SQL(Connection[SQLSettings]):
    """A SQL database: tables, queries that cannot change anything, and writes.

    Takes ``url``, or ``host``, ``port``, ``database``, ``user``, ``password`` and ``db_type``;
    all settings are described in :class:`delf_sql.settings.SQLSettings`.

    Args:
        name: The variable's name in scripts; ``sql`` when omitted.
        allow: The available actions.
        confirm: The actions that need approval; ``write`` when omitted.
        metadata: Any data that the embedding program wants to keep with the connection.
        settings: The fields of ``SQLSettings``; those left out come from ``DELF_<NAME>_<FIELD>``.

    Raises:
        ConnectionConfigurationError: If no database is named, or a setting is invalid.
    """

    summary = "A SQL database."

    def __init__(self, *positional_settings: Any, **options: Any) -> None:
        super().__init__(*positional_settings, **options)
        self.target = make_target(self.name, self.settings)
        check_dialect(self.name, self.settings, self.target)
        if self.target.dialect == "postgresql":
            self._check_login()
        self._own_tables: OwnTables | None = None
        if isinstance(self.trust, Mapping):
            functions = self.settings.functions
            self._own_tables = OwnTables.of(self.name, self.trust, self.target.dialect, functions)
            if "own" in self.trust.values():
                # context() keeps only the comments of tables and columns that are the user's own.
                self.context_trust = "own"
        self._backend_and_database: tuple[Backend, Database] | None = None
        self._index: TableIndex | None = None
        # Tables by name, with descriptions of the values in their columns.
        self._sampled_tables: dict[str, Table] = {}
        reset_in_forks(self)

    def reset_after_fork(self) -> None:
        """Forget the sessions in a forked process, because they belong to the parent process."""
        self._backend_and_database = None

    async def check(self, call: ProposedCall) -> Verdict:
        """Preview a write; require approval of a query if the database cannot prevent writes."""
        if call.action == "write":
            statements = _as_list(call.arguments["statement"])
            try:
                checked = await asyncio.to_thread(check_writes, statements, self.target.dialect)
                changes = _with_parameter_sets(checked, call.arguments.get("params"))
                note = await self._check_transactions(changes)
            except ToolRefusedError as error:
                return Refused.of(error)
            return Allowed(preview=await self._preview(changes, note) or None)
        if call.action != "query" or self.target.enforces_read_only:
            return Allowed()
        return NeedsApproval(
            reason=f"{self.target.label} has no read-only session here: only the check "
            "of the statement says that it changes nothing"
        )

    @action(effect="read")
    async def schema(self, table: str | None = None, search: str | None = None) -> list[TableInfo]:
        """Tables with columns, keys and comments: all tables, the one named `table`, or those that
        best match the words of `search`. With very many tables, columns is None.
        """  # noqa: D205 - the model reads the whole paragraph
        if table is not None and search is not None:
            raise ToolRefusedError("schema takes either table or search, not both")
        return await self._in_session(
            lambda backend, session: self._schema(backend, session, table, search), read_only=True
        )

    @action(effect="read")
    async def query(
        self,
        statement: str,
        params: dict[str, Any] | list[Any] | None = None,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """Rows of one reading statement. Parameters: `:name` with a dict, or `?` with a list.
        Over 1000 rows raise an error: aggregate in SQL, page with LIMIT and OFFSET, or pass limit
        (1000 at most) to get the first rows only.
        """  # noqa: D205 - the model reads the whole paragraph
        max_rows = self.settings.max_rows
        if limit is not None and not 1 <= limit <= max_rows:
            raise ToolRefusedError(f"limit can be from 1 to {max_rows}; page with LIMIT and OFFSET")

        checked = await asyncio.to_thread(
            check_query, statement, self.target.dialect, params, self.settings.functions
        )

        fetched = await self._in_session(
            lambda backend, session: backend.read(session, checked, params, limit or max_rows),
            read_only=True,
        )
        if fetched.more and limit is None:
            raise ToolExecutionError(
                f"the result has more than {max_rows} rows, so none is returned: aggregate in SQL "
                "(COUNT, SUM, GROUP BY), page with ORDER BY … LIMIT … OFFSET, or pass limit=N "
                "for the first N rows only"
            )
        return as_dicts(fetched)

    @action(effect="write", sinks=["statement", "params"])
    async def write(
        self,
        statement: str | list[str],
        params: dict[str, Any] | list[Any] | None = None,
    ) -> Changes:
        """Run INSERT, UPDATE, DELETE or DDL and commit, or change nothing and raise. A list of
        statements is one transaction; they share a dict of params. For one statement, params may be
        a list of dicts or lists: it runs once for each, and `rows` holds what RETURNING gives.
        """  # noqa: D205 - the model reads the whole paragraph
        checked = await asyncio.to_thread(check_writes, _as_list(statement), self.target.dialect)
        changes = _with_parameter_sets(checked, params)
        _, first_parameter_sets = changes[0]
        if not first_parameter_sets:  # a single statement with an empty list of parameters
            return Changes(rowcount=0, rows=[], committed=True)

        # check() refuses such changes, too, but a program may call write() without it.
        has_several_runs = len(changes) > 1 or len(first_parameter_sets) > 1
        if has_several_runs:
            await self._check_transactions(changes)
        try:
            written = await self._in_session(
                lambda backend, session: backend.write(session, changes),
                read_only=False,
                statements=checked,
            )
        finally:
            self._sampled_tables = {}  # the write may have changed the values in the columns
        rows = as_dicts(written.fetched)
        return Changes(rowcount=written.rowcount, rows=rows, committed=True)

    async def context(self, task: str) -> str | None:
        """Return the schema in a few lines, best matches of the task first.

        Raises:
            SQLSchemaError: If the schema cannot be read.
            ConnectionUnavailableError: If the database does not answer.
        """
        try:
            head, schema_lines, tables = await self._in_session(
                lambda backend, session: self._describe(backend, session, task), read_only=True
            )
            head += self._limit_note()
            sampled_tables = await self._with_samples(tables)
            if not sampled_tables:  # sampling is off, or not allowed
                return head + schema_lines
            max_chars = self.settings.schema_chars
            text = with_column_values(schema_lines, sampled_tables, self.target.dialect, max_chars)
            if text != schema_lines:
                head += _VALUES_NOTE
            return head + text
        except (ToolExecutionError, ToolRefusedError) as error:
            reason = error.message
        # Outside of the except block, so that the traceback does not show the driver's exception.
        raise SQLSchemaError(
            f"{self.name}: cannot read the schema: {reason}",
            hint="the login may lack the right to look at it",
        )

    def _check_login(self) -> None:
        """Refuse to send the user's password to a server that a file of the project names.

        A file of the project names the server if the file gives any part of the address.

        Raises:
            KeyAddressError: If the project gives the address, and PostgreSQL's driver could take
                the login from the environment or from a file of the user, such as ``~/.pgpass``.
        """
        # For check_login(), an address from the environment counts like one from the program: only
        # an address from a file of the project is distrusted.
        sources = {self.settings.source(field) for field in ("url", "host", "database")}
        source: Source = "project" if "project" in sources else "program"
        url = self.settings.url.get_secret_value() if self.settings.url is not None else ""
        check_login(self.name, url, source, has_password=bool(self.target.password))

    def _limit_note(self) -> str:
        """Return a note about the row limit of queries, unless the limit is the default."""
        max_rows = self.settings.max_rows
        default = SQLSettings.model_fields["max_rows"].default
        if max_rows == default:
            return ""
        return f"(query: {max_rows:,} rows at most, not {default:,})\n"

    async def _with_samples(self, tables: Sequence[Table]) -> list[Table]:
        """Return the first ``_MAX_SAMPLED`` tables, with descriptions of their columns' values.

        Return an empty list if the setting ``sample`` is off, if queries need approval, or if the
        database does not prevent queries from writing. The descriptions are cached until the next
        write. Tables that are not sampled within the time limit stay without descriptions.
        """
        query = next(each for each in await self.actions() if each.name == "query")
        needs_approval = needs_confirmation(self.confirm, query)
        may_query = is_allowed(self.allow, query) and not needs_approval
        if not (self.settings.sample and self.target.enforces_read_only and may_query):
            return []
        wanted = tables[:_MAX_SAMPLED]
        # A concurrent write sets self._sampled_tables to a new dict. Samples from before the write
        # then go to the old dict, which nobody uses later.
        sampled_tables = self._sampled_tables
        unsampled = [table for table in wanted if table.relation.full_name not in sampled_tables]
        try:
            async with asyncio.timeout(SAMPLE_SECONDS):
                for table in unsampled:
                    sampled_tables[table.relation.full_name] = await self._sample(table)
        except TimeoutError:
            # Store the remaining tables without descriptions, so that no later task waits for them.
            for table in unsampled:
                sampled_tables.setdefault(table.relation.full_name, table)
        return [sampled_tables[table.relation.full_name] for table in wanted]

    async def _sample(self, table: Table) -> Table:
        """Return a table with descriptions of its columns' values, made from some of its rows.

        If the rows cannot be read, return the table unchanged.
        """
        name = table.relation.full_name
        own_tables = self._own_tables
        rows: list[Sequence[Any]] = []
        for last_rows in (False, True):  # the first rows of the table, then its last rows
            statement = sampling_query(table, self.target.dialect, last_rows=last_rows)
            if statement is None:
                break
            try:
                fetched = await self._in_session(
                    partial(_read_sample, statement=statement), read_only=True
                )
            except DelfError:
                return table
            rows += fetched.rows
            if len(fetched.rows) < ROWS:  # fewer than asked for: the table has no other rows
                break

        def is_shown(column: str) -> bool:
            return own_tables is None or own_tables.is_own_column(name, column)

        return await asyncio.to_thread(with_samples, table, rows, is_shown)

    async def _check_transactions(self, changes: Sequence[Change]) -> str:
        """Check that failing changes can be rolled back.

        Returns:
            A warning if a single change cannot be rolled back; else an empty text.

        Raises:
            ToolRefusedError: If several changes cannot be rolled back: delf promises to make all or
                none of them.
        """
        if self.target.dialect != "mysql":
            return ""
        # Each word may be the name of a table.
        words = {token.text for statement, _ in changes for token in statement.tokens}
        tables = await self._in_session(
            lambda backend, session: backend.without_transactions(session, words), read_only=True
        )
        if not tables:
            return ""
        listed = ", ".join(f"{name} ({engine})" for name, engine in tables)
        run_count = sum(len(parameter_sets) for _, parameter_sets in changes)
        if run_count > 1:
            raise ToolRefusedError(
                f"no transactions in {listed}: if one change fails, those before it stay",
                hint="call write for each change alone, or ask for a table of InnoDB",
            )
        return f"no transactions in {listed}: if it fails halfway, a part is changed"

    async def _preview(self, changes: Sequence[Change], note: str) -> str:
        """Return a preview of a write: the number of rows that each statement affects now.

        Args:
            changes: The statements with their sets of parameters.
            note: A warning to show below a single statement; empty for several statements.
        """
        if len(changes) == 1:
            rows = await self._describe_affected_rows(*changes[0])
            return "\n".join(line for line in (rows, note) if line)
        lines = ["one transaction:"]
        for number, (statement, parameter_sets) in enumerate(changes, 1):
            rows = await self._describe_affected_rows(statement, parameter_sets)
            line = f"{number}. {statement.text}"
            lines.append(f"{line} ({rows})" if rows else line)
        return "\n".join(lines)

    async def _describe_affected_rows(
        self, statement: Statement, parameter_sets: Sequence[Params]
    ) -> str:
        """Describe how many rows a statement affects with all sets of parameters together.

        The text is empty for a statement that affects no rows, such as CREATE.
        """
        if not (statement.is_dml or statement.removes_all_rows):
            return ""
        set_count = len(parameter_sets)
        sets_note = f" for each of {set_count:,} sets of parameters" if set_count > 1 else ""
        uncounted = f"rows not counted{sets_note}"
        if not parameter_sets or set_count > _MAX_COUNTED_SETS:
            return uncounted
        total = 0
        label = ""
        for params in parameter_sets:
            count = count_of(statement, params)
            if count is None:
                return uncounted
            affected_rows = await self._run_count(count)
            if affected_rows is None:
                return uncounted
            total += affected_rows
            label = count.label  # the same for all sets, because the statement is the same
        return f"{label}: {total:,}"

    async def _run_count(self, count: Count) -> int | None:
        """Return the number of rows that a statement would change; None if it is unknown."""
        if count.number is not None:
            return count.number
        if not self.target.enforces_read_only:  # the query could write without approval
            return None
        try:
            async with asyncio.timeout(_COUNT_SECONDS):
                rows = await self.query(count.query, count.params)
        except (DelfError, TimeoutError):  # the request then shows no number
            return None
        return rows[0]["n"]

    def result_trust(
        self, action: str, arguments: Mapping[str, Any]
    ) -> Trust | Mapping[str, Trust] | None:
        """Implements :class:`delf.protocols.connection.SupportsResultTrust`.

        If the setting ``trust`` names tables or columns, the rows of ``query`` have the trust level
        of the columns that the query reads. The result of ``schema`` has the trust level of the
        prompt. Results of other actions are from outside.
        """
        if self._own_tables is None:  # ``trust`` sets one level for all results
            return None
        if action == "query":
            return self._own_tables.trust_of_query(
                arguments.get("statement"), arguments.get("params")
            )
        if action == "schema":
            return self.context_trust
        return "outside"

    async def aclose(self) -> None:
        """Close all connections. The next call opens new sessions."""
        if self._backend_and_database is not None:
            await self._backend_and_database[1].aclose()

    def _ensure_backend_and_database(self) -> tuple[Backend, Database]:
        """Return the backend and the database; make them at the first call, which may block."""
        with _MAKING:
            if self._backend_and_database is None:
                self._backend_and_database = self._make_backend_and_database()
            return self._backend_and_database

    def _make_backend_and_database(self) -> tuple[Backend, Database]:
        from delf_sql.database import Database

        backend = make_backend(self.target, self.settings)
        if self.settings.create:
            # Create the database now, not with the first write: a task reads the schema first.
            create_missing(self.target, backend.create)
        return backend, Database(backend, self.settings.pool_size, self.settings.statement_timeout)

    async def _in_session(
        self,
        work: Callable[[Backend, Any], T],
        *,
        read_only: bool,
        statements: Sequence[Statement] = (),
    ) -> T:
        """Run a function with a session in a thread, converting drivers' exceptions.

        Args:
            work: The function; gets the backend and the session.
            read_only: Whether to use a read-only session.
            statements: The statements that the function executes, for error messages.
        """
        backend, database = self._backend_and_database or await asyncio.to_thread(
            self._ensure_backend_and_database
        )
        try:
            return await database.run(lambda session: work(backend, session), read_only=read_only)
        except DelfError:
            raise
        except Exception as error:
            failure = self._converted_error(error, backend, read_only, statements)
        # Outside of the except block, so that the traceback does not show the driver's exception.
        raise failure

    def _converted_error(
        self, error: Exception, backend: Backend, read_only: bool, statements: Sequence[Statement]
    ) -> DelfError:
        """Convert an exception of a driver to the error that the script gets, without secrets."""
        from delf_sql.database import LostError

        # A lost query has changed nothing: its LostError is reported as a timeout below.
        if isinstance(error, LostError) and not read_only:
            return lost_write_error("the statement did not end and could not be stopped", backend)
        problem = problem_of(error, backend) or unexplained_problem(error)
        timeout = self.settings.statement_timeout
        return failed_statement_error(
            problem, backend, read_only=read_only, timeout=timeout, statements=statements
        )

    def _schema(
        self, backend: Backend, session: Any, table: str | None, search: str | None
    ) -> list[TableInfo]:
        """Return the table with the name ``table``, the best matches of ``search``, or all tables.

        If there are many tables, the list of all tables has no columns.
        """
        relations = backend.relations(session)
        if table is not None:
            match = find_relation(table, relations)
            if match is None:
                names = [relation.full_name for relation in relations]
                raise ToolExecutionError(f"there is no table {table!r}{did_you_mean(table, names)}")
            return [found.info() for found in self._tables(backend, session, [match])]
        if search is not None:
            tables, _ = self._candidates(backend, session, relations, search)
            ranked, relevant_count = self._index_of(tables).rank(search)
            relevant = ranked[:relevant_count]
            return [found.info() for found in relevant[:_MAX_FOUND_TABLES]]
        if len(relations) > self.settings.schema_tables:
            return [
                relation_info(self._without_untrusted_comment(relation)) for relation in relations
            ]
        return [found.info() for found in self._tables(backend, session, relations)]

    def _index_of(self, tables: Sequence[Table]) -> TableIndex:
        """Return an index of tables, cached while the tables are unchanged."""
        index = self._index
        if index is None or index.tables != tables:
            index = self._index = TableIndex(tables)
        return index

    def _candidates(
        self, backend: Backend, session: Any, relations: Sequence[Relation], words: str
    ) -> tuple[list[Table], Sequence[Relation]]:
        """Read the columns of the relations that match ``words`` best.

        If there are at most ``settings.schema_tables`` relations, the columns of all are read.

        Returns:
            The best relations with their columns, and the other relations.
        """
        max_tables = self.settings.schema_tables
        if len(relations) > max_tables:
            relations = rank_relations(relations, words)
        return self._tables(backend, session, relations[:max_tables]), relations[max_tables:]

    def _tables(self, backend: Backend, session: Any, relations: Sequence[Relation]) -> list[Table]:
        """Read the columns of relations.

        If the setting ``trust`` names tables or columns, only the comments of tables and columns
        with the value ``own`` are kept.
        """
        tables = backend.tables(session, relations)
        if self._own_tables is None:
            return tables
        return [self._own_tables.with_trusted_comments(table) for table in tables]

    def _without_untrusted_comment(self, relation: Relation) -> Relation:
        """Return a table without its comment if other people than the user may have written it."""
        if self._own_tables is None:  # ``trust`` is not set by table: keep comments
            return relation
        return self._own_tables.without_comment(relation)

    def _describe(self, backend: Backend, session: Any, task: str) -> _SchemaText:
        """Describe the database for a task: all tables if they fit, else the most relevant."""
        dialect = self.target.dialect
        budget = self.settings.schema_chars
        head = backend.version(session)
        relations = backend.relations(session)
        if not relations:
            return _SchemaText(f"{head}, no tables", lines="", tables=())
        # Only `schema_tables` tables are read with their columns.
        tables, relations_without_columns = self._candidates(backend, session, relations, task)
        if note := values_note(tables, dialect):
            head = f"{head} (values: {note})"
        if not relations_without_columns:
            text = whole_schema(tables, dialect, budget)
            if text is not None:
                return _SchemaText(f"{head}:\n", text, tables)
        ranked, _ = self._index_of(tables).rank(task)
        partial_schema = PartialSchema(dialect, budget, self.name, ColumnRanking(task).rank)
        text = partial_schema.text(ranked, relations_without_columns)
        return _SchemaText(f"{head}, {len(relations)} tables:\n", text, ranked)


def _read_sample(backend: Backend, session: Any, statement: Statement) -> Fetched:
    return backend.read(session, statement, None, ROWS)


def _as_list(statement: str | list[str]) -> list[str]:
    return [statement] if isinstance(statement, str) else statement


def _with_parameter_sets(
    statements: Sequence[Statement], params: Params
) -> list[tuple[Statement, Sequence[Params]]]:
    """Pair each statement with its sets of parameters; the statement runs once for each set.

    For a single statement, see :func:`_parameter_sets`. Several statements share one dict of
    parameters, and each of them runs once: with the dict if it has placeholders, else with None.
    """
    if len(statements) == 1:
        statement = statements[0]
        return [(statement, _parameter_sets(statement.text, statement.tokens, params))]
    if params is not None and not isinstance(params, Mapping):
        raise ToolRefusedError(
            "several statements share one dict of params: write :name where each value goes"
        )
    pairs: list[tuple[Statement, Sequence[Params]]] = []
    for statement in statements:
        placeholders = find_placeholders(statement.text, statement.tokens, named=True)
        pairs.append((statement, [params if placeholders else None]))
    return pairs


def _parameter_sets(text: str, tokens: Sequence[Any], params: Params) -> Sequence[Params]:
    """Return the sets of parameters of a statement; the statement runs once for each set.

    For example, ``[[1, "a"], [2, "b"]]`` has two sets, and ``{"id": 1}`` is a single set.

    Args:
        text: The statement.
        tokens: The tokens of the statement.
        params: The parameters of the call.
    """
    if params is None or isinstance(params, Mapping):
        return [params]
    has_positional = bool(find_placeholders(text, tokens, named=False))
    if not params:
        has_placeholders = has_positional or bool(find_placeholders(text, tokens, named=True))
        # With placeholders, an empty list means no sets: the statement does not run.
        return [] if has_placeholders else [None]
    are_lists = all(isinstance(item, (list, tuple)) for item in params)
    are_dicts = all(isinstance(item, Mapping) for item in params)
    # With ``?``, a dict in the list is no set, but the JSON value of one placeholder.
    are_sets = are_lists or (are_dicts and not has_positional)
    return cast("Sequence[Params]", params) if are_sets else [params]
