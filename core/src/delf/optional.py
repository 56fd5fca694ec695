"""Parts of delf that are packages of their own, and that the core uses where they are installed."""

from __future__ import annotations

import importlib
from typing import Any

from delf.errors import OptionalDependencyError


def optional(module: str, what: str) -> Any:
    """A package by its module.

    Args:
        module: As ``delf_schemas``, of the distribution ``delf-schemas``.
        what: What it does, for the message.

    Raises:
        OptionalDependencyError: When it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        package = module.replace("_", "-")
        raise OptionalDependencyError(f"{what} is not installed", package=package) from None
