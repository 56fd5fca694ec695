"""Values that are new to a person: addresses that no earlier call of theirs had.

The journal's index knows the calls. A help for who decides: without such a journal, and where it
does not answer soon, nothing is said.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from delf.events import ApprovalRequest, CallStarted, Event
from delf.protocols.journal import Journal
from delf.protocols.search import SupportsSearch
from delf_engine.origins.values import leaves_of

SECONDS: Final = 1.0
"""Time that a question may wait for this."""
_MOST: Final = 10
"""Values of one call that are looked up."""
_LONGEST: Final = 300
"""Characters of an address."""
_CALLS: Final = 50
"""Earlier calls that are compared."""
_NEW: Final = "new: never used before"

_log = logging.getLogger(__name__)


async def with_novelty(
    request: ApprovalRequest,
    addresses: Sequence[tuple[str, str]],
    journal: Journal | None,
    key: str | None,
    events: Iterable[Event],
) -> Mapping[str, Any]:
    """Return the origins of a request, in which new addresses are marked.

    Args:
        request: The request.
        addresses: The values that decide where something goes, with their paths.
        journal: The journal of earlier tasks.
        key: On whose behalf the task is done; None for the local user.
        events: Those of the task so far.
    """
    origins = dict(request.origins)
    known = [(path, text) for path, text in addresses if path in origins and _is_short(text)]
    if not known or not isinstance(journal, SupportsSearch):
        return origins
    started = (event for event in events if isinstance(event, CallStarted))
    own = [event.arguments for event in started if event.action == request.action]
    try:
        async with asyncio.timeout(SECONDS):
            for path, text in known[:_MOST]:
                earlier = await journal.calls_with(request.action, text, key, _CALLS)
                # With as many as are compared, the value may be among the others.
                if earlier is None or len(earlier) == _CALLS or _have(earlier, path, text):
                    continue
                if not _have(own, path, text):
                    told = f"{origins[path]['text']}; {_NEW}"
                    origins[path] = {**origins[path], "text": told, "is_new": True}
    except Exception as error:  # of a journal that may be anybody's, and a question has to be asked
        _log.warning("new addresses cannot be recognised: %s", type(error).__name__)
    return origins


def _is_short(text: str) -> bool:
    return bool(text.strip()) and len(text) <= _LONGEST


def _have(calls: Iterable[Mapping[str, Any]], path: str, text: str) -> bool:
    """Tell whether one of some calls had a value as the same argument."""
    name = re.split(r"[.\[]", path, maxsplit=1)[0]
    return any(
        text == value
        for arguments in calls
        if name in arguments
        for _, value in leaves_of({name: arguments[name]})
    )
