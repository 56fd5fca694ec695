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
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from delf.machine.own_files import create_private, make_private_folder
from delf_serve.keys import Caller
from delf_serve.problems import ProblemError
from delf_serve.schemas import FileReference, Stored
from delf_serve.settings import ServeSettings

_ID: Final = re.compile(r"file_[0-9a-f]{32}")
_INCOMPLETE_PREFIX: Final = "coming_"
_MAX_NAME_BYTES: Final = 255
_MIN_CHARGED_BYTES: Final = 4096
_CLEANUP_SECONDS: Final = 3600.0
# The seconds without new data after which an unfinished upload counts as abandoned.
_MAX_SECONDS_WITHOUT_DATA: Final = 3600.0
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Uploads:
    """The uploaded files, in a folder for each user.

    Uploads are private: a task can only use the uploads of its user.

    Args:
        folder: The upload folder, created with the first file.
        settings: The limits of size and age.
    """

    def __init__(self, folder: Path, settings: ServeSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._used_bytes: Counter[str] = Counter()
        self._counting_lock = asyncio.Lock()
        self._upload_count = 0  # the uploads in progress

    async def store(self, caller: Caller, name: str, chunks: AsyncIterator[bytes]) -> Stored:
        """Store an upload. An incomplete upload is removed.

        Args:
            caller: The user to whom the file belongs.
            name: The file's name.
            chunks: The content. Exceptions of the iterator are passed on.

        Raises:
            ProblemError: If the name is too long, the upload limit is reached, or the disk is full.
        """
        _check_length(name)
        user_folder = _user_folder(caller)
        file_id = f"file_{secrets.token_hex(16)}"
        folder = self._folder / user_folder / f"{_INCOMPLETE_PREFIX}{file_id}"
        async with self._upload_in_progress():
            try:
                size = await self._write(user_folder, folder / name, chunks)
                # Only complete files get the id with which a task can name them.
                await asyncio.to_thread(folder.rename, folder.with_name(file_id))
            except BaseException as error:  # also a cancellation, if the client disconnects
                shutil.rmtree(folder, ignore_errors=True)
                if isinstance(error, OSError) and error.errno in _FULL:
                    raise ProblemError(507, "the server's disk is full") from None
                raise
        return Stored(id=file_id, name=name, size=size, at=time.time())

    @asynccontextmanager
    async def _upload_in_progress(self) -> AsyncGenerator[None]:
        """Count an upload as in progress.

        If no other upload is in progress, first measure the used bytes again, because earlier
        uploads may have failed or been removed.
        """
        async with self._counting_lock:
            # Do not measure during another upload, whose unwritten bytes would be missing.
            if self._upload_count == 0:
                self._used_bytes = await asyncio.to_thread(self._measure_usage)
            self._upload_count += 1
        try:
            yield
        finally:
            self._upload_count -= 1

    async def _write(self, user_folder: str, path: Path, chunks: AsyncIterator[bytes]) -> int:
        """Write an upload to a new file, charge its bytes to the user, and return its size."""
        size = 0
        self._count_bytes(user_folder, _charged_bytes(0))  # an empty file is charged, too
        await asyncio.to_thread(make_private_folder, path.parent)
        # Fails if the name exists, so that a link cannot redirect the write to another file.
        with create_private(path) as file:
            async for chunk in chunks:
                new_size = size + len(chunk)
                self._count_bytes(user_folder, _charged_bytes(new_size) - _charged_bytes(size))
                await asyncio.to_thread(file.write, chunk)
                size = new_size
        return size

    async def list(self, caller: Caller) -> list[Stored]:
        """List the uploads of a user, newest first."""

        def list_files() -> list[Stored]:
            files: list[Stored] = []
            for file in (self._folder / _user_folder(caller)).glob("file_*/*"):
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
            return sorted(files, key=lambda file: file.at, reverse=True)

        return await asyncio.to_thread(list_files)

    async def remove(self, caller: Caller, file_id: str) -> None:
        """Remove an upload. A task that still needs the file will fail.

        Raises:
            ProblemError: If there is no such upload.
        """
        folder = self._path(caller, file_id).parent
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def paths(self, caller: Caller, files: Sequence[FileReference]) -> list[str] | None:
        """Return the paths of a task's uploaded files; None if the request names no files.

        Args:
            caller: The user of the task.
            files: The uploads that the request names.

        Raises:
            ProblemError: If the user has no such upload.
        """
        if not files:
            return None
        return await asyncio.to_thread(lambda: [str(self._path(caller, file.id)) for file in files])

    async def forget(self, paths: Collection[str]) -> None:
        """Remove those of the paths that are uploads, because no task needs them any more."""

        def remove_files() -> None:
            for path in map(Path, paths):
                # An upload is stored as <folder>/<user>/<id>/<name>.
                id_folder = path.parent
                is_upload = id_folder.parent.parent == self._folder
                if is_upload and _ID.fullmatch(id_folder.name):
                    shutil.rmtree(id_folder, ignore_errors=True)

        await asyncio.to_thread(remove_files)

    async def keep_removing_old(self) -> None:
        """Periodically remove old and abandoned uploads."""
        while True:
            await asyncio.to_thread(self._remove_old)
            await asyncio.sleep(_CLEANUP_SECONDS)

    def _path(self, caller: Caller, file_id: str) -> Path:
        if _ID.fullmatch(file_id):
            folder = self._folder / _user_folder(caller) / file_id
            files_in_folder = list(folder.glob("*"))  # one, or none if the upload is unknown
            if files_in_folder:
                return files_in_folder[0]
        raise ProblemError(404, f"no file {file_id[:60]!r} was sent in", "POST /files first")

    def _count_bytes(self, user_folder: str, size: int) -> None:
        """Count bytes against the upload limits before the bytes are written.

        Raises:
            ProblemError: If a limit is exceeded.
        """
        settings = self._settings
        # The bytes of a refused upload stay counted until _upload_in_progress() measures again.
        self._used_bytes[user_folder] += size
        if self._used_bytes[user_folder] > settings.user_file_bytes:
            raise ProblemError(
                413,
                f"your uploaded files have more than {settings.user_file_bytes:,} bytes",
                f"they are removed after {settings.file_days:g} days",
            )
        if self._used_bytes.total() > settings.all_file_bytes:
            raise ProblemError(507, "the server has no room for further files")

    def _measure_usage(self) -> Counter[str]:
        """Count the bytes of each user's uploads on disk, including those of other processes."""
        used: Counter[str] = Counter()
        for file in self._folder.glob("*/*/*"):
            try:
                user_folder = file.parent.parent  # the file is <user>/<id>/<name>
                used[user_folder.name] += _charged_bytes(file.stat().st_size)
            except OSError:  # it was removed meanwhile
                continue
        return used

    def _remove_old(self) -> None:
        """Remove uploads older than ``file_days``, and incomplete uploads that get no more data."""
        now = time.time()
        # Each upload has a folder <user>/<id>; that of an incomplete upload has a prefix.
        for folder in self._folder.glob("*/*_*"):
            max_age = self._settings.file_days * 86_400
            if folder.name.startswith(_INCOMPLETE_PREFIX):
                max_age = min(max_age, _MAX_SECONDS_WITHOUT_DATA)
            try:
                written_at = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
            except OSError:  # another process has removed the upload
                continue
            if written_at < now - max_age:
                shutil.rmtree(folder, ignore_errors=True)


def _charged_bytes(size: int) -> int:
    """Return the bytes that are charged for a file: its size, but at least a minimum.

    An empty file uses disk space, too.
    """
    return max(size, _MIN_CHARGED_BYTES)


def _user_folder(caller: Caller) -> str:
    """Return the name of a user's folder. The name is derived from an id that is never reused."""
    # A caller without an account has only a name, as on a server without API keys.
    user_id = caller.user or caller.name
    digest = hashlib.sha256(user_id.encode()).hexdigest()
    return f"key_{digest[:32]}"


def _check_length(name: str) -> None:
    """Raise an error for a file name that is too long for file systems."""
    if len(os.fsencode(name)) > _MAX_NAME_BYTES:
        raise ProblemError(409, f"the name of the file is longer than {_MAX_NAME_BYTES} bytes")
