"""Warnings of what is away: one when it goes, and one with a count when it is back."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from weakref import WeakValueDictionary

_telling: WeakValueDictionary[str, Outage] = WeakValueDictionary()
"""For each thing that is away the outage that tells of it, while its owner lives."""


class Outage:
    """Warns at the first failure, counts the others, and warns of their number once it is over.

    Several parts of a process may need one thing, as a database. One of them tells that it is away;
    the failures of the others are counted with its own.

    Args:
        log: Where to.
        what: What does not work meanwhile, as a sentence without its end.
        of: The thing that is away, where others need it, too.
    """

    def __init__(self, log: logging.Logger, what: str, of: str | None = None) -> None:
        self._log = log
        self._what = what
        self._of = of
        self._since = 0.0
        self.failures = 0
        """Failures since it worked last."""
        self.counted = 0
        """Those of all parts, where this one tells of them."""

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
        begins, teller = self.failures == 1, self
        if begins:
            self._since, self.counted = time.monotonic(), 0
        if self._of is not None:
            teller = (_telling.setdefault if begins else _telling.get)(self._of, self)
        teller.counted += 1
        level = logging.WARNING if begins and teller is self else logging.DEBUG
        self._log.log(level, "%s (failure %d): %s", self._what, self.failures, error)

    def over(self) -> None:
        """It works."""
        if not self.failures:
            return
        seconds = time.monotonic() - self._since
        tells = self._of is None or _telling.get(self._of) is self
        if tells and self._of is not None:
            _telling.pop(self._of, None)
        said = "works again after %d failures in %.0f s"
        level = logging.WARNING if tells else logging.DEBUG
        self._log.log(level, f"%s: {said}", self._what, self.counted, seconds)
        self.failures = 0
