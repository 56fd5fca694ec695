"""Counting of the rows that a change would affect, for the approval request."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from delf_sql.gate import Statement
from delf_sql.placeholders import Params, find_placeholders
from delf_sql.tokens import Token

# The label of the number of rows that a change or a deletion affects now.
_ROWS_NOW: Final = "rows now"
# Keywords of an UPDATE or DELETE whose affected rows delf cannot count.
_UNCOUNTED_KEYWORDS: Final = frozenset({"FROM", "USING", "JOIN", "LIMIT", "ORDER", "WITH"})
# Keywords of an INSERT that may add fewer rows than its statement lists.
_MAY_SKIP_ROWS: Final = frozenset({"CONFLICT", "DUPLICATE", "IGNORE", "OR"})
# Options of TRUNCATE and DROP that may affect other tables, or refuse the statement.
_TABLE_OPTIONS: Final = frozenset({"CASCADE", "RESTRICT", "RESTART"})


class Count(NamedTuple):
    """The number of rows that a statement changes, or a query for that number.

    Args:
        label: The label before the number: ``rows now`` or ``new rows``.
        number: The number, if it follows from the statement's text.
        query: A query that returns the number as ``n``; empty if ``number`` is known.
        params: The query's parameters.
    """

    label: str
    number: int | None = None
    query: str = ""
    params: dict[str, Any] | list[Any] | None = None


def count_of(statement: Statement, params: Params) -> Count | None:
    """Return the number of rows that a statement would change, or a query for the number.

    Args:
        statement: A checked statement.
        params: A dict of parameters by name, or a list of parameters by position. If they do not
            match the placeholders, the query fails.

    Returns:
        None if the number is unknown without running the statement.
    """
    tokens = list(_outer_tokens(statement.tokens))
    # The query for the number leaves out RETURNING and its columns.
    returning = _first_with_word(tokens, "RETURNING")
    end = len(statement.text) if returning is None else returning.start
    tokens = [token for token in tokens if token.start < end]
    match [token.word for token in tokens]:
        case ["DELETE", "FROM", *_]:
            return _count_matching(statement, params, tokens[2:], end)
        case ["UPDATE", *words] if "SET" in words:
            return _count_matching(statement, params, tokens[1:], end)
        case ["INSERT", "INTO", *words] if _MAY_SKIP_ROWS.isdisjoint(words):
            return _count_inserted(statement, params, tokens, end)
        case ["TRUNCATE" | "DROP", "TABLE", *_]:
            return _count_table(statement, tokens[2:])
        case ["TRUNCATE", *_]:
            return _count_table(statement, tokens[1:])
        case _:
            return None


def _count_matching(
    statement: Statement, params: Params, tokens: Sequence[Token], end: int
) -> Count | None:
    """Return a query that counts the rows that an UPDATE or DELETE of one table would change.

    Args:
        statement: The statement.
        params: The parameters of the statement.
        tokens: The tokens from the name of the table on, outside of parentheses.
        end: The position in the text where the statement ends, or its RETURNING begins.

    Returns:
        None for a statement whose rows cannot be counted, such as one with a join.
    """
    name_tokens = [*itertools.takewhile(lambda token: token.word not in ("SET", "WHERE"), tokens)]
    is_uncounted = _first_with_word(tokens, *_UNCOUNTED_KEYWORDS) is not None
    if is_uncounted or not _is_table_name(name_tokens):
        return None
    name = _text(statement, name_tokens)
    where = _first_with_word(tokens, "WHERE")
    if where is None:
        return _counting_query(_ROWS_NOW, name)
    source = f"{name} {statement.text[where.start : end]}"
    return _counting_query(_ROWS_NOW, source, _used_params(statement, params, where.start, end))


def _count_table(statement: Statement, tokens: Sequence[Token]) -> Count | None:
    """Return a query that counts the rows of a table that a statement drops or empties.

    Args:
        statement: The statement.
        tokens: The tokens from the name of the table, or ``IF EXISTS``, on.

    Returns:
        None for several tables, or with an option such as CASCADE.
    """
    words = [token.word for token in tokens]
    name_tokens = tokens[2:] if words[:2] == ["IF", "EXISTS"] else tokens
    if not _TABLE_OPTIONS.isdisjoint(words) or not _is_table_name(name_tokens):
        return None
    return _counting_query(_ROWS_NOW, _text(statement, name_tokens))


def _count_inserted(
    statement: Statement, params: Params, tokens: Sequence[Token], end: int
) -> Count | None:
    """Return the number of an INSERT's rows, or a query that counts these rows; None if unknown.

    Args:
        statement: The statement.
        params: The parameters of the statement.
        tokens: The tokens outside of parentheses.
        end: The position in the text where the statement ends, or its RETURNING begins.
    """
    # ``WITH (TABLOCK)`` after the table is a hint of SQL Server, and no common table expression.
    hint_starts = {
        token.start
        for token, following in itertools.pairwise(tokens)
        if token.word == "WITH" and _is_sign(following, "(")
    }
    other_tokens = (token for token in tokens if token.start not in hint_starts)
    rows_start = _first_with_word(other_tokens, "VALUES", "SELECT", "WITH")
    if rows_start is None:
        return None
    start = rows_start.start
    if rows_start.word == "VALUES":
        return _count_values([token for token in tokens if token.start > start])
    source = f"({statement.text[start:end].strip()}) AS counted"
    return _counting_query("new rows", source, _used_params(statement, params, start, end))


def _count_values(tokens: Sequence[Token]) -> Count | None:
    """Return the number of rows after VALUES; None if other words follow, such as UNION or LIMIT.

    Args:
        tokens: The tokens after VALUES, outside of parentheses.
    """
    are_only_rows = all(token.kind == "operator" or token.word == "ROW" for token in tokens)
    if not are_only_rows:
        return None
    rows = [token for token in tokens if _is_sign(token, "(")]
    return Count("new rows", number=len(rows) or 1)  # DEFAULT VALUES is one row


def _counting_query(
    label: str, source: str, params: dict[str, Any] | list[Any] | None = None
) -> Count:
    query = f"SELECT count(*) AS n FROM {source.strip()}"  # noqa: S608 - gated
    return Count(label, query=query, params=params)


def _used_params(
    statement: Statement, params: Params, start: int, end: int
) -> dict[str, Any] | list[Any] | None:
    """Return the parameters for a part of a statement: a whole dict, or some items of a list.

    A dict may have names that the part does not use, but each item of a list needs a placeholder.
    The result is None if the part has no placeholders.
    """
    is_named = isinstance(params, Mapping)
    placeholders = find_placeholders(statement.text, statement.tokens, named=is_named)
    keys = {each.key for each in placeholders if start <= each.start < end}
    if params is None or not keys:
        return None
    if isinstance(params, Mapping):
        return dict(params)
    return [value for index, value in enumerate(params) if index in keys]


def _text(statement: Statement, tokens: Sequence[Token]) -> str:
    return statement.text[tokens[0].start : tokens[-1].end]


def _first_with_word(tokens: Iterable[Token], *words: str) -> Token | None:
    """Return the first token that is one of the words, or None."""
    return next((token for token in tokens if token.word in words), None)


def _is_table_name(tokens: Sequence[Token]) -> bool:
    """Return True if tokens are one table name, with optional schema and alias."""
    # A name is an odd number of tokens, in which parts and dots alternate: ``shop . items``. So an
    # even number ends in an alias, as in ``shop . items i``.
    name_tokens = tokens
    if len(tokens) > 2 and tokens[-2].word == "AS":
        name_tokens = tokens[:-2]
    elif len(tokens) % 2 == 0:
        name_tokens = tokens[:-1]
    if len(name_tokens) % 2 == 0:
        return False
    parts = name_tokens[::2]
    dots = name_tokens[1::2]
    are_names = all(part.kind in ("word", "name") for part in parts)
    return are_names and all(dot.text == "." for dot in dots)


def _outer_tokens(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens outside of parentheses, and the outermost parentheses."""
    depth = 0
    for token in tokens:
        if _is_sign(token, ")"):
            depth -= 1
        if depth == 0:
            yield token
        if _is_sign(token, "("):
            depth += 1


def _is_sign(token: Token, sign: str) -> bool:
    return token.kind == "operator" and token.text == sign  # a quoted name may have this text, too
