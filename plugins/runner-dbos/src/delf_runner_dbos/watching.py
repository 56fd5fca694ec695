"""New items of a call that only reads, found by comparison with the items of the previous look."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, cast

from delf import Agent
from delf.errors import ConfigurationError, ToolExecutionError
from delf.records import dataclass
from delf_cli.formats import format_count
from delf_engine.one_call import ONE_CALL, call_task, parse_call
from delf_engine.watched_calls import check_watched_call

# The maximum number of item digests that a schedule stores.
#
# If an item returns after its digest was dropped, the item counts as new.
_MAX_SEEN: Final = 1_000
# The maximum number of tasks that one firing starts. The next firing handles further items.
_MAX_NEW_ITEMS: Final = 100
# The maximum number of characters of an item. Longer texts in the item are truncated.
_MAX_ITEM_CHARACTERS: Final = 40_000
_MAX_TEXT_CHARACTERS: Final = 1_000


WATCHER_OPTIONS: Final[Mapping[str, Any]] = {
    "journal": "none",
    "strategy": ONE_CALL,
    "approval_mode": "strict",
    "approvals": [],
}
"""Parameters of the agents that make a schedule's call to look for new items.

The agents have no journal and no approvals.
"""


@dataclass(frozen=True)
class Comparison:
    """The result of comparing the items that a call returned with the items of earlier calls.

    A schedule makes the call again and again to look for new items.

    Args:
        new: Pairs of digest and item for the new items, newest first; at most ``_MAX_NEW_ITEMS``.
        seen: The digests of the items that are not new at the next call.
        note: A message for people; None for no message.
    """

    new: Sequence[tuple[str, Any]]
    seen: Sequence[str]
    note: str | None = None


async def items_of(agent: Agent, call: str) -> Sequence[Any]:
    """Make a call that only reads, and return its items as plain data.

    Args:
        agent: An agent with the strategy ``one-call`` and without approval channels.
        call: The call, such as ``gmail.search(query="is:unread")``.

    Raises:
        ConfigurationError: If the call is invalid, may change something, or needs approval.
        ToolExecutionError: If the result of the call has no list of items.
        DelfError: If the call failed.
    """
    await check_watched_call(agent.tools, call)
    response = await agent.arun(call_task(*parse_call(call)))
    response.raise_for_status()
    try:
        result = json.loads(response.text)
    except (ValueError, RecursionError):  # redaction has replaced the digits of a number
        raise ToolExecutionError(
            f"the result of {call} cannot be read: a number in it has the digits of a secret, or "
            "it is nested too deeply",
            hint="choose a secret that is not a number",
        ) from None
    return _extract_items(result, call)


def _extract_items(result: Any, call: str) -> Sequence[Any]:
    """Return the list in a result: the result itself, or the only list among a record's fields."""
    if isinstance(result, list):
        return cast("list[Any]", result)
    if isinstance(result, dict):
        record = cast("dict[str, Any]", result)
        lists = [cast("list[Any]", value) for value in record.values() if isinstance(value, list)]
        if len(lists) == 1:
            return lists[0]
    raise ToolExecutionError(f"{call} returns no list of items")


def compare_items(
    items: Sequence[Any], id_field: str | None, known: Sequence[str] | None
) -> Comparison:
    """Find the items that are new since an earlier call.

    Args:
        items: The current items, in the order of the service.
        id_field: The field that identifies an item; None to use ``id`` or the whole item.
        known: The digests from the previous call; None at the first call, for which no item
            is new.

    Raises:
        ConfigurationError: If no item has the field.
    """
    _check_id_field(items, id_field)
    digests = [_digest(item, id_field) for item in items]
    if known is None:
        note = f"{format_count(len(items), 'item')} known from now on"
        return Comparison(new=[], seen=_merge_digests(digests, ()), note=note)
    known_set = frozenset(known)
    items_by_digest = dict(zip(digests, items, strict=True))
    new_digests = [digest for digest in items_by_digest if digest not in known_set]
    note = None
    are_all_new = len(new_digests) == len(items_by_digest)
    if known and items and are_all_new:
        note = "all items are new: more may have come than one call returns; ask more often"
    handled_now = new_digests[:_MAX_NEW_ITEMS]
    # Items beyond the limit are not stored as seen, so that they are new at the next call.
    handled_later = frozenset(new_digests[_MAX_NEW_ITEMS:])
    seen = [digest for digest in digests if digest not in handled_later]
    return Comparison(
        new=[(digest, truncate_item(items_by_digest[digest])) for digest in handled_now],
        seen=_merge_digests(seen, known),
        note=note,
    )


def _merge_digests(current: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the digests to store as known: all current digests, then the earlier digests.

    The last of the earlier digests are dropped if there are too many.
    """
    unique_digests = list(dict.fromkeys([*current, *known]))
    # All current items stay known: a forgotten item would count as new at the next call.
    limit = max(_MAX_SEEN, len(current))
    return unique_digests[:limit]


def _check_id_field(items: Sequence[Any], id_field: str | None) -> None:
    """Check that the field which identifies items exists in at least one item.

    The items without the field are identified by their whole content.

    Raises:
        ConfigurationError: If no item has the field.
    """
    if id_field is None:
        return
    records = [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]
    for record in records:
        if id_field in record:
            return
    if records:
        raise ConfigurationError(f"no item has a field {id_field!r}: {records[0]!r:.80}")


def _digest(item: object, id_field: str | None) -> str:
    """Return the digest of an item's id, or of the whole item if it has no id.

    A later firing recognises the item by this digest.
    """
    identity = item
    if isinstance(item, dict):
        record = cast("dict[str, Any]", item)
        identifier = record.get(id_field or "id")
        identity = record if identifier is None else identifier
    text = json.dumps(identity, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def truncate_item(item: Any) -> Any:
    """Truncate the longest texts of an item that is too long for a task."""
    if len(repr(item)) <= _MAX_ITEM_CHARACTERS:
        return item
    cut = _with_short_texts(item)
    if len(repr(cut)) <= _MAX_ITEM_CHARACTERS:
        return cut
    return repr(cut)[:_MAX_ITEM_CHARACTERS]


def _with_short_texts(value: Any) -> Any:
    """Return a copy of a value of JSON in which each long text is truncated."""
    if isinstance(value, str) and len(value) > _MAX_TEXT_CHARACTERS:
        return f"{value[:_MAX_TEXT_CHARACTERS]} … ({len(value):,} characters)"
    if isinstance(value, list):
        return [_with_short_texts(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {name: _with_short_texts(item) for name, item in items}
    return value
