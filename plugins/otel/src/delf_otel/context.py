"""The program's span at the submission of a task, as W3C trace context."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

TRACEPARENT: Final = "traceparent"
_TRACEPARENT_FORMAT: Final = re.compile(
    r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)
_SAMPLED_FLAG: Final = 1


@dataclass(frozen=True, kw_only=True)
class Parent:
    """The parent of a task's span: a trace, and the id of the span above the task's span.

    ``span_id`` is None if the task's span is the first span of the trace.
    """

    trace_id: int
    span_id: int | None
    sampled: bool


def current() -> dict[str, str]:
    """Return the current trace context, to be stored in a task's setup.

    Returns:
        A dict with the W3C ``traceparent`` of the current span or, without a span, of the
        environment variable ``TRACEPARENT``. Empty without either.
    """
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    traceparent = carrier.get(TRACEPARENT) or os.environ.get(TRACEPARENT.upper(), "")
    if _TRACEPARENT_FORMAT.fullmatch(traceparent):
        return {TRACEPARENT: traceparent}
    return {}


def parent_in(setup: Mapping[str, Any]) -> Parent | None:
    """Return the parent span that a task's setup names; None if the setup names no valid span."""
    match = _TRACEPARENT_FORMAT.fullmatch(str(setup.get(TRACEPARENT, "")))
    if match is None:
        return None
    trace_id = int(match[1], 16)
    span_id = int(match[2], 16)
    if trace_id == 0 or span_id == 0:  # the W3C's format uses 0 for an invalid id
        return None
    return Parent(
        trace_id=trace_id, span_id=span_id, sampled=bool(int(match[3], 16) & _SAMPLED_FLAG)
    )
