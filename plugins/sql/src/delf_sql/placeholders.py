"""Parameters: ``:name`` with a dict, ``?`` with a list; always bound by the driver.

Placeholders are found by our own tokenizer, because SQLAlchemy also finds them inside strings.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from delf.errors import ToolRefusedError
from delf_sql.target import Dialect
from delf_sql.tokens import Token
from delf_sql.values import holds_dict

if TYPE_CHECKING:
    from sqlalchemy import TextClause

Params = Mapping[str, Any] | Sequence[Any] | None
Adapt = Callable[[Any], Any]
"""Converts a value for the driver. Raises TypeError if the database has no type for it."""
_NAME: Final = re.compile(r":([A-Za-z_]\w*)")
# Dialects that compare JSON as text.
_DIALECTS_COMPARING_JSON_AS_TEXT: Final = ("sqlite", "duckdb", "mysql")
_COMPARING: Final = {"=", "==", "<>", "!=", "<", ">", "!"}
_CLAUSES: Final = {"SET", "WHERE", "ON", "HAVING", "WHEN", "SELECT", "AND", "OR", "VALUES", "USING"}
# Operators that end a value: a colon directly after one of them begins no placeholder.
_ENDS_OF_VALUES: Final = (")", "]", ":")  # the last is the first colon of ``x::type``


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder in a statement.

    Args:
        start: The start position in the statement's text.
        end: The end position.
        key: The name, or the index of a positional placeholder.
        in_list: Whether the placeholder belongs to an IN, where a list stands for several values.
        needs_parentheses: Whether the IN has no parentheses of its own: ``IN :names``.
        is_cast: Whether the statement casts the value to a type.
    """

    start: int
    end: int
    key: str | int
    in_list: bool
    needs_parentheses: bool
    is_cast: bool


@dataclass(frozen=True, slots=True)
class BoundStatement:
    """A statement with the values for its placeholders.

    Args:
        pieces: The text before, between and after the placeholders.
        values: The values in the driver's form, one between each two pieces.
        names: The names of the values, for errors.
        casts: True for each value that the statement itself casts to a type.
    """

    pieces: list[str]
    values: list[Any]
    names: list[str] = field(default_factory=list[str])
    casts: list[bool] = field(default_factory=list[bool])

    def text(self, mark: str = "?") -> str:
        """Return the statement with the same placeholder for each value."""
        return mark.join(self.pieces)

    def clause(self) -> TextClause:
        """Return the statement as a SQLAlchemy clause, which adapts placeholders to the driver."""
        from sqlalchemy import bindparam, text
        from sqlalchemy.types import NullType

        # SQLAlchemy would take any other colon for a parameter, in strings, too.
        plain = [piece.replace(":", "\\:") for piece in self.pieces]
        # The blanks separate ``:p0`` from the text beside it: ``IN :p0 AND``, ``:p0 ::type``.
        marked = [f"{piece} :p{number} " for number, piece in enumerate(plain[:-1])]
        # NullType: SQLAlchemy adds no conversions and no casts of its own.
        parameters = [
            bindparam(f"p{number}", value, type_=NullType())
            for number, value in enumerate(self.values)
        ]
        return text("".join([*marked, plain[-1]])).bindparams(*parameters)

    @property
    def named(self) -> dict[str, Any]:
        """A mapping from the placeholder names of :meth:`clause` to the values."""
        return {f"p{number}": value for number, value in enumerate(self.values)}


def find_placeholders(text: str, tokens: Sequence[Token], *, named: bool) -> list[Placeholder]:
    """Return the named or the positional placeholders of a statement, in order."""
    placeholders: list[Placeholder] = []
    sign = ":" if named else "?"
    for index, token in enumerate(tokens):
        if token.kind != "operator" or token.text != sign:
            continue
        end = token.end
        key: str | int = len(placeholders)  # a positional placeholder has its index as the key
        if named:
            match = _NAME.match(text, token.start)
            is_after_value = index > 0 and _is_colon_after_value(tokens[index - 1], token)
            if match is None or is_after_value:
                continue  # another use of the colon, such as x::type or x[1:n]
            end = match.end()
            key = match.group(1)
        placeholders.append(_placeholder_at(tokens, index, end, key))
    return placeholders


def _is_colon_after_value(before: Token, colon: Token) -> bool:
    """Return True for a colon as in ``x::type``, ``x[1:n]`` or ``x:key``, unlike ``x = :name``."""
    ends_value = before.kind != "operator" or before.text in _ENDS_OF_VALUES
    return ends_value and before.end == colon.start


def _placeholder_at(tokens: Sequence[Token], index: int, end: int, key: str | int) -> Placeholder:
    """Build a placeholder; the tokens around it show whether it belongs to an IN or a cast.

    Args:
        tokens: The tokens of the statement.
        index: The index of the token ``:`` or ``?`` with which the placeholder begins.
        end: The end position of the placeholder in the statement's text.
        key: The name, or the index of a positional placeholder.
    """
    # The placeholder stands for the whole list in ``IN :ids``, and for an item in ``IN (:id)``.
    is_whole_list = index >= 1 and tokens[index - 1].word == "IN"
    word_before_parenthesis = ""
    if index >= 2 and tokens[index - 1].text == "(":
        word_before_parenthesis = tokens[index - 2].word
    is_in_list = word_before_parenthesis == "IN"
    has_cast_operator = _text_at_or_after(end, tokens) in (":", "::")
    return Placeholder(
        start=tokens[index].start,
        end=end,
        key=key,
        in_list=is_in_list or is_whole_list,
        needs_parentheses=is_whole_list,
        is_cast=has_cast_operator or word_before_parenthesis == "CAST",
    )


def _text_at_or_after(position: int, tokens: Sequence[Token]) -> str:
    """Return the text of the first token that begins at a position or later; empty for none."""
    index = bisect_left(tokens, position, key=lambda token: token.start)
    return tokens[index].text if index < len(tokens) else ""


def bind(
    text: str, tokens: Sequence[Token], params: Params, dialect: Dialect, adapt: Adapt
) -> BoundStatement:
    """Bind parameters to the placeholders of a statement.

    Args:
        text: One statement.
        tokens: The tokens of the text.
        params: A dict for ``:name``, a list for ``?``, or nothing.
        dialect: The driver's dialect.
        adapt: Converts a value for the driver.

    Returns:
        The statement's text, divided at the placeholders, and the values for the placeholders.

    Raises:
        ToolRefusedError: If placeholders and parameters do not match.
    """
    # Without parameters, the database itself reads each : and ? in the text, for example as an
    # operator.
    if not params:
        return BoundStatement([text], [])
    placeholders = find_placeholders(text, tokens, named=isinstance(params, Mapping))
    _require_matching_params(placeholders, params, dialect)
    bound = BoundStatement([""], [])
    position = 0
    for placeholder in placeholders:
        value = cast("Any", params)[placeholder.key]
        _check_not_compared_as_json(value, placeholder, tokens, dialect)
        values = _values_to_bind(placeholder, value, adapt)
        bound.values.extend(values)
        bound.names.extend([_shown(placeholder.key)] * len(values))
        bound.casts.extend([placeholder.is_cast] * len(values))
        # With two values, ``id IN :ids`` becomes the pieces "id IN (", ", " and ")".
        opening, closing = ("(", ")") if placeholder.needs_parentheses else ("", "")
        bound.pieces[-1] += text[position : placeholder.start] + opening
        between_values = [", "] * (len(values) - 1)
        bound.pieces.extend([*between_values, closing])
        position = placeholder.end
    bound.pieces[-1] += text[position:]
    return bound


def _check_not_compared_as_json(
    value: Any, placeholder: Placeholder, tokens: Sequence[Token], dialect: Dialect
) -> None:
    """Raise ToolRefusedError if the database would compare a value as JSON text."""
    if dialect not in _DIALECTS_COMPARING_JSON_AS_TEXT:
        return
    if _is_json(value, placeholder, dialect) and _is_compared(tokens, placeholder):
        key = "JSON_VALUE(column, '$.key')" if dialect == "mysql" else "column ->> '$.key'"
        raise ToolRefusedError(
            f"parameter {placeholder.key!r} would be compared as JSON text, where a blank or "
            f"the order of keys makes a difference: compare its parts, as {key} = :value"
        )


def _is_json(value: Any, placeholder: Placeholder, dialect: Dialect) -> bool:
    """Return True if a value is bound as JSON text.

    A dict, or a list that contains a dict, is always bound as JSON. Any other list is bound as JSON
    except in DuckDB, which has a type for lists, and after ``IN``, where each item is a value.
    """
    if holds_dict(value):
        return True
    if placeholder.in_list or dialect == "duckdb":
        return False
    return isinstance(value, (list, tuple))


def _is_compared(tokens: Sequence[Token], placeholder: Placeholder) -> bool:
    """Return whether a placeholder is compared, as in ``a = ?`` and ``a IN (?)``.

    In ``SET a = ?``, the value is stored, not compared.
    """
    before = [token for token in tokens if token.end <= placeholder.start]
    text_before = before[-1].text if before else ""
    # Of an operator after the placeholder, such as ``>=``, the first character is enough.
    sign_after = _text_at_or_after(placeholder.end, tokens)[:1]
    has_operator = text_before in _COMPARING or sign_after in _COMPARING
    if not has_operator and not placeholder.in_list:
        return False
    clauses = [token.word for token in before if token.word in _CLAUSES]
    is_stored = bool(clauses) and clauses[-1] == "SET"
    return not is_stored


def without_placeholders(
    text: str, tokens: Sequence[Token], params: Params, dialect: Dialect
) -> str:
    """Replace placeholders by numbers of the same length, for a parser.

    Raises:
        ToolRefusedError: If placeholders and parameters do not match.
    """
    if not params:
        return text
    placeholders = find_placeholders(text, tokens, named=isinstance(params, Mapping))
    _require_matching_params(placeholders, params, dialect)
    parts: list[str] = []
    position = 0
    for placeholder in placeholders:
        # The number has the length of the placeholder, because positions in the parsed tree are
        # compared with those of the tokens.
        parts += [
            text[position : placeholder.start],
            "1".ljust(placeholder.end - placeholder.start),
        ]
        position = placeholder.end
    return "".join([*parts, text[position:]])


def _values_to_bind(placeholder: Placeholder, value: Any, adapt: Adapt) -> list[Any]:
    """Return the value for a placeholder, in the driver's form, as a list.

    For a list after ``IN``, return all of its items.
    """
    items: list[Any] = [value]
    if placeholder.in_list and isinstance(value, (list, tuple, set, frozenset)):
        items = list(cast("Iterable[Any]", value))
        if not items:
            raise ToolRefusedError(
                f"parameter {_shown(placeholder.key)} is an empty list: IN needs at least one value"
            )
    try:
        return [adapt(item) for item in items]
    except (TypeError, ValueError, OverflowError) as error:
        raise ToolRefusedError(f"parameter {_shown(placeholder.key)}: {error}") from None


def _shown(key: str | int) -> str:
    return f":{key}" if isinstance(key, str) else f"number {key + 1}"


def _require_matching_params(
    placeholders: Sequence[Placeholder], params: Mapping[str, Any] | Sequence[Any], dialect: Dialect
) -> None:
    """Raise ToolRefusedError if a statement's parameters do not fit its placeholders.

    A list needs one item for each ``?``. A dict needs each ``:name``, and may have further keys.
    """
    if isinstance(params, Mapping):
        missing = sorted({str(placeholder.key) for placeholder in placeholders} - set(params))
        if missing:
            raise ToolRefusedError(
                f"the statement has :{', :'.join(missing)}, which params does not have; "
                f"params has: {', '.join(map(str, params))}"
            )
        if not placeholders:
            raise ToolRefusedError(
                "params is a dict, but the statement has no :name placeholder; "
                "write :name where each value goes, outside of quotes"
            )
    elif len(placeholders) != len(params):
        advice = "write ? where each value goes, outside of quotes (not %s or $1)"
        if dialect == "postgresql" and len(placeholders) > len(params):
            advice = "where ? is a JSON operator, use :name placeholders and a dict"
        raise ToolRefusedError(
            f"the statement has {len(placeholders)} ? placeholders, "
            f"params has {len(params)} values; {advice}"
        )
