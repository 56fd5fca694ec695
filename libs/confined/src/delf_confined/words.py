"""Words for error messages: short messages of libraries without folders, names of signals."""

from __future__ import annotations

import os
import re
import signal
from typing import Final

_MAX: Final = 600
_TRACE: Final = re.compile(r"stack trace|traceback|this error signals", re.IGNORECASE)
_POINTER: Final = ("LINE ", "^")
_PATH: Final = re.compile(r"""(?<=["'])/[^"'\n]+(?=["'])|(?<![\w./])/[^\s"':,;)]+""")


def shorten_message(text: str, max_length: int = _MAX) -> str:
    """Shorten an error message: cut it at a stack trace, and drop folders from its paths.

    Lines with which a database points at a place in an SQL statement are dropped, too.

    Args:
        text: The error message of a library.
        max_length: The maximum number of characters.
    """
    lines: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if _TRACE.search(line):
            break
        if line and not line.startswith(_POINTER):
            lines.append(line)
    return _PATH.sub(_without_folder, "; ".join(lines))[:max_length]


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGABRT``; ``signal 40`` for a signal without a name.

    Most real-time signals have no name in Python.
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _without_folder(path_match: re.Match[str]) -> str:
    """Return a path without its folder if the folder exists on this machine.

    Other texts that begin with a slash are returned unchanged.
    """
    folder, _, name = path_match.group().rpartition("/")
    # Unlike Path.is_dir(), os.path.isdir() raises no error for a name that is too long.
    is_folder = os.path.isdir(folder)  # noqa: PTH112
    return name if is_folder else path_match.group()
