"""Tool results as scripts see them: records with attribute access, dates like text."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
import pathlib
import uuid
from typing import Any, cast

from delf.values import encoding as values
from delf.values.conversion import plain_or_as_is

# The names of methods that convert a record to a dict in popular libraries.
_CONVERSIONS_TO_DICT = frozenset({"model_dump", "dict", "to_dict", "_asdict"})


def _make_record_type() -> type[dict[str, Any]]:
    """Make the type of the records in tool results: a dict with attribute access."""

    class Record(dict[str, Any]):
        """A dict whose items are also attributes; the methods of dict take precedence."""

        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            try:
                return self[name]
            except KeyError:
                # Scripts written for other libraries call a method such as ``model_dump()``, which
                # these libraries' records have.
                if name in _CONVERSIONS_TO_DICT:
                    return self._to_dict
                key_list = ", ".join(map(str, self))[:200]
                raise AttributeError(f"there is no {name!r} here, but {key_list}") from None

        def _to_dict(self, **_options: Any) -> dict[str, Any]:
            """Return a plain dict, and ignore options such as ``mode`` in pydantic."""
            return dict(self)

        def __setattr__(self, name: str, value: Any) -> None:
            if hasattr(dict, name):
                raise AttributeError(f"{name!r} is a method of dict: write ['{name}'] = …")
            self[name] = value

        def __delattr__(self, name: str) -> None:
            try:
                del self[name]
            except KeyError:
                raise AttributeError(name) from None

        @property
        def __dict__(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
            """A copy of the items, which scripts get by ``vars(record)``."""
            return dict(self)

    Record.__name__ = Record.__qualname__ = "dict"  # scripts see a dict
    Record.__module__ = "builtins"
    return Record


Record = _make_record_type()


def jsonable(value: Any) -> Any:
    """Convert a value that the json module does not support, such as a date to ISO 8601 text.

    Raises:
        TypeError: If the value cannot be represented in JSON.
    """
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID, pathlib.PurePath, dt.timedelta)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(cast("set[Any]", value), key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    plain_value = plain_or_as_is(value)
    if type(plain_value) is type(value):  # nothing could be converted
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    return plain_value


def _asdict(instance: Any, **options: Any) -> dict[str, Any]:
    if isinstance(instance, Record):
        return dict(cast("dict[str, Any]", instance))
    return _real_asdict(instance, **options)


_real_asdict = dataclasses.asdict


def _default(_encoder: object, value: Any) -> Any:
    return jsonable(value)


def _loads(text: Any, **options: Any) -> Any:
    """Parse JSON text; return any other value unchanged.

    Scripts often parse a tool's result, which is parsed already.
    """
    is_text = isinstance(text, (str, bytes, bytearray))
    return _real_loads(text, **options) if is_text else text


_real_loads = json.loads


def patch_json_and_dataclasses() -> None:
    """Make records encodable, and patch the json and dataclasses modules to accept them.

    The patched ``json.loads`` also accepts a record, or another result that is parsed already.
    """
    values.ENCODERS[Record] = values.encode_mapping
    # Any, because the type checker refuses assignments to the attributes of modules and classes.
    json_encoder: Any = json.JSONEncoder
    json_encoder.default = _default
    json_module: Any = json
    json_module.loads = _loads
    dataclasses_module: Any = dataclasses
    dataclasses_module.asdict = _asdict
