"""Log messages about outages: one warning at the start, and one with a count at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from weakref import WeakValueDictionary

# The :class:`Outage` that writes the log messages about each service, as weak references.
_reporters: WeakValueDictionary[str, Outage] = WeakValueDictionary()


class Outage:
    """Logs the first failure of a service, and the number of failures at recovery.

    Several parts of a process may use the same service, such as a database, each with an ``Outage``
    of its own. The part that fails first logs the outage, and its number of failures includes the
    failures of the other parts.

    Args:
        log: The logger.
        effect: The effect of the outage, as a sentence without a full stop.
        service: The name of the service, if other parts of the process share it.
    """

    def __init__(self, log: logging.Logger, effect: str, service: str | None = None) -> None:
        self._log = log
        self._effect = effect
        self._service = service
        self._since = 0.0
        self.failures = 0
        """Failures since the last success."""
        self.unreported_failures = 0
        """Failures that the log message about the next success will count.

        They include failures that other objects recorded for the same service.
        """

    @contextmanager
    def track(self, *kinds: type[BaseException]) -> Generator[None]:
        """Run a block; record its success, or suppress and record an error of the given types."""
        try:
            yield
        except kinds as error:
            self.record_failure(error)
        else:
            self.record_success()

    def record_failure(self, error: BaseException) -> None:
        """Record a failure, and log a warning if it is the first."""
        self.failures += 1
        is_first = self.failures == 1
        if is_first:
            self._since = time.monotonic()
            self.unreported_failures = 0
        reporter = self._reporter(is_first=is_first)
        reporter.unreported_failures += 1
        level = logging.WARNING if is_first and reporter is self else logging.DEBUG
        self._log.log(level, "%s (failure %d): %s", self._effect, self.failures, error)

    def _reporter(self, *, is_first: bool) -> Outage:
        if self._service is None:
            return self
        if is_first:
            return _reporters.setdefault(self._service, self)
        # Only a first failure starts an outage: later failures belong to one that was logged.
        return _reporters.get(self._service, self)

    def record_success(self) -> None:
        """Record a success, and log the end of an outage if there was one."""
        if not self.failures:
            return
        seconds = time.monotonic() - self._since
        is_reporter = self._service is None or _reporters.get(self._service) is self
        if is_reporter and self._service is not None:
            _reporters.pop(self._service, None)
        message = "works again after %d failures in %.0f s"
        level = logging.WARNING if is_reporter else logging.DEBUG
        self._log.log(level, f"%s: {message}", self._effect, self.unreported_failures, seconds)
        self.failures = 0
