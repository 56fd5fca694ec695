"""Log messages about outages: one warning at the start, and one with a count at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from weakref import WeakValueDictionary

# The :class:`Outage` that writes the log messages about each service, as weak references.
_reporting_outages: WeakValueDictionary[str, Outage] = WeakValueDictionary()


class Outage:
    """Logs the first failure of a service, and the number of failures at recovery.

    Several parts of a process may use the same service, such as a database, each with an ``Outage``
    object of its own. The object that first records a failure logs the outage, and its number of
    failures includes the failures that the other objects record.

    Args:
        log: The logger.
        effect: The effect of the outage, with which its log messages begin: a sentence without a
            full stop, such as ``new events are not found by search``.
        service: The name of the service, if other parts of the process share it.
    """

    def __init__(self, log: logging.Logger, effect: str, service: str | None = None) -> None:
        self._log = log
        self._effect_text = effect
        self._service = service
        self._since = 0.0  # the monotonic time of the outage's first failure
        self.failures = 0
        """Failures that this object has recorded since its last success."""
        self.shared_failures = 0
        """Failures of the service in the current outage, of all ``Outage`` objects together.

        The object that logs the outage counts them, because its message has their number. In other
        objects the number has no meaning.
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
        """Count and log a failure, in an outage that several objects may share.

        The object that reports the outage counts the failures of all objects. Only its own first
        failure is logged as a warning; all other failures are logged at debug level.
        """
        self.failures += 1
        is_first_of_object = self.failures == 1
        if is_first_of_object:
            self._since = time.monotonic()
            self.shared_failures = 0
        reporter = self._find_reporting_outage(is_first=is_first_of_object)
        reporter.shared_failures += 1
        begins_outage = is_first_of_object and reporter is self
        level = logging.WARNING if begins_outage else logging.DEBUG
        self._log.log(level, "%s (failure %d): %s", self._effect_text, self.failures, error)

    def _find_reporting_outage(self, *, is_first: bool) -> Outage:
        """Return the ``Outage`` object that logs for this service.

        Several parts of the process may use the same service, each with an ``Outage`` object of its
        own. The object that first recorded a failure of the service logs for all of them.

        Args:
            is_first: Whether this object has just recorded its first failure. Only then can this
                object become the object that logs for its service.
        """
        if self._service is None:
            return self
        if is_first:
            return _reporting_outages.setdefault(self._service, self)
        return _reporting_outages.get(self._service, self)

    def record_success(self) -> None:
        """Record a success; if failures came before the success, log that the service works again.

        Several parts of the process may use the same service, each with an ``Outage`` object of its
        own. Only the object that first recorded a failure of the service logs a warning; the others
        log at debug level.
        """
        if not self.failures:
            return
        seconds = time.monotonic() - self._since
        is_reporting = self._service is None or _reporting_outages.get(self._service) is self
        if is_reporting and self._service is not None:
            _reporting_outages.pop(self._service, None)
        # Such as "new events are not found by search: works again after 3 failures in 2 s".
        message = "%s: works again after %d failures in %.0f s"
        level = logging.WARNING if is_reporting else logging.DEBUG
        failure_count = self.shared_failures if is_reporting else self.failures
        self._log.log(level, message, self._effect_text, failure_count, seconds)
        self.failures = 0
