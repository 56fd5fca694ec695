"""Values of scripts as plain data, which is what can be sent."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import enum
import math
import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

_MAX_DIGITS: Final = 1000


class Misfit(Exception):  # noqa: N818 - a finding
    """A value does not fit its schema.

    Args:
        path: Where in the value.
        reason: What is wrong, without the value.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")


def plain(value: Any, path: str, depth: int = 0) -> Any:
    """A value as JSON has it; bytes stay.

    Raises:
        Misfit: For what cannot be sent.
    """
    if isinstance(value, enum.Enum):
        return plain(value.value, path, depth)
    if value is None or isinstance(value, (bool, bytes)):
        return value
    if isinstance(value, str):
        return _sendable(value, path)
    if isinstance(value, (int, float, decimal.Decimal)):
        return _plain_number(value, path)
    if depth > 100:
        raise Misfit(path, "it is nested too deeply")
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, (bytearray, memoryview)):
        return bytes(cast("bytes", value))
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {
            _sendable(str(k), path): plain(v, f"{path}.{str(k)[:60]}", depth + 1) for k, v in items
        }
    if isinstance(value, (Sequence, AbstractSet)):
        parts = cast("Sequence[Any]", value)
        return [plain(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(parts)]
    raise Misfit(path, f"a value of the type {type(value).__name__} cannot be sent")


def _sendable(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Misfit(path, "holds half a character (a lone surrogate)") from None
    return text


def _plain_number(value: float | decimal.Decimal, path: str) -> int | float:
    if isinstance(value, decimal.Decimal):
        if not value.is_finite():
            raise Misfit(path, f"{value} is not a number that can be sent")
        if value.adjusted() < _MAX_DIGITS:
            return int(value) if value == value.to_integral_value() else float(value)
    elif isinstance(value, float):
        if math.isfinite(value):
            return value
        raise Misfit(path, f"{value} is not a number that can be sent")
    elif value.bit_length() < 3 * _MAX_DIGITS:
        return value
    raise Misfit(path, f"has over {_MAX_DIGITS} digits")


def without_bytes(value: Any) -> Any:
    """Data for JSON: bytes as base64, which is what ``format: byte`` means."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, list):
        return [without_bytes(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {k: without_bytes(v) for k, v in cast("dict[str, Any]", value).items()}
    return value
