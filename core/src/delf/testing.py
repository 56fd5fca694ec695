"""The test kit for plugins and for programs that embed delf.

Import the kit under this name; the plugin that exports ``testing`` brings it.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    # The import system asks for names such as __path__, which would make this module a package.
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'delf.testing' has no attribute {name!r}")
    from delf.errors import OptionalDependencyError
    from delf.plugins.host import PluginHost

    try:
        # Without variables, so that DELF_DISABLE_PLUGINS cannot block the plugin with the kit.
        kit = PluginHost.discover(environ={}).load_export("testing")
    except OptionalDependencyError:
        raise OptionalDependencyError(
            "delf.testing is not installed", package="delf-core[testing]"
        ) from None
    return getattr(kit, name)


def __dir__() -> list[str]:
    # This module has no variable ``__all__``; __getattr__() returns the kit's.
    return sorted(__getattr__("__all__"))
