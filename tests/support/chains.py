"""Chains of exceptions, as tracebacks, logs and error trackers show them."""

from __future__ import annotations

import traceback
from collections.abc import Iterator


def every_text_of(error: BaseException) -> str:
    """All that an exception and those behind it show, suppressed contexts included."""
    return "\n".join(_texts_of(error, set()))


def _texts_of(error: BaseException | None, seen: set[int]) -> Iterator[str]:
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    yield from (str(error), repr(error), repr(error.args), repr(vars(error)))
    yield from traceback.format_exception(error)
    yield from _texts_of(error.__cause__, seen)
    yield from _texts_of(error.__context__, seen)
