"""Tools and model of the programs in this folder; a program of yours imports its own tools here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from delf import tool

MODEL = os.environ.get("ORDERS_MODEL", f"recorded:{Path(__file__).with_suffix('.jsonl')}")
"""The model; without a key the answers in ``orders.jsonl``, each for one task of a process."""


@dataclass
class Count:
    """The answer of a task."""

    orders: int


@tool(effect="read", confirm=False)
def open_orders() -> list[str]:
    """Return the numbers of open orders."""
    return ["A-1", "A-2", "A-3"]
