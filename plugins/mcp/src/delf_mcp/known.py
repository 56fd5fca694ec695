"""Records kept between runs: trusted tool descriptions, and learned result types."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from delf.errors import ConfigurationError
from delf.machine.own_files import is_own_folder, read_own, write_own
from delf_mcp.settings import MCPSettings

_log = logging.getLogger(__name__)

_FORMAT: Final = 1


class KnownTools:
    """The tools of a server to which ``effects`` apply, with digests of their descriptions.

    A tool is recorded when a declared effect first applies to it. If its description changes later,
    the declaration no longer applies.

    Args:
        name: The connection's name.
        settings: The settings that identify the server.
    """

    def __init__(self, name: str, settings: MCPSettings) -> None:
        self._path = _folder() / f"{_digest_of(name, settings)}.json"

    def read(self) -> dict[str, str]:
        """Return the digests of the tools that are known."""
        try:
            text = read_own(self._path) if is_own_folder(self._path.parent) else None
            stored: Any = json.loads(text or b"")
            if stored["format"] != _FORMAT:
                return {}
            return {str(name): str(digest) for name, digest in stored["tools"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}

    def keep(self, digests: Mapping[str, str]) -> None:
        """Store digests. If they cannot be stored, they apply to this process only."""
        text = json.dumps({"format": _FORMAT, "tools": dict(digests)})
        try:
            write_own(self._path, text)
        except (OSError, ConfigurationError) as error:
            _log.warning("accepted tools are known only to this process: %s", error)


class Learned:
    """Learned result types of a server's tools.

    Args:
        name: The connection's name.
        settings: The settings that identify the server.
    """

    def __init__(self, name: str, settings: MCPSettings) -> None:
        from platformdirs import user_cache_path

        folder = user_cache_path("delf", appauthor=False) / "mcp"
        self._path = folder / f"{_digest_of(name, settings)}.learned"

    def read(self) -> Any:
        """Implements :class:`delf_schemas.samples.Store`."""
        try:
            text = read_own(self._path) if is_own_folder(self._path.parent) else None
            return json.loads(text or b"null")
        except (ValueError, RecursionError):
            return None

    def write(self, value: Any) -> None:
        """Implements :class:`delf_schemas.samples.Store`."""
        try:
            write_own(self._path, json.dumps(value))
        except (OSError, ConfigurationError) as error:
            _log.warning("the shapes of results are known only to this process: %s", error)


def _digest_of(name: str, settings: MCPSettings) -> str:
    """Return a digest of a server: its connection's name and its address."""
    where = [settings.url, settings.command, *settings.args]
    here = None if settings.command is None else str(settings.cwd or Path.cwd())
    text = json.dumps([name, here, *where])
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]


def _folder() -> Path:
    from platformdirs import user_state_path

    return user_state_path("delf", appauthor=False) / "mcp"
