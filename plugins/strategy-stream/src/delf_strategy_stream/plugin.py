"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec, StrategySpec


@hookimpl
def delf_strategies() -> Iterable[StrategySpec]:
    yield StrategySpec(
        name="stream",
        summary="Thoughts and tool calls in one stream, over requests or an open session.",
        factory="delf_strategy_stream.strategy:StreamStrategy",
        plugin_settings="delf_strategy_stream.settings:StreamSettings",
    )


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    yield ConnectionSpec(
        name="profile",
        summary="A short description of the user, which a person has reviewed.",
        factory="delf_strategy_stream.profile:Profile",
    )
