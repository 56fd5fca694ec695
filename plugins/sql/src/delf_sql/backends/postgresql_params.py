"""Conversion of parameters to the types that PostgreSQL infers for placeholders.

Psycopg chooses a type from the value alone: it sends ``[]`` as an empty array even for a JSON
column, and the server then casts it silently. So the server is asked for the types first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from delf_sql.placeholders import BoundStatement
from delf_sql.values import as_json, holds_dict

if TYPE_CHECKING:
    import psycopg

_FIRST_USER_DEFINED_OID: Final = 16384
# A query for the base types of domains, which maps each domain's oid to its base type's oid.
_BASE_TYPES: Final = """
WITH RECURSIVE types AS (
    SELECT t.oid AS asked, t.oid, t.typtype, t.typbasetype FROM pg_catalog.pg_type t
    WHERE t.oid OPERATOR(pg_catalog.=) ANY (%s::pg_catalog.oid[])
    UNION ALL
    SELECT d.asked, t.oid, t.typtype, t.typbasetype
    FROM types d JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) d.typbasetype
    WHERE d.typtype OPERATOR(pg_catalog.=) 'd')
SELECT asked::pg_catalog.int8, oid::pg_catalog.int8 FROM types
WHERE typtype OPERATOR(pg_catalog.<>) 'd'
"""


def placeholder_types(
    driver: psycopg.Connection[Any], bound: BoundStatement
) -> Sequence[str | None] | None:
    """Ask the server for the types of all placeholders.

    Args:
        driver: A connection in a transaction.
        bound: The statement.

    Returns:
        The type names, with None for unknown types. If the server cannot infer the types, the
        result is None, and the server has aborted the transaction.
    """
    from psycopg.pq import ExecStatus

    text = _numbered_text(bound)
    if driver.pgconn.prepare(b"", text.encode()).status != ExecStatus.COMMAND_OK:
        return None
    description = driver.pgconn.describe_prepared(b"")
    if description.status != ExecStatus.COMMAND_OK:
        return None
    oids = [description.param_type(number) for number in range(description.nparams)]
    base_types = _base_types(driver, oids)
    return [_type_name(driver, base_types.get(oid, oid)) for oid in oids]


def _numbered_text(bound: BoundStatement) -> str:
    """Return a statement with the placeholders ``$1``, ``$2`` and so on."""
    text = bound.pieces[0]
    for number, piece in enumerate(bound.pieces[1:], start=1):
        # With blanks: a digit right behind ``$1`` would be read as part of its number.
        text += f" ${number} {piece}"
    return text


def _base_types(driver: psycopg.Connection[Any], oids: Sequence[int]) -> dict[int, int]:
    """Return a mapping from the oid of each user-defined type to the oid of its base type.

    The base type of a domain, such as ``CREATE DOMAIN email AS text``, is the type whose values the
    domain restricts. A type that is not a domain is its own base type.
    """
    user_defined = sorted({oid for oid in oids if oid >= _FIRST_USER_DEFINED_OID})
    if not user_defined:
        return {}
    return dict(driver.execute(_BASE_TYPES, [user_defined]).fetchall())


def _type_name(driver: psycopg.Connection[Any], oid: int) -> str | None:
    """Return the name of the PostgreSQL type with an oid; None for an unknown type."""
    info = driver.adapters.types.get(oid)
    if info is None:
        return None
    # For the oid of an array type, psycopg returns the type of the array's elements.
    return f"{info.name}[]" if info.array_oid == oid else info.name


def with_json(bound: BoundStatement) -> BoundStatement:
    """Wrap each dict, and each list with a dict, as JSON for psycopg."""
    from psycopg.types.json import Jsonb

    values = [Jsonb(value, dumps=as_json) if holds_dict(value) else value for value in bound.values]
    return BoundStatement(bound.pieces, values, bound.names, bound.casts)
