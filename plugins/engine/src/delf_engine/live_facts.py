"""Live facts of connections, within limits of time and size."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

from delf.errors import ConnectionUnavailableError, DelfError
from delf.protocols.connection import SupportsContext

_log = logging.getLogger(__name__)
CONTEXT_SECONDS: Final = 30.0
"""The longest time in seconds for the facts of one connection."""
MOST_OF_CONTEXT: Final = 50_000
"""The most characters of one connection's facts: they are in each request to the model."""
_TOO_LONG: Final = "facts about %s have %d characters; the model sees the first %d"


async def facts_of(name: str, source: SupportsContext, task: str) -> str | None:
    """Return the facts of a connection for a task, cut to :data:`MOST_OF_CONTEXT`.

    Args:
        name: The connection's name.
        source: The connection.
        task: The user's task in plain words.

    Raises:
        DelfError: If the connection raised this error.
        ConnectionUnavailableError: If the connection raised another error, returned something else
            than text, or did not answer in time.
    """
    work = asyncio.ensure_future(source.context(task))
    try:
        await asyncio.wait({work}, timeout=CONTEXT_SECONDS)
        if not work.done():
            raise _failed(name, f"did not answer within {CONTEXT_SECONDS:g} s")
    finally:
        work.cancel()
    try:
        text = cast("object", work.result())
    except DelfError:
        raise
    except Exception as error:
        raise _failed(name, f"raised {type(error).__name__}: {error}") from error
    if text is not None and not isinstance(text, str):
        raise _failed(name, f"returned a {type(text).__name__}, not a text or None")
    if text is not None and len(text) > MOST_OF_CONTEXT:
        _log.warning(_TOO_LONG, name, len(text), MOST_OF_CONTEXT)
        return f"{text[:MOST_OF_CONTEXT]}\n[cut: {len(text) - MOST_OF_CONTEXT} more characters]"
    return text


def _failed(name: str, what: str) -> ConnectionUnavailableError:
    return ConnectionUnavailableError(
        f"{name}: context() of the connection {what}",
        hint="without these facts a script could not use the connection; `delf doctor` checks it",
    )
