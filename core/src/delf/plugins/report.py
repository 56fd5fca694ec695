"""Records of all plugins, as data for ``delf plugins`` and ``delf doctor``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from delf.records import dataclass

State = Literal["loaded", "failed", "skipped", "disabled", "conflict"]
"""``loaded``: all its names can be used. ``failed``: it is broken or incomplete. ``skipped``:
it was made for another delf. ``disabled``: the user blocked it. ``conflict``: it was loaded,
but shares a name with another plugin, and that name cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """The record of one plugin.

    Args:
        name: The plugin's name.
        state: Whether it can be used.
        distribution: What was installed; None for a plugin given in code.
        version: The distribution's version.
        reason: Why the state is not ``loaded``.
        kinds: The names that it offers, by kind.
        warnings: What its author should look at.
        load_ms: How long its import and hooks took; 0 when it was not imported.
    """

    name: str
    state: State
    distribution: str | None = None
    version: str | None = None
    reason: str | None = None
    kinds: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    warnings: tuple[str, ...] = ()
    load_ms: float = 0.0

    @property
    def usable(self) -> bool:
        """True if it was loaded, even with a name in dispute."""
        return self.state in ("loaded", "conflict")
