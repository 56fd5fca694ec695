"""The test kit for plugins and for programs that embed delf: ``pip install "delf-core[testing]"``.

It is in the package ``delf-plugin-devkit``; this is the name under which it is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_devkit.testing import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":  # __path__ would make it a package
        raise AttributeError(f"module 'delf.testing' has no attribute {name!r}")
    try:
        kit = importlib.import_module("delf_devkit.testing")
    except ModuleNotFoundError as error:
        if error.name != "delf_devkit":
            raise
        from delf.errors import OptionalDependencyError

        raise OptionalDependencyError(
            "delf.testing is not installed", package="delf-core[testing]"
        ) from None
    return getattr(kit, name)


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
