"""Records of plugins: identity, state and offered specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from delf.plugins.discovery import Candidate
from delf.records import dataclass
from delf.specs import Spec

State = Literal["loaded", "failed", "skipped", "disabled", "conflict"]
"""The state of a plugin after loading.

``loaded``: all its names can be used. ``failed``: the plugin is broken or incomplete. ``skipped``:
the plugin was made for another version of the plugin interface. ``disabled``: the user blocked the
plugin. ``conflict``: the plugin is loaded, but another plugin has one of its names, too.
"""

PLUGIN_FIELDS: Final = (
    "name",
    "state",
    "distribution",
    "version",
    "reason",
    "kinds",
    "warnings",
    "load_ms",
)
"""The names of the values that :meth:`PluginRecord.to_dict` returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """The state of a plugin after loading.

    Args:
        plugin: The plugin as its distribution describes it.
        state: ``loaded``, ``disabled``, ``skipped``, ``conflict`` or ``failed``.
        reason: Why the state is not ``loaded``.
        specs: The specs that the plugin offers.
        warnings: Warnings for the plugin's author.
        load_ms: Milliseconds that its import and hooks took; 0 if it was not imported.
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
        """The plugin's package; None for a plugin given in code."""
        return self.plugin.distribution

    @property
    def version(self) -> str | None:
        """The version of the package."""
        return self.plugin.version

    @property
    def kinds(self) -> Mapping[str, tuple[str, ...]]:
        """The names that the plugin offers, such as connection types, by kind of spec."""
        names_by_kind: dict[str, tuple[str, ...]] = {}
        for spec in sorted(self.specs, key=lambda item: (item.kind, item.name)):
            names_by_kind[spec.kind] = (*names_by_kind.get(spec.kind, ()), spec.name)
        return names_by_kind

    @property
    def usable(self) -> bool:
        """True if the plugin was loaded, even if another plugin has one of its names, too."""
        return self.state in ("loaded", "conflict")

    @property
    def fault(self) -> str | None:
        """The fault of the plugin or of one of its hooks, worded to follow the plugin's name.

        None for plugins that work or that the user blocked. None also for plugins in conflict,
        because the error about the shared name reports these.
        """
        if self.state in ("failed", "skipped"):
            return f"is {self.state}: {self.reason}"
        if self.warnings:
            return f"gives less than it should: {'; '.join(self.warnings)}"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON-ready data."""
        return {name: getattr(self, name) for name in PLUGIN_FIELDS}
