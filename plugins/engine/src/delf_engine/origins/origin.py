"""``Origin``: where a value came from; ``ReadCall`` and ``Author``: whose words something is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from itertools import islice
from typing import Any, Final, Literal

from delf.records import dataclass
from delf.types import Trust

OriginKind = Literal["task", "script", "result", "unknown"]

_LONGEST_PATH: Final = 100
"""The most characters of a shown path, because its names are others' words, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of a value, as far as known.

    Args:
        kind: The words of the ``task``; the ``script``, whose author wrote it; the ``result`` of a
            call; or ``unknown`` for computed values.
        trust: The author of the words. A script's words are the user's until its author has read
            words of others.
        call_id: The number of the call with the result.
        action: The called action.
        path: The place in the result, such as ``[3].body``.
        is_part: Whether only a part of the value was found there, or the value is a part of the
            text found.
    """

    kind: OriginKind
    trust: Trust
    call_id: int | None = None
    action: str | None = None
    path: str = ""
    is_part: bool = False

    @property
    def is_others(self) -> bool:
        """True if the value was found in others' words."""
        return self.kind == "result" and self.trust == "outside"

    @property
    def is_own(self) -> bool:
        """True for words of the user, or of a script whose author had read no words of others."""
        return self.trust == "own" and self.kind != "result"

    @property
    def text(self) -> str:
        """The origin in words, for a person."""
        match self.kind:
            case "task":
                return "in your task"
            case "script":
                return (
                    "written by the model"
                    if self.trust == "own"
                    else "written by the model after it read what others wrote"
                )
            case "result":
                part = "in part " if self.is_part else ""
                path = self.path.lstrip(".")
                path = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"
                where = f", {path}" if path else ""
                whose = "; others wrote it" if self.trust == "outside" else ""
                call = f" (call {self.call_id}{where})" if self.call_id else ""
                return f"{part}from {self.action}{call}{whose}"
            case "unknown":
                return "computed by the script; not found in your task or in a result"

    def data(self) -> dict[str, Any]:
        """Return the origin as plain data, for events and requests."""
        found = {"kind": self.kind, "trust": self.trust, "text": self.text}
        if self.kind == "result":
            return {**found, "call_id": self.call_id, "action": self.action, "path": self.path}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The authors of an action's results.

    Args:
        trust: The trust of the whole result, or by field with ``*`` for the rest.
        author: The field or argument with the author that the service guarantees.
        checks: The trust of the messages of the connection's check.
        parameters: The names of the action's parameters, in their order.
        defaults: The known defaults of parameters.
        is_known: Whether the action is among the task's tools.
        is_built_in: Whether the action is delf's own.
        of_call: Returns the trust of a call's result by its arguments, for connections that know;
            None for ``trust``.
    """

    trust: Trust | Mapping[str, Trust] = "outside"
    author: str | None = None
    checks: Trust = "own"
    parameters: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_known: bool = False
    is_built_in: bool = False
    of_call: Callable[[Mapping[str, Any]], Trust | Mapping[str, Trust] | None] | None = None


@dataclass(slots=True, kw_only=True)
class ReadCall:
    """A call with its result.

    Args:
        number: The number.
        action: The called action.
        arguments: The arguments.
        wording: The declared authors of the result.
        is_clean: Whether the author of the call had read no text of others.
        changes: Whether the action may change something.
        result: The result, or the error.
        has_failed: Whether the call failed.
    """

    number: int
    action: str
    arguments: Mapping[str, Any]
    wording: Wording
    is_clean: bool = True
    changes: bool = False
    result: Any = None
    has_failed: bool = False

    @property
    def connection(self) -> str:
        """The name of its connection; empty for a function."""
        return self.action.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The model that wrote the current calls, and the texts that it had read.

    Args:
        code: The script; None if the strategy calls without a script.
        read: The calls with others' words that had ended when the model was asked.
    """

    code: str | None = None
    read: tuple[tuple[int, str], ...] = ()

    def described(self) -> str:
        """Describe the texts that the author had read, for a person."""
        names = dict.fromkeys(
            f"{action} (call {number})" if number else action for number, action in self.read
        )
        more = len(names) - 3
        return ", ".join(islice(names, 3)) + (f" and {more} more" if more > 0 else "")
