"""``Origin``: where a value came from; ``ReadCall``: a text that a task has read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from delf.records import dataclass
from delf.types import Trust
from delf_engine.bound_action import BoundAction

OriginKind = Literal["task", "script", "result", "unknown"]

_LONGEST_PATH: Final = 100
"""The most characters of a shown path, because its names are others' words, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of a value, as far as known.

    Args:
        kind: The words of the ``task``; the ``script``; the ``result`` of a call; or ``unknown``.
        trust: The author of the words. A script's words are the user's until its author has read
            words of others.
        call_id: The number of the call with the result.
        action: The called action.
        path: The place in the result, such as ``[3].body``.
        is_part: Whether value and text share only a part.
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
    def text(self) -> str:
        """The origin in words, for a person."""
        match self.kind:
            case "task":
                return "in your task"
            case "script" if self.trust == "own":
                return "written by the model"
            case "script":
                return "written by the model after it read what others wrote"
            case "result":
                path = self.path.lstrip(".")
                path = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"
                where = f", {path}" if path else ""
                call = f" (call {self.call_id}{where})" if self.call_id else ""
                whose = "; others wrote it" if self.trust == "outside" else ""
                return f"{'in part ' if self.is_part else ''}from {self.action}{call}{whose}"
            case "unknown":
                return "computed by the script; not found in your task or in a result"

    def data(self) -> dict[str, Any]:
        """Return the origin as plain data, for events and requests."""
        found = {"kind": self.kind, "trust": self.trust, "text": self.text}
        if self.kind == "result":
            return {**found, "call_id": self.call_id, "action": self.action, "path": self.path}
        return found


@dataclass(slots=True)
class ReadCall:
    """A call with its result, or a text that is in the prompt from the start."""

    number: int
    """Its number; 0 for a text of the prompt."""
    action: str
    """The called action, or the place of the text."""
    trust: Trust | Mapping[str, Trust]
    """The author of the result, as a whole or by field with ``*`` for the rest."""
    arguments: Mapping[str, Any]
    tool: BoundAction | None = None
    is_clean: bool = True
    """True if the author of the call had read no text of others."""
    changes: bool = False
    result: Any = None
    """The result, or the error."""
    has_failed: bool = False
    key: tuple[str, ...] = ()
    """The values that decide, once the call was compared."""

    @property
    def connection(self) -> str:
        """The name of its connection; empty for a function."""
        return self.action.rpartition(".")[0]
