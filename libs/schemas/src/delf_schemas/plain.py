"""Values of scripts as plain data that can be sent."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

from delf.errors import DelfError

_MAX_DIGITS: Final = 1000
_MAX_DEPTH: Final = 40
_MAX_PLAIN_DEPTH: Final = 100
_MAX_BRANCHES: Final = 64


class Misfit(Exception):  # noqa: N818 - a finding
    """A value does not fit its schema.

    Args:
        path: The path within the value.
        reason: The fault of the value; the value itself is not repeated.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")


def plain(value: Any, path: str, depth: int = 0) -> Any:
    """Convert a script's value to JSON data; bytes stay unchanged.

    Raises:
        Misfit: If a value cannot be sent.
    """
    if isinstance(value, enum.Enum):
        return plain(value.value, path, depth)
    if value is None or isinstance(value, (bool, bytes)):
        return value
    if isinstance(value, str):
        return _without_lone_surrogates(value, path)
    if isinstance(value, (int, float, decimal.Decimal)):
        return _plain_number(value, path)
    if depth > _MAX_PLAIN_DEPTH:
        raise Misfit(path, "it is nested too deeply")
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(cast("bytes", value))
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        data = {
            _without_lone_surrogates(str(k), path): plain(v, f"{path}.{str(k)[:60]}", depth + 1)
            for k, v in items
        }
        if len(data) < len(items):
            raise Misfit(path, "has two keys with the same text, as 1 and '1'")
        return data
    if isinstance(value, (Sequence, AbstractSet)):
        parts = cast("Sequence[Any]", value)
        return [plain(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(parts)]
    raise Misfit(path, f"a value of the type {type(value).__name__} cannot be sent")


def numbers_as_text(
    value: Any, schema: Any, resolve: Callable[[Any], Mapping[str, Any]], depth: int = 0
) -> Any:
    """Convert numbers in a value to text where the schema expects text, as for amounts of money.

    If the schema accepts text, but no numbers, a ``Decimal`` becomes text. An ``int`` or ``float``
    becomes text only if the schema also has the format ``decimal``. Digits are preserved.

    Args:
        value: The value, which is not modified.
        schema: The schema.
        resolve: Returns the schema to which a reference points.
        depth: The nesting depth.
    """
    if depth > _MAX_DEPTH or isinstance(value, (str, bytes, bool)):
        return value
    if isinstance(value, (int, float, decimal.Decimal)):
        return _text_if_required(value, _branches(schema, resolve))
    if isinstance(value, Mapping):
        branches = _branches(schema, resolve)
        mapping = cast("Mapping[Any, Any]", value)
        return {
            key: numbers_as_text(item, _property_schema(branches, key), resolve, depth + 1)
            for key, item in mapping.items()
        }
    if isinstance(value, (list, tuple)):
        branches = _branches(schema, resolve)
        item_schemas = (branch["items"] for branch in branches if "items" in branch)
        item_schema: Any = next(item_schemas, True)  # the schema True accepts any item
        items = cast("Sequence[Any]", value)
        return [numbers_as_text(item, item_schema, resolve, depth + 1) for item in items]
    return value


def _text_if_required(value: float | decimal.Decimal, branches: Sequence[Mapping[str, Any]]) -> Any:
    """Convert a number to text, such as ``"12.50"``, if the schema requires text.

    Otherwise return the number unchanged. :func:`numbers_as_text` describes the conditions.

    Args:
        value: The number.
        branches: The schema and the schemas in its ``allOf``, ``anyOf`` and ``oneOf``.
    """
    types = _declared_types(branches)
    accepts_text = "string" in types
    accepts_numbers = not types.isdisjoint({"number", "integer"})
    if accepts_numbers or not accepts_text:
        return value
    has_decimal_format = any(part.get("format") == "decimal" for part in branches)
    if not has_decimal_format and not isinstance(value, decimal.Decimal):
        return value  # unchanged: the validation refuses a number in place of a name or a date
    if isinstance(value, float):  # 0.1 becomes 0.1, not the 55 digits of its binary value
        number = decimal.Decimal(float.__repr__(value))
    else:
        number = decimal.Decimal(value)
    if not number.is_finite():
        return value
    exponent = number.adjusted()  # 2 for 123, -3 for 0.00123
    return format(number, "f") if abs(exponent) < _MAX_DIGITS else value


def _declared_types(branches: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the types that schemas declare; ``type`` is a name or a list of names."""
    types: set[str] = set()
    for part in branches:
        declared = part.get("type")
        names: list[Any] = cast("list[Any]", declared) if isinstance(declared, list) else [declared]
        types.update(name for name in names if isinstance(name, str))
    return types


def _branches(
    schema: Any, resolve: Callable[[Any], Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Return a schema and the schemas in its ``allOf``, ``anyOf`` and ``oneOf``, at any depth.

    Schemas whose reference is broken are left out.
    """
    branches: list[Mapping[str, Any]] = []
    pending = [schema]
    while pending and len(branches) < _MAX_BRANCHES:
        try:
            branch = resolve(pending.pop())
        except DelfError:
            continue
        branches.append(branch)
        for keyword in ("allOf", "anyOf", "oneOf"):
            inner_schemas = branch.get(keyword)
            if isinstance(inner_schemas, list):
                pending += cast("list[Any]", inner_schemas)
    return branches


def _property_schema(branches: Sequence[Mapping[str, Any]], name: Any) -> Any:
    """Return the schema of an object's property.

    If no branch declares the property, return the schema ``additionalProperties`` of the first
    branch that has one; if no branch has one, return an empty schema.

    Args:
        branches: The schemas that describe the object, such as the items of ``allOf``.
        name: The name of the property.
    """
    for branch in branches:
        properties = branch.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            return cast("Mapping[Any, Any]", properties)[name]
    for branch in branches:
        additional_schema = branch.get("additionalProperties")
        if isinstance(additional_schema, Mapping):
            return cast("Mapping[str, Any]", additional_schema)
    return {}


def _without_lone_surrogates(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Misfit(path, "holds half a character (a lone surrogate)") from None
    return text


def _plain_number(value: float | decimal.Decimal, path: str) -> int | float:
    """Convert a number for JSON; raise for infinity, NaN and numbers with too many digits."""
    if isinstance(value, decimal.Decimal):
        is_finite = value.is_finite()
        is_too_long = value.adjusted() >= _MAX_DIGITS
    elif isinstance(value, float):
        is_finite = math.isfinite(value)
        is_too_long = False
    else:
        is_finite = True
        is_too_long = value.bit_length() >= 3 * _MAX_DIGITS  # a digit needs over three bits
    if not is_finite:
        raise Misfit(path, f"{value} is not a number that can be sent")
    if is_too_long:
        raise Misfit(path, f"has over {_MAX_DIGITS} digits")
    if not isinstance(value, decimal.Decimal):
        return value
    if value == value.to_integral_value():
        return int(value)
    number = float(value)
    if math.isinf(number):
        raise Misfit(path, "has more digits than a number with a fraction can have")
    return number


def without_bytes(value: Any) -> Any:
    """Replace bytes in JSON data by base64 text, as ``format: byte`` requires."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, list):
        return [without_bytes(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {k: without_bytes(v) for k, v in cast("dict[str, Any]", value).items()}
    return value
