"""The statement gate: accepts one statement, of a kind that the action allows.

``query`` accepts what sqlglot parses as a query of known parts and known functions. In addition,
the database itself prevents writes (see ``backends``).
"""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delf.errors import ToolRefusedError
from delf_sql.functions import grammar_words, is_listed, known_functions, words
from delf_sql.placeholders import Params, without_placeholders
from delf_sql.target import TESTED_DIALECTS, Dialect
from delf_sql.tokens import Token, normalise, parse

if TYPE_CHECKING:
    from sqlglot import exp

MAX_LENGTH: Final = 200_000
_SELECTS: Final = frozenset({"SELECT", "WITH", "VALUES"})
_ABOUT_TABLES: Final = words("EXPLAIN PRAGMA SHOW DESCRIBE DESC")
_WRITES: Final = words(
    "INSERT UPDATE DELETE MERGE REPLACE WITH CREATE ALTER DROP TRUNCATE COMMENT GRANT REVOKE "
    "RENAME CALL DO SELECT VALUES REFRESH REINDEX ANALYZE"
)
# Words that begin a statement in some database. _check_one_statement() treats these words as
# reserved in a query.
_STATEMENTS: Final = words(
    "ALTER BACKUP BULK CALL CHECKPOINT COMMIT CREATE DBCC DECLARE DELETE DENY DROP EXEC EXECUTE "
    "GRANT INSERT KILL MERGE RAISERROR RECONFIGURE RESTORE REVERT REVOKE ROLLBACK SET SETUSER "
    "SHUTDOWN TRUNCATE UPDATE UPDATETEXT USE WAITFOR WRITETEXT"
)
_ROUTINES: Final = frozenset({"TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "PACKAGE"})
# The words that may stand between CREATE and the kind of routine.
_ROUTINE_MODIFIERS: Final = words(
    "OR REPLACE ALTER TEMP TEMPORARY CONSTRAINT AGGREGATE EDITIONABLE NONEDITIONABLE SECURE"
)
# Matches MySQL tables whose counters are reset when a privileged user reads them.
_RESETTING_TABLE: Final = re.compile(r"innodb_\w+_reset", re.IGNORECASE)
# Keywords that a query must not have, each with its effect for the error message.
_FORBIDDEN_PHRASES: Final[Mapping[tuple[str, ...], str]] = {
    ("INTO",): "SELECT … INTO",
    ("FOR", "UPDATE"): "lock rows (FOR UPDATE, FOR SHARE)",
    ("FOR", "SHARE"): "lock rows (FOR UPDATE, FOR SHARE)",
    ("FOR", "NO", "KEY"): "lock rows (FOR UPDATE, FOR SHARE)",
    ("FOR", "KEY", "SHARE"): "lock rows (FOR UPDATE, FOR SHARE)",
    ("LOCK", "IN", "SHARE", "MODE"): "lock rows (LOCK IN SHARE MODE)",
    ("NEXT", "VALUE", "FOR"): "take a sequence's next value",
    ("PREVIOUS", "VALUE", "FOR"): "take a sequence's next value",
}
# Maps the ASCII letters to lower case, because Python also folds letters that databases do not.
_ASCII_TO_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# The allowed nodes of a parsed query besides operators and functions.
_ALLOWED_NODES: Final = words(
    "Select From Join Where Group Having Order Ordered Limit Offset Fetch LimitOptions With CTE "
    "RecursiveWithSearch Union Except Intersect Subquery Values Table TableAlias TableFromRows "
    "TableColumn Lateral Unnest WithinGroup Filter Qualify Distinct Window WindowSpec Rollup Cube "
    "GroupingSets Tuple Paren Column Identifier Dot Star Alias Aliases PropertyEQ Kwarg Literal "
    "Null Boolean National HexString BitString ByteString RawString UnicodeString Heredoc "
    "Introducer If In Between Exists Any All Collate AtTimeZone Interval IntervalSpan Cast "
    "DataType DataTypeParam PseudoType ObjectIdentifier ColumnDef Bracket Slice Var Parameter "
    "SessionParameter Placeholder Array List Escape PositionalColumn IndexTableHint IgnoreNulls "
    "RespectNulls Default WithOrdinality JSONTable JSONSchema JSONColumnDef JSONValue OnCondition "
    "XMLTable FormatJson JSONKeyValue Partition Lambda"
)


# The first words of statements that change rows. A statement that begins with WITH is a query or
# ends in INSERT, UPDATE or DELETE.
_DML: Final = words("INSERT UPDATE DELETE REPLACE MERGE WITH")
# Dialects that can roll back a statement that defines or changes a table. Others commit at once.
_CAN_ROLL_BACK_DDL: Final = ("sqlite", "duckdb", "postgresql")


@dataclass(frozen=True, slots=True)
class Statement:
    """An accepted statement.

    Args:
        text: The normalised text that is sent, without comments and trailing text.
        tokens: The tokens of that text.
        calls: The names before a parenthesis, folded to lower case where the database folds names.
        names_after_dot: The names after a dot, which PostgreSQL may call as functions.
    """

    text: str
    tokens: Sequence[Token]
    calls: frozenset[str] = frozenset()
    names_after_dot: frozenset[str] = frozenset()

    @property
    def is_dml(self) -> bool:
        """True for a statement such as INSERT or UPDATE, which changes rows but no definition."""
        return self.tokens[0].word in _DML

    @property
    def has_returning(self) -> bool:
        """True if the statement has RETURNING, and so returns rows."""
        return any(token.word == "RETURNING" for token in self.tokens)

    @property
    def removes_all_rows(self) -> bool:
        """True for TRUNCATE and DROP TABLE."""
        first_words = [token.word for token in self.tokens[:2]]
        return first_words[0] == "TRUNCATE" or first_words == ["DROP", "TABLE"]


def check_query(
    text: str, dialect: Dialect, params: Params = None, allowed: frozenset[str] = frozenset()
) -> Statement:
    """Check that a text is a single query, and return the statement.

    Args:
        text: The SQL text that the script passed.
        dialect: The database's dialect.
        params: The parameters, which determine the placeholders.
        allowed: Additional functions that may be called.

    Raises:
        ToolRefusedError: If the text is not certainly a single query.
    """
    text, tokens = _single_statement(text, dialect, is_write=False)
    _check_first_word(tokens, dialect)
    _check_words(tokens)
    if dialect not in TESTED_DIALECTS:
        # An untested database may begin a second statement without a semicolon.
        _check_one_statement(tokens)
    tree = _parse_query(without_placeholders(text, tokens, params, dialect), dialect)
    _check_nodes(tree)
    _check_calls(tokens, dialect, allowed, _positions_of_aliases_with_columns(tree))
    calls, names_after_dot = folded_names(tokens, dialect)
    return Statement(text, tokens, calls, names_after_dot)


def _check_first_word(tokens: Sequence[Token], dialect: Dialect) -> None:
    """Raise ToolRefusedError if a statement does not begin like a query, as ``(SELECT`` does."""
    first = next((token for token in tokens if token.text != "("), tokens[0])
    if first.word in _SELECTS:
        return
    if first.word == "FROM" and dialect == "duckdb":
        return
    start = first.text if len(first.text) <= 20 else f"{first.text[:20]}…"
    if first.word in _ABOUT_TABLES:
        raise ToolRefusedError(
            f"query takes SELECT, WITH and VALUES, and this is {start}",
            hint="call schema('table') or schema(search='words') for tables, columns and keys",
        )
    raise ToolRefusedError(
        f"query only reads (SELECT, WITH, VALUES) and this is {start}: use write for changes"
    )


def check_write(text: str, dialect: Dialect) -> Statement:
    """Check that a text is a single write statement, and return the statement.

    Raises:
        ToolRefusedError: If the text is not a single write statement.
    """
    text, tokens = _single_statement(text, dialect, is_write=True)
    first = tokens[0].word
    if first in {"BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "END", "ABORT"}:
        raise ToolRefusedError(
            f"write runs every statement in a transaction of its own and commits it: no {first}"
        )
    if first not in _WRITES:
        raise ToolRefusedError(
            f"write does not run {first or tokens[0].text!r}: it is for INSERT, UPDATE, DELETE, "
            "MERGE and statements that define or change tables"
        )
    return Statement(text, tokens)


def check_writes(texts: Sequence[str], dialect: Dialect) -> list[Statement]:
    """Check that texts are write statements that can share a transaction.

    Raises:
        ToolRefusedError: If there are no texts, if a text is not a write statement, or if one of
            several statements cannot share a transaction.
    """
    if not texts:
        raise ToolRefusedError("write takes one statement or a list of them, and this is empty")
    statements: list[Statement] = []
    for number, text in enumerate(texts, 1):
        try:
            statement = check_write(text, dialect)
            if len(texts) > 1:
                _check_can_be_combined(statement, dialect)
        except ToolRefusedError as error:
            if len(texts) == 1:
                raise
            message = f"statement {number} of {len(texts)}: {error.message}"
            raise ToolRefusedError(message, hint=error.hint) from None
        statements.append(statement)
    return statements


def _check_can_be_combined(statement: Statement, dialect: Dialect) -> None:
    """Refuse a statement that cannot be in one transaction with other statements."""
    first = statement.tokens[0].word
    if not statement.is_dml and dialect not in _CAN_ROLL_BACK_DDL:
        raise ToolRefusedError(
            f"this database may commit each {first} at once, so {first} cannot be in one "
            "transaction with other statements: call write for this statement alone"
        )
    if statement.has_returning:
        raise ToolRefusedError("several statements give no rows: leave out RETURNING")


def _single_statement(text: str, dialect: Dialect, *, is_write: bool) -> tuple[str, list[Token]]:
    """Return a text's only statement, normalised, and its tokens without final semicolons.

    The text ends in a semicolon only where the database requires one.
    """
    if len(text) > MAX_LENGTH:
        raise ToolRefusedError(
            f"the statement has {len(text)} characters, more than {MAX_LENGTH}: "
            "pass values in params"
        )
    if "\x00" in text:
        raise ToolRefusedError("the statement holds a NUL character")
    text, tokens = normalise(text, dialect)
    final_semicolon = ""  # stays empty if the text has none
    while tokens and _is_operator(tokens[-1], ";"):
        final_semicolon = tokens.pop().text
    if not tokens:
        raise ToolRefusedError("the statement is empty")
    has_inner_semicolon = any(_is_operator(token, ";") for token in tokens)
    may_have_semicolons = is_write and _defines_routine(tokens, dialect)
    if has_inner_semicolon and not may_have_semicolons:
        raise ToolRefusedError("one statement at a time: make a call for each")
    text = text[: tokens[-1].end]
    # SQL Server requires the semicolon after MERGE, and Oracle as part of a routine's body.
    is_merge = is_write and any(token.word == "MERGE" for token in tokens)
    if (dialect == "mssql" and is_merge) or (dialect == "oracle" and may_have_semicolons):
        text += final_semicolon
    return text, tokens


def _is_operator(token: Token, text: str) -> bool:
    """Return True for the operator ``text``, and not for a quoted name with this text."""
    return token.kind == "operator" and token.text == text


def _defines_routine(tokens: Sequence[Token], dialect: Dialect) -> bool:
    """Return True if a statement creates a routine, whose body may have semicolons."""
    if tokens[0].word != "CREATE" or dialect == "duckdb":  # DuckDB's macros have no semicolons
        return False
    # Enough tokens for ``OR REPLACE DEFINER = 'ann'@'host' PROCEDURE``. Later ones belong to the
    # statement's body, where the word FUNCTION may be the name of a column.
    head = [token.word for token in tokens[1:12]]
    words = [word for word in head if word not in _ROUTINE_MODIFIERS]
    if dialect == "oracle" and words[:2] == ["TYPE", "BODY"]:
        return True
    # The first word is the kind. In MySQL, however, the kind may come after ``DEFINER = …``.
    has_definer = words[:1] == ["DEFINER"]
    possible_kinds = words if has_definer else words[:1]
    return not _ROUTINES.isdisjoint(possible_kinds)


def _calls(tokens: Sequence[Token]) -> Iterable[tuple[Token | None, Token]]:
    """Yield each name before a parenthesis together with the token before it, if any."""
    before: Token | None = None
    for token, after in itertools.pairwise(tokens):
        if token.kind in ("word", "name") and _is_operator(after, "("):
            yield before, token
        before = token


def folded_names(
    tokens: Sequence[Token], dialect: Dialect
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names before a parenthesis and the names after a dot, folded as the database does.

    Folding changes letter case: PostgreSQL reads ``Now()`` as ``now()``.
    """
    calls = [name for _, name in _calls(tokens)]
    names_after_dot = [
        name
        for dot, name in itertools.pairwise(tokens)
        if _is_operator(dot, ".") and name.kind in ("word", "name")
    ]
    return _possible_spellings(calls, dialect), _possible_spellings(names_after_dot, dialect)


def _possible_spellings(names: Iterable[Token], dialect: Dialect) -> frozenset[str]:
    """Return the spellings that names may have after the database has folded their letter case.

    A name without quotes has two: PostgreSQL folds only ASCII letters or all letters, depending on
    the encoding of the database.
    """
    spellings: set[str] = set()
    for name in names:
        spellings.add(_fold_case(name, dialect))
        is_quoted = name.kind != "word"
        if not is_quoted:
            spellings.add(name.text.lower())
    return frozenset(spellings)


def _fold_case(token: Token, dialect: Dialect) -> str:
    """Fold a function's name to lower case, unless the database keeps its letter case.

    PostgreSQL keeps the case of a quoted name. The other databases ignore the case of functions'
    names, even in quotes.
    """
    folds = token.kind == "word" or dialect != "postgresql"
    return token.text.translate(_ASCII_TO_LOWER) if folds else token.text


def _check_calls(
    tokens: Sequence[Token],
    dialect: Dialect,
    allowed: frozenset[str],
    alias_positions: frozenset[int],
) -> None:
    """Raise ToolRefusedError for a call of a function that is not known to only read."""
    functions = known_functions(dialect)
    grammar = grammar_words(dialect)
    for before, token in _calls(tokens):
        # ``FROM f() AS t(a, b)`` calls only f: t(a, b) names a table and its columns.
        if token.start in alias_positions:
            continue
        name = _fold_case(token, dialect)
        if is_listed(name, allowed):
            continue
        is_qualified = before is not None and _is_operator(before, ".")
        # IN (…), OVER (…) and VALUES (…) are grammar; in quotes or after a dot the same word is a
        # function's name.
        if token.kind == "word" and name in grammar and not is_qualified:
            continue
        # In MySQL db.name() is a stored function, even if a built-in one has the same name.
        if name in functions and not (is_qualified and dialect == "mysql"):
            continue
        raise ToolRefusedError(
            f"query cannot call {name}(): it is not among the functions that are known to only "
            "read",
            hint=f"if it only reads, the connection's setting functions may list {name!r}",
        )


def _check_words(tokens: Sequence[Token]) -> None:
    """Raise ToolRefusedError for a keyword or table by which a query does more than read.

    Examples are ``INTO``, ``FOR UPDATE``, and tables that reset counters when they are read.
    """
    for token in tokens:
        if _RESETTING_TABLE.fullmatch(token.text):
            raise ToolRefusedError(
                f"query cannot read {token.text}: that sets the server's counters to zero"
            )
    # Look for keywords in the tokens, because sqlglot's tree may lack them: sqlglot parses these
    # keywords into nodes of different kinds, or drops them. A quoted name is no keyword.
    keywords = tuple(token.word for token in tokens)
    for index in range(len(keywords)):
        for phrase, effect in _FORBIDDEN_PHRASES.items():
            if keywords[index : index + len(phrase)] == phrase:
                raise ToolRefusedError(f"query cannot {effect}: it only reads")


def _check_one_statement(tokens: Sequence[Token]) -> None:
    """Refuse words with which a second statement could begin; a query itself has none of them.

    SQL Server runs ``SELECT 1 DELETE FROM t`` as two statements.
    """
    for token in tokens:
        if token.word in _STATEMENTS:
            raise ToolRefusedError(
                f"query cannot hold the word {token.word}, with which another statement may begin: "
                "put a name in quotes"
            )


def _parse_query(text: str, dialect: Dialect) -> exp.Query | exp.Values:
    """Parse a text; raise ToolRefusedError if the text is not one query."""
    from sqlglot import errors, exp

    trees: list[Any] = []
    reason = ""
    try:
        trees = parse(text, dialect)
    except errors.SqlglotError as error:
        reason = f"query cannot read this statement: {_reason(error)}"
    except RecursionError:
        reason = "the statement is nested too deeply"
    # Outside of the handlers, so that the traceback does not show sqlglot's error with the whole
    # text of the statement.
    if reason:
        raise ToolRefusedError(reason)
    if len(trees) != 1 or not isinstance(trees[0], (exp.Query, exp.Values)):
        raise ToolRefusedError("query only reads, and this is not a plain query: use write")
    return trees[0]


def _check_nodes(tree: exp.Query | exp.Values) -> None:
    """Raise ToolRefusedError if a query has a syntax node of a kind that is not allowed."""
    from sqlglot import exp

    for node in tree.walk():
        kind = type(node).__name__
        is_operator_or_function = isinstance(node, (exp.Binary, exp.Unary, exp.Func))
        is_named = kind in _ALLOWED_NODES or kind.startswith("JSONPath")
        if not is_operator_or_function and not is_named:
            raise ToolRefusedError(f"query cannot hold {kind.upper()}: it only reads")


def _positions_of_aliases_with_columns(tree: exp.Query | exp.Values) -> frozenset[int]:
    """Return the start indexes, in the text, of the table aliases with a list of columns.

    In ``FROM f() AS t(a, b)``, the alias ``t`` has such a list, and looks like the call of a
    function ``t``.
    """
    from sqlglot import exp

    positions: set[int] = set()
    for alias in tree.find_all(exp.TableAlias):
        if alias.this is not None and alias.args.get("columns"):
            # -1 for an alias whose position sqlglot does not know: no token begins there.
            positions.add(alias.this.meta.get("start", -1))
    return frozenset(positions)


def _reason(error: Exception) -> str:
    """Return the first problem of a parse error in one sentence, without the whole statement."""
    problems: list[dict[str, Any]] = getattr(error, "errors", [])
    problem = problems[0] if problems else {}
    description = str(problem.get("description") or error).split("\n", 1)[0].rstrip(". ")
    near = str(problem.get("highlight") or "").strip()
    if near:
        return f"syntax not known near {near!r} ({description})"
    return f"syntax not known ({description})"
