"""A plugin's sandbox: made with its options, and how far it isolates by what was tried out."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from delf.plugins.factories import make
from delf.plugins.host import PluginHost
from delf.protocols.sandbox import Available, Limits, SandboxBackend
from delf.specs import SandboxSpec
from delf.types import ISOLATION_ORDER, Isolation, isolation_rank
from delf_engine.sandboxes.isolation import Measured, Measurements, measure

LIMIT_NAMES: Final[Mapping[str, str]] = {
    "memory_limit": "memory_bytes",
    "memory_mb": "memory_bytes",
    "timeout": "cpu_seconds",
}
"""Other names for limits in ``sandbox_config``."""
_OF_SOME: Final = ("cpu_limit", "pids_limit", "python", "runtime", "scratch")
"""Options that only some backends have; the others confine a script in their own way."""


def make_sandbox(
    host: PluginHost,
    spec: SandboxSpec,
    sandbox_config: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]],
) -> SandboxBackend:
    """The backend of a spec.

    Args:
        host: Where it comes from.
        spec: What its plugin says of it.
        sandbox_config: Limits, which are none of its options, and options.
        options: Options by plugin name.

    Raises:
        ConfigurationError: For an option that it does not take.
        PluginError: When it cannot be imported.
    """
    limits = {field.name for field in dataclasses.fields(Limits)} | set(LIMIT_NAMES)
    extra = {name: value for name, value in sandbox_config.items() if name not in limits}
    taken = inspect.signature(host.resolve(spec)).parameters
    for name in _OF_SOME:
        if name not in taken:
            extra.pop(name, None)
    return make(host, spec, options, **extra)


class Tried:
    """A backend that works here, and what is known of its isolation.

    Args:
        host: Where it comes from.
        spec: What its plugin says of it.
        given: Its options.
        backend: The backend.
        state: What it says about itself here, as the version of its engine.
    """

    def __init__(
        self,
        host: PluginHost,
        spec: SandboxSpec,
        given: Mapping[str, Any],
        backend: SandboxBackend,
        state: Available,
    ) -> None:
        told: Any = getattr(backend, "isolation", spec.isolation)
        known = told if told in ISOLATION_ORDER else "process"
        self.claimed: Isolation = min(spec.isolation, known, key=isolation_rank)
        """The isolation that it claims; the weaker one, where its spec claims another."""
        self._name = spec.name
        self._backend = backend
        self._kept = Measurements()
        self._about = _about(host, spec, given, state)

    async def known(self) -> Measured | None:
        """Return the earlier measurement of this version."""
        return await asyncio.to_thread(self._kept.known, self._about) if self._about else None

    async def measure(self, *, thorough: bool = False) -> Measured:
        """Try it out, and keep what was found; of a plugin given in code, nothing is kept.

        Args:
            thorough: Try its limits, too.

        Raises:
            SandboxUnavailableError: When no session is available.
        """
        measured = await measure(self._backend, thorough=thorough)
        if self._about:
            await asyncio.to_thread(self._kept.keep, self._about, measured)
        return measured

    def believed(self, measured: Measured | None) -> Isolation:
        """Return its isolation: ``process`` where it was not measured."""
        return "process" if measured is None else measured.believed(self.claimed)

    def explain(self, measured: Measured | None) -> str:
        """Explain the isolation, and why it is not stronger."""
        believed = self.believed(measured)
        if believed == self.claimed:
            return f"{self._name} isolates by {believed} only"
        says = f"{self._name} says {self.claimed}, and is taken for {believed}"
        if measured is None:
            return f"{says}: it was not measured"
        reached = ", ".join(measured.reached)
        if not reached and not measured.calls:
            return f"{says}: a script got at no system call, so nothing else could be tried"
        return f"{says}: a script reached {reached or 'the kernel of this machine'}"


def _about(
    host: PluginHost, spec: SandboxSpec, given: Mapping[str, Any], state: Available
) -> tuple[str, ...]:
    """A version of a backend with its options; nothing for one that no distribution brings."""
    version = host.version_of(spec)
    if version is None:
        return ()
    module: Any = sys.modules.get(getattr(host.resolve(spec), "__module__", ""))
    file = getattr(module, "__file__", None)
    # An editable installation keeps its version when its code is changed.
    times = [] if file is None else [p.stat().st_mtime_ns for p in Path(file).parent.glob("*.py")]
    options = repr(sorted((name, repr(value)) for name, value in given.items()))
    return spec.name, spec.factory, version, str(max(times, default=0)), options, state.detail
