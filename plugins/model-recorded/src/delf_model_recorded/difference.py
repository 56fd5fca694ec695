"""Differences between a request and a recording, for people."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from delf_model_recorded.recording import Entry, text_of

_MAX_LINES: Final = 24
_MAX_LINE_CHARS: Final = 160


def explain(entry: Entry, actual: Mapping[str, Any]) -> str:
    """Describe the differences between a recorded request and the actual request.

    Args:
        entry: The entry with the recorded request. A field that this request omits matches any
            value.
        actual: The actual request, as a recording describes requests.
    """
    recorded = dict(entry.request)
    if entry.contains is not None:  # the entry is written by hand
        text = text_of(actual)
        missing = [repr(wanted) for wanted in entry.contains if wanted not in text]
        if missing:
            return f"the request does not contain {', '.join(missing)}"
        del recorded["contains"]  # actual requests do not have this field
    compared = {name: actual.get(name) for name in recorded}
    old = list(_request_lines(recorded))
    new = list(_request_lines(compared))
    lines = list(difflib.unified_diff(old, new, "recorded", "asked", lineterm="", n=1))
    shown_lines = [
        line if len(line) <= _MAX_LINE_CHARS else line[: _MAX_LINE_CHARS - 1] + "…"
        for line in lines[:_MAX_LINES]
    ]
    if len(lines) > _MAX_LINES:
        shown_lines.append(f"… {len(lines) - _MAX_LINES} more lines")
    return "\n".join(shown_lines)


def _request_lines(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield a request as lines to compare: the messages' lines with roles, and other fields."""
    for name, value in request.items():
        if name == "messages":
            for message in value:
                yield from _message_lines(message)
        else:
            yield f"{name}: {json.dumps(value, sort_keys=True)}"


def _message_lines(message: Mapping[str, Any]) -> list[str]:
    lines = str(message["text"]).splitlines()
    lines += [json.dumps(part, sort_keys=True) for part in message.get("parts", ())]
    return [f"{message['role']}: {line}" for line in lines]
