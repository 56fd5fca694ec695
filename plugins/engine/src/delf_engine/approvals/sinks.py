"""Sinks: the values of a call that decide where something goes, or what is done there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from delf_engine.origins.values import MOST_LEAVES, leaves_of
from delf_engine.toolset import BoundAction

_SINKS: Final = re.compile(
    r"(?:^|_)(?:to|cc|bcc|ur[il]s?|href|links?|hosts?|domains?|webhook|callback|iban|bic|accounts?"
    r"|recipients?|receivers?|payee|beneficiary|users?|usernames?|e?mails?|address(?:es)?|phone"
    r"|channels?|paths?|folders?|file_?names?|participants?|attendees?|guests?|members?|owners?"
    r"|invitees?|who|dest|destination|target|ids?|password|secret|statement|sql|query|command|code)$"
)
"""Names of parameters that decide where something goes or what is done, where none is declared."""
_NESTED: Final = re.compile(
    r"(?:^|[._])(?:to|cc|bcc|webhook|callback|iban|bic|accounts?|recipients?|receivers?|payee"
    r"|beneficiary|participants?|attendees?|invitees?|guests?|dest|destination|target)(?=[.[]|$)"
)
"""Names that decide it in a record, too, where others are columns of data."""
_MOST_NESTED: Final = 20_000
"""Values in records of one call whose names are looked at."""


def sinks_of(bound: BoundAction, arguments: Mapping[str, Any]) -> frozenset[str]:
    """The parameters that decide where something goes: those declared, else by their names."""
    declared = bound.action.sinks
    if declared is not None:
        return frozenset(declared)
    return frozenset(name for name in arguments if _SINKS.search(name.lower()))


def decisive_values(
    bound: BoundAction, arguments: Mapping[str, Any], sinks: frozenset[str]
) -> Sequence[tuple[str, str]]:
    """The values that decide where something goes, each with its path, at any depth.

    There may be one more than are looked for.
    """
    chosen = {name: item for name, item in arguments.items() if name in sinks}
    values = [*islice(leaves_of(chosen, has_keys=True), MOST_LEAVES + 1)]
    if bound.action.sinks is None:
        nested: dict[str, Any] = {
            name: item
            for name, item in arguments.items()
            if name not in sinks and isinstance(item, (Mapping, list, tuple))
        }
        seen = [*islice(leaves_of(nested), _MOST_NESTED + 1)]
        is_all = len(seen) <= _MOST_NESTED
        values += [leaf for leaf in seen if _NESTED.search(leaf[0].lower())] if is_all else seen
    return values


def parameter_of(path: str) -> str:
    """The parameter of a value's path, as of ``to[0]``."""
    return re.split(r"[.[]", path, maxsplit=1)[0]
