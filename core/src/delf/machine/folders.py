"""The user's folders: the home folder, and those in which delf stores its own files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from delf.errors import ConfigurationError

FolderKind = Literal["cache", "config", "data", "state"]

_APP: Final = "delf"


def user_folder(kind: FolderKind) -> Path:
    """Return the folder for delf's files of one kind; the folder may not exist yet.

    Args:
        kind: The kind of the files, as in the XDG Base Directory Specification.

    Raises:
        ConfigurationError: If the user has no home folder, as in some containers, and no variable
            names the folder.
    """
    import platformdirs  # here, because most commands need none of these folders at their start

    functions = {
        "cache": platformdirs.user_cache_path,
        "config": platformdirs.user_config_path,
        "data": platformdirs.user_data_path,
        "state": platformdirs.user_state_path,
    }
    try:
        folder = functions[kind](_APP, appauthor=False)
    except RuntimeError:
        folder = None
    # Without a home folder, some versions of platformdirs return a path that begins with "~".
    if folder is None or not folder.is_absolute():
        raise ConfigurationError(
            f"the user has no home folder for delf's {kind} files",
            hint=f"set the variable HOME, or XDG_{kind.upper()}_HOME, to a folder",
        )
    return folder


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Replace ``~`` or ``~user`` at the start of a path by the home folder.

    The path of an unknown user, or of a user without a home folder, stays as it is, so that it is
    reported like any other missing file. ``Path.expanduser`` raises ``RuntimeError`` for such a
    path.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111
