"""Export by OpenTelemetry's batching processors and HTTP exporters."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import get_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_tracer_provider,
)

from delf_otel.spans import Attribute, FinishedSpan

_SCOPE: Final = InstrumentationScope("delf")
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_UNSAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)
_NANOSECONDS_PER_SECOND: Final = 1_000_000_000

# The buckets recommended by the semantic conventions.
_TOKEN_BUCKETS: Final = [4.0**power for power in range(14)]
_SECOND_BUCKETS: Final = [0.01 * 2**power for power in range(14)]


class Export:
    """The export of finished spans and metrics to a collector, by threads of OpenTelemetry.

    If the program has set up a ``TracerProvider``, and no endpoint is given, spans go to that
    provider instead.

    Args:
        service_name: The ``service.name``; the environment variable ``OTEL_SERVICE_NAME`` takes
            precedence.
        endpoint: The collector's address, such as ``http://localhost:4318``. When None or empty,
            OpenTelemetry's environment variables give the address.
    """

    def __init__(self, service_name: str, endpoint: str | None) -> None:
        provider = get_tracer_provider()
        if isinstance(provider, TracerProvider) and not endpoint:  # set up by the program
            self._has_own_exporters = False
            self._resource = provider.resource
            # Pass finished spans to the processor: a tracer would create spans with other ids.
            self._processor: SpanProcessor = provider._active_span_processor  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            self._meters: Any = get_meter_provider()
        else:
            self._has_own_exporters = True
            self._open_own_exporters(service_name, endpoint)
        meter = self._meters.get_meter(_SCOPE.name)
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Duration of calls to models.",
            explicit_bucket_boundaries_advisory=_SECOND_BUCKETS,
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens that calls to models used.",
            explicit_bucket_boundaries_advisory=_TOKEN_BUCKETS,
        )

    def _open_own_exporters(self, service_name: str, endpoint: str | None) -> None:
        """Create exporters to a collector.

        The exporters are independent of OpenTelemetry's global providers, which the program may
        have set up for itself.
        """
        # Resource.create() reads OTEL_SERVICE_NAME only if no name is passed.
        resource = {} if "OTEL_SERVICE_NAME" in os.environ else {SERVICE_NAME: service_name}
        self._resource = Resource.create(resource)
        span_endpoint: str | None = None  # None: from OpenTelemetry's environment variables
        metric_endpoint: str | None = None
        if endpoint:
            base = endpoint.rstrip("/")
            span_endpoint = f"{base}/v1/traces"
            metric_endpoint = f"{base}/v1/metrics"
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=span_endpoint))
        metric_exporter = OTLPMetricExporter(endpoint=metric_endpoint)
        metric_reader = PeriodicExportingMetricReader(metric_exporter)
        # No flush at the end of the process, which could block the process for long: the exporters
        # are flushed when the agent stops.
        self._meters = MeterProvider(
            [metric_reader], resource=self._resource, shutdown_on_exit=False
        )

    def span(self, span: FinishedSpan) -> None:
        """Queue a span for export; also record a model call's duration and tokens as metrics."""
        self._processor.on_end(self._sdk_span(span))
        is_model_call = span.attributes.get("gen_ai.operation.name") == "chat"
        if is_model_call:
            self._record_metrics(span)

    def close(self, seconds: float) -> None:
        """Flush queued spans and metrics, and stop OpenTelemetry's threads.

        Return after the given seconds at the latest, even if OpenTelemetry has not sent all spans.
        """
        # A daemon thread does not block the end of the process.
        closing = threading.Thread(target=self._close, daemon=True, name="delf-otel-close")
        closing.start()
        closing.join(seconds)

    def _close(self) -> None:
        self._processor.force_flush()
        if self._has_own_exporters:
            self._processor.shutdown()
            self._meters.shutdown()

    def _sdk_span(self, span: FinishedSpan) -> ReadableSpan:
        attributes = _encodable(span.attributes)
        status = Status()
        if span.failure is not None:
            attributes["error.type"] = span.failure
            message = None if span.message is None else _encodable_text(span.message)
            status = Status(StatusCode.ERROR, message)
        parent: SpanContext | None = None
        if span.parent_id is not None:
            parent = _context(span, span.parent_id)
        return ReadableSpan(
            name=span.name,
            context=_context(span, span.span_id),
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            events=[
                Event(name, _encodable(extra), _nanoseconds(at)) for name, at, extra in span.events
            ],
            links=[Link(_context(span, linked_id)) for linked_id in span.links],
            kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
            instrumentation_scope=_SCOPE,
            status=status,
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
        )

    def _record_metrics(self, span: FinishedSpan) -> None:
        """Record the duration of a model call and its numbers of input and output tokens."""
        names = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
        labels: Mapping[str, Attribute] = {name: span.attributes[name] for name in names}
        error_type = {} if span.failure is None else {"error.type": span.failure}
        self._duration.record(span.end - span.start, {**labels, **error_type})
        for kind in ("input", "output"):
            tokens = span.attributes.get(f"gen_ai.usage.{kind}_tokens")
            if isinstance(tokens, int):
                self._tokens.record(tokens, {**labels, "gen_ai.token.type": kind})


def _context(span: FinishedSpan, span_id: int) -> SpanContext:
    flags = _SAMPLED if span.sampled else _UNSAMPLED
    return SpanContext(span.trace_id, span_id, is_remote=False, trace_flags=flags)


def _encodable(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {
        name: _encodable_text(value) if isinstance(value, str) else value
        for name, value in attributes.items()
    }


def _encodable_text(text: str) -> str:
    """Replace lone surrogates, with which the exporter would lose a whole batch of spans."""
    return text.encode("utf-8", "replace").decode()


def _nanoseconds(seconds: float) -> int:
    return round(seconds * _NANOSECONDS_PER_SECOND)
