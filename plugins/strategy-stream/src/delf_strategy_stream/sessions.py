"""Turns with the model, in a session if the model has sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Final

from delf.errors import BudgetExceededError, DelfError, LLMExecutionError, ModelConfigurationError
from delf.messages import Message, ModelDelta, ModelReply, ModelRequest, ModelTool
from delf.protocols.model import ModelSession
from delf.protocols.strategy import OnDelta, StrategyHost

# The maximum number of sessions that a conversation opens, one after the other.
_MAX_SESSIONS: Final = 2


class SessionTurns:
    """Sends the turns of a conversation to the model, in a session if the model has sessions.

    A session only saves time: the server knows the earlier turns, so that only new messages are
    sent. If a session breaks, another session or a plain request sends the whole conversation.

    Args:
        host: The strategy's host.
        answer_piece_timeout: The timeout in seconds for each piece of an answer in a session.
        requires_session: Whether the task fails without a session, instead of using requests.
    """

    def __init__(
        self, host: StrategyHost, answer_piece_timeout: float, *, requires_session: bool = False
    ) -> None:
        self._host = host
        self._answer_piece_timeout = answer_piece_timeout
        self._requires_session = requires_session
        self._session: ModelSession | None = None
        self._remaining_sessions = _MAX_SESSIONS
        # True after the first turn of a session, which sends all earlier messages.
        self._session_knows_history = False

    async def send(
        self,
        new_messages: Sequence[Message],
        all_messages: Sequence[Message],
        *,
        tools: Sequence[ModelTool] = (),
        on_delta: OnDelta | None = None,
    ) -> ModelReply:
        """Send a turn and wait for the complete answer.

        If the session breaks, open another session and send all messages. After the last session,
        send all messages without a session.

        Args:
            new_messages: The messages since the last turn.
            all_messages: The messages of the whole conversation, including the new messages.
            tools: The callable tools.
            on_delta: Receives each piece of the answer.

        Raises:
            BudgetExceededError: If the call could exceed the budget; no request is sent.
            ModelConfigurationError: If sessions are required and the model does not support them.
            DelfError: If the call failed after retries.
        """
        while True:
            try:
                session = await self._connect()
                if session is None:  # at the latest after _MAX_SESSIONS sessions
                    break
                messages = new_messages if self._session_knows_history else all_messages
                reply = await self._host.ask(
                    messages,
                    tools=tools,
                    on_delta=on_delta,
                    session=session,
                    continues=self._session_knows_history,
                )
            except BudgetExceededError:
                raise
            except DelfError as error:
                await self._close_after_error(error)
            else:
                await self._end_turn(reply)
                return reply
        return await self._host.ask(all_messages, tools=tools, on_delta=on_delta)

    async def _end_turn(self, reply: ModelReply) -> None:
        """Keep the session for the next turn, unless the session broke off during the answer."""
        self._session_knows_history = True
        if reply.finish_reason == "cut":
            await self._close_broken("it broke off in the middle of an answer")

    async def _connect(self) -> ModelSession | None:
        """Return the open session; open a session if none is open and attempts remain.

        Returns:
            None if the model has no sessions, if no attempts remain, or while a resumed task gets
            the answers that the journal has recorded.

        Raises:
            DelfError: If opening fails, or if a session is required but no attempts remain.
        """
        if self._session is not None:
            return self._session
        if not self._remaining_sessions:
            if self._requires_session:
                raise LLMExecutionError(
                    f"{_MAX_SESSIONS} sessions of the model ended",
                    hint="mode = 'auto' goes on without",
                )
            return None
        self._remaining_sessions -= 1  # first, so that a session that fails to open counts, too
        self._session = await self._open_session()
        if self._session is None:  # nothing was opened: keep the attempt
            self._remaining_sessions += 1
        return self._session

    async def _open_session(self) -> ModelSession | None:
        try:
            async with asyncio.timeout(self._answer_piece_timeout):
                session = await self._host.connect(needed=self._requires_session)
        except TimeoutError:
            raise _silence_error(self._answer_piece_timeout) from None
        if session is None:
            return None
        return _SessionWithTimeout(session, self._answer_piece_timeout)

    async def _close_after_error(self, error: DelfError) -> None:
        """Close a session that failed; raise the error if the task cannot continue."""
        # A wrong configuration would fail the next session, too.
        if self._requires_session and isinstance(error, ModelConfigurationError):
            raise error
        await self._close_broken(error.message)
        if self._requires_session and not self._remaining_sessions:
            raise error

    async def _close_broken(self, why: str) -> None:
        """Close a broken session, and warn about the session and what happens next.

        Another session is opened if attempts are left. Without a session, each turn is a single
        request to the model, or the task fails if sessions are required.
        """
        was_open = self._session is not None
        await self.aclose()
        problem = "ended" if was_open else "could not be opened"
        if self._remaining_sessions:
            next_step = "is opened again" if was_open else "it is tried once more"
        elif self._requires_session:
            next_step = "the task fails"
        else:
            next_step = "single requests are sent instead"
        await self._host.warn(f"the model's session {problem}, and {next_step}: {why}")

    async def aclose(self) -> None:
        """Close the session; no-op without a session."""
        session = self._session
        self._session = None
        self._session_knows_history = False
        if session is not None:
            await session.aclose()


class _SessionWithTimeout:
    """A model session with a timeout for each piece of an answer. Implements ``ModelSession``.

    Args:
        session: The model's session.
        seconds: The timeout in seconds.
    """

    def __init__(self, session: ModelSession, seconds: float) -> None:
        self._session = session
        self._seconds = seconds  # for each piece of an answer

    async def send(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Send new messages; yield the answer in pieces, then the complete reply.

        Raises:
            LLMExecutionError: If no piece arrives within the timeout.
        """
        pieces = self._session.send(request)
        try:
            while True:
                try:
                    async with asyncio.timeout(self._seconds):
                        piece = await anext(pieces)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise _silence_error(self._seconds) from None
                yield piece
        finally:
            await pieces.aclose()

    async def aclose(self) -> None:
        """Close the session; abandon the session if closing takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._session.aclose()


def _silence_error(seconds: float) -> LLMExecutionError:
    return LLMExecutionError(
        f"it was silent for {seconds:g} s", hint="session_seconds of the strategy allows more"
    )
