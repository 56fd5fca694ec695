"""The store of logins: the system's keyring, or files that only their owner can read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final, cast

from delf.machine.own_files import write_private

_SERVICE: Final = "delf-google"


class TokenStore:
    """Logins by account and OAuth client.

    Args:
        folder: Where files are kept; the user's configuration folder when omitted.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Return the folder of the files."""
        if self._folder is None:
            from platformdirs import user_config_path

            self._folder = user_config_path("delf", appauthor=False) / "google"
        return self._folder

    def read(self, account: str, client_id: str) -> dict[str, Any] | None:
        """A login as google-auth writes it, or None where there is none."""
        key = _key(account, client_id)
        text = _from_keyring(key)
        if text is None:
            try:
                text = (self.folder / f"{key}.json").read_text(encoding="utf-8")
            except FileNotFoundError:
                return None
        try:
            found: Any = json.loads(text)
        except ValueError:
            return None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None

    def write(self, account: str, client_id: str, login: dict[str, Any]) -> str:
        """Keep a login in place of the one before.

        Returns:
            Where it is now, in words.
        """
        key, text = _key(account, client_id), json.dumps(login)
        path = self.folder / f"{key}.json"
        if _to_keyring(key, text):
            path.unlink(missing_ok=True)
            return "the system's keyring"
        write_private(path, text.encode())
        return str(path)

    def delete(self, account: str, client_id: str) -> bool:
        """Forget a login; whether there was one."""
        key = _key(account, client_id)
        path = self.folder / f"{key}.json"
        was_file = path.exists()
        path.unlink(missing_ok=True)
        return _drop_from_keyring(key) or was_file


def _key(account: str, client_id: str) -> str:
    return f"{account}-{hashlib.sha256(client_id.encode()).hexdigest()[:12]}"


def _keyring() -> Any:
    """The module, where it is installed."""
    try:
        import keyring
    except ImportError:
        return None
    return keyring


def _from_keyring(key: str) -> str | None:
    ring = _keyring()
    if ring is None:
        return None
    try:
        return ring.get_password(_SERVICE, key)
    except ring.errors.KeyringError:  # none on this machine, or it is locked
        return None


def _to_keyring(key: str, text: str) -> bool:
    ring = _keyring()
    if ring is None:
        return False
    try:
        ring.set_password(_SERVICE, key, text)
    except ring.errors.KeyringError:
        return False
    return ring.get_password(_SERVICE, key) == text


def _drop_from_keyring(key: str) -> bool:
    ring = _keyring()
    if ring is None:
        return False
    try:
        ring.delete_password(_SERVICE, key)
    except ring.errors.KeyringError:
        return False
    return True
