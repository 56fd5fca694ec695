"""Log messages about outages: one warning at the start, and one with a count at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Hashable
from contextlib import contextmanager
from weakref import WeakValueDictionary

# For each service, a weak reference to the :class:`Outage` that logs the service's failures.
_reporting_outages: WeakValueDictionary[Hashable, Outage] = WeakValueDictionary()


class Outage:
    """Logs the first failure of a service, and the number of failures at recovery.

    Several parts of a process may use the same service, such as a database, each with an ``Outage``
    object of its own. Only the object that records the first failure logs warnings about the
    outage, and its number of failures includes those of the other objects.

    Args:
        log: The logger.
        effect: The effect of the outage, with which its log messages begin: a sentence without a
            full stop, such as ``new events are not found by search``.
        service: The name of the service, if other parts of the process share it.
    """

    def __init__(self, log: logging.Logger, effect: str, service: str | None = None) -> None:
        self._log = log
        self._effect_text = effect
        self._service: Hashable = id(self) if service is None else service
        self._since = 0.0  # the monotonic time of the outage's first failure
        self.failures = 0
        """Failures that this object has recorded since its last success."""
        self.shared_failures = 0
        """Failures of all objects for the service, counted by the object that reports them."""

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
        """Count and log a failure of the service.

        The first failure of an outage is logged as a warning. Later failures, and all failures that
        other objects record for the same service, are logged at debug level.
        """
        # At the end of the process, Python refuses new threads with "cannot schedule new futures
        # after interpreter shutdown". Such an error is no outage.
        if "interpreter shutdown" in str(error):
            return
        self.failures += 1
        level = logging.DEBUG
        if self.failures == 1:
            self._since = time.monotonic()
            self.shared_failures = 0
            # This object becomes the reporter, unless the service has a reporter already.
            reporter = _reporting_outages.setdefault(self._service, self)
            if reporter is self:
                level = logging.WARNING
        else:
            # A reporter that has recorded a success is gone. This object then counts for itself.
            reporter = _reporting_outages.get(self._service, self)
        reporter.shared_failures += 1
        self._log.log(level, "%s (failure %d): %s", self._effect_text, self.failures, error)

    def record_success(self) -> None:
        """Log that the service works again, if failures came before this success.

        Several ``Outage`` objects may track the same service. The object that recorded the first
        failure logs a warning, with the sum of the failures that all these objects recorded. Each
        other object logs only its own number of failures, at debug level.
        """
        if not self.failures:
            return
        seconds = time.monotonic() - self._since
        is_reporter = _reporting_outages.get(self._service) is self
        if is_reporter:
            _reporting_outages.pop(self._service, None)
        level = logging.WARNING if is_reporter else logging.DEBUG
        failure_count = self.shared_failures if is_reporter else self.failures
        # Such as "new events are not found by search: works again after 3 failures in 2 s".
        message = "%s: works again after %d failures in %.0f s"
        self._log.log(level, message, self._effect_text, failure_count, seconds)
        self.failures = 0
