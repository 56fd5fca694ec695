"""``Origin``: where a value came from; ``ReadCall``: a text that a task has read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Literal, cast

from delf.records import dataclass
from delf.types import Trust
from delf_engine.bound_action import BoundAction
from delf_engine.origins.scripts import UNKNOWN
from delf_engine.origins.texts import letters_of, pieces_of, same_text
from delf_engine.origins.values import authored, fields_at, leaves_of

_LONGEST_PATH: Final = 100
"""The maximum number of characters shown of a path, whose names others may have written."""
_MIN: Final = 3
"""The minimum number of characters of a value that is searched for in the results of calls."""
_SHORT: Final = 12
"""The minimum number of characters of a value that is also searched for inside other values.

A shorter value has to be equal to a whole value.
"""
_SEAM: Final = "\x00"
"""A separator before and after each value, so that matches end where values end."""
_TRUSTS: Final[tuple[Trust, ...]] = ("outside", "own")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of a value, as far as known.

    Args:
        kind: The words of the ``task``; the ``script``; the ``result`` of a call; or ``unknown``.
        trust: The author of the words. A script's words are the user's until its author has read
            words of others.
        call_id: The number of the call with the result.
        action: The called action.
        path: The path in the result, such as ``[3].body``.
        is_part: Whether value and text share only a part.
    """

    kind: Literal["task", "script", "result", "unknown"]
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
        if self.kind == "task":
            return "in the task"
        if self.kind == "unknown":
            return "computed by the script; not found in the task or in a result"
        if self.kind == "script":
            after = "" if self.trust == "own" else " after it read what others wrote"
            return f"written by the model{after}"
        path = self.path.lstrip(".")
        path = path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"
        where = f", {path}" if path else ""
        call = f" (call {self.call_id}{where})" if self.call_id else ""
        whose = "; others wrote it" if self.trust == "outside" else ""
        return f"{'in part ' if self.is_part else ''}from {self.action}{call}{whose}"

    def data(self) -> dict[str, Any]:
        """Return the origin as plain data, for events and requests."""
        found = {"kind": self.kind, "trust": self.trust, "text": self.text}
        place = {"call_id": self.call_id, "action": self.action, "path": self.path}
        return {**found, **place} if self.kind == "result" else found


@dataclass()
class ReadCall:
    """A call with its result, or a text that is in the prompt from the start."""

    number: int
    """Its number; 0 for a text of the prompt."""
    action: str
    """The called action, or the source of the text."""
    trust: Trust | Mapping[str, Trust]
    """The author of the result: one value for the whole result, or a mapping from field to value.

    In a mapping, ``*`` is every other field.
    """
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

    @cached_property
    def letters(self) -> str:
        """The letters of all values of the result."""
        values = (letters_of(text) for _, _, text in authored(self.result))
        return f"{_SEAM}{_SEAM.join(values)}{_SEAM}"


class Results:
    """The values that an action has returned so far, by author."""

    def __init__(self) -> None:
        self.count = 0
        """The number of results."""
        self._own: set[str] = set()
        self._others: set[str] = set()
        self._trusts: list[Mapping[str, Trust]] = []
        """The declared authors of fields."""

    def add(self, call: ReadCall) -> None:
        """Add a result."""
        self.count += 1
        trust = call.trust
        if isinstance(trust, str):
            texts = map(same_text, (text for _, text in leaves_of(call.result)))
            (self._own if trust == "own" else self._others).update(texts)
            return
        self._trusts += [] if trust in self._trusts else [trust]
        own = {name for name, whose in trust.items() if whose == "own"}
        others = trust.keys() - own
        for record in cast("Iterator[Mapping[str, Any]]", fields_at(call.result, ())):
            if isinstance(record, dict):
                for name in record.keys() - others if "*" in own else own:
                    item = record.get(name)
                    if isinstance(item, str):
                        self._own.add(same_text(item))
                    else:
                        self._own.update(_own_texts(item, trust))

    def holds_own(self, value: str, fields: Iterable[str]) -> bool:
        """Return whether a value is own, given the fields that a script reads for the value."""
        is_own = value in self._own and value not in self._others
        return is_own and all(_is_own(trust, name) for trust in self._trusts for name in fields)


def _own_texts(item: Any, trust: Mapping[str, Trust]) -> Iterator[str]:
    """Yield the user's own texts in a field that is own as a whole, apart from fields inside."""
    held = authored(item, {**trust, "*": "own"})
    return (same_text(text) for whose, _, text in held if whose == "own")


def _is_own(trust: Mapping[str, Trust], name: str) -> bool:
    rest = "outside" if name == UNKNOWN else trust.get("*", "outside")
    return trust.get(name, rest) == "own"


def find_in(calls: Iterable[ReadCall], text: str) -> Origin | None:
    """Return the first place in results that contains a text or, failing that, a piece of it.

    Texts of others are searched before those of the user. A short text must equal a whole value,
    because it occurs in many texts.
    """
    value = letters_of(text)
    whole = f"{_SEAM}{value}{_SEAM}" if len(value) < _SHORT else value
    for wanted in (whole, *pieces_of(text)) if len(value) >= _MIN else ():
        held = [call for call in calls if wanted in call.letters]
        for trust in _TRUSTS:
            if found := next(_places(held, wanted, value, trust), None):
                return found
    return None


def _places(calls: Iterable[ReadCall], wanted: str, value: str, trust: Trust) -> Iterator[Origin]:
    """Yield an origin for each text in calls' results that contains a wanted text."""
    for call in calls:
        for whose, path, text in authored(call.result, call.trust):
            letters = letters_of(text)
            if whose == trust and wanted in f"{_SEAM}{letters}{_SEAM}":
                yield Origin(
                    kind="result",
                    trust=trust,
                    call_id=call.number,
                    action=call.action,
                    path=path,
                    is_part=letters != value,
                )
