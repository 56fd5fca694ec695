"""Starts the tasks that serve calls."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Final

_CALL: Final = "delf-call"

if sys.version_info >= (3, 12):

    def start_task(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """A task that has taken its first step, which is all that many calls need."""
        return asyncio.Task(work, loop=loop, name=_CALL, eager_start=True)
else:

    def start_task(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]
    ) -> asyncio.Task[None]:
        """A task that takes its first step at the loop's next turn."""
        return asyncio.Task(work, loop=loop, name=_CALL)
