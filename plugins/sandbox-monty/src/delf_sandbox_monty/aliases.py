"""Mapping of delf's exceptions to Monty's built-in ones."""

from __future__ import annotations

from typing import Final

ALIASES: Final = {
    "ToolError": "DecimalException",
    "ToolException": "Clamped",
    "ToolArgumentError": "Subnormal",
    "ToolNotAllowed": "Rounded",
    "ApprovalRejected": "Inexact",
}
"""Substitutes for script-defined exceptions, which Monty does not support: built-in exceptions
of the same family that scripts otherwise do not use.
"""

PREAMBLE: Final = "import decimal as _decimal\n" + "\n".join(
    f"{name} = _decimal.{alias}" for name, alias in ALIASES.items()
)
