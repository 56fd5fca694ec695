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

OWN: Final = (
    "FloatOperation",
    "ConversionSyntax",
    "DivisionImpossible",
    "InvalidContext",
    "Underflow",
    "Overflow",
)
"""The parents of scripts' exceptions, by which a script catches them."""

PARENTS: Final = {
    "Exception": "BaseException",
    "ArithmeticError": "Exception",
    "AssertionError": "Exception",
    "AttributeError": "Exception",
    "ImportError": "Exception",
    "IndexError": "LookupError",
    "KeyError": "LookupError",
    "LookupError": "Exception",
    "NameError": "Exception",
    "NotImplementedError": "RuntimeError",
    "OSError": "Exception",
    "PermissionError": "OSError",
    "RuntimeError": "Exception",
    "TimeoutError": "OSError",
    "ToolError": "Exception",
    "ToolException": "Exception",
    "TypeError": "Exception",
    "ValueError": "Exception",
    "ZeroDivisionError": "ArithmeticError",
}
"""The parents of Python's and delf's exceptions."""
