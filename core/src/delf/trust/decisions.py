"""Trust in a folder: its files have no effect before the user trusts them.

The user's state folder has a record for each trusted folder, with the folder's real path and the
digests of the trusted files. If a file changes, the user has to trust the file again.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final, Self

from delf.errors import ConfigurationError, FolderNotTrustedError
from delf.machine.folders import user_folder
from delf.machine.own_files import is_private_folder, locked, read_private, write_private_text
from delf.records import dataclass
from delf.trust.folders import CONFIG_FILE, parse_toml, values_by_path

VARIABLE: Final = "DELF_TRUST"
"""The environment variable with folders to trust without asking."""

Items = Mapping[str, Mapping[str, str]]
"""The parts of a project's files that are trusted: a mapping from file to values by key.

A settings file has an entry for each setting. Any other file has one entry, with an empty key and
the digest of the file as its value.
"""

_FORMAT: Final = 1


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a folder's files since the user trusted the folder.

    Args:
        file: The file's path in the folder.
        key: The key in the file; empty for the whole file.
        kind: ``new``, ``changed`` or ``gone``.
    """

    file: str
    key: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Trusted:
    """The record of a trusted folder.

    Args:
        root: The folder's real path.
        at: The Unix time at which it was last trusted.
        salt: The prefix of all digests of this folder.
        digests: The digest of each trusted part of the folder's files: a mapping from file to
            digests by setting. A file without settings has one digest, with an empty key.
    """

    root: Path
    at: float
    salt: str = field(repr=False)
    digests: Mapping[str, Mapping[str, str]] = field(repr=False)

    def changes(self, items: Items) -> Iterator[Change]:
        """Yield the changes since the folder was trusted; only files in ``items`` are compared."""
        for file, parts in items.items():
            trusted_digests = self.digests.get(file)
            if trusted_digests is None:
                yield Change(file=file, key="", kind="new")
                continue
            for key, value in parts.items():
                if key not in trusted_digests:
                    yield Change(file=file, key=key, kind="new")
                elif trusted_digests[key] != _digest(self.salt, file, key, value):
                    yield Change(file=file, key=key, kind="changed")
            # A removed setting counts: without it, a default applies.
            for key in trusted_digests.keys() - parts.keys():
                yield Change(file=file, key=key, kind="gone")


@dataclass(frozen=True, kw_only=True)
class Trust:
    """The trust decisions that apply: stored decisions, and folders that are trusted as a whole.

    Args:
        fully_trusted: Real paths of folders that are trusted with all their contents: by the
            program, on the command line, or by ``DELF_TRUST``.
    """

    fully_trusted: tuple[Path, ...] = ()

    @classmethod
    def here(cls, *folders: str | os.PathLike[str]) -> Self:
        """Return the trust with the folders of ``DELF_TRUST`` and further folders.

        The stored decisions of the user apply, too. Each check reads these decisions anew.

        Args:
            folders: Further folders to trust with all their contents.

        Raises:
            ConfigurationError: If ``DELF_TRUST`` has a relative path.
        """
        names = os.environ.get(VARIABLE, "").split(os.pathsep)
        listed_folders = [Path(name) for name in names if name]
        for folder in listed_folders:
            if not folder.is_absolute():
                raise ConfigurationError(
                    f"{VARIABLE} names {str(folder)!r}, which is a relative path",
                    hint=f"an absolute path, as {VARIABLE}=/srv/project",
                )
        all_folders = (*listed_folders, *map(Path, folders))
        return cls(fully_trusted=tuple(folder.resolve() for folder in all_folders))

    def check(self, root: Path, items: Items) -> None:
        """Raise unless the user trusts the given files of a folder.

        Args:
            root: The folder.
            items: The contents of the files.

        Raises:
            FolderNotTrustedError: If a file or setting is not trusted; the error lists the files.
        """
        real_root = root.resolve()
        if not items or self._is_fully_trusted(real_root):
            return
        trusted = load_trusted(real_root)
        if trusted is None:
            raise FolderNotTrustedError(real_root, tuple(items), changed=False)
        # List only the changed files: the user has reviewed all others.
        changed_files = dict.fromkeys(change.file for change in trusted.changes(items))
        if changed_files:
            raise FolderNotTrustedError(real_root, tuple(changed_files), changed=True)

    def keep(self, root: Path, items: Items) -> None:
        """Update the trust record after delf changed a trusted file on the user's behalf.

        Args:
            root: The folder.
            items: The contents of the changed files.

        Raises:
            ConfigurationError: If the record cannot be written.
        """
        real_root = root.resolve()
        # A folder that is trusted with all its contents needs no record.
        if items and not self._is_fully_trusted(real_root):
            remember(real_root, items)

    def _is_fully_trusted(self, real: Path) -> bool:
        return any(real.is_relative_to(folder) for folder in self.fully_trusted)


def whole_file_items(path: Path, content: bytes, root: Path) -> Items:
    """Return ``{path: {"": digest}}`` for a file that the user trusts as a whole.

    The path in the result is relative to ``root``. For a file outside of ``root``, the result is
    empty.

    Args:
        path: The file.
        content: The content of the file.
        root: The folder that the user trusts.

    Raises:
        ConfigurationError: If the file is a link that leads out of the folder.
    """
    root = root.resolve()
    own_path = path.absolute()
    target = path.resolve()
    is_target_in_folder = target.is_relative_to(root)
    if own_path.is_relative_to(root):
        if not is_target_in_folder:
            raise ConfigurationError(f"{own_path} is a link out of {root}")
        # The path may be a link to another file of the folder. The user trusts the file under the
        # name of the link.
        known_path = own_path
    elif is_target_in_folder:
        # A link from outside into the folder, or a path whose folders are links.
        known_path = target
    else:
        return {}
    return {known_path.relative_to(root).as_posix(): digest_items(content)}


def digest_items(content: bytes) -> Mapping[str, str]:
    """Return ``{"": digest}``, for a file that the user trusts as a whole.

    The empty key stands for the whole file. If the user trusts the parts of a file one by one, the
    keys name the parts (:func:`items_of`).
    """
    return {"": hashlib.sha256(content).hexdigest()}


def items_of(name: str, text: str) -> Mapping[str, str]:
    """Return the parts of a file that the user trusts one by one, by the key of each part.

    The parts of the configuration file are the values of its settings, such as
    ``{"agent.timeout": "60"}``. Any other file is one part: :func:`digest_items`.

    Args:
        name: The path in the folder.
        text: The content of the file.
    """
    if name == CONFIG_FILE:
        return values_by_path(parse_toml(text))
    return digest_items(text.encode())


def store() -> Path:
    """Return the folder in which the records of trusted folders are stored."""
    return user_folder("state") / "trust"


def load_trusted(root: Path) -> Trusted | None:
    """Return the stored decision to trust a folder; None if the user has not trusted the folder.

    Args:
        root: The real path.
    """
    folder = store()
    # Anybody who can write into the store could have decided for the user. This includes the
    # authors of the files if the store is inside of the folder.
    if not _is_private_store(folder, root):
        return None
    return _read(_file(folder, root))


def all_trusted() -> list[Trusted]:
    """Return the stored decisions for all trusted folders, sorted by path."""
    folder = store()
    if not is_private_folder(folder):
        return []
    records = map(_read, folder.glob("*.json"))
    readable = [record for record in records if record is not None]
    return sorted(readable, key=lambda record: record.root)


def remember(root: Path, items: Items) -> None:
    """Store the decision to trust files of a folder, in addition to files trusted earlier.

    Args:
        root: The folder.
        items: The contents of the files.

    Raises:
        ConfigurationError: If the record cannot be written.
    """
    root = root.resolve()
    folder = store()
    # Whoever changes the files of a folder could also change a record in this folder.
    if not folder.is_absolute() or folder.resolve().is_relative_to(root):
        raise ConfigurationError(
            f"trust in {root} cannot be kept, as {folder} lies in it",
            hint=f"{VARIABLE}={root} trusts it for a process; XDG_STATE_HOME names another place",
        )
    record_file = _file(folder, root)
    try:
        with locked(record_file):
            write_private_text(record_file, _extended_record(root, items))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"trust cannot be kept: {error.message}", hint=error.hint
        ) from None
    except OSError as error:
        raise ConfigurationError(
            f"trust cannot be kept in {folder}: {error.strerror}",
            hint=f"{VARIABLE}={root} trusts the folder for a process",
        ) from error


def _extended_record(root: Path, items: Items) -> str:
    """Return the text of a new trust record of a folder, for the caller to write.

    The new record has the files of the present record, and the given files.
    """
    before = load_trusted(root)
    # Keep the salt of an earlier record, because its digests contain this salt.
    salt = secrets.token_hex(16) if before is None else before.salt
    digests = {} if before is None else dict(before.digests)
    for file, parts in items.items():
        digests[file] = {key: _digest(salt, file, key, value) for key, value in parts.items()}
    return json.dumps(
        {
            "format": _FORMAT,
            "root": str(root),
            "at": time.time(),
            "salt": salt,
            "digests": digests,
        }
    )


def revoke(root: Path) -> bool:
    """Remove a folder's trust record; return False if there was none."""
    folder = store()
    real_root = root.resolve()
    was_trusted = load_trusted(real_root) is not None
    if was_trusted:
        record_file = _file(folder, real_root)
        with locked(record_file):  # else a process that extends the record would write it again
            record_file.unlink(missing_ok=True)
    return was_trusted


def _file(folder: Path, root: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"


def _digest(salt: str, file: str, key: str, value: str) -> str:
    # The salt prevents a lookup of the digest in a table of precomputed digests of likely secrets.
    text = json.dumps([salt, file, key, value])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _is_private_store(folder: Path, root: Path) -> bool:
    """Return True if ``folder`` is outside of ``root``, and only the user can access ``folder``."""
    if not folder.is_absolute():  # relative to the working directory, which may be in ``root``
        return False
    if folder.resolve().is_relative_to(root):
        return False
    return is_private_folder(folder)


def _read(path: Path) -> Trusted | None:
    """Read a trust record; None if it is missing, invalid or accessible to others."""
    content = read_private(path)
    if content is None:
        return None
    try:
        data: Any = json.loads(content)
        if data["format"] != _FORMAT:
            return None
        root = Path(data["root"])
        digests = {file: dict(parts) for file, parts in data["digests"].items()}
        record = Trusted(root=root, at=float(data["at"]), salt=data["salt"], digests=digests)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    # The name of a record's file is derived from the trusted folder, so that a record copied to
    # another name is invalid.
    if path != _file(path.parent, root):
        return None
    return record
