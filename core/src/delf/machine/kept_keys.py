"""Keys that the user stores with delf, read at every start.

The keys are variables, such as ``ACME_API_KEY``, that apply if neither the process nor a ``.env``
sets them. A value is stored in the system's keyring if there is one, else in a file that only the
user can read; the file always has the names.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from delf.errors import ConfigurationError
from delf.machine.folders import user_folder
from delf.machine.own_files import locked, read_private, write_private
from delf.records import dataclass

SERVICE: Final = "delf"
"""The service name of delf's entries in the system's keyring."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptKeys:
    """The API keys and other variables that the user has stored with delf.

    Args:
        file: The file with the names and, for values that are not in the keyring, the values.
    """

    file: Path

    @classmethod
    def here(cls) -> KeptKeys:
        """Return the stored keys of the current user."""
        return cls(user_folder("config") / "keys.json")

    def names(self) -> dict[str, bool]:
        """Return the variables' names, mapped to True if the keyring holds the value."""
        # The file has null in place of a value that the keyring holds.
        return {name: value is None for name, value in self._read().items()}

    def values(self, without: Mapping[str, str]) -> dict[str, str]:
        """Return the stored values by variable name.

        The keyring is opened only if it holds a value that the caller needs.

        Args:
            without: Variables that are set already; their stored values are left out.
        """
        stored = {name: value for name, value in self._read().items() if name not in without}
        # The file has None for the values that are in the keyring.
        values = {name: value for name, value in stored.items() if value is not None}
        names_in_keyring = [name for name in stored if name not in values]
        ring = _keyring() if names_in_keyring else None
        if ring is not None:
            for name in names_in_keyring:
                value = _read_keyring(ring, name)
                if value is not None:
                    values[name] = value
        return values

    def keep(self, name: str, value: str) -> str:
        """Store a variable in the keyring or, without a keyring, in the file.

        Returns:
            The place of the value for messages: ``the system's keyring``, or the file's path.

        Raises:
            ConfigurationError: If the name or value is invalid, or the file cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"{name!r} is not the name of a variable",
                hint="letters, digits and _, as MY_API_KEY",
            )
        value = value.strip()
        is_plain_text = value.isascii() and value.isprintable()
        if not value or not is_plain_text:
            raise ConfigurationError(
                f"the value for {name} is empty or has an invalid character",
                hint="copy the key again: letters, digits and plain punctuation",
            )
        ring = _keyring()
        in_ring = ring is not None and _write_keyring(ring, name, value)
        # The file lists all names; None as the value means that the keyring has the value.
        with locked(self.file):
            values = dict(self._read())
            values[name] = None if in_ring else value
            self._write(values)
        return "the system's keyring" if in_ring else str(self.file)

    def remove(self, name: str) -> bool:
        """Remove a stored variable; return False if the variable was not stored."""
        stored_keys = self._read()
        if name not in stored_keys:
            return False
        # The file has None in place of a value that is stored in the keyring.
        is_in_keyring = stored_keys[name] is None
        if is_in_keyring and (ring := _keyring()) is not None:
            _remove_from_keyring(ring, name)
        with locked(self.file):
            values = dict(self._read())  # again, because another process may have changed the file
            values.pop(name, None)
            self._write(values)
        return True

    def _read(self) -> dict[str, str | None]:
        """Read the file; return the values by variable name, None for values in the keyring."""
        content = read_private(self.file)
        if content is None:
            if self.file.exists():
                _warn(f"{self.file} is not read: others can read it (chmod 600 {self.file})")
            return {}
        try:
            data: Any = json.loads(content)
            return {str(name): None if v is None else str(v) for name, v in data.items()}
        except (ValueError, AttributeError, RecursionError):
            _warn(
                f"{self.file} is not read: it is not a JSON object; delete it, and keep keys again"
            )
            return {}

    def _write(self, values_by_name: Mapping[str, str | None]) -> None:
        try:
            write_private(self.file, json.dumps(values_by_name, indent=1).encode())
        except OSError as error:
            raise ConfigurationError(f"{self.file} cannot be written: {error.strerror}") from error


def own_variables() -> dict[str, str]:
    """Return this process's environment variables, and the stored API keys not among them."""
    process = dict(os.environ)
    try:
        stored_keys = KeptKeys.here().values(process)
    except ConfigurationError:  # without a home folder, no key can have been stored
        return process
    return {**stored_keys, **process}


@cache
def _warn(text: str) -> None:
    """Log a warning; the same warning is logged once per process."""
    _log.warning("%s", text)


def _keyring() -> Any:
    """Return the keyring, if the package ``keyring`` is installed and finds a backend."""
    try:
        import keyring  # optional, and slow to import
    except ImportError:
        return None
    try:
        backend = keyring.get_keyring()
        # The backend that always fails has priority 0; the plain-text backend is below 1, too.
        usable = backend.priority >= 1
    except Exception as error:  # keyrings raise errors of any type
        _log.debug("no keyring can be used: %s", error)
        return None
    return backend if usable else None


def _read_keyring(ring: Any, name: str) -> str | None:
    try:
        return ring.get_password(SERVICE, name)
    except Exception as error:  # the keyring is locked or gone
        _warn(f"the keyring does not give {name}: {error}")
        return None


def _write_keyring(ring: Any, name: str, value: str) -> bool:
    """Store a value in the keyring; return False if the keyring did not store the value."""
    try:
        ring.set_password(SERVICE, name, value)
        return ring.get_password(SERVICE, name) == value
    except Exception as error:  # the keyring is locked or read-only
        _log.debug("the keyring does not take %s: %s", name, error)
        return False


def _remove_from_keyring(ring: Any, name: str) -> None:
    try:
        ring.delete_password(SERVICE, name)
    except Exception as error:  # keyrings raise errors of any type
        _log.warning("the keyring did not remove %s: %s", name, error)
