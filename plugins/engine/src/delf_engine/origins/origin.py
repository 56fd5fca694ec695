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

# The maximum number of characters of a path in a message; its keys may be untrusted data.
_MAX_PATH_LENGTH: Final = 100
# The minimum number of characters of a value that is searched for in the results of calls.
_MIN_SEARCHED_LENGTH: Final = 3
# The minimum number of characters of a value that may be a part of another value.
#
# A shorter value has to equal a whole value.
_MIN_PART_LENGTH: Final = 12
# Stands before and after each value in a joined text, so that a match can require a whole value.
_SEPARATOR: Final = "\x00"
_TRUSTS: Final[tuple[Trust, ...]] = ("outside", "own")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of a value, as far as known.

    Args:
        kind: The value came from the words of the ``task``, from the ``script`` itself, from the
            ``result`` of a call, or from an ``unknown`` source.
        trust: ``own`` for the user's own words, otherwise ``outside``. A script's words are ``own``
            if its author had read no untrusted data.
        call_id: The number of the call with the result.
        action: The called action.
        path: The path in the result, such as ``[3].body``.
        is_part: Whether the value is only a part of the text, or shares only a part with it.
    """

    kind: Literal["task", "script", "result", "unknown"]
    trust: Trust
    call_id: int | None = None
    action: str | None = None
    path: str = ""
    is_part: bool = False

    @property
    def is_others(self) -> bool:
        """True if the value was found in untrusted data."""
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
        path = path if len(path) <= _MAX_PATH_LENGTH else f"{path[:_MAX_PATH_LENGTH]}…"
        where = f", {path}" if path else ""
        call = f" (call {self.call_id}{where})" if self.call_id else ""
        author = "; others wrote it" if self.trust == "outside" else ""
        return f"{'in part ' if self.is_part else ''}from {self.action}{call}{author}"

    def data(self) -> dict[str, Any]:
        """Return the origin as plain data, for events and requests."""
        data = {"kind": self.kind, "trust": self.trust, "text": self.text}
        if self.kind != "result":
            return data
        return {**data, "call_id": self.call_id, "action": self.action, "path": self.path}


@dataclass()
class ReadCall:
    """A call with its result, or a text that is in the prompt from the start."""

    number: int
    """The number of the call in the task; 0 for a text of the prompt."""
    action: str
    """The called action, or the source of the text."""
    trust: Trust | Mapping[str, Trust]
    """The trust of the result: ``own`` or ``outside``, or a mapping from field to one of these.

    In a mapping, ``*`` stands for all fields that are not listed.
    """
    arguments: Mapping[str, Any]
    tool: BoundAction | None = None
    is_untainted: bool = True
    """True if the author of the call, the user or the model, had read no untrusted data."""
    changes: bool = False
    result: Any = None
    """The result; the error message of a failed call."""
    has_failed: bool = False
    key: tuple[str, ...] = ()
    """The values that decide the effect of the call; empty until the call was compared."""

    @property
    def connection(self) -> str:
        """The name of the action's connection; empty for a function."""
        return self.action.rpartition(".")[0]

    @cached_property
    def letters(self) -> str:
        """The letters and digits of all values in the result, as one text."""
        values = (letters_of(text) for _, _, text in authored(self.result))
        return f"{_SEPARATOR}{_SEPARATOR.join(values)}{_SEPARATOR}"


class Results:
    """The texts that an action has returned so far, separated into the user's own and untrusted."""

    def __init__(self) -> None:
        self.count = 0
        """The number of results."""
        self._own: set[str] = set()
        self._others: set[str] = set()
        # The trust of each field, for actions whose results have fields of different trust.
        self._trusts: list[Mapping[str, Trust]] = []

    def add(self, call: ReadCall) -> None:
        """Add a result."""
        self.count += 1
        trust = call.trust
        if isinstance(trust, str):
            texts = map(same_text, (text for _, text in leaves_of(call.result)))
            (self._own if trust == "own" else self._others).update(texts)
            return
        if trust not in self._trusts:
            self._trusts.append(trust)
        own = {name for name, field_trust in trust.items() if field_trust == "own"}
        others = trust.keys() - own
        for record in cast("Iterator[Mapping[str, Any]]", fields_at(call.result, ())):
            if isinstance(record, dict):
                # The name "*" stands for all fields without a trust of their own.
                own_names = record.keys() - others if "*" in own else own
                for name in own_names:
                    item = record.get(name)
                    if isinstance(item, str):
                        self._own.add(same_text(item))
                    else:
                        self._own.update(_own_texts(item, trust))

    def holds_own(self, value: str, fields: Iterable[str]) -> bool:
        """Return whether a value is the user's own wherever it occurs in the results.

        Args:
            value: The value.
            fields: The fields that the script reads; all of these must be the user's own.
        """
        is_own = value in self._own and value not in self._others
        return is_own and all(_is_own(trust, name) for trust in self._trusts for name in fields)


def _own_texts(item: Any, trust: Mapping[str, Trust]) -> Iterator[str]:
    """Yield the user's own texts in a field; fields inside the value may have another trust."""
    texts = authored(item, {**trust, "*": "own"})
    return (same_text(text) for text_trust, _, text in texts if text_trust == "own")


def _is_own(trust: Mapping[str, Trust], name: str) -> bool:
    rest = "outside" if name == UNKNOWN else trust.get("*", "outside")
    return trust.get(name, rest) == "own"


def find_in(calls: Iterable[ReadCall], text: str) -> Origin | None:
    """Return which call's result a text comes from; None if no result contains the text.

    If no result contains the whole text, the text's rare words and pieces are searched for.
    Untrusted results are searched first. A short text must equal a whole value, because it occurs
    in many texts.
    """
    value = letters_of(text)
    whole = f"{_SEPARATOR}{value}{_SEPARATOR}" if len(value) < _MIN_PART_LENGTH else value
    if len(value) < _MIN_SEARCHED_LENGTH:
        return None
    for wanted in (whole, *pieces_of(text)):
        matching = [call for call in calls if wanted in call.letters]
        for trust in _TRUSTS:
            if origin := next(_origins_in(matching, wanted, value, trust), None):
                return origin
    return None


def _origins_in(
    calls: Iterable[ReadCall], wanted: str, value: str, trust: Trust
) -> Iterator[Origin]:
    """Yield an origin for each value in the calls' results that contains a wanted text."""
    for call in calls:
        for text_trust, path, text in authored(call.result, call.trust):
            letters = letters_of(text)
            if text_trust == trust and wanted in f"{_SEPARATOR}{letters}{_SEPARATOR}":
                yield Origin(
                    kind="result",
                    trust=trust,
                    call_id=call.number,
                    action=call.action,
                    path=path,
                    is_part=letters != value,
                )
