"""The engine's hooks. Its public names are entry points."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import StrategySpec


@hookimpl
def delf_strategies() -> Iterable[StrategySpec]:
    yield StrategySpec(
        name="one-call",
        summary="One call without a model, for `delf mcp serve` and calls that a schedule repeats.",
        factory="delf_engine.one_call:OneCall",
    )
