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
"""The exceptions of tools, each with a built-in exception that represents it in Monty.

Monty does not support exceptions that a script defines. The built-in exceptions derive from each
other as the exceptions of tools do, and scripts hardly use them.
"""

PREAMBLE: Final = "import decimal as _decimal\n" + "\n".join(
    f"{name} = _decimal.{alias}" for name, alias in ALIASES.items()
)
