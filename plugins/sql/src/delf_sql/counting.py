"""Queries that count the rows that a change would find, for the question that a person sees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from delf_sql.gate import Statement
from delf_sql.placeholders import Params, find_holes
from delf_sql.tokens import Token

_OTHER_FORMS: Final = frozenset({"FROM", "USING", "JOIN", "LIMIT", "RETURNING"})
"""Words of changes whose rows are not those of one table and one condition."""


def counting_query(
    statement: Statement, params: Params
) -> tuple[str, dict[str, Any] | None] | None:
    """Make the query that counts the rows of an UPDATE or DELETE of one table.

    Args:
        statement: A checked statement.
        params: Its parameters by name, or None.

    Returns:
        The query and its parameters; None for a statement of any other form.
    """
    text, outer = statement.text, list(_outer(statement.tokens))
    head = [token.word for token in outer[:2]]
    where = next((token for token in outer if token.word == "WHERE"), None)
    end = len(text) if where is None else where.start
    if head == ["DELETE", "FROM"]:
        start, stop, rest = outer[1].end, end, outer[2:]
    elif head[:1] == ["UPDATE"] and (set_ := _first(outer, "SET")) is not None:
        start, stop, rest = outer[0].end, set_.start, outer[1:]
    else:
        return None
    before = [token for token in rest if token.start < stop]
    if any(token.word in _OTHER_FORMS for token in rest) or len(before) != 1:
        return None
    condition = "" if where is None else f" {text[where.start :]}"
    query = f"SELECT count(*) AS n FROM {text[start:stop].strip()}{condition}"  # noqa: S608 - gated
    if where is None or not isinstance(params, Mapping):
        return query, None
    tail = [token for token in statement.tokens if token.start > where.start]
    return query, dict(params) if find_holes(text, tail, named=True) else None


def _first(tokens: Sequence[Token], word: str) -> Token | None:
    return next((token for token in tokens if token.word == word), None)


def _outer(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens outside of parentheses."""
    depth = 0
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if not depth:
            yield token
