"""Whether a task's tools are filtered, and by whom."""

from __future__ import annotations

from typing import Final

from delf.errors import PluginError
from delf.plugins.host import PluginHost
from delf.protocols.prefilter import Prefilter
from delf.specs import PrefilterSpec

FILTER_FROM: Final = 10
SEARCH_FROM: Final = 50


def choose_prefilter(host: PluginHost, mode: str, actions: int) -> Prefilter | None:
    """The prefilter for a number of actions.

    Args:
        host: Where prefilters come from.
        mode: ``auto`` (off under 10 actions, filter under 50, search from there), a mode
            that a plugin serves, or ``off``.
        actions: How many actions there are.

    Raises:
        PluginError: When a mode was asked for that no plugin serves.
    """
    wanted = mode
    if mode == "auto":
        wanted = "off" if actions < FILTER_FROM else "filter"
        wanted = "search" if actions >= SEARCH_FROM else wanted
    if wanted == "off":
        return None
    for spec in host.specs(PrefilterSpec):
        if wanted in spec.modes:
            return host.resolve(spec)()
    if mode == "auto":
        return None
    raise PluginError(
        f"no plugin serves prefilter_mode {mode!r}", hint="pip install delf-plugin-prefilter-llm"
    )
