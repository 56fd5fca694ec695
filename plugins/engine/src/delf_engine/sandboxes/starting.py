"""The choice of a sandbox: by name, or the strongest that works; never silently weaker."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any

from delf.errors import ConfigurationError, PluginError, SandboxUnavailableError
from delf.packages.official import how_to_install, packages, recommended_plugin
from delf.plugins.host import PluginHost
from delf.protocols.context import PluginContext
from delf.protocols.sandbox import (
    Availability,
    Available,
    Limits,
    SandboxBackend,
    SupportsLibraryCheck,
    SupportsPreparation,
    Unavailable,
)
from delf.records import dataclass
from delf.specs import SandboxSpec
from delf.types import Isolation, isolation_rank
from delf_engine.bounded import PREPARE_SECONDS, START_SECONDS, within
from delf_engine.closing import close_all
from delf_engine.config import AgentConfig
from delf_engine.sandboxes.backends import LIMIT_NAMES, Probed, make_sandbox
from delf_engine.sandboxes.isolation import Measured

_log = logging.getLogger(__name__)
_MB = 1024 * 1024
_UNITS = {"k": 1024, "m": _MB, "g": 1024 * _MB, "": 1}


@dataclass(frozen=True, slots=True)
class ChosenSandbox:
    """The sandbox backend that an agent uses.

    Args:
        spec: The spec of its plugin.
        backend: The backend, which works on this machine.
        isolation: The measured isolation; ``process`` if not measured.
        warning: A warning about the choice, if any.
        passed_over: Whether a stronger backend is installed but was not chosen.
        missing_libraries: The packages of ``allowed_libs`` that scripts cannot import, with the
            reason.
    """

    spec: SandboxSpec
    backend: SandboxBackend
    isolation: Isolation = "process"
    warning: str | None = None
    passed_over: bool = False
    missing_libraries: Mapping[str, str] = field(default_factory=dict[str, str])

    def importable(self, libraries: Iterable[str]) -> tuple[str, ...]:
        """Return those of the given libraries that are installed for scripts."""
        return tuple(each for each in libraries if each not in self.missing_libraries)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The search for the configured sandbox.

    Args:
        host: The plugins.
        config: ``sandbox``, ``min_isolation`` and ``sandbox_config``.
        options: Options by plugin name.
        context: The context of factories.
    """

    host: PluginHost
    config: AgentConfig
    options: Mapping[str, Mapping[str, Any]]
    context: PluginContext

    async def try_backend(self, spec: SandboxSpec) -> ChosenSandbox | Unavailable:
        """Return the backend of a sandbox if it works and isolates well enough.

        Otherwise close the backend, and return the reason.
        """
        if self._is_weak(spec.isolation):
            return self._too_weak(f"{spec.name} isolates by {spec.isolation} only")
        backend = make_sandbox(
            self.host, spec, self.config.sandbox_config, self.options, self.context
        )
        try:
            state = await self._check_ready(spec, backend)
            if isinstance(state, Available):
                isolation, reason = await self._isolation(spec, backend)
                if not self._is_weak(isolation):
                    missing = self._missing_libraries(backend)
                    return ChosenSandbox(spec, backend, isolation, missing_libraries=missing)
                state = self._too_weak(reason)
        except BaseException:
            await _close(spec, backend)
            raise
        await _close(spec, backend)
        return state

    def _missing_libraries(self, backend: SandboxBackend) -> Mapping[str, str]:
        if not isinstance(backend, SupportsLibraryCheck):
            return {}  # such as a container, which installs them
        return backend.missing_libraries(tuple(self.config.allowed_libs))

    def _is_weak(self, isolation: Isolation) -> bool:
        return isolation_rank(isolation) < isolation_rank(self.config.min_isolation)

    def _too_weak(self, reason: str) -> Unavailable:
        return Unavailable(
            f"{reason}, and min_isolation is {self.config.min_isolation!r}",
            "choose a stronger sandbox, or lower min_isolation; delf doctor shows what was "
            "measured",
        )

    async def _check_ready(self, spec: SandboxSpec, backend: SandboxBackend) -> Availability:
        """Check that sessions can be opened; prepare what this needs, such as a container image."""
        owner = f"the sandbox {spec.name!r}"
        try:
            state = await within(START_SECONDS, owner, "available", backend.available)
            if isinstance(state, Available) and isinstance(backend, SupportsPreparation):
                libraries = tuple(self.config.allowed_libs)
                prepare = partial(backend.prepare, libraries)
                await within(PREPARE_SECONDS, owner, "prepare", prepare)
        except (SandboxUnavailableError, PluginError) as error:
            # Remove the sandbox's name, which the caller adds again, and line breaks in a plugin's
            # message.
            reason = " ".join(error.message.split()).removeprefix(f"{owner} ")
            return Unavailable(reason, error.hint or "")
        return state

    async def _isolation(self, spec: SandboxSpec, backend: SandboxBackend) -> tuple[Isolation, str]:
        """Return the isolation to rely on for a backend, and the reason why it is not stronger."""
        probed = Probed(spec, backend)
        measurement: Measured | None = None
        # Without a measurement, the isolation counts as "process", the weakest one.
        has_stronger_claim = probed.claimed != "process"
        needs_stronger = self.config.min_isolation != "process"
        if has_stronger_claim and needs_stronger:
            try:
                measurement = await probed.measure()
            except Exception as error:  # a plugin may raise anything
                _log.debug("the sandbox %s cannot be tried out", spec.name, exc_info=True)
                reason = f"{spec.name} says {probed.claimed}, and cannot be tried out: {error}"
                return "process", reason
        return probed.trusted_isolation(measurement), probed.explain(measurement)


async def _close(spec: SandboxSpec, backend: SandboxBackend) -> None:
    """Close a backend that was not chosen; log a failure to close."""
    try:
        await close_all({f"the sandbox {spec.name!r}": backend})
    except (PluginError, ExceptionGroup) as error:
        _log.warning("%s", error)


async def choose_sandbox(
    host: PluginHost,
    config: AgentConfig,
    options: Mapping[str, Mapping[str, Any]],
    context: PluginContext | None = None,
) -> ChosenSandbox:
    """Choose the sandbox by the configuration.

    Args:
        host: The plugins.
        config: ``sandbox``, ``min_isolation`` and ``sandbox_config``.
        options: Options by plugin name.
        context: The context of factories; when omitted, a context without an agent.

    Raises:
        SandboxUnavailableError: If no backend works or none is strong enough.
        PluginError: If the named backend is not installed.
    """
    search = _Search(host=host, config=config, options=options, context=context or PluginContext())
    if config.sandbox == "auto":
        return await _choose_strongest(search)
    result = await search.try_backend(host.spec(SandboxSpec, config.sandbox))
    if isinstance(result, Unavailable):
        raise SandboxUnavailableError(
            f"the sandbox {config.sandbox!r} does not work here: {result.reason}",
            hint=result.hint or None,
        )
    return result


def _stronger_subsets(specs: Iterable[SandboxSpec], chosen: SandboxSpec) -> list[SandboxSpec]:
    """Return the sandboxes that isolate better than ``chosen``, but run only a subset of Python."""
    rank = isolation_rank(chosen.isolation)
    return [spec for spec in specs if spec.subset and isolation_rank(spec.isolation) > rank]


async def _choose_strongest(search: _Search) -> ChosenSandbox:
    """Choose the strongest working sandbox that runs all of Python.

    If none works, choose the strongest working sandbox that runs a subset of Python.
    """
    specs = sorted(
        search.host.specs(SandboxSpec),
        # A strong sandbox with a subset of Python comes last, because it cannot run every script.
        key=lambda spec: (spec.subset, -isolation_rank(spec.isolation), spec.name),
    )
    reasons_against_others: list[str] = []
    hint = ""
    for spec in specs:
        if spec.subset and search.config.allowed_libs:  # a subset of Python has no libraries
            libraries = ", ".join(search.config.allowed_libs)
            reasons_against_others.append(f"{spec.name} cannot import {libraries}")
            continue
        result = await search.try_backend(spec)
        if isinstance(result, Unavailable):
            reason = result.reason.removeprefix(f"{spec.name} ")
            reasons_against_others.append(f"{spec.name}: {reason}")
            hint = hint or result.hint  # the hint of the strongest sandbox that has one
            continue
        # Sandboxes with a subset of Python come later in the list, and were not tried.
        reasons_against_others += [
            f"{other.name} isolates by {other.isolation}, but runs a subset of Python"
            for other in _stronger_subsets(specs, spec)
        ]
        return replace(
            result,
            warning=_warning(spec, reasons_against_others),
            passed_over=bool(reasons_against_others),
        )
    if specs:
        error = _none_works_error(search, reasons_against_others, hint)
    else:
        package = packages("sandbox")[recommended_plugin("sandbox")]
        error = SandboxUnavailableError("no sandbox is installed", hint=how_to_install(package))
    raise search.host.with_load_failures(error)


def _none_works_error(search: _Search, reasons: list[str], hint: str) -> SandboxUnavailableError:
    min_isolation = search.config.min_isolation
    return SandboxUnavailableError(
        f"no sandbox with isolation {min_isolation!r} or stronger works here: {'; '.join(reasons)}",
        hint=hint or None,
    )


def _warning(spec: SandboxSpec, reasons_against_others: list[str]) -> str | None:
    """Return a warning if a sandbox isolates more weakly than a container; else None.

    The warning names the reasons why other sandboxes were not chosen.
    """
    if isolation_rank(spec.isolation) >= isolation_rank("container"):
        return None
    reasons = f" ({'; '.join(reasons_against_others)})" if reasons_against_others else ""
    return (
        f"scripts run in the sandbox {spec.name!r}, isolated by {spec.isolation} only{reasons}; "
        f'set sandbox = "{spec.name}" to accept this isolation; delf doctor lists other sandboxes'
    )


def make_limits(sandbox_config: Mapping[str, Any]) -> Limits:
    """Build the limits of a session from ``sandbox_config``.

    Beside the fields of :class:`Limits`, ``memory_limit`` takes bytes or ``"512m"``, ``memory_mb``
    takes mebibytes, and ``timeout`` means CPU seconds. Other options, which are no limits, are
    ignored.

    Raises:
        ConfigurationError: For an invalid limit.
    """
    limit_fields = {field.name: field for field in dataclasses.fields(Limits)}
    values: dict[str, Any] = {}
    for name, value in sandbox_config.items():
        target = LIMIT_NAMES.get(name, name)
        if target not in limit_fields:
            continue
        if name == "memory_mb":
            size = _checked_number(name, value) * _MB
            number = _checked_number(name, size)  # again, because the product may be infinite
        elif target.endswith("_bytes"):
            number = _parse_size(name, value)
        else:
            number = _checked_number(name, value)
        values[target] = number if target == "cpu_seconds" else int(number)
    return Limits(**values)


def _checked_number(name: str, value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not _is_limit(value):
        raise ConfigurationError(f"sandbox_config.{name} must be a number, got {value!r}")
    return value


def _parse_size(name: str, value: Any) -> float:
    """Parse a size in bytes: a number, or a text with a unit such as ``512m``."""
    if not isinstance(value, str):
        return _checked_number(name, value)
    text = value.strip().lower().removesuffix("b").removesuffix("i")  # "512MiB" -> "512m"
    unit = text[-1] if text.endswith(("k", "m", "g")) else ""
    digits = text.removesuffix(unit)
    try:
        number = float(digits) * _UNITS[unit]
    except ValueError:
        number = -1.0  # refused below
    if not _is_limit(number):
        raise ConfigurationError(
            f"sandbox_config.{name} is {value!r}", hint="write bytes as a number, or '512m', '2g'"
        )
    return number


def _is_limit(value: float) -> bool:
    try:
        return math.isfinite(value) and value >= 0
    except OverflowError:  # an int that is too large for a float
        return False
