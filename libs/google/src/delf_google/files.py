"""Files: what people paste for one of Google's, and those of a task."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from delf import CallContext
from delf.errors import ToolRefusedError, did_you_mean

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


def read_task_file(context: CallContext | None, name: str, most: int) -> tuple[str, bytes]:
    """The name and content of a file that a task was given, or has written; in a thread.

    Args:
        context: The task.
        name: What scripts call it.
        most: Bytes; a larger file is refused.

    Raises:
        ToolRefusedError: When there is none, or it is too large.
    """
    known = {**context.input_files, **context.output_files} if context is not None else {}
    path = known.get(name) or known.get(Path(name).name)
    if path is None:
        raise ToolRefusedError(
            f"the task has no file {name[:200]!r}{did_you_mean(name, known)}. "
            f"Its files: {', '.join(known) or 'none'}"
        )
    size = path.stat().st_size
    if size > most:
        raise ToolRefusedError(f"{name} has {size:,} bytes, over {most:,}")
    return Path(name).name, path.read_bytes()
