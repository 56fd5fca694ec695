"""Messages that are JSON by its grammar, and that no reader of the protocol takes as they are."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from delf.notes import note, notes_of_call
from delf.values.json_reader import JSONReader

_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""An escape of a lone surrogate; a pair is one character."""
_NOTES_KEY: Final = f"delf/{secrets.token_hex(8)}"
"""The key of the notes in a result, unknown to servers."""
_BARE: Final = f"{_NOTES_KEY}/bare"
"""The key for data that was no object."""


def needs_repair(text: str) -> bool:
    """Return true where a message holds data, or half a character."""
    return '"structuredContent"' in text or _HALF.search(text) is not None


def repaired(text: str) -> str:
    """Return the JSON without lone surrogates, and with non-finite numbers as text.

    One of them in one tool's description is not worth the whole list. What gets lost in a tool's
    result is noted in it, for :func:`tell`.

    Raises:
        ValueError: When it is not JSON.
        RecursionError: When it is nested too deeply.
    """
    reader = JSONReader("the server's answer")
    value = reader.value(text)
    with notes_of_call() as notes:
        reader.tell()
    wrapped = isinstance(value, dict) and _wrap(cast("dict[str, Any]", value))
    if not notes and not wrapped and not _HALF.search(text):
        return text
    if isinstance(value, dict):
        _attach(cast("dict[str, Any]", value), notes)
    made = json.dumps(value, ensure_ascii=False)
    return made.encode("utf-8", "replace").decode()


def tell(meta: Mapping[str, Any] | None) -> None:
    """Note the losses in reading a result."""
    for text in (meta or {}).get(_NOTES_KEY, ()):
        note(text)


def data_of(meta: Mapping[str, Any] | None, content: Any) -> Any:
    """Return the data of a result as its server sent it, including lists and texts."""
    return content["value"] if (meta or {}).get(_BARE) else content


def _wrap(message: dict[str, Any]) -> bool:
    """Wrap non-object data in an object, as clients of 2025 require."""
    result = message.get("result")
    if not isinstance(result, dict):
        return False
    found = cast("dict[str, Any]", result)
    data: Any = found.get("structuredContent")
    if data is None or isinstance(data, dict):
        return False
    found["structuredContent"] = {"value": data}
    meta = found.setdefault("_meta", {})
    if isinstance(meta, dict):
        meta[_BARE] = True
    return True


def _attach(message: dict[str, Any], notes: Iterable[str]) -> None:
    result = message.get("result")
    if isinstance(result, dict):
        meta = cast("dict[str, Any]", result).setdefault("_meta", {})
        if isinstance(meta, dict):
            meta[_NOTES_KEY] = list(notes)
