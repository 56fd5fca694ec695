"""Another project's distribution ``delf``: installed here, too, it takes the command ``delf``."""

from __future__ import annotations

import os
from typing import Final

NAMESAKE: Final = "delf"
TOLD: Final = (
    "another project's package 'delf' is installed beside delf-core; whichever came last has the "
    "command 'delf'"
)
MENDED_BY: Final = (
    "pip uninstall delf, then pip install --force-reinstall --no-deps --find-links dist delf-core"
)


def is_beside(file: str) -> bool:
    """Tell whether the other one is installed in the folder where this package is.

    Only names are looked at, as this happens at each ``import delf``.

    Args:
        file: The ``__init__.py`` of this package.
    """
    start = len(NAMESAKE) + 1
    try:
        names = os.listdir(os.path.dirname(os.path.dirname(file)))  # noqa: PTH120, PTH208 - quick
    except OSError:  # in an archive nothing is installed
        return False
    return any(
        name.startswith(f"{NAMESAKE}-") and name[start : start + 1].isdigit() for name in names
    )
