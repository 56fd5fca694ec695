"""Routines: tasks that worked, kept as scripts that run without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_routines.routine import Routine
    from delf_routines.running import RoutineStrategy

__all__ = ["Routine", "RoutineStrategy"]


def __getattr__(name: str) -> Any:
    if name == "Routine":
        from delf_routines.routine import Routine

        return Routine
    if name == "RoutineStrategy":
        from delf_routines.running import RoutineStrategy

        return RoutineStrategy
    raise AttributeError(f"module 'delf_routines' has no attribute {name!r}")
