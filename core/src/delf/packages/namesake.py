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


def is_in_same_folder(file: str) -> bool:
    """Return True if the unrelated package ``delf`` is installed in the same folder.

    Only file names are compared, because the check runs at each ``import delf``.

    Args:
        file: The ``__init__.py`` of this package.
    """
    prefix = f"{NAMESAKE}-"
    try:
        names = os.listdir(os.path.dirname(os.path.dirname(file)))  # noqa: PTH120, PTH208 - quick
    except OSError:  # in an archive nothing is installed
        return False
    for name in names:
        version = name.removeprefix(prefix)
        if name.startswith(prefix) and version[:1].isdigit():
            return True
    return False
