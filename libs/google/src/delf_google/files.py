"""Files: pasted addresses of Google files, and files of a task."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from delf import CallContext
from delf.errors import ToolRefusedError

# A file published to the web has another kind of id, after ``/d/e/``, which no API knows.
_ADDRESS: Final = re.compile(
    r"https://[\w.-]+\.google\.com/.*?(?:/d/|/folders/|[?&]id=)([\w-]{5,})"
)
_ID: Final = re.compile(r"[\w-]{5,200}")


def file_id(id_or_url: str) -> str:
    """Return the file id in a URL of Google Docs, Sheets or Drive; return an id unchanged.

    Raises:
        ToolRefusedError: If the text is neither such a URL nor an id.
    """
    url_match = _ADDRESS.match(id_or_url.strip())
    if url_match:
        return url_match[1]
    if not _ID.fullmatch(id_or_url.strip()):
        raise ToolRefusedError(f"{id_or_url[:200]!r} is neither the id nor the address of a file")
    return id_or_url.strip()


def read_task_file(context: CallContext | None, name: str, max_bytes: int) -> tuple[str, bytes]:
    """Return the base name and the content of a file that the task got or wrote. Blocking.

    Args:
        context: The context of the call; None outside of a task.
        name: The file's name in the task's scripts.
        max_bytes: The maximum size of the file in bytes.

    Raises:
        ToolRefusedError: If the file is missing or too large, or there is no task.
    """
    if context is None:
        raise ToolRefusedError(f"there is no task, and so no file {name[:200]!r}")
    return Path(name).name, context.read_file(name, max_bytes)
