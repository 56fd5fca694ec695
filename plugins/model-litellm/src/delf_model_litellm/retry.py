"""How often and after how long a failed call is made again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from delf_model_litellm.failures import Failure


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Exponential back-off with jitter; what the provider asks for goes first.

    Args:
        retries: Further attempts after a failure that may pass.
        refused_retries: Further attempts when nothing listens at the address.
        first_delay: Seconds before the first further attempt; doubled for each after it.
        max_delay: The longest pause of one's own choice.
        max_retry_after: The longest pause that a provider can ask for. Asked for more, the
            call fails at once: waiting for less would only fail again.
        jitter: Numbers in [0, 1).
    """

    retries: int = 2
    refused_retries: int = 1
    first_delay: float = 0.5
    max_delay: float = 8.0
    max_retry_after: float = 30.0
    jitter: Callable[[], float] = random.random

    def delay(self, failure: Failure, attempt: int) -> float | None:
        """Seconds to wait after a failed attempt, or None to give up.

        Args:
            failure: What went wrong.
            attempt: Which attempt it was, from 1.
        """
        allowed = {"no": 0, "few": self.refused_retries, "yes": self.retries}[failure.retry]
        if attempt > allowed:
            return None
        backoff = min(self.first_delay * 2.0 ** (attempt - 1), self.max_delay)
        backoff *= 0.75 + 0.5 * self.jitter()
        if failure.retry_after is None:
            return backoff
        if failure.retry_after > self.max_retry_after:
            return None
        return max(failure.retry_after, backoff if failure.retry_after == 0 else 0.0)
