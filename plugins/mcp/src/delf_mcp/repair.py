"""Repair of messages that are JSON but that protocol libraries reject."""

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
"""The key for notes about repairs in a result."""
_BARE: Final = f"{_NOTES_KEY}/bare"
"""The key under which non-object data is wrapped."""


def needs_repair(text: str) -> bool:
    """Return True for a message with non-object data or unpaired surrogates."""
    return '"structuredContent"' in text or _HALF.search(text) is not None


def repaired(text: str) -> str:
    """Return the JSON without lone surrogates, and with non-finite numbers as text.

    Otherwise one such value in a tool's description would invalidate the whole list. Losses in a
    tool's result are recorded for :func:`note_losses`.

    Raises:
        ValueError: If the text is not JSON.
        RecursionError: If the text is nested too deeply.
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


def note_losses(meta: Mapping[str, Any] | None) -> None:
    """Add a note to the current call for each value that a repaired result has lost."""
    for text in (meta or {}).get(_NOTES_KEY, ()):
        note(text)


def data_of(meta: Mapping[str, Any] | None, content: Any) -> Any:
    """Return the data of a result as its server sent it, including lists and texts."""
    return content["value"] if (meta or {}).get(_BARE) else content


def _wrap(message: dict[str, Any]) -> bool:
    """Wrap non-object data in an object, as the 2025 protocol requires; return whether it did."""
    result = message.get("result")
    if not isinstance(result, dict):
        return False
    record = cast("dict[str, Any]", result)
    data: Any = record.get("structuredContent")
    if data is None or isinstance(data, dict):
        return False
    record["structuredContent"] = {"value": data}
    meta = record.setdefault("_meta", {})
    if isinstance(meta, dict):
        meta[_BARE] = True
    return True


def _attach(message: dict[str, Any], notes: Iterable[str]) -> None:
    result = message.get("result")
    if isinstance(result, dict):
        meta = cast("dict[str, Any]", result).setdefault("_meta", {})
        if isinstance(meta, dict):
            meta[_NOTES_KEY] = list(notes)
