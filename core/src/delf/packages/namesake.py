"""Another project's distribution ``delf``: installed here, too, it takes the command ``delf``."""

from __future__ import annotations

import os
from typing import Final

NAMESAKE: Final = "delf"
WARNING: Final = (
    "another project's package 'delf' is installed beside delf-core; whichever came last has the "
    "command 'delf'"
)
MENDED_BY: Final = (
    "pip uninstall delf, then pip install --force-reinstall --no-deps --find-links dist delf-core"
)


def is_beside(file: str) -> bool:
    """Return whether the other package is installed in the folder of this one.

    Only names are compared, because this runs at each ``import delf``.

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
