"""Agents that are written down in files, for delf. Names are imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delf_workers.connection import Workers
    from delf_workers.definition import WorkerDefinition
    from delf_workers.running import arun_worker, run_worker

__all__ = ["WorkerDefinition", "Workers", "arun_worker", "run_worker"]

_MODULE_OF_NAME: Final = {
    "WorkerDefinition": "delf_workers.definition",
    "Workers": "delf_workers.connection",
    "arun_worker": "delf_workers.running",
    "run_worker": "delf_workers.running",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'delf_workers' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF_NAME[name]), name)
