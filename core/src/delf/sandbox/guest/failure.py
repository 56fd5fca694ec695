"""Describes how a script ended: the failing line, the message, the variables alive."""

from __future__ import annotations

import re
import types
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeGuard

_MAX_VARIABLES = 60
_MAX_MESSAGE = 4000
_MAX_LINE = 400
_HIDDEN = (types.ModuleType, types.BuiltinFunctionType)


@dataclass(frozen=True)
class Place:
    """Where in a script something happened."""

    line: int | None = None
    source: str | None = None
    local_variables: Mapping[str, Any] | None = None


def find_place(error: BaseException, sources: Mapping[str, str]) -> Place:
    """The innermost line of a script on an exception's way up.

    Args:
        error: The exception.
        sources: Script texts by the file name that tracebacks give them.
    """
    if isinstance(error, SyntaxError) and error.filename and error.filename in sources:
        return Place(error.lineno, _line_of(sources[error.filename], error.lineno or 0))
    place = Place()
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        source = sources.get(code.co_filename)
        if source is not None:
            text = _line_of(source, trace.tb_lineno)
            in_function = not code.co_name.startswith("<") and code.co_name != "__delf_main__"
            place = Place(trace.tb_lineno, text, trace.tb_frame.f_locals if in_function else None)
        trace = trace.tb_next
    return place


def _line_of(source: str, number: int) -> str | None:
    """A line as Python counts them: other separators of Unicode do not end one."""
    lines = re.split(r"\r\n?|\n", source)
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return text[:_MAX_LINE] or None


def message_of(error: BaseException) -> str:
    """An exception's message, capped, whatever its ``__str__`` does."""
    try:
        text = str(error)
    except BaseException as broken:
        text = f"(its message cannot be shown: {type(broken).__name__})"
    notes: Iterable[Any] = getattr(error, "__notes__", None) or ()
    text = "\n".join([text, *(str(note) for note in notes)])
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}… ({len(text)} characters)"


def describe_variables(
    namespace: Mapping[str, Any], hidden: frozenset[str], local: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """The variables alive with their types, newest last, for the next prompt.

    Args:
        namespace: The script's global names.
        hidden: Names that were there before any script.
        local: Local variables of the function that failed.
    """
    found: dict[str, str] = {}
    for scope in (namespace, local or {}):
        for name, value in scope.items():
            if str(name).startswith("_") or name in hidden or isinstance(value, _HIDDEN):
                continue
            found.pop(name, None)
            found[name] = describe_type(value)
    return dict(list(found.items())[-_MAX_VARIABLES:])


def describe_type(value: Any) -> str:
    """A value's type in a few words: ``list of 24 dict``, ``DataFrame (10, 3)``."""
    kind = type(value).__name__
    try:
        if _is_collection(value):
            first = type(next(iter(value))).__name__ if value else ""
            return f"{kind} of {len(value)} {first}".rstrip()
        if _is_dict(value):
            keys = ", ".join(repr(key)[:30] for key in islice(value, 8))
            return f"dict with {len(value)} keys: {keys}" if value else "empty dict"
        if isinstance(value, (str, bytes)):
            return f"{kind} of length {len(value)}"
        if isinstance(value, (types.FunctionType, type)):
            return "class" if isinstance(value, type) else "function"
        shape = getattr(value, "shape", None)
    except Exception:
        return kind
    return f"{kind} {shape}" if _is_collection(shape) else kind


def _is_collection(value: Any) -> TypeGuard[Collection[Any]]:
    return isinstance(value, (list, tuple, set, frozenset))


def _is_dict(value: Any) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)
