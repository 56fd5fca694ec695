"""Turns with the model, in a session that stays open where it has those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.errors import BudgetExceededError, DelfError
from delf.messages import Message, ModelReply, ModelTool
from delf.protocols.model import ModelSession
from delf.protocols.strategy import OnDelta, StrategyHost

_SESSIONS: Final = 2
"""The number of sessions that a conversation may have, one after the other."""


class Turns:
    """A conversation of several turns.

    A session is a saving and no state: each turn comes with all that was said, for a session that
    was opened anew, and for a plain request where there is none any more.

    Args:
        host: Asks the model.
    """

    def __init__(self, host: StrategyHost) -> None:
        self._host = host
        self._session: ModelSession | None = None
        self._left = _SESSIONS
        self._knows = False

    async def send(
        self,
        new: Sequence[Message],
        whole: Sequence[Message],
        *,
        tools: Sequence[ModelTool] = (),
        on_delta: OnDelta | None = None,
    ) -> ModelReply:
        """Say something new, and wait for the answer.

        Args:
            new: What was not said before.
            whole: The whole conversation with it.
            tools: What the model may call in its answer.
            on_delta: Sees the answer's pieces as they come.

        Raises:
            BudgetExceededError: Before anything is spent.
            DelfError: When the model failed for good.
        """
        ask = self._host.ask
        while True:
            try:
                session = await self._connected()
                if session is None:
                    break
                said, knows = (new, True) if self._knows else (whole, False)
                reply = await ask(
                    said, tools=tools, on_delta=on_delta, session=session, continues=knows
                )
            except BudgetExceededError:
                raise
            except DelfError as error:
                await self._lost(error.message)
                continue
            self._knows = True
            if reply.finish_reason == "cut":
                await self._lost("it broke off in the middle of an answer")
            return reply
        return await ask(whole, tools=tools, on_delta=on_delta)

    async def _connected(self) -> ModelSession | None:
        """The session; one that was lost is opened anew once."""
        if self._session is None and self._left:
            self._left -= 1
            self._session = await self._host.connect()
            self._left += self._session is None  # there may be one later, past what is recorded
        return self._session

    async def _lost(self, why: str) -> None:
        """Close a session that is of no use any more, and say what comes in its place."""
        await self.aclose()
        then = "is opened anew" if self._left else "is not used any more"
        await self._host.warn(f"the model's session ended, and {then}: {why}")

    async def aclose(self) -> None:
        """Close the session, if there is one."""
        session, self._session, self._knows = self._session, None, False
        if session is not None:
            await session.aclose()
