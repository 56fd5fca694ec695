"""Log messages about outages: one warning at the start, and one with a count at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from weakref import WeakValueDictionary

_reporters: WeakValueDictionary[str, Outage] = WeakValueDictionary()
"""The outage that logs for each service, held weakly."""


class Outage:
    """Logs the first failure of a service, and the number of failures at recovery.

    Several parts of a process may share a service, such as a database. The first to fail logs the
    outage; failures of the others are added to its count.

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
        self.counted = 0
        """Failures of all parts, if this outage reports for them."""

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
        # Only the first failure looks for a reporter: later ones belong to the same outage.
        begins, reporter = self.failures == 1, self
        if begins:
            self._since, self.counted = time.monotonic(), 0
        if self._service is not None:
            reporter = (_reporters.setdefault if begins else _reporters.get)(self._service, self)
        reporter.counted += 1
        level = logging.WARNING if begins and reporter is self else logging.DEBUG
        self._log.log(level, "%s (failure %d): %s", self._effect, self.failures, error)

    def record_success(self) -> None:
        """Record a success, and log the end of an outage if there was one."""
        if not self.failures:
            return
        seconds = time.monotonic() - self._since
        reports = self._service is None or _reporters.get(self._service) is self
        if reports and self._service is not None:
            _reporters.pop(self._service, None)
        message = "works again after %d failures in %.0f s"
        level = logging.WARNING if reports else logging.DEBUG
        self._log.log(level, f"%s: {message}", self._effect, self.counted, seconds)
        self.failures = 0
