"""Parts of an answer: thoughts, text, calls, and unreadable text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class AnswerText:
    """A piece of the text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A complete tool call that the model wrote."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnparsableCall:
    """Text that was expected to be calls but cannot be parsed.

    Args:
        text: The unreadable text.
        why: The fault, as a clause for the model.
    """

    text: str
    why: str


@dataclass(frozen=True, slots=True)
class InventedResults:
    """Ignored text after the calls, in which models often invent the results of their calls."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a call.

    Args:
        name: The tool's name.
        status: ``ok``, ``error``, ``refused`` (by a check) or ``rejected`` (by a person).
        value: The result as plain data; for another status than ``ok``, the error message.
        is_untrusted: Whether the result is untrusted data.
    """

    name: str
    status: str
    value: Any
    is_untrusted: bool = False


Event = Thought | AnswerText | Called | UnparsableCall | InventedResults
