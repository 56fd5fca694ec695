"""Live facts of connections, within limits of time and size."""

from __future__ import annotations

import logging
from typing import Final

from delf.errors import ConnectionUnavailableError
from delf.protocols.connection import SupportsContext
from delf_engine.bounded import within

_log = logging.getLogger(__name__)
CONTEXT_SECONDS: Final = 30.0
"""The maximum seconds in which a connection must return its text for the prompt."""
MAX_CONTEXT_SIZE: Final = 50_000
"""The maximum number of characters of a connection's text in the prompt.

The text is part of every request to the model.
"""
_HINT: Final = "without these facts a script could not use the connection; `delf doctor` checks it"
_TOO_LONG: Final = "facts about %s have %d characters; the model sees the first %d"


async def facts_of(name: str, source: SupportsContext, task: str) -> str | None:
    """Return a connection's facts for a task, truncated to :data:`MAX_CONTEXT_SIZE`.

    Facts are data that the model needs in advance, such as a database schema.

    Args:
        name: The connection's name.
        source: The connection.
        task: The user's task in plain words.

    Raises:
        DelfError: If the connection raised this error.
        ConnectionUnavailableError: If the connection raised another error, returned something else
            than text, or did not answer in time.
    """
    owner = f"the connection {name!r}"
    text = await within(
        CONTEXT_SECONDS,
        owner,
        "context",
        lambda: source.context(task),
        ConnectionUnavailableError,
        _HINT,
    )
    if not isinstance(text, str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
        problem = f"{owner} returned a {type(text).__name__} in context(), not a text or None"
        raise ConnectionUnavailableError(problem, hint=_HINT)
    if text is not None and len(text) > MAX_CONTEXT_SIZE:
        _log.warning(_TOO_LONG, name, len(text), MAX_CONTEXT_SIZE)
        cut_length = len(text) - MAX_CONTEXT_SIZE
        return f"{text[:MAX_CONTEXT_SIZE]}\n[cut: {cut_length} more characters]"
    return text
