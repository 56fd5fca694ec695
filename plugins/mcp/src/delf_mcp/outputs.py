"""Files that tasks wrote, as resources that the task's answer links to."""

from __future__ import annotations

import asyncio
import base64
import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import mcp_types as types

_MAX_FILES: Final = 1000
_MAX_BYTES: Final = 50_000_000


class Outputs:
    """The output files of the most recent tasks, which clients read by links.

    Links contain the id of the task, so that they cannot be guessed.
    """

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}  # of the files, by the URI of the link; oldest first

    def links(self, task_id: str, files: Mapping[str, str]) -> list[types.ContentBlock]:
        """Return links to a task's output files, with which clients can read the files.

        Only the newest ``_MAX_FILES`` links of all tasks stay valid.

        Args:
            task_id: The id of the task.
            files: A mapping from the name to the path of each file.
        """
        blocks: list[types.ContentBlock] = []
        for name, path in files.items():
            uri = f"delf://{task_id}/{quote(name, safe='')}"
            self._paths[uri] = Path(path)
            blocks.append(types.ResourceLink(uri=uri, name=name, mime_type=_type_of(name)))
        while len(self._paths) > _MAX_FILES:
            oldest_uri = next(iter(self._paths))
            del self._paths[oldest_uri]
        return blocks

    async def read(self, uri: str) -> types.TextResourceContents | types.BlobResourceContents:
        """Return the content of a file.

        Args:
            uri: The URI of a link.

        Raises:
            ValueError: If the URI is unknown, or the file is unreadable or too large.
        """
        path = self._paths.get(uri)
        if path is None:
            raise ValueError(f"there is no resource {uri!r}")
        data = await asyncio.to_thread(_content, path)
        kind = _type_of(path.name)
        try:
            return types.TextResourceContents(uri=uri, mime_type=kind, text=data.decode())
        except UnicodeDecodeError:
            blob = base64.b64encode(data).decode("ascii")
            return types.BlobResourceContents(uri=uri, mime_type=kind, blob=blob)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise ValueError(f"{path.name} has more than {_MAX_BYTES:,} bytes")
    return data


def _type_of(name: str) -> str:
    return mimetypes.guess_type(name)[0] or "application/octet-stream"
