"""The store of logins: files that only their owner can read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, cast

from delf.machine.folders import user_folder
from delf.machine.own_files import write_private


class TokenStore:
    """Stores Google logins in files, one for each pair of account and OAuth client.

    Args:
        folder: The folder of the files; the user's configuration folder when omitted.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """The folder of the login files."""
        if self._folder is None:
            self._folder = user_folder("config") / "google"
        return self._folder

    def path(self, account: str, client_id: str) -> Path:
        """Return the path of a login's file."""
        return self.folder / f"{account}-{hashlib.sha256(client_id.encode()).hexdigest()[:12]}.json"

    def read(self, account: str, client_id: str) -> dict[str, Any] | None:
        """Return a login in google-auth's JSON format; None if there is no readable login."""
        try:
            content: Any = json.loads(self.path(account, client_id).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if isinstance(content, dict):
            return cast("dict[str, Any]", content)
        return None

    def write(self, account: str, client_id: str, login: dict[str, Any]) -> Path:
        """Store a login, replacing an earlier one; return the path of its file."""
        path = self.path(account, client_id)
        write_private(path, json.dumps(login).encode())
        return path

    def delete(self, account: str, client_id: str) -> None:
        """Delete the file of a login, if it exists."""
        self.path(account, client_id).unlink(missing_ok=True)
