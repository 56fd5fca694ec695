"""A disk cache of slow documents and of the response shapes learned about them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

from pydantic import BaseModel, ValidationError

from delf.machine.own_files import write_private
from delf_openapi.sources import Source, dumps, path_of, read

_FRESH_SECONDS: Final = 24 * 3600

_log = logging.getLogger(__name__)


class _CachedDocument(BaseModel):
    format: Literal[5]  # increased to invalidate older files
    uri: str
    version: list[int]
    digest: str
    tree: dict[str, Any]


class Cache:
    """A folder with cached documents and learned response shapes.

    Args:
        folder: The path of the folder; None for the user's cache folder.
    """

    def __init__(self, folder: str | None) -> None:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        self._folder = Path(folder or f"{base}/delf/openapi").expanduser()

    def document(self, uri: str, limit: int) -> Source:
        """Return a document from the cache if its entry is valid; otherwise read and cache it.

        Raises:
            SpecError: If the document is invalid.
            ConnectionUnavailableError: If the document is not cached and cannot be read.
        """
        name = f"{_digest(uri)}.document"
        cached = self._read_entry(name, uri)
        version = _file_version(uri)
        if cached is not None and _is_fresh(uri, cached.version, version):
            return Source(uri, cached.tree, cached.digest)
        source = read(uri, limit)
        fields = {"format": 5, "uri": uri, "version": version, "digest": source.digest}
        self.write(name, {**fields, "tree": source.tree})
        return source

    def _read_entry(self, name: str, uri: str) -> _CachedDocument | None:
        try:
            cached = _CachedDocument.model_validate(self.read(name))
        except ValidationError:
            return None
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
    """Stores the response shapes learned for one version of a specification in a cached file.

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


def _file_version(uri: str) -> list[int]:
    """Return a file's modification time and size; for a URL, the current time in seconds.

    The list is empty if the file is missing.
    """
    if not uri.startswith("file:"):
        return [int(time.time())]
    try:
        file_status = path_of(uri).stat()
    except OSError:
        return []
    return [file_status.st_mtime_ns, file_status.st_size]


def _is_fresh(uri: str, cached_version: list[int], current_version: list[int]) -> bool:
    """Return True if a cached specification is still current.

    Args:
        uri: The address of the specification.
        cached_version: For a file, its modification time and size when the specification was
            cached; for another address, only the time of caching in seconds.
        current_version: The same values now.
    """
    if uri.startswith("file:"):
        return cached_version == current_version
    if len(cached_version) != 1:  # the cached entry is damaged
        return False
    (caching_time,), (current_time,) = cached_version, current_version
    age_in_seconds = current_time - caching_time
    return 0 <= age_in_seconds <= _FRESH_SECONDS
