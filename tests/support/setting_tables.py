"""The tables of settings and fields in the documentation, which are made from their classes.

A table stands behind ``<!-- settings: module:Class -->``. The class is a settings class of pydantic,
or a class whose docstring describes its arguments. ``<!-- settings: module:Class without a, b -->``
leaves out arguments that delf passes itself. The fields of a dataclass stand behind
``<!-- class: module:Class -->``.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from pydantic import BaseModel, SecretStr

from support.meanings import meanings, plain

_CLASS: Final = re.compile(r"(<!-- class: ([\w.:]+) -->\n)(?:\|[^\n]*\n)*")
_PLACE: Final = re.compile(
    r"(<!-- settings: ([\w.:]+)(?: without ([\w, ]+))? -->\n)(?:\|[^\n]*\n)*"
)


def with_settings(text: str) -> str:
    """Return a page with its tables of settings and fields made again."""
    text = _CLASS.sub(lambda match: match[1] + _field_table(match[2]), text)
    return _PLACE.sub(
        lambda match: match[1] + _table(match[2], omitted=(match[3] or "").split(", ")), text
    )


def _field_table(path: str) -> str:
    of = pkgutil.resolve_name(path)
    words = {name: text for base in reversed(of.__mro__) for name, text in meanings(base).items()}
    lines = [f"| `{each.name}` | {words[each.name]} |" for each in dataclasses.fields(of)]
    return "\n".join([f"| field of `{of.__name__}` | meaning |", "|---|---|", *lines]) + "\n"


def _table(path: str, omitted: Sequence[str]) -> str:
    of = pkgutil.resolve_name(path)
    rows = _fields(of) if issubclass(of, BaseModel) else _arguments(of)
    lines = [
        f"| `{name}` | {default_text(default)} | {plain(meaning)} |"
        for name, default, meaning in rows
        if name not in omitted
    ]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *lines]) + "\n"


def _fields(of: type[BaseModel]) -> Iterator[tuple[str, object, str]]:
    for name, info in of.model_fields.items():
        assert info.description, f"{of.__name__}.{name} has no description"
        default = None if info.is_required() else info.get_default(call_default_factory=True)
        yield name, default, info.description


def _arguments(of: type) -> Iterator[tuple[str, object, str]]:
    words = meanings(of)
    for name, parameter in inspect.signature(of).parameters.items():
        if name == "context":
            continue  # from delf, not from a user
        default = None if parameter.default is parameter.empty else parameter.default
        yield name, default, words[name]


def default_text(value: Any) -> str:
    """Return the default of a setting as it is written in ``delf.toml``; empty for no value."""
    if value is None or value in ((), [], {}, "", frozenset()) or isinstance(value, SecretStr):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, (tuple, list)):
        return ", ".join(f"`{item}`" for item in cast("list[object]", value))
    if isinstance(value, BaseModel):
        return f"`{json.dumps(value.model_dump())}`"
    # Python would write 2592000.0 as 2.592e+06.
    is_whole = isinstance(value, float) and value.is_integer()
    return f"`{int(value)}`" if is_whole else f"`{value}`"
