"""How an agent begins and ends."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from delf.agent.home import RuntimeHome


class AgentLifecycle:
    """The part of an agent that starts and stops it; from any thread."""

    _home: RuntimeHome

    def start(self) -> Self:
        """Load tools and prepare the sandbox now rather than with the first task."""
        self._home.start()
        return self

    async def astart(self) -> Self:
        """The same from asynchronous code."""
        await self._home.astart()
        return self

    def stop(self) -> None:
        """Cancel what runs; free sandboxes, connections and threads. Safe to call twice."""
        self._home.stop()

    async def astop(self) -> None:
        """The same from asynchronous code."""
        await self._home.astop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.astop()
