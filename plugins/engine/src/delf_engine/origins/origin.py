"""``Origin``: where a value came from; ``ReadCall`` and ``Author``: whose words something is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import islice
from typing import Any, Final, Literal

from delf.records import dataclass
from delf.types import Trust

OriginKind = Literal["task", "script", "result", "unknown"]

_LONGEST_PATH: Final = 100
"""Characters of a path that are shown: its names are others' words, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of a value, as far as it is known.

    Args:
        kind: The words of the ``task``; the ``script``, whose author wrote it; the ``result`` of a
            call; or ``unknown``, which a value is that the script computed.
        trust: Whose words these are. A script's are its author's own until it has read others'.
        call_id: The call with that result.
        action: What was called.
        path: Where in the result, as ``[3].body``.
        is_part: Only a part of the value was found there, or it is a part of what was.
    """

    kind: OriginKind
    trust: Trust
    call_id: int | None = None
    action: str | None = None
    path: str = ""
    is_part: bool = False

    @property
    def is_others(self) -> bool:
        """True for a value that was found among others' words."""
        return self.kind == "result" and self.trust == "outside"

    @property
    def is_own(self) -> bool:
        """True for the words of the user, or of a script whose author had read no others."""
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
    """The authors of the words that an action gives back.

    Args:
        trust: Of a result as a whole, or by the name of a field with ``*`` for the rest.
        author: The field or the argument with the author that the service vouches for.
        checks: Of the reasons for which its connection refuses a call.
        parameters: The names of the action's parameters, in their order.
        defaults: Of those parameters that have a known one.
        is_known: Whether there is such an action among the task's tools.
        is_built_in: Whether it is delf's own.
    """

    trust: Trust | Mapping[str, Trust] = "outside"
    author: str | None = None
    checks: Trust = "own"
    parameters: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_known: bool = False
    is_built_in: bool = False


@dataclass(slots=True, kw_only=True)
class ReadCall:
    """A call with what it returned.

    Args:
        number: Its number.
        action: What was called.
        arguments: Its arguments.
        wording: Whose words the tool says that it gives back.
        is_clean: Whether the author of the call had read nothing of others.
        changes: Whether it may change something.
        result: What it returned, or how it failed.
        has_failed: Whether it failed.
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
    """The model that wrote what is done now, and what it had read by then.

    Args:
        code: The script; None where a strategy calls without one.
        read: The calls with others' words that had ended when the model was asked.
    """

    code: str | None = None
    read: tuple[tuple[int, str], ...] = ()

    def described(self) -> str:
        """Name what it had read, for a person."""
        names = dict.fromkeys(
            f"{action} (call {number})" if number else action for number, action in self.read
        )
        more = len(names) - 3
        return ", ".join(islice(names, 3)) + (f" and {more} more" if more > 0 else "")
