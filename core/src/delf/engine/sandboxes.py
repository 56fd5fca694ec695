"""Chooses a sandbox: by name, or the strongest that works here; never silently weaker."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from delf.config import AgentConfig
from delf.errors import ConfigurationError, SandboxUnavailableError
from delf.official import how_to_install, packages, usual
from delf.plugins.factories import make, signature_of
from delf.plugins.host import PluginHost
from delf.protocols.sandbox import Limits, SandboxBackend, Unavailable
from delf.records import dataclass
from delf.specs import SandboxSpec
from delf.types import isolation_rank

_MB = 1024 * 1024
_LIMIT_NAMES = {
    "memory_limit": "memory_bytes",
    "memory_mb": "memory_bytes",
    "timeout": "cpu_seconds",
}
_OF_CONTAINERS = ("cpu_limit", "pids_limit", "runtime")
"""Options that only some backends have; the others confine a script in their own way."""
_UNITS = {"k": 1024, "m": _MB, "g": 1024 * _MB, "": 1}


@dataclass(frozen=True, slots=True)
class ChosenSandbox:
    """A backend that works here.

    Args:
        spec: What its plugin says of it.
        backend: The backend.
        warning: What the user should know about the choice, if anything.
        passed_over: Whether a stronger one is installed, and was not taken.
    """

    spec: SandboxSpec
    backend: SandboxBackend
    warning: str | None = None
    passed_over: bool = False


async def choose_sandbox(
    host: PluginHost, config: AgentConfig, options: Mapping[str, Mapping[str, Any]]
) -> ChosenSandbox:
    """The sandbox that the configuration asks for.

    Args:
        host: Where sandboxes come from.
        config: ``sandbox``, ``min_isolation`` and ``sandbox_config``.
        options: Options by plugin name.

    Raises:
        SandboxUnavailableError: When none works, or none is strong enough.
        PluginError: When the named one is not installed.
    """
    if config.sandbox != "auto":
        spec = host.spec(SandboxSpec, config.sandbox)
        _check_isolation(spec, config)
        backend = _make(host, spec, config, options)
        state = await backend.available()
        if isinstance(state, Unavailable):
            raise SandboxUnavailableError(
                f"the sandbox {spec.name!r} does not work here: {state.reason}",
                hint=state.hint or None,
            )
        return ChosenSandbox(spec, backend)
    return await _choose_strongest(host, config, options)


async def _choose_strongest(
    host: PluginHost, config: AgentConfig, options: Mapping[str, Mapping[str, Any]]
) -> ChosenSandbox:
    specs = sorted(
        host.specs(SandboxSpec),
        key=lambda spec: (spec.subset, -isolation_rank(spec.isolation), spec.name),
    )
    passed: list[str] = []
    for spec in specs:
        if isolation_rank(spec.isolation) < isolation_rank(config.min_isolation):
            passed.append(f"{spec.name} isolates by {spec.isolation} only")
            continue
        if spec.subset and config.allowed_libs:
            passed.append(f"{spec.name} cannot import {', '.join(config.allowed_libs)}")
            continue
        backend = _make(host, spec, config, options)
        state = await backend.available()
        if isinstance(state, Unavailable):
            passed.append(f"{spec.name}: {state.reason}")
            await backend.aclose()
            continue
        passed += [
            f"{other.name} isolates by {other.isolation}, but runs a subset of Python"
            for other in specs
            if other.subset and isolation_rank(other.isolation) > isolation_rank(spec.isolation)
        ]
        return ChosenSandbox(spec, backend, _warning(spec, passed), bool(passed))
    if not specs:
        package = packages("sandbox")[usual("sandbox")]
        raise SandboxUnavailableError("no sandbox is installed", hint=how_to_install(package))
    raise SandboxUnavailableError(
        f"no sandbox with isolation {config.min_isolation!r} or stronger works here: "
        f"{'; '.join(passed)}"
    )


def _warning(spec: SandboxSpec, passed: list[str]) -> str | None:
    if isolation_rank(spec.isolation) >= isolation_rank("container"):
        return None
    reasons = f" ({'; '.join(passed)})" if passed else ""
    return (
        f"scripts run in the sandbox {spec.name!r}, isolated by {spec.isolation} only{reasons}; "
        f'sandbox = "{spec.name}" accepts it, and delf doctor shows what else there is'
    )


def _check_isolation(spec: SandboxSpec, config: AgentConfig) -> None:
    if isolation_rank(spec.isolation) < isolation_rank(config.min_isolation):
        raise SandboxUnavailableError(
            f"the sandbox {spec.name!r} isolates by {spec.isolation}, and min_isolation is "
            f"{config.min_isolation!r}",
            hint="choose a stronger sandbox, or lower min_isolation",
        )


def _make(
    host: PluginHost,
    spec: SandboxSpec,
    config: AgentConfig,
    options: Mapping[str, Mapping[str, Any]],
) -> SandboxBackend:
    known = {field.name for field in dataclasses.fields(Limits)}
    extra = {
        name: value
        for name, value in config.sandbox_config.items()
        if name not in known and name not in _LIMIT_NAMES
    }
    taken = signature_of(host.resolve(spec)).parameters
    for name in _OF_CONTAINERS:
        if name not in taken:
            extra.pop(name, None)
    return make(host, spec, options, **extra)


def make_limits(sandbox_config: Mapping[str, Any]) -> Limits:
    """The limits of a session from ``sandbox_config``.

    Beside the fields of :class:`Limits`, ``memory_limit`` takes bytes or ``"512m"`` and
    ``timeout`` means CPU seconds.

    Raises:
        ConfigurationError: For a value that is no limit.
    """
    known = {field.name: field for field in dataclasses.fields(Limits)}
    values: dict[str, Any] = {}
    for name, value in sandbox_config.items():
        target = _LIMIT_NAMES.get(name, name)
        if target not in known:
            continue
        size = target.endswith("_bytes")
        number = _size(name, value) if size else _number(name, value)
        if name == "memory_mb":
            number *= _MB
        values[target] = number if target == "cpu_seconds" else int(number)
    return Limits(**values)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_size(value):
        raise ConfigurationError(f"sandbox_config.{name} must be a number, got {value!r}")
    return value


def _size(name: str, value: Any) -> float:
    if not isinstance(value, str):
        return _number(name, value)
    text = value.strip().lower().removesuffix("b").removesuffix("i")
    unit = text[-1:] if text[-1:] in "kmg" else ""
    digits = text.removesuffix(unit)
    try:
        number = float(digits) * _UNITS[unit]
    except ValueError:
        number = -1.0
    if not _is_size(number):
        raise ConfigurationError(
            f"sandbox_config.{name} is {value!r}", hint="write bytes as a number, or '512m', '2g'"
        )
    return number


def _is_size(value: float) -> bool:
    return math.isfinite(value) and value >= 0
