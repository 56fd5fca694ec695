"""The plugin's hooks."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import StrategySpec


@hookimpl
def delf_strategies() -> Iterable[StrategySpec]:
    yield StrategySpec(
        name="codegen",
        summary="The model writes a script that calls the tools.",
        factory="delf_strategy_codegen.strategy:CodegenStrategy",
    )
