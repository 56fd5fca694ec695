"""Differences between a request and a recording, for people."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from delf_model_recorded.recording import Entry, text_of

_LINES: Final = 24
_WIDTH: Final = 160


def explain(entry: Entry, asked: Mapping[str, Any]) -> str:
    """Explain the first difference between an entry and a request, both in the file's form.

    Args:
        entry: What was recorded.
        asked: What was asked.
    """
    expected = entry.request
    if (purpose := expected.get("purpose")) not in (None, asked["purpose"]):
        return f"the purpose: recorded {purpose!r}, asked {asked['purpose']!r}"
    if (texts := entry.contains) is not None:
        text = text_of(asked)
        missing = [repr(wanted) for wanted in texts if wanted not in text]
        return f"words: the request does not contain {', '.join(missing)}"
    recorded: Sequence[Mapping[str, Any]] = expected["messages"]
    given: Sequence[Mapping[str, Any]] = asked["messages"]
    for number, (old, new) in enumerate(zip(recorded, given, strict=False), 1):
        if dict(old) != dict(new):
            return f"message {number} ({_roles(old, new)}):\n{_diff(_shown(old), _shown(new))}"
    if len(recorded) != len(given):
        more = max(recorded, given, key=len)[min(len(recorded), len(given))]
        return (
            f"the number of messages: recorded {len(recorded)}, asked {len(given)}; "
            f"the first without a partner ({more['role']}) begins {_cut(more['text'])!r}"
        )
    for name in ("tools", "must_call"):
        if name in expected and expected[name] != asked.get(name):
            return f"{name}: recorded {expected[name]}, asked {asked.get(name)}"
    return f"the settings: recorded {expected.get('settings')}, asked {asked['settings']}"


def _roles(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if old["role"] == new["role"]:
        return str(old["role"])
    return f"recorded {old['role']}, asked {new['role']}"


def _shown(message: Mapping[str, Any]) -> list[str]:
    lines = str(message["text"]).splitlines()
    return lines + [json.dumps(part, sort_keys=True) for part in message.get("parts", ())]


def _diff(old: list[str], new: list[str]) -> str:
    lines = list(difflib.unified_diff(old, new, "recorded", "asked", lineterm="", n=1))
    shown = [_cut(line) for line in lines[:_LINES]]
    if len(lines) > _LINES:
        shown.append(f"… {len(lines) - _LINES} more lines")
    return "\n".join(shown)


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"
