"""The file: a record per line, each with the digest of the line before it.

A changed, removed or inserted line breaks the chain at the next line. Removal of the last lines and
replacement of the whole file are detected only with an earlier digest stored elsewhere, or with the
key, with which each record is authenticated.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from delf.errors import ConfigurationError, DelfError
from delf.machine.own_files import make_private_folder

NO_PREDECESSOR: Final = "0" * 64
"""The digest that the first record contains, because it has no predecessor."""

NO_KEY: Final = "who wrote the records: DELF_AUDIT_KEY is not set"
_NO_GIVEN_DIGEST: Final = "that none was taken away: no --head that was noted elsewhere"

_BLOCK: Final = 64 * 1024


class AuditTrailError(DelfError):
    """The audit file is damaged, or was changed by somebody."""

    code = "ERR-AUDIT-001"


@dataclass(frozen=True, kw_only=True)
class VerifiedTrail:
    """The result of a successful verification.

    Args:
        records: The number of records in the file.
        head: The digest of the last line, which should be stored elsewhere.
        damaged_line_numbers: The numbers, from 1, of incompletely written lines.
        records_after_given_digest: The number of records after the line with the given digest;
            without a given digest, the number of all records.
        unproven: Descriptions of what could not be verified without a given digest or a key.
    """

    records: int
    head: str
    damaged_line_numbers: tuple[int, ...] = ()
    records_after_given_digest: int = 0
    unproven: tuple[str, ...] = ()


@dataclass
class _Chain:
    """The lines of a file up to the last one that was read.

    Args:
        line_count: The number of lines, which is also the number of the last line.
        record_count: The number of lines without the damaged ones.
        last_digest: The digest of the last line.
        damaged_line_numbers: The numbers, from 1, of incompletely written lines.
        records_up_to_given_digest: The number of records up to the line with the given digest; None
            if no line has this digest.
    """

    line_count: int = 0
    record_count: int = 0
    last_digest: str = NO_PREDECESSOR
    damaged_line_numbers: list[int] = field(default_factory=list[int])
    records_up_to_given_digest: int | None = None


class AuditTrail:
    """An audit file, shared by several processes.

    Args:
        path: The path of the file, which is created with its folder when the first record is
            written.
        key: The secret key with which each record is authenticated, if any.
    """

    def __init__(self, path: Path, key: bytes | None = None) -> None:
        self.path = path
        self._key = key

    def append(self, record: Mapping[str, Any], *, durable: bool = True) -> None:
        """Append a record to the file.

        Args:
            record: The fields of the record.
            durable: Whether to wait until the record is on the disk.

        Raises:
            OSError: If the record cannot be written completely; the file is then unchanged.
        """
        make_private_folder(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Several processes write: reading the last digest and appending must be one step.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            end = os.fstat(descriptor).st_size
            last_line = _last_line(descriptor, end)
            previous_digest = NO_PREDECESSOR if last_line is None else _digest(last_line)
            line = self._line({**record, "prev": previous_digest})
            data = line + b"\n"
            # The process that wrote the last line may have died before the line break.
            if last_line is not None and not _ends_line(descriptor, end):
                data = b"\n" + data
            _append_completely(descriptor, data, end)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def records(self) -> Iterator[dict[str, Any]]:
        """Return an iterator over the records, skipping incomplete lines.

        Raises:
            ConfigurationError: If the file does not exist.
        """
        return (record for _, record in self._lines() if record is not None)

    def check(self, given_digest: str | None = None) -> VerifiedTrail:
        """Check that the digests chain all records, and that the key authenticates each of them.

        Without a key or a given digest, the result says what remains unproven.

        Args:
            given_digest: A digest of a line that was noted earlier. If it is given, a line with
                this digest must still be in the file.

        Raises:
            AuditTrailError: If a check fails; the message has the number of the line.
            ConfigurationError: If the file does not exist.
        """
        # NO_PREDECESSOR is the digest of an empty file. No line has this digest, so treat it as no
        # digest.
        if given_digest == NO_PREDECESSOR:
            given_digest = None
        chain = self._read_chain(given_digest)
        self._require_complete_last_line(chain)
        if given_digest is not None and chain.records_up_to_given_digest is None:
            raise AuditTrailError(
                f"{self.path}: no line has the digest {given_digest}",
                hint="lines at the end were removed, or the file was rewritten",
            )
        known_records = chain.records_up_to_given_digest or 0  # 0 without a given digest
        return VerifiedTrail(
            records=chain.record_count,
            head=chain.last_digest,
            damaged_line_numbers=tuple(chain.damaged_line_numbers),
            records_after_given_digest=chain.record_count - known_records,
            unproven=self._unproven(given_digest),
        )

    def _read_chain(self, given_digest: str | None) -> _Chain:
        """Read the whole file, checking the digest and the key of each record."""
        chain = _Chain()
        for line, record in self._lines():
            chain.line_count += 1
            if record is None:
                chain.damaged_line_numbers.append(chain.line_count)
            else:
                self._check_record(chain.line_count, record, chain.last_digest)
                chain.record_count += 1
            # The next record contains the digest of this line, even if this line is damaged.
            chain.last_digest = _digest(line)
            if chain.last_digest == given_digest:
                chain.records_up_to_given_digest = chain.record_count
        return chain

    def _require_complete_last_line(self, chain: _Chain) -> None:
        # After a damaged last line, nothing shows whether further records are missing.
        if chain.line_count in chain.damaged_line_numbers:
            raise AuditTrailError(
                f"{self.path}:{chain.line_count}: the last line is cut off or is not a record",
                hint="a process may have died while it wrote; verify again after the next record",
            )

    def _unproven(self, given_digest: str | None) -> tuple[str, ...]:
        """Return texts about what a verification does not prove without a key or a digest."""
        unproven: list[str] = []
        if self._key is None:
            unproven.append(NO_KEY)
        if given_digest is None:
            unproven.append(_NO_GIVEN_DIGEST)
        return tuple(unproven)

    def _check_record(
        self, number: int, record: Mapping[str, Any], digest_of_previous_line: str
    ) -> None:
        if record.get("prev") != digest_of_previous_line:
            raise AuditTrailError(
                f"{self.path}:{number}: the chain is broken",
                hint="the line before this line was changed, removed or added",
            )
        if self._key is None:
            return
        record_without_mac = {name: value for name, value in record.items() if name != "mac"}
        # A stranger may have written any text, even one that is not valid Unicode.
        mac = str(record.get("mac")).encode("utf-8", "replace")
        if not hmac.compare_digest(mac, self._mac_of(record_without_mac).encode()):
            raise AuditTrailError(
                f"{self.path}:{number}: the record was not written with this key",
                hint="check DELF_AUDIT_KEY",
            )

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
        """Yield each line of the file with its record; the record is None for a damaged line.

        Raises:
            ConfigurationError: If the file cannot be read.
        """
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise ConfigurationError(
                f"cannot read {self.path}: {error.strerror}",
                hint="tasks write it with --observe audit, or with "
                'observers = ["audit"] under [agent] in delf.toml',
            ) from None
        with file:
            for line in file:
                yield line.rstrip(b"\n"), _parse_record(line)

    def _line(self, record: dict[str, Any]) -> bytes:
        if self._key is not None:
            record["mac"] = self._mac_of(record)
        return _json(record)

    def _mac_of(self, record: Mapping[str, Any]) -> str:
        assert self._key is not None  # noqa: S101 - without a key, records have no MAC
        return hmac.new(self._key, _json(record), hashlib.sha256).hexdigest()


def _json(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":"), default=str).encode()


def _parse_record(line: bytes) -> dict[str, Any] | None:
    """Parse a line of the file. Return None if the line is incomplete or is not a record."""
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_complete = isinstance(record, dict) and line.endswith(b"\n")
    return cast("dict[str, Any]", record) if is_complete else None


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _ends_line(descriptor: int, end: int) -> bool:
    return os.pread(descriptor, 1, end - 1) == b"\n"


def _last_line(descriptor: int, end: int) -> bytes | None:
    """Return the last line of a file of ``end`` bytes, without its line break; None if empty."""
    if end == 0:
        return None
    tail = b""
    start = end
    # Read blocks backwards, until the tail begins before the last line.
    while start > 0 and b"\n" not in tail.removesuffix(b"\n"):
        size = min(_BLOCK, start)
        start -= size
        tail = os.pread(descriptor, size, start) + tail
    return tail.removesuffix(b"\n").rpartition(b"\n")[2]


def _append_completely(descriptor: int, data: bytes, end: int) -> None:
    """Append data to a file of ``end`` bytes; undo an incomplete write."""
    written = 0
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    finally:
        # Remove an incomplete record, which would stay in the file as a damaged line.
        if written < len(data):
            os.ftruncate(descriptor, end)
