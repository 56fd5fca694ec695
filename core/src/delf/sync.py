"""The only place where synchronous code waits for asynchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from delf.errors import AgentStateError

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(_end_tasks())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def stop(self) -> None:
        """End the loop and the thread. Safe to call twice."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()


def call(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Run a coroutine on a loop of another thread and wait for it.

    An interrupt (Ctrl-C) cancels the coroutine and waits until it has cleaned up.

    Raises:
        AgentStateError: When called from the loop's own thread, which would wait for ever.
    """
    if running_loop() is loop:
        coroutine.close()
        raise AgentStateError(
            "run() was called from inside the event loop that the agent works on",
            hint="use `await agent.arun(…)` there",
        )
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        _wait_for_clean_up(loop)
        raise


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits for anything, here and now.

    Raises:
        AgentStateError: When it waits nevertheless.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise AgentStateError("a coroutine that was to end at once waits")


async def call_async(coroutine: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    """Await a coroutine that has to run on a certain loop, here or in another thread."""
    if asyncio.get_running_loop() is loop:
        return await coroutine
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs in this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _end_tasks() -> None:
    """Cancel what libraries left running on a loop that is about to be closed."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)


def _wait_for_clean_up(loop: asyncio.AbstractEventLoop, seconds: float = 5.0) -> None:
    """Let cancelled tasks of a loop end."""

    async def others() -> None:
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own and task.cancelling()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    asyncio.run_coroutine_threadsafe(others(), loop).result(seconds + 1)
