"""Repair of messages that are JSON but that protocol libraries reject."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import mcp_types as types

from delf.notes import note
from delf.values.json_reader import JSONReader
from delf_mcp.depth import is_cut, may_have_deep_items, replace_cut_items, without_deep_parts

# Matches the code with which the client library reports the end of a connection. Servers use the
# code for errors of their own.
_CLOSED_CODE: Final = re.compile(rf'"code"\s*:\s*{types.CONNECTION_CLOSED}\b')
_SERVER_ERROR: Final = -32019
# Matches the escape of a surrogate, which may be unpaired.
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
# Matches an integer that may have more digits than the client library reads. The search is linear,
# because a match begins at the first digit.
_LONG_INTEGER: Final = re.compile(r"(?<![0-9])[0-9]{4300}")
_REPAIRABLE: Final = (_SURROGATE, _CLOSED_CODE, _LONG_INTEGER)
# The key in a result's metadata for notes about lossy repairs; servers cannot guess the key.
_NOTES_KEY: Final = f"delf/{secrets.token_hex(8)}"
# The key in a result's metadata that marks data that :func:`repaired` wrapped in an object.
_WRAPPED_KEY: Final = f"{_NOTES_KEY}/bare"


def needs_repair(text: str) -> bool:
    """Return True if a message may need a repair by :func:`repaired`.

    A repair is needed for lone surrogates, for structured data that is not an object, for a
    server's error that would look like the end of the connection, for integers with thousands of
    digits, and for a list with items that are nested too deeply.
    """
    if '"structuredContent"' in text:
        return True
    return any(pattern.search(text) for pattern in _REPAIRABLE) or may_have_deep_items(text)


def repaired(text: str) -> str:
    """Repair the JSON of a message, so that the client library accepts the message.

    Notes about lost values are added to the metadata of a tool's result, for :func:`note_losses`.
    A tool that is nested too deeply is replaced by an item for which
    :func:`delf_mcp.depth.is_too_deep` is True.

    Raises:
        ValueError: If the text is not JSON, or if a part outside of lists is nested too deeply.
        RecursionError: If the text is nested too deeply.
    """
    has_deep_parts = may_have_deep_items(text)
    reader = JSONReader("the server's answer")
    value = reader.value(without_deep_parts(text) if has_deep_parts else text)
    notes = reader.notes()  # about numbers that are not finite, which have become texts
    is_repaired = has_deep_parts or bool(notes) or _SURROGATE.search(text) is not None
    if isinstance(value, dict):
        message = cast("dict[str, Any]", value)
        if has_deep_parts:
            replace_cut_items(message)
        was_wrapped = _wrap_data(message)
        had_closed_code = _replace_code_of_closed_connection(message)
        is_repaired = is_repaired or was_wrapped or had_closed_code
        _attach_notes(message, notes)
    if not is_repaired:
        return text
    repaired_text = json.dumps(value, ensure_ascii=False)
    if is_cut(repaired_text):  # a deep part is outside of the lists, where no item can replace it
        raise ValueError("the message is nested too deeply")
    return repaired_text.encode("utf-8", "replace").decode()  # without lone surrogates


def note_losses(meta: Mapping[str, Any] | None) -> None:
    """Add the notes in a result's metadata to the current call.

    The notes say which values of the result were lost when :func:`repaired` converted the server's
    message.
    """
    for text in (meta or {}).get(_NOTES_KEY, ()):
        note(text)


def data_of(meta: Mapping[str, Any] | None, content: Any) -> Any:
    """Return the structured data of a tool result as the server sent the data.

    The client library accepts only objects as structured data. So :func:`repaired` puts any other
    data into an object with the key ``value``, and sets ``_WRAPPED_KEY`` in the result's metadata.

    Args:
        meta: The metadata of the result.
        content: The structured data as the client library returns it.
    """
    if (meta or {}).get(_WRAPPED_KEY):
        return content["value"]
    return content


def _wrap_data(message: dict[str, Any]) -> bool:
    """Put structured data that is not an object into an object.

    The protocol of 2025 allows only objects as structured data.

    Returns:
        True if the data was not an object.
    """
    result = message.get("result")
    if not isinstance(result, dict):
        return False
    fields = cast("dict[str, Any]", result)
    data: Any = fields.get("structuredContent")
    if data is None or isinstance(data, dict):
        return False
    fields["structuredContent"] = {"value": data}
    _set_metadata(fields, _WRAPPED_KEY, True)
    return True


def _set_metadata(result: dict[str, Any], key: str, value: Any) -> None:
    """Set a key in the metadata of a result; do nothing if the metadata is not an object."""
    if result.get("_meta") is None:
        result["_meta"] = {}
    if isinstance(result["_meta"], dict):
        result["_meta"][key] = value


def _replace_code_of_closed_connection(message: dict[str, Any]) -> bool:
    """Replace the code of a server's error if it is the code for a closed connection.

    Returns:
        True if the code was replaced.
    """
    error = message.get("error")
    if not isinstance(error, dict):
        return False
    fields = cast("dict[str, Any]", error)
    if fields.get("code") != types.CONNECTION_CLOSED:
        return False
    fields["code"] = _SERVER_ERROR
    return True


def _attach_notes(message: dict[str, Any], notes: Iterable[str]) -> None:
    result = message.get("result")
    if isinstance(result, dict):
        _set_metadata(cast("dict[str, Any]", result), _NOTES_KEY, list(notes))
