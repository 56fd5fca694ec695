"""Files about servers that outlive the process: known tools, and learned result types."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

from delf.errors import ConfigurationError
from delf.machine.folders import user_folder
from delf.machine.own_files import is_private_folder, read_private, write_private_text
from delf_mcp.settings import MCPSettings
from delf_schemas.effects import folder_of_known_actions

_log = logging.getLogger(__name__)


def known_tools_path(name: str, settings: MCPSettings) -> Path:
    """Return the path of the file with the tools to which the setting ``effects`` applies.

    Args:
        name: The connection's name.
        settings: The settings that identify the server.
    """
    return folder_of_known_actions("mcp") / f"{_digest_of(name, settings)}.json"


class LearnedTypes:
    """A file with the types that delf has seen in the results of a server's tools.

    Implements :class:`delf_schemas.samples.Store`.

    Args:
        name: The connection's name.
        settings: The settings that identify the server.
    """

    def __init__(self, name: str, settings: MCPSettings) -> None:
        folder = user_folder("cache") / "mcp"
        self._path = folder / f"{_digest_of(name, settings)}.learned"

    def read(self) -> Any:
        """Return the stored value; None without a readable file."""
        text = _read_if_private(self._path)
        if text is None:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None

    def write(self, value: Any) -> None:
        """Write the learned types; if the file cannot be written, log a warning."""
        try:
            write_private_text(self._path, json.dumps(value))
        except (OSError, ConfigurationError) as error:
            _log.warning("the learned result types cannot be saved for later tasks: %s", error)


def _read_if_private(path: Path) -> bytes | None:
    """Return the content of a file; None if the file is missing or other users can access it."""
    return read_private(path) if is_private_folder(path.parent) else None


def _digest_of(name: str, settings: MCPSettings) -> str:
    """Return a digest of the connection's name and of the server's address or command line."""
    address = [settings.url, settings.command, *settings.args]
    working_folder = None if settings.command is None else str(settings.cwd or Path.cwd())
    text = json.dumps([name, working_folder, *address])
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:32]
