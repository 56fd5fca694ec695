"""Records of plugins: what each is, whether it can be used, and what it offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from delf.plugins.discovery import Candidate
from delf.records import dataclass
from delf.specs import Spec

State = Literal["loaded", "failed", "skipped", "disabled", "conflict"]
"""``loaded``: all its names can be used. ``failed``: it is broken or incomplete. ``skipped``:
it was made for another delf. ``disabled``: the user blocked it. ``conflict``: it was loaded,
but shares a name with another plugin, and that name cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """The record of one plugin.

    Args:
        plugin: The plugin as its distribution describes it.
        state: Whether it can be used.
        reason: Why the state is not ``loaded``.
        specs: What it offers.
        warnings: What its author should look at.
        load_ms: How long its import and hooks took; 0 when it was not imported.
    """

    plugin: Candidate
    state: State
    reason: str | None = None
    specs: tuple[Spec, ...] = ()
    warnings: tuple[str, ...] = ()
    load_ms: float = 0.0

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self.plugin.name

    @property
    def distribution(self) -> str | None:
        """The distribution that brings it; None for a plugin given in code."""
        return self.plugin.distribution

    @property
    def version(self) -> str | None:
        """The distribution's version."""
        return self.plugin.version

    @property
    def kinds(self) -> Mapping[str, tuple[str, ...]]:
        """The names that it offers, by kind."""
        found: dict[str, tuple[str, ...]] = {}
        for spec in sorted(self.specs, key=lambda item: (item.kind, item.name)):
            found[spec.kind] = (*found.get(spec.kind, ()), spec.name)
        return found

    @property
    def usable(self) -> bool:
        """True if it was loaded, even with a name in dispute."""
        return self.state in ("loaded", "conflict")

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON-ready data."""
        names = ("name", "state", "distribution", "version", "reason", "kinds", "warnings")
        return {name: getattr(self, name) for name in (*names, "load_ms")}
