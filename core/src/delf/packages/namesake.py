"""Detection of the unrelated distribution ``delf``, which would take over the command ``delf``."""

from __future__ import annotations

import os
from typing import Final

NAMESAKE: Final = "delf"
WARNING: Final = (
    "another project's package 'delf' is installed beside delf-core; whichever came last has the "
    "command 'delf'"
)
REMEDY: Final = (
    "pip uninstall delf, then pip install --force-reinstall --no-deps --find-links dist delf-core"
)


def is_installed_beside(file: str) -> bool:
    """Return True if another project's package ``delf`` is installed beside delf-core.

    The other package has a folder such as ``delf-1.2.dist-info`` in ``site-packages``.

    Args:
        file: The path of delf-core's ``delf/__init__.py``.
    """
    prefix = f"{NAMESAKE}-"
    try:
        site_packages = os.path.dirname(os.path.dirname(file))  # noqa: PTH120 - quick
        names = os.listdir(site_packages)  # noqa: PTH208 - quick
    except OSError:  # delf is imported from an archive, not a folder
        return False
    for name in names:
        if name.startswith(prefix):
            version = name.removeprefix(prefix)
            if version[:1].isdigit():
                return True
    return False
