"""Files: pasted addresses of Google files, and files of a task."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from delf import CallContext
from delf.errors import ToolRefusedError

_ADDRESS: Final = re.compile(r"https://[\w.-]+\.google\.com/.*?(?:/d/|/folders/|[?&]id=)([\w-]+)")
_ID: Final = re.compile(r"[\w-]{5,200}")


def file_id(id_or_url: str) -> str:
    """Return the id in an address of the editors or of Drive; an id is unchanged.

    Raises:
        ToolRefusedError: If the text is neither.
    """
    url_match = _ADDRESS.match(id_or_url.strip())
    if url_match:
        return url_match[1]
    if not _ID.fullmatch(id_or_url.strip()):
        raise ToolRefusedError(f"{id_or_url[:200]!r} is neither the id nor the address of a file")
    return id_or_url.strip()


def read_task_file(context: CallContext | None, name: str, max_bytes: int) -> tuple[str, bytes]:
    """Return the name and content of a task's input or written file; call this in a thread.

    Args:
        context: The task.
        name: The name in scripts.
        max_bytes: Bytes; a larger file is refused.

    Raises:
        ToolRefusedError: If the file is missing or too large.
    """
    if context is None:
        raise ToolRefusedError(f"there is no task, and so no file {name[:200]!r}")
    return Path(name).name, context.read_file(name, max_bytes)
