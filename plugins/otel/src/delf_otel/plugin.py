"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ObserverSpec


@hookimpl
def delf_observers() -> Iterable[ObserverSpec]:
    yield ObserverSpec(
        name="otel",
        summary="OpenTelemetry traces and metrics of tasks, models and tools.",
        factory="delf_otel.observer:OtelObserver",
        opt_in=True,
        setup="delf_otel.context:current",
    )
