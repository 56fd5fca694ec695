"""Files that are sent in, kept until their tasks need them; names are names and never paths."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import secrets
import shutil
import time
import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from delf_serve.problems import ProblemError
from delf_serve.schemas import FileReference, InlineFile, Stored

_ID: Final = re.compile(r"file_[0-9a-f]{32}")
_MOST_BYTES: Final = 255
_KEPT_SECONDS: Final = 30 * 86_400.0
"""A task that waits for a person may need its files for weeks."""


class Uploads:
    """A folder of files, each in a folder of its own that is named by chance.

    Args:
        folder: Where; made when the first file comes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def store(self, name: str, chunks: AsyncIterator[bytes]) -> Stored:
        """Keep a file; nothing stays of one that is too large or breaks off.

        Args:
            name: What it is called.
            chunks: Its bytes; a failure while they come goes through.

        Raises:
            ProblemError: When its name is a path.
        """
        check_name(name)
        file_id = f"file_{secrets.token_hex(16)}"
        place = self._folder / file_id
        place.mkdir(parents=True, mode=0o700)
        size = 0
        try:
            with (place / name).open("xb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    await asyncio.to_thread(file.write, chunk)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return Stored(id=file_id, name=name, size=size)

    async def paths(self, files: list[InlineFile | FileReference]) -> list[str] | None:
        """The paths of a task's input files; None when it has none of its own."""
        paths: list[str] = []
        for file in files:
            if isinstance(file, FileReference):
                paths.append(str(self._path(file.id)))
            else:
                stored = await self.store(file.name, _once(base64.b64decode(file.content)))
                paths.append(str(self._path(stored.id)))
        return paths or None

    def _path(self, file_id: str) -> Path:
        folder = self._folder / file_id
        if not _ID.fullmatch(file_id) or not folder.is_dir():
            raise ProblemError(404, f"no file {file_id[:60]!r} was sent in", "POST /files first")
        return next(folder.iterdir())

    def forget_old(self) -> None:
        """Remove what was sent in long ago."""
        before = time.time() - _KEPT_SECONDS
        for place in self._folder.glob("file_*") if self._folder.is_dir() else ():
            if place.stat().st_mtime < before:
                shutil.rmtree(place, ignore_errors=True)


def check_name(name: str) -> None:
    """Refuse a name that is more or less than the name of a file.

    Raises:
        ProblemError: Saying what is wrong.
    """
    bad = any(unicodedata.category(mark) in ("Cc", "Cs", "Zl", "Zp") for mark in name)
    if bad or "/" in name or "\\" in name or name in (".", "..", "") or name != name.strip():
        raise ProblemError(422, "that is no name of a file", "letters, no slashes, no paths")
    if len(os.fsencode(name)) > _MOST_BYTES:
        raise ProblemError(422, f"the name of the file is longer than {_MOST_BYTES} bytes")


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
