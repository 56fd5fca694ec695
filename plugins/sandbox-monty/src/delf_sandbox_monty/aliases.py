"""delf's exceptions as Monty has them."""

from __future__ import annotations

from typing import Final

ALIASES: Final = {
    "ToolError": "DecimalException",
    "ToolException": "Clamped",
    "ToolArgumentError": "Subnormal",
    "ToolNotAllowed": "Rounded",
    "ApprovalRejected": "Inexact",
}
"""Monty has no exceptions of one's own. These built-in ones are in the same family tree, and no
script raises or catches them otherwise."""

PREAMBLE: Final = "import decimal as _decimal\n" + "\n".join(
    f"{name} = _decimal.{alias}" for name, alias in ALIASES.items()
)
