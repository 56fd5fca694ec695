"""Uploaded files, kept until their tasks need them."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Final

from delf.machine.own_files import create_private, make_private_folder
from delf_serve.keys import Key
from delf_serve.problems import ProblemError
from delf_serve.schemas import FileReference, Stored
from delf_serve.settings import ServeSettings

_ID: Final = re.compile(r"file_[0-9a-f]{32}")
_COMING: Final = "coming_"
_MAX_BYTES: Final = 255
_MIN_BYTES: Final = 4096
"""The bytes that each file counts at least, because an empty file uses disk space, too."""
_LOOK_SECONDS: Final = 3600.0
_SILENT_SECONDS: Final = 3600.0
"""Seconds without data after which an upload counts as abandoned by a killed server."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Uploads:
    """The upload folder, with a subfolder for each owner and a folder for each of their files.

    A key's uploads are private: no other key's task can name them.

    Args:
        folder: The folder, created with the first file.
        settings: The limits of size and age.
    """

    def __init__(self, folder: Path, settings: ServeSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._used: Counter[str] = Counter()
        self._counting = asyncio.Lock()
        self._coming = 0

    async def store(self, key: Key, name: str, chunks: AsyncIterator[bytes]) -> Stored:
        """Store an upload; nothing is left behind if it is too large or breaks off.

        Args:
            key: The owner.
            name: The file's name.
            chunks: The content in chunks; its exceptions are passed on.

        Raises:
            ProblemError: If the name is a path, or the upload limit is reached.
        """
        _check_length(name)
        owner = _owner(key)
        file_id, size = f"file_{secrets.token_hex(16)}", 0
        place = self._folder / owner / f"{_COMING}{file_id}"
        async with self._counting:  # recount only while no upload is in progress
            if self._coming == 0:
                self._used = await asyncio.to_thread(self._count)
            self._coming += 1
        try:
            self._reserve(owner, _MIN_BYTES)
            await asyncio.to_thread(make_private_folder, place)
            # Fails if the name exists, so that a link cannot redirect the write to another file.
            with create_private(place / name) as file:
                async for chunk in chunks:
                    before, size = size, size + len(chunk)
                    self._reserve(owner, max(size, _MIN_BYTES) - max(before, _MIN_BYTES))
                    await asyncio.to_thread(file.write, chunk)
            # Complete files only get the id by which a task can name them.
            await asyncio.to_thread(place.rename, place.with_name(file_id))
        except BaseException as error:
            shutil.rmtree(place, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in _FULL:
                raise ProblemError(507, "the server's disk is full") from None
            raise
        finally:
            self._coming -= 1
        return Stored(id=file_id, name=name, size=size, at=time.time())

    async def list(self, key: Key) -> list[Stored]:
        """List the uploads of an owner, newest first."""

        def look() -> list[Stored]:
            files: list[Stored] = []
            for file in (self._folder / _owner(key)).glob("file_*/*"):
                try:
                    status = file.stat()
                except OSError:  # it was removed meanwhile
                    continue
                files.append(
                    Stored(
                        id=file.parent.name,
                        name=file.name,
                        size=status.st_size,
                        at=status.st_mtime,
                    )
                )
            return sorted(files, key=lambda one: one.at, reverse=True)

        return await asyncio.to_thread(look)

    async def remove(self, key: Key, file_id: str) -> None:
        """Remove an upload; a task that still needs the file fails.

        Raises:
            ProblemError: If there is no such upload.
        """
        place = self._path(key, file_id).parent
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)

    async def paths(self, key: Key, files: Sequence[FileReference]) -> list[str] | None:
        """Return the paths of a task's uploaded files; None without files.

        Args:
            key: The owner of the task.
            files: The uploads named in the request.
        """
        if not files:
            return None
        return await asyncio.to_thread(lambda: [str(self._path(key, file.id)) for file in files])

    async def forget(self, paths: Collection[str]) -> None:
        """Remove uploads that no task needs any more, ignoring other paths."""

        def work() -> None:
            for path in map(Path, paths):
                if path.parent.parent.parent == self._folder and _ID.fullmatch(path.parent.name):
                    shutil.rmtree(path.parent, ignore_errors=True)

        await asyncio.to_thread(work)

    async def keep_forgetting(self) -> None:
        """Periodically remove old and incomplete uploads."""
        while True:
            await asyncio.to_thread(self._forget_old)
            await asyncio.sleep(_LOOK_SECONDS)

    def _path(self, key: Key, file_id: str) -> Path:
        folder = self._folder / _owner(key) / file_id
        path = next(folder.glob("*"), None) if _ID.fullmatch(file_id) else None
        if path is None:
            raise ProblemError(404, f"no file {file_id[:60]!r} was sent in", "POST /files first")
        return path

    def _reserve(self, owner: str, size: int) -> None:
        """Reserve bytes of the upload limit before they are written."""
        settings = self._settings
        self._used[owner] += size
        if self._used[owner] > settings.key_file_bytes:
            most = f"{settings.key_file_bytes:,}"
            raise ProblemError(
                413,
                f"the uploaded files of this key have more than {most} bytes",
                f"they are removed after {settings.file_days:g} days",
            )
        if self._used.total() > settings.all_file_bytes:
            raise ProblemError(507, "the server has no room for further files")

    def _count(self) -> Counter[str]:
        """Count each owner's bytes on disk, where other processes store uploads, too."""
        used: Counter[str] = Counter()
        for file in self._folder.glob("*/*/*"):
            try:
                used[file.parent.parent.name] += max(file.stat().st_size, _MIN_BYTES)
            except OSError:  # it was removed meanwhile
                continue
        return used

    def _forget_old(self) -> None:
        now, longest = time.time(), self._settings.file_days * 86_400
        for place in self._folder.glob("*/*_*"):
            is_coming = place.name.startswith(_COMING)
            try:
                written = max(one.stat().st_mtime for one in (place, *place.iterdir()))
            except OSError:  # another process has removed it
                continue
            if written < now - (min(longest, _SILENT_SECONDS) if is_coming else longest):
                shutil.rmtree(place, ignore_errors=True)


def _owner(key: Key) -> str:
    """Return the name of an owner's folder, which is never reused."""
    return f"key_{hashlib.sha256((key.holder or key.name).encode()).hexdigest()[:32]}"


def _check_length(name: str) -> None:
    """Raise for a file name that is too long for file systems."""
    if len(os.fsencode(name)) > _MAX_BYTES:
        raise ProblemError(409, f"the name of the file is longer than {_MAX_BYTES} bytes")
