"""The choice of an agent's prefilter."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from delf.environment import using_environ
from delf.errors import PluginError, did_you_mean
from delf.packages.official import how_to_install, packages
from delf.plugins.factories import make
from delf.plugins.host import PluginHost
from delf.protocols.context import PluginContext
from delf.protocols.prefilter import Choice, Prefilter
from delf.specs import PrefilterSpec
from delf_engine.closing import close_all


class Prefilters:
    """The prefilters of an agent, created on first use.

    Args:
        host: The plugins.
        options: Options by plugin name.
        context: The context for factories.
        mode: ``auto``, ``off``, or the mode of a plugin. ``auto`` shows all tools if they fit the
            prompt; otherwise it uses an installed prefilter that asks no model, or else a word
            search.

    Raises:
        PluginError: If no plugin or several plugins serve the mode.
    """

    def __init__(
        self,
        host: PluginHost,
        options: Mapping[str, Mapping[str, Any]],
        context: PluginContext,
        mode: str,
    ) -> None:
        self._host = host
        self._options = options
        self._context = context
        self._mode = mode
        self._prefilters: dict[tuple[str, str], Prefilter] = {}
        if mode not in ("auto", "off"):
            self._find_spec(mode)  # raises now if no plugin serves the mode

    def choose(self) -> Choice | None:
        """Return the prefilter to use if not all tools fit the prompt; None for a word search."""
        is_set_by_user = self._mode not in ("auto", "off")
        if is_set_by_user:
            return self._choice(self._find_spec(self._mode), self._mode, is_set_by_user=True)
        for spec in self._host.specs(PrefilterSpec):
            costs_money = spec.asks  # asks a model
            if not costs_money and spec.modes:
                return self._choice(spec, spec.modes[0], is_set_by_user=False)
        return None

    def _choice(self, spec: PrefilterSpec, mode: str, *, is_set_by_user: bool) -> Choice:
        prefilter = functools.partial(self._prefilter, spec, mode)
        return Choice(name=spec.name, mode=mode, forced=is_set_by_user, load=prefilter)

    def _prefilter(self, spec: PrefilterSpec, mode: str) -> Prefilter:
        key = spec.name, mode
        if key not in self._prefilters:
            with using_environ(self._context.environ):
                self._prefilters[key] = make(
                    self._host, spec, self._options, self._context, {"mode": mode}
                )
        return self._prefilters[key]

    def _find_spec(self, mode: str) -> PrefilterSpec:
        """Return the prefilter for a mode that the user named.

        Raises:
            PluginError: If no plugin or several plugins serve the mode.
        """
        specs = self._host.specs(PrefilterSpec)
        matching_specs = [spec for spec in specs if mode in spec.modes]
        if matching_specs:
            return self._host.preferred_spec(matching_specs, f"prefilter_mode {mode!r}")
        installed_modes = {"auto", "off"}
        for spec in specs:
            installed_modes.update(spec.modes)
        package_by_mode = packages("prefilter_mode")
        if mode in package_by_mode:
            hint = how_to_install(package_by_mode[mode])
        else:
            hint = f"one of: {', '.join(sorted(installed_modes))}"
        other_modes = {*installed_modes, *package_by_mode} - {mode}
        error = PluginError(
            f"no plugin serves prefilter_mode {mode!r}{did_you_mean(mode, other_modes)}", hint=hint
        )
        raise self._host.with_load_failures(error)

    async def aclose(self) -> None:
        """Close all prefilters."""
        prefilters, self._prefilters = self._prefilters, {}
        await close_all(
            {f"the prefilter {name!r} ({mode})": x for (name, mode), x in prefilters.items()}
        )
