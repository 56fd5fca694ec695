"""Counting of the rows that a change would affect, for the approval request."""

from __future__ import annotations

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
_READS: Final = frozenset({"SELECT", "WITH"})
# Options of TRUNCATE and DROP that may affect other tables, or refuse the statement.
_TABLE_OPTIONS: Final = frozenset({"CASCADE", "RESTRICT", "RESTART"})


class _MismatchError(Exception):
    """The parameters do not match the placeholders, so the rows cannot be counted."""


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
        params: A dict of parameters by name, or a list of parameters by position.

    Returns:
        None if the number is unknown without running the statement.
    """
    outer_tokens = list(_tokens_outside_parentheses(statement.tokens))
    # The query for the number leaves out RETURNING and its columns.
    returning = _first_with_word(outer_tokens, "RETURNING")
    end = len(statement.text) if returning is None else returning.start
    outer_tokens = [token for token in outer_tokens if token.start < end]
    words = [token.word for token in outer_tokens]
    try:
        if words[:2] == ["DELETE", "FROM"] or words[:1] == ["UPDATE"]:
            return _count_update_or_delete(statement, params, outer_tokens, end)
        if words[:2] == ["INSERT", "INTO"]:
            return _count_insert(statement, params, outer_tokens, end)
    except _MismatchError:
        return None
    if words[:2] in (["TRUNCATE", "TABLE"], ["DROP", "TABLE"]):
        return _count_whole_table(statement, outer_tokens[2:], end)
    if words[:1] == ["TRUNCATE"]:
        return _count_whole_table(statement, outer_tokens[1:], end)
    return None


def _count_whole_table(
    statement: Statement, name_and_options: Sequence[Token], end: int
) -> Count | None:
    """Return a query that counts the rows of a table that a TRUNCATE or DROP empties.

    Args:
        statement: The statement.
        name_and_options: The tokens after the keywords.
        end: The position in the text where the statement ends.

    Returns:
        None for several tables, or with an option such as CASCADE.
    """
    words = [token.word for token in name_and_options]
    if not _TABLE_OPTIONS.isdisjoint(words):
        return None
    name_tokens = name_and_options[2:] if words[:2] == ["IF", "EXISTS"] else name_and_options
    if not _is_table_name(name_tokens):
        return None
    table_name = statement.text[name_tokens[0].start : end]
    return _counting_query(_ROWS_NOW, table_name, "", None)


def _first_with_word(tokens: Iterable[Token], *words: str) -> Token | None:
    """Return the first token that is one of the words, or None."""
    return next((token for token in tokens if token.word in words), None)


def _count_update_or_delete(
    statement: Statement, params: Params, outer_tokens: Sequence[Token], end: int
) -> Count | None:
    """Return a query that counts the rows that an UPDATE or DELETE of one table would change.

    Args:
        statement: The statement.
        params: The parameters of the statement.
        outer_tokens: The tokens outside of parentheses.
        end: The position in the text where the statement ends, or its RETURNING begins.

    Returns:
        None for a statement whose rows cannot be counted, such as one with a join.
    """
    text = statement.text
    is_delete = outer_tokens[0].word == "DELETE"
    tokens = outer_tokens[2:] if is_delete else outer_tokens[1:]  # after DELETE FROM or UPDATE
    if _first_with_word(tokens, *_UNCOUNTED_KEYWORDS) is not None:
        return None
    where = _first_with_word(tokens, "WHERE")
    condition_start = end if where is None else where.start
    if is_delete:
        name_end = condition_start
    else:
        set_keyword = _first_with_word(tokens, "SET")
        if set_keyword is None:
            return None
        name_end = set_keyword.start
    name_tokens = [token for token in tokens if token.start < name_end]
    if not _is_table_name(name_tokens):
        return None
    name = text[name_tokens[0].start : name_end]
    condition_tokens = _tokens_between(statement, condition_start, end)
    condition_params = _used_params(statement, condition_tokens, params)
    return _counting_query(_ROWS_NOW, name, text[condition_start:end], condition_params)


def _tokens_between(statement: Statement, start: int, end: int) -> list[Token]:
    """Return the tokens behind the token at ``start``, up to ``end``."""
    return [token for token in statement.tokens if start < token.start < end]


def _count_insert(
    statement: Statement, params: Params, outer_tokens: Sequence[Token], end: int
) -> Count | None:
    """Return the number of an INSERT's rows, or a query that counts these rows; None if unknown.

    Args:
        statement: The statement.
        params: The parameters of the statement.
        outer_tokens: The tokens outside of parentheses.
        end: The position in the text where the statement ends, or its RETURNING begins.
    """
    if _first_with_word(outer_tokens, *_MAY_SKIP_ROWS) is not None:
        return None
    values = _first_with_word(outer_tokens, "VALUES")
    if values is not None:
        after_values = _tokens_between(statement, values.start, end)
        return Count("new rows", number=len(list(_outermost_parentheses(after_values))))
    select = _first_with_word(outer_tokens, *_READS)
    if select is None:
        return None
    select_tokens = _tokens_between(statement, select.start, end)
    select_params = _used_params(statement, select_tokens, params)
    query = f"({statement.text[select.start : end].strip()}) AS counted"
    return _counting_query("new rows", query, "", select_params)


def _counting_query(
    label: str, source: str, condition: str, params: dict[str, Any] | list[Any] | None
) -> Count:
    query = f"SELECT count(*) AS n FROM {source.strip()} {condition}".strip()  # noqa: S608 - gated
    return Count(label, query=query, params=params)


def _used_params(
    statement: Statement, tokens: Sequence[Token], params: Params
) -> dict[str, Any] | list[Any] | None:
    """Return the parameters for a part of a statement.

    A dict is returned whole; of a list, only the items for the placeholders of the part.

    Args:
        statement: The statement.
        tokens: The tokens of the part.
        params: The parameters of the statement.

    Raises:
        _MismatchError: If the parameters do not match the placeholders.
    """
    if find_placeholders(statement.text, tokens, named=True):
        if not isinstance(params, Mapping):
            raise _MismatchError
        return dict(params)
    placeholders = find_placeholders(statement.text, tokens, named=False)
    if not placeholders:
        return None
    if params is None or isinstance(params, Mapping):
        raise _MismatchError
    part_start = placeholders[0].start
    all_placeholders = find_placeholders(statement.text, statement.tokens, named=False)
    before_part = [each for each in all_placeholders if each.start < part_start]
    params_from_part = list(params)[len(before_part) :]
    return params_from_part[: len(placeholders)]


def _is_table_name(tokens: Sequence[Token]) -> bool:
    """Return True if tokens are one table name, with optional schema and alias."""
    name_tokens = tokens
    if len(tokens) > 2 and tokens[-2].word == "AS":  # shop . items AS i
        name_tokens = tokens[:-2]
    elif len(tokens) % 2 == 0:  # shop . items i
        name_tokens = tokens[:-1]
    if len(name_tokens) % 2 == 0:  # parts and dots must alternate: shop . items
        return False
    parts = name_tokens[::2]
    separators = name_tokens[1::2]
    are_names = all(part.kind in ("word", "name") for part in parts)
    return are_names and all(separator.text == "." for separator in separators)


def _outermost_parentheses(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the outermost opening parentheses."""
    depth = 0
    for token in tokens:
        if token.text == "(" and token.kind == "operator":
            if not depth:
                yield token
            depth += 1
        elif token.text == ")" and token.kind == "operator":
            depth -= 1


def _tokens_outside_parentheses(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens outside of parentheses, without the parentheses."""
    depth = 0
    for token in tokens:
        # A quoted name may have the text of a parenthesis.
        if token.kind == "operator" and token.text == "(":
            depth += 1
        elif token.kind == "operator" and token.text == ")":
            depth -= 1
        elif depth == 0:
            yield token
