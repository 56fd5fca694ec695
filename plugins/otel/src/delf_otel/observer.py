"""The observer: hands finished spans and a few metrics to OpenTelemetry's exporters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from delf.events import Event
from delf.protocols.context import PluginContext
from delf.settings import check_variables, source_of
from delf_otel.spans import Spans

if TYPE_CHECKING:
    from delf_otel.export import Export

_HEADER_VARIABLES: Final = (
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
)
_BATCH_CLOSE_SECONDS: Final = 4.0


class OtelObserver:
    """An observer that exports tasks as OpenTelemetry traces and metrics.

    Implements :class:`delf.protocols.observer.Observer`. By default, the data go to the collector
    that environment variables such as ``OTEL_EXPORTER_OTLP_ENDPOINT`` name, or to
    ``http://localhost:4318``.

    Args:
        context: The agent's context, whose installed providers determine the provider of a model.
            Without a context, the provider is the prefix of the model's name.
        content: Whether to send contents, too: tasks, answers, arguments, results, errors.
        service_name: The ``service.name``; the environment variable ``OTEL_SERVICE_NAME`` takes
            precedence.
        endpoint: The address of the collector; overrides the environment variables.

    Raises:
        KeyAddressError: If a file of the project gives the endpoint, and environment variables give
            headers, which may contain a key.
    """

    def __init__(
        self,
        context: PluginContext | None = None,
        *,
        content: bool = False,
        service_name: str = "delf",
        endpoint: str | None = None,
    ) -> None:
        # OpenTelemetry sends the headers in these variables to the endpoint. The headers may hold a
        # key, which a project's file must not send to an endpoint of its choice.
        check_variables("otel", source_of(endpoint), _HEADER_VARIABLES)
        self._spans = Spans((context or PluginContext()).installed_providers, content=content)
        self._service_name = service_name
        self._endpoint = endpoint
        self._export: Export | None = None
        self._opening = asyncio.Lock()

    async def observe(self, event: Event) -> None:
        """Export the span that an event ends, if the event ends a span."""
        span = self._spans.take(event)
        if span is None:
            return
        # Importing the exporters is slow, and concurrent events must open only one export.
        async with self._opening:
            if self._export is None:
                self._export = await asyncio.to_thread(self._open)
        self._export.span(span)

    def _open(self) -> Export:
        from delf_otel.export import Export

        return Export(self._service_name, self._endpoint)

    async def aclose(self) -> None:
        """Flush queued spans and metrics within four seconds."""
        export, self._export = self._export, None
        if export is not None:
            await asyncio.to_thread(export.close, _BATCH_CLOSE_SECONDS)
