"""New items of a call that only reads, found by comparison with the items of the previous look."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

from delf import Agent
from delf.errors import ConfigurationError, ToolExecutionError
from delf.records import dataclass
from delf_cli.output import format_count
from delf_engine.one_call import ONE_CALL, call_task, read_call
from delf_engine.watched_calls import check_watched

_MAX_SEEN: Final = 1_000
"""The maximum number of digests of seen items; an item that returns after more than these counts as
new.
"""
_MAX_NEW: Final = 100
"""The maximum number of tasks started by one look; further items wait for the next look."""
_LONGEST: Final = 40_000
"""Characters of an item that a task gets; longer texts in the item are cut."""
_SHORT: Final = 1_000


LOOKS: Final[Mapping[str, Any]] = {
    "journal": "none",
    "strategy": ONE_CALL,
    "approval_mode": "strict",
    "approvals": [],
}
"""Options of the agent for watched calls, without approvals and journal."""


@dataclass(frozen=True)
class Look:
    """The outcome of a look.

    Args:
        new: The new items with their digests, the newest last.
        seen: The digests of known items.
        note: A note for people.
    """

    new: Sequence[tuple[str, Any]]
    seen: Sequence[str]
    note: str | None = None


async def items_of(agent: Agent, call: str) -> Sequence[Any]:
    """Make a reading call and return its items, as plain data.

    Args:
        agent: An agent with the strategy ``one-call`` and without approval channels.
        call: The call, such as ``gmail.search(query="is:unread")``.

    Raises:
        ConfigurationError: If the call does not only read, or returns no list.
        DelfError: If the call failed.
    """
    await check_watched(agent.tools, call)
    response = await agent.arun(call_task(*read_call(call)))
    response.raise_for_status()
    return _items_of(json.loads(response.text), call)


def _items_of(result: Any, call: str) -> Sequence[Any]:
    """Return a result's items: the result itself, or the only list in a record."""
    if isinstance(result, list):
        return cast("list[Any]", result)
    if isinstance(result, dict):
        record = cast("dict[str, Any]", result)
        lists = [cast("list[Any]", value) for value in record.values() if isinstance(value, list)]
        if len(lists) == 1:
            return lists[0]
    raise ToolExecutionError(f"{call} returns no list of items")


def look_at(items: Sequence[Any], id_field: str | None, before: Sequence[str] | None) -> Look:
    """Find the items that are new since an earlier look.

    Args:
        items: The current items, in the order of the service.
        id_field: The field that identifies an item.
        before: The digests from the previous look; None at the first look, for which no item
            is new.

    Raises:
        ConfigurationError: If an item does not have the field.
    """
    digests = [_digest(item, id_field) for item in items]
    if before is None:
        return Look(
            [], _kept_items(digests, ()), f"{format_count(len(items), 'item')} known from now on"
        )
    known_digests = frozenset(before)
    items_by_digest = dict(zip(digests, items, strict=True))
    new = [
        (digest, item) for digest, item in items_by_digest.items() if digest not in known_digests
    ]
    note = None
    if new and known_digests and len(new) == len(items_by_digest):
        note = "all items are new: more may have come than one call returns; ask more often"
    immediate, deferred = new[:_MAX_NEW], {digest for digest, _ in new[_MAX_NEW:]}
    return Look(
        [(digest, truncate_item(item)) for digest, item in immediate],
        _kept_items([digest for digest in digests if digest not in deferred], before),
        note,
    )


def _kept_items(current: Sequence[str], before: Collection[str]) -> list[str]:
    return list(dict.fromkeys([*current, *before]))[: max(_MAX_SEEN, len(current))]


def _digest(item: object, id_field: str | None) -> str:
    identity = item
    if isinstance(item, dict):
        record = cast("dict[str, Any]", item)
        if id_field is not None and id_field not in record:
            raise ConfigurationError(f"an item has no field {id_field!r}: {record!r:.80}")
        identifier = record.get(id_field or "id")
        identity = record if identifier is None else identifier
    text = json.dumps(identity, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def truncate_item(item: Any) -> Any:
    """Truncate the longest texts of an item that is too long for a task."""
    if len(repr(item)) <= _LONGEST:
        return item
    cut = _with_short_texts(item)
    return cut if len(repr(cut)) <= _LONGEST else repr(cut)[:_LONGEST]


def _with_short_texts(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _SHORT:
        return f"{value[:_SHORT]} … ({len(value):,} characters)"
    if isinstance(value, list):
        return [_with_short_texts(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {name: _with_short_texts(item) for name, item in items}
    return value
