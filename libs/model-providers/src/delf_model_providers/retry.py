"""Retries of a failed call: their number and their pauses."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import field, replace
from typing import TypeVar

from delf.errors import ModelConfigurationError
from delf.messages import ModelDelta, ModelReply
from delf.records import dataclass
from delf_model_providers.failures import Failure

logger = logging.getLogger(__name__)
T = TypeVar("T")
_Pieces = AsyncGenerator[ModelDelta | ModelReply]


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Exponential back-off with jitter; the provider's ``Retry-After`` takes precedence.

    Args:
        retries: The number of retries after temporary failures.
        unreachable_retries: The number of retries if the server is unreachable.
        first_delay: The seconds before the first retry; doubled for every further retry.
        max_delay: The maximum seconds before a retry, unless the provider asks for more.
        max_retry_after: The maximum seconds that a provider may ask to wait. If the provider asks
            for more, the call fails immediately, because an earlier retry would only fail again.
        jitter: Returns random numbers in [0, 1).
    """

    retries: int = 2
    unreachable_retries: int = 1
    first_delay: float = 0.5
    max_delay: float = 8.0
    max_retry_after: float = 30.0
    jitter: Callable[[], float] = random.random

    def delay(self, failure: Failure, attempt: int) -> float | None:
        """Return the seconds to wait before the next attempt; None to give up.

        Args:
            failure: The failure.
            attempt: The number of the failed attempt, from 1.
        """
        # The failure of a server that is unreachable asks for "few" retries.
        max_retries = {"no": 0, "few": self.unreachable_retries, "yes": self.retries}[failure.retry]
        if attempt > max_retries:
            return None
        backoff = min(self.first_delay * 2.0 ** (attempt - 1), self.max_delay)
        backoff *= 0.75 + 0.5 * self.jitter()  # 75 % to 125 %
        if failure.retry_after is None:
            return backoff
        if failure.retry_after > self.max_retry_after:
            return None
        # A provider that asks to wait 0 s leaves the delay to the client.
        return failure.retry_after or backoff


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """Retries a model's call after failures that may be temporary.

    Args:
        explain: Converts an exception of the call to a failure.
        policy: The number of retries and the delays before them.
        sleep: Waits for a number of seconds.
    """

    explain: Callable[[Exception], Failure]
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def complete(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call with retries; return its result.

        Args:
            call: Makes one attempt.

        Raises:
            ModelConfigurationError: If the settings of the model are wrong; there is no retry then.
            DelfError: If no attempt succeeded; this is the error of the last attempt.
        """
        attempt = 1
        while True:
            try:
                return await call()
            except ModelConfigurationError:
                raise  # the same call would fail again
            except Exception as error:
                failure = self.explain(error)
            await self._wait_or_raise(failure, attempt)
            attempt += 1

    async def stream(self, call: Callable[[], _Pieces]) -> _Pieces:
        """Make a streamed call with retries; yield the pieces of its answer, then the reply.

        A call that fails before its first piece is retried. A later failure is an error, because
        emitted pieces cannot be taken back.

        Args:
            call: Makes one attempt.

        Raises:
            ModelConfigurationError: If the settings of the model are wrong; there is no retry then.
            DelfError: If no attempt succeeded; this is the error of the last attempt.
        """
        pieces, piece = await self.complete(lambda: _start_stream(call))
        received_chars = 0
        async with aclosing(pieces):
            while piece is not None:
                if isinstance(piece, ModelDelta):
                    received_chars += len(piece.text)
                yield piece
                try:
                    piece = await anext(pieces, None)
                except ModelConfigurationError:
                    raise  # the message tells what to change
                except Exception as error:
                    failure = self.explain(error)
                    message = (
                        f"the answer broke off after {received_chars} characters: {failure.message}"
                    )
                    raise replace(failure, message=message).error() from None

    async def _wait_or_raise(self, failure: Failure, attempt: int) -> None:
        """Wait before the next attempt; raise the failure's error if no attempt is left."""
        delay = self.policy.delay(failure, attempt)
        if delay is None:
            raise failure.error()
        logger.info("%s; attempt %d in %.1f s", failure.message, attempt + 1, delay)
        await self.sleep(delay)


async def _start_stream(
    call: Callable[[], _Pieces],
) -> tuple[_Pieces, ModelDelta | ModelReply | None]:
    """Start a streamed call, and wait for its first piece.

    Return a pair: the iterator over the further pieces, and the first piece, which is None for an
    empty stream.
    """
    pieces = call()
    return pieces, await anext(pieces, None)
