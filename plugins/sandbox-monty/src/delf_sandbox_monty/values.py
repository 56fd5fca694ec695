"""Values of Monty as values of Python, and the other way."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from pathlib import PurePath
from typing import Any, cast

from delf.values import kind_name


def plain(value: Any) -> Any:
    """A value of Monty as one of Python: objects of the script become dicts or text."""
    from pydantic_monty import MontyClassProxy

    match value:
        case MontyClassProxy():
            return {str(name): plain(item) for name, item in value.attributes.items()}
        case list() | tuple() | set() | frozenset():
            items = [plain(item) for item in cast("Collection[Any]", value)]
            return cast("type[list[Any]]", type(cast("object", value)))(items)
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            return {plain(key): plain(item) for key, item in pairs}
        case _ if type(value).__module__.startswith("pydantic_monty"):
            return str(getattr(value, "name", value))
        case _:
            return value


def shown(value: Any) -> Any:
    """The same as :func:`plain`; one that is nested too deeply as text."""
    try:
        return plain(value)
    except RecursionError:
        return f"<{kind_name(value)}, nested too deeply>"


def for_monty(value: Any) -> Any:
    """A result as Monty can hold it: it has no UUIDs, and knows paths as text."""
    match value:
        case uuid.UUID() | PurePath():
            return str(value)
        case list() | tuple() | set() | frozenset():
            items = [for_monty(item) for item in cast("Collection[Any]", value)]
            return cast("type[list[Any]]", type(cast("object", value)))(items)
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            return {for_monty(key): for_monty(item) for key, item in pairs}
        case _:
            return value
