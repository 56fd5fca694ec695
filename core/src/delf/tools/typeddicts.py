"""Makes ``typing.TypedDict`` acceptable to pydantic on Python 3.11.

Before Python 3.12 pydantic takes the TypedDict of ``typing_extensions`` only, since that of
``typing`` loses which keys are required when one inherits from another. Users write what the
standard library offers; it is translated here, key by key.
"""

from __future__ import annotations

import sys
import types
import typing
from typing import Any

import typing_extensions


def validatable(hint: Any) -> Any:
    """A type with every ``typing.TypedDict`` in it replaced by one that pydantic takes.

    Args:
        hint: A resolved type hint.
    """
    return hint if sys.version_info >= (3, 12) else _translate(hint, {})


def _translate(hint: Any, done: dict[Any, Any]) -> Any:
    """One type; ``done`` holds the records that were translated already."""
    if isinstance(hint, type) and typing.is_typeddict(hint):
        return _translate_record(hint, done)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if not args or origin is typing.Literal:
        return hint
    if origin is typing.Annotated:
        inner = _translate(args[0], done)
        return hint if inner is args[0] else typing.Annotated[(inner, *hint.__metadata__)]
    new = tuple(_translate(arg, done) for arg in args)
    if new == args:
        return hint
    if origin in (typing.Union, types.UnionType):
        return typing.Union[new]  # noqa: UP007 - built at run time
    copy_with: Any = getattr(hint, "copy_with", None)
    generic: Any = origin
    return generic[new] if copy_with is None else copy_with(new)


def _translate_record(record: Any, done: dict[Any, Any]) -> Any:
    if record in done or record.__class__.__module__ == "typing_extensions":
        return done.get(record, record)
    done[record] = dict[str, Any]  # where a record contains itself
    hints = typing.get_type_hints(record, include_extras=True)
    required: frozenset[str] = record.__required_keys__
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        qualifier = typing.get_origin(hint)
        # In a module whose annotations are texts, the class has not read them.
        qualified = qualifier in (typing.Required, typing.NotRequired)
        is_required = qualifier is typing.Required if qualified else name in required
        inner = typing.get_args(hint)[0] if qualified else hint
        wrap = typing_extensions.Required if is_required else typing_extensions.NotRequired
        fields[name] = wrap[_translate(inner, done)]
    make: Any = typing_extensions.TypedDict
    done[record] = make(record.__name__, fields)
    return done[record]
