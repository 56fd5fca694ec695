"""Parts of an answer: thoughts, text, calls, and unreadable text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Thought:
    """A thought of the model, or a piece of it."""

    text: str


@dataclass(frozen=True, slots=True)
class Prose:
    """Text for the user, or a piece of it."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call that the model wrote, complete."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Misread:
    """Text that was expected to be calls but cannot be parsed.

    Args:
        text: The unreadable text.
        why: The fault, for the model.
    """

    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Invented:
    """Text in which the model made up tool results; it is ignored."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a call.

    Args:
        name: The tool.
        status: ``ok``, ``error``, ``refused`` or ``rejected``.
        value: The result as plain data, or the reason that there is none.
        is_untrusted: Whether others may have written the result.
    """

    name: str
    status: str
    value: Any
    is_untrusted: bool = False


Event = Thought | Prose | Called | Misread | Invented


def join_texts(events: list[Event]) -> list[Event]:
    """Return the events with neighbouring pieces of text joined."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, Thought) and isinstance(last, Thought):
            joined[-1] = Thought(last.text + event.text)
        elif isinstance(event, Prose) and isinstance(last, Prose):
            joined[-1] = Prose(last.text + event.text)
        else:
            joined.append(event)
    return joined
