"""A plugin's sandbox: its options and its measured isolation."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, Final

from delf.errors import ConfigurationError, did_you_mean
from delf.plugins.factories import make
from delf.plugins.host import PluginHost
from delf.protocols.context import PluginContext
from delf.protocols.sandbox import Limits, SandboxBackend
from delf.specs import SandboxSpec
from delf.types import ISOLATION_ORDER, Isolation, isolation_rank
from delf_engine.sandboxes.isolation import Measured, measure

LIMIT_NAMES: Final[Mapping[str, str]] = {
    "memory_limit": "memory_bytes",
    "memory_mb": "memory_bytes",
    "timeout": "cpu_seconds",
}
"""Alternative names of limits in ``sandbox_config``."""
# Options that are ignored by backends that do not support them.
_IGNORED_IF_UNSUPPORTED: Final = ("cpu_limit", "pids_limit", "python", "runtime", "scratch")


def make_sandbox(
    host: PluginHost,
    spec: SandboxSpec,
    sandbox_config: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]],
    context: PluginContext,
) -> SandboxBackend:
    """Create the sandbox backend that a spec describes.

    Args:
        host: The plugins.
        spec: The spec, from the backend's plugin.
        sandbox_config: Limits and backend options; limits are not passed to the backend.
        options: Options by plugin name.
        context: The context to pass to the backend's factory.

    Raises:
        ConfigurationError: For an option that the backend neither supports nor ignores.
        PluginError: If the backend cannot be imported.
    """
    limits = {field.name for field in dataclasses.fields(Limits)} | set(LIMIT_NAMES)
    extra = {name: value for name, value in sandbox_config.items() if name not in limits}
    parameters = inspect.signature(host.resolve(spec)).parameters
    # Drop such options instead of raising an error: one configuration then works with backends that
    # support them and with others.
    for name in _IGNORED_IF_UNSUPPORTED:
        if name not in parameters:
            extra.pop(name, None)
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    known = sorted({*limits, *_IGNORED_IF_UNSUPPORTED, *parameters} - {"context"})
    for name in extra:
        if name not in parameters and not takes_any:
            raise ConfigurationError(
                f"sandbox_config of {spec.name!r}: unknown key {name!r}{did_you_mean(name, known)}",
                hint=f"known keys: {', '.join(known)}",
            )
    return make(host, spec, options, context, **extra)


class Probed:
    """A working backend whose isolation is to be measured.

    Args:
        spec: The spec of its plugin.
        backend: The backend.
    """

    def __init__(self, spec: SandboxSpec, backend: SandboxBackend) -> None:
        by_backend: Any = getattr(backend, "isolation", spec.isolation)
        if by_backend not in ISOLATION_ORDER:  # a plugin may declare anything
            by_backend = "process"
        self.claimed: Isolation = min(spec.isolation, by_backend, key=isolation_rank)
        """The isolation that spec and backend declare, the weaker of both."""
        self._name = spec.name
        self._backend = backend

    async def measure(self, *, thorough: bool = False) -> Measured:
        """Measure how well the backend isolates scripts from the machine.

        Args:
            thorough: Whether to test the limits, too.

        Raises:
            SandboxUnavailableError: If no session can be opened.
        """
        return await measure(self._backend, thorough=thorough)

    def trusted_isolation(self, measurement: Measured | None) -> Isolation:
        """Return the isolation to rely on; ``process``, the weakest, without a measurement."""
        if measurement is None:
            return "process"
        return measurement.trusted_isolation(self.claimed)

    def explain(self, measurement: Measured | None) -> str:
        """Explain the isolation, and why it is not stronger."""
        trusted = self.trusted_isolation(measurement)
        if trusted == self.claimed:
            return f"{self._name} isolates by {trusted} only"
        summary = f"{self._name} claims isolation {self.claimed}, but delf relies only on {trusted}"
        if measurement is None:
            return f"{summary}: the isolation was not measured"
        if measurement.reached:
            return f"{summary}: a script reached {', '.join(measurement.reached)}"
        if not measurement.can_make_system_calls:
            return f"{summary}: a script could make no system call, so nothing else was tested"
        # The script reached nothing else, but its system calls go to the host's own kernel.
        return f"{summary}: a script reached the kernel of this machine"
