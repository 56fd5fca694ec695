"""What people paste for a file: its id, or its address."""

from __future__ import annotations

import re
from typing import Final

from delf.errors import ToolRefusedError

_ADDRESS: Final = re.compile(r"https://[\w.-]+\.google\.com/.*?(?:/d/|/folders/|[?&]id=)([\w-]+)")
_ID: Final = re.compile(r"[\w-]{5,200}")


def file_id(given: str) -> str:
    """The id in an address of the editors or of Drive; an id stays as it is.

    Raises:
        ToolRefusedError: When it is neither.
    """
    found = _ADDRESS.match(given.strip())
    if found:
        return found[1]
    if not _ID.fullmatch(given.strip()):
        raise ToolRefusedError(f"{given[:200]!r} is neither the id nor the address of a file")
    return given.strip()
