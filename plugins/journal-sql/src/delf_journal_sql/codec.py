"""Encoding of events as rows: JSON, with large fields compressed and stored separately."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from delf.errors import UnreadableEventError
from delf.events import Event, decode, encode
from delf_journal_sql.statements import SqlRow

_log = logging.getLogger(__name__)
DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError, zlib.error)
"""The exceptions that decoding a damaged row raises."""
_COMPRESSION_LEVEL: Final = 1
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Blob:
    """A large field of an event, compressed; ``size`` is the length of its JSON in bytes."""

    digest: str
    size: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Packed:
    """An event in the form in which the database stores it.

    Args:
        event: The event itself.
        type: The name of the event's class.
        data: The JSON of all fields that are not blobs.
        blob_digests: The JSON of a mapping from field name to the digest of its blob; None without
            blobs.
        blobs: The blobs.
    """

    event: Event
    type: str
    data: str
    blob_digests: str | None = None
    blobs: tuple[Blob, ...] = ()


def pack(event: Event, limit: int) -> Packed:
    """Encode an event for the database.

    Args:
        event: The event.
        limit: The maximum number of characters of ``data``. If exceeded, large fields become blobs.
    """
    record = encode(event)
    data = _dumps(record["data"])
    if len(data) <= limit:  # the usual case, which needs no encoding of single fields
        return Packed(event, record["type"], data)
    # A smaller field is not worth a blob, which costs a query to read.
    max_inline_chars = limit // 8
    inline_fields: list[str] = []
    blobs_by_field: dict[str, Blob] = {}
    for name, value in record["data"].items():
        text = _dumps(value)
        if len(text) <= max_inline_chars:
            inline_fields.append(f"{_dumps(name)}:{text}")
        else:
            blobs_by_field[name] = _as_blob(text)
    inline_data = f"{{{','.join(inline_fields)}}}"
    digests = {name: blob.digest for name, blob in blobs_by_field.items()}
    blobs = {blob.digest: blob for blob in blobs_by_field.values()}  # equal fields share a blob
    return Packed(
        event,
        record["type"],
        inline_data,
        blob_digests=_dumps(digests) if digests else None,
        blobs=tuple(blobs.values()),
    )


def _as_blob(text: str) -> Blob:
    """Compress the JSON of a large field."""
    encoded = text.encode()
    digest = hashlib.sha256(encoded).hexdigest()
    return Blob(digest, len(encoded), zlib.compress(encoded, _COMPRESSION_LEVEL))


def unpack(task_id: str, row: SqlRow, load_blob: Callable[[str], bytes]) -> Event:
    """Decode an event from a row of the database.

    Args:
        task_id: The task's id.
        row: A row with ``seq``, ``at``, ``type``, ``v``, ``data`` and ``blobs``.
        load_blob: Loads a blob by its digest.

    Raises:
        UnreadableEventError: If the row is damaged, or a newer version of delf wrote it.
    """
    try:
        values: dict[str, Any] = json.loads(row.data)
        if row.blobs:
            for name, digest in json.loads(row.blobs).items():
                values[name] = value_of(digest, load_blob)
        record = {
            "type": row.type,
            "v": row.v,
            "task_id": task_id,
            "seq": row.seq,
            "at": row.at,
            "data": values,
        }
        return decode(record)
    except DAMAGE as error:
        raise UnreadableEventError(
            f"event {row.seq} of task {task_id} is damaged: {type(error).__name__}: {error}"
        ) from error


@functools.lru_cache(1000)
def warn_of_unreadable(effect: str, reason: str) -> None:
    """Log a warning about an unreadable event, once for each effect and reason.

    Args:
        effect: The consequence, as a sentence without a full stop.
        reason: The reason why the event cannot be read.
    """
    _log.warning("%s: %s", effect, reason)


def value_of(digest: str, load_blob: Callable[[str], bytes]) -> Any:
    """Load the value of an event's large field: JSON data that is stored as a blob, not in the row.

    Args:
        digest: The digest of the blob.
        load_blob: Loads a blob by its digest.
    """
    return json.loads(zlib.decompress(load_blob(digest)))


def plain_text(text: str) -> str:
    """Replace NUL characters and unpaired surrogates, which databases refuse."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _dumps(value: Any) -> str:
    """Return compact JSON, with ASCII escapes only for texts that have no UTF-8 form."""
    text = _ENCODER.encode(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:  # lone surrogates, which databases refuse
        return json.dumps(value, separators=(",", ":"))
    return text
