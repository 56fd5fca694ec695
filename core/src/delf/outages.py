"""Warnings of what is away: one when it goes, and one with a count when it is back."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager


class Outage:
    """Warns at the first failure, counts the others, and warns of their number once it is over.

    Args:
        log: Where to.
        what: What does not work meanwhile, as a sentence without its end.
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._since = 0.0
        self.failures = 0
        """Failures since it worked last."""

    @contextmanager
    def noted(self, *kinds: type[BaseException]) -> Generator[None]:
        """Try something; a failure of one of these kinds is told and goes no further."""
        try:
            yield
        except kinds as error:
            self.failed(error)
        else:
            self.over()

    def failed(self, error: BaseException) -> None:
        """It failed once more."""
        self.failures += 1
        if self.failures == 1:
            self._since = time.monotonic()
        level = logging.WARNING if self.failures == 1 else logging.DEBUG
        self._log.log(level, "%s (failure %d): %s", self._what, self.failures, error)

    def over(self) -> None:
        """It works."""
        if self.failures:
            seconds = time.monotonic() - self._since
            said = "works again after %d failures in %.0f s"
            self._log.warning(f"%s: {said}", self._what, self.failures, seconds)
            self.failures = 0
