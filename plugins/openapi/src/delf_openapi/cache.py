"""A disk cache of slow documents and of the response shapes learned about them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from typing import Any, BinaryIO, Final, Literal

from pydantic import BaseModel, ValidationError

from delf.machine.folders import expand_home, user_folder
from delf.machine.own_files import write_private
from delf_openapi.sources import Source, dumps, path_of, read

_FRESH_SECONDS: Final = 24 * 3600

_log = logging.getLogger(__name__)


class _CachedDocument(BaseModel):
    """A document in the cache.

    Args:
        format: The format of the file; increased to invalidate older files.
        uri: The address.
        read_at: The Unix time at which a URL was read; None for a file.
        file_version: The modification time and the size of a file; None for a URL.
        digest: The digest of the document's bytes.
        tree: The content.
    """

    format: Literal[6]
    uri: str
    read_at: float | None
    file_version: tuple[int, int] | None
    digest: str
    tree: dict[str, Any]


class Cache:
    """A folder with cached documents, and with the types seen in the data of earlier responses.

    Args:
        folder: The path of the folder; None for the user's cache folder.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = expand_home(folder) if folder else user_folder("cache") / "openapi"

    def document(self, uri: str, max_bytes: int) -> Source:
        """Return a document from the cache if its entry is valid; otherwise read and cache it.

        Raises:
            SpecError: If the document is invalid.
            ConnectionUnavailableError: If the document is not cached and cannot be read.
        """
        name = f"{_digest(uri)}.document"
        cached = self._read_entry(name, uri)
        # Get the version before reading the file: if the file changes during the read, the new
        # entry counts as outdated.
        file_version = _file_version(uri)
        if cached is not None and _is_fresh(cached, file_version):
            return Source(uri, cached.tree, cached.digest)
        source = read(uri, max_bytes)
        entry = {
            "format": 6,
            "uri": uri,
            "read_at": None if uri.startswith("file:") else time.time(),
            "file_version": file_version,
            "digest": source.digest,
            "tree": source.tree,
        }
        self.write(name, entry)
        return source

    def _read_entry(self, name: str, uri: str) -> _CachedDocument | None:
        try:
            cached = _CachedDocument.model_validate(self.read(name))
        except ValidationError:
            return None
        # Compare the whole address, because the file's name has only a digest of it.
        return cached if cached.uri == uri else None

    def read(self, name: str) -> Any:
        """Return the JSON of a cached file; None if the file is missing or unreadable."""
        try:
            with (self._folder / name).open("rb") as file:
                _check_owner(file)
                return json.loads(file.read())
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, name: str, value: Any) -> None:
        """Write JSON to a cached file atomically; log a warning if the folder is not writable."""
        try:
            write_private(self._folder / name, dumps(value))
        except (OSError, ValueError, RecursionError) as error:
            _log.warning("%s cannot be kept: %s", name, error)


class Learned:
    """Stores the types seen in responses, for one version of a specification, in a cached file.

    Args:
        cache: The cache.
        version: The digest of the specification.
    """

    def __init__(self, cache: Cache, version: str) -> None:
        self._cache = cache
        self._name = f"{version}.learned"

    def read(self) -> Any:
        """Implements :class:`delf_schemas.samples.Store`."""
        return self._cache.read(self._name)

    def write(self, value: Any) -> None:
        """Implements :class:`delf_schemas.samples.Store`."""
        self._cache.write(self._name, value)


def _check_owner(file: BinaryIO) -> None:
    """Raise if another user may have written a file.

    Raises:
        OSError: If another user owns the file or may write to it.
    """
    if not hasattr(os, "geteuid"):  # Windows: the folder is the user's own
        return
    file_status = os.fstat(file.fileno())
    if file_status.st_uid not in (0, os.geteuid()) or file_status.st_mode & 0o022:
        _log.warning("%s is not used: others may have written it", file.name)
        raise PermissionError(f"{file.name} may have been written by others")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _file_version(uri: str) -> tuple[int, int] | None:
    """Return a file's modification time and size; None for a URL, or if the file is missing."""
    if not uri.startswith("file:"):
        return None
    try:
        file_status = path_of(uri).stat()
    except OSError:
        return None
    return file_status.st_mtime_ns, file_status.st_size


def _is_fresh(cached: _CachedDocument, file_version: tuple[int, int] | None) -> bool:
    """Return True if a file is unchanged since it was cached, or if a URL was read recently.

    Args:
        cached: The document in the cache.
        file_version: The modification time and size of the file now; None for a URL.
    """
    if cached.read_at is None:
        return cached.file_version == file_version
    age_in_seconds = time.time() - cached.read_at
    return 0 <= age_in_seconds <= _FRESH_SECONDS  # below 0, the clock was put back
