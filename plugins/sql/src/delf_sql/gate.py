"""The statement gate: one statement, of a kind that the action is for.

The database itself keeps a query from writing (see ``backends``). The gate comes first, gives
clear reasons, and covers what a database lets through: locks, session functions, files.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from delf.errors import ToolRefusedError
from delf_sql.lexer import Syntax, Token, tokenize, words

ReadKind = Literal["select", "explain", "show"]

MAX_LENGTH: Final = 200_000
_LONGEST_TREE: Final = 30_000
_SELECTS: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE"})
_WRITES: Final = words(
    "INSERT UPDATE DELETE MERGE REPLACE WITH CREATE ALTER DROP TRUNCATE COMMENT GRANT REVOKE "
    "RENAME CALL DO SELECT VALUES REFRESH REINDEX ANALYZE"
)
_ROUTINES: Final = frozenset({"TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "PACKAGE"})
_SHOWS: Final = words(
    "TABLES COLUMNS FIELDS INDEX INDEXES KEYS CREATE DATABASES SCHEMAS TABLE VARIABLES STATUS "
    "ENGINES COLLATION CHARACTER TRIGGERS EVENTS PROCEDURE FUNCTION"
)
_SHOW_PREFIXES: Final = frozenset({"FULL", "EXTENDED", "SESSION", "GLOBAL"})
_EXPLAIN_OPTIONS: Final = words(
    "ANALYZE VERBOSE QUERY PLAN EXTENDED PARTITIONS FORMAT JSON TREE TRADITIONAL"
)
_WRITING_NODES: Final = words(
    "Insert Update Delete Merge Create Drop Alter Into Lock Command Copy Set Pragma LoadData "
    "TruncateTable Transaction Commit Rollback Use Attach Detach Kill Grant Revoke"
)
_REFUSED_FUNCTIONS: Final[dict[str, frozenset[str]]] = {
    # Volatile ones are refused by the catalogue; these run SQL that stands in a text.
    "postgresql": words(
        "crosstab crosstab2 crosstab3 crosstab4 crosstabn connectby xpath_table query_to_xml "
        "query_to_xmlschema query_to_xml_and_xmlschema cursor_to_xml ts_stat ts_rewrite"
    ),
    "mysql": words(
        "load_file get_lock release_lock release_all_locks sleep benchmark nextval setval lastval "
        "master_pos_wait source_pos_wait master_gtid_wait wait_for_executed_gtid_set "
        "wait_until_sql_thread_after_gtids service_get_read_locks service_get_write_locks "
        "service_release_locks sys_exec sys_eval sys_set"
    ),
    "sqlite": frozenset({"load_extension", "fts3_tokenizer", "writefile", "readfile", "edit"}),
}


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that passed.

    Args:
        text: Without a closing semicolon or what follows it.
        tokens: Of that text.
        kind: How a backend runs it.
        calls: The functions that it names.
    """

    text: str
    tokens: Sequence[Token]
    kind: ReadKind
    calls: frozenset[str]


def check_query(text: str, syntax: Syntax, allowed: frozenset[str] = frozenset()) -> Statement:
    """A statement that may be run as a query.

    Args:
        text: What the script gave.
        syntax: How this database reads text.
        allowed: Functions that may be called although they are refused by default.

    Raises:
        ToolRefusedError: When it is not one reading statement.
    """
    text, tokens = _single(text, syntax, routines=False)
    kind, start = _read_kind(tokens, syntax)
    calls = _calls(tokens, syntax)
    refused = sorted((calls & _REFUSED_FUNCTIONS[syntax.dialect]) - allowed)
    if refused:
        raise ToolRefusedError(f"query cannot call {refused[0]}(): it has effects beyond reading")
    _check_words(tokens)
    if start is not None:
        _check_tree(text[start:], syntax)
    return Statement(text, tokens, kind, calls)


def check_write(text: str, syntax: Syntax) -> Statement:
    """A statement that may be run as a write.

    Args:
        text: What the script gave.
        syntax: How this database reads text.

    Raises:
        ToolRefusedError: When it is not one changing statement.
    """
    text, tokens = _single(text, syntax, routines=True)
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
    return Statement(text, tokens, "select", _calls(tokens, syntax))


def _single(text: str, syntax: Syntax, *, routines: bool) -> tuple[str, list[Token]]:
    if len(text) > MAX_LENGTH:
        raise ToolRefusedError(
            f"the statement has {len(text)} characters, more than {MAX_LENGTH}: "
            "pass values in params"
        )
    everything = tokenize(text, syntax, comments=True)
    tokens: list[Token] = []
    for token in everything:
        if token.kind != "comment":
            tokens.append(token)
        elif syntax.dialect == "mysql" and token.text.startswith(("/*!", "/*M!")):
            raise ToolRefusedError("a comment that MySQL executes (/*! … */) is not allowed")
    while tokens and tokens[-1].text == ";" and tokens[-1].kind == "operator":
        tokens.pop()
    if not tokens:
        raise ToolRefusedError("the statement is empty")
    inner = any(token.kind == "operator" and token.text == ";" for token in tokens)
    if inner and not (routines and _defines_routine(tokens)):
        raise ToolRefusedError("one statement at a time: make a call for each")
    return text[: tokens[-1].end], tokens


def _defines_routine(tokens: Sequence[Token]) -> bool:
    head = [token.word for token in tokens[:12]]
    return head[0] == "CREATE" and not _ROUTINES.isdisjoint(head)


def _read_kind(tokens: Sequence[Token], syntax: Syntax) -> tuple[ReadKind, int | None]:
    """The kind, and where the query begins, if there is one."""
    terms = [token.word if token.kind == "word" else token.text for token in tokens]
    first = next((word for word in terms if word != "("), "")
    if first in _SELECTS:
        return "select", 0
    if terms[0] in ("EXPLAIN", "DESCRIBE", "DESC"):
        return "explain", _explained(terms[1:], tokens[1:], syntax)
    if terms[0] == "SHOW" and syntax.dialect != "sqlite" and _may_show(terms[1:], syntax):
        return "show", None
    if terms[0] == "PRAGMA" and syntax.dialect == "sqlite" and "=" not in terms:
        return "show", None
    more = ", SHOW" if syntax.dialect != "sqlite" else ""
    shown = terms[0] if len(terms[0]) <= 20 else f"{terms[0][:20]}…"
    raise ToolRefusedError(
        f"query only reads (SELECT, WITH, VALUES, EXPLAIN{more}) and this is {shown}: "
        "use write for changes"
    )


def _explained(terms: Sequence[str], tokens: Sequence[Token], syntax: Syntax) -> int | None:
    """Where the explained query begins; None where a table is described."""
    place = 0
    if terms and terms[0] == "(" and syntax.dialect == "postgresql":
        inner = terms[1] if len(terms) > 1 else ""
        if inner not in _SELECTS and inner != "(":
            place = terms.index(")") + 1 if ")" in terms else len(terms)
    while place < len(terms) and (terms[place] in _EXPLAIN_OPTIONS or terms[place] == "="):
        place += 1
    rest = [word for word in terms[place:] if word != "("]
    if rest and rest[0] in _SELECTS:
        return tokens[place].start
    names_table = syntax.dialect == "mysql" and all(
        token.kind in ("word", "name") or token.text == "." for token in tokens
    )
    if names_table and rest and len(rest) <= 4 and rest[0] not in _WRITES:
        return None
    raise ToolRefusedError("query explains reading statements only: EXPLAIN SELECT …")


def _may_show(terms: Sequence[str], syntax: Syntax) -> bool:
    if syntax.dialect == "postgresql":
        return True
    wanted = [word for word in terms if word not in _SHOW_PREFIXES]
    if wanted[:2] == ["CREATE", "USER"]:
        return False
    return bool(wanted) and wanted[0] in _SHOWS


def _calls(tokens: Sequence[Token], syntax: Syntax) -> frozenset[str]:
    """Names before a parenthesis, as the database folds them."""
    found: set[str] = set()
    for token, after in itertools.pairwise(tokens):
        if after.text == "(" and after.kind == "operator" and token.kind in ("word", "name"):
            folds = token.kind == "word" or syntax.dialect != "postgresql"
            found.add(token.text.lower() if folds else token.text)
    return frozenset(found)


def _check_words(tokens: Sequence[Token]) -> None:
    """Words that no reading statement holds outside of quotes."""
    terms = [token.word for token in tokens]
    for index, word in enumerate(terms):
        follow = terms[index + 1 : index + 4]
        if word == "INTO":
            raise ToolRefusedError("query cannot SELECT … INTO: it only reads")
        if word == "FOR" and (
            follow[:1] in (["UPDATE"], ["SHARE"]) or follow[:2] in (["NO", "KEY"], ["KEY", "SHARE"])
        ):
            raise ToolRefusedError("query cannot lock rows (FOR UPDATE, FOR SHARE): it only reads")
        if word == "LOCK" and follow == ["IN", "SHARE", "MODE"]:
            raise ToolRefusedError("query cannot lock rows (LOCK IN SHARE MODE): it only reads")
        if word == "NEXT" and follow[:2] == ["VALUE", "FOR"]:
            raise ToolRefusedError("query cannot take a sequence's next value: it only reads")
        if word == "U" and _is_escaped_name(tokens[index : index + 3]):
            raise ToolRefusedError('names with escapes (U&"…") are not allowed in query')


def _is_escaped_name(tokens: Sequence[Token]) -> bool:
    if len(tokens) < 3 or tokens[1].text != "&" or tokens[2].kind != "name":
        return False
    return tokens[0].end == tokens[1].start and tokens[1].end == tokens[2].start


def _check_tree(text: str, syntax: Syntax) -> None:
    """A second opinion: sqlglot's tree holds nothing that writes.

    What sqlglot cannot parse, or not quickly, is left to the database, which refuses to write
    by itself.
    """
    if len(text) > _LONGEST_TREE:
        return
    import sqlglot
    from sqlglot.errors import SqlglotError

    dialect = {"postgresql": "postgres"}.get(syntax.dialect, syntax.dialect)
    try:
        trees = sqlglot.parse(text, read=dialect)
    except (SqlglotError, RecursionError):
        return
    if len(trees) != 1 or trees[0] is None:
        raise ToolRefusedError("one statement at a time: make a call for each")
    for node in trees[0].walk():
        kind = type(node).__name__
        if kind in _WRITING_NODES:
            raise ToolRefusedError(f"query only reads and this holds {kind.upper()}: use write")
