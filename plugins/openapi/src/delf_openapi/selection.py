"""The choice of operations for actions: by name, operationId, tag, path or pattern."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from delf.errors import AgentConfirmationError, ConnectionConfigurationError, did_you_mean
from delf.tools.action import strictest
from delf.tools.resources import has_change_verb, has_read_verb
from delf.types import Effect, Permission
from delf_openapi.operations import Spot

_LISTED: Final = 30


def choose(spots: Sequence[Spot], wanted: Sequence[str], which: str, where: str) -> list[Spot]:
    """Return the operations selected by words, in the order of the specification.

    A word is an action's name, an operationId, or a tag. A tag that is equal to a name or an
    operationId, ignoring case, is written ``tag:pets``. A word can also be a pattern of names
    (``repos_*``) or of paths (``/repos/*``, ``GET /repos/*``). A word of ``confirm`` selects all of
    these at once, so that every possible meaning needs approval.

    Raises:
        ConnectionConfigurationError: If a word of ``allow`` matches nothing.
        AgentConfirmationError: If a word of ``confirm`` matches nothing.
    """
    chosen: dict[str, None] = {}
    words = _OperationMatcher(spots)
    for word in wanted:
        names = [*words.find(word)]
        if which == "confirm":
            names += words.tagged(word)
        if not names:
            raise _unknown_word_error(word, spots, which, where)
        chosen.update(dict.fromkeys(names))
    return [spot for spot in spots if spot.name in chosen]


class _OperationMatcher:
    def __init__(self, spots: Sequence[Spot]) -> None:
        self._spots = spots
        self._names = {spot.name for spot in spots}
        self._ids: dict[str, list[str]] = {}
        self._tags: dict[str, list[str]] = {}
        for spot in spots:
            if spot.operation_id:
                self._ids.setdefault(spot.operation_id, []).append(spot.name)
            for tag in spot.tags:
                self._tags.setdefault(tag.lower(), []).append(spot.name)

    def find(self, word: str) -> Iterable[str]:
        if word in self._names:
            return [word]
        if word in self._ids:
            return self._ids[word]
        alike = {name.lower() for name in (*self._names, *self._ids)}
        if word.strip().lower() not in alike and (tagged_names := self.tagged(word)):
            return tagged_names
        return self._match(word)

    def tagged(self, word: str) -> Sequence[str]:
        """Return the names of the operations with a tag, given with or without ``tag:``."""
        return self._tags.get(word.removeprefix("tag:").strip().lower(), ())

    def _match(self, word: str) -> list[str]:
        """Return the names of the operations that a path, or a pattern of names, selects."""
        method, _, path = word.rpartition(" ")
        if path.startswith("/") or path == "*":
            # A star crosses slashes; braces and brackets of a template are plain text.
            pattern = re.compile(".*".join(re.escape(p) for p in path.split("*")), re.DOTALL)
            methods = {m for m in re.split(r"[|,\s]+", method.upper()) if m}
            return [
                s.name
                for s in self._spots
                if (not methods or s.method in methods) and pattern.fullmatch(s.path)
            ]
        if "*" in word or "?" in word:
            return [s.name for s in self._spots if fnmatch.fnmatchcase(s.name, word)]
        return []


def _unknown_word_error(
    word: str, spots: Sequence[Spot], which: str, where: str
) -> ConnectionConfigurationError | AgentConfirmationError:
    kind = AgentConfirmationError if which == "confirm" else ConnectionConfigurationError
    names = [spot.name for spot in spots]
    tags = sorted({tag for spot in spots for tag in spot.tags})
    ids = [spot.operation_id for spot in spots if spot.operation_id]
    listed = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
    tagged = f"; its tags: {', '.join(tags[:_LISTED])}" if tags else ""
    return kind(
        f"{which} of {where!r} names {word!r}, which is not an operation, tag or pattern of it"
        f"{did_you_mean(word, [*names, *tags, *ids])}",
        hint=f"its actions: {listed}{tagged}",
    )


def as_words(value: Permission) -> tuple[str, ...] | None:
    """Return the words of ``allow`` or ``confirm``; None for True or False."""
    if value is None or isinstance(value, bool):
        return None
    return (value,) if isinstance(value, str) else tuple(value)


def resolved_confirm(
    value: Permission, spots: Sequence[Spot], chosen: Mapping[str, object], where: str
) -> Permission:
    """Return ``confirm`` with words replaced by action names."""
    words = as_words(value)
    if words is None:
        return value
    return tuple(s.name for s in choose(spots, words, "confirm", where) if s.name in chosen)


def only_reads(name: str, path: str) -> bool:
    """Return whether an operation only reads, judged by its name or the end of its path.

    Args:
        name: The action's name.
        path: The template, such as ``/flow_runs/filter``.
    """
    last = path.rstrip("/").rpartition("/")[2]
    is_plain = "{" not in last
    return has_read_verb(name) or (is_plain and has_read_verb(last) and not has_change_verb(name))


def effects_by_name(
    effects: Mapping[str, Effect], spots: Sequence[Spot], where: str
) -> dict[str, Effect]:
    """Return the effect of each operation that the setting ``effects`` selects, by action name.

    Names and operationIds override tags and patterns; among several effects the strictest counts.

    Args:
        effects: Effects by word: a name, an operationId, a tag or a pattern, as in ``allow``.
        spots: All operations.
        where: The name of the connection, for messages.

    Raises:
        ConnectionConfigurationError: If a word matches nothing.
    """
    exact: dict[str, Effect] = {}
    others: dict[str, Effect] = {}
    for word, effect in effects.items():
        for spot in choose(spots, (word,), "effects", where):
            matches = exact if word in (spot.name, spot.operation_id) else others
            matches[spot.name] = strictest((effect, matches.get(spot.name, effect)))
    return {**others, **exact}
