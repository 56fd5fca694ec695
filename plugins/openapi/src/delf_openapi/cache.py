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
    """A cached document."""

    format: Literal[5]  # increased to invalidate older files
    uri: str
    state: list[int]
    digest: str
    tree: dict[str, Any]


class Cache:
    """Documents and learned shapes in a folder.

    Args:
        folder: The folder; the user's cache folder when None.
    """

    def __init__(self, folder: str | None) -> None:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        self._folder = Path(folder or f"{base}/delf/openapi").expanduser()

    def document(self, uri: str, limit: int) -> Source:
        """Return a document from the cache if still valid; otherwise read it.

        Raises:
            SpecError: If the document is invalid.
            ConnectionUnavailableError: If the document is unavailable and not cached.
        """
        name = f"{_digest(uri)}.document"
        cached = self._read_entry(name, uri)
        state = _file_version(uri)
        if cached is not None and _is_fresh(uri, cached.state, state):
            return Source(uri, cached.tree, cached.digest)
        source = read(uri, limit)
        fields = {"format": 5, "uri": uri, "state": state, "digest": source.digest}
        self.write(name, {**fields, "tree": source.tree})
        return source

    def _read_entry(self, name: str, uri: str) -> _CachedDocument | None:
        try:
            cached = _CachedDocument.model_validate(self.read(name))
        except ValidationError:
            return None
        return cached if cached.uri == uri else None

    def read(self, name: str) -> Any:
        """Return a cached file's content; None if missing or unreadable."""
        try:
            with (self._folder / name).open("rb") as file:
                _check_owner(file)
                return json.loads(file.read())
        except (OSError, ValueError, RecursionError):
            return None

    def write(self, name: str, value: Any) -> None:
        """Write a cached file atomically; an unwritable folder only causes a warning."""
        try:
            write_private(self._folder / name, dumps(value))
        except (OSError, ValueError, RecursionError) as error:
            _log.warning("%s cannot be kept: %s", name, error)


class Learned:
    """A file of shapes learned from responses to one version of a specification.

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
    """Refuse a file that other users may have written, even in a shared folder.

    Raises:
        OSError: If another user owns the file or may write to it.
    """
    if not hasattr(os, "geteuid"):  # Windows: the folder is the user's own
        return
    status = os.fstat(file.fileno())
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        _log.warning("%s is not used: others may have written it", file.name)
        raise PermissionError(f"{file.name} may have been written by others")


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _file_version(uri: str) -> list[int]:
    """Return a file's time and size, to detect changes; the current time for a URL."""
    if not uri.startswith("file:"):
        return [int(time.time())]
    try:
        status = path_of(uri).stat()
    except OSError:
        return []
    return [status.st_mtime_ns, status.st_size]


def _is_fresh(uri: str, kept: list[int], now: list[int]) -> bool:
    if uri.startswith("file:"):
        return kept == now
    return len(kept) == 1 and 0 <= now[0] - kept[0] <= _FRESH_SECONDS
