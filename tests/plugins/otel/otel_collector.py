"""A collector on loopback: OTLP over HTTP, read with OpenTelemetry's own protobuf classes."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


def _attributes(items: Any) -> dict[str, Any]:
    return {item.key: _value(item.value) for item in items}


class Collector:
    """A collector that keeps what it receives; a context manager."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []
        self.services: set[str] = set()
        self.raw = b""
        self._came = threading.Condition()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *args: Any, **_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, path: str, body: bytes) -> None:
        with self._came:
            self.raw += body
            if path == "/v1/traces":
                self._traces(ExportTraceServiceRequest.FromString(body))
            else:
                self._metrics(ExportMetricsServiceRequest.FromString(body))
            self._came.notify_all()

    def wait_for(self, name: str, number: int) -> None:
        """Wait until a number of spans of a name have arrived."""
        with self._came:
            came = self._came.wait_for(lambda: len(self.named(name)) >= number, timeout=60)
            assert came, f"no {number} spans {name!r} came"

    def _traces(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            self.services.add(_attributes(resource.resource.attributes)["service.name"])
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.spans.append(
                    {
                        "name": span.name,
                        "kind": span.kind,
                        "trace": span.trace_id.hex(),
                        "id": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "ns": (span.start_time_unix_nano, span.end_time_unix_nano),
                        "failed": span.status.code == 2,
                        "told": span.status.message,
                        "attributes": _attributes(span.attributes),
                        "events": [event.name for event in span.events],
                        "links": [link.span_id.hex() for link in span.links],
                    }
                )

    def _metrics(self, request: ExportMetricsServiceRequest) -> None:
        for scope in (scope for item in request.resource_metrics for scope in item.scope_metrics):
            for metric in scope.metrics:
                points = [_attributes(point.attributes) for point in metric.histogram.data_points]
                self.metrics.append({"name": metric.name, "unit": metric.unit, "points": points})

    def named(self, start: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"].startswith(start)]
