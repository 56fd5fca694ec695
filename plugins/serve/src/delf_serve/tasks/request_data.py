"""The data about a request that the record of the task keeps, in the event's ``setup``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from delf.events import ASKED_FROM, TaskQueued, TaskStarted
from delf_engine.changes import OTHER_AUTHORS_KEY
from delf_serve.keys import Caller
from delf_serve.schemas import RunRequest

# The field of ``setup`` that only servers store. Its value is a mapping.
_SERVER_FIELD: Final = "serve"
# The key, in the value of this field, of the digest of the request that submitted the task.
_DIGEST_FIELD: Final = "order"


def setup_of(
    caller: Caller,
    client: str | None,
    other_authors: Sequence[str] = (),
    *,
    request_digest: str | None = None,
) -> dict[str, Any]:
    """Return the data about a request that the new task's record keeps.

    Args:
        caller: The authenticated caller.
        client: The caller's network address.
        other_authors: The names of other people who wrote parts of the task's text.
        request_digest: The digest of the request, for the comparison with repeated requests; None
            to store no digest.
    """
    data_of_server = {"user": caller.name}
    if request_digest is not None:
        data_of_server[_DIGEST_FIELD] = request_digest
    setup: dict[str, Any] = {_SERVER_FIELD: data_of_server, ASKED_FROM: client}
    if other_authors:
        setup[OTHER_AUTHORS_KEY] = [*other_authors]
    return setup


def is_of_server(first_event: TaskQueued | TaskStarted) -> bool:
    """Return True if a server started a task: only servers store the setup field ``serve``."""
    return _SERVER_FIELD in first_event.setup


def digest_of_request(order: RunRequest) -> str:
    """Return a digest that equal requests share, however long each waits for the result."""
    order_text = order.model_dump_json(exclude={"wait"})
    return hashlib.sha256(order_text.encode("utf-8", "replace")).hexdigest()[:32]


def stored_digest(first_event: TaskQueued | TaskStarted) -> str | None:
    """Return the digest of the request that submitted a task; None if no digest was stored."""
    return first_event.setup.get(_SERVER_FIELD, {}).get(_DIGEST_FIELD)
