"""The program's span at the submission of a task, as W3C trace context."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

TRACEPARENT: Final = "traceparent"
_FORM: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED: Final = 1


@dataclass(frozen=True, kw_only=True)
class Parent:
    """A foreign parent span."""

    trace_id: int
    span_id: int
    sampled: bool


def current() -> dict[str, str]:
    """Return the current ``traceparent``, else the environment's, for a task's setup."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    traceparent = carrier.get(TRACEPARENT) or os.environ.get(TRACEPARENT.upper(), "")
    return {TRACEPARENT: traceparent} if _FORM.fullmatch(traceparent) else {}


def parent_in(setup: Mapping[str, Any]) -> Parent | None:
    """Return the span named in a task's setup, if any."""
    match = _FORM.fullmatch(str(setup.get(TRACEPARENT, "")))
    if match is None:
        return None
    trace_id, span_id = int(match[1], 16), int(match[2], 16)
    if not trace_id or not span_id:
        return None
    return Parent(trace_id=trace_id, span_id=span_id, sampled=bool(int(match[3], 16) & _SAMPLED))
