"""Counting of the rows that a change would affect, for the approval request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from delf_sql.gate import Statement
from delf_sql.placeholders import Params, find_placeholders
from delf_sql.tokens import Token

# Keywords of an UPDATE or DELETE whose affected rows delf cannot count.
_UNCOUNTED_KEYWORDS: Final = frozenset({"FROM", "USING", "JOIN", "LIMIT", "ORDER", "WITH"})
# Keywords of an INSERT that may add fewer rows than its statement lists.
_MAY_SKIP_ROWS: Final = frozenset({"CONFLICT", "DUPLICATE", "IGNORE", "OR"})
_READS: Final = frozenset({"SELECT", "WITH"})


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
    """Determine how many rows a statement changes.

    Args:
        statement: A checked statement.
        params: A dict of parameters by name, or a list of parameters by position.

    Returns:
        None if the number is unknown without running the statement.
    """
    outer = list(_tokens_outside_parentheses(statement.tokens))
    returning = next((t for t in outer if t.word == "RETURNING"), None)
    end = len(statement.text) if returning is None else returning.start
    outer = [token for token in outer if token.start < end]
    words = [token.word for token in outer]
    if words[:2] == ["DELETE", "FROM"] or words[:1] == ["UPDATE"]:
        return _count_condition(statement, params, outer, end)
    if words[:2] == ["INSERT", "INTO"]:
        return _count_insert(statement, params, outer, end)
    if words[:1] == ["TRUNCATE"] or words[:2] == ["DROP", "TABLE"]:
        # The word TABLE is optional after TRUNCATE, and so is IF EXISTS before the name.
        name = outer[1:] if words[0] == "TRUNCATE" and words[1] != "TABLE" else outer[2:]
        name = name[2:] if [token.word for token in name[:2]] == ["IF", "EXISTS"] else name
        if name and _is_table_name(name) and not {"CASCADE", "RESTRICT", "RESTART"} & {*words}:
            return _counting_query("rows now", statement.text[name[0].start : end], "", None)
    return None


def _count_condition(
    statement: Statement, params: Params, outer: Sequence[Token], end: int
) -> Count | None:
    """Return a query that counts the rows which an UPDATE or DELETE on one table changes.

    Args:
        statement: The statement.
        params: The parameters.
        outer: The statement's tokens outside of parentheses, before ``end``.
        end: The position in the text at which RETURNING or the end of the statement is.
    """
    text = statement.text
    where = next((token for token in outer if token.word == "WHERE"), None)
    where_start = end if where is None else where.start
    if outer[0].word == "DELETE":
        name_start, name_end, after_keyword = outer[1].end, where_start, outer[2:]
    else:
        set_ = next((token for token in outer if token.word == "SET"), None)
        if set_ is None:
            return None
        name_start, name_end, after_keyword = outer[0].end, set_.start, outer[1:]
    table = [token for token in after_keyword if token.start < name_end]
    if not _is_table_name(table) or any(
        token.word in _UNCOUNTED_KEYWORDS for token in after_keyword
    ):
        return None
    condition = "" if where is None else text[where.start : end]
    condition_tokens = [
        token for token in statement.tokens if where and where.start < token.start < end
    ]
    used_params = _used_params(statement, condition_tokens, params)
    if used_params is None:
        return None
    return _counting_query("rows now", text[name_start:name_end], condition, used_params[0])


def _count_insert(
    statement: Statement, params: Params, outer: Sequence[Token], end: int
) -> Count | None:
    """Return the number of an INSERT's rows, or a query that counts them; None if unknown."""
    if any(token.word in _MAY_SKIP_ROWS for token in outer):
        return None
    values = next((token for token in outer if token.word == "VALUES"), None)
    if values is not None:
        after_values = [t for t in statement.tokens if values.start < t.start < end]
        return Count("new rows", number=sum(1 for _ in _outermost_parentheses(after_values)))
    select = next((token for token in outer if token.word in _READS), None)
    if select is None:
        return None
    select_tokens = [token for token in statement.tokens if select.start < token.start < end]
    used_params = _used_params(statement, select_tokens, params)
    if used_params is None:
        return None
    query = f"({statement.text[select.start : end].strip()}) AS counted"
    return _counting_query("new rows", query, "", used_params[0])


def _counting_query(
    label: str, source: str, condition: str, params: dict[str, Any] | list[Any] | None
) -> Count:
    query = f"SELECT count(*) AS n FROM {source.strip()} {condition}".strip()  # noqa: S608 - gated
    return Count(label, query=query, params=params)


def _used_params(
    statement: Statement, tokens: Sequence[Token], params: Params
) -> tuple[dict[str, Any] | list[Any] | None] | None:
    """Return ``(params,)`` with the parameters that some tokens of a statement need.

    The item is None if the tokens have no placeholders. The result is None, without a tuple, if the
    parameters do not match the placeholders.
    """
    if find_placeholders(statement.text, tokens, named=True):
        return (dict(params),) if isinstance(params, Mapping) else None
    placeholders = find_placeholders(statement.text, tokens, named=False)
    if not placeholders:
        return (None,)
    if params is None or isinstance(params, Mapping):
        return None
    all_placeholders = find_placeholders(statement.text, statement.tokens, named=False)
    offset = sum(placeholder.start < placeholders[0].start for placeholder in all_placeholders)
    return (list(params)[offset : offset + len(placeholders)],)


def _is_table_name(tokens: Sequence[Token]) -> bool:
    """Return True if tokens are one table name, with optional schema and alias."""
    if len(tokens) > 2 and tokens[-2].word == "AS":
        tokens = tokens[:-2]  # without AS and the alias
    elif len(tokens) % 2 == 0:
        tokens = tokens[:-1]  # without the alias
    parts, dots = tokens[::2], tokens[1::2]
    return (
        len(tokens) % 2 == 1
        and all(token.kind in ("word", "name") for token in parts)
        and all(token.text == "." for token in dots)
    )


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
    depth = 0
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if not depth:
            yield token
