"""``Origin``: where a value came from; ``PastCall``: a call of a task, with its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, cast

from delf.records import dataclass
from delf.types import Trust
from delf_engine.bound_action import BoundAction
from delf_engine.origins.sources import UNKNOWN_FIELD
from delf_engine.origins.texts import letters_and_digits, normalized_text, pieces_of
from delf_engine.origins.values import fields_at, leaves_of, texts_with_trust

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
        is_part: Whether the value differs from the text at ``path``: the value is only a part of
            that text, or only a part of the value is in that text.
        is_mixed: Whether only a part of the value is in the text at ``path``.
    """

    kind: Literal["task", "script", "result", "unknown"]
    trust: Trust
    call_id: int | None = None
    action: str | None = None
    path: str = ""
    is_part: bool = False
    is_mixed: bool = False

    @property
    def is_from_untrusted_data(self) -> bool:
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
        source = f"from {self.action}"
        if self.is_part:
            source = f"in part {source}"
        path = self.path.lstrip(".")
        if len(path) > _MAX_PATH_LENGTH:
            path = f"{path[:_MAX_PATH_LENGTH]}…"
        if self.call_id:  # 0 for a text that no call returned, such as an input file
            place = f"call {self.call_id}, {path}" if path else f"call {self.call_id}"
            source = f"{source} ({place})"
        return f"{source}; others wrote it" if self.trust == "outside" else source

    def data(self) -> dict[str, Any]:
        """Return the origin as plain data, for events and requests."""
        data = {"kind": self.kind, "trust": self.trust, "text": self.text}
        if self.kind != "result":
            return data
        return {**data, "call_id": self.call_id, "action": self.action, "path": self.path}


@dataclass()
class PastCall:
    """A call of the task, with its result once the call has finished.

    A text that no call returned, such as a part of the first prompt, is stored as the result of a
    made-up call, so that the text can be searched like a result.
    """

    number: int
    """The number of the call, counted from 1 among the task's calls; 0 for a made-up call."""
    action: str
    """The called action.

    For text that no call returned, the text's source, such as ``the input file plan.txt``.
    """
    trust: Trust | Mapping[str, Trust]
    """The trust of the result: ``own`` or ``outside``, or a mapping from field to one of these.

    In a mapping, ``*`` stands for all fields that are not listed.
    """
    arguments: Mapping[str, Any]
    tool: BoundAction | None = None
    has_author_read_untrusted_data: bool = False
    """True if the author of the call, the user or the model, had read untrusted data."""
    changes_data: bool = False
    """True if the call is no read."""
    is_description: bool = False
    """True for a made-up call whose result describes a connection, such as its tables."""
    result: Any = None
    """The result; the error message of a failed call."""
    has_failed: bool = False
    key: tuple[str, ...] = ()
    """The action and the values that decide the effect of the call, for finding equal calls.

    Empty until :meth:`Outline.admit_call` has computed the key.
    """

    @property
    def connection(self) -> str:
        """The name of the action's connection; empty for a function."""
        return self.action.rpartition(".")[0]

    @cached_property
    def searchable_values(self) -> Sequence[SearchableValue]:
        """The values in the result, prepared for the search for a text.

        The list is stored, because each value in a later call is searched for in this result.
        """
        return [
            SearchableValue(trust, path, text, letters_and_digits(text))
            for trust, path, text in texts_with_trust(self.result, self.trust)
        ]

    @cached_property
    def searchable_text(self) -> str:
        """The letters and digits of the values in the result, with separators between values."""
        return _delimited(_SEPARATOR.join(value.letters for value in self.searchable_values))


class SearchableValue(NamedTuple):
    """A value in the result of a call, prepared for the search for a text."""

    trust: Trust
    path: str
    text: str
    letters: str
    """The letters and digits of the text, without other characters."""


class Results:
    """The texts that one action has returned so far in a task.

    Texts that count as the user's own data are stored apart from texts that others wrote.
    """

    def __init__(self) -> None:
        self.count = 0
        """The number of added results, which tells the caller of :meth:`add` what is new."""
        # The normalized texts that count as the user's own data, and all other texts.
        self._texts_of_user: set[str] = set()
        self._texts_of_others: set[str] = set()
        # The different mappings from field to trust of the added calls. A field counts as the
        # user's only if all of these mappings say so.
        self._trusts_by_field: list[Mapping[str, Trust]] = []

    def add(self, call: PastCall) -> None:
        """Add the texts in a finished call's result, for :meth:`is_only_in_user_data`.

        The call has one trust for the whole result, or a mapping from field to trust.
        """
        self.count += 1
        if isinstance(call.trust, str):
            texts = self._texts_of_user if call.trust == "own" else self._texts_of_others
            texts.update(normalized_text(text) for _, text in leaves_of(call.result))
        else:
            self._add_user_fields(call.result, call.trust)

    def _add_user_fields(self, result: Any, trust_by_field: Mapping[str, Trust]) -> None:
        """Add the texts of all fields that the user wrote, such as ``subject``.

        The texts of fields that others wrote, such as ``body``, are not stored:
        :meth:`is_only_in_user_data` returns False for each script that reads such a field.
        """
        if trust_by_field not in self._trusts_by_field:
            self._trusts_by_field.append(trust_by_field)
        records = fields_at(result, ())  # an empty path: the records themselves
        for record in records:
            fields = cast("dict[str, Any]", record) if isinstance(record, dict) else {}
            for name, value in fields.items():
                if _trust_of_field(trust_by_field, name) != "own":
                    continue
                if isinstance(value, str):
                    self._texts_of_user.add(normalized_text(value))
                else:  # others may have written some of the inner fields
                    self._texts_of_user.update(_user_texts_in(value, trust_by_field))

    def is_only_in_user_data(self, value: str, fields: Iterable[str]) -> bool:
        """Return whether a value is in the results, and only in data that the user wrote.

        If other people wrote one of the fields that the script reads, return False, whatever the
        field contains.

        Args:
            value: The normalized value.
            fields: The names of the fields that the script reads.
        """
        if value not in self._texts_of_user or value in self._texts_of_others:
            return False
        return all(
            _is_user_field(trust_by_field, name)
            for trust_by_field in self._trusts_by_field
            for name in fields
        )


def _user_texts_in(item: Any, trust_by_field: Mapping[str, Trust]) -> Iterator[str]:
    """Yield the normalized texts that the user wrote in a field such as ``event``.

    Args:
        item: The value of the field, such as ``{"title": "Lunch", "replies": ["I cannot"]}``.
        trust_by_field: The trust of the inner fields, such as ``{"replies": "outside"}``.
    """
    # The user wrote the outer field, and so all inner fields (``*``) that the mapping omits.
    inner_trusts: dict[str, Trust] = {**trust_by_field, "*": "own"}
    texts = texts_with_trust(item, inner_trusts)
    return (normalized_text(text) for trust, _, text in texts if trust == "own")


def _is_user_field(trust_by_field: Mapping[str, Trust], name: str) -> bool:
    if name == UNKNOWN_FIELD:  # as in ``record[key]``, which may read any field
        return False
    return _trust_of_field(trust_by_field, name) == "own"


def _trust_of_field(trust_by_field: Mapping[str, Trust], name: str) -> Trust:
    # The name "*" stands for all fields that the mapping does not list.
    return trust_by_field.get(name, trust_by_field.get("*", "outside"))


def find_in(calls: Sequence[PastCall], text: str) -> Origin | None:
    """Find a text, or else a part of the text, in the results of calls.

    :func:`pieces_of` yields the parts. Return None if nothing is found, or if the text is very
    short.
    """
    searched_text = letters_and_digits(text)
    if len(searched_text) < _MIN_SEARCHED_LENGTH:
        return None
    pattern_of_text = searched_text
    if len(searched_text) < _MIN_PART_LENGTH:
        # Many values contain a short text by chance, so the text must equal a whole value.
        pattern_of_text = _delimited(searched_text)
    for pattern in (pattern_of_text, *pieces_of(text)):
        found = _value_with(pattern, calls)
        if found is not None:
            call, value = found
            contains_whole_text = searched_text in value.letters
            return Origin(
                kind="result",
                trust=value.trust,
                call_id=call.number,
                action=call.action,
                path=value.path,
                is_part=value.letters != searched_text,
                is_mixed=not contains_whole_text,  # then only a piece of the text was found
            )
    return None


def _delimited(letters: str) -> str:
    """Put a separator before and after the letters and digits of values.

    A search for a text with both separators then finds only values that equal the text.

    Args:
        letters: The letters and digits of one value, or of several values with separators between.
    """
    return f"{_SEPARATOR}{letters}{_SEPARATOR}"


def _value_with(pattern: str, calls: Iterable[PastCall]) -> tuple[PastCall, SearchableValue] | None:
    """Return a call with a value that contains a pattern, and this value; None if there is none.

    Untrusted values are preferred: if a stranger's text and the user's data both contain the
    pattern, the stranger's text may be the source.
    """
    matching_calls = [call for call in calls if pattern in call.searchable_text]
    for trust in ("outside", "own"):
        for call in matching_calls:
            for value in call.searchable_values:
                if value.trust == trust and pattern in _delimited(value.letters):
                    return call, value
    return None
