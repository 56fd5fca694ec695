"""Conversion of standard type hints that pydantic does not accept.

Before Python 3.12, pydantic accepts only the TypedDict of ``typing_extensions``, because that of
``typing`` does not record which inherited keys are required. Users write the standard library's
TypedDict, which is translated here key by key.

A ``Literal`` of members of an enum is replaced by their values, as scripts write them.
"""

from __future__ import annotations

import enum
import sys
import types
import typing
from typing import Any, Final

import typing_extensions

from delf.tools.hints import is_required_key, strip_qualifiers


def validatable(hint: Any) -> Any:
    """Return an equivalent type that pydantic can validate.

    Args:
        hint: A resolved type hint.
    """
    return _translate(hint, {})


_SUPPORTS_TYPING_TYPEDDICT: Final = sys.version_info >= (3, 12)  # as pydantic requires


def _literal_of_values(hint: Any, members: tuple[Any, ...]) -> Any:
    """Return a ``Literal`` type that also accepts the values of its enum members."""
    member_by_value = {each.value: each for each in members if isinstance(each, enum.Enum)}
    if not member_by_value:
        return hint
    from pydantic import BeforeValidator

    def member(value: Any) -> Any:
        is_plain = isinstance(value, (str, int)) and not isinstance(value, enum.Enum)
        return member_by_value.get(value, value) if is_plain else value

    return typing.Annotated[hint, BeforeValidator(member)]


def _translate(hint: Any, translations: dict[Any, Any]) -> Any:
    """Translate a type to one that pydantic can validate.

    Args:
        hint: The type.
        translations: A mapping from each translated TypedDict to its translation, to which this
            function adds the TypedDicts in ``hint``.
    """
    if not _SUPPORTS_TYPING_TYPEDDICT and isinstance(hint, type) and typing.is_typeddict(hint):
        return _translate_record(hint, translations)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return _literal_of_values(hint, args)
    if not args:
        return hint
    if origin is typing.Annotated:
        inner = _translate(args[0], translations)
        if inner is args[0]:
            return hint
        return typing.Annotated[(inner, *hint.__metadata__)]
    new_args = tuple(_translate(arg, translations) for arg in args)
    if new_args == args:
        return hint
    if origin in (typing.Union, types.UnionType):
        return typing.Union[new_args]  # noqa: UP007 - built at run time
    # ``typing.List[int]`` has this method, and ``list[int]`` does not.
    copy_with: Any = getattr(hint, "copy_with", None)
    if copy_with is not None:
        return copy_with(new_args)
    generic: Any = origin
    return generic[new_args]


def _translate_record(record: Any, translations: dict[Any, Any]) -> Any:
    """Translate a TypedDict of ``typing``, which pydantic refuses before Python 3.12.

    Returns:
        An equal TypedDict of ``typing_extensions``.
    """
    if record in translations:
        return translations[record]
    if record.__class__.__module__ == "typing_extensions":
        return record
    translations[record] = dict[str, Any]  # used within a record that contains itself
    hints = typing.get_type_hints(record, include_extras=True)
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        is_required = is_required_key(record, name, hint)
        wrap = typing_extensions.Required if is_required else typing_extensions.NotRequired
        fields[name] = wrap[_translate(strip_qualifiers(hint), translations)]
    make: Any = typing_extensions.TypedDict
    translations[record] = make(record.__name__, fields)
    return translations[record]
